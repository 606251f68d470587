//! The search for the window: in which direction to step, how far, and after how much evidence.
//!
//! # Why
//! A pair of probes shows how much throughput a larger window gains, but hardly ever exactly: services vary, and so
//! does the whole disk. A search that follows each pair drifts with the noise, mostly upwards, since an overfull disk
//! shows only a little noise around an elasticity of 0. A search that waits for certainty never ends.
//!
//! # How it works
//! * **Whether.** The gains of pairs beyond the goal are summed until the sum differs from 0 (`evidence`). A pair far
//!   away decides alone; at the knee of a noisy disk it takes tens. If even [`PAIRS_MAX`] decide nothing, the window is
//!   right.
//! * **How far.** The step grows as long as decisions agree, and shrinks when they turn (resilient propagation,
//!   Riedmiller and Braun 1993). Only signs count, so no outlier moves the window far.
//! * **Downwards with patience.** A step too low costs throughput at once, one too high nearly nothing. So short steps
//!   downwards need a minimum of pairs, and more after each one that had to be taken back.
//! * **How wide.** The noisier the disk, the farther apart the two windows of a pair, so that noise hides less.
//!
//! # Limits
//! Those of `evidence`: sudden large changes are learnt slowly.
//!
//! # Example
//! The goal is 0.08, windows of a pair differ by 0.5 in ln(window). Elasticities of 1 and 1 each step up by 0.7; one of
//! 0 steps down by 0.25; the next of 0 decides nothing yet, because short steps downwards need at least three pairs.

use super::evidence::Evidence;
use super::tuning::*;

/// The state of the search; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Since the last step: the gains of pairs beyond the goal, and their possible gain at an elasticity of 1.
    excess: Evidence,
    range: f64,
    /// Of recent pairs about this window: their gains, and their possible gains at an elasticity of 1.
    gained: f64,
    possible: f64,
    /// Smallest half distance of the windows of a pair, in ln(window).
    probe: f64,
    /// Length of the next step, in ln(window).
    step: f64,
    was_upwards: Option<bool>,
    /// Fewest pairs before a short step downwards.
    patience: f64,
}

/// A decision: the change of ln(window), and the mean elasticity that led to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) ln_change: f64,
    pub(super) elasticity: f64,
}

impl Search {
    /// Returns a search without evidence, so its steps are long.
    pub(super) fn new() -> Search {
        Search {
            excess: Evidence::new(),
            range: 0.0,
            gained: 0.0,
            possible: 0.0,
            probe: PROBE_LN,
            step: STEP_FAR,
            was_upwards: None,
            patience: PATIENCE_MIN,
        }
    }

    /// Returns whether steps are long enough that rough figures suffice.
    pub(super) fn is_far(&self) -> bool {
        self.step >= STEP_IS_FAR
    }

    /// Returns the elasticity about the window, if enough pairs have measured it.
    pub(super) fn elasticity(&self) -> Option<f64> {
        (self.possible >= ELASTICITY_TOLD).then(|| self.gained / self.possible)
    }

    /// Returns the distance of a pair's windows from the centre, in ln(window).
    pub(super) fn probe_ln(&self) -> f64 {
        let wide = if self.is_far() { PROBE_LN_MAX } else { self.excess.noise() * PROBE_PER_NOISE };
        wide.clamp(self.probe, PROBE_LN_MAX)
    }

    /// Moves the windows of a pair apart, because they admitted the same requests.
    pub(super) fn widen(&mut self) {
        self.probe = (self.probe * PROBE_WIDEN).min(PROBE_LN_MAX);
    }

    /// Restarts with steps of `step`, because the disk has changed.
    pub(super) fn begin_anew(&mut self, step: f64) {
        self.forget();
        let Search { excess, gained, possible, .. } = *self;
        *self = Search { excess, gained, possible, step, ..Search::new() };
    }

    /// Forgets the evidence, but neither the disk's noise nor the length of the step.
    pub(super) fn forget(&mut self) {
        self.excess.forget();
        self.range = 0.0;
    }

