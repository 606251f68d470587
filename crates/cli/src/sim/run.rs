//! `plimsoll sim run`.

use std::io::BufWriter;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use plimsoll_figures::units::format_count;
use plimsoll_files::scenario::{Scenario, ScenarioFile};
use plimsoll_measure::load::Stop;
use plimsoll_measure::sim::parts::{Part, PartForm, Plan};
use plimsoll_measure::sim::run::{Finished, Step, Subject, Task, run_all};
use plimsoll_measure::sim::scenarios;
use plimsoll_measure::sim::trace;

use super::output::{Form, Pictures};
use super::progress::Progress;
use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::output::{Output, refuse_input};
use crate::{interrupt, screen};

const MAX_RUNS: usize = 10_000;

/// Run named scenarios, or your own, and judge their figures
///
/// A named scenario prints its tables beside the published figures, and judges its own; exit code 1 if one fails. A
/// file (docs/formats.md) describes your own disks, shards, classes and jobs.
#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// Names (see `plimsoll sim list`), or scenario files
    #[arg(value_name = "NAME|FILE.yaml", conflicts_with = "all")]
    scenarios: Vec<String>,

    /// Run all named scenarios
    #[arg(long)]
    all: bool,

    /// Seed [default: 1, or that of the file]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run with N successive seeds, and print mean and 95 % interval of each figure
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// Run a file with several values of a key: parallelism=1,2,4 or disks.0.window=1ms,2ms; repeatable
    #[arg(long, value_name = "KEY=V1,V2...")]
    sweep: Vec<String>,

    /// Simulate N runs at a time; the result does not depend on N [default: one for each CPU]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Run only part K of N; prints JSON for `plimsoll sim merge`
    #[arg(long, value_name = "K/N", conflicts_with = "trace")]
    part: Option<Part>,

    /// Write the curves of each run as CSV into this directory
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,

    /// Draw the curves of each run as SVG into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,

    /// Record the events of every request in this file (for `plimsoll trace`): one run of a scenario file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Overwrite existing files
    #[arg(long)]
    force: bool,

    /// Format of the result
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<Outcome, Failure> {
    let plan = Plan { seeds: arguments.seeds, sweep: swept_keys(&arguments.sweep) };
    let (tasks, part) = of_part(arguments, &plan, tasks(arguments)?)?;
    let form = Form { format: arguments.format, plan: &plan, part: part.as_ref() };
    let pictures = Pictures::check(arguments.csv.as_deref(), arguments.svg.as_deref(), arguments.force, &tasks)?;
    let recording = check_trace(arguments, &tasks)?;
    let workers = arguments.jobs.map_or_else(std::thread::available_parallelism, Ok).map_or(1, NonZeroUsize::get);
    let stop = Stop::default();
    interrupt::stop_on_signal(&stop)?;

    let count = tasks.len();
    let mut progress = Progress::new(&tasks, form.has_runs());
    let mut is_first = true;
    let mut failed = Ok(());
    let finished = run_all(tasks, workers, &stop, &mut |step| {
        let finished = match step {
            Step::Advanced(part) => return progress.advance(part),
            Step::Ended(finished) => finished,
        };
        if failed.is_err() {
            return;
        }
        failed = progress.suspend(|| {
            // A user's file that cannot run is bad input; a named scenario that cannot run has failed.
            if let (true, Err(error)) = (finished.is_from_file(), &finished.result) {
                return Err(Failure::Input(format!("scenario {}: {error}", finished.name)));
            }
            pictures.write(finished)?;
            if form.has_runs() { form.print_run(finished, is_first) } else { Ok(()) }
        });
        is_first = false;
        if failed.is_err() {
            stop.ask();
        }
        // After a stop, a scenario may lack some of its runs.
        if !stop.is_asked() {
            progress.add(finished);
        }
    });

    drop(progress);
    failed?;
    let interrupted = stop.is_asked() && finished.len() < count;
    form.print(&finished, interrupted)?;

    if let (Some((scenario, seed, output)), Some(path), false) = (&recording, &arguments.trace, interrupted) {
        record(scenario, *seed, path, output)?;
    }

    if interrupted {
        screen::note(&format!("interrupted: {} of {count} runs had ended", finished.len()));
        return Ok(Outcome::Interrupted);
    }
    Ok(if finished.iter().all(Finished::passed) { Outcome::Done } else { Outcome::Finding })
}

/// Returns the tasks of this process, and the part of all tasks that they are.
fn of_part(arguments: &RunArguments, plan: &Plan, tasks: Vec<Task>) -> Result<(Vec<Task>, Option<PartForm>), Failure> {
    let Some(part) = arguments.part else { return Ok((tasks, None)) };
    if arguments.format != ReportFormat::Json {
        return Err(Failure::Input(format!(
            "--part {part} prints JSON for `plimsoll sim merge`, which makes tables and CSV of all parts: add --format json"
        )));
    }
    let form = PartForm::new(part, plan.clone(), &tasks);
    Ok((part.of_tasks(tasks), Some(form)))
}

/// Returns the keys of sweeps. [`combinations`] checks them.
fn swept_keys(sweeps: &[String]) -> Vec<String> {
    sweeps.iter().filter_map(|sweep| sweep.split_once('=')).map(|(key, _)| key.to_owned()).collect()
}

