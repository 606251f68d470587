//! A closed loop and an open loop on a simulated device.
use plimsoll_core::Op;
use plimsoll_sim::device::{Device, DeviceCompletion, DeviceRequest, DeviceSpec};
use plimsoll_sim::rng::Rng;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// Presets that differ in more than their rates: every behaviour, every rule of a volume, few and many disks.
pub(crate) const PRESETS: [&str; 24] = [
    "i3.2xlarge",
    "i3en.3xlarge",
    "i3en.24xlarge",
    "i4i.2xlarge",
    "i4i.large",
    "i4g.8xlarge",
    "im4gn.large",
    "i7i.12xlarge",
    "i7i.48xlarge",
    "Standard_L8s_v3",
    "Standard_L2s_v4",
    "z3-highmem-8-highlssd",
    "850-pro",
    "983-dct",
    "samsung-983-dct-1.92tb",
    "hdd",
    "lexar-ssd-nm790-2tb",
    "samsung-ssd-990-pro-2tb",
    "samsung-ssd-870",
    "gp2",
    "gp3",
    "io1",
    "io2",
    "st1",
];

pub(crate) fn device(spec: &DeviceSpec) -> Device {
    Device::new(spec, 7).expect("a specification that makes a device")
}

pub(crate) fn request(key: u64, op: Op, offset_bytes: u64, len_bytes: u32) -> DeviceRequest {
    DeviceRequest { key, op, offset_bytes, len_bytes }
}

/// Draws a random offset, aligned to the length.
pub(crate) fn random(rng: &mut Rng, capacity_bytes: u64, len_bytes: u32) -> u64 {
    rng.below(capacity_bytes / u64::from(len_bytes)) * u64::from(len_bytes)
}

/// Keeps `depth` requests inside until `until_ns`. Returns the completions from `from_ns` on.
pub(crate) fn closed_loop(
    device: &mut Device,
    depth: u64,
    from_ns: u64,
    until_ns: u64,
    mut next: impl FnMut(u64) -> DeviceRequest,
    mut seen: impl FnMut(&DeviceCompletion),
) {
    for key in 0..depth {
        device.submit(0, next(key));
    }
    let mut done = Vec::new();
    while let Some(now_ns) = device.next_event_ns().filter(|&at_ns| at_ns < until_ns) {
        done.clear();
        device.advance(now_ns, &mut done);
        for completion in &done {
            if now_ns >= from_ns {
                seen(completion);
            }
            device.submit(now_ns, next(completion.key));
        }
    }
}

/// Measures the saturated rate of one kind of operation, per second, from `from_ns` to `until_ns`.
pub(crate) fn saturated(spec: &DeviceSpec, depth: u64, op: Op, len_bytes: u32, from_ns: u64, until_ns: u64) -> f64 {
    let (mut rng, mut count) = (Rng::new(3), 0u64);
    let capacity_bytes = spec.capacity_bytes;
    let next = |key| request(key, op, random(&mut rng, capacity_bytes, len_bytes), len_bytes);
    closed_loop(&mut device(spec), depth, from_ns, until_ns, next, |_| count += 1);
    count as f64 * 1e9 / (until_ns - from_ns) as f64
}

/// Measures latencies in ns of small reads at random times beside random writes of 128 KiB; both in requests a second.
pub(crate) fn open_loop(spec: &DeviceSpec, reads_per_s: f64, writes_per_s: f64, until_ns: u64) -> Vec<u64> {
    let (mut device, mut rng) = (device(spec), Rng::new(11));
    let mean = |rate: f64| if rate > 0.0 { 1e9 / rate } else { 1e18 };
    let (mut read_ns, mut write_ns) = (rng.exponential(mean(reads_per_s)), rng.exponential(mean(writes_per_s)));
    let (mut latencies, mut done) = (Vec::new(), Vec::new());
    loop {
        let now_ns = read_ns.min(write_ns) as u64;
        if now_ns >= until_ns {
            break;
        }
        if read_ns <= write_ns {
            device.submit(now_ns, request(now_ns, Op::Read, random(&mut rng, spec.capacity_bytes, 4096), 4096));
            read_ns += rng.exponential(mean(reads_per_s));
        } else {
            device
                .submit(now_ns, request(u64::MAX, Op::Write, random(&mut rng, spec.capacity_bytes, 131_072), 131_072));
            write_ns += rng.exponential(mean(writes_per_s));
        }
        device.advance(now_ns, &mut done);
        // The first tenth fills buffers and meters.
        let reads = done.drain(..).filter(|completion| completion.key != u64::MAX && completion.key > until_ns / 10);
        latencies.extend(reads.map(|completion| completion.at_ns - completion.key));
    }
    latencies.sort_unstable();
    latencies
}

pub(crate) fn quantile(sorted: &[u64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize] as f64
}

pub(crate) fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{what}: {found}, not {expected} within {tolerance}");
}
