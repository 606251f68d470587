//! Wrong conclusions that the columns invite.
//!
//! # Why
//! Each of these conclusions has misled users.
//!
//! # How it works
//! [`of_device`] and [`of_interval`] are lists of rules, each a code and a sentence with the figures at hand:
//!
//! | code | when |
//! |---|---|
//! | `util-misleads` | `%util` of 90 and more, unless on a single spindle |
//! | `util-invalid` | `%util` above any possible busy time |
//! | `tick-bias` | `%util` above the time of all requests together |
//! | `ops-per-minute` | U of 5 and more by a model: a rate per minute read as one per second, or another disk |
//! | `network-disk` | the data is behind a network; with the used part of the link |
//! | `ephemeral` | the data is lost when the instance stops |
//! | `flush-counted-twice` | flushes with a latency of their own |
//! | `first-interval` | no model, and nothing yet to compare with; once for a device |
//! | `since-boot` | means since the host started |
//! | `iowait-is-no-evidence` | `iowait` contradicts the verdicts on the disks |
//!
//! # Limits
//! Remarks only inform, with one exception: the rules of verdicts distrust `%util` where `tick-bias` holds.
//!
//! # Example
//! 7497 writes of 0.03 ms are 0.23 under way; `%util` cannot be above 23 and shows 100: `tick-bias`.

use plimsoll_figures::units::format_throughput_decimal;

use super::super::{Basis, CpuShares, DeviceInterval, Judged, Remark, Verdict};
use super::class::{Class, Kind};
use super::text::percent;
use super::{Evidence, UTIL_HIGH_PERCENT, saturation, text};

/// `iowait` in percent from which a reader suspects a disk, and below which a reader suspects none.
const IOWAIT_HIGH_PERCENT: f64 = 20.0;
const IOWAIT_LOW_PERCENT: f64 = 5.0;
/// U from which the rates cannot be those of the modelled device.
const USE_ABSURD: f64 = 5.0;
/// `%util` that cannot be: whole ticks make at most twice the length of an interval of one tick.
const UTIL_INVALID_PERCENT: f64 = 200.0;
/// Code of the remark that is made once.
pub(in super::super) const FIRST_INTERVAL: &str = "first-interval";
/// Mean latency in milliseconds from which requests may be under way without completing in the interval.
const LONG_MS: f64 = 100.0;

