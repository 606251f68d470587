//! Single flight: however many ask for a key that is not cached, one of them fetches it, as urgently as the most urgent
//! of them needs it.
//!
//! # Why
//! A hundred queries that miss one block at the same time would read it a hundred times from the origin. And when a
//! query waits for a block that a background scan has begun to fetch, it waits in the scan's class: an inversion of
//! priorities.
//!
//! # How it works
//! [`Flights`] has a flight for each key that is being fetched. The first to [`Flights::join`] leads: it fetches, and
//! tells all others with [`Leader::finish`]. The others follow: a [`Follower`] is a future that yields the value. A
//! leader that is dropped before it has finished hands over to the follower that has waited longest, which then leads.
//!
//! Each flight has the class of the highest rank that ever joined it. [`Leader::urgency`] tells the fetch when that
//! changes, and [`race_on_promotion`] does what is usually right: it starts the fetch once more in the higher class and
//! takes whichever ends first. Dropping the other takes it out of the scheduler's queue, if it is still in there.
//!
//! No runtime is needed, and no task: flights work under any executor, and in virtual time.
//!
//! # Limits
//! A leader that is neither polled nor dropped keeps its followers waiting: whoever leads must run as a task of its own
//! (a shard's), not within a caller's future. A follower that gives up does not lower the class again.
//!
//! Locks: first a shard of the table, then a flight, then its urgency; wakers are called with none of them held.
//!
//! # Example
//! A scan (rank 1) joins key K and leads, in class `scan`. A query (rank 9) joins K and follows; the scan's read is
//! still queued, so `race_on_promotion` reads again in class `query`, which is served first. The scan's task calls
//! `finish`, both have the block, and the read in class `scan` never reached the disk.

use std::collections::{BTreeMap, HashMap, hash_map};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use plimsoll::Class;

use crate::key::KeyHash;
use crate::sync::lock;

/// Parts of the table, each behind a lock of its own.
const TABLE_SHARDS: usize = 64;

/// A class and how urgent it is among the classes; the higher the rank, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) class: Class,
    pub(crate) rank: u32,
}

type Table<V> = [Mutex<HashMap<KeyHash, Arc<Flight<V>>>>; TABLE_SHARDS];

/// Fetches under way. See the module's documentation.
pub(crate) struct Flights<V> {
    table: Arc<Table<V>>,
}

struct Flight<V> {
    state: Mutex<State<V>>,
    pressure: Mutex<Pressure>,
}

/// Who is in a flight. It is in the table exactly while it has a leader or followers, and no value.
struct State<V> {
    value: Option<V>,
    /// The follower that is to lead next, when there is no leader.
    heir: Option<u64>,
    /// By number, so in the order in which they came.
    followers: BTreeMap<u64, Option<Waker>>,
    next_follower: u64,
}

struct Pressure {
    highest: Ranked,
    /// Of the one who waits for a change.
    waker: Option<Waker>,
}

/// What one is in a flight.
pub(crate) enum Joined<V: Clone + Send> {
    /// The one who fetches.
    Lead(Leader<V>),
    /// One of those who wait.
    Follow(Follower<V>),
}

impl<V: Clone + Send> Flights<V> {
    /// No flights yet.
    pub(crate) fn new() -> Flights<V> {
        Flights { table: Arc::new(std::array::from_fn(|_| Mutex::default())) }
    }

    /// Joins the flight of `hash`, or begins it. A class of a higher rank than the flight's becomes the flight's.
    pub(crate) fn join(&self, hash: KeyHash, ranked: Ranked) -> Joined<V> {
        let mut shard = lock(shard(&self.table, &hash));
        match shard.entry(hash) {
            hash_map::Entry::Vacant(vacant) => {
                let flight = Arc::new(Flight::new(ranked));
                vacant.insert(flight.clone());
                Joined::Lead(Leader { place: Place { table: self.table.clone(), hash, flight }, has_ended: false })
            }
            hash_map::Entry::Occupied(occupied) => {
                let flight = occupied.get().clone();
                let number = flight.add_follower();
                drop(shard);
                flight.raise(ranked);
                let place = Place { table: self.table.clone(), hash, flight };
                Joined::Follow(Follower { place: Some(place), number })
            }
        }
    }

    /// How many flights there are now.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.table.iter().map(|shard| lock(shard).len()).sum()
    }
}

fn shard<'a, V>(table: &'a Table<V>, hash: &KeyHash) -> &'a Mutex<HashMap<KeyHash, Arc<Flight<V>>>> {
    let [first, rest @ ..] = table;
    match hash.shard() % TABLE_SHARDS {
        0 => first,
        number => rest.get(number - 1).unwrap_or(first),
    }
}

impl<V> Flight<V> {
    fn new(highest: Ranked) -> Flight<V> {
        let state = State { value: None, heir: None, followers: BTreeMap::new(), next_follower: 0 };
        Flight { state: Mutex::new(state), pressure: Mutex::new(Pressure { highest, waker: None }) }
    }

    fn add_follower(&self) -> u64 {
        let mut state = lock(&self.state);
        let number = state.next_follower;
        state.next_follower += 1;
        state.followers.insert(number, None);
        number
    }

    fn raise(&self, ranked: Ranked) {
        let mut pressure = lock(&self.pressure);
        if ranked.rank <= pressure.highest.rank {
            return;
        }
        pressure.highest = ranked;
        let waker = pressure.waker.take();
        drop(pressure);
        wake(waker);
    }
}

