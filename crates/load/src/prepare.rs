//! Checks and preparations before a run: the plan's size, the open files, the buffers.
//!
//! **Why.** A plan that cannot run is refused before any request, with the job's name and the remedy.
//!
//! **How.** [`check_size`] counts the requests that can be in flight at once on each shard. [`prepare`] opens the files
//! of one shard's jobs, and makes their fibers with all their memory; the buffers hold the data to write from the
//! start, so the run spends no time on making data.
//!
//! **Limits.** Reactors and I/O queues are assumed to have the library's default sizes, as in all plans of this crate.
//!
//! **Example.** A job of 65 536 fibers fills a shard's table; a second one with a single fiber on the same shard is
//! refused: "job `b`: with its 1 requests shard 0 has 65537 under way at once, ...".

use plimsoll::buffer::AlignedBuf;
use plimsoll::core::QueueConfig;
use plimsoll::{Data, Reactor, ReactorConfig};
use plimsoll_sim::rng::Rng;

use super::content::{ContentMaker, spares};
use super::fiber::Fiber;
use super::job::{Job, is_mixed};
use super::verify::Stamps;
use super::work::{Extras, Work, lengths, picker};
use super::{JobSpec, LoadError, Pattern, Plan, Target};

/// Returns the requests of one job that can be in flight at once on a shard.
fn requests_at_once(spec: &JobSpec) -> u64 {
    u64::from(spec.parallelism) * u64::from(spec.batch.max(1))
}

/// Refuses a plan with more requests in flight than a shard can hold. A request on another shard's I/O queue occupies
/// the tables of both shards.
pub(super) fn check_size(plan: &Plan) -> Result<(), LoadError> {
    let most = u64::from(ReactorConfig::default().max_requests.min(QueueConfig::default().max_requests));
    let mut on_shard = vec![0_u64; usize::from(plan.topology.shards())];

    for spec in &plan.jobs {
        let requests = requests_at_once(spec);
        for (shard, target) in (0..plan.topology.shards()).zip(&spec.targets) {
            let Some(target) = target else { continue };

            let coordinator = plan.topology.coordinator(target.file.disk(), shard);
            let other = (coordinator != shard).then_some(coordinator);
            for held_by in std::iter::once(shard).chain(other) {
                let Some(sum) = on_shard.get_mut(usize::from(held_by)) else { continue };
                *sum = sum.saturating_add(requests);
                if *sum > most {
                    let reason = format!(
                        "with its {requests} requests shard {held_by} has {sum} under way at once, more than the {most} that a \
                         shard can hold: lower its parallelism or batch, or run fewer jobs at a time"
                    );
                    return Err(LoadError::Unsuitable { job: spec.name.clone(), reason });
                }
            }
        }
    }
    Ok(())
}

/// Makes the jobs of the reactor's shard, and their fibers.
///
/// Written data carries numbers derived from `run_number`, which differs for each run, so data of an earlier run,
/// stage or sweep point is never mistaken for data of this one.
pub(super) fn prepare<'a>(
    reactor: &mut Reactor,
    plan: &'a Plan,
    run_number: u64,
) -> Result<(Vec<Job<'a>>, Vec<Fiber>), LoadError> {
    let shard = usize::from(reactor.shard());
    let mut jobs = Vec::new();
    let mut fibers = Vec::new();
    for (number, spec) in plan.jobs.iter().enumerate() {
        let Some(Some(target)) = spec.targets.get(shard) else { continue };

        let seed = plan.seed ^ ((shard as u64) << 32) ^ ((number as u64) << 48);
        let (positions, more) = (open(reactor, spec, target)?, spec.more_on(shard));
        for further in more {
            open(reactor, spec, further)?;
        }
        if spec.verify && !more.is_empty() {
            return Err(unsuitable(spec, "it verifies several files: give it one"));
        }
        let first = if spec.staggered { first_position(positions, reactor.shard(), plan.topology.shards()) } else { 0 };
        let job = jobs.len();

        let batch = spec.batch.max(1) as usize;
        // Shards write different data, or the disk might keep one copy for all.
        let mut buffers = make_buffers(reactor, spec, plan.seed ^ number as u64 ^ ((shard as u64) << 32))?;
        let mut extras = extras(plan, number, target, identity(run_number, seed))?;
        extras.spares = buffers.drain(requests_at_once(spec) as usize..).collect();
        let job_is_made = Job::new(spec, (target, more), positions, first, seed, extras);

        let remembered = if matches!(job_is_made.work, Work::Special(_)) { batch } else { 0 };
        for _ in 0..spec.parallelism {
            let mine = buffers.split_off(buffers.len().saturating_sub(batch));
            fibers.push(Fiber::new(job, mine, remembered));
        }
        jobs.push(job_is_made);
    }
    Ok((jobs, fibers))
}

fn unsuitable(spec: &JobSpec, reason: impl ToString) -> LoadError {
    LoadError::Unsuitable { job: spec.name.clone(), reason: reason.to_string() }
}

/// Returns a number unique to the run, the shard and the job. `seed` is that of the job on its shard.
fn identity(run_number: u64, seed: u64) -> u64 {
    Rng::new(Rng::new(run_number).next_u64() ^ seed).next_u64()
}

