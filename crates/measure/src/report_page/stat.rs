//! Sections of a recording of disk activity.
//!
//! **Why.** Recordings of `stat --record`, iostat and `/proc/diskstats` appear on a page beside results from the same
//! time.
//!
//! **How.** The reader of [`plimsoll_observe::stat`] recognises the file; its history becomes the sections of the page
//! of `plimsoll stat`.
//!
//! **Limits.** If that reader does not recognise the file, the message lists every kind of file that a page can show.
//!
//! **Example.** A recording of two days becomes a table of verdicts, and a picture for each column.

use plimsoll_observe::stat::ReadOptions;
use plimsoll_observe::stat::from::{self, FromError};
use plimsoll_observe::stat::history::History;

use super::{Content, EXPECTED, Kind};

/// Reads the sections of a recording, or of other programs' output.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Content, String> {
    let recorded = from::read(file, bytes, &ReadOptions::default()).map_err(|error| match error {
        // That reader knows only its own kinds of files.
        FromError::Other { looks_like, .. } if looks_like == "some other text" => {
            format!("nothing that is known is in it: {EXPECTED}")
        }
        error => error.to_string(),
    })?;
    let history = History::of_recorded(&recorded);
    let content = Content::new(Kind::Stat, format!("What the disks did: {file}"), history.recorded());
    // The page already shows the file beside each note.
    let notes = recorded.notes.iter().map(|note| note.strip_prefix(&format!("{file}: ")).unwrap_or(note).to_owned());
    Ok(Content { notes: notes.collect(), ..content })
}
