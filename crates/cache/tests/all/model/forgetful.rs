//! The model of a cache: a map that may forget.
//!
//! # How it works
//! Every change of a key is an event with a begin and an end, in the order of a counter that every step advances. A
//! key may have an event's state at a moment unless another event began after its end and ended before that moment. A
//! hit must return such a state; a miss is always allowed. After a crash a key may have any state that it had since
//! the last acknowledged checkpoint was requested.
//!
//! # Limits
//! States that a crash left possible remain so until one is seen or the key changes.

use std::collections::BTreeMap;

/// The state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// The value of this number; no number is used twice.
    Value(u32),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    state: State,
    begin: u64,
    end: u64,
}

impl Event {
    /// Returns whether a later event has replaced this one by `moment`.
    fn is_over(&self, others: &[Event], moment: u64) -> bool {
        others.iter().any(|other| other.begin > self.end && other.end < moment)
    }
}

/// The possible states of all keys.
#[derive(Default)]
pub(crate) struct Forgetful {
    now: u64,
    values: u32,
    keys: BTreeMap<u32, Vec<Event>>,
}

const NEVER: u64 = u64::MAX;

impl Forgetful {
    /// Advances the counter. Returns the new moment.
    pub(crate) fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    fn begin(&mut self, key: u32, state: State) -> u64 {
        let begin = self.tick();
        let first = Event { state: State::Absent, begin: 0, end: 0 };
        self.keys.entry(key).or_insert_with(|| vec![first]).push(Event { state, begin, end: NEVER });
        begin
    }

    /// Begins an insert of a new value. Returns the numbers of the value and of the event.
    pub(crate) fn begin_insert(&mut self, key: u32) -> (u32, u64) {
        self.values += 1;
        (self.values, self.begin(key, State::Value(self.values)))
    }

    /// Begins a removal. Returns the number of the event.
    pub(crate) fn begin_remove(&mut self, key: u32) -> u64 {
        self.begin(key, State::Absent)
    }

    /// Ends an event, which has happened or not.
    pub(crate) fn end(&mut self, key: u32, event: u64, has_happened: bool) {
        let end = self.tick();
        let Some(events) = self.keys.get_mut(&key) else { return };
        if has_happened {
            events.iter_mut().filter(|other| other.begin == event).for_each(|event| event.end = end);
        } else {
            events.retain(|other| other.begin != event);
        }
    }

    /// Returns the states that a look-up may return if it began at `asked` and ends now.
    pub(crate) fn possible(&self, key: u32, asked: u64) -> Vec<State> {
        let Some(events) = self.keys.get(&key) else { return vec![State::Absent] };
        events.iter().filter(|event| !event.is_over(events, asked)).map(|event| event.state).collect()
    }

    /// Records that a key was seen with this value, of those that a crash left possible.
    pub(crate) fn seen(&mut self, key: u32, value: u32) {
        let Some(events) = self.keys.get_mut(&key) else { return };
        if events.iter().any(|event| event.state == State::Value(value) && event.begin == 0) {
            events.retain(|event| event.begin != 0 || event.state == State::Value(value));
        }
    }

    /// Records that a checkpoint requested at `asked` is durable.
    pub(crate) fn checkpointed(&mut self, asked: u64) {
        for events in self.keys.values_mut() {
            let all = events.clone();
            events.retain(|event| !event.is_over(&all, asked));
        }
    }

    /// Records that the power has failed.
    pub(crate) fn crashed(&mut self) {
        for events in self.keys.values_mut() {
            events.iter_mut().for_each(|event| (event.begin, event.end) = (0, 0));
        }
    }

    /// Returns all keys ever changed.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }
}
