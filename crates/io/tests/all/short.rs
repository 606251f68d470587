//! Short transfers are continued, the end of a file is told from them, and an error leaves the prefix before it.

use crate::common;
use crate::common::nasty::{Faults, Nasty};
use crate::common::{all, disk, filled, has_pattern, memory, one, one_shard, under_way, within_reason};
use crate::seeds;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::buffer::AlignedBuf;
use plimsoll::core::LatencyGoal;
use plimsoll::{Class, Classes, DiskSetup, Failure, Reactor, Request, RequestError, RequestKind, Shard, Topology};

const KIB: usize = 1024;
const MIB: usize = 1024 * 1024;

/// A disk so fast that nothing waits long, whose latency goal cuts requests into pieces of 128 KiB or so.
fn splitting() -> DiskSetup {
    disk(1_000_000, 1_000_000_000, LatencyGoal::Ns(131_072))
}

fn nasty(seed: u64) -> Faults {
    Faults { seed, short_percent: 50, busy_percent: 30, at_once_percent: 30, late_turns_max: 4, ..Faults::default() }
}

#[test]
fn short_transfers_are_continued_to_the_last_byte() {
    for (name, make) in [("unlimited", DiskSetup::unlimited as fn() -> DiskSetup), ("splitting", splitting)] {
        seeds::each(10, |seed| {
            within_reason(move || {
                let (_, shard, file) = one_shard(make(), Nasty::boxed(nasty(seed)));
                let blocks = 16_u64;
                let writes = (0..blocks).map(|n| {
                    let offset = n * 256 * KIB as u64;
                    shard.write_at(&file, Class::DEFAULT, offset, filled(256 * KIB, seed, offset))
                });
                for (written, _) in shard.block_on(all(writes)).unwrap() {
                    assert_eq!(written.unwrap(), 256 * KIB, "{name}, seed {seed}");
                }
                let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4 * MIB).unwrap());
                let (read, buffer) = shard.block_on(read).unwrap();
                assert_eq!(read.unwrap(), 4 * MIB, "{name}, seed {seed}");
                assert!(has_pattern(&buffer, seed, 0), "{name}, seed {seed}");
                let buffers = (1..=40).map(|n| AlignedBuf::new(n * 512).unwrap()).collect();
                let (read, buffers) =
                    shard.block_on(shard.read_vectored(&file, Class::DEFAULT, 4096, buffers)).unwrap();
                assert_eq!(read.unwrap(), 40 * 41 / 2 * 512);
                let mut offset = 4096;
                for buffer in buffers {
                    assert!(has_pattern(&buffer, seed, offset), "{name}, seed {seed}, at {offset}");
                    offset += buffer.len() as u64;
                }
                let stats = shard.reactor().class_stats(0, Class::DEFAULT).unwrap();
                assert!(stats.continued > 0, "there was something to continue");
                assert_eq!((stats.queued, stats.in_flight, stats.queued_bytes, stats.errors), (0, 0, 0, 0));
                assert_eq!(under_way(&shard), (0, 0));
            });
        });
    }
}

/// Every byte arrives also where the backend is done inside `submit` and then nothing else would wake the shard.
#[test]
fn short_transfers_that_are_done_at_once_do_not_put_the_shard_to_sleep() {
    within_reason(|| {
        let faults = Faults { short_percent: 100, at_once_percent: 100, ..Faults::default() };
        let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults));
        let write = shard.write_at(&file, Class::DEFAULT, 0, filled(MIB, 1, 0));
        assert_eq!(shard.block_on(write).unwrap().0.unwrap(), MIB);
    });
}

