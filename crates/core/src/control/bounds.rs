//! How small and how large the window may be.
//!
//! # Why
//! Between the bounds evidence decides. Below the lower one a window shows no elasticity; above the upper one requests
//! only wait, or classes send so little that the window does not matter.
//!
//! # How it works
//! The lower bound is three requests of typical cost. The upper one is the configured bound, or if that is more, the
//! amount that keeps this disk busy, judged by its shortest latencies. The window may exceed it for a while if the disk
//! ran dry in absences, or if nothing waits in the device at the bound. Within these bounds, the *ceiling* is the
//! largest window in which the classes hold their shares with their outstanding requests.
//!
//! # Example
//! A bound of 750 us, requests of 130 us, an idle disk that answers in 400 us: the window is at least 390 us, and at
//! most 3 x 400 + 130 = 1330 us.

use super::meter::Reading;
use super::tuning::*;
use super::{Controller, EventKind, EventReason, Totals};

impl Controller {
    /// Sets the bound: the configured one, or the amount that keeps this disk busy if that is more. By Little's law
    /// that is the unloaded latency if work spreads evenly. Of channels chosen at random, three requests each keep 0.95
    /// busy if all services are alike. One more request is for those that do not fit in evenly.
    pub(super) fn set_bound(&mut self) {
        let configured_ns = self.limits.bound_ns.max(1) as f64;

        self.needed_ns = match self.unloaded_ns {
            Some(unloaded_ns) if self.config.enabled => BOUND_UNLOADED * unloaded_ns + self.typical_ns(),
            _ => 0.0,
        };
        self.bound_ns = configured_ns.max(self.needed_ns);
    }

    /// Returns the largest window that evidence may lead to.
    pub(super) fn most_ns(&self) -> f64 {
        if self.is_beyond { self.bound_ns * BEYOND_MOST } else { self.bound_ns + self.away_room_ns }
    }

    /// Returns whether absences let the device run dry for more than half of the part that the goal gives up. The other
    /// half is for the search.
    pub(super) fn is_often_dry(&self) -> bool {
        self.dry_part > (1.0 - self.config.throughput_goal) / 2.0
    }

    /// Sets the largest window now, and moves the centre within it. Work that keeps the disk busy is admitted however
    /// little a class has outstanding. A class that ends its work has little for a moment: the centre that the search
    /// had found is restored afterwards.
    pub(super) fn set_ceiling(&mut self, now_ns: u64, totals: &Totals) {
        self.ceiling_ns = self.ceiling_for(totals.outstanding_cap_ns);

        let wished_ns = self.uncapped_ns.map_or(self.centre_ns, |uncapped_ns| uncapped_ns.max(self.centre_ns));
        let centre_ns = wished_ns.min(self.ceiling_ns).max(self.floor_ns().min(self.ceiling_ns));
        let was_capped = self.uncapped_ns.is_some();
        self.uncapped_ns = (centre_ns < wished_ns).then_some(wished_ns);

        let change = centre_ns / self.centre_ns - 1.0;
        let is_in_force = self.trim.part_now().is_none();
        if is_in_force && change.abs() > CAP_LEAP && (was_capped || self.uncapped_ns.is_some()) {
            let kind = if change < 0.0 { EventKind::Bound } else { EventKind::WindowRaised };
            self.window_event(now_ns, kind, centre_ns, EventReason::Outstanding);
            // The rate follows the window; that is neither a fall nor a recovery.
            self.usual_rate = None;
            self.restart(now_ns, totals);
        }
        self.centre_ns = centre_ns;
    }

    pub(super) fn ceiling_for(&self, outstanding_cap_ns: Option<u64>) -> f64 {
        let cap_ns = outstanding_cap_ns.map_or(self.most_ns(), |cap_ns| cap_ns.max(1) as f64);
        cap_ns.max(self.needed_ns).max(self.floor_ns()).min(self.most_ns())
    }

    /// Returns the cost of the request in which the disk spends the average nanosecond: the mean weighted by cost.
    pub(super) fn typical_ns(&self) -> f64 {
        if self.mean_cost_ns > 0.0 { self.mean_cost_ns + self.cost_variance_ns2 / self.mean_cost_ns } else { 0.0 }
    }

    /// Returns the smallest window of the trim: one request of typical cost.
    pub(super) fn least_ns(&self) -> f64 {
        self.typical_ns().max(self.limits.min_window_ns as f64)
    }

    /// Returns the smallest window of the search, three requests of typical cost: a window that one long request fills
    /// shows no elasticity, however narrow it is.
    pub(super) fn floor_ns(&self) -> f64 {
        (self.typical_ns() * WINDOW_MIN_REQUESTS).max(self.limits.min_window_ns as f64)
    }

    /// Lowers the window below the work in flight, if that is more than the disk needs and the window did not limit it.
    /// Without this a window above all outstanding work of the classes would stay there, and no share would hold.
    pub(super) fn follow_demand(&mut self, now_ns: u64, totals: &Totals, reading: &Reading) {
        let is_known = self.unloaded_ns.is_some_and(|unloaded_ns| unloaded_ns > 0.0);
        if !is_known || self.phase.tokens_missing(totals).contains(&true) {
            return;
        }
        // Little's law in work: the mean number in flight, each worth the mean of those that completed.
        let requests = reading.requests / reading.present;
        let in_flight_ns = requests * reading.work_ns / self.phase.completions(totals) as f64;
        let wished_ns = (DEMAND_PART * in_flight_ns).max(self.needed_ns).max(self.floor_ns());
        if in_flight_ns > self.needed_ns && wished_ns < self.centre_ns {
            (self.at_bound, self.uncapped_ns) = (false, None);
            self.window_event(now_ns, EventKind::WindowLowered, wished_ns, EventReason::Outstanding);
        }
    }
}
