//! What `plimsoll run` hands to the library that it loads into programs, and what that tells it: compiled into both.
//!
//! # Why
//! The command reads and checks rules and disk models; the library in somebody else's program must neither parse files nor
//! explain mistakes. And what a program did must be known even if it was killed.
//!
//! # How it works
//! One file in memory. It begins with the length of a [`Handover`] in JSON (8 bytes, little-endian) and the JSON; at
//! [`COUNTERS_AT`] is [`Counters`], mapped and shared by everybody. The environment variable [`VARIABLE`] has its path
//! (`/proc/PID/fd/N` of the command).
//!
//! # Limits
//! Both sides are of one build: [`Handover::version`] is compared. At most [`RULES_MAX`] rules and [`CLASSES_MAX`] classes.
//!
//! # Example
//! `PLIMSOLL_RUN=/proc/4711/fd/3 LD_PRELOAD=/usr/lib/plimsoll/libplimsoll_preload.so dd ...`

#![allow(dead_code, reason = "each side uses its half")]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use plimsoll::core::{
    ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, LatencyGoal, LatencyTarget, Limits, MixExponent, Op,
    Qos, Rate, Reservation,
};
use plimsoll::{ClassError, Classes, DiskMode, DiskSetup};
use serde::{Deserialize, Serialize};

/// Names the file.
pub(crate) const VARIABLE: &str = "PLIMSOLL_RUN";
/// Name of the file in memory, which shows in the link that [`VARIABLE`] names.
pub(crate) const FILE_NAME: &str = "plimsoll-run";
/// Of this form and of the layout of the counters.
pub(crate) const VERSION: &str = concat!("9 ", env!("CARGO_PKG_VERSION"));
/// Where the counters begin in the file: before it is room for the JSON.
pub(crate) const COUNTERS_AT: usize = 1 << 20;
/// Rules at the most: a bit of a word for each, and one for what none matches.
pub(crate) const RULES_MAX: usize = 63;
/// Classes and groups at the most.
pub(crate) const CLASSES_MAX: usize = 64;
/// Most token buckets: two of each direction of the disk, and six of each class and group and of the one above them all.
pub(crate) const BUCKETS_OF_TOKENS_MAX: usize = 4 + 6 * (CLASSES_MAX + 1);
/// Most threads of other processes that use the gate at a time.
pub(crate) const SLOTS: usize = 1024;

/// Everything that the library needs to know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) version: String,
    /// What the program is called on the control socket.
    pub(crate) program: String,
    /// The PID namespace of the command, as [`pid_namespace`] says it.
    pub(crate) pid_namespace: u64,
    /// Device numbers of the file systems (or of the block devices themselves) under the managed paths.
    pub(crate) devices: Vec<u64>,
    /// Managed directories and devices, without symbolic links.
    pub(crate) directories: Vec<String>,
    pub(crate) disk: DiskForm,
    /// Class 0 is `default`; a parent comes before its members.
    pub(crate) classes: Vec<ClassForm>,
    /// The first that matches counts.
    pub(crate) rules: Vec<RuleForm>,
    /// Where a trace is to be written.
    pub(crate) trace: Option<String>,
}

/// A disk as [`DiskForm::setup`] makes it; figures of 0 are unlimited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskForm {
    pub(crate) read_iops: u64,
    pub(crate) write_iops: u64,
    pub(crate) read_bandwidth: u64,
    pub(crate) write_bandwidth: u64,
    /// Name of the cost form.
    pub(crate) cost_form: String,
    pub(crate) block_bytes: [u32; 2],
    pub(crate) tables: Option<[Vec<(u32, f64)>; 2]>,
    /// None: infinite, or as good as.
    pub(crate) mix_exponent_p: Option<f64>,
    pub(crate) duplex: bool,
    pub(crate) unloaded_latency_ns: u64,
    /// None: the default. 0: requests are not split.
    pub(crate) latency_goal_ns: Option<u64>,
    pub(crate) control: bool,
    pub(crate) scale_min: f64,
    pub(crate) scale_max: f64,
    pub(crate) throughput_goal: f64,
}

