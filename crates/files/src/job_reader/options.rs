//! Reads the I/O options of a job: the map `options`.
//!
//! **Why.** io_tester's options change how files grow and how shards sleep; ours change the contents of writes and the
//! flushes.
//!
//! **How.** [`read`] reads each option. Options of io_tester that make no difference here are accepted, with a warning
//! if the results could be misread.
//!
//! **Limits.** Shards always wake precisely, so `sleep_type` has no effect. There are no busy loops, and they cost no
//! CPU time.
//!
//! **Example.** `{verify: true, compressible: 50, fdatasync: 32}`.

use plimsoll_figures::units::parse_io_tester_size_bytes;

use super::super::error::{Code, ConfigError, Diagnostic};
use super::super::fields::{Field, Fields};
use super::super::jobs::{Content, Job, JobKind, PauseDistribution};
use super::schema::{Dialect, read_map};
use super::{MAX_DATA_BYTES, own_key, warn_ignored};

/// A warning that is issued once for a file.
const BUSY_LOOP: &str = "`sleep_type: busyloop` has no effect";

/// Reads the settings of a job from `options`.
pub(super) fn read(
    fields: &Fields<'_>,
    job: &mut Job,
    dialect: Dialect,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), ConfigError> {
    let Some(field) = fields.get("options") else { return Ok(()) };
    let kind = job.kind;
    let fields = read_map(&field, dialect.options(), dialect)?;
    check_sleep_type(&fields, job.has_rate() || job.think_time_ns > 0, warnings)?;
    (job.flush_every, job.flush_data_only) = read_flushes(&fields, kind)?;

    let is_io = !matches!(kind, JobKind::Cpu { .. });
    let has_blocks = is_io && !matches!(kind, JobKind::Flush | JobKind::Discard { .. } | JobKind::Unlink { .. });
    let verify = own_key(&fields, "verify", has_blocks, "jobs that read or write")?;
    let compressible = own_key(&fields, "compressible", is_io, "jobs that have files")?;
    let compressible_pct = compressible.map_or(Ok(0), |field| field.count(0..=100))?;
    job.content = Content { compressible_pct: u8::try_from(compressible_pct).unwrap_or(100) };
    job.dsync = fields.or("dsync", false, Field::boolean)?;

    let distributions = [("uniform", PauseDistribution::Uniform), ("poisson", PauseDistribution::Poisson)];
    job.pause_distribution = fields.or("pause_distribution", PauseDistribution::Uniform, |field| {
        field.one_of("a pause distribution", &distributions)
    })?;
    job.extent_size_hint_bytes = read_extent_hint(&fields, warnings)?;
    job.fallocate = read_fallocate(&fields, kind, warnings)?;
    job.verify = verify.map_or(Ok(false), |field| read_verify(&field, kind))?;
    Ok(())
}

/// Reads `verify`, which needs a job that writes: a job can check only its own blocks.
fn read_verify(field: &Field<'_>, kind: JobKind) -> Result<bool, ConfigError> {
    let is_wanted = field.boolean()?;
    if is_wanted && !kind.is_write() {
        let error = field.error(Code::Ignored, "a job that only reads has written nothing that it could check");
        return Err(error.with_help(
            "write in the same job: `type: randrw` with `rwmixread: 70`, for example; or set `verify` in the job that \
             writes, which reads its blocks again after the run",
        ));
    }
    Ok(is_wanted)
}

fn check_sleep_type(fields: &Fields<'_>, has_pauses: bool, warnings: &mut Vec<Diagnostic>) -> Result<(), ConfigError> {
    let Some(field) = fields.get("sleep_type") else { return Ok(()) };
    match field.text()? {
        "lowres" | "steady" => Ok(()),
        "busyloop" => {
            if has_pauses && warnings.iter().all(|warning| warning.message() != BUSY_LOOP) {
                let help = "nothing to do: shards wake precisely here without burning CPU time, so CPU figures are \
                            lower than io_tester's";
                warn_ignored(&field, BUSY_LOOP, help, warnings);
            }
            Ok(())
        }
        _ => Err(field.not_one_of("a sleep type", &["lowres", "steady", "busyloop"])),
    }
}

/// Returns the extent hint, and warns of io_tester's keys for files that grow beyond their size.
fn read_extent_hint(fields: &Fields<'_>, warnings: &mut Vec<Diagnostic>) -> Result<Option<u64>, ConfigError> {
    let size = |field: Field<'_>| field.figure(parse_io_tester_size_bytes, 512..=MAX_DATA_BYTES, "bytes");
    let sloppy_hint = fields.get("sloppy_size_hint");
    if let Some(field) = &sloppy_hint {
        size(field.clone())?;
    }

    let is_sloppy = fields.or("sloppy_size", false, Field::boolean)?;
    let sloppy = fields.get("sloppy_size").filter(|_| is_sloppy);
    let written = "remove it; files are written in full before the run";
    let grows = "remove it; files of `append` jobs grow with each write, all others have their size before the run";
    let hint = fields.get("extent_allocation_size_hint");

    let ignored = [
        ("extent_allocation_size_hint", &hint, written),
        ("sloppy_size", &sloppy, grows),
        ("sloppy_size_hint", &sloppy_hint, grows),
    ];
    for (key, field, help) in ignored {
        if let Some(field) = field {
            warn_ignored(field, format!("`{key}` has no effect"), help, warnings);
        }
    }
    hint.map(size).transpose()
}

/// Returns whether space is reserved, which only files that begin empty need; others are written before the run.
fn read_fallocate(fields: &Fields<'_>, kind: JobKind, warnings: &mut Vec<Diagnostic>) -> Result<bool, ConfigError> {
    let Some(field) = fields.get("fallocate") else { return Ok(false) };
    let is_wanted = field.boolean()?;
    if is_wanted && kind != JobKind::Append {
        let message = format!("`fallocate` has no effect in a job of type `{}`", kind.as_str());
        warn_ignored(&field, message, "remove it; only the files of `append` jobs begin empty", warnings);
    }
    Ok(is_wanted && kind == JobKind::Append)
}

/// Returns the writes of a fiber between two flushes, and whether metadata may be left out (`fdatasync`).
fn read_flushes(fields: &Fields<'_>, kind: JobKind) -> Result<(u32, bool), ConfigError> {
    let writes = kind.is_write() && !kind.is_discard();
    let count = |key: &str| match own_key(fields, key, writes, "jobs that write")? {
        Some(field) => field.count(0..=u32::MAX),
        None => Ok(0),
    };
    let (full, data_only) = (count("fsync")?, count("fdatasync")?);
    if let Some(field) = fields.get("fdatasync").filter(|_| full > 0 && data_only > 0) {
        let error = field.error(Code::Ignored, "`fsync` and `fdatasync` in one job");
        return Err(error.with_help("remove one: `fsync` does all that `fdatasync` does"));
    }
    Ok(if data_only > 0 { (data_only, true) } else { (full, false) })
}
