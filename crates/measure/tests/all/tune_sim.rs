//! `tune` on simulated disks of which the truth is known: what it must find, and what it must warn of.

use std::path::Path;

use plimsoll_measure::load::Control;
use plimsoll_measure::tune::record::{Entry, Phase, Record, Step};
use plimsoll_measure::tune::{
    Figure, Mode, Observer, SimulatedDisk, TuneError, TuneOptions, TuneReport, WarningCode, analyse,
    fill_sweep_simulated, measure_simulated, merge, resume_simulated,
};
use plimsoll_sim::device::{BufferSpec, CapSpec, CapUnit, DeviceSpec, LatencySpec, RaidSpec, RateSpec, presets};
use plimsoll_sim::rng::Rng;
use tempfile::tempdir;

const NS_PER_S: f64 = 1e9;

/// 20 k reads/s of 800 us, so 16 at once; 10 k writes/s of 200 us, so 2 at once.
fn spec() -> DeviceSpec {
    DeviceSpec {
        capacity_bytes: 10_000_000_000,
        rates: RateSpec {
            read_iops: 20e3,
            read_bytes_per_s: 340e6,
            write_iops: 10e3,
            write_bytes_per_s: 170e6,
            ..RateSpec::default()
        },
        latency: LatencySpec { read_ns: 800e3, write_ns: 200e3, sigma: 0.05, ..LatencySpec::default() },
        ..DeviceSpec::default()
    }
}

fn disk(spec: DeviceSpec) -> SimulatedDisk {
    SimulatedDisk { reported_block_bytes: Some(512), ..SimulatedDisk::new("model", spec) }
}

/// Quick, two shards, little data, nothing but figures.
fn options() -> TuneOptions {
    TuneOptions { shards: 2, data_bytes: 64 << 20, figures_only: true, ..TuneOptions::quick("/nowhere") }
}

fn everything() -> TuneOptions {
    TuneOptions { figures_only: false, ..options() }
}

fn measure(options: &TuneOptions, disk: &SimulatedDisk) -> TuneReport {
    measure_simulated(options, disk, &mut (), &Control::default()).unwrap()
}

/// Measures with a record at `path`.
fn recorded_at(path: &Path, options: TuneOptions, disk: &SimulatedDisk) -> (TuneReport, Record) {
    let report = measure(&TuneOptions { record: Some(path.to_owned()), ..options }, disk);
    (report, Record::read(path).unwrap())
}

fn recorded(options: TuneOptions, disk: &SimulatedDisk) -> (TuneReport, Record) {
    recorded_at(&tempdir().unwrap().path().join("run.jsonl"), options, disk)
}

#[track_caller]
fn near(what: &str, found: f64, expect: f64, tolerance: f64) {
    let off = (found / expect - 1.0).abs();
    assert!(off <= tolerance, "{what}: {found}, not {expect}: {:.1} % off", off * 100.0);
}

/// Requests a second at `len_bytes`, by the rule of the model: max(1/IOPS, base + length / bandwidth).
fn truth_iops(iops: f64, bytes_per_s: f64, len_bytes: u32) -> f64 {
    let (least_s, per_byte_s) = (1.0 / iops, 1.0 / bytes_per_s);
    let base_s = (least_s - 4096.0 * per_byte_s).max(0.0);
    1.0 / least_s.max(base_s + f64::from(len_bytes) * per_byte_s)
}

