//! The truth about an interval, and the label that follows from it.
//!
//! It is measured, not computed: the same mix is sent to the same disk in full health faster than it can follow, which
//! gives the most that it does of that mix; and one request at a time, which gives the time that nobody waits. So
//! neither depends on the formulas that are to be judged.

use std::collections::HashMap;
use std::fmt;

use plimsoll_core::Op;
use plimsoll_observe::stat::Verdict;
use plimsoll_sim::device::{BufferSpec, DeviceSpec};
use plimsoll_sim::workload::{Load, Pattern};
use plimsoll_sim::world::DiskCounters;

use super::world::{Disk, Stream, run_alone};

/// How far a figure may be from a threshold of the rule for both sides to count: the truth has noise of its own.
const NEAR_USE: f64 = 0.03;
const NEAR_SATURATION: f64 = 0.05;

/// Below both of these "next to nothing" is a right word, too.
const IDLE_BUSY: f64 = 0.06;
const IDLE_USE: f64 = 0.02;
/// Requests over which the time of one that is alone is measured.
const ALONE_REQUESTS: f64 = 1000.0;

/// What was so.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Truth {
    /// Part of the most that the healthy disk does of this mix.
    pub(crate) capacity_use: f64,
    /// Part of their time that requests waited, 1 - (time of a request that is alone) / (its time); `None`: none
    /// completed. This is S as it is defined.
    pub(crate) waiting: Option<f64>,
    /// The part of the requests under way that the disk does not need to be full, 1 - N* / N, with N* what is under way
    /// at the knee. Where the disk is full it is the same; below, it counts meeting by chance as no waiting. What `stat`
    /// calls S may be either or between.
    pub(crate) beyond_knee: Option<f64>,
    /// Part of the interval with a request under way.
    pub(crate) busy: f64,
    /// Whether the disk serves one request after the other.
    is_serial: bool,
    completions: u64,
    in_flight: u64,
}

/// Measures, and remembers what it has measured.
#[derive(Default)]
pub(crate) struct Reference {
    alone_ns: HashMap<String, f64>,
    most_per_s: HashMap<String, [f64; 2]>,
}

impl Reference {
    pub(crate) fn truth(&mut self, disk: &Disk, streams: &[Stream], moved: &DiskCounters, interval_ns: u64) -> Truth {
        let duration_s = interval_ns as f64 / 1e9;
        let per_s = [moved.reads, moved.writes].map(|count| count as f64 / duration_s);
        let mut truth = Truth {
            busy: moved.busy_ns as f64 / interval_ns as f64,
            is_serial: disk.healthy.hdd.is_some(),
            completions: moved.reads + moved.writes,
            in_flight: moved.in_flight,
            ..Truth::default()
        };
        // What completes after its phase has ended belongs to no stream.
        if truth.completions == 0 || streams.is_empty() {
            return truth;
        }
        let most = self.most_per_s(disk, streams, per_s);
        let parts = per_s.iter().zip(most).map(|(done, most)| if most > 0.0 { done / most } else { 0.0 });
        truth.capacity_use = parts.fold(0.0, f64::max);
        let (mut alone_ns, mut taken_ns) = (0.0, 0.0);
        for stream in streams {
            let (count, ns) = match stream.op {
                Op::Read => (moved.reads, moved.read_ns),
                _ => (moved.writes, moved.write_ns),
            };
            alone_ns += self.alone_ns(disk, stream) * count as f64;
            taken_ns += ns as f64;
        }
        let part = |needed_ns: f64| Some((1.0 - needed_ns / taken_ns).max(0.0));
        truth.waiting = part(alone_ns);
        truth.beyond_knee = part(alone_ns / truth.capacity_use.min(1.0));
        truth
    }

    /// Mean time of a request that is alone, with pauses in which a buffer empties.
    fn alone_ns(&mut self, disk: &Disk, stream: &Stream) -> f64 {
        let key = key(disk, stream);
        if let Some(alone_ns) = self.alone_ns.get(&key) {
            return *alone_ns;
        }
        let pause_s = 20.0 / rated(disk, stream);
        let load = Load::Closed { parallelism: 1, think_ns: (pause_s * 1e9) as u64, think_after_ns: 0 };
        let duration_s = 2.0 * ALONE_REQUESTS * (pause_s + 1.0 / rated(disk, stream));
        let moved = run_alone(&disk.healthy, &[Stream { load, ..stream.clone() }], (duration_s * 1e9) as u64);
        let alone_ns = (moved.read_ns + moved.write_ns) as f64 / (moved.reads + moved.writes) as f64;
        self.alone_ns.insert(key, alone_ns);
        alone_ns
    }

