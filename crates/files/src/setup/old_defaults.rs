//! Reproduces the old scheduler, in which unconfigured rates were 2^31 - 1, and a limit.
//!
//! **Why.** Until July 2025 Seastar's unset rates were `INT_MAX` of its weighted units. "Unlimited" was 8.6 GB/s, and
//! fast disks looked slow for weeks. This module reproduces the effect, so that its signature can be studied.
//!
//! **How.** Both `req_count_rate` and `blocks_count_rate` are 2^31 - 1 weighted units per second; a read, and a block
//! of 512 bytes, weigh 128. That gives the same costs, to the last integer, as 2^24 operations and 2^33 bytes per
//! second in the `seastar` form (for requests below 1 GiB the missing unit is below what the arithmetic truncates). The
//! closed loop is off, since the old scheduler had none.
//!
//! **Limits.** Only the rates are the old ones; the rest of the scheduler is ours.
//!
//! **Example.** 1 MiB costs 2 049 000 units of capacity, 122.1 us: 8188 requests per second, 8.59 GB/s.
//!
//! ```
//! use plimsoll::core::Op;
//! use plimsoll_files::setup::old_defaults;
//! let model = old_defaults::disk_config().model;
//! assert_eq!(model.seastar_capacity(Op::Read, 1 << 20), 2_049_000);
//! assert_eq!(model.cost(Op::Write, 1 << 20).as_ns_ceil(), 122_130);
//! ```

use std::fmt;
use std::str::FromStr;

use plimsoll::core::{ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, Rate};

/// Operations per second: 2^31 / 128.
const OPERATIONS_PER_S: u64 = 1 << 24;
/// Bytes per second: 2^31 / 128 blocks of 512 bytes.
const BYTES_PER_S: u64 = 1 << 33;
const BLOCK_BYTES: u32 = 512;
pub const NAME: &str = "old-defaults";

/// Returns the configuration of an unknown disk, as it was until July 2025.
pub fn disk_config() -> DiskConfig {
    let (iops, bandwidth) = (Rate::per_second(OPERATIONS_PER_S), Rate::per_second(BYTES_PER_S));
    let figures =
        FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth };
    let model = CostModel::from_figures(&figures, CostForm::Seastar, BLOCK_BYTES, BLOCK_BYTES);
    DiskConfig { model, control: ControlConfig::OFF, ..DiskConfig::default() }
}

/// The values of `--model`: a cost form, or the old defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelChoice {
    /// The form in which io-properties are charged.
    Form(CostForm),
    /// The old rates, without any properties.
    OldDefaults,
}

/// A text that is no value of `--model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected knee, additive, max or seastar, or old-defaults for the rates that Seastar had until 2025")]
pub struct UnknownModel;

impl FromStr for ModelChoice {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<ModelChoice, UnknownModel> {
        if name == NAME {
            return Ok(ModelChoice::OldDefaults);
        }
        name.parse().map(ModelChoice::Form).map_err(|_| UnknownModel)
    }
}

impl fmt::Display for ModelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ModelChoice::Form(form) => form.name(),
            ModelChoice::OldDefaults => NAME,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll::core::{LatencyGoal, Op};

    use super::*;
    use crate::setup::DiskChoice;

    #[test]
    fn costs_are_the_published_integers() {
        let model = disk_config().model;
        for (len_bytes, units) in [(512, 2_000), (4096, 9_000), (128 << 10, 257_000), (1 << 20, 2_049_000)] {
            for op in [Op::Read, Op::Write] {
                assert_eq!(model.seastar_capacity(op, len_bytes), units, "{len_bytes}");
                // The same cost by 2^31 - 1 units per second.
                let seconds = 128.0 * f64::from(1 + len_bytes / 512) / 2_147_483_647.0;
                assert_eq!((seconds * 1000.0 * 16_777_216.0) as u64, units);
            }
        }
    }

    #[test]
    fn names_and_setups() {
        for (name, model) in [("old-defaults", ModelChoice::OldDefaults), ("max", ModelChoice::Form(CostForm::Max))] {
            assert_eq!(name.parse::<ModelChoice>().unwrap(), model);
            assert_eq!(model.to_string(), name);
        }
        assert!("cubic".parse::<ModelChoice>().unwrap_err().to_string().contains("knee, additive, max or seastar"));
        let choice = DiskChoice { latency_goal: Some(LatencyGoal::Ns(1)), ..DiskChoice::default() };
        let old = DiskChoice { model: Some(ModelChoice::OldDefaults), ..choice.clone() };
        assert!(!old.is_unlimited() && choice.is_unlimited());
        let old = old.setup(Path::new("/")).unwrap();
        assert!(!old.config.model.is_unlimited() && !old.config.control.enabled);
        assert_eq!(old.config.latency_goal, LatencyGoal::Ns(1));
        assert!(choice.setup(Path::new("/")).unwrap().config.model.is_unlimited());
    }
}
