//! Requests that are refused come back whole, buffers included, and leave no trace.

use crate::common;
use std::io::ErrorKind;

use crate::common::{CREATE, all, deferred, filled, memory, one, one_reactor, one_shard};
use plimsoll::buffer::AlignedBuf;
use plimsoll::{
    Class, Classes, Data, DiskSetup, Reactor, ReactorConfig, RefusedReason, Request, RequestKind, Shard, Topology,
};

fn read(len_bytes: u32) -> RequestKind {
    RequestKind::Read { len_bytes }
}

/// What a future's error says of why it was refused.
fn reason(error: &std::io::Error) -> Option<RefusedReason> {
    error.get_ref()?.downcast_ref().copied()
}

#[test]
fn each_reason_gives_the_request_back() {
    let (topology, mut reactor, file) = one_reactor(100, memory());
    let group = topology.classes().add_group("group", None, 100).unwrap();
    let gone = topology.classes().add_class("gone", None, 100).unwrap();
    topology.classes().remove(gone).unwrap();
    let other = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited(); 3]).unwrap();
    let foreign = other.file("file".as_ref(), CREATE, 2);
    let nowhere = topology.file("elsewhere".as_ref(), CREATE, 1);
    let error = reactor.open(&nowhere).unwrap_err().to_string();
    assert!(error.contains("there is no disk 1: they are 0 to 0"), "{error}");
    // Its number means nothing here, or another file.
    let errors = [
        reactor.open(&foreign).map(|_| ()).unwrap_err(),
        reactor.file_len(&foreign).map(|_| ()).unwrap_err(),
        reactor.set_file_len(&foreign, 0).unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), reason(&error)), (ErrorKind::InvalidInput, Some(RefusedReason::ForeignFile)));
    }
    let many = |count| Data::Many((0..count).map(|_| AlignedBuf::new(8).unwrap()).collect());
    let class = Class::DEFAULT;
    for (file, class, kind, data, expect) in [
        (&file, class, read(4097), one(4096), RefusedReason::BufferTooSmall),
        (&file, class, RequestKind::Write { len_bytes: 1 }, Data::None, RefusedReason::BufferTooSmall),
        (&file, class, read(8 * 3 + 1), many(3), RefusedReason::BufferTooSmall),
        (&file, class, read(8), many(1025), RefusedReason::TooManyBuffers),
        (&file, group, read(4096), one(4096), RefusedReason::UnknownClass),
        (&file, gone, read(4096), one(4096), RefusedReason::UnknownClass),
        (&foreign, class, read(4096), one(4096), RefusedReason::ForeignFile),
        (&nowhere, class, read(4096), one(4096), RefusedReason::UnknownDisk),
    ] {
        let wanted = format!("{data:?}");
        let request = Request { file: file.clone(), class, kind, offset: 5, data, tag: 77 };
        let refused = reactor.submit(request).unwrap_err();
        assert_eq!(refused.reason, expect);
        assert_eq!((refused.request.tag, format!("{:?}", refused.request.data)), (77, wanted));
        assert!(!refused.to_string().is_empty());
        assert_eq!(reactor.under_way(), 0);
    }
}

#[test]
fn the_table_is_bounded_and_empties_again() {
    let (_, mut reactor, file) = one_reactor(10, deferred());
    let mut done = Vec::new();
    let request = |tag| Request {
        file: file.clone(),
        class: Class::DEFAULT,
        kind: RequestKind::Write { len_bytes: 512 },
        offset: tag * 512,
        data: Data::One(filled(512, tag, 0)),
        tag,
    };
    for round in 0..100 {
        let refused = (0..15).filter_map(|n| reactor.submit(request(round * 15 + n)).err()).collect::<Vec<_>>();
        assert_eq!(refused.len(), 5);
        for refused in refused {
            let Data::One(buffer) = &refused.request.data else { panic!("{refused:?}") };
            assert!(refused.reason == RefusedReason::Full && common::has_pattern(buffer, refused.request.tag, 0));
        }
        while done.len() < 10 {
            reactor.park(None).unwrap();
            reactor.reap(&mut done);
        }
        let mut tags: Vec<u64> = done.drain(..).map(|end| end.tag).collect();
        tags.sort_unstable();
        assert_eq!(tags, (round * 15..round * 15 + 10).collect::<Vec<_>>());
        assert_eq!((reactor.under_way(), reactor.in_backend()), (0, 0));
    }
}

#[test]
fn the_queue_of_a_disk_is_bounded_too() {
    let disk = DiskSetup { max_requests: 3, ..DiskSetup::unlimited() };
    let (_, shard, file) = one_shard(disk, deferred());
    let writes = (0..5).map(|n| shard.write_at(&file, Class::DEFAULT, n * 512, filled(512, 1, n * 512)));
    let ends = shard.block_on(all(writes)).unwrap();
    let errors: Vec<_> = ends.iter().map(|(end, _)| end.as_ref().err().and_then(reason)).collect();
    assert_eq!(errors, [None, None, None, Some(RefusedReason::Full), Some(RefusedReason::Full)]);
    assert!(ends.iter().all(|(_, buffer)| buffer.len() == 512));
}

#[test]
fn futures_give_refused_buffers_back() {
    let config = ReactorConfig { max_requests: 1 };
    let topology = Topology::with_config(1, Classes::new(), vec![DiskSetup::unlimited()], config).unwrap();
    let shard = Shard::new(Reactor::new(0, &topology, deferred()).unwrap());
    let file = topology.file("file".as_ref(), CREATE, 0);
    let writes = (0..2).map(|n| shard.write_at(&file, Class::DEFAULT, n * 512, filled(512, 1, 0)));
    let ends = shard.block_on(all(writes)).unwrap();
    assert_eq!(ends[0].0.as_ref().unwrap(), &512);
    let refused = ends[1].0.as_ref().unwrap_err();
    assert_eq!((refused.kind(), reason(refused)), (std::io::ErrorKind::WouldBlock, Some(RefusedReason::Full)));
    assert!(ends.iter().all(|(_, buffer)| common::has_pattern(buffer, 1, 0) && buffer.len() == 512));
    let buffers = (0..1025).map(|_| AlignedBuf::new(1).unwrap()).collect();
    let (read, buffers) = shard.block_on(shard.read_vectored(&file, Class::DEFAULT, 0, buffers)).unwrap();
    let refused = read.unwrap_err();
    assert_eq!((refused.kind(), buffers.len()), (std::io::ErrorKind::InvalidInput, 1025));
    assert_eq!(reason(&refused), Some(RefusedReason::TooManyBuffers));
}
