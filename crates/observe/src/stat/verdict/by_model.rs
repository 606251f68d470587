//! The rules for devices whose full rate is known: from a model, or from when they were full.
//!
//! # Why
//! How much of the whole is used (U), beside how long requests wait (S), tells more than any class of devices.
//!
//! # How it works
//! Rule 3 of [`super`]. If U and S alone do not decide, the time of as many requests on the healthy device does, or the
//! rate of the device with fewer.
//!
//! # Limits
//! Those of the model. Without one, a device that was never full is judged by its class.
//!
//! # Example
//! 20 % of the model's capacity, and requests that hardly wait, at a `%util` of 96: busy but free.

use super::super::capacity::{Capacity, positive};
use super::super::{Basis, Verdict};
use super::text::{ms, percent, queue, rate};
use super::{Answer, Case, Kind, LOCAL_USUAL_MS, NOT_WAITING, UNDER_WAY_MANY, USE_FULL, USE_PART, WAITING};

/// U below which a device is free, if requests hardly wait.
const USE_FREE: f64 = 0.3;
/// U by a model from which the device does more than the model has: it has credits, or the model is of another one.
const BEYOND_MODEL: f64 = 1.05;
/// Requests under way that are a queue, if they also take long.
const UNDER_WAY_QUEUE: f64 = 4.0;
/// Requests under way from which some disk is full: a virtual one with long reads has its knee at four. Means fall a
/// little short of that.
const UNDER_WAY_MAY_WAIT: f64 = 3.5;
/// The part of the usual latency of a local class that its quickest devices take for a request that is alone.
const ALONE_PART: f64 = 1.0 / 3.0;
/// Ratio of `await` to the longest on a healthy device with as many under way, from which the device is slow.
const SLOWER_THAN_FULL: f64 = 1.2;
/// The same in bursts, whose number under way follows from `%util`: kernels count it in ticks of up to 10 ms.
const SLOWER_IN_BURSTS: f64 = 2.0;
/// Least part of their time that requests wait beyond the time of those before them, to be unexplained; and the least
/// excess over the latency of the idle device, which is uncertain by some tens of microseconds.
const UNEXPLAINED: f64 = 0.2;
const SLOWER_LEAST_MS: f64 = 0.1;

