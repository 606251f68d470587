//! Latency under load: against the published surfaces, in the numbers to which they were condensed.

use crate::common::device::*;
use plimsoll_core::Op;
use plimsoll_sim::device::{ChannelSpec, DeviceSpec, presets};
use plimsoll_sim::rng::Rng;

#[test]
fn i3en_reads_slow_down_as_measured() {
    let spec = presets::find("i3en.3xlarge").unwrap().spec;
    // Load r/R + w/W, half of it writes; p50 and p95 as multiples of the unloaded latency (medians over the surface's
    // cells).
    for (load, p50, p95) in
        [(0.1, 1.03, 1.4), (0.3, 1.17, 2.0), (0.5, 1.26, 2.6), (0.7, 1.42, 3.1), (0.8, 1.56, 3.5), (0.9, 1.79, 4.0)]
    {
        let writes_per_s = spec.rates.write_bytes_per_s / 131_072.0 * load / 2.0;
        let latencies = open_loop(&spec, spec.rates.read_iops * load / 2.0, writes_per_s, 1500 * MS);
        let unloaded_ns = spec.latency.read_ns;
        assert_close(quantile(&latencies, 0.5) / unloaded_ns, p50, 0.25, &format!("p50 at load {load}"));
        assert_close(quantile(&latencies, 0.95) / unloaded_ns, p95, 0.35, &format!("p95 at load {load}"));
    }
}

#[test]
fn few_reads_beside_writes() {
    // Writes in MB/s, and p95 in ms of light reads beside them, as measured.
    let i3en = [(0.0, 0.17), (204.0, 0.27), (408.0, 0.36), (714.0, 0.47), (918.0, 0.59)];
    let i3 = [(0.0, 0.12), (160.0, 0.79), (320.0, 1.5), (480.0, 2.2), (640.0, 2.6)];
    for (name, points) in [("i3en.3xlarge", i3en), ("i3.2xlarge", i3)] {
        let spec = presets::find(name).unwrap().spec;
        for (mb_per_s, p95_ms) in points {
            let latencies = open_loop(&spec, 10e3, mb_per_s * 1e6 / 131_072.0, 2000 * MS);
            assert_close(quantile(&latencies, 0.95) / 1e6, p95_ms, 0.3, &format!("{name}, {mb_per_s} MB/s"));
        }
    }
}

#[test]
fn shared_channels_have_a_sharp_knee_and_independent_ones_a_soft_one() {
    let p95 = |independent: bool, load: f64| {
        let channels = ChannelSpec { independent, count: Some(8), ..ChannelSpec::default() };
        let spec = DeviceSpec { channels, ..DeviceSpec::default() };
        quantile(&open_loop(&spec, 200e3 * load, 0.0, 500 * MS), 0.95) / spec.latency.read_ns
    };
    for load in [0.2, 0.5, 0.8] {
        assert!(p95(false, load) < 1.45, "shared at {load}: {}", p95(false, load));
    }
    assert!(p95(true, 0.8) > 1.4 * p95(false, 0.8), "independent at 0.8: {}", p95(true, 0.8));
    assert!(p95(false, 1.1) > 100.0, "beyond saturation the queue grows: {}", p95(false, 1.1));
}

#[test]
fn one_at_a_time_takes_the_unloaded_latency_and_twice_the_parallelism_takes_twice() {
    // 200 000 reads/s and 100 us: 20 at a time.
    let spec = DeviceSpec::default();
    for (depth, latency_ns) in [(1, 101e3), (10, 101e3), (40, 200e3), (80, 400e3)] {
        let rate = saturated(&spec, depth, Op::Read, 4096, 100 * MS, 600 * MS);
        assert_close(depth as f64 / rate * 1e9, latency_ns, 0.02, &format!("{depth} at a time"));
    }
}

#[test]
fn a_measured_surface_takes_the_place_of_the_model() {
    use plimsoll_sim::latency_surface::LatencySurface;
    // 1 GB/s of writes double every latency; reads do not matter.
    let (writes, reads) = (vec![1e6, 1e9], vec![1e3, 1e5]);
    let surface = LatencySurface::new(writes, reads, &[2e5, 2e5, 4e5, 4e5], &[3e5, 3e5, 6e5, 6e5]).expect("a surface");
    let spec = DeviceSpec { latency_surface: Some(surface), ..DeviceSpec::default() };
    let latencies = open_loop(&spec, 5e3, 0.0, 1000 * MS);
    assert_close(quantile(&latencies, 0.5), 2e5, 0.05, "p50 without writes");
    assert_close(quantile(&latencies, 0.95), 3e5, 0.05, "p95 without writes");
}

#[test]
fn long_reads_take_their_device_time() {
    let mut device = device(&DeviceSpec::default());
    let (mut rng, mut done) = (Rng::new(1), Vec::new());
    device.submit(0, request(1, Op::Read, random(&mut rng, 1 << 38, 4 << 20), 4 << 20));
    device.advance(S, &mut done);
    assert_close(done[0].at_ns as f64, f64::from(4 << 20) / 2.0 + 2952.0, 0.001, "4 MiB at 2 GB/s");
}
