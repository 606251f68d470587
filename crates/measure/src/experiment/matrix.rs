//! Four loads that characterise a disk: large sequential and small random requests, both directions.
//!
//! **Why.** This table is commonly used to compare disks and machines: writes and reads in GB/s, and small requests a
//! second. It needs no job file.
//!
//! **How.** The rows are those of `fio --rw=write|read --bs=1M` and `--rw=randwrite|randread --bs=4k` with `--direct=1
//! --numjobs=32 --iodepth=128`: 4096 requests under way, here spread over the shards. In a directory all rows share one
//! scratch file, filled once; of a named file or a device they share the beginning, of the same length.
//!
//! **Limits.** At most [`BUFFERS_MAX_BYTES`] of memory for requests of 1 MiB: 256 of them under way instead of 4096,
//! far beyond any disk's need; the row says so. Rows run in the order of the table, so that reads find written data,
//! and without pauses: if a disk has to recover from writes, the reads show that.
//!
//! **Example.** On 4 shards each runs 1024 fibers of random 4 KiB reads.
//!
//! ```
//! use plimsoll_measure::experiment::matrix::{ROWS, depth_of};
//! assert_eq!(ROWS.map(|row| depth_of(&row)), [256, 256, 4096, 4096]);
//! ```

use plimsoll_files::job_reader;
use plimsoll_files::jobs::JobFile;
use plimsoll_files::setup::is_in_memory;
use serde::{Deserialize, Serialize};

use super::{ExperimentError, OnStep, Point, Situation};
use crate::load::{Control, Scratch};
use crate::report::Circumstances;
use crate::test::{Storage, TestError, TestOptions};

/// Most memory for the requests of one row, in bytes.
pub const BUFFERS_MAX_BYTES: u64 = 256 << 20;
/// Requests under way: 32 jobs of depth 128.
pub const DEPTH: u64 = 32 * 128;
pub const DEFAULT_DATA_BYTES: u64 = 4 << 30;
/// Fewest bytes of scratch data, and its unit: each shard needs room for its requests.
const DATA_MIN_BYTES: u64 = 64 << 20;
const FILE_NAME: &str = "plimsoll-test-matrix";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    /// `type` of a job file.
    pub kind: &'static str,
    pub request_bytes: u64,
}

/// The rows, in the order of the runs.
pub const ROWS: [Row; 4] = [
    Row { name: "1 MiB seq write", kind: "overwrite", request_bytes: 1 << 20 },
    Row { name: "1 MiB seq read", kind: "seqread", request_bytes: 1 << 20 },
    Row { name: "4 KiB random write", kind: "randwrite", request_bytes: 4096 },
    Row { name: "4 KiB random read", kind: "randread", request_bytes: 4096 },
];

