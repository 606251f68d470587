//! Reading what a disk says of itself: superblocks, then snapshot and log up to a checkpoint.
//!
//! # Why
//! Opening a cache, taking back a disk that had left, and looking at a cache offline all read the same things. They are
//! read here, and nothing is changed.
//!
//! # How it works
//! [`read_superblock`] takes the newer of the two slots that is right; after a checkpoint that was acknowledged both are of
//! it, so one that is damaged brings nothing back. [`replay`] follows the snapshot to its end and the
//! log to the commit of the wanted checkpoint, and gives every record to its caller, those of one key in their order; half
//! a million are sorted by key first, so that the index is not visited all over for each. What lies behind that commit
//! was never promised and is not looked at.
//!
//! # Limits
//! One disk is read from front to back, 2 MiB at a time; sorting takes 20 MB of memory.
//!
//! # Example
//! Of three disks two say generation 8 and one says 7: 8 is wanted. The third's log is asked with [`has_commit`] whether it
//! has commit 8: after a crash between superblocks it does; that of a disk that failed before does not, and then nothing
//! that it says counts.

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

/// Read at a time, in bytes.
const WINDOW_BYTES: u32 = 2 * MAX_CHUNK_BYTES;

/// A read that fails, or of which nothing can be made, is tried so often.
const READ_ATTEMPTS: u32 = 3;

/// A disk to read from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) file: &'a Arc<SharedFile>,
    pub(crate) class: Class,
}

impl Source<'_> {
    /// `len_bytes` bytes at `offset`.
    ///
    /// # Errors
    /// What the system said, or that the disk ends before.
    pub(crate) async fn read(&self, offset: u64, len_bytes: u32) -> io::Result<AlignedBuf> {
        let mut buffer = AlignedBuf::new(len_bytes as usize)?;
        let mut attempt = 1;
        loop {
            let result;
            (result, buffer) = self.shard.read_at(self.file, self.class, offset, buffer).await;
            match result {
                Ok(read) if read == len_bytes as usize => return Ok(buffer),
                // A whole disk may depend on it.
                _ if attempt < READ_ATTEMPTS => attempt += 1,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the superblock slots of a disk say.
pub(crate) enum Label {
    /// A cache's.
    Ours(Found),
    /// None is right; the more telling of the two reasons.
    Not(SlotError),
}

/// The newest superblock of a disk that is right.
pub(crate) struct Found {
    pub(crate) block: Box<Superblock>,
    /// Which slot it is in: the next superblock goes to the other one first.
    pub(crate) slot: usize,
    /// What is wrong with the other slot, where a superblock should be.
    pub(crate) damage: Option<String>,
}

/// The newest superblock that is right. One that is not is read again: it may have been damaged on its way only.
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
            Err(error) => {
                damage = Some(error.to_string());
                failed = Some(error);
            }
        }
    }

    // A newer program may have written one slot only.
    if let SlotError::Version { .. } = why {
        return Ok(Label::Not(why));
    }
    match (best, failed) {
        (Some((block, slot)), _) => Ok(Label::Ours(Found { block: Box::new(block), slot, damage })),
        // What cannot be read may be anything.
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
    /// What was expected is not there.
    Damaged(&'static str),
    /// It was away when checkpoint `wanted` was made.
    Missed {
        last: u64,
        wanted: u64,
    },
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

/// Reads one stream, chunk by chunk.
struct Reader<'a> {
    source: Source<'a>,
    block: &'a Superblock,
    at: StreamHead,
    slabs: Vec<SlabId>,
    len_bytes: u64,
    window: Option<AlignedBuf>,
    /// Where in the slab the window begins.
    window_bytes: u32,
}

impl<'a> Reader<'a> {
    fn new(source: Source<'a>, block: &'a Superblock, at: StreamHead) -> Reader<'a> {
        Reader { source, block, at, slabs: vec![at.slab], len_bytes: 0, window: None, window_bytes: 0 }
    }

    /// Where the present place is on the disk.
    fn offset(&self) -> Option<u64> {
        self.slab_begin(self.at.slab).map(|begin| begin + u64::from(self.at.offset_bytes))
    }

    fn slab_begin(&self, slab: SlabId) -> Option<u64> {
        let range =
            self.block.ranges.iter().find(|range| (range.first.0..range.first.0 + range.count).contains(&slab.0))?;
        Some(range.offset_bytes + u64::from(slab.0 - range.first.0) * u64::from(self.block.slab_bytes))
    }

    /// The next chunk; `None` where the stream ends.
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
                // It may have been damaged on its way only, and a whole disk may depend on it.
                Err(ChunkEnd::NotOne | ChunkEnd::Damaged) if attempt < READ_ATTEMPTS => {
                    attempt += 1;
                    need_bytes = self.block.sector_bytes;
                    self.window = None;
                }
                Err(ChunkEnd::NotOne | ChunkEnd::Damaged) => return Ok(None),
            }
        }
    }

    /// Makes sure that the window has `need_bytes` from the present place on.
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

