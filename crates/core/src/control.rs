//! The closed loop: how much may be in flight, and how fast the disk is, learnt from its completions.
//!
//! # Why
//! A disk's speed changes: it fills up, collects garbage, overheats, spends its burst credits; and a model can be
//! wrong. Work in flight beyond the *knee* (the smallest amount with nearly all the throughput) only waits in the
//! device, where it cannot be reordered. The controller finds the knee and follows it.
//!
//! # How it works
//! The controller decides two numbers: the *window* (model device time that may be in flight) and the *capacity scale*
//! (rate of the disk in model device seconds per second, by which tokens are given out). All rates are of device time,
//! not of requests, so mixed sizes do not disturb it. It learns only while the window limited the disk (`meter`): idle
//! time, light load and missing tokens never move the window.
//!
//! A duplex disk does a second of work in each direction per second; its rate is that of the busier direction. The
//! probe counts both directions if the window limits both, because a window wide enough for the busier may be too
//! narrow for the other.
//!
//! * **Probe.** The window alternates between two sides of its centre, in pairs high-low, low-high, so that a steady
//!   drift of the disk cancels out: 12 % up and down, up to 28 % while the knee is far away, the disk is noisy or the
//!   window holds only a few requests. Requests in flight at a switch are not counted. A pair gives the elasticity e =
//!   ln(X+/X-) / ln(w+/w-): 1 below the knee, 0 above. The centre moves as soon as pairs together show that e differs
//!   from the value that the throughput goal asks for (`search`): 0.08 for 0.90 of the full throughput.
//! * **Fall, recovery.** A rate that is far from the usual one for two *turnovers* (each [`TURNOVER_WINDOWS`] windows
//!   of work) becomes the usual one; a window that a fall makes too large is cut (`falls`).
//! * **Stall.** Nothing completes for four mean latencies (up to eight with mixed sizes) and at least 10 ms: nothing is
//!   learnt until the requests in flight have come back.
//! * **Capacity scale.** Every 10 ms, if the window was the limit: 1.15 x the rate, so that tokens leave the upward
//!   probe room near the knee, divided by the part of the latencies in which the requests were certainly in the disk (a
//!   busy shard sees completions late). If tokens were the limit: 5 % more, then 10, then 20. Each direction of a
//!   duplex disk has its own scale. The window tests for queueing: while it has room, no queue stands in the device
//!   beyond the knee, so more tokens do no harm.
//!
//! * **Bound.** The largest window, except in an excursion of the trim, is the latency goal, or if that is more, the
//!   amount that keeps the disk busy: 3 times the latency that recent requests have when none waits for another, and
//!   one request. Otherwise a network volume, 1 to 2 ms away, would get one request at a time.
//!
//! * **Absences.** A shard that computes, or has no CPU, dispatches nothing meanwhile, and the device runs dry
//!   (`Totals::dry_ns`). That time does not count in turnovers, scale and the test of pauses. If over about a second it
//!   is more than half of the part that the throughput goal gives up (1 - goal), the window doubles, up to the bound
//!   and the longest recent absence: a probe of a few per cent does not show the gain of bridging it. A rare absence is
//!   not bridged: all requests of the seconds after it would wait behind that window.
//!
//! * **Beyond the bound.** The bound keeps requests from waiting in the device. If a window at the bound still gains
//!   much throughput (an elasticity of 0.35 or more), little waits there: the time passes elsewhere, for example
//!   until a busy CPU sees completions. The window then grows beyond the bound, as long as that elasticity lasts.
//!
//! * **Trim.** While there are *guests*, classes that send little at a time, the window in force is the smallest part
//!   of the one found that keeps the throughput goal's part of the *drained* rate: that with all requests dispatched as
//!   they come (`trim`). For that, windows far apart are compared, at intervals also one far above the bound (an
//!   *excursion*); a slope does not suffice.
//!
//! * **Demand.** While something other than the window limits the disk, probes measure nothing. If the work in flight
//!   keeps the disk busy all the same, by the rule of the bound, then all of it queues in the device: the window falls
//!   to 0.75 of it, so that requests of the classes wait in the scheduler, and probes measure again.
//!
//! A step is a handful of additions and comparisons; logarithms are taken once per phase.
//!
//! # Limits
//! The search's window is at least three requests of the size in which the disk spends most time (and at most the
//! bound), so a device that serves one request at a time holds up to two more, except under the trim. Disks of a few
//! hundred requests per second need minutes to find a distant knee. With very mixed sizes, a device whose services slow
//! down to a quarter gets too small a window for about a second after the fall. If all speeds vary by 10 % from one 20
//! ms to the next, the window stays at 1 to 3, at worst 6, times the smallest one with 0.90 of the throughput
//! (`tests`).
//!
//! # Example
//! A device with 16 servers of 100 us, model 160,000 IOPS (6.25 us each): the knee is 16 x 6.25 = 100 us. With a bound
//! of 400 us the centre begins at 50 us, and elasticity is 1 until the upper probe is above 100 us. The centre settles
//! near 120 us, where the lower probe costs nothing but one request less would: 17 requests in flight on average. Half
//! of the servers fail: the rate of two turnovers is 0.5, the centre is cut to 55 us, the rate stays 0.5, so the cut
//! stays.

