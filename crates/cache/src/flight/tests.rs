//! Stories of flights, told poll by poll.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// Counts its wakes.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll_with<F: Future + ?Sized>(bell: &Arc<Bell>, future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(bell.clone())))
}

fn poll<F: Future + Unpin + ?Sized>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn key(number: u8) -> KeyHash {
    KeyHash::of(&[number], 1)
}

/// Returns classes named by their rank, in a registry of their own.
fn ranked(rank: u32) -> Ranked {
    let classes = plimsoll::Classes::new();
    let mut class = Class::DEFAULT;
    for number in 0..rank {
        class = classes.add_class(&format!("class {number}"), None, 100).unwrap();
    }
    Ranked { class, rank }
}

fn lead<V: Clone + Send>(flights: &Flights<V>, number: u8, rank: u32) -> Leader<V> {
    match flights.join(key(number), ranked(rank)) {
        Joined::Lead(leader) => leader,
        Joined::Follow(_) => panic!("somebody leads already"),
    }
}

fn follow<V: Clone + Send>(flights: &Flights<V>, number: u8, rank: u32) -> Follower<V> {
    match flights.join(key(number), ranked(rank)) {
        Joined::Follow(follower) => follower,
        Joined::Lead(_) => panic!("nobody leads"),
    }
}

/// Ends a flight as one whose value is in the cache.
fn finish<V: Clone + Send>(leader: Leader<V>, value: V) {
    leader.publish(value);
    drop(leader);
}

fn value<V: Clone + Send>(poll: Poll<Followed<V>>) -> Option<V> {
    match poll {
        Poll::Ready(Followed::Value(value)) => Some(value),
        _ => None,
    }
}

fn leadership<V: Clone + Send>(poll: Poll<Followed<V>>) -> Option<Leader<V>> {
    match poll {
        Poll::Ready(Followed::Lead(leader)) => Some(leader),
        _ => None,
    }
}

#[test]
fn one_fetches_and_all_have_it() {
    let flights = Flights::new();
    let leader = lead(&flights, 1, 1);
    let other = lead(&flights, 2, 1);
    let mut followers: Vec<_> = (0..3).map(|_| follow(&flights, 1, 1)).collect();
    let bells: Vec<_> = (0..3).map(|_| Arc::new(Bell::default())).collect();
    for (follower, bell) in followers.iter_mut().zip(&bells).take(2) {
        assert!(poll_with(bell, Pin::new(follower)).is_pending());
    }
    finish(leader, "block");
    assert_eq!(bells.iter().map(|bell| bell.rings()).collect::<Vec<_>>(), [1, 1, 0], "the third was never polled");
    for follower in &mut followers {
        assert_eq!(value(poll(follower)), Some("block"));
        assert!(poll(follower).is_pending(), "ready once");
    }
    assert_eq!(flights.len(), 1);
    drop(other);
    assert_eq!(flights.len(), 0);
}

#[test]
fn after_the_end_another_flight_begins() {
    let flights = Flights::new();
    let leader = lead(&flights, 1, 1);
    let mut late = follow(&flights, 1, 1);
    finish(leader, 1);
    let second = lead(&flights, 1, 1);
    assert_eq!(value(poll(&mut late)), Some(1), "the old flight's value, not the new one's");
    drop(late);
    assert_eq!(flights.len(), 1, "a follower of the old flight does not end the new one");
    finish(second, 2);
    assert_eq!(flights.len(), 0);
}

#[test]
fn until_the_value_is_cached_whoever_joins_has_it() {
    let flights = Flights::new();
    let leader = lead(&flights, 1, 1);
    let gone = follow(&flights, 1, 1);
    leader.publish(1);
    drop(gone);
    assert_eq!(value(poll(&mut follow(&flights, 1, 9))), Some(1));
    drop(leader);
    assert_eq!(flights.len(), 0);
}

