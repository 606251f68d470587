//! The division of the backend's places among disks, so that a hanging disk leaves places to the others.
//!
//! # Why
//! A backend takes a limited number of operations for all disks together. A disk that hangs never returns its own.
//!
//! # How it works
//! Half of the places are divided: each disk has a reserved part. Any disk may use the other half. So a single busy
//! disk can use more than half of all places, and a hanging disk never holds the reserved places of the others.
//!
//! # Limits
//! With more disks than half the places, each disk has one reserved place; with more disks than places, none has.
//!
//! # Example
//! 256 places, 4 disks: 32 are kept for each. Disk 0 hangs with 256 - 3 x 32 = 160 operations; the others have 96.

/// The places of a backend, and the disks that use them.
pub(super) struct Places {
    capacity: usize,
    /// Places kept for each disk.
    own: usize,
    /// By disk, operations in the backend.
    used: Vec<usize>,
    /// Kept places of all disks that are not in use.
    kept: usize,
}

impl Places {
    /// Divides `capacity` places among the disks that are `mine`. A single disk needs no division.
    pub(super) fn new(capacity: usize, mine: &[bool]) -> Places {
        let disks = mine.iter().filter(|is_mine| **is_mine).count().max(1);
        let own = match capacity / (2 * disks) {
            _ if disks == 1 || disks > capacity => 0,
            part => part.max(1),
        };
        Places { capacity, own, used: vec![0; mine.len()], kept: own * disks }
    }

    /// Returns whether `disk` may submit an operation, with `in_flight` in the backend.
    pub(super) fn has_room(&self, disk: usize, in_flight: usize) -> bool {
        let kept_for_others = self.kept - self.own.saturating_sub(self.used[disk]);
        in_flight + kept_for_others < self.capacity
    }

    /// Returns whether `disk` has no operation in the backend although there is room: no completion of its operations
    /// will make it retry.
    pub(super) fn is_left_out(&self, disk: usize, in_flight: usize) -> bool {
        self.used[disk] == 0 && self.has_room(disk, in_flight)
    }

    /// Counts an operation of `disk` that the backend has taken.
    pub(super) fn take(&mut self, disk: usize) {
        self.kept -= usize::from(self.used[disk] < self.own);
        self.used[disk] += 1;
    }

    /// Counts an operation of `disk` that has completed.
    pub(super) fn give_back(&mut self, disk: usize) {
        debug_assert!(self.used[disk] > 0, "disk {disk} has no operation in the backend");
        self.used[disk] = self.used[disk].saturating_sub(1);
        self.kept += usize::from(self.used[disk] < self.own);
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    /// Fills the backend by disk 0, then by each of the others. Returns the operations of each disk.
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
