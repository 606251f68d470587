//! Periodic readings of the host, and their results for clients.
//!
//! # Why
//! Reading counters and querying programs takes time, and clients must not wait for it. The host is read once an
//! interval, however many clients ask.
//!
//! # How it works
//! A thread ([`Host::spawn`]; reading `/proc` blocks, so it is not a task of the server) takes a reading each interval,
//! judges it and puts it into [`Shared`], from which requests are answered. The first client after a reading renders
//! the answer, outside the lock; it is kept for all others until the next reading. After a failed reading, only the
//! page still shows the earlier figures, below the reason.
//!
//! # Limits
//! The history covers the time since the start, coarser the longer it is, and is lost at the end.
//!
//! # Example
//! A failing reading is reported once on stderr and shown on the page, `/api/stat` has its reason in place of figures,
//! and `plimsoll_host_look_failed` is 1; the next may succeed.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll::metrics::{Exposition, Kind, ProgramMetrics};
use plimsoll_observe::metrics::encode_host;
use plimsoll_observe::stat::Observed;
use plimsoll_observe::stat::history::History;
use plimsoll_observe::stat::host;
use plimsoll_observe::stat::output::json;
use plimsoll_observe::stat::programs::{ClassRow, Looked};
use plimsoll_show::page::{self, Block, Part};

use super::ServeArguments;
use crate::failure::Failure;
use crate::screen;
use crate::stat::{Live, watch};

pub(super) struct Host {
    name: String,
    interval: Duration,
    live: Live,
}

impl Host {
    /// Takes the first reading.
    pub(super) fn start(arguments: &ServeArguments) -> Result<Host, Failure> {
        let roots = arguments.host.roots();
        let watch = watch(&arguments.capacity, &arguments.groups, Some(roots))?;
        let mut live = Live::of_host(&arguments.host, watch)?;
        // The first query only starts an interval.
        live.ask_programs();
        live.told.drain(..).for_each(|sentence| screen::note(&sentence));
        let name = host::Host::read(roots.proc).name;
        let name = if name.is_empty() { "this host".to_owned() } else { name };
        Ok(Host { name, interval: arguments.interval, live })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes a reading each interval until [`Shared::end`].
    pub(super) fn spawn(mut self, shared: Arc<Shared>) -> Result<JoinHandle<()>, Failure> {
        let look = move || {
            let mut due = Instant::now() + self.interval;
            while !shared.is_over_at(due) {
                // A late reading delays the next ones.
                due = (due + self.interval).max(Instant::now());
                self.look(&shared);
            }
        };
        let thread = std::thread::Builder::new().name("sampling".to_owned());
        thread.spawn(look).map_err(|error| Failure::Machine(format!("cannot start a thread: {error}")))
    }

    fn look(&mut self, shared: &Shared) {
        let observed = self.live.next().map_err(|error| error.to_string());
        self.live.told.drain(..).for_each(|sentence| screen::note(&sentence));
        let Looked { rows, programs, .. } = std::mem::take(&mut self.live.looked);
        shared.put(observed, rows, programs);
    }
}

/// The latest results, shared with all clients.
pub(super) struct Shared {
    host_name: String,
    interval: Duration,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    look: Look,
    is_over: bool,
}

/// The results of a reading; a clone shares everything.
#[derive(Clone, Default)]
struct Look {
    history: Arc<History>,
    classes: Arc<[ClassRow]>,
    programs: Arc<[ProgramMetrics]>,
    /// Why the last reading failed.
    failed: Option<Arc<str>>,
    made: Arc<Made>,
}

/// The rendered answers of a reading.
#[derive(Default)]
struct Made {
    fragment: OnceLock<Arc<str>>,
    metrics: OnceLock<Arc<str>>,
    statistics: OnceLock<Statistics>,
}

/// The last interval as JSON, or why there is none.
#[derive(Clone)]
pub(super) struct Statistics {
    pub(super) is_there: bool,
    pub(super) json: Arc<str>,
}

impl Look {
    /// Renders the content of `<main>`.
    fn fragment(&self) -> String {
        let mut sections = self.history.live(&self.classes);
        if let (Some(why), Some(first)) = (&self.failed, sections.first_mut()) {
            first.blocks.insert(0, Block::Warnings(vec![format!("The last look failed: {why}")]));
        }
        page::body(&[Part { title: String::new(), sections }])
    }

