//! Reads the processors that a thread may use, and pins a thread to one of them.
//!
//! # Why
//! A shard is a thread that stays on its processor; measurements on one processor vary less, too.
//!
//! # How it works
//! Calls `sched_getaffinity` and `sched_setaffinity` on the calling thread. The allowed list respects containers and
//! `taskset`; the machine's number of processors does not.
//!
//! # Limits
//! Processor numbers from [`rustix::thread::CpuSet::MAX_CPU`] (1024) on are not seen.
//!
//! # Example
//! ```
//! use plimsoll::sys::pin;
//! if let Ok(allowed) = pin::allowed_cpus() {
//!     println!("this thread may run on {allowed:?}");
//! }
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// Returns the processors that the calling thread may run on, ascending.
///
/// # Errors
/// The system's error (more than 1024 processors: `InvalidInput`).
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Returns the processors that the calling thread may run on, by NUMA node. Those without a listed node are on node 0.
///
/// # Errors
/// As [`allowed_cpus`].
pub(crate) fn allowed_cpus_by_node() -> io::Result<BTreeMap<u16, Vec<usize>>> {
    let nodes = super::sysfs::nodes_of_cpus(Path::new("/sys"));
    let mut by_node: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for cpu in allowed_cpus()? {
        by_node.entry(nodes.get(&cpu).copied().unwrap_or(0)).or_default().push(cpu);
    }
    Ok(by_node)
}

/// Sorts the processors of each node, those that take the interrupts of disks first: there the interrupt itself wakes a
/// shard, not a message from another processor. (A disk with a queue per processor interrupts them all, so the order
/// stays.)
pub(crate) fn put_interrupted_first(by_node: &mut BTreeMap<u16, Vec<usize>>) {
    let interrupted = super::sysfs::cpus_of_disk_interrupts(Path::new("/sys"), Path::new("/proc/irq"));
    for cpus in by_node.values_mut() {
        cpus.sort_by_key(|cpu| !interrupted.contains(cpu));
    }
}

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// `InvalidInput` if there is no such processor or this thread may not use it; the message lists the allowed
/// processors.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    let allowed = allowed_cpus()?;
    if !allowed.contains(&cpu) {
        let message = format!("cannot pin a thread to processor {cpu}: the allowed processors are {allowed:?}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Restricts the calling thread, and those that it starts, to `cpus`. Call this in Tokio's `on_thread_start` with the
/// CPUs that the shards leave free ([`Runtime::other_cpus`](crate::Runtime::other_cpus)).
///
/// # Errors
/// `InvalidInput` if `cpus` is empty; the system's error if a CPU does not exist or is not allowed.
pub fn restrict_current_thread(cpus: &[usize]) -> io::Result<()> {
    if cpus.is_empty() {
        let message = "cannot keep a thread on no processor: where each has a shard, start fewer or do not pin them";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// Lets the calling thread run where the process's first thread may. A new thread inherits the processor of a pinned
/// shard. If the system refuses this, changes nothing.
pub(crate) fn unpin_current_thread() {
    let first = Pid::from_raw(std::process::id() as i32);
    if let Ok(set) = sched_getaffinity(first) {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Makes timers of the calling thread fire on time. Otherwise the kernel delays them by up to 50 us so that wake-ups
/// coincide, which is longer than a fast disk takes for a request.
///
/// # Errors
/// The system's error.
pub fn sharpen_timers() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn a_thread_can_be_pinned_to_an_allowed_processor() {
        let result = std::thread::spawn(|| {
            let cpu = *allowed_cpus()?.last().ok_or(io::ErrorKind::NotFound)?;
            pin_current_thread(cpu)?;
            Ok::<_, io::Error>((cpu, allowed_cpus()?))
        })
        .join();
        match result {
            Ok(Ok((cpu, allowed))) => assert_eq!(allowed, [cpu]),
            Ok(Err(error)) => skip(format_args!("the processors of this machine cannot be asked or set: {error}")),
            Err(_) => panic!("the pinned thread panicked"),
        }
    }

    #[test]
    fn a_thread_can_be_kept_on_some_processors() {
        let result = std::thread::spawn(|| {
            let cpus: Vec<usize> = allowed_cpus()?.into_iter().take(2).collect();
            restrict_current_thread(&cpus)?;
            Ok::<_, io::Error>((cpus, allowed_cpus()?))
        })
        .join();
        match result {
            Ok(Ok((wanted, allowed))) => assert_eq!(allowed, wanted),
            Ok(Err(error)) => skip(format_args!("the processors of this machine cannot be asked or set: {error}")),
            Err(_) => panic!("the thread panicked"),
        }
        assert!(restrict_current_thread(&[]).unwrap_err().to_string().contains("start fewer"));
    }

    #[test]
    fn an_absurd_processor_is_refused_with_the_allowed_ones() {
        let Err(error) = pin_current_thread(1_000_000) else { panic!("there is no such processor") };
        assert!(error.to_string().contains("1000000"), "{error}");
    }
}
