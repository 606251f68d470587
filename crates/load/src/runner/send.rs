//! Sends the requests of fibers.
//!
//! **Why.** The hot path of plain jobs stands beside the path of all other jobs, so a reader can compare them.
//!
//! **How.** [`Runner::send`] sends a fiber's whole batch. If the table had no room for any of it, the fiber tries again
//! later; a fiber with nothing in flight and nothing to retry ends.
//!
//! **Limits.** A batch that was refused in part is not completed later: the fiber continues when the accepted part has
//! come back.
//!
//! **Example.** See [`super::super::run`].

use plimsoll::{Data, Refused, RefusedReason, RequestKind};

use super::super::job::is_mixed;
use super::super::unlink::unlink_path;
use super::super::work::Work;
use super::{FLUSH, RETRY_NS, Runner, Then, error_of};

impl Runner<'_> {
    pub(super) fn send(&mut self, at: usize, due_ns: u64) {
        let now_ns = self.reactor.now_ns();
        let fiber = &mut self.fibers[at];
        fiber.due_ns = due_ns;
        let job = &mut self.jobs[fiber.job];
        if job.is_used_up(now_ns) {
            self.end_fiber(at, now_ns);
            return;
        }

        let has_sent = match job.work {
            Work::Plain { kind, is_random } => self.send_plain(at, kind, is_random),
            Work::Special(_) => self.send_special(at),
            Work::Cpu { .. } => {
                job.made += 1;
                job.under_way += 1;
                fiber.outstanding = 1;
                self.outstanding += 1;
                self.slices.push_back(at as u32);
                return;
            }
            Work::Unlink { .. } => return self.send_unlink(at, now_ns),
        };

        if self.fibers[at].outstanding == 0 {
            // No completion will advance this fiber.
            match has_sent {
                Err(RefusedReason::Full) => self.set_timer(at, now_ns.saturating_add(RETRY_NS), Then::Send),
                _ => self.end_fiber(at, now_ns),
            }
        }
    }

    /// Sends the batch of a plain job. If a request is refused, returns the reason.
    fn send_plain(&mut self, at: usize, kind: RequestKind, is_random: bool) -> Result<(), RefusedReason> {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];
        let is_write = matches!(kind, RequestKind::Write { .. });
        let budget = is_write.then_some(&self.control.traffic);
        let request_bytes = u64::from(job.spec.request_bytes);
        for (number, buffer) in fiber.buffers.iter_mut().enumerate() {
            if budget.is_some_and(|traffic| !traffic.take_write(request_bytes)) {
                break;
            }

            let tag = ((at as u64) << 32) | number as u64;
            if is_write {
                job.renew(buffer, job.spec.request_bytes);
            }

            let request = job.next_plain(kind, is_random, std::mem::take(buffer), tag);
            if let Err(refused) = self.reactor.submit(request) {
                let Refused { reason, request } = *refused;
                *buffer = request.data;
                job.result.fail(error_of(reason));
                if let Some(traffic) = budget {
                    traffic.give_back_write(request_bytes);
                }
                return Err(reason);
            }

            fiber.outstanding += 1;
            self.outstanding += 1;
            job.made += 1;
            job.under_way += 1;
        }
        Ok(())
    }

    /// Sends the batch of any other job that makes requests. If a request is refused, returns the reason.
    fn send_special(&mut self, at: usize) -> Result<(), RefusedReason> {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];

        for (number, (buffer, sent)) in fiber.buffers.iter_mut().zip(&mut fiber.sent).enumerate() {
            let Work::Special(special) = &mut job.work else { return Ok(()) };
            if special.has_asked(job.spec.limit_bytes) {
                break;
            }

            let (kind, next) = special.next(job.spec, job.target, job.more, &mut job.rng);
            let is_other_direction = std::mem::replace(sent, next).is_write != next.is_write;
            if is_other_direction && is_mixed(job.spec.kind) {
                job.change_direction(buffer, next.is_write);
            }
            let Work::Special(special) = &mut job.work else { return Ok(()) };

            let is_transfer = matches!(kind, RequestKind::Write { .. });
            let budget = is_transfer.then_some(&self.control.traffic);
            let len_bytes = u64::from(sent.len_bytes);
            if budget.is_some_and(|traffic| !traffic.take_write(len_bytes)) {
                break;
            }

            if special.begin(sent, buffer).is_err() {
                // Cannot happen: the length was checked against the region.
                return Err(RefusedReason::BufferTooSmall);
            }
            if is_transfer && !job.spec.verify {
                job.renew(buffer, sent.len_bytes);
            }

            let tag = ((at as u64) << 32) | number as u64;
            let mut request = job.request(kind, sent.offset, std::mem::take(buffer), tag);
            if sent.region > 0 {
                request.file = job.file_of(sent.region).clone();
            }
            let submitted = self.reactor.submit(request);
            let Work::Special(special) = &mut job.work else { return Ok(()) };

            if let Err(refused) = submitted {
                let Refused { reason, request } = *refused;
                *buffer = request.data;
                special.is_refused(sent);
                job.result.fail(error_of(reason));
                if let Some(traffic) = budget {
                    traffic.give_back_write(len_bytes);
                }
                return Err(reason);
            }

            special.is_sent(kind, sent);
            fiber.unflushed = fiber.unflushed.saturating_add(u32::from(is_transfer));
            fiber.outstanding += 1;
            self.outstanding += 1;
            job.made += 1;
            job.under_way += 1;
        }
        Ok(())
    }

    /// Sends a flush if the fiber has written enough since the last. Returns whether one was due.
    pub(super) fn flush_if_due(&mut self, at: usize, now_ns: u64) -> bool {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];
        let spec = job.spec;
        if spec.flush_every == 0 || fiber.unflushed < spec.flush_every {
            return false;
        }

        let kind = RequestKind::Sync { data_only: spec.flush_data_only };
        let mut request = job.request(kind, job.target.offset, Data::None, ((at as u64) << 32) | FLUSH);
        // Flush the file of the last write.
        request.file = job.file_of(fiber.sent.last().map_or(0, |sent| sent.region)).clone();

        match self.reactor.submit(request) {
            Ok(_) => {
                fiber.flush_sent_ns = now_ns;
                job.under_way += 1;
                fiber.outstanding = 1;
                self.outstanding += 1;
            }
            Err(refused) => {
                job.result.fail(error_of(refused.reason));
                match refused.reason {
                    RefusedReason::Full => self.set_timer(at, now_ns.saturating_add(RETRY_NS), Then::GoOn),
                    _ => self.end_fiber(at, now_ns),
                }
            }
        }
        true
    }

    fn send_unlink(&mut self, at: usize, now_ns: u64) {
        let fiber = &mut self.fibers[at];
        let job = &mut self.jobs[fiber.job];
        let (Work::Unlink { files, next }, Some(unlinker)) = (&mut job.work, &self.unlinker) else { return };
        if next >= files {
            self.end_fiber(at, now_ns);
            return;
        }
        unlinker.send(at as u32, unlink_path(job.target.file.path(), *next));
        *next += 1;
        job.made += 1;
        job.under_way += 1;
        fiber.outstanding = 1;
        self.outstanding += 1;
    }
}
