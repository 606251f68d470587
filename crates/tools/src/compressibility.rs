//! How compressible the blocks of a file or device are.
//!
//! # Why
//! A cache or disk that compresses is planned with an assumption ("8 KiB become 2 to 7"). When the data is encrypted or
//! compressed already, nothing is saved. This looks at samples of the real data and says which it is.
//!
//! # How it works
//! [`examine`] reads blocks from evenly spread parts of the file, a random block in each part, and compresses each by
//! itself with lz4 and with deflate (level 3), one that does not shrink counting as stored as it is. Beside the sizes
//! it counts zero blocks, blocks equal to an earlier sample, and the entropy of the bytes (8 bits a byte: encrypted,
//! compressed, or random).
//!
//! Deflate stands in for zstd, whose encoder needs a C compiler to build. On blocks of 4 to 64 KiB of text, tables and
//! programs it saved within 5 percentage points of zstd's level 1.
//!
//! # Limits
//! Reads go through the page cache and never write. A block at the end that is not whole is left out. Equal blocks are
//! found by 64-bit hashes among the samples only: with few samples, most duplicates of a large device are missed.
//!
//! # Example
//! ```
//! use plimsoll_tools::compressibility::examine;
//! let path = std::env::temp_dir().join(format!("plimsoll-examine-{}", std::process::id()));
//! std::fs::write(&path, "all work and no play makes a dull disk. ".repeat(1000))?;
//! let report = examine(&path, 4096, 100, 1)?;
//! std::fs::remove_file(&path)?;
//! assert_eq!(report.samples, 9);
//! assert!(report.lz4.saved_pct > 90.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use plimsoll_sim::rng::Rng;
use serde::Serialize;

use crate::page::Table;
use crate::units::format_bytes_binary;

/// The smallest block, in bytes.
pub const BLOCK_MIN_BYTES: u32 = 512;
/// The largest block, in bytes: 16 MiB.
pub const BLOCK_MAX_BYTES: u32 = 16 << 20;
/// The most samples.
pub const SAMPLES_MAX: u32 = 1_000_000;
/// Bins of the histogram: a tenth of the block each, the last one for blocks that did not shrink.
pub const BINS: usize = 11;
/// Below this a compressor is not worth its time.
const HARDLY_PCT: f64 = 3.0;
/// Of deflate. See the module's documentation.
const DEFLATE_LEVEL: u8 = 3;

/// What the samples showed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The file or device.
    pub path: String,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Length of a block in bytes.
    pub block_bytes: u32,
    /// Blocks that were read; all blocks of the file where it has no more than were asked for.
    pub samples: u32,
    /// Those that hold nothing but zeros.
    pub zero_blocks: u32,
    /// Those that are equal to an earlier sample, zero blocks aside.
    pub duplicate_blocks: u32,
    /// Entropy of the bytes of all samples together, each for itself, in bits: 0 to 8.
    pub entropy_bits_per_byte: f64,
    /// What lz4 makes of them.
    pub lz4: Compressed,
    /// What deflate makes of them: about what zstd's level 1 does.
    pub deflate: Compressed,
}

/// What a compressor makes of the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compressed {
    /// Bytes before, divided by bytes after: at least 1.
    pub mean_ratio: f64,
    /// Bytes saved, in per cent.
    pub saved_pct: f64,
    /// Size of the smallest block in bytes.
    pub smallest_bytes: u32,
    /// Half of the blocks are at most as large, in bytes.
    pub median_bytes: u32,
    /// Size of the largest block in bytes: at most that of a block.
    pub largest_bytes: u32,
    /// Blocks by compressed size: bin n those of n to n + 1 tenths of a block, the last one those that did not shrink.
    pub histogram: [u32; BINS],
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExamineError {
    /// A block length outside its range.
    #[error("blocks of {0} bytes cannot be examined: choose {BLOCK_MIN_BYTES} to {BLOCK_MAX_BYTES}")]
    Block(u32),
    /// A number of samples outside its range.
    #[error("{0} samples cannot be taken: choose 1 to {SAMPLES_MAX}")]
    Samples(u32),
    /// Less than a block.
    #[error("{path} has {file_bytes} bytes, less than one block of {block_bytes}: choose a smaller block")]
    TooShort {
        /// The file.
        path: String,
        /// Its length.
        file_bytes: u64,
        /// Length of a block.
        block_bytes: u32,
    },
    /// It could not be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        error: std::io::Error,
    },
}

