//! Staged files: created beside their destination, locked while they are written, and then moved into place.
//!
//! # How it works
//! A staged file is called `.plimsoll-store#` and 20 digits. `LocalFileSystem` takes such names for its own temporary
//! files (which have few digits) and lists neither. The writer holds `flock` on the file, which the kernel releases
//! when the process ends. So a staged file that is not locked is a leftover, and [`remove_leftovers`] may run beside
//! other writers.
//!
//! No function here is async: each waits for the file system.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

const PREFIX: &str = ".plimsoll-store#";

/// Digits after the prefix: nanoseconds since 1970 have 19 until 2286, and fit 64 bits until 2554.
const DIGITS: usize = 20;

/// Most attempts to create a file while other processes keep removing its directory.
const ATTEMPTS: usize = 16;

/// A temporary file, removed when dropped unless published.
pub(crate) struct Staged {
    /// Keeps the lock.
    file: File,
    path: PathBuf,
    is_named: bool,
}

/// The action if the destination exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Replace,
    Refuse,
}

impl Staged {
    /// Creates an empty file in `directory`. If the directory is missing, creates it durably.
    pub(crate) fn create(directory: &Path) -> io::Result<Staged> {
        let mut failed = None;
        for _ in 0..ATTEMPTS {
            let path = directory.join(next_name());
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    let staged = Staged { file, path, is_named: true };
                    if staged.lock()? {
                        return Ok(staged);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create_directories(directory)?;
                    failed = Some(error);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => failed = Some(error),
                Err(error) => return Err(error),
            }
        }

        Err(failed.unwrap_or_else(|| io::Error::other("others keep removing temporary files as soon as they are made")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock. Returns whether the file still exists: before it was locked, another process may have removed
    /// it as a leftover.
    fn lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(self.file.metadata()?.nlink() > 0),
            Err(TryLockError::WouldBlock) => Ok(false),
            // Without locks leftovers cannot be recognised, so none are removed.
            Err(TryLockError::Error(_)) => Ok(true),
        }
    }

    /// Makes the file the object at `to`, durably. The file must be synced. Returns the object's entity tag.
    ///
    /// # Errors
    /// With [`Existing::Refuse`] there is no new object then: a caller that tries again would take it for another's.
    pub(crate) fn publish(self, to: &Path, existing: Existing) -> io::Result<String> {
        self.publish_with(to, existing, sync_directory)
    }

    fn publish_with(
        mut self,
        to: &Path,
        existing: Existing,
        sync_directory: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<String> {
        let meta = self.file.metadata()?;
        match existing {
            Existing::Replace => std::fs::rename(&self.path, to)?,
            Existing::Refuse => rename_to_free(&self.path, to)?,
        }
        self.is_named = false;

        if let Err(error) = sync_directory(to.parent().unwrap_or(to)) {
            // Another writer may have replaced the object by now.
            let is_ours = || to.symlink_metadata().is_ok_and(|now| is_same_file(&now, &meta));
            if existing == Existing::Refuse && is_ours() {
                let _ = std::fs::remove_file(to);
            }
            return Err(error);
        }
        Ok(e_tag(&meta))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_named {
            // If this fails, the file is removed as a leftover when the store is opened next.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Is held while names of objects change depending on what they lead to: where both lead to one file, `rename(2)` does
/// nothing and leaves the old name. Other processes do not see it.
static NAMES: Mutex<()> = Mutex::new(());

/// Makes `to` another name of the file `from`, durably.
pub(crate) fn link(from: &Path, to: &Path, existing: Existing) -> io::Result<()> {
    let directory = to.parent().unwrap_or(to);
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        match link_once(from, to, existing) {
            Ok(()) => return sync_directory(directory),
            // The directory is missing, or a store that was just opened has taken the staged name for a leftover.
            Err(error) if error.kind() == io::ErrorKind::NotFound && from.symlink_metadata().is_ok() => {
                create_directories(directory)?;
                failed = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::other("others keep removing names as soon as they are made")))
}

fn link_once(from: &Path, to: &Path, existing: Existing) -> io::Result<()> {
    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match existing {
        Existing::Refuse => std::fs::hard_link(from, to),
        Existing::Replace => {
            let staged = to.parent().unwrap_or(to).join(next_name());
            std::fs::hard_link(from, &staged)?;
            let renamed = std::fs::rename(&staged, to);
            // `rename` leaves the staged name if `to` was a name of the same file already. Otherwise there is none.
            let _ = std::fs::remove_file(&staged);
            renamed
        }
    }
}

/// Renames `from` to `to` durably. Replaces what was at `to`, also if it is a copy of `from`, which is another name of
/// the same file: `rename(2)` would do nothing then.
pub(crate) fn rename(from: &Path, to: &Path, existing: Existing) -> io::Result<()> {
    // A directory is no object, but `rename(2)` would move all that are below it.
    if from.symlink_metadata()?.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }

    let (source, target) = (from.parent().unwrap_or(from), to.parent().unwrap_or(to));
    let mut renamed = rename_once(from, to, existing);
    if renamed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) && !target.exists() {
        create_directories(target)?;
        renamed = rename_once(from, to, existing);
    }
    renamed?;

    sync_directory(target)?;
    if source == target { Ok(()) } else { sync_directory(source) }
}

fn rename_once(from: &Path, to: &Path, existing: Existing) -> io::Result<()> {
    if existing == Existing::Refuse {
        return rename_to_free(from, to);
    }

    let _names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let was = from.symlink_metadata()?;
    let is_copy = to.symlink_metadata().is_ok_and(|other| is_same_file(&other, &was));
    if from == to {
        return Ok(());
    }
    if !is_copy {
        return std::fs::rename(from, to);
    }

    // Take the name away in one step, and look at what it led to: a put may have come between.
    let staged = from.parent().unwrap_or(from).join(next_name());
    std::fs::rename(from, &staged)?;
    // Does nothing to the copy.
    match std::fs::rename(&staged, to) {
        // A store that was just opened has taken the name for a leftover. The copy is there.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    let _ = std::fs::remove_file(&staged);
    Ok(())
}

/// Renames `from` to `to`, or refuses if there is something at `to`: in one step, if the file system can.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // This file system (NFS, for one) or kernel cannot.
        Err(Errno::INVAL | Errno::NOSYS) => move_to_free(from, to),
        renamed => Ok(renamed?),
    }
}

/// Does [`rename_to_free`] in two steps: a put to `from` between them is lost.
fn move_to_free(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from).inspect_err(|_| drop(std::fs::remove_file(to)))
}

fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Returns a name that no other call of this process returns. If another process uses it, `create_new` fails.
fn next_name() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let next = |last: u64| Some(now_ns.max(last + 1));
    let last = LAST.fetch_update(Relaxed, Relaxed, next).unwrap_or_default();
    format!("{PREFIX}{:0DIGITS$}", now_ns.max(last + 1))
}

