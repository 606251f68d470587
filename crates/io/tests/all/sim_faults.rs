//! Disks that lie: every fault that is injected is counted, and whoever checks sees it.

use crate::common::{CREATE, filled, has_pattern};
use crate::seeds;
use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimConfigError, SimCounters, SimDisk, SimFaults, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 1000;

/// What a scrubber that knows what should be there has seen.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    write_errors: u64,
    read_errors: u64,
    wrong_blocks: u64,
}

/// Writes all blocks without faults as generation 1, then with `faults` as generation 2, and looks (with the same
/// faults).
fn overwrite_and_scrub(seed: u64, faults: SimFaults) -> (Seen, SimCounters) {
    let world = SimWorld::new(&SimConfig { seed, ..SimConfig::default() }).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let (shard, file) = (runtime.shard(0).clone(), topology.file("data".as_ref(), CREATE, 0));
    let seen = runtime.block_on(0, async {
        let mut seen = Seen::default();
        for generation in [1, 2] {
            if generation == 2 {
                world.set_faults(faults).unwrap();
            }
            for offset in (0..BLOCKS).map(|block| block * BLOCK as u64) {
                let (written, _) =
                    shard.write_at(&file, Class::DEFAULT, offset, filled(BLOCK, generation, offset)).await;
                seen.write_errors += u64::from(written.is_err());
            }
        }
        for offset in (0..BLOCKS).map(|block| block * BLOCK as u64) {
            let (read, buffer) = shard.read_at(&file, Class::DEFAULT, offset, AlignedBuf::new(BLOCK).unwrap()).await;
            match read {
                Ok(BLOCK) => seen.wrong_blocks += u64::from(!has_pattern(&buffer, 2, offset)),
                Ok(short) => panic!("{short}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                    seen.read_errors += 1;
                }
            }
        }
        seen
    });
    (seen.unwrap(), world.counters())
}

#[test]
fn without_faults_nothing_is_wrong() {
    seeds::each(2, |seed| {
        assert_eq!(overwrite_and_scrub(seed, SimFaults::default()), (Seen::default(), SimCounters::default()));
    });
}

#[test]
fn every_lost_write_is_seen_by_who_looks() {
    seeds::each(2, |seed| {
        let (seen, counters) =
            overwrite_and_scrub(seed, SimFaults { lost_write_probability: 0.1, ..SimFaults::default() });
        assert_eq!((seen.wrong_blocks, seen.read_errors), (counters.lost_writes, 0));
        assert!((50..200).contains(&counters.lost_writes), "{counters:?}");
    });
}

#[test]
fn every_misdirected_write_is_seen_where_it_is_missing_or_where_it_went() {
    seeds::each(2, |seed| {
        let faults = SimFaults { misdirected_write_probability: 0.1, ..SimFaults::default() };
        let (seen, counters) = overwrite_and_scrub(seed, faults);
        // It is missing in one place, and wrong in another unless that is written later.
        let n = counters.misdirected_writes;
        assert!((50..200).contains(&n) && (n * 8 / 10..=2 * n).contains(&seen.wrong_blocks), "{seen:?} {counters:?}");
    });
}

#[test]
fn flipped_bits_and_errors_are_counted_one_by_one() {
    seeds::each(2, |seed| {
        let (seen, counters) =
            overwrite_and_scrub(seed, SimFaults { bit_flip_probability: 0.1, ..SimFaults::default() });
        assert!(counters.bit_flips > 50);
        assert_eq!(seen.wrong_blocks, counters.bit_flips);
        let faults = SimFaults { read_error_probability: 0.1, write_error_probability: 0.1, ..SimFaults::default() };
        let (seen, counters) = overwrite_and_scrub(seed, faults);
        assert!(counters.read_errors > 50 && counters.write_errors > 50);
        assert_eq!((seen.read_errors, seen.write_errors), (counters.read_errors, counters.write_errors));
        let (seen, counters) =
            overwrite_and_scrub(seed, SimFaults { latent_error_probability: 0.1, ..SimFaults::default() });
        assert!(counters.latent_errors > 50);
        assert_eq!((seen.read_errors, counters.latent_error_reads), (counters.latent_errors, counters.latent_errors));
    });
}