/// Reads up to `samples` (1 to [`SAMPLES_MAX`]) blocks of `block_bytes` ([`BLOCK_MIN_BYTES`] to [`BLOCK_MAX_BYTES`])
/// and compresses each. `seed` decides which. The file or device is opened for reading only.
///
/// # Errors
/// See [`ExamineError`].
pub fn examine(path: &Path, block_bytes: u32, samples: u32, seed: u64) -> Result<Report, ExamineError> {
    if !(BLOCK_MIN_BYTES..=BLOCK_MAX_BYTES).contains(&block_bytes) {
        return Err(ExamineError::Block(block_bytes));
    }
    if !(1..=SAMPLES_MAX).contains(&samples) {
        return Err(ExamineError::Samples(samples));
    }
    let name = path.display().to_string();
    let unreadable = |error| ExamineError::Read { path: path.display().to_string(), error };
    let mut file = File::open(path).map_err(unreadable)?;
    // Devices tell their length only this way.
    let file_bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
    let blocks = file_bytes / u64::from(block_bytes);
    if blocks == 0 {
        return Err(ExamineError::TooShort { path: name, file_bytes, block_bytes });
    }
    let mut tally = Tally::default();
    let mut block = vec![0; block_bytes as usize];
    for number in sample_numbers(blocks, samples, seed) {
        file.read_exact_at(&mut block, number * u64::from(block_bytes)).map_err(unreadable)?;
        tally.add(&block);
    }
    Ok(tally.report(name, file_bytes, block_bytes))
}

/// One block of each of `samples` equal parts, in order; all blocks where there are no more.
fn sample_numbers(blocks: u64, samples: u32, seed: u64) -> impl Iterator<Item = u64> {
    let samples = u64::from(samples).min(blocks);
    let mut rng = Rng::new(seed);
    let begin = move |part: u64| (u128::from(part) * u128::from(blocks) / u128::from(samples)) as u64;
    (0..samples).map(move |part| begin(part) + rng.below(begin(part + 1) - begin(part)))
}

/// What is known of the samples so far.
#[derive(Default)]
struct Tally {
    zero_blocks: u32,
    duplicate_blocks: u32,
    seen: HashSet<u64>,
    byte_counts: ByteCounts,
    lz4_bytes: Vec<u32>,
    deflate_bytes: Vec<u32>,
}

struct ByteCounts([u64; 256]);

impl Default for ByteCounts {
    fn default() -> ByteCounts {
        ByteCounts([0; 256])
    }
}

impl ByteCounts {
    fn entropy_bits(&self) -> f64 {
        let sum: u64 = self.0.iter().sum();
        let parts = self.0.iter().filter(|&&count| count > 0).map(|&count| count as f64 / sum as f64);
        parts.map(|part| -part * part.log2()).sum::<f64>().max(0.0)
    }
}

