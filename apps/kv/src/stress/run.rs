//! Sends the load of a plan to a server.
//!
//! # Why
//! A client that waits for a slow reply before it sends the next request does not measure the time in which it could
//! not send (coordinated omission). With a fixed rate each operation has an intended start, and its latency counts from
//! there.
//!
//! # How it works
//! Each thread takes the next operation's number, waits for its intended start, runs it on its own connection, and
//! records the latency. Without a rate, the intended start is the time at which the thread is ready.
//!
//! # Limits
//! A thread whose connection breaks records an error and reconnects, at most every [`RETRY`]. Operations that were due but
//! had not begun when the load ended have no latency; [`Load::overdue`] counts them. Of a load that is ended early,
//! [`Load::end`] returns for how long they have waited.
//!
//! # Example
//! `Load::start(plan)?`, then `tally().take()` each second until `is_over()`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::client::Client;
use super::plan::Plan;
use super::population::key;
use super::tally::{End, Kind, Part, Tally};
use crate::failure::Failure;
use crate::open_files::raise_limit;
use crate::resp::Answer;

/// Pause before a thread reconnects.
const RETRY: Duration = Duration::from_millis(100);
/// Longest time in which a thread that waits for an intended start does not look whether the load was stopped.
const LOOK: Duration = Duration::from_millis(100);
/// Stack of a thread in bytes: a client needs little.
const STACK_BYTES: usize = 256 << 10;

/// A running load.
pub struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    plan: Plan,
    started: Instant,
    next: AtomicU64,
    begun: AtomicU64,
    stopped: OnceLock<Instant>,
    tally: Tally,
    /// Incompressible bytes. Each value is a slice of them.
    content: Vec<u8>,
}

impl Load {
    /// Starts the threads of `plan`.
    ///
    /// # Errors
    /// The server cannot be reached, or the system refuses threads.
    pub fn start(plan: Plan) -> Result<Load, Failure> {
        // If the limit stays too low, connecting fails, and says so.
        raise_limit();
        let threads = plan.threads as usize;
        let connect = || {
            Client::connect(plan.server).map_err(|error| {
                Failure::machine(format_args!("cannot connect to {} (`plimsoll-kv serve` there?)", plan.server), error)
            })
        };
        let clients: Vec<Client> = (0..threads).map(|_| connect()).collect::<Result<_, _>>()?;

        let mut random = StdRng::seed_from_u64(plan.seed);
        let content = (0..plan.value_bytes.1 + 4096).map(|_| random.random()).collect();
        let shared = Arc::new(Shared {
            plan,
            started: Instant::now(),
            next: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            stopped: OnceLock::new(),
            tally: Tally::default(),
            content,
        });

        let mut load = Load { shared, threads: Vec::new() };
        for (number, client) in clients.into_iter().enumerate() {
            let shared = Arc::clone(&load.shared);
            let name = format!("kv-stress-{number}");
            let body = move || shared.work(number as u64, client);
            let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(body);
            load.threads.push(thread.map_err(|error| Failure::machine("cannot start a thread", error))?);
        }
        Ok(load)
    }

    /// Returns the tally of the threads.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.shared.tally
    }

    /// Returns when the load began.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// Returns whether all threads have ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Returns how many operations were due, and how many of these had not begun when the load ended. `None` unless it has
    /// a fixed rate and a duration, and has ended. The latencies lack the time for which those have waited.
    #[must_use]
    pub fn overdue(&self) -> Option<(u64, u64)> {
        let Plan { rate_per_s, duration, operations, .. } = self.shared.plan;
        // An operation is due if its intended start is before the end.
        let due = ((rate_per_s? * duration?.as_secs_f64()).ceil() as u64).min(operations.unwrap_or(u64::MAX));
        self.is_over().then(|| (due, due.saturating_sub(self.shared.begun.load(Ordering::Relaxed))))
    }

    /// Stops the load. Operations in flight still complete.
    pub fn stop(&self) {
        self.shared.stopped.get_or_init(Instant::now);
    }

    /// Stops the load and waits for the operations in flight. Returns those that nobody has taken, reads and writes
    /// together, and those that were due and had not begun, each with the time for which it had waited.
    #[must_use]
    pub fn end(&mut self) -> (Part, Part) {
        self.stop();
        self.join();
        let [mut rest, writes] = self.tally().take();
        rest.add(&writes);

        let mut overdue = Part::new();
        if let (Some(rate_per_s), Some(stopped)) = (self.shared.plan.rate_per_s, self.shared.stopped.get()) {
            let first = self.shared.begun.load(Ordering::Relaxed);
            let waited = |operation| stopped.checked_duration_since(self.shared.intended(operation, rate_per_s));
            let waits = (first..self.shared.plan.operations.unwrap_or(u64::MAX)).map_while(waited);
            waits.for_each(|wait| overdue.latencies.saturating_record((wait.as_nanos() as u64).max(1)));
        }
        (rest, overdue)
    }

    /// Waits until all threads have ended.
    pub fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
        self.join();
    }
}

