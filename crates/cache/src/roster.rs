//! The roster: the members of a cache, where their disks were found, and the numbers that new disks get.
//!
//! # Why
//! The records of a disk that is added, forgotten or found again change together. They are changed here.
//!
//! # How it works
//! A member is known by its identity (`guid`). A disk that was opened has a *source*: its path, and its *slot*, its
//! number in the topology. A source whose superblock could not be read at opening is kept too: it may be that of any
//! missing member. When a member is forgotten its slot is free for the next disk to be added, and with it the
//! slot's model: the new disk is likely to replace the old one. Sources that could not be read are forgotten with the
//! last member that has none.
//!
//! # Limits
//! Slab numbers are not used again, except those of a disk that never joined.
//!
//! # Example
//! A disk is added at slot 3 and cannot be labelled: slot and slab numbers go back. It was never a member.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::config::DiskSource;
use crate::entry::SlabId;
use crate::format::Member;
use crate::sync::lock;

/// The members of a cache.
pub(crate) struct Roster {
    /// All disks of the cache, absent ones included.
    members: Mutex<Vec<Member>>,
    /// Where disks were found, and their slots, by identity.
    sources: Mutex<HashMap<u128, (DiskSource, u16)>>,
    /// Sources that may be those of members without one.
    unread: Mutex<Vec<(DiskSource, u16)>>,
    /// Why absent disks left the cache, by identity.
    losses: Mutex<HashMap<u128, String>>,
    /// Slots that disks to be added may take, the next one last.
    free_slots: Mutex<Vec<u16>>,
    /// The first slab number not yet used.
    next_slab: AtomicU32,
    /// Time of the next search for absent disks.
    pub(crate) look_again_ns: AtomicU64,
}

impl Roster {
    /// Returns a roster without members, of a cache that has used all slab numbers before `next_slab`.
    pub(crate) fn new(next_slab: u32) -> Roster {
        Roster {
            members: Mutex::default(),
            sources: Mutex::default(),
            unread: Mutex::default(),
            losses: Mutex::default(),
            free_slots: Mutex::default(),
            next_slab: AtomicU32::new(next_slab),
            look_again_ns: AtomicU64::new(0),
        }
    }

    /// Returns a copy of the members.
    pub(crate) fn members(&self) -> Vec<Member> {
        lock(&self.members).clone()
    }

    pub(crate) fn set_members(&self, members: Vec<Member>) {
        *lock(&self.members) = members;
    }

    pub(crate) fn add(&self, member: Member) {
        lock(&self.members).push(member);
    }

    /// Returns the member with this identity.
    pub(crate) fn find(&self, guid: u128) -> Option<Member> {
        lock(&self.members).iter().find(|member| member.guid == guid).copied()
    }

    /// Forgets a member, and frees its slot. Returns whether it was one.
    pub(crate) fn forget(&self, guid: u128) -> bool {
        lock(&self.losses).remove(&guid);
        if let Some((_, slot)) = lock(&self.sources).remove(&guid) {
            self.return_slot(slot);
        }
        let (was_one, is_any_unknown) = {
            let mut members = lock(&self.members);
            let before = members.len();
            members.retain(|member| member.guid != guid);
            let sources = lock(&self.sources);
            (members.len() < before, members.iter().any(|member| !sources.contains_key(&member.guid)))
        };
        if !is_any_unknown {
            // No member is left whose disk they may be.
            let unread = std::mem::take(&mut *lock(&self.unread));
            unread.into_iter().for_each(|(_, slot)| self.return_slot(slot));
        }
        was_one
    }

    /// Gives up a disk that was to be added at `slot`.
    pub(crate) fn give_up(&self, guid: u128, slot: u16) {
        lock(&self.sources).remove(&guid);
        self.return_slot(slot);
    }

    pub(crate) fn set_source(&self, guid: u128, source: DiskSource, slot: u16) {
        lock(&self.unread).retain(|(_, unread)| *unread != slot);
        lock(&self.sources).insert(guid, (source, slot));
    }

    /// Keeps the sources whose superblocks could not be read.
    pub(crate) fn set_unread(&self, sources: Vec<(DiskSource, u16)>) {
        *lock(&self.unread) = sources;
    }

