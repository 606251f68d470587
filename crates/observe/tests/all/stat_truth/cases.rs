//! What happens to the simulated hosts: ladders of load on every kind of disk, faults, limits, and groups.

use plimsoll_core::Op;
use plimsoll_files::disk::DiskModel;
use plimsoll_observe::stat::{DeviceFacts, Remote, Verdict};
use plimsoll_sim::device::presets::{self, Preset, PresetKind};
use plimsoll_sim::device::{CapSpec, CapUnit, DeviceSpec, FaultKind, LatencySpec, MemberFault, RateSpec};
use plimsoll_sim::rng::Rng;
use plimsoll_sim::workload::{Load, Pattern, Spacing};

use super::truth::rated;
use super::world::{Disk, Phase, Stream, Timeline};

const KIB: u32 = 1 << 10;
const SATA: &str = "samsung-ssd-860";
/// Requests of a kind in a burst.
const BURST: u32 = 64;
const SLOW: FaultKind = FaultKind::Slow { speed_factor: 0.25 };

/// Ladders that are climbed again with a disturbance, by name; and the seeds of each.
const DISTURBED: [&str; 6] = ["i3en reads", "SATA reads", "NVMe long reads", "gp3", "GCP disk", "i4i reads"];
const SEEDS: u64 = 2;
/// Speed that noise and stalls take, as a part: mean and most.
const NOISE_MOST: f64 = 0.06;
const STALLED: f64 = 0.02;
/// What a neighbour writes, as a part of what the disk can write.
const NEIGHBOUR: f64 = 0.03;

/// What makes an interval unlike the next.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// The speed changes from moment to moment, as with neighbours on the same hardware.
    Noise,
    /// The disk does nothing for some moments.
    Stalls,
    /// Another program writes.
    Neighbour,
}

/// All timelines: each calm, and some disturbed.
pub(crate) fn all() -> Vec<Timeline> {
    let calm = calm();
    let again = calm.iter().filter(|timeline| DISTURBED.contains(&timeline.name.as_str()));
    let kinds = |timeline: &Timeline| {
        let kinds = [Beside::Noise, Beside::Stalls, Beside::Neighbour];
        kinds.into_iter().flat_map(|kind| (1..=SEEDS).map(move |seed| (kind, seed))).map({
            let timeline = timeline.clone();
            move |(kind, seed)| disturbed(&timeline, kind, seed)
        })
    };
    let again: Vec<Timeline> = again.flat_map(kinds).collect();
    calm.into_iter().chain(again).collect()
}

fn disturbed(timeline: &Timeline, kind: Beside, seed: u64) -> Timeline {
    let mut timeline =
        Timeline { name: format!("{}, {kind:?} {seed}", timeline.name), seed, is_disturbed: true, ..timeline.clone() };
    let mut rng = Rng::new(seed);
    let step_ns = timeline.interval_ns / 10;
    let steps = timeline.phases.iter().map(|phase| phase.intervals).sum::<u64>() * 10;
    let weather = &mut timeline.disks[0].actual.weather;
    match kind {
        Beside::Noise => {
            let step = |at: u64| (at * step_ns, 1.0 - NOISE_MOST * rng.below(1000) as f64 / 1000.0);
            weather.capacity_steps = (0..steps).map(step).collect();
        }
        Beside::Stalls => {
            let len_ns = (STALLED * 2.0 * timeline.interval_ns as f64) as u64;
            let stall = |at: u64| (at * 2 * timeline.interval_ns + rng.below(timeline.interval_ns), len_ns);
            weather.stalls = (0..steps / 20).map(stall).collect();
        }
        Beside::Neighbour => {
            let writes = stream(Op::Write, 4 * KIB, Load::closed(1));
            let per_s = NEIGHBOUR * rated(&timeline.disks[0], &writes);
            let writes = Stream { load: Load::poisson(per_s), ..writes };
            timeline.phases.iter_mut().for_each(|phase| phase.streams.push(writes.clone()));
        }
    }
    timeline
}

