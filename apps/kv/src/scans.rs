//! The scans of clients: cursors, and patterns of keys.
//!
//! # Why
//! SCAN reads all keys in small steps. A step must continue at the end of the last one. A scan reads ahead, some MiB in
//! all files of the tree, and keeps files of the database, so there must not be many, and none that is abandoned for ever.
//!
//! # How it works
//! Cursor 0 begins a scan, which has its own reader of the keys as they are then. Each step returns a new cursor for
//! the reader; the last step returns cursor 0. A connection has at most [`SCANS_MAX`] scans; a further one ends its
//! oldest. All connections together have as many as [`Scans::new`] says; a further one ends the scan that has waited
//! longest for its next step, if that is [`IDLE`], and is refused otherwise.
//!
//! # Limits
//! A cursor is valid once, on its connection, until its scan is as old as [`LIFETIME`].
//!
//! # Example
//! `SCAN 0 COUNT 100 MATCH user:*`

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most scans of a connection.
pub const SCANS_MAX: usize = 4;
/// Longest time of a scan.
pub const LIFETIME: Duration = Duration::from_secs(3600);
/// Time without a step after which a scan may have to make room for that of another client.
pub const IDLE: Duration = Duration::from_secs(60);

/// The place of a scan among all of them.
pub struct Place {
    begun: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Returns whether the scan is too old at `now`.
    #[must_use]
    pub fn has_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.begun) >= LIFETIME
    }
}

/// A scan between two steps.
struct Kept<S> {
    owner: u64,
    cursor: u64,
    used: Instant,
    scan: S,
    place: Place,
}

/// The scans of all connections; `S` is a scan.
pub struct Scans<S> {
    places: Arc<Semaphore>,
    /// The scan that has waited longest first.
    kept: Mutex<VecDeque<Kept<S>>>,
    last_owner: AtomicU64,
    last_cursor: AtomicU64,
}

impl<S> Scans<S> {
    /// Returns a table of at most `most` scans.
    #[must_use]
    pub fn new(most: usize) -> Scans<S> {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Scans { places, kept: Mutex::default(), last_owner: AtomicU64::new(0), last_cursor: AtomicU64::new(0) }
    }

