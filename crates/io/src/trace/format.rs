//! The file format of a trace, with a reader for damaged files too.
//!
//! # Why
//! A trace is often from a program that died, cut by a full disk, or badly copied. The reader must return the intact
//! parts, and report the missing ones.
//!
//! # How it works
//! The file is a head, then chunks, each with its own head and checksums (CRC-32C) over head and body. All numbers are
//! little-endian.
//!
//! ```text
//! head    8 "PLIMTRCE"   4 version (1)   4 clock: 0 monotonic, 1 virtual   8 unix time at clock 0, ns   4 CRC of the above
//! chunk   4 "CHNK"   2 kind   2 shard   4 length of the body   8 events dropped before it   4 CRC of the body   4 CRC of the above
//!         the body: events of 40 bytes (kind 1), or names (kind 2)
//! ```
//!
//! Names are lines of text: `class NUMBER SHARES NAME`, `file NUMBER DISK PATH`, `disk NUMBER NAME`; a backslash or
//! line feed in a name is written `\\`, `\n`. Changed names are written again, in several chunks if one is too small;
//! the last line of a number is valid from there on. A line longer than a chunk is left out. Events of a chunk are of
//! one shard and in order of time.
//!
//! [`Reader`] skips a chunk whose body is damaged, searches for the next whole one if a head is damaged or a body cut,
//! and counts the skipped bytes in [`Lost`].
//!
//! # Limits
//! A body has at most [`BODY_MAX_BYTES`], which bounds the memory of a reader.
//!
//! # Example
//! ```
//! use plimsoll::trace::format::{Body, Clock, Names, Reader, Writer};
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file, Clock::Virtual, 0)?;
//! writer.names(&Names::default())?;
//! writer.events(3, 0, &[])?;
//! let mut reader = Reader::new(file.as_slice())?;
//! assert!(matches!(reader.next_chunk()?.map(|chunk| chunk.body), Some(Body::Names(_))));
//! assert_eq!(reader.next_chunk()?.map(|chunk| chunk.shard), Some(3));
//! assert!(reader.next_chunk()?.is_none() && reader.lost().is_nothing());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

use plimsoll_core::trace::{EVENT_BYTES, Event};

const MAGIC: &[u8; 8] = b"PLIMTRCE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 28;
const CHUNK_MARK: &[u8; 4] = b"CHNK";
const CHUNK_HEAD_BYTES: usize = 28;
const KIND_EVENTS: u16 = 1;
const KIND_NAMES: u16 = 2;
/// Longest body of a chunk, in bytes: a whole number of events.
pub const BODY_MAX_BYTES: usize = 26_214 * EVENT_BYTES;

/// Clock of the time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_MONOTONIC of the machine.
    Monotonic,
    /// The clock of a simulation.
    Virtual,
}

/// A class in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// Its name.
    pub name: String,
    /// Its shares.
    pub shares: u32,
}

/// A file in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// Its path.
    pub path: String,
    /// Number of its disk.
    pub disk: u16,
}

/// Names of the numbers in events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Classes by number.
    pub classes: BTreeMap<u16, ClassName>,
    /// Files by number.
    pub files: BTreeMap<u32, FileName>,
    /// Disks by number.
    pub disks: BTreeMap<u16, String>,
}

impl Names {
    fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (number, class) in &self.classes {
            let _ = writeln!(text, "class {number} {} {}", class.shares, escaped(&class.name));
        }
        for (number, file) in &self.files {
            let _ = writeln!(text, "file {number} {} {}", file.disk, escaped(&file.path));
        }
        for (number, name) in &self.disks {
            let _ = writeln!(text, "disk {number} {}", escaped(name));
        }
        text
    }

    /// Parses names. Skips unknown lines: a later version may have more kinds.
    fn from_text(text: &str) -> Names {
        let mut names = Names::default();
        for line in text.lines() {
            let _ = names.take_line(line);
        }
        names
    }

    fn take_line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match kind {
            "class" => {
                let (shares, name) = rest.split_once(' ')?;
                let class = ClassName { name: unescaped(name), shares: shares.parse().ok()? };
                self.classes.insert(number.parse().ok()?, class);
            }
            "file" => {
                let (disk, path) = rest.split_once(' ')?;
                let file = FileName { path: unescaped(path), disk: disk.parse().ok()? };
                self.files.insert(number.parse().ok()?, file);
            }
            "disk" => drop(self.disks.insert(number.parse().ok()?, unescaped(rest))),
            _ => {}
        }
        Some(())
    }
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        name.push(match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
        });
    }
    name
}