    /// Renders the last interval as `stat --format json` does.
    fn statistics(&self) -> Statistics {
        let interval = match (&self.failed, self.history.last()) {
            (Some(why), _) => Err(format!("the last look failed: {why}")),
            (None, None) => Err("the first interval is under way".to_owned()),
            (None, Some(last)) => {
                json::statistics(last, &self.classes).map_err(|error| format!("cannot write JSON: {error}"))
            }
        };
        let is_there = interval.is_ok();
        let json = interval.unwrap_or_else(|why| serde_json::json!({ "error": why }).to_string());
        Statistics { is_there, json: (json + "\n").into() }
    }

    /// Renders for Prometheus: the host's verdicts unless they are old, and the counters of running programs.
    fn metrics(&self) -> String {
        let host = self.history.last().map(|last| match &self.failed {
            None => encode_host(last),
            // Export only the times: they show since when there are no new figures.
            Some(_) => encode_host(&Observed {
                duration_s: last.duration_s,
                end_unix_ms: last.end_unix_ms,
                ..Observed::default()
            }),
        });
        let mut look = Exposition::default();
        let help = "1 where the last look at the host's counters failed, and there are no verdicts for it; else 0.";
        look.family("plimsoll_host_look_failed", help, Kind::Gauge);
        look.sample(&[], f64::from(u8::from(self.failed.is_some())));
        host.unwrap_or_default() + &look.finish() + &plimsoll::metrics::encode(&self.programs)
    }
}

impl Shared {
    pub(super) fn new(host_name: String, interval: Duration) -> Shared {
        Shared { host_name, interval, state: Mutex::default(), over: Condvar::new() }
    }

    pub(super) fn host_name(&self) -> &str {
        &self.host_name
    }

    /// Returns the time between readings.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn fragment(&self) -> Arc<str> {
        let look = self.last();
        Arc::clone(look.made.fragment.get_or_init(|| look.fragment().into()))
    }

    /// Returns the last interval, or an error before the first and after a failed reading.
    pub(super) fn statistics(&self) -> Statistics {
        let look = self.last();
        look.made.statistics.get_or_init(|| look.statistics()).clone()
    }

    pub(super) fn metrics(&self) -> Arc<str> {
        let look = self.last();
        Arc::clone(look.made.metrics.get_or_init(|| look.metrics().into()))
    }

    fn last(&self) -> Look {
        self.state().look.clone()
    }

    pub(super) fn end(&self) {
        self.state().is_over = true;
        self.over.notify_all();
    }

    /// Waits until `due` or the end. Returns whether the end was requested.
    fn is_over_at(&self, due: Instant) -> bool {
        let wait = due.saturating_duration_since(Instant::now());
        let waited = self.over.wait_timeout_while(self.state(), wait, |state| !state.is_over);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    fn put(&self, observed: Result<Observed, String>, classes: Vec<ClassRow>, programs: Vec<ProgramMetrics>) {
        let mut state = self.state();
        let look = &mut state.look;
        match observed {
            Ok(observed) => {
                // This copies only while a client renders the last reading.
                Arc::make_mut(&mut look.history).push(observed);
                look.failed = None;
            }
            Err(error) => {
                if look.failed.is_none() {
                    screen::warning(&error);
                }
                look.failed = Some(error.into());
            }
        }
        look.classes = classes.into();
        look.programs = programs.into();
        look.made = Arc::default();
    }

    /// Locks the state, which is consistent even if a thread panicked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_made_once_a_look() {
        let shared = Shared::new("db-7".to_owned(), Duration::from_secs(1));
        let all = || [shared.fragment(), shared.statistics().json, shared.metrics()];
        let same = |one: &[Arc<str>; 3], other: &[Arc<str>; 3]| {
            one.iter().zip(other).map(|(one, other)| Arc::ptr_eq(one, other)).collect::<Vec<_>>()
        };
        let mut before = all();
        let looks = [
            (Ok(Observed { end_unix_ms: Some(1500), ..Observed::default() }), true, "timestamp_seconds 1.5"),
            (Err("no \"stat\"".to_owned()), false, "plimsoll_host_look_failed 1"),
            (Ok(Observed::default()), true, "plimsoll_host_look_failed 0"),
        ];
        for (observed, is_there, part) in looks {
            shared.put(observed, Vec::new(), Vec::new());
            let now = all();
            assert_eq!(same(&now, &all()), [true; 3], "{part}");
            assert_eq!(same(&now, &before), [false; 3], "{part}");
            assert_eq!(shared.statistics().is_there, is_there, "{part}");
            assert!(now[2].contains(part), "no `{part}` in {}", now[2]);
            assert_eq!(now[1].lines().count(), 1, "{}", now[1]);
            before = now;
        }
    }
}
