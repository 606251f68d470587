//! `tune` on the backends of this machine: what a report must hold, whatever the speed of the disk.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use plimsoll::backend::choose::BackendKind;
use plimsoll_files::io_properties;
use plimsoll_measure::load::Control;
use plimsoll_measure::tune::record::{Entry, Phase, Record, Step};
use plimsoll_measure::tune::{
    Device, Figure, Leaf, MissingCause, Mode, Observer, PhysicalBlock, SCHEMA, TuneError, TuneOptions, TuneReport,
    Unit, Warning, WarningCode, analyse, measure, merge, one_per_file_system, resume,
};
use tempfile::{TempDir, tempdir};

use crate::skip::{self, skip};

fn names(dir: &TempDir) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Small and short: what it measures is worth nothing, how it reports is what counts.
fn options(directory: &Path, backend: Option<BackendKind>) -> TuneOptions {
    TuneOptions {
        backend,
        shards: 1,
        data_bytes: 16 << 20,
        phase_s: Some(0.12),
        figures_only: true,
        ..TuneOptions::quick(directory)
    }
}

/// The same with all curves, in samples of a few milliseconds.
fn everything(directory: &Path, backend: Option<BackendKind>) -> TuneOptions {
    TuneOptions { figures_only: false, phase_s: Some(0.04), ..options(directory, backend) }
}

/// A report to make others from: four figures of nothing.
fn report_of_nothing() -> TuneReport {
    static REPORT: OnceLock<TuneReport> = OnceLock::new();
    let measured = || {
        let dir = tempdir().unwrap();
        measure(&options(dir.path(), Some(BackendKind::Null)), &mut (), &Control::default()).unwrap()
    };
    REPORT.get_or_init(measured).clone()
}

