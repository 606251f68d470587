//! Random numbers: identities and numbers of streams.
//!
//! # Why
//! What a stream, a disk or a cache is called must never have been used before, by no other life and no other cache.
//!
//! # How it works
//! From the system's randomness, as the standard library has it; in simulated worlds from a seed, so that the same seed does
//! the same.
//!
//! # Limits
//! Nothing secret: nonces and keys come from `getrandom` (`crypt`).
//!
//! # Example
//! `random_u64()` names the stream in which a log goes on after a crash.

thread_local! {
    /// In simulated worlds: where the numbers come from.
    static SEEDED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// From now on this thread's numbers come from `seed`: for simulated worlds only, where the same seed is to do the same.
pub(crate) fn seed_random(seed: u64) {
    SEEDED.set(Some(seed));
}

/// The next state and number of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
/// 2014.
pub(crate) fn splitmix(state: u64) -> (u64, u64) {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (state, mixed ^ (mixed >> 31))
}

/// A number that nobody else has.
pub(crate) fn random_u128() -> u128 {
    (u128::from(random_u64()) << 64) | u128::from(random_u64())
}

/// From the randomness with which the standard library seeds its hash tables, which is the system's.
pub(crate) fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    if let Some(state) = SEEDED.get() {
        let next = splitmix(state);
        SEEDED.set(Some(next.0));
        return next.1;
    }
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
