//! Measures the CPU time of a 4 KiB read: by io_uring, Linux AIO and `pread`.
//!
//! **Why.** On small machines, the processor limits disks of a million operations a second. This figure times the rate
//! of reads is the number of cores that the disk needs.
//!
//! **How.** [`plimsoll::sys::submission::probe_reads`] measures the three ways one after another, on a scratch file of
//! the storage.
//!
//! **Limits.** Those of the probe: time in interrupts is not included.
//!
//! **Example.** 2500 ns at 400 000 reads a second: one core does nothing else.

use std::path::Path;

use plimsoll::sys::submission::{ReadPath, probe_reads};

use super::INTERRUPTED;
use crate::instance::Card;
use crate::load::Stop;
use crate::tune::Observer;

const KEYS: [(ReadPath, &str); 3] = [
    (ReadPath::IoUring, "submission.io_uring_ns"),
    (ReadPath::LinuxAio, "submission.aio_ns"),
    (ReadPath::Pread, "submission.pread_ns"),
];

/// Number of ways that [`run`] measures.
pub(super) const MEASUREMENTS: usize = KEYS.len();

/// Measures all ways on the disk of `directory`, each in `samples` samples of `sample_ns`.
pub(super) fn run(
    card: &mut Card,
    samples: usize,
    sample_ns: u64,
    directory: &Path,
    observer: &mut dyn Observer,
    stop: &Stop,
) {
    let is_stopped = || stop.is_asked();
    for (done, (path, key)) in KEYS.into_iter().enumerate() {
        if is_stopped() {
            card.miss(key, INTERRUPTED);
            continue;
        }

        let cost = probe_reads(directory, path, samples, sample_ns, &is_stopped);
        let samples = match cost {
            Ok(_) if is_stopped() => Err(INTERRUPTED.to_owned()),
            Ok(cost) if cost.block_bytes != 4096 => {
                Err(format!("direct I/O takes {} bytes here, and the figure is of 4 KiB", cost.block_bytes))
            }
            Ok(cost) => Ok(cost.cpu_ns_per_read),
            Err(error) => Err(error.to_string()),
        };
        card.sampled(key, samples);
        observer.on_progress((done + 1) as f64 / MEASUREMENTS as f64);
    }
}
