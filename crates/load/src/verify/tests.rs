//! Tests of single faults, and a fake disk that does everything that a disk may do.

use plimsoll_sim::rng::Rng;
use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};

use super::*;
use FaultKind::{Foreign, Misdirected, Stale, Torn};

const IDENTITY: u64 = 0xfeed;
const REGION_OFFSET: u64 = 1 << 20;
const BLOCK_BYTES: usize = 2048;
const BLOCKS: u64 = 24;

fn stamps() -> Stamps {
    Stamps::new(IDENTITY, REGION_OFFSET, BLOCKS * BLOCK_BYTES as u64, BLOCK_BYTES as u32).unwrap()
}

impl Stamps {
    /// Begins a write of one buffer, and stamps it.
    fn stamp(&mut self, buffer: &mut [u8], offset: u64) -> Result<u64, StampError> {
        let generation = self.begin_write(offset, buffer.len() as u64)?;
        self.put(buffer, offset, generation);
        Ok(generation)
    }

    /// Returns the faults of a read that begins after all acknowledged writes.
    fn check(&self, buffer: &[u8], offset: u64) -> Vec<BlockFault> {
        self.check_since(buffer, offset, self.clock.saturating_add(1))
    }
}

/// Returns the offset of a block in the file.
fn at(block: u64) -> u64 {
    REGION_OFFSET + block * BLOCK_BYTES as u64
}

fn kinds(faults: &[BlockFault]) -> Vec<FaultKind> {
    faults.iter().map(|fault| fault.kind).collect()
}

/// Returns a stamped block, not yet written, and its generation.
fn block_of(stamps: &mut Stamps, block: u64, byte: u8) -> (Vec<u8>, u64) {
    let mut buffer = vec![byte; BLOCK_BYTES];
    let generation = stamps.stamp(&mut buffer, at(block)).unwrap();
    (buffer, generation)
}

/// Returns a stamped block whose write was acknowledged.
fn written(stamps: &mut Stamps, block: u64, byte: u8) -> Vec<u8> {
    let (buffer, generation) = block_of(stamps, block, byte);
    stamps.acknowledged(at(block), BLOCK_BYTES as u64, generation);
    buffer
}

#[test]
fn each_fault_has_its_name() {
    let mut stamps = stamps();
    let old = written(&mut stamps, 0, 1);
    let other = written(&mut stamps, 1, 1);
    let new = written(&mut stamps, 0, 2);
    let foreign_file = {
        let mut other = Stamps::new(0xbeef, 0, 1 << 30, 2048).unwrap();
        let mut buffer = vec![0; BLOCK_BYTES];
        other.stamp(&mut buffer, at(0)).unwrap();
        buffer
    };
    let half = [&new[..1024], &old[1024..]].concat();
    let mut flipped = new.clone();
    flipped[700] ^= 1;
    let mut flipped_offset = new.clone();
    flipped_offset[OFFSET_AT] ^= 1;
    let mut future = new.clone();
    stamps.put(&mut future, at(0), 1_000_000);
    let cases: [(&str, &[u8], _); 10] = [
        ("new", &new, None),
        ("old", &old, Some((Stale, "write 1"))),
        ("half old", &half, Some((Torn, "write 1"))),
        ("bit flipped", &flipped, Some((Torn, "a stamp whose checksum is wrong"))),
        ("stamp's bit flipped", &flipped_offset, Some((Torn, "a stamp whose checksum is wrong"))),
        ("other block", &other, Some((Misdirected, "write 3 to offset 1050624"))),
        ("other file", &foreign_file, Some((Misdirected, "write 1 to offset 1048576 of file 000000000000beef"))),
        ("zeros", &[0; BLOCK_BYTES], Some((Foreign, "zeros"))),
        ("no stamp", &[7; BLOCK_BYTES], Some((Foreign, "no stamp"))),
        ("not yet made", &future, Some((Foreign, "write 1000000"))),
    ];
    for (what, buffer, expected) in cases {
        let faults = stamps.check(buffer, at(0));
        assert_eq!(
            kinds(&faults),
            expected.map(|(kind, _)| kind).into_iter().collect::<Vec<_>>(),
            "{what}: {faults:?}"
        );
        if let (Some(fault), Some((_, found))) = (faults.first(), expected) {
            assert_eq!(fault.found, found, "{what}");
            assert!(fault.expected.starts_with("write 5 to offset 10"), "{what}: {}", fault.expected);
        }
    }
    assert_eq!(stamps.check(&half, at(0))[0].offset, at(0) + 1024, "the first wrong sector is named");
}

