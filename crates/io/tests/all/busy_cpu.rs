//! A shard that computes for long between two looks is no slow disk: what it saw late does not move the closed loop, and does
//! not count as the device's time.

use crate::common::{CREATE, disk, one};
use plimsoll::backend::Backend;
use plimsoll::backend::sim::{SimConfig, SimDisk, SimWorld};
use plimsoll::core::{DiskSnapshot, LatencyGoal};
use plimsoll::{Class, Classes, Done, Reactor, Request, RequestKind, Topology};

const BLOCK: usize = 4096;
const S: u64 = 1_000_000_000;
const REQUESTS: u64 = 256;

/// The disk after two seconds of small reads, as many as it takes, by a shard that computes so long between two looks; and the
/// median of what its class was told of the device.
fn run(iops: u64, compute_ns: u64) -> (DiskSnapshot, u64) {
    let mut device = SimDisk { mount: "/0".into(), ..SimDisk::default() };
    (device.spec.latency.read_ns, device.spec.latency.write_ns, device.spec.latency.sigma) = (80e3, 80e3, 0.0);
    let config = SimConfig { disks: vec![device], keep_contents: false, sector_bytes: 512, ..SimConfig::default() };
    let world = SimWorld::new(&config).unwrap();
    let setup = disk(iops, 4 << 30, LatencyGoal::Ns(750_000));
    let topology = Topology::new(1, Classes::new(), vec![setup]).unwrap();
    let mut reactor = Reactor::new(0, &topology, Box::new(world.backend(1024))).unwrap();
    // Another member of the world, whose waits are the shard's computing.
    let mut clock = world.backend(1);
    let file = topology.file("/0/file".as_ref(), CREATE, 0);
    reactor.set_file_len(&file, 1 << 30).unwrap();
    let read = |tag: u64, data| {
        let kind = RequestKind::Read { len_bytes: BLOCK as u32 };
        Request { file: file.clone(), class: Class::DEFAULT, kind, offset: tag * BLOCK as u64, data, tag }
    };
    for tag in 0..REQUESTS {
        reactor.submit(read(tag, one(BLOCK))).unwrap();
    }
    let mut done: Vec<Done> = Vec::new();
    while world.now_ns() < 2 * S {
        if compute_ns > 0 {
            reactor.dispatch();
            reactor.flush().unwrap();
            let until_ns = world.now_ns() + compute_ns;
            while world.now_ns() < until_ns {
                clock.wait(Some(until_ns)).unwrap();
            }
        } else {
            reactor.park(None).unwrap();
        }
        reactor.reap(&mut done);
        for end in done.drain(..) {
            assert_eq!(end.result, Ok(BLOCK as u32));
            reactor.submit(read(end.tag, end.data)).unwrap();
        }
    }
    let mut median_ns = 0;
    reactor.class_latencies(0, Class::DEFAULT, &mut |latencies| median_ns = latencies.device.percentile(50.0));
    (topology.disk(0).unwrap().snapshot(), median_ns)
}

#[test]
fn a_busy_shard_is_no_slow_disk() {
    // What the device does with all its channels, and less.
    for iops in [20_000, 100_000, 200_000] {
        let (idle, _) = run(iops, 0);
        for compute_ns in [500_000, 2_000_000] {
            let (busy, median_ns) = run(iops, compute_ns);
            let case = format!("{iops} IOPS, looks each {compute_ns} ns: {busy:?}, before {idle:?}");
            assert!(busy.capacity_scale >= 0.95 * idle.capacity_scale, "{case}");
            assert!(busy.window_ns >= idle.window_ns, "{case}");
            // All came back unseen between two looks: half of that is the best guess.
            let half_ns = compute_ns / 2;
            assert!(
                (half_ns * 9 / 10..=half_ns * 11 / 10).contains(&median_ns),
                "{case}: {median_ns} ns in the device"
            );
        }
    }
}
