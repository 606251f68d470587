//! The rules for devices that are known only by their class.
//!
//! # Why
//! Most reports come without a model, and many are single.
//!
//! # How it works
//! Rule 5 of [`super`], and the signatures of limits. Figures are those of reads and writes.
//!
//! # Limits
//! Those of the classes: bounds, no ratings.
//!
//! # Example
//! 195 reads a second of 5.1 ms, one at a time on `nvme0n1`: 17 times the usual latency, and a rate below that of any
//! healthy NVMe disk: degraded.

use super::class::{NVME, XEN, cap_signature};
use super::text::{ms, percent, queue, rate, throughput};
use super::{
    Answer, Basis, Case, Kind, LOCAL_USUAL_MS, NOT_WAITING, UNDER_WAY_FEW, UNDER_WAY_FILLS, UNDER_WAY_MANY, USE_FULL,
    USE_PART, UTIL_INFLATED_PERCENT, Verdict, WAITING, remarks,
};

/// `await` over the usual latency up to which a short queue shows a free device.
const FREE_FACTOR: f64 = 3.0;
/// `await` over the usual latency from which a device with a rate below any of its class is ill: for busy local disks,
/// and for all others.
const ILL_LOCAL_FACTOR: f64 = 8.0;
const ILL_FACTOR: f64 = 30.0;
/// Mean requests under way that show a full SATA disk: it takes 32 at once, and means fall a little short.
const SATA_TAGS_USED: f64 = 30.0;
/// Below the usual latency, S from latencies seen counts only at this multiple of the idle device's latency or more, at
/// this part of the highest rate seen or more.
const SEEN_FACTOR: f64 = 3.0;
const SEEN_USE: f64 = 0.9;

