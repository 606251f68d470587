//! `plimsoll run`: runs an unchanged program with the scheduler between it and its disk.
//!
//! # Why
//! Most users cannot change their database.
//!
//! # How it works
//! Faults of the rules ([`run_rules`]), the disk and the program ([`program`]) are reported before the program starts.
//! A file in memory ([`handover`]) carries the checked settings to the library that the dynamic linker loads into the
//! program, and the counters back. While the program runs, [`watch`] looks for I/O that the library cannot see, and
//! with `--live` [`live`] shows its classes; at its end [`report`] prints to stderr the work of each class and the part
//! of the I/O that passed the gate. The program's exit code becomes the command's.
//!
//! # Limits
//! Linux and glibc; one run at a time on a disk. See docs/guide/run.md.
//!
//! # Example
//! `plimsoll run --rules rocksdb --disk model.yaml --dir /data -- db_bench --db=/data --use_direct_reads ...`

#[path = "../../handover.rs"]
mod handover;
mod live;
mod lock;
mod pane;
mod program;
mod report;
mod to_program;
mod traces;
mod watch;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::{ArgGroup, Args};
use plimsoll::core::LatencyGoal;
use plimsoll_files::disk;
use plimsoll_files::run_rules::{self, RunRules};
use plimsoll_files::setup::{DiskChoice, parse_latency_goal};

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{BriefFormat, read_properties};
use crate::output::{Output, refuse_same};
use crate::screen;
use handover::VARIABLE;
use lock::DiskLock;
use to_program::{Managed, Shared};

/// File name of the library.
const LIBRARY: &str = "libplimsoll_preload.so";

/// Run a program with the scheduler between it and its disk, without root and without a rebuild
///
/// Reads, writes and syncs of files under --dir wait for their turn by the rules. `plimsoll attach PID` shows the
/// program's classes and changes shares while it runs. The report at the end goes to stderr or into a file; the exit
/// code is the program's.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("files").multiple(true))]
pub(crate) struct RunArguments {
    /// Rules that give calls their classes: a file, or default, rocksdb, mysql, postgres
    #[arg(long, value_name = "FILE|NAME", default_value = "default")]
    rules: String,

    /// The disk's figures, as `plimsoll tune` or iotune wrote them
    #[arg(long, value_name = "FILE", conflicts_with = "disk")]
    io_properties: Option<PathBuf>,

    /// Disk model: a disk.yaml, or the name of a preset
    #[arg(long, value_name = "FILE|NAME")]
    disk: Option<String>,

    /// Directories of the managed files, or block devices [default: the working directory]
    #[arg(long, value_name = "PATH")]
    dir: Vec<PathBuf>,

    /// Longest device time of one piece of a request in milliseconds, or `none`: no splitting [default: 0.75]
    #[arg(long, value_name = "MS", value_parser = parse_latency_goal)]
    latency_goal: Option<LatencyGoal>,

    /// Record the events of every call in this file (for `plimsoll trace`); further processes with the gate write
    /// FILE.PID
    #[arg(long, value_name = "FILE", group = "files")]
    trace: Option<PathBuf>,

    /// Format of the report
    #[arg(long, value_enum, default_value_t = BriefFormat::Table)]
    format: BriefFormat,

    /// Write the report to this file instead of stderr
    #[arg(short, long, value_name = "FILE", group = "files")]
    output: Option<PathBuf>,

    /// Overwrite the files of --trace and -o
    #[arg(long, requires = "files")]
    force: bool,

    /// Show on stderr what the classes do and wait for while the program runs, as `plimsoll attach` does: each second,
    /// on a terminal in its last rows, below the program's output
    #[arg(long)]
    live: bool,

    /// Print at the end which rule matched how many calls
    #[arg(long)]
    explain: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<Outcome, Failure> {
    let rules = run_rules::find(&arguments.rules)?;
    rules.warnings.iter().for_each(|warning| screen::note(&warning.to_string()));
    let managed = Managed::find(&arguments.dir)?;
    warn_of_far_rules(&rules, &managed);

    let choice = choice(arguments)?;
    let disk = to_program::disk_form(&choice, managed.first())?;
    let library = library()?;
    let name = arguments.command.first().map_or("", String::as_str);
    let path = program::check(name, &library)?;

    if let Some(path) = &arguments.trace {
        Output::check(path, arguments.force, "--trace")?;
    }
    refuse_same([("--trace", arguments.trace.as_deref()), ("-o", arguments.output.as_deref())])?;
    let output = arguments.output.as_deref().map(|path| Output::check(path, arguments.force, "-o")).transpose()?;
    let trace = arguments.trace.as_deref().map(absolute).transpose()?;
    let _lock = DiskLock::take(managed.device(), &arguments.command.join(" "))?;

    if choice.is_unlimited() {
        screen::warning(
            "no --io-properties or --disk: nothing is held back but by limits in the rules; `plimsoll tune` measures the disk",
        );
    }

    let shared = Shared::new(&to_program::handover(name, &managed, disk, &rules, trace.as_deref()))?;
    // Remove the old trace only now: a refused run must not destroy it.
    if let Some(path) = trace.as_deref().filter(|path| path.is_file()) {
        // The first process with the gate creates it; further ones write beside it.
        std::fs::remove_file(path)
            .map_err(|error| Failure::Machine(format!("cannot write over {}: {error}", path.display())))?;
    }

    let began = Instant::now();
    let mut command = Command::new(&path);
    command.args(arguments.command.iter().skip(1)).env(VARIABLE, shared.path());
    set_name(&mut command, name);

    // Put our library before others: the dynamic linker takes a function from the first library that has it.
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);

