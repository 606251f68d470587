//! `plimsoll test`: runs the jobs of an io_tester or fio job file, once or as an experiment; or examines real blocks.
//!
//! `--matrix`, `--replay` and `--examine` need no jobs, but are flags of this command: the first two take the flags of
//! a test (storage, disk, shards, formats, pictures) and give its result; the last measures what `compressible` in a
//! job should be. Each is one branch at the top of [`run`], and scripts know them by these names.

mod arguments;
mod examine;
mod experiments;
mod live;
mod outputs;
mod replay;
mod table;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_files::setup::is_in_memory;
use plimsoll_files::variant_name;
use plimsoll_measure::experiment::pictures;
use plimsoll_measure::fio_json::{self, FioJson};
use plimsoll_measure::load::{BlockFault, Control, Instruments, Scratch};
use plimsoll_measure::report::{JobReport, TestReport};
use plimsoll_measure::test::{Storage, TestError, TestOptions, TestResult};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Failure, Outcome};
use crate::flags::{DiskFlags, TestFormat};
use crate::recording::Recording;
use crate::{interrupt, screen};
pub(crate) use arguments::TestArguments;
use arguments::{Checked, checked};
use experiments::Experiment;
use live::{LiveView, Span};
use outputs::Outputs;

pub(crate) fn run(arguments: &TestArguments) -> Result<Outcome, Failure> {
    if let Some(path) = &arguments.examine {
        return examine::run(path, arguments);
    }
    if let (Some(path), false) = (&arguments.rbd, arguments.dual) {
        return experiments::rbd_alone(path, arguments);
    }
    if let Some(path) = &arguments.replay {
        return replay::run(path, arguments);
    }

    let outputs = Outputs::check(arguments)?;
    let checked = checked(arguments)?;
    let experiment = Experiment::asked(arguments, &checked)?;
    remove_leftovers(&checked.situation.options);
    raise_open_files();
    let control = Control::default();
    interrupt::stop_on_signal(&control.stop)?;
    control.instruments.serve("plimsoll test");
    let recording = Recording::start(arguments.trace.as_deref(), arguments.pictures.page.force, &control.instruments)?;
    let options = &checked.situation.options;
    let run_ns = options.warmup_ns.saturating_add(options.duration_ns);
    let expected_ns = experiment.as_ref().map_or(run_ns, |experiment| experiment.expected_ns(options));
    let mut steps = Steps::new(&arguments.disk, &checked, &control.instruments, Some(expected_ns));
    if let Some(experiment) = experiment {
        let outcome = experiment.run(&checked.situation, &control, arguments.format, &outputs, &mut steps)?;
        recording.end()?;
        return Ok(outcome);
    }

    let result = plimsoll_measure::test::run_watched(
        &checked.situation.options,
        &checked.watch,
        &control,
        &mut |what, expected_ns| steps.next(what, expected_ns),
    );

    steps.end();
    let recorded = recording.end();
    let scratch = scratch_words(arguments.keep_files);

    let result = match result {
        Err(error @ TestError::Interrupted) => {
            screen::note(&format!("{error}; {scratch}"));
            return Ok(Outcome::Interrupted);
        }
        other => other?,
    };

    let report = TestReport::of(&result).with_options(&checked.situation.options);
    hand_over("test", &report, &text(arguments.format, &report, &result, &checked), &outputs)?;
    recorded?;
    Ok(conclude(&report, scratch))
}

fn scratch_words(are_kept: bool) -> &'static str {
    if are_kept { "scratch files are kept" } else { "scratch files are removed" }
}

/// Writes the files of a run, and prints its result.
fn hand_over(title: &str, report: &TestReport, text: &str, outputs: &Outputs) -> Result<(), Failure> {
    let charts = || pictures::of_report(report);
    let written = outputs.write(title, None, &report.remarks(), pictures::table(report), charts);
    screen::print_if_open(text)?;
    written
}

/// Raises the limit of open files to the hard one: a job may have thousands, each opened once to make it and once by a
/// shard. If that is refused and too few, opening them says so.
fn raise_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Removes scratch files of killed runs, which would take the room and the names of new ones, and reports it.
fn remove_leftovers(options: &TestOptions) {
    let Storage::Directory(directory) = &options.storage else { return };
    if is_in_memory(options.backend) {
        return;
    }
    let count = Scratch::remove_leftovers(directory);
    if count > 0 {
        screen::note(&format!("{}: removed {count} scratch file(s) of runs that were killed", directory.display()));
    }
}

