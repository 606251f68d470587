//! `demo` on simulated disks in virtual time, and what it rests on: bounds that end with the step that set them.

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::{Class, Classes, DiskSetup, ShardOptions, Topology};
use plimsoll_measure::demo::{DemoOptions, MAX_WRITE_BYTES, run_simulated};
use plimsoll_measure::load::{Control, JobSpec, Pattern, Plan, Target, run};
use plimsoll_measure::tune::{Observer, SimulatedDisk, TuneOptions, measure};
use plimsoll_sim::device::{BufferSpec, DeviceSpec, LatencySpec, RateSpec, WeatherSpec};

const MIB: u64 = 1 << 20;

/// Bytes that a job writes under `control` which wants to write `wanted_bytes`.
fn written_bytes(control: &Control, wanted_bytes: u64) -> u64 {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let file = topology.file("any".as_ref(), OpenOptions { write: true, ..OpenOptions::default() }, 0);
    // A job ends once more than its limit were made.
    let limit_requests = Some((wanted_bytes / MIB) as u32 - 1);
    let job = JobSpec::closed_loop("writes", Pattern::Overwrite, MIB as u32, 1, Class::DEFAULT)
        .shaped(|it| it.limit_requests = limit_requests);
    let jobs = vec![job.on_shard(0, Target { file, offset: 0, len_bytes: 8 * MIB })];
    let options = ShardOptions { backend: Some(BackendKind::Null), pin: false, ..ShardOptions::default() };
    let plan = Plan { topology, options, jobs, warmup_ns: 0, duration_ns: u64::MAX / 2, seed: 1 };
    run(&plan, control).unwrap().total("writes").bytes
}

#[test]
fn the_write_bound_of_a_measurement_ends_with_it() {
    let control = Control::default();
    let options = TuneOptions {
        backend: Some(BackendKind::Null),
        shards: 1,
        data_bytes: 8 * MIB,
        max_write_bytes: Some(300 * MIB),
        figures_only: true,
        phase_s: Some(0.01),
        ..TuneOptions::quick(std::env::temp_dir())
    };
    let report = measure(&options, &mut (), &control).unwrap();
    assert!(report.written_bytes <= 300 * MIB, "the bound holds as long as it measures");
    assert_eq!(written_bytes(&control, 400 * MIB), 400 * MIB, "and no longer");
}

/// A disk that writes `write_mb_per_s` megabytes a second, and reads half as much again.
fn disk(write_mb_per_s: f64) -> SimulatedDisk {
    let write_bytes_per_s = write_mb_per_s * 1e6;
    let spec = DeviceSpec {
        capacity_bytes: 100_000_000_000,
        mix_exponent_p: 1.5,
        rates: RateSpec {
            read_iops: 80e3,
            read_bytes_per_s: 1.5 * write_bytes_per_s,
            write_iops: 60e3,
            write_bytes_per_s,
            ..RateSpec::default()
        },
        latency: LatencySpec { read_ns: 90e3, write_ns: 30e3, sigma: 0.1, ..LatencySpec::default() },
        ..DeviceSpec::default()
    };
    SimulatedDisk { reported_block_bytes: Some(512), ..SimulatedDisk::new(format!("{write_mb_per_s} MB/s"), spec) }
}

fn options() -> DemoOptions {
    DemoOptions { directory: "/nowhere".into(), backend: None, seed: 1 }
}

#[test]
fn every_class_of_every_situation_moves_bytes_on_slow_and_fast_disks() {
    for write_mb_per_s in [100.0, 500.0, 1000.0, 2000.0, 3500.0, 7000.0] {
        let report = run_simulated(&options(), &disk(write_mb_per_s), &mut (), &Control::default()).unwrap();
        println!(
            "{write_mb_per_s} MB/s: {:?}, p99 x {:?}, throughput x {:?}, written {} MiB, {:?}",
            report.mix_exponent,
            report.p99_ratio,
            report.throughput_ratio,
            report.written_bytes / MIB,
            report.doubts
        );
        let names: Vec<&str> = report.situations.iter().map(|situation| situation.name.as_str()).collect();
        assert_eq!(names, ["alone", "drained", "scheduled"], "{write_mb_per_s} MB/s");
        for situation in &report.situations {
            let moved = situation.classes.iter().map(|line| (line.class.as_str(), line.throughput_bytes_per_s > 0.0));
            let wanted: &[_] = match situation.name.as_str() {
                "alone" => &[("query", true)],
                _ => &[("query", true), ("compaction", true), ("repair-read", true), ("repair-write", true)],
            };
            assert_eq!(moved.collect::<Vec<_>>(), wanted, "{write_mb_per_s} MB/s, {}", situation.name);
        }
        assert_eq!(report.silent_classes, [], "{write_mb_per_s} MB/s");
        assert!(report.written_bytes <= MAX_WRITE_BYTES, "{write_mb_per_s} MB/s");
    }
}

/// A write cache takes a gigabyte far faster than the disk writes, and the disk's rate moves.
#[test]
fn a_disk_that_writes_in_bursts_is_shown_too() {
    for seed in 1..=8 {
        let steady = disk(400.0);
        let buffer = BufferSpec { size_bytes: 1 << 30, burst_bytes_per_s: 6e9, ..BufferSpec::default() };
        let weather = WeatherSpec { noise_sigma: 0.3, noise_step_ns: 20_000_000, ..WeatherSpec::default() };
        let spec = DeviceSpec { buffer, weather, ..steady.spec.clone() };
        let disk = SimulatedDisk { spec, ..steady };
        let report = run_simulated(&DemoOptions { seed, ..options() }, &disk, &mut (), &Control::default());
        let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(report.silent_classes, [], "seed {seed}");
    }
}

/// Stops a demo after the first of its turns.
struct StopAfterOneTurn {
    control: Control,
    is_showing: bool,
}

impl Observer for StopAfterOneTurn {
    fn on_phase(&mut self, name: &str, _expected_s: f64) {
        self.is_showing = name == "alone, drained, scheduled";
    }

    fn on_progress(&mut self, _fraction: f64) {
        if self.is_showing {
            self.control.stop.ask();
        }
    }
}

#[test]
fn a_stopped_demo_shows_the_turns_that_it_made() {
    let control = Control::default();
    let mut observer = StopAfterOneTurn { control: control.clone(), is_showing: false };
    let report = run_simulated(&options(), &disk(500.0), &mut observer, &control).unwrap();
    assert!(report.interrupted && report.p99_ratio.is_some());
    let slices: Vec<usize> = report.situations.iter().map(|situation| situation.slices.len()).collect();
    assert_eq!(slices, [1, 1, 1]);
}

#[test]
fn a_bound_inside_a_bound_takes_from_both() {
    let outer = Control::default().with_write_bound(Some(10 * MIB));
    let inner = outer.with_write_bound(Some(4 * MIB));
    assert_eq!(written_bytes(&inner, 8 * MIB), 4 * MIB);
    assert!(inner.traffic.is_write_bound_reached() && !outer.traffic.is_write_bound_reached());
    let inner = outer.with_write_bound(Some(20 * MIB));
    assert_eq!(written_bytes(&inner, 8 * MIB), 6 * MIB, "what is left of the outer one");
    assert!(inner.traffic.is_write_bound_reached() && outer.traffic.is_write_bound_reached());
}
