//! Whole caches on simulated disks, with faults, crashes and disks that come and go, against a map that may forget:
//! never a wrong byte, never a value from before the last checkpoint, and, if only the power failed, never a lost
//! block.
//!
//! A few seeds run always; `PLIMSOLL_SEEDS=1000..2000` runs others.

mod forgetful;
mod members;
mod run;

use plimsoll::backend::sim::SimFaults;
use run::{Family, run, run_seeds};

/// Crashes tear what was not synced, keep it, or drop it.
const CRASHES: SimFaults = SimFaults {
    read_error_probability: 0.0,
    write_error_probability: 0.0,
    latent_error_probability: 0.0,
    lost_write_probability: 0.0,
    misdirected_write_probability: 0.0,
    bit_flip_probability: 0.0,
    short_transfer_probability: 0.0,
    torn_write_probability: 0.3,
    unsynced_kept_probability: 0.5,
    enospc_at_bytes: None,
};

#[test]
fn crashes_lose_nothing_that_was_checkpointed() {
    let faults = SimFaults { short_transfer_probability: 0.01, ..CRASHES };
    run_seeds(Family { faults, is_strict: true, ..Family::default() }, 6);
}

#[test]
fn full_caches_evict_and_never_damage() {
    run_seeds(Family { faults: CRASHES, is_crowded: true, ..Family::default() }, 3);
}

#[test]
fn lost_and_misdirected_writes_are_misses() {
    let faults = SimFaults { lost_write_probability: 0.003, misdirected_write_probability: 0.003, ..CRASHES };
    run_seeds(Family { faults, may_corrupt: true, ..Family::default() }, 6);
}

#[test]
fn errors_and_flipped_bits_are_misses() {
    let faults = SimFaults {
        read_error_probability: 0.005,
        write_error_probability: 0.003,
        latent_error_probability: 0.003,
        bit_flip_probability: 0.005,
        short_transfer_probability: 0.01,
        ..CRASHES
    };
    run_seeds(Family { faults, may_corrupt: true, ..Family::default() }, 6);
}

#[test]
fn disks_come_and_go() {
    run_seeds(Family { faults: CRASHES, has_states: true, ..Family::default() }, 6);
}

/// Returns the family of disks that hang.
fn hangs() -> Family {
    Family { faults: CRASHES, has_states: true, has_hangs: true, ..Family::default() }
}

#[test]
fn disks_hang() {
    run_seeds(hangs(), 4);
}

#[test]
fn disks_hang_with_their_writes() {
    let family = Family { faults: CRASHES, has_states: true, has_write_hangs: true, ..Family::default() };
    run_seeds(family, 4);
}

/// A disk hung, and a checkpoint was made without it. Its log, with the commit, landed in the crash; its blocks, which
/// were never flushed, did not. The next opening took it for current, and each of those blocks was found damaged.
#[test]
fn a_disk_that_missed_a_checkpoint_has_none_of_it() {
    run(hangs(), 200_072);
}

/// The operator adds, expands and removes disks under load, and power failures interrupt it.
#[test]
fn disks_are_added_and_removed() {
    let faults = SimFaults { short_transfer_probability: 0.01, ..CRASHES };
    run_seeds(Family { faults, is_strict: true, has_changes: true, ..Family::default() }, 6);
}

/// Disks that are absent are forgotten, too, and added anew when they return.
#[test]
fn disks_are_added_and_removed_while_others_come_and_go() {
    run_seeds(Family { faults: CRASHES, has_states: true, has_changes: true, ..Family::default() }, 6);
}

/// Returns the family of full caches with disks that come and go.
fn all() -> Family {
    let faults = SimFaults { bit_flip_probability: 0.001, lost_write_probability: 0.0005, ..CRASHES };
    Family { faults, has_states: true, is_crowded: true, may_corrupt: true, ..Family::default() }
}

#[test]
fn full_caches_with_disks_that_come_and_go() {
    run_seeds(all(), 2);
}

/// The power failed when one disk alone had the superblock of a checkpoint, and that disk was absent at the next
/// opening. The others made checkpoints without it, with lower numbers by chance. When it returned, its number was the
/// highest: the others were emptied, and every value left was an older one.
#[test]
fn a_disk_with_the_highest_number_is_not_the_newest() {
    run(all(), 17_954_762_660_013);
}
