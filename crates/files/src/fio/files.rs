//! Reads the files of a job, and the part of them that it uses.
//!
//! **Why.** fio has many ways to state where a job works: names, a directory, a number of files, lengths in bytes or in
//! per cent.
//!
//! **How.** [`read`] makes a [`FileSet`] of them. Values that depend on the length of a file are computed there when
//! the run begins.
//!
//! **Limits.** Several directories, ranges of file lengths and lengths in zones are refused.
//!
//! **Example.** `filename=a:b`, `size=50%` is the first half of `a` and of `b`; requests go to them in turn.

use std::path::PathBuf;

use super::reader::{Reader, not_supported};
use crate::error::{Code, ConfigError};
use crate::job_files::{FileSet, Length};

const MAX_FILES: u64 = 4096;
/// fio's format for the names of files without one. Every clone then has files of its own, under any name.
const DEFAULT_NAMES: &str = "$jobname.$jobnum.$filenum";
/// Largest size, in bytes: 8 EiB - 1, the largest file offset.
pub(super) const MAX_SIZE_BYTES: u64 = i64::MAX as u64;

pub(super) struct End {
    pub(super) time_based: bool,
    /// Whether a runtime or a number of requests ends the job.
    pub(super) is_limited: bool,
    pub(super) loops: u64,
}

/// Reads the files of the job called `name`. Its shortest request has `unit_bytes`, its longest `request_bytes`.
pub(super) fn read(
    reader: &Reader<'_>,
    name: &str,
    (unit_bytes, request_bytes): (u64, u64),
    end: &End,
) -> Result<FileSet, ConfigError> {
    let directory = directory(reader)?;
    let mut named = named(reader)?;
    if named.is_empty() && name.starts_with("/dev/") {
        // As in fio: a job with the name of a device works on that device.
        named.push(name.to_owned());
    }
    let below = |file: &String| match &directory {
        // fio puts the directory in front of any name.
        Some(directory) => directory.join(file.trim_start_matches('/')),
        None => PathBuf::from(file),
    };

    let size = length(reader, "size")?;
    let file_bytes = file_bytes(reader)?;
    let set = FileSet {
        named: named.iter().map(below).collect(),
        directory: directory.clone().unwrap_or_else(|| PathBuf::from(".")),
        count: u32::try_from(reader.int("nrfiles", 1..=MAX_FILES)?.unwrap_or(1)).unwrap_or(1),
        name_format: reader.text("filename_format")?.filter(|format| *format != DEFAULT_NAMES).map(str::to_owned),
        file_bytes,
        size,
        offset: offset(reader, "offset")?,
        increment: offset(reader, "offset_increment")?,
        clone_number: 0,
        unit_bytes,
        offset_unit_bytes: offset_unit_bytes(reader)?.unwrap_or(unit_bytes),
        work: length(reader, "io_size")?,
        loops: end.loops,
        time_based: end.time_based,
    };

    if let Some(Length::Bytes(bytes)) = size
        && bytes / set.files() < request_bytes
    {
        let error =
            reader.error("size", Code::OutOfRange, format!("{bytes} bytes are less than one block of each file"));
        return Err(error.with_help("raise `size`, or lower `bs`"));
    }
    let says_size = matches!(size, Some(Length::Bytes(_))) || file_bytes.is_some() || set.work.is_some();
    let has_names = !set.named.is_empty() || set.name_format.is_some();
    if !has_names && !says_size && !end.is_limited {
        let error = reader.error("size", Code::MissingKey, "nothing says when the job ends");
        return Err(error.with_help("add `size`, or `runtime` with `time_based`"));
    }
    Ok(set)
}

fn directory(reader: &Reader<'_>) -> Result<Option<PathBuf>, ConfigError> {
    match reader.text("directory")?.map(names).as_deref() {
        None => Ok(None),
        Some([directory]) => Ok(Some(PathBuf::from(directory))),
        Some(_) => not_supported(reader, "directory", "several directories are not supported", "name one"),
    }
}

