//! An agent: one thread that enters a gate on behalf of many.
//!
//! # Why
//! Threads of other processes cannot use the gate's lock. A thread for each of them would be woken for each of their calls,
//! only to wake them.
//!
//! # How it works
//! [`Agent::ask`] admits a call at once or queues it, and never waits. [`Agent::poll`] lets the queue dispatch, reports the
//! calls that are admitted now, and returns when to call it again at the latest. If a call is admitted meanwhile, or the
//! agent is to keep the time, the gate rings.
//!
//! # Limits
//! The agent looks through all its waiting calls at each poll.
//!
//! # Example
//! ```
//! use plimsoll::core::Op;
//! use plimsoll::{Call, Class, Classes, DiskMode, DiskSetup, Gate, Topology};
//!
//! let disk = DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
//! let topology = Topology::new(1, Classes::new(), vec![disk])?;
//! let gate = Gate::new(&topology, 0, 0)?;
//! let mut agent = gate.agent(|| println!("poll again"));
//!
//! let call = Call { class: Class::DEFAULT, op: Op::Read, len_bytes: 4096, offset_bytes: 0, file: 0 };
//! let mut admitted = Vec::new();
//! for token in [1, 2] {
//!     admitted.extend(agent.ask(&call, token)?.map(|permit| (token, Ok(permit))));
//! }
//! agent.poll(|token, permit| admitted.push((token, permit)));
//! assert!(matches!(admitted[..], [(1, Ok(_))]));
//! // The end of the first call admits the second, for which the gate rings.
//! admitted.clear();
//! agent.poll(|token, permit| admitted.push((token, permit)));
//! assert!(matches!(admitted[..], [(2, Ok(_))]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;

use super::inner::Inner;
use super::parker::{Parker, Ring};
use super::state::{Admitted, InTurn, OVERDUE_NS};
use super::{Call, GateError, Permit};
use crate::sys::clock::now_ns;

/// A call that waits.
struct Waiting {
    key: usize,
    token: u64,
}

/// Enters a gate on behalf of threads that cannot; see the module's documentation. Dropping it withdraws the calls that
/// wait.
pub struct Agent<'a> {
    gate: &'a Inner,
    parker: Arc<Parker>,
    waiting: Vec<Waiting>,
    /// Calls that a poll has found to be over, with their tokens.
    over: Vec<(u64, Result<InTurn, GateError>)>,
}

impl<'a> Agent<'a> {
    pub(super) fn new(gate: &'a Inner, ring: Ring) -> Agent<'a> {
        let parker = Arc::new(Parker::with_ring(ring));
        Agent { gate, parker, waiting: Vec::new(), over: Vec::new() }
    }

    /// Asks for admission of `call`. Returns its permit if it is admitted at once. Otherwise a later poll reports it by
    /// `token`; poll before sleeping.
    ///
    /// # Errors
    /// See [`GateError`]: the call was not admitted.
    pub fn ask(&mut self, call: &Call, token: u64) -> Result<Option<Permit<'a>>, GateError> {
        let now_ns = now_ns();
        let (state, alone) = self.gate.admit_alone(now_ns, call);
        if alone.is_some() {
            return Ok(Some(Permit { gate: self.gate, admitted: alone }));
        }

        let (mut state, key) = self.gate.queue(state, now_ns, call)?;
        if let Some(entry) = state.calls.get_mut(key) {
            entry.parker = Some(Arc::clone(&self.parker));
        }
        self.waiting.push(Waiting { key, token });
        Ok(None)
    }

    /// Lets the queue dispatch, and calls `report` with the token of each call that is over: admitted, or refused because
    /// its class was removed. Returns the time at which to poll again at the latest, by
    /// [`sys::clock`](crate::sys::clock), or `None` if no call waits.
    pub fn poll(&mut self, mut report: impl FnMut(u64, Result<Permit<'a>, GateError>)) -> Option<u64> {
        if self.waiting.is_empty() {
            return None;
        }
        let (now_ns, gate) = (now_ns(), self.gate);
        let mut state = gate.lock();
        gate.run(&mut state, now_ns);
        self.waiting.retain(|&Waiting { key, token }| {
            if let Some(admitted) = state.admitted(key, now_ns) {
                self.over.push((token, Ok(admitted)));
                return false;
            }
            let is_stopped = state.is_stopped(key);
            if is_stopped {
                state.forget(key);
                self.over.push((token, Err(GateError::ClassRemoved)));
            }
            !is_stopped
        });

        // If the keeper's call is one of these, the agent goes on keeping the time.
        let keeper = state.keeper.map(|keeper| keeper.key);
        let is_ours = |waiting: &&Waiting| Some(waiting.key) == keeper;
        let ours = self.waiting.iter().find(is_ours).or(self.waiting.first()).map(|waiting| waiting.key);
        self.parker.quiet();
        let keeps_until_ns = gate.release(state, now_ns, ours);

        for (token, admitted) in self.over.drain(..) {
            report(token, admitted.map(|call| Permit { gate, admitted: Some(Admitted::Queued(call)) }));
        }
        ours.map(|_| keeps_until_ns.unwrap_or(now_ns.saturating_add(OVERDUE_NS)))
    }

    /// Returns whether the gate has called the agent since the last poll, which the ring may have come too early to say.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.parker.is_called()
    }

    /// Withdraws the call that waits under `token`, if there is one.
    pub fn withdraw(&mut self, token: u64) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.token == token) {
            let waiting = self.waiting.swap_remove(at);
            self.withdraw_all(&[waiting]);
        }
    }

    fn withdraw_all(&self, calls: &[Waiting]) {
        let (now_ns, mut state) = (now_ns(), self.gate.lock());
        calls.iter().for_each(|waiting| state.withdraw(waiting.key, now_ns));
        self.gate.run(&mut state, now_ns);
        self.gate.release(state, now_ns, None);
    }
}

impl Drop for Agent<'_> {
    fn drop(&mut self) {
        self.withdraw_all(&self.waiting);
    }
}

impl std::fmt::Debug for Agent<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}