pub(in super::super) fn of_device(evidence: &Evidence<'_>, verdict: Verdict) -> Vec<Remark> {
    if evidence.interval.gap.is_some() {
        return Vec::new();
    }
    let rules: [(&'static str, Option<String>); 7] = [
        ("util-misleads", util_misleads(evidence)),
        ("tick-bias", tick_bias(evidence.interval)),
        ("ops-per-minute", ops_per_minute(evidence)),
        ("network-disk", network_disk(evidence, verdict)),
        ("ephemeral", ephemeral(evidence)),
        ("flush-counted-twice", flush_counted_twice(evidence)),
        (FIRST_INTERVAL, first_interval(evidence, verdict)),
    ];
    rules.into_iter().filter_map(|(code, message)| Some(Remark { code, message: message? })).collect()
}

pub(in super::super) fn of_interval(is_since_boot: bool, cpu: Option<&CpuShares>, devices: &[Judged]) -> Vec<Remark> {
    let since_boot = is_since_boot.then(|| {
        "means since the host started: what happens now is not seen in them; take a second interval".to_owned()
    });
    let rules: [(&'static str, Option<String>); 2] =
        [("since-boot", since_boot), ("iowait-is-no-evidence", cpu.and_then(|cpu| iowait(cpu, devices)))];
    rules.into_iter().filter_map(|(code, message)| Some(Remark { code, message: message? })).collect()
}

/// Returns a remark if `%util` is impossible; then nothing may be concluded from it.
pub(in super::super) fn invalid_util(interval: &DeviceInterval) -> Option<Remark> {
    let util = interval.columns.util_percent.filter(|util| *util > UTIL_INVALID_PERCENT)?;
    let message = format!(
        "%util of {} is invalid: it is a part of the time, so that it cannot be above 100; the kernel's counter went \
         back or was reset, and nothing is concluded from it",
        if util < 1e6 { format!("{util:.0}") } else { format!("{util:.1e}") }
    );
    Some(Remark { code: "util-invalid", message })
}

fn util_misleads(evidence: &Evidence<'_>) -> Option<String> {
    let util = evidence.interval.columns.util_percent.filter(|util| *util >= UTIL_HIGH_PERCENT)?;
    let class = Class::of_busy(&evidence.interval.device, evidence.facts, &evidence.interval.columns);
    let which = match class.kind {
        Kind::Serial { spindles: 1 } => return None,
        Kind::Serial { .. } | Kind::Parallel => "devices of this kind serve several at once",
        Kind::Unknown => "whether this one does is not known",
    };
    Some(format!(
        "%util of {util:.0} is time in which at least one request was under way; near 100 it means saturation \
         only of a device that serves one after the other, and tells nothing of the limits of arrays and SSDs, which \
         serve in parallel (iostat's manual page says so since sysstat 10.1.7 of 2013): {which}"
    ))
}

/// Returns a remark if `%util` is clearly above the time of all requests together: busy time cannot be longer.
pub(super) fn tick_bias(interval: &DeviceInterval) -> Option<String> {
    let columns = &interval.columns;
    let util = columns.util_percent?;
    let under_way = saturation::under_way_at_most(columns)?;
    let is_counted = columns.requests_per_s()? > 0.0;
    let is_short = saturation::mean_await_ms(columns).is_none_or(|ms| ms < LONG_MS);
    let none_left = interval.in_flight.is_none_or(|in_flight| in_flight <= 1);
    let is_biased = is_counted && is_short && none_left && util / 100.0 > 1.5 * under_way + 0.05;
    is_biased.then(|| {
        format!(
            "all requests together took {} of the time, so %util ({util:.0}) is too high: kernels of 4.19 and of \
             5.0 to 6.9 sample it, and count a tick where a request took microseconds",
            percent(under_way)
        )
    })
}

fn ops_per_minute(evidence: &Evidence<'_>) -> Option<String> {
    let Basis::Model(name) = evidence.basis else { return None };
    let capacity_use = evidence.capacity_use.filter(|capacity_use| *capacity_use >= USE_ABSURD)?;
    let a_minute = percent(capacity_use / 60.0);
    Some(format!(
        "that is {capacity_use:.0} times what {name} can: another disk, a volume with credits, or operations a minute, \
         as graphs of clouds have them, taken for operations a second (then it would be {a_minute})"
    ))
}

/// Returns the used part of the network link, 0 and more, of the direction that is used more: a link carries as much in
/// each. `None` if its speed is not known.
pub(super) fn link_use(evidence: &Evidence<'_>) -> Option<f64> {
    let link_bytes_per_s = evidence.facts?.remote.as_ref()?.link_bytes_per_s.filter(|link| *link > 0)?;
    Some(evidence.interval.columns.one_way_kib_per_s()? * 1024.0 / link_bytes_per_s as f64)
}

fn network_disk(evidence: &Evidence<'_>, verdict: Verdict) -> Option<String> {
    let remote = evidence.facts?.remote.as_ref()?;
    let kind = &remote.kind;
    if verdict == Verdict::Idle {
        return None;
    }
    Some(match (link_use(evidence), remote.link_bytes_per_s) {
        (Some(part), Some(link)) => format!(
            "its data is behind a network ({kind}): {} of what the fastest link of this host carries ({}) are used, and the \
             limit may be the link, the volume or the instance, not the disk",
            percent(part),
            format_throughput_decimal(link as f64)
        ),
        _ => format!(
            "its data is behind a network ({kind}): the limit may be the link, the volume or the instance, not the disk"
        ),
    })
}

fn ephemeral(evidence: &Evidence<'_>) -> Option<String> {
    let is_ephemeral = evidence.facts.is_some_and(|facts| facts.is_ephemeral);
    is_ephemeral.then(|| "its data is lost when the instance stops".to_owned())
}

fn flush_counted_twice(evidence: &Evidence<'_>) -> Option<String> {
    let columns = &evidence.interval.columns;
    let flushes = columns.flushes_per_s.filter(|per_s| *per_s > 0.0)?;
    let await_ms = columns.flush_await_ms.filter(|ms| *ms > 0.0)?;
    Some(format!(
        "{} flushes a second of {} each: the time of a flush can be in f_await and once more in that of the write it \
         belongs to",
        text::count(flushes),
        text::ms(await_ms)
    ))
}

fn first_interval(evidence: &Evidence<'_>, verdict: Verdict) -> Option<String> {
    let is_first = *evidence.basis == Basis::Unknown && !matches!(verdict, Verdict::Idle | Verdict::Unknown);
    is_first.then(|| "U is unknown: name a model of the disk (--disk), or watch until requests have queued and it does less than then".to_owned())
}

fn iowait(cpu: &CpuShares, devices: &[Judged]) -> Option<String> {
    let is_waiting = |judged: &Judged| matches!(judged.verdict, Verdict::Saturated | Verdict::Degraded | Verdict::Hung);
    let found = devices.iter().find(|judged| is_waiting(judged));
    let means = "it is idle time of CPUs on which a task began to wait, so that it falls when other tasks run; \
                 pressure stall figures count waiting tasks, too, not disks";
    match found {
        Some(judged) if cpu.iowait < IOWAIT_LOW_PERCENT => Some(format!(
            "iowait of {:.1} % does not speak against {} being {}: {means}",
            cpu.iowait,
            judged.interval.device,
            judged.verdict.name()
        )),
        None if cpu.iowait >= IOWAIT_HIGH_PERCENT => {
            Some(format!("iowait of {:.1} % is no evidence of a full disk, and none is: {means}", cpu.iowait))
        }
        _ => None,
    }
}
