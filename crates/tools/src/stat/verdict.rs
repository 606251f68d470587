//! The verdict: what a device is at, in one word, and one line of why.
//!
//! # Why
//! U and S are two figures, and people ask one question: is that all it can do?
//!
//! # How it works
//! The first that holds:
//!
//! 1. *hung*: nothing completes though requests are under way, for longer than [`HUNG_AFTER_S`]. Kernels add waiting
//!    time when a request completes, so that a stuck device can show `await` and even `aqu-sz` of 0; `%util` or the
//!    count of requests under way tell it.
//! 2. *idle*: fewer than 200 requests a second that take less than 2 % of the time.
//! 3. With a model, or when the device was seen full with a like load (U), and a latency (S):
//!
//!    | U | S | %util | verdict |
//!    |---|---|---|---|
//!    | >= 90 % (of the most seen: 70 %) | >= 40 % | | saturated |
//!    | < 70 % | >= 40 % | | degraded: slower than it could be, or throttled |
//!    | < 30 % | < 10 %, or < 40 % with fewer than 8 under way | >= 90 | busy but free |
//!    | else | | | ok |
//!
//!    Degraded needs a queue, too, or at least 0.25 under way that take 10 times or 0.25 ms longer than on the idle
//!    device: nobody knows that latency to some tens of microseconds.
//! 4. A device that serves one request after the other: `%util` of 90 and more is saturation. That is the one case for
//!    which `%util` was made.
//! 5. Otherwise what is usual for its class decides (table in `verdict/class.rs`): *waiting* is at least twice the
//!    usual latency with 4 and more under way (three times with 5/3 on network disks, whose limits are low; half of it
//!    with 64), or S >= 40 % with 8 and more. What waits is *degraded* if the rate is below what any of the class can,
//!    or fell below 70 % of what was seen; else *saturated*. What does not wait at `%util` of 90 and more is *busy but
//!    free* with fewer than 8 under way, and *ok* with more.
//!
//! A rate with the signature of a limit (3000 requests a second, 125 MiB/s) is named in the reason. It decides nothing:
//! a volume at what it was sold for is full; one far below it, as without credits, is degraded by the rules above.
//!
//! U by the highest seen alone never makes a device saturated: only with requests that wait.
//!
//! `iowait` and pressure stall information are no part of it: they count tasks that wait, whatever for, and depend on
//! how many CPUs are busy with other things.
//!
//! # Limits
//! An interval is judged by its means. Where the class decides, a device that is far quicker than its class can be full
//! and still be called ok: a model says more.
//!
//! # Example
//! 16 597 writes of 38 KiB in 0.14 ms, 2.28 under way, `%util` 96, on `nvme0n1`: busy but free. The same disk with four
//! hundred times the latency is not.

mod class;
mod remarks;
mod text;

use super::capacity::{Capacity, positive};
use super::saturation::{self, Saturation};
use super::{Basis, Columns, DeviceFacts, DeviceInterval, Gap, Verdict};
use class::{Class, Kind, cap_signature};
use text::{ms, percent, queue, rate, seconds, throughput};

pub(super) use remarks::{of_device, of_interval};

/// After so many seconds without a completion a device with requests under way is hung. Nearly the usual interval, so
/// that one of them suffices; no request to a healthy disk takes that long.
pub const HUNG_AFTER_S: f64 = 0.9;

/// `%util` from which a device looks full.
const UTIL_HIGH_PERCENT: f64 = 90.0;
/// `%util` from which one that shows more than there is looks busy.
const UTIL_INFLATED_PERCENT: f64 = 50.0;
/// U and S of the table above.
const USE_FULL: f64 = 0.9;
const USE_PART: f64 = 0.7;
const USE_FREE: f64 = 0.3;
const WAITING: f64 = 0.4;
const NOT_WAITING: f64 = 0.1;
/// Requests under way that make a queue on what serves many at once. SATA takes 32, NVMe thousands.
const UNDER_WAY_MANY: f64 = 8.0;
/// Requests under way that fill nearly any disk: rate times latency of data sheets is 30 to 60.
const UNDER_WAY_FILLS: f64 = 64.0;
/// Requests a second and part of the time below which a device is idle.
const IDLE_PER_S: f64 = 200.0;
const IDLE_BUSY: f64 = 0.02;
const IDLE_USE: f64 = 0.05;
/// Time that one request takes of a spinning disk, in milliseconds: at least 2, and beyond 50 it is ill.
const SPIN_LEAST_MS: f64 = 2.0;
const SPIN_ILL_MS: f64 = 50.0;
/// Bytes a second of the outer tracks of the fastest disks, and of slow ones.
const SPIN_BYTES_PER_S: f64 = 300e6;
const SPIN_SLOW_BYTES_PER_S: f64 = 50e6;

