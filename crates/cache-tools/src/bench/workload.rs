//! The workload of a cache benchmark: keys, and values that can be verified.
//!
//! # Why
//! The worst error of a cache is a hit with the bytes of another block, so every value must follow from its key. No
//! compression or deduplication may make the disks look faster than they are.
//!
//! # How it works
//! A key is a number below [`Keys::count`], or a new one for each insert. Its bytes are the seed and the number. A
//! value is the output of a random generator seeded with seed, number and length.
//!
//! # Limits
//! Values are incompressible, but not cryptographically random.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::bench::workload::{fill_value, is_value};
//! let mut value = vec![0; 100];
//! fill_value(1, 7, &mut value);
//! assert!(is_value(1, 7, &value));
//! assert!(!is_value(1, 8, &value) && !is_value(2, 7, &value) && !is_value(1, 7, &value[..99]));
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use plimsoll_measure::load::{Access, AccessError, AccessPicker};
use plimsoll_sim::rng::Rng;

pub const KEY_BYTES: usize = 16;

pub(crate) fn key_bytes(seed: u64, number: u64) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    let (first, second) = bytes.split_at_mut(8);
    first.copy_from_slice(&seed.to_le_bytes());
    second.copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Returns the generator of a value. Multiplication by odd constants keeps (seed, number, length) apart; `Rng` mixes
/// them.
fn generator(seed: u64, number: u64, len: usize) -> Rng {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Rng::new(seed.rotate_left(32) ^ number ^ (len as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
}

pub fn fill_value(seed: u64, number: u64, value: &mut [u8]) {
    generator(seed, number, value.len()).fill(value);
}

/// Returns whether `value` is the value of that key.
pub fn is_value(seed: u64, number: u64, value: &[u8]) -> bool {
    let mut rng = generator(seed, number, value.len());
    let mut expected = [0; 512];
    value.chunks(512).all(|part| {
        let (expected, _) = expected.split_at_mut(part.len());
        rng.fill(expected);
        expected == part
    })
}

#[derive(Debug)]
pub struct Keys {
    count: Option<u64>,
    picker: AccessPicker,
    next: AtomicU64,
}

impl Keys {
    /// Returns keys below `count` (if `None`, each key is new), drawn by Zipf's law with `zipf` as theta, or else
    /// uniformly.
    pub fn new(count: Option<u64>, zipf: Option<f64>, seed: u64) -> Result<Keys, AccessError> {
        let access = zipf.map_or(Access::Uniform, |theta| Access::Zipf { theta });
        let picker = AccessPicker::new(&access, count.unwrap_or(1), seed)?;
        Ok(Keys { count, picker, next: AtomicU64::new(0) })
    }

    /// Returns the number of keys, or `None` if it is unlimited.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    pub(super) fn source(&self) -> KeySource<'_> {
        KeySource { keys: self, picker: self.picker.clone() }
    }
}

pub(super) struct KeySource<'a> {
    keys: &'a Keys,
    picker: AccessPicker,
}

impl KeySource<'_> {
    pub(super) fn next(&mut self, rng: &mut Rng) -> u64 {
        match self.keys.count {
            Some(_) => self.picker.next(rng),
            None => self.keys.next.fetch_add(1, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_wrong_byte_is_seen_wherever_it_is() {
        for len in [1, 7, 8, 511, 512, 513, 4096, 8191] {
            let mut value = vec![0; len];
            fill_value(3, 9, &mut value);
            assert!(is_value(3, 9, &value), "{len}");
            for at in [0, len / 2, len - 1] {
                value[at] ^= 1;
                assert!(!is_value(3, 9, &value), "{len} {at}");
                value[at] ^= 1;
            }
        }
    }

    #[test]
    fn values_do_not_repeat_and_do_not_compress() {
        let mut seen = HashSet::new();
        for number in 0..1000 {
            let mut value = vec![0; 4096];
            fill_value(1, number, &mut value);
            assert!(lz4_flex::block::compress(&value).len() >= 4096);
            assert!(value.chunks(512).all(|part| seen.insert(part.to_vec())));
        }
    }

    #[test]
    fn keys_are_own_ones_or_drawn() {
        let mut rng = Rng::new(1);
        let own = Keys::new(None, None, 1).unwrap();
        let (mut a, mut b) = (own.source(), own.source());
        assert_eq!([a.next(&mut rng), b.next(&mut rng), a.next(&mut rng)], [0, 1, 2]);
        let drawn = Keys::new(Some(10), Some(0.99), 1).unwrap();
        let mut source = drawn.source();
        assert!((0..1000).all(|_| source.next(&mut rng) < 10));
        assert!(Keys::new(Some(10), Some(-1.0), 1).is_err());
        assert_ne!(key_bytes(1, 2), key_bytes(2, 1));
    }
}