/// Short transfers are continued by the shard, so that nobody above sees them.
#[test]
fn short_transfers_are_continued() {
    seeds::each(2, |seed| {
        let faults = SimFaults { short_transfer_probability: 0.5, ..SimFaults::default() };
        let world = SimWorld::new(&SimConfig { seed, sector_bytes: 512, faults, ..SimConfig::default() }).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let runtime = SimRuntime::new(&world, &topology).unwrap();
        let how = OpenOptions { direct: true, ..CREATE };
        let (shard, file) = (runtime.shard(0).clone(), topology.file("data".as_ref(), how, 0));
        let work = async {
            for offset in (0..100_u64).map(|n| n * 65_536) {
                let (written, _) = shard.write_at(&file, Class::DEFAULT, offset, filled(65_536, 1, offset)).await;
                assert_eq!(written.unwrap(), 65_536);
                let (read, buffer) =
                    shard.read_at(&file, Class::DEFAULT, offset, AlignedBuf::new(65_536).unwrap()).await;
                assert!(read.unwrap() == 65_536 && has_pattern(&buffer, 1, offset));
            }
        };
        runtime.block_on(0, work).unwrap();
        assert!(world.counters().short_transfers > 100);
    });
}

#[test]
fn a_full_disk_refuses_what_grows_it_and_nothing_else() {
    let faults = SimFaults { enospc_at_bytes: Some(10 * BLOCK as u64), ..SimFaults::default() };
    let disks = ["", "/other"].map(|mount| SimDisk { mount: mount.into(), ..SimDisk::default() });
    let world = SimWorld::new(&SimConfig { faults, disks: disks.to_vec(), ..SimConfig::default() }).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let runtime = SimRuntime::new(&world, &topology).unwrap();
    let shard = runtime.shard(0).clone();
    let [full, same_disk, other_disk] =
        ["/data", "/more", "/other/data"].map(|path| topology.file(path.as_ref(), CREATE, 0));
    let work = async {
        let mut ends = Vec::new();
        let cases =
            [(&full, 0, 9), (&full, 9, 2), (&full, 0, 9), (&same_disk, 0, 1), (&same_disk, 1, 1), (&other_disk, 0, 10)];
        for (file, block, blocks) in cases {
            let (offset, buffer) = (block * BLOCK as u64, AlignedBuf::new(blocks * BLOCK).unwrap());
            let (written, _) = shard.write_at(file, Class::DEFAULT, offset, buffer).await;
            ends.push(written.map_err(|error| error.raw_os_error()).map(|len| len / BLOCK));
        }
        ends
    };
    let enospc = Err(Some(libc::ENOSPC));
    assert_eq!(runtime.block_on(0, work).unwrap(), [Ok(9), enospc, Ok(9), Ok(1), enospc, Ok(10)]);
    assert_eq!(world.counters().full_disk_errors, 2);
    let error = shard.reactor().set_file_len(&full, 1 << 40).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
}

#[test]
fn impossible_worlds_are_refused() {
    let faults = SimFaults { lost_write_probability: 1.5, ..SimFaults::default() };
    let cases = [
        (SimConfig { disks: Vec::new(), ..SimConfig::default() }, "at least one disk"),
        (SimConfig { sector_bytes: 1000, ..SimConfig::default() }, "sectors of 1000 bytes"),
        (SimConfig { faults, ..SimConfig::default() }, "lost_write_probability"),
    ];
    for (config, part) in cases {
        let Err(error) = SimWorld::new(&config) else { panic!("{part}") };
        assert!(error.to_string().contains(part), "{error}");
    }
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let nan = SimFaults { torn_write_probability: f64::NAN, ..SimFaults::default() };
    assert_eq!(world.set_faults(nan), Err(SimConfigError::Probability { name: "torn_write_probability" }));
}