/// Whether the log of a disk goes on to the commit of checkpoint `generation`.
///
/// # Errors
/// When the disk cannot be read.
pub(crate) async fn has_commit(source: Source<'_>, block: &Superblock, generation: u64) -> Result<bool, ReplayError> {
    let mut reader = Reader::new(source, block, block.log);
    while let Some(records) = reader.next().await? {
        if records.iter().any(|record| is_commit(record, generation)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_commit(record: &Record, wanted: u64) -> bool {
    matches!(record, Record::Commit { generation, .. } if *generation == wanted)
}

/// So many records are put in order together: 20 MB of memory.
const BATCH_RECORDS: usize = 1 << 19;

/// Records of blocks on their way to the index. Only those of one key need to keep their order; in the order of their
/// hashes they go to one part of the index after another, instead of to another place in memory each.
struct Batch<'a> {
    records: Vec<Record>,
    apply: &'a mut dyn FnMut(&Record),
}

impl Batch<'_> {
    fn push(&mut self, record: Record) {
        match record {
            Record::Put { .. } | Record::Remove { .. } => self.records.push(record),
            // What is not about a block is not about the index.
            record => (self.apply)(&record),
        }
    }

    /// When there are many.
    fn relieve(&mut self) {
        if self.records.len() >= BATCH_RECORDS {
            self.empty();
        }
    }

    fn empty(&mut self) {
        let first_bytes = |record: &Record| match record {
            Record::Put { hash: KeyHash([first @ .., _, _]), .. }
            | Record::Remove { hash: KeyHash([first @ .., _, _]), .. } => u64::from_be_bytes(*first),
            _ => 0,
        };
        // Stable: records of one key stay in their order.
        self.records.sort_by_key(first_bytes);
        self.records.iter().for_each(&mut *self.apply);
        self.records.clear();
    }
}

/// Gives everything that the disk knew at checkpoint `generation` to `apply`: what is about one key in its order, and
/// what is about none in its own.
///
/// # Errors
/// When the disk cannot be read, or its streams end before they should.
pub(crate) async fn replay(
    source: Source<'_>,
    block: &Superblock,
    generation: u64,
    apply: &mut dyn FnMut(&Record),
) -> Result<FoundLog, ReplayError> {
    let mut batch = Batch { records: Vec::new(), apply };
    let mut snapshot = None;
    if let Some(head) = block.snapshot {
        let mut reader = Reader::new(source, block, head);
        let mut is_whole = false;
        while !is_whole {
            let records = reader.next().await?.ok_or(ReplayError::Damaged("the snapshot ends before its end"))?;
            is_whole = matches!(records.last(), Some(Record::End));
            records.into_iter().for_each(|record| batch.push(record));
            batch.relieve();
        }
        snapshot = Some(Snapshot { head, slabs: reader.slabs });
    }
    let mut reader = Reader::new(source, block, block.log);
    loop {
        let records = reader.next().await?.ok_or(ReplayError::Damaged("the log ends before its last checkpoint"))?;
        let is_end = records.iter().any(|record| is_commit(record, generation));
        records.into_iter().for_each(|record| batch.push(record));
        if is_end {
            break;
        }
        batch.relieve();
    }
    batch.empty();
    let end_offset = reader.offset().ok_or(ReplayError::Damaged("the log ends in a slab that is not on the disk"))?;
    Ok(FoundLog {
        head: block.log,
        end: reader.at,
        end_offset,
        slabs: reader.slabs,
        len_bytes: reader.len_bytes,
        snapshot,
    })
}
