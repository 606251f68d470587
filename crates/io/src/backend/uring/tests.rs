//! Rings with every set of flags: the contract, and how often they enter the kernel.

use super::*;
use crate::conformance::{Promises, assert_passed, run};
use crate::sandbox::forbid;
use crate::skip::skip;

/// The flags for older kernels must keep the contract as well.
#[test]
fn every_set_of_flags_keeps_the_contract() {
    for flags in FLAGS {
        if let Err(error) = UringBackend::with_flags(16, &[flags]) {
            skip(format_args!("a ring with flags {flags:?} cannot be made here: {error}"));
            continue;
        }
        let make = || Ok(Box::new(UringBackend::with_flags(16, &[flags])?) as Box<dyn Backend>);
        assert_passed(&format!("uring, {flags:?}"), &run(make, &std::env::temp_dir(), Promises::default()));
    }
}

/// With deferred task work, only an enter that asks for completions posts them. `reap` must return them even to a
/// shard that never sleeps.
#[test]
fn a_shard_that_never_sleeps_reaps_with_every_set_of_flags() {
    let path = std::env::temp_dir().join(format!("plimsoll-uring-busy-{}", std::process::id()));
    for flags in FLAGS {
        let mut backend = match UringBackend::with_flags(16, &[flags]) {
            Ok(backend) => backend,
            Err(error) => {
                crate::skip::skip(format_args!("a ring with flags {flags:?} cannot be made here: {error}"));
                continue;
            }
        };
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let (file, _) = backend.open(&path, &options).unwrap();
        std::fs::remove_file(&path).unwrap();

        // The kernel's own threads execute a sync, so its completion is always posted later.
        for key in 0..8 {
            let kind = Kind::Sync { data_only: false };
            let operation = Operation { key, file, kind, offset: 0, memory: Memory::None };
            // SAFETY: a sync names no memory.
            assert_eq!(unsafe { backend.submit(operation) }, Submit::Queued);
        }
        backend.flush().unwrap();

        let begin = std::time::Instant::now();
        let mut keys = Vec::new();
        while keys.len() < 8 {
            backend.reap(&mut |completion| keys.push(completion.key));
            assert!(begin.elapsed() < Duration::from_secs(60), "{flags:?}: {keys:?} came back without a sleep");
        }
    }
}

/// The enter that sleeps also hands over new entries: a turn needs no other.
#[test]
fn a_turn_enters_once() {
    let path = std::env::temp_dir().join(format!("plimsoll-uring-enters-{}", std::process::id()));
    for flags in FLAGS {
        let mut backend = match UringBackend::with_flags(16, &[flags]) {
            Ok(backend) => backend,
            Err(error) => {
                skip(format_args!("a ring with flags {flags:?} cannot be made here: {error}"));
                continue;
            }
        };
        let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        let (file, _) = backend.open(&path, &options).unwrap();
        std::fs::remove_file(&path).unwrap();

        let mut enters = |what: &str, key: Option<u64>, deadline_ns: Option<u64>| {
            let before = backend.ring.enters;
            let kind = Kind::Sync { data_only: false };
            if let Some(key) = key {
                let operation = Operation { key, file, kind, offset: 0, memory: Memory::None };
                // SAFETY: a sync names no memory.
                assert_eq!(unsafe { backend.submit(operation) }, Submit::Queued);
            }
            backend.wait(deadline_ns).unwrap();
            let mut keys = Vec::new();
            backend.reap(&mut |completion| keys.push(completion.key));
            assert_eq!(keys, key.into_iter().collect::<Vec<_>>(), "{flags:?}, {what}");
            assert_eq!(backend.ring.enters - before, 1, "{flags:?}, {what}");
        };

        // Twice: the first sleep also submits the read of the eventfd.
        (0..2).for_each(|key| enters("an operation", Some(key), None));
        enters("nothing until a time", None, Some(clock::now_ns() + 20_000_000));

        // A wake-up prevents the sleep; new entries are handed over all the same.
        backend.wake_handle().wake();
        let operation =
            Operation { key: 7, file, kind: Kind::Sync { data_only: true }, offset: 0, memory: Memory::None };
        // SAFETY: a sync names no memory.
        assert_eq!(unsafe { backend.submit(operation) }, Submit::Queued);
        let before = backend.ring.enters;
        backend.wait(None).unwrap();
        assert!(backend.ring.submission().is_empty());
        assert_eq!(backend.ring.enters - before, 1, "{flags:?}, woken");
    }
}

/// A thread has sixteen places for descriptors of rings. A ring without one works all the same, and a dropped ring
/// gives its place back.
#[test]
fn more_rings_than_places_for_their_descriptors() {
    for _ in 0..2 {
        let made: io::Result<Vec<UringBackend>> = (0..20).map(|_| UringBackend::new(2)).collect();
        match made {
            Ok(mut rings) => rings.iter_mut().for_each(|ring| ring.try_round_trip().unwrap()),
            Err(error) => return skip(format_args!("20 rings cannot be made here: {error}")),
        }
    }
}

/// The drop waited for ever for the read of the eventfd, so a runtime whose program had forbidden io_uring to itself
/// could not be stopped.
#[test]
fn a_ring_that_may_not_be_entered_any_more_is_dropped() {
    for flags in FLAGS {
        let (end, ended) = std::sync::mpsc::channel();
        let run = move || {
            let mut backend = UringBackend::with_flags(16, &[flags]).ok()?;
            let path = std::env::temp_dir().join(format!("plimsoll-uring-forbidden-{}", std::process::id()));
            let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
            let (file, _) = backend.open(&path, &options).unwrap();
            std::fs::remove_file(&path).unwrap();
            // The kernel takes the read of the eventfd.
            backend.wait(Some(clock::now_ns() + 1_000_000)).unwrap();
            if !forbid(&[(libc::SYS_io_uring_enter, None)], libc::SECCOMP_RET_ERRNO | libc::EPERM as u32) {
                return None;
            }
            let kind = Kind::Sync { data_only: false };
            let operation = Operation { key: 1, file, kind, offset: 0, memory: Memory::None };
            // SAFETY: a sync names no memory.
            assert_eq!(unsafe { backend.submit(operation) }, Submit::Queued);
            assert_eq!(backend.flush().unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert_eq!((backend.in_flight(), backend.in_kernel()), (1, 0));
            Some(())
        };
        let thread = std::thread::spawn(move || end.send(run()));
        match ended.recv_timeout(Duration::from_secs(60)) {
            Ok(Some(())) => {}
            Ok(None) => skip(format_args!("no ring with flags {flags:?}, or no seccomp filter")),
            Err(error) => panic!("{flags:?}: {error}"),
        }
        thread.join().unwrap().unwrap();
    }
}
