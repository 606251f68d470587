//! `tune` on the backends of this machine: what a report must hold, whatever the speed of the disk.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::backend::choose::BackendKind;
use plimsoll_tools::config::io_properties;
use plimsoll_tools::load::{Control, ScratchError};
use plimsoll_tools::tune::{
    Device, Figure, Leaf, MissingCause, Observer, SCHEMA, TuneError, TuneOptions, TuneReport, Unit, Warning,
    WarningCode, measure,
};

/// A directory of its own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("plimsoll-tune-test-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn names(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Small and short: what it measures is worth nothing, how it reports is what counts.
fn options(directory: &Path, backend: Option<BackendKind>) -> TuneOptions {
    TuneOptions { backend, shards: 1, data_bytes: 16 << 20, phase_s: Some(0.12), ..TuneOptions::quick(directory) }
}

/// Whether this machine's temporary directory can be measured at all; says why not.
fn or_skip(result: Result<TuneReport, TuneError>) -> Option<TuneReport> {
    match result {
        Ok(report) => Some(report),
        Err(
            error @ (TuneError::Open(_) | TuneError::Backend(_) | TuneError::Scratch(ScratchError::NoSpace { .. })),
        ) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
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
    let (least, most) = figure.samples.iter().fold((f64::MAX, 0.0_f64), |(a, b), &s| (a.min(s), b.max(s)));
    let slack = 1e-6 * most;
    assert!((least - slack..=most + slack).contains(&figure.value), "{name}: {figure:?}");
    assert!(figure.probes.is_empty() || figure.probes.iter().any(|probe| probe.depth == figure.depth), "{name}");
}

fn check_complete(report: &TuneReport, options: &TuneOptions) {
    assert_eq!((report.schema, report.interrupted, report.shards), (SCHEMA, false, options.shards));
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

#[test]
fn every_backend_gives_a_whole_report_and_leaves_nothing() {
    let backends = [None, Some(BackendKind::Pool), Some(BackendKind::Memory), Some(BackendKind::Null)];
    for backend in backends {
        let dir = Dir::new(&format!("whole-{}", backend.map_or("default", BackendKind::name)));
        let options = options(&dir.0, backend);
        let result = measure(&options, &mut (), &Control::default());
        assert!(dir.names().is_empty(), "{:?}", dir.names());
        let Some(report) = or_skip(result) else { continue };
        check_complete(&report, &options);
        if let Some(backend) = backend {
            assert_eq!(report.backend.name, backend.name());
        }
        assert!(dir.0.canonicalize().unwrap().starts_with(&report.mountpoint), "{}", report.mountpoint);
    }
}

#[test]
fn all_shards_work_where_there_are_several() {
    let dir = Dir::new("shards");
    let options = TuneOptions { shards: 2, ..options(&dir.0, Some(BackendKind::Null)) };
    match measure(&options, &mut (), &Control::default()) {
        Ok(report) => {
            check_complete(&report, &options);
            assert_eq!(report.read_iops.map(|figure| figure.depth % 2), Some(0));
        }
        Err(TuneError::Load(error)) => println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    }
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
            control.stop();
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
    let dir = Dir::new("observer");
    let mut listener = Listener::default();
    measure(&options(&dir.0, Some(BackendKind::Null)), &mut listener, &Control::default()).unwrap();
    let expect = [
        "scratch data",
        "sequential write",
        "sequential read",
        "random write",
        "random read",
        "one read at a time",
        "one write at a time",
    ];
    assert_eq!(listener.phases, expect);
    for phase in &expect[1..] {
        let line = listener.notes.iter().find(|note| note.starts_with(phase));
        assert!(line.is_some_and(|line| !line.contains('\n')), "{phase}: {:?}", listener.notes);
    }
    assert!(listener.notes[0].contains("random reads of 4096 bytes (fallback 4096, because"), "{:?}", listener.notes);
    assert!(listener.fractions.iter().all(|fraction| (0.0..=1.0).contains(fraction)));
}

#[test]
fn a_stop_keeps_what_was_measured_and_removes_the_files() {
    for backend in [None, Some(BackendKind::Memory)] {
        let dir = Dir::new(&format!("stop-{}", backend.map_or("default", BackendKind::name)));
        let control = Control::default();
        let stop_at = Some(("random write", control.clone()));
        let mut listener = Listener { stop_at, ..Listener::default() };
        let result = measure(&options(&dir.0, backend), &mut listener, &control);
        assert!(dir.names().is_empty(), "{:?}", dir.names());
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
    let dir = Dir::new("stop-first");
    let control = Control::default();
    control.stop();
    let Some(report) = or_skip(measure(&options(&dir.0, None), &mut (), &control)) else { return };
    assert!(report.interrupted && figures(&report).iter().all(|(_, figure, ..)| figure.is_none()));
    assert!(dir.names().is_empty());
}

#[test]
fn the_bound_on_writes_holds_and_says_what_it_cost() {
    let dir = Dir::new("max-write");
    let max_write_bytes = (16 << 20) + (256 << 20);
    // So long that any disk reaches the bound, and no phase may wait for it.
    let options = TuneOptions {
        max_write_bytes: Some(max_write_bytes),
        phase_s: Some(0.3),
        ..options(&dir.0, Some(BackendKind::Null))
    };
    let control = Control::default();
    let report = measure(&options, &mut (), &control).unwrap();
    assert!(report.written_bytes <= max_write_bytes, "{}", report.written_bytes);
    assert_eq!(report.written_bytes, control.written_bytes());
    assert!(report.warnings.iter().any(|warning| warning.code == WarningCode::MaxWrite), "{:?}", report.warnings);
    assert!(report.read_bandwidth.is_some_and(|figure| figure.complete));
    assert!(report.write_bandwidth.is_none_or(|figure| !figure.complete));
}

/// What is under way when the first phase after filling is stopped at once.
const FIRST_BYTES: u64 = 4 << 20;

#[test]
fn filling_writes_nothing_twice() {
    let backends = [Some(BackendKind::Null), Some(BackendKind::Memory), Some(BackendKind::Pool)];
    for (backend, shards) in backends.into_iter().flat_map(|backend| [(backend, 1), (backend, 2)]) {
        let dir = Dir::new("fill");
        let control = Control::default();
        // The next phase begins when the files are full.
        let mut listener = Listener { stop_at: Some(("sequential write", control.clone())), ..Listener::default() };
        let options = TuneOptions { shards, data_bytes: 48 << 20, ..options(&dir.0, backend) };
        let result = match measure(&options, &mut listener, &control) {
            Err(TuneError::Load(error)) if shards > 1 => {
                println!("skipped: {error}");
                continue;
            }
            result => result,
        };
        let Some(report) = or_skip(result) else { continue };
        // A disk that takes longer than the time for filling has less data.
        if report.data_bytes == 48 << 20 {
            assert!(report.written_bytes <= (48 << 20) + FIRST_BYTES, "{backend:?}: {}", report.written_bytes);
        }
    }
}

#[test]
fn block_sizes_are_honoured_and_written_down() {
    let dir = Dir::new("blocks");
    let options = TuneOptions {
        read_block_bytes: Some(512),
        write_block_bytes: Some(16384),
        ..options(&dir.0, Some(BackendKind::Null))
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
fn the_physical_block_comes_from_the_kernel_alone() {
    let dir = Dir::new("physical");
    let report = measure(&options(&dir.0, Some(BackendKind::Null)), &mut (), &Control::default()).unwrap();
    assert!(block_warnings(&report).is_empty());
    let cases = [
        (None, 16384, None),
        (Some(512), 4096, None),
        (Some(4096), 4096, None),
        (Some(4096), 16384, None),
        (Some(16384), 4096, None),
        (Some(16384), 16384, Some(16384)),
    ];
    for (physical_block_bytes, write_bytes, expect) in cases {
        let mut report = report.clone();
        let leaf = Leaf { name: "nvme0n1".into(), physical_block_bytes, ..Leaf::default() };
        report.device = Some(Device { name: "md0".into(), disk: "md0".into(), leaves: vec![leaf] });
        report.write_block.bytes = write_bytes;
        let found = report.disk_properties().unwrap().physical_block_bytes;
        assert_eq!(found, expect, "{physical_block_bytes:?}, {write_bytes}");
    }
}

#[test]
fn csv_has_a_line_for_each_figure() {
    let dir = Dir::new("csv");
    let mut report = measure(&options(&dir.0, Some(BackendKind::Null)), &mut (), &Control::default()).unwrap();
    let known = |value, unit, depth, block_bytes| {
        let samples = vec![value];
        let (probes, deviation_pct, sample_s) = (Vec::new(), 1.256, 1.0);
        let figure = Figure {
            value,
            unit,
            deviation_pct,
            samples,
            sample_s,
            depth,
            block_bytes,
            probes,
            cpu_busy_pct: 5.0,
            complete: true,
        };
        Some(figure)
    };
    report.read_iops = known(95000.55, Unit::OperationsPerS, 64, 4096);
    report.write_bandwidth = known(1e9, Unit::BytesPerS, 8, 1 << 20);
    (report.write_iops, report.read_bandwidth) = (None, None);
    let expect = "figure,value,unit,deviation_pct,block_bytes,depth\nread_iops,95000.6,operations_per_s,1.26,4096,64\n\
                  write_iops,,,,,\nread_bandwidth,,,,,\nwrite_bandwidth,1000000000.0,bytes_per_s,1.26,1048576,8\n";
    assert_eq!(report.to_csv(), expect);
}

#[test]
fn missing_figures_say_what_kept_them_away() {
    let dir = Dir::new("missing");
    let mut report = measure(&options(&dir.0, Some(BackendKind::Null)), &mut (), &Control::default()).unwrap();
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
    let dir = Dir::new("refusals");
    let file = dir.0.join("file");
    fs::write(&file, "x").unwrap();
    let good = options(&dir.0, Some(BackendKind::Null));
    let real = options(&dir.0, Some(BackendKind::Pool));
    let cases = [
        (TuneOptions { directory: file.clone(), ..good.clone() }, "not a directory"),
        (TuneOptions { directory: dir.0.join("missing"), ..good.clone() }, "give a directory that can be written to"),
        (TuneOptions { shards: 0, ..good.clone() }, "--shards: at least one"),
        (TuneOptions { phase_s: Some(f64::NAN), ..good.clone() }, "--phase: NaN s is not"),
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
    assert_eq!(dir.names(), ["file"]);
}

#[test]
fn files_of_another_run_are_left_alone() {
    let dir = Dir::new("other-run");
    fs::write(dir.0.join("plimsoll-tune-0"), "precious").unwrap();
    match measure(&options(&dir.0, Some(BackendKind::Pool)), &mut (), &Control::default()) {
        Err(error) => println!("{error}"),
        Ok(_) => panic!("it must not write over a file that is there"),
    }
    assert_eq!(fs::read_to_string(dir.0.join("plimsoll-tune-0")).unwrap(), "precious");
}
