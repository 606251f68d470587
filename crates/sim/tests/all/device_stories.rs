//! Behaviours of disks that a single figure does not show: buffers fill, credits run out, members fail, capacity
//! changes.

use crate::common::device::*;
use plimsoll_core::Op;
use plimsoll_sim::device::*;
use plimsoll_sim::rng::Rng;

/// The completion of one request, alone from `now_ns` on.
fn one(device: &mut Device, now_ns: u64, op: Op, offset_bytes: u64, len_bytes: u32) -> DeviceCompletion {
    let mut done = Vec::new();
    device.submit(now_ns, request(now_ns, op, offset_bytes, len_bytes));
    device.advance(u64::MAX - 1, &mut done);
    done[0]
}

#[test]
fn writes_fall_off_a_cliff_when_the_buffer_is_full() {
    let buffer = BufferSpec { size_bytes: 256 << 20, burst_bytes_per_s: 3e9, flush_drains: true };
    let spec = DeviceSpec { buffer, ..DeviceSpec::default() };
    let mut per_10_ms = vec![0u64; 100];
    let (mut device, mut at) = (device(&spec), 0u64);
    let next = |key| {
        at += 1 << 20;
        request(key, Op::Write, at, 1 << 20)
    };
    let seen = |done: &DeviceCompletion| per_10_ms[(done.at_ns / (10 * MS)) as usize] += 1 << 20;
    closed_loop(&mut device, 16, 0, S, next, seen);
    // It fills at 3 GB/s and, idle in between, drains at 1 GB/s: full after about 134 ms.
    let bytes_per_s = |slots: std::ops::Range<usize>| {
        let count = slots.len() as f64;
        per_10_ms[slots].iter().sum::<u64>() as f64 / count * 100.0
    };
    assert_close(bytes_per_s(1..12), 3e9, 0.03, "before the cliff");
    assert_close(bytes_per_s(20..100), 1e9, 0.02, "after it");
    // A flush now waits for 256 MiB; after it there is nothing to wait for.
    let now_ns = 2 * S - 2 * S % 1000;
    let mut full = Device::new(&spec, 1).unwrap();
    for key in 0..256 {
        full.submit(0, request(key, Op::Write, key << 20, 1 << 20));
    }
    full.submit(0, request(999, Op::Flush, 0, 0));
    let mut done = Vec::new();
    full.advance(now_ns, &mut done);
    let flush = done.iter().find(|done| done.key == 999).unwrap();
    assert_close(flush.at_ns as f64, 268.5e6, 0.01, "flush of a full buffer");
    assert!(one(&mut full, now_ns, Op::Flush, 0, 0).at_ns - now_ns < MS);
}

#[test]
fn reads_do_not_wait_for_buffered_writes() {
    let buffer = BufferSpec { size_bytes: 256 << 20, ..BufferSpec::default() };
    for (buffer, least_ns, most_ns) in [(buffer, 0, 200_000), (BufferSpec::default(), 30 * MS, 40 * MS)] {
        let mut device = device(&DeviceSpec { buffer, ..DeviceSpec::default() });
        for key in 0..32 {
            device.submit(0, request(key, Op::Write, key << 20, 1 << 20));
        }
        device.submit(0, request(99, Op::Read, 0, 4096));
        let mut done = Vec::new();
        device.advance(S, &mut done);
        let read_ns = done.iter().find(|done| done.key == 99).unwrap().at_ns;
        assert!((least_ns..most_ns).contains(&read_ns), "{read_ns}");
    }
}

#[test]
fn gp2_credits_end_when_computed() {
    let spec = presets::find("gp2").unwrap().spec;
    // 5.4 million credits, 3000 taken and 300 given a second: 2000 seconds.
    let mut per_s = vec![0u32; 2200];
    let mut rng = Rng::new(3);
    let next = |key| request(key, Op::Read, random(&mut rng, 100 << 30, 4096), 4096);
    let seen = |done: &DeviceCompletion| per_s[(done.at_ns / S) as usize] += 1;
    closed_loop(&mut device(&spec), 64, 0, 2199 * S, next, seen);
    let end_s = per_s.iter().position(|&count| count < 1650).unwrap();
    assert!((1999..=2001).contains(&end_s), "credits ended after {end_s} s");
    assert_close(f64::from(per_s[1000]), 3000.0, 0.01, "burst");
    assert_close(f64::from(per_s[2100]), 300.0, 0.01, "base");
}

