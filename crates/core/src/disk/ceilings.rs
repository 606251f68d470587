//! The ceiling of what may be in the device, from what each queue has outstanding.
//!
//! # Why
//! A class that sends a new request for each that ends holds its share only while the device holds less than its requests are
//! worth. Each queue knows its own classes; the ceiling of the disk is the least that any of them says.
//!
//! # How it works
//! Each queue has a place, and reports what it has found with everything else. What a queue has not repeated for a while is
//! forgotten: it has no work. The least is looked for when a queue says something new, and else now and then.
//!
//! # Example
//! One queue says 400 us, another 100 us, a third nothing: 100 us, whoever reported last.

/// A queue with work reports at least every millisecond in which something completes; for a slow disk that is longer.
const FORGET_NS: u64 = 100_000_000;
/// How often the least is looked for when nobody says anything new.
const LOOK_NS: u64 = 10_000_000;

/// What one queue has said; `u64::MAX`: nothing.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    is_used: bool,
    cap_ns: u64,
    said_ns: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Ceilings {
    queues: Vec<Ceiling>,
    least_ns: Option<u64>,
    looked_ns: u64,
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

    /// Removes the queue at a place, and what it has said.
    pub(super) fn remove(&mut self, at: usize) {
        self.queues[at] = Ceiling { is_used: false, cap_ns: u64::MAX, said_ns: 0 };
        self.look(self.looked_ns);
    }

    /// Takes what the queue at `at` says now, and returns the least of what all say.
    pub(super) fn least(&mut self, now_ns: u64, at: usize, cap_ns: Option<u64>) -> Option<u64> {
        let cap_ns = cap_ns.unwrap_or(u64::MAX);
        let queue = &mut self.queues[at];
        let is_new = queue.cap_ns != cap_ns;
        (queue.cap_ns, queue.said_ns) = (cap_ns, now_ns);
        if is_new || now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.look(now_ns);
        }
        self.least_ns
    }

    fn look(&mut self, now_ns: u64) {
        self.looked_ns = now_ns;
        let recent = self.queues.iter().filter(|queue| now_ns.saturating_sub(queue.said_ns) < FORGET_NS);
        self.least_ns = recent.map(|queue| queue.cap_ns).min().filter(|least_ns| *least_ns < u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let queues = [disk.add_queue(), disk.add_queue()];
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
        assert!((FORGET_NS..=FORGET_NS + 2 * LOOK_NS).contains(&forgotten_ns), "{forgotten_ns}");
    }
}
