//! The form of a key in memory and on disk: 80 bits of its hash.
//!
//! # Why
//! Keys are byte strings of any form, perhaps a hundred million of them: the index cannot keep them. A block on disk
//! has no header either (8 KiB of data take 8 KiB), so only the hash says which key it belongs to.
//!
//! # How it works
//! XXH3-128 of the key, seeded with the cache's own secret, cut to 80 bits: 8 choose one of 256 index shards, 72 are
//! kept in the entry.
//!
//! # Limits
//! Two keys with the same 80 bits are one key. With 10^8 blocks cached, a look-up of an absent key finds another key's
//! block with a probability of 10^8 / 2^80 = 8e-17: once in four centuries at a million misses a second. An attacker
//! who chooses keys freely and reads the seed can make two such keys with 2^40 operations.
//!
//! # Example
//! ```
//! use plimsoll_cache::KeyHash;
//! let a = KeyHash::of(b"table/7", 42);
//! assert_eq!(a, KeyHash::of(b"table/7", 42));
//! assert_ne!(a, KeyHash::of(b"table/8", 42));
//! ```

use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_128;

/// Index shards: one for each value of a hash's first byte.
pub(crate) const INDEX_SHARDS: usize = 256;

/// Length of a hash, in bytes.
pub(crate) const HASH_BYTES: usize = 10;

/// 80 bits of a key's hash. Ordered as its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(pub(crate) [u8; HASH_BYTES]);

impl Hash for KeyHash {
    /// Hashes 64 bits, which differ as well as all do.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [_, _, bytes @ ..] = self.0;
        state.write_u64(u64::from_le_bytes(bytes));
    }
}

impl KeyHash {
    /// Returns the hash of `key` in a cache whose secret is `seed`.
    #[must_use]
    pub fn of(key: &[u8], seed: u64) -> KeyHash {
        let wide = XxHash3_128::oneshot_with_seed(seed, key).to_le_bytes();
        let mut bytes = [0; HASH_BYTES];
        bytes.copy_from_slice(&wide[..HASH_BYTES]);
        KeyHash(bytes)
    }

    /// Returns the index shard of the key.
    pub(crate) fn shard(&self) -> usize {
        usize::from(self.0[0])
    }

    /// Returns the nine bytes that an entry keeps.
    pub(crate) fn rest(&self) -> [u8; HASH_BYTES - 1] {
        let [_, rest @ ..] = self.0;
        rest
    }

    /// Joins the index shard and the bytes of an entry to a hash again.
    pub(crate) fn from_parts(shard: u8, rest: [u8; HASH_BYTES - 1]) -> KeyHash {
        let mut bytes = [shard; HASH_BYTES];
        bytes[1..].copy_from_slice(&rest);
        KeyHash(bytes)
    }
}
