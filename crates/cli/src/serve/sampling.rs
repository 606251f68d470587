//! Looks at the host, one after the other, and what they left for those who ask.
//!
//! # Why
//! Reading counters and asking programs takes as long as it takes; who asks for the page must not wait for it, and
//! however many ask, the host is looked at once an interval.
//!
//! # How it works
//! A thread of its own ([`Host::spawn`]; reading `/proc` blocks, so it is no task of the server) takes a reading each
//! interval, judges it and puts it into [`Shared`], which answers from there.
//!
//! # Limits
//! The history is of the time since the start, coarser the longer it is, and gone at the end.
//!
//! # Example
//! A failing look is told once on stderr and shown on the page; the next may succeed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll::metrics::ProgramMetrics;
use plimsoll_tools::metrics::encode_host;
use plimsoll_tools::page::{Block, Section};
use plimsoll_tools::report_page::stat::History;
use plimsoll_tools::stat::Observed;
use plimsoll_tools::stat::host::{self, Reading, Sampler};
use plimsoll_tools::stat::output::json;
use plimsoll_tools::stat::programs::{ClassRow, Programs};
use plimsoll_tools::stat::watch::Watch;

use super::ServeArguments;
use crate::failure::Failure;
use crate::screen;
use crate::stat::Roots;

/// A host that is looked at.
pub(super) struct Host {
    name: String,
    interval: Duration,
    sampler: Sampler,
    watch: Watch,
    before: Reading,
    programs: Option<Programs>,
}

impl Host {
    /// Takes the first reading.
    pub(super) fn start(arguments: &ServeArguments) -> Result<Host, Failure> {
        let roots = Roots { proc: &arguments.proc_root, sys: &arguments.sys_root };
        let watch = crate::stat::watch(&arguments.capacity, &arguments.groups, Some(roots))?;
        let mut sampler = Sampler::new(&arguments.proc_root, &arguments.sys_root);
        let before = sampler.sample().map_err(|error| Failure::Machine(error.to_string()))?;
        let mut programs = (!arguments.no_programs).then(Programs::new);
        // The first look only begins an interval.
        if let Some(programs) = &mut programs {
            programs.look().silent.iter().for_each(|sentence| screen::note(sentence));
        }
        let name = host::Host::read(&arguments.proc_root).name;
        let name = if name.is_empty() { "this host".to_owned() } else { name };
        Ok(Host { name, interval: arguments.interval, sampler, watch, before, programs })
    }

    /// As the host calls itself.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Looks each interval, until [`Shared::end`].
    pub(super) fn spawn(mut self, shared: Arc<Shared>) -> Result<JoinHandle<()>, Failure> {
        let look = move || {
            let mut due = Instant::now() + self.interval;
            while !shared.is_over_at(due) {
                // A look that came late moves the next ones.
                due = (due + self.interval).max(Instant::now());
                self.look(&shared);
            }
        };
        let thread = std::thread::Builder::new().name("sampling".to_owned());
        thread.spawn(look).map_err(|error| Failure::Machine(format!("cannot start a thread: {error}")))
    }

    fn look(&mut self, shared: &Shared) {
        let observed = match self.sampler.sample() {
            Ok(reading) => {
                let mut interval = reading.since(&self.before);
                reading.keep_shown(&mut interval, self.sampler.facts(), false);
                self.before = reading;
                Ok(self.watch.observe(&interval, self.sampler.facts()))
            }
            Err(error) => Err(error.to_string()),
        };
        let looked = self.programs.as_mut().map(Programs::look).unwrap_or_default();
        looked.silent.iter().for_each(|sentence| screen::note(sentence));
        shared.put(observed, looked.rows, looked.programs);
    }
}

/// What is known, for all who ask.
pub(super) struct Shared {
    host_name: String,
    interval: Duration,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    history: History,
    classes: Vec<ClassRow>,
    programs: Vec<ProgramMetrics>,
    /// Why the last look failed.
    failed: Option<String>,
    is_over: bool,
}

impl Shared {
    pub(super) fn new(host_name: String, interval: Duration) -> Shared {
        Shared { host_name, interval, state: Mutex::default(), over: Condvar::new() }
    }

    /// As the host calls itself.
    pub(super) fn host_name(&self) -> &str {
        &self.host_name
    }

    /// Between looks.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// What the page shows, as `f` makes it.
    pub(super) fn sections_as<T>(&self, f: impl FnOnce(Vec<Section>) -> T) -> T {
        let sections = {
            let state = self.state();
            let mut sections = state.history.live(&state.classes);
            if let (Some(why), Some(first)) = (&state.failed, sections.first_mut()) {
                first.blocks.insert(0, Block::Warnings(vec![format!("The last look failed: {why}")]));
            }
            sections
        };
        f(sections)
    }

    /// The last interval as `stat --format json` has it; `None` before the first.
    pub(super) fn statistics(&self) -> serde_json::Result<Option<String>> {
        let state = self.state();
        let text = state.history.last().map(|last| json::statistics(last, &state.classes)).transpose()?;
        Ok(text.map(|text| text + "\n"))
    }

    /// For Prometheus: the host's verdicts, and the counters of running programs.
    pub(super) fn metrics(&self) -> String {
        let state = self.state();
        let host = state.history.last().map(encode_host).unwrap_or_default();
        host + &plimsoll::metrics::encode(&state.programs)
    }

    /// Asks for the end.
    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.over.notify_all();
    }

    /// Waits until `due`, or the end: whether that was asked for.
    fn is_over_at(&self, due: Instant) -> bool {
        let wait = due.saturating_duration_since(Instant::now());
        let waited = self.over.wait_timeout_while(self.state(), wait, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    fn put(&self, observed: Result<Observed, String>, classes: Vec<ClassRow>, programs: Vec<ProgramMetrics>) {
        let mut state = self.state();
        match observed {
            Ok(observed) => {
                state.history.push(observed);
                state.failed = None;
            }
            Err(error) => {
                if state.failed.is_none() {
                    screen::warning(&error);
                }
                state.failed = Some(error);
            }
        }
        state.classes = classes;
        state.programs = programs;
    }

    /// What is there is whole even where a thread panicked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
