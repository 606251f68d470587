//! The written data, of a chosen compressibility.
//!
//! **Why.** Disks and file systems that compress or deduplicate are as fast as the data lets them be. A benchmark that
//! writes zeros, or the same buffer repeatedly, measures the compressor.
//!
//! **How.** Each 512-byte sector begins with random bytes and ends with zeros, the part that a compressor can save.
//! Random bytes come from a pool of 16 KiB, combined (exclusive or) in each sector with a fresh random word: to
//! anything that looks for repetition this is as good as fresh random numbers, at the speed of memory. At least 8 bytes
//! of a sector are random, so no two sectors are equal, whatever the compressibility.
//!
//! A buffer that is written again keeps its data except for single words that are new for each write ([`renew`]): the
//! first of each sector, or of each 4 KiB in longer requests without a compressibility. A disk that looks for equal
//! blocks finds none. This costs 7 ns for 4 KiB and 90 ns for 128 KiB; renewing each sector of the latter would cost
//! 350 ns, more than all else that the generator does for a request. Stamps do the same for jobs that verify.
//!
//! The data between those words repeats, and a compressor with enough memory finds it. So the writes of a job cycle
//! through at least 1 MiB of buffers ([`spares`]), however few are in flight.
//!
//! Reads of a job that also writes have buffers of their own: what was read is never written again.
//!
//! **Limits.** A compressor that remembers more than 1 MiB (or the bytes in flight, if more) of a job's writes finds
//! repetitions; jobs that verify, whose stamps hide nothing from a compressor, have only the buffers in flight. A
//! compressor needs a few bytes to encode the zeros. lz4 and deflate on blocks of 4 KiB save the chosen part within 5
//! percentage points. The data is not random enough for secrets.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::{Content, ContentMaker};
//! let mut maker = ContentMaker::new(Content { compressible_pct: 75 }, 1);
//! let mut buffer = vec![0xff; 4096];
//! maker.fill(&mut buffer);
//! let zeros = buffer.iter().filter(|&&byte| byte == 0).count();
//! assert!((3072..3100).contains(&zeros));
//! ```

use plimsoll_sim::rng::Rng;

use super::Content;

/// Length of a sector, the unit in which the compressibility holds.
const SECTOR_BYTES: usize = 512;
const WORD_BYTES: usize = 8;
const SECTOR_WORDS: usize = SECTOR_BYTES / WORD_BYTES;
/// Step between the words of [`renew`]: 2^64 divided by the golden ratio, so neighbours have few bytes in common;
/// odd, so the sequence has every word.
const WORD_STEP: u64 = 0x9e37_79b9_7f4a_7c15;
/// Length of a block: disks and file systems look for equal blocks in units of this or more.
const BLOCK_BYTES: usize = 4096;
/// Fewest bytes that a job writes before a buffer repeats. 1 MiB: the window of zstd's level 3 is 2 MiB, that of lz4
/// 64 KiB, and the largest unit that file systems compress by default 128 KiB.
const DISTINCT_MIN_BYTES: u64 = 1 << 20;
/// Words of the pool: 16 KiB, a part of every first-level cache.
const POOL_WORDS: usize = 2048;

#[derive(Clone, Debug)]
pub struct ContentMaker {
    rng: Rng,
    pool: Box<[u64]>,
    /// Index in the pool of the next sector's words: a multiple of a sector.
    at: usize,
    /// Random words of a sector, at least 1.
    random_words: usize,
}

impl ContentMaker {
    /// Returns a maker. Different seeds give different data. Above 100 % counts as 100 %.
    pub fn new(content: Content, seed: u64) -> ContentMaker {
        let mut rng = Rng::new(seed);
        let pool = (0..POOL_WORDS).map(|_| rng.next_u64()).collect();
        let kept_pct = 100 - usize::from(content.compressible_pct.min(100));
        let random_words = (SECTOR_WORDS * kept_pct + 50) / 100;
        ContentMaker { rng, pool, at: 0, random_words: random_words.max(1) }
    }

    /// Fills all of `buffer`, with different data each time.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for sector in buffer.chunks_mut(SECTOR_BYTES) {
            let key = self.rng.next_u64();
            let source = self.pool.get(self.at..self.at + SECTOR_WORDS).unwrap_or_default();
            self.at = (self.at + SECTOR_WORDS) % POOL_WORDS;
            let (random, zeros) = sector.split_at_mut((self.random_words * WORD_BYTES).min(sector.len()));
            let (words, rest) = random.as_chunks_mut::<WORD_BYTES>();
            for (word, source) in words.iter_mut().zip(source) {
                *word = (source ^ key).to_le_bytes();
            }
            rest.iter_mut().zip(key.to_le_bytes()).for_each(|(byte, source)| *byte = source);
            zeros.fill(0);
        }
    }
}

/// Returns the distance of the words that [`renew`] changes in requests of at most `longest_bytes`.
pub(super) fn renewal_bytes(content: Content, longest_bytes: u32) -> usize {
    if content.compressible_pct > 0 || longest_bytes as usize <= BLOCK_BYTES { SECTOR_BYTES } else { BLOCK_BYTES }
}

/// Returns the buffers of `request_bytes` that a job needs besides the `buffers` that can be in flight, so that at
/// least [`DISTINCT_MIN_BYTES`] are written before one repeats. A request shorter than a sector counts as one: its
/// buffer takes as much memory as a longer one's, and a million of them took 7 GB.
pub(super) fn spares(request_bytes: u32, buffers: u64) -> u64 {
    DISTINCT_MIN_BYTES.div_ceil(u64::from(request_bytes).max(SECTOR_BYTES as u64)).saturating_sub(buffers)
}

