//! Wrong conclusions that two sides invite, and whether their figures agree with each other.
//!
//! # Why
//! Evidence is only as good as its figures: units, rounding, columns that do not mean what their name says.
//!
//! # How it works
//! Little's law: the requests that complete in a second, times how long each takes, are the requests under way. If
//! `aqu-sz` differs by more than rounding and a tenth, the columns are not of one interval, or count different
//! requests.
//!
//! # Limits
//! Units of graphs are checked only if a rate of the graph is given.
//!
//! # Example
//! 21,357/s x 0.07 ms = 1.49 beside an `aqu-sz` of 1.49: they agree.

use plimsoll_figures::units::{format_count, format_iops};

use super::super::Remark;
use super::{Context, Pair, Side, Two, change_words, mib};

/// Largest difference of `%util`, in points, that counts as equal.
const UTIL_POINTS: f64 = 5.0;
/// Largest rounding error of a latency that iostat prints, in milliseconds: half of the last digit.
const AWAIT_ROUNDING_MS: f64 = 0.005;

pub(super) fn all(pair: &Pair, context: &Context) -> Vec<Remark> {
    let mut findings: Vec<Remark> = Vec::new();
    findings.extend(util(pair, context));
    findings.extend(bytes_beside_requests(pair));
    findings.extend(little("A", pair.a));
    findings.extend(little("B", pair.b));
    findings.extend(per_minute(pair));
    findings.extend(graph(pair, context));
    findings.extend(iowait(pair));
    findings.extend(coarse(pair));
    findings
}

fn util(pair: &Pair, context: &Context) -> Option<Remark> {
    let util = pair.column(|columns| columns.util_percent)?;
    let requests = pair.requests()?;
    let is_serial = context.facts.as_ref().is_some_and(|facts| facts.is_rotational == Some(true));
    if (util.a - util.b).abs() > UTIL_POINTS || requests.is_within(0.09) || is_serial {
        return None;
    }
    let message = format!(
        "%util is {:.0} % in A and {:.0} % in B, while B completes {}: it says that something was under way for that \
         part of the time, and proves nothing about how much more the device can do",
        util.a,
        util.b,
        change_words(requests, "more requests", "fewer requests"),
    );
    Some(Remark { code: "util-misleads", message })
}

fn bytes_beside_requests(pair: &Pair) -> Option<Remark> {
    let (requests, kib) = (pair.requests()?, pair.kib()?);
    let (more, moved) = (requests.ratio() - 1.0, kib.ratio() - 1.0);
    if requests.is_within(0.09) || (moved / more > 0.5 && moved / more < 2.0) {
        return None;
    }
    let size = |kib: f64, requests: f64| if requests > 0.0 { kib / requests } else { 0.0 };
    let message = format!(
        "B completes {}, and moves {} ({} after {}): requests are of {:.1} KiB after {:.1} KiB, so count both",
        change_words(requests, "more requests", "fewer requests"),
        change_words(kib, "more bytes", "fewer bytes"),
        mib(kib.b),
        mib(kib.a),
        size(kib.b, requests.b),
        size(kib.a, requests.a),
    );
    Some(Remark { code: "bytes-beside-requests", message })
}

fn little(letter: &str, side: &Side) -> Option<Remark> {
    let columns = &side.columns;
    let (requests, await_ms) = columns.requests_per_s().zip(columns.mean_await_ms())?;
    let queue = columns.queue.filter(|_| requests > 0.0 && await_ms > 0.0)?;
    let expected = requests * await_ms / 1000.0;
    let slack = 0.1 * expected + requests * AWAIT_ROUNDING_MS / 1000.0 + AWAIT_ROUNDING_MS;
    let law =
        format!("{letter}: {}/s x {await_ms:.2} ms = {expected:.2} under way, and aqu-sz is", format_iops(requests));
    Some(if (queue - expected).abs() <= slack {
        Remark { code: "little", message: format!("{law} {queue:.2}: the columns agree (Little's law)") }
    } else {
        let why = "requests that completed are not those that were under way, or flushes and units are mixed";
        Remark { code: "little-fails", message: format!("{law} {queue:.2}: the columns do not agree; {why}") }
    })
}

fn per_minute(pair: &Pair) -> Option<Remark> {
    let requests = pair.requests().filter(|requests| requests.most() > 0.0)?;
    let ratio = requests.spread();
    let same_size = pair.await_ms().is_some_and(|two| two.is_within(0.05));
    let message = if (ratio - 60.0).abs() < 2.0 && same_size {
        "the rates of A and B differ by a factor of 60 at the same await: one of them is per minute".to_owned()
    } else {
        let minute = |rate: f64| format_count((rate * 60.0).round() as u64);
        let Two { a, b } = requests;
        format!(
            "a graph in operations per minute, as clouds draw it, shows this as {} and {}: see its unit before \
             comparing it with a data sheet",
            minute(a),
            minute(b)
        )
    };
    Some(Remark { code: "ops-per-minute", message })
}

fn graph(pair: &Pair, context: &Context) -> Option<Remark> {
    rate_unit(context.graph_rate?, pair.a.columns.requests_per_s()?)
}

/// Names the unit of a graph that shows `shown` for `per_s` operations a second; `None` for an unknown unit.
fn rate_unit(shown: f64, per_s: f64) -> Option<Remark> {
    let units = [(1.0, "second"), (60.0, "minute"), (300.0, "five minutes"), (3600.0, "hour")];
    let (_, unit) = units.into_iter().find(|(factor, _)| Two { a: shown, b: factor * per_s }.is_within(0.15))?;
    let message = format!(
        "the graph's {} is {} operations a second: it counts operations per {unit}",
        format_iops(shown),
        format_iops(per_s)
    );
    Some(Remark { code: "graph-unit", message })
}

fn iowait(pair: &Pair) -> Option<Remark> {
    let iowait = pair.two(|side| side.cpu.map(|cpu| cpu.iowait))?;
    let message = format!(
        "iowait of {:.1} % and {:.1} % is no evidence, for or against: it is idle time, and other work on the CPU hides \
         it",
        iowait.a, iowait.b
    );
    Some(Remark { code: "iowait-is-no-evidence", message })
}

fn coarse(pair: &Pair) -> Vec<Remark> {
    let mut remarks = Vec::new();
    if pair.a.is_since_boot || pair.b.is_since_boot {
        let message = "a side is the mean since the start of the host: leave that report out (iostat -y)".to_owned();
        remarks.push(Remark { code: "since-boot", message });
    }
    if pair.a.intervals == 1 || pair.b.intervals == 1 {
        let message = "a side is a single interval: how much it varies is not known".to_owned();
        remarks.push(Remark { code: "single-interval", message });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::rate_unit;

    #[test]
    fn units_of_graphs() {
        for (shown, expected) in [
            (16_597.0, Some("per second")),
            (995_820.0, Some("per minute")),
            (4_900_000.0, Some("per five minutes")),
            (50_000.0, None),
        ] {
            let found = rate_unit(shown, 16_597.0).map(|remark| remark.message);
            assert_eq!(found.is_some(), expected.is_some(), "{shown}: {found:?}");
            assert!(found.zip(expected).is_none_or(|(message, unit)| message.ends_with(unit)));
        }
        assert!(rate_unit(0.0, 5.0).is_none() && rate_unit(f64::NAN, 5.0).is_none());
    }
}
