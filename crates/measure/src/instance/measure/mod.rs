//! Measures the machine it runs on: the figures of a [`Card`].
//!
//! **Why.** Machines are compared by what they do, measured by one program in the same way, in minutes.
//!
//! **How.** [`measure`] goes through [`Group`]s, one after the other, so that none disturbs another. Each brings a
//! [`Part`]: figures with their samples, facts, warnings, and what it could not measure with the reason. Time is
//! divided in one place, [`Budgets`]. The disk comes first: what is wrong with what was asked for shows there, before
//! minutes are spent. Ctrl-C ([`Control::stop`]) ends the group that is under way; what is left is missing as
//! interrupted.
//!
//! **Limits.** One machine at one time; whatever else runs on it is measured with it. The time that a hypervisor took
//! meanwhile is a figure of its own, and above 2 % a warning; so are other programs that used more than 5 % of the
//! processors while these, the memory or the timers were measured.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::{Budgets, CardOptions, Group, measure};
//! use plimsoll_measure::load::Control;
//! // A real card leaves these lines out: `Budgets::STANDARD`, nothing skipped, and a disk.
//! let skip = vec![Group::Memory, Group::Timer, Group::StressNg, Group::Network];
//! let budgets = Budgets { samples: 3, cpu_s: 0.02, ..Budgets::QUICK };
//! let options = CardOptions { budgets, skip, ..CardOptions::new("db-7") };
//! let card = measure(&options, &mut (), &Control::default())?.card;
//! assert!(card.value("cpu.hash_one_bytes_per_s").is_some());
//! assert!(card.missing["disk"].contains("--storage"));
//! # Ok::<(), plimsoll_measure::tune::TuneError>(())
//! ```

mod child;
mod cpu;
mod disk;
pub mod iperf3;
mod machine;
mod memory;
mod sampler;
pub mod stress_ng;
mod submission;
#[cfg(test)]
mod tests;
mod timer;

use plimsoll::sys::clock::now_ns;
use plimsoll::sys::pin;
use plimsoll::sys::rusage::process_cpu_ns;
use plimsoll::sys::submission::READ_FILE_BYTES;

pub use machine::host_name;

use super::{Card, Figure, Origin, figures};
use crate::load::Control;
use crate::tune::{Observer, TuneError, TuneOptions, TuneReport};
use machine::{Machine, Roots, Ticks};
use sampler::Sampling;

/// Why something is missing that was not measured because of a stop.
const INTERRUPTED: &str = "interrupted";
/// From so many per cent of stolen time on, figures are said to suffer from it.
const STEAL_PCT: f64 = 2.0;
/// From so many per cent of the processors' time on that others use, figures are said to suffer from it.
const OTHERS_PCT: f64 = 5.0;

/// What one part of a measurement brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Figures by their keys in [`super::figures`].
    pub figures: Vec<(String, Figure)>,
    /// What is not a number, by name: `cpu.model`.
    pub facts: Vec<(String, String)>,
    /// What could not be measured, by key or group, and why, with what to do about it.
    pub missing: Vec<(String, String)>,
    /// What a reader should know before believing the figures.
    pub warnings: Vec<String>,
}

impl Part {
    fn figure(&mut self, key: &str, figure: Figure) {
        self.figures.push((key.to_owned(), figure));
    }

    fn fact(&mut self, name: &str, text: impl Into<String>) {
        self.facts.push((name.to_owned(), text.into()));
    }

    fn miss(&mut self, key: &str, reason: &str) {
        self.missing.push((key.to_owned(), reason.to_owned()));
    }

    /// The mean of samples, or why there are none.
    fn sampled(&mut self, key: &str, samples: Result<Vec<f64>, String>) {
        match samples.map(Figure::of_samples) {
            Ok(Some(figure)) => self.figure(key, figure),
            Ok(None) => self.miss(key, "there was no time for a sample"),
            Err(reason) => self.miss(key, &reason),
        }
    }
}

