//! Measures the figures of a [`Card`] on this machine.
//!
//! **Why.** Machines are comparable if one program measures all of them in the same way, within minutes.
//!
//! **How.** [`measure`] runs one [`Group`] after the other, so that none disturbs another. Each adds to the card:
//! figures with their samples, facts, warnings, and the reasons of missing figures. Only [`Budgets`] divides the time.
//! The disk comes first: its errors are mostly wrong options, which should show before minutes are spent. Ctrl-C
//! ([`Control::stop`]) ends the running group; the rest is missing as interrupted.
//!
//! **Limits.** Processors and memory are measured by stress-ng alone. One machine at one time; other programs on it
//! change the figures. The time that a hypervisor took meanwhile is a figure of its own, and above 2 % a warning.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::{Budgets, CardOptions, Group, measure};
//! use plimsoll_measure::load::Control;
//! // A real card leaves these lines out: `Budgets::STANDARD`, nothing skipped, and a disk.
//! let skip = vec![Group::StressNg, Group::Network];
//! let options = CardOptions { skip, ..CardOptions::new("db-7") };
//! let card = measure(&options, &mut (), &Control::default())?.card;
//! assert!(card.value("cpu.threads").is_some());
//! assert!(card.missing["disk"].contains("--storage"));
//! # Ok::<(), plimsoll_measure::tune::TuneError>(())
//! ```

mod child;
mod disk;
pub mod iperf3;
mod machine;
pub mod stress_ng;
mod submission;
#[cfg(test)]
mod tests;

use plimsoll::sys::pin;
use plimsoll::sys::submission::READ_FILE_BYTES;

pub use machine::host_name;

use super::{Card, Figure, Origin, figures};
use crate::Roots;
use crate::load::Control;
use crate::tune::{Observer, TuneError, TuneOptions, TuneReport};
use machine::Ticks;

/// The reason of figures that are missing because of a stop.
const INTERRUPTED: &str = "interrupted";
/// Stolen time above which a warning is given, in per cent of the processors' time.
const STEAL_PCT: f64 = 2.0;

/// Figures that are measured together, and can be left out together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The disk, by `tune`.
    Disk,
    /// CPU time of a read.
    Submission,
    /// stress-ng, if it is installed.
    StressNg,
    /// iperf3, if it is installed and a peer is named.
    Network,
}

impl Group {
    /// All groups, in the order in which they are measured.
    pub const ALL: [Group; 4] = [Group::Disk, Group::Submission, Group::StressNg, Group::Network];

    const NAMES: [&str; 4] = ["disk", "submission", "stress_ng", "network"];

    /// Returns the group's name on the command line and among the missing figures.
    pub const fn name(self) -> &'static str {
        Group::NAMES[self as usize]
    }
}

impl std::str::FromStr for Group {
    type Err = String;

    fn from_str(name: &str) -> Result<Group, String> {
        let is_named = |group: &Group| group.name() == name.replace('-', "_");
        Group::ALL
            .into_iter()
            .find(is_named)
            .ok_or_else(|| format!("nothing of this name is measured: use one of {}", Group::NAMES.join(", ")))
    }
}

/// Seconds for each group: the standard card takes at most six minutes, the quick one 90 seconds.
///
/// Samples of a group share its time. In both sets they last at least 100 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Budgets {
    /// Samples of a figure, at least 1; an interval needs 3.
    pub samples: usize,
    /// The seconds of each group, in the order of [`Group::ALL`]; of the disk, the bound that `tune` keeps
    /// ([`TuneOptions::new`], [`TuneOptions::quick`]).
    pub seconds: [f64; 4],
}

impl Budgets {
    pub const STANDARD: Budgets = Budgets { samples: 5, seconds: [300.0, 3.0, 30.0, 8.0] };

    pub const QUICK: Budgets = Budgets { samples: 3, seconds: [60.0, 0.9, 12.0, 8.0] };

    pub fn of(&self, group: Group) -> f64 {
        self.seconds[group as usize]
    }

    fn of_ns(&self, group: Group) -> u64 {
        (self.of(group) * 1e9) as u64
    }

    /// Returns the length of a sample of a group that makes `measurements`.
    fn sample_ns(&self, group: Group, measurements: usize) -> u64 {
        self.of_ns(group) / (measurements.max(1) * self.samples.max(1)) as u64
    }
}

#[derive(Clone, Debug)]
pub struct CardOptions {
    pub name: String,
    /// Where and how to measure the disk; if `None`, the card has no disk. Its bound on written bytes holds for all
    /// groups together, except the few files of stress-ng.
    pub disk: Option<TuneOptions>,
    pub budgets: Budgets,
    pub skip: Vec<Group>,
    /// Where an iperf3 server runs; if `None`, the card has no network.
    pub peer: Option<iperf3::Peer>,
    /// Streams to the server at a time; `None`: the number from which on more gain nothing.
    pub streams: Option<usize>,
}

impl CardOptions {
    /// Returns options for all groups without a disk, with [`Budgets::STANDARD`].
    pub fn new(name: impl Into<String>) -> CardOptions {
        CardOptions {
            name: name.into(),
            disk: None,
            budgets: Budgets::STANDARD,
            skip: Vec::new(),
            peer: None,
            streams: None,
        }
    }
}

/// The result of [`measure`].
#[derive(Clone, Debug)]
pub struct Measured {
    pub card: Card,
    pub disk: Option<TuneReport>,
}