/// Returns the picker of uneven positions and the stamps, for jobs that need them.
fn extras(plan: &Plan, number: usize, target: &Target, identity: u64) -> Result<Extras, LoadError> {
    let Some(spec) = plan.jobs.get(number) else { return Ok(Extras::default()) };
    // The seed leaves out the shard: the same positions are popular on all shards.
    let picker = picker(spec, target, plan.seed ^ number as u64).map_err(|error| unsuitable(spec, error))?;
    let stamps = match spec.verify && has_transfers(spec.kind) {
        true => {
            // The longest block that divides every request length.
            let block_bytes = lengths(spec).fold(0, common_divisor);
            let stamps = Stamps::new(identity, target.offset, target.len_bytes, block_bytes);
            Some(Box::new(stamps.map_err(|error| unsuitable(spec, error))?))
        }
        false => None,
    };
    Ok(Extras { picker, stamps, next_word: identity, ..Extras::default() })
}

fn common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns whether requests move data.
fn has_transfers(pattern: Pattern) -> bool {
    !matches!(pattern, Pattern::Flush | Pattern::Discard { .. } | Pattern::Unlink { .. } | Pattern::Cpu { .. })
}

/// Returns where `shard` of `shards` begins in a region of `positions` that all of them traverse.
fn first_position(positions: u64, shard: u16, shards: u16) -> u64 {
    let position = u128::from(positions) * u128::from(shard) / u128::from(shards.max(1));
    u64::try_from(position).unwrap_or(0)
}

/// Opens the file of a job. Returns how many of its requests fit in the region (1 if requests have no place).
fn open(reactor: &mut Reactor, spec: &JobSpec, target: &Target) -> Result<u64, LoadError> {
    if matches!(spec.kind, Pattern::Unlink { .. } | Pattern::Cpu { .. }) {
        return Ok(1);
    }

    let info = reactor.open(&target.file).map_err(|error| LoadError::Open { job: spec.name.clone(), error })?;
    if spec.kind == Pattern::Flush {
        return Ok(1);
    }

    let align_bytes = info.offset_align_bytes.max(1);
    for bytes in lengths(spec) {
        if !bytes.is_multiple_of(align_bytes) {
            let path = target.file.path().display();
            return Err(unsuitable(
                spec,
                format!(
                    "requests of {bytes} bytes, but {path} takes direct I/O in multiples of {align_bytes} bytes: set reqsize \
                     to such a multiple"
                ),
            ));
        }

        if bytes == 0 || target.len_bytes < u64::from(bytes) {
            let region_bytes = target.len_bytes;
            return Err(unsuitable(spec, format!("its region of {region_bytes} bytes does not hold one request")));
        }
    }

    Ok(target.len_bytes / u64::from(spec.request_bytes.max(1)))
}

/// Makes a buffer for each request that can be in flight at once, then the spare ones. A job that mixes reads and writes
/// begins with buffers for reads, and its writes take the spare ones.
fn make_buffers(reactor: &mut Reactor, spec: &JobSpec, seed: u64) -> Result<Vec<Data>, LoadError> {
    let requests = requests_at_once(spec);
    let request_bytes = lengths(spec).max().unwrap_or(spec.request_bytes);
    let no_memory =
        |error: std::io::Error| LoadError::NoMemory { job: spec.name.clone(), requests, request_bytes, error };
    let is_written = spec.kind.is_write() && has_transfers(spec.kind);
    let for_reads = if is_mixed(spec.kind) { requests } else { 0 };
    let spares = for_reads + if is_written && !spec.verify { spares(request_bytes, requests) } else { 0 };
    let count = usize::try_from(requests + spares).map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
    if !has_transfers(spec.kind) {
        return Ok((0..count).map(|_| Data::None).collect());
    }

    let mut maker = spec.kind.is_write().then(|| ContentMaker::new(spec.content, seed));
    let mut fill = |buffer: &mut AlignedBuf| {
        if let Some(maker) = &mut maker {
            maker.fill(buffer);
        }
    };

    let Some(pieces) = spec.iov_count else {
        // Unregistered buffers work as well, at a little more cost.
        let mut buffers = reactor.make_buffers(count, request_bytes as usize).map_err(no_memory)?.buffers;
        buffers.iter_mut().for_each(fill);
        return Ok(buffers.into_iter().map(Data::One).collect());
    };

    let piece_bytes = request_bytes as usize / pieces.max(1) as usize;
    let vectored = (0..count).map(|_| {
        let mut buffers = Vec::with_capacity(pieces as usize);
        for _ in 0..pieces {
            let mut buffer = AlignedBuf::new(piece_bytes)?;
            fill(&mut buffer);
            buffers.push(buffer);
        }
        Ok(Data::Many(buffers))
    });
    vectored.collect::<std::io::Result<_>>().map_err(no_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_divide_all_lengths() {
        let cases: [(&[u32], u32); 4] =
            [(&[4096], 4096), (&[4096, 65536], 4096), (&[6144, 4096], 2048), (&[512, 0], 512)];
        for (lengths, block) in cases {
            assert_eq!(lengths.iter().copied().fold(0, common_divisor), block, "{lengths:?}");
        }
    }

    #[test]
    fn each_run_and_shard_has_its_own_identity() {
        let seeds = [1, 2, 1 | 1 << 32, 1 | 1 << 48];
        let all: Vec<u64> = (1..4).flat_map(|run| seeds.map(|seed| identity(run, seed))).collect();
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), all.len());
        assert_eq!(identity(7, 1), identity(7, 1));
    }

    #[test]
    fn shards_begin_at_their_part() {
        let cases = [((100, 0, 4), 0), ((100, 1, 4), 25), ((100, 3, 4), 75), ((3, 1, 2), 1), ((1, 3, 4), 0)];
        for ((positions, shard, shards), first) in cases {
            assert_eq!(first_position(positions, shard, shards), first, "{positions} {shard} {shards}");
        }
        assert_eq!(first_position(u64::MAX, 1, 2), u64::MAX / 2);
    }
}
