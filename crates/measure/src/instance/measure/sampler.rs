//! Takes samples of the rate at which threads repeat some work, all threads at once.
//!
//! **Why.** A figure without samples has no interval, and threads that do not run at the same time do not disturb each
//! other as under real load.
//!
//! **How.** [`rates`] starts a thread for each processor, pinned to it. Each makes its own work, does it once to warm
//! up, and waits for the others at a gate before every sample. A sample is the work done until its time is over,
//! divided by the time it really took; those of all threads are added. A stop takes effect after the running round;
//! threads then pass the other gates without working.
//!
//! **Limits.** A round of work is not interrupted: it should take some milliseconds. At the end of a sample, threads
//! stop up to a round apart.
//!
//! **Example.** Two threads, each hashing rounds of 1 MiB for 100 ms: 10.0 GB/s and 10.2 GB/s are a sample of 20.2
//! GB/s.

use std::sync::{Condvar, Mutex, PoisonError};

use plimsoll::sys::clock::now_ns;
use plimsoll::sys::pin;

use super::INTERRUPTED;
use crate::load::Stop;

/// A round of work. Returns its amount, in the unit of the figure.
pub(super) type Work = Box<dyn FnMut() -> f64>;

/// How to take samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling<'a> {
    /// Number of samples, at least 1.
    pub(super) samples: usize,
    /// Length of each sample.
    pub(super) sample_ns: u64,
    /// Ends the measurement early.
    pub(super) stop: &'a Stop,
}

/// Returns the work per second of all processors `cpus` together, in each sample. Each thread makes its work by `make`.
///
/// The error says why there are no samples: interrupted, no thread, a panic, or the error of `make`.
pub(super) fn rates(
    sampling: &Sampling<'_>,
    cpus: &[usize],
    make: &(dyn Fn() -> Result<Work, String> + Sync),
) -> Result<Vec<f64>, String> {
    let gate = Gate::new(cpus.len());
    let per_thread: Vec<Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for cpu in cpus {
            let gate = &gate;
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
                // An unpinned thread is less steady, which the interval shows.
                let _ = pin::pin_current_thread(*cpu);
                thread_rates(sampling, gate, make)
            });
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    gate.give_up(&format!("cannot start a thread: {error}"));
                    break;
                }
            }
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|_| Err("a measuring thread panicked".to_owned()))).collect()
    });

    if sampling.stop.is_asked() {
        return Err(INTERRUPTED.to_owned());
    }
    if let Some(reason) = gate.reason() {
        return Err(reason);
    }

    let mut sums = vec![0.0; sampling.samples];
    for rates in per_thread {
        sums.iter_mut().zip(rates?).for_each(|(sum, rate)| *sum += rate);
    }
    Ok(sums)
}

fn thread_rates(
    sampling: &Sampling<'_>,
    gate: &Gate,
    make: &(dyn Fn() -> Result<Work, String> + Sync),
) -> Result<Vec<f64>, String> {
    let mut left = GivesUp { gate, is_armed: true };
    let mut work = make().inspect_err(|reason| gate.give_up(reason))?;
    work();
    let mut rates = Vec::with_capacity(sampling.samples);
    for _ in 0..sampling.samples {
        if !gate.pass() {
            break;
        }
        rates.push(sample(sampling, &mut work));
    }
    left.is_armed = false;
    Ok(rates)
}

/// Takes one sample: the work per second of one thread.
fn sample(sampling: &Sampling<'_>, work: &mut Work) -> f64 {
    let begin_ns = now_ns();
    let mut amount = 0.0;
    loop {
        if sampling.stop.is_asked() {
            return 0.0;
        }
        amount += work();
        let elapsed_ns = now_ns().saturating_sub(begin_ns);
        if elapsed_ns >= sampling.sample_ns {
            return amount * 1e9 / elapsed_ns.max(1) as f64;
        }
    }
}

/// A gate that opens when all threads wait at it. Unlike a barrier it can be given up, so that no thread waits for one
/// that failed.
struct Gate {
    threads: usize,
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    waiting: usize,
    opened: u64,
    given_up: Option<String>,
}

impl Gate {
    fn new(threads: usize) -> Gate {
        Gate { threads, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Waits for all other threads. Returns `false` if one gave up.
    fn pass(&self) -> bool {
        // A panic of another thread leaves the state consistent: it changes in single steps.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        if state.waiting == self.threads {
            state.waiting = 0;
            state.opened += 1;
            self.changed.notify_all();
            return state.given_up.is_none();
        }
        let opened = state.opened;
        while state.opened == opened && state.given_up.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.given_up.is_none()
    }

    fn give_up(&self, reason: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.given_up.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_all();
    }

    fn reason(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).given_up.clone()
    }
}

/// Gives the gate up if its thread panics.
struct GivesUp<'a> {
    gate: &'a Gate,
    is_armed: bool,
}

impl Drop for GivesUp<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.gate.give_up("a measuring thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(threads: usize) -> Vec<usize> {
        vec![pin::allowed_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0); threads]
    }

    fn sampling(stop: &Stop) -> Sampling<'_> {
        Sampling { samples: 3, sample_ns: 1_000_000, stop }
    }

    #[test]
    fn every_sample_holds_the_work_of_all_threads() {
        let stop = Stop::default();
        for threads in [1, 4] {
            let make = || Ok(Box::new(|| 1.0) as Work);
            let rates = rates(&sampling(&stop), &cpus(threads), &make).unwrap();
            assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
        }
    }

    #[test]
    fn nobody_waits_for_a_thread_that_failed_or_was_stopped() {
        let stop = Stop::default();
        let count = std::sync::atomic::AtomicUsize::new(0);
        let make = || match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            2 => Err("no memory".to_owned()),
            _ => Ok(Box::new(|| 1.0) as Work),
        };
        assert_eq!(rates(&sampling(&stop), &cpus(4), &make), Err("no memory".to_owned()));
        stop.ask();
        let make = || Ok(Box::new(|| 1.0) as Work);
        assert_eq!(rates(&sampling(&stop), &cpus(4), &make), Err(INTERRUPTED.to_owned()));
    }
}