/// Whether this machine's temporary directory can be measured at all, and in time; says why not. (That figures are
/// complete where time is no matter is shown on simulated disks.)
fn or_skip(result: Result<TuneReport, TuneError>) -> Option<TuneReport> {
    let is_cut = |report: &TuneReport| {
        let is_bounded = report.warnings.iter().any(|warning| warning.code == WarningCode::MaxWrite);
        let is_short = figures(report).iter().any(|(_, figure, ..)| figure.is_some_and(|figure| !figure.complete));
        is_short && !is_bounded && !report.interrupted
    };
    match result {
        Ok(report) if is_cut(&report) => {
            skip("the machine is too busy to measure for as long as was asked");
            None
        }
        Ok(report) => Some(report),
        // The probe decides, and says so.
        Err(TuneError::Open(_)) if !skip::has_direct_io(&std::env::temp_dir()) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether so many shards have a CPU each; says it where not.
fn has_cpus(shards: u16) -> bool {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    if cpus < usize::from(shards) {
        skip(format_args!("{shards} shards need as many CPUs, and there is {cpus}"));
    }
    cpus >= usize::from(shards)
}

fn figures(report: &TuneReport) -> [(&'static str, Option<&Figure>, Unit, u32); 4] {
    [
        ("write_bandwidth", report.write_bandwidth.as_ref(), Unit::BytesPerS, 1 << 20),
        ("read_bandwidth", report.read_bandwidth.as_ref(), Unit::BytesPerS, 1 << 20),
        ("write_iops", report.write_iops.as_ref(), Unit::OperationsPerS, report.write_block.bytes),
        ("read_iops", report.read_iops.as_ref(), Unit::OperationsPerS, report.read_block.bytes),
    ]
}

fn check_figure(name: &str, figure: &Figure, unit: Unit, block_bytes: u32) {
    assert_eq!((figure.unit, figure.block_bytes), (unit, block_bytes), "{name}");
    assert!(figure.value.is_finite() && figure.value > 0.0, "{name}: {figure:?}");
    assert!(!figure.samples.is_empty() && figure.depth >= 1, "{name}: {figure:?}");
    assert!(figure.settled_at < figure.samples.len() && figure.sample_s > 0.0, "{name}: {figure:?}");
    assert!(figure.ci95_pct.is_none_or(|percent| percent >= 0.0) && figure.deviation_pct >= 0.0, "{name}: {figure:?}");
    let counted = &figure.samples[figure.settled_at..];
    let (least, most) = counted.iter().fold((f64::MAX, 0.0_f64), |(a, b), &s| (a.min(s), b.max(s)));
    let slack = 1e-6 * most;
    assert!((least - slack..=most + slack).contains(&figure.value), "{name}: {figure:?}");
    // An attempt that others disturbed may take its depth from the search of another attempt.
    let is_undisturbed = figure.foreign_pct.is_none_or(|percent| percent == 0.0);
    let is_probed = figure.probes.is_empty() || figure.probes.iter().any(|probe| probe.depth == figure.depth);
    assert!(is_probed || !is_undisturbed, "{name}: {figure:?}");
}

fn check_complete(report: &TuneReport, options: &TuneOptions) {
    assert_eq!((report.schema, report.interrupted, report.shards), (SCHEMA, false, options.shards));
    assert_eq!((report.mode, report.seed, &report.merged), (options.mode, options.seed, &None));
    for (name, figure, unit, block_bytes) in figures(report) {
        let Some(figure) = figure else { panic!("{name} is missing") };
        check_figure(name, figure, unit, block_bytes);
    }
    for latency in [report.read_latency, report.write_latency] {
        let Some(latency) = latency else { panic!("a latency is missing") };
        assert!(latency.requests > 0 && latency.p50_ns <= latency.p99_ns, "{latency:?}");
    }
    assert!(report.written_bytes >= report.data_bytes && report.data_bytes > 0);

    let properties = report.disk_properties().unwrap();
    let read_back = io_properties::parse("io.yaml", &io_properties::write(std::slice::from_ref(&properties))).unwrap();
    assert_eq!(read_back.disks, [properties]);
    assert!(report.four_figures().is_ok());

    let json = serde_json::to_string(report).unwrap();
    assert_eq!(&serde_json::from_str::<TuneReport>(&json).unwrap(), report);
}

fn check_curves(report: &TuneReport) {
    for depths in [&report.read_depths, &report.write_depths] {
        let depths: Vec<u32> = depths.as_ref().unwrap().points.iter().map(|point| point.depth).collect();
        assert!(depths[0] == 1 && depths.is_sorted(), "{depths:?}");
    }
    for sizes in [&report.read_sizes, &report.write_sizes] {
        let sizes: Vec<u32> = sizes.as_ref().unwrap().points.iter().map(|point| point.block_bytes).collect();
        assert!(sizes.len() >= 2 && sizes.is_sorted() && sizes.last() == Some(&(1 << 20)), "{sizes:?}");
    }
    assert!(report.read_sequential.is_some() && report.write_sequential.is_some());
    assert!(report.depth_mode.as_ref().is_some_and(|mode| mode.num_io_queues >= 1 && mode.max_io_requests >= 4));
    assert!(report.disk_model().unwrap().tables.is_some());
}

#[test]
fn every_backend_gives_a_whole_report_and_leaves_nothing() {
    let backends = [None, Some(BackendKind::Memory), Some(BackendKind::Null)];
    for backend in backends {
        let dir = tempdir().unwrap();
        let options = options(dir.path(), backend);
        let result = measure(&options, &mut (), &Control::default());
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        let Some(report) = or_skip(result) else { continue };
        check_complete(&report, &options);
        if let Some(backend) = backend {
            assert_eq!(report.backend.name, backend.name());
        }
        assert!(dir.path().canonicalize().unwrap().starts_with(&report.site.mountpoint), "{}", report.site.mountpoint);
    }
}

#[test]
fn curves_come_unless_only_figures_are_wanted() {
    for backend in [None, Some(BackendKind::Null)] {
        let dir = tempdir().unwrap();
        let options = everything(dir.path(), backend);
        let result = measure(&options, &mut (), &Control::default());
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        let Some(report) = or_skip(result) else { continue };
        check_complete(&report, &options);
        check_curves(&report);
        // Single operations need a disk.
        assert!(backend.is_none() || (report.flush.is_none() && report.submissions.is_empty()));
    }
    let dir = tempdir().unwrap();
    let report = measure(&options(dir.path(), Some(BackendKind::Null)), &mut (), &Control::default()).unwrap();
    assert!(report.read_sizes.is_none() && report.frontier.is_none() && report.physical_block.is_none());
    assert_eq!(report.disk_model().unwrap().tables, None);
}

#[test]
fn a_full_measurement_goes_in_rounds() {
    let dir = tempdir().unwrap();
    let options =
        TuneOptions { mode: Mode::Full, rounds_max: 5, round_s: 0.01, ..options(dir.path(), Some(BackendKind::Null)) };
    let Some(report) = or_skip(measure(&options, &mut (), &Control::default())) else { return };
    check_complete(&report, &options);
    let state = report.steady_state.as_ref().unwrap();
    assert_eq!((state.rounds, state.tracks.len()), (5, 4));
    assert!(state.precondition_bytes >= 2 * report.data_bytes, "{state:?}");
    let is_warned = report.warnings.iter().any(|warning| warning.code == WarningCode::NotSteady);
    assert_eq!(is_warned, !state.attained, "{state:?}");
}

#[test]
fn all_shards_work_where_there_are_several() {
    let dir = tempdir().unwrap();
    let options = TuneOptions { shards: 2, ..options(dir.path(), Some(BackendKind::Null)) };
    if !has_cpus(2) {
        return;
    }
    let report = measure(&options, &mut (), &Control::default()).unwrap();
    check_complete(&report, &options);
    assert_eq!(report.read_iops.map(|figure| figure.depth % 2), Some(0));
}

/// Writes down what it hears, and asks for the end when a certain phase begins.
#[derive(Default)]
struct Listener {
    phases: Vec<String>,
    notes: Vec<String>,
    fractions: Vec<f64>,
    stop_at: Option<(&'static str, Control)>,
}

impl Observer for Listener {
    fn on_phase(&mut self, name: &str, expected_s: f64) {
        assert!(expected_s >= 0.0 && expected_s.is_finite());
        self.phases.push(name.to_owned());
        if let Some((phase, control)) = &self.stop_at
            && *phase == name
        {
            control.stop.ask();
        }
    }

    fn on_progress(&mut self, fraction: f64) {
        self.fractions.push(fraction);
    }

    fn on_note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

#[test]
fn an_observer_hears_phases_progress_and_figures() {
    let dir = tempdir().unwrap();
    let mut listener = Listener::default();
    measure(&options(dir.path(), Some(BackendKind::Null)), &mut listener, &Control::default()).unwrap();
    let expect = ["scratch data", "sequential write", "sequential read", "random write", "random read"];
    // A phase that others disturbed is made again.
    listener.phases.dedup();
    assert_eq!(listener.phases, expect);
    for phase in &expect[1..] {
        let line = listener.notes.iter().find(|note| note.starts_with(phase) && note.contains(", depth "));
        assert!(line.is_some_and(|line| !line.contains('\n')), "{phase}: {:?}", listener.notes);
    }
    assert!(listener.notes[0].contains("random reads of 4096 bytes (fallback 4096, because"), "{:?}", listener.notes);
    assert!(listener.fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)));
}

#[test]
fn a_stop_keeps_what_was_measured_and_removes_the_files() {
    for backend in [None, Some(BackendKind::Memory)] {
        let dir = tempdir().unwrap();
        let control = Control::default();
        let stop_at = Some(("random write", control.clone()));
        let mut listener = Listener { stop_at, ..Listener::default() };
        let result = measure(&options(dir.path(), backend), &mut listener, &control);
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        let Some(report) = or_skip(result) else { continue };
        assert!(report.interrupted);
        assert!(report.write_bandwidth.is_some() && report.read_bandwidth.is_some());
        assert!(report.write_iops.is_none() && report.read_iops.is_none() && report.read_latency.is_none());
        let missing = report.disk_properties().unwrap_err();
        assert_eq!(
            (missing.names.as_slice(), missing.cause),
            (&["read_iops", "write_iops"][..], MissingCause::Unfinished)
        );
        assert!(missing.to_string().contains("write_iops"));
    }
}

#[test]
fn a_stop_before_the_beginning_measures_nothing() {
    let dir = tempdir().unwrap();
    let control = Control::default();
    control.stop.ask();
    let Some(report) = or_skip(measure(&options(dir.path(), None), &mut (), &control)) else { return };
    assert!(report.interrupted && figures(&report).iter().all(|(_, figure, ..)| figure.is_none()));
    assert!(names(&dir).is_empty());
}

#[test]
fn the_bound_on_writes_holds_and_says_what_it_cost() {
    let dir = tempdir().unwrap();
    let max_write_bytes = (16 << 20) + (256 << 20);
    // So long that any disk reaches the bound, and no phase may wait for it.
    let options = TuneOptions {
        max_write_bytes: Some(max_write_bytes),
        phase_s: Some(0.3),
        ..options(dir.path(), Some(BackendKind::Null))
    };
    let control = Control::default();
    let report = measure(&options, &mut (), &control).unwrap();
    assert!(report.written_bytes <= max_write_bytes, "{}", report.written_bytes);
    assert_eq!(report.written_bytes, control.traffic.written_bytes());
    assert!(report.warnings.iter().any(|warning| warning.code == WarningCode::MaxWrite), "{:?}", report.warnings);
    // Reads are not bounded; how much of them a busy machine gets through is no matter here.
    assert!(report.read_bandwidth.is_some());
    assert!(report.write_bandwidth.is_none_or(|figure| !figure.complete));
}

/// What is under way when the first phase after filling is stopped at once.
const FIRST_BYTES: u64 = 4 << 20;

#[test]
fn filling_writes_nothing_twice() {
    let backends = [Some(BackendKind::Null), Some(BackendKind::Memory), Some(BackendKind::Pool)];
    for (backend, shards) in backends.into_iter().flat_map(|backend| [(backend, 1), (backend, 2)]) {
        let dir = tempdir().unwrap();
        let control = Control::default();
        // The next phase begins when the files are full.
        let mut listener = Listener { stop_at: Some(("sequential write", control.clone())), ..Listener::default() };
        let options = TuneOptions { shards, data_bytes: 48 << 20, ..options(dir.path(), backend) };
        if !has_cpus(shards) {
            continue;
        }
        let Some(report) = or_skip(measure(&options, &mut listener, &control)) else { continue };
        // A disk that takes longer than the time for filling has less data.
        if report.data_bytes == 48 << 20 {
            assert!(report.written_bytes <= (48 << 20) + FIRST_BYTES, "{backend:?}: {}", report.written_bytes);
        }
    }
}

#[test]
fn block_sizes_are_honoured_and_written_down() {
    let dir = tempdir().unwrap();
    let options = TuneOptions {
        read_block_bytes: Some(512),
        write_block_bytes: Some(16384),
        ..options(dir.path(), Some(BackendKind::Null))
    };
    let report = measure(&options, &mut (), &Control::default()).unwrap();
    assert_eq!((report.read_block.how.as_str(), report.read_block.bytes), ("set by --read-block-size", 512));
    assert_eq!(report.write_iops.as_ref().map(|figure| figure.block_bytes), Some(16384));
    // The user's size says nothing of the disk, so that the file cannot carry it; the report does.
    assert_eq!(report.disk_properties().unwrap().physical_block_bytes, None);
    assert_eq!(
        block_warnings(&report),
        ["read_iops holds for requests of 512 bytes", "write_iops holds for requests of 16384 bytes"]
    );
}

/// The beginning of each warning about a block.
fn block_warnings(report: &TuneReport) -> Vec<&str> {
    let warnings = report.warnings.iter().filter(|warning| warning.code == WarningCode::BlockSize);
    warnings.map(|warning| warning.message.split(" only").next().unwrap_or_default()).collect()
}

#[test]
fn the_physical_block_is_the_one_that_was_found_or_the_kernel_s() {
    let report = report_of_nothing();
    assert!(block_warnings(&report).is_empty());
    // What the kernel says, what experiments found and whether by a step, the size of writes; what is written down.
    let cases = [
        (None, None, 16384, None),
        (Some(512), None, 4096, None),
        (Some(4096), None, 4096, None),
        (Some(4096), None, 16384, None),
        (Some(16384), None, 4096, None),
        (Some(16384), None, 16384, Some(16384)),
        (Some(512), Some((4096, true)), 4096, Some(4096)),
        (None, Some((8192, true)), 8192, Some(8192)),
        (Some(512), Some((8192, false)), 4096, None),
        (Some(4096), Some((4096, true)), 4096, None),
        (Some(16384), Some((4096, true)), 16384, Some(16384)),
    ];
    for (physical_block_bytes, found, write_bytes, expect) in cases {
        let mut report = report.clone();
        let leaf = Leaf { name: "nvme0n1".into(), physical_block_bytes, ..Leaf::default() };
        report.site.device = Some(Device { name: "md0".into(), leaves: vec![leaf], ..Device::default() });
        report.physical_block = found.map(|(bytes, is_step)| PhysicalBlock {
            bytes,
            reported_bytes: None,
            is_step,
            gain: 2.0,
            misalignment_factor: None,
        });
        report.write_block.bytes = write_bytes;
        let written = report.disk_properties().unwrap().physical_block_bytes;
        assert_eq!(written, expect, "{physical_block_bytes:?}, {found:?}, {write_bytes}");
    }
}

#[test]
fn csv_has_a_line_for_each_figure() {
    let mut report = report_of_nothing();
    let known = |value, unit, depth, block_bytes| {
        Some(Figure {
            value,
            unit,
            ci95_pct: Some(0.504),
            deviation_pct: 1.256,
            samples: vec![value],
            settled_at: 0,
            sample_s: 1.0,
            depth,
            block_bytes,
            probes: Vec::new(),
            cpu_busy_pct: 5.0,
            foreign_pct: None,
            burst: None,
            complete: true,
        })
    };
    report.read_iops = known(95000.55, Unit::OperationsPerS, 64, 4096);
    report.write_bandwidth = known(1e9, Unit::BytesPerS, 8, 1 << 20);
    (report.write_iops, report.read_bandwidth) = (None, None);
    let expect = "figure,value,unit,ci95_pct,deviation_pct,block_bytes,depth\n\
                  read_iops,95000.6,operations_per_s,0.50,1.26,4096,64\nwrite_iops,,,,,,\nread_bandwidth,,,,,,\n\
                  write_bandwidth,1000000000.0,bytes_per_s,0.50,1.26,1048576,8\n";
    assert_eq!(report.to_csv(), expect);
}

#[test]
fn missing_figures_say_what_kept_them_away() {
    let mut report = report_of_nothing();
    (report.write_iops, report.warnings) = (None, Vec::new());
    let bounded = Warning { code: WarningCode::MaxWrite, message: String::new() };
    let cases = [
        (true, vec![], MissingCause::Unfinished, "run to its end"),
        (true, vec![bounded.clone()], MissingCause::Unfinished, "run to its end"),
        (false, vec![bounded], MissingCause::MaxWrite, "--max-write left too little"),
    ];
    for (interrupted, warnings, cause, part) in cases {
        (report.interrupted, report.warnings) = (interrupted, warnings);
        let missing = report.disk_properties().unwrap_err();
        assert_eq!((missing.names.as_slice(), missing.cause), (&["write_iops"][..], cause));
        assert!(missing.to_string().contains(part), "{missing}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let good = options(dir.path(), Some(BackendKind::Null));
    let real = options(dir.path(), Some(BackendKind::Pool));
    let cases = [
        (TuneOptions { directory: file.clone(), ..good.clone() }, "not a directory"),
        (
            TuneOptions { directory: dir.path().join("missing"), ..good.clone() },
            "give a directory that can be written to",
        ),
        (TuneOptions { shards: 0, ..good.clone() }, "--shards: at least one"),
        (TuneOptions { phase_s: Some(f64::NAN), ..good.clone() }, "--phase: NaN s is not"),
        (TuneOptions { round_s: 0.0, ..good.clone() }, "--round: 0 s is not"),
        (TuneOptions { rounds_max: 4, ..good.clone() }, "--rounds: a steady state takes five rounds"),
        (TuneOptions { record: Some(file.clone()), ..good.clone() }, "file exists: go on with it (--resume)"),
        (TuneOptions { data_bytes: 1 << 20, ..good.clone() }, "--data-size: 1 shards need at least 4 MiB"),
        (
            TuneOptions { max_write_bytes: Some(20 << 20), ..good.clone() },
            "at least 272 MiB, more than --max-write 20 MiB",
        ),
        (
            TuneOptions { write_block_bytes: Some(5000), ..good.clone() },
            "--write-block-size: 5000 bytes is not a power",
        ),
        (TuneOptions { data_bytes: 1 << 60, ..real.clone() }, "free some space or ask for less data"),
        (TuneOptions { directory: "/proc/self".into(), ..real }, ""),
    ];
    for (options, part) in cases {
        match measure(&options, &mut (), &Control::default()) {
            Err(error) => assert!(error.to_string().contains(part), "{part}: {error}"),
            Ok(_) => panic!("not refused: {part}"),
        }
    }
    assert_eq!(names(&dir), ["file"]);
}

#[test]
fn files_of_another_run_are_left_alone() {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("plimsoll-tune-0"), "precious").unwrap();
    match measure(&options(dir.path(), Some(BackendKind::Pool)), &mut (), &Control::default()) {
        Err(error) => println!("{error}"),
        Ok(_) => panic!("it must not write over a file that is there"),
    }
    assert_eq!(fs::read_to_string(dir.path().join("plimsoll-tune-0")).unwrap(), "precious");
}

/// The record's text up to the end of each phase.
fn cuts(text: &str) -> Vec<(Phase, usize)> {
    let mut end = 0;
    let mut cuts = Vec::new();
    for line in text.split_inclusive('\n') {
        end += line.len();
        if let Ok(Entry::Done { phase, .. }) = serde_json::from_str(line) {
            cuts.push((phase, end));
        }
    }
    cuts
}

#[test]
fn a_record_cut_after_any_phase_is_gone_on_with() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let options = TuneOptions { record: Some(path.clone()), ..options(dir.path(), Some(BackendKind::Pool)) };
    let Some(_) = or_skip(measure(&options, &mut (), &Control::default())) else { return };
    let whole = fs::read_to_string(&path).unwrap();
    let cuts = cuts(&whole);
    let phases: Vec<Phase> = cuts.iter().map(|(phase, _)| *phase).collect();
    let figures = [Phase::WriteBandwidth, Phase::ReadBandwidth, Phase::WriteIops, Phase::ReadIops];
    assert_eq!(phases, [&[Phase::Fill][..], &figures].concat());
    for (phase, end) in cuts {
        // A crash may leave half a line of the next phase.
        let torn = &whole[..whole.len().min(end + 40)];
        fs::write(&path, torn).unwrap();
        let mut listener = Listener::default();
        let Some(report) = or_skip(resume(&path, false, &mut listener, &Control::default())) else { return };
        check_complete(&report, &options);
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.starts_with(&whole[..end]), "{phase:?}: what was done is measured no more");
        assert_eq!(analyse(&Record::parse("now", &now).unwrap()), report, "{phase:?}");
        listener.phases.dedup();
        let remade = figures.into_iter().filter(|later| *later > phase).map(|later| later.name().to_owned());
        let remade: Vec<String> = remade.collect();
        // With every phase done nothing is left to measure, so no scratch data are needed either.
        let is_left = !remade.is_empty();
        let expect = is_left.then(|| "scratch data".to_owned()).into_iter().chain(remade).collect::<Vec<String>>();
        assert_eq!(listener.phases, expect, "{phase:?}");
        assert_eq!(names(&dir), ["run.jsonl"]);
    }
}

#[test]
fn a_stopped_measurement_is_gone_on_with() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let options = TuneOptions { record: Some(path.clone()), ..options(dir.path(), Some(BackendKind::Null)) };
    let control = Control::default();
    let mut listener = Listener { stop_at: Some(("random write", control.clone())), ..Listener::default() };
    let stopped = measure(&options, &mut listener, &control).unwrap();
    assert!(stopped.interrupted && stopped.write_iops.is_none());
    let Some(report) = or_skip(resume(&path, false, &mut (), &Control::default())) else { return };
    check_complete(&report, &options);
    assert_eq!(report.read_bandwidth, stopped.read_bandwidth);
}

#[test]
fn records_of_something_else_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let options = TuneOptions { record: Some(path.clone()), ..options(dir.path(), Some(BackendKind::Null)) };
    measure(&options, &mut (), &Control::default()).unwrap();
    // As a crash leaves it; a complete record has nothing to go on with.
    let whole: String = fs::read_to_string(&path).unwrap().split_inclusive('\n').take(4).collect();
    let mountpoint = serde_json::to_string(&Record::read(&path).unwrap().header.site.mountpoint).unwrap();
    let elsewhere = format!("\"mountpoint\":{mountpoint}");
    let cases = [
        (String::new(), "it is empty"),
        ("{}\n".to_owned(), "no record of `plimsoll tune`"),
        (whole.replacen("\"schema\":1", "\"schema\":99", 1), "found `plimsoll tune` of version 99"),
        (whole.replacen("{\"done\"", "{\"dune\"", 1), "not a line of a record"),
        (
            whole.replacen(&elsewhere, "\"mountpoint\":\"/elsewhere\"", 1),
            "cannot go on with this record: it is of /elsewhere",
        ),
    ];
    for (text, part) in cases {
        fs::write(&path, &text).unwrap();
        match resume(&path, false, &mut (), &Control::default()) {
            Err(error) => assert!(error.to_string().contains(part), "{part}: {error}"),
            Ok(_) => panic!("not refused: {part}"),
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "{part}");
    }
}

