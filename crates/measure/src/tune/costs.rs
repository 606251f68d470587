//! Measures the cost of single operations: flush, discard, submissions.
//!
//! **Why.** A log flushes after each batch, a cache discards blocks, and a shard does nothing else while a submission
//! blocks. Rates show none of that.
//!
//! **How.** Runs the library's probes ([`plimsoll::sys::submission`]) in the directory; on a device, discards in the
//! range that may be overwritten. A probe that cannot run is reported with its reason, and the others run all the same.
//!
//! **Limits.** In a file system a "discard" is a hole punched into a file, which may reach the disk at once, later, or
//! never.
//!
//! **Example.** ext4 on NVMe: flush 28 us, hole of 1 MiB 110 us, appending writes block (0.8 context switches each).

use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;

use plimsoll::sys::submission::{
    self, ProbeLimits, SubmissionProbe, probe_discard, probe_discard_device, probe_flush, probe_submissions,
};

use super::record::Entry;
use super::report::{OperationCost, SubmissionCost};

/// Most bytes that the probes write: 64 MiB to discard, and blocks to flush and submit.
pub(super) const PROBE_MAX_BYTES: u64 = 96 << 20;

pub(super) enum CostPlace {
    /// No place: the backend is in memory.
    Nowhere,
    Directory(PathBuf),
    /// A part of a device that may be overwritten. The claim is dropped for the probe, which makes its own.
    Device {
        path: PathBuf,
        range_bytes: Range<u64>,
        claim: Option<File>,
    },
}

impl CostPlace {
    /// Runs the probes. Returns an [`Entry::Costs`].
    pub(super) fn measure(&mut self) -> Entry {
        let mut skipped = Vec::new();
        let (mut flush, mut discard, mut submissions) = (None, None, Vec::new());

        match self {
            CostPlace::Nowhere => {}
            CostPlace::Directory(path) => {
                flush = kept(probe_flush(path, ProbeLimits::FLUSH), &mut skipped)
                    .map(|cost| operation(cost, "fdatasync after a write of one block"));
                discard = kept(probe_discard(path, ProbeLimits::DISCARD), &mut skipped)
                    .map(|cost| operation(cost.piece, "hole of 1 MiB punched into a file"));
                let probed = kept(probe_submissions(path, ProbeLimits::SUBMISSIONS), &mut skipped);
                submissions = probed.unwrap_or_default().iter().map(submission).collect();
            }
            CostPlace::Device { path, range_bytes, claim } => {
                drop(claim.take());
                let probed = probe_discard_device(path, range_bytes.clone(), ProbeLimits::DISCARD);
                discard = kept(probed, &mut skipped).map(|cost| operation(cost.piece, "discard of 1 MiB"));
            }
        }

        Entry::Costs { flush, discard, submissions, skipped }
    }
}

/// Returns the result, or `None` and adds the error to `skipped`.
fn kept<T>(result: std::io::Result<T>, skipped: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| skipped.push(error.to_string())).ok()
}

fn operation(cost: submission::OperationCost, what: &str) -> OperationCost {
    let (p50_ns, p99_ns) = (cost.p50_ns, cost.p99_ns);
    OperationCost { p50_ns, p99_ns, operations: u64::from(cost.operations), what: what.to_owned() }
}

fn submission(probe: &SubmissionProbe) -> SubmissionCost {
    SubmissionCost {
        kind: probe.kind.name().to_owned(),
        block_bytes: probe.block_bytes,
        depth: probe.depth,
        context_switches_per_operation: probe.context_switches_per_operation,
        submit_p50_ns: probe.submit_p50_ns,
        submit_max_ns: probe.submit_max_ns,
        nowait_refused: probe.nowait_refused,
        blocks: probe.blocks,
    }
}