    /// The most reads and writes a second in the proportion of `per_s`.
    fn most_per_s(&mut self, disk: &Disk, streams: &[Stream], per_s: [f64; 2]) -> [f64; 2] {
        let share = (20.0 * per_s[0] / (per_s[0] + per_s[1])).round();
        let key = streams.iter().map(|stream| key(disk, stream)).collect::<String>() + &share.to_string();
        if streams.len() == 1
            && let Some(most) = self.most_per_s.get(&key)
        {
            return *most;
        }
        // A buffer only puts off what must be done.
        let spec = DeviceSpec { buffer: BufferSpec::default(), ..disk.healthy.clone() };
        let guess =
            streams.iter().map(|stream| per_s[usize::from(stream.op == Op::Write)] / rated(disk, stream)).sum::<f64>();
        let mut factor = 1.5 / guess.max(1e-6);
        let most = loop {
            let offered = per_s.map(|rate| rate * factor);
            let total = offered[0] + offered[1];
            let duration_ns = (4e8_f64).max(3000.0 * 1e9 / total) as u64;
            let faster: Vec<Stream> = streams
                .iter()
                .map(|stream| Stream {
                    load: Load::poisson(offered[usize::from(stream.op == Op::Write)].max(1.0)),
                    ..stream.clone()
                })
                .collect();
            let moved = run_alone(&spec, &faster, duration_ns);
            let done = [moved.reads, moved.writes].map(|count| count as f64 * 2e9 / duration_ns as f64);
            if done.iter().zip(offered).any(|(done, offered)| *done < 0.9 * offered) {
                break done;
            }
            factor *= 2.0;
        };
        self.most_per_s.insert(key, most);
        most
    }
}

/// What the figures promise of a stream alone, per second.
pub(crate) fn rated(disk: &Disk, stream: &Stream) -> f64 {
    let figures = disk.model.figures;
    let (iops, bytes) = match stream.op {
        Op::Read => (figures.read_iops, figures.read_bandwidth),
        _ => (figures.write_iops, figures.write_bandwidth),
    };
    let (iops, bytes) = (iops.get().unwrap() as f64, bytes.get().unwrap() as f64);
    iops.min(bytes / f64::from(stream.len_bytes))
}

fn key(disk: &Disk, stream: &Stream) -> String {
    let pattern = if stream.pattern == Pattern::Random { "random" } else { "in order" };
    format!("{} {:?} {} {pattern};", disk.name, stream.op, stream.len_bytes)
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{part:.2}"));
        let (waiting, beyond) = (part(self.waiting), part(self.beyond_knee));
        write!(f, "U {:.2} S {waiting} ({beyond}) busy {:.2}", self.capacity_use, self.busy)
    }
}

impl Truth {
    /// What may be said of it. U and S decide (>= 0.9 and >= 0.4: saturated; < 0.7 and >= 0.4: degraded, if something
    /// was done to the disk; busy for 90 % with U < 0.3 and S < 0.1: busy but free); so does that nothing completes.
    /// From 0.7 to 0.9 with S >= 0.4 the rule is silent: as a disk near its knee, both neighbours are right. A disk that
    /// nothing is wrong with may be judged by either form of S.
    ///
    /// Without a model nobody can tell the limit of a volume from that of its instance: held at a cap, it may be called
    /// throttled as well as saturated.
    pub(crate) fn labels(&self, has_fault: bool, is_cap_unknown: bool) -> Vec<Verdict> {
        if self.completions == 0 {
            return vec![if self.in_flight > 0 { Verdict::Hung } else { Verdict::Idle }];
        }
        let waiting = self.waiting.unwrap_or(0.0);
        let beyond_knee = if has_fault { waiting } else { self.beyond_knee.unwrap_or(0.0) };
        let mut labels = Vec::new();
        for capacity_use in [self.capacity_use - NEAR_USE, self.capacity_use, self.capacity_use + NEAR_USE] {
            for saturation in [waiting - NEAR_SATURATION, waiting, waiting + NEAR_SATURATION, beyond_knee] {
                for busy in [self.busy - NEAR_USE, self.busy] {
                    labels.extend(self.rule(capacity_use, saturation, busy, has_fault));
                }
            }
        }
        if self.busy < IDLE_BUSY && self.capacity_use < IDLE_USE {
            labels.push(Verdict::Idle);
        }
        if is_cap_unknown && labels.contains(&Verdict::Saturated) {
            labels.push(Verdict::Degraded);
        }
        labels.sort();
        labels.dedup();
        labels
    }

    fn rule(&self, capacity_use: f64, saturation: f64, busy: f64, has_fault: bool) -> &'static [Verdict] {
        if saturation >= 0.4 {
            return match capacity_use {
                0.9.. => &[Verdict::Saturated],
                0.7.. => &[Verdict::Ok, Verdict::Saturated],
                _ if has_fault => &[Verdict::Degraded],
                // Chance alone makes requests of a serial disk wait: nothing is wrong with it.
                _ => &[Verdict::Ok],
            };
        }
        if self.is_serial && busy >= 0.9 {
            // It can do no more, though nobody waits: for such a disk %util means what it says.
            return &[Verdict::Ok, Verdict::Saturated];
        }
        if busy >= 0.9 && capacity_use < 0.3 && saturation < 0.1 { &[Verdict::BusyButFree] } else { &[Verdict::Ok] }
    }
}
