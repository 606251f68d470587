//! Ctrl-C (and SIGTERM, SIGHUP) end the work; the command then prints its results so far and cleans up as always. A
//! second signal ends the process, also where a disk that hangs or a reader that does not read holds it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use plimsoll_measure::load::Stop;

use crate::failure::{Failure, INTERRUPTED};

/// Time after the first signal in which further ones are the same key press: a shell and `sudo` may both pass it on.
const SAME: Duration = Duration::from_secs(1);

/// The signal that ends a view. A view waits for it between two readings; nothing runs meanwhile.
pub(crate) struct Interrupt(Receiver<Infallible>);

impl Interrupt {
    pub(crate) fn on_signal() -> Result<Interrupt, Failure> {
        let (until, is_asked) = channel();
        let mut until = Some(until);
        on_signal(move || drop(until.take()))?;
        Ok(Interrupt(is_asked))
    }

    /// Waits until `until` or a signal. Returns whether there was a signal, now or earlier.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        self.0.recv_timeout(until.saturating_duration_since(Instant::now())) != Err(RecvTimeoutError::Timeout)
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.wait(Instant::now())
    }
}

pub(crate) fn stop_on_signal(stop: &Stop) -> Result<(), Failure> {
    let stop = stop.clone();
    on_signal(move || stop.ask())
}

/// Calls `ask` at the first signal. Ends the process at another one that comes later than [`SAME`].
pub(crate) fn on_signal(mut ask: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    let mut asked_at: Option<Instant> = None;
    set_handler(move || match asked_at {
        None => {
            asked_at = Some(Instant::now());
            ask();
        }
        Some(at) if at.elapsed() < SAME => {}
        Some(_) => std::process::exit(INTERRUPTED.into()),
    })
}

/// Removes the file `temporary` at a signal, and ends the command with the exit code of one.
pub(crate) fn remove_on_signal(temporary: PathBuf) -> Result<(), Failure> {
    set_handler(move || {
        let _ = std::fs::remove_file(&temporary);
        std::process::exit(INTERRUPTED.into());
    })
}

fn set_handler(handler: impl FnMut() + Send + 'static) -> Result<(), Failure> {
    ctrlc::set_handler(handler).map_err(|error| Failure::Machine(format!("cannot install the Ctrl-C handler: {error}")))
}
