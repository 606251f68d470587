use super::*;
use plimsoll_core::Op;
use plimsoll_core::trace::EventKind;

fn event(time_ns: u64) -> Event {
    Event {
        time_ns,
        request: 1,
        offset_bytes: 0,
        len_bytes: 4096,
        detail: 0,
        class: 1,
        disk: 0,
        piece: 0,
        kind: EventKind::Queued,
        op: Op::Write,
        reason: None,
    }
}

fn names() -> Names {
    let mut names = Names::default();
    names.classes.insert(1, ClassName { name: "a\\b\nc d".to_owned(), shares: 100 });
    names.files.insert(7, FileName { path: "/var/x y".to_owned(), disk: 2 });
    names.disks.insert(2, "/var".to_owned());
    names
}

fn trace() -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Monotonic, 1 << 60).unwrap();
    writer.names(&names()).unwrap();
    for at in 0..4 {
        writer.events(at as u16, at, &[event(10 * at), event(10 * at + 1)]).unwrap();
    }
    file
}

/// Returns everything readable: events, and the losses.
fn read(file: &[u8]) -> Result<(Vec<Event>, Option<Names>, Lost), OpenError> {
    let mut reader = Reader::new(file)?;
    let (mut events, mut names) = (Vec::new(), None);
    while let Some(chunk) = reader.next_chunk()? {
        match chunk.body {
            Body::Events(more) => events.extend(more),
            Body::Names(found) => names = Some(found),
        }
    }
    Ok((events, names, reader.lost()))
}

#[test]
fn what_is_written_is_read() {
    let (events, found, lost) = read(&trace()).unwrap();
    assert_eq!(events.len(), 8);
    assert_eq!(found, Some(names()));
    assert_eq!(lost, Lost { dropped_events: 6, ..Lost::default() });
}

