//! Checks of operations in flight: keys, capacity, deadlines, wake-ups, and a dropped backend.
//!
//! # Why
//! A shard that is not woken hangs, and a dropped backend must not write to memory.
//!
//! # How it works
//! Each check submits several operations, or lets a thread wake the backend, and counts the completions.
//!
//! # Limits
//! Races are tried many times, which does not prove that there are none.
//!
//! # Example
//! `wake_race` wakes a waiting backend 10,000 times, at a different moment each time.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::kit::{BLOCK, Kit, PATIENCE_NS, Rig, Verdict, buffer, contiguous, expect, pattern, same};
use crate::backend::{FileId, Kind, Submit};
use crate::buffer::AlignedBuf;
use crate::sys::rusage::thread_cpu_ns;

/// Rounds of the race between a wake-up and a wait.
const WAKE_ROUNDS: u32 = 10_000;

pub(super) fn each_key_once(kit: &mut Kit<'_>) -> Verdict {
    let mut buffers = buffer(64 * BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 11)?;
    let mut waiting = BTreeSet::new();
    for round in 0..20 {
        // Different amounts in flight, submitted in parts with flushes between them.
        let amount = rig.backend.capacity().min(1 + round * 7 % 64);
        for (index, block) in buffers.chunks_exact_mut(BLOCK).take(amount).enumerate() {
            let operation = rig.operation(Kind::Read, file, (index % 8 * BLOCK) as u64, contiguous(block));
            match rig.submit(operation) {
                Submit::Done(result) => expect("bytes moved", &result, &Ok(BLOCK as u32))?,
                Submit::Queued => expect("a new key", &waiting.insert(operation.key), &true)?,
                Submit::Busy => return Err(format!("busy with {index} of {} in flight", rig.backend.capacity())),
            }
            if index % 5 == 4 {
                rig.backend.flush().map_err(|error| error.to_string())?;
            }
        }

        expect("in flight", &rig.backend.in_flight(), &waiting.len())?;
        for completion in rig.finish(waiting.len())? {
            expect("bytes moved", &completion.result, &Ok(BLOCK as u32))?;
            expect("a known key", &waiting.remove(&completion.key), &true)?;
        }
        expect("left in flight", &rig.backend.in_flight(), &0)?;
    }
    Ok(None)
}

pub(super) fn busy_at_capacity(kit: &mut Kit<'_>) -> Verdict {
    let mut block = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, false)?;
    let capacity = rig.backend.capacity();
    // All writes use the same memory, which none of them changes.
    let mut submit = |rig: &mut Rig| {
        let operation = rig.operation(Kind::Write, file, 0, contiguous(&mut block));
        rig.submit(operation)
    };

    for count in 0..capacity {
        match submit(&mut rig) {
            Submit::Queued => {}
            Submit::Done(_) => return Ok(Some("this backend finishes at once".to_owned())),
            Submit::Busy => return Err(format!("busy after {count} of {capacity}")),
        }
    }

    expect("at capacity", &submit(&mut rig), &Submit::Busy)?;
    expect("in flight", &rig.backend.in_flight(), &capacity)?;
    rig.finish(capacity)?;
    expect("after reaping", &submit(&mut rig), &Submit::Queued)?;
    rig.finish(1)?;
    Ok(None)
}

pub(super) fn deadline(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;
    let error = |error: io::Error| error.to_string();
    // A deadline that has passed.
    rig.backend.wait(Some(0)).map_err(error)?;
    let deadline_ns = rig.backend.now_ns() + 20_000_000;
    let mut waits = 0;
    while rig.backend.now_ns() < deadline_ns {
        rig.backend.wait(Some(deadline_ns)).map_err(error)?;
        waits += 1;
        expect("it sleeps rather than spins", &(waits < 100), &true)?;
    }
    Ok(None)
}

pub(super) fn complete_and_wake(kit: &mut Kit<'_>) -> Verdict {
    let mut buffers = buffer(8 * BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 12).or_else(|_| kit.create(&mut rig, false).map(|(file, _)| file))?;

    let wake = rig.backend.wake_handle();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let waker = std::thread::spawn(move || {
        while !stopped.load(SeqCst) {
            wake.wake();
            std::thread::sleep(Duration::from_micros(20));
        }
    });

    let result = wait_for_all(&mut rig, file, &mut buffers);
    stop.store(true, SeqCst);
    waker.join().map_err(|_| "the waking thread panicked".to_owned())?;
    result
}

