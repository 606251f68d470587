//! Takes samples of the rate at which threads repeat some work, all threads at once.
//!
//! **Why.** A figure without samples has no interval, and threads that do not run at the same time do not disturb each
//! other as under real load.
//!
//! **How.** [`rates`] starts a thread for each processor, pinned to it. Each makes its own work, does it once to warm
//! up, and then takes a sample whenever it is told to: when all have answered. A sample is the work done until its time
//! is over, divided by the time it really took; those of all threads are added. A stop takes effect after the running
//! round.
//!
//! **Limits.** A round of work is not interrupted: it should take some milliseconds. At the end of a sample, threads
//! stop up to a round apart.
//!
//! **Example.** Two threads, each hashing rounds of 1 MiB for 100 ms: 10.0 GB/s and 10.2 GB/s are a sample of 20.2
//! GB/s.

use std::sync::mpsc::{Receiver, Sender, channel};

use plimsoll::sys::clock::now_ns;
use plimsoll::sys::pin;

use super::INTERRUPTED;
use crate::load::Stop;

/// A round of work. Returns its amount, in the unit of the figure.
pub(super) type Work = Box<dyn FnMut() -> f64>;

type Make<'a> = &'a (dyn Fn() -> Result<Work, String> + Sync);

#[derive(Clone, Copy, Debug)]
pub(super) struct Sampling<'a> {
    pub(super) samples: usize,
    pub(super) sample_ns: u64,
    pub(super) stop: &'a Stop,
}

/// The sampled rate of a thread, or why it has none.
type Answer = Result<f64, String>;

/// Returns the work per second of all processors `cpus` together, in each sample. Each thread makes its work by `make`.
///
/// The error says why there are no samples: interrupted, no thread, or the error of `make`.
pub(super) fn rates(sampling: &Sampling<'_>, cpus: &[usize], make: Make<'_>) -> Result<Vec<f64>, String> {
    let rates: Result<Vec<f64>, String> = std::thread::scope(|scope| {
        let mut threads: Vec<(Sender<()>, Receiver<Answer>)> = Vec::new();
        for cpu in cpus {
            let ((start, started), (answer, answers)) = (channel(), channel());
            let thread = std::thread::Builder::new().spawn_scoped(scope, move || {
                // An unpinned thread is less steady, which the interval shows.
                let _ = pin::pin_current_thread(*cpu);
                answer_each(sampling, make, &started, &answer);
            });
            // The threads that have started end when their senders are dropped.
            thread.map_err(|error| format!("cannot start a thread: {error}"))?;
            threads.push((start, answers));
        }

        let of_all = || -> Answer {
            let answers = threads.iter().map(|(_, answers)| answers.recv());
            answers.map(|answer| answer.unwrap_or_else(|_| Err("a measuring thread panicked".to_owned()))).sum()
        };
        // The first answer comes when the work is made.
        of_all()?;
        let sample = |_| {
            for (start, _) in &threads {
                // A thread that has ended has no answer either.
                let _ = start.send(());
            }
            of_all()
        };
        (0..sampling.samples).map(sample).collect()
    });
    if sampling.stop.is_asked() { Err(INTERRUPTED.to_owned()) } else { rates }
}

/// Makes work, and answers; then answers each start with a sample.
fn answer_each(sampling: &Sampling<'_>, make: Make<'_>, started: &Receiver<()>, answer: &Sender<Answer>) {
    // No one takes the answer if another thread failed.
    match make() {
        Err(reason) => {
            let _ = answer.send(Err(reason));
        }
        Ok(mut work) => {
            work();
            let _ = answer.send(Ok(0.0));
            while started.recv().is_ok() {
                let _ = answer.send(Ok(sample(sampling, &mut work)));
            }
        }
    }
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
