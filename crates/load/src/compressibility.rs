//! Measures how compressible the blocks of a file or device are.
//!
//! **Why.** A cache or disk that compresses is planned with an assumption ("8 KiB become 2 to 7"). If the data is
//! already encrypted or compressed, nothing is saved. This module samples the real data, reports its kind, and
//! recommends a `compressible` for jobs that write such data.
//!
//! **How.** [`examine`] divides a file or block device into equal parts, reads a random block of each part, and
//! compresses each block separately with lz4 and with deflate (level 3); a block that does not shrink counts with its
//! own length. It also counts zero blocks, blocks equal to an earlier sample, and the entropy of the bytes (8 bits a
//! byte: encrypted, compressed, or random).
//!
//! Deflate stands in for zstd, whose encoder needs a C compiler to build. On blocks of 4 to 64 KiB of text, tables
//! and programs its savings were within 5 percentage points of those of zstd's level 1.
//!
//! **Limits.** Reads go through the page cache; nothing is written. A partial block at the end of a file is left out.
//! Equal blocks are found by 64-bit hashes among the samples only: with few samples, most duplicates of a large device
//! are missed.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::compressibility::{Options, examine};
//! use plimsoll_load::Stop;
//! let path = std::env::temp_dir().join(format!("plimsoll-examine-{}", std::process::id()));
//! std::fs::write(&path, "all work and no play makes a dull disk. ".repeat(1000))?;
//! let options = Options { block_bytes: vec![4096], ..Options::default() };
//! let examination = examine(&path, &options, &Stop::default(), &mut |_| ())?;
//! std::fs::remove_file(&path)?;
//! assert_eq!(examination.blocks[0].samples, 9);
//! assert!(examination.blocks[0].lz4.saved_pct > 90.0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_show::table::Table;
use plimsoll_sim::rng::Rng;
use serde::Serialize;

use crate::Stop;

pub const BLOCK_MIN_BYTES: u32 = 512;
pub const BLOCK_MAX_BYTES: u32 = 16 << 20;
pub const SAMPLES_MAX: u32 = 1_000_000;
/// Most bytes that are read for each length of a block: 256 MiB, some seconds of compression.
pub const SAMPLED_MAX_BYTES: u32 = 256 << 20;
/// Number of bins of the histogram: a tenth of the block each, and one for blocks that did not shrink.
pub const BINS: usize = 11;
/// Saved part in per cent below which compression is not worth its time.
const HARDLY_PCT: f64 = 3.0;
/// Level of deflate, whose savings are close to those of zstd's level 1.
const DEFLATE_LEVEL: u8 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Lengths of blocks in bytes, at least one: powers of two from [`BLOCK_MIN_BYTES`] to [`BLOCK_MAX_BYTES`].
    pub block_bytes: Vec<u32>,
    /// Blocks of each length, 1 to [`SAMPLES_MAX`]; fewer if they exceed [`SAMPLED_MAX_BYTES`] together.
    pub samples: u32,
    pub seed: u64,
}

