//! The verdict: the state of a device in one word, and the reason in one line.
//!
//! # Why
//! U and S are two figures, and people ask one question: is that all the device can do?
//!
//! # How it works
//! The first rule that holds decides:
//!
//! 1. *hung*: for [`HUNG_AFTER_S`] or longer nothing completes though requests are under way. Kernels add waiting time
//!    when a request completes, those of 5.0 to 5.17 also busy time, so that a stuck device can show `await`, `aqu-sz`
//!    and `%util` of 0. Requests under way at both ends of an interval in which none completes are stuck, whatever
//!    these columns show; if the begin is not known, two and more at the end of a long interval, `%util` or the queue
//!    decide.
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
//!    Degraded also needs 4 under way, or 1 that takes three times as long as on the idle device, or 0.25 that take 10
//!    times as long or 0.25 ms longer: the latency of the idle device is uncertain by some tens of microseconds.
//!    Without a model it further needs 1.2 times L + N / X_full, the longest that as many requests take on the healthy
//!    device: fewer workers have less done. With one, where the device is free for a part of the time, requests come in
//!    bursts: then it needs twice L + N / X_full, with N those under way while it is busy, and 1.2 times where bursts
//!    follow so closely that it is hardly ever free.
//!    If discards are most of the queue and reads and writes do not wait, the device is *trimming*: free, or ok.
//! 4. A device that serves one request after the other: `%util` of 90 and more is saturation. That is the one case for
//!    which `%util` was made. A `dm-*` without facts may consist of many disks: it is such a device only beside a disk
//!    of the same interval that is saturated.
//! 5. Otherwise the usual latency of the class decides (table in `verdict/class.rs`). Requests *wait* at twice the
//!    usual latency with 4 and more under way (three times with 5/3 on network disks, whose limits are low; half of it
//!    with 60), at S >= 40 % with 8 and more, or, where S is not known, if the device did as much with half of those
//!    under way or fewer, and their number was steady both times. S counts from the usual latency on, or from three
//!    times that of the idle device at the highest rate seen. A SATA disk with 30 under way is full: it takes 32. If
//!    requests wait, the device is *degraded* if its rate is below 70 % of the highest seen, or below that of any
//!    healthy device of the class; else *saturated*. If requests do not wait at `%util` of 90 and more, it is *busy but
//!    free* with fewer than 8 under way that take at most three times the usual, *unknown* (unclear) with more if
//!    nothing shows whether they wait, else *ok*. 30 times the usual (8 times on local disks) at a rate below any of
//!    the class is *degraded*.
//!
//! Requests that wait (S >= 40 %) on a device that is free for a part of the time, longer than those before them
//! explain, are *unknown* (unclear): it is slower than it was, or others use it. So is a spinning disk that is free for
//! a part of the time and busy for 35 ms and longer with each request, and a device of rule 5 that, when it was full,
//! did more than its present mix of reads and writes explains.
//!
//! A rate with the signature of a limit (3000 requests a second, 125 MiB/s) at which requests wait is *degraded*, held
//! by something in front of the device; *saturated* if the device is known, by facts or model, to be sold by rates: a
//! volume at the rate that it was sold with is full. Beside a saturated disk, the rate of an array is no such limit.
//!
//! Latencies, rates and queues of these rules are those of reads and writes. Discards take long by their nature.
//!
//! U by the highest rate seen never makes a device saturated by itself: requests must also wait.
//!
//! `iowait` and pressure stall information are not used: they count waiting tasks, whatever these wait for, and depend
//! on how many CPUs are busy with other work.
//!
//! # Limits
//! An interval is judged by its means. If the class decides, a device that is far quicker than its class can be full
//! and still be called ok: a model is more precise.
//!
//! # Example
//! 16 597 writes of 38 KiB in 0.14 ms, 2.28 under way, `%util` 96, on `nvme0n1`: busy but free. With four hundred times
//! the latency the same disk is not.

mod by_class;
mod by_model;
mod class;
mod remarks;
mod text;

use std::collections::BTreeSet;

use super::capacity::positive;
use super::saturation::{self, Saturation};
use super::{Basis, Columns, DeviceFacts, DeviceInterval, Facts, Gap, Judged, Verdict};
pub(super) use class::is_stacked;
use class::{Class, Kind};
pub(super) use text::ms;
use text::{percent, queue, rate, seconds};

