//! Errors with a message that keep the system's error number.
//!
//! # Why
//! Users need a sentence with a remedy; programs must tell `EMFILE` from `ENOSPC`. An [`io::Error`] with a message has
//! no number, and there are fewer kinds than numbers.
//!
//! # How it works
//! [`explained`] returns an error with both; [`error_number`] returns the number.
//!
//! # Limits
//! `io::Error::raw_os_error` returns no number for such an error.
//!
//! # Example
//! ```
//! use plimsoll::backend::{error_number, explained};
//! let error = explained(24, "cannot open /data: too many open files: raise `ulimit -n`".to_owned());
//! assert!(error.to_string().ends_with("raise `ulimit -n`"));
//! assert_eq!(error_number(&error), 24);
//! ```

use std::io;

/// An error number with a message.
#[derive(Debug)]
struct Explained {
    errno: i32,
    message: String,
}

impl std::fmt::Display for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Explained {}

/// Returns an error that reads as `message` and has the kind of the system's error number `errno`; [`error_number`]
/// returns the number.
#[must_use]
pub fn explained(errno: i32, message: String) -> io::Error {
    io::Error::new(io::Error::from_raw_os_error(errno).kind(), Explained { errno, message })
}

/// Returns the system's error number of `error`: its own, or that of an [`explained`] error. For any other error,
/// returns the number that suits its kind best, or `EIO`.
#[must_use]
pub fn error_number(error: &io::Error) -> i32 {
    if let Some(errno) = error.raw_os_error() {
        return errno;
    }
    let explained = error.get_ref().and_then(|inner| inner.downcast_ref::<Explained>());
    explained.map_or_else(|| number_of_kind(error.kind()), |explained| explained.errno)
}

fn number_of_kind(kind: io::ErrorKind) -> i32 {
    match kind {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        io::ErrorKind::IsADirectory => libc::EISDIR,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_its_explanation() {
        for errno in 1..=133 {
            let error = explained(errno, "in words".to_owned());
            assert_eq!((error_number(&error), error.to_string().as_str()), (errno, "in words"));
            assert_eq!(error.kind(), io::Error::from_raw_os_error(errno).kind());
            assert_eq!(error_number(&io::Error::from_raw_os_error(errno)), errno);
        }
        assert_eq!(error_number(&io::ErrorKind::NotFound.into()), libc::ENOENT);
        assert_eq!(error_number(&io::ErrorKind::BrokenPipe.into()), libc::EPIPE);
        assert_eq!(error_number(&io::Error::other("whatever")), libc::EIO);
    }
}
