//! The trim: how far below the search's window the disk keeps the throughput goal.
//!
//! # Why
//! The search compares two windows that are close together, so it knows a slope. On a disk whose rate rises slowly over
//! a wide range, or falls again with very many requests, as on virtual disks, that slope is above its goal long after
//! the disk gives the throughput goal's part of its *drained* rate: that with all requests dispatched as they come.
//! From there on, each further per cent takes a few more requests in the device, and a class that has few requests
//! waits behind them.
//!
//! # How it works
//! The search's window stays as the *reference*, and the window in force is a *part* of it.
//! * **Guests.** Throughput is given up only for *guests*: classes with nothing queued that get a request and find the
//!   window full, with nothing in the device either, or with little outstanding and less than half of their part of the
//!   disk taken. Classes that always have requests waiting gain nothing from a short queue in the device.
//! * **Budget.** An *excursion* opens the window to [`EXCURSION_NS`] of work, or to [`EXCURSION_BOUNDS`] bounds if that
//!   is more, until the disk has shown its drained rate; a phase at the reference follows. The *budget*, the loss that
//!   a part may have, is the mean of ln(the reference's rate / the excursion's rate) over several excursions, plus what
//!   the goal gives up, -ln(goal) less a margin; at most twice what the goal gives up, on a disk that collapses under
//!   many requests.
//! * **Rounds.** A *round* is a short phase at the part in force, then one at the reference: ln of the ratio of their
//!   rates is the loss of the part. Losses are summed until it is clear on which side of the budget they are
//!   (`evidence`).
//! * **Climb.** The part begins where by Little's law the goal could be kept, at the goal times the reference's rate
//!   times the unloaded latency: with less, it cannot. It grows while its loss exceeds the budget: in proportion,
//!   because the loss falls about as one over the requests in the device. Rounds follow each other until the loss is
//!   within the budget; if that is not clear after [`CLIMB_ROUNDS`], the likelier side decides.
//! * **Descent.** A climb takes long steps, and one outlier may have caused the last. So rounds continue, each with a
//!   *trial* of the next smaller part, which comes into force if its loss is within the budget, until one is not; again
//!   the likelier side decides in the end. If meanwhile the part in force proves too small, it grows by one step at a
//!   time, and there is no second descent.
//! * **Raise.** If the reference itself loses more than the goal gives up, which may be clear before all of the first
//!   excursions are made, or if no part up to [`CLIMB_END`] is within the budget, the reference grows by
//!   [`TRIM_RAISE`], up to the ceiling, and new excursions measure it.
//! * **Rest.** From then on the trim *rests*: the reference takes one part in [`TRIM_REST`] of the time, and excursions
//!   come after 8 rounds, then 16 and so on, up to 64, so that few requests wait behind either. A round has a trial, as
//!   in the descent. A part whose loss exceeds the budget grows.
//! * **Ceiling.** If the largest reference does not quite keep the goal, the latency goal binds. A part may then lose
//!   [`BUDGET_LARGEST`] of what the goal gives up.
//! * **End.** After a fall, without guests, if one request is the reference, or if the largest reference loses more
//!   than [`LARGEST_LOSS`] times what the goal gives up, the trim ends, and the search continues with its own windows:
//!   it may exceed the bound. The trim begins again after [`EXCURSION_RETRY_NS`] under load
//!   ([`EXCURSION_RETRY_FAR_NS`] if the largest reference is far from the goal, which is likely to stay so), then after
//!   four times as long, up to [`EXCURSION_RETRY_MAX_NS`]. After a fall that is soon over it is resumed (`falls`), and
//!   so it is for guests that return within [`LEFT_MEMORY_NS`], if the disk has not fallen meanwhile.
//!
//! # Limits
//! A duplex disk is not trimmed: the rate that a part may lose could be all that the guests' direction has. The
//! reference is not searched again while the trim is on. A disk that gains channels is noticed by the loss, which grows,
//! and by the next excursion. On a disk whose rate varies by a tenth, the part is right to some per cent of the rate.
//!
//! # Example
//! A goal of 0.90 gives up 0.9 x -ln(0.90) = 0.095. The reference holds seven requests and gives 1.10 of the drained
//! rate, so ln(1.10) + 0.095 = 0.19 may be lost. One request gives 0.87 of the drained rate, a loss of 0.23: refused.
//! Two give 0.93, a loss of 0.17: kept.