fn is_staged_name(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Removes the staged files below `directory` whose writers have died, as far as this user may.
pub(crate) fn remove_leftovers(directory: &Path) -> io::Result<()> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if is_passed_over(&error) => continue,
            entries => entries?,
        };

        for entry in entries {
            let entry = entry?;
            // The type of the entry itself: symbolic links are not followed.
            let kind = match entry.file_type() {
                Err(error) if is_passed_over(&error) => continue,
                kind => kind?,
            };
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.file_name().to_str().is_some_and(is_staged_name) {
                remove_if_left(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn remove_if_left(path: &Path) -> io::Result<()> {
    let pass_over = |error: io::Error| if is_passed_over(&error) { Ok(()) } else { Err(error) };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return pass_over(error),
    };
    // A live writer holds the lock. Remove the file under the lock, so that no new writer starts meanwhile.
    match file.try_lock() {
        Ok(()) => std::fs::remove_file(path).or_else(pass_over),
        Err(_) => Ok(()),
    }
}

/// Returns whether the error means that a file or directory is gone, or that it is not this user's to read or remove.
fn is_passed_over(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Creates `directory` and its missing parents, and syncs the directories that got new entries.
fn create_directories(directory: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    std::fs::create_dir_all(directory)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync_directory)
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the file's entity tag, in the form of `LocalFileSystem`.
fn e_tag(meta: &Metadata) -> String {
    let since_epoch = meta.modified().ok().and_then(|modified| modified.duration_since(UNIX_EPOCH).ok());
    let (inode, modified_us) = (meta.ino(), since_epoch.unwrap_or_default().as_micros());
    format!("\"{inode:x}-{modified_us:x}-{:x}\"", meta.len())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let names =
            std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn only_leftovers_of_ours_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let kept = [".plimsoll-store#1", ".plimsoll-store#0123456789012345678x", "a", "a#1", "a#01234567890123456789"];
        for name in kept.iter().chain(&[".plimsoll-store#01234567890123456789"]) {
            std::fs::write(root.path().join(name), "x").unwrap();
        }
        let written = Staged::create(&root.path().join("b/c")).unwrap();
        let left = next_name();
        std::fs::write(root.path().join("b/c").join(&left), "x").unwrap();
        assert!(is_staged_name(&left));
        remove_leftovers(root.path()).unwrap();
        let mut expected = kept.to_vec();
        expected.push("b");
        expected.sort_unstable();
        assert_eq!(names(root.path()), expected);
        assert_eq!(names(&root.path().join("b/c")), [written.path().file_name().unwrap().to_str().unwrap()]);
        drop(written);
        assert!(names(&root.path().join("b/c")).is_empty());
    }

    /// Root may read and remove all files: then this one is removed.
    #[test]
    fn leftovers_of_other_users_are_passed_over() {
        let root = tempfile::tempdir().unwrap();
        let left = root.path().join(next_name());
        std::fs::write(&left, "x").unwrap();
        std::fs::set_permissions(&left, std::fs::Permissions::from_mode(0o000)).unwrap();
        let is_readable = File::open(&left).is_ok();
        remove_leftovers(root.path()).unwrap();
        assert_eq!(left.exists(), !is_readable);
    }

    #[test]
    fn an_object_is_replaced_or_refused() {
        let root = tempfile::tempdir().unwrap();
        let to = root.path().join("object");
        let publish = |existing| Staged::create(root.path())?.publish(&to, existing);
        publish(Existing::Refuse).unwrap();
        let inode = std::fs::metadata(&to).unwrap().ino();
        assert_eq!(publish(Existing::Refuse).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::metadata(&to).unwrap().ino(), inode);
        publish(Existing::Replace).unwrap();
        assert_ne!(std::fs::metadata(&to).unwrap().ino(), inode);
        assert_eq!(names(root.path()), ["object"], "nothing is left beside it");
    }

    /// The object stayed, and the next attempt was told that it exists.
    #[test]
    fn an_object_whose_name_is_not_durable_is_not_created() {
        let root = tempfile::tempdir().unwrap();
        let to = root.path().join("object");
        let publish = |existing, end: fn(&Path) -> io::Result<()>| {
            Staged::create(root.path())?.publish_with(&to, existing, end).map(drop)
        };
        let fails = |_: &Path| Err(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(publish(Existing::Refuse, fails).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(names(root.path()).is_empty());
        publish(Existing::Refuse, |_| Ok(())).unwrap();
        assert_eq!(publish(Existing::Replace, fails).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(names(root.path()), ["object"]);
    }

    /// The copy came after the rename had looked for one: both names were left.
    #[test]
    fn a_rename_beside_a_copy_leaves_one_name() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        for existing in [Existing::Replace, Existing::Refuse] {
            for round in 0..1000 {
                std::fs::write(&from, "x").unwrap();
                let both = Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        both.wait();
                        // If the rename was first, there is nothing to copy.
                        let _ = link_once(&from, &to, existing);
                    });
                    both.wait();
                    rename_once(&from, &to, Existing::Replace).unwrap();
                });
                assert_eq!(names(root.path()), ["to"], "round {round}");
                std::fs::remove_file(&to).unwrap();
            }
        }
    }

    /// The source was linked to the target and then deleted: a put to the source in between was lost.
    #[test]
    fn a_put_beside_a_rename_that_replaces_nothing_is_kept() {
        let root = tempfile::tempdir().unwrap();
        let (from, to) = (root.path().join("from"), root.path().join("to"));
        for round in 0..1000 {
            std::fs::write(&from, "old").unwrap();
            let put = Staged::create(root.path()).unwrap();
            std::fs::write(put.path(), "new").unwrap();
            let both = Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    both.wait();
                    put.publish(&from, Existing::Replace).unwrap();
                });
                both.wait();
                rename_once(&from, &to, Existing::Refuse).unwrap();
            });

            // The rename was before the put or after it.
            match std::fs::read(&to).unwrap().as_slice() {
                b"new" => assert_eq!(names(root.path()), ["to"], "round {round}"),
                _ => assert_eq!(std::fs::read(&from).unwrap(), b"new", "round {round}"),
            }
            let _ = std::fs::remove_file(&from);
            std::fs::remove_file(&to).unwrap();
        }
    }

    #[test]
    fn a_rename_that_replaces_nothing_refuses_what_is_there_and_what_is_no_object() {
        let root = tempfile::tempdir().unwrap();
        let [from, to, copy, below] = ["from", "to", "copy", "below/object"].map(|name| root.path().join(name));
        let failed = |renamed: io::Result<()>| renamed.unwrap_err().kind();
        for rename in [rename_to_free, move_to_free, |from: &Path, to: &Path| rename(from, to, Existing::Refuse)] {
            std::fs::write(&from, "x").unwrap();
            std::fs::write(&to, "y").unwrap();
            std::fs::hard_link(&from, &copy).unwrap();
            for there in [&to, &copy, &from] {
                assert_eq!(failed(rename(&from, there)), io::ErrorKind::AlreadyExists);
            }
            std::fs::remove_file(&to).unwrap();
            rename(&from, &to).unwrap();
            assert_eq!(
                (names(root.path()), std::fs::read(&to).unwrap()),
                (vec!["copy".into(), "to".into()], b"x".into())
            );
            assert_eq!(failed(rename(&from, &to)), io::ErrorKind::NotFound);
            [&to, &copy].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
        }

        std::fs::write(&from, "x").unwrap();
        rename(&from, &below, Existing::Refuse).unwrap();
        for existing in [Existing::Refuse, Existing::Replace] {
            for no_object in [from.as_path(), below.parent().unwrap()] {
                let renamed = rename(no_object, &root.path().join("more/to"), existing);
                assert_eq!(failed(renamed), io::ErrorKind::NotFound, "{}", no_object.display());
            }
        }
        assert_eq!(names(root.path()), ["below"], "no directory was made");
    }

    #[test]
    fn names_are_never_used_twice() {
        let mut names: Vec<String> = (0..10_000).map(|_| next_name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 10_000);
    }
}