/// Makes data that was written before differ from everything written so far: the first word of each `every_bytes` (at
/// least 1) becomes one of a sequence that repeats after 2^64 words. Bytes after the last whole word stay unchanged.
pub(super) fn renew(buffer: &mut [u8], every_bytes: usize, next_word: &mut u64) {
    for part in buffer.chunks_mut(every_bytes.max(1)) {
        if let Some(word) = part.first_chunk_mut() {
            *word = next_word.to_le_bytes();
        }
        *next_word = next_word.wrapping_add(WORD_STEP);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::compressibility::{deflate_bytes, lz4_bytes};

    fn filled(compressible_pct: u8, len_bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0xaa; len_bytes];
        ContentMaker::new(Content { compressible_pct }, 3).fill(&mut buffer);
        buffer
    }

    #[test]
    fn compressors_save_what_was_asked_for() {
        for compressible_pct in (0..=100).step_by(5) {
            let data = filled(compressible_pct, 64 * BLOCK_BYTES);
            for (name, compress) in [("lz4", lz4_bytes as fn(&[u8]) -> usize), ("deflate", deflate_bytes)] {
                for block_bytes in [BLOCK_BYTES, 64 << 10] {
                    let left: usize = data.chunks(block_bytes).map(|block| compress(block).min(block.len())).sum();
                    let saved_pct = 100.0 - left as f64 * 100.0 / data.len() as f64;
                    let error = saved_pct - f64::from(compressible_pct);
                    assert!(error.abs() <= 5.0, "{name} in {block_bytes}: {saved_pct} of {compressible_pct} %");
                }
            }
        }
    }

    #[test]
    fn no_two_sectors_are_the_same() {
        for compressible_pct in [0, 50, 100, 255] {
            let mut maker = ContentMaker::new(Content { compressible_pct }, 9);
            let mut seen = HashSet::new();
            for _ in 0..64 {
                let mut buffer = vec![0; 64 << 10];
                maker.fill(&mut buffer);
                assert!(buffer.chunks(SECTOR_BYTES).all(|sector| seen.insert(sector.to_vec())), "{compressible_pct}");
            }
        }
    }

    #[test]
    fn what_is_written_again_differs_and_compresses_alike() {
        for compressible_pct in [0, 50, 100] {
            let mut buffer = filled(compressible_pct, BLOCK_BYTES);
            let (before, mut word, mut seen) = (lz4_bytes(&buffer) as i64, 7, HashSet::new());
            for _ in 0..64 {
                assert!(buffer.chunks(SECTOR_BYTES).all(|sector| seen.insert(sector.to_vec())), "{compressible_pct}");
                renew(&mut buffer, SECTOR_BYTES, &mut word);
            }
            assert!((lz4_bytes(&buffer) as i64 - before).abs() <= 64, "{compressible_pct}");
        }
        for len_bytes in [0, 7, 8, 513] {
            let mut buffer = vec![0; len_bytes];
            renew(&mut buffer, SECTOR_BYTES, &mut 1);
            assert_eq!(buffer.iter().any(|byte| *byte != 0), len_bytes >= 8);
        }
    }

    /// Returns the consecutive writes of a job with `buffers` requests of `request_bytes` in flight.
    fn stream(request_bytes: u32, buffers: u64, len_bytes: usize) -> Vec<u8> {
        let count = buffers + spares(request_bytes, buffers);
        let mut ring = filled(0, count as usize * request_bytes as usize);
        let (mut stream, mut word) = (Vec::new(), 7);
        while stream.len() < len_bytes {
            for buffer in ring.chunks_mut(request_bytes as usize) {
                renew(buffer, renewal_bytes(Content::default(), request_bytes), &mut word);
                stream.extend_from_slice(buffer);
            }
        }
        stream
    }

    #[test]
    fn a_stream_of_writes_has_no_equal_blocks_and_does_not_compress() {
        for (request_bytes, buffers) in [(512, 1), (4096, 1), (4096, 64), (16 << 10, 3), (128 << 10, 2), (1 << 20, 1)] {
            let stream = stream(request_bytes, buffers, 3 << 20);
            let mut seen = HashSet::new();
            assert!(stream.chunks(BLOCK_BYTES).all(|block| seen.insert(block)), "{request_bytes} x {buffers}");
            // A megabyte from any beginning: half of it could be of the next cycle.
            for from in [0, 700 << 10] {
                for compress in [lz4_bytes as fn(&[u8]) -> usize, deflate_bytes] {
                    let left = compress(&stream[from..from + (1 << 20)]);
                    assert!(left >= 1 << 20, "{request_bytes} x {buffers}: {left} of 1 MiB");
                }
            }
        }
        assert_eq!((spares(4096, 1), spares(4096, 256), spares(1 << 20, 1)), (255, 0, 0));
        assert_eq!([0, 1, 511, 512, 513].map(|request_bytes| spares(request_bytes, 4)), [2044, 2044, 2044, 2044, 2041]);
    }

    #[test]
    fn every_length_is_filled_and_the_seed_decides() {
        for len_bytes in [0, 1, 7, 8, 9, 511, 512, 513, 5000] {
            let (mut a, mut b) = (vec![0xaa; len_bytes], vec![0x55; len_bytes]);
            ContentMaker::new(Content { compressible_pct: 40 }, 1).fill(&mut a);
            ContentMaker::new(Content { compressible_pct: 40 }, 1).fill(&mut b);
            assert_eq!(a, b);
        }
        let other = |seed| {
            let mut buffer = vec![0; 512];
            ContentMaker::new(Content::default(), seed).fill(&mut buffer);
            buffer
        };
        assert_ne!(other(1), other(2));
    }
}
