//! `stat --top`: the devices of this host on the terminal, with their recent history.
//!
//! # Why
//! A verdict that changes is easier to see in a row that stays in place than in tables that scroll away.
//!
//! # How it works
//! A row for each device shows its throughput as a line of blocks. Below are, for the chosen device, the reason,
//! remarks, and throughput, U and S over time; then groups and scheduling classes. The view is redrawn after each
//! interval, key and resize; the terminal is restored however the view ends. [`view`] draws from plain data.
//!
//! # Limits
//! Needs a terminal. Blocks of throughput are scaled to the highest shown; those of U and S to 100 %.
//!
//! # Example
//! `plimsoll stat 2 --top -z --disk nvme0n1=i4i.2xlarge`.

mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::has_finding;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::StatArguments;
use super::live::Live;
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use view::View;

/// Default interval.
const EVERY: Duration = Duration::from_secs(1);
/// Interval at which a waiting view checks for a signal.
const TICK: Duration = Duration::from_millis(200);

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Quit,
    Interrupt,
    Up,
    Down,
}

fn asked(key: KeyEvent) -> Option<Asked> {
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Asked::Interrupt),
        KeyCode::Char('q') | KeyCode::Esc => Some(Asked::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Asked::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Asked::Down),
        _ => None,
    }
}

pub(super) fn run(arguments: &StatArguments, history: &mut Option<History>) -> Result<Outcome, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::Input("--top needs a terminal: leave it out, or give --format json".to_owned()));
    }

    // Read the disk files before setting the Ctrl-C handler, as `live::run` does.
    let watch = Live::watch(arguments)?;
    let interrupt = Interrupt::on_signal()?;
    let mut live = Live::start(arguments, watch)?;
    let every = arguments.every.unwrap_or(EVERY);
    let mut top = Top {
        view: View::new(&Host::read(&arguments.host.proc_root).name, every.as_secs_f64()),
        every,
        left: arguments.count,
        history,
        has_finding: false,
    };

    let mut terminal = ratatui::try_init()?;
    let ended = top.watch(&mut terminal, arguments, &mut live, &interrupt);
    let restored = ratatui::try_restore();

    live.tell();
    live.end();
    let outcome = ended?;
    restored?;
    Ok(match outcome {
        Outcome::Done if top.left == Some(0) && top.has_finding => Outcome::Finding,
        other => other,
    })
}

/// Waits for a key, a signal or the end of `pause`. Returns whether the terminal is still connected: from one that has
/// hung up, `event` reads for ever.
fn is_there(pause: Duration) -> std::io::Result<bool> {
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.min(TICK).subsec_nanos()) };
    let stdin = std::io::stdin();
    let mut keys = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut keys, Some(&pause)) {
        Ok(_) => Ok(!keys[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

struct Top<'a> {
    view: View,
    every: Duration,
    left: Option<u64>,
    history: &'a mut Option<History>,
    has_finding: bool,
}

impl Top<'_> {
    fn watch(
        &mut self,
        terminal: &mut DefaultTerminal,
        arguments: &StatArguments,
        live: &mut Live,
        interrupt: &Interrupt,
    ) -> Result<Outcome, Failure> {
        let mut due = Instant::now() + self.every;
        while self.left != Some(0) {
            terminal.draw(|frame| self.view.draw(frame))?;
            let pause = due.saturating_duration_since(Instant::now());
            if interrupt.is_asked() || !is_there(pause)? {
                return Ok(Outcome::Interrupted);
            }
            while event::poll(Duration::ZERO)? {
                let Event::Key(key) = event::read()? else { continue };
                match asked(key) {
                    Some(Asked::Quit) => return Ok(Outcome::Done),
                    Some(Asked::Interrupt) => return Ok(Outcome::Interrupted),
                    Some(Asked::Up) => self.view.choose(-1),
                    Some(Asked::Down) => self.view.choose(1),
                    None => {}
                }
            }

            if Instant::now() < due {
                continue;
            }

            due = (due + self.every).max(Instant::now());
            let mut observed = live.next()?;
            arguments.selection().apply(&mut observed);
            self.has_finding |= has_finding(&observed);
            if let Some(history) = self.history {
                history.push(observed.clone());
            }
            self.view.push(observed, &live.looked.rows);
            self.left = self.left.map(|left| left - 1);
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ask_for_what_they_say() {
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let cases = [
            (plain(KeyCode::Char('q')), Some(Asked::Quit)),
            (plain(KeyCode::Esc), Some(Asked::Quit)),
            (KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Asked::Interrupt)),
            (plain(KeyCode::Char('c')), None),
            (plain(KeyCode::Down), Some(Asked::Down)),
            (plain(KeyCode::Char('k')), Some(Asked::Up)),
        ];
        for (key, expected) in cases {
            assert_eq!(asked(key), expected, "{key:?}");
        }
    }
}