/// What is measured together, and can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The disk, by `tune`.
    Disk,
    /// CPU time of a read.
    Submission,
    /// Hashing, products of matrices, sorting.
    Cpu,
    /// Bandwidth and latency of the memory.
    Memory,
    /// Reading the clock, and sleeping.
    Timer,
    /// stress-ng, where it is installed.
    StressNg,
    /// iperf3, where it is installed.
    Network,
}

impl Group {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Group; 7] =
        [Group::Disk, Group::Submission, Group::Cpu, Group::Memory, Group::Timer, Group::StressNg, Group::Network];

    /// Its name: of the command line, and where it is missing as a whole.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Group::Disk => "disk",
            Group::Submission => "submission",
            Group::Cpu => "cpu",
            Group::Memory => "memory",
            Group::Timer => "timer",
            Group::StressNg => "stress_ng",
            Group::Network => "network",
        }
    }
}

impl std::str::FromStr for Group {
    type Err = String;

    fn from_str(name: &str) -> Result<Group, String> {
        let is_named = |group: &Group| group.name() == name.replace('-', "_");
        Group::ALL.into_iter().find(is_named).ok_or_else(|| {
            let names = Group::ALL.map(Group::name).join(", ");
            format!("nothing of this name is measured: use one of {names}")
        })
    }
}

/// How long each group takes, in seconds: the whole card within six minutes, the quick one within 90 seconds.
///
/// Samples of a group share its time, and none of the two sets has samples shorter than 100 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// Samples of a figure, at least 1; an interval takes 3.
    pub samples: usize,
    /// What `tune` takes at most ([`TuneOptions::new`], [`TuneOptions::quick`]); it keeps to that by itself.
    pub disk_s: f64,
    /// Three ways of submission.
    pub submission_s: f64,
    /// Three kinds of work, on one thread and on all.
    pub cpu_s: f64,
    /// Reading and copying, on one thread and on all; latency.
    pub memory_s: f64,
    /// Reading the clock, and sleeping.
    pub timer_s: f64,
    /// Nine stressors.
    pub stress_ng_s: f64,
    /// Throughput and small packets.
    pub network_s: f64,
}

impl Budgets {
    /// The usual card.
    pub const STANDARD: Budgets = Budgets {
        samples: 5,
        disk_s: 300.0,
        submission_s: 3.0,
        cpu_s: 6.0,
        memory_s: 5.0,
        timer_s: 3.0,
        stress_ng_s: 30.0,
        network_s: 8.0,
    };

    /// The short one.
    pub const QUICK: Budgets = Budgets {
        samples: 3,
        disk_s: 60.0,
        submission_s: 0.9,
        cpu_s: 1.8,
        memory_s: 1.5,
        timer_s: 0.6,
        stress_ng_s: 12.0,
        network_s: 8.0,
    };

    /// Time of a group.
    #[must_use]
    pub fn of(&self, group: Group) -> f64 {
        match group {
            Group::Disk => self.disk_s,
            Group::Submission => self.submission_s,
            Group::Cpu => self.cpu_s,
            Group::Memory => self.memory_s,
            Group::Timer => self.timer_s,
            Group::StressNg => self.stress_ng_s,
            Group::Network => self.network_s,
        }
    }

    fn of_ns(&self, group: Group) -> u64 {
        (self.of(group) * 1e9) as u64
    }