#[test]
fn overlapping_writes_are_right_either_way() {
    let mut stamps = stamps();
    let old = written(&mut stamps, 3, 0);
    let (first, first_generation) = block_of(&mut stamps, 3, 1);
    let (second, second_generation) = block_of(&mut stamps, 3, 2);
    let mixed = [&first[..512], &second[512..]].concat();
    for buffer in [&old, &first, &second, &mixed] {
        assert_eq!(stamps.check(buffer, at(3)), [], "all are under way");
    }
    stamps.acknowledged(at(3), 2048, second_generation);
    assert_eq!(stamps.check(&first, at(3)), [], "the first is still under way");
    assert_eq!(kinds(&stamps.check(&old, at(3))), [Stale]);
    stamps.acknowledged(at(3), 2048, first_generation);
    for buffer in [&first, &second, &mixed] {
        assert_eq!(stamps.check(buffer, at(3)), [], "nobody knows which was last");
    }
    let third = written(&mut stamps, 3, 3);
    assert_eq!(stamps.check(&third, at(3)), []);
    assert_eq!(kinds(&stamps.check(&first, at(3))), [Stale]);
    assert!(stamps.busy.is_empty(), "a quiet block takes no memory but its generation");
}

#[test]
fn a_read_may_see_what_was_there_when_it_began() {
    let mut stamps = stamps();
    let old = written(&mut stamps, 5, 1);
    let early = stamps.begin_read(at(5), 2048).unwrap();
    let new = written(&mut stamps, 5, 2);
    let late = stamps.begin_read(at(5), 2048).unwrap();
    let newest = written(&mut stamps, 5, 3);
    for buffer in [&old, &new, &newest] {
        assert_eq!(stamps.check_since(buffer, at(5), early), []);
    }
    assert_eq!(kinds(&stamps.check_since(&old, at(5), late)), [Stale]);
    assert_eq!(stamps.check_since(&new, at(5), late), []);
    stamps.end_read(at(5), 2048);
    stamps.end_read(at(5), 2048);
    assert_eq!(kinds(&stamps.check(&new, at(5))), [Stale]);
    assert!(stamps.busy.is_empty());
}

#[test]
fn a_failed_write_may_be_there_or_not_until_the_next() {
    let mut stamps = stamps();
    let old = written(&mut stamps, 0, 1);
    let (failed, generation) = block_of(&mut stamps, 0, 2);
    stamps.failed(at(0), 2048, generation);
    let half = [&failed[..1024], &old[1024..]].concat();
    for buffer in [&old, &failed, &half] {
        assert_eq!(stamps.check(buffer, at(0)), []);
    }
    written(&mut stamps, 0, 3);
    assert_eq!(kinds(&stamps.check(&failed, at(0))), [Stale]);
    assert_eq!(kinds(&stamps.check(&half, at(0))), [Torn]);
}

