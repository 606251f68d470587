//! Lists the keys of a job file, and those for a simulated disk.
//!
//! **Why.** A key without effect is worse than an error, so each map has its list.
//!
//! **How.** A [`Dialect`] gives the [`Schema`] of each map. [`read_map`] reads one; if a key belongs to another map,
//! the error names that map.
//!
//! **Limits.** Whether a key suits the type of the job is decided by the key's reader.
//!
//! **Example.** `rps: 5` beside `type` is refused with "it belongs into `shard_info`".

use super::super::error::{Code, ConfigError};
use super::super::fields::{Field, Fields, Refused, Schema};
use crate::keys;

/// Kind of disk on which jobs run. Each allows other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Dialect {
    /// A job on a real disk.
    Real,
    /// A job in a scenario of the simulator.
    Simulated,
}

impl Dialect {
    pub(super) fn job(self) -> &'static Schema<'static> {
        match self {
            Dialect::Real => &JOB,
            Dialect::Simulated => &SIMULATED_JOB,
        }
    }

    pub(super) fn shard_info(self) -> &'static Schema<'static> {
        match self {
            Dialect::Real => &SHARD_INFO,
            Dialect::Simulated => &SIMULATED_SHARD_INFO,
        }
    }

    pub(super) fn options(self) -> &'static Schema<'static> {
        match self {
            Dialect::Real => &OPTIONS,
            Dialect::Simulated => &SIMULATED_OPTIONS,
        }
    }
}

/// Misspelling of `parallelism` in a `cpu` job of a file that came with io_tester.
pub(super) const MISSPELT_PARALLELISM: &str = "parallelim";

const JOB: Schema = Schema::of(
    "a job",
    &keys![
        name type shards data_size files_count rwmixread stage storage disk shard_info options
    ],
);

const REAL_DISKS_ONLY: &str = "remove it: only `plimsoll test` does that, on a real disk";
const SAY_IT_OPEN: &str = "remove it, or write a job of the scenario's own: `open:`, `size:`, `start:`";

/// The keys of a scenario's job, which has a disk, a start and a stop.
pub(in super::super) const SIMULATED_JOB: Schema = Schema {
    what: "a job",
    known: &["name", "type", "shards", "data_size", "shard_info", "options", "disk", "start", "stop"],
    refused: &[
        Refused::not_supported("files_count", REAL_DISKS_ONLY),
        Refused::not_supported("rwmixread", "write two jobs in one class, one that reads and one that writes"),
        Refused::not_supported("stage", "write `start` and `stop` instead"),
    ],
};

/// All keys. The first is a misspelling that io_tester ignores; only [`MISSPELT_SHARD_INFO`] has it.
const SHARD_INFO_KEYS: &[&str] = &keys![
    parallelim parallelism rps batch limit reqsize shares class bandwidth think_time think_after execution_time
    vectorized iov_count bssplit access rate ramp_up start_delay limit_bytes io_size
];

const SHARD_INFO: Schema = Schema::of("shard_info", SHARD_INFO_KEYS.split_at(1).1);

/// [`SHARD_INFO`] with the misspelling that io_tester ignores.
pub(super) const MISSPELT_SHARD_INFO: Schema = Schema::of("shard_info", SHARD_INFO_KEYS);

const SIMULATED_SHARD_INFO: Schema = Schema {
    what: "shard_info",
    known: SHARD_INFO.known,
    refused: &[
        Refused::not_supported("bandwidth", "write `limit_bandwidth` in a class of `classes:`, and join it"),
        Refused::not_supported("bssplit", SAY_IT_OPEN),
        Refused::not_supported("access", SAY_IT_OPEN),
        Refused::not_supported("rate", SAY_IT_OPEN),
        Refused::not_supported("ramp_up", SAY_IT_OPEN),
        Refused::not_supported("start_delay", "write `start` beside `type`"),
        Refused::not_supported("limit_bytes", "write `limit`, in requests"),
        Refused::not_supported("io_size", "write `limit`, in requests"),
    ],
};

const OPTIONS: Schema = Schema::of(
    "options",
    &keys![
        dsync sleep_type pause_distribution extent_allocation_size_hint sloppy_size sloppy_size_hint fallocate verify
        compressible fsync fdatasync
    ],
);

const SIMULATED_OPTIONS: Schema = Schema {
    what: "options",
    known: OPTIONS.known,
    refused: &[
        Refused::not_supported("verify", REAL_DISKS_ONLY),
        Refused::not_supported("compressible", REAL_DISKS_ONLY),
        Refused::not_supported("fsync", REAL_DISKS_ONLY),
        Refused::not_supported("fdatasync", REAL_DISKS_ONLY),
    ],
};

/// Reads the map `field`. If an unknown key belongs to another map of a job, the error names that map.
pub(super) fn read_map<'a>(
    field: &Field<'a>,
    schema: &Schema<'_>,
    dialect: Dialect,
) -> Result<Fields<'a>, ConfigError> {
    Fields::read(field, schema).map_err(|error| {
        if error.code() != Code::UnknownKey {
            return error;
        }
        let key = error.key().unwrap_or_default().rsplit('.').next().unwrap_or_default().to_owned();
        let place = match () {
            () if dialect.shard_info().reads(&key) => "it belongs into `shard_info`",
            () if dialect.options().reads(&key) => "it belongs into `options`",
            () if dialect.job().reads(&key) => "it belongs beside `type`, outside of this map",
            () => return error,
        };
        error.with_help(place)
    })
}
