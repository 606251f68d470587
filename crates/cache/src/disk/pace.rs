//! The pace of a disk's data writes: as fast as its hits allow.
//!
//! # Why
//! Shares divide the work that a disk does next. A hit that meets a flash die which is being programmed, or a cache
//! that is being written out, waits for that whatever its shares are. Only fewer writes help: as many as the latency of
//! hits allows, no fewer.
//!
//! # How it works
//! Hits that no data write was near are *quiet*: their p99 is the best that the disk can do. Of the others,
//! [`LATE_PART`] may take longer than `slowdown` times that. Every one that is late slows writes down by [`STEP`],
//! every one in time speeds them up by a little, so the rate settles where that part is late; no window has to be
//! chosen that suits the number of hits a second. (Robbins and Monro, "A Stochastic Approximation Method", 1951.)
//! Writes begin at that rate, and so do reads of blocks that are moved: many at once would keep hits waiting as writes
//! do.
//!
//! A cache that never rests would never see a quiet hit. So writes *pause* for [`PAUSE_NS`] if there have been hits
//! enough to judge by and the quiet p99 is unknown or old.
//!
//! # Limits
//! Writes never fall below [`FLOOR_BYTES_PER_S`]. A disk without hits writes as fast as it can. Hits that are late for
//! another reason slow writes down too, until a pause or two have shown that quiet hits have become as slow.
//!
//! # Example
//! Quiet hits take 136 us at p99, and at most 1.5 times that is wanted. Writes begin at 1100 MB/s, and half of the hits
//! take longer than 204 us: after 100 of them writes go at 400 MB/s.

use plimsoll::core::Histogram;

/// Part by which one late hit slows writes down: small enough that chance moves the rate by a few percent only.
const STEP: f64 = 0.02;

/// Part of the hits that may be late: less than one in a hundred, with a margin for chance.
const LATE_PART: f64 = 0.007;

/// Slowest pace, in bytes per second: a sixth of a hard disk, a hundredth of a flash disk.
const FLOOR_BYTES_PER_S: f64 = 16e6;

/// Rate from which writes are not held back at all.
const UNLIMITED_BYTES_PER_S: f64 = 16e9;

/// Time after a write in which hits may still wait for its end inside the disk, in nanoseconds.
const QUIET_AFTER_NS: u64 = 20_000_000;

/// Quiet hits whose p99 is taken.
const QUIET_HITS: u64 = 1000;

/// Length of a pause, in nanoseconds, and the least time between two.
const PAUSE_NS: u64 = 100_000_000;
const PAUSES_WHILE_UNKNOWN_NS: u64 = 2_000_000_000;
const PAUSES_NS: u64 = 30_000_000_000;

/// Fewest hits beside writes since the last pause that are worth another one.
const HITS_WORTH_A_PAUSE: u64 = 200;

/// Shortest time over which the rate of writes is measured, in nanoseconds.
const USED_OVER_NS: u64 = 50_000_000;

/// The pace of one disk's data writes, as a state machine without clock or I/O.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many times the quiet p99 hits may take; `None`: writes are not held back.
    slowdown: Option<f64>,
    /// `None`: as fast as the disk takes them.
    bytes_per_s: Option<f64>,
    /// When the next write is due, and the next read of a block that is moved.
    due_ns: u64,
    read_due_ns: u64,
    in_flight: u32,
    ended_ns: u64,
    used: Used,
    quiet: Histogram,
    quiet_p99_ns: Option<u64>,
    /// When the quiet p99 was last learnt or a pause begun, and the hits beside writes since then.
    looked_ns: u64,
    hits: u64,
    paused_until_ns: u64,
}

/// The rate at which writes begin.
#[derive(Debug, Default)]
struct Used {
    since_ns: u64,
    bytes: u64,
    bytes_per_s: f64,
}

impl Used {
    fn add(&mut self, now_ns: u64, len_bytes: u64) {
        let past_ns = now_ns.saturating_sub(self.since_ns);
        if past_ns >= USED_OVER_NS {
            let bytes_per_s = self.bytes as f64 / (past_ns as f64 / 1e9);
            *self = Used { since_ns: now_ns, bytes: 0, bytes_per_s };
        }
        self.bytes += len_bytes;
    }
}

impl Pace {
    /// Returns the pace of an unknown disk, whose hits may take `slowdown` times as long beside writes as without.
    pub(crate) fn new(slowdown: Option<f64>) -> Pace {
        Pace {
            slowdown,
            bytes_per_s: None,
            due_ns: 0,
            read_due_ns: 0,
            in_flight: 0,
            ended_ns: 0,
            used: Used::default(),
            quiet: Histogram::new(),
            quiet_p99_ns: None,
            looked_ns: 0,
            hits: 0,
            paused_until_ns: 0,
        }
    }

