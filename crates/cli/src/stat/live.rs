//! Live intervals of this host.
//!
//! # Why
//! A table and a terminal view sample the host in the same way, at little cost.
//!
//! # How it works
//! [`Live::next`] takes a reading, subtracts the last, and lets the watch judge the difference. [`run`] does so at
//! fixed times and passes the results to the [`Sink`](super::sink::Sink). Nothing runs between two readings; a signal
//! ends the wait.
//!
//! # Limits
//! A late reading (a suspended host) makes its interval longer, and delays the next ones. A failed reading ends the
//! run; the page and the pictures of the intervals so far are written.
//!
//! # Example
//! `plimsoll stat 1 10 --record disks.stat`: ten reports, and eleven readings in the file.

use std::io;
use std::time::Instant;

use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host::{Host, Reading, Sampler};
use plimsoll_observe::stat::programs::{Looked, Programs};
use plimsoll_observe::stat::watch::Watch;
use plimsoll_observe::stat::{Interval, Observed};

use super::recording::Recording;
use super::sink::{AnswerPlace, Sink};
use super::watching::watch;
use super::{HostFlags, StatArguments};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interrupt;
use crate::screen;

pub(super) fn run(arguments: &StatArguments, history: &mut Option<History>) -> Result<Outcome, Failure> {
    // Read the disk files before setting the Ctrl-C handler: a pipe without a writer blocks, and must stay
    // interruptible.
    let watch = Live::watch(arguments)?;
    // Install the handler before the first reading: a user who ends the run early gets a whole document, too.
    let interrupt = Interrupt::on_signal()?;
    let mut live = Live::start(arguments, watch)?;
    let mut sink = arguments.sink(Host::read(&arguments.host.proc_root), history);
    if arguments.saved.record.is_some() {
        sink = sink.with_summary(false, AnswerPlace::End);
    }

    let mut left = arguments.count;
    let show = |live: &mut Live, sink: &mut Sink<'_>, observed: Observed, left: &mut Option<u64>| {
        *left = left.map(|count| count.saturating_sub(1));
        live.tell();
        sink.interval(observed, &live.looked.rows)
    };

    let mut ended = Ok(false);
    if !arguments.show.omit_first || arguments.every.is_none() {
        let observed = live.since_boot();
        ended = show(&mut live, &mut sink, observed, &mut left).map(|()| false);
    }

    if let Some(every) = arguments.every {
        let mut due = Instant::now();
        while ended.as_ref().is_ok_and(|is_asked| !is_asked) && left != Some(0) && !sink.is_closed {
            due = (due + every).max(Instant::now());
            if interrupt.wait(due) {
                ended = Ok(true);
                break;
            }
            ended = live.next().and_then(|observed| show(&mut live, &mut sink, observed, &mut left)).map(|()| false);
        }
    }

    let closed = sink.end();
    live.end();
    if ended? { Ok(Outcome::Interrupted) } else { closed }
}

/// The observed host.
pub(crate) struct Live {
    sampler: Sampler,
    watch: Watch,
    before: Reading,
    /// The devices named by the user.
    devices: Vec<String>,
    with_partitions: bool,
    recording: Option<Recording>,
    /// The running programs, unless they are omitted.
    programs: Option<Programs>,
    /// The scheduling classes of running programs in the last interval, and the programs.
    pub(crate) looked: Looked,
    /// Messages about programs that are not yet printed.
    pub(crate) told: Vec<String>,
}

impl Live {
    /// Reads the descriptions of the disks.
    pub(super) fn watch(arguments: &StatArguments) -> Result<Watch, Failure> {
        watch(&arguments.capacity, &arguments.show.groups, Some(arguments.host.roots()))
    }

    /// Takes the first reading, and records nothing.
    pub(crate) fn of_host(host: &HostFlags, watch: Watch) -> Result<Live, Failure> {
        let roots = host.roots();
        let mut sampler = Sampler::new(roots.proc, roots.sys);
        let before = sampler.sample().map_err(machine)?;
        let programs = (!host.no_programs).then(Programs::default);
        let (devices, with_partitions, recording) = (Vec::new(), false, None);
        let (looked, told) = (Looked::default(), Vec::new());
        Ok(Live { sampler, watch, before, devices, with_partitions, recording, programs, looked, told })
    }

    /// Takes the first reading.
    pub(super) fn start(arguments: &StatArguments, watch: Watch) -> Result<Live, Failure> {
        let mut live = Live::of_host(&arguments.host, watch)?;
        let there = &live.before.devices;
        live.devices = arguments.named().map(str::to_owned).collect();
        if let Some(name) = live.devices.iter().find(|name| !there.iter().any(|disk| disk.name == **name)) {
            let there: Vec<&str> = there.iter().map(|disk| disk.name.as_str()).collect();
            let message = format!("there is no device {name} on this host: it has {}", there.join(", "));
            return Err(Failure::Input(message));
        }
        live.with_partitions = arguments.show.partitions;
        live.recording = Recording::start(arguments)?;
        if let Some(recording) = &mut live.recording {
            recording.write(&live.before, live.sampler.facts())?;
        }
        live.ask_programs();
        Ok(live)
    }

    pub(super) fn since_boot(&mut self) -> Observed {
        let interval = self.before.since_boot();
        self.observe(interval)
    }

    /// Returns the interval that ends now.
    pub(crate) fn next(&mut self) -> Result<Observed, Failure> {
        let now = self.sampler.sample().map_err(machine);
        self.ask_programs();
        let now = now?;
        if let Some(recording) = &mut self.recording {
            recording.write(&now, self.sampler.facts())?;
        }
        let interval = now.since(&self.before);
        self.before = now;
        Ok(self.observe(interval))
    }

    /// Asks the programs that run now.
    pub(crate) fn ask_programs(&mut self) {
        if let Some(programs) = &mut self.programs {
            self.looked = programs.look();
            self.told.append(&mut self.looked.silent);
        }
    }

    /// Prints the pending messages to stderr.
    pub(super) fn tell(&mut self) {
        self.told.drain(..).for_each(|sentence| screen::warning(&sentence));
    }

    /// Ends the recording, and reports its length.
    pub(super) fn end(self) {
        self.recording.into_iter().for_each(Recording::end);
    }

    /// Judges the devices that iostat would show, and those named by the user.
    fn observe(&mut self, mut interval: Interval) -> Observed {
        let is_named = |name: &String| self.devices.contains(name);
        let named: Vec<_> = interval.devices.iter().filter(|device| is_named(&device.device)).cloned().collect();
        self.before.keep_shown(&mut interval, self.sampler.facts(), self.with_partitions);
        for device in named {
            if !interval.devices.iter().any(|shown| shown.device == device.device) {
                interval.devices.push(device);
            }
        }
        self.watch.observe(&interval, self.sampler.facts())
    }
}

fn machine(error: io::Error) -> Failure {
    Failure::Machine(error.to_string())
}