/// The figures of a report with the names of their phases: write and read bandwidth, write and read IOPS.
pub(crate) fn figures(report: &TuneReport) -> [(&'static str, &Figure); 4] {
    [
        ("write_bandwidth", report.write_bandwidth.as_ref().unwrap()),
        ("read_bandwidth", report.read_bandwidth.as_ref().unwrap()),
        ("write_iops", report.write_iops.as_ref().unwrap()),
        ("read_iops", report.read_iops.as_ref().unwrap()),
    ]
}

/// All four figures are those of `spec`, times `factor`, within `tolerance`.
#[track_caller]
fn figures_are(report: &TuneReport, spec: &DeviceSpec, factor: f64, tolerance: f64) {
    let rates = &spec.rates;
    let truth = [rates.write_bytes_per_s, rates.read_bytes_per_s, rates.write_iops, rates.read_iops];
    for ((name, figure), truth) in figures(report).into_iter().zip(truth) {
        near(name, figure.value, truth * factor, tolerance);
        assert!(figure.complete, "{name}: {figure:?}");
    }
}

fn warned(report: &TuneReport, code: WarningCode) -> Vec<&str> {
    let of_code = report.warnings.iter().filter(|warning| warning.code == code);
    of_code.map(|warning| warning.message.as_str()).collect()
}

/// What would make one doubt a figure of a disk that does nothing strange.
fn doubts(report: &TuneReport) -> Vec<&str> {
    let doubtful = [
        WarningCode::ForeignIo,
        WarningCode::Burst,
        WarningCode::PhysicalBlock,
        WarningCode::CpuLimited,
        WarningCode::Deviation,
        WarningCode::StillChanging,
        WarningCode::NotSteady,
        WarningCode::LessData,
        WarningCode::MaxWrite,
    ];
    doubtful.into_iter().flat_map(|code| warned(report, code)).collect()
}

/// When, in seconds, the sample number `nth` of a figure began.
fn sample_at_s(record: &Record, phase: Phase, nth: usize) -> f64 {
    record.samples(phase, Step::Measure).get(nth).unwrap().at_s
}

#[test]
fn a_plain_disk_is_described_as_it_is() {
    for mix_exponent_p in [1.0, 2.0, f64::INFINITY] {
        let spec = DeviceSpec { mix_exponent_p, ..spec() };
        let report = measure(&everything(), &disk(spec.clone()));
        figures_are(&report, &spec, 1.0, 0.02);
        assert_eq!(doubts(&report), Vec::<&str>::new(), "p {mix_exponent_p}");
        for (name, latency, truth_ns) in
            [("reads", &report.read_latency, spec.latency.read_ns), ("writes", &report.write_latency, 200e3)]
        {
            near(name, latency.unwrap().p50_ns as f64, truth_ns, 0.02);
        }
        for (name, curve, truth) in [("reads", &report.read_depths, 16.0), ("writes", &report.write_depths, 2.0)] {
            let knee = curve.as_ref().unwrap().knee.unwrap();
            near(name, knee.concurrency, truth, 0.15);
            assert_eq!(f64::from(knee.depth), truth, "{name}: {knee:?}");
        }
        let frontier = report.frontier.as_ref().unwrap();
        match frontier.mix_exponent_p {
            Some(p) => near("mix exponent", p, mix_exponent_p, 0.15),
            None => assert!(mix_exponent_p.is_infinite(), "no mix exponent, though it is {mix_exponent_p}"),
        }
        check_curves(&report, &spec);

        assert!(report.doubts().is_empty(), "{:?}", report.doubts());
        let mut vague = report;
        vague.write_bandwidth.as_mut().unwrap().ci95_pct = Some(63.4);
        let said: Vec<_> = vague.doubts().into_iter().map(|doubt| (doubt.figure, doubt.why)).collect();
        assert_eq!(said, [("write_bandwidth", "it is known to ± 63 % only".to_owned())]);
    }
}

/// Rates by size, and the length that saturates, are those of the model.
fn check_curves(report: &TuneReport, spec: &DeviceSpec) {
    let rates = &spec.rates;
    let directions = [
        (&report.read_sizes, &report.read_sequential, rates.read_iops, rates.read_bytes_per_s),
        (&report.write_sizes, &report.write_sequential, rates.write_iops, rates.write_bytes_per_s),
    ];
    for (sizes, sequential, iops, bytes_per_s) in directions {
        for point in &sizes.as_ref().unwrap().points {
            let truth = truth_iops(iops, bytes_per_s, point.block_bytes);
            near(&format!("{} bytes", point.block_bytes), point.iops, truth, 0.03);
        }
        let throughput = |bytes: u32| truth_iops(iops, bytes_per_s, bytes) * f64::from(bytes);
        let saturates = |bytes: &u32| throughput(*bytes) >= 0.95 * throughput(1 << 20);
        let truth = (12..=20).map(|power| 1u32 << power).find(saturates);
        assert_eq!(sequential.as_ref().unwrap().saturation_bytes, truth);
    }
}

#[test]
fn a_slow_start_does_not_count() {
    let (_, plain) = recorded(options(), &disk(spec()));
    // It becomes fast in the third sample of the first figure.
    let fast_at_ns = (sample_at_s(&plain, Phase::WriteBandwidth, 2) * NS_PER_S) as u64;
    let mut spec = spec();
    // Filling takes twice the time at half the speed.
    spec.weather.capacity_steps = vec![(0, 0.5), (fast_at_ns + 200_000_000, 1.0)];
    let report = measure(&options(), &disk(spec.clone()));
    figures_are(&report, &spec, 1.0, 0.02);
    let figure = report.write_bandwidth.as_ref().unwrap();
    assert!(figure.settled_at > 0, "{figure:?}");
    assert!(figure.burst.is_some_and(|burst| burst < 0.9 * figure.value), "{figure:?}");
    let warnings = warned(&report, WarningCode::Burst);
    assert!(warnings.iter().any(|message| message.contains("slow start")), "{warnings:?}");
}

#[test]
fn burst_credits_that_end_in_a_figure_do_not_count() {
    let mut spec = spec();
    // Only random reads, 20 k/s, spend more than is earned: 8 k/s. The search takes 13 k, the figure the rest.
    let unit = CapUnit::Operations { unit_bytes: 0 };
    spec.caps = vec![CapSpec { unit, base_per_s: 12e3, burst_per_s: 20e3, credits: 21e3 }];
    let report = measure(&options(), &disk(spec));
    let figure = report.read_iops.as_ref().unwrap();
    near("sustained", figure.value, 12e3, 0.02);
    near("burst", figure.burst.unwrap(), 20e3, 0.1);
    let warnings = warned(&report, WarningCode::Burst);
    // Both rates are in it.
    let is_it = |text: &&str| text.starts_with("random read: ") && text.contains("went at ") && text.contains("then 1");
    assert!(warnings.iter().any(is_it), "{warnings:?}");
    // The burst is explained: nothing contradicts the figure.
    assert!(report.doubts().is_empty(), "{:?}", report.doubts());
}

#[test]
fn the_usual_bound_on_writes_cuts_no_figure_of_a_fast_disk() {
    let mut spec = spec();
    (spec.rates.read_bytes_per_s, spec.rates.write_bytes_per_s) = (6e9, 5e9);
    let quick = TuneOptions { data_bytes: 2 << 30, ..options() };
    let max_write_bytes = quick.usual_max_write_bytes();
    assert!(max_write_bytes.is_some());
    let report = measure(&TuneOptions { max_write_bytes, ..quick.clone() }, &disk(spec));
    assert_eq!(warned(&report, WarningCode::MaxWrite), Vec::<&str>::new());
    assert!(report.written_bytes <= max_write_bytes.unwrap());
    // A length that the user gives is kept to.
    assert_eq!(TuneOptions { phase_s: Some(60.0), ..quick }.usual_max_write_bytes(), None);
}

#[test]
fn credits_that_outlast_a_measurement_show_in_a_full_one() {
    let mut spec = spec();
    // Sequential reads spend 260 MB/s more than is earned, writes 90; random ones earn less than that together.
    spec.caps = vec![CapSpec { unit: CapUnit::Bytes, base_per_s: 80e6, burst_per_s: 400e6, credits: 3.5e9 }];
    let quick = measure(&options(), &disk(spec.clone()));
    near("quick", quick.read_bandwidth.unwrap().value, 340e6, 0.02);
    let full = TuneOptions { mode: Mode::Full, round_s: 4.0, rounds_max: 25, ..options() };
    let report = measure(&full, &disk(spec));
    near("full", report.read_bandwidth.unwrap().value, 80e6, 0.05);
    let state = report.steady_state.unwrap();
    assert!(state.attained && state.rounds > 5, "{state:?}");
}

#[test]
fn a_write_cliff_is_behind_the_figures() {
    let mut spec = spec();
    spec.buffer = BufferSpec { size_bytes: 48 << 20, burst_bytes_per_s: 1e9, flush_drains: true };
    let report = measure(&options(), &disk(spec.clone()));
    figures_are(&report, &spec, 1.0, 0.02);
}

#[test]
fn the_block_in_which_a_disk_writes_is_found() {
    // What the disk does, what the kernel says; what must be found, whether as a step, and in io-properties.
    let cases = [
        (4096, Some(512), 4096, true, Some(4096)),
        (8192, Some(512), 8192, true, Some(8192)),
        (8192, Some(4096), 8192, true, Some(8192)),
        (0, Some(512), 512, false, None),
        (0, Some(4096), 512, false, None),
    ];
    for (rewrite_block_bytes, reported_block_bytes, found_bytes, is_step, in_properties) in cases {
        let mut spec = spec();
        spec.rates.rewrite_block_bytes = rewrite_block_bytes;
        let write_iops = truth_iops(spec.rates.write_iops, spec.rates.write_bytes_per_s, rewrite_block_bytes.max(4096));
        let report = measure(&everything(), &SimulatedDisk { reported_block_bytes, ..disk(spec) });
        let case = format!("{rewrite_block_bytes} reported as {reported_block_bytes:?}");
        let block = report.physical_block.as_ref().unwrap();
        assert_eq!((block.bytes, block.is_step), (found_bytes, is_step), "{case}: {block:?}");
        assert_eq!(block.reported_bytes, reported_block_bytes, "{case}");
        assert_eq!(report.disk_properties().unwrap().physical_block_bytes, in_properties, "{case}");
        assert_eq!(report.write_block.bytes, rewrite_block_bytes.max(4096), "{case}");
        near(&case, report.write_iops.as_ref().unwrap().value, write_iops, 0.02);
        let is_misreported = u64::from(reported_block_bytes.unwrap_or(0)) < u64::from(rewrite_block_bytes);
        assert_eq!(!warned(&report, WarningCode::PhysicalBlock).is_empty(), is_misreported, "{case}");
    }
}

/// Twelve disks are full with hundreds of requests only.
#[test]
fn the_block_of_many_disks_is_found() {
    for (name, found_bytes) in [("i7i.12xlarge", 4096), ("i7i.48xlarge", 4096), ("i3en.3xlarge", 512)] {
        let disk = disk(presets::find(name).unwrap().spec);
        let report = measure_until(Phase::WriteBandwidth, &everything(), &disk);
        let block = report.physical_block.as_ref().unwrap();
        assert_eq!((block.bytes, block.is_step), (found_bytes, found_bytes > 512), "{name}: {block:?}");
    }
}

/// Figures within the credits of a volume: everything after them shows what it carries.
#[test]
fn figures_within_credits_are_doubted() {
    let unit = CapUnit::Operations { unit_bytes: 0 };
    for (credits, doubted) in [(0.0, false), (120e3, true), (1e9, false)] {
        let cap = CapSpec { unit, base_per_s: 4e3, burst_per_s: 20e3, credits };
        let base = CapSpec { burst_per_s: 4e3, ..cap.clone() };
        let spec = DeviceSpec { caps: vec![if credits > 0.0 { cap } else { base }], ..spec() };
        let report = measure(&everything(), &disk(spec));
        let found: Vec<&str> = report.doubts().iter().map(|doubt| doubt.figure).collect();
        let rates = [&report.write_iops, &report.read_iops].map(|figure| figure.as_ref().unwrap().value);
        assert_eq!(found.contains(&"read_iops"), doubted, "{credits}: {rates:?} {:?}", report.doubts());
        assert!(doubted || found.is_empty(), "{credits}: {:?}", report.doubts());
    }
}

#[test]
fn a_cpu_that_is_the_limit_is_named() {
    let spec = spec();
    let one = TuneOptions { shards: 1, ..options() };
    let limited = measure(&one, &SimulatedDisk { cpu_ns_per_request: 150_000, ..disk(spec.clone()) });
    let read_iops = limited.read_iops.as_ref().unwrap();
    near("what one CPU can", read_iops.value, NS_PER_S / 150e3, 0.02);
    assert!(read_iops.cpu_busy_pct > 98.0, "{read_iops:?}");
    let warnings = warned(&limited, WarningCode::CpuLimited);
    let names = ["random read", "random write"];
    assert!(names.iter().all(|name| warnings.iter().any(|text| text.starts_with(name))), "{warnings:?}");
    // Four such CPUs are enough.
    let four = TuneOptions { shards: 4, ..options() };
    let report = measure(&four, &SimulatedDisk { cpu_ns_per_request: 150_000, ..disk(spec.clone()) });
    figures_are(&report, &spec, 1.0, 0.02);
    let free = measure(&one, &disk(spec));
    for report in [&report, &free] {
        assert_eq!(warned(report, WarningCode::CpuLimited), Vec::<&str>::new());
    }
}

#[test]
fn a_neighbour_is_named_and_the_phase_made_again() {
    let attempts = |record: &Record, phase: Phase| {
        let of = record.entries.iter().filter_map(|entry| match entry {
            Entry::Sample { phase: p, attempt, .. } if *p == phase => Some(*attempt),
            _ => None,
        });
        of.max().unwrap() + 1
    };
    // 5 % of the bytes of random reads; of sequential ones it is 1 %, which is taken.
    let beside = SimulatedDisk { foreign_bytes_per_s: 4.3e6, ..disk(spec()) };
    let (report, record) = recorded(options(), &beside);
    let measured = record.entries.iter().filter_map(|entry| match entry {
        Entry::Sample { phase: Phase::ReadIops, step: Step::Measure, sample, .. } => sample.foreign_pct,
        _ => None,
    });
    let measured: Vec<f64> = measured.collect();
    // Some hundred requests of others, at random.
    near("foreign part in per cent", measured.iter().sum::<f64>() / measured.len() as f64, 5.0, 0.25);
    let foreign_pct = report.read_iops.as_ref().unwrap().foreign_pct.unwrap();
    assert!((2.0..10.0).contains(&foreign_pct), "{foreign_pct}");
    let warnings = warned(&report, WarningCode::ForeignIo);
    assert!(warnings.iter().any(|message| message.starts_with("random read: ")), "{warnings:?}");
    assert!(!warnings.iter().any(|message| message.starts_with("sequential read: ")), "{warnings:?}");
    assert_eq!((attempts(&record, Phase::ReadIops), attempts(&record, Phase::ReadBandwidth)), (2, 1));
    assert!(report.doubts().is_empty(), "five per cent are no reason to doubt a figure: {:?}", report.doubts());

    // A neighbour that takes much of the disk: the figures are written, and named as doubtful.
    let crowded = measure(&options(), &SimulatedDisk { foreign_bytes_per_s: 30e6, ..disk(spec()) });
    let doubtful = crowded.disk_properties().unwrap().doubtful;
    assert!(doubtful.contains(&"read_iops".to_owned()), "{doubtful:?}");
    assert!(!warned(&crowded, WarningCode::Doubtful).is_empty());
    // A figure far below what the curves of the same measurement reach.
    let mut contradicted = measure(&everything(), &disk(spec()));
    assert!(contradicted.doubts().is_empty(), "{:?}", contradicted.doubts());
    // A figure a sixth below: no doubt, and the table beside it is explained.
    assert_eq!(contradicted.exceeded_warnings(), []);
    let mut exceeded = contradicted.clone();
    exceeded.read_iops.as_mut().unwrap().value /= 1.2;
    assert_eq!((exceeded.doubts().len(), exceeded.exceeded_warnings().len()), (0, 1));
    if let Some(figure) = contradicted.write_iops.as_mut() {
        (figure.value, figure.burst) = (figure.value / 4.3, None);
    }
    assert_eq!(contradicted.disk_properties().unwrap().doubtful, ["write_iops"]);
    let (alone, record) = recorded(options(), &disk(spec()));
    assert!(alone.doubts().is_empty(), "{:?}", alone.doubts());
    assert_eq!(warned(&alone, WarningCode::ForeignIo), Vec::<&str>::new());
    assert_eq!(alone.read_iops.unwrap().foreign_pct, Some(0.0));
    assert_eq!(attempts(&record, Phase::ReadIops), 1);
}

/// A neighbour makes a phase begin again, and the bound on writes ends the second attempt before its figure.
#[test]
fn an_attempt_without_the_figure_does_not_count() {
    let beside = SimulatedDisk { foreign_bytes_per_s: 4.3e6, ..disk(spec()) };
    let (report, mut record) = recorded(options(), &beside);
    record.entries.retain_mut(|entry| match entry {
        Entry::Sample { phase: Phase::ReadIops, attempt: 1, step, sample } => {
            sample.foreign_pct = Some(0.0);
            *step != Step::Measure
        }
        _ => true,
    });
    let second = |entry: &Entry| matches!(entry, Entry::Sample { phase: Phase::ReadIops, attempt: 1, .. });
    assert!(record.entries.iter().any(second), "the search of the second attempt is in the record");
    near("read_iops", analyse(&record).read_iops.unwrap().value, report.read_iops.unwrap().value, 0.05);
}

#[test]
fn a_noisy_disk_is_measured_alike_with_any_seed() {
    let mut spec = spec();
    (spec.rates.read_bytes_per_s, spec.rates.write_bytes_per_s) = (4e9, 2e9);
    // A walk between a quarter and all of the speed, as of many neighbours: samples differ by some per cent.
    (spec.weather.noise_sigma, spec.weather.noise_step_ns) = (0.3, 100_000);
    let standard = TuneOptions { mode: Mode::Standard, ..options() };
    let reports: Vec<TuneReport> =
        (1..=5).map(|seed| measure(&TuneOptions { seed, ..standard.clone() }, &disk(spec.clone()))).collect();
    for at in 0..4 {
        let (name, _) = figures(&reports[0])[at];
        let values: Vec<f64> = reports.iter().map(|report| figures(report)[at].1.value).collect();
        let mean = values.iter().sum::<f64>() / 5.0;
        // The model fixes the speed of a request when it is submitted: long requests depend on the depth that is taken.
        let tolerance = if name.ends_with("iops") { 0.03 } else { 0.06 };
        values.iter().for_each(|value| near(name, *value, mean, tolerance));
    }
    // Noise that takes a second to pass cannot be averaged out in seconds: that must be said.
    (spec.weather.noise_sigma, spec.weather.noise_step_ns) = (0.05, 2_000_000);
    let report = measure(&options(), &disk(spec));
    assert!(!doubts(&report).is_empty());
}

#[test]
fn a_slow_disk_is_not_rounded_to_whole_requests() {
    let mut spec = spec();
    // 7.4 requests of 1 MiB in a quarter of a second, each as long as the other.
    (spec.rates.read_bytes_per_s, spec.rates.write_bytes_per_s) = (31e6, 31e6);
    (spec.rates.read_iops, spec.rates.write_iops) = (5000.0, 5000.0);
    let report = measure(&options(), &disk(spec.clone()));
    figures_are(&report, &spec, 1.0, 0.02);
}

#[test]
fn an_array_is_its_members() {
    let mut spec = spec();
    (spec.rates.read_iops, spec.rates.write_iops) = (5e3, 2500.0);
    (spec.rates.read_bytes_per_s, spec.rates.write_bytes_per_s) = (100e6, 50e6);
    spec.raid0 = RaidSpec { members: 4, chunk_bytes: 1 << 20, ..RaidSpec::default() };
    let report = measure(&options(), &disk(spec.clone()));
    figures_are(&report, &spec, 4.0, 0.03);
    assert_eq!(report.site.device.unwrap().leaves.len(), 4);
}

#[test]
fn a_hard_disk_takes_no_longer_than_promised() {
    let preset = presets::find("hdd").unwrap();
    let options = TuneOptions { data_bytes: 2 << 30, ..everything() };
    let report = measure(&options, &disk(preset.spec));
    // A minute, and what the deepest queues take to empty.
    assert!(report.duration_s < 90.0, "{}", report.duration_s);
    let [write_bandwidth, read_bandwidth, write_iops, read_iops] = figures(&report).map(|(_, figure)| figure.value);
    assert!((20e6..210e6).contains(&write_bandwidth) && (20e6..210e6).contains(&read_bandwidth));
    assert!((50.0..300.0).contains(&write_iops) && (50.0..300.0).contains(&read_iops), "{write_iops} {read_iops}");
}

#[test]
fn full_measurements_end_when_the_disk_is_steady() {
    let full = TuneOptions { mode: Mode::Full, round_s: 0.5, rounds_max: 8, ..options() };
    let report = measure(&full, &disk(spec()));
    figures_are(&report, &spec(), 1.0, 0.02);
    let state = report.steady_state.as_ref().unwrap();
    assert!(state.attained && state.rounds == 5 && state.tracks.len() == 4, "{state:?}");
    assert!(
        state
            .tracks
            .iter()
            .map(|track| track.window)
            .all(|it| it.attained && it.range_pct <= 20.0 && it.slope_pct <= 10.0)
    );
    assert!(state.precondition_bytes >= 2 * full.data_bytes, "{}", state.precondition_bytes);
    assert_eq!(warned(&report, WarningCode::NotSteady), Vec::<&str>::new());

    let mut drifting = spec();
    drifting.weather.drift_per_s = 0.1;
    let report = measure(&full, &disk(drifting));
    let state = report.steady_state.as_ref().unwrap();
    assert!(!state.attained && state.rounds == 8, "{state:?}");
    assert_eq!(warned(&report, WarningCode::NotSteady).len(), 1);
}

/// A short measurement of everything.
fn short() -> TuneOptions {
    TuneOptions { phase_s: Some(0.2), ..everything() }
}

#[test]
fn a_record_says_what_the_measurement_said() {
    for (name, options) in
        [("quick", short()), ("full", TuneOptions { mode: Mode::Full, round_s: 0.1, rounds_max: 6, ..short() })]
    {
        let (report, record) = recorded(options, &disk(spec()));
        assert_eq!(analyse(&record), report, "{name}");
    }
}

#[test]
fn a_record_that_a_crash_cut_is_gone_on_with() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let (report, _) = recorded_at(&path, short(), &disk(spec()));
    let whole = std::fs::read(&path).unwrap();
    let header_bytes = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut rng = Rng::new(5);
    let mut cuts: Vec<usize> =
        (0..38).map(|_| header_bytes + rng.below((whole.len() - header_bytes) as u64) as usize).collect();
    let end_of_a_phase = whole.windows(8).position(|part| part == b"{\"done\":").unwrap();
    let its_newline = end_of_a_phase + whole[end_of_a_phase..].iter().position(|byte| *byte == b'\n').unwrap();
    cuts.extend([header_bytes - 1, header_bytes, its_newline, whole.len() - 1, whole.len()]);
    for cut in cuts {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let resumed = resume_simulated(&path, &disk(spec()), &mut (), &Control::default()).unwrap();
        assert!(!resumed.interrupted, "cut at {cut}");
        for ((name, figure), (_, before)) in figures(&resumed).into_iter().zip(figures(&report)) {
            assert!(figure.complete, "{name}, cut at {cut}: {figure:?}");
            near(&format!("{name}, cut at {cut}"), figure.value, before.value, 0.05);
        }
        assert!(resumed.frontier.is_some() && resumed.flush.is_some() && resumed.read_sizes.is_some(), "cut at {cut}");
        assert_eq!(analyse(&Record::read(&path).unwrap()), resumed, "cut at {cut}");
    }
    std::fs::write(&path, &whole[..header_bytes / 2]).unwrap();
    let cut_header = resume_simulated(&path, &disk(spec()), &mut (), &Control::default());
    assert!(matches!(cut_header, Err(TuneError::ReadRecord(_))), "{cut_header:?}");
}

