//! Submission of requests: into a queue of this shard, or by mail to the shard with the queue; and cancellation.
//!
//! # Limits
//! A request that was sent to another shard's queue is not cancelled.
//!
//! # Example
//! Disk 0 has one I/O queue, on shard 0. A request of shard 1 for it leaves a stand-in in the table of shard 1.

use plimsoll_core::{Cancel, QueueError, RequestId};

use super::{Pending, Place, Reactor, Sender};
use crate::mailbox::Message;
use crate::request::{Data, Refused, RefusedReason, Request, Ticket, without_memory};

impl Reactor {
    /// Queues a request, as of [`Reactor::now_ns`]: after a pause call [`Reactor::reap`] first, or the request counts as
    /// having waited since the last turn. [`Reactor::reap`] returns its result.
    ///
    /// # Errors
    /// [`Refused`], with the reason and the request.
    pub fn submit(&mut self, request: Request) -> Result<Ticket, Box<Refused>> {
        self.submit_from(request, None)
    }

    pub(super) fn submit_from(&mut self, request: Request, from: Option<Sender>) -> Result<Ticket, Box<Refused>> {
        let refuse = |reason, request| Err(Box::new(Refused { reason, request }));
        if let Some(errno) = self.broken {
            return refuse(RefusedReason::Broken { errno }, request);
        }
        if !self.topology.has_made(&request.file) {
            return refuse(RefusedReason::ForeignFile, request);
        }
        if request.file.disk() >= self.topology.disks() {
            return refuse(RefusedReason::UnknownDisk, request);
        }
        if request.kind.transfer_bytes() as usize > request.data.len_bytes() {
            return refuse(RefusedReason::BufferTooSmall, request);
        }
        if matches!(&request.data, Data::Many(buffers) if buffers.len() > 1024) {
            return refuse(RefusedReason::TooManyBuffers, request);
        }
        if self.pending.len() >= self.config.max_requests as usize {
            return refuse(RefusedReason::Full, request);
        }

        self.number = self.number.wrapping_add(1);
        let source = from.map_or(self.shard, |from| from.shard);
        let mut queued = self.enqueue(&request, source);
        if queued == Err(QueueError::Unknown) && self.follow_classes() {
            // The class is newer than this shard's copy of the table.
            queued = self.enqueue(&request, source);
        }

        let disk = request.file.disk();
        let at = match queued {
            Ok(Some(id)) => Place::Here { disk, id },
            Ok(None) => return Ok(self.send_to_coordinator(disk, request)),
            Err(error) => return refuse(reason_of(error), request),
        };

        let key = self.pending.insert(Pending {
            request,
            number: self.number,
            pieces: 0,
            at,
            from,
            discarded_bytes: 0,
            discarded_ns: 0,
            is_stopping: false,
        });
        if self.tracer.is_on() {
            self.note_queued(key);
        }
        Ok(self.ticket(key))
    }

    /// Puts a request into its queue, under the key that it will get; `None` if the queue is on another shard.
    fn enqueue(&mut self, request: &Request, source: u16) -> Result<Option<RequestId>, QueueError> {
        let key = self.pending.vacant_key() as u64;
        let Some(Some(queue)) = self.queues.get_mut(usize::from(request.file.disk())) else { return Ok(None) };
        let (op, len_bytes) = (request.kind.op(), request.kind.transfer_bytes());
        queue.enqueue(self.now_ns, request.class, source, op, len_bytes, key).map(Some)
    }

    /// Sends a request to the shard that has the queue of `disk`, and puts a stand-in with its tag into the table.
    fn send_to_coordinator(&mut self, disk: u16, mut request: Request) -> Ticket {
        let stand_in = without_memory(&request);
        let serial = self.number;
        let key = self.pending.insert(Pending {
            request: stand_in,
            number: serial,
            pieces: 0,
            at: Place::Remote,
            from: None,
            discarded_bytes: 0,
            discarded_ns: 0,
            is_stopping: false,
        });

        request.tag = key as u64;
        let coordinator = self.topology.coordinator(disk, self.shard);
        self.topology.mailboxes().send(coordinator, Message::Request { from: self.shard, serial, request });
        self.ticket(key)
    }

    /// Returns the ticket of the request under `key`, which must be the newest.
    fn ticket(&self, key: usize) -> Ticket {
        Ticket { key: key as u32, serial: self.number as u32 }
    }

    /// Cancels the queued rest of a request, and returns whether there was any. The request ends with `ECANCELED`, at
    /// once or when its pieces in the device are back, unless one of them fails or meets the end of the file. The rest
    /// of a discard is the parts after the one in the device. A request that was sent to another shard's queue is not
    /// cancelled.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(pending) = self.pending.get(ticket.key as usize).filter(|p| p.number as u32 == ticket.serial) else {
            return false;
        };
        let Place::Here { disk, id } = pending.at else { return false };
        let Some(queue) = &mut self.queues[usize::from(disk)] else { return false };

        let cancel = queue.cancel(id);
        let is_stopped = !matches!(cancel, Cancel::TooLate) || self.stop_discard(ticket.key as usize);
        if self.tracer.is_on() && is_stopped {
            self.note_cancelled(ticket.key as usize);
        }
        match cancel {
            Cancel::Cancelled(stopped) => {
                self.is_cancelled(stopped);
                true
            }
            Cancel::Stopping | Cancel::TooLate => is_stopped,
        }
    }
}

pub(super) fn reason_of(error: QueueError) -> RefusedReason {
    match error {
        QueueError::Full => RefusedReason::Full,
        QueueError::Overloaded { expected_ns } => RefusedReason::Overloaded { expected_ns },
        _ => RefusedReason::UnknownClass,
    }
}