    /// Length of a sample where a group makes so many measurements.
    fn sample_ns(&self, group: Group, measurements: usize) -> u64 {
        self.of_ns(group) / (measurements.max(1) * self.samples.max(1)) as u64
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct CardOptions {
    /// What to call the machine.
    pub name: String,
    /// How to measure the disk, and where; `None`: there is no disk on the card. Its bound on written bytes holds for
    /// all groups together, but for the few files of stress-ng.
    pub disk: Option<TuneOptions>,
    /// How long to measure.
    pub budgets: Budgets,
    /// What to leave out.
    pub skip: Vec<Group>,
    /// Where an iperf3 server runs; `None`: one is started here, and no network is measured but what the machine does
    /// with one.
    pub peer: Option<iperf3::Peer>,
}

impl CardOptions {
    /// Everything but a disk, with [`Budgets::STANDARD`].
    #[must_use]
    pub fn new(name: impl Into<String>) -> CardOptions {
        CardOptions { name: name.into(), disk: None, budgets: Budgets::STANDARD, skip: Vec::new(), peer: None }
    }
}

/// What [`measure`] found.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The machine's card.
    pub card: Card,
    /// What is known of the disk beyond the card, where it was measured.
    pub disk: Option<TuneReport>,
}

/// Measures this machine. When `control` says stop, the rest is missing; whatever was written is removed in any case.
///
/// # Errors
/// [`TuneError`] where [`CardOptions::disk`] makes no sense: no such directory, too little may be written. A disk that
/// fails is missing on the card.
pub fn measure(options: &CardOptions, observer: &mut dyn Observer, control: &Control) -> Result<Measured, TuneError> {
    let roots = Roots::default();
    // Where the kernel does not tell, the threads are not pinned, and one is measured.
    let cpus = pin::allowed_cpus().ok().filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| vec![0]);
    let (machine, part) = machine::read(&roots, cpus.len());
    let mut card = Card::new(options.name.as_str(), Origin::measured(today()));
    add(&mut card, part);
    let ticks = Ticks::read(&roots);
    let mut session = Session { options, cpus, machine, control, disk: None };
    for group in Group::ALL {
        let part = session.group_alone(group, observer)?;
        // Those of the disk have been told as they came.
        let told = if group == Group::Disk { part.warnings.len() } else { 0 };
        part.warnings.iter().skip(told).for_each(|text| observer.on_note(&format!("warning: {text}")));
        add(&mut card, part);
    }
    add(&mut card, steal(ticks.zip(Ticks::read(&roots))));
    Ok(Measured { card, disk: session.disk })
}

/// One measurement on its way.
struct Session<'a> {
    options: &'a CardOptions,
    /// Processors that this process may use, at least one.
    cpus: Vec<usize>,
    machine: Machine,
    control: &'a Control,
    disk: Option<TuneReport>,
}

impl Session<'_> {
    /// Measures one group, and sees whether others worked meanwhile.
    fn group_alone(&mut self, group: Group, observer: &mut dyn Observer) -> Result<Part, TuneError> {
        let roots = Roots::default();
        let (ticks, begin_ns, cpu_ns) = (Ticks::read(&roots), now_ns(), process_cpu_ns());
        let mut part = self.group(group, observer)?;
        if !matches!(group, Group::Cpu | Group::Memory | Group::Timer) {
            return Ok(part);
        }
        let busy_pct = ticks.zip(Ticks::read(&roots)).and_then(|(before, after)| after.busy_pct(before));
        let all_ns = now_ns().saturating_sub(begin_ns) as f64 * self.machine.threads as f64;
        let own_pct = process_cpu_ns().saturating_sub(cpu_ns) as f64 * 100.0 / all_ns;
        part.warnings.extend(others(group, busy_pct, own_pct));
        Ok(part)
    }

    /// Measures one group, or says why not.
    fn group(&mut self, group: Group, observer: &mut dyn Observer) -> Result<Part, TuneError> {
        let mut part = Part::default();
        let left_out = if self.options.skip.contains(&group) {
            Some("left out (--skip)")
        } else if self.control.stop.is_asked() {
            Some(INTERRUPTED)
        } else if matches!(group, Group::Disk | Group::Submission) && self.options.disk.is_none() {
            Some("no storage was named: pass --storage DIR, a directory on the disk to be measured")
        } else {
            None
        };
        if let Some(reason) = left_out {
            part.miss(group.name(), reason);
            return Ok(part);
        }
        let budgets = &self.options.budgets;
        observer.on_phase(group.name(), budgets.of(group));
        let sampling = |measurements: usize| Sampling {
            samples: budgets.samples.max(1),
            sample_ns: budgets.sample_ns(group, measurements),
            stop: &self.control.stop,
        };
        Ok(match (group, &self.options.disk) {
            (Group::Disk, Some(disk)) => {
                let measured = disk::run(&within_bound(disk), observer, self.control);
                let (part, report) = measured.map_err(|error| of_whole_bound(error, disk))?;
                self.disk = report;
                part
            }
            (Group::Submission, Some(disk)) => {
                submission::run(&sampling(submission::MEASUREMENTS), &disk.directory, observer)
            }
            // Left out above.
            (Group::Disk | Group::Submission, None) => part,
            (Group::Cpu, _) => cpu::run(&sampling(cpu::MEASUREMENTS), &self.cpus, observer),
            (Group::Memory, _) => memory::run(&sampling(memory::MEASUREMENTS), &self.cpus, &self.machine, observer),
            (Group::Timer, _) => timer::run(&sampling(1), budgets.of_ns(group), &self.cpus, observer),
            (Group::StressNg, disk) => {
                let directory = disk.as_ref().map_or_else(std::env::temp_dir, |disk| disk.directory.clone());
                stress_ng::measure(&directory, budgets.of_ns(group), &self.control.stop)
            }
            (Group::Network, _) => {
                iperf3::measure(self.options.peer.as_ref(), budgets.of_ns(group), &self.control.stop)
            }
        })
    }
}

