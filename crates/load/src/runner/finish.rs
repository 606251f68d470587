//! The end of a run on a shard: takes the results, drains requests in flight, and reads the writes back.
//!
//! **Why.** Completions after the window must not count, but must arrive before buffers and files are removed. And a
//! write that a disk acknowledged is worth nothing if it cannot be read.
//!
//! **How.** [`Runner::finish`] takes the figures first. Then it waits for requests in flight; then jobs that verify
//! read the part of the file that they wrote, with all their fibers, and check every block. The shard serves others
//! until all have left.
//!
//! **Limits.** Reading back is counted apart, has no time limit, and is left out if the run was stopped. A read that
//! fails there counts as an error of the job.
//!
//! **Example.** See [`super::super::run`].

use plimsoll::core::WindowLimit;
use plimsoll::{Done, RefusedReason, RequestKind};

use super::super::crew::{LOOK_UP_NS, Member};
use super::super::job::{Job, Pacing};
use super::super::pace::due_by;
use super::super::work::{Sent, Work};
use super::super::{JobResult, LoadError, ShardResult};
use super::{Runner, error_of};

impl Runner<'_> {
    /// Finishes the run after its window: takes the results, drains, and reads back.
    pub(super) fn finish(
        mut self,
        cpu_ns: u64,
        window_limits: Vec<WindowLimit>,
        mut done: Vec<Done>,
        mut member: Member<'_>,
    ) -> Result<ShardResult, LoadError> {
        let (begin_ns, end_ns) = (self.begin_ns, self.end_ns);
        if self.interval_ns > 0 {
            self.mark_until(end_ns);
            let from_ns = self.mark_ns.saturating_sub(self.interval_ns);
            let last_ns = end_ns.saturating_sub(from_ns);
            if last_ns > 0 {
                self.jobs.iter_mut().for_each(|job| job.mark(from_ns, last_ns));
            }
        }

        let (reactor, shard) = (&self.reactor, self.reactor.shard());
        let jobs = self.jobs.iter_mut().map(|job| job.take_result(reactor, begin_ns, end_ns));
        let jobs = jobs.collect();
        let elapsed_ns = end_ns.saturating_sub(begin_ns);
        let mut result = ShardResult { shard, cpu_ns, elapsed_ns, jobs, window_limits };
        if end_ns > begin_ns {
            self.count_overdue(&mut result.jobs, end_ns);
        }

        self.running = false;
        self.drain(&mut done)?;
        self.read_back(&mut done)?;

        for (result, job) in result.jobs.iter_mut().zip(&mut self.jobs) {
            // Draining and reading back may have added errors.
            result.errors += job.result.errors;
            result.first_error = result.first_error.or(job.result.first_error);
            (result.read_back, result.read_back_ns) =
                (std::mem::take(&mut job.result.read_back), job.result.read_back_ns);
            if let Work::Special(special) = &mut job.work {
                (result.faults, result.fault_count) = (std::mem::take(&mut special.faults), special.fault_count);
            }
        }

        while !member.have_all_left() {
            member.leave();
            self.turn(&mut done)?;
        }

        for job in &self.jobs {
            self.control.traffic.add(job.asked_bytes());
        }
        Ok(result)
    }

    /// Counts the requests due by the end of the window that had not completed: see [`JobResult::overdue`].
    fn count_overdue(&self, results: &mut [JobResult], end_ns: u64) {
        let mut left: Vec<u64> = self.jobs.iter().map(Job::left).collect();
        let mut add = |number: usize, requests: u64, due_ns: u64| {
            if let (Some(result), true) = (results.get_mut(number), requests > 0) {
                result.overdue = result.overdue.saturating_add(requests);
                result.overdue_oldest_ns = result.overdue_oldest_ns.max(end_ns.saturating_sub(due_ns));
            }
        };

        for fiber in &self.fibers {
            let job = &self.jobs[fiber.job];
            if !matches!(job.pacing, Pacing::Closed) {
                add(fiber.job, fiber.under_way(), fiber.due_ns);
            }

            let Pacing::Fiber { period_ns } = job.pacing else { continue };
            if fiber.has_ended || job.ended_ns.is_some() {
                continue;
            }
            // The request in flight was due one period before the next.
            let next_ns = fiber.due_ns.saturating_add(if fiber.outstanding > 0 { period_ns as u64 } else { 0 });
            let unsent = due_by(end_ns, next_ns, period_ns).saturating_mul(fiber.buffers.len() as u64);
            let unsent = unsent.min(left[fiber.job]);
            left[fiber.job] -= unsent;
            add(fiber.job, unsent, next_ns);
        }

        for (number, job) in self.jobs.iter().enumerate() {
            if let (Pacing::Shard(pace), None) = (&job.pacing, job.ended_ns) {
                let unsent = pace.overdue(end_ns).saturating_mul(u64::from(job.spec.batch.max(1)));
                add(number, unsent.min(left[number]), pace.next_ns());
            }
        }
    }

    /// Waits for requests in flight: no write may land in a file that is being removed.
    fn drain(&mut self, done: &mut Vec<Done>) -> Result<(), LoadError> {
        while let Some(at) = self.slices.pop_front() {
            // This slice will not run.
            self.has_ended(at as usize, Ok(0), self.end_ns);
        }

        loop {
            let now_ns = self.reactor.now_ns();
            for end in done.drain(..) {
                self.is_done(end, now_ns);
            }
            self.collect_unlinked(now_ns);
            if self.is_idle() {
                return Ok(());
            }
            self.turn(done)?;
        }
    }

    /// Serves other shards, and collects completions.
    fn turn(&mut self, done: &mut Vec<Done>) -> Result<(), LoadError> {
        let look_ns = self.reactor.now_ns().saturating_add(LOOK_UP_NS);
        self.reactor.park(Some(look_ns)).map_err(LoadError::Backend)?;
        self.reactor.reap(done);
        Ok(())
    }

    /// Reads back the written places of jobs that verify, each with all its fibers.
    fn read_back(&mut self, done: &mut Vec<Done>) -> Result<(), LoadError> {
        for number in 0..self.jobs.len() {
            let Work::Special(special) = &self.jobs[number].work else { continue };
            if !self.jobs[number].spec.read_back {
                continue;
            }
            let (true, Some((from, to))) = (special.stamps.is_some(), special.written) else { continue };

            let mut free: Vec<usize> = (0..self.fibers.len()).filter(|at| self.fibers[*at].job == number).collect();
            let (mut next, mut under_way) = (from, 0);
            let begin_ns = self.reactor.now_ns();
            loop {
                while let (true, Some(at)) = (next < to && !self.control.stop.is_asked(), free.last().copied()) {
                    if !self.send_read_back(at, &mut next, to) {
                        break;
                    }
                    free.pop();
                    under_way += 1;
                }

                if under_way == 0 && (next >= to || self.control.stop.is_asked()) {
                    break;
                }

                self.turn(done)?;
                let now_ns = self.reactor.now_ns();
                for end in done.drain(..) {
                    under_way -= 1;
                    free.push((end.tag >> 32) as usize);
                    self.has_read_back(end, now_ns);
                }
            }
            self.jobs[number].result.read_back_ns = self.reactor.now_ns().saturating_sub(begin_ns);
        }
        Ok(())
    }

    /// Sends a read of the next written request length at or after `next`, and advances `next`. Returns `false` if
    /// there is no room for it now, or nothing left.
    fn send_read_back(&mut self, at: usize, next: &mut u64, to: u64) -> bool {
        let fiber = &mut self.fibers[at];
        fiber.due_ns = self.reactor.now_ns();
        let job = &mut self.jobs[fiber.job];
        let Work::Special(special) = &mut job.work else { return false };
        let Some(len_bytes) = special.skip_unwritten(next, to, job.spec.request_bytes) else { return false };

        let (Some(buffer), Some(sent)) = (fiber.buffers.first_mut(), fiber.sent.first_mut()) else { return false };
        *sent = Sent::read(*next, len_bytes);
        if special.begin(sent, buffer).is_err() {
            *next = to;
            return false;
        }

        let request = job.request(RequestKind::Read { len_bytes }, *next, std::mem::take(buffer), (at as u64) << 32);
        if let Err(refused) = self.reactor.submit(request) {
            *buffer = refused.request.data;
            let Work::Special(special) = &mut job.work else { return false };
            special.is_refused(sent);
            if refused.reason != RefusedReason::Full {
                job.result.fail(error_of(refused.reason));
                *next = to;
            }
            return false;
        }

        *next += u64::from(len_bytes);
        true
    }

    fn has_read_back(&mut self, end: Done, now_ns: u64) {
        let fiber = &mut self.fibers[(end.tag >> 32) as usize];
        let job = &mut self.jobs[fiber.job];
        let sent = fiber.sent.first().copied().unwrap_or_default();
        if let Work::Special(special) = &mut job.work {
            special.verify(&sent, &end);
        }

        let moved_bytes = end.result.map_err(|error| error.errno());
        job.result.read_back.count(moved_bytes, sent.len_bytes, now_ns.saturating_sub(fiber.due_ns));
        match moved_bytes {
            Ok(bytes) if bytes == sent.len_bytes => {}
            Ok(_) => job.result.fail(0),
            Err(errno) => job.result.fail(errno),
        }
        if let Some(buffer) = fiber.buffers.first_mut() {
            *buffer = end.data;
        }
    }
}
