//! A line on the terminal that says how far something is; it goes when it is dropped.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// How often it changes.
const EVERY: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Progress {
    shown_at: Option<Instant>,
}

impl Progress {
    /// Shows `text`, if stderr is a terminal and the last one has been there for a while.
    pub(super) fn show(&mut self, text: impl FnOnce() -> String) {
        if self.shown_at.is_some_and(|at| at.elapsed() < EVERY) || !std::io::stderr().is_terminal() {
            return;
        }
        self.shown_at = Some(Instant::now());
        // Nobody can be told that stderr is closed.
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
