//! How late a thread at a gate is: after the admission of its call, and after the device has completed it.
//!
//! # Why
//! On busy CPUs a thread wakes up late and is late within its call. If that counted as the disk's time, latencies would
//! include those of the CPUs.
//!
//! # How it works
//! The gate's clock tells how late a thread wakes up. The kernel tells how long it has waited for a CPU. The gate reads
//! that after a long call and, so that the difference belongs to the call, before a call if the thread's last one was
//! long.
//!
//! # Limits
//! The CPU waits of short calls are not read, nor those of the first long call after a short one.
//!
//! # Example
//! A thread wakes up 2 ms after its call was admitted, and waits 1 ms for a CPU within a call of 5 ms: it is 3 ms late,
//! and the device took 4 ms.

use std::cell::Cell;

use crate::sys::rusage::{RUN_DELAY_READ_NS, RunDelay};

/// The calling thread's last reading of its CPU wait.
#[derive(Clone, Copy)]
struct LastReading {
    run_delay: RunDelay,
    /// Whether the thread's last call was long, so that the next may be, too.
    was_long: bool,
}

std::thread_local! {
    static LAST_READING: Cell<LastReading> = const { Cell::new(LastReading { run_delay: RunDelay::NEVER, was_long: false }) };
}

/// Returns when the calling thread last read its CPU wait; 0 if it has not.
#[cfg(all(test, not(plimsoll_loom)))]
fn read_at_ns() -> u64 {
    LAST_READING.get().run_delay.read_at_ns()
}

/// Returns how late a thread was that has waited for a CPU for `run_delay_ns` since `read_at_ns`.
fn late_ns(dispatched_ns: u64, began_ns: u64, read_at_ns: u64, run_delay_ns: u64) -> u64 {
    let woke_late_ns = began_ns.saturating_sub(dispatched_ns);
    if read_at_ns.saturating_add(RUN_DELAY_READ_NS) < began_ns {
        // Much of the wait may have been before the call.
        return woke_late_ns;
    }
    if read_at_ns < began_ns {
        // The wait that delayed the wake-up counts once, and the wait before the admission not at all.
        woke_late_ns.max(run_delay_ns.saturating_sub(dispatched_ns.saturating_sub(read_at_ns)))
    } else {
        woke_late_ns + run_delay_ns
    }
}

/// Returns whether [`read_before`] may read /proc.
pub(super) fn may_read_before() -> bool {
    LAST_READING.get().was_long
}

/// Returns whether [`late_after`] may read /proc.
pub(super) fn may_read_after((_, began_ns): (u64, u64), now_ns: u64) -> bool {
    now_ns.saturating_sub(began_ns) >= RUN_DELAY_READ_NS
}

/// Reads the calling thread's CPU wait if its last call was long, because the next may be, too. Otherwise does nothing:
/// a reading takes some microseconds.
pub(super) fn read_before(now_ns: u64, had_filter: bool) {
    let mut last = LAST_READING.get();
    if last.was_long {
        last.run_delay.refresh(now_ns, had_filter);
        LAST_READING.set(LastReading { was_long: false, ..last });
    }
}