    pub(crate) fn unread(&self) -> Vec<(DiskSource, u16)> {
        lock(&self.unread).clone()
    }

    pub(crate) fn source(&self, guid: u128) -> Option<(DiskSource, u16)> {
        lock(&self.sources).get(&guid).cloned()
    }

    /// Keeps the reason why a disk left the cache, as long as it is absent.
    pub(crate) fn note_loss(&self, guid: u128, why: String) {
        lock(&self.losses).insert(guid, why);
    }

    /// Returns why a disk left the cache last.
    pub(crate) fn loss(&self, guid: u128) -> Option<String> {
        lock(&self.losses).get(&guid).cloned()
    }

    /// Lets disks that are added have these slots, the first one first.
    pub(crate) fn set_free_slots(&self, slots: std::ops::Range<u16>) {
        *lock(&self.free_slots) = slots.rev().collect();
    }

    pub(crate) fn take_slot(&self) -> Option<u16> {
        lock(&self.free_slots).pop()
    }

    fn return_slot(&self, slot: u16) {
        lock(&self.free_slots).push(slot);
    }

    pub(crate) fn next_slab(&self) -> u32 {
        self.next_slab.load(Relaxed)
    }

    /// Reserves `count` slab numbers. Returns the first, or `None` if fewer are left.
    pub(crate) fn take_slabs(&self, count: u32) -> Option<SlabId> {
        let end = |first: u32| first.checked_add(count).filter(|end| *end <= SlabId::END);
        self.next_slab.fetch_update(Relaxed, Relaxed, end).ok().map(SlabId)
    }

    /// Returns reserved slab numbers that no superblock of a member names, if they are still the last ones.
    pub(crate) fn return_slabs(&self, first: SlabId, count: u32) {
        let _ = self.next_slab.compare_exchange(first.0 + count, first.0, Relaxed, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::MemberState;

    #[test]
    fn what_is_forgotten_leaves_its_slot_to_the_next() {
        let roster = Roster::new(0);
        roster.set_free_slots(2..4);
        let slot = roster.take_slot().unwrap();
        assert_eq!(slot, 2);
        roster.add(Member { disk: 7, guid: 70, state: MemberState::Active });
        roster.set_source(70, DiskSource::default(), slot);
        assert!(roster.forget(70) && !roster.forget(70));
        assert!(roster.find(70).is_none() && roster.source(70).is_none());
        assert_eq!([0; 3].map(|_| roster.take_slot()), [Some(2), Some(3), None]);
    }

    /// The sources were kept, and read again whenever another disk was missing; their slots were lost.
    #[test]
    fn what_could_not_be_read_is_forgotten_with_the_last_member_that_it_may_be() {
        let roster = Roster::new(0);
        roster.set_free_slots(9..10);
        for (disk, guid) in [(0, 10), (1, 20), (2, 30)] {
            roster.add(Member { disk, guid, state: MemberState::Active });
        }
        roster.set_source(10, DiskSource::default(), 0);
        roster.set_unread(vec![(DiskSource::default(), 1), (DiskSource::default(), 2)]);
        assert!(roster.forget(20));
        assert_eq!((roster.unread().len(), roster.take_slot()), (2, Some(9)), "either may be that of the other one");
        assert!(roster.forget(30));
        assert!(roster.unread().is_empty());
        let mut slots = [0; 3].map(|_| roster.take_slot());
        slots.sort_unstable();
        assert_eq!(slots, [None, Some(1), Some(2)]);
    }

    #[test]
    fn slab_numbers_of_a_disk_that_did_not_join_are_used_again() {
        let roster = Roster::new(10);
        let first = roster.take_slabs(100).unwrap();
        roster.return_slabs(first, 100);
        assert_eq!((first, roster.next_slab()), (SlabId(10), 10));

        let (first, second) = (roster.take_slabs(5).unwrap(), roster.take_slabs(5).unwrap());
        roster.return_slabs(first, 5);
        assert_eq!((second, roster.next_slab()), (SlabId(15), 20), "others lie behind them");
        assert_eq!(roster.take_slabs(u32::MAX), None);
    }
}