/// Returns the names given by the job and `[global]`; as in fio all of them count.
fn named(reader: &Reader<'_>) -> Result<Vec<String>, ConfigError> {
    let mut all: Vec<String> = Vec::new();
    reader.text("filename")?;

    for setting in &reader.filenames {
        for name in names(setting.value.as_deref().unwrap_or("")) {
            if name == "-" {
                let help = "name a file, a directory or a device";
                return not_supported(reader, "filename", "standard input is no disk", help);
            }
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }

    if all.len() as u64 > MAX_FILES {
        let error = reader.error("filename", Code::TooLarge, format!("the job has more than {MAX_FILES} files"));
        return Err(error.with_help("name fewer"));
    }
    Ok(all)
}

/// Splits a list of names at its colons; `\:` is a colon in a name.
fn names(list: &str) -> Vec<String> {
    let (mut names, mut name) = (Vec::new(), String::new());
    let mut letters = list.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => name.extend(letters.next()),
            ':' => names.push(std::mem::take(&mut name)),
            _ => name.push(letter),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

/// Reads a length in bytes or in per cent; `None` if it is missing or 0.
fn length(reader: &Reader<'_>, name: &str) -> Result<Option<Length>, ConfigError> {
    let Some(text) = reader.text(name)? else { return Ok(None) };
    if let Some(percent) = percent(text) {
        return Ok(Some(Length::Percent(reader.int_of(name, percent, 1..=100)?)));
    }
    if text.ends_with(['z', 'Z']) {
        return not_supported(reader, name, "lengths in zones are not supported", "write bytes or per cent");
    }
    let bytes = reader.int_of(name, text, 0..=MAX_SIZE_BYTES)?;
    Ok((bytes > 0).then_some(Length::Bytes(bytes)))
}

/// Returns the figure before a `%`, which may be doubled, as in fio.
fn percent(text: &str) -> Option<&str> {
    text.strip_suffix("%%").or(text.strip_suffix('%'))
}

/// Reads the unit of offsets in per cent.
fn offset_unit_bytes(reader: &Reader<'_>) -> Result<Option<u64>, ConfigError> {
    let name = "offset_align";
    let Some(bytes) = reader.int(name, 0..=MAX_SIZE_BYTES)?.filter(|bytes| *bytes > 0) else { return Ok(None) };
    reader.whole_sectors(name, bytes, "").map(Some)
}

fn file_bytes(reader: &Reader<'_>) -> Result<Option<u64>, ConfigError> {
    match reader.text("filesize")? {
        Some(text) if text.contains('-') => {
            not_supported(reader, "filesize", "files of random lengths are not supported", "write one length")
        }
        _ => Ok(reader.int("filesize", 0..=MAX_SIZE_BYTES)?.filter(|bytes| *bytes > 0)),
    }
}

/// Reads the begin of a region, or the distance between the regions of two clones.
fn offset(reader: &Reader<'_>, name: &str) -> Result<Length, ConfigError> {
    let text = reader.text(name)?.unwrap_or("0");
    if let Some(percent) = percent(text) {
        return Ok(Length::Percent(reader.int_of(name, percent, 0..=100)?));
    }
    match length(reader, name)? {
        Some(Length::Bytes(bytes)) => reader.whole_sectors(name, bytes, "").map(Length::Bytes),
        length => Ok(length.unwrap_or(Length::Bytes(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn lists_of_names() {
        assert_eq!(names("a"), ["a"]);
        assert_eq!(names("a:b"), ["a", "b"]);
        assert_eq!(names(r"/dev/dsk/c0t0d0\:1:b"), ["/dev/dsk/c0t0d0:1", "b"]);
        assert_eq!(names(r"a\b::"), [r"a\b"]);
        assert!(names("").is_empty());
    }
}
