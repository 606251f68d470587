//! What `tune` writes without a doubt, `info --check` accepts.

use plimsoll_files::check::{CheckOptions, check_text};
use plimsoll_files::io_properties;
use plimsoll_measure::load::Control;
use plimsoll_measure::tune::{SimulatedDisk, TuneOptions, measure_simulated};
use plimsoll_sim::device::{BufferSpec, CapSpec, CapUnit, DeviceSpec, LatencySpec, RateSpec, WeatherSpec, presets};
use plimsoll_sim::dist::uniform;
use plimsoll_sim::rng::Rng;

const DISKS: u64 = 60;

/// Draws a number between two others, evenly in its logarithm.
fn between(low: f64, high: f64, rng: &mut Rng) -> f64 {
    low * (high / low).powf(uniform(rng))
}

/// Draws a disk of any kind, mostly noisy: spinning, with a buffer, with caps, with a neighbour, or none of these.
fn any_disk(rng: &mut Rng) -> SimulatedDisk {
    let read_iops = between(200.0, 20e3, rng);
    let write_iops = read_iops * between(0.1, 2.0, rng);
    let bytes_per_s = |iops: f64, rng: &mut Rng| iops * 4096.0 * between(1.0, 256.0, rng);
    let rates = RateSpec {
        read_iops,
        read_bytes_per_s: bytes_per_s(read_iops, rng),
        write_iops,
        write_bytes_per_s: bytes_per_s(write_iops, rng),
        rewrite_block_bytes: if rng.below(4) == 0 { 4096 } else { 0 },
        ..RateSpec::default()
    };
    let weather = WeatherSpec {
        noise_sigma: if rng.below(3) == 0 { 0.0 } else { between(0.01, 0.3, rng) },
        noise_step_ns: between(1e5, 1e7, rng) as u64,
        stalls_per_s: if rng.below(4) == 0 { between(0.1, 5.0, rng) } else { 0.0 },
        ..WeatherSpec::default()
    };
    let cap = |rng: &mut Rng| {
        let burst_per_s = read_iops * between(0.1, 1.0, rng);
        let credits = if rng.below(2) == 0 { 0.0 } else { burst_per_s * between(1.0, 60.0, rng) };
        let base_per_s = if credits > 0.0 { burst_per_s * between(0.1, 1.0, rng) } else { burst_per_s };
        CapSpec { unit: CapUnit::Operations { unit_bytes: 0 }, base_per_s, burst_per_s, credits }
    };
    let spec = DeviceSpec {
        capacity_bytes: 10_000_000_000,
        latency: LatencySpec {
            read_ns: between(1.0, 64.0, rng) / read_iops * 1e9,
            write_ns: between(1.0, 16.0, rng) / write_iops * 1e9,
            sigma: between(0.02, 0.5, rng),
            ..LatencySpec::default()
        },
        rates,
        weather,
        buffer: BufferSpec { size_bytes: [0, 0, 4 << 20, 64 << 20][rng.below(4) as usize], ..BufferSpec::default() },
        caps: if rng.below(4) == 0 { vec![cap(rng)] } else { Vec::new() },
        mix_exponent_p: [0.7, 1.0, 2.0, f64::INFINITY][rng.below(4) as usize],
        ..DeviceSpec::default()
    };
    SimulatedDisk {
        name: "model".to_owned(),
        spec: if rng.below(12) == 0 { presets::find("hdd").unwrap().spec } else { spec },
        cpu_ns_per_request: 0,
        reported_block_bytes: [None, Some(512), Some(4096)][rng.below(3) as usize],
        foreign_bytes_per_s: if rng.below(6) == 0 { between(1e5, 1e7, rng) } else { 0.0 },
    }
}

#[test]
fn a_file_without_a_doubt_has_no_finding() {
    let mut sure = 0;
    for seed in 1..=DISKS {
        let disk = any_disk(&mut Rng::new(seed));
        let options = TuneOptions { shards: 2, data_bytes: 64 << 20, seed, ..TuneOptions::quick("/nowhere") };
        // A disk that stalls for seconds may have no figures.
        let Ok(report) = measure_simulated(&options, &disk, &mut (), &Control::default()) else { continue };
        let Ok(properties) = report.disk_properties() else { continue };

        let text = io_properties::write(&[properties]);
        let found = check_text("io.yaml", &text, &CheckOptions::default()).unwrap().findings;
        let doubts = report.doubts();
        assert_eq!(found.is_empty(), doubts.is_empty(), "{seed}: {doubts:?} {found:#?}\n{text}");
        sure += u64::from(doubts.is_empty());
    }
    assert!(sure > DISKS / 5, "{sure} of {DISKS} are without a doubt");
}
