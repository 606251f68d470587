//! The file of a result: checked to be writable before the work, complete or absent afterwards.
//!
//! **Why.** A measurement takes minutes. An unwritable file must be reported before it, and a reader must never see
//! half a file.
//!
//! **How.** [`Output::check`] checks the path, and creates and removes a file beside it. [`Output::begin`] makes a file
//! beside it, and [`Unfinished::finish`] renames that file onto the path; [`Output::write`] does both with a text.
//! Without `--force` the path is first created exclusively, so that a file that appeared meanwhile is kept. A directory
//! that accepts no files is bad input; a full or read-only one is a fault of the machine. Links are followed: their
//! target is replaced, not the link; a link to nothing is refused. A path that is not a regular file (a pipe,
//! `/dev/null`) is written in place, except a block device, which is refused: no result is worth a disk.
//!
//! **Limits.** A machine that stops between creating and renaming leaves an empty file, and a killed process the file
//! beside the path.
//!
//! **Example.** `-o io.yaml` of process 42 writes `.plimsoll-output-42.tmp`, then renames it to `io.yaml`. If there is
//! such a file already, of a process 42 of another container, it is `.plimsoll-output-42-1.tmp`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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

/// Returns the failure of a place that accepts no file: a full or read-only one is a fault of the machine, any other is
/// bad input.
pub(crate) fn no_place(error: &io::Error, message: String) -> Failure {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => Failure::Machine(message),
        _ => Failure::Input(message),
    }
}

/// Says that `--output -` prints `what`, and that `--format` names another text for stdout.
pub(crate) fn two_on_stdout(what: &str) -> String {
    format!("--output - prints {what} on stdout, and --format something else: leave out one, or give --output a file")
}

/// Refuses files, each with its flag, of which one would be written twice, or read and overwritten.
pub(crate) fn refuse_same<'a>(files: impl IntoIterator<Item = (&'a str, Option<&'a Path>)>) -> Result<(), Failure> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in files.into_iter().filter_map(|(flag, path)| Some((flag, path?))) {
        // A file that does not exist yet has only the name of its directory.
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let in_directory = || Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?));
        let place = absolute.canonicalize().ok().or_else(in_directory).unwrap_or(absolute);
        let is_special = fs::metadata(&place).is_ok_and(|metadata| !metadata.is_file());
        if let Some((other, _)) = seen.iter().find(|(_, earlier)| *earlier == place && !is_special) {
            return Err(Failure::Input(format!("{other} and {flag} name the same file, {}", place.display())));
        }
        seen.push((flag, place));
    }
    Ok(())
}

impl Output {
    /// Checks that `path`, the value of `flag`, can be written; an existing file only with `force`. Changes nothing.
    pub(crate) fn check(path: &Path, force: bool, flag: &str) -> Result<Output, Failure> {
        if path.is_dir() {
            return Err(Failure::Input(format!("{} is a directory: name a file for {flag}", path.display())));
        }
        if fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
            let message =
                format!("{} is a block device, and would lose its data: name a file for {flag}", path.display());
            return Err(Failure::Input(message));
        }
        if path.exists() && !force {
            return Err(Failure::Input(format!("{} exists: pass --force to write over it", path.display())));
        }

        if let (Ok(target), false) = (path.read_link(), path.exists()) {
            let (path, target) = (path.display(), target.display());
            return Err(Failure::Input(format!("{path} is a link to {target}, which does not exist: name that file")));
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
                no_place(&error, message)
            })?;
        }
        Ok(output)
    }

    /// Writes all of `text`, or nothing.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let unfinished = self.begin()?;
        (&unfinished.file).write_all(text.as_bytes()).map_err(|error| self.cannot_write(&error))?;
        unfinished.finish()
    }

    /// Begins a file that is at the path only when it is finished.
    pub(crate) fn begin(&self) -> Result<Unfinished<'_>, Failure> {
        let begun = if self.is_special() {
            OpenOptions::new().write(true).open(&self.path).map(|file| (file, None))
        } else {
            self.make_temporary().map(|(file, temporary)| (file, Some(temporary)))
        };
        let (file, temporary) = begun.map_err(|error| self.cannot_write(&error))?;
        Ok(Unfinished { output: self, file, temporary })
    }

    pub(crate) fn cannot_write(&self, error: &io::Error) -> Failure {
        Failure::Machine(format!("cannot write {}: {error}", self.path.display()))
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

    /// Creates a file beside the path that no other process uses: processes of two containers may have one number.
    fn make_temporary(&self) -> io::Result<(File, PathBuf)> {
        let mut attempt = 0_u32;
        loop {
            let number = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let path = self.directory().join(format!(".plimsoll-output-{}{number}.tmp", std::process::id()));
            match File::create_new(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => attempt += 1,
                made => return Ok((made?, path)),
            }
        }
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Returns whether the path exists and is not a regular file, so that no file can replace it.
    fn is_special(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| !metadata.is_file())
    }
}

/// A file that is being written. Unless it is finished, it is removed, and the path is as it was.
pub(crate) struct Unfinished<'a> {
    output: &'a Output,
    file: File,
    /// `None` for a path that is written in place.
    temporary: Option<PathBuf>,
}

impl Unfinished<'_> {
    /// Returns a handle to write to.
    pub(crate) fn writer(&self) -> Result<File, Failure> {
        self.file.try_clone().map_err(|error| self.output.cannot_write(&error))
    }

    /// Returns the path of the file until it is finished; `None` if the path is written in place.
    pub(crate) fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// Puts the file, which is written in full, at its path.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let Some(temporary) = &self.temporary else { return Ok(()) };
        let moved = self.file.sync_all().and_then(|()| self.output.move_from(temporary));
        moved.map_err(|error| self.output.cannot_write(&error))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The first error is reported, not one of the cleanup.
            let _ = fs::remove_file(temporary);
        }
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
            let message = format!("--pictures {}: no such directory; make it first", directory.display());
            return Err(Failure::Input(message));
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
    fn a_file_of_another_process_of_this_number_is_in_nobodys_way() {
        let dir = tempfile::tempdir().unwrap();
        let other = format!(".plimsoll-output-{}.tmp", std::process::id());
        fs::write(dir.path().join(&other), "of another container").unwrap();
        let output = Output::check(&dir.path().join("io.yaml"), false, "--output").unwrap();
        output.write("disks: []\n").unwrap();
        assert_eq!(names(dir.path()), [other.as_str(), "io.yaml"]);
        assert_eq!(fs::read_to_string(dir.path().join(&other)).unwrap(), "of another container");
    }

    #[test]
    fn a_link_to_nothing_is_refused_before_the_work() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink("missing", &link).unwrap();
        for force in [false, true] {
            let error = Output::check(&link, force, "-o").unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("is a link to missing, which does not exist"), "{error}");
        }
        assert_eq!(names(dir.path()), ["link"]);
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
    fn a_block_device_is_no_place_for_a_result() {
        let is_block = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
        let devices = fs::read_dir("/dev").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        // A container may have none.
        for device in devices.filter(is_block) {
            for force in [false, true] {
                let error = Output::check(&device, force, "--page").unwrap_err();
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains("is a block device, and would lose its data"), "{error}");
            }
        }
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
