//! Reads whole files as text, up to a bound.
//!
//! **Why.** A wrong path (`/dev/zero`, a disk) must end in an error, not use up the memory.
//!
//! **Limits.** Reads regular files, pipes and devices alike; a pipe without a writer waits for one.
//!
//! **Example.**
//!
//! ```
//! let error = plimsoll_files::bounded::read_text("/dev/zero".as_ref(), 1 << 20).unwrap_err();
//! assert!(error.to_string().contains("larger than 1 MiB"));
//! ```

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use plimsoll_figures::units::format_bytes_binary;

/// Largest result of a command that another command reads, in bytes.
pub const RESULT_MAX_BYTES: u64 = 256 << 20;

/// Reads a file of at most `most_bytes` as text.
///
/// # Errors
/// Errors of the system; [`io::ErrorKind::FileTooLarge`] if the file is longer, [`io::ErrorKind::InvalidData`] if it is
/// not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let message = format!("the file is larger than {}: is this the right one?", format_bytes_binary(most_bytes));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error().to_string()))
}