impl DiskForm {
    pub(crate) fn figures(&self) -> FourFigures {
        let rate = |figure| if figure == 0 { Rate::Unlimited } else { Rate::per_second(figure) };
        FourFigures {
            read_iops: rate(self.read_iops),
            write_iops: rate(self.write_iops),
            read_bandwidth: rate(self.read_bandwidth),
            write_bandwidth: rate(self.write_bandwidth),
        }
    }

    pub(crate) fn setup(&self) -> DiskSetup {
        let form = self.cost_form.parse().unwrap_or(CostForm::Knee);
        let [read_block, write_block] = self.block_bytes.map(|bytes| bytes.max(512));
        let by_figures = || CostModel::from_figures(&self.figures(), form, read_block, write_block);
        let model = match &self.tables {
            Some([read, write]) => CostModel::from_table(read, write).unwrap_or_else(|_| by_figures()),
            None => by_figures(),
        };
        let default = DiskConfig::default();
        DiskSetup {
            mode: DiskMode::Scheduled,
            ..DiskSetup::new(DiskConfig {
                model,
                mix: MixExponent::new(self.mix_exponent_p.unwrap_or(f64::INFINITY)).unwrap_or(MixExponent::LINEAR),
                duplex: self.duplex,
                unloaded_latency_ns: self.unloaded_latency_ns,
                latency_goal: match self.latency_goal_ns {
                    None => default.latency_goal,
                    Some(0) => LatencyGoal::NoSplit,
                    Some(ns) => LatencyGoal::Ns(ns),
                },
                control: match self.control {
                    true => ControlConfig {
                        enabled: true,
                        scale_min: self.scale_min,
                        scale_max: self.scale_max,
                        throughput_goal: self.throughput_goal,
                    },
                    false => ControlConfig::OFF,
                },
                ..default
            })
        }
    }
}

/// A class or group. Rates of 0 are unlimited, times of 0 are not asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ClassForm {
    pub(crate) name: String,
    pub(crate) shares: u32,
    pub(crate) parent: Option<usize>,
    pub(crate) is_group: bool,
    /// iops, of reads, of writes; bytes, of reads, of writes.
    pub(crate) limits: [u64; 6],
    pub(crate) burst_ns: u64,
    pub(crate) reservation: [u64; 2],
    /// Nanoseconds and quantile.
    pub(crate) latency_target: Option<(u64, f64)>,
    pub(crate) max_wait_ns: u64,
    pub(crate) max_delay_ns: u64,
}

impl ClassForm {
    pub(crate) fn qos(&self) -> Qos {
        let rate = |at: usize| match self.limits.get(at) {
            Some(0) | None => Rate::Unlimited,
            Some(units) => Rate::per_second(*units),
        };
        let time = |ns: u64| (ns > 0).then_some(ns);
        Qos {
            limits: Limits {
                iops: rate(0),
                read_iops: rate(1),
                write_iops: rate(2),
                bandwidth: rate(3),
                read_bandwidth: rate(4),
                write_bandwidth: rate(5),
                burst_ns: self.burst_ns,
            },
            reservation: Reservation { iops: self.reservation[0], bandwidth: self.reservation[1] },
            latency_target: self.latency_target.map(|(latency_ns, quantile)| LatencyTarget { latency_ns, quantile }),
            max_wait_ns: time(self.max_wait_ns),
            max_delay_ns: time(self.max_delay_ns),
        }
    }

    pub(crate) fn with_qos(mut self, qos: &Qos) -> ClassForm {
        let figure = |rate: Rate| rate.get().unwrap_or(0);
        let limits = &qos.limits;
        self.limits = [
            figure(limits.iops),
            figure(limits.read_iops),
            figure(limits.write_iops),
            figure(limits.bandwidth),
            figure(limits.read_bandwidth),
            figure(limits.write_bandwidth),
        ];
        self.burst_ns = limits.burst_ns;
        self.reservation = [qos.reservation.iops, qos.reservation.bandwidth];
        self.latency_target = qos.latency_target.map(|target| (target.latency_ns, target.quantile));
        self.max_wait_ns = qos.max_wait_ns.unwrap_or(0);
        self.max_delay_ns = qos.max_delay_ns.unwrap_or(0);
        self
    }
}

