//! The controller's decisions with their reasons, kept for later queries.
//!
//! # Why
//! A window that changes by itself must explain itself, so every change is an event with its reason.
//!
//! # How it works
//! A ring of the last [`EVENTS_KEPT`] events, allocated once. Events are numbered from 1 without gaps, so a reader that
//! remembers the last number it has seen gets only new events and notices those that it has missed.
//!
//! # Limits
//! The probe's alternation around the centre makes no events, nor do changes of `capacity_scale` of less than 5 %.
//!
//! # Example
//! An event prints as one line:
//! `#17 at 1.250000 s: window lowered from 812.0 us to 764.3 us (elasticity 0.012)`.

use core::fmt;

/// Events kept; older ones are overwritten.
pub const EVENTS_KEPT: usize = 256;

/// Kind of a decision of the closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// More in flight gave more throughput: the window has grown.
    WindowRaised,
    /// The last part of the window gave hardly any throughput: it has shrunk.
    WindowLowered,
    /// The rate fell suddenly. The window was cut in proportion; a measurement decides whether the cut stays.
    Fall,
    /// The cut after a fall cost throughput, or the disk recovered meanwhile: the window before it is restored.
    FallReverted,
    /// The rate rose suddenly: the search for the window starts over.
    Recovery,
    /// Nothing completes although requests are in flight: the controller learns nothing until the stall ends.
    Stall,
    /// Requests complete again.
    StallOver,
    /// `capacity_scale` moved by 5 % or more since the last such event.
    ScaleChanged,
    /// The window reached the largest one allowed, although a larger one would give more throughput.
    Bound,
    /// A latency target was missed in the device: classes with looser targets get less. Values: part of the device
    /// time.
    OthersGiveWay,
    /// A latency target is met with room: classes with looser targets get more. Values: part of the device time.
    OthersComeBack,
    /// A latency target was missed in the queue: the shares of its classes are multiplied. Values: the factor.
    WeightRaised,
    /// A latency target is met with room: the factor on the shares of its classes falls. Values: the factor.
    WeightLowered,
    /// A latency target is missed although classes with looser targets use hardly any device time. Values: the part
    /// that they use.
    TargetUnreachable,
    /// The window is opened far beyond its bound for some tens of milliseconds, to measure the disk's full rate.
    Excursion,
}

impl EventKind {
    /// Returns the kind of a change of the window that is neither a fall nor an excursion.
    pub(super) fn of_window(before_ns: f64, after_ns: f64) -> EventKind {
        if after_ns < before_ns { EventKind::WindowLowered } else { EventKind::WindowRaised }
    }

    /// Returns the decision in plain words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            EventKind::WindowRaised => "window raised",
            EventKind::WindowLowered => "window lowered",
            EventKind::Fall => "rate fell, window cut",
            EventKind::FallReverted => "cut taken back",
            EventKind::Recovery => "rate rose",
            EventKind::Stall => "stall begins",
            EventKind::StallOver => "stall over",
            EventKind::ScaleChanged => "capacity scale",
            EventKind::Bound => "window at its bound",
            EventKind::OthersGiveWay => "others give way",
            EventKind::OthersComeBack => "others come back",
            EventKind::WeightRaised => "weight raised",
            EventKind::WeightLowered => "weight lowered",
            EventKind::TargetUnreachable => "latency target out of reach",
            EventKind::Excursion => "full rate tried",
        }
    }

    /// Returns the text between the words and the values: it names the values if the words do not.
    fn of_values(self) -> &'static str {
        match self {
            EventKind::FallReverted
            | EventKind::Recovery
            | EventKind::Stall
            | EventKind::StallOver
            | EventKind::Excursion => ", window",
            EventKind::Bound | EventKind::OthersGiveWay | EventKind::OthersComeBack => ",",
            EventKind::TargetUnreachable => ", others use",
            EventKind::WindowRaised
            | EventKind::WindowLowered
            | EventKind::Fall
            | EventKind::ScaleChanged
            | EventKind::WeightRaised
            | EventKind::WeightLowered => "",
        }
    }
}

/// Reason of a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventReason {
    /// Percent by which throughput changes per percent of window: 1 below the knee, 0 far above.
    Elasticity(f64),
    /// Completion rates in model device seconds per second.
    Rate {
        /// The rate before, or the rate compared with.
        before: f64,
        /// The rate now.
        after: f64,
    },
    /// Nanoseconds without a completion.
    SilenceNs(u64),
    /// Tokens were missing while the window had room.
    TokensMissing,
    /// Part of the requests with a latency target that missed it, and the part that may.
    Missed {
        /// The part that missed the target.
        part: f64,
        /// The part that may miss it.
        allowed: f64,
    },
    /// Parts of the rate at the largest window found: the part that this window loses, and the part that the throughput
    /// goal allows to lose.
    Loss {
        /// The part lost, as far as it is known.
        lost: f64,
        /// The part that may be lost.
        allowed: f64,
    },
    /// A class that had no requests waits behind the requests of others.
    Guests,
    /// A class has too few outstanding requests to hold its share of a larger window, or has enough again.
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
            EventReason::Loss { lost, allowed } => {
                write!(f, "{:.1} % of the rate lost, {:.1} % may be", lost * 100.0, allowed * 100.0)
            }
            EventReason::Guests => write!(f, "classes that send little wait behind others"),
            EventReason::Outstanding => write!(f, "the least of what the classes have outstanding"),
        }
    }
}

/// One decision of the controller. Its `Display` is one plain line with units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlEvent {
    /// Time on the clock of the caller, in nanoseconds.
    pub at_ns: u64,
    /// Number of the event, from 1 without gaps.
    pub seq: u64,
    /// The decision.
    pub kind: EventKind,
    /// Value before: the window in nanoseconds of model device time, or for some kinds a pure number (see
    /// [`EventKind`]).
    pub from: f64,
    /// The value after, in the unit of `from`.
    pub to: f64,
    /// The reason.
    pub reason: EventReason,
}

impl fmt::Display for ControlEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, of_values) = (self.kind.words(), self.kind.of_values());
        write!(f, "#{} at {:.6} s: {words}{of_values} ", self.seq, self.at_ns as f64 / 1e9)?;
        let is_number = matches!(self.reason, EventReason::Missed { .. }) || self.kind == EventKind::ScaleChanged;
        if is_number {
            write!(f, "from {:.3} to {:.3} ({})", self.from, self.to, self.reason)
        } else {
            write!(f, "from {:.1} us to {:.1} us ({})", self.from / 1e3, self.to / 1e3, self.reason)
        }
    }
}

/// A ring of the last events.
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

    /// Returns the kept events with a number above `seq`, oldest first.
    pub(crate) fn since(&self, seq: u64) -> impl Iterator<Item = &ControlEvent> {
        let oldest = self.last_seq.saturating_sub(self.ring.len() as u64);
        (seq.max(oldest)..self.last_seq).filter_map(|before| self.ring.get((before % EVENTS_KEPT as u64) as usize))
    }
}