use super::evidence::Evidence;
use super::meter::Reading;
use super::tuning::*;
use super::{Controller, EventKind, EventReason};
use crate::math::{exp, ln};

/// The window in force now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The part, or the search's own windows while that is 1.
    Hold,
    /// Far more than the bound.
    Excursion,
    /// The next smaller part.
    Trial,
    /// The centre.
    Reference,
}

/// The interval of rounds, and the kind of part that they seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// Long, for a part that has become too large or too small.
    Rest,
    /// None, for a larger part.
    Climb,
    /// None, for a smaller part.
    Descend,
}

/// The goal of a round, and the limits of part and reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// The part of the drained rate to keep, below 1.
    pub(super) throughput: f64,
    /// The part of the reference that one request takes.
    pub(super) least_part: f64,
    /// The part at which a climb begins.
    pub(super) first_part: f64,
    /// Whether the reference is the largest that the latency goal allows.
    pub(super) is_largest: bool,
}

/// The result of a phase of a round.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Nothing,
    /// The part has changed.
    Part(EventReason),
    /// The reference itself loses too much.
    TooSmall(EventReason),
    /// There is nothing to trim: one request is the reference, or the largest one loses far too much.
    End,
}

/// The state of the trim; see the module's documentation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trim {
    stage: Stage,
    part: f64,
    /// Mean of ln(the reference's rate / an excursion's rate), and the number of excursions in it.
    over_drained: f64,
    excursions: f64,
    /// The loss that each excursion allows. If it is clearly negative, the reference is raised before all of the first
    /// excursions are made; with goals near 1 it is never clear.
    allowed: Evidence,
    /// Rounds at rest until the next excursion, and until the one after that.
    rounds_left: u32,
    rounds_next: u32,
    /// ln of the rates of this round: of the part in force, and of the trial or the excursion.
    held_ln_rate: Option<f64>,
    first_ln_rate: f64,
    is_excursion: bool,
    /// Rounds in a row that were given up.
    given_up: u32,
    /// Losses of the part in force and of the trial, beyond the budget.
    held: Evidence,
    trial: Evidence,
    pace: Pace,
    /// Whether a descent has begun since the last rest.
    has_descended: bool,
    /// Time under load, and the time at which the next round is due.
    busy_ns: u64,
    due_ns: u64,
    /// The time under load at which the round has begun.
    begun_ns: u64,
    /// The reference at which the trim ended last, 0 since it began again, and the time after which it begins again.
    ended_ns: f64,
    retry_ns: u64,
    /// Recent wake-ups of guests, which fade over [`GUEST_MEMORY_NS`].
    guests: f64,
}

/// A trim and its reference, to be resumed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) at_ns: u64,
    centre_ns: f64,
    uncapped_ns: Option<f64>,
    trim: Trim,
}