/// Measures this machine. After a stop by `control`, the rest is missing; written files are removed in any case.
///
/// # Errors
/// [`TuneError`] if [`CardOptions::disk`] is wrong: no such directory, write bound too small. The figures of a disk
/// that fails meanwhile are missing on the card.
pub fn measure(options: &CardOptions, observer: &mut dyn Observer, control: &Control) -> Result<Measured, TuneError> {
    let roots = Roots::default();
    let mut card = Card::new(options.name.as_str(), Origin::measured(today()));
    let allowed = pin::allowed_cpus().map_or(usize::MAX, |cpus| cpus.len());
    machine::read(&mut card, &roots, allowed);

    let ticks = Ticks::read(&roots);
    let mut session = Session { options, control, disk: None };
    for group in Group::ALL {
        let told = card.warnings.len();
        session.group(&mut card, group, observer)?;
        // `tune` has already reported the warnings of the disk.
        let told = if group == Group::Disk { card.warnings.len() } else { told };
        card.warnings.iter().skip(told).for_each(|text| observer.on_note(&format!("warning: {text}")));
    }
    steal(&mut card, ticks.zip(Ticks::read(&roots)));
    Ok(Measured { card, disk: session.disk })
}

/// A measurement that is under way.
struct Session<'a> {
    options: &'a CardOptions,
    control: &'a Control,
    disk: Option<TuneReport>,
}

impl Session<'_> {
    /// Measures one group, or adds the reason why it is left out.
    fn group(&mut self, card: &mut Card, group: Group, observer: &mut dyn Observer) -> Result<(), TuneError> {
        let left_out = if self.options.skip.contains(&group) {
            Some("left out (--skip)")
        } else if self.control.stop.is_asked() {
            Some(INTERRUPTED)
        } else if matches!(group, Group::Disk | Group::Submission) && self.options.disk.is_none() {
            Some("no storage was named: pass --storage DIR, a directory on the disk to be measured")
        } else if group == Group::Network && self.options.peer.is_none() {
            Some("no peer was named: run `iperf3 -s` on another machine and pass --peer HOST")
        } else {
            None
        };
        if let Some(reason) = left_out {
            card.miss(group.name(), reason);
            return Ok(());
        }

        let budgets = &self.options.budgets;
        observer.on_phase(group.name(), budgets.of(group));
        let (budget_ns, stop) = (budgets.of_ns(group), &self.control.stop);
        match (group, &self.options.disk, &self.options.peer) {
            (Group::Disk, Some(disk), _) => {
                let measured = disk::run(card, &within_bound(disk), observer, self.control);
                self.disk = measured.map_err(|error| of_whole_bound(error, disk))?;
            }
            (Group::Submission, Some(disk), _) => {
                let sample_ns = budgets.sample_ns(group, submission::MEASUREMENTS);
                submission::run(card, budgets.samples.max(1), sample_ns, &disk.directory, observer, stop);
            }
            // Their directory or peer is missing; the reason is added above.
            (Group::Disk | Group::Submission, None, _) | (Group::Network, _, None) => {}
            (Group::StressNg, disk, _) => {
                let directory = disk.as_ref().map_or_else(std::env::temp_dir, |disk| disk.directory.clone());
                stress_ng::measure(card, &directory, budget_ns, stop);
            }
            (Group::Network, _, Some(peer)) => iperf3::measure(card, peer, self.options.streams, budget_ns, stop),
        }
        Ok(())
    }
}

/// Bytes written by the group of submissions, after the disk was measured.
const SUBMISSIONS_BYTES: u64 = READ_FILE_BYTES * submission::MEASUREMENTS as u64;

/// Reserves the bytes of the submissions from the bound on written bytes.
fn within_bound(disk: &TuneOptions) -> TuneOptions {
    let max_write_bytes = disk.max_write_bytes.map(|bytes| bytes.saturating_sub(SUBMISSIONS_BYTES));
    TuneOptions { max_write_bytes, ..disk.clone() }
}

/// Turns an error about the disk's write bound into one about the whole bound.
fn of_whole_bound(error: TuneError, disk: &TuneOptions) -> TuneError {
    match (error, disk.max_write_bytes) {
        (TuneError::MaxWrite { needed_bytes, .. }, Some(max_write_bytes)) => {
            TuneError::MaxWrite { needed_bytes: needed_bytes.saturating_add(SUBMISSIONS_BYTES), max_write_bytes }
        }
        (error, _) => error,
    }
}

/// Adds the time that the hypervisor took between two readings, with a warning if it exceeds [`STEAL_PCT`].
fn steal(card: &mut Card, ticks: Option<(Ticks, Ticks)>) {
    let Some(percent) = ticks.and_then(|(before, after)| after.stolen_pct(before)) else {
        card.miss("cpu.steal_pct", "/proc/stat does not count it, or too little time has passed");
        return;
    };
    card.set("cpu.steal_pct", Figure::exact(percent));
    if percent > STEAL_PCT {
        card.warnings.push(format!(
            "the hypervisor took {percent:.1} % of the processors' time while this was measured: a busy host, or a \
             burstable machine out of credits; measure again at another time"
        ));
    }
}

/// Returns year, month and day in UTC.
fn today() -> String {
    jiff::Timestamp::now().strftime("%F").to_string()
}

/// Returns a card with what `measure` adds to it.
#[cfg(test)]
fn card_of(measure: impl FnOnce(&mut Card)) -> Card {
    let mut card = Card::new("test", Origin::measured("2026-01-02"));
    measure(&mut card);
    card
}
