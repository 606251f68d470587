//! Single flight: of all readers that miss a key, one fetches it, as urgently as the most urgent of them needs it.
//!
//! # Why
//! A hundred queries that miss one block at the same time would read it a hundred times from the origin. And if a query
//! waits for a block that a background scan is fetching, it waits in the scan's class: priority inversion.
//!
//! # How it works
//! [`Flights`] has a flight for each key that is being fetched. The first to [`Flights::join`] leads: it fetches the
//! value and hands it to all others with [`Leader::publish`]. The others follow: a [`Follower`] is a future of the
//! value. Until the leader is dropped, which is when the block is cached, a caller that joins gets the value at once.
//! (That a fetch failed is a value too.) If the leader is dropped before it has a value, the follower that has waited
//! longest becomes the leader. A change of the key *parts* its flight ([`Flights::part`]): the value may be older than
//! the change, so no further caller joins.
//!
//! Each flight has the class of the highest rank that ever joined it. [`Leader::urgency`] reports changes of that
//! class. [`race_on_promotion`] starts the fetch once more in the higher class and takes the first result. Dropping
//! the other fetch takes it out of the scheduler's queue, if it is still queued.
//!
//! No runtime is needed, and no task: flights work under any executor, and in virtual time.
//!
//! # Limits
//! A leader that is neither polled nor dropped keeps its followers waiting, so a leader must run as a task of its own
//! (on a shard), not within a caller's future. The class stays raised when a follower gives up.
//!
//! Locks: first a shard of the table, then a flight, then its urgency; wakers are called with none of them held.
//!
//! # Example
//! A scan (rank 1) joins key K and leads, in class `scan`. A query (rank 9) joins K and follows; the scan's read is
//! still queued, so `race_on_promotion` reads again in class `query`, which is served first. The scan's task calls
//! `publish`, both have the block, and the read in class `scan` never reached the disk.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, hash_map};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use plimsoll::Class;

use crate::block::Block;
use crate::key::KeyHash;
use crate::sync::lock;

/// The result of a flight for a block. Readers of one key may have errors of different types.
pub(crate) type Flown = Result<Block, Arc<dyn Any + Send + Sync>>;

/// Parts of the table, each behind a lock of its own: fewer collisions.
const TABLE_SHARDS: usize = 64;

/// A class and its rank among the classes; the higher the rank, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranked {
    pub(crate) class: Class,
    pub(crate) rank: u32,
}

type Table<V> = [Mutex<HashMap<KeyHash, Arc<Flight<V>>>>; TABLE_SHARDS];

/// Fetches under way, by key.
pub(crate) struct Flights<V> {
    table: Arc<Table<V>>,
}

struct Flight<V> {
    state: Mutex<State<V>>,
    pressure: Mutex<Pressure>,
}

/// The members of a flight. A flight that was not parted is in the table exactly while it has a leader, or followers
/// and no value.
struct State<V> {
    value: Option<V>,
    /// The follower that leads next, if there is no leader.
    heir: Option<u64>,
    /// By number, that is, in order of arrival.
    followers: BTreeMap<u64, Option<Waker>>,
    next_follower: u64,
}

struct Pressure {
    highest: Ranked,
    /// Wakes the leader when `highest` changes.
    waker: Option<Waker>,
}

/// A caller's role in a flight.
pub(crate) enum Joined<V: Clone + Send> {
    /// The caller fetches.
    Lead(Leader<V>),
    /// The caller waits.
    Follow(Follower<V>),
}

impl<V: Clone + Send> Flights<V> {
    /// Returns a table without flights.
    pub(crate) fn new() -> Flights<V> {
        Flights { table: Arc::new(std::array::from_fn(|_| Mutex::default())) }
    }