#[test]
fn of_several_runs_the_odd_one_is_left_out_by_name() {
    let run = |seed: u64| {
        let mut spec = spec();
        if seed == 4 {
            spec.weather.capacity_steps = vec![(0, 0.6)];
        }
        let report = measure(&TuneOptions { seed, phase_s: Some(0.5), ..options() }, &disk(spec));
        (format!("run-{seed}.jsonl"), report)
    };
    let runs: Vec<(String, TuneReport)> = (1..=5).map(run).collect();
    let merged = merge(&runs).unwrap();
    figures_are(&merged, &spec(), 1.0, 0.02);
    let left_out = &merged.merged.as_ref().unwrap().left_out;
    assert_eq!(left_out.len(), 4, "{left_out:?}");
    assert!(left_out.iter().all(|odd| odd.run == "run-4.jsonl" && odd.value < 0.7 * odd.median), "{left_out:?}");
}

/// Asks for a stop when a phase begins.
struct StopAt(Phase, Control);

impl Observer for StopAt {
    fn on_phase(&mut self, name: &str, _expected_s: f64) {
        if name == self.0.name() {
            self.1.stop.ask();
        }
    }
}

fn measure_until(phase: Phase, options: &TuneOptions, disk: &SimulatedDisk) -> TuneReport {
    let control = Control::default();
    measure_simulated(options, disk, &mut StopAt(phase, control.clone()), &control).unwrap()
}

