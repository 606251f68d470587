//! Converts errors to object_store's, and runs blocking system calls off the threads of async code.

use std::io;
use std::path::Path;

use object_store::Error;
use plimsoll::backend::{error_number, explained};

/// Name of the store in errors.
pub(crate) const NAME: &str = "ScheduledStore";

/// Converts the `error` of the file at `path` to object_store's. Its source is an [`io::Error`] that names the path and
/// keeps its kind.
pub(crate) fn failure(path: &Path, error: &io::Error) -> Error {
    let path = path.display().to_string();
    let text = error.to_string();
    let text = if text.contains(&path) { text } else { format!("{path}: {text}") };
    let numbered = explained(error_number(error), text.clone());
    // An end of file, for one, has a kind and no number.
    let source = if numbered.kind() == error.kind() { numbered } else { io::Error::new(error.kind(), text) };
    let source = Box::new(source);
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path, source },
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path, source },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: NAME, source },
    }
}

/// Returns an error that does not come from the system.
pub(crate) fn generic(message: String) -> Error {
    Error::Generic { store: NAME, source: message.into() }
}

/// Runs `body`, which waits for the file system: on a blocking thread of Tokio, or here if there is no Tokio. Once
/// begun, `body` runs to its end, even if the future is dropped.
pub(crate) async fn blocking<T, F>(body: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(body).await.map_err(io::Error::other)?,
        Err(_) => body(),
    }
}
