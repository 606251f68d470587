//! `--live`: the view of `plimsoll attach` below the output of a program.
//!
//! # Why
//! A user who starts a program wants to see its classes at once, without attaching from another terminal.
//!
//! # How it works
//! A thread reads from the shared counters which process has the gate, attaches to it, and shows its state at
//! intervals: on a terminal in a [`Pane`] below the program's output, else as lines on stderr. If no process has the
//! gate, the pane says so.
//!
//! # Limits
//! A process that has the gate for less than [`INTERVAL`] is not shown.
//!
//! # Example
//! `plimsoll run --live --rules rocksdb -- db_bench ...`

use std::convert::Infallible;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use plimsoll::control::{Client, ClientError, socket_of};

use super::pane::Pane;
use super::to_program::Shared;
use crate::{attach, screen};

/// Interval over which rates and latencies are measured.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the view looks for a process to attach to.
const TICK: Duration = Duration::from_millis(100);

/// Text of the pane while no process has the gate.
const NO_PROCESS: &str = "no process has the gate: none uses a managed file now";

/// Shows the view until `work` has ended.
pub(super) fn beside<T>(shared: &Shared, work: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (until, is_over) = channel();
        let view = std::thread::Builder::new().name("plimsoll-live".to_owned());
        if let Err(error) = view.spawn_scoped(scope, move || show(shared, &is_over)) {
            screen::warning(&format!("no live view: {error}"));
        }
        let done = work();
        // Let the thread end: the scope waits for it.
        drop(until);
        done
    })
}

fn show(shared: &Shared, is_over: &Receiver<Infallible>) {
    let mut pane = Pane::default();
    let mut attached = None;
    loop {
        let stderr = std::io::stderr();
        let width = screen::width(&stderr);
        match (screen::size(&stderr), look(shared, &mut attached, width)) {
            (Some(size), Ok(text)) => write(&pane.draw(&text, size)),
            (Some(size), Err(reason)) => write(&pane.draw(&screen::wrap_within(width, &reason), size)),
            (None, Ok(text)) => write(&text),
            (None, Err(_)) => {}
        }

        let wait = if attached.is_some() { INTERVAL } else { TICK };
        if is_over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    write(&pane.end());
}

/// Writes in one call, so that the program's output cannot come between.
fn write(text: &str) {
    // Ignore the error: if stderr is closed, there is no place to report it.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The process that has the gate, and the connection to it.
struct Attached {
    pid: u32,
    client: Client,
}

/// Returns the view of the process with the gate since the last call, or the reason why there is none yet.
fn look(shared: &Shared, attached: &mut Option<Attached>, width: u16) -> Result<String, String> {
    let before = attached.take();
    let pid = shared.owner().ok_or(NO_PROCESS)?;
    let silent = |error: ClientError| match error {
        // A killed process remains the owner until another one has the gate.
        ClientError::NotServed { .. } => NO_PROCESS.to_owned(),
        error => format!("process {pid} has the gate and does not answer: {error}"),
    };

    match before.filter(|before| before.pid == pid) {
        Some(mut before) => {
            let text = attach::view(&mut before.client, width).map_err(silent)?;
            *attached = Some(before);
            Ok(text)
        }
        None => {
            let socket =
                socket_of(pid).ok_or_else(|| format!("process {pid} has the gate and serves no control socket"))?;
            let mut client = Client::connect(&socket).map_err(silent)?;
            // Rates are measured from this snapshot on.
            client.snapshot().map_err(silent)?;
            *attached = Some(Attached { pid, client });
            Err(format!("process {pid} has the gate"))
        }
    }
}