impl Tally {
    fn add(&mut self, block: &[u8]) {
        if block.iter().all(|&byte| byte == 0) {
            self.zero_blocks += 1;
        } else {
            let mut hasher = DefaultHasher::new();
            block.hash(&mut hasher);
            self.duplicate_blocks += u32::from(!self.seen.insert(hasher.finish()));
        }
        for byte in block {
            if let Some(count) = self.byte_counts.0.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
        // No block is longer than BLOCK_MAX_BYTES.
        self.lz4_bytes.push(lz4_bytes(block).min(block.len()) as u32);
        self.deflate_bytes.push(deflate_bytes(block).min(block.len()) as u32);
    }

    fn report(self, path: String, file_bytes: u64, block_bytes: u32) -> Report {
        Report {
            path,
            file_bytes,
            block_bytes,
            samples: self.lz4_bytes.len() as u32,
            zero_blocks: self.zero_blocks,
            duplicate_blocks: self.duplicate_blocks,
            entropy_bits_per_byte: self.byte_counts.entropy_bits(),
            lz4: Compressed::of(self.lz4_bytes, block_bytes),
            deflate: Compressed::of(self.deflate_bytes, block_bytes),
        }
    }
}

impl Compressed {
    fn of(mut sizes: Vec<u32>, block_bytes: u32) -> Compressed {
        sizes.sort_unstable();
        let before = sizes.len() as f64 * f64::from(block_bytes);
        let after: u64 = sizes.iter().map(|&size| u64::from(size)).sum();
        let mut histogram = [0; BINS];
        for &size in &sizes {
            let tenths = u64::from(size) * (BINS as u64 - 1) / u64::from(block_bytes.max(1));
            if let Some(count) = histogram.get_mut(tenths as usize) {
                *count += 1;
            }
        }
        Compressed {
            mean_ratio: before / after.max(1) as f64,
            saved_pct: 100.0 * (1.0 - after as f64 / before.max(1.0)),
            smallest_bytes: sizes.first().copied().unwrap_or(0),
            median_bytes: sizes.get(sizes.len() / 2).copied().unwrap_or(0),
            largest_bytes: sizes.last().copied().unwrap_or(0),
            histogram,
        }
    }
}

/// The length that lz4 makes of a block, in bytes.
pub(crate) fn lz4_bytes(block: &[u8]) -> usize {
    lz4_flex::block::compress(block).len()
}

/// The length that deflate makes of a block, in bytes.
pub(crate) fn deflate_bytes(block: &[u8]) -> usize {
    miniz_oxide::deflate::compress_to_vec(block, DEFLATE_LEVEL).len()
}

impl Report {
    /// One sentence: what to expect of compression here.
    #[must_use]
    pub fn summary(&self) -> String {
        let best_pct = self.lz4.saved_pct.max(self.deflate.saved_pct);
        if self.zero_blocks == self.samples {
            return "All samples are zeros: they say nothing about the data that will be written.".to_owned();
        }
        if best_pct < HARDLY_PCT {
            let bits = self.entropy_bits_per_byte;
            return format!(
                "Hardly compressible ({best_pct:.1} % saved, {bits:.2} bits a byte): the data is encrypted or \
                 compressed already; plan with full blocks."
            );
        }
        format!(
            "Blocks of {} become {} to {} with lz4 (median {}), {} to {} with deflate (median {}).",
            format_bytes_binary(u64::from(self.block_bytes)),
            self.lz4.smallest_bytes,
            self.lz4.largest_bytes,
            self.lz4.median_bytes,
            self.deflate.smallest_bytes,
            self.deflate.largest_bytes,
            self.deflate.median_bytes,
        )
    }

    /// The report as tables: figures, compressors, and the histogram of compressed sizes.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let part = |count: u32| format!("{count} ({:.1} %)", 100.0 * f64::from(count) / f64::from(self.samples.max(1)));
        let figures = vec![
            vec!["length".to_owned(), format_bytes_binary(self.file_bytes)],
            vec!["block".to_owned(), format_bytes_binary(u64::from(self.block_bytes))],
            vec!["samples".to_owned(), self.samples.to_string()],
            vec!["zero blocks".to_owned(), part(self.zero_blocks)],
            vec!["duplicates among the samples".to_owned(), part(self.duplicate_blocks)],
            vec!["entropy, bits a byte".to_owned(), format!("{:.3}", self.entropy_bits_per_byte)],
        ];
        let compressor = |name: &str, it: &Compressed| {
            let sizes = [it.smallest_bytes, it.median_bytes, it.largest_bytes].map(|bytes| bytes.to_string());
            let mut row = vec![name.to_owned(), format!("{:.2}", it.mean_ratio), format!("{:.1}", it.saved_pct)];
            row.extend(sizes);
            row
        };
        let bins = self.lz4.histogram.iter().zip(&self.deflate.histogram).enumerate();
        let bins = bins.map(|(bin, (&lz4, &deflate))| {
            let size =
                if bin + 1 == BINS { "does not shrink".into() } else { format!("{} to {}", bin * 10, bin * 10 + 10) };
            vec![size, part(lz4), part(deflate)]
        });
        vec![
            table(&self.path, &["figure", "value"], figures),
            table(
                "Compressors",
                &["compressor", "ratio", "saved, %", "smallest, bytes", "median, bytes", "largest, bytes"],
                vec![compressor("lz4", &self.lz4), compressor("deflate (about zstd -1)", &self.deflate)],
            ),
            table("Blocks by compressed size", &["% of the block", "lz4", "deflate"], bins.collect()),
        ]
    }
}

