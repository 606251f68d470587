//! What stands for a key in memory and on disk: 80 bits of its hash.
//!
//! # Why
//! Keys are byte strings of any form, and there may be a hundred million of them: the index cannot keep them. A block on
//! disk has no header either (8 KiB of data take 8 KiB), so nothing but the hash says whose it is.
//!
//! # How it works
//! XXH3-128 of the key, seeded with the cache's own secret, cut to 80 bits: 8 choose one of 256 index shards, 72 are kept
//! in the entry.
//!
//! # Limits
//! Two keys with the same 80 bits are one key. With 10^8 blocks cached, a look-up of a key that is not there finds
//! somebody else's block with a probability of 10^8 / 2^80 = 8e-17: once in four centuries at a million misses a second.
//! Whoever can choose keys freely and read the seed could make two such keys with work of 2^40.
//!
//! # Example
//! ```
//! use plimsoll_cache::KeyHash;
//! let a = KeyHash::of(b"table/7", 42);
//! assert_eq!(a, KeyHash::of(b"table/7", 42));
//! assert_ne!(a, KeyHash::of(b"table/8", 42));
//! ```

use twox_hash::XxHash3_128;

/// How many index shards there are: as many as the first byte of a hash has values.
pub(crate) const INDEX_SHARDS: usize = 256;

/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 10;

/// See the module's documentation. Ordered as its bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub(crate) [u8; HASH_BYTES]);

impl KeyHash {
    /// The hash of `key` in a cache whose secret is `seed`.
    #[must_use]
    pub fn of(key: &[u8], seed: u64) -> KeyHash {
        let wide = XxHash3_128::oneshot_with_seed(seed, key).to_le_bytes();
        let mut bytes = [0; HASH_BYTES];
        bytes.copy_from_slice(&wide[..HASH_BYTES]);
        KeyHash(bytes)
    }

    /// Which index shard has it.
    pub(crate) fn shard(&self) -> usize {
        usize::from(self.0[0])
    }

    /// The nine bytes that an entry keeps.
    pub(crate) fn rest(&self) -> [u8; HASH_BYTES - 1] {
        let [_, rest @ ..] = self.0;
        rest
    }

    /// Put together again from its shard and what the entry kept.
    pub(crate) fn from_parts(shard: u8, rest: [u8; HASH_BYTES - 1]) -> KeyHash {
        let mut bytes = [shard; HASH_BYTES];
        bytes[1..].copy_from_slice(&rest);
        KeyHash(bytes)
    }
}