pub(super) use remarks::{FIRST_INTERVAL, invalid_util, of_device, of_interval};

/// Seconds without a completion after which a device with requests under way is hung. Just below the usual interval, so
/// that one interval suffices; no request to a healthy disk takes that long.
pub const HUNG_AFTER_S: f64 = 0.9;

/// `%util` from which a device looks full.
pub(super) const UTIL_HIGH_PERCENT: f64 = 90.0;
/// `%util` from which a device looks busy, if the column is inflated or the queue is extreme.
const UTIL_INFLATED_PERCENT: f64 = 50.0;
/// Bounds of U and S in the table above.
const USE_FULL: f64 = 0.9;
const USE_PART: f64 = 0.7;
const WAITING: f64 = 0.4;
const NOT_WAITING: f64 = 0.1;
/// Requests under way that are a queue on a device that serves many at once. SATA takes 32, NVMe thousands.
const UNDER_WAY_MANY: f64 = 8.0;
/// Requests under way that fill nearly any disk: rate times latency of data sheets is 30 to 60. Means fall a little
/// short of 64.
const UNDER_WAY_FILLS: f64 = 60.0;
/// Largest difference from their mean, as a part of it, of the requests under way at both ends of an interval, if a
/// program keeps their number steady.
const STEADY: f64 = 0.25;
/// Bounds below which a device is idle: requests a second, their part of the time, and U where it can be relied on.
const IDLE_PER_S: f64 = 200.0;
const IDLE_BUSY: f64 = 0.02;
const IDLE_USE: f64 = 0.05;
/// Requests and KiB a second below which a device is idle if no time is known.
const IDLE_UNTIMED_PER_S: f64 = 1.0;
const IDLE_UNTIMED_KIB_PER_S: f64 = 100.0;
/// The same if all times are 0: some kernels count in ticks of several ms, in which the times of a few requests vanish.
const IDLE_UNCOUNTED_PER_S: f64 = 20.0;
const IDLE_UNCOUNTED_KIB_PER_S: f64 = 1000.0;
/// Share of discards in the queue from which a device is trimming.
const TRIMMING: f64 = 0.5;
/// Usual latency in milliseconds below which a class is local.
const LOCAL_USUAL_MS: f64 = 1.0;
/// Fewest requests under way, on average, whose latency is trusted without a model.
const UNDER_WAY_FEW: f64 = 0.25;
/// Counts from here on are negative numbers: a driver counted a completion twice.
const IN_FLIGHT_LEAKED: u64 = 1 << 31;
/// Fewest requests under way at the end that are stuck if nothing completed and the begin of the interval is not known
/// (a single one may have been sent a moment ago), and the shortest such interval in seconds.
const STUCK_LEAST: u64 = 2;
const STUCK_LEAST_S: f64 = 1.0;
/// Milliseconds per request of a spinning disk: the shortest; the longest seek and turn of the slowest healthy one; and
/// the time beyond which it is ill.
const SPIN_LEAST_MS: f64 = 2.0;
const SPIN_SLOW_MS: f64 = 35.0;
const SPIN_ILL_MS: f64 = 50.0;
/// Bytes a second of spinning disks: the outer tracks of the fastest, and slow ones.
const SPIN_BYTES_PER_S: f64 = 300e6;
const SPIN_SLOW_BYTES_PER_S: f64 = 50e6;

/// The known facts and figures of a device in an interval.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub interval: &'a DeviceInterval,
    pub facts: Option<&'a DeviceFacts>,
    pub capacity_use: Option<f64>,
    pub basis: &'a Basis,
    /// Whether U, if it is not a model's, compares with a like load when the device was full.
    pub was_full: bool,
    /// Whether the device, when it was full, did more than the present mix of reads and writes can explain.
    pub did_far_more: bool,
    /// Fewest requests under way with which the device did as much of a like load, if they are at most half of those
    /// of now.
    pub enough_under_way: Option<f64>,
    pub saturation: &'a Saturation,
    /// Requests under way when the interval began; `None` where not known.
    pub in_flight_before: Option<u64>,
    /// Whether requests are under way and none completed in this interval, by [`is_stuck`].
    pub is_stuck: bool,
    /// For how long nothing completed though requests are under way, in seconds.
    pub stuck_s: f64,
    /// Whether a disk of the same interval is saturated, if this device is made of others.
    pub is_disk_full: bool,
}