impl Case<'_> {
    /// Returns U if a verdict can rely on it, and the name of the whole that it is a part of.
    pub(super) fn model_use(&self) -> Option<(f64, String)> {
        let capacity_use = self.evidence.capacity_use?;
        match self.evidence.basis {
            Basis::Model(name) => Some((capacity_use, format!("what {name} can"))),
            // A spinning disk does ten times as much in order as at random: its rate once full says little about now.
            Basis::HighestSeen if self.evidence.was_full && !self.is_serial() => {
                Some((capacity_use, "the most it did with requests waiting".to_owned()))
            }
            Basis::HighestSeen | Basis::Unknown => None,
        }
    }

    pub(super) fn by_model(&self) -> Answer {
        let (capacity_use, whole) = self.model_use()?;
        let waiting = self.evidence.saturation.overall;
        let waits = waiting.map_or_else(|| self.waits_by_class() || self.waits_by_depth(), |part| part >= WAITING);
        let s = self.waiting_text();

        // The highest rate seen may have been a burst into a buffer.
        let is_seen = *self.evidence.basis == Basis::HighestSeen;
        let full = if is_seen { USE_PART } else { USE_FULL };
        let used = match (is_seen, capacity_use) {
            (true, part) if part > 1.0 => "it does more than ever before with requests waiting".to_owned(),
            (false, BEYOND_MODEL..) => format!("it does {capacity_use:.1} times {whole}"),
            _ => format!("{} of {whole} is used", percent(capacity_use)),
        };
        if waits
            && is_seen
            && let Some(held) = self.held()
        {
            return Some(held);
        }
        if waits && capacity_use >= full {
            return Some((Verdict::Saturated, format!("{used}, and {s}{}", self.cap_text())));
        }
        let is_explained = (is_seen && self.is_as_when_full(capacity_use)) || self.is_of_bursts(capacity_use);
        if waits && capacity_use < USE_PART && self.is_queue_or_slow() && !is_explained {
            return Some((Verdict::Degraded, self.less_than_it_could(capacity_use)));
        }
        if matches!(self.class.kind, Kind::Serial { .. }) && self.is_util_high && !self.is_inflated() {
            return None;
        }

        // With few under way, few can wait: a higher S may come from the uncertain latency of the idle device.
        let is_short = self.under_way.is_some_and(|under_way| under_way < UNDER_WAY_MANY);
        let is_quick =
            waiting.map_or(!waits, |part| part < NOT_WAITING || (is_short && !(waits && self.is_queue_or_slow())));
        if self.is_util_high && capacity_use < USE_FREE && is_quick {
            let free = percent(1.0 - capacity_use);
            let why = format!("{free} of {whole} is free, and {s}: %util counts time, not work");
            return Some((Verdict::BusyButFree, why));
        }

        if capacity_use >= USE_FULL
            && let Some(unclear) = self.unknown_depth()
        {
            return Some(unclear);
        }
        if capacity_use < USE_PART
            && let Some(unexplained) = self.unexplained(0.0, 3.0)
        {
            return Some(unexplained);
        }
        let why = if capacity_use >= USE_FULL {
            format!("{used}, but {s}")
        } else if waits && capacity_use < USE_PART && self.is_of_bursts(capacity_use) {
            format!("{used}, and {s}: they come in bursts")
        } else if waits && capacity_use >= USE_PART {
            format!("{used}, and {s}: there is little left")
        } else {
            format!("{used}, and {s}")
        };
        Some((Verdict::Ok, why))
    }

    /// Returns whether there is a queue, or requests that are nearly alone take far longer than on the idle device,
    /// whose latency is uncertain by some tens of microseconds.
    fn is_queue_or_slow(&self) -> bool {
        let Some((least_ms, await_ms)) = self.evidence.saturation.unloaded_ms.zip(self.await_ms) else { return true };
        let is_slow = await_ms >= 10.0 * least_ms || await_ms >= least_ms + 0.25;
        let is_thrice = await_ms >= 3.0 * least_ms;
        self.under_way.is_none_or(|under_way| {
            under_way >= UNDER_WAY_QUEUE || (under_way >= 1.0 && is_thrice) || (under_way >= 0.25 && is_slow)
        })
    }

    /// Judges requests that wait longer than those before them can explain, while the device is free for a part of the
    /// time. Of N that are under way while it is busy, each waits for at most N - 1 others: a part 1 - 1 / N of its
    /// time, and less where the device serves several at once. `under_way_least` is the fewest whose latency is
    /// trusted, `factor_least` its least multiple of the idle device's latency.
    pub(super) fn unexplained(&self, under_way_least: f64, factor_least: f64) -> Answer {
        let part = self.evidence.saturation.overall.filter(|part| *part >= WAITING)?;
        let (least_ms, await_ms) = self.evidence.saturation.unloaded_ms.zip(self.await_ms)?;
        let under_way = self.under_way.filter(|under_way| *under_way >= under_way_least)?;
        let busy = positive(self.columns.util_percent)? / 100.0;
        let is_slow = await_ms >= factor_least * least_ms && await_ms >= least_ms + SLOWER_LEAST_MS;
        if self.is_util_high || self.class.kind != Kind::Parallel || !is_slow {
            return None;
        }

        let at_once = (under_way / busy).max(1.0);
        let explained = 1.0 - 1.0 / at_once;
        let why = format!(
            "not clear: {} under way while it is busy wait {} of their {}, and for one another at most {}: it is slower \
             than it was, or others use it; watch longer",
            queue(at_once),
            percent(part),
            ms(await_ms),
            percent(explained),
        );
        (part >= explained + UNEXPLAINED).then_some((Verdict::Unknown, why))
    }

    /// Returns whether requests take about as long as on the healthy device with as many under way.
    fn is_as_when_full(&self, capacity_use: f64) -> bool {
        self.under_way.is_some_and(|under_way| self.takes_at_most(SLOWER_THAN_FULL, under_way, capacity_use))
    }

    /// Returns whether requests come in bursts, and take about as long as on the healthy device with as many under way
    /// as here while it is busy.
    fn is_of_bursts(&self, capacity_use: f64) -> bool {
        let factor = if self.is_util_high { SLOWER_THAN_FULL } else { SLOWER_IN_BURSTS };
        let known = self.under_way.zip(positive(self.columns.util_percent));
        let at_once = known.map(|(under_way, util)| under_way / (util / 100.0));
        at_once.is_some_and(|at_once| at_once >= UNDER_WAY_QUEUE && self.takes_at_most(factor, at_once, capacity_use))
    }

    /// Returns whether S is not known, and fewer requests under way did as much: the others only wait.
    pub(super) fn waits_by_depth(&self) -> bool {
        let is_known = self.evidence.saturation.overall.is_some();
        !is_known && self.class.kind == Kind::Parallel && self.evidence.enough_under_way.is_some()
    }

    pub(super) fn enough_text(&self) -> String {
        let fewest = self.evidence.enough_under_way.map(queue).unwrap_or_default();
        format!("with {fewest} under way it did as much")
    }

    /// Judges a device that always has many requests, if nothing shows whether they wait: neither its latency with
    /// little to do nor its rate with fewer is known.
    pub(super) fn unknown_depth(&self) -> Answer {
        let is_many = self.under_way.is_some_and(|under_way| under_way >= UNDER_WAY_MAY_WAIT);
        let is_as_if_alone = self.class.usual_ms(0.0) < LOCAL_USUAL_MS
            && self.under_way.is_some_and(|under_way| under_way >= UNDER_WAY_MANY)
            && self.await_ms.is_some_and(|await_ms| await_ms <= self.usual_ms * ALONE_PART);
        let is_known = self.evidence.saturation.overall.is_some() || is_as_if_alone;
        if !is_many || is_known || !self.is_util_high || self.class.kind != Kind::Parallel {
            return None;
        }
        let why = format!(
            "not clear: {} with {} under way, {} each, is all that was seen of it: whether they wait shows when fewer are \
             under way, or with --disk",
            self.done_text(),
            queue(self.under_way?),
            ms(self.await_ms?),
        );
        Some((Verdict::Unknown, why))
    }

    /// Returns whether requests take at most `factor` times L + N / X_full, the time if all N under way wait for each
    /// other (close to the upper bound of Zahorjan's balanced job bounds).
    fn takes_at_most(&self, factor: f64, under_way: f64, capacity_use: f64) -> bool {
        let full_per_s = Capacity::full_requests_per_s(self.columns, capacity_use);
        let known = self.evidence.saturation.unloaded_ms.zip(self.await_ms.zip(full_per_s));
        known.is_some_and(|(least_ms, (await_ms, full_per_s))| {
            await_ms < factor * (least_ms + under_way / full_per_s * 1000.0)
        })
    }

    fn less_than_it_could(&self, capacity_use: f64) -> String {
        let s = self.waiting_text();
        let could = Capacity::full_requests_per_s(self.columns, capacity_use);
        let could = could.map_or_else(String::new, |could| format!(" where it could do {}", rate(could)));
        format!("{}{could}, though {s}{}", self.done_text(), self.cap_text())
    }
}