mod bounds;
mod config;
mod event;
mod evidence;
mod falls;
mod meter;
mod phases;
mod price;
mod scale;
mod search;
#[cfg(test)]
mod tests;
mod totals;
mod trim;
mod tuning;

use crate::bucket::TICKS_PER_NS;
use crate::math::exp;
pub(crate) use config::Limits;
pub use config::{ControlConfig, DEFAULT_THROUGHPUT_GOAL};
use config::{clamped_goal, elasticity_goal};
use event::EventLog;
pub use event::{ControlEvent, EVENTS_KEPT, EventKind, EventReason};
use falls::Cut;
use meter::{Meter, Waves};
use phases::Phase;
pub use price::WindowLimit;
use search::Search;
use totals::UNLOADED_SHIFT;
pub(crate) use totals::{LaneTotals, Totals, unloaded_work};
use trim::{Kept, Stage, Trim};
use tuning::*;
pub(crate) use tuning::{BOUND_UNLOADED, DEMAND_PART};

/// The mode of the controller.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Probe,
    /// A turnover was slow; the next one decides whether it was a fall.
    Suspect,
    /// The window was cut; the next turnover decides whether the rate is still `rate`.
    Confirm {
        window_before_ns: f64,
        rate: f64,
    },
    Stalled,
}

/// The side of the probe in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    High,
    Low,
}

/// The controller of one disk; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Controller {
    config: ControlConfig,
    elasticity_goal: f64,
    limits: Limits,
    mode: Mode,
    /// The last cut, until it is taken back.
    cut: Option<Cut>,
    side: Side,
    centre_ns: f64,
    /// The centre before the classes' outstanding work lowered it, to be restored when they have more. `None` if it is
    /// not lowered, or if the search has lowered the centre since.
    uncapped_ns: Option<f64>,
    /// The amount in flight that keeps this disk busy. See [`Controller::set_bound`].
    needed_ns: f64,
    /// The largest window while requests wait in the device: the configured one, or the disk's need.
    bound_ns: f64,
    /// The longest recent [`Totals::longest_away_ns`], which fades; and how far the window may exceed the bound for it,
    /// because the device ran dry too often.
    away_ns: f64,
    away_room_ns: f64,
    /// Part of the recent time, smoothed over [`DRY_MEMORY_NS`], in which the device was dry because of absences.
    dry_part: f64,
    /// Whether the window may exceed the bound, because at the bound no request waits in the device.
    is_beyond: bool,
    ceiling_ns: f64,
    /// One per direction of a duplex disk; on other disks the first counts.
    scale: [f64; 2],
    scale_growth: [f64; 2],
    reported_scale: [f64; 2],
    search: Search,
    trim: Trim,
    /// The trim at the time the guests left, to be resumed if guests return soon.
    left: Option<Kept>,
    /// Ratio of the upper probe to the centre, and of the centre to the lower probe, in this phase.
    probe_ratio: f64,
    at_bound: bool,
    first_phase: Option<Phase>,
    usual_rate: Option<f64>,
    /// Mean square of the relative deviations from the usual rate.
    rate_variance: f64,
    mean_latency_ns: Option<f64>,
    mean_cost_ns: f64,
    cost_variance_ns2: f64,
    /// Latency of recent requests if none waited for another: the mean, weighted by cost.
    unloaded_ns: Option<f64>,
    last_ns: u64,
    last: Totals,
    last_completion_ns: u64,
    /// Number of completions from which on requests count in the phase; `turnover_from`: in turnover and period.
    phase_from: u64,
    turnover_from: u64,
    /// The window of the last phase of the trim.
    phase_window_ns: f64,
    /// Most requests in flight while the device filled, in this phase of the trim.
    filled_requests: u32,
    waves: Waves,
    phase: Meter,
    turnover: Meter,
    period: Meter,
    events: EventLog,
}

