//! The capacity scale: the rate of the disk over that of its model.
//!
//! # Why
//! Tokens are given out at the model's rate. On a disk that has become slower they would overfill it; on one that is
//! faster than its figures they would hold it back.
//!
//! # How it works
//! If the window was full for a period, the scale is the rate of that period, with some headroom. If tokens were
//! missing instead, the scale rises by steps that double, up to `scale_max`.
//!
//! # Limits
//! The limit of a period is known from the blocks that the queues counted: a period in which neither window nor tokens
//! were short changes nothing, nor does one in which a direction completed nothing.
//!
//! # Example
//! At a full window the disk completes 0.6 device-seconds a second: the scale becomes 0.6 with its headroom.

use super::meter::{Meter, Reading};
use super::tuning::*;
use super::{Controller, EventKind, EventReason, Mode, Totals};

impl Controller {
    pub(super) fn end_period(&mut self, now_ns: u64, totals: &Totals) {
        if self.period.elapsed_ns(now_ns) < SCALE_PERIOD_NS
            || self.period.completions(totals) < TURNOVER_COMPLETIONS
            || matches!(self.mode, Mode::Stalled)
        {
            return;
        }
        let Reading { rate, rates, offered, held, work_ns, certain, present, .. } = self.period.read(now_ns, totals);
        if offered && work_ns < SCALE_TYPICAL * self.typical_ns() {
            return;
        }

        let tokens_missing = self.period.tokens_missing(totals);
        self.period = Meter::start(now_ns, totals);
        if offered && (!matches!(self.mode, Mode::Probe) || self.is_limited_by_outstanding()) {
            // The rate is in question, or is limited by the classes and not by the disk.
            return;
        }

        // While completions were unseen the disk may have been idle, so its rate is at least this.
        let headroom = SCALE_HEADROOM / certain.max(CERTAIN_LEAST);
        for lane in 0..2 {
            // A direction that is stalled has no rate; the other may continue meanwhile.
            if held[lane] && rates[lane] > 0.0 {
                // The usual rate is that of the busier direction.
                let is_busier = rates[lane] >= rate;
                let usual = self.usual_rate.filter(|_| is_busier).unwrap_or(0.0);
                let reason = EventReason::Rate { before: self.scale[lane], after: rates[lane] };
                self.scale_growth[lane] = SCALE_GROWTH;
                let scale = usual.max(rates[lane] / present) * headroom;
                // A part of the window has a part of the rate; tokens must not limit the next larger part, or the
                // search when the trim has ended.
                let goal = self.config.throughput_goal;
                let (more, least) = match self.trim.is_climbing() {
                    true => (1.0, self.scale[lane]),
                    // A part keeps at least the square of the goal, of the reference's rate.
                    false if self.trim.part() < 1.0 => (1.0 / (goal * goal), 0.0),
                    false => (1.0, 0.0),
                };
                self.set_scale(now_ns, lane, (scale * more).max(least), reason);
            } else if !held[lane] && tokens_missing[lane] {
                let scale = self.scale[lane] * (1.0 + self.scale_growth[lane]);
                self.set_scale(now_ns, lane, scale, EventReason::TokensMissing);
                self.scale_growth[lane] = (2.0 * self.scale_growth[lane]).min(SCALE_GROWTH_MAX);
            }
        }
    }

    fn set_scale(&mut self, now_ns: u64, lane: usize, scale: f64, reason: EventReason) {
        self.scale[lane] = scale.max(self.config.scale_min).min(self.config.scale_max);
        let (scale, reported) = (self.scale[lane], self.reported_scale[lane]);
        if (scale / reported - 1.0).abs() > SCALE_REPORT {
            self.events.push(now_ns, EventKind::ScaleChanged, reported, scale, reason);
            self.reported_scale[lane] = scale;
        }
    }
}