#[test]
fn three_runs_become_one() {
    let run = |seed: u64| {
        let mut report = report_of_nothing();
        let figures =
            [&mut report.read_iops, &mut report.write_iops, &mut report.read_bandwidth, &mut report.write_bandwidth];
        for figure in figures.into_iter().flatten() {
            figure.value *= 1.0 + seed as f64 / 100.0;
        }
        (format!("run-{seed}"), TuneReport { seed, ..report })
    };
    let runs: Vec<(String, TuneReport)> = (1..=3).map(run).collect();
    let merged = merge(&runs).unwrap();
    let told = merged.merged.as_ref().unwrap();
    assert_eq!((told.runs.as_slice(), told.left_out.len()), (&["run-1", "run-2", "run-3"].map(String::from)[..], 0));
    assert_eq!(merged.written_bytes, runs.iter().map(|(_, report)| report.written_bytes).sum::<u64>());
    for (name, figure, unit, block_bytes) in figures(&merged) {
        let figure = figure.unwrap();
        check_figure(name, figure, unit, block_bytes);
        // One per cent apart: nobody is odd, and the figure is that of the middle.
        assert_eq!(figure.samples.len(), 3, "{name}");
        let middle =
            figures(&runs[1].1).into_iter().find(|(other, ..)| *other == name).and_then(|(_, figure, ..)| figure);
        assert!((figure.value / middle.unwrap().value - 1.0).abs() < 1e-9, "{name}: {figure:?}");
    }
    assert!(merge(&runs[..1]).is_err() && merge(&[]).is_err());
    let mut odd = runs.clone();
    odd[1].1.shards = 7;
    let error = merge(&odd).unwrap_err().to_string();
    assert!(error.contains("run-2: the number of shards is 7, but 1 in run-1"), "{error}");
    odd[1] = runs[1].clone();
    odd[2].1.read_iops = None;
    let error = merge(&odd).unwrap_err().to_string();
    assert!(error.contains("run-3: not measured: read_iops") && error.contains("--resume"), "{error}");
}