#[test]
fn a_bound_on_writes_holds_and_a_stop_ends_it() {
    let max_write_bytes = Some(400 << 20);
    let report = measure(&TuneOptions { max_write_bytes, ..options() }, &disk(spec()));
    assert!(report.written_bytes <= 400 << 20, "{}", report.written_bytes);
    figures_are_or_short(&report);

    let stopped = measure_until(Phase::ReadIops, &options(), &disk(spec()));
    assert!(stopped.interrupted && stopped.write_iops.is_some() && stopped.read_iops.is_none());
}

/// With little to write a figure may be short, but what there is must be right.
fn figures_are_or_short(report: &TuneReport) {
    near("read_iops", report.read_iops.as_ref().unwrap().value, 20e3, 0.02);
    near("read_bandwidth", report.read_bandwidth.as_ref().unwrap().value, 340e6, 0.02);
    if let Some(figure) = &report.write_iops {
        near("write_iops", figure.value, 10e3, 0.05);
    }
    if let Some(figure) = &report.write_bandwidth {
        // A tenth of a second: some requests of 1 MiB.
        near("write_bandwidth", figure.value, 170e6, if figure.complete { 0.02 } else { 0.1 });
    }
}

#[test]
fn what_makes_no_disk_is_refused() {
    let mut nothing = spec();
    nothing.rates.read_iops = 0.0;
    for odd in [
        disk(nothing),
        disk(DeviceSpec { capacity_bytes: 4096, ..spec() }),
        SimulatedDisk { foreign_bytes_per_s: f64::NAN, ..disk(spec()) },
    ] {
        let refused = measure_simulated(&options(), &odd, &mut (), &Control::default());
        assert!(matches!(refused, Err(TuneError::Option { .. })), "{refused:?}");
    }
}

