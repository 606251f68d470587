//! The thread of the process with the gate that enters it on behalf of the threads of other processes.
//!
//! # How it works
//! The server looks at each slot that rang, ends the permit of the call that is over there, and asks the gate for the next
//! one. Then it answers the calls that the gate has admitted meanwhile. It sleeps only when no slot has rung and the gate has
//! not called, so under load one look serves many slots, and a caller need not wake it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use plimsoll::sys::clock::now_ns;
use plimsoll::{Agent, Call, Class, Permit};

use crate::gate::{self, OwnGate};
use crate::handover::{CallSlot, Counters, Kind, SLOTS};
use crate::slots::{self, ADMITTED, ASKED, ASKED_AGAIN, ENDED, FREE, REFUSED, TICK};

/// What the gate has of a slot's call.
enum Held {
    Nothing,
    Waits,
    Permit(Permit<'static>),
}

struct Server {
    counters: &'static Counters,
    own: &'static OwnGate,
    agent: Agent<'static>,
    /// By slot.
    held: Vec<Held>,
}

/// Serves the slots until the process gives up the gate.
pub(crate) fn serve(counters: &'static Counters) {
    let Some(own) = gate::own() else { return };
    let mut server = Server::new(counters, own);
    // These may have rung for a server before this one.
    (0..slots::used(counters)).for_each(|number| server.look(number));

    while gate::own().is_some() {
        server.look_at_rung();
        let until_ns = server.answer();

        counters.server_sleeps.store(1, Relaxed);
        // Pairs with the one in `wake_server`.
        fence(SeqCst);
        let is_rung = counters.rung.iter().any(|slots| slots.load(Relaxed) != 0);
        if !is_rung && !server.agent.is_called() && gate::own().is_some() {
            let left = until_ns.map(|until_ns| Duration::from_nanos(until_ns.saturating_sub(now_ns())));
            // A server of the process that had the gate before may lose a ring, by the store below.
            slots::sleep(&counters.server_sleeps, 1, Some(left.unwrap_or(TICK).min(TICK)));
        }
        counters.server_sleeps.store(0, Relaxed);
    }
}

impl Server {
    fn new(counters: &'static Counters, own: &'static OwnGate) -> Server {
        let agent = own.gate.agent(move || slots::wake_server(counters));
        let held = (0..SLOTS).map(|_| Held::Nothing).collect();
        Server { counters, own, agent, held }
    }

    fn look_at_rung(&mut self) {
        for (at, slots) in self.counters.rung.iter().enumerate() {
            if slots.load(Relaxed) == 0 {
                continue;
            }
            let mut rung = slots.swap(0, AcqRel);
            while rung != 0 {
                self.look(at * 64 + rung.trailing_zeros() as usize);
                rung &= rung - 1;
            }
        }
    }

    /// Follows the state of a slot.
    fn look(&mut self, number: usize) {
        let slot = &self.counters.slots[number];
        loop {
            let seen = slot.state.load(Acquire);
            match (&self.held[number], seen) {
                (Held::Permit(_), ADMITTED) | (Held::Waits, ASKED) => return,
                (Held::Nothing, _) => {}
                _ => self.let_go(number),
            }
            match seen {
                ENDED => drop(slot.state.compare_exchange(ENDED, FREE, AcqRel, Relaxed)),
                ASKED_AGAIN => drop(slot.state.compare_exchange(ASKED_AGAIN, ASKED, AcqRel, Relaxed)),
                ASKED => return self.ask(number),
                _ => return,
            }
        }
    }

    /// Ends or withdraws what the gate has of a call that is over.
    fn let_go(&mut self, number: usize) {
        match std::mem::replace(&mut self.held[number], Held::Nothing) {
            Held::Nothing => {}
            Held::Waits => self.agent.withdraw(number as u64),
            Held::Permit(permit) => {
                let slot = &self.counters.slots[number];
                let errno = slot.errno.load(Relaxed) as i32;
                let result = if errno == 0 { Ok(slot.moved_bytes.load(Relaxed)) } else { Err(errno) };
                permit.end_for_other(result, slot.began_ns.load(Relaxed), slot.ended_ns.load(Relaxed));
            }
        }
    }

    fn ask(&mut self, number: usize) {
        let slot = &self.counters.slots[number];
        let kind = Kind::ALL.get(slot.kind.load(Relaxed) as usize).copied().unwrap_or(Kind::Read);
        let class = self.own.classes.get(slot.class.load(Relaxed) as usize).copied().unwrap_or(Class::DEFAULT);
        let (len_bytes, offset_bytes) = (slot.len_bytes.load(Relaxed), slot.offset_bytes.load(Relaxed));
        let call = Call { class, op: kind.op(), len_bytes, offset_bytes, file: 0 };

        self.held[number] = match self.agent.ask(&call, number as u64) {
            Ok(None) => Held::Waits,
            Ok(Some(permit)) => admit(slot, permit),
            Err(_) => refuse(slot),
        };
    }