#[test]
fn caps_stand_in_series() {
    let cap = |unit, rate| CapSpec { unit, base_per_s: rate, burst_per_s: rate, credits: 0.0 };
    let operations = CapUnit::Operations { unit_bytes: 256 << 10 };
    let caps = vec![cap(operations, 10_000.0), cap(CapUnit::Bytes, 250e6)];
    let spec = DeviceSpec { caps, network_rtt_ns: 400_000, ..DeviceSpec::default() };
    // 4 KiB: the operations decide; 128 KiB: the bytes; 1 MiB: four operations, but still the bytes.
    for (len_bytes, expected) in [(4096, 10_000.0), (131_072, 250e6 / 131_072.0), (1 << 20, 250e6 / 1_048_576.0)] {
        let found = saturated(&spec, 256, Op::Read, len_bytes, 2 * S, 6 * S);
        assert_close(found, expected, 0.01, &format!("{len_bytes} bytes"));
    }
    let alone_ns = one(&mut device(&spec), S, Op::Read, 0, 4096).at_ns - S;
    assert!((500_000..750_000).contains(&alone_ns), "round trip and disk: {alone_ns}");
}

#[test]
fn raid0_is_as_slow_as_its_slowest_member() {
    let with = |member_faults: Vec<MemberFault>| DeviceSpec {
        raid0: RaidSpec { members: 4, chunk_bytes: 64 << 10, member_faults },
        latency: LatencySpec { sigma: 0.0, ..LatencySpec::default() },
        ..DeviceSpec::default()
    };
    let slow = with(vec![MemberFault { member: 2, speed_factor: 0.25, error_rate: 0.0 }]);
    for (offset_bytes, len_bytes, healthy_ns, slow_ns) in [
        (0, 4096, 100_000, 100_000),
        (2 * 65_536, 4096, 100_000, 400_000),
        (65_536, 131_072, 100_000, 400_000),
        // 8 MiB: 2 MiB for each member, at 2 GB/s; the slow one takes four times as long.
        (0, 8 << 20, 1_051_528, 4_206_112),
    ] {
        for (spec, expected_ns) in [(with(Vec::new()), healthy_ns), (slow.clone(), slow_ns)] {
            let at_ns = one(&mut device(&spec), 0, Op::Read, offset_bytes, len_bytes).at_ns;
            assert!(at_ns.abs_diff(expected_ns) <= 2, "{offset_bytes} + {len_bytes}: {at_ns}, not {expected_ns}");
        }
    }
    let mut dying = device(&with(Vec::new()));
    dying.set_fault(MemberFault { member: 1, speed_factor: 1.0, error_rate: 1.0 }).unwrap();
    assert_eq!(one(&mut dying, 0, Op::Read, 0, 65_536).result, Ok(65_536));
    assert_eq!(one(&mut dying, S, Op::Read, 0, 65_537).result, Err(5));
    assert!(dying.set_fault(MemberFault { member: 4, speed_factor: 1.0, error_rate: 0.0 }).is_err());
}

#[test]
fn capacity_steps_and_stalls_come_on_time() {
    let weather = WeatherSpec {
        capacity_steps: vec![(2 * S, 0.25), (4 * S, 1.0)],
        stalls: vec![(5 * S, 500 * MS)],
        ..WeatherSpec::default()
    };
    let spec = DeviceSpec { weather, ..DeviceSpec::default() };
    let (mut per_100_ms, mut rng) = (vec![0u32; 70], Rng::new(3));
    let next = |key| request(key, Op::Read, random(&mut rng, 1 << 38, 4096), 4096);
    let seen = |done: &DeviceCompletion| per_100_ms[(done.at_ns / (100 * MS)) as usize] += 1;
    closed_loop(&mut device(&spec), 64, 0, 7 * S - 1, next, seen);
    for (slot, expected) in [(10, 20e3), (30, 5e3), (45, 20e3), (60, 20e3)] {
        assert_close(f64::from(per_100_ms[slot]), expected, 0.01, &format!("slot {slot}"));
    }
    assert_eq!(per_100_ms[51..55], [0; 4], "nothing returns from a stalled device");
}