impl Controller {
    /// Returns a controller whose window begins at the unloaded latency if it is known, otherwise at a part of the
    /// largest window, and whose scale begins at the model's rate. Replaces invalid figures of `config` by valid ones.
    pub(crate) fn new(config: ControlConfig, limits: Limits) -> Controller {
        let scale_max = if config.scale_max > 0.0 && config.scale_max.is_finite() { config.scale_max } else { 1.0 };
        let scale_min = if config.scale_min > 0.0 { config.scale_min.min(scale_max) } else { scale_max.min(0.05) };
        let bound_ns = limits.bound_ns.max(1) as f64;
        let scale = 1f64.min(scale_max).max(scale_min);

        // Begins from below: a measurement takes little time there.
        let begin_ns = match limits.unloaded_latency_ns {
            0 => bound_ns / BEGIN_PART,
            unloaded_ns => (unloaded_ns as f64).min(bound_ns),
        };

        let search = Search::new();
        let throughput_goal = clamped_goal(config.throughput_goal);
        Controller {
            config: ControlConfig { scale_min, scale_max, throughput_goal, ..config },
            elasticity_goal: elasticity_goal(throughput_goal),
            limits,
            mode: Mode::Probe,
            cut: None,
            left: None,
            side: Side::High,
            centre_ns: begin_ns,
            uncapped_ns: None,
            needed_ns: 0.0,
            bound_ns,
            away_ns: 0.0,
            away_room_ns: 0.0,
            dry_part: 0.0,
            is_beyond: false,
            ceiling_ns: bound_ns,
            scale: [scale; 2],
            scale_growth: [SCALE_GROWTH; 2],
            reported_scale: [scale; 2],
            probe_ratio: exp(search.probe_ln()),
            search,
            trim: Trim::new(),
            at_bound: false,
            first_phase: None,
            usual_rate: None,
            rate_variance: 0.0,
            mean_latency_ns: None,
            mean_cost_ns: 0.0,
            cost_variance_ns2: 0.0,
            unloaded_ns: None,
            last_ns: 0,
            last: Totals::default(),
            last_completion_ns: 0,
            phase_from: 0,
            turnover_from: 0,
            phase_window_ns: 0.0,
            filled_requests: 0,
            waves: Waves::default(),
            phase: Meter::default(),
            turnover: Meter::default(),
            period: Meter::default(),
            events: EventLog::new(),
        }
    }

    /// Returns the window, in nanoseconds of model device time. While the device holds as much, nothing is dispatched.
    pub(crate) fn window_ns(&self) -> u64 {
        self.window() as u64
    }

    /// Returns the largest window now, except in an excursion, in nanoseconds of model device time.
    pub(crate) fn bound_ns(&self) -> u64 {
        let window_ns = if self.trim.stage() == Stage::Excursion { self.centre_ns } else { self.window() };
        self.bound_ns.max(window_ns) as u64
    }

    /// Returns whether the window would be larger if every class had more outstanding.
    pub(crate) fn is_limited_by_outstanding(&self) -> bool {
        let is_capped = self.at_bound || self.uncapped_ns.is_some();
        self.last.outstanding_cap_ns.is_some_and(|cap_ns| (cap_ns as f64) < self.bound_ns && is_capped)
    }

