//! The agenda: one moment for each actor (the world itself, each disk, each shard), and the earliest of them.
//!
//! A tree of minima over a fixed set of actors. Changing the moment of an actor costs at most log2(actors) comparisons,
//! on the way up to the first node that does not change; there are no stale entries, and nothing is allocated. Actors
//! with the same moment act in the order of their numbers, which makes the world deterministic.

/// The moment of an actor that has nothing to do.
pub(crate) const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Agenda {
    /// Number of leaves, a power of two.
    leaves: usize,
    /// `at_ns[1]` is the root; the children of n are 2n and 2n + 1.
    at_ns: Vec<u64>,
}

impl Agenda {
    pub(crate) fn new(actors: usize) -> Agenda {
        let leaves = actors.next_power_of_two().max(2);
        Agenda { leaves, at_ns: vec![NEVER; 2 * leaves] }
    }

    pub(crate) fn get(&self, actor: usize) -> u64 {
        self.at_ns[self.leaves + actor]
    }

    pub(crate) fn set(&mut self, actor: usize, at_ns: u64) {
        let mut node = self.leaves + actor;
        self.at_ns[node] = at_ns;
        while node > 1 {
            let earliest = self.at_ns[node].min(self.at_ns[node ^ 1]);
            node /= 2;
            if self.at_ns[node] == earliest {
                return;
            }
            self.at_ns[node] = earliest;
        }
    }

    /// Returns the earliest moment and its actor.
    pub(crate) fn next(&self) -> (u64, usize) {
        let earliest = self.at_ns[1];
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            node += usize::from(self.at_ns[node] != earliest);
        }
        (earliest, node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_earliest_and_of_equals_the_first() {
        let mut rng = Rng::new(5);
        for actors in [1, 2, 3, 17] {
            let mut agenda = Agenda::new(actors);
            let mut plain = vec![NEVER; actors];
            for _ in 0..2_000 {
                let actor = rng.below(actors as u64) as usize;
                let at_ns = if rng.below(4) == 0 { NEVER } else { rng.below(50) };
                plain[actor] = at_ns;
                agenda.set(actor, at_ns);
                let expected = plain.iter().enumerate().map(|(actor, at_ns)| (*at_ns, actor)).min();
                assert_eq!(Some(agenda.next()), expected);
            }
        }
    }
}