/// Returns the verdict, and the reason in one line.
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
    let rules = [
        Case::hung,
        Case::idle,
        Case::by_model,
        Case::uncounted,
        Case::inflated,
        Case::special,
        Case::serial,
        Case::by_class,
        Case::rest,
    ];
    rules.into_iter().find_map(|rule| rule(&case)).unwrap_or_else(|| (Verdict::Unknown, NOTHING_KNOWN.to_owned()))
}

/// Makes a verdict that requests wait unknown, for a report that may be the mean since the host started.
pub(super) fn of_unclear_report((verdict, why): (Verdict, String)) -> (Verdict, String) {
    if !matches!(verdict, Verdict::Saturated | Verdict::Degraded | Verdict::Hung) {
        return (verdict, why);
    }
    let why = format!(
        "not clear: the first report of a text without a banner line may be the mean since boot; iostat's line `Linux ...` \
         settles it, or -y if it is an interval; then it is {}: {why}",
        verdict.name()
    );
    (Verdict::Unknown, why)
}

/// Makes the verdict on a saturated array unknown if all its members have room: the layer between holds requests, or
/// the bounds of a class are wrong for the array. If nothing is known of a stacked device, all disks beside it may be
/// its members.
pub(super) fn compare_arrays(devices: &mut [Judged], facts: &Facts) {
    let has_room = |verdict| matches!(verdict, Verdict::Idle | Verdict::Ok | Verdict::BusyButFree);
    let names = devices.iter().map(|judged| judged.interval.device.clone());
    let disks: Vec<String> = names.filter(|name| !is_stacked(name)).collect();

    let free: BTreeSet<String> = devices
        .iter()
        .filter(|judged| judged.interval.gap.is_none() && has_room(judged.verdict))
        .map(|judged| judged.interval.device.clone())
        .collect();

    for judged in devices.iter_mut().filter(|judged| judged.verdict == Verdict::Saturated) {
        let device = &judged.interval.device;
        let (members, whose) = match facts.get(device) {
            Some(facts) => (facts.members.as_slice(), "its members"),
            None if is_stacked(device) => (disks.as_slice(), "the disks beside it"),
            None => (&[][..], ""),
        };
        let is_model = matches!(judged.capacity_basis, Basis::Model(_));
        if !is_model && !members.is_empty() && members.iter().all(|member| free.contains(member)) {
            judged.verdict = Verdict::Unknown;
            judged.why = format!(
                "not clear: {}, but none of {whose} ({}) is full: the layer between may hold requests (its thread, \
                 a stripe, encryption); --disk with a model of the array settles it",
                judged.why,
                members.join(", ")
            );
        }
    }
}

/// Returns the latency that requests of `size_kib` stay below on a healthy device of this class with little to do, in
/// milliseconds.
pub(crate) fn usual_ms(device: &str, facts: Option<&DeviceFacts>, columns: &Columns, size_kib: f64) -> f64 {
    Class::of_busy(device, facts, columns).usual_ms(size_kib)
}

/// Returns whether a device serves one request after the other, or may do so by the host's facts, its name and load.
pub(super) fn may_be_serial(device: &str, facts: Option<&DeviceFacts>, columns: &Columns) -> bool {
    Class::of_busy(device, facts, columns).kind != Kind::Parallel
}

/// Returns the requests under way, or `None` if the count is a negative one.
fn believed(in_flight: Option<u64>) -> Option<u64> {
    in_flight.filter(|count| *count < IN_FLIGHT_LEAKED)
}

/// Returns the mean number of requests under way, if the device always had some and as many at both ends of the
/// interval. Then a program keeps that number there; it does not follow from a given rate and the latency.
pub(super) fn steady_under_way(interval: &DeviceInterval, before: Option<u64>) -> Option<f64> {
    let columns = &interval.columns;
    let mean = columns.queue.or_else(|| saturation::under_way_at_most(columns)).filter(|mean| *mean >= 0.9)?;
    let is_near = |count: u64| (count as f64 - mean).abs() <= (STEADY * mean).max(1.0);
    let is_steady = [before, interval.in_flight].into_iter().all(|count| believed(count).is_some_and(is_near));
    let is_busy = columns.util_percent.is_some_and(|util| util >= UTIL_HIGH_PERCENT);
    (is_busy && is_steady).then_some(mean)
}