#[test]
fn nobody_joins_a_flight_that_was_parted_and_its_members_stay() {
    let flights = Flights::new();
    let old = lead(&flights, 1, 1);
    let (mut early, mut heir) = (follow(&flights, 1, 1), follow(&flights, 1, 1));
    flights.part(&key(1));
    let new = lead(&flights, 1, 1);
    let mut late = follow(&flights, 1, 1);
    drop(old);
    let old = leadership(poll(&mut early)).unwrap();
    finish(old, 1);
    assert_eq!(value(poll(&mut heir)), Some(1));
    assert_eq!(flights.len(), 1, "the end of the old flight is not that of the new one");
    finish(new, 2);
    assert_eq!(value(poll(&mut late)), Some(2));
    assert_eq!(flights.len(), 0);
}

#[test]
fn a_dropped_leader_hands_over_to_one_follower() {
    let flights = Flights::new();
    let leader = lead(&flights, 1, 1);
    let (mut first, mut second) = (follow(&flights, 1, 1), follow(&flights, 1, 1));
    let bells = [Arc::new(Bell::default()), Arc::new(Bell::default())];
    assert!(poll_with(&bells[0], Pin::new(&mut first)).is_pending());
    assert!(poll_with(&bells[1], Pin::new(&mut second)).is_pending());
    drop(leader);
    assert_eq!((bells[0].rings(), bells[1].rings()), (1, 0));
    let mut third = follow(&flights, 1, 1);
    let heir = leadership(poll(&mut first)).unwrap();
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    finish(heir, 7);
    assert_eq!((value(poll(&mut second)), value(poll(&mut third))), (Some(7), Some(7)));
    assert_eq!(flights.len(), 0);
}

#[test]
fn an_heir_that_leaves_names_the_next() {
    let flights = Flights::<u8>::new();
    let leader = lead(&flights, 1, 1);
    let (first, second, mut third) = (follow(&flights, 1, 1), follow(&flights, 1, 1), follow(&flights, 1, 1));
    let bell = Arc::new(Bell::default());
    assert!(poll_with(&bell, Pin::new(&mut third)).is_pending());
    drop(second);
    drop(leader);
    assert_eq!(bell.rings(), 0, "the first is the heir");
    drop(first);
    assert_eq!(bell.rings(), 1, "and now the third");
    let heir = leadership(poll(&mut third)).unwrap();
    drop(heir);
    assert_eq!(flights.len(), 0, "nobody is left");
}

#[test]
fn nothing_is_kept_when_all_have_gone_in_any_order() {
    // The order in which they are dropped: 0 is the leader, the others are followers.
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let flights = Flights::<Arc<u8>>::new();
        let mut people: [Option<Joined<Arc<u8>>>; 3] = std::array::from_fn(|_| Some(flights.join(key(1), ranked(1))));
        for who in order {
            people[who] = None;
        }
        assert_eq!(flights.len(), 0, "{order:?}");
        assert_eq!(Arc::strong_count(&flights.table), 1, "{order:?}");
    }
}

#[test]
fn a_value_lives_no_longer_than_those_who_wait_for_it() {
    let flights = Flights::new();
    let block = Arc::new(5);
    let leader = lead(&flights, 1, 1);
    let follower = follow(&flights, 1, 1);
    finish(leader, block.clone());
    assert_eq!(Arc::strong_count(&block), 2);
    drop(follower);
    assert_eq!(Arc::strong_count(&block), 1);
    finish(lead(&flights, 1, 1), block.clone());
    assert_eq!(Arc::strong_count(&block), 1, "nobody waited");
}

#[test]
fn a_higher_class_is_announced_once_and_a_lower_one_never() {
    let flights = Flights::<u8>::new();
    let mut leader = lead(&flights, 1, 2);
    let mut urgency = leader.urgency();
    assert_eq!(urgency.class(), ranked(2).class);
    let bell = Arc::new(Bell::default());
    let mut followers = Vec::new();
    {
        let mut changed = Box::pin(urgency.changed());
        assert!(poll_with(&bell, changed.as_mut()).is_pending());
        followers.extend([follow(&flights, 1, 1), follow(&flights, 1, 2)]);
        assert_eq!(bell.rings(), 0);
        followers.push(follow(&flights, 1, 4));
        assert_eq!(bell.rings(), 1);
        followers.push(follow(&flights, 1, 3));
        assert_eq!(poll(&mut changed), Poll::Ready(ranked(4).class));
    }
    assert_eq!(urgency.class(), ranked(4).class);
    assert!(poll(&mut Box::pin(urgency.changed())).is_pending());
    drop(urgency);
    drop(leader);
    // The next leader knows the class from the start.
    let mut heir = leadership(poll(&mut followers[0])).unwrap();
    assert_eq!(heir.urgency().class(), ranked(4).class);
}