    /// Returns the rate of the disk over the rate of its model, by which tokens are given out; one per direction on a
    /// duplex disk.
    pub(crate) fn capacity_scale(&self) -> [f64; 2] {
        self.scale
    }

    /// Returns the scale at which tokens are given out in each direction.
    pub(crate) fn token_scale(&self) -> [f64; 2] {
        // Tokens at the disk's own rate would not let the device fill, and in the reference's phase they, not the
        // window, would be the limit of a disk that has become faster since the scale was learnt.
        if self.trim.needs_all_tokens() { [self.config.scale_max; 2] } else { self.scale }
    }

    /// Returns the latency above which latencies are clipped, so that one stall does not hide everything else.
    pub(crate) fn latency_clip_ns(&self) -> u64 {
        self.mean_latency_ns.map_or(CLIP_UNKNOWN_NS, |mean_ns| ((mean_ns * CLIP_LATENCIES) as u64).max(STALL_MIN_NS))
    }

    /// Returns the latest time for the next [`Controller::step`], so that a stall is detected. `u64::MAX`: not before a
    /// completion.
    pub(crate) fn next_step_ns(&self) -> u64 {
        if self.last.in_flight_requests == 0 || matches!(self.mode, Mode::Stalled) {
            return u64::MAX;
        }
        self.last_completion_ns.saturating_add(self.stall_after_ns()).saturating_add(1)
    }

    /// Returns the kept events with a number above `seq`, oldest first.
    pub(crate) fn events_since(&self, seq: u64) -> impl Iterator<Item = &ControlEvent> {
        self.events.since(seq)
    }

    /// Logs a decision made elsewhere (`target`).
    pub(crate) fn note(&mut self, at_ns: u64, kind: EventKind, from: f64, to: f64, reason: EventReason) {
        self.events.push(at_ns, kind, from, to, reason);
    }

    /// Learns from the totals at `now_ns`. Call it at completions, every 16 of them or every millisecond, whichever
    /// comes first, and at [`Controller::next_step_ns`]. Time that goes backwards counts as standing still.
    pub(crate) fn step(&mut self, now_ns: u64, totals: &Totals) {
        let now_ns = now_ns.max(self.last_ns);
        let away_ns = totals.longest_away_ns as f64;
        let completions = totals.completions.saturating_sub(self.last.completions);
        let is_recent = now_ns.saturating_sub(self.last_completion_ns) < STEP_NS;
        if (1..STEP_COMPLETIONS).contains(&completions) && is_recent {
            // The few completions that one of many queues has seen alone prove little.
            self.away_ns = self.away_ns.max(away_ns);
            return;
        }

        let elapsed_ns = (now_ns - self.last_ns) as f64;
        self.away_ns = (self.away_ns * (1.0 - (elapsed_ns / AWAY_FADES_NS).min(1.0))).max(away_ns);
        self.away_room_ns = self.away_room_ns.min(self.away_ns);
        if self.away_room_ns < AWAY_LEAST * self.bound_ns {
            self.away_room_ns = 0.0;
        }

        // The other totals are taken over only once a request has completed.
        let dry_ns = totals.dry_ns.saturating_sub(std::mem::replace(&mut self.last.dry_ns, totals.dry_ns)) as f64;
        self.dry_part = (self.dry_part * DRY_MEMORY_NS + dry_ns) / (DRY_MEMORY_NS + elapsed_ns);
        let wakeups = totals.wakeups.saturating_sub(std::mem::replace(&mut self.last.wakeups, totals.wakeups));
        self.trim.note_guests(now_ns - self.last_ns, wakeups);
        self.last_ns = now_ns;

        if completions == 0 {
            self.step_without_completion(now_ns, totals);
            return;
        }

        let silence_ns = now_ns.saturating_sub(self.last_completion_ns).saturating_sub(self.away_ns as u64);
        let is_first = self.mean_latency_ns.is_none();
        self.note_means(completions, totals);

        self.set_bound();
        self.set_ceiling(now_ns, totals);
        if self.trim.is_overdue() {
            self.restart(now_ns, totals);
        }

        if matches!(self.mode, Mode::Stalled) {
            self.mode = Mode::Probe;
            self.window_event(now_ns, EventKind::StallOver, self.centre_ns, EventReason::SilenceNs(silence_ns));
            self.restart(now_ns, totals);
        } else if is_first || silence_ns > self.stall_after_ns() {
            // The beginning, idle time, or a stall that no call has reported.
            self.restart(now_ns, totals);
        }

        let is_in_round = self.trim.stage() != Stage::Hold;
        if is_in_round {
            self.end_wave(now_ns, totals);
        }

        let window_was_full = totals.window_blocks > self.last.window_blocks;
        let was_full_for = [0, 1].map(|lane| totals.lanes[lane].window_blocks > self.last.lanes[lane].window_blocks);
        for meter in [&mut self.phase, &mut self.turnover, &mut self.period] {
            meter.note(completions, window_was_full, was_full_for, totals);
        }

        self.last_completion_ns = now_ns;
        self.last = *totals;
        if totals.completions < self.turnover_from {
            self.turnover = Meter::start(now_ns, totals);
            self.period = self.turnover;
        }
        if !is_in_round && totals.completions < self.phase_from {
            self.phase = Meter::start(now_ns, totals);
        }

        // The windows of a round are brief: their rates are neither the disk's capacity nor a fall.
        let holds = self.trim.stage() == Stage::Hold;
        if holds {
            self.end_period(now_ns, totals);
        }
        if holds && self.config.enabled {
            self.end_turnover(now_ns, totals);
        }
        if !is_in_round && self.config.enabled {
            self.end_phase(now_ns, totals, (now_ns, totals));
        }
    }