/// A buffer that is full when the device stalls is as full after it, whether a request came in the stall or not.
#[test]
fn a_stalled_device_writes_nothing_out() {
    // 1 GB/s: 16 MiB take 16.8 ms.
    let buffer = BufferSpec { size_bytes: 16 << 20, ..BufferSpec::default() };
    let weather = WeatherSpec { stalls: vec![(MS, 500 * MS)], ..WeatherSpec::default() };
    for again_ns in [2 * MS, 501 * MS] {
        let mut device =
            device(&DeviceSpec { buffer: buffer.clone(), weather: weather.clone(), ..DeviceSpec::default() });
        assert!(one(&mut device, 0, Op::Write, 0, 16 << 20).at_ns < MS, "into the empty buffer");
        let done_ns = one(&mut device, again_ns, Op::Write, 16 << 20, 16 << 20).at_ns;
        // One of the 16.8 ms passed before the stall.
        assert_close((done_ns - 501 * MS) as f64, 15.8e6, 0.03, "the time to make room");
    }
}

#[test]
fn random_stalls_noise_and_pauses_leave_their_marks() {
    let worst_and_rate = |spec: DeviceSpec, op| {
        let (mut device, mut rng, mut worst_ns, mut count) = (device(&spec), Rng::new(3), 0, 0u64);
        let mut last_ns = 0;
        let next = |key| request(key, op, random(&mut rng, 1 << 38, 4096), 4096);
        closed_loop(&mut device, 64, 0, 3 * S, next, |done| {
            worst_ns = worst_ns.max(done.at_ns - last_ns);
            last_ns = done.at_ns;
            count += 1;
        });
        (worst_ns, count as f64 / 3.0)
    };
    let (calm_ns, calm) = worst_and_rate(DeviceSpec::default(), Op::Write);
    assert!(calm_ns < MS);
    let stalls = WeatherSpec { stalls_per_s: 10.0, stall_min_ns: 5e6, ..WeatherSpec::default() };
    let (stall_ns, rate) = worst_and_rate(DeviceSpec { weather: stalls, ..DeviceSpec::default() }, Op::Write);
    assert!(stall_ns >= 5 * MS && rate < 0.95 * calm, "{stall_ns} {rate}");
    let noise = WeatherSpec { noise_sigma: 0.1, ..WeatherSpec::default() };
    let (_, rate) = worst_and_rate(DeviceSpec { weather: noise, ..DeviceSpec::default() }, Op::Write);
    assert!(rate < 0.97 * calm && rate > 0.25 * calm, "{rate}");
    let flash = FlashSpec { pause_mean_ns: 20e6, pause_period_ns: 100e6, ..FlashSpec::default() };
    let paused = DeviceSpec { flash, ..DeviceSpec::default() };
    let (pause_ns, _) = worst_and_rate(paused.clone(), Op::Write);
    assert!(pause_ns > 10 * MS, "{pause_ns}");
    assert!(worst_and_rate(paused, Op::Read).0 < MS, "reads alone cause no collection");
}

#[test]
fn a_full_disk_writes_slowly_until_discarded() {
    // Random writes at 7 % of spare space: 7.8 times fewer.
    let rate = |initial_fill, garbage_collection, over_provisioning| {
        let flash = FlashSpec { garbage_collection, initial_fill, over_provisioning, ..FlashSpec::default() };
        saturated(&DeviceSpec { flash, ..DeviceSpec::default() }, 64, Op::Write, 4096, S, 2 * S)
    };
    for (spare, amplification) in [(0.07, 7.8), (0.10, 5.7), (0.15, 4.0), (0.28, 2.5), (0.50, 1.7)] {
        assert_close(100e3 / rate(1.0, true, spare), amplification, 0.025, &format!("spare {spare}"));
    }
    assert_close(rate(0.0, true, 0.07), 100e3, 0.01, "fresh");
    // 8 GB/s, and 5 beyond three quarters; half of the slow-down stays after everything was discarded.
    let fill_curve = vec![(0.74, 1.0), (0.76, 0.625)];
    let flash = FlashSpec { fill_curve, initial_fill: 0.9, discard_residue: 0.5, ..FlashSpec::default() };
    let rates = RateSpec { write_bytes_per_s: 8e9, write_iops: 1e6, ..RateSpec::default() };
    let spec = DeviceSpec { flash, rates, ..DeviceSpec::default() };
    assert_close(saturated(&spec, 64, Op::Write, 1 << 20, S, 2 * S) * 1_048_576.0, 5e9, 0.02, "beyond 75 %");
    let mut device = device(&spec);
    for part in 0..1000 {
        device.submit(0, request(part, Op::Discard, part * 1_000_000_000, 1_000_000_000));
    }
    assert!(device.fill_level() < 0.001, "{}", device.fill_level());
    let mut done = Vec::new();
    device.advance(S, &mut done);
    assert_eq!(done.len(), 1000);
    // It sees (0 + 0.9) / 2 = 0.45: fast again.
    let took_ns = one(&mut device, S, Op::Write, 0, 1 << 30).at_ns - S;
    assert_close(took_ns as f64, f64::from(1 << 30) / 8.0, 0.01, "after the discard");
}