/// A fetch that ends on demand, and reports when it is dropped.
struct Fetch {
    class: Class,
    log: Arc<Mutex<Vec<String>>>,
    may_end: Arc<Mutex<Option<Class>>>,
}

impl Future for Fetch {
    type Output = Class;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Class> {
        match *lock(&self.may_end) {
            Some(class) if class == self.class => Poll::Ready(class),
            _ => Poll::Pending,
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        lock(&self.log).push(format!("drop {}", self.class.index()));
    }
}

#[test]
fn a_promoted_fetch_runs_twice_and_the_first_to_end_wins() {
    for (winner, rank_of_winner) in [("the urgent one", 5), ("the first one", 1)] {
        let flights = Flights::<Class>::new();
        let (log, may_end) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
        let mut leader = lead(&flights, 1, 1);
        let mut race = Box::pin(race_on_promotion(leader.urgency(), |class| {
            lock(&log).push(format!("start {}", class.index()));
            Fetch { class, log: log.clone(), may_end: may_end.clone() }
        }));
        let bell = Arc::new(Bell::default());
        assert!(poll_with(&bell, race.as_mut()).is_pending());
        let mut follower = follow(&flights, 1, 5);
        assert_eq!(bell.rings(), 1, "promotion wakes the race");
        assert!(poll_with(&bell, race.as_mut()).is_pending());
        assert_eq!(*lock(&log), ["start 1", "start 5"], "{winner}");
        *lock(&may_end) = Some(ranked(rank_of_winner).class);
        let Poll::Ready(class) = poll_with(&bell, race.as_mut()) else { panic!("{winner} has ended") };
        drop(race);
        assert_eq!(lock(&log).iter().filter(|line| line.starts_with("drop")).count(), 2, "nothing goes on");
        finish(leader, class);
        assert_eq!(value(poll(&mut follower)), Some(ranked(rank_of_winner).class), "{winner}");
    }
}

#[test]
fn without_promotion_there_is_one_fetch() {
    let flights = Flights::<u8>::new();
    let mut leader = lead(&flights, 1, 3);
    let mut starts = 0;
    let _follower = follow(&flights, 1, 3);
    let mut race = Box::pin(race_on_promotion(leader.urgency(), |_| {
        starts += 1;
        std::future::ready(9)
    }));
    assert_eq!(poll(&mut race), Poll::Ready(9));
    drop(race);
    assert_eq!(starts, 1);
}

#[test]
fn threads_that_come_and_go_leave_nothing_behind_and_no_one_waiting() {
    let flights = Arc::new(Flights::<u64>::new());
    let threads: Vec<_> = (0..4_u64)
        .map(|thread| {
            let flights = flights.clone();
            std::thread::spawn(move || (0..2000).for_each(|turn| take_part(&flights, thread, turn)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(flights.len(), 0);
}

/// Joins a flight and then finishes, gives up, waits, drops, or parts it.
fn take_part(flights: &Flights<u64>, thread: u64, turn: u64) {
    let joined = flights.join(key((turn % 3) as u8), ranked((thread % 2) as u32));
    let leader = match joined {
        Joined::Lead(leader) => Some(leader),
        Joined::Follow(follower) if (turn + thread).is_multiple_of(5) => {
            drop(follower);
            None
        }
        Joined::Follow(follower) => match block_on(follower) {
            Followed::Value(_) => None,
            Followed::Lead(leader) => Some(leader),
        },
    };
    if turn.is_multiple_of(7) {
        flights.part(&key((turn % 3) as u8));
    }
    match leader {
        Some(leader) if turn.is_multiple_of(3) => drop(leader),
        Some(leader) => finish(leader, turn),
        None => {}
    }
}

fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}