#[test]
fn what_was_there_before_may_be_anything_that_does_not_belong_elsewhere() {
    let mut stamps = stamps();
    let stamped = |generation, block| {
        let mut buffer = vec![9; BLOCK_BYTES];
        stamps.put(&mut buffer, at(block), generation);
        buffer
    };
    let (before, earlier_run, elsewhere) = (stamped(BEFORE, 2), stamped(77, 2), stamped(BEFORE, 3));
    let zeros = vec![0; BLOCK_BYTES];
    for buffer in [&zeros, &before, &earlier_run] {
        assert_eq!(stamps.check(buffer, at(2)), []);
    }
    assert_eq!(kinds(&stamps.check(&elsewhere, at(2))), [Misdirected]);
    written(&mut stamps, 2, 1);
    assert_eq!(kinds(&stamps.check(&zeros, at(2))), [Foreign]);
    assert_eq!(kinds(&stamps.check(&before, at(2))), [Stale]);
}

#[test]
fn each_block_of_a_long_or_split_request_is_judged() {
    let mut stamps = stamps();
    let mut buffer = vec![1; 4 * BLOCK_BYTES];
    let generation = stamps.begin_write(at(0), buffer.len() as u64).unwrap();
    for (number, piece) in buffer.chunks_mut(1536).enumerate() {
        stamps.put(piece, at(0) + number as u64 * 1536, generation);
    }
    stamps.acknowledged(at(0), 4 * 2048, generation);
    assert_eq!(stamps.check(&buffer, at(0)), []);
    buffer[2048..4096].fill(0);
    buffer[6144 + 512..6144 + 1024].fill(0);
    let faults = stamps.check(&buffer, at(0));
    assert_eq!(kinds(&faults), [Foreign, Torn]);
    assert_eq!((faults[0].offset, faults[1].offset), (at(1), at(3) + 512));
    let pieces = buffer.chunks(1536).enumerate();
    let in_pieces: Vec<_> = pieces.flat_map(|(n, piece)| stamps.check(piece, at(0) + n as u64 * 1536)).collect();
    assert_eq!(in_pieces.len(), 3, "the second block's sectors are in two pieces");
}

#[test]
fn what_does_not_fit_is_refused() {
    let new = |len_bytes, block_bytes| Stamps::new(1, 0, len_bytes, block_bytes);
    assert_eq!(new(1 << 20, 0).unwrap_err(), StampError::Block(0));
    assert_eq!(new(1 << 20, 1000).unwrap_err(), StampError::Block(1000));
    let error = new((1 << 39) + 4096, 4096).unwrap_err().to_string();
    assert!(error.contains("more than 1 GiB of memory: lower data_size or raise reqsize"), "{error}");
    let mut stamps = stamps();
    for (offset, len_bytes) in
        [(0, 2048), (at(0) + 512, 2048), (at(0), 512), (at(BLOCKS), 2048), (at(BLOCKS - 1), 4096)]
    {
        assert_eq!(stamps.begin_write(offset, len_bytes), Err(StampError::Outside { offset, len_bytes }));
        assert!(stamps.begin_read(offset, len_bytes).is_err());
        stamps.acknowledged(offset, len_bytes, 1);
        stamps.end_read(offset, len_bytes);
    }
    assert!(stamps.begin_write(u64::MAX - 2047, 2048).is_err());
    stamps.put(&mut [0; 4096], u64::MAX, 1);
    assert!(!stamps.check(&[0; 4096], u64::MAX).iter().any(|fault| fault.kind == Torn));
}

/// A request under way on the fake disk.
struct UnderWay {
    first: u64,
    buffer: Vec<u8>,
    /// Sectors that the disk has not moved yet, in its order.
    to_move: Vec<usize>,
    /// Generation of a write, or moment of a read.
    number: u64,
    is_write: bool,
}

/// A disk that moves the sectors of all requests in any order and any number of steps, and sometimes fails a write.
struct FakeDisk {
    data: Vec<u8>,
    stamps: Stamps,
    under_way: Vec<UnderWay>,
    rng: Rng,
    checked_blocks: u64,
}

impl FakeDisk {
    fn new(seed: u64) -> FakeDisk {
        let mut data = vec![0x5a; BLOCKS as usize * BLOCK_BYTES];
        let mut stamps = stamps();
        // Write every block once, so that each read is judged.
        let generation = stamps.stamp(&mut data, at(0)).unwrap();
        stamps.acknowledged(at(0), data.len() as u64, generation);
        let rng = Rng::new(seed);
        FakeDisk { data, stamps, under_way: Vec::new(), rng, checked_blocks: 0 }
    }

