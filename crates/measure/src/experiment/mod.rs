//! Experiments: loads run repeatedly under changed conditions, and conclusions from all runs together.
//!
//! **Why.** One run gives a figure; a question takes several runs. Which of two limits holds? Which rate keeps a bound
//! of latency? What does a second user of the disk change?
//!
//! **How.** A [`Situation`] describes one run completely. Each experiment changes a copy of it, runs it with
//! [`crate::test`], and keeps a [`Point`]: the sums over all jobs, latencies, and the depth in the device. Pure
//! functions draw the conclusions: `plimsoll_figures::verdict` and [`find_rate::highest`] know nothing of disks.
//!
//! * [`sweep`]: the product of values of settings, a verdict for each curve;
//! * [`find_rate`]: the highest rate within a bound of latency;
//! * [`matrix`]: large sequential and small random requests, both directions;
//! * [`dual`]: the same load once and twice at once, beside the kernel's counters; `plimsoll_files::rbd` reads another
//!   tool's runs;
//! * [`words`] and [`pictures`]: all of it as texts, tables and charts.
//!
//! **Limits.** In a directory the runs use the same files, filled once, unless a job removes, grows, discards or
//! verifies its own: then every run creates them again. All bytes count against `max_write_bytes` together; a run that
//! it cuts short is no result, and the last.
//!
//! **Example.**
//!
//! ```
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll_files::job_reader;
//! use plimsoll_files::sched_groups::SchedGroups;
//! use plimsoll_measure::experiment::{Situation, sweep};
//! use plimsoll_measure::load::Control;
//! use plimsoll_files::setup::DiskChoice;
//! use plimsoll_measure::test::{Storage, TestOptions};
//!
//! let text = "[{name: r, type: randread, shards: all, shard_info: {parallelism: 4}}]";
//! let jobs = job_reader::parse("inline", text, &SchedGroups::default())?;
//! let situation = Situation {
//!     options: TestOptions {
//!         backend: Some(BackendKind::Null),
//!         duration_ns: 2_000_000,
//!         ..TestOptions::new(jobs, Storage::of(".".as_ref())?)
//!     },
//!     choice: DiskChoice::default(),
//! };
//! let axes = [sweep::Axis::parse("parallelism=1,4")?];
//! let report = sweep::run(&situation, &axes, &Control::default(), &mut |_, _| {})?;
//! assert_eq!(report.points.len(), 2);
//! assert_eq!(report.verdicts.len(), 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod device;
pub mod dual;
pub mod find_rate;
pub mod matrix;
pub mod pictures;
pub mod point;
pub mod sweep;
pub mod words;

use plimsoll::DiskSetup;
use plimsoll_figures::units::format_bytes_binary;
use plimsoll_files::ConfigError;
use plimsoll_files::setup::{DiskChoice, NoEntry, OtherDiskError};

use crate::load::{Control, ScratchError};
use crate::test::{ReusedFiles, TestError, TestOptions, TestResult};
use device::{Counted, Device};
pub use point::{Point, Round, Wait};

/// The complete description of one run.
#[derive(Clone, Debug)]
pub struct Situation {
    /// Jobs, storage, shards, times. [`Situation::disk`] replaces its disk by one made from `choice`.
    pub options: TestOptions,
    /// The user's choices about the disk.
    pub choice: DiskChoice,
}

