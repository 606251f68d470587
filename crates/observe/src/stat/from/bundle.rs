//! Directories and archives of saved figures.
//!
//! # Why
//! A support bundle is a directory, a tar or a compressed file, with many files that are not about disks. Its reader
//! wants all its figures without having to name files.
//!
//! # How it works
//! [`directory`] lists the files of a directory and those below it, `unpack` the files of a tar or a gzip file, found
//! by their first bytes, one inside another; both in the order of their names, with numbers by value. The caller reads
//! files with figures of disks, and leaves out the others with a note.
//!
//! # Limits
//! All archives together may unpack to at most `UNPACKED_BYTES_MAX`, a directory may have `FILES_MAX` files. Links are
//! not followed. Only gzip: other compressed files are refused by name.
//!
//! # Example
//! `bundle.tar.gz` with `disks-2.stat` and `disks-10.stat`: a gzip file with a tar with two recordings, in this order.

use std::cmp::Ordering;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use plimsoll_figures::units::format_bytes_binary;

/// Most bytes of all archives when they are unpacked, each level of archives in archives counted.
const UNPACKED_BYTES_MAX: u64 = 512 << 20;
/// Bytes counted for each file beside its length, so that empty files are bounded, too.
const FILE_BYTES: u64 = 4096;
const FILES_MAX: usize = 10_000;
/// Offset and content of a tar's magic.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// A file and its name; in an archive `ARCHIVE/NAME`.
pub(super) type Named = (String, Vec<u8>);

/// Returns the files below a directory, in the order of their names.
pub fn directory(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut left) = (Vec::new(), vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        for entry in std::fs::read_dir(&path)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
        if files.len() > FILES_MAX {
            return Err(io::Error::other(format!("more than {FILES_MAX} files: name the directory of one story")));
        }
    }
    files.sort_by(|a, b| by_numbers(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(files)
}

/// Returns the files inside a tar or gzip file, in the order of their names; `None` if it is neither. Adds their length
/// to `unpacked_bytes`.
pub(super) fn unpack(name: &str, bytes: &[u8], unpacked_bytes: &mut u64) -> Option<Result<Vec<Named>, String>> {
    if bytes.starts_with(b"\x1f\x8b") {
        let inside = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".tgz")).unwrap_or(name);
        return Some(bounded(MultiGzDecoder::new(bytes), unpacked_bytes).map(|bytes| vec![(inside.to_owned(), bytes)]));
    }
    let (at, magic) = TAR_MAGIC;
    let is_tar = bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    is_tar.then(|| files_of_tar(name, bytes, unpacked_bytes))
}

fn files_of_tar(name: &str, bytes: &[u8], unpacked_bytes: &mut u64) -> Result<Vec<Named>, String> {
    let said = |error: io::Error| format!("the tar is damaged ({error}): fetch it again");
    let mut files = Vec::new();
    for entry in tar::Archive::new(bytes).entries().map_err(said)? {
        let entry = entry.map_err(said)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = format!("{name}/{}", String::from_utf8_lossy(&entry.path_bytes()));
        files.push((path, bounded(entry, unpacked_bytes)?));
    }
    files.sort_by(|(a, _), (b, _)| by_numbers(a, b));
    Ok(files)
}

/// Reads all of a file in an archive, and adds its length to `unpacked_bytes`.
fn bounded(input: impl io::Read, unpacked_bytes: &mut u64) -> Result<Vec<u8>, String> {
    let left_bytes = UNPACKED_BYTES_MAX.saturating_sub(*unpacked_bytes);
    let mut bytes = Vec::new();
    input
        .take(left_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("the archive is damaged ({error}): fetch it again"))?;
    *unpacked_bytes += bytes.len() as u64 + FILE_BYTES;
    if *unpacked_bytes > UNPACKED_BYTES_MAX {
        let most = format_bytes_binary(UNPACKED_BYTES_MAX);
        return Err(format!("the archives unpack to more than {most}: name their files apart"));
    }
    Ok(bytes)
}

/// Compares names; digits in them count as numbers, so that `a-2` stands before `a-10`.
fn by_numbers(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| {
        let mut parts: Vec<(String, u64)> = Vec::new();
        let mut rest = name.to_owned();
        while !rest.is_empty() {
            let behind = rest.split_off(rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()));
            let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
            let (number, after) = behind.split_at(digits);
            parts.push((rest, number.parse().unwrap_or(u64::MAX)));
            rest = after.to_owned();
        }
        parts
    };
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_bound() {
        let mut unpacked_bytes = UNPACKED_BYTES_MAX - FILE_BYTES - 5;
        assert_eq!(bounded(&b"12345"[..], &mut unpacked_bytes).as_deref(), Ok(&b"12345"[..]));
        let error = bounded(&b"1"[..], &mut unpacked_bytes).unwrap_err();
        assert!(error.contains("to more than 512 MiB"), "{error}");
    }
}