/// Writes the file of a trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    clock: Clock,
    body: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `unix_at_zero_ns` is the unix time in nanoseconds when the clock was 0 (0 for a virtual clock).
    ///
    /// # Errors
    /// The error of writing.
    pub fn new(mut out: W, clock: Clock, unix_at_zero_ns: u64) -> io::Result<Writer<W>> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(clock as u32).to_le_bytes());
        head.extend_from_slice(&unix_at_zero_ns.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        out.write_all(&head)?;
        Ok(Writer { out, clock, body: Vec::new() })
    }

    /// Returns the clock of the time stamps.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Writes events of one shard in order of time. `dropped` is the number of events dropped before them for lack of
    /// room.
    ///
    /// # Errors
    /// The error of writing.
    pub fn events(&mut self, shard: u16, dropped: u64, events: &[Event]) -> io::Result<()> {
        let mut dropped = Some(dropped);
        let mut rest = events;
        while !rest.is_empty() || dropped.is_some() {
            let (now, later) = rest.split_at(rest.len().min(BODY_MAX_BYTES / EVENT_BYTES));
            rest = later;
            self.body.clear();
            now.iter().for_each(|event| self.body.extend_from_slice(&event.to_bytes()));
            self.chunk(KIND_EVENTS, shard, dropped.take().unwrap_or(0))?;
        }
        Ok(())
    }

    /// Writes the names of the numbers in later events, in as many chunks as needed. Leaves out a name whose line alone
    /// is longer than a chunk.
    ///
    /// # Errors
    /// The error of writing.
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.body.clear();
        for line in names.to_text().split_inclusive('\n').filter(|line| line.len() <= BODY_MAX_BYTES) {
            if self.body.len() + line.len() > BODY_MAX_BYTES {
                self.chunk(KIND_NAMES, 0, 0)?;
                self.body.clear();
            }
            self.body.extend_from_slice(line.as_bytes());
        }
        self.chunk(KIND_NAMES, 0, 0)
    }

    fn chunk(&mut self, kind: u16, shard: u16, dropped: u64) -> io::Result<()> {
        let mut head = Vec::with_capacity(CHUNK_HEAD_BYTES);
        head.extend_from_slice(CHUNK_MARK);
        head.extend_from_slice(&kind.to_le_bytes());
        head.extend_from_slice(&shard.to_le_bytes());
        head.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        head.extend_from_slice(&dropped.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&self.body).to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.body)
    }

    /// Passes all bytes written so far to the system.
    ///
    /// # Errors
    /// The error of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Why a file is not a trace that this version reads.
#[derive(Debug)]
pub enum OpenError {
    /// Reading failed.
    Io(io::Error),
    /// The file does not begin as a trace does.
    NotATrace,
    /// The head is damaged.
    DamagedHead,
    /// A version that this program does not know.
    Version(u32),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Io(error) => write!(f, "cannot read it: {error}"),
            OpenError::NotATrace => f.write_str("this is no plimsoll trace (it does not begin with PLIMTRCE)"),
            OpenError::DamagedHead => f.write_str("the head of the trace is damaged or cut"),
            OpenError::Version(found) => {
                write!(f, "a trace of version {found}, and version {VERSION} is read: use the plimsoll that wrote it")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

/// The unreadable parts of a file, and the events that were never in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes outside whole chunks.
    pub bytes: u64,
    /// Ranges of such bytes.
    pub places: u64,
    /// Whether the last range is at the end of the file, so the file was cut.
    pub at_end: bool,
    /// Events for which the program had no room when it recorded.
    pub dropped_events: u64,
    /// Events with unknown numbers.
    pub unknown_events: u64,
}

impl Lost {
    /// Returns whether nothing was lost.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Lost::default()
    }
}

/// Content of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Events of one shard, in order of time.
    Events(Vec<Event>),
    /// Names of numbers from here on, in addition to earlier ones.
    Names(Names),
}

/// A part of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The shard.
    pub shard: u16,
    /// Its content.
    pub body: Body,
}