impl Shared {
    fn work(&self, number: u64, client: Client) {
        let mut client = Some(client);
        let mut random = StdRng::seed_from_u64(self.plan.seed.wrapping_mul(0x1_0000_0001).wrapping_add(number));
        while let Some((operation, intended)) = self.next_operation() {
            while let Some(early) = intended.checked_duration_since(Instant::now()).filter(|early| !early.is_zero()) {
                std::thread::sleep(early.min(LOOK));
                // It was not due yet when the load was stopped.
                if self.stopped.get().is_some_and(|stopped| *stopped <= intended) {
                    return;
                }
            }

            let reads = self.plan.ratio.0 / (self.plan.ratio.0 + self.plan.ratio.1);
            let kind = if random.random::<f64>() < reads { Kind::Read } else { Kind::Write };
            let key = key(self.plan.population.number(operation, &mut random));
            let value = match kind {
                Kind::Read => &[],
                Kind::Write => self.value(&mut random),
            };

            let answer = match (&mut client, kind) {
                (None, _) => Err(std::io::ErrorKind::NotConnected.into()),
                (Some(client), Kind::Read) => client.ask(&[b"GET", &key]),
                (Some(client), Kind::Write) => client.ask(&[b"SET", &key, value]),
            };
            let end = match &answer {
                Ok(Answer::Value(true)) => End::Done,
                Ok(Answer::Value(false)) => End::Missing,
                Ok(Answer::Error(_)) | Err(_) => End::Failed,
            };

            self.tally.note(kind, intended.elapsed().as_nanos() as u64, value.len() as u64, end);

            if answer.is_err() {
                std::thread::sleep(RETRY);
                // The old connection may still get the reply, which would be taken for the next one. Without a new
                // connection the next operation is an error.
                client = Client::connect(self.plan.server).ok();
            }
        }
    }

    /// Returns the number of the next operation and its intended start, or `None` if the load is over.
    fn next_operation(&self) -> Option<(u64, Instant)> {
        let operation = self.next.fetch_add(1, Ordering::Relaxed);
        let is_enough = self.plan.operations.is_some_and(|operations| operation >= operations);

        let intended = match self.plan.rate_per_s {
            Some(rate_per_s) => self.intended(operation, rate_per_s),
            None => Instant::now(),
        };
        let is_late = self
            .plan
            .duration
            .is_some_and(|duration| intended.max(Instant::now()).saturating_duration_since(self.started) >= duration);

        let is_next = !is_enough && !is_late && self.stopped.get().is_none();
        self.begun.fetch_add(u64::from(is_next), Ordering::Relaxed);
        is_next.then_some((operation, intended))
    }

    /// Returns the intended start of an operation at a fixed rate.
    fn intended(&self, operation: u64, rate_per_s: f64) -> Instant {
        self.started + Duration::from_secs_f64(operation as f64 / rate_per_s)
    }

    fn value(&self, random: &mut StdRng) -> &[u8] {
        let (least, greatest) = self.plan.value_bytes;
        let len = random.random_range(least..=greatest) as usize;
        let from = random.random_range(0..4096);
        &self.content[from..from + len]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;
    use crate::stress::population::Population;

    /// Returns a load of two threads, and its server.
    fn start(rate_per_s: f64) -> (Load, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plan = Plan {
            ratio: (1.0, 0.0),
            population: Population::Uniform { first: 1, last: 9 },
            threads: 2,
            rate_per_s: Some(rate_per_s),
            duration: None,
            operations: None,
            value_bytes: (1, 1),
            server: listener.local_addr().unwrap(),
            hdr_file: None,
            is_json: false,
            seed: 1,
        };
        (Load::start(plan).unwrap(), listener)
    }

    /// The threads slept until their next operations were due, for up to 1000 s each.
    #[test]
    fn a_load_ends_although_its_next_operations_are_due_much_later() {
        let (mut load, listener) = start(0.001);
        let mut clients: Vec<_> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        let answer = |client: &mut std::net::TcpStream| client.write_all(b"$-1\r\n").unwrap();
        clients.iter_mut().for_each(answer);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(load.end().0.latencies.len()));
        assert!(end.recv_timeout(Duration::from_secs(60)).unwrap() <= 1);
    }

    /// They counted nowhere: the longer a server took for its last replies, the better it looked.
    #[test]
    fn operations_in_flight_and_due_at_the_end_are_told() {
        let (mut load, listener) = start(1000.0);
        let mut clients: Vec<_> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        // Each has sent its request, and others have become due.
        clients.iter_mut().for_each(|client| assert!(client.read(&mut [0; 100]).unwrap() > 0));
        std::thread::sleep(Duration::from_millis(50));
        load.stop();
        let stopped = load.started().elapsed();
        clients.iter_mut().for_each(|client| client.write_all(b"$-1\r\n").unwrap());

        let (rest, overdue) = load.end();
        assert_eq!((rest.latencies.len(), rest.missing, rest.errors), (2, 2, 0));
        let overdue = overdue.latencies;
        // One a millisecond since the first two; the oldest was due after two.
        assert!(overdue.len() >= 45 && overdue.len() <= stopped.as_millis() as u64, "{}", overdue.len());
        assert!(
            overdue.max() >= 45_000_000 && overdue.max() <= stopped.as_nanos() as u64 * 101 / 100,
            "{}",
            overdue.max()
        );
        assert!(overdue.min() <= 2_000_000, "{}", overdue.min());
    }
}