fn text(format: TestFormat, report: &TestReport, result: &TestResult, checked: &Checked) -> String {
    let fio = |bins: bool| {
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        fio_json::to_json(result, &FioJson { file: checked.fio.as_ref(), bins, unix_ms })
    };
    match format {
        TestFormat::Table => table::table(report),
        TestFormat::Json => report.to_json(),
        TestFormat::Csv => report.to_csv(),
        TestFormat::Yaml => report.to_yaml(),
        TestFormat::FioJson => fio(false),
        TestFormat::FioJsonPlus => fio(true),
    }
}

/// Prints to stderr the remarks that are not in the result. Returns the outcome.
fn conclude(report: &TestReport, scratch: &str) -> Outcome {
    tell_steady(report);
    report.latency_goal_binds.iter().for_each(|price| screen::note(&price.sentence()));
    for job in report.jobs.iter().filter(|job| job.errors > 0) {
        let first = job.first_error.as_deref().unwrap_or("unknown");
        screen::error(&format!("job `{}`: {} requests failed, the first: {first}", job.name, job.errors));
    }
    tell_faults(report);
    if report.interrupted {
        screen::note(&format!("interrupted: the figures are of the time until then; {scratch}"));
        return Outcome::Interrupted;
    }
    if report.max_write_reached {
        let written = format_bytes_binary(report.written_bytes);
        screen::note(&format!("jobs that write ended early: --max-write was reached ({written} written)"));
    }
    let has_failed = |job: &JobReport| job.errors > 0 || job.fault_count > 0;
    if report.jobs.iter().any(has_failed) { Outcome::Finding } else { Outcome::Done }
}

/// Prints the blocks with wrong content, a line each.
fn tell_faults(report: &TestReport) {
    for job in report.jobs.iter().filter(|job| job.fault_count > 0) {
        for fault in &job.faults {
            let BlockFault { offset, kind, expected, found } = fault;
            screen::error(&format!(
                "job `{}`: {} block at offset {offset}: expected {expected}, found {found}",
                job.name,
                variant_name(kind)
            ));
        }
        let shown = job.faults.len() as u64;
        let more = if job.fault_count > shown { format!(", the first {shown} above") } else { String::new() };
        screen::error(&format!("job `{}`: {} blocks did not hold what was written{more}", job.name, job.fault_count));
    }
}

fn tell_steady(report: &TestReport) {
    let Some(steady) = &report.steady else { return };
    let figures = format!("largest deviation {:.1} %, slope {:.2} %/s", steady.deviation_pct, steady.slope_pct);
    screen::note(&match steady.attained {
        true => format!("ended because it was steady: {figures}"),
        false => format!("it did not become steady: {figures}; run it longer, or allow more"),
    });
}

/// Returns an expected length, or `None` for a run that ends by itself.
fn known(expected_ns: Option<u64>) -> Option<Duration> {
    expected_ns.filter(|ns| *ns < 1 << 58).map(Duration::from_nanos)
}

/// The progress of a run on stderr: warnings once everything was accepted, then bars and the jobs.
struct Steps<'a> {
    disk: &'a DiskFlags,
    checked: &'a Checked,
    instruments: &'a Instruments,
    warned: bool,
    view: Option<LiveView>,
    /// Expected length of all steps, if known, of the finished ones, and of the present one.
    whole: Option<Duration>,
    done: Duration,
    step: Duration,
}

impl<'a> Steps<'a> {
    /// Returns the progress of runs that take `expected_ns` for each stage of the job file; `None` if unknown.
    fn new(
        disk: &'a DiskFlags,
        checked: &'a Checked,
        instruments: &'a Instruments,
        expected_ns: Option<u64>,
    ) -> Steps<'a> {
        let stages: BTreeSet<u32> = checked.situation.options.jobs.jobs.iter().map(|job| job.stage).collect();
        // The matrix has its own jobs, so this job file may have no stage.
        let whole = known(expected_ns).map(|stage| stage.saturating_mul(stages.len().max(1) as u32));
        let (done, step) = (Duration::ZERO, Duration::ZERO);
        Steps { disk, checked, instruments, warned: false, view: None, whole, done, step }
    }

    fn next(&mut self, what: &str, expected_ns: Option<u64>) {
        // Warn only after everything was accepted: an error stands alone.
        if !self.warned {
            let situation = &self.checked.situation;
            self.disk.warn(&situation.choice, situation.options.shards);
            self.warned = true;
        }
        self.view = None;
        self.done += std::mem::take(&mut self.step);
        let span = known(expected_ns).map(|step| {
            self.step = step;
            match self.whole {
                // A search may need more runs than usual.
                Some(whole) => Span { done: self.done, step, whole: whole.max(self.done + step) },
                None => Span { done: Duration::ZERO, step, whole: step },
            }
        });
        self.view = Some(LiveView::start(what, span, self.instruments));
    }

    fn end(&mut self) {
        self.view = None;
    }
}