    let cannot_catch = |error| Failure::Machine(format!("cannot catch the signals for {name}: {error}"));
    let signals = watch::Signals::catch().map_err(cannot_catch)?;
    let child =
        command.spawn().map_err(|error| Failure::Machine(format!("cannot start {}: {error}", path.display())))?;

    let wait = || watch::until_over(child, signals, &managed, || shared.owner());
    let over = if arguments.live { live::beside(&shared, wait) } else { wait() };
    let (status, seen) = over.map_err(|error| Failure::Machine(format!("cannot wait for {name}: {error}")))?;
    let counters = shared.counters().map_err(|error| Failure::Machine(format!("cannot read the counters: {error}")))?;

    let exit_code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let ended = report::Ended {
        command: &arguments.command,
        exit_code,
        rules: &rules,
        rules_name: &arguments.rules,
        handover: shared.handover(),
        counters: &counters,
        seen: &seen,
        seconds: began.elapsed().as_secs_f64(),
        explain: arguments.explain,
    };
    let text = match arguments.format {
        BriefFormat::Table => screen::printable_lines(&report::text(&ended)),
        BriefFormat::Json => as_json(&report::json(&ended))? + "\n",
    };
    // If the file cannot be written, print the report to stderr: the program has run, and its figures must not be lost.
    let write = |output: &Output| output.write(&text).inspect_err(|error| screen::error(&error.to_string()));
    if output.as_ref().is_none_or(|output| write(output).is_err()) {
        eprint!("\n{text}");
    }

    if let Some(path) = &arguments.trace {
        let (line, is_missing) = traces::line(&path.display().to_string(), &counters.traces());
        if is_missing { screen::warning(&line) } else { screen::note(&line) }
    }

    Ok(Outcome::OfProgram(u8::try_from(exit_code).unwrap_or(u8::MAX)))
}

/// Passes the name as it was typed, because some programs read it.
fn set_name(command: &mut Command, name: &str) {
    use std::os::unix::process::CommandExt;
    command.arg0(name);
}

fn choice(arguments: &RunArguments) -> Result<DiskChoice, Failure> {
    let properties = arguments.io_properties.as_deref().map(read_properties).transpose()?;
    let disk = arguments.disk.as_deref().map(|name| disk::find(name, Path::new(""))).transpose()?;
    Ok(DiskChoice { properties, disk, latency_goal: arguments.latency_goal, ..DiskChoice::default() })
}

/// Finds the library beside the command, or in the directories of packages.
fn library() -> Result<PathBuf, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::Machine(format!("cannot find this command: {error}")))?;
    let beside = own.parent().unwrap_or(Path::new("/"));
    let places =
        [beside.join(LIBRARY), beside.join("../lib/plimsoll").join(LIBRARY), beside.join("../lib").join(LIBRARY)];
    let found = places.iter().find(|place| place.is_file()).and_then(|place| place.canonicalize().ok());
    let found = found.ok_or_else(|| {
        Failure::Machine(format!(
            "{LIBRARY} is not beside this command ({}): build it with `cargo build --release -p plimsoll-preload`",
            beside.display()
        ))
    })?;
    if found.to_string_lossy().contains([' ', ':']) {
        let place = found.display();
        return Err(Failure::Machine(format!(
            "{place}: the dynamic linker cannot load a library whose path has a space or a colon: move it, and the command"
        )));
    }
    Ok(found)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::Input(format!("--trace {}: {why}", path.display()));
    let absolute = std::path::absolute(path).map_err(|error| wrong(&error))?;
    if absolute.to_str().is_none() { Err(wrong(&to_program::NOT_UTF8)) } else { Ok(absolute) }
}

/// Warns of rules for files that are not managed: they match nothing.
fn warn_of_far_rules(rules: &RunRules, managed: &Managed) {
    for rule in &rules.rules {
        let Some(path) = rule.path.as_deref().filter(|path| path.starts_with('/')) else { continue };
        let plain = path.split('*').next().unwrap_or(path);
        if !managed.may_hold(plain) {
            screen::warning(&format!("the rule `{rule}` matches nothing: no file there is managed; see --dir"));
        }
    }
}
