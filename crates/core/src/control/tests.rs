//! The figures that the controller must reach, on devices of different kinds, over several seeds.

use super::tests_bench::*;
use super::*;

const SEEDS: u64 = 10;

fn device(queues: usize, servers: usize, fixed_us: u64, sigma: f64, sizes: Sizes) -> Device {
    Device { queues, servers, fixed_ns: fixed_us * 1000, speed: 1.0, sigma, sizes, changes: Vec::new() }
}

fn control(bound_ns: u64, scale_max: f64) -> Policy {
    let limits = Limits { bound_ns, min_window_ns: 0, unloaded_latency_ns: 0 };
    Policy::Control(ControlConfig { scale_max, ..ControlConfig::default() }, limits)
}

fn drained(device: &Device) -> f64 {
    run(device, Policy::Drain(256), ENDLESS, 99, 1000 * MS).rate(100 * MS, 1000 * MS)
}

fn knee_ns(device: &Device, drained: f64) -> f64 {
    let mut low = 1_000f64;
    let mut high = 50e6f64;
    while high / low > 1.03 {
        let middle = (low * high).sqrt();
        let rate = run(device, Policy::Window(middle as u64), ENDLESS, 98, 600 * MS).rate(100 * MS, 600 * MS);
        if rate >= 0.95 * drained { high = middle } else { low = middle }
    }
    high
}

#[test]
fn explore() {
    let table = [
        ("16 servers, 4 KiB", device(1, 16, 0, 0.0, SMALL)),
        ("16 servers, 4 KiB, jitter", device(1, 16, 0, 0.3, SMALL)),
        ("64 servers, 4 KiB, jitter", device(1, 64, 0, 0.3, SMALL)),
        ("8 servers, mixed", device(1, 8, 0, 0.0, MIXED)),
        ("16 servers, mixed, jitter", device(1, 16, 0, 0.3, MIXED)),
        ("8 channels, 4 KiB", device(8, 1, 0, 0.0, SMALL)),
        ("8 channels, 4 KiB, jitter", device(8, 1, 0, 0.3, SMALL)),
        ("8 channels, mixed", device(8, 1, 0, 0.0, MIXED)),
        ("virtual, 4 KiB", device(1, 1, 50, 0.0, SMALL)),
        ("virtual, 4 KiB, jitter", device(1, 1, 50, 0.3, SMALL)),
        ("virtual 500us, mixed", device(1, 1, 500, 0.3, MIXED)),
        ("1 server", device(1, 1, 0, 0.3, SMALL)),
    ];
    println!("{:28} drained knee_us | rate min mean | queue/knee mean max | oscillation max | falls", "");
    for (name, device) in &table {
        let drained = drained(device);
        let knee = knee_ns(device, drained);
        let (mut worst, mut sum, mut queue, mut queue_max, mut osc) = (9.0f64, 0.0, 0.0, 0f64, 0f64);
        let mut falls = 0;
        for seed in 0..SEEDS {
            let r =
                run(device, control(if device.sizes == MIXED { 20 } else { 2 } * MS, 1.5), ENDLESS, seed, 3000 * MS);
            let x = r.rate(1000 * MS, 3000 * MS) / drained;
            worst = worst.min(x);
            sum += x / SEEDS as f64;
            let q = r.in_flight_ns(1000 * MS, 3000 * MS) / knee;
            queue += q / SEEDS as f64;
            queue_max = queue_max.max(q);
            osc = osc.max(r.oscillation(1000 * MS, 3000 * MS));
            falls += r.events().iter().filter(|e| e.kind == EventKind::Fall).count();
            if seed == 0 && std::env::var("EV").is_ok() {
                for e in r.events().iter().take(60) {
                    println!("   {e}");
                }
            }
        }
        println!(
            "{name:28} {drained:.3} {:8.1} | {worst:.4} {sum:.4} | {queue:.2} {queue_max:.2} | {osc:.4} | {falls}",
            knee / 1e3
        );
    }
}

const STEP_AT: u64 = 1000 * MS;

fn with(mut device: Device, changes: &[(u64, Change)]) -> Device {
    device.changes = changes.to_vec();
    device
}