    /// Answers the calls that are over for the gate. Returns when to do so again at the latest.
    fn answer(&mut self) -> Option<u64> {
        let Server { counters, agent, held, .. } = self;
        agent.poll(|number, permit| {
            let slot = &counters.slots[number as usize];
            held[number as usize] = match permit {
                Ok(permit) => admit(slot, permit),
                Err(_) => refuse(slot),
            };
        })
    }
}

/// Tells the thread at `slot` that its call is admitted, unless the call was withdrawn.
fn admit(slot: &CallSlot, permit: Permit<'static>) -> Held {
    slot.admitted_bytes.store(permit.len_bytes(), Relaxed);
    // These count if the thread does not get to say otherwise.
    slot.moved_bytes.store(permit.len_bytes(), Relaxed);
    slot.errno.store(0, Relaxed);
    slot.began_ns.store(0, Relaxed);
    slot.ended_ns.store(u64::MAX, Release);
    if slot.state.compare_exchange(ASKED, ADMITTED, AcqRel, Relaxed).is_err() {
        permit.end(Err(libc::ECANCELED));
        return Held::Nothing;
    }
    slots::wake(&slot.state);
    Held::Permit(permit)
}

fn refuse(slot: &CallSlot) -> Held {
    if slot.state.compare_exchange(ASKED, REFUSED, AcqRel, Relaxed).is_ok() {
        slots::wake(&slot.state);
    }
    Held::Nothing
}

#[cfg(test)]
mod tests {
    use plimsoll::{Classes, DiskMode, DiskSetup, Gate, Topology};

    use super::*;

    /// A server of a gate that admits one call at a time.
    fn server() -> Server {
        let disk = DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
        let topology = Topology::new(1, Classes::new(), vec![disk]).expect("one disk");
        let gate = Gate::new(&topology, 0, 0).expect("its shard is free");
        // SAFETY: it consists of atomics, for which zeroes are valid.
        let counters: Box<Counters> = unsafe { Box::new_zeroed().assume_init() };
        Server::new(Box::leak(counters), Box::leak(Box::new(OwnGate::of(gate))))
    }

    impl Server {
        /// Sets the state of a slot, and rings.
        fn set(&self, number: usize, state: u32) {
            let slot = &self.counters.slots[number];
            slot.len_bytes.store(4096, Relaxed);
            slot.state.store(state, Relaxed);
            slots::ring(self.counters, number);
        }

        /// Returns the states of the first slots once the server has looked and answered.
        fn states<const N: usize>(&mut self) -> [u32; N] {
            self.look_at_rung();
            self.answer();
            std::array::from_fn(|number| self.counters.slots[number].state.load(Relaxed))
        }

        /// Returns the calls that wait, are admitted, have ended, and of these have failed.
        fn counts(&self) -> (u32, u32, u64, u64) {
            let stats = self.own.gate.class_stats(Class::DEFAULT).expect("the class is there");
            (stats.queued, stats.in_flight, stats.read.requests, stats.errors)
        }
    }

    #[test]
    fn calls_are_admitted_in_turn() {
        let mut server = server();
        for number in 0..3 {
            server.set(number, ASKED);
        }
        assert_eq!(server.states(), [ADMITTED, ASKED, ASKED]);
        assert_eq!(server.counters.slots[0].admitted_bytes.load(Relaxed), 4096);
        // A thread whose call has ended asks again before the server has looked.
        server.set(0, ASKED_AGAIN);
        assert_eq!(server.states(), [ASKED, ADMITTED, ASKED]);
        server.set(1, ENDED);
        assert_eq!(server.states(), [ASKED, FREE, ADMITTED]);
        server.set(2, ENDED);
        assert_eq!(server.states(), [ADMITTED, FREE, FREE]);
        server.set(0, ENDED);
        assert_eq!(server.states(), [FREE, FREE, FREE]);
        assert_eq!(server.counts(), (0, 0, 4, 0));
    }

    #[test]
    fn a_call_that_is_withdrawn_while_it_waits_leaves_nothing_at_the_gate() {
        let mut server = server();
        for number in 0..4 {
            server.set(number, ASKED);
        }
        assert_eq!(server.states(), [ADMITTED, ASKED, ASKED, ASKED]);
        // By its thread, and because the thread's process has died.
        server.set(1, FREE);
        server.set(2, ENDED);
        assert_eq!(server.states(), [ADMITTED, FREE, FREE, ASKED]);
        assert_eq!(server.counts(), (1, 1, 0, 0));
        server.counters.slots[0].errno.store(5, Relaxed);
        server.set(0, ENDED);
        assert_eq!(server.states(), [FREE, FREE, FREE, ADMITTED]);
        assert_eq!(server.counts(), (0, 1, 1, 1));
    }

    #[test]
    fn a_permit_of_an_earlier_server_is_left_to_its_end() {
        let mut server = server();
        server.set(0, ADMITTED);
        server.set(1, ASKED);
        assert_eq!(server.states(), [ADMITTED, ADMITTED]);
        server.set(0, ASKED_AGAIN);
        assert_eq!(server.states(), [ASKED, ADMITTED]);
        drop(server.agent);
    }
}