fn calm() -> Vec<Timeline> {
    let mut all = vec![
        ladder("i3en reads", preset("i3en.3xlarge"), 100, &[(Op::Read, 4 * KIB)]),
        ladder("i3en writes", preset("i3en.3xlarge"), 1000, &[(Op::Write, 4 * KIB)]),
        ladder("i4i reads", preset("i4i.2xlarge"), 100, &[(Op::Read, 4 * KIB)]),
        ladder("i4i both", preset("i4i.2xlarge"), 100, &[(Op::Read, 4 * KIB), (Op::Write, 16 * KIB)]),
        ladder("SATA reads", preset(SATA), 200, &[(Op::Read, 4 * KIB)]),
        ladder("SATA both", preset(SATA), 200, &[(Op::Read, 16 * KIB), (Op::Write, 4 * KIB)]),
        ladder("NVMe long reads", preset("hfs256gd9tng-62a0a"), 400, &[(Op::Read, 128 * KIB)]),
        ladder("NVMe long writes", preset("hfs256gd9tng-62a0a"), 4000, &[(Op::Write, 128 * KIB)]),
        ladder("array of four", array("hfs256gd9tng-62a0a", 4), 100, &[(Op::Read, 4 * KIB)]),
        ladder("gp3", preset("gp3"), 2000, &[(Op::Read, 4 * KIB)]),
        ladder("gp3 long writes", preset("gp3"), 4000, &[(Op::Write, 256 * KIB)]),
        ladder("GCP disk", gcp_disk(), 1000, &[(Op::Read, 8 * KIB)]),
        ladder("hard disk", preset("hdd"), 20_000, &[(Op::Read, 4 * KIB)]),
    ];
    all.extend([instance_limit(), credits_end(), runs_hot(), slow_member(), hangs(), group_of_four()]);
    let depths: [(&str, &[u32]); 5] = [
        ("rising", &[4, 16, 64, 16, 4]),
        ("falling", &[64, 32, 16, 8]),
        ("in the middle", &[16, 16, 48]),
        ("far apart", &[8, 32, 8, 64]),
        ("all at once", &[64, 64]),
    ];
    for (what, depths) in depths {
        for kib in [128, 4] {
            all.push(never_quiet(
                &format!("virtual disk, {kib} KiB, {what}"),
                virtual_disk(1.0, 4.0),
                kib * KIB,
                depths,
            ));
        }
        all.push(never_quiet(&format!("small virtual disk, {what}"), virtual_disk(0.1, 4.0), 32 * KIB, depths));
        all.push(never_quiet(&format!("virtual disk with room, {what}"), virtual_disk(1.0, 20.0), 4 * KIB, depths));
        all.push(never_quiet(&format!("NVMe, {what}"), preset("hfs256gd9tng-62a0a"), 4 * KIB, depths));
    }
    all.extend([slows_under_steady_load(), slows_at_a_depth()]);
    all.extend([0.5, 0.6, 0.68].map(busy_bursts).into_iter().flatten());
    all
}

fn of_preset(preset: &Preset) -> Disk {
    let (healthy, model) = (preset.spec.clone(), DiskModel::of_preset(preset));
    let disks = healthy.raid0.members;
    let device = match disks {
        1 if healthy.hdd.is_some() || preset.name == SATA => "sda",
        1 => "nvme0n1",
        _ => "md0",
    };
    let remote = Remote { kind: "ebs".into(), link_bytes_per_s: None };
    let facts = DeviceFacts {
        is_rotational: Some(healthy.hdd.is_some()),
        remote: (preset.kind == PresetKind::Volume).then_some(remote),
        members: (0..if disks > 1 { disks } else { 0 }).map(|number| format!("nvme{number}n1")).collect(),
        ..DeviceFacts::default()
    };
    Disk { name: preset.name.clone(), device: device.into(), facts, actual: healthy.clone(), healthy, model }
}

fn preset(name: &str) -> Disk {
    of_preset(&presets::find(name).unwrap())
}

fn array(name: &str, count: u32) -> Disk {
    of_preset(&presets::find(name).unwrap().array(count).unwrap())
}

/// A network volume of 15 000 operations and 240 MB a second.
fn gcp_disk() -> Disk {
    let (iops, bytes_per_s) = (15e3, 240e6);
    let steady = |unit, per_s| CapSpec { unit, base_per_s: per_s, burst_per_s: per_s, credits: 0.0 };
    let spec = DeviceSpec {
        rates: RateSpec {
            read_iops: iops,
            read_bytes_per_s: bytes_per_s,
            write_iops: iops,
            write_bytes_per_s: bytes_per_s,
            iops_block_bytes: 16_000,
            ..RateSpec::default()
        },
        latency: LatencySpec { read_ns: 500e3, write_ns: 700e3, sigma: 0.3, ..LatencySpec::default() },
        caps: vec![steady(CapUnit::Operations { unit_bytes: 0 }, iops), steady(CapUnit::Bytes, bytes_per_s)],
        network_rtt_ns: 300_000,
        ..DeviceSpec::default()
    };
    let model = DiskModel::of_device(&spec);
    let remote = Some(Remote { kind: "gcp-pd".into(), link_bytes_per_s: None });
    let facts = DeviceFacts { is_rotational: Some(false), remote, ..DeviceFacts::default() };
    Disk { name: "pd-ssd".into(), device: "sdb".into(), facts, actual: spec.clone(), healthy: spec, model }
}

