//! What a cache may say: a map that forgets.
//!
//! # How it works
//! Every change of a key is an event with a begin and an end, in the order of a counter that every step advances. An
//! event may be what a key has at a moment unless another one began after its end and ended before that moment. A hit must
//! be such an event; a miss always may be. After a crash a key may have any state that it had since the last
//! acknowledged checkpoint was asked for.
//!
//! # Limits
//! States that a crash left possible stay so until one is seen or the key changes.

use std::collections::BTreeMap;

/// What a key has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// The value of this number: never the same twice.
    Value(u32),
}

#[derive(Clone, Copy, Debug)]
struct Event {
    state: State,
    begin: u64,
    end: u64,
}

impl Event {
    /// Whether it is over by `moment`, by another event that came after it.
    fn is_over(&self, others: &[Event], moment: u64) -> bool {
        others.iter().any(|other| other.begin > self.end && other.end < moment)
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Forgetful {
    now: u64,
    values: u32,
    keys: BTreeMap<u32, Vec<Event>>,
}

const NEVER: u64 = u64::MAX;

impl Forgetful {
    /// A moment.
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

    /// A key is about to get a new value: the number of the value, and of the event.
    pub(crate) fn begin_insert(&mut self, key: u32) -> (u32, u64) {
        self.values += 1;
        (self.values, self.begin(key, State::Value(self.values)))
    }

    /// A key is about to be removed.
    pub(crate) fn begin_remove(&mut self, key: u32) -> u64 {
        self.begin(key, State::Absent)
    }

    /// What began has happened, or has not.
    pub(crate) fn end(&mut self, key: u32, event: u64, has_happened: bool) {
        let end = self.tick();
        let Some(events) = self.keys.get_mut(&key) else { return };
        if has_happened {
            events.iter_mut().filter(|other| other.begin == event).for_each(|event| event.end = end);
        } else {
            events.retain(|other| other.begin != event);
        }
    }

    /// What a key may have that was asked for at `asked` and answered now.
    pub(crate) fn possible(&self, key: u32, asked: u64) -> Vec<State> {
        let Some(events) = self.keys.get(&key) else { return vec![State::Absent] };
        events.iter().filter(|event| !event.is_over(events, asked)).map(|event| event.state).collect()
    }

    /// A key was seen to have this value, of those that a crash left possible.
    pub(crate) fn seen(&mut self, key: u32, value: u32) {
        let Some(events) = self.keys.get_mut(&key) else { return };
        if events.iter().any(|event| event.state == State::Value(value) && event.begin == 0) {
            events.retain(|event| event.begin != 0 || event.state == State::Value(value));
        }
    }

    /// A checkpoint that was asked for at `asked` is durable.
    pub(crate) fn checkpointed(&mut self, asked: u64) {
        for events in self.keys.values_mut() {
            let all = events.clone();
            events.retain(|event| !event.is_over(&all, asked));
        }
    }

    /// The power has failed.
    pub(crate) fn crashed(&mut self) {
        for events in self.keys.values_mut() {
            events.iter_mut().for_each(|event| (event.begin, event.end) = (0, 0));
        }
    }

    /// All keys that ever were.
    pub(crate) fn keys(&self) -> Vec<u32> {
        self.keys.keys().copied().collect()
    }
}