impl Trim {
    pub(super) fn new() -> Trim {
        Trim {
            stage: Stage::Hold,
            part: 1.0,
            over_drained: 0.0,
            excursions: 0.0,
            allowed: Evidence::new(),
            rounds_left: EXCURSION_ROUNDS_MIN,
            rounds_next: EXCURSION_ROUNDS_MIN,
            held_ln_rate: None,
            first_ln_rate: 0.0,
            is_excursion: false,
            given_up: 0,
            held: Evidence::new(),
            trial: Evidence::new(),
            pace: Pace::Rest,
            has_descended: false,
            busy_ns: 0,
            due_ns: 0,
            begun_ns: 0,
            ended_ns: 0.0,
            retry_ns: EXCURSION_RETRY_NS,
            guests: 0.0,
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// Returns whether this stage measures the disk's own rate, so that tokens must not limit it.
    pub(super) fn needs_all_tokens(&self) -> bool {
        matches!(self.stage, Stage::Excursion | Stage::Reference)
    }

    /// Returns the part of the centre in force, above 0, at most 1.
    pub(super) fn part(&self) -> f64 {
        self.part
    }

    /// Returns the part of the centre in this stage; `None` if the search chooses the window.
    pub(super) fn part_now(&self) -> Option<f64> {
        match self.stage {
            Stage::Hold => (self.part < 1.0).then_some(self.part),
            Stage::Trial => Some(self.part * TRIM_STEP),
            Stage::Reference | Stage::Excursion => Some(1.0),
        }
    }

    pub(super) fn is_climbing(&self) -> bool {
        self.pace == Pace::Climb
    }

    /// Counts wake-ups of guests in the time since the last step. Only the beginning of a pause is time under load.
    pub(super) fn note_guests(&mut self, elapsed_ns: u64, wakeups: u64) {
        let elapsed_ns = elapsed_ns.min(STALL_MIN_NS);
        self.busy_ns = self.busy_ns.saturating_add(elapsed_ns);
        self.guests = self.guests * GUEST_MEMORY_NS / (GUEST_MEMORY_NS + elapsed_ns as f64) + wakeups as f64;
    }

    /// Returns whether an excursion has lasted too long, because few requests come.
    pub(super) fn is_overdue(&self) -> bool {
        self.stage == Stage::Excursion && self.busy_ns > self.begun_ns.saturating_add(EXCURSION_MOST_NS)
    }

    /// Returns whether there are enough guests to give up throughput for.
    pub(super) fn has_guests(&self) -> bool {
        self.guests >= if self.is_on() { GUESTS_STAY } else { GUESTS_BEGIN }
    }

    /// Returns whether the trim has begun.
    fn is_on(&self) -> bool {
        self.part < 1.0 || self.excursions > 0.0 || self.stage != Stage::Hold
    }

    /// Ends the trim of the reference `centre_ns`, if it has begun: the search chooses the window for some time, or
    /// until it has found a far larger one.
    pub(super) fn end(&mut self, centre_ns: f64) {
        if !self.is_on() {
            return;
        }
        *self = Trim {
            due_ns: self.busy_ns.saturating_add(self.retry_ns),
            retry_ns: (EXCURSION_RETRY_GROWTH * self.retry_ns).min(EXCURSION_RETRY_MAX_NS),
            ended_ns: centre_ns,
            ..self.with_clock_of(Trim::new())
        };
    }

    /// Returns `other` with the guests and the time of this trim.
    fn with_clock_of(&self, other: Trim) -> Trim {
        Trim { guests: self.guests, busy_ns: self.busy_ns, ..other }
    }

    /// Restarts with a larger reference; the previous one is its part `part`.
    pub(super) fn raise(&mut self, part: f64) {
        self.held.forget();
        self.trial.forget();
        *self = Trim {
            due_ns: self.busy_ns,
            retry_ns: self.retry_ns,
            part,
            pace: Pace::Climb,
            held: self.held,
            trial: self.trial,
            ..self.with_clock_of(Trim::new())
        };
    }

    /// Gives up the round in progress, if any, because a phase was inconclusive. The next one is not due at once, and
    /// after several ever later, so that few requests wait behind a reference or an excursion.
    pub(super) fn give_up_round(&mut self) {
        if self.stage != Stage::Hold {
            let rests = GIVEN_UP_REST << self.given_up.min(GIVEN_UP_DOUBLINGS);
            let rest_ns = self.busy_ns.saturating_sub(self.begun_ns).saturating_mul(rests);
            self.given_up = self.given_up.saturating_add(1);
            self.due_ns = self.busy_ns.saturating_add(rest_ns.max(GIVEN_UP_REST_MIN_NS));
        }
        (self.stage, self.held_ln_rate) = (Stage::Hold, None);
    }

    /// Returns whether a round is due for the reference `centre_ns`.
    pub(super) fn is_due(&self, centre_ns: f64) -> bool {
        self.busy_ns >= self.due_ns || (self.ended_ns > 0.0 && centre_ns > EXCURSION_GROWTH * self.ended_ns)
    }

    /// Begins a round. `held_ln_rate`: of the phase that has just ended, if the part was in force in it.
    pub(super) fn begin_round(&mut self, held_ln_rate: Option<f64>) {
        (self.held_ln_rate, self.begun_ns, self.ended_ns) = (held_ln_rate, self.busy_ns, 0.0);
        self.is_excursion = self.excursions < EXCURSIONS_FIRST || self.rounds_left == 0;
        self.stage = match (self.is_excursion, self.pace) {
            (true, _) => Stage::Excursion,
            (false, Pace::Climb) => Stage::Reference,
            (false, Pace::Rest | Pace::Descend) => Stage::Trial,
        };
        if self.is_excursion {
            if self.excursions >= EXCURSIONS_FIRST {
                self.rounds_next = (2 * self.rounds_next).min(EXCURSION_ROUNDS_MAX);
            }
            self.rounds_left = self.rounds_next;
        } else if self.pace == Pace::Rest {
            self.rounds_left -= 1;
        }
    }

    /// Returns whether this phase is one of an excursion.
    pub(super) fn is_long(&self) -> bool {
        self.is_excursion && self.stage != Stage::Hold
    }

    /// Returns the part of the drained rate that the reference keeps, if enough excursions have measured it.
    pub(super) fn kept(&self) -> Option<f64> {
        (self.excursions >= EXCURSIONS_LEAST).then(|| exp(self.over_drained))
    }

    /// Ends a phase of the round, with ln of its rate.
    pub(super) fn end_phase(&mut self, elapsed_ns: u64, ln_rate: f64, goal: Goal) -> Verdict {
        if self.stage != Stage::Reference {
            (self.stage, self.first_ln_rate) = (Stage::Reference, ln_rate);
            return Verdict::Nothing;
        }

        (self.stage, self.given_up) = (Stage::Hold, 0);
        let given_up = -TRIM_MARGIN * ln(goal.throughput);
        let verdict = if self.is_excursion {
            self.end_excursion(ln_rate - self.first_ln_rate, given_up, goal)
        } else {
            let budget = self.budget(given_up, goal);
            if let Some(held_ln_rate) = self.held_ln_rate.take() {
                self.held.note(ln_rate - held_ln_rate - budget);
            }
            if self.pace != Pace::Climb {
                self.trial.note(ln_rate - self.first_ln_rate - budget);
            }
            self.judge(budget, goal)
        };

        let is_urgent = self.pace != Pace::Rest || self.excursions < EXCURSIONS_FIRST;
        let rest_ns = if is_urgent { 0 } else { TRIM_REST.saturating_mul(elapsed_ns).min(TRIM_REST_MOST_NS) };
        self.due_ns = self.busy_ns.saturating_add(rest_ns);
        verdict
    }

    /// Returns the budget, in ln(rate). At the largest reference a part may lose a little in any case: the goal is out
    /// of reach, or nearly so.
    fn budget(&self, given_up: f64, goal: Goal) -> f64 {
        let budget = (self.over_drained + given_up).min(BUDGET_MOST * given_up);
        if goal.is_largest { budget.max(BUDGET_LARGEST * given_up) } else { budget }
    }

    /// Ends an excursion, with ln of the reference's rate over the drained one. After the first few, begins the climb.
    fn end_excursion(&mut self, over_drained: f64, given_up: f64, goal: Goal) -> Verdict {
        let most = EXCURSION_OUTLIER * given_up;
        let over_drained = if over_drained.is_nan() { 0.0 } else { over_drained.clamp(-most, most) };
        self.excursions = (self.excursions + 1.0).min(EXCURSIONS_MEMORY);
        self.over_drained += (over_drained - self.over_drained) / self.excursions;
        self.allowed.note(over_drained + given_up);

        let budget = self.budget(given_up, goal);
        let is_told = self.allowed.is_positive() == Some(false);
        let is_far_off = is_told && goal.is_largest && self.over_drained < -LARGEST_LOSS * given_up;
        let is_told_early = self.excursions >= EXCURSIONS_LEAST && is_told && (is_far_off || budget <= 0.0);
        if self.excursions < EXCURSIONS_FIRST && !is_told_early {
            return Verdict::Nothing;
        }

        if is_far_off {
            self.retry_ns = self.retry_ns.max(EXCURSION_RETRY_FAR_NS);
        }
        if goal.least_part >= 1.0 || is_far_off {
            Verdict::End
        } else if budget <= 0.0 {
            Verdict::TooSmall(EventReason::Loss { lost: 0.0, allowed: part_lost(budget) })
        } else if self.part < 1.0 {
            Verdict::Nothing
        } else {
            (self.part, self.pace) = (goal.first_part, Pace::Climb);
            Verdict::Part(EventReason::Guests)
        }
    }

    /// Changes the part, if the losses are conclusive.
    fn judge(&mut self, budget: f64, goal: Goal) -> Verdict {
        let least_part = goal.least_part;
        if least_part >= 1.0 {
            return Verdict::End;
        }

        // If the losses stay too near the budget, the likelier side decides.
        let told = |losses: &Evidence, pace: Pace| {
            losses
                .is_positive()
                .or_else(|| (self.pace == pace && losses.count() >= CLIMB_ROUNDS).then(|| losses.sum() > 0.0))
        };
        let (held, trial) = (told(&self.held, Pace::Climb), told(&self.trial, Pace::Descend));
        let (part, known) = match (held, trial) {
            (Some(true), _) => {
                let factor = 1.0 + (self.held.mean() / budget).max(0.0);
                let most = if self.has_descended { 1.0 / TRIM_STEP } else { CLIMB_MOST };
                let part = self.part * factor.clamp(1.0 / TRIM_STEP, most);
                (part.min((1.0 + self.part) / 2.0), self.held)
            }
            (_, Some(false)) => ((self.part * TRIM_STEP).max(least_part).min(self.part), self.trial),
            _ => (self.part, self.held),
        };

        let loss = EventReason::Loss { lost: part_lost(budget + known.mean()), allowed: part_lost(budget) };
        let is_whole = held == Some(true) && self.part > CLIMB_END;
        if is_whole && !goal.is_largest {
            return Verdict::TooSmall(loss);
        }
        let has_changed = part != self.part;

        self.part = part;
        self.pace = match (self.pace, held, trial) {
            (_, Some(true), _) if is_whole => Pace::Rest,
            (_, Some(true), _) => Pace::Climb,
            (Pace::Climb, Some(false), _) if part > least_part && !self.has_descended => Pace::Descend,
            (Pace::Climb, Some(false), _) | (Pace::Descend, _, Some(true)) => Pace::Rest,
            (Pace::Descend, ..) if part <= least_part => Pace::Rest,
            (pace, ..) => pace,
        };
        self.has_descended = self.pace == Pace::Descend || (self.has_descended && self.pace == Pace::Climb);

        if held == Some(false) {
            self.retry_ns = EXCURSION_RETRY_NS;
        }
        if held.is_some() || has_changed {
            self.held.forget();
        }
        if trial.is_some() || has_changed {
            self.trial.forget();
        }
        self.held.fade();
        self.trial.fade();
        if has_changed { Verdict::Part(loss) } else { Verdict::Nothing }
    }
}

impl Controller {
    /// Ends a phase of the trim, or begins a round of it. Returns whether the phase was not one of the search.
    pub(super) fn end_trim_phase(&mut self, now_ns: u64, reading: &Reading) -> bool {
        let ln_rate = ln(reading.completed_rate);
        if self.trim.stage() != Stage::Hold {
            let before_ns = self.centre_ns * self.trim.part();
            let full_ns = self.uncapped_ns.unwrap_or(self.centre_ns);
            // By Little's law less cannot keep the goal's part of the reference's rate, if the latency is right.
            let needed_ns = self.config.throughput_goal * reading.completed_rate * self.unloaded_ns.unwrap_or(0.0);
            let least_part = self.least_ns() / full_ns;
            let goal = Goal {
                throughput: self.config.throughput_goal,
                least_part,
                first_part: (needed_ns / full_ns).min(CLIMB_FROM_MOST).max(least_part),
                is_largest: self.raised_ns() < self.centre_ns * (1.0 + CAP_LEAP),
            };
            let reason = match self.trim.end_phase(self.phase.elapsed_ns(now_ns), ln_rate, goal) {
                Verdict::Nothing => return true,
                Verdict::Part(reason) => reason,
                Verdict::TooSmall(reason) => {
                    self.raise_reference();
                    reason
                }
                Verdict::End => {
                    self.trim.end(self.centre_ns);
                    return true;
                }
            };

            let after_ns = self.centre_ns * self.trim.part();
            self.events.push(now_ns, EventKind::of_window(before_ns, after_ns), before_ns, after_ns, reason);
            // The rate follows the window; that is neither a fall nor a recovery.
            self.usual_rate = None;
            return true;
        }

        let is_trimmed = self.trim.part() < 1.0;
        if self.limits.is_duplex {
            return false;
        }
        if self.is_beyond || self.is_often_dry() {
            self.trim.end(self.centre_ns);
            return is_trimmed;
        }
        if !self.trim.has_guests() {
            if self.trim.is_on() {
                self.left = Some(self.keep(now_ns));
                self.trim.end(self.centre_ns);
            }
            return is_trimmed;
        }
        if !self.trim.is_on()
            && let Some(left) = self.left.take()
            && now_ns.saturating_sub(left.at_ns) < LEFT_MEMORY_NS
        {
            let before_ns = self.window();
            self.restore(left);
            let (after_ns, reason) = (self.window(), EventReason::Guests);
            self.events.push(now_ns, EventKind::of_window(before_ns, after_ns), before_ns, after_ns, reason);
            return true;
        }

        // A reference of one request has no smaller part.
        let is_least = self.least_ns() >= self.centre_ns;
        if self.first_phase.is_some() || is_least || !self.trim.is_due(self.centre_ns) {
            return is_trimmed;
        }

        let window_ns = self.window();
        if !self.trim.is_on() && self.centre_ns > self.bound_ns {
            // Gives up the room that absences have opened; dry time shows whether it is needed.
            (self.uncapped_ns, self.usual_rate) = (None, None);
            self.window_event(now_ns, EventKind::WindowLowered, self.bound_ns, EventReason::Guests);
        }
        self.trim.begin_round(is_trimmed.then_some(ln_rate));
        if self.trim.stage() == Stage::Excursion {
            self.events.push(now_ns, EventKind::Excursion, window_ns, self.window(), EventReason::Guests);
        }
        true
    }

    /// Returns the trim as it is between two rounds.
    pub(super) fn keep(&self, now_ns: u64) -> Kept {
        let Controller { centre_ns, uncapped_ns, trim, .. } = *self;
        Kept { at_ns: now_ns, centre_ns, uncapped_ns, trim }
    }

    /// Resumes a kept trim.
    pub(super) fn restore(&mut self, kept: Kept) {
        self.centre_ns = kept.centre_ns.min(self.most_ns());
        self.uncapped_ns = kept.uncapped_ns;
        self.trim = self.trim.with_clock_of(kept.trim);
        // The rate follows the window; that is neither a fall nor a recovery, nor half of a pair of the search.
        (self.usual_rate, self.first_phase) = (None, None);
        self.search.forget();
    }

    /// Returns the next larger reference.
    fn raised_ns(&self) -> f64 {
        (self.centre_ns * TRIM_RAISE).min(self.ceiling_ns)
    }

    /// Makes the reference larger.
    fn raise_reference(&mut self) {
        let before_ns = self.centre_ns;
        self.centre_ns = self.raised_ns();
        self.search.forget();
        self.trim.raise(before_ns / self.centre_ns);
    }
}

/// Returns the part of the rate that a loss of `ln_loss` in ln(rate) is.
fn part_lost(ln_loss: f64) -> f64 {
    1.0 - exp(-ln_loss)
}