fn stream(op: Op, len_bytes: u32, load: Load) -> Stream {
    Stream { disk: 0, op, len_bytes, pattern: Pattern::Random, load }
}

fn phase(name: &'static str, intervals: u64, streams: Vec<Stream>) -> Phase {
    Phase { name, intervals, streams, fault: None, group: None }
}

fn timeline(name: &str, disks: Vec<Disk>, interval_ns: u64, phases: Vec<Phase>) -> Timeline {
    Timeline { seed: 1, is_disturbed: false, name: name.to_owned(), disks, interval_ns, phases }
}

/// Each kind of request alone, one at a time; then all together as fast as they can; then less, then again, then
/// slowed.
fn ladder(name: &str, disk: Disk, interval_ms: u64, kinds: &[(Op, u32)]) -> Timeline {
    let streams = |load: &dyn Fn(&Stream) -> Load| -> Vec<Stream> {
        let all = kinds.iter().map(|(op, len_bytes)| stream(*op, *len_bytes, Load::closed(1)));
        all.map(|stream| Stream { load: load(&stream), ..stream }).collect()
    };
    let part = mix_part(&disk, kinds.len());
    let open = |level: f64| streams(&|stream: &Stream| Load::poisson(level * part * rated(&disk, stream)));
    let bursts = streams(&|stream: &Stream| Load::Open {
        requests_per_s: 0.15 * part * rated(&disk, stream) / f64::from(BURST),
        spacing: Spacing::Uniform,
        batch: BURST,
        max_outstanding: None,
    });
    let deep = streams(&|stream: &Stream| Load::closed(depth(&disk, stream)));
    let mut phases: Vec<Phase> = kinds
        .iter()
        .map(|(op, len)| {
            phase(if *op == Op::Read { "alone" } else { "alone, writes" }, 3, vec![stream(*op, *len, Load::closed(1))])
        })
        .collect();
    phases.extend([
        phase("saturated", 3, deep.clone()),
        phase("idle", 2, Vec::new()),
        phase("light", 2, open(0.15)),
        phase("bursts", 2, bursts),
        phase("medium", 2, open(0.5)),
        phase("near the knee", 2, open(0.8)),
        phase("saturated again", 2, deep.clone()),
        Phase { fault: Some((0, SLOW)), ..phase("slowed", 2, deep) },
        phase("idle again", 2, Vec::new()),
        Phase { fault: Some((0, SLOW)), ..phase("slowed, light", 2, open(0.1)) },
    ]);
    timeline(name, vec![disk], interval_ms * 1_000_000, phases)
}

/// What each of two equal parts gets of what it gets alone.
fn mix_part(disk: &Disk, kinds: usize) -> f64 {
    let p = disk.healthy.mix_exponent_p;
    if kinds == 1 || p.is_infinite() { 1.0 } else { (kinds as f64).powf(-1.0 / p) }
}

/// Four times what fills the disk, and 32 at the least.
fn depth(disk: &Disk, stream: &Stream) -> u32 {
    let alone_s = (disk.healthy.latency.read_ns + disk.healthy.network_rtt_ns as f64) / 1e9;
    (4.0 * rated(disk, stream) * alone_s).ceil().clamp(32.0, 512.0) as u32
}

/// A disk of a virtual machine that does `speed` times 1.9 GB/s and 200 000 operations a second, and is full from about
/// `full_from` requests of 128 KiB on.
fn virtual_disk(speed: f64, full_from: f64) -> Disk {
    let bytes_per_s = speed * 1.9e9;
    let rates = RateSpec {
        read_iops: speed * 200e3,
        read_bytes_per_s: bytes_per_s,
        write_iops: speed * 200e3,
        write_bytes_per_s: bytes_per_s,
        ..RateSpec::default()
    };
    let read_ns = full_from * 131_072.0 / bytes_per_s * 1e9;
    let latency = LatencySpec { read_ns, write_ns: read_ns, sigma: 0.2, ..LatencySpec::default() };
    let spec = DeviceSpec { rates, latency, ..DeviceSpec::default() };
    let facts = DeviceFacts { is_rotational: Some(true), ..DeviceFacts::default() };
    let model = DiskModel::of_device(&spec);
    let name = format!("virtual disk of {speed} from {full_from} on");
    Disk { name, device: "vda".into(), facts, actual: spec.clone(), healthy: spec, model }
}