impl Handover {
    /// The classes, with the numbers that they have here.
    pub(crate) fn make_classes(&self) -> Result<Classes, ClassError> {
        let classes = Classes::new();
        let mut made = Vec::new();
        for (at, form) in self.classes.iter().enumerate() {
            let parent = form.parent.and_then(|parent| made.get(parent).copied());
            let class = match at {
                0 => plimsoll::Class::DEFAULT,
                _ if form.is_group => classes.add_group(&form.name, parent, form.shares)?,
                _ => classes.add_class(&form.name, parent, form.shares)?,
            };
            classes.set_shares(class, form.shares)?;
            classes.set_qos(class, form.qos())?;
            made.push(class);
        }
        Ok(classes)
    }
}

/// A rule: what of a call must match. Patterns have `*`, and nothing else that is special.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleForm {
    pub(crate) thread: Option<String>,
    /// Against the whole path where it has a slash, else against the last part.
    pub(crate) path: Option<String>,
    /// Which operations, as bits: see [`Kind`].
    pub(crate) kinds: u8,
    /// Number of its class.
    pub(crate) class: usize,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read = 0,
    Write = 1,
    Sync = 2,
    Allocate = 3,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Sync, Kind::Allocate];

    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(crate) const fn op(self) -> Op {
        match self {
            Kind::Read => Op::Read,
            Kind::Write => Op::Write,
            Kind::Sync => Op::Flush,
            Kind::Allocate => Op::Allocate,
        }
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for anything.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // Where the last star was, and how much of the text it has taken.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((star_p, star_t)) => {
                    star = Some((star_p, star_t + 1));
                    p = star_p + 1;
                    t = star_t + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Whether `path` matches the pattern of a rule.
pub(crate) fn path_matches(pattern: &str, path: &[u8]) -> bool {
    if pattern.contains('/') {
        return matches(pattern.as_bytes(), path);
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    matches(pattern.as_bytes(), name)
}

/// Buckets of a [`Latency`]: eight for each doubling, from 1 to 2^40 ns.
pub(crate) const BUCKETS: usize = 320;

/// A histogram that many processes add to.
#[repr(C)]
pub(crate) struct Latency([AtomicU64; BUCKETS]);

impl Latency {
    pub(crate) fn record(&self, ns: u64) {
        if let Some(bucket) = self.0.get(Latency::bucket(ns)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// The bucket of a value.
    pub(crate) const fn bucket(ns: u64) -> usize {
        let ns = if ns < 8 { 8 } else { ns };
        let exponent = ns.ilog2() as usize - 3;
        let at = exponent * 8 + (ns >> exponent & 7) as usize;
        if at < BUCKETS { at } else { BUCKETS - 1 }
    }

    /// The largest value of a bucket.
    pub(crate) const fn upper_ns(bucket: usize) -> u64 {
        ((8 + bucket as u64 % 8 + 1) << (bucket / 8)) - 1
    }
}

/// What a class has done through the gate, by direction.
#[repr(C)]
pub(crate) struct Done {
    pub(crate) bytes: AtomicU64,
    /// From asking to going, of the calls that waited.
    pub(crate) waited: Latency,
    /// From asking to the end, of all calls.
    pub(crate) total: Latency,
}

/// Reasons to wait, in the order of [`WaitReason::ALL`](plimsoll::core::WaitReason::ALL).
pub(crate) const REASONS_MAX: usize = 8;

/// A class.
#[repr(C)]
pub(crate) struct ClassCounters {
    /// Reads, and all else.
    pub(crate) done: [Done; 2],
    /// By reason, of gates that have ended, in nanoseconds.
    pub(crate) waited_before_ns: [AtomicU64; REASONS_MAX],
    /// Of the gate that there is.
    pub(crate) waited_ns: [AtomicU64; REASONS_MAX],
    /// Bytes in the page cache of files that were closed before these were charged: the class's next writes are charged
    /// for them.
    pub(crate) left_bytes: AtomicU64,
}

/// A place at which a thread asks the process that has the gate, which is another than its own. A line of the cache.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct CallSlot {
    /// The process whose thread has the slot; 0: none.
    pub(crate) pid: AtomicU32,
    /// State of the thread's call, on which both sides sleep; the library's `slots` names the states.
    pub(crate) state: AtomicU32,
    /// Number of the call's class in the [`Handover`].
    pub(crate) class: AtomicU32,
    /// The call's [`Kind`].
    pub(crate) kind: AtomicU32,
    /// Bytes that the call moves.
    pub(crate) len_bytes: AtomicU32,
    /// Bytes that it may move, once it is admitted.
    pub(crate) admitted_bytes: AtomicU32,
    /// Error number of a call that has ended; 0: it moved `moved_bytes`.
    pub(crate) errno: AtomicU32,
    pub(crate) moved_bytes: AtomicU32,
    pub(crate) offset_bytes: AtomicU64,
    /// When the call's thread learned that it is admitted, on the monotonic clock, in nanoseconds.
    pub(crate) began_ns: AtomicU64,
    /// When the call ended.
    pub(crate) ended_ns: AtomicU64,
}

/// What is counted, for all processes of a run.
#[repr(C)]
pub(crate) struct Counters {
    /// The process that has the gate; 0: none has it.
    pub(crate) owner: AtomicU32,
    /// The thread of that process that keeps house there, as the kernel numbers threads; 0: not known.
    pub(crate) housekeeper: AtomicU32,
    /// Processes that loaded the library.
    pub(crate) processes: AtomicU32,
    /// Changes when the housekeeper has something to do, which sleeps on it.
    pub(crate) bell: AtomicU32,
    /// 1 while the thread that serves the slots sleeps on it.
    pub(crate) server_sleeps: AtomicU32,
    /// Number of the highest slot ever taken, plus 1.
    pub(crate) slots_used: AtomicU32,
    /// Last sign of life of the process with the gate, on the monotonic clock, in nanoseconds.
    pub(crate) alive_ns: AtomicU64,
    /// Slots whose state has changed, as bits.
    pub(crate) rung: [AtomicU64; SLOTS / 64],
    pub(crate) slots: [CallSlot; SLOTS],
    /// The tokens that are left to the next gate, as `Disk::merge_tokens` describes them.
    pub(crate) tokens_until: [AtomicU64; BUCKETS_OF_TOKENS_MAX],
    /// Managed files that were opened.
    pub(crate) opened: AtomicU64,
    /// Bytes read that were in the page cache, and did not need the disk.
    pub(crate) cached_bytes: AtomicU64,
    /// Bytes of managed files that went past the gate, by [`Past`].
    pub(crate) past_bytes: [AtomicU64; 4],
    /// Traces that were begun, one for each process that had the gate.
    pub(crate) traces: AtomicU32,
    /// Traces among them whose file has the number of its process behind its name.
    pub(crate) traces_beside: AtomicU32,
    /// Traces that were ended, not by the end of their process.
    pub(crate) traces_ended: AtomicU32,
    /// Error number of a trace that could not be written; 0: none.
    pub(crate) trace_errno: AtomicU32,
    /// Events that came faster than they were written.
    pub(crate) trace_dropped: AtomicU64,
    /// Calls by rule and [`Kind`]; the last is for what no rule matched.
    pub(crate) matched: [[AtomicU64; 4]; RULES_MAX + 1],
    pub(crate) classes: [ClassCounters; CLASSES_MAX],
}

/// What became of the traces of a run; see [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traces {
    pub(crate) begun: u32,
    pub(crate) beside: u32,
    pub(crate) ended: u32,
    pub(crate) errno: i32,
    pub(crate) dropped_events: u64,
}

/// Why bytes of a managed file went past the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// Another process of the run has the gate, and does not answer, or has no slot left.
    OtherProcess = 0,
    /// A signal handler, or while the gate was made or after it.
    Nested = 1,
    /// The gate refused: no room, or its class is overloaded.
    Refused = 2,
    /// The process is in another PID namespace than the command, so it cannot tell which other processes live.
    Namespace = 3,
}

/// Returns the number of this process's PID namespace; 0 if it is not known.
pub(crate) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |link| std::os::unix::fs::MetadataExt::ino(&link))
}