/// What the submissions write, after the disk was measured.
const SUBMISSIONS_BYTES: u64 = READ_FILE_BYTES * submission::MEASUREMENTS as u64;

/// Leaves the submissions their part of what may be written.
fn within_bound(disk: &TuneOptions) -> TuneOptions {
    let max_write_bytes = disk.max_write_bytes.map(|bytes| bytes.saturating_sub(SUBMISSIONS_BYTES));
    TuneOptions { max_write_bytes, ..disk.clone() }
}

/// An error of that part, as one of the whole.
fn of_whole_bound(error: TuneError, disk: &TuneOptions) -> TuneError {
    match (error, disk.max_write_bytes) {
        (TuneError::MaxWrite { needed_bytes, .. }, Some(max_write_bytes)) => {
            TuneError::MaxWrite { needed_bytes: needed_bytes.saturating_add(SUBMISSIONS_BYTES), max_write_bytes }
        }
        (error, _) => error,
    }
}

fn add(card: &mut Card, part: Part) {
    part.figures.into_iter().for_each(|(key, figure)| card.set(&key, figure));
    card.facts.extend(part.facts);
    card.missing.extend(part.missing);
    card.warnings.extend(part.warnings);
}

/// What to say where others used the processors: these were busy for `busy_pct` of their time, and with this program
/// for `own_pct`.
fn others(group: Group, busy_pct: Option<f64>, own_pct: f64) -> Option<String> {
    let percent = busy_pct? - own_pct;
    (percent > OTHERS_PCT).then(|| {
        format!(
            "{}: other programs used {percent:.0} % of the processors' time while this was measured: figures are those \
             of what they left; measure again when nothing else runs",
            group.name()
        )
    })
}

/// What the hypervisor took between two readings.
fn steal(ticks: Option<(Ticks, Ticks)>) -> Part {
    let mut part = Part::default();
    match ticks.and_then(|(before, after)| after.stolen_pct(before)) {
        None => part.miss("cpu.steal_pct", "/proc/stat does not count it, or too little time has passed"),
        Some(percent) => {
            if percent > STEAL_PCT {
                part.warnings.push(format!(
                    "the hypervisor took {percent:.1} % of the processors' time while this was measured: a busy host, \
                     or a burstable machine out of credits; measure again at another time"
                ));
            }
            part.figure("cpu.steal_pct", Figure::exact(percent));
        }
    }
    part
}

/// Year, month and day, in UTC.
fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}

/// Numbers that look random, the same on every machine: xorshift64 (Marsaglia, Journal of Statistical Software 8,
/// 2003).
struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random(0x9E37_79B9_7F4A_7C15)
    }
}

impl Random {
    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
