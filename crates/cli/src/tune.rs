//! `plimsoll tune`: measures the disk under a directory, and writes the description that the scheduler needs.

mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plimsoll_files::setup::is_in_memory;
use plimsoll_files::{disk, io_properties, keys};
use plimsoll_measure::load::Control;
use plimsoll_measure::tune::record::Record;
use plimsoll_measure::tune::{
    self, Mode, SimulatedDisk, TuneOptions, TuneReport, analyse, measure, measure_simulated, merge, pictures, resume,
};

use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{DiskFormat, PictureFlags, TuneBackend, check_shards, size, time, tune_backend};
use crate::output::{Output, Pictures, refuse_same, two_on_stdout};
use crate::recording::Recording;
use crate::{interrupt, screen};
pub(crate) use table::table;

/// Flags that say how to measure. They conflict with --from and --merge, which measure nothing, and with --resume,
/// which measures as its record says.
const MEASURING: [&str; 14] = keys![
    storage disk record quick full read_block_size write_block_size data_size max_write phase figures_only shards
    backend seed
];

/// Flags that a fill sweep does not have.
const NOT_A_SWEEP: [&str; 16] = keys![
    quick full figures_only read_block_size write_block_size record from resume merge output disk_output page pictures
    trace rounds round
];

/// Measure the disk under a directory: IOPS and bandwidth, latency, sizes, reads beside writes
///
/// Writes scratch files into the directory and removes them. The result is Seastar's io-properties.yaml,
/// read by Seastar and by every plimsoll command, and a disk model with everything that was measured.
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["storage", "from", "resume", "merge", "disk"])))]
pub(crate) struct TuneArguments {
    /// Directory on the disk to measure, or with --destructive a block device; repeatable, one for each disk
    #[arg(value_name = "DIR|DEVICE", num_args = 1..)]
    storage: Vec<PathBuf>,

    /// Overwrite a block device: everything on it is lost
    #[arg(long)]
    destructive: bool,

    /// Take at most a minute, instead of five
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Measure until the disk is steady by SNIA's definition: takes hours, and writes the data many times
    #[arg(long)]
    full: bool,

    /// With --full: most rounds [default: 25]
    #[arg(long, value_name = "N", requires = "full", value_parser = clap::value_parser!(u32).range(5..))]
    rounds: Option<u32>,

    /// With --full: length of each of the four conditions of a round [default: 60 s]
    #[arg(long, value_name = "TIME", requires = "full", value_parser = time)]
    round: Option<Duration>,

    /// Size of random reads [default: 4 KiB, or the disk's physical block if larger]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    read_block_size: Option<u64>,

    /// Size of random writes [default: 4 KiB, or the disk's physical block if larger]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    write_block_size: Option<u64>,

    /// Total scratch data [default: 8 GiB, with --quick 2 GiB]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    data_size: Option<u64>,

    /// Write at most this much in total [default: the scratch data and 248 GiB, with --quick 62 GiB; no bound with
    /// --full or --phase]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    max_write: Option<u64>,

    /// Measured time of each figure [default: until the figure is certain enough]
    #[arg(long, value_name = "TIME", value_parser = time)]
    phase: Option<Duration>,

    /// Measure only the bandwidth of overwrites by how full the data is, in tenths, and after a discard of half
    #[arg(long, conflicts_with_all = NOT_A_SWEEP)]
    fill_sweep: bool,

    /// Measure only the four figures and the latency
    #[arg(long)]
    figures_only: bool,

    /// Shards: threads, each pinned to a CPU [default: one on every CPU]
    #[arg(long, visible_alias = "smp", short = 'c', value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,

    /// How requests reach the kernel; sim with --disk [default: the best that works here]
    #[arg(long, value_name = "NAME", value_parser = tune_backend())]
    backend: Option<TuneBackend>,

    /// Measure a simulated disk, in virtual time: a preset, or a disk file with a section `device`
    #[arg(long, value_name = "FILE|PRESET", conflicts_with = "storage")]
    disk: Option<String>,

    /// Seed of positions and data
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Write the raw samples to this file while measuring: for --from, --resume and --merge
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Analyse a record again, without measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    from: Option<PathBuf>,

    /// Continue an interrupted record
    #[arg(long, value_name = "FILE", conflicts_with_all = MEASURING)]
    resume: Option<PathBuf>,

    /// Merge the records of several runs, except outliers, without measuring
    #[arg(long, value_name = "FILE", num_args = 2.., conflicts_with_all = MEASURING)]
    merge: Vec<PathBuf>,