/// Returns for how long the device did not work on a call that this thread ends. Reads the CPU wait only after a long
/// call. The call was admitted at `dispatched_ns`, which the thread learned at `began_ns`.
pub(super) fn late_after((dispatched_ns, began_ns): (u64, u64), now_ns: u64, had_filter: bool) -> u64 {
    if !may_read_after((dispatched_ns, began_ns), now_ns) {
        return began_ns.saturating_sub(dispatched_ns);
    }
    let mut run_delay = LAST_READING.get().run_delay;
    let read_at_ns = run_delay.read_at_ns();
    let run_delay_ns = run_delay.since_last_reading_ns(now_ns, had_filter);
    LAST_READING.set(LastReading { run_delay, was_long: true });
    late_ns(dispatched_ns, began_ns, read_at_ns, run_delay_ns)
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use std::thread;

    use plimsoll_core::{ControlConfig, CostForm, CostModel, DiskConfig, FourFigures, Op, Rate};

    use super::super::tests::{deep, gate_of};
    use super::super::{Call, Gate};
    use super::*;
    use crate::class::Class;
    use crate::sandbox::{OPENS, forbid};
    use crate::topology::DiskSetup;

    /// Returns whether the calling thread reads /proc when it enters for a call of `took_ns`, and when it ends the
    /// call.
    fn reads_proc(gate: &Gate, took_ns: u64) -> [bool; 2] {
        let mut seen_ns = read_at_ns();
        let mut has_read = || std::mem::replace(&mut seen_ns, read_at_ns()) != read_at_ns();
        let began_ns = read_at_ns() + 2 * RUN_DELAY_READ_NS;
        read_before(began_ns, gate.0.had_filter);
        let before = has_read();
        late_after((began_ns, began_ns), began_ns + took_ns, gate.0.had_filter);
        [before, has_read()]
    }

    #[test]
    fn only_threads_whose_calls_are_long_look_into_proc() {
        let gate = deep(1);
        let short_ns = RUN_DELAY_READ_NS - 1;
        for (took_ns, expected) in [
            (short_ns, [false, false]),
            (RUN_DELAY_READ_NS, [false, true]),
            // After a long one the next may be long too.
            (RUN_DELAY_READ_NS, [true, true]),
            (short_ns, [true, false]),
            (short_ns, [false, false]),
        ] {
            assert_eq!(reads_proc(&gate, took_ns), expected, "a call of {took_ns} ns");
        }
    }

    #[test]
    fn a_thread_that_has_a_new_seccomp_filter_does_not_look_into_proc() {
        let gate = deep(1);
        if gate.0.had_filter {
            crate::skip::skip("another filter is there already, as in a container");
            return;
        }
        thread::spawn(move || {
            assert_eq!(reads_proc(&gate, RUN_DELAY_READ_NS), [false, true]);
            if !forbid(&OPENS, libc::SECCOMP_RET_KILL_PROCESS) {
                crate::skip::skip("this kernel takes no seccomp filter");
                return;
            }
            assert_eq!(reads_proc(&gate, RUN_DELAY_READ_NS), [false, false]);
        })
        .join()
        .expect("it passes");
    }

    #[test]
    fn lateness_counts_once() {
        let read_ns = RUN_DELAY_READ_NS;
        for (dispatched_ns, began_ns, read_at_ns, run_delay_ns, expected_ns) in [
            // The reading was after the thread woke up: both waits add up.
            (0, 300, 300, 5000, 300 + 5000),
            // The reading was before: it includes the wait that delayed the wake-up.
            (0, 300, 200, 250, 300),
            (0, 300, 200, 5000, 5000),
            // Before the call was admitted: up to then the thread may have waited in the program's own code.
            (1000, 1000, 600, 400, 0),
            (1000, 1300, 600, 900, 500),
            // Long before: it may include other waits.
            (0, 300 + read_ns, 299, 5000, 300 + read_ns),
        ] {
            let late_ns = late_ns(dispatched_ns, began_ns, read_at_ns, run_delay_ns);
            assert_eq!(late_ns, expected_ns, "{dispatched_ns} {began_ns} {read_at_ns}");
        }
    }

    /// Result of threads at a gate on virtual time.
    struct Ran {
        bytes_per_s: f64,
        window_ns: u64,
        /// Mean time in the device: as the gate counted, and the true one.
        device_ns: [f64; 2],
    }

    /// Lets 64 threads read from a disk of one channel for 3 s. Each begins its calls `late_ns` after they are
    /// admitted, sees their ends as late, and reports that if `is_told`.
    fn run_late(late_ns: u64, is_told: bool) -> Ran {
        const LEN_BYTES: u32 = 65_536;
        const SERVICE_NS: u64 = 65_536;
        const END_NS: u64 = 3_000_000_000;
        let rate = Rate::per_second(1_000_000_000);
        let iops = Rate::per_second(100_000);
        let figures = FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: rate, write_bandwidth: rate };
        let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
        let control = ControlConfig { enabled: true, ..ControlConfig::default() };
        let gate = gate_of(DiskSetup::new(DiskConfig { model, control, ..DiskConfig::default() }));
        let call = Call { class: Class::DEFAULT, op: Op::Read, len_bytes: LEN_BYTES, offset_bytes: 0, file: 0 };

        let mut state = gate.0.lock();
        let mut waiting: Vec<usize> = (0..64).map(|_| state.queue_call(0, &call).expect("there is room")).collect();
        // By time of the end: key, length, time of admission, time in the device.
        let mut going = std::collections::BTreeMap::new();
        let (mut now_ns, mut free_ns, mut calls, mut bytes, mut device_ns) = (0, 0, 0_u64, 0_u64, 0_u64);
        while now_ns < END_NS {
            state.run(now_ns);
            waiting.retain(|key| {
                let Some(admitted) = state.admitted(*key, now_ns + late_ns) else { return true };
                let enters_ns = admitted.began_ns;
                let parts = u64::from(admitted.len_bytes);
                free_ns = enters_ns.max(free_ns) + SERVICE_NS * parts / u64::from(LEN_BYTES);
                going.insert((free_ns + late_ns, *key), (admitted, free_ns - enters_ns));
                false
            });

            let ends_ns = going.first_key_value().map_or(u64::MAX, |((at_ns, _), _)| *at_ns);
            now_ns = state.blocked().1.unwrap_or(u64::MAX).max(now_ns + 1).min(ends_ns);
            while let Some(next) = going.first_entry().filter(|next| next.key().0 <= now_ns) {
                let ((_, key), (admitted, took_ns)) = next.remove_entry();
                let (from_ns, began_ns) = (admitted.dispatched_ns, admitted.began_ns);
                let told_ns = if is_told { super::late_ns(from_ns, began_ns, began_ns, late_ns) } else { 0 };
                state.end(now_ns, told_ns, key, Ok(admitted.len_bytes));
                (calls, bytes, device_ns) = (calls + 1, bytes + u64::from(admitted.len_bytes), device_ns + took_ns);
                waiting.push(state.queue_call(now_ns, &call).expect("there is room"));
            }
        }
        drop(state);

        let mut taken_ns = 0.0;
        gate.class_latencies(Class::DEFAULT, &mut |_, latencies| taken_ns = latencies.device.mean());
        let window_ns = gate.topology().disk(0).expect("one disk").window_ns();
        let bytes_per_s = bytes as f64 * 1e9 / now_ns as f64;
        Ran { bytes_per_s, window_ns, device_ns: [taken_ns, device_ns as f64 / calls as f64] }
    }

    #[test]
    fn late_threads_are_told_and_neither_lengthen_the_device_nor_shrink_the_window() {
        let calm = run_late(0, true);
        for late_ns in [300_000, 1_000_000, 3_000_000] {
            let [told, silent] = [true, false].map(|is_told| run_late(late_ns, is_told));
            let [taken_ns, true_ns] = told.device_ns;
            assert!((taken_ns - true_ns).abs() < 1.0, "{taken_ns} ns in the device, truly {true_ns}");
            assert!(
                told.window_ns >= calm.window_ns.max(silent.window_ns),
                "{} of {}",
                told.window_ns,
                silent.window_ns
            );
            if late_ns == 1_000_000 {
                assert!(told.window_ns > silent.window_ns, "{} of {}", told.window_ns, silent.window_ns);
            }
            assert!(told.bytes_per_s >= silent.bytes_per_s, "{} of {}", told.bytes_per_s, silent.bytes_per_s);
        }
    }
}
