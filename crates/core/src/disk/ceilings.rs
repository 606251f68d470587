//! The ceiling of the work in the device: the least of the caps that the queues report.
//!
//! # Why
//! A class that sends a new request for each that ends has a fixed amount of work outstanding. It holds its share only
//! while the device holds at most that amount divided by the class's part of the disk, its *cap*. Each queue computes
//! the least cap of its own classes; the disk's ceiling is the least of all queues.
//!
//! # How it works
//! Each queue has a place, and sends its cap with its reports. A cap that a queue has not repeated for a while expires:
//! the queue has no work. The least is computed when a cap changes, and otherwise at an interval.
//!
//! # Example
//! One queue reports 400 us, another 100 us, a third none: the ceiling is 100 us, whichever reported last.

/// Time after which a cap expires. A queue with work reports at least every millisecond in which a piece completes; on
/// a slow disk completions are farther apart.
const FORGET_NS: u64 = 100_000_000;
/// Time between two computations of the least if no cap changes.
const REFRESH_NS: u64 = 10_000_000;

/// The cap that one queue has reported, and when; `u64::MAX`: none.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    is_used: bool,
    cap_ns: u64,
    said_ns: u64,
}

/// The caps of all queues of a disk, and the least of them.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    queues: Vec<Ceiling>,
    least_ns: Option<u64>,
    refreshed_ns: u64,
}

impl Ceilings {
    /// Adds a queue and returns its place.
    pub(super) fn add(&mut self) -> usize {
        let new = Ceiling { is_used: true, cap_ns: u64::MAX, said_ns: 0 };
        let at = self.queues.iter().position(|queue| !queue.is_used).unwrap_or(self.queues.len());
        if at == self.queues.len() {
            self.queues.push(new);
        } else {
            self.queues[at] = new;
        }
        at
    }

    /// Removes the queue at a place, and its cap.
    pub(super) fn remove(&mut self, at: usize) {
        self.queues[at] = Ceiling { is_used: false, cap_ns: u64::MAX, said_ns: 0 };
        self.refresh(self.refreshed_ns);
    }

    /// Sets the cap of the queue at `at`, and returns the least of all.
    pub(super) fn least(&mut self, now_ns: u64, at: usize, cap_ns: Option<u64>) -> Option<u64> {
        let cap_ns = cap_ns.unwrap_or(u64::MAX);
        let queue = &mut self.queues[at];
        let is_new = queue.cap_ns != cap_ns;
        (queue.cap_ns, queue.said_ns) = (cap_ns, now_ns);
        if is_new || now_ns.saturating_sub(self.refreshed_ns) >= REFRESH_NS {
            self.refresh(now_ns);
        }
        self.least_ns
    }

    /// Computes the least of the caps that have not expired.
    fn refresh(&mut self, now_ns: u64) {
        self.refreshed_ns = now_ns;
        let recent = self.queues.iter().filter(|queue| now_ns.saturating_sub(queue.said_ns) < FORGET_NS);
        self.least_ns = recent.map(|queue| queue.cap_ns).min().filter(|least_ns| *least_ns < u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::disk::{Disk, DiskConfig, Report};

    #[test]
    fn the_least_counts_whoever_speaks_last() {
        let mut ceilings = Ceilings::default();
        let queues = [0, 1, 2].map(|_| ceilings.add());
        assert_eq!(ceilings.least(1_000, queues[0], Some(400_000)), Some(400_000));
        assert_eq!(ceilings.least(2_000, queues[1], Some(100_000)), Some(100_000));
        assert_eq!(ceilings.least(3_000, queues[2], None), Some(100_000));
        assert_eq!(ceilings.least(4_000, queues[0], Some(400_000)), Some(100_000));
        assert_eq!(ceilings.least(5_000, queues[1], Some(700_000)), Some(400_000));
        assert_eq!(ceilings.least(6_000, queues[1], None), Some(400_000));
        ceilings.remove(queues[0]);
        assert_eq!(ceilings.least(7_000, queues[2], None), None);
    }

    #[test]
    fn the_window_is_below_what_every_queue_allows() {
        let disk = Disk::new(DiskConfig::default());
        let queues = [(); 2].map(|()| disk.add_queue(&Arc::default()));
        for turn in 1..50 {
            for (queue, outstanding_cap_ns) in [(queues[0], Some(20_000)), (queues[1], None)] {
                let report = Report {
                    completions: 64,
                    completed_ticks: 64 * 4_000,
                    latency_ns: 64 * 50_000,
                    outstanding_cap_ns,
                    ..Report::default()
                };
                disk.report(turn * 1_000_000, queue, &report);
                assert!(disk.window_ns() <= 20_000, "{} at {turn}", disk.window_ns());
            }
        }
    }

    #[test]
    fn what_a_silent_queue_has_said_is_forgotten() {
        let mut ceilings = Ceilings::default();
        let (silent, speaks) = (ceilings.add(), ceilings.add());
        assert_eq!(ceilings.least(1_000, silent, Some(100_000)), Some(100_000));
        let mut forgotten_ns = 0;
        for now_ns in (1_000_000..).step_by(1_000_000) {
            if ceilings.least(now_ns, speaks, None).is_none() {
                forgotten_ns = now_ns;
                break;
            }
        }
        assert!((FORGET_NS..=FORGET_NS + 2 * REFRESH_NS).contains(&forgotten_ns), "{forgotten_ns}");
    }
}