impl Default for Options {
    /// Returns options for ten thousand blocks each of 4, 8 and 16 KiB.
    fn default() -> Options {
        Options { block_bytes: vec![4 << 10, 8 << 10, 16 << 10], samples: 10_000, seed: 1 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    pub path: String,
    pub bytes: u64,
    /// Whether the examination was stopped. The last length then has only the samples so far, from the first part of
    /// the data, and later lengths are left out.
    pub interrupted: bool,
    /// Results by block length, in the order of the options. Lengths without a whole block are left out.
    pub blocks: Vec<Report>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub block_bytes: u32,
    /// Number of blocks read: all blocks, if there are no more than were asked for.
    pub samples: u32,
    pub zero_blocks: u32,
    /// Number of blocks equal to an earlier sample, zero blocks aside.
    pub duplicate_blocks: u32,
    /// Entropy of single bytes over all samples together, in bits: 0 to 8.
    pub entropy_bits_per_byte: f64,
    pub lz4: Compressed,
    /// Result of deflate: about that of zstd's level 1.
    pub deflate: Compressed,
}

/// The result of a compressor on the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compressed {
    /// Ratio of bytes before to bytes after: at least 1.
    pub mean_ratio: f64,
    pub saved_pct: f64,
    /// Size of the smallest block in bytes.
    pub smallest_bytes: u32,
    /// Median compressed size of a block in bytes.
    pub median_bytes: u32,
    /// Size of the largest block in bytes, at most the length of a block.
    pub largest_bytes: u32,
    /// Blocks by compressed size: bin n has those of n to n + 1 tenths of a block, the last one those that did not
    /// shrink.
    pub histogram: [u32; BINS],
}

#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    #[error(
        "blocks of {0} bytes cannot be examined: choose a power of two from {BLOCK_MIN_BYTES} to {BLOCK_MAX_BYTES}"
    )]
    Block(u32),
    #[error("{0} samples cannot be taken: choose 1 to {SAMPLES_MAX}")]
    Samples(u32),
    #[error("{path} has {bytes} bytes, less than one block of {block_bytes}: choose a smaller block")]
    TooShort {
        path: String,
        bytes: u64,
        /// Length of the shortest block in bytes.
        block_bytes: u32,
    },
    #[error("{0} is empty: there is nothing to examine")]
    Empty(String),
    #[error("{0} is no file or block device: name one that holds data")]
    NotData(String),
    #[error("{path}: {error}")]
    Read { path: String, error: std::io::Error },
    #[error("interrupted before a block was read")]
    Interrupted,
}

/// Samples blocks of a file or a block device, opened for reading only, and compresses each. Calls `on_progress` with
/// the part (0 to 1) that is done.
pub fn examine(
    path: &Path,
    options: &Options,
    stop: &Stop,
    on_progress: &mut dyn FnMut(f64),
) -> Result<Examination, ExamineError> {
    let is_block = |bytes: &u32| bytes.is_power_of_two() && (BLOCK_MIN_BYTES..=BLOCK_MAX_BYTES).contains(bytes);
    if let Some(bytes) = options.block_bytes.iter().find(|bytes| !is_block(bytes)) {
        return Err(ExamineError::Block(*bytes));
    }
    let shortest = options.block_bytes.iter().copied().min().ok_or(ExamineError::Block(0))?;
    if !(1..=SAMPLES_MAX).contains(&options.samples) {
        return Err(ExamineError::Samples(options.samples));
    }

    let data = Data::open(path)?;
    let mut blocks = Vec::new();
    let lengths = options.block_bytes.len() as f64;
    for (number, &block_bytes) in options.block_bytes.iter().enumerate() {
        if stop.is_asked() {
            break;
        }
        let mut on_part = |part: f64| on_progress((number as f64 + part) / lengths);
        let tally = sample(&data, block_bytes, options, stop, &mut on_part)?;
        blocks.extend(tally.map(|tally| tally.report(block_bytes)));
    }

    let interrupted = stop.is_asked();
    if blocks.is_empty() {
        return Err(match interrupted {
            true => ExamineError::Interrupted,
            false => ExamineError::TooShort { path: data.path, bytes: data.bytes, block_bytes: shortest },
        });
    }

    Ok(Examination { path: data.path, bytes: data.bytes, interrupted, blocks })
}

/// The file or device that is examined.
struct Data {
    path: String,
    file: File,
    /// Length when it was opened; above 0.
    bytes: u64,
}

impl Data {
    fn open(path: &Path) -> Result<Data, ExamineError> {
        let name = path.display().to_string();
        let unreadable = |error| ExamineError::Read { path: name.clone(), error };
        let kind = std::fs::metadata(path).map_err(unreadable)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(ExamineError::NotData(name));
        }

