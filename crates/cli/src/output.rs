//! The file of a result: checked to be writable before the work, complete or absent afterwards.
//!
//! **Why.** A measurement takes minutes. An unwritable file must be reported before it, and a reader must never see
//! half a file.
//!
//! **How.** [`Output::check`] checks the path, and creates and removes a file beside it. [`Output::write`] writes a
//! file beside it and renames that file onto the path. Without `--force` the path is first created exclusively, so that
//! a file that appeared meanwhile is kept. A directory that accepts no files is bad input; a full or read-only one is a
//! fault of the machine. Links are followed: their target is replaced, not the link. A path that is not a regular file
//! (a pipe, `/dev/null`) is written in place.
//!
//! **Limits.** A machine that stops between creating and renaming leaves an empty file.
//!
//! **Example.** `-o io.yaml` of process 42 writes `.plimsoll-output-42.tmp`, then renames it to `io.yaml`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_show::plot::{self, Chart};

use crate::failure::Failure;

#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    force: bool,
}

/// Refuses `output`, the value of `flag`, if it is the file `input` under any name: writing would destroy that file.
pub(crate) fn refuse_input(output: &Path, flag: &str, input: &Path) -> Result<(), Failure> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|of| (of.dev(), of.ino(), of.is_file()));
    match identity(output) {
        Some(found @ (.., true)) if Some(found) == identity(input) => Err(Failure::Input(format!(
            "{flag} would write over {}, which is read: name another file",
            input.display()
        ))),
        _ => Ok(()),
    }
}

impl Output {
    /// Checks that `path`, the value of `flag`, can be written; an existing file only with `force`. Changes nothing.
    pub(crate) fn check(path: &Path, force: bool, flag: &str) -> Result<Output, Failure> {
        if path.is_dir() {
            return Err(Failure::Input(format!("{} is a directory: name a file for {flag}", path.display())));
        }
        if path.exists() && !force {
            return Err(Failure::Input(format!("{} exists: pass --force to write over it", path.display())));
        }

        let output = Output { path: path.canonicalize().unwrap_or_else(|_| path.to_owned()), force };
        let directory = output.directory();
        if !directory.is_dir() {
            let place = directory.display();
            return Err(Failure::Input(format!("{place}: no such directory, so the output has no place")));
        }

        if !output.is_special() {
            output.make_temporary().and_then(|(_, temporary)| fs::remove_file(temporary)).map_err(|error| {
                let message = format!(
                    "cannot write into {}, where {} is to go: {error}; name another place for {flag}",
                    directory.display(),
                    path.display()
                );
                match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
                        Failure::Machine(message)
                    }
                    _ => Failure::Input(message),
                }
            })?;
        }
        Ok(output)
    }

    /// Writes all of `text`, or nothing.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let written = if self.is_special() {
            OpenOptions::new().write(true).open(&self.path).and_then(|mut file| file.write_all(text.as_bytes()))
        } else {
            self.replace(text)
        };
        written.map_err(|error| Failure::Machine(format!("cannot write {}: {error}", self.path.display())))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let (mut file, temporary) = self.make_temporary()?;
        let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
        let moved = written.and_then(|()| self.move_from(&temporary));
        if moved.is_err() {
            // Report the first error, not one of the cleanup.
            let _ = fs::remove_file(&temporary);
        }
        moved
    }

    fn move_from(&self, temporary: &Path) -> io::Result<()> {
        if !self.force {
            File::create_new(&self.path)?;
            return fs::rename(temporary, &self.path).inspect_err(|_| {
                // Remove the empty file that this process has just created.
                let _ = fs::remove_file(&self.path);
            });
        }
        if let Ok(metadata) = fs::metadata(&self.path) {
            fs::set_permissions(temporary, metadata.permissions())?;
        }
        fs::rename(temporary, &self.path)
    }

    /// Creates a new file beside the path.
    fn make_temporary(&self) -> io::Result<(File, PathBuf)> {
        let path = self.directory().join(format!(".plimsoll-output-{}.tmp", std::process::id()));
        Ok((File::create_new(&path)?, path))
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns whether the path exists and is not a regular file, so that no file can replace it.
    fn is_special(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file())
    }
}

/// A directory that gets a file for each picture.
pub(crate) struct Pictures {
    directory: PathBuf,
    force: bool,
}

impl Pictures {
    /// Checks that the directory exists, and that the pictures of these names can be written into it.
    pub(crate) fn check(directory: &Path, force: bool, names: &[&str]) -> Result<Pictures, Failure> {
        if !directory.is_dir() {
            return Err(Failure::Input(format!("--pictures {}: no such directory", directory.display())));
        }
        let pictures = Pictures { directory: directory.to_owned(), force };
        names.iter().try_for_each(|name| pictures.file(name).map(drop))?;
        Ok(pictures)
    }

    pub(crate) fn write(&self, name: &str, title: &str, charts: &[Chart]) -> Result<(), Failure> {
        self.file(name)?.write(&plot::svg(title, charts))
    }

    fn file(&self, name: &str) -> Result<Output, Failure> {
        Output::check(&self.directory.join(format!("{name}.svg")), self.force, "--pictures")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_check_leaves_nothing_and_a_write_only_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io.yaml");
        let output = Output::check(&path, false, "--output").unwrap();
        assert!(names(dir.path()).is_empty());
        output.write("disks: []\n").unwrap();
        assert_eq!(names(dir.path()), ["io.yaml"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "disks: []\n");
    }

    #[test]
    fn a_file_that_appeared_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("io.yaml");
        let output = Output::check(&path, false, "--output").unwrap();
        fs::write(&path, "precious").unwrap();
        let error = output.write("disks: []\n").unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("io.yaml: File exists"), "{error}");
        assert_eq!(
            (names(dir.path()), fs::read_to_string(&path).unwrap()),
            (vec!["io.yaml".into()], "precious".into())
        );
        assert!(Output::check(&path, false, "--output").unwrap_err().to_string().contains("--force"));
    }

    #[test]
    fn force_replaces_what_a_link_leads_to_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "older and longer than what comes").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        Output::check(&link, true, "--output").unwrap().write("new").unwrap();
        assert_eq!(names(dir.path()), ["file", "link"]);
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_device_is_written_and_stays_one() {
        let null = Path::new("/dev/null");
        Output::check(null, true, "--output").unwrap().write("new").unwrap();
        assert!(!null.metadata().unwrap().is_file());
    }

    #[test]
    fn places_without_room_are_refused_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let cases = [
            (dir.path().to_owned(), 2, "is a directory"),
            (dir.path().join("missing/io.yaml"), 2, "no such directory"),
            // No process can create files there, not even root's.
            ("/proc/self/io.yaml".into(), 2, "cannot write into /proc/self"),
        ];
        for (path, code, part) in cases {
            let error = Output::check(&path, false, "--output").unwrap_err();
            assert_eq!(error.exit_code(), code, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
