//! Round trips, and every damage that a small superblock and a small chunk can have.

use super::superblock::EncodeError;
use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, Extent, SlabId};
use crate::key::KeyHash;

const GUID: u128 = 0x0123_4567_89ab_cdef_0011_2233_4455_6677;

fn sample() -> Superblock {
    Superblock {
        cache_guid: 1 << 100,
        disk_guid: GUID,
        disk: 3,
        generation: 7,
        key_seed: 0x5eed,
        slab_bytes: 32 << 20,
        sector_bytes: 4096,
        is_encrypted: true,
        key_check: std::array::from_fn(|i| i as u8),
        ranges: vec![
            RangeRecord { first: SlabId(100), count: 31, offset_bytes: 64 << 10 },
            RangeRecord { first: SlabId(7), count: 1, offset_bytes: (64 << 10) + (31 << 25) },
        ],
        members: vec![
            Member { disk: 1, guid: 42, state: MemberState::Away },
            Member { disk: 3, guid: GUID, state: MemberState::Active },
            Member { disk: 900, guid: 43, state: MemberState::Removing },
        ],
        snapshot: Some(StreamHead { slab: SlabId(130), offset_bytes: 0, stream: 11, chunk: 0 }),
        log: StreamHead { slab: SlabId(7), offset_bytes: 8192, stream: 12, chunk: 5 },
        now_tick: 999,
        next_slab: 131,
    }
}