/// Returns whether requests are under way and none completed in an interval of `duration_s` seconds. `before` is the
/// number under way when it began. If the source does not count them, `%util` and the queue decide.
pub fn is_stuck(interval: &DeviceInterval, before: Option<u64>, duration_s: Option<f64>) -> bool {
    let columns = &interval.columns;
    let completed = columns.requests_per_s().map(|per_s| per_s + columns.flushes_per_s.unwrap_or(0.0));
    let (before, now) = (believed(before), believed(interval.in_flight));
    if completed != Some(0.0) || now == Some(0) {
        return false;
    }

    let is_long = duration_s.is_some_and(|duration_s| duration_s >= STUCK_LEAST_S);
    match (before, now) {
        (Some(1..), Some(1..)) => return true,
        (None, Some(STUCK_LEAST..)) if is_long => return true,
        _ => {}
    }

    let busy = columns.util_percent.map(|util| util >= UTIL_HIGH_PERCENT);
    let waits = columns.queue.map(|queue| queue >= 0.9);
    match (busy, waits) {
        (None, None) => now.is_some(),
        // If either is known, `now` does not decide: a request that was sent a moment ago is under way, too.
        (busy, waits) => busy.unwrap_or(false) || waits.unwrap_or(false),
    }
}

const NOTHING_KNOWN: &str = "none of the columns that would tell is there";

/// The evidence, and figures that follow from it; `None` where not known.
struct Case<'a> {
    evidence: &'a Evidence<'a>,
    columns: &'a Columns,
    class: Class,
    /// Reads and writes a second.
    per_s: Option<f64>,
    kib_per_s: Option<f64>,
    /// Mean size of reads and writes; 0 if not known.
    size_kib: f64,
    await_ms: Option<f64>,
    /// Reads, writes and, as kernels count them, flushes under way, on average.
    under_way: Option<f64>,
    discards_under_way: f64,
    /// Whether requests completed, and no time was counted for them.
    is_uncounted: bool,
    /// The usual latency of the class for this size, in milliseconds.
    usual_ms: f64,
    is_util_high: bool,
}

type Answer = Option<(Verdict, String)>;

impl<'a> Case<'a> {
    fn new(evidence: &'a Evidence<'a>) -> Case<'a> {
        let columns = &evidence.interval.columns;
        let class = Class::of_busy(&evidence.interval.device, evidence.facts, columns);

        let discards_per_s = positive(columns.discards_per_s);
        let per_s = Columns { discards_per_s: None, ..*columns }.requests_per_s();
        let kib_per_s = columns.moved_kib_per_s();
        let by_rate = || positive(per_s).zip(kib_per_s).map(|(per_s, kib_per_s)| kib_per_s / per_s);
        let of_all = positive(columns.size_kib).filter(|_| discards_per_s.is_none());
        let size_kib = of_all.or_else(by_rate).unwrap_or(0.0);

        let whole = columns.queue.or_else(|| saturation::under_way_at_most(columns));
        let discards = discards_per_s.zip(columns.discard_await_ms).map_or(0.0, |(per_s, ms)| per_s * ms / 1000.0);
        let discards_under_way = whole.map_or(discards, |whole| discards.min(whole));