/// Reads, always as many under way as `depths` says, one after the other: no interval shows the idle disk.
fn never_quiet(name: &str, disk: Disk, len_bytes: u32, depths: &[u32]) -> Timeline {
    let at = |depth: &u32| phase("rising depth", 2, vec![stream(Op::Read, len_bytes, Load::closed(*depth))]);
    timeline(name, vec![disk], 500_000_000, depths.iter().map(at).collect())
}

/// As many requests as ever, each of which takes longer from then on: more are under way, and the disk is not full.
fn slows_under_steady_load() -> Timeline {
    let mut disk = virtual_disk(1.0, 20.0);
    let slow = FaultKind::Slow { speed_factor: 0.25 };
    disk.name = "virtual disk that slows".into();
    let open = || vec![stream(Op::Read, 4 * KIB, Load::poisson(8_000.0))];
    let phases = vec![
        phase("rising depth", 2, open()),
        Phase { fault: Some((0, slow)), ..phase("slowed, steady load", 3, open()) },
    ];
    timeline("steady load", vec![disk], 500_000_000, phases)
}

/// First few requests under way, then many on a disk that has become slow.
fn slows_at_a_depth() -> Timeline {
    let disk = virtual_disk(1.0, 4.0);
    let reads = |depth| vec![stream(Op::Read, 128 * KIB, Load::closed(depth))];
    let phases = vec![
        phase("rising depth", 2, reads(4)),
        phase("rising depth", 2, reads(16)),
        Phase { fault: Some((0, SLOW)), ..phase("slowed", 2, reads(16)) },
        Phase { fault: Some((0, SLOW)), ..phase("slowed", 2, reads(64)) },
    ];
    timeline("slows at a depth", vec![disk], 500_000_000, phases)
}

/// Bursts that follow one another so closely that the disk always has something to do, though it is not full.
fn busy_bursts(level: f64) -> Vec<Timeline> {
    let disks = [preset("i4i.2xlarge"), preset("i3en.3xlarge"), preset(SATA), gcp_disk(), virtual_disk(1.0, 20.0)];
    let timeline = |disk: Disk| {
        let one = stream(Op::Read, 4 * KIB, Load::closed(1));
        let alone_s = (disk.healthy.latency.read_ns + disk.healthy.network_rtt_ns as f64) / 1e9;
        let knee = (rated(&disk, &one) * alone_s).ceil();
        let bursts = |knees: f64| {
            let batch = (knees * knee).ceil();
            let requests_per_s = level * rated(&disk, &one);
            let load =
                Load::Open { requests_per_s, spacing: Spacing::Uniform, batch: batch as u32, max_outstanding: None };
            vec![Stream { load, ..one.clone() }]
        };
        let phases = vec![
            phase("alone", 3, vec![one.clone()]),
            phase("saturated", 3, vec![Stream { load: Load::closed(depth(&disk, &one)), ..one.clone() }]),
            phase("idle", 2, Vec::new()),
            phase("bursts of two knees", 2, bursts(2.0)),
            phase("bursts of three knees", 2, bursts(3.0)),
            phase("bursts of four knees", 2, bursts(4.0)),
        ];
        timeline(&format!("{}, busy bursts of {level}", disk.name), vec![disk], 500_000_000, phases)
    };
    disks.into_iter().map(timeline).collect()
}

/// A volume of 16 000 operations a second on an instance that passes 4000.
fn instance_limit() -> Timeline {
    let ask = presets::Provision { iops: Some(16_000), ..presets::Provision::default() };
    let gp3 = presets::volumes().iter().find(|volume| volume.name == "gp3").unwrap();
    let mut disk = of_preset(&gp3.provision(&ask).unwrap());
    disk.name = "gp3 of 16 000".into();
    let unit = CapUnit::Operations { unit_bytes: 0 };
    disk.actual.caps.push(CapSpec { unit, base_per_s: 4000.0, burst_per_s: 4000.0, credits: 0.0 });
    let reads = |load| vec![stream(Op::Read, 4 * KIB, load)];
    let phases = vec![
        phase("alone", 3, reads(Load::closed(1))),
        phase("light", 2, reads(Load::poisson(1500.0))),
        phase("at the instance's limit", 2, reads(Load::closed(32))),
    ];
    timeline("instance limit", vec![disk], 1_000_000_000, phases)
}