    /// Handles a step without completions: idle time, or a stall.
    fn step_without_completion(&mut self, now_ns: u64, totals: &Totals) {
        self.last.in_flight_requests = totals.in_flight_requests;
        if totals.in_flight_requests == 0 {
            self.last_completion_ns = now_ns;
            return;
        }
        let silence_ns = now_ns.saturating_sub(self.last_completion_ns);
        if silence_ns <= self.stall_after_ns() || matches!(self.mode, Mode::Stalled) {
            return;
        }

        if matches!(self.mode, Mode::Confirm { .. })
            && let Some(cut) = self.cut.take()
        {
            self.restore(cut.before);
        }
        self.mode = Mode::Stalled;
        self.window_event(now_ns, EventKind::Stall, self.centre_ns, EventReason::SilenceNs(silence_ns));
    }

    fn stall_after_ns(&self) -> u64 {
        match self.mean_latency_ns {
            Some(mean_ns) => {
                // With mixed sizes the long requests, which take most of the time, may be late by more than the mean.
                let longer = if self.mean_cost_ns > 0.0 { self.typical_ns() / self.mean_cost_ns } else { 1.0 };
                let longer = longer.min(STALL_LONGER_MAX);
                ((mean_ns * longer * STALL_LATENCIES) as u64).max(STALL_MIN_NS)
            }
            None => STALL_UNKNOWN_NS.max(self.limits.unloaded_latency_ns.saturating_mul(STALL_LATENCIES as u64)),
        }
    }

    fn note_means(&mut self, completions: u64, totals: &Totals) {
        let count = completions as f64;
        let latency_ns = totals.latency_ns.saturating_sub(self.last.latency_ns) as f64 / count;

        let ticks = totals.completed_ticks.saturating_sub(self.last.completed_ticks);
        let cost_ns = ticks as f64 / TICKS_PER_NS as f64 / count;
        let work = totals.unloaded_work.wrapping_sub(self.last.unloaded_work) as f64;
        let unloaded_ns = (ticks > 0).then(|| work * f64::from(1 << (2 * UNLOADED_SHIFT)) / ticks as f64);

        match &mut self.mean_latency_ns {
            Some(mean_ns) => {
                let weight = (MEAN_WEIGHT * count).min(MEAN_WEIGHT_MAX);
                *mean_ns += (latency_ns - *mean_ns) * weight;
                let deviation_ns = cost_ns - self.mean_cost_ns;
                self.mean_cost_ns += deviation_ns * weight;
                // The variance of the mean of n costs is an n-th of one cost's.
                self.cost_variance_ns2 += (deviation_ns * deviation_ns * count - self.cost_variance_ns2) * weight;
                if let (Some(unloaded_ns), Some(mean_ns)) = (unloaded_ns, &mut self.unloaded_ns) {
                    *mean_ns += (unloaded_ns - *mean_ns) * weight;
                }
            }
            None => {
                self.mean_latency_ns = Some(latency_ns);
                self.mean_cost_ns = cost_ns;
                self.unloaded_ns = unloaded_ns;
            }
        }
    }