/// A signal made requests fail on AIO and io_uring, which do not repeat the call as the pool did.
#[test]
fn an_operation_that_a_signal_interrupts_is_submitted_again() {
    seeds::each(5, |seed| {
        within_reason(move || {
            let faults = Faults {
                seed,
                errno: libc::EINTR,
                error_percent: 50,
                late_turns_max: 2,
                capacity: 3,
                ..Faults::default()
            };
            let (_, shard, file) = one_shard(splitting(), Nasty::boxed(faults));
            let write = shard.write_at(&file, Class::DEFAULT, 0, filled(MIB, seed, 0));
            assert_eq!(shard.block_on(write).unwrap().0.unwrap(), MIB);
            shard.block_on(shard.allocate(&file, Class::DEFAULT, 0, MIB as u64, true)).unwrap().unwrap();
            shard.block_on(shard.sync(&file, Class::DEFAULT, true)).unwrap().unwrap();
            let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(MIB).unwrap());
            let (read, buffer) = shard.block_on(read).unwrap();
            assert!(read.unwrap() == MIB && has_pattern(&buffer, seed, 0));
            let stats = shard.reactor().class_stats(0, Class::DEFAULT).unwrap();
            assert_eq!((stats.queued, stats.in_flight, stats.errors, under_way(&shard)), (0, 0, 0, (0, 0)));
        });
    });
}

/// A backend that is busy although it has nothing in flight will not report anything: it must be asked again.
#[test]
fn a_backend_that_is_busy_for_no_reason_is_asked_again() {
    within_reason(|| {
        let faults = Faults { busy_percent: 90, ..Faults::default() };
        let (_, shard, file) = one_shard(DiskSetup::unlimited(), Nasty::boxed(faults));
        for n in 0..20 {
            let write = shard.write_at(&file, Class::DEFAULT, n * 4096, filled(4096, 1, n * 4096));
            assert_eq!(shard.block_on(write).unwrap().0.unwrap(), 4096);
        }
    });
}

fn with_file(disk: DiskSetup, len_bytes: usize) -> (Shard, std::sync::Arc<plimsoll::SharedFile>) {
    let (_, shard, file) = one_shard(disk, memory());
    let write = shard.write_at(&file, Class::DEFAULT, 0, filled(len_bytes, 7, 0));
    assert_eq!(shard.block_on(write).unwrap().0.unwrap(), len_bytes);
    (shard, file)
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    let len = 3 * MIB + 1234;
    for (disk, offset, want, expect) in [
        (DiskSetup::unlimited(), 0, 4 * MIB, len),
        (splitting(), 0, 4 * MIB, len),
        (splitting(), 3 * MIB, 4 * MIB, 1234),
        (splitting(), len, 4096, 0),
        (splitting(), 10 * MIB, 2 * MIB, 0),
        (splitting(), 0, len, len),
    ] {
        let (shard, file) = with_file(disk, len);
        let read = shard.read_at(&file, Class::DEFAULT, offset as u64, AlignedBuf::new(want).unwrap());
        let (read, buffer) = shard.block_on(read).unwrap();
        assert_eq!(read.unwrap(), expect, "{want} bytes at {offset}");
        assert!(has_pattern(&buffer[..expect], 7, offset as u64));
        assert!(buffer[expect..].iter().all(|byte| *byte == 0), "nothing beyond is touched");
    }
}

#[test]
fn sixteen_mebibytes_are_split_and_whole_again() {
    let (shard, file) = with_file(splitting(), 16 * MIB);
    let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(16 * MIB).unwrap());
    let (read, buffer) = shard.block_on(read).unwrap();
    assert!(read.unwrap() == 16 * MIB && has_pattern(&buffer, 7, 0));
    let stats = shard.reactor().class_stats(0, Class::DEFAULT).unwrap();
    assert_eq!((stats.split, stats.read.requests, stats.read.bytes), (2, 1, 16 * MIB as u64));
    assert!(stats.dispatched >= 2 * 64, "{} pieces", stats.dispatched);
}