/// 3000 operations a second, until credits end; then 300.
fn credits_end() -> Timeline {
    let preset = presets::find("gp2").unwrap();
    let mut disk = of_preset(&preset);
    disk.model.figures = preset.burst.unwrap();
    for cap in disk.actual.caps.iter_mut().filter(|cap| cap.credits > 0.0) {
        cap.credits = 24_000.0;
    }
    let deep = || vec![stream(Op::Read, 4 * KIB, Load::closed(32))];
    let phases = vec![
        phase("alone", 3, vec![stream(Op::Read, 4 * KIB, Load::closed(1))]),
        phase("burst", 3, deep()),
        Phase { fault: Some((0, FaultKind::Slow { speed_factor: 1.0 })), ..phase("credits ended", 9, deep()) },
    ];
    timeline("gp2", vec![disk], 2_000_000_000, phases)
}

/// A disk that slows itself down to a third.
fn runs_hot() -> Timeline {
    let mut disk = preset("i4i.2xlarge");
    disk.actual.weather.capacity_steps = vec![(500_000_000, 0.33)];
    let reads = |load| vec![stream(Op::Read, 4 * KIB, load)];
    let hot = Some((0, FaultKind::Slow { speed_factor: 1.0 }));
    let phases = vec![
        phase("alone", 3, reads(Load::closed(1))),
        phase("saturated", 2, reads(Load::closed(96))),
        Phase { fault: hot, ..phase("hot", 3, reads(Load::closed(96))) },
    ];
    timeline("hot NVMe", vec![disk], 100_000_000, phases)
}

/// One of four members at a tenth of its speed: the array waits for it.
fn slow_member() -> Timeline {
    let mut disk = array("hfs256gd9tng-62a0a", 4);
    let fault = MemberFault { member: 2, speed_factor: 0.1, error_rate: 0.0 };
    let healthy = disk.clone();
    (disk.name, disk.device) = ("array with a slow member".into(), "md1".into());
    disk.actual.raid0.member_faults = vec![fault];
    let reads = |disk, load| Stream { disk, ..stream(Op::Read, 4 * KIB, load) };
    let both = |load: Load| vec![reads(0, load.clone()), reads(1, load)];
    let broken = Some((0, FaultKind::Slow { speed_factor: 1.0 }));
    let phases = vec![
        Phase { fault: broken, ..phase("alone", 3, vec![reads(1, Load::closed(1))]) },
        Phase { fault: broken, ..phase("deep", 2, both(Load::closed(128))) },
    ];
    timeline("slow member", vec![disk, healthy], 100_000_000, phases)
}

/// Nothing comes back for some seconds; then it does.
fn hangs() -> Timeline {
    let reads = |load| vec![stream(Op::Read, 4 * KIB, load)];
    let hang = FaultKind::Hang { requests: 1 << 30, for_ns: Some(4_000_000_000) };
    let phases = vec![
        phase("alone", 3, reads(Load::closed(1))),
        phase("light", 2, reads(Load::poisson(5000.0))),
        Phase { fault: Some((0, hang)), ..phase("hung", 4, reads(Load::closed(8))) },
        phase("back", 3, reads(Load::poisson(5000.0))),
        Phase { fault: Some((0, hang)), ..phase("hung again", 3, reads(Load::closed(1))) },
    ];
    let disk = preset(SATA);
    timeline("hangs", vec![disk], 1_000_000_000, phases)
}

/// Four volumes: equal parts, one that takes all, and one after the other.
fn group_of_four() -> Timeline {
    let disks = (0..4).map(|number| Disk { device: format!("nvme{number}n1"), ..preset("gp3") }).collect();
    let writes = |disk, load| Stream { disk, ..stream(Op::Write, 32 * KIB, load) };
    let each = |load: Load| (0..4).map(|disk| writes(disk, load.clone())).collect::<Vec<_>>();
    let one = |hot: usize| {
        let load = |disk| if disk == hot { Load::closed(32) } else { Load::poisson(40.0) };
        (0..4).map(|disk| writes(disk, load(disk))).collect::<Vec<_>>()
    };
    let is = |group, phase| Phase { group: Some(group), ..phase };
    let phases = vec![
        is(Verdict::BusyButFree, phase("alone", 3, each(Load::closed(1)))),
        is(Verdict::Ok, phase("equal parts", 2, each(Load::poisson(1000.0)))),
        is(Verdict::Imbalanced, phase("the first is hot", 2, one(0))),
        is(Verdict::Imbalanced, phase("the second is hot", 2, one(1))),
        is(Verdict::Imbalanced, phase("the third is hot", 2, one(2))),
        is(Verdict::Imbalanced, phase("the fourth is hot", 2, one(3))),
        is(Verdict::Saturated, phase("all are full", 3, each(Load::closed(32)))),
        is(Verdict::Idle, phase("idle", 2, Vec::new())),
    ];
    timeline("four volumes", disks, 1_000_000_000, phases)
}
