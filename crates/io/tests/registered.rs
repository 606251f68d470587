//! Registered memory is given back to the kernel with its last buffer, on whatever thread that goes. A test program of its
//! own: it reads how much memory the whole process has pinned.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "all/common/mod.rs"]
mod common;

use common::skip::skip;
use common::{TempDir, within_reason};
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::uring::REGISTERED_REGIONS;
use plimsoll::buffer::Buffers;
use plimsoll::{Class, Classes, Data, DiskSetup, Reactor, Request, RequestKind, Topology};

const LEN_BYTES: usize = 256 * 1024;

/// What the kernel has pinned for this process, in KiB.
fn pinned_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn make(reactor: &mut Reactor) -> Buffers {
    reactor.make_buffers(4, LEN_BYTES).unwrap()
}

#[test]
fn regions_are_given_back_and_used_again() {
    within_reason(give_back_and_use_again);
}

fn give_back_and_use_again() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let backend = match BackendKind::Uring.make(16) {
        Ok(backend) => backend,
        Err(error) => return skip(error),
    };
    let mut reactor = Reactor::new(0, &topology, backend).unwrap();
    let first = make(&mut reactor);
    if let Some(error) = &first.not_registered {
        return skip(error);
    }
    let dir = TempDir::new("registered");
    let file = topology.file(&dir.path().join("file"), common::CREATE, 0);
    let (before_kib, mut done) = (pinned_kib(), Vec::new());
    // Far more than there are places, each used, some dropped on another thread.
    for round in 0..3 * u64::from(REGISTERED_REGIONS) {
        let Buffers { mut buffers, not_registered } = make(&mut reactor);
        assert!(not_registered.is_none(), "{round}: {not_registered:?}");
        let data = Data::One(buffers.remove(0));
        let (file, kind) = (file.clone(), RequestKind::Write { len_bytes: LEN_BYTES as u32 });
        reactor.submit(Request { file, class: Class::DEFAULT, kind, offset: 0, data, tag: round }).unwrap();
        // The others go while the operation is on its way.
        drop(buffers);
        while done.is_empty() {
            reactor.park(None).unwrap();
            reactor.reap(&mut done);
        }
        let end = done.remove(0);
        assert_eq!((end.tag, end.result), (round, Ok(LEN_BYTES as u32)));
        if round % 2 == 0 {
            std::thread::spawn(move || drop(end)).join().unwrap();
        }
    }
    // A kernel may take its time.
    reactor.reap(&mut done);
    while pinned_kib() > before_kib {
        std::thread::yield_now();
    }
    // All places in use: the next one is refused, and says so.
    let mut many: Vec<Buffers> = (1..REGISTERED_REGIONS).map(|_| make(&mut reactor)).collect();
    assert!(many.iter().all(|made| made.registered() == 4));
    let refused = make(&mut reactor);
    assert_eq!((refused.registered(), refused.buffers.len()), (0, 4));
    assert!(refused.not_registered.unwrap().to_string().contains("64 regions of this ring are in use"));
    many.pop();
    assert_eq!(make(&mut reactor).registered(), 4);
    let too_long = reactor.make_buffers(1, (1 << 30) + 4096).unwrap();
    assert!(too_long.not_registered.unwrap().to_string().contains("1 GiB"));
    // They outlive the ring, which the kernel takes down when it has time.
    drop(reactor);
    drop((many, first));
    while pinned_kib() > before_kib {
        std::thread::yield_now();
    }
}