#[test]
fn directories_on_one_file_system_are_one_place() {
    let dir = tempdir().unwrap();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let real = dir.path().canonicalize().unwrap();
    assert_eq!(one_per_file_system(&[dir.path().to_owned(), inner.clone(), dir.path().to_owned()]).unwrap(), [real]);
    assert_eq!(one_per_file_system(&[inner.clone(), dir.path().to_owned()]).unwrap(), [inner.canonicalize().unwrap()]);
    assert_eq!(one_per_file_system(&[dir.path().to_owned(), "/proc".into()]).unwrap().len(), 2);
    assert!(one_per_file_system(&[dir.path().to_owned(), dir.path().join("missing")]).is_err());
}

#[test]
fn samples_are_written_down_as_they_were_asked_for() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let options = TuneOptions { record: Some(path.clone()), ..options(dir.path(), Some(BackendKind::Null)) };
    let report = measure(&options, &mut (), &Control::default()).unwrap();
    let record = Record::read(&path).unwrap();
    let figure = report.read_iops.unwrap();
    let samples = record.samples(Phase::ReadIops, Step::Measure);
    assert_eq!(samples.len(), figure.samples.len());
    for sample in &samples {
        let stream = sample.load.reads.unwrap();
        assert_eq!((stream.block_bytes, stream.depth, stream.rate_per_s), (4096, figure.depth, None));
        assert!(sample.load.writes.is_none() && sample.writes.is_none());
        assert_eq!(sample.moved().bytes, sample.moved().requests * 4096);
    }
}
