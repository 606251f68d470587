//! The power fails on a simulated machine: what was synced is there, what was not may be, and nothing else ever is.

use crate::common;
use crate::seeds;
use std::sync::Arc;

use crate::common::{CREATE, EXISTING, all, filled, pattern};
use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimCounters, SimFaults, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Classes, DiskSetup, Shard, SharedFile, SimRuntime, Topology};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

fn world(seed: u64, faults: SimFaults) -> SimWorld {
    SimWorld::new(&SimConfig { seed, faults, sector_bytes: SECTOR as u32, ..SimConfig::default() }).unwrap()
}

/// One life of the machine: a shard, and file `data`.
struct Life {
    runtime: SimRuntime,
    shard: Shard,
    file: Arc<SharedFile>,
}

impl Life {
    fn begin(world: &SimWorld, how: OpenOptions) -> Life {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(world, &topology).unwrap();
        let (shard, file) = (runtime.shard(0).clone(), topology.file("data".as_ref(), how, 0));
        Life { runtime, shard, file }
    }

    /// Writes block `at` with the pattern of `generation`.
    async fn write(&self, at: u64, generation: u64) {
        let offset = at * BLOCK as u64;
        let buffer = filled(BLOCK, generation, offset);
        assert_eq!(self.shard.write_at(&self.file, Class::DEFAULT, offset, buffer).await.0.unwrap(), BLOCK);
    }

    async fn sync(&self, data_only: bool) {
        self.shard.sync(&self.file, Class::DEFAULT, data_only).await.unwrap();
    }

    async fn read_all(&self) -> Vec<u8> {
        let len_bytes = self.shard.reactor().file_len(&self.file).unwrap() as usize;
        let (read, buffer) =
            self.shard.read_at(&self.file, Class::DEFAULT, 0, AlignedBuf::new(len_bytes).unwrap()).await;
        buffer[..read.unwrap()].to_vec()
    }

    fn crash(self) {
        let Life { runtime, shard, file } = self;
        drop((shard, file));
        runtime.crash();
    }
}

/// Which generation a sector holds, of those that it may.
fn generation(bytes: &[u8], offset: usize, generations: &[u64]) -> Option<u64> {
    let is = |g: &&u64| bytes.iter().zip(offset as u64..).all(|(byte, at)| *byte == pattern(**g, at));
    generations.iter().find(is).copied()
}

/// 16 blocks are synced as generation 1, overwritten as generation 2 without a sync, some of that still in flight.
fn overwrite_and_crash(seed: u64, faults: SimFaults) -> (Vec<u8>, SimCounters) {
    let world = world(seed, faults);
    let life = Life::begin(&world, CREATE);
    life.runtime
        .block_on(0, async {
            all((0..16).map(|at| life.write(at, 1))).await;
            life.sync(false).await;
            all((0..8).map(|at| life.write(at, 2))).await;
            // The rest is on its way when the power fails.
            let mut rest = std::pin::pin!(all((8..16).map(|at| life.write(at, 2))));
            assert!(common::poll_once(rest.as_mut()).is_pending());
            // One turn, which takes no time, sends it.
            let mut is_sent = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut is_sent, true) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
            assert_eq!(life.shard.reactor().in_backend(), 8);
            world.crash();
        })
        .unwrap();
    life.crash();
    let life = Life::begin(&world, EXISTING);
    let bytes = life.runtime.block_on(0, life.read_all()).unwrap();
    (bytes, world.counters())
}

#[test]
fn synced_data_survives_and_every_sector_is_old_or_new() {
    let mut seen = SimCounters::default();
    let count = seeds::each(30, |seed| {
        let faults = SimFaults { torn_write_probability: 0.5, ..SimFaults::default() };
        let (bytes, counters) = overwrite_and_crash(seed, faults);
        assert_eq!(bytes.len(), 16 * BLOCK);
        let sectors = bytes.chunks(SECTOR).enumerate();
        let generations: Vec<u64> =
            sectors.map(|(n, sector)| generation(sector, n * SECTOR, &[1, 2]).expect("other bytes")).collect();
        let torn = generations.chunks(8).filter(|block| block.iter().any(|g| g != &block[0])).count() as u64;
        assert_eq!(torn, counters.torn_at_crash, "seed {seed}");
        let new = generations.chunks(8).filter(|block| block.iter().all(|g| *g == 2)).count() as u64;
        assert_eq!((new, 16 - new - torn), (counters.kept_at_crash, counters.dropped_at_crash), "seed {seed}");
        seen.torn_at_crash += counters.torn_at_crash;
        seen.kept_at_crash += counters.kept_at_crash;
        seen.dropped_at_crash += counters.dropped_at_crash;
    });
    println!("{seen:?}");
    let is_all_seen = seen.torn_at_crash > 100 && seen.kept_at_crash > 50 && seen.dropped_at_crash > 50;
    assert!(count < 30 || is_all_seen, "{seen:?}");
    // The same seed, the same bytes.
    let faults = SimFaults { torn_write_probability: 0.5, ..SimFaults::default() };
    assert_eq!(overwrite_and_crash(3, faults), overwrite_and_crash(3, faults));
}