    fn block(&mut self, block: u64) -> &mut [u8] {
        let begin = block as usize * BLOCK_BYTES;
        &mut self.data[begin..begin + BLOCK_BYTES]
    }

    fn begin(&mut self, is_write: bool, first: u64, blocks: u64) {
        let mut buffer = vec![0; blocks as usize * BLOCK_BYTES];
        let number = if is_write {
            self.rng.fill(&mut buffer);
            self.stamps.stamp(&mut buffer, at(first)).unwrap()
        } else {
            self.stamps.begin_read(at(first), buffer.len() as u64).unwrap()
        };
        let mut to_move: Vec<usize> = (0..buffer.len() / SECTOR_BYTES).collect();
        for left in (1..to_move.len()).rev() {
            to_move.swap(left, self.rng.below(left as u64 + 1) as usize);
        }
        self.under_way.push(UnderWay { first, buffer, to_move, number, is_write });
    }

    /// Moves some sectors of a request. If that ends the request, returns the faults found.
    fn proceed(&mut self, number: usize) -> Vec<BlockFault> {
        let request = &mut self.under_way[number];
        let is_failed = request.is_write && self.rng.below(50) == 0;
        for _ in 0..self.rng.below(request.to_move.len() as u64 + 2) {
            let Some(sector) = request.to_move.pop() else { break };
            let in_buffer = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let on_disk = request.first as usize * BLOCK_BYTES + in_buffer.start;
            let on_disk = &mut self.data[on_disk..on_disk + SECTOR_BYTES];
            if request.is_write {
                on_disk.copy_from_slice(&request.buffer[in_buffer]);
            } else {
                request.buffer[in_buffer].copy_from_slice(on_disk);
            }
        }
        if !request.to_move.is_empty() && !is_failed {
            return Vec::new();
        }
        let UnderWay { first, buffer, number, is_write, .. } = self.under_way.swap_remove(number);
        let len_bytes = buffer.len() as u64;
        match (is_write, is_failed) {
            (true, false) => self.stamps.acknowledged(at(first), len_bytes, number),
            (true, true) => self.stamps.failed(at(first), len_bytes, number),
            (false, _) => {
                let faults = self.stamps.check_since(&buffer, at(first), number);
                self.stamps.end_read(at(first), len_bytes);
                self.checked_blocks += len_bytes / BLOCK_BYTES as u64;
                return faults;
            }
        }
        Vec::new()
    }

    fn work(&mut self, operations: u32) -> Vec<BlockFault> {
        let mut faults = Vec::new();
        for _ in 0..operations {
            if self.under_way.is_empty() || (self.under_way.len() < 12 && self.rng.below(3) == 0) {
                let blocks = 1 + self.rng.below(4);
                let first = self.rng.below(BLOCKS - blocks + 1);
                let is_write = self.rng.below(2) == 0;
                self.begin(is_write, first, blocks);
            } else {
                let number = self.rng.below(self.under_way.len() as u64) as usize;
                faults.extend(self.proceed(number));
            }
        }
        while !self.under_way.is_empty() {
            faults.extend(self.proceed(0));
        }
        faults
    }

    /// Writes one block while no other request is under way.
    fn write_alone(&mut self, block: u64) {
        let mut buffer = vec![0; BLOCK_BYTES];
        self.rng.fill(&mut buffer);
        let generation = self.stamps.stamp(&mut buffer, at(block)).unwrap();
        self.block(block).copy_from_slice(&buffer);
        self.stamps.acknowledged(at(block), BLOCK_BYTES as u64, generation);
    }