    /// Takes a pair of probes whose windows differ by `ln_window` and whose rates by `ln_rate`. Returns the next step,
    /// if there is enough evidence. `goal` is the elasticity sought. `is_patient`: short steps downwards need more
    /// pairs.
    pub(super) fn pair(&mut self, ln_rate: f64, ln_window: f64, goal: f64, is_patient: bool) -> Option<Step> {
        self.excess.note(ln_rate - goal * ln_window);
        self.probe = (self.probe * PROBE_NARROW).max(PROBE_LN);
        self.range += ln_window;
        self.gained += ln_rate - ELASTICITY_FADES * self.gained;
        self.possible += ln_window - ELASTICITY_FADES * self.possible;

        let known = self.excess.is_positive();
        let is_early = is_patient && known == Some(false) && !self.is_far() && self.excess.count() < self.patience;
        if let Some(upwards) = known
            && !is_early
        {
            let elasticity = goal + self.excess.sum() / self.range;
            self.turn(upwards);
            self.forget();
            if self.is_far() {
                // Those pairs were about another window.
                (self.gained, self.possible) = (self.gained * ELASTICITY_FAR, self.possible * ELASTICITY_FAR);
            }
            return Some(Step {
                ln_change: if upwards { self.step } else { -self.step.min(STEP_DOWN_MAX) },
                elasticity,
            });
        }

        if self.excess.fade() {
            // The pairs show no better window.
            self.range /= 2.0;
            self.stopped();
        }
        None
    }

    /// Shortens the steps, because the last one ended at a bound or nothing is left to find.
    pub(super) fn stopped(&mut self) {
        self.step = (self.step * STEP_SHRINK).max(STEP_MIN);
    }

    fn turn(&mut self, upwards: bool) {
        let factor = match (self.was_upwards.replace(upwards), upwards) {
            (None, _) => 1.0,
            (Some(false), true) => {
                self.patience = (self.patience * 2.0).min(PATIENCE_MAX);
                STEP_SHRINK
            }
            (Some(true), false) => STEP_SHRINK,
            (Some(_), _) => {
                self.patience = PATIENCE_MIN;
                STEP_GROW
            }
        };
        self.step = (self.step * factor).clamp(STEP_MIN, STEP_FAR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: f64 = 0.08;
    const WIDTH: f64 = 0.5;

    /// Takes pairs of these elasticities and returns the steps, 0 where there was none.
    fn steps(search: &mut Search, elasticities: &[f64]) -> Vec<f64> {
        let step = |elasticity: &f64| search.pair(elasticity * WIDTH, WIDTH, GOAL, true);
        elasticities.iter().map(step).map(|step| step.map_or(0.0, |step| step.ln_change)).collect()
    }

    #[test]
    fn clear_pairs_decide_alone_and_steps_shorten_at_the_knee() {
        let mut search = Search::new();
        assert_eq!(steps(&mut search, &[1.0, 1.0]), [0.7, 0.7]);
        // At most a quarter downwards.
        assert_eq!(steps(&mut search, &[-1.0]), [-0.25]);
        let short = steps(&mut search, &[1.0]);
        assert!(short[0] > 0.0 && short[0] < 0.2, "{short:?}");
        // That one had to be taken back: twice as many pairs before the next.
        let down = steps(&mut search, &[-1.0; 6]);
        assert!(down[..5] == [0.0; 5] && down[5] < 0.0, "{down:?}");
    }

    #[test]
    fn noise_around_the_goal_moves_nothing_far() {
        // A knee where elasticity falls by 0.3 while the window grows e times, seen through noise of 1 on either side.
        let mut search = Search::new();
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64 * 2.0 - 1.0
        };
        let mut at = 0.0;
        for pair in 0..20_000 {
            let elasticity = GOAL - 0.3 * at + noise();
            at += search.pair(elasticity * WIDTH, WIDTH, GOAL, true).map_or(0.0, |step| step.ln_change);
            assert!(
                pair < 200 || at.abs() < 0.8,
                "ln(window) is {at:.2} away from where it belongs after {pair} pairs"
            );
        }
    }

    #[test]
    fn one_outlier_is_no_step_up() {
        let mut search = Search::new();
        let calm = [0.2, -0.04, 0.16, 0.0, 0.12, 0.04, 0.1, 0.06].repeat(8);
        steps(&mut search, &calm);
        let after = steps(&mut search, &[2.0]);
        assert!(after[0] < 0.1, "{after:?}");
    }

    #[test]
    fn windows_that_admit_the_same_requests_are_moved_apart() {
        let mut search = Search::new();
        search.begin_anew(STEP_MIN);
        (0..200).for_each(|_| search.excess.note(0.0));
        let before = search.probe_ln();
        (0..20).for_each(|_| search.widen());
        assert_eq!((before, search.probe_ln()), (PROBE_LN, PROBE_LN_MAX));
    }
}
