//! A depot: what many hosts recorded, as Parquet files that every SQL engine reads.
//!
//! # Why
//! People with 500 hosts want one answer, from engines that they have. A directory of Parquet files with a documented
//! schema needs no daemon and no format of its own.
//!
//! # How it works
//! ```text
//! DEPOT/spans/host=db1/date=2026-03-14/trace-0123456789abcdef.parquet
//!       hist/...  disks/...  figures/...
//! ```
//! Four tables, each in parts by host and day (UTC). A file is named after the content of its recording, so storing a
//! recording again replaces its files; files of the same name under other days are removed, so no row is there twice. A
//! file is written beside its place under a name that no reader takes, synced, and renamed: it is whole or absent. Each
//! says the version of the schema ([`SCHEMA`]) under the key [`SCHEMA_KEY`]. docs/depot.md has all columns.
//!
//! # Limits
//! Local directories only. A process that is killed leaves a hidden temporary file. A host is a name: two machines of
//! one name are one host.
//!
//! # Example
//! ```
//! use plimsoll_observe::depot::{DepotError, Place};
//! let place = Place::new("depot".as_ref(), "../db1", "trace-1".to_owned());
//! assert!(matches!(place, Err(DepotError::Host { .. })));
//! ```

pub mod disks;
pub mod figures;
pub mod trace;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::columns::Column;
use crate::columns::parquet::Parquet;

/// Version of the tables. It rises when a column changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// The key of a file's metadata that has the version.
pub const SCHEMA_KEY: &str = "plimsoll.depot.schema";

/// Longest name of a host, in bytes: the `host=` part of a path has to be a file name.
const HOST_MAX_BYTES: usize = 200;

/// Most days that one recording may touch: each is a file that is open.
const DAYS_MAX: usize = 400;

const US_PER_DAY: i64 = 86_400_000_000;

/// Days since 1970 of 2000-01-01 and 2200-01-01. A time outside is that of a clock that was never set.
const DAYS: std::ops::Range<i64> = 10_957..84_006;

/// Why something was not stored.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    #[error(
        "`{name}` cannot be a host in a depot: expected letters, digits, `.`, `_` and `-`, a letter or digit first"
    )]
    Host { name: String },
    #[error("this {what} does not say of which host it is: name it with --host NAME")]
    NoHost { what: &'static str },
    #[error("this {what} does not say when it was: give the time with --at TIME")]
    NoTime { what: &'static str },
    #[error("an interval has no time of day, and a depot keeps disks by it: record with `plimsoll stat --record`")]
    IntervalWithoutTime,
    #[error("its clock says {at_us} us since 1970, which is not between the years 2000 and 2200: {remedy}")]
    Clock { at_us: i64, remedy: &'static str },
    #[error("it touches more than {DAYS_MAX} days: cut it into parts")]
    Days,
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl DepotError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> DepotError {
        move |error| DepotError::Io { path: path.to_owned(), error }
    }
}

/// The tables of a depot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Spans,
    Hist,
    Disks,
    Figures,
}

impl Table {
    pub const ALL: [Table; 4] = [Table::Spans, Table::Hist, Table::Disks, Table::Figures];

    /// Returns the name, which is that of its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Spans => "spans",
            Table::Hist => "hist",
            Table::Disks => "disks",
            Table::Figures => "figures",
        }
    }
}

/// Where the rows of a recording go.
#[derive(Clone, Debug)]
pub struct Place {
    root: PathBuf,
    host: String,
    recording: String,
}

impl Place {
    /// Returns the place of a recording in the depot at `root`. `recording` names its files: letters, digits and `-`.
    ///
    /// # Errors
    /// [`DepotError::Host`] if the host's name would not be one directory.
    pub fn new(root: &Path, host: &str, recording: String) -> Result<Place, DepotError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let begins = host.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !begins || host.len() > HOST_MAX_BYTES || !host.bytes().all(is_plain) {
            return Err(DepotError::Host { name: host.to_owned() });
        }
        debug_assert!(recording.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        Ok(Place { root: root.to_owned(), host: host.to_owned(), recording })
    }
}

/// A file that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub table: Table,
    pub path: PathBuf,
    pub rows: u64,
    pub len_bytes: u64,
}

