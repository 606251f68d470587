//! Reads a disk's metadata: superblocks, then snapshot and log up to a checkpoint.
//!
//! # Why
//! Opening a cache, readmitting a disk and inspecting a cache offline all read the same metadata. They are read here,
//! and nothing is changed.
//!
//! # How it works
//! [`read_superblock`] takes the newer of the two valid slots. After a completed checkpoint both slots hold that
//! checkpoint, so damage to one brings no older state back. [`replay`] reads the snapshot to its end and the log to the
//! commit of the wanted checkpoint, and puts every record into a [`Batch`], which passes them on, those of one disk and
//! key in their order. Half a million records at a time are sorted by key first, which keeps accesses to the index
//! local. Records after the commit were never promised and are not applied; only the numbers of commits among them are
//! read, because later ones must be higher.
//!
//! Disks are read side by side, into one batch: a disk's records name only places on that disk, so the order of records
//! of two disks does not matter.
//!
//! # Limits
//! One disk is read from front to back, 2 MiB at a time; sorting takes 20 MB of memory. A disk that does not answer a
//! read within 10 s cannot be read.
//!
//! # Example
//! Of three disks two are at generation 8 and one is at 7: 8 is wanted. [`commits`] reads which commits the third
//! disk's log has. After a crash between superblocks, 8 is among them. If the disk failed before, it is not, and none
//! of the disk's metadata counts.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use plimsoll::buffer::AlignedBuf;
use plimsoll::{Class, Shard, SharedFile};

use crate::entry::SlabId;
use crate::format::{
    self, Chunk, ChunkEnd, Expect, MAX_CHUNK_BYTES, Record, SLOT_BYTES, SLOT_OFFSETS, SlotError, StreamHead, Superblock,
};
use crate::key::KeyHash;
use crate::log::{FoundLog, Snapshot};
use crate::race::in_time;

/// Bytes read at a time.
const WINDOW_BYTES: u32 = 2 * MAX_CHUNK_BYTES;

/// Attempts at a read that fails or returns invalid data.
const READ_ATTEMPTS: u32 = 3;

/// A disk to read from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) file: &'a Arc<SharedFile>,
    pub(crate) class: Class,
}

impl Source<'_> {
    /// Reads `len_bytes` bytes at `offset`.
    ///
    /// # Errors
    /// The system's error, that the disk ends too early, or that it does not answer.
    pub(crate) async fn read(&self, offset: u64, len_bytes: u32) -> io::Result<AlignedBuf> {
        let mut buffer = AlignedBuf::new(len_bytes as usize)?;
        let mut attempt = 1;
        loop {
            let result;
            let read = in_time(self.shard, self.shard.read_at(self.file, self.class, offset, buffer)).await;
            // A disk that hangs does not hold up the others: no second attempt.
            (result, buffer) = read.ok_or(io::ErrorKind::TimedOut)?;
            match result {
                Ok(read) if read == len_bytes as usize => return Ok(buffer),
                // Try again: a whole disk may depend on this read.
                _ if attempt < READ_ATTEMPTS => attempt += 1,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The content of a disk's superblock slots.
pub(crate) enum Label {
    /// A cache's superblock.
    Ours(Found),
    /// Neither slot is valid; the more telling of the two reasons.
    Not(SlotError),
}

/// The newest valid superblock of a disk.
pub(crate) struct Found {
    pub(crate) block: Box<Superblock>,
    /// Its slot: the next superblock goes to the other one first.
    pub(crate) slot: usize,
    /// The damage of the other slot, if it should hold a superblock.
    pub(crate) damage: Option<String>,
}

/// Reads the newest valid superblock. An invalid one is read again: it may have been damaged in transfer only.
///
/// # Errors
/// When the disk cannot be read.
pub(crate) async fn read_superblock(source: Source<'_>) -> io::Result<Label> {
    let mut best: Option<(Superblock, usize)> = None;
    let mut why = SlotError::Empty;
    let mut failed = None;
    let mut damage = None;

    for (slot, offset) in SLOT_OFFSETS.into_iter().enumerate() {
        match read_slot(source, offset).await {
            Ok(Ok(block)) if best.as_ref().is_none_or(|(best, _)| best.generation < block.generation) => {
                best = Some((block, slot));
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                if error != SlotError::Empty {
                    damage = Some(error.to_string());
                }
                if weight(error) > weight(why) {
                    why = error;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            Err(error) => {
                damage = Some(error.to_string());
                failed = Some(error);
            }
        }
    }

    // Refuse even if the other slot is valid: a newer program may have written one slot only.
    if let SlotError::Version { .. } = why {
        return Ok(Label::Not(why));
    }
    match (best, failed) {
        (Some((block, slot)), _) => Ok(Label::Ours(Found { block: Box::new(block), slot, damage })),
        // An unreadable slot may hold anything.
        (None, Some(error)) => Err(error),
        (None, None) => Ok(Label::Not(why)),
    }
}

async fn read_slot(source: Source<'_>, offset: u64) -> io::Result<Result<Superblock, SlotError>> {
    let mut attempt = 1;
    loop {
        let decoded = format::decode(&source.read(offset, SLOT_BYTES as u32).await?);
        if decoded.is_ok() || attempt == READ_ATTEMPTS {
            return Ok(decoded);
        }
        attempt += 1;
    }
}

fn weight(error: SlotError) -> u8 {
    match error {
        SlotError::Empty => 0,
        SlotError::Foreign => 1,
        SlotError::Malformed(_) => 2,
        SlotError::Checksum => 3,
        SlotError::Version { .. } => 4,
    }
}

/// Why a disk's snapshot or log could not be read.
#[derive(Debug)]
pub(crate) enum ReplayError {
    Io(io::Error),
    /// Expected data is not there.
    Damaged(&'static str),
    /// The disk was away when checkpoint `wanted` was made.
    Missed {
        last: u64,
        wanted: u64,
    },
}

impl ReplayError {
    /// Returns whether the disk did not answer.
    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, ReplayError::Io(error) if error.kind() == io::ErrorKind::TimedOut)
    }
}

impl std::fmt::Display for ReplayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReplayError::Io(error) => write!(f, "its metadata cannot be read ({error})"),
            ReplayError::Damaged(what) => write!(f, "its metadata is damaged ({what})"),
            ReplayError::Missed { last, wanted } => {
                write!(f, "it has checkpoint {last}, and missed {wanted}")
            }
        }
    }
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> ReplayError {
        ReplayError::Io(error)
    }
}

/// Reads a stream, chunk by chunk.
struct Reader<'a> {
    source: Source<'a>,
    block: &'a Superblock,
    at: StreamHead,
    slabs: Vec<SlabId>,
    len_bytes: u64,
    window: Option<AlignedBuf>,
    /// Offset of the window in its slab.
    window_bytes: u32,
}

