//! Phases: what is measured between two changes of the window.
//!
//! # How it works
//! A phase begins when the requests that were in flight at its beginning have completed, and ends after enough
//! completions and work. Two phases of the probe, at two windows, are a pair for the search; those of a round go to the
//! trim. A phase of the trim begins and ends where a wave of completions ends (`meter`).
//!
//! # Limits
//! A phase in which the window did not limit the disk is not used.
//!
//! # Example
//! 256 completions at 112 us of window, then 256 at 89 us: a pair, whose rates give the elasticity at 100 us.

use super::meter::Meter;
use super::trim::Stage;
use super::tuning::*;
use super::{Controller, Mode, Side, Totals};
use crate::math::{exp, ln};

/// A phase that has ended: ln of its rate, of its window, and of the requests in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    ln_rate: f64,
    held: [bool; 2],
    ln_window: f64,
    ln_requests: f64,
}

/// Returns ln of the rate of a phase in which the window limited the directions `held`. If it limited both, returns the
/// sum of both, so that a loss in one counts in full, however busy the other is.
fn ln_rate(rates: [f64; 2], held: [bool; 2]) -> f64 {
    match held {
        [true, true] => ln(rates[0]) + ln(rates[1]),
        _ => ln(rates[0] + rates[1]),
    }
}

impl Controller {
    pub(super) fn begin_phase(&mut self, now_ns: u64, totals: &Totals) {
        self.probe_ratio = exp(self.search.probe_ln());
        let in_flight = u64::from(totals.in_flight_requests);
        let settled = in_flight + in_flight.min(SETTLED_MORE);
        let window_ns = self.window();
        self.phase_from = totals.completions.saturating_add(settled);
        self.filled_requests = totals.in_flight_requests;
        if self.trim.part_now().is_some() && window_ns != std::mem::replace(&mut self.phase_window_ns, window_ns) {
            // The rates of two windows differ; that is neither a fall nor a recovery.
            self.turnover_from = self.phase_from;
        }
        self.phase = Meter::start(now_ns, totals);
    }

    /// Begins or ends a phase of the trim at the previous step, if a wave of completions ended there. Without the end
    /// of a wave for the length of a phase, any step does.
    pub(super) fn end_wave(&mut self, now_ns: u64, totals: &Totals) {
        let (wave_ns, wave) = (self.last_completion_ns, self.last);
        let length = self.phase_length();
        let more = if self.waves.ended_before(now_ns.saturating_sub(wave_ns)) { 0 } else { length };

        if !self.phase.has_begun(self.phase_from) {
            if totals.in_flight_requests > self.filled_requests.saturating_add(self.filled_requests / FILL_PART) {
                // The device still fills: the requests that it has now do not count.
                self.filled_requests = totals.in_flight_requests;
                self.phase_from = totals.completions.saturating_add(u64::from(self.filled_requests));
            }
            if totals.completions >= self.phase_from.saturating_add(more) {
                self.phase_from = wave.completions;
                self.phase = Meter::start(wave_ns, &wave);
            }
        } else if self.phase.completions(&wave) >= length.saturating_add(more) {
            self.end_phase(now_ns, totals, (wave_ns, &wave));
        }
    }

