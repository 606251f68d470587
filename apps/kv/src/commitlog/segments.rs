//! The files of the log, which are reused.
//!
//! # Why
//! A write to allocated blocks changes no metadata of the file, so a commit is one write.
//!
//! # How it works
//! A segment is a file of fixed length. [`Segments::write`] appends a record to the last one, with a write that is
//! durable when it completes. When that segment is full, it takes one that [`Segments::free`] returned, or a new one.
//! Some segments are created at the start: a log without room on a full disk would delay writes that are already in
//! memory. Record numbers have no gaps, so [`Segments::open`] finds in each file where new records end and old ones
//! begin. A record is written only after the one before it is durable. So a whole record with a greater number behind the
//! end of the log shows that a record between them was damaged, not that it was never written.
//!
//! # Limits
//! A failed write is repeated in another segment until it succeeds, as SlateDB does with its own. So the log may have a
//! record twice.
//!
//! # Example
//! `segments.write(&mut tail, 7, record).await`

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use plimsoll::backend::error_number;
use plimsoll::{Class, File, Handle, OpenOptions};
use slatedb::RowEntry;

use super::record::{BLOCK_BYTES, Head, Record, rows};
use crate::failure::tell;

/// Unit in which files are read, in bytes.
const READ_BYTES: u64 = 1 << 20;
/// Pause before a failed write is repeated.
const RETRY: Duration = Duration::from_millis(100);
/// Linux's EINVAL and EOPNOTSUPP: the file system has no direct I/O, or cannot preallocate.
const INVALID: i32 = 22;
const NOT_SUPPORTED: i32 = 95;

/// The place of a record in the log.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
    offset: u64,
    len_bytes: usize,
}

impl Place {
    /// Returns the length of the record, padding included.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }
}

/// The records that an opened log has.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Their places by number.
    pub(crate) places: BTreeMap<u64, Place>,
    /// The number of a whole record behind the end of the log, if there is one: the records between are damaged.
    pub(crate) behind: Option<u64>,
}

/// A file with records.
#[derive(Clone, Debug)]
struct Segment {
    path: PathBuf,
    capacity_bytes: u64,
    last_number: u64,
}

#[derive(Debug, Default)]
struct Files {
    /// Files with records; the last one is appended to.
    used: Vec<Segment>,
    /// Files of the usual length without records that are needed.
    spare: VecDeque<PathBuf>,
    spares_max: usize,
    last_name: u64,
}

/// Reads a file of the log from its beginning to its end, many records at a time.
pub(crate) struct SegmentReader {
    path: PathBuf,
    file: File,
    /// The bytes read last, and where they begin.
    part: Bytes,
    part_offset: u64,
}

impl SegmentReader {
    fn new(path: &Path, file: File) -> SegmentReader {
        SegmentReader { path: path.to_owned(), file, part: Bytes::new(), part_offset: 0 }
    }

    fn len_bytes(&self) -> u64 {
        self.file.info().len_bytes
    }

    /// Returns `len_bytes` bytes at `offset`. If they are few, reads what follows them too.
    ///
    /// # Errors
    /// The system's error, or that the file has fewer.
    async fn bytes(&mut self, offset: u64, len_bytes: usize) -> io::Result<Bytes> {
        let at = offset.checked_sub(self.part_offset).map(|at| at as usize);
        if at.is_none_or(|at| at + len_bytes > self.part.len()) {
            let ahead_bytes = self.len_bytes().saturating_sub(offset).min(READ_BYTES) as usize;
            // The rows of a replay keep all that was read with them: little more than a long record is itself.
            let read_bytes = if len_bytes > READ_BYTES as usize / 8 { len_bytes } else { len_bytes.max(ahead_bytes) };
            let read = self.file.read_exact_at(offset, read_bytes).await?;
            (self.part, self.part_offset) = (Bytes::from_owner(read), offset);
        }
        let at = (offset - self.part_offset) as usize;
        Ok(self.part.slice(at..at + len_bytes))
    }
}

/// The files of a log.
pub(crate) struct Segments {
    handle: Handle,
    class: Class,
    directory: PathBuf,
    /// The seed of the records' check sums.
    seed: u32,
    segment_bytes: u64,
    files: Mutex<Files>,
}

/// The end of the log, where records are appended.
pub(crate) struct Tail {
    file: File,
    capacity_bytes: u64,
    end_bytes: u64,
}