/// Checks that `--trace` is possible. Returns the scenario and the seed to record, and the file.
fn check_trace(arguments: &RunArguments, tasks: &[Task]) -> Result<Option<(Arc<Scenario>, u64, Output)>, Failure> {
    let Some(path) = &arguments.trace else { return Ok(None) };
    match tasks {
        [Task { subject: Subject::Own(scenario), seed, .. }] => {
            arguments.scenarios.iter().try_for_each(|read| refuse_input(path, "--trace", Path::new(read)))?;
            let output = Output::check(path, arguments.force, "--trace")?;
            Ok(Some((Arc::clone(scenario), *seed, output)))
        }
        _ => Err(Failure::Input(
            "--trace records one run of a scenario file: name one, and leave --seeds and --sweep out".to_owned(),
        )),
    }
}

/// Runs the scenario again, with the same events, and writes its trace.
fn record(scenario: &Scenario, seed: u64, path: &Path, output: &Output) -> Result<(), Failure> {
    let path = path.display();
    let unfinished = output.begin()?;
    let recorded = trace::record(scenario, seed, BufWriter::new(unfinished.writer()?));
    let events = recorded.map_err(|error| Failure::Machine(format!("{path}: {error}")))?;
    unfinished.finish()?;
    screen::note(&format!("{path}: {} events recorded", format_count(events)));
    Ok(())
}

/// Returns a task for each scenario, combination of swept values and seed. Finds all errors before anything runs.
fn tasks(arguments: &RunArguments) -> Result<Vec<Task>, Failure> {
    if !arguments.all && arguments.scenarios.is_empty() {
        let help = "name a scenario (`plimsoll sim list`) or a scenario file, or give --all";
        return Err(Failure::Input(format!("there is nothing to run: {help}")));
    }

    let combinations = combinations(&arguments.sweep)?;
    let names = if arguments.all {
        scenarios::all().iter().map(|scenario| scenario.name.to_owned()).collect()
    } else {
        arguments.scenarios.clone()
    };

    if combinations.iter().flatten().any(|(key, _)| key == "seed") && (arguments.seed.is_some() || arguments.seeds > 1)
    {
        return Err(Failure::Input(
            "--sweep seed=... says which seeds to run: leave --seed and --seeds out".to_owned(),
        ));
    }
    let runs = names.len().saturating_mul(combinations.len()).saturating_mul(arguments.seeds as usize);
    if runs > MAX_RUNS {
        return Err(Failure::Input(format!(
            "{runs} runs: sweep fewer values, or take fewer seeds ({MAX_RUNS} at most)"
        )));
    }

    let mut tasks = Vec::new();
    for name in &names {
        if let Some(scenario) = scenarios::find(name) {
            if !arguments.sweep.is_empty() {
                return Err(Failure::Input(format!(
                    "--sweep changes values of a scenario file, and {name} is a named scenario: leave one of them out"
                )));
            }
            let seed = arguments.seed.unwrap_or(1);
            let task =
                |at| Task { subject: Subject::Named(scenario), changes: Vec::new(), seed: seed.wrapping_add(at) };
            tasks.extend((0..arguments.seeds).map(task));
            continue;
        }
        let file = scenario_file(name)?;
        for changes in &combinations {
            let scenario = Arc::new(file.scenario(changes)?);
            if tasks.is_empty() {
                scenario.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
            }
            let seed = arguments.seed.unwrap_or(scenario.world.seed);
            tasks.extend((0..arguments.seeds).map(|at| Task {
                subject: Subject::Own(Arc::clone(&scenario)),
                changes: changes.clone(),
                seed: seed.wrapping_add(at),
            }));
        }
    }
    Ok(tasks)
}

fn scenario_file(name: &str) -> Result<ScenarioFile, Failure> {
    let path = Path::new(name);
    let looks_like_file = path.exists() || name.contains('/') || name.ends_with(".yaml") || name.ends_with(".yml");
    if looks_like_file {
        return Ok(ScenarioFile::parse_from_file(path)?);
    }
    let all = scenarios::all();
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    let help = match plimsoll_files::closest_name(name, &names) {
        Some(candidate) => format!("did you mean `{candidate}`?"),
        None => "`plimsoll sim list` names them; a file ends in .yaml".to_owned(),
    };
    Err(Failure::Input(format!("there is no scenario called \"{}\": {help}", name.escape_debug())))
}

/// Returns every combination of the values of all sweeps, or a single empty one without sweeps.
fn combinations(sweeps: &[String]) -> Result<Vec<Vec<(String, String)>>, Failure> {
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for sweep in sweeps {
        let bad =
            |why: &str| Failure::Input(format!("--sweep {sweep}: {why}; write key=v1,v2, such as parallelism=1,2,4"));
        let (key, values) = sweep.split_once('=').ok_or_else(|| bad("there is no `=`"))?;
        if key.is_empty() || values.split(',').any(str::is_empty) {
            return Err(bad("a key or value is empty"));
        }
        if combinations.iter().flatten().any(|(other, _)| other == key) {
            return Err(bad("the key is swept twice"));
        }

        let listed: Vec<&str> = values.split(',').collect();
        if listed.iter().enumerate().any(|(at, value)| listed.iter().take(at).any(|other| other == value)) {
            return Err(bad("a value stands there twice"));
        }

        combinations = combinations
            .iter()
            .flat_map(|before| {
                values.split(',').map(move |value| {
                    let mut changes = before.clone();
                    changes.push((key.to_owned(), value.to_owned()));
                    changes
                })
            })
            .collect();
        if combinations.len() > MAX_RUNS {
            return Err(bad("too many combinations"));
        }
    }
    Ok(combinations)
}