impl<V> State<V> {
    /// Names the follower that leads next, and its waker. `None`: nobody is left.
    fn choose_heir(&mut self) -> Option<Option<Waker>> {
        let (number, waker) = self.followers.iter_mut().next()?;
        self.heir = Some(*number);
        Some(waker.take())
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A flight and where it is in the table.
struct Place<V> {
    table: Arc<Table<V>>,
    hash: KeyHash,
    flight: Arc<Flight<V>>,
}

impl<V> Place<V> {
    /// Hands over to the next follower, or ends the flight when nobody is left: `leave` says, under the locks, whether
    /// there is need to.
    fn hand_over(&self, leave: impl FnOnce(&mut State<V>) -> bool) {
        let mut shard = lock(shard(&self.table, &self.hash));
        let mut state = lock(&self.flight.state);
        if !leave(&mut state) {
            return;
        }
        let heir = state.choose_heir();
        drop(state);
        if heir.is_none() {
            shard.remove(&self.hash);
        }
        drop(shard);
        wake(heir.flatten());
    }
}

/// The one who fetches. Dropped without [`Leader::finish`], it hands over to a follower.
pub(crate) struct Leader<V: Clone + Send> {
    place: Place<V>,
    has_ended: bool,
}

impl<V: Clone + Send> Leader<V> {
    /// Ends the flight: all followers get a clone of `value`. Who joins from now on begins another flight, so what was
    /// fetched should be found in the cache before this is called.
    pub(crate) fn finish(mut self, value: V) {
        self.has_ended = true;
        let flight = &self.place.flight;
        let mut shard = lock(shard(&self.place.table, &self.place.hash));
        shard.remove(&self.place.hash);
        let mut state = lock(&flight.state);
        drop(shard);
        let wakers: Vec<Waker> = state.followers.values_mut().filter_map(Option::take).collect();
        if !state.followers.is_empty() {
            state.value = Some(value);
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// How urgent the flight is, now and later.
    pub(crate) fn urgency(&mut self) -> Urgency<'_> {
        let pressure = &self.place.flight.pressure;
        let seen = lock(pressure).highest;
        Urgency { pressure, seen }
    }
}

impl<V: Clone + Send> Drop for Leader<V> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.place.hand_over(|_| true);
        }
    }
}

/// How urgent a flight is.
pub(crate) struct Urgency<'a> {
    pressure: &'a Mutex<Pressure>,
    seen: Ranked,
}

impl Urgency<'_> {
    /// The class of the highest rank that has joined, as far as [`Urgency::changed`] has told.
    pub(crate) fn class(&self) -> Class {
        self.seen.class
    }

    /// Waits until a class of a higher rank has joined than the one last seen, and says which.
    #[cfg(test)]
    pub(crate) async fn changed(&mut self) -> Class {
        poll_fn(|context| self.poll_changed(context)).await
    }

    fn poll_changed(&mut self, context: &Context<'_>) -> Poll<Class> {
        let mut pressure = lock(self.pressure);
        if pressure.highest.rank > self.seen.rank {
            self.seen = pressure.highest;
            return Poll::Ready(self.seen.class);
        }
        // The borrow of the leader makes this the only one who waits.
        match &mut pressure.waker {
            Some(waker) => waker.clone_from(context.waker()),
            empty => *empty = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Urgency<'_> {
    fn drop(&mut self) {
        lock(self.pressure).waker = None;
    }
}

/// One of those who wait for the leader: a future. Dropped, it leaves the flight.
pub(crate) struct Follower<V: Clone + Send> {
    /// Gone once the future has ended.
    place: Option<Place<V>>,
    number: u64,
}

/// What became of waiting.
pub(crate) enum Followed<V: Clone + Send> {
    /// The leader's value.
    Value(V),
    /// The leader gave up: it is this one's turn to fetch.
    Lead(Leader<V>),
}

impl<V: Clone + Send> Future for Follower<V> {
    type Output = Followed<V>;

    /// Never ready again once it was.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Followed<V>> {
        let this = self.get_mut();
        let Some(place) = this.place.take() else { return Poll::Pending };
        let mut state = lock(&place.flight.state);
        if let Some(value) = &state.value {
            let value = value.clone();
            state.followers.remove(&this.number);
            return Poll::Ready(Followed::Value(value));
        }
        if state.heir == Some(this.number) {
            state.heir = None;
            state.followers.remove(&this.number);
            drop(state);
            return Poll::Ready(Followed::Lead(Leader { place, has_ended: false }));
        }
        state.followers.insert(this.number, Some(context.waker().clone()));
        drop(state);
        this.place = Some(place);
        Poll::Pending
    }
}

impl<V: Clone + Send> Drop for Follower<V> {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        let number = self.number;
        place.hand_over(|state| {
            state.followers.remove(&number);
            let is_heir = state.heir == Some(number);
            if is_heir {
                state.heir = None;
            }
            is_heir && state.value.is_none()
        });
    }
}

/// Runs `start(class)`, and once more beside it each time a higher class joins; the first that ends wins, the others
/// are dropped. There are never more of them than classes that rose above one another.
pub(crate) async fn race_on_promotion<F: Future>(
    mut urgency: Urgency<'_>,
    mut start: impl FnMut(Class) -> F,
) -> F::Output {
    let mut runs = vec![Box::pin(start(urgency.class()))];
    poll_fn(|context| {
        while let Poll::Ready(class) = urgency.poll_changed(context) {
            runs.push(Box::pin(start(class)));
        }
        // The most urgent first: it is the one that should win where both have ended.
        match runs.iter_mut().rev().find_map(|run| ended(run.as_mut().poll(context))) {
            Some(output) => Poll::Ready(output),
            None => Poll::Pending,
        }
    })
    .await
}

fn ended<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests;