/// Reads the file of a trace, front to back.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Bytes read and, from `at` on, not yet parsed.
    held: Vec<u8>,
    at: usize,
    ended: bool,
    clock: Clock,
    unix_at_zero_ns: u64,
    lost: Lost,
    is_lost_here: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of `input`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(mut input: R) -> Result<Reader<R>, OpenError> {
        let mut head = Vec::new();
        input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if !head.starts_with(MAGIC) {
            return Err(OpenError::NotATrace);
        }

        let (Some(version), Some(clock), Some(unix_low), Some(unix_high), Some(crc)) =
            (word(&head, 8), word(&head, 12), word(&head, 16), word(&head, 20), word(&head, 24))
        else {
            return Err(OpenError::DamagedHead);
        };

        if crc32c::crc32c(&head[..HEAD_BYTES - 4]) != crc {
            return Err(OpenError::DamagedHead);
        }

        if version != VERSION {
            return Err(OpenError::Version(version));
        }

        Ok(Reader {
            input,
            held: Vec::new(),
            at: 0,
            ended: false,
            clock: if clock == Clock::Virtual as u32 { Clock::Virtual } else { Clock::Monotonic },
            unix_at_zero_ns: u64::from(unix_low) | u64::from(unix_high) << 32,
            lost: Lost::default(),
            is_lost_here: false,
        })
    }

    /// Returns the clock of the time stamps.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the unix time in nanoseconds when the clock was 0; 0 for a virtual clock.
    #[must_use]
    pub fn unix_at_zero_ns(&self) -> u64 {
        self.unix_at_zero_ns
    }

    /// Returns the losses up to here.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns the next whole chunk, or `None` at the end.
    ///
    /// # Errors
    /// The error of reading.
    pub fn next_chunk(&mut self) -> io::Result<Option<Chunk>> {
        loop {
            self.fill(CHUNK_HEAD_BYTES + BODY_MAX_BYTES)?;
            let rest = &self.held[self.at..];
            if rest.is_empty() {
                self.lost.at_end = self.is_lost_here;
                return Ok(None);
            }

            let bytes = chunk_bytes(rest);
            if let Some((chunk, dropped, unknown)) = bytes.and_then(chunk_of) {
                self.at += bytes.map_or(0, <[u8]>::len);
                self.is_lost_here = false;
                self.lost.dropped_events = self.lost.dropped_events.saturating_add(dropped);
                self.lost.unknown_events = self.lost.unknown_events.saturating_add(unknown);
                return Ok(Some(chunk));
            }
            // If the head is whole, skip the damaged body by its length, so that bytes in it that look like heads are
            // not tried one by one. Otherwise, skip to the next possible chunk.
            let next_mark = || rest.get(1..).and_then(|rest| find(rest, CHUNK_MARK)).map_or(rest.len(), |at| at + 1);
            let skip = bytes.map_or_else(next_mark, <[u8]>::len);
            self.lost.bytes += skip as u64;
            self.lost.places += u64::from(!std::mem::replace(&mut self.is_lost_here, true));
            self.at += skip;
        }
    }

    /// Reads until at least `bytes` are held, or the input ends.
    fn fill(&mut self, bytes: usize) -> io::Result<()> {
        if self.ended || self.held.len() - self.at >= bytes {
            return Ok(());
        }
        self.held.drain(..self.at);
        self.at = 0;
        let wanted = (2 * bytes - self.held.len()) as u64;
        let read = self.input.by_ref().take(wanted).read_to_end(&mut self.held)?;
        self.ended = (read as u64) < wanted;
        Ok(())
    }
}

/// Returns the chunk at the beginning of `bytes`, head and body, if its head is intact and its body not cut.
fn chunk_bytes(bytes: &[u8]) -> Option<&[u8]> {
    let head = bytes.get(..CHUNK_HEAD_BYTES)?;
    let intact = head.starts_with(CHUNK_MARK) && crc32c::crc32c(&head[..CHUNK_HEAD_BYTES - 4]) == word(head, 24)?;
    let body_bytes = word(head, 8)? as usize;
    if !intact || body_bytes > BODY_MAX_BYTES {
        return None;
    }
    bytes.get(..CHUNK_HEAD_BYTES + body_bytes)
}

/// Returns the chunk of these bytes, the events dropped before it, and the unknown events in it; `None` if its body is
/// damaged.
fn chunk_of(bytes: &[u8]) -> Option<(Chunk, u64, u64)> {
    let (head, body) = bytes.split_at_checked(CHUNK_HEAD_BYTES)?;
    if crc32c::crc32c(body) != word(head, 20)? {
        return None;
    }

    let (kind, shard) = ((word(head, 4)? & 0xffff) as u16, (word(head, 4)? >> 16) as u16);
    let dropped = u64::from(word(head, 12)?) | u64::from(word(head, 16)?) << 32;
    let (body, unknown) = match kind {
        KIND_EVENTS => {
            let places = body.as_chunks::<EVENT_BYTES>().0;
            let events: Vec<Event> = places.iter().filter_map(Event::from_bytes).collect();
            let unknown = (places.len() - events.len()) as u64;
            (Body::Events(events), unknown)
        }
        KIND_NAMES => (Body::Names(Names::from_text(&String::from_utf8_lossy(body))), 0),
        // A kind of a later version, which this one skips.
        _ => (Body::Events(Vec::new()), 0),
    };

    Some((Chunk { shard, body }, dropped, unknown))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
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
        let ends: Vec<usize> =
            (0..=4).map(|events| whole.len() - events * (CHUNK_HEAD_BYTES + 2 * EVENT_BYTES)).collect();
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
}