    /// Joins the flight of `hash`, or begins it. If `ranked` has a higher rank than the flight, the flight takes its
    /// class.
    pub(crate) fn join(&self, hash: KeyHash, ranked: Ranked) -> Joined<V> {
        let mut shard = lock(shard(&self.table, &hash));
        match shard.entry(hash) {
            hash_map::Entry::Vacant(vacant) => {
                let flight = Arc::new(Flight::new(ranked));
                vacant.insert(flight.clone());
                Joined::Lead(Leader { place: Place { table: self.table.clone(), hash, flight } })
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

    /// Keeps others from joining the flight of `hash`. Its leader and followers stay.
    pub(crate) fn part(&self, hash: &KeyHash) {
        // Dropped after the lock: it may be the last owner.
        let _flight = lock(shard(&self.table, hash)).remove(hash);
    }

    /// Returns the number of flights.
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
    /// Chooses the follower that leads next. Returns its waker, or `None` if no follower is left.
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

/// A flight and its key in the table.
struct Place<V> {
    table: Arc<Table<V>>,
    hash: KeyHash,
    flight: Arc<Flight<V>>,
}

impl<V> Place<V> {
    /// Hands the lead to the next follower, or ends the flight if none is left or all have the value. Calls `leave`
    /// first, under the locks; if it returns false, does nothing else.
    fn hand_over(&self, leave: impl FnOnce(&mut State<V>) -> bool) {
        let mut shard = lock(shard(&self.table, &self.hash));
        let mut state = lock(&self.flight.state);
        if !leave(&mut state) {
            return;
        }
        let heir = if state.value.is_none() { state.choose_heir() } else { None };
        drop(state);
        let is_in_table = shard.get(&self.hash).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight));
        if heir.is_none() && is_in_table {
            shard.remove(&self.hash);
        }
        drop(shard);
        wake(heir.flatten());
    }
}

/// The caller that fetches. If dropped without [`Leader::publish`], a follower takes over.
pub(crate) struct Leader<V: Clone + Send> {
    place: Place<V>,
}

impl<V: Clone + Send> Leader<V> {
    /// Gives a clone of `value` to all followers, and to all that join until the leader is dropped. A caller that joins
    /// later begins another flight, so drop the leader when the value is in the cache.
    pub(crate) fn publish(&self, value: V) {
        let mut state = lock(&self.place.flight.state);
        let wakers: Vec<Waker> = state.followers.values_mut().filter_map(Option::take).collect();
        state.value = Some(value);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the flight's urgency, which follows later changes.
    pub(crate) fn urgency(&mut self) -> Urgency<'_> {
        let pressure = &self.place.flight.pressure;
        let seen = lock(pressure).highest;
        Urgency { pressure, seen }
    }
}

impl<V: Clone + Send> Drop for Leader<V> {
    fn drop(&mut self) {
        self.place.hand_over(|_| true);
    }
}

/// The urgency of a flight.
pub(crate) struct Urgency<'a> {
    pressure: &'a Mutex<Pressure>,
    seen: Ranked,
}

impl Urgency<'_> {
    /// Returns the class of the highest rank, as of the last call of [`Urgency::changed`].
    pub(crate) fn class(&self) -> Class {
        self.seen.class
    }

    /// Waits until a class of a higher rank than the last one seen has joined. Returns that class.
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
        // The only waiter: an `Urgency` borrows the leader mutably.
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

/// A future of the leader's value. If dropped, it leaves the flight.
pub(crate) struct Follower<V: Clone + Send> {
    /// `None` once the future has ended.
    place: Option<Place<V>>,
    number: u64,
}

/// How a follower's wait ended.
pub(crate) enum Followed<V: Clone + Send> {
    /// The leader's value.
    Value(V),
    /// The leader gave up: the follower must fetch.
    Lead(Leader<V>),
}

impl<V: Clone + Send> Future for Follower<V> {
    type Output = Followed<V>;

    /// Waits for the value or for the lead. Pending for ever once it was ready.
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
            return Poll::Ready(Followed::Lead(Leader { place }));
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

/// Runs `start(class)`, and once more beside it whenever a higher class joins. Returns the first result and drops the
/// other runs. There are at most as many runs as classes that rose above one another.
pub(crate) async fn race_on_promotion<F: Future>(
    mut urgency: Urgency<'_>,
    mut start: impl FnMut(Class) -> F,
) -> F::Output {
    let mut runs = vec![Box::pin(start(urgency.class()))];
    poll_fn(|context| {
        while let Poll::Ready(class) = urgency.poll_changed(context) {
            runs.push(Box::pin(start(class)));
        }
        // The most urgent run first: it wins if several have ended.
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