/// All that is known of a device in an interval.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What it did.
    pub interval: &'a DeviceInterval,
    /// What it is.
    pub facts: Option<&'a DeviceFacts>,
    /// U, 0 and more.
    pub capacity_use: Option<f64>,
    /// What U is known from.
    pub basis: &'a Basis,
    /// Whether U without a model is that of what the device did with a like load when it was full.
    pub was_full: bool,
    /// S.
    pub saturation: &'a Saturation,
    /// For how long nothing completed though requests are under way, in seconds.
    pub stuck_s: f64,
}

/// The verdict, and one line of why.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> (Verdict, String) {
    if let Some(gap) = evidence.interval.gap {
        let why = match gap {
            Gap::Appeared => "it was not there at the begin of the interval",
            Gap::Disappeared => "it is not there at the end of the interval",
            Gap::Reset => "its counters were reset, or it is another device of this name",
        };
        return (Verdict::Unknown, why.to_owned());
    }
    let case = Case::new(evidence);
    let rules = [Case::hung, Case::idle, Case::by_model, Case::inflated, Case::serial, Case::by_class, Case::rest];
    rules.into_iter().find_map(|rule| rule(&case)).unwrap_or_else(|| (Verdict::Unknown, NOTHING_KNOWN.to_owned()))
}

/// Whether an interval shows requests under way and none that completes. `%util` tells it where the source does not
/// count them.
#[must_use]
pub fn is_stuck(interval: &DeviceInterval) -> bool {
    let columns = &interval.columns;
    let completed = columns.requests_per_s().map(|per_s| per_s + columns.flushes_per_s.unwrap_or(0.0));
    if completed != Some(0.0) || interval.in_flight == Some(0) {
        return false;
    }
    let busy = columns.util_percent.map(|util| util >= UTIL_HIGH_PERCENT);
    let waits = columns.queue.map(|queue| queue >= 0.9);
    match (busy, waits) {
        // One that was sent a moment ago is under way, too, and nothing is wrong with it.
        (None, None) => interval.in_flight.is_some(),
        (busy, waits) => busy.unwrap_or(false) || waits.unwrap_or(false),
    }
}

const NOTHING_KNOWN: &str = "none of the columns that would tell is there";

/// The evidence with what follows from it.
struct Case<'a> {
    evidence: &'a Evidence<'a>,
    columns: &'a Columns,
    class: Class,
    /// Requests a second; `None` where not known.
    per_s: Option<f64>,
    kib_per_s: f64,
    size_kib: f64,
    await_ms: Option<f64>,
    /// Requests under way, on average.
    under_way: Option<f64>,
    /// What is usual in the class, in milliseconds.
    usual_ms: f64,
    is_util_high: bool,
}

