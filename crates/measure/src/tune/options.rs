//! The options of a measurement.
//!
//! **Why.** The options of a measurement are written into its record and read back from it, so the measurement can be
//! resumed.
//!
//! **How.** [`TuneOptions::new`] and [`TuneOptions::quick`] return the usual measurements; callers change fields. The
//! options are checked before the disk is touched.
//!
//! **Limits.** Options that depend on the place (alignment, free space) are checked later, when the place is known.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::tune::TuneOptions;
//! let options = TuneOptions { max_write_bytes: Some(20 << 30), ..TuneOptions::quick("/var/lib/data") };
//! assert_eq!(options.data_bytes, 2 << 30);
//! ```

use std::path::PathBuf;

use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::format_bytes_binary;
use serde::{Deserialize, Serialize};

use super::record::Header;
use super::report::BlockSize;
use super::rig::SPAN_MIN_BYTES;
use super::{MEASURE_MIN_BYTES, TuneError};

/// Most bytes that a quick measurement may write beside its scratch data, by default.
const USUAL_WRITE_BYTES_QUICK: u64 = 62 << 30;
/// Most bytes that a standard measurement may write beside its scratch data, by default.
const USUAL_WRITE_BYTES: u64 = 248 << 30;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Quick,
    /// At most five minutes.
    #[default]
    Standard,
    /// Preconditioning, then rounds until the disk is steady as SNIA's performance test specification defines it.
    Full,
}

#[derive(Clone, Debug)]
pub struct TuneOptions {
    /// The directory whose disk is measured, or a block device.
    pub directory: PathBuf,
    /// Whether a block device may be written to: **everything on it is lost**.
    pub destructive: bool,
    /// Backend; `None` selects the best that the machine allows.
    pub backend: Option<BackendKind>,
    /// Shards, at least 1; each is a thread with a CPU of its own.
    pub shards: u16,
    pub mode: Mode,
    /// Measures only the four figures and the latency of the idle disk.
    pub figures_only: bool,
    /// With `figures_only`: measures reads beside writes as well, for the mix exponent.
    pub with_frontier: bool,
    /// Size of random reads: a power of two, 512 bytes to 1 MiB. `None`: 4096, or the disk's larger unit.
    pub read_block_bytes: Option<u32>,
    /// Size of random writes, as for reads. `None`: also found by experiment.
    pub write_block_bytes: Option<u32>,
    /// Total scratch data in bytes, at least 4 MiB for each shard; on a device, the part of the device that is used.
    pub data_bytes: u64,
    /// Most bytes to write, scratch data included; at least 256 MiB above `data_bytes`.
    pub max_write_bytes: Option<u64>,
    /// Measured length of each figure in seconds, 0.001 to 86 400. `None`: until the figure is known precisely enough.
    pub phase_s: Option<f64>,
    /// Most rounds of a full measurement, at least 5.
    pub rounds_max: u32,
    /// Length of each of the four conditions of a round in seconds, 0.001 to 86 400.
    pub round_s: f64,
    pub seed: u64,
    /// File for the record, which must not exist.
    pub record: Option<PathBuf>,
}

impl TuneOptions {
    /// Returns the usual measurement, at most five minutes: 8 GiB of scratch data, a shard on every CPU that the
    /// process may use.
    pub fn new(directory: impl Into<PathBuf>) -> TuneOptions {
        let cpus = plimsoll::sys::pin::allowed_cpus().map_or(1, |cpus| cpus.len());
        TuneOptions {
            directory: directory.into(),
            destructive: false,
            backend: None,
            shards: u16::try_from(cpus).unwrap_or(u16::MAX).max(1),
            mode: Mode::Standard,
            figures_only: false,
            with_frontier: false,
            read_block_bytes: None,
            write_block_bytes: None,
            data_bytes: 8 << 30,
            max_write_bytes: None,
            phase_s: None,
            rounds_max: 25,
            round_s: 60.0,
            seed: 1,
            record: None,
        }
    }

    /// Returns the short measurement, at most a minute: 2 GiB of scratch data.
    pub fn quick(directory: impl Into<PathBuf>) -> TuneOptions {
        TuneOptions { mode: Mode::Quick, data_bytes: 2 << 30, ..TuneOptions::new(directory) }
    }

    /// Returns the default bound on writes: the scratch data and, by mode, the bytes that the figures of writes take on
    /// a disk that writes 5 GB/s. `None` for [`Mode::Full`], which writes until the disk is steady, and if
    /// [`TuneOptions::phase_s`] sets the length of each figure.
    pub fn usual_max_write_bytes(&self) -> Option<u64> {
        let figures_bytes = match self.mode {
            Mode::Quick => USUAL_WRITE_BYTES_QUICK,
            Mode::Standard => USUAL_WRITE_BYTES,
            Mode::Full => return None,
        };
        self.phase_s.is_none().then(|| self.data_bytes.saturating_add(figures_bytes))
    }

    pub(super) fn of_header(header: &Header) -> TuneOptions {
        let set = |block: &BlockSize| block.is_set.then_some(block.bytes);
        TuneOptions {
            directory: PathBuf::from(&header.site.directory),
            destructive: header.destructive,
            backend: header.backend.name.parse().ok(),
            shards: header.shards,
            mode: header.mode,
            figures_only: header.figures_only,
            with_frontier: header.with_frontier,
            read_block_bytes: set(&header.read_block),
            write_block_bytes: set(&header.write_block),
            data_bytes: header.data_bytes,
            max_write_bytes: header.max_write_bytes,
            phase_s: header.phase_s,
            rounds_max: header.rounds_max,
            round_s: header.round_s,
            seed: header.seed,
            record: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), TuneError> {
        let bad = |option, reason: String| Err(TuneError::Option { option, reason });
        if self.shards == 0 {
            return bad("--shards", "at least one shard is needed".to_owned());
        }

        for (option, seconds) in [("--phase", self.phase_s), ("--round", Some(self.round_s))] {
            if let Some(seconds) = seconds
                && !(0.001..=86_400.0).contains(&seconds)
            {
                return bad(option, format!("{seconds} s is not from 0.001 s to a day"));
            }
        }

        if self.rounds_max < 5 {
            return bad("--rounds", "a steady state takes five rounds at least".to_owned());
        }

        let data_min_bytes = u64::from(self.shards) * SPAN_MIN_BYTES;
        if self.data_bytes < data_min_bytes {
            let least = format_bytes_binary(data_min_bytes);
            return bad("--data-size", format!("{} shards need at least {least}", self.shards));
        }

        let needed_bytes = self.data_bytes.saturating_add(MEASURE_MIN_BYTES);
        match self.max_write_bytes {
            Some(max_write_bytes) if max_write_bytes < needed_bytes => {
                Err(TuneError::MaxWrite { needed_bytes, max_write_bytes })
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the backend uses no disk.
    pub(super) fn is_in_memory(&self) -> bool {
        plimsoll_files::setup::is_in_memory(self.backend)
    }
}