#[test]
fn explore_dynamic() {
    let small = |servers, sigma| device(1, servers, 0, sigma, SMALL);
    let virt = || device(1, 1, 50, 0.3, SMALL);
    let (a, b) = (STEP_AT, 2 * STEP_AT);
    let table = [
        (
            "16 -> 4 servers",
            with(small(16, 0.0), &[(a, Change::Servers(4)), (b, Change::Servers(16))]),
            with(small(16, 0.0), &[(0, Change::Servers(4))]),
        ),
        (
            "16 -> 4 servers jitter",
            with(small(16, 0.3), &[(a, Change::Servers(4)), (b, Change::Servers(16))]),
            with(small(16, 0.3), &[(0, Change::Servers(4))]),
        ),
        (
            "16 slower",
            with(small(16, 0.3), &[(a, Change::Speed(0.25)), (b, Change::Speed(1.0))]),
            with(small(16, 0.3), &[(0, Change::Speed(0.25))]),
        ),
        (
            "64 -> 16 servers",
            with(small(64, 0.3), &[(a, Change::Servers(16)), (b, Change::Servers(64))]),
            with(small(64, 0.3), &[(0, Change::Servers(16))]),
        ),
        (
            "virtual",
            with(virt(), &[(a, Change::Speed(0.25)), (b, Change::Speed(1.0))]),
            with(virt(), &[(0, Change::Speed(0.25))]),
        ),
        (
            "channels",
            with(device(8, 1, 0, 0.3, SMALL), &[(a, Change::Speed(0.25)), (b, Change::Speed(1.0))]),
            with(device(8, 1, 0, 0.3, SMALL), &[(0, Change::Speed(0.25))]),
        ),
        (
            "mixed 8 slower",
            with(device(1, 8, 0, 0.3, MIXED), &[(a, Change::Speed(0.25)), (b, Change::Speed(1.0))]),
            with(device(1, 8, 0, 0.3, MIXED), &[(0, Change::Speed(0.25))]),
        ),
        (
            "mixed virtual",
            with(device(1, 1, 500, 0.3, MIXED), &[(a, Change::Speed(0.25)), (b, Change::Speed(1.0))]),
            with(device(1, 1, 500, 0.3, MIXED), &[(0, Change::Speed(0.25))]),
        ),
        ("cliff virtual", with(virt(), &[(a, Change::Speed(0.1))]), with(virt(), &[(0, Change::Speed(0.1))])),
    ];
    for (name, device, slow) in &table {
        let drained_fast = drained(&Device { changes: vec![], ..device.clone() });
        let drained_slow = drained(slow);
        let knee = knee_ns(slow, drained_slow);
        let mean_cost = if device.sizes == SMALL { 10e3 } else { 55.6e3 };
        let limit = 2.0 * knee + 4.0 * mean_cost;
        let (mut after, mut contained, mut back, mut worst_rate, mut tail, mut fast_before) = (0f64, 0u64, 0u64, 9f64, 0f64, 9f64);
        for seed in 0..SEEDS {
            let r =
                run(device, control(if device.sizes == MIXED { 20 } else { 2 } * MS, 1.5), ENDLESS, seed, 3000 * MS);
            if (seed == 0 || r.rate(a + 500 * MS, b) < 0.8 * drained_slow || knee < 50e3) && std::env::var("EV").is_ok()
            {
                for e in
                    r.events().iter().filter(|e| e.at_ns > a - 20 * MS && e.kind != EventKind::ScaleChanged).take(40)
                {
                    println!("   {e}");
                }
            }
            // last 10 ms bin above the limit in the first 500 ms
            let over = (0..50)
                .rev()
                .find(|i| r.in_flight_ns(a + i * BIN_NS, a + (i + 1) * BIN_NS) > limit)
                .map_or(0, |i| (i + 1) * 10);
            let first =
                (0..50).find(|i| r.in_flight_ns(a + i * BIN_NS, a + (i + 1) * BIN_NS) <= limit).map_or(999, |i| i * 10);
            after = after.max(r.in_flight_ns(a + 50 * MS, b) / limit);
            contained = contained.max(first);
            tail = tail.max(over as f64);
            worst_rate = worst_rate.min(r.rate(a + 500 * MS, b) / drained_slow);
            fast_before = fast_before.min(r.rate(a - 500 * MS, a) / drained_fast);
            let ok = (0..90)
                .find(|i| r.rate(b + i * BIN_NS, b + (i + 10) * BIN_NS) >= 0.9 * drained_fast)
                .map_or(999, |i| i * 10);
            back = back.max(ok);
        }
        println!(
            "{name:24} before {fast_before:.3} knee(slow) {:.0} us limit {:.0}: contained {contained} ms (last over {tail} ms, mean after 50 ms {after:.2} of limit), rate slow {worst_rate:.3}, back in {back} ms",
            knee / 1e3,
            limit / 1e3
        );
    }
    for (name, d) in [
        ("16 servers", small(16, 0.3)),
        ("virtual", virt()),
        ("channels", device(8, 1, 0, 0.3, SMALL)),
        ("mixed", device(1, 8, 0, 0.3, MIXED)),
    ] {
        let full = drained(&d);
        let d = with(d, &[(a, Change::StallNs(100 * MS))]);
        let mut worst = 9f64;
        let mut worst10 = 9f64;
        for seed in 0..SEEDS {
            let r = run(&d, control(if d.sizes == MIXED { 20 } else { 2 } * MS, 1.5), ENDLESS, seed, 2000 * MS);
            worst = worst.min(r.rate(a + 200 * MS, a + 300 * MS) / full);
            worst10 = worst10.min(r.rate(a + 110 * MS, a + 210 * MS) / full);
            if (seed == 0 || r.rate(a + 110 * MS, a + 210 * MS) < 0.8 * full) && std::env::var("EV").is_ok() {
                for e in r.events().iter().filter(|e| e.at_ns > a - 20 * MS).take(20) {
                    println!("   {e}");
                }
            }
        }
        println!("stall {name}: 10..110 ms after {worst10:.3} 100..200 after {worst:.3}");
    }
}
