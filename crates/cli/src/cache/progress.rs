//! A progress line on the terminal; dropping it removes the line.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Least time between two changes of the line.
const EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Progress {
    shown_at: Option<Instant>,
}

impl Progress {
    /// Shows `text` if stderr is a terminal and the last text has been shown long enough.
    pub(super) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.shown_at.is_some_and(|at| at.elapsed() < EVERY) || !std::io::stderr().is_terminal() {
            return;
        }
        self.shown_at = Some(Instant::now());
        // Ignore the error: if stderr is closed, there is no place to report it.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", text());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown_at.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