/// Returns the requests under way in a row, on all shards together.
pub fn depth_of(row: &Row) -> u64 {
    DEPTH.min(BUFFERS_MAX_BYTES / row.request_bytes.max(1)).max(1)
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixReport {
    /// Where and how the matrix was made; `None` if no row was run.
    #[serde(flatten)]
    pub made: Option<Circumstances>,
    pub rows: Vec<MatrixRow>,
    /// Whether the matrix ended before its last row: by the user, or because the write bound is reached.
    pub interrupted: bool,
    /// Bytes written, the scratch file included.
    pub written_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixRow {
    /// Name for people: `4 KiB random read`.
    pub name: String,
    /// `type` of a job file.
    pub kind: String,
    pub request_bytes: u64,
    #[serde(flatten)]
    pub point: Point,
}

/// Runs all rows on `data_bytes` of data: the scratch file in a directory, or the beginning of a named file or device.
/// Ignores the jobs of `situation`.
///
/// # Errors
/// [`ExperimentError`]. A stop of `control` is no error: the report then has the rows so far. Write rows on a named
/// file or device need `overwrite` or `destructive`, as in any test.
pub fn run(
    situation: &Situation,
    data_bytes: u64,
    control: &Control,
    on_step: OnStep<'_>,
) -> Result<MatrixReport, ExperimentError> {
    let mut situation = situation.clone();
    let mut report = MatrixReport { made: None, rows: Vec::new(), interrupted: false, written_bytes: 0 };

    let data_bytes = data_bytes.max(DATA_MIN_BYTES) & !(DATA_MIN_BYTES - 1);
    let storage = situation.options.storage.clone();
    let _scratch = one_file(&mut situation, data_bytes, control, on_step)?;

    for (at, row) in ROWS.iter().enumerate() {
        situation.options.jobs = jobs_of(row, data_bytes, situation.options.shards)?;
        let head = format!("{}/{} {}", at + 1, ROWS.len(), row.name);
        let Some((result, _)) = situation.step(&head, None, at == 0, control, on_step)? else {
            report.interrupted = true;
            break;
        };
        let place = TestOptions { storage: storage.clone(), ..situation.options.clone() };
        report.made = Some(Circumstances::of_run(&result.run).with_options(&place));
        let point = Point::of(&situation, &result, Vec::new());
        let (name, kind) = (row.name.to_owned(), row.kind.to_owned());
        report.rows.push(MatrixRow { name, kind, request_bytes: row.request_bytes, point });
    }

    report.written_bytes = control.traffic.written_bytes();
    Ok(report)
}

/// In a directory, creates and fills one file and makes `situation` use it. Dropping the returned value removes it.
fn one_file(
    situation: &mut Situation,
    data_bytes: u64,
    control: &Control,
    on_step: OnStep<'_>,
) -> Result<Option<Scratch>, ExperimentError> {
    let options = &mut situation.options;
    let Storage::Directory(directory) = &options.storage else { return Ok(None) };
    if is_in_memory(options.backend) {
        return Ok(None);
    }
    if let Some(max_write_bytes) = options.max_write_bytes.filter(|most| data_bytes > *most) {
        return Err(TestError::MaxWrite { needed_bytes: data_bytes, max_write_bytes }.into());
    }

    let mut scratch = Scratch::new(directory, data_bytes)?;
    if options.keep_files {
        scratch.keep();
    }
    let path = scratch.create(FILE_NAME)?;

    on_step("preparing the file", None);
    scratch.fill(&[(path.clone(), data_bytes)], options.backend, control)?;
    if control.stop.is_asked() {
        return Err(TestError::Interrupted.into());
    }

    scratch.share();
    (options.storage, options.overwrite) = (Storage::File(path), true);
    Ok(Some(scratch))
}

fn jobs_of(row: &Row, data_bytes: u64, shards: u16) -> Result<JobFile, ExperimentError> {
    let fibers = depth_of(row).div_ceil(u64::from(shards.max(1)));
    let Row { name, kind, request_bytes } = row;
    let text = format!(
        "[{{name: {name}, type: {kind}, shards: all, data_size: {data_bytes}, \
         shard_info: {{parallelism: {fibers}, reqsize: {request_bytes}, shares: 100}}}}]"
    );
    Ok(job_reader::parse("the matrix", &text, &Default::default())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests_support::situation;

    const ANY: &str = "[{name: any, type: randread, shards: all, shard_info: {parallelism: 1}}]";

    #[test]
    fn four_rows_on_nothing() {
        let report = run(&situation(ANY), 1, &Control::default(), &mut |_, _| {}).unwrap();
        let names: Vec<&str> = report.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ROWS.map(|row| row.name));
        assert!(report.rows.iter().all(|row| row.point.errors == 0));
        assert_eq!((report.rows[0].point.parallelism, report.rows[3].point.parallelism), (256, 4096));
    }

    #[test]
    fn the_bound_of_writes_holds_for_the_file() {
        let mut situation = situation(ANY);
        (situation.options.backend, situation.options.max_write_bytes) = (None, Some(1 << 20));
        let error = run(&situation, 1, &Control::default(), &mut |what, _| panic!("{what}")).unwrap_err();
        assert!(error.to_string().contains("--max-write"), "{error}");
    }
}