/// Why an experiment could not run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    #[error(transparent)]
    Test(#[from] TestError),
    #[error(transparent)]
    Jobs(#[from] ConfigError),
    #[error(transparent)]
    NoEntry(#[from] NoEntry),
    #[error(transparent)]
    OtherDisk(#[from] OtherDiskError),
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The request makes no sense for these jobs.
    #[error("{0}")]
    Asked(String),
    /// The write bound ended jobs of a run: its figures are not those of a complete run.
    #[error(
        "--max-write {} ended a run early, so that it says nothing: raise it, or shorten --duration",
        format_bytes_binary(*.max_write_bytes)
    )]
    CutShort { max_write_bytes: u64 },
    #[error("job `{job}` completed no request in {duration_s} s: the storage answers too slowly, raise --duration")]
    Silent { job: String, duration_s: f64 },
}

/// Receives each step and its expected length in ns, if known.
pub type OnStep<'a> = &'a mut dyn FnMut(&str, Option<u64>);

impl Situation {
    pub fn disk(&self) -> Result<DiskSetup, NoEntry> {
        self.choice.setup(self.options.storage.path())
    }

    /// Returns the situation with scratch files that its runs use one after another.
    fn reusing_files(&self) -> Situation {
        let mut situation = self.clone();
        situation.options.reused_files = Some(ReusedFiles::default());
        situation
    }

    /// Runs the situation once. Bytes written under `control` since its creation count against the bound. A run that
    /// the bound cuts short is an error.
    fn run(&self, control: &Control, on_step: OnStep<'_>) -> Result<TestResult, ExperimentError> {
        let mut options = self.options.clone();
        options.disk = self.disk()?;
        let (storage, jobs) = (options.storage.path(), &options.jobs.jobs);
        options.other_disks = self.choice.other_disks(storage, jobs, options.backend)?;
        options.jobs.validate(u32::from(options.shards))?;
        let bound_bytes = options.max_write_bytes;
        options.max_write_bytes = bound_bytes.map(|most| most.saturating_sub(control.traffic.written_bytes()));
        let result = crate::test::run(&options, control, on_step)?;
        match bound_bytes {
            Some(max_write_bytes) if result.max_write_reached => Err(ExperimentError::CutShort { max_write_bytes }),
            _ => Ok(result),
        }
    }

    /// Runs the situation once as the step `head`, and counts what `device` moved meanwhile (`None` without a device).
    /// Returns `None` if the experiment ends here, because the user asked for it or the write bound is reached: a run
    /// that was cut short cannot be compared with complete ones. Returns an error if the first run cannot even begin,
    /// or if the write bound leaves no room for it.
    fn step(
        &self,
        head: &str,
        device: Option<&Device>,
        is_first: bool,
        control: &Control,
        on_step: OnStep<'_>,
    ) -> Result<Option<(TestResult, Option<Counted>)>, ExperimentError> {
        let mut begun = None;
        let result = self.run(control, &mut |what, expected_ns| {
            on_step(&format!("{head}: {what}"), expected_ns);
            // Steps of a known length are stages of the run; preparing files before them does not count.
            if begun.is_none() && expected_ns.is_some() {
                begun = device.and_then(|device| device.begin(&control.traffic));
            }
        });

        let counted = device.zip(begun).and_then(|(device, begun)| device.end(begun, &control.traffic));
        match result {
            Err(error) if is_end(&error) && !is_first => Ok(None),
            Ok(result) if result.interrupted => Ok(None),
            result => Ok(Some((result?, counted))),
        }
    }
}

/// Most rounds of an experiment: as many as `tune` measures of a figure.
pub const ROUNDS_MAX: u64 = 5;
/// Shortest round, in nanoseconds: one interval of a result.
const ROUND_MIN_NS: u64 = 100_000_000;
/// Duration from which on a run counts as unbounded: it ends when its jobs have done their work.
const WITHOUT_END_NS: u64 = 1 << 58;

/// Returns the number of rounds into which a run of `duration_ns` is divided.
pub const fn rounds_of(duration_ns: u64) -> u64 {
    match (duration_ns, duration_ns / ROUND_MIN_NS) {
        (WITHOUT_END_NS.., _) | (_, 0) => 1,
        (_, ROUNDS_MAX..) => ROUNDS_MAX,
        (_, rounds) => rounds,
    }
}

/// Returns whether an error means that the write bound is reached, or that the user asked for the end.
fn is_end(error: &ExperimentError) -> bool {
    let is_bound = matches!(error, ExperimentError::CutShort { .. });
    is_bound || matches!(error, ExperimentError::Test(TestError::Interrupted | TestError::MaxWrite { .. }))
}

#[cfg(test)]
mod tests_support {
    use plimsoll::backend::choose::BackendKind;
    use plimsoll_files::job_reader;
    use plimsoll_files::sched_groups::SchedGroups;

    use super::*;
    use crate::test::Storage;

    /// Returns a situation with runs of 5 ms on the null backend.
    pub(super) fn situation(jobs_text: &str) -> Situation {
        let jobs = job_reader::parse("test", jobs_text, &SchedGroups::default()).unwrap();
        let options = TestOptions {
            backend: Some(BackendKind::Null),
            duration_ns: 5_000_000,
            ..TestOptions::new(jobs, Storage::Directory(".".into()))
        };
        Situation { options, choice: DiskChoice::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::find_rate::{Goal, SearchOptions};
    use super::sweep::Axis;
    use super::tests_support::situation;
    use super::*;

    /// A job of ten writes of 4 KiB.
    const TEN: &str = "[{name: w, type: overwrite, shards: all, data_size: 1MB, \
                        shard_info: {parallelism: 1, reqsize: 4kB, limit_bytes: 40kB}}]";

    fn bounded(max_write_bytes: u64) -> Situation {
        let mut ten = situation(TEN);
        // The work ends each run.
        (ten.options.max_write_bytes, ten.options.duration_ns) = (Some(max_write_bytes), 60_000_000_000);
        ten
    }

    #[test]
    fn a_run_that_the_write_bound_cuts_short_is_no_result() {
        let nothing = &mut |_: &str, _: Option<u64>| ();
        // Room for one complete run and half of another.
        let fifteen = bounded(60 << 10);
        let axes = [Axis::parse("parallelism=1,2,4").unwrap()];
        let report = sweep::run(&fifteen, &axes, &Control::default(), nothing).unwrap();
        assert_eq!((report.points.len(), report.interrupted, report.written_bytes), (1, true, 60 << 10));

        let report = dual::run(&fifteen, &Control::default(), nothing).unwrap();
        assert_eq!((report.runs.len(), report.interrupted, report.finding), (1, true, None));

        let goal = Goal::parse("p50=1s").unwrap();
        let report = find_rate::run(&fifteen, &goal, &SearchOptions::default(), &Control::default(), nothing).unwrap();
        assert_eq!((report.interrupted, report.found.trials.len()), (true, 0), "{report:?}");
        assert_eq!(report.made.warmup_s, Some(1.0), "the trials' warm-up");
    }

    #[test]
    fn a_first_run_that_the_write_bound_cuts_short_is_an_error() {
        let nothing = &mut |_: &str, _: Option<u64>| ();
        let five = bounded(20 << 10);
        let goal = Goal::parse("p50=1s").unwrap();
        let axes = [Axis::parse("parallelism=1,2,4").unwrap()];
        let errors = [
            sweep::run(&five, &axes, &Control::default(), nothing).map(drop),
            dual::run(&five, &Control::default(), nothing).map(drop),
            find_rate::run(&five, &goal, &SearchOptions::default(), &Control::default(), nothing).map(drop),
            matrix::run(&five, 1, &Control::default(), nothing).map(drop),
        ];
        for error in errors {
            let text = error.unwrap_err().to_string();
            assert!(text.contains("--max-write 20 KiB ended a run early"), "{text}");
        }
    }
}
