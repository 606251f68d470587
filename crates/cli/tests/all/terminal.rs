//! A pseudo terminal for programs under test.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::skip::skip;

/// Far longer than anything here takes: what has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// Whether there are pseudo terminals here; says so if not.
pub(crate) fn has_terminals() -> bool {
    let opened = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY);
    opened.inspect_err(|error| skip(format_args!("no pseudo terminals here: {error}"))).is_ok()
}

/// A pseudo terminal, on whose screen is what a program has written to it.
pub(crate) struct Terminal {
    screen: vt100::Parser,
    written: Receiver<Vec<u8>>,
    child: Child,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    /// Starts a program with all its streams on a terminal of so many columns and rows.
    pub(crate) fn start(mut command: Command, (columns, rows): (u16, u16)) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&theirs, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();

        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();

        let (sender, written) = channel();
        let mut from = File::from(ours);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last process has closed the terminal.
            while let Ok(len) = from.read(&mut bytes) {
                if len == 0 || sender.send(bytes[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal { screen: vt100::Parser::new(rows, columns, 0), written, child }
    }

    pub(crate) fn rows(&self) -> Vec<String> {
        let (_, columns) = self.screen.screen().size();
        self.screen.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Returns whether a row begins in colour.
    pub(crate) fn is_coloured(&self, row: usize) -> bool {
        let cell = self.screen.screen().cell(row as u16, 0);
        cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Waits until the screen is as it is to be.
    #[track_caller]
    pub(crate) fn shows(&mut self, what: &str, is_it: impl Fn(&[String]) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !is_it(&self.rows()) {
            match self.written.recv_timeout(Duration::from_millis(100)) {
                Ok(bytes) => self.screen.process(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    assert!(Instant::now() < give_up, "no {what}: {:#?}", self.rows());
                }
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without {what}: {:#?}", self.rows()),
            }
        }
    }

    /// Ends the program as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end. Returns the exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        while let Ok(bytes) = self.written.recv_timeout(PATIENCE) {
            self.screen.process(&bytes);
        }
        self.child.wait().unwrap().code()
    }
}
