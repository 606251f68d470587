//! Sudden changes of the disk's rate: falls, the cut that a fall asks for, and recoveries.
//!
//! # Why
//! The probe follows a disk that changes slowly. One that suddenly loses half of its channels is full of waiting
//! requests at once, and with the probe's steps it would remain so for long.
//!
//! # How it works
//! **Fall.** The rates of two turnovers of the window in a row are below 0.55 of the usual. A disk with less
//! parallelism needs a smaller window, a disk whose every service is slower does not. So the window is cut in
//! proportion, and the rate is measured again. If it is nearly unchanged, the cut stays; otherwise it is taken back.
//! The new rate becomes the usual one, so the rate of a write cache is forgotten when the cache is full.
//!
//! **Recovery.** The rate is above 1.4 of the usual: it becomes the usual one, and steps are long. If it is near the
//! rate before a cut of the last second, the cut is taken back, and the trim continues: many disks are slow for some
//! tens of milliseconds now and then. A disk that got its parallelism back shows no higher rate, but an elasticity near
//! 1, which has the same effect.
//!
//! # Limits
//! A turnover of few completions is not judged, nor one whose rate exceeds the tokens by far: several queues reported
//! at once.
//!
//! # Example
//! Half of 16 servers fail: two turnovers have half of the rate. The window is cut from 110 to 55 us; the rate stays,
//! so the cut stays. Had all services become twice as slow, the cut would have halved the rate again, and been taken
//! back.

use super::event::{EventKind, EventReason};
use super::meter::Meter;
use super::trim::Kept;
use super::tuning::*;
use super::{Controller, Mode, Totals};

/// The state before a cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    usual_rate: f64,
    pub(super) before: Kept,
}

impl Cut {
    fn is_recent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.before.at_ns) < CUT_MEMORY_NS
    }
}

impl Controller {
    /// Ends a turnover: detects falls and recoveries, and judges a cut.
    pub(super) fn end_turnover(&mut self, now_ns: u64, totals: &Totals) {
        let confirming = matches!(self.mode, Mode::Confirm { .. });
        let least = if confirming { CONFIRM_COMPLETIONS } else { TURNOVER_COMPLETIONS };
        let needed = if self.turnover.elapsed_ns(now_ns) < UNSEEN_PARTS * STEP_NS {
            least.max(totals.unseen_completions.saturating_mul(UNSEEN_PARTS))
        } else {
            least
        };
        if self.turnover.completions(totals) < needed {
            return;
        }

        let reading = self.turnover.read(now_ns, totals);
        let rate = reading.rate / reading.present;
        let windows = reading.work_ns / self.window();
        let is_deep = self.usual_rate.is_some_and(|usual| rate < FALL_RATIO_DEEP * usual);
        let may_be_short = is_deep || !matches!(self.mode, Mode::Probe);
        if windows < TURNOVER_WINDOWS && !(may_be_short && windows >= TURNOVER_WINDOWS / 2.0) {
            return;
        }

        self.turnover = Meter::start(now_ns, totals);
        if reading.rate > RATE_OVER_TOKENS_MAX * self.limits.rate_max * self.scale[0].max(self.scale[1]) {
            // The rate exceeds the tokens given out: several queues reported at once.
            return;
        }
        if !reading.offered {
            if matches!(self.mode, Mode::Suspect) {
                // Another limit than the window was in force, so the slow turnover proves nothing.
                self.mode = Mode::Probe;
            }
            return;
        }

        if let Mode::Confirm { window_before_ns, rate: before } = self.mode {
            self.judge_cut(now_ns, totals, window_before_ns, EventReason::Rate { before, after: rate });
            return;
        }

        let Some(usual) = self.usual_rate else {
            self.usual_rate = Some(rate);
            return;
        };

        let reason = EventReason::Rate { before: usual, after: rate };
        let change = rate / usual - 1.0;
        let is_noise = change * change < FALL_DEVIATIONS * FALL_DEVIATIONS * self.rate_variance;

        match self.mode {
            Mode::Suspect if rate < FALL_RATIO * usual => self.fall(now_ns, totals, rate, usual, reason),
            Mode::Suspect => {
                self.mode = Mode::Probe;
                self.restart(now_ns, totals);
            }
            _ if rate < FALL_RATIO * usual && !is_noise => self.mode = Mode::Suspect,
            // Under the trim, the losses of its rounds are better evidence than one fast turnover.
            _ if rate > RECOVERY_RATIO * usual && !is_noise && self.trim.part() == 1.0 => {
                let before_ns = self.window();
                match self.cut.take() {
                    Some(cut) if cut.is_recent(now_ns) && rate > cut.usual_rate / RECOVERY_RATIO => {
                        self.restore(cut.before)
                    }
                    _ => {
                        self.usual_rate = Some(rate);
                        self.search.begin_anew(STEP_FAR);
                    }
                }
                self.events.push(now_ns, EventKind::Recovery, before_ns, self.window(), reason);
                self.restart(now_ns, totals);
            }
            _ => {
                self.usual_rate = Some(usual + (rate - usual) * RATE_SMOOTHING);
                self.rate_variance += (change * change - self.rate_variance) * RATE_SMOOTHING;
            }
        }
    }

    fn fall(&mut self, now_ns: u64, totals: &Totals, rate: f64, usual: f64, reason: EventReason) {
        let before_ns = self.window();
        let cut = Cut { usual_rate: usual, before: self.keep(now_ns) };
        // Of several falls in a row, the first one has the state of the undisturbed disk.
        self.cut = self.cut.filter(|cut| cut.is_recent(now_ns)).or(Some(cut));
        (self.uncapped_ns, self.left) = (None, None);
        self.centre_ns = before_ns;
        self.trim.end(before_ns);

        let cut_ns = (before_ns * rate / usual).max(self.floor_ns());
        self.usual_rate = Some(rate);
        self.search.begin_anew(STEP_IS_FAR);
        self.mode = Mode::Confirm { window_before_ns: before_ns, rate };
        self.window_event(now_ns, EventKind::Fall, cut_ns, reason);
        self.restart(now_ns, totals);
    }

    fn judge_cut(&mut self, now_ns: u64, totals: &Totals, window_before_ns: f64, reason: EventReason) {
        let EventReason::Rate { before, after } = reason else { return };
        self.mode = Mode::Probe;

        // If services are slower, the rate follows the cut; with less parallelism it stays. The mark is half way
        // between.
        let left = self.centre_ns / window_before_ns;
        let is_slower = after * after < before * before * left;
        let is_over = after > before * CONFIRM_MAX;
        // A window of few requests was not cut at all, so nothing has been learnt.
        if (is_slower || is_over || left >= 1.0)
            && let Some(cut) = self.cut.take()
        {
            let cut_ns = self.centre_ns;
            self.restore(cut.before);
            self.usual_rate = Some(before).filter(|_| is_slower);
            self.events.push(now_ns, EventKind::FallReverted, cut_ns, self.window(), reason);
        }
        self.restart(now_ns, totals);
    }
}
