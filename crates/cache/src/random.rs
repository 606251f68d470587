//! Random numbers: identities and numbers of streams.
//!
//! # Why
//! The name of a stream, a disk or a cache must never have been used before, by an earlier run or by another cache.
//!
//! # How it works
//! The numbers come from the system's randomness, as the standard library provides it. In simulated worlds they come
//! from a seed, so that the same seed gives the same run.
//!
//! # Limits
//! Nothing secret: nonces and keys come from `getrandom` (see `crypt`).
//!
//! # Example
//! `random_u64()` names the stream in which a log continues after a crash.

thread_local! {
    /// State of the generator in simulated worlds.
    static SEEDED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Draws this thread's numbers from `seed` from now on: for simulated worlds only, so that the same seed gives the
/// same run.
pub(crate) fn seed_random(seed: u64) {
    SEEDED.set(Some(seed));
}

/// Returns the next state and number of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014.
pub(crate) fn splitmix(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, mixed ^ (mixed >> 31))
}

/// Returns a number that is unique, with overwhelming probability.
pub(crate) fn random_u128() -> u128 {
    (u128::from(random_u64()) << 64) | u128::from(random_u64())
}

/// Returns a number from the system's randomness, which seeds the standard library's hash tables.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    if let Some(state) = SEEDED.get() {
        let next = splitmix(state);
        SEEDED.set(Some(next.0));
        return next.1;
    }
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