/// Gives the bytes a valid checksum.
fn sealed(mut slot: [u8; SLOT_BYTES]) -> [u8; SLOT_BYTES] {
    let checksum = crc32c::crc32c(&slot[..SLOT_BYTES - 4]);
    slot[SLOT_BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    slot
}

#[test]
fn a_superblock_comes_back_as_it_was() {
    let mut block = sample();
    assert_eq!(decode(&encode(&block).unwrap()), Ok(block.clone()));
    (block.snapshot, block.is_encrypted, block.key_check) = (None, false, [0; 32]);
    let mut longer = encode(&block).unwrap().to_vec();
    longer.extend([9; 100]);
    assert_eq!(decode(&longer), Ok(block));
}

#[test]
fn the_bytes_of_a_superblock_are_those_of_the_table() {
    let slot = encode(&sample()).unwrap();
    let expect: [(usize, &[u8]); 10] = [
        (0, b"PLIMCACH"),
        (8, &[2, 0, 0, 0, 3, 0, 0, 0]),
        (48, &7_u64.to_le_bytes()),
        (96, &[0, 0, 0, 2, 0, 16, 0, 0]),
        (104, &[3, 0, 231, 3]),
        (108, &[7, 0, 0, 0, 0, 32, 0, 0, 12]),
        (132, &[130, 0, 0, 0, 0, 0, 0, 0, 11]),
        (156, &[131, 0, 0, 0, 2, 0, 3, 0, 100, 0, 0, 0, 31, 0, 0, 0, 0, 0, 1]),
        (196, &[1, 0, 42]),
        (214, &[2, 3, 0]),
    ];
    for (offset, bytes) in expect {
        assert_eq!(&slot[offset..offset + bytes.len()], bytes, "at {offset}");
    }
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_superblock_is_seen() {
    let slot = encode(&sample()).unwrap();
    for bit in 0..SLOT_BYTES * 8 {
        let mut flipped = slot;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let expect = if bit < 64 { SlotError::Foreign } else { SlotError::Checksum };
        assert_eq!(decode(&flipped), Err(expect), "bit {bit}");
    }
    for len in 0..SLOT_BYTES {
        assert!(matches!(decode(&slot[..len]), Err(SlotError::Malformed(_))), "{len} bytes");
        // Torn: what was there before is behind it; zeros, or another generation. The padding is the same in all of
        // them.
        let other = encode(&Superblock { generation: 5, ..sample() }).unwrap();
        for before in [[0; SLOT_BYTES], other] {
            let mut torn = before;
            torn[..len].copy_from_slice(&slot[..len]);
            let is_whole = torn == before || torn == slot;
            assert!(
                is_whole || matches!(decode(&torn), Err(SlotError::Checksum | SlotError::Foreign)),
                "torn at {len}"
            );
        }
    }
}

#[test]
fn what_is_not_ours_is_told_apart() {
    let mut newer = encode(&sample()).unwrap();
    newer[8] = 3;
    let mut text = [b' '; SLOT_BYTES];
    text[..5].copy_from_slice(b"XFSB\n");
    let table = [
        ([0; SLOT_BYTES], SlotError::Empty, "empty"),
        (text, SlotError::Foreign, "the data of something else"),
        ([0xff; SLOT_BYTES], SlotError::Foreign, "the data of something else"),
        (sealed(newer), SlotError::Version { found: 3 }, "use a newer one"),
    ];
    for (slot, expect, says) in table {
        assert_eq!(decode(&slot), Err(expect));
        assert!(expect.to_string().contains(says), "{expect}");
    }
}

#[test]
fn a_right_checksum_over_nonsense_is_refused() {
    let table: [(usize, &[u8]); 12] = [
        (12, &[4]),               // an unknown flag
        (12, &[2]),               // a key check without encryption
        (96, &[0, 0, 0, 3]),      // 48 MiB slabs
        (100, &[0, 1]),           // sectors of 256 bytes
        (108, &[8]),              // a log in a slab of another disk
        (112, &[1]),              // a log between sectors
        (132, &[131]),            // a snapshot just behind the range
        (162, &[255]),            // members without a state
        (164, &[7]),              // two ranges with the same slabs
        (168, &[0, 0, 0, 0]),     // a range without slabs
        (172, &[0, 0, 0, 0]),     // slabs on the superblocks
        (196 + 3 * 19 + 5, &[1]), // something behind the last member
    ];
    for (offset, bytes) in table {
        let mut slot = encode(&sample()).unwrap();
        slot[offset..offset + bytes.len()].copy_from_slice(bytes);
        assert!(matches!(decode(&sealed(slot)), Err(SlotError::Malformed(_))), "at {offset}");
    }
}

#[test]
fn a_superblock_that_would_be_refused_is_not_written() {
    type Change = fn(&mut Superblock);
    let stories: [(&str, Change); 6] = [
        ("not among", |block| block.disk = 4),
        ("one number", |block| block.members.push(Member { disk: 1, guid: 9, state: MemberState::Active })),
        ("one identity", |block| block.members.push(Member { disk: 8, guid: 42, state: MemberState::Active })),
        ("overlap", |block| block.ranges[1].offset_bytes -= 4096),
        ("beyond the end", |block| block.ranges[1].offset_bytes = u64::MAX - 4095),
        ("numbers that no slab has", |block| block.ranges[0].first = SlabId(SlabId::END - 30)),
    ];
    for (says, change) in stories {
        let mut block = sample();
        change(&mut block);
        let error = encode(&block).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn as_many_disks_and_ranges_as_fit() {
    let member = |disk: u16| Member { disk, guid: u128::from(disk), state: MemberState::Active };
    let range = |i: u32| RangeRecord { first: SlabId(i), count: 1, offset_bytes: (64 << 10) + (u64::from(i) << 25) };
    for (members, ranges, fits) in
        [(205, 1, true), (206, 1, false), (100, 126, true), (100, 127, false), (256, 1, false)]
    {
        let block = Superblock {
            disk: 1,
            disk_guid: 1,
            members: (1..=members).map(member).collect(),
            ranges: (0..ranges).map(range).collect(),
            snapshot: None,
            log: StreamHead { slab: SlabId(0), offset_bytes: 0, stream: 0, chunk: 0 },
            ..sample()
        };
        match encode(&block) {
            Ok(slot) => assert!(fits && decode(&slot) == Ok(block), "{members} members, {ranges} ranges"),
            Err(error) => {
                assert_eq!(error, EncodeError::TooLarge { members: members.into(), ranges: ranges as usize });
                assert!(!fits && error.to_string().contains("3928 bytes"), "{error}");
            }
        }
    }
}

fn expect(sector_bytes: u32) -> Expect {
    Expect { disk_guid: GUID, stream: 5, chunk: 8, sector_bytes }
}

fn records() -> Vec<Record> {
    let hash = KeyHash([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    let extent = Extent { slab: SlabId(0x0a_0b0c), offset_units: 0xfffe, len_bytes: 16 << 20 };
    vec![
        Record::Put { hash, entry: Entry { extent, checksum: 0xdead_beef, tick: 77 } },
        Record::Remove { hash, extent: Extent { slab: SlabId(SlabId::END), offset_units: 0, len_bytes: 1 } },
        Record::Commit { generation: u64::MAX, now_tick: 2 },
        Record::NextSlab { slab: SlabId(5), stream: 9 },
        Record::End,
    ]
}

fn chunk(records: &[Record], sector_bytes: u32) -> Vec<u8> {
    let mut writer = ChunkWriter::new(GUID, 5, 8, 32 << 20, sector_bytes);
    for record in records {
        writer.push(record);
    }
    assert_eq!((writer.stream(), writer.chunk()), (5, 8));
    let (bytes, chunk) = (writer.next_bytes(), writer.take().unwrap());
    assert_eq!((bytes as usize, writer.chunk(), writer.is_empty()), (chunk.len(), 9, true));
    assert_eq!((writer.take(), writer.next_bytes()), (None, 0));
    chunk
}

#[test]
fn a_chunk_comes_back_as_it_was() {
    for (sector_bytes, padded_bytes) in [(512, 512), (4096, 4096)] {
        let mut bytes = chunk(&records(), sector_bytes);
        assert_eq!(bytes[52..63], [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(bytes[63..77], [0x0c, 0x0b, 0x0a, 0xfe, 0xff, 0xff, 0xff, 0xff, 77, 0, 0xef, 0xbe, 0xad, 0xde]);
        bytes.extend([0xff; 700]);
        assert_eq!(decode_chunk(&bytes, &expect(sector_bytes)), Ok(Chunk { records: records(), padded_bytes }));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_of_a_chunk_is_seen() {
    let whole = chunk(&records(), 512);
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let end = if bit < 52 * 8 { ChunkEnd::NotOne } else { ChunkEnd::Damaged };
        assert_eq!(decode_chunk(&flipped, &expect(512)), Err(end), "bit {bit}");
    }
    for len in 0..whole.len() {
        assert_eq!(decode_chunk(&whole[..len], &expect(512)), Err(ChunkEnd::ShortRead { need_bytes: 512 }), "{len}");
        for before in [0, 0xff] {
            let mut torn = vec![before; whole.len()];
            torn[..len].copy_from_slice(&whole[..len]);
            let is_whole = torn == whole;
            assert!(is_whole || decode_chunk(&torn, &expect(512)).is_err(), "torn at {len}");
        }
    }
}

#[test]
fn the_chunk_of_another_disk_stream_or_number_ends_the_stream() {
    let whole = chunk(&records(), 512);
    let right = expect(512);
    for wrong in [
        Expect { disk_guid: GUID + 1, ..right },
        Expect { stream: 4, ..right },
        Expect { chunk: 9, ..right },
        Expect { chunk: 7, ..right },
    ] {
        assert_eq!(decode_chunk(&whole, &wrong), Err(ChunkEnd::NotOne));
    }
    for foreign in [vec![0; 4096], vec![0xa5; 4096], b"XFSB".repeat(200)] {
        assert_eq!(decode_chunk(&foreign, &right), Err(ChunkEnd::NotOne));
    }
}

#[test]
fn an_unknown_record_under_right_checksums_is_damage() {
    for (at, value) in [(0, 0), (0, 99), (25, 1)] {
        let mut bytes = chunk(&records(), 512);
        bytes[52 + at] = value;
        let body = crc32c::crc32c(&bytes[52..]).to_le_bytes();
        bytes[44..48].copy_from_slice(&body);
        let head = crc32c::crc32c(&bytes[..48]).to_le_bytes();
        bytes[48..52].copy_from_slice(&head);
        // A remove decoded as a put takes bytes of what follows, and then some record has no tag.
        assert_eq!(decode_chunk(&bytes, &expect(512)), Err(ChunkEnd::Damaged), "{value} at {at}");
    }
}

#[test]
fn a_stream_goes_on_in_the_next_slab() {
    // Slabs of 1 MiB: chunks of 256 KiB at most; three of them and the sector that leads on, then the others.
    const SLAB_BYTES: u32 = 1 << 20;
    let put = |i: u64| {
        let hash = KeyHash::of(&i.to_le_bytes(), 0);
        let extent = Extent { slab: SlabId(i as u32), offset_units: i as u16, len_bytes: 8192 };
        Record::Put { hash, entry: Entry { extent, checksum: i as u32, tick: 0 } }
    };
    let written: Vec<Record> = (0..50_000).map(put).collect();
    let mut writer = ChunkWriter::new(GUID, 1, 0, SLAB_BYTES, 4096);
    let is_full: Vec<bool> = written.iter().map(|record| writer.push(record)).collect();
    assert!(is_full.is_sorted() && is_full.contains(&true) && is_full.contains(&false));
    let mut slabs = vec![Vec::new()];
    while !writer.is_empty() {
        let next = SlabId(slabs.len() as u32);
        let slab: &mut Vec<u8> = slabs.last_mut().unwrap();
        assert!((4096..=SLAB_BYTES / 4).contains(&writer.next_bytes()));
        if slab.len() as u32 + writer.next_bytes() + 4096 > SLAB_BYTES {
            slab.extend(writer.take_next_slab(next, writer.stream()));
            slabs.push(Vec::new());
        } else {
            slab.extend(writer.take().unwrap());
        }
    }
    assert!(slabs.len() == 2 && slabs.iter().all(|slab| slab.len() <= SLAB_BYTES as usize));
    let (mut read, mut slab, mut offset, mut chunk) = (Vec::new(), 0, 0, 0);
    loop {
        let expect = Expect { disk_guid: GUID, stream: 1, chunk, sector_bytes: 4096 };
        let rest = &slabs[slab][offset..];
        let found = match decode_chunk(&rest[..rest.len().min(4096)], &expect) {
            Err(ChunkEnd::ShortRead { need_bytes }) if need_bytes as usize <= rest.len() => {
                decode_chunk(&rest[..need_bytes as usize], &expect).unwrap()
            }
            Err(_) => break,
            Ok(found) => found,
        };
        (offset, chunk) = (offset + found.padded_bytes as usize, chunk + 1);
        if let [Record::NextSlab { slab: next, .. }] = found.records[..] {
            (slab, offset) = (next.0 as usize, 0);
        } else {
            read.extend(found.records);
        }
    }
    assert_eq!((read == written, chunk), (true, writer.chunk()));
}

fn any_record() -> impl Strategy<Value = Record> {
    let extent = (0..1_u32 << 24, any::<u16>(), 1..=1_u32 << 24).prop_map(|(slab, offset_units, len_bytes)| Extent {
        slab: SlabId(slab),
        offset_units,
        len_bytes,
    });
    let hash = any::<[u8; 10]>().prop_map(KeyHash);
    prop_oneof![
        (hash.clone(), extent.clone(), any::<(u32, u16)>())
            .prop_map(|(hash, extent, (checksum, tick))| Record::Put { hash, entry: Entry { extent, checksum, tick } }),
        (hash.clone(), extent).prop_map(|(hash, extent)| Record::Remove { hash, extent }),
        (0..1_u32 << 24, any::<u64>()).prop_map(|(slab, stream)| Record::NextSlab { slab: SlabId(slab), stream }),
        any::<(u64, u16)>().prop_map(|(generation, now_tick)| Record::Commit { generation, now_tick }),
        Just(Record::End),
    ]
}

proptest! {
    #[test]
    fn any_records_come_back(records in proptest::collection::vec(any_record(), 1..400), wide in any::<bool>()) {
        let sector_bytes = if wide { 4096 } else { 512 };
        let bytes = chunk(&records, sector_bytes);
        prop_assert_eq!(bytes.len() % sector_bytes as usize, 0);
        prop_assert_eq!(decode_chunk(&bytes, &expect(sector_bytes)).map(|chunk| chunk.records), Ok(records));
    }

    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
        garbage in any::<[u8; 32]>(),
        at in 8..4000_usize,
    ) {
        let _ = decode_chunk(&bytes, &expect(512));
        let mut slot = encode(&sample()).unwrap();
        slot[at..at + 32].copy_from_slice(&garbage);
        let _ = decode(&sealed(slot));
        // The same under right checksums.
        let mut chunk = chunk(&records(), 512);
        let len = bytes.len().min(460);
        chunk[52..52 + len].copy_from_slice(&bytes[..len]);
        chunk[40..44].copy_from_slice(&(len as u32).to_le_bytes());
        let body = crc32c::crc32c(&chunk[52..]).to_le_bytes();
        chunk[44..48].copy_from_slice(&body);
        let head = crc32c::crc32c(&chunk[..48]).to_le_bytes();
        chunk[48..52].copy_from_slice(&head);
        let _ = decode_chunk(&chunk, &expect(512));
    }
}
