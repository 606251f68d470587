//! Behaviour of a disk independent of its size: `behaviours.csv`.
//!
//! # Why
//! Rates differ between the sizes of an instance, behaviour does not: it belongs to the generation of the disk.
//!
//! # How it works
//! A row has the mix exponent and the two latencies of the idle disk, each marked as stated by a source (`published`)
//! or taken from a similar disk (`default`), and for flash the delay of reads by programs, the block that a shorter
//! write makes it read first, and the latency that the length of a command adds.
//!
//! # Limits
//! Interference is fitted for i3 and i3en only; other rows have that of a similar disk. The block is that of the
//! families which report sectors of 512 bytes and work in 4096: i4i, i7i, i7ie, i8g, i8ge (AWS's documentation of
//! instance store volumes; measured 0.50 to 0.65 of the writes in 512 bytes). For others it is not known.
//! The latency of lengths is known of i7i alone: four reads of 1 MiB in the disk at 8188 a second (0.49 ms each), and
//! about 4 MiB in one request to fill it, are both those of commands of 256 KiB that take 0.49 ms and overlap.
//!
//! # Example
//! `i3en`: mix exponent 1.2, reads 138 us, and programs of up to 550 us that are suspended for reads.

use std::sync::LazyLock;

use super::table::{Cells, rows};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    /// p in (r/R)^p + (w/W)^p = 1; may be infinite.
    pub(super) mix_exponent_p: f64,
    /// Medians on the idle disk.
    pub(super) read_ns: f64,
    pub(super) write_ns: f64,
    /// Whether a source states the mix exponent, the read latency and the write latency.
    pub(super) is_published: [bool; 3],
    pub(super) device: Device,
}

/// The kind of device, with the parameters of its kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Device {
    /// Flash; see `InterferenceSpec`, `RateSpec` and `LatencySpec`. `channels` of 0 means one queue.
    Flash {
        program_ns: f64,
        suspend: bool,
        block_probability: f64,
        channels: u32,
        rewrite_block_bytes: u32,
        per_kib_ns: f64,
        command_kib: Option<u32>,
    },
    Network,
    /// A hard disk.
    Arm,
}

impl Behaviour {
    fn read(cells: &mut Cells) -> Option<Behaviour> {
        let (name, kind) = (cells.text()?, cells.text()?);
        let mut published = || Some((cells.number::<f64>()?, cells.either("published", "default")?));
        let (mix, read, write) = (published()?, published()?, published()?);
        let device = match kind {
            "flash" => Device::Flash {
                program_ns: cells.number()?,
                suspend: cells.either("yes", "no")?,
                block_probability: cells.number()?,
                channels: cells.number()?,
                rewrite_block_bytes: cells.number()?,
                per_kib_ns: cells.number()?,
                command_kib: cells.optional()?,
            },
            "network" => Device::Network,
            "arm" => Device::Arm,
            _ => return None,
        };
        Some(Behaviour {
            name,
            mix_exponent_p: mix.0,
            read_ns: read.0,
            write_ns: write.0,
            is_published: [mix.1, read.1, write.1],
            device,
        })
    }

    /// Returns the behaviour that the next cell names.
    pub(super) fn of_cell(cells: &mut Cells) -> Option<&'static Behaviour> {
        let name = cells.text()?;
        BEHAVIOURS.iter().find(|behaviour| behaviour.name == name)
    }

    /// Returns the names of the parameters that no source states.
    pub(super) fn defaults(&self) -> Vec<&'static str> {
        let names = ["mix_exponent", "read_latency", "write_latency"];
        names.into_iter().zip(self.is_published).filter(|(_, known)| !known).map(|(name, _)| name).collect()
    }
}

pub(super) static BEHAVIOURS: LazyLock<Vec<Behaviour>> =
    LazyLock::new(|| rows(include_str!("behaviours.csv"), Behaviour::read));
