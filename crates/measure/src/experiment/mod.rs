//! Experiments: loads run again and again under changed conditions, and what follows from all of them together.
//!
//! # Why
//! One run gives a figure; a question takes several. Which of two limits holds? How much can be asked for within a
//! bound of latency? What does a second user of the disk change?
//!
//! # How it works
//! A [`Situation`] is all that one run needs. Each experiment changes a copy of it, runs it with [`crate::test`], and
//! keeps a [`Point`]: what all jobs together got, how long it took, how much was in the device. What follows from
//! points is computed by pure functions: `plimsoll_figures::verdict` and [`find_rate::highest`] know nothing of disks.
//!
//! * [`sweep`]: the product of values of settings, a verdict for each curve;
//! * [`find_rate`]: the highest rate within a bound of latency;
//! * [`matrix`]: large sequential and small random requests, both directions;
//! * [`dual`]: the same load once and twice at once, beside what the kernel counts; `plimsoll_files::rbd` reads another
//!   tool's runs;
//! * [`pictures`]: all of it as charts.
//!
//! # Limits
//! In a directory every run makes its files anew; all of them count against `max_write_bytes` together.
//!
//! # Example
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

use plimsoll::DiskSetup;
use plimsoll_files::ConfigError;
use plimsoll_files::setup::{DiskChoice, NoEntry};

use crate::load::{Control, ScratchError};
use crate::test::{TestError, TestOptions, TestResult};
use device::{Counted, Device};
pub use point::{Point, Wait};

/// All that one run needs.
#[derive(Clone, Debug)]
pub struct Situation {
    /// Jobs, storage, shards, times. Its disk is what [`Situation::disk`] makes of the field below.
    pub options: TestOptions,
    /// What the user says of the disk.
    pub choice: DiskChoice,
}

/// Why an experiment could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// One of its runs.
    #[error(transparent)]
    Test(#[from] TestError),
    /// The jobs do not suit the number of shards.
    #[error(transparent)]
    Jobs(#[from] ConfigError),
    /// No entry of the properties is for the storage.
    #[error(transparent)]
    NoEntry(#[from] NoEntry),
    /// A scratch file of its own.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// What was asked makes no sense for these jobs.
    #[error("{0}")]
    Asked(String),
    /// The storage completed nothing for a whole run.
    #[error("job `{job}` completed no request in {duration_s} s: the storage answers too slowly, raise --duration")]
    Silent {
        /// Its name.
        job: String,
        /// Length of the run in seconds.
        duration_s: f64,
    },
}

/// Hears what is going on, and how long it is expected to take (ns).
pub type OnStep<'a> = &'a mut dyn FnMut(&str, Option<u64>);

impl Situation {
    /// The disk as it is scheduled.
    ///
    /// # Errors
    /// [`NoEntry`] when there are properties, but none for the storage.
    pub fn disk(&self) -> Result<DiskSetup, NoEntry> {
        self.choice.setup(self.options.storage.path())
    }

    /// Runs it once. Bytes written under `control` since it was made count against the bound.
    fn run(&self, control: &Control, on_step: OnStep<'_>) -> Result<TestResult, ExperimentError> {
        let mut options = self.options.clone();
        options.disk = self.disk()?;
        options.jobs.validate(u32::from(options.shards))?;
        options.max_write_bytes =
            options.max_write_bytes.map(|most| most.saturating_sub(control.traffic.written_bytes()));
        Ok(crate::test::run(&options, control, on_step)?)
    }

    /// Runs it once, and counts what `device` moved meanwhile; `None` without a device.
    fn run_counted(
        &self,
        device: Option<&Device>,
        control: &Control,
        on_step: OnStep<'_>,
    ) -> Result<(TestResult, Option<Counted>), ExperimentError> {
        let mut begun = None;
        let result = self.run(control, &mut |what, expected_ns| {
            on_step(what, expected_ns);
            // The last step is the run proper; preparing files is not counted.
            begun = device.and_then(|device| device.begin(&control.traffic));
        })?;
        let counted = device.zip(begun).and_then(|(device, begun)| device.end(begun, &control.traffic));
        Ok((result, counted))
    }
}

/// Whether an error says that nothing more may be written, or that the user wants to end.
fn is_end(error: &ExperimentError) -> bool {
    matches!(error, ExperimentError::Test(TestError::Interrupted | TestError::MaxWrite { .. }))
}

#[cfg(test)]
mod tests_support {
    use plimsoll::backend::choose::BackendKind;
    use plimsoll_files::job_reader;
    use plimsoll_files::sched_groups::SchedGroups;

    use super::*;
    use crate::test::Storage;

    /// Runs of 5 ms on the null backend.
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
