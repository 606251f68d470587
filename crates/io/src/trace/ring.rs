//! A ring of events between a shard, which writes, and the recorder, which reads.
//!
//! # Why
//! A shard that records must not wait, lock or allocate, and must stay nearly as fast.
//!
//! # How it works
//! One writer, one reader. An event is five words in an array of atomic words, stored relaxed; then the head moves,
//! with release, so a reader that sees the head sees the words. The reader moves the tail in the same way. Both only
//! grow; a place is the count modulo the length. The writer caches the tail, and reads it again only if the ring seems
//! full. If the ring is full, the event is dropped and counted.
//!
//! # Limits
//! The length is a power of two, at least 2 events.
//!
//! # Example
//! ```text
//! let (mut writer, mut reader) = ring(65_536);
//! writer.push(&event);                        // the shard
//! reader.pop(&mut events, usize::MAX);        // the recorder
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use plimsoll_core::trace::{EVENT_BYTES, Event};

const WORDS: usize = EVENT_BYTES / 8;

struct Ring {
    words: Box<[AtomicU64]>,
    /// Capacity in events, less one.
    mask: u64,
    head: AtomicU64,
    dropped: AtomicU64,
    /// On its own cache line: the reader writes it, and the writer the other fields.
    tail: Apart,
}

#[repr(align(128))]
struct Apart(AtomicU64);

/// The shard's end.
pub(crate) struct RingWriter {
    ring: Arc<Ring>,
    head: u64,
    tail_seen: u64,
}

/// The recorder's end.
pub(crate) struct RingReader {
    ring: Arc<Ring>,
    tail: u64,
}

/// Returns the ends of a ring of at least `events` events.
pub(crate) fn ring(events: usize) -> (RingWriter, RingReader) {
    let events = events.clamp(2, 1 << 24).next_power_of_two();
    let ring = Arc::new(Ring {
        words: (0..events * WORDS).map(|_| AtomicU64::new(0)).collect(),
        mask: events as u64 - 1,
        head: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
        tail: Apart(AtomicU64::new(0)),
    });
    (RingWriter { ring: Arc::clone(&ring), head: 0, tail_seen: 0 }, RingReader { ring, tail: 0 })
}

impl Ring {
    /// Returns the place of event `number`.
    #[inline]
    fn place(&self, number: u64) -> &[AtomicU64] {
        let at = (number & self.mask) as usize * WORDS;
        self.words.get(at..at + WORDS).unwrap_or_default()
    }
}

impl RingWriter {
    /// Puts `event` into the ring, or counts it as dropped.
    #[inline]
    pub(crate) fn push(&mut self, event: &Event) {
        let ring = &*self.ring;
        if self.head - self.tail_seen > ring.mask {
            self.tail_seen = ring.tail.0.load(Acquire);
            if self.head - self.tail_seen > ring.mask {
                ring.dropped.store(ring.dropped.load(Relaxed) + 1, Relaxed);
                return;
            }
        }
        for (place, word) in ring.place(self.head).iter().zip(event.to_words()) {
            place.store(word, Relaxed);
        }
        self.head += 1;
        ring.head.store(self.head, Release);
    }

    /// Returns whether the ring is at least three quarters full.
    pub(crate) fn is_nearly_full(&mut self) -> bool {
        let enough = (self.ring.mask + 1) / 4 * 3;
        if self.head - self.tail_seen < enough {
            return false;
        }
        self.tail_seen = self.ring.tail.0.load(Acquire);
        self.head - self.tail_seen >= enough
    }
}

impl RingReader {
    /// Moves at most `most` events from the ring to the end of `events`.
    pub(crate) fn pop(&mut self, events: &mut Vec<Event>, most: usize) {
        let head = self.ring.head.load(Acquire);
        let until = head.min(self.tail.saturating_add(most as u64));
        for number in self.tail..until {
            let mut words = [0; WORDS];
            for (word, place) in words.iter_mut().zip(self.ring.place(number)) {
                *word = place.load(Relaxed);
            }
            // The writer stored these words, so they are an event.
            events.extend(Event::from_words(words));
        }
        self.tail = until;
        self.ring.tail.0.store(until, Release);
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.ring.dropped.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::Op;
    use plimsoll_core::trace::EventKind;

    fn event(number: u64) -> Event {
        Event {
            time_ns: number,
            request: number * 3,
            offset_bytes: number * 7,
            len_bytes: number as u32,
            detail: !number as u32,
            class: number as u16,
            disk: 0,
            piece: 0,
            kind: EventKind::Queued,
            op: Op::Write,
            reason: None,
        }
    }

    #[test]
    fn events_come_out_in_order_whatever_the_fill() {
        let (mut writer, mut reader) = ring(8);
        let mut found = Vec::new();
        let mut sent = 0;
        for round in 0..100 {
            for _ in 0..round % 9 {
                writer.push(&event(sent));
                sent += 1;
            }
            reader.pop(&mut found, if round % 2 == 0 { usize::MAX } else { 100 });
        }
        assert_eq!(found, (0..sent).map(event).collect::<Vec<_>>());
        assert_eq!(reader.dropped(), 0);
    }

    #[test]
    fn a_full_ring_drops_and_counts() {
        let (mut writer, mut reader) = ring(4);
        let mut found = Vec::new();
        let mut nearly = Vec::new();
        for number in 0..6 {
            nearly.push(writer.is_nearly_full());
            writer.push(&event(number));
        }
        assert_eq!(nearly, [false, false, false, true, true, true]);
        reader.pop(&mut found, 1);
        writer.push(&event(6));
        reader.pop(&mut found, usize::MAX);
        assert_eq!(found.iter().map(|event| event.time_ns).collect::<Vec<_>>(), [0, 1, 2, 3, 6]);
        assert_eq!(reader.dropped(), 2);
        assert!(!writer.is_nearly_full());
    }

    #[test]
    fn two_threads_lose_nothing_that_is_not_counted() {
        const EVENTS: u64 = 200_000;
        let (mut writer, mut reader) = ring(64);
        let thread = std::thread::spawn(move || (0..EVENTS).for_each(|number| writer.push(&event(number))));
        let (mut found, mut next, mut count) = (Vec::new(), 0, 0);
        loop {
            let is_over = thread.is_finished();
            reader.pop(&mut found, usize::MAX);
            for seen in found.drain(..) {
                assert!(seen.time_ns >= next && seen == event(seen.time_ns), "torn or out of order: {seen:?}");
                next = seen.time_ns + 1;
                count += 1;
            }
            if is_over {
                break;
            }
            std::thread::yield_now();
        }
        thread.join().unwrap();
        assert_eq!(count + reader.dropped(), EVENTS);
    }
}
