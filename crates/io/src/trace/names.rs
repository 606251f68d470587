//! The names of the numbers in events: the files of a program, and the names not yet written.
//!
//! # Why
//! Events name classes and files by number. A trace must contain their names, even of those made after it began.
//!
//! # How it works
//! [`FileNames`] gives numbers to files and keeps the path of each number until another file gets it. Every entry has
//! the count of changes at which it was made, so that [`NamesTold`] finds the entries added since its last call.
//!
//! # Limits
//! A number is reused only while more than [`USED_AGAIN_AFTER`] are free, because buffered events of the old file would
//! get the new file's name. A path is kept as text; bytes that are not UTF-8 are replaced by a mark.
//!
//! # Example
//! ```text
//! let number = table.take("/data/x".as_ref(), 0);      // a file is made
//! told.what_is_new(&classes, &table)                   // names with that file, then `None`
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::format::{ClassName, FileName, Names};
use crate::class::Classes;

/// Freed file numbers that are not reused yet, so that buffered events of their files are written first.
const USED_AGAIN_AFTER: usize = 64;

/// The files of a program by number. Freed numbers are reused later, oldest first.
#[derive(Default)]
pub(crate) struct FileNames(Mutex<Files>);

#[derive(Default)]
struct Files {
    entries: Vec<Entry>,
    free: VecDeque<u32>,
    changes: u64,
}

struct Entry {
    path: PathBuf,
    disk: u16,
    changed_at: u64,
}

impl FileNames {
    /// Returns a number for a new file.
    pub(crate) fn take(&self, path: &Path, disk: u16) -> u32 {
        let mut files = self.files();
        files.changes += 1;
        let entry = Entry { path: path.to_owned(), disk, changed_at: files.changes };
        let used_again = if files.free.len() > USED_AGAIN_AFTER { files.free.pop_front() } else { None };
        if let Some(number) = used_again
            && let Some(place) = files.entries.get_mut(number as usize)
        {
            *place = entry;
            return number;
        }
        files.entries.push(entry);
        files.entries.len() as u32 - 1
    }

    /// Frees the number of a file.
    pub(crate) fn give_back(&self, number: u32) {
        self.files().free.push_back(number);
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        // The table is complete after every change, so a panic elsewhere leaves it valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names that a trace has written so far.
#[derive(Default)]
pub(super) struct NamesTold {
    has_begun: bool,
    classes_epoch: u64,
    classes: Vec<ClassName>,
    file_changes: u64,
}

impl NamesTold {
    /// Returns the new or changed names; `None` if there are none. The first call returns all names, including those of
    /// the disks.
    pub(super) fn what_is_new(&mut self, classes: &Classes, files: &FileNames, disks: &[String]) -> Option<Names> {
        let mut names = Names::default();
        if !std::mem::replace(&mut self.has_begun, true) {
            names.disks = (0..).zip(disks.iter().cloned()).collect();
        }

        let epoch = classes.epoch();
        if epoch != self.classes_epoch {
            self.classes_epoch = epoch;
            for (at, info) in classes.list().into_iter().enumerate() {
                let class = ClassName { name: info.name.to_string(), shares: info.shares };
                if self.classes.get(at) != Some(&class) {
                    names.classes.insert(at as u16, class.clone());
                }
                match self.classes.get_mut(at) {
                    Some(known) => *known = class,
                    None => self.classes.push(class),
                }
            }
        }

        let table = files.files();
        if table.changes != self.file_changes {
            let is_new = |(_, entry): &(u32, &Entry)| entry.changed_at > self.file_changes;
            let name = |entry: &Entry| FileName { path: entry.path.to_string_lossy().into_owned(), disk: entry.disk };
            let new = (0..).zip(&table.entries).filter(is_new).map(|(number, entry)| (number, name(entry)));
            names.files = new.collect();
            self.file_changes = table.changes;
        }

        (names != Names::default()).then_some(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told_once() {
        let (classes, files, mut told) = (Classes::new(), FileNames::default(), NamesTold::default());
        let a = files.take("/a".as_ref(), 0);
        let names = told.what_is_new(&classes, &files, &["disk".to_owned()]).unwrap();
        assert_eq!((names.classes.len(), names.files[&a].path.as_str(), names.disks.len()), (1, "/a", 1));
        assert_eq!(told.what_is_new(&classes, &files, &[]), None);
        files.give_back(a);
        (0..USED_AGAIN_AFTER).for_each(|_| files.give_back(files.take("/other".as_ref(), 0)));
        assert!(told.what_is_new(&classes, &files, &[]).is_some());
        let class = classes.add_class("late", None, 7).unwrap();
        let b = files.take("/b".as_ref(), 3);
        assert_eq!(a, b, "the number is used again");
        let names = told.what_is_new(&classes, &files, &[]).unwrap();
        assert_eq!(names.files.into_iter().collect::<Vec<_>>(), [(b, FileName { path: "/b".into(), disk: 3 })]);
        assert_eq!(names.classes.into_keys().collect::<Vec<_>>(), [class.0]);
        classes.set_shares(class, 9).unwrap();
        assert_eq!(told.what_is_new(&classes, &files, &[]).unwrap().classes[&class.0].shares, 9);
        assert_eq!(told.what_is_new(&classes, &files, &[]), None);
    }
}