/// By the model's formula, which a test of its own holds to published figures: u = live / (1 + spare), a cleaned block is
/// live by v with u = (v - 1) / ln v, and a write costs 1 / (1 - v).
#[test]
fn a_fill_sweep_finds_what_garbage_collection_costs() {
    let mut collecting = spec();
    collecting.flash.garbage_collection = true;
    collecting.flash.over_provisioning = 0.28;
    let mut plain = spec();
    plain.capacity_bytes = 1 << 30;

    let options = TuneOptions { data_bytes: 1 << 30, phase_s: Some(5.0), max_write_bytes: None, ..options() };
    let sweep = |spec: &DeviceSpec, options: &TuneOptions| {
        fill_sweep_simulated(options, &disk(spec.clone()), &mut (), &Control::default()).unwrap()
    };
    let report = sweep(&collecting, &options);
    assert_eq!(report.levels.len(), 10);
    for (level, full, part) in [(0, 0.1, 1.0), (4, 0.5, 0.907), (7, 0.8, 0.642), (9, 1.0, 0.4)] {
        let found = report.levels[level];
        assert!((found.full - full).abs() < 1e-9, "{found:?}");
        assert!((found.part_of_first / part - 1.0).abs() < 0.05, "{part}: {found:?}");
    }
    let discarded = report.after_discard.expect("a simulated disk discards");
    assert!((discarded.part_of_first / 0.907 - 1.0).abs() < 0.05, "{discarded:?}");
    assert!(report.verdict.starts_with("slows from 60 % full on, to 4"), "{}", report.verdict);
    assert!(report.written_bytes > 1 << 30 && report.room_bytes == 1 << 30, "{report:?}");

    let report = sweep(&plain, &options);
    assert!(report.verdict.starts_with("unclear: the model of this disk has no garbage collection"), "{report:?}");

    let bounded = TuneOptions { max_write_bytes: Some(3 << 29), ..options.clone() };
    let report = sweep(&collecting, &bounded);
    assert!(report.is_interrupted && report.written_bytes <= 3 << 29, "{report:?}");
    assert_eq!(report.verdict, "unclear: the sweep ended early");
    assert_eq!(sweep(&collecting, &options), sweep(&collecting, &options));
}
