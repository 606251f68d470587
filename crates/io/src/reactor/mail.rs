//! Requests from other shards, and their answers.
//!
//! # Why
//! If a disk has fewer I/O queues than shards, a request travels to its coordinator and back. The reactors at both ends
//! may be dropped, and replaced, while the request is on its way.
//!
//! # How it works
//! A message names a request by its place in the sender's table and by its serial number, which is unique among all
//! reactors of that shard. Only the stand-in with that number accepts the answer. A late answer is dropped together
//! with its memory, which has no other owner.
//!
//! # Limits
//! One thread: the reactor's.
//!
//! # Example
//! ```text
//! shard 1: Request { serial: 7, tag: 0 }  ->  shard 0   (the reactor of shard 1 is dropped, and made again)
//! shard 1: table[0] is request 8          <-  Done { serial: 7, tag: 0 }: dropped
//! ```

use super::{Place, Reactor, Sender};
use crate::mailbox::Message;
use crate::request::{Done, Refused, Request, RequestError};

impl Reactor {
    /// Handles the messages in the mailbox of this shard.
    pub(super) fn read_mail(&mut self) {
        // At most the messages that wait now: other shards may send as fast as this one reads.
        for _ in 0..self.topology.mailboxes().waiting(self.shard) {
            let Some(message) = self.topology.mailboxes().receive(self.shard) else { return };
            match message {
                Message::Request { from: shard, serial, request } => {
                    let from = Sender { shard, serial };
                    if let Err(refused) = self.submit_from(request, Some(from)) {
                        let Refused { reason, request } = *refused;
                        self.answer(from, request, Err(RequestError::Refused(reason)), 0);
                    }
                }
                Message::Done { serial, done } => self.remote_is_done(serial, done),
                Message::Run(job) => self.jobs.push_back(job),
                #[cfg(feature = "metrics")]
                Message::Read(visit) => visit(self),
                Message::Close { number, uid } => {
                    let place = self.files.get_mut(number as usize);
                    if let Some(open) = place.and_then(|p| p.take_if(|open| open.uid == uid)) {
                        self.backend.close(open.id);
                    }
                }
            }
        }
    }

    /// Sends the result of a request, with its memory, to the shard that sent it.
    pub(super) fn answer(&self, to: Sender, request: Request, result: Result<u32, RequestError>, total_ns: u64) {
        let done = Done { tag: request.tag, result, data: request.data, total_ns };
        self.topology.mailboxes().send(to.shard, Message::Done { serial: to.serial, done });
    }

    /// Ends a request that another shard has carried out, if its stand-in still exists.
    fn remote_is_done(&mut self, serial: u64, done: Done) {
        let key = done.tag as usize;
        let is_asked = |stand_in: &super::Pending| matches!(stand_in.at, Place::Remote) && stand_in.number == serial;
        if self.pending.get(key).is_some_and(is_asked) {
            let stand_in = self.pending.remove(key);
            self.finished.push(Done { tag: stand_in.request.tag, ..done });
        }
    }
}