impl Case<'_> {
    /// Returns whether requests wait, by the usual latency of the class and the number under way.
    pub(super) fn waits_by_class(&self) -> bool {
        let (Some(under_way), Some(await_ms)) = (self.under_way, self.await_ms) else { return false };
        let is_low_limit = self.class.kind == Kind::Parallel && self.class.usual_ms(0.0) >= 3.0;
        (under_way >= 4.0 && await_ms >= 2.0 * self.usual_ms)
            || (under_way >= UNDER_WAY_FILLS && await_ms >= 0.5 * self.usual_ms)
            || (is_low_limit && under_way >= 5.0 / 3.0 && await_ms >= 3.0 * self.usual_ms)
    }

    /// Returns whether S is high, and not only because one interval was especially quiet.
    fn waits_by_seen(&self, under_way: f64, await_ms: f64) -> bool {
        let saturation = self.evidence.saturation;
        let is_far = saturation.unloaded_ms.is_some_and(|least_ms| await_ms >= SEEN_FACTOR * least_ms);
        let is_most = self.evidence.capacity_use.is_some_and(|capacity_use| capacity_use >= SEEN_USE);
        let is_known = !matches!(self.evidence.basis, Basis::HighestSeen | Basis::Unknown);
        under_way >= UNDER_WAY_MANY
            && saturation.overall.is_some_and(|part| part >= WAITING)
            && (is_known || await_ms >= self.usual_ms || (is_far && is_most))
    }

    /// Returns whether as many requests are under way as SATA takes at once.
    fn fills_tags(&self, under_way: f64) -> bool {
        under_way >= SATA_TAGS_USED && self.is_util_high && self.class.is_sata_ssd(&self.evidence.interval.device)
    }

    pub(super) fn is_slower_than_usual(&self) -> bool {
        self.await_ms.is_some_and(|await_ms| await_ms > FREE_FACTOR * self.usual_ms)
    }

    fn is_ill(&self, under_way: f64, await_ms: f64) -> bool {
        let is_local = self.class.usual_ms(0.0) < LOCAL_USUAL_MS;
        let is_busy = self.is_util_high || self.columns.util_percent.is_none();
        let factor = if is_local && is_busy { ILL_LOCAL_FACTOR } else { ILL_FACTOR };
        under_way >= 0.5 && await_ms >= factor * self.usual_ms && self.is_below_any()
    }

    pub(super) fn by_class(&self) -> Answer {
        let (under_way, await_ms) = (self.under_way?, self.await_ms?);
        let part = self.evidence.saturation.overall;
        let waits = self.waits_by_seen(under_way, await_ms)
            || self.waits_by_class()
            || self.fills_tags(under_way)
            || self.waits_by_depth();
        let is_extreme = under_way >= UNDER_WAY_MANY && await_ms >= 10.0 * self.usual_ms;

        let is_busy = match self.columns.util_percent {
            Some(util) => self.is_util_high || (is_extreme && util >= UTIL_INFLATED_PERCENT),
            None => true,
        };
        if waits && is_busy {
            return Some(self.waiting(under_way, await_ms));
        }
        if self.is_ill(under_way, await_ms) {
            return Some((Verdict::Degraded, self.below_any_text(await_ms)));
        }

        // Requests do not wait, or only in bursts.
        let figures = format!("{} under way, {} each", queue(under_way), ms(await_ms));
        // The fewer there are, the less their latency is trusted.
        if let Some(unexplained) = self.unexplained(UNDER_WAY_FEW, 1.0).or_else(|| self.unexplained(0.0, 3.0)) {
            return Some(unexplained);
        }
        if !self.is_util_high {
            let waits = waits || part.is_some_and(|part| part >= WAITING);
            let why = if waits { "requests wait in bursts, and it is free in between" } else { "there is room" };
            return Some((Verdict::Ok, format!("{why}: {figures}")));
        }

        let is_quick = await_ms <= self.usual_ms || part.is_some_and(|part| part < NOT_WAITING);
        if self.class.kind == Kind::Unknown && self.may_spin() && !is_quick && under_way >= 1.0 {
            let why = format!("{figures}: long for an SSD, and near the end of a disk that spins");
            return Some((Verdict::Saturated, why));
        }
        if self.is_slower_than_usual() {
            let usual = ms(self.usual_ms);
            let why = format!("{figures}: above the {usual} that are usual for {}, and no queue", self.class.name);
            return Some((Verdict::Ok, why));
        }
        if let Some(part) = part.filter(|part| *part >= WAITING) {
            let why = format!(
                "{figures}: few, and yet they wait {} of their time by the least latency seen: it is slower than it was, \
                 or they come in bursts; --disk settles it",
                percent(part)
            );
            return Some((Verdict::Unknown, why));
        }
        if let Some(unclear) = self.unknown_depth() {
            return Some(unclear);
        }
        if under_way < UNDER_WAY_MANY || part.is_some_and(|part| part < NOT_WAITING) {
            let why = format!("{figures}: {} takes many at once, and %util counts time, not work", self.class.name);
            return Some((Verdict::BusyButFree, why));
        }
        let why = format!("{figures}: no longer than usual for {}", self.class.name);
        Some((Verdict::Ok, why))
    }

    /// Judges a device at which requests wait: degraded if something shows that it can do more, else saturated.
    fn waiting(&self, under_way: f64, await_ms: f64) -> (Verdict, String) {
        let figures = format!("{} under way, {} each", queue(under_way), ms(await_ms));
        if let Some(link_use) = remarks::link_use(self.evidence).filter(|part| *part >= USE_FULL) {
            return (Verdict::Saturated, format!("the network link is {} used: {figures}", percent(link_use)));
        }
        if self.is_below_any() {
            return (Verdict::Degraded, self.below_any_text(await_ms));
        }
        if let Some(held) = self.held() {
            return held;
        }

        let fallen = self.evidence.capacity_use.filter(|capacity_use| *capacity_use < USE_PART);
        let has_waited = self.evidence.saturation.overall.is_some_and(|part| part >= WAITING) || self.waits_by_depth();
        let is_at_limit = self.cap().is_some();
        if let (Some(capacity_use), Kind::Parallel, true, false) = (fallen, self.class.kind, has_waited, is_at_limit) {
            let why = format!("only {} of the highest seen, and requests wait: {figures}", percent(capacity_use));
            return (Verdict::Degraded, why);
        }

        // No load that filled the device was like this one: writes beside reads may cost much, but not that much.
        if self.evidence.did_far_more && self.class.kind == Kind::Parallel && has_waited && !is_at_limit {
            let why = format!(
                "not clear: {} with {figures}, and with another mix it did far more: it is slower than it was, or others \
                 use it; --disk settles it",
                self.done_text()
            );
            return (Verdict::Unknown, why);
        }

        let s = match self.evidence.saturation.overall {
            _ if self.fills_tags(under_way) && !self.waits_by_class() => {
                "SATA takes no more than 32 at once".to_owned()
            }
            Some(part) => format!("requests wait {} of their time", percent(part)),
            None if self.waits_by_depth() => self.enough_text(),
            None => format!("far above the {} that are usual for {}", ms(self.usual_ms), self.class.name),
        };
        (Verdict::Saturated, format!("{} with {figures}: {s}{}", self.done_text(), self.cap_text()))
    }

    /// Judges a rate at a limit that is not known to be the device's own, given that requests wait.
    pub(super) fn held(&self) -> Option<(Verdict, String)> {
        let cap = self.cap().filter(|_| !self.class.is_sold_by_rate)?;
        let each = self.await_ms.map_or_else(String::new, |await_ms| format!(" with {} each", ms(await_ms)));
        // A disk of this machine can have such a rate of its own.
        if self.evidence.facts.is_some_and(|facts| facts.remote.is_none() && facts.members.is_empty()) {
            let why =
                format!("not clear: {cap}{each} is a limit that is sold, and may be the disk's own: --disk settles it");
            return Some((Verdict::Unknown, why));
        }
        let why = format!("held at a limit of {cap}{each}: of a volume or instance, if not of the device itself");
        Some((Verdict::Degraded, why))
    }

    fn cap(&self) -> Option<String> {
        // A full disk explains the rate of a device on it.
        if self.evidence.is_disk_full {
            return None;
        }
        cap_signature(&self.class, self.per_s?, self.kib_per_s?)
    }

    /// Returns a clause about the limit whose signature the rates have, or an empty text.
    pub(super) fn cap_text(&self) -> String {
        self.cap().map_or_else(String::new, |cap| format!("; a volume or instance may be limited to these {cap}"))
    }

    fn is_below_any(&self) -> bool {
        let rates = self.per_s.zip(self.kib_per_s);
        rates.is_some_and(|(per_s, kib_per_s)| self.class.is_below_any(per_s, kib_per_s))
    }

    fn below_any_text(&self, await_ms: f64) -> String {
        // A name shows how a disk is connected, not whether it is local.
        let is_by_name = self.evidence.facts.is_none_or(|facts| facts.model.is_none());
        let name = without_article(self.class.name);
        let (than, may_be) = match self.class.name {
            name if name == XEN.name => ("most volumes of Xen guests do".to_owned(), true),
            local if local == NVME.name && is_by_name => (format!("any healthy local {name} does"), true),
            _ => (format!("any healthy {name} does"), false),
        };
        let cap = match self.cap_text() {
            cap if cap.is_empty() && may_be => "; a volume may be sold with so little, or be out of credits".to_owned(),
            cap => cap,
        };
        format!("{} with {} each is less than {than}{cap}", self.done_text(), ms(await_ms))
    }

    /// Formats the known rates of requests and bytes.
    pub(super) fn done_text(&self) -> String {
        match (self.per_s, self.kib_per_s) {
            (Some(per_s), Some(kib_per_s)) => format!("{} and {}", rate(per_s), throughput(kib_per_s)),
            (Some(per_s), None) => rate(per_s),
            (None, Some(kib_per_s)) => throughput(kib_per_s),
            (None, None) => "work at an unknown rate".to_owned(),
        }
    }
}

fn without_article(name: &str) -> &str {
    name.split_once(' ').map_or(name, |(article, rest)| if matches!(article, "a" | "an") { rest } else { name })
}