/// The files of one recording in one table, a file for each day. What is dropped before [`Files::finish`] leaves none.
struct Files<R: 'static, C: 'static> {
    table: Table,
    /// The directory of the host in the table.
    directory: PathBuf,
    recording: String,
    columns: Vec<&'static Column<R, C>>,
    days: BTreeMap<i64, Open<R, C>>,
}

struct Open<R: 'static, C: 'static> {
    file: Parquet<R, C, BufWriter<File>>,
    temporary: Temporary,
    path: PathBuf,
}

impl<R, C> Files<R, C> {
    fn new(place: &Place, table: Table, columns: impl IntoIterator<Item = &'static Column<R, C>>) -> Files<R, C> {
        Files {
            table,
            directory: place.root.join(table.name()).join(format!("host={}", place.host)),
            recording: place.recording.clone(),
            columns: columns.into_iter().collect(),
            days: BTreeMap::new(),
        }
    }

    /// Adds a row of this time, in microseconds since 1970.
    fn push(&mut self, at_us: i64, row: &R, shared: &C) -> Result<(), DepotError> {
        let day = at_us.div_euclid(US_PER_DAY);
        if let Some(open) = self.days.get_mut(&day) {
            open.file.push(row, shared);
            return Ok(());
        }

        let mut open = self.open(day, at_us)?;
        open.file.push(row, shared);
        self.days.insert(day, open);
        Ok(())
    }

    fn open(&self, day: i64, at_us: i64) -> Result<Open<R, C>, DepotError> {
        let date = jiff::Timestamp::from_microsecond(at_us).ok().filter(|_| DAYS.contains(&day));
        let remedy = match self.table {
            Table::Disks => "cut what was recorded before the clock was set out of the recording",
            _ => "set it right with --at TIME",
        };
        let date = date.ok_or(DepotError::Clock { at_us, remedy })?;
        if self.days.len() >= DAYS_MAX {
            return Err(DepotError::Days);
        }

        let directory = self.directory.join(format!("date={}", date.strftime("%F")));
        fs::create_dir_all(&directory).map_err(DepotError::at(&directory))?;
        let temporary = Temporary(directory.join(format!(".{}-{}.tmp", self.recording, std::process::id())));
        let begun = File::create(&temporary.0).and_then(|file| {
            let metadata = [(SCHEMA_KEY, SCHEMA.to_string()), ("plimsoll.table", self.table.name().to_owned())];
            Parquet::begin(BufWriter::new(file), self.columns.iter().copied(), &metadata)
        });
        let file = begun.map_err(DepotError::at(&temporary.0))?;
        Ok(Open { file, temporary, path: directory.join(format!("{}.parquet", self.recording)) })
    }

    /// Puts the files into their places, and removes what the recording had under other days.
    fn finish(self) -> Result<Vec<Written>, DepotError> {
        let mut whole = Vec::new();
        for Open { file, temporary, path } in self.days.into_values() {
            let rows = file.rows;
            let synced = file.finish().and_then(|out| {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.sync_all()?;
                Ok(file.metadata()?.len())
            });
            let len_bytes = synced.map_err(DepotError::at(&temporary.0))?;
            whole.push((temporary, Written { table: self.table, path, rows, len_bytes }));
        }

        let mut written = Vec::new();
        for (temporary, file) in whole {
            fs::rename(&temporary.0, &file.path)
                .and_then(|()| sync_parent(&file.path))
                .map_err(DepotError::at(&file.path))?;
            written.push(file);
        }
        remove_others(&self.directory, &format!("{}.parquet", self.recording), &written)?;
        Ok(written)
    }
}

/// Makes a new name in a directory durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}

/// Removes the files of this name in other days than those of `written`.
fn remove_others(directory: &Path, name: &str, written: &[Written]) -> Result<(), DepotError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(DepotError::at(directory))?,
    };
    for entry in entries {
        let path = entry.map_err(DepotError::at(directory))?.path().join(name);
        if path.is_file() && !written.iter().any(|file| file.path == path) {
            fs::remove_file(&path).map_err(DepotError::at(&path))?;
        }
    }
    Ok(())
}

/// A temporary file, which is removed unless it was renamed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;
