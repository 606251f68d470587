//! Bounds the bytes that a measurement may still write.
//!
//! **Why.** Writing wears a disk out, so a user can set a bound. The bound must hold without spoiling the figures that
//! are measured.
//!
//! **How.** Each phase that writes leaves a reserve for later phases. The rate so far determines how long the phase can
//! write ([`WriteBudget::affordable_s`]); the rig also enforces the hard bound, and reports a run that was cut by it.
//!
//! **Limits.** Until the first run of a phase, the rate is that of the phase before, so a short run comes first.
//!
//! **Example.** 10 GiB may be written, 4 GiB are, 1 GiB is reserved, at 1 GiB/s: 5 GiB are left, and 60 % of them, 3 s,
//! are planned.

/// Part of the remaining bytes that is planned for. The rest allows for warm-up and a disk faster than expected.
const PLANNED_PART: f64 = 0.6;

/// The bound on writes, the bytes spent, and the rate of spending.
#[derive(Clone, Debug)]
pub(super) struct WriteBudget {
    max_bytes: Option<u64>,
    written_bytes: u64,
    reserve_bytes: u64,
    rate_bytes_per_s: f64,
    phase_is_new: bool,
}

impl WriteBudget {
    pub(super) fn new(max_bytes: Option<u64>) -> WriteBudget {
        WriteBudget { max_bytes, written_bytes: 0, reserve_bytes: 0, rate_bytes_per_s: 0.0, phase_is_new: true }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.max_bytes.is_some()
    }

    /// Begins a phase that reserves `reserve_part` of the remaining bytes for later phases.
    pub(super) fn begin_phase(&mut self, reserve_part: f64) {
        self.phase_is_new = true;
        self.reserve_bytes = 0;
        if let Some(left_bytes) = self.left_bytes() {
            self.reserve_bytes = (left_bytes as f64 * reserve_part) as u64;
        }
    }

    /// Returns the bytes that this phase may still write; `None` if unbounded.
    fn left_bytes(&self) -> Option<u64> {
        let max_bytes = self.max_bytes?;
        Some(max_bytes.saturating_sub(self.written_bytes).saturating_sub(self.reserve_bytes))
    }

    /// Returns the time for which this phase can continue to write, in seconds.
    pub(super) fn affordable_s(&self) -> f64 {
        match self.left_bytes() {
            Some(left_bytes) if self.rate_bytes_per_s > 0.0 => left_bytes as f64 * PLANNED_PART / self.rate_bytes_per_s,
            _ => f64::INFINITY,
        }
    }

    /// Releases the reserve of later phases to the current one.
    pub(super) fn end_reserve(&mut self) {
        self.reserve_bytes = 0;
    }

    /// Accounts for a run that wrote `bytes` in `seconds`.
    pub(super) fn note(&mut self, bytes: u64, seconds: f64) {
        self.written_bytes = self.written_bytes.saturating_add(bytes);
        if bytes > 0 && seconds > 0.0 {
            let rate_bytes_per_s = bytes as f64 / seconds;
            let so_far = if self.phase_is_new { 0.0 } else { self.rate_bytes_per_s };
            self.rate_bytes_per_s = rate_bytes_per_s.max(so_far);
            self.phase_is_new = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn without_a_bound_everything_goes() {
        let mut budget = WriteBudget::new(None);
        budget.begin_phase(0.5);
        budget.note(100 * GIB, 1.0);
        assert_eq!(budget.affordable_s(), f64::INFINITY);
    }

    #[test]
    fn a_bound_is_divided_over_phases_and_shards() {
        let mut budget = WriteBudget::new(Some(10 * GIB));
        budget.note(2 * GIB, 2.0);
        budget.begin_phase(0.25);
        assert!((budget.affordable_s() - 3.6).abs() < 1e-6, "{}", budget.affordable_s());
        budget.note(3 * GIB, 1.0);
        assert!((budget.affordable_s() - 0.6).abs() < 1e-6, "3 GiB left at 3 GiB/s: {}", budget.affordable_s());
        budget.end_reserve();
        assert!((budget.affordable_s() - 1.0).abs() < 1e-6, "5 GiB left at 3 GiB/s: {}", budget.affordable_s());
    }
}
