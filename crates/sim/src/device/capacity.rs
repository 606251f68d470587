//! The cost of a request on one member: device time by length, and the capacity of the present mix.
//!
//! # Why
//! The saturated rates of a disk are its best-known figures. They are parameters of the model, not results of it.
//!
//! # How it works
//! [`Curve`]: by length, max(1/IOPS, base + length / bandwidth), where base is chosen so that a block costs 1/IOPS, or
//! a measured table. [`Mix`]: T(f) = ((1-f)^p + f^p)^(-1/p), f the share of writes in recently served device time.
//!
//! # Limits
//! f is smoothed: right after the mix has changed, the capacity is still that of the former mix.
//!
//! # Example
//! p = 0.6 and as much read as written (f = 1/2): T = 0.63, so reads and writes each get 0.31 of their rate alone.

use plimsoll_core::{CostModel, FS_PER_NS, MixExponent, Op};

use super::spec::{RateSpec, SpecError};

const NS_PER_S: f64 = 1e9;

/// Device time by length.
#[derive(Debug)]
pub(super) enum Curve {
    /// max(least, base + length * per_byte).
    Knee { least_ns: f64, base_ns: f64, ns_per_byte: f64 },
    /// A measured table, held as that of reads whichever direction it describes.
    Table(Box<CostModel>),
}

impl Curve {
    pub(super) fn new(iops: f64, bytes_per_s: f64, table: &[(u32, f64)], rates: &RateSpec) -> Result<Curve, SpecError> {
        if !table.is_empty() {
            let model = CostModel::from_table(table, table).map_err(|error| SpecError {
                key: "rates.read_table, rates.write_table",
                expected: "a rising table of 2 to 64 points",
                found: error.to_string(),
            })?;
            return Ok(Curve::Table(Box::new(model)));
        }
        let (least_ns, ns_per_byte) = (NS_PER_S / iops, NS_PER_S / bytes_per_s);
        let base_ns = (least_ns - f64::from(rates.iops_block_bytes) * ns_per_byte).max(0.0);
        Ok(Curve::Knee { least_ns, base_ns, ns_per_byte })
    }

    #[inline]
    pub(super) fn cost_ns(&self, len_bytes: u64) -> f64 {
        match self {
            Curve::Knee { least_ns, base_ns, ns_per_byte } => least_ns.max(base_ns + len_bytes as f64 * ns_per_byte),
            Curve::Table(model) => {
                let len_bytes = u32::try_from(len_bytes).unwrap_or(u32::MAX);
                model.cost(Op::Read, len_bytes).as_fs() as f64 / FS_PER_NS as f64
            }
        }
    }
}

/// The capacity of the present mix.
#[derive(Debug)]
pub(super) struct Mix {
    exponent: MixExponent,
    memory_ns: f64,
    /// `None` before the first request.
    write_share: Option<f64>,
    pub(super) capacity: f64,
    matters: bool,
}

impl Mix {
    pub(super) fn new(p: f64, memory_ns: f64) -> Result<Mix, SpecError> {
        let exponent = if p.is_infinite() { Some(MixExponent::FULL_DUPLEX) } else { MixExponent::new(p) };
        let exponent = exponent.ok_or_else(|| SpecError {
            key: "mix_exponent_p",
            expected: "above 0, or infinite",
            found: p.to_string(),
        })?;
        Ok(Mix { matters: p != 1.0 && p.is_finite(), exponent, memory_ns, write_share: None, capacity: 1.0 })
    }

    /// Adds `cost_ns` of service in a direction to the mix and returns the capacity T(f).
    #[inline]
    pub(super) fn note(&mut self, cost_ns: f64, is_write: bool) -> f64 {
        if self.matters {
            let target = if is_write { 1.0 } else { 0.0 };
            let share = self.write_share.unwrap_or(target);
            let share = share + (target - share) * (cost_ns / (self.memory_ns + cost_ns));
            self.write_share = Some(share);
            self.capacity = self.exponent.capacity(share);
        }
        self.capacity
    }
}