    /// Returns a number for a connection, which no other has.
    pub fn owner(&self) -> u64 {
        self.last_owner.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns a place for a scan of `owner` that begins at `now`, with the scan that had it, for closing. `None` if all
    /// places are in use.
    pub fn begin(&self, owner: u64, now: Instant) -> Option<(Place, Option<S>)> {
        let mut kept = self.kept();
        let own = || kept.iter().enumerate().filter(|(_, kept)| kept.owner == owner).map(|(at, _)| at);
        let oldest = own().next().filter(|_| own().count() >= SCANS_MAX);
        if oldest.is_none()
            && let Ok(permit) = Arc::clone(&self.places).try_acquire_owned()
        {
            return Some((Place { begun: now, _permit: permit }, None));
        }

        let is_idle = |kept: &Kept<S>| now.saturating_duration_since(kept.used) >= IDLE;
        let ended = oldest.or_else(|| kept.front().filter(|kept| is_idle(kept)).map(|_| 0))?;
        let Kept { scan, place, .. } = kept.remove(ended)?;
        Some((Place { begun: now, ..place }, Some(scan)))
    }

    /// Takes the scan of `cursor`, if `owner` has it.
    pub fn take(&self, owner: u64, cursor: u64) -> Option<(S, Place)> {
        let mut kept = self.kept();
        let at = kept.iter().position(|kept| (kept.owner, kept.cursor) == (owner, cursor))?;
        kept.remove(at).map(|kept| (kept.scan, kept.place))
    }

    /// Keeps the scan of `owner` for its next step, and returns its cursor.
    pub fn keep(&self, owner: u64, scan: S, place: Place, now: Instant) -> u64 {
        let cursor = self.last_cursor.fetch_add(1, Ordering::Relaxed) + 1;
        self.kept().push_back(Kept { owner, cursor, used: now, scan, place });
        cursor
    }

    /// Takes all scans of `owner`, for closing.
    pub fn take_all(&self, owner: u64) -> Vec<S> {
        let mut kept = self.kept();
        let (own, others) = kept.drain(..).partition(|kept| kept.owner == owner);
        *kept = others;
        drop(kept);
        let own: VecDeque<Kept<S>> = own;
        own.into_iter().map(|kept| kept.scan).collect()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept<S>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether `key` matches `pattern`: `*` is any bytes, `?` one byte, `[a-c]` one of these, `[^a]` one other than
/// these, `\` the next byte itself.
#[must_use]
pub fn matches(pattern: &[u8], key: &[u8]) -> bool {
    // `again`: where to retry if the rest after the last `*` does not match.
    let (mut at, mut in_key, mut again) = (0, 0, None);

    loop {
        if pattern.get(at) == Some(&b'*') {
            again = Some((at + 1, in_key));
            at += 1;
            continue;
        }

        if at == pattern.len() && in_key == key.len() {
            return true;
        }

        let one = key.get(in_key).and_then(|byte| one_byte(&pattern[at..], *byte));
        match (one, again) {
            (Some(len), _) => (at, in_key) = (at + len, in_key + 1),
            (None, Some((after, from))) if from < key.len() => {
                again = Some((after, from + 1));
                (at, in_key) = (after, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the length of the first element of `pattern` if `byte` matches it.
fn one_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', wanted, ..] => (*wanted == byte).then_some(2),
        [b'[', rest @ ..] => {
            let len = rest.iter().position(|end| *end == b']')?;
            let (is_negated, set) = match &rest[..len] {
                [b'^', set @ ..] => (true, set),
                set => (false, set),
            };
            let is_in = set.contains(&byte)
                || set.windows(3).any(|range| range[1] == b'-' && (range[0]..=range[2]).contains(&byte));
            (is_in != is_negated).then_some(len + 2)
        }
        [wanted, ..] => (*wanted == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    #[test]
    fn a_scan_makes_room_only_after_a_minute_without_a_step() {
        let (scans, begun) = (Scans::new(2), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let [first, second] = [(); 2].map(|()| scans.owner());
        let keep = |owner, scan, place, seconds| scans.keep(owner, scan, place, at(seconds));

        let (place, ended) = scans.begin(first, at(0)).unwrap();
        assert_eq!((keep(first, "a", place, 0), ended), (1, None));
        // A step is under way.
        let (place, ended) = scans.begin(second, at(1)).unwrap();
        assert!(ended.is_none() && scans.begin(second, at(59)).is_none());
        assert_eq!(keep(second, "b", place, 59), 2);

        let (place, ended) = scans.begin(second, at(60)).unwrap();
        assert_eq!((ended, scans.take(first, 1).is_none()), (Some("a"), true));
        assert_eq!(keep(first, "c", place, 60), 3);
        assert!(scans.begin(first, at(60)).is_none(), "both had a step in the last second");

        // A cursor is its connection's, and a scan ages although it has steps.
        assert!(scans.take(first, 2).is_none());
        let (scan, place) = scans.take(second, 2).unwrap();
        assert_eq!((scan, place.has_expired(at(3600)), place.has_expired(at(3601))), ("b", false, true));
        assert_eq!(scans.take_all(first), ["c"]);
        assert_eq!(scans.take_all(first), [""; 0]);
    }

    #[test]
    fn a_connection_has_four_scans() {
        let (scans, now) = (Scans::new(8), Instant::now());
        let [first, second] = [(); 2].map(|()| scans.owner());
        let begin = |owner, scan| {
            let (place, ended) = scans.begin(owner, now).unwrap();
            scans.keep(owner, scan, place, now);
            ended
        };
        for scan in 0..4 {
            assert_eq!((begin(first, scan), begin(second, 10 + scan)), (None, None));
        }
        // Its oldest makes room, also if all places are taken.
        assert_eq!((begin(first, 4), begin(first, 5)), (Some(0), Some(1)));
        assert_eq!((scans.take_all(first), scans.take_all(second)), (vec![2, 3, 4, 5], vec![10, 11, 12, 13]));
    }

    #[test]
    fn patterns_match_as_redis_has_them() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("user:*", "user:1", true),
            ("user:*", "use:1", false),
            ("*:1", "user:1:1", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[", "[", false),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), key.as_bytes()), expected, "{pattern} of {key}");
        }
    }
}