/// The counters as the command reads them: a copy of the file from [`COUNTERS_AT`] on.
pub(crate) struct Seen(Vec<u8>);

impl Seen {
    pub(crate) const BYTES: usize = std::mem::size_of::<Counters>();
    /// Where the number of the process that has the gate is.
    pub(crate) const OWNER_AT: usize = std::mem::offset_of!(Counters, owner);

    pub(crate) fn new(bytes: Vec<u8>) -> Seen {
        Seen(bytes)
    }

    fn word(&self, at: usize) -> u64 {
        let word = self.0.get(at..at + 8).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
        u64::from_ne_bytes(word.unwrap_or_default())
    }

    fn half(&self, at: usize) -> u32 {
        let half = self.0.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        u32::from_ne_bytes(half.unwrap_or_default())
    }

    pub(crate) fn processes(&self) -> u32 {
        self.half(std::mem::offset_of!(Counters, processes))
    }

    pub(crate) fn opened(&self) -> u64 {
        self.word(std::mem::offset_of!(Counters, opened))
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.word(std::mem::offset_of!(Counters, cached_bytes))
    }

    pub(crate) fn past_bytes(&self, past: Past) -> u64 {
        self.word(std::mem::offset_of!(Counters, past_bytes) + past as usize * 8)
    }

