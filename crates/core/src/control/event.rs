//! What the controller did and why, kept for whoever asks later.
//!
//! # Why
//! A window that changes by itself must be able to explain itself. Every change is an event with its reason.
//!
//! # How it works
//! A ring of the last [`EVENTS_KEPT`] events, allocated once. Events are numbered from 1 on without gaps, so a reader
//! that remembers the last number it has seen gets what is new and notices what it has missed.
//!
//! # Limits
//! The alternation of the window around its centre while it is being probed is no event, and neither are changes of
//! `capacity_scale` of less than 5 %.
//!
//! # Example
//! An event prints as one line:
//! `#17 at 1.250000 s: window lowered from 812.0 us to 764.3 us (elasticity 0.012)`.

use core::fmt;

/// How many events are kept; older ones are overwritten.
pub const EVENTS_KEPT: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// More in flight gave more throughput: the window has grown.
    WindowRaised,
    /// The last part of the window gave hardly any throughput: it has shrunk.
    WindowLowered,
    /// The rate fell suddenly. The window was cut in proportion; whether that was right is being measured.
    Fall,
    /// The cut after a fall cost throughput, or the disk came back meanwhile: the window before is restored.
    FallReverted,
    /// The rate rose suddenly: the window is being sought anew.
    Recovery,
    /// Nothing completes although requests are in flight: nothing is learnt until that ends.
    Stall,
    /// Requests complete again.
    StallOver,
    /// `capacity_scale` moved by 5 % or more since the last such event.
    ScaleChanged,
    /// The window reached the largest one allowed, while more would have given more throughput.
    Bound,
    /// A latency target was missed in the device: the classes with looser targets get less (part of its time).
    OthersGiveWay,
    /// A latency target is met with room: the classes with looser targets get more (part of the device's time).
    OthersComeBack,
    /// A latency target was missed in the queue: its classes' shares count so many times.
    WeightRaised,
    /// A latency target is met with room: its classes' shares count so many times.
    WeightLowered,
    /// A latency target is missed although the classes with looser targets use hardly anything (part of the device's time).
    TargetUnreachable,
}

impl EventKind {
    fn words(self) -> &'static str {
        match self {
            EventKind::WindowRaised => "window raised",
            EventKind::WindowLowered => "window lowered",
            EventKind::Fall => "rate fell, window cut",
            EventKind::FallReverted => "cut taken back, window",
            EventKind::Recovery => "rate rose, window",
            EventKind::Stall => "stall begins, window",
            EventKind::StallOver => "stall over, window",
            EventKind::ScaleChanged => "capacity scale",
            EventKind::Bound => "window at its bound,",
            EventKind::OthersGiveWay => "others give way,",
            EventKind::OthersComeBack => "others come back,",
            EventKind::WeightRaised => "weight raised",
            EventKind::WeightLowered => "weight lowered",
            EventKind::TargetUnreachable => "latency target out of reach, others use",
        }
    }
}

/// Why it happened.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventReason {
    /// By how many per cent throughput changes for one per cent of window: 1 below the knee, 0 far above.
    Elasticity(f64),
    /// Completion rates in model device seconds per second.
    Rate {
        /// What it was, or what was compared with.
        before: f64,
        /// What it is.
        after: f64,
    },
    /// For this many nanoseconds nothing has completed.
    SilenceNs(u64),
    /// Tokens were missing while the window had room.
    TokensMissing,
    /// So many of the requests with a latency target missed it, and so many may (parts of all).
    Missed {
        /// The part that missed it.
        part: f64,
        /// The part that may.
        allowed: f64,
    },
    /// A class has too little outstanding to hold its share of a larger window.
    Outstanding,
}

impl fmt::Display for EventReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventReason::Elasticity(e) => write!(f, "elasticity {e:.3}"),
            EventReason::Rate { before, after } => {
                write!(f, "rate {before:.3} -> {after:.3} model device seconds per second")
            }
            EventReason::SilenceNs(ns) => write!(f, "nothing completed for {:.1} ms", *ns as f64 / 1e6),
            EventReason::TokensMissing => write!(f, "tokens were missing while the window had room"),
            EventReason::Missed { part, allowed } => {
                write!(f, "{:.2} % missed their target, {:.2} % may", part * 100.0, allowed * 100.0)
            }
            EventReason::Outstanding => write!(f, "a class has too little outstanding for more"),
        }
    }
}

/// One decision of the controller. Its `Display` is one plain line with units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlEvent {
    /// When, on the clock of the caller, in nanoseconds.
    pub at_ns: u64,
    /// Number of the event, from 1 on, without gaps.
    pub seq: u64,
    /// What happened.
    pub kind: EventKind,
    /// The value before: the window in nanoseconds of model device time, or (`ScaleChanged`) the scale, a pure number.
    pub from: f64,
    /// The value after, in the unit of `from`.
    pub to: f64,
    /// Why.
    pub reason: EventReason,
}

impl fmt::Display for ControlEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} at {:.6} s: {} ", self.seq, self.at_ns as f64 / 1e9, self.kind.words())?;
        let is_number = matches!(self.reason, EventReason::Missed { .. }) || self.kind == EventKind::ScaleChanged;
        if is_number {
            write!(f, "from {:.3} to {:.3} ({})", self.from, self.to, self.reason)
        } else {
            write!(f, "from {:.1} us to {:.1} us ({})", self.from / 1e3, self.to / 1e3, self.reason)
        }
    }
}

/// The ring.
#[derive(Debug)]
pub(crate) struct EventLog {
    ring: Vec<ControlEvent>,
    last_seq: u64,
}

impl EventLog {
    pub(crate) fn new() -> EventLog {
        EventLog { ring: Vec::with_capacity(EVENTS_KEPT), last_seq: 0 }
    }

    pub(crate) fn push(&mut self, at_ns: u64, kind: EventKind, from: f64, to: f64, reason: EventReason) {
        self.last_seq += 1;
        let event = ControlEvent { at_ns, seq: self.last_seq, kind, from, to, reason };
        if self.ring.len() < EVENTS_KEPT {
            self.ring.push(event);
        } else if let Some(oldest) = self.ring.get_mut(((self.last_seq - 1) % EVENTS_KEPT as u64) as usize) {
            *oldest = event;
        }
    }

    /// The kept events with a number above `seq`, oldest first.
    pub(crate) fn since(&self, seq: u64) -> impl Iterator<Item = &ControlEvent> {
        let oldest = self.last_seq.saturating_sub(self.ring.len() as u64);
        (seq.max(oldest)..self.last_seq).filter_map(|before| self.ring.get((before % EVENTS_KEPT as u64) as usize))
    }
}