fn wait_for_all(rig: &mut Rig, file: FileId, buffers: &mut AlignedBuf) -> Verdict {
    for _ in 0..200 {
        let mut waiting = BTreeSet::new();
        for (index, block) in buffers.chunks_exact_mut(BLOCK).enumerate() {
            let operation = rig.operation(Kind::Read, file, (index * BLOCK) as u64, contiguous(block));
            match rig.submit(operation) {
                Submit::Done(_) => return Ok(Some("this backend finishes at once".to_owned())),
                Submit::Queued => drop(waiting.insert(operation.key)),
                Submit::Busy => return Ok(Some("this backend takes fewer than 8 operations".to_owned())),
            }
        }

        let deadline_ns = rig.backend.now_ns() + PATIENCE_NS;
        while !waiting.is_empty() && rig.backend.now_ns() < deadline_ns {
            rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
            let mut unknown = 0;
            rig.backend.reap(&mut |completion| unknown += usize::from(!waiting.remove(&completion.key)));
            expect("completions of unknown keys", &unknown, &0)?;
        }

        expect("operations that did not come back", &waiting.len(), &0)?;
        expect("left in flight", &rig.backend.in_flight(), &0)?;
    }
    Ok(None)
}

pub(super) fn wake_race(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;

    let wake = rig.backend.wake_handle();
    // A wake-up before the wait.
    wake.wake();
    rig.backend.wait(None).map_err(|error| error.to_string())?;

    let (asked, rung) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (asked_there, rung_there) = (Arc::clone(&asked), Arc::clone(&rung));
    let waker = std::thread::spawn(move || {
        let mut last = 0;
        while last < WAKE_ROUNDS {
            let round = asked_there.load(SeqCst);
            if round == last {
                std::thread::yield_now();
                continue;
            }
            // A different moment each round: before, during and after the sleeper's last check.
            (0..round % 97 * 8).for_each(|_| std::hint::spin_loop());
            rung_there.store(round, SeqCst);
            wake.wake();
            last = round;
        }
    });

    let mut verdict = Ok(None);
    for round in 1..=WAKE_ROUNDS {
        asked.store(round, SeqCst);
        if let Err(seen) = wait_until_rung(&mut rig, &rung, round) {
            verdict = Err(seen);
            asked.store(WAKE_ROUNDS, SeqCst);
            break;
        }
    }

    waker.join().map_err(|_| "the waking thread panicked".to_owned())?;
    verdict
}

fn wait_until_rung(rig: &mut Rig, rung: &AtomicU32, round: u32) -> Result<(), String> {
    let deadline_ns = rig.backend.now_ns() + PATIENCE_NS;
    while rung.load(SeqCst) != round {
        rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
        if rig.backend.now_ns() >= deadline_ns {
            return Err(format!("lost in round {round}"));
        }
    }
    Ok(())
}

pub(super) fn idle_wait(kit: &mut Kit<'_>) -> Verdict {
    let mut rig = kit.backend()?;
    let deadline_ns = rig.backend.now_ns() + 200_000_000;
    let before_ns = thread_cpu_ns();
    while rig.backend.now_ns() < deadline_ns {
        rig.backend.wait(Some(deadline_ns)).map_err(|error| error.to_string())?;
    }
    let used_ns = thread_cpu_ns() - before_ns;
    // A spinning wait would use all of the 200 ms; a sleeping one uses some microseconds.
    expect(&format!("less than 20 ms of CPU in 200 ms of sleep ({used_ns} ns)"), &(used_ns < 20_000_000), &true)?;
    Ok(None)
}

pub(super) fn drop_in_flight(kit: &mut Kit<'_>, flushed: bool) -> Verdict {
    const BLOCKS: usize = 64;
    let (mut back, mut wanted) = (buffer(BLOCKS * BLOCK)?, buffer(BLOCKS * BLOCK)?);
    pattern(&mut wanted, 13);
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, BLOCKS, 13)?;

    let blocks = rig.backend.capacity().min(BLOCKS);
    for (index, block) in back.chunks_exact_mut(BLOCK).take(blocks).enumerate() {
        let operation = rig.operation(Kind::Read, file, (index * BLOCK) as u64, contiguous(block));
        if rig.submit(operation) == Submit::Busy {
            return Err(format!("busy with {index} of {} in flight", rig.backend.capacity()));
        }
    }

    if flushed {
        rig.backend.flush().map_err(|error| error.to_string())?;
    }

    drop(rig);
    let after_drop = back.to_vec();
    if flushed {
        let len = blocks * BLOCK;
        same("reads in flight end before the drop does", after_drop.get(..len).unwrap_or(&[]), &wanted[..len])?;
    }

    std::thread::sleep(Duration::from_millis(20));
    same("memory some time after the drop", &back, &after_drop)?;
    Ok(None)
}