#[test]
fn without_tearing_a_block_is_whole() {
    for (kept, expect) in [(0.0, 1), (1.0, 2)] {
        let faults = SimFaults { unsynced_kept_probability: kept, ..SimFaults::default() };
        let (bytes, _) = overwrite_and_crash(1, faults);
        assert_eq!(generation(&bytes, 0, &[1, 2]), Some(expect));
    }
}

#[test]
fn a_durable_write_needs_no_sync_but_its_file_does() {
    let harsh = SimFaults { unsynced_kept_probability: 0.0, ..SimFaults::default() };
    for sync_first in [false, true] {
        let world = world(1, harsh);
        let life = Life::begin(&world, OpenOptions { dsync: true, ..CREATE });
        let work = async {
            life.write(0, 1).await;
            if sync_first {
                life.sync(false).await;
            }
            life.write(1, 1).await;
            life.sync(true).await;
        };
        life.runtime.block_on(0, work).unwrap();
        life.crash();
        let life = Life::begin(&world, EXISTING);
        let opened = life.shard.reactor().open(&life.file).map(|info| info.len_bytes).map_err(|error| error.kind());
        let expect = if sync_first { Ok(2 * BLOCK as u64) } else { Err(std::io::ErrorKind::NotFound) };
        assert_eq!((opened, world.counters().files_lost_at_crash), (expect, u64::from(!sync_first)));
    }
}

/// A journal that syncs every record: what it has acknowledged is there after any number of crashes.
#[test]
fn a_journal_keeps_what_it_acknowledged_over_many_crashes() {
    let faults = SimFaults { torn_write_probability: 0.3, short_transfer_probability: 0.2, ..SimFaults::default() };
    let world = world(11, faults);
    let life = Life::begin(&world, CREATE);
    life.runtime.block_on(0, life.sync(false)).unwrap();
    life.crash();
    let mut acknowledged = 0;
    for round in 0..50 {
        let life = Life::begin(&world, EXISTING);
        let bytes = life.runtime.block_on(0, life.read_all()).unwrap();
        assert!(bytes.len() >= acknowledged * BLOCK, "round {round}");
        assert_eq!(generation(&bytes[..acknowledged * BLOCK], 0, &[1]), Some(1), "round {round}");
        life.runtime
            .block_on(0, async {
                for _ in 0..round % 4 {
                    life.write(acknowledged as u64, 1).await;
                    life.sync(true).await;
                    acknowledged += 1;
                }
                // Two more records that nobody was promised.
                life.write(acknowledged as u64, 1).await;
                life.write(acknowledged as u64 + 1, 1).await;
            })
            .unwrap();
        life.crash();
    }
    assert_eq!((acknowledged, world.counters().crashes), (73, 51));
}

#[test]
fn a_backend_of_an_earlier_life_is_dead_and_says_so() {
    let world = world(1, SimFaults::default());
    let life = Life::begin(&world, CREATE);
    life.runtime.block_on(0, life.write(0, 1)).unwrap();
    world.crash();
    let read = life.shard.read_at(&life.file, Class::DEFAULT, 0, AlignedBuf::new(BLOCK).unwrap());
    let (end, buffer) = life.runtime.block_on(0, read).unwrap();
    assert_eq!((end.unwrap_err().raw_os_error(), buffer.len()), (Some(libc::EIO), BLOCK));
    let error = life.runtime.block_on(0, std::future::pending::<()>()).unwrap_err();
    assert!(error.to_string().contains("crashed"), "{error}");
}