    /// Returns the rate to which writes are held; `None`: they are not.
    pub(crate) fn bytes_per_s(&self) -> Option<f64> {
        self.bytes_per_s
    }

    /// Returns when the next write may begin: not after `now_ns` if at once.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> u64 {
        self.pause_if_worth_it(now_ns);
        self.due_ns.max(self.paused_until_ns)
    }

    /// Records that a write begins.
    pub(crate) fn write_began(&mut self, now_ns: u64, len_bytes: u64) {
        self.in_flight += 1;
        self.used.add(now_ns, len_bytes);
        self.due_ns = self.after(self.due_ns, now_ns, len_bytes);
    }

    /// Takes the next place for a read of a block that is moved. Returns when it may begin.
    pub(crate) fn book_read(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        let due_ns = self.read_due_ns.max(self.paused_until_ns);
        self.read_due_ns = self.after(due_ns, now_ns, len_bytes);
        due_ns
    }

    /// Returns when the next is due after `len_bytes` that were due at `due_ns`.
    fn after(&self, due_ns: u64, now_ns: u64, len_bytes: u64) -> u64 {
        let Some(bytes_per_s) = self.bytes_per_s else { return 0 };
        let takes_ns = (len_bytes as f64 / bytes_per_s * 1e9) as u64;
        due_ns.max(now_ns).saturating_add(takes_ns)
    }

    /// Records that a write has ended.
    pub(crate) fn write_ended(&mut self, now_ns: u64) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ended_ns = now_ns;
    }

    /// Records a hit that began at `began_ns` and ends now.
    pub(crate) fn hit(&mut self, began_ns: u64, now_ns: u64) {
        let Some(slowdown) = self.slowdown else { return };
        let took_ns = now_ns.saturating_sub(began_ns);
        if self.in_flight == 0 && began_ns >= self.ended_ns.saturating_add(QUIET_AFTER_NS) {
            self.learn(now_ns, took_ns);
            return;
        }

        self.hits += 1;
        let Some(quiet_ns) = self.quiet_p99_ns else { return };
        if took_ns as f64 > quiet_ns as f64 * slowdown {
            let used = self.used.bytes_per_s.max(FLOOR_BYTES_PER_S);
            let before = self.bytes_per_s.map_or(used, |bytes_per_s| bytes_per_s.min(used * 2.0));
            self.bytes_per_s = Some((before * (1.0 - STEP)).max(FLOOR_BYTES_PER_S));
        } else if let Some(before) = self.bytes_per_s {
            let after = before * (1.0 + STEP * LATE_PART / (1.0 - LATE_PART));
            self.bytes_per_s = Some(after).filter(|after| *after < UNLIMITED_BYTES_PER_S);
        }
    }

    fn learn(&mut self, now_ns: u64, took_ns: u64) {
        self.quiet.record(took_ns);
        if self.quiet.count() >= QUIET_HITS {
            // The p99 of this few hits is uncertain by a few percent.
            let seen_ns = self.quiet.percentile(99.0);
            self.quiet_p99_ns = Some(self.quiet_p99_ns.map_or(seen_ns, |before_ns| before_ns / 2 + seen_ns / 2));
            self.quiet.clear();
            (self.looked_ns, self.hits) = (now_ns, 0);
        }
    }

    fn pause_if_worth_it(&mut self, now_ns: u64) {
        let every_ns = if self.quiet_p99_ns.is_some() { PAUSES_NS } else { PAUSES_WHILE_UNKNOWN_NS };
        if self.hits >= HITS_WORTH_A_PAUSE && now_ns.saturating_sub(self.looked_ns) >= every_ns {
            (self.looked_ns, self.hits) = (now_ns, 0);
            self.paused_until_ns = now_ns.saturating_add(PAUSE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const RUN_BYTES: u64 = 256 << 10;
    /// Write bandwidth of the disk of these tests.
    const DISK_BYTES_PER_S: f64 = 1e9;

    /// A disk with hits each 50 us and as many writes as the pace lets begin.
    struct World {
        pace: Pace,
        now_ns: u64,
        chance: u64,
        /// Hits take as many nanoseconds alone, and up to twice that where the disk writes as fast as it can.
        alone_ns: u64,
        wants_to_write: bool,
    }

    impl World {
        fn new() -> World {
            World { pace: Pace::new(Some(1.5)), now_ns: MS, chance: 1, alone_ns: 100_000, wants_to_write: true }
        }

        /// Returns a number from 0 to 1 (Lehmer's generator).
        fn chance(&mut self) -> f64 {
            self.chance = self.chance * 48_271 % 2_147_483_647;
            self.chance as f64 / 2_147_483_647.0
        }

        /// Runs for a while. Returns bytes written a second, and the part of the hits that took longer than 1.5 times
        /// their time alone.
        fn run(&mut self, how_long_ms: u64) -> (f64, f64) {
            let end_ns = self.now_ns + how_long_ms * MS;
            let (mut bytes, mut hits, mut late) = (0, 0.0, 0.0);
            let (mut tenth_ns, mut tenth_bytes, mut load) = (self.now_ns, 0_u64, 0.0);
            while self.now_ns < end_ns {
                self.now_ns += 50_000;
                while self.wants_to_write
                    && self.pace.due_ns(self.now_ns) <= self.now_ns
                    && (tenth_bytes as f64) < DISK_BYTES_PER_S * 0.01
                {
                    self.pace.write_began(self.now_ns, RUN_BYTES);
                    self.pace.write_ended(self.now_ns);
                    tenth_bytes += RUN_BYTES;
                    bytes += RUN_BYTES;
                }
                if self.now_ns >= tenth_ns + 10 * MS {
                    load = tenth_bytes as f64 / 0.01 / DISK_BYTES_PER_S;
                    (tenth_ns, tenth_bytes) = (self.now_ns, 0);
                }
                let took_ns = self.alone_ns as f64 * (1.0 + load.min(1.0) * self.chance());
                self.pace.hit(self.now_ns - took_ns as u64, self.now_ns);
                hits += 1.0;
                late += f64::from(u8::from(took_ns > self.alone_ns as f64 * 1.5));
            }
            (bytes as f64 / (how_long_ms as f64 / 1e3), late / hits)
        }
    }

    #[test]
    fn writes_settle_where_hits_are_in_time() {
        let mut world = World::new();
        world.wants_to_write = false;
        world.run(200);
        world.wants_to_write = true;
        world.run(3000);
        let (bytes_per_s, late) = world.run(10_000);
        assert!((0.002..0.012).contains(&late), "{late} are late");
        // At half of what the disk can write, no hit is late; a little more is possible.
        assert!((0.45..0.6).contains(&(bytes_per_s / DISK_BYTES_PER_S)), "{bytes_per_s}");
    }

    #[test]
    fn without_hits_nothing_is_held_back() {
        let mut pace = Pace::new(Some(1.5));
        for now_ns in (0..100_000).map(|ms| ms * MS) {
            assert!(pace.due_ns(now_ns) <= now_ns && pace.book_read(now_ns, 1 << 30) <= now_ns);
            pace.write_began(now_ns, 1 << 30);
            pace.write_ended(now_ns);
        }
        assert_eq!(pace.bytes_per_s(), None);
    }

    #[test]
    fn a_cache_that_never_rests_learns_what_hits_take_alone() {
        let mut world = World::new();
        world.run(1900);
        assert_eq!((world.pace.quiet_p99_ns, world.pace.bytes_per_s()), (None, None), "there was no quiet hit");
        world.run(400);
        let quiet_ns = world.pace.quiet_p99_ns.unwrap();
        assert!((99_000..101_000).contains(&quiet_ns), "{quiet_ns}");
        world.run(3000);
        let (bytes_per_s, late) = world.run(5000);
        assert!(late < 0.012 && bytes_per_s > 0.4 * DISK_BYTES_PER_S, "{late}, {bytes_per_s}");
    }

    /// All hits take three times as long from some moment on, whatever is written.
    #[test]
    fn hits_that_are_late_for_another_reason_do_not_hold_writes_back_for_ever() {
        let mut world = World::new();
        world.run(10_000);
        world.alone_ns *= 3;
        let (bytes_per_s, _) = world.run(1000);
        assert!(bytes_per_s < 0.3 * DISK_BYTES_PER_S, "{bytes_per_s}");
        assert!(world.pace.bytes_per_s().unwrap() >= FLOOR_BYTES_PER_S);
        world.run(2 * PAUSES_NS / MS + 10_000);
        let (bytes_per_s, _) = world.run(1000);
        assert!(bytes_per_s > 0.4 * DISK_BYTES_PER_S, "{bytes_per_s}");
    }

    #[test]
    fn nothing_is_held_back_where_nothing_was_asked_for() {
        let mut world = World::new();
        world.pace = Pace::new(None);
        let (bytes_per_s, late) = world.run(5000);
        assert!(bytes_per_s > 0.95 * DISK_BYTES_PER_S && late > 0.4, "{bytes_per_s}, {late}");
    }
}
