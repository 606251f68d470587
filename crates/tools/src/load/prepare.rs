//! What is checked and made before a run begins: the plan's size, the open files, the buffers.
//!
//! # Why
//! A plan that cannot run is refused before it has touched anything, with the job's name and what to change.
//!
//! # How it works
//! [`check_size`] counts the requests that can be under way at once on each shard. [`prepare`] opens the files of one shard's
//! jobs, and makes their fibers with the memory that they will use.
//!
//! # Limits
//! Reactors and I/O queues are taken to have the library's default sizes, as all plans of this crate have.
//!
//! # Example
//! A job of 65 536 fibers fills a shard's table; a second one with a single fiber on the same shard is refused:
//! "job `b`: with its 1 requests shard 0 has 65537 under way at once, ...".

use plimsoll::buffer::AlignedBuf;
use plimsoll::core::QueueConfig;
use plimsoll::{Data, Reactor, ReactorConfig};

use super::runner::{Fiber, Job};
use super::{JobSpec, LoadError, Plan, Target};
use plimsoll_sim::rng::Rng;

/// Requests of one job under way at once on a shard.
fn requests_at_once(spec: &JobSpec) -> u64 {
    u64::from(spec.parallelism) * u64::from(spec.batch.max(1))
}

/// Refuses a plan with more requests under way than a shard can hold. A request on another shard's I/O queue has a place in
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

/// The jobs that belong to the reactor's shard, and their fibers.
pub(super) fn prepare<'a>(reactor: &mut Reactor, plan: &'a Plan) -> Result<(Vec<Job<'a>>, Vec<Fiber>), LoadError> {
    let shard = usize::from(reactor.shard());
    let mut jobs = Vec::new();
    let mut fibers = Vec::new();
    for (number, spec) in plan.jobs.iter().enumerate() {
        let Some(Some(target)) = spec.targets.get(shard) else { continue };
        let rng = Rng::new(plan.seed ^ ((shard as u64) << 32) ^ ((number as u64) << 48));
        let positions = open(reactor, spec, target)?;
        let first = if spec.staggered { first_position(positions, reactor.shard(), plan.topology.shards()) } else { 0 };
        let at = jobs.len();
        let mut buffers = make_buffers(reactor, spec, &mut Rng::new(plan.seed ^ number as u64))?;
        for _ in 0..spec.parallelism {
            let mine = buffers.split_off(buffers.len().saturating_sub(spec.batch.max(1) as usize));
            fibers.push(Fiber { job: at, buffers: mine, outstanding: 0, due_ns: 0, phase_end_ns: 0 });
        }
        jobs.push(Job::new(spec, target, positions, first, rng));
    }
    Ok((jobs, fibers))
}

/// Where `shard` of `shards` begins in a region of `positions` that all of them go through.
fn first_position(positions: u64, shard: u16, shards: u16) -> u64 {
    let position = u128::from(positions) * u128::from(shard) / u128::from(shards.max(1));
    u64::try_from(position).unwrap_or(0)
}

/// Opens the file of a job, and answers how many of its requests fit in the region.
fn open(reactor: &mut Reactor, spec: &JobSpec, target: &Target) -> Result<u64, LoadError> {
    let info = reactor.open(&target.file).map_err(|error| LoadError::Open { job: spec.name.clone(), error })?;
    let align_bytes = info.offset_align_bytes.max(1);
    if !spec.request_bytes.is_multiple_of(align_bytes) {
        let reason = format!(
            "requests of {} bytes, but {} takes direct I/O in multiples of {align_bytes} bytes: set reqsize to such a multiple",
            spec.request_bytes,
            target.file.path().display()
        );
        return Err(LoadError::Unsuitable { job: spec.name.clone(), reason });
    }
    let positions = target.len_bytes / u64::from(spec.request_bytes.max(1));
    if positions == 0 {
        let reason = format!("its region of {} bytes does not hold one request", target.len_bytes);
        return Err(LoadError::Unsuitable { job: spec.name.clone(), reason });
    }
    Ok(positions)
}

fn make_buffers(reactor: &mut Reactor, spec: &JobSpec, rng: &mut Rng) -> Result<Vec<Data>, LoadError> {
    let requests = requests_at_once(spec);
    let no_memory = |error: std::io::Error| LoadError::NoMemory {
        job: spec.name.clone(),
        requests,
        request_bytes: spec.request_bytes,
        error,
    };
    let count = usize::try_from(requests).map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
    let fill = |buffer: &mut AlignedBuf, rng: &mut Rng| {
        if spec.pattern.is_write() {
            rng.fill(buffer);
        }
    };
    let Some(pieces) = spec.iov_count else {
        let mut buffers = reactor.make_buffers(count, spec.request_bytes as usize).map_err(no_memory)?;
        buffers.iter_mut().for_each(|buffer| fill(buffer, rng));
        return Ok(buffers.into_iter().map(Data::One).collect());
    };
    let piece_bytes = spec.request_bytes as usize / pieces.max(1) as usize;
    let vectored = (0..count).map(|_| {
        let mut buffers = Vec::with_capacity(pieces as usize);
        for _ in 0..pieces {
            let mut buffer = AlignedBuf::new(piece_bytes)?;
            fill(&mut buffer, rng);
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
    fn shards_begin_at_their_part() {
        let cases = [((100, 0, 4), 0), ((100, 1, 4), 25), ((100, 3, 4), 75), ((3, 1, 2), 1), ((1, 3, 4), 0)];
        for ((positions, shard, shards), first) in cases {
            assert_eq!(first_position(positions, shard, shards), first, "{positions} {shard} {shards}");
        }
        assert_eq!(first_position(u64::MAX, 1, 2), u64::MAX / 2);
    }
}
