//! A recording of what disks did, as sections.
//!
//! # Why
//! What `stat --record`, iostat and `/proc/diskstats` left stands on a page beside what was measured meanwhile.
//!
//! # How it works
//! The reader of [`plimsoll_observe::stat`] recognises the file; its history becomes the sections that the page of
//! `plimsoll stat` has.
//!
//! # Limits
//! A file that this reader does not know is refused with all that a page can be made of.
//!
//! # Example
//! A recording of two days becomes a table of verdicts, and a picture for each column.

use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::from::{self, FromError};
use plimsoll_observe::stat::history::History;

use super::{Content, EXPECTED, Kind};

/// Sections of a recording, or of what other programs left.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Content, String> {
    let recorded = from::read(file, bytes, &ReadOptions::default()).map_err(|error| match error {
        // Only its own files are known to that reader.
        FromError::Other { looks_like, .. } if looks_like == "some other text" => {
            format!("nothing that is known is in it: {EXPECTED}")
        }
        error => error.to_string(),
    })?;
    let history = History::of_recorded(&recorded);
    let content = Content::new(Kind::Stat, format!("What the disks did: {file}"), history.recorded());
    // The file stands beside each note.
    let notes = recorded.notes.iter().map(|note| note.strip_prefix(&format!("{file}: ")).unwrap_or(note).to_owned());
    Ok(Content { notes: notes.collect(), ..content })
}
