//! Who may use the places of the backend: each disk a part, so that one that hangs leaves some to the others.
//!
//! # Why
//! A backend takes so many operations at once, whatever disks they are for. A disk that hangs holds all that it was sent.
//!
//! # How it works
//! Half of the places are divided: each disk has its part, which is kept free for it. The other half anybody may use. So a disk
//! alone at work has more than half of all, and one that hangs can never hold the last places of the others.
//!
//! # Limits
//! With more disks than half the places each has one place of its own, with more than there are places none has.
//!
//! # Example
//! 256 places, 4 disks: 32 are kept for each. Disk 0 hangs, with 256 - 3 x 32 = 160 operations; the others have 96.

/// See the module's documentation.
pub(super) struct Places {
    capacity: usize,
    /// What is kept for each disk.
    own: usize,
    /// By disk, operations in the backend.
    used: Vec<usize>,
    /// Places that are kept and not used, of all disks.
    kept: usize,
}

impl Places {
    /// `capacity` places for the disks that are `mine`.
    pub(super) fn new(capacity: usize, mine: &[bool]) -> Places {
        let disks = mine.iter().filter(|is_mine| **is_mine).count().max(1);
        let own = match capacity / (2 * disks) {
            _ if disks == 1 || disks > capacity => 0,
            part => part.max(1),
        };
        Places { capacity, own, used: vec![0; mine.len()], kept: own * disks }
    }

    /// Whether `disk` may send an operation, with `in_flight` in the backend.
    pub(super) fn has_room(&self, disk: usize, in_flight: usize) -> bool {
        let kept_for_others = self.kept - self.own.saturating_sub(self.used[disk]);
        in_flight + kept_for_others < self.capacity
    }

    /// Returns whether nothing of `disk` is in the backend although there is room: nothing of its own will come back and tell
    /// it to try again.
    pub(super) fn is_left_out(&self, disk: usize, in_flight: usize) -> bool {
        self.used[disk] == 0 && self.has_room(disk, in_flight)
    }

    /// The backend has taken an operation of `disk`.
    pub(super) fn take(&mut self, disk: usize) {
        self.kept -= usize::from(self.used[disk] < self.own);
        self.used[disk] += 1;
    }

    /// An operation of `disk` has come back.
    pub(super) fn give_back(&mut self, disk: usize) {
        self.used[disk] = self.used[disk].saturating_sub(1);
        self.kept += usize::from(self.used[disk] < self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    /// How many operations disk 0 can have in the backend, and then each of the others.
    fn fill(capacity: usize, disks: usize) -> Vec<usize> {
        let mut places = Places::new(capacity, &vec![true; disks]);
        let mut in_flight = 0;
        for disk in 0..disks {
            while places.has_room(disk, in_flight) {
                places.take(disk);
                in_flight += 1;
            }
        }
        assert_eq!(in_flight, capacity, "no place is wasted when all want one");
        let used = places.used.clone();
        for (disk, used) in used.iter().enumerate() {
            (0..*used).for_each(|_| places.give_back(disk));
        }
        assert_eq!((places.kept, places.has_room(0, 0)), (places.own * disks, true));
        used
    }

    #[test]
    fn nobody_takes_the_last_places_of_the_others() {
        for (capacity, disks, expect) in [
            (256, 1, vec![256]),
            (256, 4, vec![160, 32, 32, 32]),
            (3, 2, vec![2, 1]),
            (3, 3, vec![1, 1, 1]),
            (2, 3, vec![2, 0, 0]),
            (1, 2, vec![1, 0]),
        ] {
            assert_eq!(fill(capacity, disks), expect, "{capacity} places, {disks} disks");
        }
    }
}
