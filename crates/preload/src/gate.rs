//! The gate of this process, if it has one, with its trace and its control socket.
//!
//! The housekeeper makes it, in whose table of descriptors the socket and the trace are.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use plimsoll::control::Server;
use plimsoll::core::WaitReason;
use plimsoll::trace::{TraceConfig, TraceStartError, file_writer};
use plimsoll::{Class, Gate, Topology};

use crate::handover::Counters;
use crate::state::{self, Run};

/// Never freed: threads may use it until the process ends.
pub(crate) static OWN_GATE: AtomicPtr<OwnGate> = AtomicPtr::new(std::ptr::null_mut());

/// The gate and its companions, in the process that has it.
pub(crate) struct OwnGate {
    pub(crate) gate: Gate,
    pub(crate) classes: Vec<Class>,
    /// The socket for `plimsoll attach`, once it is served.
    control: OnceLock<Server>,
    /// Whether the descriptors of socket and trace are in the table of the library's threads alone.
    pub(crate) is_apart: bool,
    /// Whether a trace was started and its end is not counted yet.
    pub(crate) is_traced: AtomicBool,
}

#[cfg(test)]
impl OwnGate {
    pub(crate) fn of(gate: Gate) -> OwnGate {
        let (control, is_traced) = (OnceLock::new(), AtomicBool::new(false));
        OwnGate { gate, classes: vec![Class::DEFAULT], control, is_apart: false, is_traced }
    }
}

/// Returns the gate, if this process has it.
#[inline]
pub(crate) fn own() -> Option<&'static OwnGate> {
    if state::STATE.load(Ordering::Acquire) != state::OPEN {
        return None;
    }
    // SAFETY: null, or a gate that `make` has leaked.
    unsafe { OWN_GATE.load(Ordering::Acquire).as_ref() }
}

/// Makes the gate. `is_apart`: whether the calling thread has left the program's table of descriptors.
pub(crate) fn make(counters: &Counters, is_apart: bool) {
    let Some(own) = state::run().and_then(|run| open(run, is_apart)) else {
        // Without a gate no call is held back.
        counters.owner.store(0, Ordering::Release);
        state::STATE.store(state::ASLEEP, Ordering::Release);
        return;
    };

    keep_waits_of_the_dead(counters);
    merge_tokens(&own, counters);
    OWN_GATE.store(Box::leak(Box::new(own)), Ordering::Release);
    state::STATE.store(state::OPEN, Ordering::Release);
}

fn open(run: &Run, is_apart: bool) -> Option<OwnGate> {
    let classes = run.handover.make_classes().ok()?;
    let numbers: Vec<Class> = run.handover.classes.iter().filter_map(|form| classes.find(&form.name)).collect();
    let topology = Topology::new(1, classes, vec![run.handover.disk.setup()]).ok()?;
    let gate = Gate::holding_signals(&topology, 0, 0).ok()?;
    let is_traced = AtomicBool::new(false);
    if let Some(path) = &run.handover.trace {
        match record(&topology, Path::new(path)) {
            Ok(()) => is_traced.store(true, Ordering::Relaxed),
            Err(error) => note_trace_error(&error),
        }
    }
    Some(OwnGate { gate, classes: numbers, control: OnceLock::new(), is_apart, is_traced })
}

/// Serves the socket for `plimsoll attach`. A program can run without one.
pub(crate) fn serve(own: &OwnGate) {
    let program = state::run().map_or("", |run| run.handover.program.as_str());
    if let Ok(server) = Server::start(own.gate.topology(), program) {
        let _ = own.control.set(server);
    }
}

fn record(topology: &Topology, path: &Path) -> io::Result<()> {
    // An earlier process of the run may have written a trace there already.
    let mut other = path.as_os_str().to_owned();
    other.push(format!(".{}", std::process::id()));
    let own = File::create_new(path);
    let is_beside = own.is_err();
    let file = own.or_else(|_| File::create(Path::new(&other)))?;
    if let Some(counters) = state::counters() {
        counters.traces.fetch_add(1, Ordering::Relaxed);
        counters.traces_beside.fetch_add(u32::from(is_beside), Ordering::Relaxed);
    }
    topology.trace().start_without_thread(file_writer(file)?, TraceConfig::default()).map_err(|error| match error {
        TraceStartError::Io(error) => error,
        error => io::Error::other(error),
    })
}

fn note_trace_error(error: &io::Error) {
    if let Some(counters) = state::counters() {
        let errno = error.raw_os_error().unwrap_or(libc::EIO).unsigned_abs();
        // Keep the first error.
        let _ = counters.trace_errno.compare_exchange(0, errno, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Writes the trace's events since the last call. Ends the trace if it can no longer be written, so that the command
/// learns that even if the process is killed. Returns whether there is one.
pub(crate) fn carry_trace(own: &OwnGate) -> bool {
    let is_traced = own.is_traced.load(Ordering::Relaxed);
    if is_traced && !own.gate.topology().trace().carry() {
        end_trace(own);
    }
    is_traced
}

/// Ends the trace, if there is one, and counts its result. Call this on a thread that has the trace's descriptor.
pub(crate) fn end_trace(own: &OwnGate) {
    if !own.is_traced.swap(false, Ordering::Relaxed) {
        return;
    }
    let (Some(summary), Some(counters)) = (own.gate.topology().trace().stop(), state::counters()) else { return };
    if let Some(error) = &summary.error {
        note_trace_error(error);
    }
    counters.trace_dropped.fetch_add(summary.dropped_events, Ordering::Relaxed);
    counters.traces_ended.fetch_add(1, Ordering::Relaxed);
}

/// Adds the waits of earlier gates of the run to the totals, so that they remain counted.
fn keep_waits_of_the_dead(counters: &Counters) {
    for class in &counters.classes {
        for (before, now) in class.waited_before_ns.iter().zip(&class.waited_ns) {
            before.fetch_add(now.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Takes over the tokens that the gate before has left, and leaves them to the next one.
fn merge_tokens(own: &OwnGate, counters: &Counters) {
    let Some(disk) = own.gate.topology().disk(0) else { return };
    let mut until = counters.tokens_until.each_ref().map(|ticks| ticks.load(Ordering::Relaxed));
    disk.merge_tokens(&mut until);
    counters.tokens_until.iter().zip(until).for_each(|(place, ticks)| place.store(ticks, Ordering::Relaxed));
}

/// Copies the classes' waits and the state of the token buckets into the shared memory.
pub(crate) fn copy_state(own: &OwnGate, counters: &Counters) {
    merge_tokens(own, counters);
    for (class, shared) in own.classes.iter().zip(&counters.classes) {
        let Some(stats) = own.gate.class_stats(*class) else { continue };
        for (reason, place) in WaitReason::ALL.into_iter().zip(&shared.waited_ns) {
            place.store(stats.waited_for_ns(reason), Ordering::Relaxed);
        }
    }
}

pub(crate) fn remove_socket(own: &OwnGate) {
    if let Some(control) = own.control.get() {
        // The socket may have been removed by hand.
        let _ = std::fs::remove_file(control.path());
    }
}