impl<'a> Reader<'a> {
    fn new(source: Source<'a>, block: &'a Superblock, at: StreamHead) -> Reader<'a> {
        Reader { source, block, at, slabs: vec![at.slab], len_bytes: 0, window: None, window_bytes: 0 }
    }

    /// Returns the position of the next chunk on the disk, in bytes.
    fn offset(&self) -> Option<u64> {
        self.slab_begin(self.at.slab).map(|begin| begin + u64::from(self.at.offset_bytes))
    }

    fn slab_begin(&self, slab: SlabId) -> Option<u64> {
        let range =
            self.block.ranges.iter().find(|range| (range.first.0..range.first.0 + range.count).contains(&slab.0))?;
        Some(range.offset_bytes + u64::from(slab.0 - range.first.0) * u64::from(self.block.slab_bytes))
    }

    /// Returns the records of the next chunk, or `None` at the end of the stream.
    async fn next(&mut self) -> Result<Option<Vec<Record>>, ReplayError> {
        let expect = Expect {
            disk_guid: self.block.disk_guid,
            stream: self.at.stream,
            chunk: self.at.chunk,
            sector_bytes: self.block.sector_bytes,
        };

        let mut need_bytes = self.block.sector_bytes;
        let mut attempt = 1;
        loop {
            let room = self.block.slab_bytes - self.at.offset_bytes;
            if need_bytes > room {
                return Ok(None);
            }

            self.fill(need_bytes).await?;
            let from = (self.at.offset_bytes - self.window_bytes) as usize;
            let bytes = self.window.as_deref().and_then(|window| window.get(from..)).unwrap_or_default();
            match format::decode_chunk(bytes, &expect) {
                Ok(chunk) => return Ok(Some(self.go_on(chunk))),
                Err(ChunkEnd::ShortRead { need_bytes: more }) => need_bytes = more.max(need_bytes + 1),
                // The chunk may have been damaged in transfer only, and a whole disk may depend on it.
                Err(ChunkEnd::NotOne | ChunkEnd::Damaged) if attempt < READ_ATTEMPTS => {
                    attempt += 1;
                    need_bytes = self.block.sector_bytes;
                    self.window = None;
                }
                Err(ChunkEnd::NotOne | ChunkEnd::Damaged) => return Ok(None),
            }
        }
    }

    /// Fills the window if it has fewer than `need_bytes` from the next chunk on.
    async fn fill(&mut self, need_bytes: u32) -> Result<(), ReplayError> {
        let end = self.at.offset_bytes + need_bytes;
        let has_end = self.window.as_ref().map(|window| self.window_bytes + window.len() as u32);
        if self.at.offset_bytes >= self.window_bytes && has_end.is_some_and(|has| has >= end) {
            return Ok(());
        }
        let offset = self.offset().ok_or(ReplayError::Damaged("a stream leads to a slab that is not on the disk"))?;
        let room = self.block.slab_bytes - self.at.offset_bytes;
        let len_bytes = WINDOW_BYTES.max(need_bytes).min(room);
        self.window = Some(self.source.read(offset, len_bytes).await?);
        self.window_bytes = self.at.offset_bytes;
        Ok(())
    }

    fn go_on(&mut self, chunk: Chunk) -> Vec<Record> {
        self.len_bytes += u64::from(chunk.padded_bytes);
        self.at.offset_bytes += chunk.padded_bytes;
        self.at.chunk += 1;
        if let Some(Record::NextSlab { slab, stream }) = chunk.records.last() {
            let number = if *stream == self.at.stream { self.at.chunk } else { 0 };
            self.at = StreamHead { slab: *slab, offset_bytes: 0, stream: *stream, chunk: number };
            self.slabs.push(*slab);
            self.window = None;
        }
        chunk.records
    }
}

