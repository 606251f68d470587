//! The rate of a disk between two steps, and whether it is trustworthy.
//!
//! # Why
//! A rate is the disk's own only if the disk was offered enough work all the time. A meter measures both.
//!
//! # How it works
//! A meter keeps the totals at its start. Work counts when it completes, plus half of the work in flight: a piece
//! being served is half done on average, so a long request does not count all at once.
//! The disk *was offered enough* if
//! * at most an eighth of the completions fell into steps in which no queue found the window full, and
//! * the mean number in flight, which is the sum of latencies over time (Little's law), is at least 0.6 of the number
//!   that was in flight at the steps at which the window had been full. Pauses between bursts fail this test. Time in
//!   which the device was dry because of absent queues (`queue/away`) does not count.
//!
//! A device with many requests in it may complete them in *waves*: all that one pass of its host has served, then none
//! for milliseconds. A phase of a few waves that begins in the middle of one counts completions for which it has no
//! time. So a phase of the trim begins and ends where a wave ends: before a gap that is long compared with the longest
//! recent one ([`Waves`]). Between completions that come evenly, each gap is long.
//!
//! On a duplex disk each direction has the same test: it *was held back* if the disk was offered enough and the window
//! was full for that direction too. The work of both is divided in proportion to the completions of each.
//!
//! # Limits
//! Latencies are clipped (see `Controller::latency_clip_ns`), so very uneven ones look like pauses, and the interval is
//! not used. That is the safe side.
//!
//! # Example
//! 64 completions worth 640 us of device time in 1 ms, as much in flight at the end as at the start: rate 0.64.

use super::Totals;
use crate::bucket::TICKS_PER_NS;

/// At most 1 in this many completions may fall into steps without a full window.
const UNBLOCKED_PART: u64 = 8;
/// Smallest mean number in flight, as a part of the number at a full window.
const FULLNESS_MIN: f64 = 0.6;
/// Smallest part of the time that counts as present: absences of several queues overlap.
const PRESENT_LEAST: f64 = 0.05;
/// A gap between two steps ends a wave if it is at least a `GAP_PART`-th of the longest one, which fades by a
/// `GAP_FADES`-th at each step.
const GAP_PART: u64 = 2;
const GAP_FADES: u64 = 10;
/// Part of the work in flight that counts as done.
const IN_FLIGHT_DONE: f64 = 0.5;

/// The ends of waves of completions, by the gaps between steps; see the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waves {
    longest_gap_ns: u64,
}

impl Waves {
    /// Returns whether a wave ended at the previous step, `gap_ns` before this one.
    pub(crate) fn ended_before(&mut self, gap_ns: u64) -> bool {
        self.longest_gap_ns = gap_ns.max(self.longest_gap_ns - self.longest_gap_ns / GAP_FADES);
        gap_ns >= self.longest_gap_ns / GAP_PART
    }
}

/// A measurement in progress; see the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    start_ns: u64,
    start: Totals,
    unblocked: u64,
    unblocked_of: [u64; 2],
    full_requests: f64,
    full_steps: f64,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Model device time completed, in nanoseconds.
    pub(crate) work_ns: f64,
    /// Model device time completed per time, in both directions and without the work in flight.
    pub(crate) completed_rate: f64,
    /// Model device time completed per time; on a duplex disk that of the busier direction.
    pub(crate) rate: f64,
    /// The rate of each direction.
    pub(crate) rates: [f64; 2],
    /// Mean number of requests in flight, by Little's law.
    pub(crate) requests: f64,
    /// Whether the window limited the disk.
    pub(crate) offered: bool,
    /// Part of the latencies, 0 to 1, in which the work in flight had certainly not completed.
    pub(crate) certain: f64,
    /// Part of the time in which the device was not dry because of absent queues.
    pub(crate) present: f64,
    /// Whether the window limited each direction.
    pub(crate) held: [bool; 2],
}

impl Meter {
    pub(crate) fn start(now_ns: u64, totals: &Totals) -> Meter {
        Meter { start_ns: now_ns, start: *totals, ..Meter::default() }
    }

    /// Counts a step.
    pub(crate) fn note(&mut self, completions: u64, window_was_full: bool, was_full_for: [bool; 2], totals: &Totals) {
        if window_was_full {
            self.full_requests += f64::from(totals.in_flight_requests);
            self.full_steps += 1.0;
        } else {
            self.unblocked = self.unblocked.saturating_add(completions);
        }
        for (unblocked, was_full) in self.unblocked_of.iter_mut().zip(was_full_for) {
            *unblocked = unblocked.saturating_add(if was_full { 0 } else { completions });
        }
    }

    pub(crate) fn read(&self, now_ns: u64, totals: &Totals) -> Reading {
        let elapsed = self.elapsed_ns(now_ns).max(1) as f64;
        let completed_ns =
            totals.completed_ticks.saturating_sub(self.start.completed_ticks) as f64 / TICKS_PER_NS as f64;
        let in_flight_change = totals.in_flight_ns as f64 - self.start.in_flight_ns as f64;

        let work_ns = (completed_ns + IN_FLIGHT_DONE * in_flight_change).max(0.0);
        let mean_requests = totals.latency_ns.saturating_sub(self.start.latency_ns) as f64 / elapsed;
        let is_seldom = |unblocked: u64| unblocked.saturating_mul(UNBLOCKED_PART) <= self.completions(totals);

        let dry_ns = totals.dry_ns.saturating_sub(self.start.dry_ns) as f64;
        let present = (1.0 - dry_ns / elapsed).max(PRESENT_LEAST);
        let offered = self.full_steps > 0.0
            && is_seldom(self.unblocked)
            && mean_requests * self.full_steps >= FULLNESS_MIN * present * self.full_requests;

        let latency_ns = totals.latency_ns.saturating_sub(self.start.latency_ns);
        let late_ns = totals.late_ns.saturating_sub(self.start.late_ns);
        let certain = if latency_ns == 0 { 1.0 } else { 1.0 - late_ns.min(latency_ns) as f64 / latency_ns as f64 };

        let [first, second] = [0, 1].map(|lane| self.completed_ticks(lane, totals) as f64);
        let second_part = if second > 0.0 { second / (first + second) } else { 0.0 };
        let rates = [1.0 - second_part, second_part].map(|part| work_ns / elapsed * part);
        let held = self.unblocked_of.map(|unblocked| offered && is_seldom(unblocked));
        Reading {
            work_ns,
            completed_rate: completed_ns / elapsed,
            rate: rates[0].max(rates[1]),
            rates,
            requests: mean_requests,
            offered,
            held,
            certain,
            present,
        }
    }

    /// Returns whether the measurement began at the `from`-th completion or later.
    pub(crate) fn has_begun(&self, from: u64) -> bool {
        self.start.completions >= from
    }

    pub(crate) fn elapsed_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns)
    }

    pub(crate) fn completions(&self, totals: &Totals) -> u64 {
        totals.completions.saturating_sub(self.start.completions)
    }

    fn completed_ticks(&self, lane: usize, totals: &Totals) -> u64 {
        totals.lanes[lane].completed_ticks.saturating_sub(self.start.lanes[lane].completed_ticks)
    }

    /// Returns whether tokens were missing since the start, in each direction.
    pub(crate) fn tokens_missing(&self, totals: &Totals) -> [bool; 2] {
        [0, 1].map(|lane| totals.lanes[lane].token_blocks > self.start.lanes[lane].token_blocks)
    }
}