        let mut file = File::open(path).map_err(unreadable)?;
        // The metadata of a device has no length, but its end can be sought.
        match file.seek(SeekFrom::End(0)).map_err(unreadable)? {
            0 => Err(ExamineError::Empty(name)),
            bytes => Ok(Data { path: name, file, bytes }),
        }
    }

    fn read(&self, number: u64, block: &mut [u8]) -> Result<(), ExamineError> {
        let read = self.file.read_exact_at(block, number * block.len() as u64);
        read.map_err(|error| ExamineError::Read { path: self.path.clone(), error })
    }
}

/// Returns the samples of one length, or `None` if there are none.
fn sample(
    data: &Data,
    block_bytes: u32,
    options: &Options,
    stop: &Stop,
    on_part: &mut dyn FnMut(f64),
) -> Result<Option<Tally>, ExamineError> {
    let blocks = data.bytes / u64::from(block_bytes);
    let samples = options.samples.min(SAMPLED_MAX_BYTES / block_bytes);
    let mut tally = Tally::default();
    let mut block = vec![0; block_bytes as usize];
    for number in sample_numbers(blocks, samples, options.seed) {
        if stop.is_asked() {
            break;
        }
        data.read(number, &mut block)?;
        tally.add(&block);
        on_part(number as f64 / blocks as f64);
    }
    Ok(Some(tally).filter(|tally| !tally.lz4_bytes.is_empty()))
}

/// Returns one random block of each of `samples` equal parts, in order, or all blocks if there are no more.
fn sample_numbers(blocks: u64, samples: u32, seed: u64) -> impl Iterator<Item = u64> {
    let samples = u64::from(samples).min(blocks);
    let mut rng = Rng::new(seed);
    let begin = move |part: u64| (u128::from(part) * u128::from(blocks) / u128::from(samples)) as u64;
    (0..samples).map(move |part| begin(part) + rng.below(begin(part + 1) - begin(part)))
}