    pub(crate) fn traces(&self) -> Traces {
        Traces {
            begun: self.half(std::mem::offset_of!(Counters, traces)),
            beside: self.half(std::mem::offset_of!(Counters, traces_beside)),
            ended: self.half(std::mem::offset_of!(Counters, traces_ended)),
            errno: self.half(std::mem::offset_of!(Counters, trace_errno)) as i32,
            dropped_events: self.word(std::mem::offset_of!(Counters, trace_dropped)),
        }
    }

    /// Calls of `kind` that rule number `rule` matched; of number [`RULES_MAX`]: that none did.
    pub(crate) fn matched(&self, rule: usize, kind: Kind) -> u64 {
        self.word(std::mem::offset_of!(Counters, matched) + (rule * 4 + kind as usize) * 8)
    }

    fn done(class: usize, writes: bool) -> usize {
        let class = std::mem::offset_of!(Counters, classes) + class * std::mem::size_of::<ClassCounters>();
        class + std::mem::offset_of!(ClassCounters, done) + usize::from(writes) * std::mem::size_of::<Done>()
    }

    /// Calls and bytes of a class.
    pub(crate) fn class(&self, class: usize, writes: bool) -> (u64, u64) {
        let bytes = self.word(Seen::done(class, writes) + std::mem::offset_of!(Done, bytes));
        (self.histogram(class, writes, true).iter().sum(), bytes)
    }

    /// The calls of a class by bucket of their total or waiting time.
    fn histogram(&self, class: usize, writes: bool, is_total: bool) -> [u64; BUCKETS] {
        let at = if is_total { std::mem::offset_of!(Done, total) } else { std::mem::offset_of!(Done, waited) };
        let done = Seen::done(class, writes);
        let mut counts = std::array::from_fn(|bucket| self.word(done + at + bucket * 8));
        if !is_total {
            let (calls, _) = self.class(class, writes);
            counts[0] += calls.saturating_sub(counts.iter().sum());
        }
        counts
    }

    /// A percentile of a class, reads and writes together, in nanoseconds; `None` where it has done nothing.
    pub(crate) fn percentile(&self, class: usize, is_total: bool, part: f64) -> Option<u64> {
        let [reads, writes] = [false, true].map(|writes| self.histogram(class, writes, is_total));
        let counts: Vec<u64> = reads.iter().zip(writes).map(|(reads, writes)| reads + writes).collect();
        let all: u64 = counts.iter().sum();
        let rank = ((all as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(Latency::upper_ns)
    }

    /// What a class has waited for reason number `reason`, in nanoseconds.
    pub(crate) fn waited_ns(&self, class: usize, reason: usize) -> u64 {
        let class = std::mem::offset_of!(Counters, classes) + class * std::mem::size_of::<ClassCounters>();
        let before = class + std::mem::offset_of!(ClassCounters, waited_before_ns);
        let now = class + std::mem::offset_of!(ClassCounters, waited_ns);
        self.word(before + reason * 8) + self.word(now + reason * 8)
    }
}