#[test]
fn of_a_file_cut_anywhere_all_whole_chunks_are_read_and_the_cut_is_told() {
    let whole = trace();
    let ends: Vec<usize> = (0..=4).map(|events| whole.len() - events * (CHUNK_HEAD_BYTES + 2 * EVENT_BYTES)).collect();
    for cut in 0..whole.len() {
        match read(&whole[..cut]) {
            Err(OpenError::NotATrace) => assert!(cut < 8),
            Err(OpenError::DamagedHead) => assert!((8..HEAD_BYTES).contains(&cut)),
            Err(error) => panic!("{cut}: {error}"),
            Ok((events, _, lost)) => {
                let whole_chunks = ends.iter().filter(|end| **end <= cut).count();
                assert_eq!(events.len(), 2 * whole_chunks.saturating_sub(1), "cut at {cut}");
                let between = !ends.contains(&cut) && cut != HEAD_BYTES;
                assert_eq!(lost.at_end, between, "cut at {cut}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_and_costs_one_chunk() {
    let whole = trace();
    let all = read(&whole).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut file = whole.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        match read(&file) {
            Err(_) => assert!(bit / 8 < HEAD_BYTES, "bit {bit}"),
            Ok(some) => {
                assert!(bit / 8 >= HEAD_BYTES, "bit {bit} of the head was not noticed");
                assert_ne!(some, all, "bit {bit}");
                assert!(some.2.places == 1 && some.0.len() >= 6, "bit {bit}: {:?}", some.2);
            }
        }
    }
}

#[test]
fn other_versions_are_named() {
    let mut file = trace();
    file[8] = 2;
    let crc = crc32c::crc32c(&file[..24]).to_le_bytes();
    file[24..28].copy_from_slice(&crc);
    assert!(matches!(read(&file), Err(OpenError::Version(2))));
}

#[test]
fn many_names_are_many_chunks_and_a_name_longer_than_one_is_left_out() {
    let mut names = names();
    let file = |path: String| FileName { path, disk: 0 };
    names.files.extend((10..40).map(|number| (number, file("x".repeat(BODY_MAX_BYTES / 10)))));
    let mut written = names.clone();
    written.files.insert(20, file("y".repeat(BODY_MAX_BYTES)));
    names.files.remove(&20);
    let mut bytes = Vec::new();
    Writer::new(&mut bytes, Clock::Virtual, 0).unwrap().names(&written).unwrap();
    let (mut found, mut reader) = (Names::default(), Reader::new(bytes.as_slice()).unwrap());
    while let Some(chunk) = reader.next_chunk().unwrap() {
        let Body::Names(more) = chunk.body else { panic!("only names were written") };
        found.classes.extend(more.classes);
        found.files.extend(more.files);
        found.disks.extend(more.disks);
    }
    assert!(found == names && reader.lost().is_nothing());
}

#[test]
fn a_damaged_body_is_passed_over_with_all_that_looks_like_chunks_in_it() {
    let mut file = trace();
    let (before, body) = (file.len(), file[HEAD_BYTES..].to_vec());
    let mut writer = Writer { out: &mut file, clock: Clock::Monotonic, body };
    writer.chunk(KIND_EVENTS, 0, 0).unwrap();
    writer.events(0, 0, &[event(99)]).unwrap();
    file[before + CHUNK_HEAD_BYTES] ^= 1;
    let (events, _, lost) = read(&file).unwrap();
    assert_eq!((events.len(), lost.places), (9, 1));
    assert_eq!(lost.bytes, (CHUNK_HEAD_BYTES + before - HEAD_BYTES) as u64);
}

#[test]
fn counts_that_no_number_holds_stay_at_the_largest() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Monotonic, 0).unwrap();
    writer.events(0, u64::MAX, &[event(1)]).unwrap();
    writer.events(0, 2, &[event(2)]).unwrap();
    let (events, _, lost) = read(&file).unwrap();
    assert_eq!((events.len(), lost.dropped_events), (2, u64::MAX));
}

#[test]
fn many_events_are_many_chunks() {
    let events: Vec<Event> = (0..60_000).map(event).collect();
    let mut file = Vec::new();
    Writer::new(&mut file, Clock::Virtual, 0).unwrap().events(0, 5, &events).unwrap();
    let (found, _, lost) = read(&file).unwrap();
    assert_eq!(found, events);
    assert_eq!(lost.dropped_events, 5);
}

#[test]
fn a_mark_is_found_where_a_block_of_damage_ends() {
    // More damage than a reader holds, so that the mark of the chunk behind it lies across the end of what is held.
    let held_bytes = CHUNK_HEAD_BYTES + BODY_MAX_BYTES + AHEAD_BYTES;
    for before_end in 0..=CHUNK_MARK.len() {
        let mut file = Vec::new();
        Writer::new(&mut file, Clock::Monotonic, 0).unwrap();
        file.resize(file.len() + held_bytes - before_end, 0xaa);
        let mut writer = Writer { out: &mut file, clock: Clock::Monotonic, body: Vec::new() };
        writer.events(0, 0, &[event(1)]).unwrap();
        let (events, _, lost) = read(&file).unwrap();
        assert_eq!((events.len(), lost.bytes, lost.places), (1, (held_bytes - before_end) as u64, 1), "{before_end}");
    }
}

#[test]
fn chunks_of_later_events_are_skipped_unread() {
    /// Counts what is read.
    struct Counted<'a>(io::Cursor<&'a [u8]>, usize);

    impl Read for Counted<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(room)?;
            self.1 += read;
            Ok(read)
        }
    }

    impl Seek for Counted<'_> {
        fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, Clock::Virtual, 0).unwrap();
    for (at, last_ns) in (0..30).map(|at| (at * 1_000_000, at * 1_000_000 + 20_000)) {
        writer.events(0, 0, &(at..last_ns).map(event).collect::<Vec<_>>()).unwrap();
        if at == 7_000_000 {
            writer.names(&names()).unwrap();
        }
    }

    let mut reader = Reader::new(Counted(io::Cursor::new(&file), 0)).unwrap();
    let (mut skipped, mut first_ns, mut found) = (0, Vec::new(), Names::default());
    loop {
        if reader.skip_events_from(2_000_000).unwrap() {
            skipped += 1;
            continue;
        }
        let Some(chunk) = reader.next_chunk().unwrap() else { break };
        match chunk.body {
            Body::Events(mut events) => first_ns.push(events.next().unwrap().time_ns),
            Body::Names(names) => found = names,
        }
    }
    assert_eq!((skipped, first_ns, found), (28, vec![0, 1_000_000], names()));
    assert!(reader.lost().is_nothing());
    assert!(4 * reader.input.1 < file.len(), "{} of {} bytes", reader.input.1, file.len());
}

#[test]
fn unknown_events_are_left_out_and_counted() {
    let mut file = Vec::new();
    Writer::new(&mut file, Clock::Monotonic, 0).unwrap();
    let mut body: Vec<u8> = [event(1), event(2), event(3)].iter().flat_map(Event::to_bytes).collect();
    // The kind of the second.
    body[EVENT_BYTES + 38] = 99;
    let mut writer = Writer { out: &mut file, clock: Clock::Monotonic, body };
    writer.chunk(KIND_EVENTS, 0, 0).unwrap();
    let (events, _, lost) = read(&file).unwrap();
    assert_eq!((events, lost), (vec![event(1), event(3)], Lost { unknown_events: 1, ..Lost::default() }));
}