#[test]
fn an_error_in_the_middle_is_an_error() {
    let store = MemoryStore::default();
    let (_, shard, file) = one_shard(DiskSetup::unlimited(), Box::new(MemoryBackend::new(&store).unwrap()));
    let write = shard.write_at(&file, Class::DEFAULT, 0, filled(4 * MIB, 9, 0));
    shard.block_on(write).unwrap().0.unwrap();
    drop((shard, file));
    for (bad, busy_percent) in [(0, 0), (100_000, 0), (1_000_000, 30), (3 * MIB as u64 + 5, 30), (5 * MIB as u64, 0)] {
        for late_turns_max in [0, 7] {
            let faults = Faults { bad_byte: Some(bad), busy_percent, late_turns_max, ..Faults::default() };
            let (topology, shard, _) = one_shard(splitting(), Box::new(Nasty::new(&store, faults)));
            let file = topology.file("file".as_ref(), common::EXISTING, 0);
            let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4 * MIB).unwrap());
            let (read, buffer) = shard.block_on(read).unwrap();
            let piece = u64::from(topology.disk(0).unwrap().piece_max_bytes(plimsoll::core::Direction::Read));
            match read {
                Ok(read) => assert!(bad >= 4 << 20 && read == 4 * MIB, "byte {bad} is bad"),
                Err(error) => assert!(bad < 4 << 20 && error.raw_os_error() == Some(libc::EIO), "{bad}: {error}"),
            }
            let prefix_bytes = (bad / piece * piece).min(4 << 20) as usize;
            assert!(has_pattern(&buffer[..prefix_bytes], 9, 0));
            assert_eq!(under_way(&shard), (0, 0));
            assert_eq!(topology.disk(0).unwrap().in_flight_ns(), 0);
        }
    }
}

#[test]
fn a_write_that_stops_in_the_middle_is_an_error() {
    let faults = Faults { bad_byte: Some(MIB as u64), ..Faults::default() };
    let (_, shard, file) = one_shard(splitting(), Nasty::boxed(faults));
    let write = shard.write_at(&file, Class::DEFAULT, 0, filled(2 * MIB, 1, 0));
    let (written, buffer) = shard.block_on(write).unwrap();
    assert_eq!((written.unwrap_err().raw_os_error(), buffer.len()), (Some(libc::EIO), 2 * MIB));
}

/// The native interface says both: what went wrong, and how far the request came before.
#[test]
fn a_failure_says_how_far_the_request_came() {
    let faults = Faults { bad_byte: Some(MIB as u64), late_turns_max: 3, ..Faults::default() };
    let topology = Topology::new(1, Classes::new(), vec![splitting()]).unwrap();
    let mut reactor = Reactor::new(0, &topology, Nasty::boxed(faults)).unwrap();
    let file = topology.file("file".as_ref(), common::CREATE, 0);
    let (kind, data) = (RequestKind::Write { len_bytes: 2 << 20 }, one(2 * MIB));
    reactor.submit(Request { file, class: Class::DEFAULT, kind, offset: 0, data, tag: 3 }).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        reactor.park(None).unwrap();
        reactor.reap(&mut done);
    }
    let piece = topology.disk(0).unwrap().piece_max_bytes(plimsoll::core::Direction::Write);
    let failure = Failure { errno: libc::EIO, moved_bytes: (1 << 20) / piece * piece };
    assert_eq!((done[0].tag, done[0].result), (3, Err(RequestError::Failed(failure))));
    let error = RequestError::Failed(failure);
    assert!(error.to_string().ends_with(&format!(" after {} bytes", failure.moved_bytes)), "{error}");
    assert_eq!(std::io::Error::from(error).raw_os_error(), Some(libc::EIO));
    assert_eq!(reactor.class_stats(0, Class::DEFAULT).unwrap().errors, 1);
}

/// The second piece of a request at the end of what a number can say must not come round to the file's beginning.
#[test]
fn offsets_do_not_wrap_around() {
    let (shard, file) = with_file(splitting(), 64 * KIB);
    let write = shard.write_at(&file, Class::DEFAULT, u64::MAX - 100 * KIB as u64, AlignedBuf::new(MIB).unwrap());
    let (written, _) = shard.block_on(write).unwrap();
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let read = shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(64 * KIB).unwrap());
    assert!(has_pattern(&shard.block_on(read).unwrap().1, 7, 0), "the beginning is as it was");
}