#[test]
fn faults_fail_shorten_hang_and_slow() {
    let mut device = device(&DeviceSpec::default());
    let window = |from_ns, kind| FaultWindow { from_ns, until_ns: from_ns + S, kind };
    for (second, kind) in [
        (1, FaultKind::Errors { rate: 1.0, errno: 61 }),
        (2, FaultKind::Short { rate: 1.0 }),
        (3, FaultKind::Hang { requests: 1, for_ns: Some(7 * S) }),
        (4, FaultKind::Hang { requests: 1, for_ns: None }),
        (5, FaultKind::Slow { speed_factor: 0.1 }),
    ] {
        device.inject(window(second * S, kind)).unwrap();
    }
    assert_eq!(one(&mut device, 0, Op::Read, 0, 8192).result, Ok(8192));
    assert_eq!(one(&mut device, S, Op::Read, 0, 8192).result, Err(61));
    let short = one(&mut device, 2 * S, Op::Write, 0, 8192).result.unwrap();
    assert!(short < 8192 && short > 0 && short.is_multiple_of(512), "{short}");
    assert_eq!(one(&mut device, 3 * S, Op::Read, 0, 8192).at_ns, 10 * S);
    device.submit(4 * S, request(77, Op::Read, 0, 4096));
    assert_eq!((device.in_flight(), device.next_event_ns()), (1, None));
    assert!(one(&mut device, 4 * S + 1, Op::Read, 0, 4096).at_ns < 4 * S + MS, "only one hangs");
    assert!(one(&mut device, 5 * S, Op::Read, 0, 4096).at_ns > 5 * S + 500_000);
    assert!(one(&mut device, 6 * S, Op::Read, 0, 4096).at_ns < 6 * S + 300_000, "windows end");
    assert!(device.inject(FaultWindow { from_ns: 2, until_ns: 2, kind: FaultKind::Short { rate: 0.1 } }).is_err());
}

#[test]
fn held_writes_reach_the_device_when_the_hold_ends() {
    let mut device = device(&DeviceSpec::default());
    let kind = FaultKind::HoldWrites;
    device.inject(FaultWindow { from_ns: S, until_ns: 2 * S, kind }).unwrap();
    let usual_ns = one(&mut device, 0, Op::Write, 0, 8192).at_ns;

    device.submit(S, request(1, Op::Write, 0, 8192));
    device.submit(S + MS, request(2, Op::Write, 8192, 8192));
    device.submit(S + 2 * MS, request(3, Op::Read, 0, 4096));
    let mut done = Vec::new();
    device.advance(S + 3 * MS, &mut done);
    assert_eq!(done.drain(..).map(|back| back.key).collect::<Vec<_>>(), [3], "reads pass");
    assert_eq!((device.in_flight(), device.next_event_ns()), (2, Some(2 * S)));

    device.advance(2 * S, &mut done);
    assert!(done.is_empty() && device.in_flight() == 2);
    device.advance(3 * S, &mut done);
    assert_eq!(done.iter().map(|back| (back.key, back.result)).collect::<Vec<_>>(), [(1, Ok(8192)), (2, Ok(8192))]);
    assert!(done.iter().all(|back| back.at_ns < 2 * S + 4 * usual_ns), "{done:?}");
}

#[test]
fn a_hard_disk_seeks() {
    let spec = presets::find("hdd").unwrap().spec;
    let random_rate = saturated(&spec, 32, Op::Read, 4096, 10 * S, 110 * S);
    assert_close(random_rate, 76.0, 0.03, "random reads a second");
    let hdd = Some(HddSpec { elevator_depth: 32, ..HddSpec::default() });
    let sorted = saturated(&DeviceSpec { hdd, ..spec }, 32, Op::Read, 4096, 10 * S, 110 * S);
    assert!(sorted > 1.5 * random_rate, "with an elevator {sorted}");
}

