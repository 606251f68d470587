//! Lanes for slices that overlap.
//!
//! **Why.** Slices of one track must nest; requests in flight at the same time do not.
//!
//! **How.** A lane keeps the end of its last slice, and takes a slice that begins no sooner. Among the lanes that could
//! take a slice, the one that became free last does.
//!
//! **Limits.** At most [`LANES_MAX`] lanes. Slices that arrive long after their end make more lanes than there are
//! overlaps: a gap before the end of a lane is not found again.
//!
//! **Example.** (0, 10), (5, 15), (10, 20) take lanes 0, 1, 0.

use std::collections::BTreeSet;

/// Most lanes of a group.
pub(super) const LANES_MAX: usize = 4096;

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Lanes {
    /// The end of each lane's last slice, and the lane's number.
    free: BTreeSet<(u64, usize)>,
}

impl Lanes {
    /// Returns a lane for a slice from `begin_ns` to `end_ns`, and whether it is new; `None` if all are taken.
    pub(super) fn take(&mut self, begin_ns: u64, end_ns: u64) -> Option<(usize, bool)> {
        let latest = self.free.range(..=(begin_ns, usize::MAX)).next_back().copied();
        let (lane, is_new) = match latest {
            Some(place) => {
                self.free.remove(&place);
                (place.1, false)
            }
            None if self.free.len() < LANES_MAX => (self.free.len(), true),
            None => return None,
        };
        self.free.insert((end_ns, lane));
        Some((lane, is_new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_that_overlap_have_lanes_of_their_own() {
        let mut lanes = Lanes::default();
        let cases = [
            ((0, 10), (0, true)),
            ((5, 15), (1, true)),
            ((10, 20), (0, false)),
            ((20, 20), (0, false)),
            ((20, 21), (0, false)),
            ((15, 16), (1, false)),
        ];
        for ((begin, end), expected) in cases {
            assert_eq!(lanes.take(begin, end), Some(expected), "{begin} {end}");
        }
    }

    #[test]
    fn there_is_an_end_to_lanes() {
        let mut lanes = Lanes::default();
        assert!((0..LANES_MAX).all(|_| lanes.take(0, 1).is_some()));
        assert_eq!((lanes.take(0, 1), lanes.take(1, 2)), (None, Some((LANES_MAX - 1, false))));
    }
}
