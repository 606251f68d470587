//! The faults of a simulated world, as seeded data, and counters of those that have occurred.
//!
//! # Why
//! A store must be tested on faulty disks. Faults are probabilities in a struct, drawn from the world's seed: the same
//! seed repeats the same faults, and counters tell the test how many the store should have noticed.
//!
//! # How it works
//! A fault is drawn when an operation completes on the device (those of a crash, at the crash). A probability of 0
//! draws no random number, so switching a fault off does not change the others. A disk may have its own faults instead
//! of the world's.
//!
//! # Limits
//! At most one fault of a kind per operation.
//!
//! # Example
//! ```
//! use plimsoll::backend::sim::{SimConfig, SimFaults, SimWorld};
//! let faults = SimFaults { lost_write_probability: 0.01, ..SimFaults::default() };
//! let world = SimWorld::new(&SimConfig { faults, ..SimConfig::default() })?;
//! assert_eq!(world.counters().lost_writes, 0);
//! # Ok::<(), plimsoll::backend::sim::SimConfigError>(())
//! ```

use std::collections::BTreeMap;

use plimsoll_sim::rng::Rng;

/// Faults and their probabilities, from 0 to 1. By default there are none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimFaults {
    /// A read ends with `EIO`; the next one at the same place may succeed.
    pub read_error_probability: f64,
    /// A write ends with `EIO`, and nothing was written.
    pub write_error_probability: f64,
    /// A write succeeds and leaves one of its sectors unreadable: reads of it end with `EIO` until it is written again.
    pub latent_error_probability: f64,
    /// A write is acknowledged but not written: reads return the earlier contents.
    pub lost_write_probability: f64,
    /// A write is acknowledged but written elsewhere: to another sector of this or another file of the same disk. If
    /// there is no other sector, the write is correct.
    pub misdirected_write_probability: f64,
    /// One bit of the data that a read returns is wrong. The disk still holds the right bit.
    pub bit_flip_probability: f64,
    /// A read or write of several sectors moves fewer, at least one, and reports that.
    pub short_transfer_probability: f64,
    /// At a crash, an unsynced write of several sectors is torn: some of them are written and some are not. The same
    /// holds for a write in flight when its disk fails or leaves.
    pub torn_write_probability: f64,
    /// At a crash, an unsynced change that is not torn is kept whole; otherwise it is dropped whole. The same holds for
    /// a change in flight when its disk leaves. The default is 0.5.
    pub unsynced_kept_probability: f64,
    /// Sum of the lengths of a disk's files at which it is full (bytes; holes count in full): operations that would
    /// grow a file further end with `ENOSPC`. `None` means never full.
    pub enospc_at_bytes: Option<u64>,
}

impl Default for SimFaults {
    fn default() -> SimFaults {
        SimFaults {
            read_error_probability: 0.0,
            write_error_probability: 0.0,
            latent_error_probability: 0.0,
            lost_write_probability: 0.0,
            misdirected_write_probability: 0.0,
            bit_flip_probability: 0.0,
            short_transfer_probability: 0.0,
            torn_write_probability: 0.0,
            unsynced_kept_probability: 0.5,
            enospc_at_bytes: None,
        }
    }
}

impl SimFaults {
    /// Returns the name of the first field that is not a probability.
    pub(super) fn first_bad(&self) -> Option<&'static str> {
        let all = [
            ("read_error_probability", self.read_error_probability),
            ("write_error_probability", self.write_error_probability),
            ("latent_error_probability", self.latent_error_probability),
            ("lost_write_probability", self.lost_write_probability),
            ("misdirected_write_probability", self.misdirected_write_probability),
            ("bit_flip_probability", self.bit_flip_probability),
            ("short_transfer_probability", self.short_transfer_probability),
            ("torn_write_probability", self.torn_write_probability),
            ("unsynced_kept_probability", self.unsynced_kept_probability),
        ];
        all.into_iter().find(|(_, p)| !(0.0..=1.0).contains(p)).map(|(name, _)| name)
    }
}

/// Faults since the world began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SimCounters {
    /// Reads that failed by [`SimFaults::read_error_probability`].
    pub read_errors: u64,
    /// Writes that failed by [`SimFaults::write_error_probability`].
    pub write_errors: u64,
    /// Sectors that became unreadable.
    pub latent_errors: u64,
    /// Reads that failed because of such a sector.
    pub latent_error_reads: u64,
    /// Writes acknowledged but never written.
    pub lost_writes: u64,
    /// Writes acknowledged but written elsewhere.
    pub misdirected_writes: u64,
    /// Reads returned with a wrong bit.
    pub bit_flips: u64,
    /// Transfers cut short.
    pub short_transfers: u64,
    /// Operations refused because the disk was full.
    pub full_disk_errors: u64,
    /// Crashes.
    pub crashes: u64,
    /// Unsynced changes that a crash kept whole. Here and in the next two fields: also changes in flight when their
    /// disk left.
    pub kept_at_crash: u64,
    /// Unsynced changes that a crash dropped.
    pub dropped_at_crash: u64,
    /// Unsynced writes that a crash tore.
    pub torn_at_crash: u64,
    /// Files whose creation a crash undid.
    pub files_lost_at_crash: u64,
}

/// The source of random faults.
pub(super) struct Dice {
    rng: Rng,
    /// Faults of the disks without their own.
    pub(super) faults: SimFaults,
    /// Own faults, by number of the disk.
    pub(super) disk_faults: BTreeMap<usize, SimFaults>,
    pub(super) counters: SimCounters,
}

impl Dice {
    pub(super) fn new(seed: u64, faults: SimFaults) -> Dice {
        Dice { rng: Rng::new(seed), faults, disk_faults: BTreeMap::new(), counters: SimCounters::default() }
    }

    pub(super) fn faults_of(&self, disk: usize) -> SimFaults {
        self.disk_faults.get(&disk).copied().unwrap_or(self.faults)
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        // 53 random bits give a number in 0..1.
        probability > 0.0 && ((self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64) < probability
    }

    /// Returns a uniform number in `0..bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }
}