    /// Ends a phase with the totals `end` at `end_ns`, now or at the previous step. The second phase of a pair of the
    /// probe may move the centre.
    pub(super) fn end_phase(&mut self, now_ns: u64, totals: &Totals, (end_ns, end): (u64, &Totals)) {
        let length = self.phase_length();
        let least_ns = (PHASE_AWAYS * self.away_ns) as u64;
        if !matches!(self.mode, Mode::Probe)
            || self.phase.completions(end) < length
            || self.phase.elapsed_ns(end_ns) < least_ns
        {
            return;
        }

        let reading = self.phase.read(end_ns, end);
        let windows_min = match self.trim.stage() {
            Stage::Excursion => 0.0,
            _ if self.trim.part_now().is_some() => TRIM_WINDOWS,
            _ if self.is_rough() => PHASE_WINDOWS_FAR,
            _ => PHASE_WINDOWS,
        };
        let work_min_ns = (windows_min * self.window()).max(PHASE_TYPICAL_PART * length as f64 * self.typical_ns());
        if reading.work_ns < work_min_ns {
            return;
        }

        // In an excursion the classes may have less than the window.
        if !reading.offered && self.trim.stage() != Stage::Excursion {
            self.follow_demand(now_ns, totals, &reading);
            self.first_phase = None;
            if self.trim.stage() == Stage::Hold {
                self.phase = Meter::start(now_ns, totals);
            } else {
                self.trim.give_up_round();
                self.begin_phase(now_ns, totals);
            }
            return;
        }

        if self.is_often_dry() {
            // Absences let the device run dry, even if the next few per cent of the window gain little.
            self.away_room_ns = self.away_ns.min(AWAY_MOST * self.bound_ns);
            self.ceiling_ns = self.ceiling_for(totals.outstanding_cap_ns);
            let most_ns = self.ceiling_ns.min(self.bound_ns + self.away_room_ns);
            if self.centre_ns * self.trim.part() < AWAY_NEAR * most_ns {
                self.trim.end(self.centre_ns);
                self.first_phase = None;
                self.move_centre(now_ns, ln(most_ns / self.centre_ns).min(STEP_FAR), 0.0);
                self.begin_phase(now_ns, totals);
                return;
            }
        }

        if self.end_trim_phase(now_ns, &reading) {
            self.begin_phase(now_ns, totals);
            return;
        }

        // A direction that is stalled has no rate, so only that of the other is known.
        let held = [0, 1].map(|lane| reading.held[lane] && reading.rates[lane] > 0.0);
        let phase = Phase {
            ln_rate: ln_rate(reading.rates, held),
            held,
            ln_window: ln(self.window()),
            ln_requests: ln(reading.requests),
        };

        match self.first_phase.take() {
            None => {
                self.first_phase = Some(phase);
                self.side = if self.side == Side::High { Side::Low } else { Side::High };
            }
            Some(first) => self.end_pair(now_ns, first, phase),
        }
        self.begin_phase(now_ns, totals);
    }

    /// Returns whether a short phase suffices.
    fn is_rough(&self) -> bool {
        self.search.is_far() || self.trim.part_now().is_some()
    }

    fn phase_length(&self) -> u64 {
        if self.trim.is_long() {
            EXCURSION_COMPLETIONS
        } else if self.is_rough() {
            PHASE_COMPLETIONS_FAR
        } else if self.side == Side::Low {
            // The lower side costs throughput.
            PHASE_COMPLETIONS / if self.at_bound { 4 } else { 2 }
        } else {
            PHASE_COMPLETIONS
        }
    }

    fn end_pair(&mut self, now_ns: u64, first: Phase, second: Phase) {
        let ln_ratio = first.ln_window - second.ln_window;
        if ln_ratio.abs() < PROBE_LN_MIN || first.held != second.held {
            return;
        }
        if (first.ln_requests - second.ln_requests) / ln_ratio < PROBE_TOLD_MIN {
            // Few requests: both windows admit the same number.
            self.search.widen();
            return;
        }

        // Orients the difference from low to high, whichever side came first.
        let ln_rate = (first.ln_rate - second.ln_rate) * if ln_ratio > 0.0 { 1.0 } else { -1.0 };
        let was_beyond = self.is_beyond;
        let goal = if was_beyond { BEYOND_ELASTICITY } else { self.elasticity_goal };
        let Some(step) = self.search.pair(ln_rate, ln_ratio.abs(), goal, !was_beyond) else { return };
        self.move_centre(now_ns, step.ln_change, step.elasticity);
        if was_beyond && step.elasticity < BEYOND_ELASTICITY / 2.0 {
            // Most of the work waits in the device now, so the knee is far below.
            self.search.begin_anew(STEP_IS_FAR);
        }
    }
}
