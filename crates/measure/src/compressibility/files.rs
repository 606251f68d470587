//! Lists the files to sample, and reads their blocks by number.
//!
//! **Why.** A directory of many files is treated as one sequence of blocks, so a large file gets many samples, and a
//! small one few.
//!
//! **How.** [`Files::find`] lists the files in the order of their paths. [`BlockReader`] takes ascending block numbers,
//! and keeps the current file open.
//!
//! **Limits.** Files that appear or grow meanwhile are not seen. If a block has vanished, its file counts as
//! unreadable.
//!
//! **Example.** Files of 10 and 20 KiB have 2 and 5 blocks of 4 KiB: number 3 is the second block of the second file.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::{Error, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::ExamineError;
use crate::load::Stop;

#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    is_directory: bool,
    /// Paths with lengths in bytes, none empty.
    list: Vec<(PathBuf, u64)>,
    /// Files and directories that could not be read.
    unreadable: BTreeSet<PathBuf>,
}

impl Files {
    /// Finds the file or device at `path`, or the files below it. Stops early if `stop` asks for it.
    pub(super) fn find(path: &Path, stop: &Stop, on_turn: &mut dyn FnMut(f64)) -> Result<Files, ExamineError> {
        let name = || path.display().to_string();
        let unreadable = |error| ExamineError::Read { path: name(), error };
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        let kind = metadata.file_type();
        let mut files =
            Files { path: path.to_owned(), is_directory: kind.is_dir(), list: Vec::new(), unreadable: BTreeSet::new() };

        if kind.is_dir() {
            std::fs::read_dir(path).map_err(unreadable)?;
            files.walk(&metadata, stop, on_turn);
        } else if kind.is_file() || kind.is_block_device() {
            // The metadata of a device has no length, but its end can be sought.
            let bytes = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0))).map_err(unreadable)?;
            files.list.extend((bytes > 0).then(|| (path.to_owned(), bytes)));
        } else {
            return Err(ExamineError::NotData(name()));
        }

        match (files.list.is_empty(), files.is_directory) {
            (true, _) if stop.is_asked() => Err(ExamineError::Interrupted),
            (true, false) => Err(ExamineError::Empty(name())),
            (true, true) => Err(files.none_in_directory()),
            (false, _) => Ok(files),
        }
    }

    /// Collects regular files on the file system of `top`.
    fn walk(&mut self, top: &Metadata, stop: &Stop, on_turn: &mut dyn FnMut(f64)) {
        let mut waiting = vec![self.path.clone()];
        while let Some(directory) = waiting.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                self.unreadable.insert(directory);
                continue;
            };

            for entry in entries {
                if stop.is_asked() {
                    return;
                }
                let Ok(entry) = entry else {
                    self.unreadable.insert(directory.clone());
                    break;
                };
                // For a link, this is the metadata of the link.
                match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() && metadata.dev() == top.dev() => waiting.push(entry.path()),
                    Ok(metadata) if metadata.is_file() && metadata.len() > 0 => {
                        self.list.push((entry.path(), metadata.len()));
                    }
                    Ok(_) => {}
                    Err(_) => drop(self.unreadable.insert(entry.path())),
                }
            }

            on_turn(0.0);
        }
        // Directories list their entries in no particular order.
        self.list.sort();
    }

    pub(super) fn count(&self) -> u64 {
        self.list.len() as u64
    }

    pub(super) fn unreadable(&self) -> u64 {
        self.unreadable.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.list.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    /// Returns the whole blocks of `block_bytes` (at least 1) in all files.
    pub(super) fn blocks(&self, block_bytes: u32) -> u64 {
        self.list.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(bytes / u64::from(block_bytes)))
    }

    /// Returns why no block of at least `block_bytes` could be read.
    pub(super) fn nothing_read(&self, block_bytes: u32) -> ExamineError {
        let file_bytes = self.list.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        if file_bytes < u64::from(block_bytes) {
            return ExamineError::TooShort { path: self.path.display().to_string(), file_bytes, block_bytes };
        }
        self.none_in_directory()
    }

    fn none_in_directory(&self) -> ExamineError {
        ExamineError::NoFiles { path: self.path.display().to_string(), unreadable: self.unreadable() }
    }
}

/// Reads blocks by ascending numbers.
pub(super) struct BlockReader<'a> {
    files: &'a mut Files,
    block_bytes: u32,
    /// Index of the current file in the list, and the number of blocks before it.
    at: usize,
    blocks_before: u64,
    /// The current file: `None` before it is opened, or the error of opening it.
    file: Option<Result<File, Error>>,
}

impl<'a> BlockReader<'a> {
    pub(super) fn new(files: &'a mut Files, block_bytes: u32) -> BlockReader<'a> {
        BlockReader { files, block_bytes, at: 0, blocks_before: 0, file: None }
    }

    /// Fills `block`. Returns `false` if a file of a directory cannot be read. Numbers must not fall.
    ///
    /// # Errors
    /// [`ExamineError::Read`] if the file named by the caller cannot be read.
    pub(super) fn read(&mut self, number: u64, block: &mut [u8]) -> Result<bool, ExamineError> {
        let block_bytes = u64::from(self.block_bytes);
        let path = loop {
            let Some((path, bytes)) = self.files.list.get(self.at) else { return Ok(false) };
            if number - self.blocks_before < bytes / block_bytes {
                break path;
            }
            self.blocks_before += bytes / block_bytes;
            self.at += 1;
            self.file = None;
        };

        let offset = (number - self.blocks_before) * block_bytes;
        let error = match self.file.get_or_insert_with(|| File::open(path)) {
            Ok(file) => match file.read_exact_at(block, offset) {
                Ok(()) => return Ok(true),
                Err(error) => Error::new(error.kind(), error.to_string()),
            },
            Err(error) => Error::new(error.kind(), error.to_string()),
        };

        if !self.files.is_directory {
            return Err(ExamineError::Read { path: path.display().to_string(), error });
        }
        self.files.unreadable.insert(path.clone());
        Ok(false)
    }
}