    /// Write io-properties.yaml to this file (`-`: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write the disk model (for --disk) to this file
    #[arg(long, value_name = "FILE")]
    disk_output: Option<PathBuf>,

    #[command(flatten)]
    pictures: PictureFlags,

    /// Record the events of every request in this file (for `plimsoll trace`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "merge", "disk"])]
    trace: Option<PathBuf>,

    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t = DiskFormat::Table)]
    format: DiskFormat,
}

pub(crate) fn run(arguments: &TuneArguments) -> Result<Outcome, Failure> {
    if arguments.fill_sweep {
        return fill_sweep(arguments);
    }
    let outputs = Outputs::check(arguments)?;

    let control = Control::default();
    let recording = Recording::start(arguments.trace.as_deref(), arguments.pictures.page.force, &control.instruments)?;
    // Whether one of several disks could not be measured.
    let mut is_missing = false;
    let reports = reports(arguments, &control, &mut is_missing);
    let recorded = recording.end();
    let reports = reports?;

    let properties: Result<Vec<_>, _> = reports.iter().map(TuneReport::disk_properties).collect();
    let properties = properties.map(|disks| io_properties::write(&disks));
    // Write the files first: the reader of stdout may close it at any time. Report their errors after the result.
    let written = outputs.write(&reports, properties.as_deref().ok());

    let is_to_stdout = arguments.is_to_stdout();
    let format = if is_to_stdout { DiskFormat::Yaml } else { arguments.format };

    if let Err(missing) = &properties {
        match arguments.output.as_deref() {
            Some(path) if !is_to_stdout => screen::error(&format!("{missing}: {} is not written", path.display())),
            _ if outputs.disk.is_some() => screen::error(&format!("{missing}: the disk model is not written")),
            _ if format == DiskFormat::Yaml => screen::error(&format!("{missing}: no io-properties are printed")),
            _ => {}
        }
    }

    if let Some(text) = text(format, &reports, properties.as_deref().ok())? {
        screen::print_if_open(&text)?;
    }
    written?;
    recorded?;
    if control.stop.is_asked() {
        screen::note("interrupted: the figures are those measured until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    let is_sure = reports.iter().all(|report| report.doubts().is_empty());
    Ok(if properties.is_ok() && !is_missing && is_sure { Outcome::Done } else { Outcome::Finding })
}

/// Measures the disk at each fill level.
fn fill_sweep(arguments: &TuneArguments) -> Result<Outcome, Failure> {
    if arguments.format == DiskFormat::Yaml {
        return Err(Failure::Input("--fill-sweep has no io-properties: --format table, json or csv".to_owned()));
    }
    if arguments.storage.len() > 1 {
        return Err(Failure::Input("--fill-sweep fills one disk: name one directory or device".to_owned()));
    }
    let options = checked(arguments)?;
    // Read the disk file before setting the Ctrl-C handler: a pipe without a writer blocks, and must stay
    // interruptible.
    let disk = arguments.disk.as_deref().map(simulated).transpose()?;
    let control = Control::default();
    interrupt::stop_on_signal(&control.stop)?;
    let report = match &disk {
        Some(disk) => tune::fill_sweep_simulated(&options, disk, &mut screen::Phases::new(), &control)?,
        None => tune::fill_sweep(&options, &mut screen::Phases::new(), &control)?,
    };

    screen::print_if_open(&match arguments.format {
        DiskFormat::Json => as_json(&report)?,
        DiskFormat::Csv => report.table().to_csv(),
        DiskFormat::Table | DiskFormat::Yaml => {
            let head: Vec<String> = report.head().lines().map(screen::wrap).collect();
            format!("{}\n\n{}\n", head.join("\n"), screen::show(&report.table()))
        }
    })?;
    Ok(match () {
        () if control.stop.is_asked() => Outcome::Interrupted,
        () if report.is_unclear() => Outcome::Finding,
        () => Outcome::Done,
    })
}

/// Returns a report for each disk, measured or read.
fn reports(arguments: &TuneArguments, control: &Control, is_missing: &mut bool) -> Result<Vec<TuneReport>, Failure> {
    let read = |path: &Path| Record::read(path).map_err(|error| Failure::Input(error.to_string()));

    if let Some(path) = &arguments.from {
        let report = analyse(&read(path)?);
        warn(&report);
        return Ok(vec![report]);
    }

    if !arguments.merge.is_empty() {
        let runs: Result<Vec<_>, Failure> =
            arguments.merge.iter().map(|path| Ok((path.display().to_string(), analyse(&read(path)?)))).collect();
        let report = merge(&runs?).map_err(|error| Failure::Input(error.to_string()))?;
        warn(&report);
        return Ok(vec![report]);
    }

    // Read the disk file before setting the Ctrl-C handler: a pipe without a writer blocks, and must stay
    // interruptible.
    let disk = arguments.disk.as_deref().map(simulated).transpose()?;
    interrupt::stop_on_signal(&control.stop)?;
    control.instruments.serve("plimsoll tune");

    measured(arguments, disk.as_ref(), &mut screen::Phases::new(), control, is_missing)
}

fn warn(report: &TuneReport) {
    report.warnings.iter().for_each(|warning| screen::warning(&warning.message));
}

fn measured(
    arguments: &TuneArguments,
    disk: Option<&SimulatedDisk>,
    progress: &mut screen::Phases,
    control: &Control,
    is_missing: &mut bool,
) -> Result<Vec<TuneReport>, Failure> {
    if let Some(path) = &arguments.resume {
        return Ok(vec![resume(path, arguments.destructive, progress, control)?]);
    }

    let options = checked(arguments)?;
    if let Some(disk) = disk {
        return Ok(vec![measure_simulated(&options, disk, progress, control)?]);
    }

    let directories =
        tune::one_per_file_system(&arguments.storage).map_err(|error| Failure::Input(error.to_string()))?;
    let one_disk = [
        ("--record", arguments.record.is_some()),
        ("--disk-output", arguments.disk_output.is_some()),
        ("--page", arguments.pictures.page.page.is_some()),
        ("--pictures", arguments.pictures.pictures.is_some()),
    ];
    if let Some((flag, _)) = one_disk.iter().find(|(_, is_given)| *is_given && directories.len() > 1) {
        return Err(Failure::Input(format!("{flag} holds one disk: measure one directory at a time with it")));
    }

    let left_out = arguments.storage.len() - directories.len();
    if left_out > 0 {
        screen::note(&format!("{left_out} of the directories are on the same file system as another: measured once"));
    }

    let mut reports = Vec::new();
    for directory in directories {
        if !reports.is_empty() {
            screen::note(&format!("measuring {}", directory.display()));
        }
        let options = TuneOptions { directory, ..options.clone() };
        match measure(&options, progress, control) {
            Ok(report) => reports.push(report),
            Err(error) if reports.is_empty() => return Err(error.into()),
            Err(error) => {
                // Keep the measured disks; the exit code says that one is missing.
                screen::error(&format!("{}: {error}", options.directory.display()));
                *is_missing = true;
                break;
            }
        }
        if control.stop.is_asked() {
            break;
        }
    }
    Ok(reports)
}

fn simulated(name: &str) -> Result<SimulatedDisk, Failure> {
    let model = disk::find(name, Path::new(""))?;
    let Some(spec) = model.device else {
        return Err(Failure::Input(format!(
            "{name} has no section `device`, which the simulator needs: `plimsoll sim fit` writes one, and presets have one"
        )));
    };
    let name = model.name.unwrap_or_else(|| name.to_owned());
    Ok(SimulatedDisk::new(name, spec))
}

impl TuneArguments {
    fn is_to_stdout(&self) -> bool {
        self.output.as_deref().is_some_and(|path| path.as_os_str() == "-")
    }
}

/// Refuses a file that would be written twice, or read and overwritten.
fn check_differ(arguments: &TuneArguments) -> Result<(), Failure> {
    let named = [
        ("--record", &arguments.record),
        ("--from", &arguments.from),
        ("--resume", &arguments.resume),
        ("--output", &arguments.output),
        ("--disk-output", &arguments.disk_output),
        ("--page", &arguments.pictures.page.page),
        ("--trace", &arguments.trace),
    ];
    let merged = arguments.merge.iter().map(|path| ("--merge", Some(path.as_path())));
    refuse_same(named.into_iter().map(|(flag, path)| (flag, path.as_deref())).chain(merged))
}

/// The files of the results, checked to be writable before the work.
struct Outputs {
    properties: Option<Output>,
    disk: Option<Output>,
    page: Option<Output>,
    pictures: Option<Pictures>,
}

impl Outputs {
    fn check(arguments: &TuneArguments) -> Result<Outputs, Failure> {
        check_differ(arguments)?;
        if arguments.is_to_stdout() && matches!(arguments.format, DiskFormat::Json | DiskFormat::Csv) {
            return Err(Failure::Input(two_on_stdout("io-properties")));
        }
        let check = |path: &Option<PathBuf>, flag: &str| match path.as_deref().filter(|path| path.as_os_str() != "-") {
            Some(path) => Output::check(path, arguments.pictures.page.force, flag).map(Some),
            None => Ok(None),
        };
        let (page, pictures) = arguments.pictures.check(&pictures::NAMES)?;
        Ok(Outputs {
            properties: check(&arguments.output, "--output")?,
            disk: check(&arguments.disk_output, "--disk-output")?,
            page,
            pictures,
        })
    }

    fn write(&self, reports: &[TuneReport], properties: Option<&str>) -> Result<(), Failure> {
        if let (Some(output), Some(yaml)) = (&self.properties, properties) {
            output.write(yaml)?;
        }
        let Some(report) = reports.first() else { return Ok(()) };
        if let (Some(output), Ok(model)) = (&self.disk, report.disk_model()) {
            output.write(&disk::write(&model))?;
        }
        if let Some(output) = &self.page {
            output.write(&pictures::page(report))?;
        }
        if let Some(output) = &self.pictures {
            for (name, charts) in pictures::charts(report) {
                output.write(name, &report.site.mountpoint, &charts)?;
            }
        }
        Ok(())
    }
}

/// Returns the text for stdout, or `None` if there are no `properties` to print.
fn text(format: DiskFormat, reports: &[TuneReport], properties: Option<&str>) -> Result<Option<String>, Failure> {
    Ok(match format {
        DiskFormat::Table => Some(reports.iter().map(table).collect::<Vec<String>>().join("\n")),
        // One disk is an object, several are a list.
        DiskFormat::Json => Some(match reports {
            [report] => as_json(report)?,
            reports => as_json(&reports)?,
        }),
        DiskFormat::Csv => Some(reports.iter().map(TuneReport::to_csv).collect()),
        DiskFormat::Yaml => properties.map(str::to_owned),
    })
}

fn checked(arguments: &TuneArguments) -> Result<TuneOptions, Failure> {
    arguments.shards.filter(|_| arguments.disk.is_none()).map_or(Ok(()), check_shards)?;
    let block = |bytes: Option<u64>, flag: &str| match bytes.map(u32::try_from) {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(_)) => Err(Failure::Input(format!("{flag}: too large; give 512 bytes to 1 MiB"))),
    };

    let backend = match (arguments.backend, &arguments.disk) {
        (Some(TuneBackend::Simulated), None) => {
            let message =
                "--backend sim measures no directory: name the simulated disk instead, with --disk FILE|PRESET";
            return Err(Failure::Input(message.to_owned()));
        }
        (Some(TuneBackend::Machine(_)), Some(_)) => {
            let message = "--disk is a simulated disk: leave --backend out, or name a directory instead";
            return Err(Failure::Input(message.to_owned()));
        }
        (Some(TuneBackend::Machine(kind)), None) => Some(kind),
        (Some(TuneBackend::Simulated) | None, _) => None,
    };

    let directory = arguments.storage.first().cloned().unwrap_or_default();
    let mode = match (arguments.quick, arguments.full) {
        (true, _) => Mode::Quick,
        (_, true) => Mode::Full,
        _ => Mode::Standard,
    };
    let defaults = match mode {
        Mode::Quick => TuneOptions::quick(directory),
        _ => TuneOptions::new(directory),
    };
    let mut options = TuneOptions {
        destructive: arguments.destructive,
        backend,
        shards: arguments.shards.unwrap_or(defaults.shards),
        mode,
        figures_only: arguments.figures_only,
        read_block_bytes: block(arguments.read_block_size, "--read-block-size")?,
        write_block_bytes: block(arguments.write_block_size, "--write-block-size")?,
        data_bytes: arguments.data_size.unwrap_or(defaults.data_bytes),
        max_write_bytes: arguments.max_write,
        phase_s: arguments.phase.map(|time| time.as_secs_f64()),
        rounds_max: arguments.rounds.unwrap_or(defaults.rounds_max),
        round_s: arguments.round.map_or(defaults.round_s, |time| time.as_secs_f64()),
        seed: arguments.seed,
        record: arguments.record.clone(),
        ..defaults
    };
    // Writing wears out only a real disk.
    if options.max_write_bytes.is_none() && arguments.disk.is_none() && !is_in_memory(options.backend) {
        // A sweep keeps the default bound, even if --phase sets the time of each level.
        let phase_s = options.phase_s.filter(|_| !arguments.fill_sweep);
        options.max_write_bytes = TuneOptions { phase_s, ..options.clone() }.usual_max_write_bytes();
    }
    Ok(options)
}