type Answer = Option<(Verdict, String)>;

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence<'a>) -> Case<'a> {
        let columns = &evidence.interval.columns;
        let class = Class::of(&evidence.interval.device, evidence.facts);
        let per_s = columns.requests_per_s();
        let kib_per_s = columns.moved_kib_per_s().unwrap_or(0.0);
        let by_rate = || positive(per_s).map(|per_s| kib_per_s / per_s);
        let size_kib = positive(columns.size_kib).or_else(by_rate).unwrap_or(0.0);
        Case {
            evidence,
            columns,
            class,
            per_s,
            kib_per_s,
            size_kib,
            await_ms: saturation::mean_await_ms(columns),
            under_way: columns.queue.or_else(|| saturation::under_way_at_most(columns)),
            usual_ms: class.usual_ms(size_kib),
            is_util_high: columns.util_percent.is_some_and(|util| util >= UTIL_HIGH_PERCENT),
        }
    }

    fn hung(&self) -> Answer {
        let stuck_s = self.evidence.stuck_s;
        if stuck_s < HUNG_AFTER_S {
            return None;
        }
        let how_many = match (self.evidence.interval.in_flight, self.columns.queue) {
            (Some(count), _) => format!("{count} requests are under way"),
            (None, Some(mean)) if mean >= 0.9 => format!("{} requests are under way", queue(mean)),
            _ => "requests are under way all the time".to_owned(),
        };
        Some((Verdict::Hung, format!("{how_many} and none has completed for {}", seconds(stuck_s))))
    }

    fn idle(&self) -> Answer {
        let per_s = self.per_s?;
        if per_s == 0.0 && !is_stuck(self.evidence.interval) {
            return Some((Verdict::Idle, "nothing was asked of it".to_owned()));
        }
        let by_util = || self.columns.util_percent.map(|util| util / 100.0);
        let busy = saturation::under_way_at_most(self.columns).or_else(by_util);
        let is_little = match busy {
            Some(busy) => busy < IDLE_BUSY && per_s < IDLE_PER_S,
            None => per_s < 1.0 && self.kib_per_s < 100.0,
        };
        let is_free = self.model_use().is_none_or(|(capacity_use, _)| capacity_use < IDLE_USE);
        if !is_little || !is_free || self.is_inflated() {
            return None;
        }
        let why = match busy {
            Some(busy) => format!("{} that take {} of the time", rate(per_s), percent(busy)),
            None => rate(per_s),
        };
        Some((Verdict::Idle, why))
    }

    /// U that can be relied on, and what it is a part of.
    fn model_use(&self) -> Option<(f64, String)> {
        let capacity_use = self.evidence.capacity_use?;
        match self.evidence.basis {
            Basis::Model(name) => Some((capacity_use, format!("what {name} can"))),
            // One arm does ten times as much in order as at random: what it did says little of what it could.
            Basis::HighestSeen if self.evidence.was_full && !self.is_serial() => {
                Some((capacity_use, "the most it did with requests waiting".to_owned()))
            }
            Basis::HighestSeen | Basis::Unknown => None,
        }
    }

    fn is_serial(&self) -> bool {
        match self.class.kind {
            Kind::Serial { .. } => true,
            Kind::Unknown => self.serves_like_spinning(),
            Kind::Parallel => false,
        }
    }

    fn by_model(&self) -> Answer {
        let (capacity_use, whole) = self.model_use()?;
        let waiting = self.evidence.saturation.overall;
        let waits = waiting.map_or_else(|| self.waits_by_class(), |part| part >= WAITING);
        let u = percent(capacity_use);
        let s = self.waiting_text();
        // The most that was seen may have been a burst into a buffer.
        let is_seen = *self.evidence.basis == Basis::HighestSeen;
        let full = if is_seen { USE_PART } else { USE_FULL };
        if waits && capacity_use >= full {
            return Some((Verdict::Saturated, format!("{u} of {whole} is used, and {s}{}", self.cap_text())));
        }
        if waits && capacity_use < USE_PART && self.is_queue_or_slow() {
            return Some((Verdict::Degraded, self.less_than_it_could(capacity_use)));
        }
        if matches!(self.class.kind, Kind::Serial { .. }) && self.is_util_high && !self.is_inflated() {
            return None;
        }
        // Where little is under way, little can wait: the latency of the idle device is not known that well.
        let is_short = self.under_way.is_some_and(|under_way| under_way < UNDER_WAY_MANY);
        let is_quick = waiting.map_or(!waits, |part| part < NOT_WAITING || (is_short && !waits));
        if self.is_util_high && capacity_use < USE_FREE && is_quick {
            let free = percent(1.0 - capacity_use);
            let why = format!("{free} of {whole} is free, and {s}: %util counts time, not work");
            return Some((Verdict::BusyButFree, why));
        }
        let why = if capacity_use >= USE_FULL {
            format!("{u} of {whole} is used, but {s}")
        } else if waits && capacity_use >= USE_PART {
            format!("{u} of {whole} is used, and {s}: there is little left")
        } else {
            format!("{u} of {whole} is used, and {s}")
        };
        Some((Verdict::Ok, why))
    }

    /// Whether there is a queue at all, or requests that are alone take far longer than they should. Latencies of idle
    /// devices are not known to some tens of microseconds.
    fn is_queue_or_slow(&self) -> bool {
        let Some((least_ms, await_ms)) = self.evidence.saturation.unloaded_ms.zip(self.await_ms) else { return true };
        let is_slow = await_ms >= 10.0 * least_ms || await_ms >= least_ms + 0.25;
        self.under_way.is_none_or(|under_way| under_way >= 1.0 || (under_way >= 0.25 && is_slow))
    }

    fn less_than_it_could(&self, capacity_use: f64) -> String {
        let s = self.waiting_text();
        let could = Capacity::full_requests_per_s(self.columns, capacity_use);
        let is = self.per_s.unwrap_or(0.0);
        let could = could.map_or_else(String::new, |could| format!(" where it could do {}", rate(could)));
        format!("{}{could}, though {s}{}", rate(is), self.cap_text())
    }

    /// The limit that the rates have the signature of.
    fn cap_text(&self) -> String {
        self.cap().map_or_else(String::new, |cap| format!("; a volume or instance may be limited to these {cap}"))
    }

    /// `%util` shows more than the requests' own time: it says nothing, and the queue is short.
    fn inflated(&self) -> Answer {
        let busy = self.is_inflated().then(|| saturation::under_way_at_most(self.columns))??;
        let util = self.columns.util_percent?;
        let why = format!(
            "its requests took {} of the time in all, whatever %util ({util:.0}) says: hardly ever more than one",
            percent(busy)
        );
        Some((Verdict::BusyButFree, why))
    }

    fn is_inflated(&self) -> bool {
        self.columns.util_percent.is_some_and(|util| util >= UTIL_INFLATED_PERCENT)
            && remarks::tick_bias(self.evidence.interval).is_some()
    }

    /// One request after the other: `%util` tells the truth.
    fn serial(&self) -> Answer {
        if !self.is_serial() {
            return None;
        }
        let spindles = if let Kind::Serial { spindles } = self.class.kind { spindles as f64 } else { 1.0 };
        let util = self.columns.util_percent?;
        let under_way = self.under_way.unwrap_or(1.0);
        let each_ms = self.each_ms()?;
        let long = format!("{} under way, {} each", queue(under_way), ms(self.await_ms.unwrap_or(each_ms)));
        if !self.is_util_high {
            return Some((Verdict::Ok, format!("it is free {:.0} % of the time; {long}", 100.0 - util.min(100.0))));
        }
        if spindles > 1.0 && under_way * (1.0 - WAITING) < spindles {
            let why = format!("{spindles:.0} spindles have {} requests under way: some are free", queue(under_way));
            return Some((Verdict::Ok, why));
        }
        let ill_ms = SPIN_ILL_MS + self.size_kib * 1024.0 / SPIN_SLOW_BYTES_PER_S * 1000.0;
        let is_slow_medium =
            ["sr", "fd", "mmcblk"].iter().any(|start| self.evidence.interval.device.starts_with(start));
        if spindles == 1.0 && each_ms >= ill_ms && !is_slow_medium {
            let why =
                format!("it needs {} for one request, several times what a healthy disk does; {long}", ms(each_ms));
            return Some((Verdict::Degraded, why));
        }
        let if_it_spins =
            if self.class.kind == Kind::Unknown { ", if it is a disk that spins, as it seems" } else { "" };
        let why =
            format!("busy {:.0} % of the time with one request after the other{if_it_spins}; {long}", util.min(100.0));
        Some((Verdict::Saturated, why))
    }

    /// Busy time of a request, which on a serial device is what it takes.
    fn each_ms(&self) -> Option<f64> {
        Some(self.columns.util_percent? * 10.0 / positive(self.per_s)?)
    }

    fn serves_like_spinning(&self) -> bool {
        let long = self.size_kib * 1024.0 / SPIN_BYTES_PER_S * 1000.0;
        let least_ms = if self.size_kib >= 64.0 { long } else { SPIN_LEAST_MS };
        self.is_util_high && self.each_ms().is_some_and(|each_ms| each_ms >= least_ms)
    }

    fn waits_by_class(&self) -> bool {
        let (Some(under_way), Some(await_ms)) = (self.under_way, self.await_ms) else { return false };
        let is_low_limit = matches!(self.class.kind, Kind::Parallel) && self.class.usual_ms(0.0) >= 3.0;
        (under_way >= 4.0 && await_ms >= 2.0 * self.usual_ms)
            || (under_way >= UNDER_WAY_FILLS && await_ms >= 0.5 * self.usual_ms)
            || (is_low_limit && under_way >= 5.0 / 3.0 && await_ms >= 3.0 * self.usual_ms)
    }

    fn by_class(&self) -> Answer {
        let (under_way, await_ms) = (self.under_way?, self.await_ms?);
        let part = self.evidence.saturation.overall;
        let waits = (part.is_some_and(|part| part >= WAITING) && under_way >= UNDER_WAY_MANY) || self.waits_by_class();
        let is_extreme = under_way >= UNDER_WAY_MANY && await_ms >= 10.0 * self.usual_ms;
        let is_busy = match self.columns.util_percent {
            Some(util) => self.is_util_high || (is_extreme && util >= UTIL_INFLATED_PERCENT),
            None => true,
        };
        if waits && is_busy {
            return Some(self.waiting(under_way, await_ms));
        }
        let is_slow = under_way >= 0.5 && await_ms >= 30.0 * self.usual_ms;
        if is_slow && self.is_below_any() {
            return Some((Verdict::Degraded, self.below_any_text(await_ms)));
        }
        let figures = format!("{} under way, {} each", queue(under_way), ms(await_ms));
        if !self.is_util_high {
            let why = if waits { "requests wait in bursts, and it is free in between" } else { "there is room" };
            return Some((Verdict::Ok, format!("{why}: {figures}")));
        }
        let is_quick = await_ms <= self.usual_ms || part.is_some_and(|part| part < NOT_WAITING);
        if self.class.kind == Kind::Unknown && !is_quick && under_way >= 1.0 {
            let why = format!("{figures}: long for an SSD, and near the end of a disk that spins");
            return Some((Verdict::Saturated, why));
        }
        if under_way < UNDER_WAY_MANY || part.is_some_and(|part| part < NOT_WAITING) {
            let why = format!("{figures}: {} takes many at once, and %util counts time, not work", self.class.name);
            return Some((Verdict::BusyButFree, why));
        }
        let why = format!("{figures}: no longer than usual for {}", self.class.name);
        Some((Verdict::Ok, why))
    }

    /// Requests wait, and no model says whether they should.
    fn waiting(&self, under_way: f64, await_ms: f64) -> (Verdict, String) {
        let done = format!("{} and {}", rate(self.per_s.unwrap_or(0.0)), throughput(self.kib_per_s));
        let figures = format!("{} under way, {} each", queue(under_way), ms(await_ms));
        if let Some(link_use) = remarks::link_use(self.evidence).filter(|part| *part >= USE_FULL) {
            return (Verdict::Saturated, format!("the network link is {} used: {figures}", percent(link_use)));
        }
        if self.is_below_any() {
            return (Verdict::Degraded, self.below_any_text(await_ms));
        }
        let fallen = self.evidence.capacity_use.filter(|capacity_use| *capacity_use < USE_PART);
        let has_waited = self.evidence.saturation.overall.is_some_and(|part| part >= WAITING);
        if let (Some(capacity_use), Kind::Parallel, true) = (fallen, self.class.kind, has_waited) {
            let why = format!("only {} of the highest seen, and requests wait: {figures}", percent(capacity_use));
            return (Verdict::Degraded, why);
        }
        let s = match self.evidence.saturation.overall {
            Some(part) => format!("requests wait {} of their time", percent(part)),
            None => format!("far above the {} that are usual for {}", ms(self.usual_ms), self.class.name),
        };
        (Verdict::Saturated, format!("{done} with {figures}: {s}{}", self.cap_text()))
    }

    fn cap(&self) -> Option<String> {
        cap_signature(&self.class, self.per_s?, self.kib_per_s)
    }

    fn is_below_any(&self) -> bool {
        self.per_s.is_some_and(|per_s| self.class.is_below_any(per_s, self.kib_per_s))
    }

    fn below_any_text(&self, await_ms: f64) -> String {
        let done = format!("{} and {}", rate(self.per_s.unwrap_or(0.0)), throughput(self.kib_per_s));
        format!(
            "{done} with {} each is less than any healthy {} does{}",
            ms(await_ms),
            without_article(self.class.name),
            self.cap_text()
        )
    }

    fn waiting_text(&self) -> String {
        match (self.evidence.saturation.overall, self.await_ms) {
            (Some(part), _) if part < NOT_WAITING => "requests hardly wait".to_owned(),
            (Some(part), _) => format!("requests wait {} of their time", percent(part)),
            (None, Some(await_ms)) if self.waits_by_class() => format!("requests take {}", ms(await_ms)),
            (None, Some(await_ms)) => {
                format!("requests take {}, how long on the idle device is not known", ms(await_ms))
            }
            (None, None) => "how long requests take is not known".to_owned(),
        }
    }

    /// No latency, no queue.
    fn rest(&self) -> Answer {
        match (self.per_s, self.columns.util_percent) {
            (_, Some(util)) if util < IDLE_BUSY * 100.0 => {
                Some((Verdict::Idle, format!("busy {util:.1} % of the time")))
            }
            (_, Some(util)) if !self.is_util_high => {
                Some((Verdict::Ok, format!("nothing was under way {:.0} % of the time", 100.0 - util)))
            }
            (_, Some(util)) => {
                let why =
                    format!("%util is {util:.0}, and neither latency nor queue length is there to tell what it means");
                Some((Verdict::Unknown, why))
            }
            (Some(per_s), None) => {
                let why = format!("{}; without latency, queue length or a model rates alone do not tell", rate(per_s));
                Some((Verdict::Unknown, why))
            }
            (None, None) => None,
        }
    }
}

fn without_article(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(article, rest)| if matches!(article, "a" | "an") { rest } else { name })
}

#[cfg(test)]
mod tests;