        let is_uncounted = is_uncounted(columns);
        let is_timed = |_: &f64| !is_uncounted;
        Case {
            evidence,
            columns,
            class,
            per_s,
            kib_per_s,
            size_kib,
            await_ms: saturation::mean_await_ms(columns).filter(is_timed),
            under_way: whole.map(|whole| whole - discards_under_way).filter(is_timed),
            discards_under_way,
            is_uncounted,
            usual_ms: class.usual_ms(size_kib),
            is_util_high: columns.util_percent.is_some_and(|util| util >= UTIL_HIGH_PERCENT),
        }
    }

    fn hung(&self) -> Answer {
        let stuck_s = self.evidence.stuck_s;
        if stuck_s < HUNG_AFTER_S && !self.evidence.is_stuck {
            return None;
        }
        let how_many = match (believed(self.evidence.interval.in_flight), self.columns.queue) {
            (Some(count), _) => format!("{count} requests are under way"),
            (None, Some(mean)) if mean >= 0.9 => format!("{} requests are under way", queue(mean)),
            _ => "requests are under way all the time".to_owned(),
        };
        if stuck_s < HUNG_AFTER_S {
            let why = format!("{how_many} and none has completed in this interval: too short to tell more");
            return Some((Verdict::Unknown, why));
        }
        Some((Verdict::Hung, format!("{how_many} and none has completed for {}", seconds(stuck_s))))
    }

    fn idle(&self) -> Answer {
        let per_s = self.columns.requests_per_s()?;
        if self.is_never_empty() {
            return None;
        }
        let has_flushes = positive(self.columns.flushes_per_s).is_some();
        if per_s == 0.0 && !has_flushes {
            return Some((Verdict::Idle, "nothing was asked of it".to_owned()));
        }

        let by_util = || self.columns.util_percent.map(|util| util / 100.0);
        let busy = saturation::under_way_at_most(self.columns).or_else(by_util).filter(|_| !self.is_uncounted);
        let (per_s_most, kib_per_s_most) = match self.is_uncounted {
            true => (IDLE_UNCOUNTED_PER_S, IDLE_UNCOUNTED_KIB_PER_S),
            false => (IDLE_UNTIMED_PER_S, IDLE_UNTIMED_KIB_PER_S),
        };
        let is_little = match busy {
            Some(busy) => busy < IDLE_BUSY && per_s < IDLE_PER_S,
            None => per_s < per_s_most && self.kib_per_s.is_none_or(|kib_per_s| kib_per_s < kib_per_s_most),
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

    /// Returns whether requests were under way both when the interval began and when it ended.
    fn is_never_empty(&self) -> bool {
        let ends = [self.evidence.in_flight_before, self.evidence.interval.in_flight];
        ends.into_iter().all(|count| believed(count).is_some_and(|count| count > 0))
    }

    /// Judges requests without any time, as the kernel reports them for some arrays.
    fn uncounted(&self) -> Answer {
        self.is_uncounted.then(|| (Verdict::Ok, format!("{}; this kernel counts no time for it", self.done_text())))
    }

    fn is_serial(&self) -> bool {
        match self.class.kind {
            Kind::Serial { .. } => true,
            Kind::Unknown => self.may_spin() && self.serves_like_spinning(),
            Kind::Parallel => false,
        }
    }

    /// Returns whether a device of an unknown kind may be a single disk that spins, or lie on one that is full.
    fn may_spin(&self) -> bool {
        !is_stacked(&self.evidence.interval.device) || self.evidence.is_disk_full
    }

    /// Judges a device whose `%util` is above the time of all its requests: its queue is short.
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

    /// Judges a device that spends most of its time on flushes or discards.
    fn special(&self) -> Answer {
        let is_serial = matches!(self.class.kind, Kind::Serial { .. });
        if let (0.0, Some(per_s), true) = (self.per_s?, positive(self.columns.flushes_per_s), self.is_util_high) {
            let each = self.columns.flush_await_ms.map_or_else(String::new, |each| format!(" of {} each", ms(each)));
            let verdict = if is_serial { Verdict::Saturated } else { Verdict::Ok };
            return Some((verdict, format!("its time goes to flushes: {} a second{each}", text::count(per_s))));
        }

        let whole = self.discards_under_way + self.under_way?;
        if self.discards_under_way <= 0.0 || self.discards_under_way < TRIMMING * whole || self.waits_by_class() {
            return None;
        }
        let per_s = text::count(self.columns.discards_per_s?);
        let each = self.columns.discard_await_ms.map_or_else(String::new, |each| format!(" of {} each", ms(each)));
        let is_free = self.is_util_high && self.class.kind == Kind::Parallel && !self.is_slower_than_usual();
        let verdict = if is_free { Verdict::BusyButFree } else { Verdict::Ok };
        let rest = self.await_ms.map_or_else(String::new, |each| format!("; reads and writes take {}", ms(each)));
        Some((verdict, format!("it is trimming: {per_s} discards a second{each}{rest}")))
    }

    /// Judges a device that serves one request after the other: there `%util` is the part of its capacity in use.
    fn serial(&self) -> Answer {
        if !self.is_serial() {
            return None;
        }
        let spindles = if let Kind::Serial { spindles } = self.class.kind { spindles as f64 } else { 1.0 };
        let util = self.columns.util_percent?;
        let under_way = self.under_way.unwrap_or(1.0);
        let each_ms = self.each_ms()?;
        let long = format!("{} under way, {} each", queue(under_way), ms(self.await_ms.unwrap_or(each_ms)));

        let transfer_ms = self.size_kib * 1024.0 / SPIN_SLOW_BYTES_PER_S * 1000.0;
        if !self.is_util_high {
            let free = format!("it is free {:.0} % of the time; {long}", 100.0 - util.min(100.0));
            // Flushes and discards take time, too, and do not count as these requests.
            let columns = self.columns;
            let is_alone = positive(columns.flushes_per_s).is_none() && positive(columns.discards_per_s).is_none();
            let is_slow = each_ms >= SPIN_SLOW_MS + transfer_ms;
            if spindles == 1.0 && is_alone && is_slow && !self.is_slow_medium() {
                let why = format!(
                    "not clear: {free}, but it needs {} for one, and a healthy disk that spins at most {}: it is slower \
                     than it was, or others use it; watch longer",
                    ms(each_ms),
                    ms(SPIN_SLOW_MS + transfer_ms)
                );
                return Some((Verdict::Unknown, why));
            }
            return Some((Verdict::Ok, free));
        }
        if spindles > 1.0 && under_way * (1.0 - WAITING) < spindles {
            let why = format!("{spindles:.0} spindles have {} requests under way: some are free", queue(under_way));
            return Some((Verdict::Ok, why));
        }

        if spindles == 1.0 && each_ms >= SPIN_ILL_MS + transfer_ms && !self.is_slow_medium() {
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

    /// Returns whether the device is an optical drive, a floppy disk or a card.
    fn is_slow_medium(&self) -> bool {
        ["sr", "fd", "mmcblk"].iter().any(|start| self.evidence.interval.device.starts_with(start))
    }

    /// Returns the busy time per read or write in milliseconds: on a serial device, its service time.
    fn each_ms(&self) -> Option<f64> {
        Some(self.columns.util_percent? * 10.0 / positive(self.per_s)?)
    }

    fn serves_like_spinning(&self) -> bool {
        let long = self.size_kib * 1024.0 / SPIN_BYTES_PER_S * 1000.0;
        let least_ms = if self.size_kib >= 64.0 { long } else { SPIN_LEAST_MS };
        self.is_util_high && self.each_ms().is_some_and(|each_ms| each_ms >= least_ms)
    }

    fn waiting_text(&self) -> String {
        match (self.evidence.saturation.overall, self.await_ms) {
            (Some(part), _) if part < NOT_WAITING => "requests hardly wait".to_owned(),
            (Some(part), _) => format!("requests wait {} of their time", percent(part)),
            (None, Some(await_ms)) if self.waits_by_class() => format!("requests take {}", ms(await_ms)),
            (None, Some(await_ms)) if self.waits_by_depth() => {
                format!("requests take {}: {}", ms(await_ms), self.enough_text())
            }
            (None, Some(await_ms)) => {
                format!("requests take {}, how long on the idle device is not known", ms(await_ms))
            }
            (None, None) => "how long requests take is not known".to_owned(),
        }
    }

    /// Judges a device without latency or queue length.
    fn rest(&self) -> Answer {
        match (self.per_s, self.columns.util_percent) {
            (_, Some(util)) if util < IDLE_BUSY * 100.0 && !self.is_never_empty() => {
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

/// Returns whether requests completed, and all known figures of time, at least two, are 0.
fn is_uncounted(columns: &Columns) -> bool {
    let is_done = |per_s: Option<f64>| positive(per_s).is_some();
    let kinds = [
        is_done(columns.reads_per_s).then_some(columns.read_await_ms),
        is_done(columns.writes_per_s).then_some(columns.write_await_ms),
    ];
    let times = kinds.into_iter().flatten().chain([columns.queue, columns.util_percent]).flatten();
    let (count, sum) = times.fold((0, 0.0), |(count, sum), time| (count + 1, sum + time));
    is_done(columns.requests_per_s()) && columns.util_percent.is_some() && count >= 2 && sum == 0.0
}

#[cfg(test)]
mod tests;