#[test]
fn the_same_seed_gives_the_same_times() {
    let run = |name: &str, seed| {
        let spec = presets::find(name).unwrap().spec;
        let (mut device, mut rng) = (Device::new(&spec, seed).unwrap(), Rng::new(5));
        let mut all = Vec::new();
        let next = |key| {
            let op = if rng.below(3) == 0 { Op::Write } else { Op::Read };
            request(key, op, random(&mut rng, spec.capacity_bytes, 16_384), 16_384)
        };
        closed_loop(&mut device, 64, 0, 50 * MS, next, |done| all.push(*done));
        all
    };
    for name in PRESETS {
        assert_eq!(run(name, 1), run(name, 1), "{name}");
        if !run(name, 1).is_empty() {
            assert_ne!(run(name, 1), run(name, 2), "{name}");
        }
    }
}

#[test]
fn no_request_is_too_odd() {
    for name in PRESETS {
        let mut spec = presets::find(name).unwrap().spec;
        spec.weather = WeatherSpec { stalls_per_s: 10.0, noise_sigma: 0.1, drift_per_s: 1.0, ..spec.weather };
        let mut device = device(&spec);
        for (now_ns, offset_bytes, len_bytes) in
            [(0, u64::MAX, u32::MAX), (5, 0, 0), (3, 1 << 60, 1), (u64::MAX / 2, 7, 513), (u64::MAX, 0, u32::MAX)]
        {
            for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Allocate] {
                device.submit(now_ns, request(1, op, offset_bytes, len_bytes));
            }
        }
        let mut done = Vec::new();
        device.advance(u64::MAX, &mut done);
        assert_eq!((done.len(), device.in_flight()), (25, 0), "{name}");
    }
}

#[test]
fn ties_come_in_order_of_submission() {
    let latency = LatencySpec { sigma: 0.0, ..LatencySpec::default() };
    let rates = RateSpec { read_iops: 1e9, read_bytes_per_s: 1e17, ..RateSpec::default() };
    let mut device = device(&DeviceSpec { latency, rates, ..DeviceSpec::default() });
    let mut done = Vec::new();
    for key in [5, 3, 9, 1] {
        device.submit(0, request(key, Op::Read, 0, 512));
    }
    device.advance(99_999, &mut done);
    assert!(done.is_empty());
    device.advance(101_000, &mut done);
    assert_eq!(done.iter().map(|done| done.key).collect::<Vec<_>>(), [5, 3, 9, 1]);
}

#[test]
fn a_specification_that_makes_no_disk_is_refused_by_name() {
    type Spoil = fn(&mut DeviceSpec);
    let table: [(&str, Spoil); 14] = [
        ("rates.read_iops", |spec| spec.rates.read_iops = 0.0),
        ("rates.write_bytes_per_s", |spec| spec.rates.write_bytes_per_s = f64::NAN),
        ("rates.read_bytes_per_s", |spec| spec.rates.read_bytes_per_s = f64::INFINITY),
        ("rates.read_table", |spec| spec.rates.read_table = vec![(4096, 1e3), (512, 2e3)]),
        ("latency.read_ns", |spec| spec.latency.read_ns = -1.0),
        ("latency.sigma", |spec| spec.latency.sigma = 9.0),
        ("mix_exponent_p", |spec| spec.mix_exponent_p = 0.0),
        ("mix_exponent_p", |spec| spec.mix_exponent_p = f64::NAN),
        ("capacity_bytes", |spec| spec.capacity_bytes = 0),
        ("raid0.members", |spec| spec.raid0.members = 0),
        ("raid0.chunk_bytes", |spec| spec.raid0.chunk_bytes = 0),
        ("channels.count", |spec| spec.channels.count = Some(0)),
        ("error_rate", |spec| spec.error_rate = 1.5),
        ("weather.capacity_steps", |spec| spec.weather.capacity_steps = vec![(0, 0.0)]),
    ];
    for (key, spoil) in table {
        let mut spec = DeviceSpec::default();
        spoil(&mut spec);
        let error = Device::new(&spec, 1).map(|_| ()).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert!(error.to_string().contains("must be"), "{error}");
    }
}