/// Sums over the samples so far.
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

    fn report(self, block_bytes: u32) -> Report {
        Report {
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

pub(crate) fn lz4_bytes(block: &[u8]) -> usize {
    lz4_flex::block::compress(block).len()
}

pub(crate) fn deflate_bytes(block: &[u8]) -> usize {
    miniz_oxide::deflate::compress_to_vec(block, DEFLATE_LEVEL).len()
}

impl Report {
    /// Returns the savings of the better compressor, in per cent.
    fn best_pct(&self) -> f64 {
        self.lz4.saved_pct.max(self.deflate.saved_pct)
    }

    fn sentence(&self) -> String {
        let sizes = |it: &Compressed| format!("{} to {}", it.smallest_bytes, it.largest_bytes);
        format!(
            "Blocks of {} become {} bytes with lz4 (median {}), {} with deflate (median {}).",
            format_bytes_binary(u64::from(self.block_bytes)),
            sizes(&self.lz4),
            self.lz4.median_bytes,
            sizes(&self.deflate),
            self.deflate.median_bytes,
        )
    }
}

impl Examination {
    /// Returns a few sentences: what to expect of compression here, and how a job can write such data.
    pub fn summary(&self) -> String {
        if self.blocks.iter().all(|report| report.zero_blocks == report.samples) {
            return "All samples are zeros: they say nothing about the data that will be written.".to_owned();
        }

        let best_pct = self.blocks.iter().map(Report::best_pct).fold(0.0, f64::max);
        if best_pct < HARDLY_PCT {
            let bits = self.blocks.first().map_or(0.0, |report| report.entropy_bits_per_byte);
            return format!(
                "Hardly compressible ({best_pct:.1} % saved, {bits:.2} bits a byte): the data is encrypted or \
                 compressed already; plan with full blocks. Jobs write such data when nothing else is said."
            );
        }

        let mut sentences: Vec<String> = self.blocks.iter().map(Report::sentence).collect();
        if let Some(first) = self.blocks.first() {
            sentences.push(format!(
                "A job writes data that saves as much in blocks of {} with `compressible: {:.0}` (lz4) or `{:.0}` \
                 (deflate) in its `options`; without, its data saves nothing.",
                format_bytes_binary(u64::from(first.block_bytes)),
                first.lz4.saved_pct,
                first.deflate.saved_pct
            ));
        }
        sentences.join(" ")
    }

    /// Returns tables of the samples, the compressors, and the histogram of compressed sizes.
    pub fn tables(&self) -> Vec<Table> {
        let length = |report: &Report| format_bytes_binary(u64::from(report.block_bytes));
        let samples = self.blocks.iter().map(|report| {
            let part = |count| format!("{:.1} %", percent(count, report.samples));
            vec![
                length(report),
                report.samples.to_string(),
                part(report.zero_blocks),
                part(report.duplicate_blocks),
                format!("{:.3}", report.entropy_bits_per_byte),
            ]
        });

        let compressors = self.blocks.iter().flat_map(|report| {
            [("lz4", &report.lz4), ("deflate (about zstd -1)", &report.deflate)].map(|(name, it)| {
                let sizes = [it.smallest_bytes, it.median_bytes, it.largest_bytes].map(|bytes| bytes.to_string());
                let figures = [format!("{:.2}", it.mean_ratio), format!("{:.1} %", it.saved_pct)];
                [vec![format!("{} {name}", length(report))], figures.to_vec(), sizes.to_vec()].concat()
            })
        });

        let bins = (0..BINS).map(|bin| {
            let part = |count: Option<&u32>, report: &Report| percent(*count.unwrap_or(&0), report.samples);
            let cell = |report: &Report| {
                let (lz4, deflate) = (report.lz4.histogram.get(bin), report.deflate.histogram.get(bin));
                format!("{:.0} / {:.0}", part(lz4, report), part(deflate, report))
            };
            let name =
                if bin + 1 == BINS { "does not shrink".into() } else { format!("{} to {} %", bin * 10, bin * 10 + 10) };
            std::iter::once(name).chain(self.blocks.iter().map(cell)).collect::<Vec<_>>()
        });

        let examined = format!("{}: {}", self.path, format_bytes_binary(self.bytes));
        let by_length = std::iter::once("of the block".to_owned()).chain(self.blocks.iter().map(length));
        let of_compressors = ["block, compressor", "ratio", "saved", "smallest", "median", "largest"];
        vec![
            Table::new(examined, ["block", "samples", "zeros", "equal to another", "bits a byte"], samples),
            Table::new("What compressors make of one block (bytes)", of_compressors, compressors),
            Table::new("Blocks by compressed size (% with lz4 / with deflate)", by_length, bins),
        ]
    }

    /// Returns a line for each length and compressor, for programs.
    pub fn csv(&self) -> Table {
        let headers = "block_bytes,compressor,samples,zero_blocks,duplicate_blocks,entropy_bits_per_byte,mean_ratio,\
                       saved_pct,smallest_bytes,median_bytes,largest_bytes";
        let rows = self.blocks.iter().flat_map(|report| {
            [("lz4", &report.lz4), ("deflate", &report.deflate)].map(|(name, it)| {
                let counts = [report.samples, report.zero_blocks, report.duplicate_blocks];
                let figures = [report.entropy_bits_per_byte, it.mean_ratio, it.saved_pct];
                let sizes = [it.smallest_bytes, it.median_bytes, it.largest_bytes];
                [
                    vec![report.block_bytes.to_string(), name.to_owned()],
                    counts.map(|count| count.to_string()).to_vec(),
                    figures.map(|figure| format!("{figure:.3}")).to_vec(),
                    sizes.map(|bytes| bytes.to_string()).to_vec(),
                ]
                .concat()
            })
        });
        Table::new("", headers.split(','), rows)
    }
}

fn percent(count: u32, samples: u32) -> f64 {
    100.0 * f64::from(count) / f64::from(samples.max(1))
}

#[cfg(test)]
mod tests;