/// Returns the numbers of all commits in the log of a disk, as far as the log can be read.
///
/// # Errors
/// When the disk hangs.
pub(crate) async fn commits(source: Source<'_>, block: &Superblock) -> Result<Vec<u64>, ReplayError> {
    commits_from(&mut Reader::new(source, block, block.log)).await
}

async fn commits_from(reader: &mut Reader<'_>) -> Result<Vec<u64>, ReplayError> {
    let mut numbers = Vec::new();
    loop {
        match reader.next().await {
            Ok(Some(records)) => numbers.extend(records.iter().filter_map(|record| match record {
                Record::Commit { generation, .. } => Some(*generation),
                _ => None,
            })),
            Err(error) if error.is_hang() => return Err(error),
            Ok(None) | Err(_) => return Ok(numbers),
        }
    }
}

fn is_commit(record: &Record, wanted: u64) -> bool {
    matches!(record, Record::Commit { generation, .. } if *generation == wanted)
}

/// Records sorted together: they take 20 MB of memory.
const BATCH_RECORDS: usize = 1 << 19;

/// Records of blocks on their way to the index, those of all disks. Sorted by hash, they visit one part of the index
/// after another, instead of a random place for each. Records of one disk and key keep their order.
pub(crate) struct Batch<'a> {
    records: Vec<Record>,
    apply: &'a mut dyn FnMut(&Record),
}

impl<'a> Batch<'a> {
    /// Returns an empty batch, which passes records to `apply`.
    pub(crate) fn new(apply: &'a mut dyn FnMut(&Record)) -> Batch<'a> {
        Batch { records: Vec::new(), apply }
    }

    /// Adds the records of a chunk, and applies all if there are many.
    fn add(&mut self, records: Vec<Record>) {
        records.into_iter().for_each(|record| self.push(record));
        if self.records.len() >= BATCH_RECORDS {
            self.empty();
        }
    }

    fn push(&mut self, record: Record) {
        match record {
            Record::Put { .. } | Record::Remove { .. } => self.records.push(record),
            // Other records do not touch the index: order does not matter.
            record => (self.apply)(&record),
        }
    }

    /// Applies all records.
    pub(crate) fn empty(&mut self) {
        let first_bytes = |record: &Record| match record {
            Record::Put { hash: KeyHash([first @ .., _, _]), .. }
            | Record::Remove { hash: KeyHash([first @ .., _, _]), .. } => u64::from_be_bytes(*first),
            _ => 0,
        };
        // A stable sort: records of one disk and key keep their order.
        self.records.sort_by_key(first_bytes);
        self.records.iter().for_each(&mut *self.apply);
        self.records.clear();
    }
}

/// Puts every record up to checkpoint `generation` into `batch`, which the caller empties at the end.
///
/// # Errors
/// When the disk cannot be read, or a stream ends too early. Some of its records are in the batch then.
pub(crate) async fn replay(
    source: Source<'_>,
    block: &Superblock,
    generation: u64,
    batch: &RefCell<Batch<'_>>,
) -> Result<FoundLog, ReplayError> {
    let mut snapshot = None;

    if let Some(head) = block.snapshot {
        let mut reader = Reader::new(source, block, head);
        let mut is_whole = false;
        while !is_whole {
            let records = reader.next().await?.ok_or(ReplayError::Damaged("the snapshot ends before its end"))?;
            is_whole = matches!(records.last(), Some(Record::End));
            batch.borrow_mut().add(records);
        }
        snapshot = Some(Snapshot { head, slabs: reader.slabs });
    }

    let mut reader = Reader::new(source, block, block.log);
    loop {
        let records = reader.next().await?.ok_or(ReplayError::Damaged("the log ends before its last checkpoint"))?;
        let is_end = records.iter().any(|record| is_commit(record, generation));
        batch.borrow_mut().add(records);
        if is_end {
            break;
        }
    }

    let end_offset = reader.offset().ok_or(ReplayError::Damaged("the log ends in a slab that is not on the disk"))?;
    let mut found = FoundLog {
        head: block.log,
        end: reader.at,
        end_offset,
        slabs: reader.slabs.clone(),
        len_bytes: reader.len_bytes,
        snapshot,
        last_number: generation,
    };
    found.last_number = commits_from(&mut reader).await?.into_iter().fold(generation, u64::max);
    Ok(found)
}
