//! Place and size of traces that are recorded on request over the socket.
//!
//! # Why
//! A user who reaches the socket can make the program write. That user must not choose the place, nor fill a disk.
//!
//! # How it works
//! Traces are files in the directory of the socket, which only the program's user can enter. A client gives a plain
//! name that ends in `.plt`; the file is created exclusively, with mode 0600. All traces in the directory together take
//! at most [`TRACES_MAX_BYTES`]: a trace that reaches the bound ends there, and the answer to `trace-stop` reports
//! that.
//!
//! # Limits
//! Programs that share the directory may exceed the bound together: each checks it when its trace begins. Only clients
//! remove traces, when they fetch them, as `plimsoll attach` does.
//!
//! # Example
//! `run.plt` is made at `/run/user/1000/plimsoll/run.plt`; `../run.plt`, `/tmp/run.plt` and `4711.sock` are refused.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Most bytes of all traces in a directory: 1 GiB, about 26 million events.
const TRACES_MAX_BYTES: u64 = 1 << 30;

/// Fewest bytes for which a trace counts: a block of a file system.
const TRACE_MIN_BYTES: u64 = 4096;

/// A file with a bound on the bytes written to it.
#[derive(Debug)]
pub(super) struct BoundedFile {
    file: File,
    left_bytes: u64,
}

/// Returns whether `name` is the plain name of a trace: no path, and `.plt` at its end.
pub(super) fn is_plain_name(name: &str) -> bool {
    let path = Path::new(name);
    path.file_name() == Some(OsStr::new(name)) && path.extension() == Some(OsStr::new("plt"))
}

/// Creates the trace `name` in `directory`, with the space that the others leave.
///
/// # Errors
/// The system's error; `StorageFull` if the others leave no space.
pub(super) fn create(directory: &Path, name: &str) -> io::Result<BoundedFile> {
    let left_bytes = TRACES_MAX_BYTES.saturating_sub(taken_bytes(directory)?);
    if left_bytes == 0 {
        return Err(full(directory));
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name))?;
    Ok(BoundedFile { file, left_bytes })
}

/// Returns the bytes that the traces in `directory` take.
fn taken_bytes(directory: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_plain_name) {
            // A trace that was removed meanwhile takes no space.
            bytes = bytes.saturating_add(entry.metadata().map_or(0, |meta| meta.len().max(TRACE_MIN_BYTES)));
        }
    }
    Ok(bytes)
}

fn full(directory: &Path) -> io::Error {
    let gib = TRACES_MAX_BYTES >> 30;
    let message = format!("the traces in {} have reached {gib} GiB: fetch or remove some", directory.display());
    io::Error::new(io::ErrorKind::StorageFull, message)
}

impl Write for BoundedFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if from.len() as u64 > self.left_bytes {
            let gib = TRACES_MAX_BYTES >> 30;
            let message = format!("the traces in its directory have reached {gib} GiB, so it ends here");
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        let written = self.file.write(from)?;
        self.left_bytes -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_of_records_are_taken() {
        for name in ["run.plt", "a b.plt", "-.plt", "..plt", "x.sock.plt"] {
            assert!(is_plain_name(name), "{name}");
        }
        let others =
            ["", ".", "..", ".plt", "run", "run.txt", "7.sock", "/run.plt", "../run.plt", "a/run.plt", "run.plt/"];
        for name in others {
            assert!(!is_plain_name(name), "{name}");
        }
    }

    #[test]
    fn records_take_what_there_is_room_for_and_no_more() {
        let directory = std::env::temp_dir().join(format!("plimsoll-traces-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        // Takes no space on any disk: a hole.
        let sparse =
            |name: &str, len_bytes: u64| File::create(directory.join(name)).unwrap().set_len(len_bytes).unwrap();
        sparse("old.plt", TRACES_MAX_BYTES - 100);
        sparse("other.txt", TRACES_MAX_BYTES);
        let mut record = create(&directory, "run.plt").unwrap();
        assert_eq!(
            create(&directory, "run.plt").unwrap_err().kind(),
            io::ErrorKind::StorageFull,
            "no room, with this one"
        );
        record.write_all(&[1; 60]).unwrap();
        assert_eq!(record.write_all(&[1; 41]).unwrap_err().kind(), io::ErrorKind::StorageFull);
        record.write_all(&[1; 40]).unwrap();
        std::fs::remove_file(directory.join("old.plt")).unwrap();
        assert_eq!(create(&directory, "run.plt").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(create(&directory, "next.plt").is_ok());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
