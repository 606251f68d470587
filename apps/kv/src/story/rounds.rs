//! Several rounds of a story, and the figures that are reported of them.
//!
//! # Why
//! A disk and its neighbours differ from one minute to the next. One round does not show whether a difference between
//! two ways is real; the range over several rounds of each way does.
//!
//! # How it works
//! [`Rounds`] has the records of one way. A figure is reported as its median and range over the rounds ([`Spread`]).
//! Texts, and figures over time, are those of one round: the one with the median 99th percentile of the reads.
//!
//! # Limits
//! A few rounds do not measure chance.
//!
//! # Example
//! Percentiles of 9, 1 and 5 ms in three rounds: the third is reported, with 5 ms and the range from 1 to 9 ms.

use super::record::{PhaseRecord, Record, Way};
use super::spread::Spread;

/// The rounds of one way, in the order in which they ran.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// The way.
    pub way: Way,
    /// A record for each round.
    pub records: Vec<Record>,
}

impl Rounds {
    /// Returns the index of the reported round: the one with the median 99th percentile of `load` in the phase after
    /// the calm one.
    #[must_use]
    pub fn told_index(&self, load: &str) -> Option<usize> {
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        order.sort_by_key(|round| self.records[*round].storm_p99_ns(load));
        order.len().checked_sub(1).map(|last| order[last / 2])
    }

    /// Returns the reported round.
    #[must_use]
    pub fn told(&self, load: &str) -> Option<&Record> {
        self.told_index(load).map(|round| &self.records[round])
    }

    /// Returns the spread of a figure of phase `number`, over the rounds that have it.
    pub fn spread(&self, number: usize, figure: impl Fn(&PhaseRecord) -> Option<f64>) -> Spread {
        Spread::of(self.records.iter().filter_map(|record| record.phases.get(number)).filter_map(figure))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::super::record::tests::record;
    use super::*;

    #[test]
    fn of_several_rounds_the_middle_one_is_told() {
        for (p99s_ns, told) in [(vec![7], 0), (vec![9, 1, 5], 2), (vec![8, 2], 1)] {
            let records = p99s_ns.iter().map(|p99_ns| record(*p99_ns)).collect();
            let rounds = Rounds { way: Way::Drained, records };
            assert_eq!(rounds.told_index("reads"), Some(told), "{p99s_ns:?}");
            assert_eq!(rounds.told("reads").unwrap().storm_p99_ns("reads"), p99s_ns[told], "{p99s_ns:?}");
        }
        assert_eq!(Rounds { way: Way::Drained, records: Vec::new() }.told_index("reads"), None);
    }

    #[test]
    fn a_round_that_was_cut_short_counts_in_its_phases_only() {
        let spread = |median, min, max| Spread { median, min, max };
        let mut short = record(1);
        short.phases.truncate(1);
        let rounds = Rounds { way: Way::Drained, records: vec![record(4), short] };
        let p99_ns = |phase: &PhaseRecord| phase.load("reads").map(|load| load.part.latencies.max() as f64);
        assert_eq!(rounds.spread(0, p99_ns), spread(1.0, 1.0, 4.0));
        assert_eq!(rounds.spread(1, p99_ns), spread(4.0, 4.0, 4.0));
        assert_eq!(rounds.spread(2, p99_ns), Spread::default());
    }
}