    /// Damages a block. Returns the fault that must be found.
    fn inject(&mut self, block: u64) -> FaultKind {
        self.write_alone(block);
        let old = self.block(block).to_vec();
        self.write_alone(block);
        let sectors = (BLOCK_BYTES / SECTOR_BYTES) as u64;
        let torn_at = (1 + self.rng.below(sectors - 1)) as usize * SECTOR_BYTES;
        let (bit, byte) = (self.rng.below(8), self.rng.below(BLOCK_BYTES as u64) as usize);
        let kind = self.rng.below(7);
        let source = (block + 1 + self.rng.below(BLOCKS - 1)) % BLOCKS;
        match kind {
            0 => self.block(block).copy_from_slice(&old),
            1 => self.block(block)[..torn_at].copy_from_slice(&old[..torn_at]),
            2 => self.block(block)[torn_at..].fill(0),
            3 => self.block(block)[byte] ^= 1 << bit,
            4 => {
                self.write_alone(source);
                let other = self.block(source).to_vec();
                self.block(block).copy_from_slice(&other);
            }
            5 => self.block(block).fill(0),
            _ => {
                let mut noise = vec![0; BLOCK_BYTES];
                self.rng.fill(&mut noise);
                self.block(block).copy_from_slice(&noise);
            }
        }
        match kind {
            0 => Stale,
            1..=3 => Torn,
            4 => Misdirected,
            _ => Foreign,
        }
    }
}

#[test]
fn only_what_was_written_is_touched() {
    let mut stamps = Stamps::new(1, 4096, 1 << 20, 4096).unwrap();
    let settled = stamps.begin_write(8192, 8192).unwrap();
    stamps.acknowledged(8192, 8192, settled);
    let failed = stamps.begin_write(65_536, 4096).unwrap();
    stamps.failed(65_536, 4096, failed);
    // A read is no write.
    stamps.begin_read(20_480, 4096).unwrap();
    let cases = [(4096, 4096), (4096, 8192), (8192, 4096), (12_288, 4096), (16_384, 8192), (65_536, 4096), (0, 4096)];
    let touched = cases.map(|(offset, len_bytes)| stamps.is_touched(offset, len_bytes));
    assert_eq!(touched, [false, true, true, true, false, true, false]);
}

#[test]
fn no_false_alarm_in_a_hundred_thousand_operations() {
    let mut disk = FakeDisk::new(1);
    let faults = disk.work(100_000);
    assert_eq!(faults, []);
    assert!(disk.checked_blocks > 20_000, "{}", disk.checked_blocks);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_injected_fault_is_found_and_no_other(seed: u64) {
        let mut disk = FakeDisk::new(seed);
        for _ in 0..10 {
            prop_assert_eq!(disk.work(150), []);
            let block = disk.rng.below(BLOCKS);
            let kind = disk.inject(block);
            let data = disk.data.clone();
            let faults = disk.stamps.check(&data, at(0));
            prop_assert_eq!(kinds(&faults), [kind], "{:?}", faults);
            prop_assert!((at(block)..at(block + 1)).contains(&faults[0].offset));
            disk.write_alone(block);
        }
    }
}

#[test]
fn a_disk_that_fails_all_writes_takes_no_more_memory() {
    let mut stamps = stamps();
    written(&mut stamps, 0, 1);
    for _ in 0..10_000 {
        let (_, generation) = block_of(&mut stamps, 0, 2);
        stamps.failed(at(0), BLOCK_BYTES as u64, generation);
    }
    let kept = stamps.busy[&0].writes.len();
    assert!(kept < 100, "{kept} writes");
    let (last, generation) = block_of(&mut stamps, 0, 3);
    stamps.failed(at(0), BLOCK_BYTES as u64, generation);
    assert_eq!(stamps.check(&last, at(0)), [], "a failed write may have reached the disk");
    // One that succeeds ends all doubt.
    let new = written(&mut stamps, 0, 4);
    assert_eq!(stamps.check(&new, at(0)), []);
    assert_eq!(kinds(&stamps.check(&last, at(0))), [Stale]);
    assert!(stamps.busy.is_empty());
}
