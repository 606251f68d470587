//! The end of a command that runs until it is told to end.
//!
//! # Why
//! A server ends cleanly at the first signal. If its disk hangs or refuses every write, it cannot, and its operator
//! must be able to end it all the same.
//!
//! # How it works
//! A task waits for SIGINT, SIGTERM and SIGHUP. The first is told to all that listen; another one that comes a second
//! or more later ends the process with code 130. Acknowledged writes are in the log by then, as after kill -9.
//!
//! # Limits
//! One call a process: two tasks would end it twice.
//!
//! # Example
//! `interruption("stopping")?.changed().await` returns at the first signal.

use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::{Failure, tell};

/// Time after the first signal in which further ones are the same key press: a shell and `sudo` may both pass it on.
const SAME: Duration = Duration::from_secs(1);

/// Returns a receiver that turns true at the first signal, when `said` is printed on stderr.
///
/// # Errors
/// [`Failure::Machine`] if the system cannot tell of signals.
pub(crate) fn interruption(said: &'static str) -> Result<watch::Receiver<bool>, Failure> {
    let caught = |kind| signal(kind).map_err(|error| Failure::machine("cannot wait for signals", error));
    let mut interrupt = caught(SignalKind::interrupt())?;
    let mut terminate = caught(SignalKind::terminate())?;
    let mut hangup = caught(SignalKind::hangup())?;
    let (asked, interrupted) = watch::channel(false);

    tokio::spawn(async move {
        let mut first: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            match first {
                None => {
                    first = Some(Instant::now());
                    tell(format_args!("{said} (a second signal ends it at once)"));
                    // The command may be over.
                    let _ = asked.send(true);
                }
                Some(first) if first.elapsed() < SAME => {}
                Some(_) => std::process::exit(Failure::Interrupted(String::new()).exit_code().into()),
            }
        }
    });
    Ok(interrupted)
}