    fn window(&self) -> f64 {
        if !self.config.enabled {
            return self.ceiling_ns;
        }
        if self.trim.stage() == Stage::Excursion {
            return EXCURSION_NS.max(self.bound_ns * EXCURSION_BOUNDS);
        }
        if let Some(part) = self.trim.part_now() {
            // A cap lowers the reference, but a part only if the part exceeds it.
            let full_ns = if part < 1.0 { self.uncapped_ns.unwrap_or(self.centre_ns) } else { self.centre_ns };
            return (full_ns * part).max(self.least_ns()).min(self.ceiling_ns);
        }
        let wished_ns = match (self.mode, self.side) {
            (Mode::Suspect | Mode::Confirm { .. } | Mode::Stalled, _) => self.centre_ns,
            (Mode::Probe, Side::High) => self.centre_ns * self.probe_ratio,
            (Mode::Probe, Side::Low) => self.centre_ns / self.probe_ratio,
        };
        wished_ns.max(self.floor_ns()).min(self.ceiling_ns)
    }

    /// Discards the measurement in progress; requests in flight now do not count.
    fn restart(&mut self, now_ns: u64, totals: &Totals) {
        self.turnover_from = totals.completions.saturating_add(u64::from(totals.in_flight_requests));
        self.turnover = Meter::start(now_ns, totals);
        self.period = self.turnover;
        self.first_phase = None;
        self.trim.give_up_round();
        self.begin_phase(now_ns, totals);
    }

    fn move_centre(&mut self, now_ns: u64, ln_step: f64, elasticity: f64) {
        let factor = exp(ln_step);

        let wished_ns = self.centre_ns * factor;
        let is_beyond = wished_ns > self.bound_ns && (self.is_beyond || elasticity >= BEYOND_ELASTICITY);
        if is_beyond != self.is_beyond {
            self.is_beyond = is_beyond;
            self.ceiling_ns = self.ceiling_for(self.last.outstanding_cap_ns);
        }
        let centre_ns = wished_ns.max(self.floor_ns()).min(self.ceiling_ns);
        if centre_ns != wished_ns {
            self.search.stopped();
        }

        let was_at_bound = self.at_bound;
        self.at_bound = ln_step > 0.0 && wished_ns > self.ceiling_ns;
        let kind = if self.at_bound && !was_at_bound {
            EventKind::Bound
        } else {
            EventKind::of_window(self.centre_ns, centre_ns)
        };

        let change = (centre_ns / self.centre_ns - 1.0).abs();
        if kind == EventKind::Bound || change > WINDOW_REPORT {
            self.window_event(now_ns, kind, centre_ns, EventReason::Elasticity(elasticity));
        }

        self.centre_ns = centre_ns;
        if let Some(usual) = &mut self.usual_rate {
            *usual *= exp(ln_step * elasticity.clamp(0.0, 1.0));
        }

        if factor < 1.0 {
            self.uncapped_ns = None;
        } else {
            // Keeps tokens from holding back the requests that the window admits.
            self.scale = self.scale.map(|scale| (scale * factor).min(self.config.scale_max));
        }
    }

    /// Sets the centre and logs the event.
    fn window_event(&mut self, now_ns: u64, kind: EventKind, centre_ns: f64, reason: EventReason) {
        self.events.push(now_ns, kind, self.centre_ns, centre_ns, reason);
        self.centre_ns = centre_ns;
    }
}