fn table(caption: &str, headers: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { caption: caption.to_owned(), headers: headers.iter().map(|&header| header.to_owned()).collect(), rows }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Content, ContentMaker};

    fn report_of(data: &[u8], block_bytes: u32, samples: u32) -> Result<Report, ExamineError> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-compressibility-{}-{number}", std::process::id()));
        std::fs::write(&path, data).unwrap();
        let report = examine(&path, block_bytes, samples, 3);
        std::fs::remove_file(&path).unwrap();
        report
    }

    fn made(compressible_pct: u8, len_bytes: usize) -> Vec<u8> {
        let mut data = vec![0; len_bytes];
        ContentMaker::new(Content { compressible_pct }, 1).fill(&mut data);
        data
    }

    #[test]
    fn random_data_does_not_shrink() {
        let report = report_of(&made(0, 1 << 20), 8192, 1000).unwrap();
        assert_eq!((report.samples, report.zero_blocks, report.duplicate_blocks), (128, 0, 0));
        assert!(report.entropy_bits_per_byte > 7.99, "{}", report.entropy_bits_per_byte);
        for compressed in [&report.lz4, &report.deflate] {
            assert_eq!((compressed.histogram[BINS - 1], compressed.median_bytes), (128, 8192));
            assert_eq!((compressed.mean_ratio, compressed.saved_pct), (1.0, 0.0));
        }
        assert!(report.summary().contains("encrypted or compressed already"));
    }

    #[test]
    fn half_of_the_data_is_saved() {
        let report = report_of(&made(50, 1 << 20), 8192, 40).unwrap();
        assert_eq!(report.samples, 40);
        assert!((report.lz4.saved_pct - 50.0).abs() < 3.0 && (report.deflate.saved_pct - 50.0).abs() < 3.0);
        assert!((report.lz4.mean_ratio - 2.0).abs() < 0.1);
        assert_eq!(report.lz4.histogram[4] + report.lz4.histogram[5], 40);
        assert!(report.summary().starts_with("Blocks of 8 KiB become 4"), "{}", report.summary());
    }

    #[test]
    fn zeros_and_duplicates_are_counted() {
        let mut data = vec![0; 4 * 4096];
        data.extend(made(0, 4096).repeat(3));
        data.extend([1; 100]);
        let report = report_of(&data, 4096, 100).unwrap();
        assert_eq!((report.samples, report.zero_blocks, report.duplicate_blocks), (7, 4, 2));
        let zeros = report_of(&[0; 8192], 4096, 100).unwrap();
        assert_eq!(zeros.entropy_bits_per_byte, 0.0);
        assert!(zeros.summary().contains("zeros"));
    }

    #[test]
    fn samples_are_spread_and_distinct() {
        for (blocks, samples) in [(1, 1), (7, 100), (100, 7), (1 << 50, 1000)] {
            let numbers: Vec<_> = sample_numbers(blocks, samples, 5).collect();
            assert_eq!(numbers.len() as u64, blocks.min(u64::from(samples)));
            assert!(numbers.is_sorted_by(|a, b| a < b) && numbers.last().is_some_and(|&last| last < blocks));
        }
    }

    #[test]
    fn tables_are_complete() {
        let tables = report_of(&made(30, 1 << 16), 4096, 10).unwrap().tables();
        assert_eq!(tables.iter().map(|table| table.rows.len()).collect::<Vec<_>>(), [6, 2, BINS]);
        for table in &tables {
            assert!(table.rows.iter().all(|row| row.len() == table.headers.len()), "{}", table.caption);
        }
        assert_eq!(tables[2].rows[10][0], "does not shrink");
    }

    #[test]
    fn what_cannot_be_examined_is_said() {
        let error = |result: Result<Report, ExamineError>| result.unwrap_err().to_string();
        assert!(error(report_of(b"short", 4096, 1)).contains("less than one block of 4096"));
        assert!(error(examine("/".as_ref(), 0, 1, 0)).contains("choose 512 to 16777216"));
        assert!(error(examine("/".as_ref(), 512, 0, 0)).contains("choose 1 to 1000000"));
        assert!(error(examine("/nonexistent-file".as_ref(), 512, 1, 0)).starts_with("/nonexistent-file: "));
        assert!(examine("/".as_ref(), 512, 1, 0).is_err());
    }
}