impl Segments {
    /// Opens the log of `seed` in `directory`, which is created if missing, with at least `segments_min` files. Returns
    /// its records.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) async fn open(
        handle: Handle,
        class: Class,
        (directory, seed): (PathBuf, u32),
        segment_bytes: u64,
        segments_min: usize,
    ) -> io::Result<(Segments, Found)> {
        std::fs::create_dir_all(&directory)?;
        // The names of new directories must be durable too.
        for directory in [&*directory, directory.parent().unwrap_or(&directory)] {
            std::fs::File::open(directory)?.sync_all()?;
        }

        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path.file_stem().and_then(|name| name.to_str()?.parse::<u64>().ok());
            paths.extend(name.filter(|_| path.extension().is_some_and(|end| end == "log")).map(|name| (name, path)));
        }
        paths.sort();

        let last_name = paths.last().map_or(0, |(name, _)| *name);
        let files = Files { last_name, spares_max: segments_min, ..Files::default() };
        let segments = Segments { handle, class, directory, seed, segment_bytes, files: Mutex::new(files) };

        let (mut found, mut ends) = (Found::default(), Vec::new());
        for (_, path) in paths {
            let file = segments.open_file(&path, false).await?;
            // Records that are read now must also survive the next crash.
            file.sync_data().await?;
            let mut reader = SegmentReader::new(&path, file);
            let (records, end_bytes) = read_records(&mut reader, seed).await?;
            ends.push((path, reader.len_bytes(), end_bytes, records.last().map(|(number, _)| *number)));
            found.places.extend(records);
        }

        let last = found.places.last_key_value().map_or(0, |(number, _)| *number);
        for (path, capacity_bytes, end_bytes, last_number) in ends {
            let mut last_number = last_number;
            if last_number.is_none_or(|number| number == last) {
                let mut reader = SegmentReader::new(&path, segments.open_file(&path, false).await?);
                if let Some(behind) = search_record(&mut reader, end_bytes, last, seed).await? {
                    (found.behind, last_number) = (Some(behind), Some(behind));
                }
            }
            let mut files = segments.files();
            match last_number {
                Some(last_number) => files.used.push(Segment { path, capacity_bytes, last_number }),
                None => files.keep(path, capacity_bytes, segment_bytes),
            }
        }

        segments.files().used.sort_by_key(|segment| segment.last_number);
        while segments.count() < segments_min {
            let (path, _, _) = segments.create(segment_bytes).await?;
            segments.files().spare.push_back(path);
        }

        Ok((segments, found))
    }

    fn count(&self) -> usize {
        let files = self.files();
        files.used.len() + files.spare.len()
    }

    /// Returns the bytes of the spare files.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.files().spare.len() as u64 * self.segment_bytes
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file of the log, with direct I/O if the file system has it.
    async fn open_file(&self, path: &Path, create_new: bool) -> io::Result<File> {
        let options = |direct| OpenOptions { write: true, create_new, direct, dsync: true, ..OpenOptions::default() };
        let opened = match self.handle.open(path, &options(true)).await {
            Err(error) if error_number(&error) == INVALID => self.handle.open(path, &options(false)).await,
            opened => opened,
        };
        Ok(opened?.in_class(self.class))
    }

    /// Returns the rows of the record at `place`; `None` if it has changed. `reader` is that of the record before.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) async fn read(
        &self,
        reader: &mut Option<SegmentReader>,
        place: &Place,
    ) -> io::Result<Option<Vec<RowEntry>>> {
        let mut current = match reader.take().filter(|reader| reader.path == place.path) {
            Some(current) => current,
            None => SegmentReader::new(&place.path, self.open_file(&place.path, false).await?),
        };
        let blocks = current.bytes(place.offset, place.len_bytes).await?;
        *reader = Some(current);
        Ok(rows(&blocks, self.seed))
    }

    /// Appends `record` as number `number` at `tail`, or to another segment. Returns once it is durable.
    pub(crate) async fn write(&self, tail: &mut Option<Tail>, number: u64, record: Record) {
        let blocks = record.end(number, self.seed);
        let mut is_told = false;
        while let Err(error) = self.try_write(tail, number, &blocks).await {
            if !is_told {
                let directory = self.directory.display();
                tell(format_args!("the commit log in {directory}: {error}; repeated until it succeeds"));
                is_told = true;
            }
            // The content after this segment's last record is no longer known. If it has none, it is used again: else each
            // repetition would take another file.
            if tail.take().is_some_and(|failed| failed.end_bytes == 0) {
                let mut files = self.files();
                if let Some(Segment { path, capacity_bytes, .. }) = files.used.pop() {
                    files.keep(path, capacity_bytes, self.segment_bytes);
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn try_write(&self, tail: &mut Option<Tail>, number: u64, blocks: &Bytes) -> io::Result<()> {
        let len_bytes = blocks.len() as u64;
        if tail.as_ref().is_none_or(|tail| tail.end_bytes + len_bytes > tail.capacity_bytes) {
            *tail = Some(self.next(number, len_bytes).await?);
        }

        let Some(tail) = tail else { return Ok(()) };
        if let Some(last) = self.files().used.last_mut() {
            last.last_number = number;
        }

        tail.file.write_all_at(tail.end_bytes, blocks).await?;
        tail.end_bytes += len_bytes;
        Ok(())
    }

    /// Returns a segment with room for record `number` of `least_bytes`: a spare one or a new one.
    async fn next(&self, number: u64, least_bytes: u64) -> io::Result<Tail> {
        let spare = if least_bytes <= self.segment_bytes { self.files().spare.pop_front() } else { None };
        let (path, file, capacity_bytes) = match spare {
            Some(path) => match self.open_file(&path, false).await {
                Ok(file) => (path, file, self.segment_bytes),
                Err(error) => {
                    self.files().spare.push_back(path);
                    return Err(error);
                }
            },
            None => self.create(least_bytes.max(self.segment_bytes)).await?,
        };

        self.files().used.push(Segment { path, capacity_bytes, last_number: number });
        Ok(Tail { file, capacity_bytes, end_bytes: 0 })
    }

    async fn create(&self, capacity_bytes: u64) -> io::Result<(PathBuf, File, u64)> {
        let path = {
            let mut files = self.files();
            files.last_name += 1;
            self.directory.join(format!("{:08}.log", files.last_name))
        };

        let file = self.open_file(&path, true).await?;
        let made = async {
            match file.allocate(0, capacity_bytes, false).await {
                Err(error) if error_number(&error) == NOT_SUPPORTED => file.set_len(capacity_bytes).await?,
                reserved => reserved?,
            }
            file.sync_all().await?;
            let directory = OpenOptions { directory: true, ..OpenOptions::default() };
            self.handle.open(&self.directory, &directory).await?.in_class(self.class).sync_all().await
        };

        if let Err(error) = made.await {
            // The disk may be full: each attempt would leave another file.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }

        Ok((path, file, capacity_bytes))
    }

    /// Frees the segments whose records are all below `number`, except the last one. Returns their count.
    pub(crate) fn free(&self, number: u64) -> usize {
        let mut files = self.files();
        let before_last = files.used.len().saturating_sub(1);
        let mut freed = Vec::new();
        let mut at = 0;
        files.used.retain(|segment| {
            let is_kept = at == before_last || segment.last_number >= number;
            at += 1;
            if !is_kept {
                freed.push((segment.path.clone(), segment.capacity_bytes));
            }
            is_kept
        });

        let count = freed.len();
        freed.into_iter().for_each(|(path, capacity_bytes)| files.keep(path, capacity_bytes, self.segment_bytes));
        count
    }

    /// Returns the length of a segment, which is that of the longest record that fits into one.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }
}

impl Files {
    /// Keeps a segment for reuse, or removes its file.
    fn keep(&mut self, path: PathBuf, capacity_bytes: u64, segment_bytes: u64) {
        if self.spare.len() < self.spares_max && capacity_bytes == segment_bytes {
            self.spare.push_back(path);
        } else {
            // A file that cannot be removed is found at the next start.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the whole records at the beginning of a file, as far as their numbers are consecutive, and where they end.
async fn read_records(reader: &mut SegmentReader, seed: u32) -> io::Result<(Vec<(u64, Place)>, u64)> {
    let (mut records, mut offset): (Vec<(u64, Place)>, u64) = (Vec::new(), 0);
    let len_bytes = reader.len_bytes();
    while offset + BLOCK_BYTES as u64 <= len_bytes {
        let Some(head) = Head::read(&reader.bytes(offset, BLOCK_BYTES).await?) else { break };

        let follows = records.last().is_none_or(|(number, _)| head.number == number + 1);
        if !follows || offset + head.blocks_bytes as u64 > len_bytes {
            break;
        }

        if rows(&reader.bytes(offset, head.blocks_bytes).await?, seed).is_none() {
            break;
        }

        records.push((head.number, Place { path: reader.path.clone(), offset, len_bytes: head.blocks_bytes }));
        offset += head.blocks_bytes as u64;
    }
    Ok((records, offset))
}

/// Returns the number of the first whole record of a file from `offset` on whose number is above `last`.
async fn search_record(reader: &mut SegmentReader, offset: u64, last: u64, seed: u32) -> io::Result<Option<u64>> {
    let (len_bytes, block_bytes) = (reader.len_bytes(), BLOCK_BYTES as u64);
    let mut at = offset;
    while at + block_bytes <= len_bytes {
        let head = Head::read(&reader.bytes(at, BLOCK_BYTES).await?);
        // A value that a client wrote may look like a head: most have no number that the log can have here.
        let is_near = |head: &Head| head.number > last && head.number - last <= len_bytes / block_bytes + 1;
        if let Some(head) = head.filter(is_near)
            && at + head.blocks_bytes as u64 <= len_bytes
            && rows(&reader.bytes(at, head.blocks_bytes).await?, seed).is_some()
        {
            return Ok(Some(head.number));
        }
        at += block_bytes;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
    use slatedb::ValueDeletable;

    use super::*;

    fn start() -> Runtime {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        Runtime::start(&topology, &ShardOptions { pin: false, ..ShardOptions::default() }).unwrap()
    }

    async fn open(runtime: &Runtime, directory: &Path) -> (Segments, Found) {
        let segment_bytes = 4 * BLOCK_BYTES as u64;
        Segments::open(runtime.any_shard(), Class::DEFAULT, (directory.join("log"), 7), segment_bytes, 2).await.unwrap()
    }

    fn row(number: u64, value: &str) -> RowEntry {
        let value = ValueDeletable::Value(Bytes::copy_from_slice(value.as_bytes()));
        RowEntry { key: number.to_string().into(), value, seq: number, create_ts: None, expire_ts: None }
    }

    async fn write(segments: &Segments, tail: &mut Option<Tail>, number: u64, value: &str) {
        let mut record = Record::default();
        record.push(&[row(number, value)]);
        segments.write(tail, number, record).await;
    }

    /// Reopens the log, checks that its records from `first` on are `expected`, and returns it.
    async fn check(runtime: &Runtime, directory: &Path, first: u64, expected: &[(u64, &str)]) -> Segments {
        let (segments, found) = open(runtime, directory).await;
        assert_eq!(found.behind, None);
        let (mut seen, mut reader) = (Vec::new(), None);
        for (number, place) in found.places.range(first..) {
            seen.push((*number, segments.read(&mut reader, place).await.unwrap().unwrap()));
        }
        let expected: Vec<_> = expected.iter().map(|(number, value)| (*number, vec![row(*number, value)])).collect();
        assert_eq!(seen, expected);
        segments
    }

    fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory.join("log")).unwrap().count()
    }

    #[tokio::test]
    async fn files_are_used_again_and_what_they_held_is_no_part_of_the_log() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, found) = open(&runtime, directory.path()).await;
        assert!(found.places.is_empty());
        assert_eq!(names(directory.path()), 2, "made at the start");
        let mut tail = None;
        for number in 1..=10 {
            write(&segments, &mut tail, number, "old").await;
        }
        assert_eq!(names(directory.path()), 3, "records 1 to 4, 5 to 8, and 9 and 10");
        // Record 8 is still needed, then it is not; the last file is always kept.
        assert_eq!((segments.free(8), segments.free(9), segments.free(11)), (1, 1, 0));
        for number in 11..=14 {
            write(&segments, &mut tail, number, "new").await;
        }
        let expected = [(9, "old"), (10, "old"), (11, "new"), (12, "new"), (13, "new"), (14, "new")];
        let segments = check(&runtime, directory.path(), 9, &expected).await;
        assert_eq!(names(directory.path()), 3, "no file was made anew");

        // A record longer than a segment gets its own file, which is not kept.
        let (mut tail, long) = (None, "long".repeat(3 * BLOCK_BYTES));
        write(&segments, &mut tail, 15, &long).await;
        write(&segments, &mut tail, 16, "new").await;
        assert_eq!(names(directory.path()), 5);
        segments.free(16);
        assert_eq!(names(directory.path()), 3, "two to be used again, and the last");
        check(&runtime, directory.path(), 15, &[(16, "new")]).await;
    }

    #[tokio::test]
    async fn a_record_that_was_not_written_whole_ends_the_log() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, _) = open(&runtime, directory.path()).await;
        let (mut tail, long) = (None, "long".repeat(BLOCK_BYTES / 2));
        write(&segments, &mut tail, 1, "whole").await;
        write(&segments, &mut tail, 2, &long).await;
        drop((segments, tail));
        let path = directory.path().join("log/00000001.log");
        let mut bytes = std::fs::read(&path).unwrap();
        // The second of its blocks has not reached the disk.
        bytes[2 * BLOCK_BYTES..3 * BLOCK_BYTES].fill(0);
        std::fs::write(&path, bytes).unwrap();

        let segments = check(&runtime, directory.path(), 0, &[(1, "whole")]).await;
        let mut tail = None;
        write(&segments, &mut tail, 2, "again").await;
        check(&runtime, directory.path(), 0, &[(1, "whole"), (2, "again")]).await;
    }

    #[tokio::test]
    async fn a_record_that_is_damaged_does_not_end_the_log() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, _) = open(&runtime, directory.path()).await;
        let mut tail = None;
        for number in 1..=3 {
            write(&segments, &mut tail, number, "ahoy").await;
        }
        drop((segments, tail));
        let path = directory.path().join("log/00000001.log");
        let whole = std::fs::read(&path).unwrap();

        // The disk has lost a block of a record, or has zeros there; records behind it are whole.
        for (damaged, kept, behind) in [(0, 0, 2), (1, 1, 3)] {
            for byte in [0, 0xa5] {
                let mut bytes = whole.clone();
                bytes[damaged * BLOCK_BYTES..(damaged + 1) * BLOCK_BYTES].fill(byte);
                std::fs::write(&path, bytes).unwrap();
                let (segments, found) = open(&runtime, directory.path()).await;
                assert_eq!((found.places.len(), found.behind), (kept, Some(behind)), "block {damaged}, {byte}");
                // The file is not used again as long as that record may be needed.
                assert!(!segments.files().spare.contains(&path));
            }
        }
        std::fs::write(&path, whole).unwrap();
        check(&runtime, directory.path(), 0, &[(1, "ahoy"), (2, "ahoy"), (3, "ahoy")]).await;
    }

    /// It was taken for one behind a damaged record, and the database did not open again.
    #[tokio::test]
    async fn a_value_that_looks_like_a_record_is_none() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, _) = open(&runtime, directory.path()).await;
        let mut planted = Record::default();
        planted.push(&[row(2, "planted")]);
        let planted = planted.end(3, 0);
        let before = "x".repeat(BLOCK_BYTES);
        let (mut tail, mut record) = (None, Record::default());
        record.push(&[row(1, &before)]);
        // Where the second block of the record begins.
        let offset = BLOCK_BYTES - (record.len_bytes() - before.len());
        let value = [&before.as_bytes()[..offset], &planted].concat();
        let mut record = Record::default();
        record.push(&[RowEntry { value: ValueDeletable::Value(value.into()), ..row(1, "") }]);
        segments.write(&mut tail, 1, record).await;

        // The file is used again: the end of the log is before what it held.
        let mut tail = None;
        segments.files().used.clear();
        segments.files().spare.push_front(directory.path().join("log/00000001.log"));
        write(&segments, &mut tail, 2, "ahoy").await;
        let block = |number: usize, bytes: &[u8]| bytes[number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES].to_vec();
        let bytes = std::fs::read(directory.path().join("log/00000001.log")).unwrap();
        assert_eq!(block(1, &bytes), block(0, &planted), "the planted one is where a record can begin");
        check(&runtime, directory.path(), 2, &[(2, "ahoy")]).await;
    }

    /// Each record opened its file again: the start after 12,000 of them took as long as writing them had.
    #[tokio::test]
    async fn a_file_is_opened_once_for_all_its_records() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, mut tail) = (open(&runtime, directory.path()).await.0, None);
        for number in 1..=3 {
            write(&segments, &mut tail, number, "ahoy").await;
        }

        let (segments, found) = open(&runtime, directory.path()).await;
        let mut reader = None;
        for (number, place) in &found.places {
            assert_eq!(segments.read(&mut reader, place).await.unwrap().unwrap(), [row(*number, "ahoy")]);
            // It is open by now.
            let _ = std::fs::remove_file(&place.path);
        }
        assert_eq!(found.places.len(), 3);
    }

    #[tokio::test]
    async fn a_write_that_fails_takes_no_files() {
        let (runtime, directory) = (start(), tempfile::tempdir().unwrap());
        let (segments, _) = open(&runtime, directory.path()).await;
        let [first, second] = ["log/00000001.log", "log/00000002.log"].map(|name| directory.path().join(name));
        for make in [
            |path: &Path| std::fs::create_dir(path),
            |path: &Path| std::os::unix::fs::symlink("/proc/self/oom_score_adj", path),
        ] {
            // The first file cannot be opened, or written.
            std::fs::remove_file(&first).or_else(|_| std::fs::remove_dir(&first)).unwrap();
            make(&first).unwrap();
            let mut tail = None;
            write(&segments, &mut tail, 1, "ahoy").await;
            assert_eq!(segments.files().spare, std::slice::from_ref(&first));
            assert_eq!(names(directory.path()), 2);

            assert_eq!(segments.files().used.pop().unwrap().path, second);
            segments.files().spare.push_back(second.clone());
        }
    }
}
