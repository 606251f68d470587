//! Threads at a gate under every order of their locks, with loom.
//!
//! ```text
//! RUSTFLAGS="--cfg plimsoll_loom" CARGO_TARGET_DIR=target/loom cargo test -p plimsoll --release --lib loom
//! ```
//!
//! # Limits
//! The futex is a condition variable that never times out, so a lost wake-up is a deadlock, which loom finds. The
//! queue's own atomics are the standard ones: they are only touched under the lock. At most three preemptions.

use loom::thread;

use plimsoll_core::Op;

use super::Gate;
use crate::class::{Class, Classes};
use crate::topology::{DiskMode, DiskSetup, Topology};

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(check);
}

/// Returns a gate that admits one call at a time.
fn gate() -> Gate {
    let setup = DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
    let topology = Topology::new(1, Classes::new(), vec![setup]).expect("one disk");
    Gate::new(&topology, 0, 0).expect("its shard is free")
}

#[test]
fn loom_every_thread_that_waits_is_let_in() {
    model(|| {
        let gate = gate();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let gate = gate.clone();
                thread::spawn(move || drop(gate.enter(Class::DEFAULT, Op::Read, 4096).expect("the class is there")))
            })
            .collect();
        drop(gate.enter(Class::DEFAULT, Op::Write, 4096).expect("the class is there"));
        threads.into_iter().for_each(|thread| thread.join().expect("it was let in"));
    });
}

#[test]
fn loom_who_gives_up_hands_the_duty_on() {
    model(|| {
        let gate = gate();
        let held = gate.enter(Class::DEFAULT, Op::Read, 4096).expect("it is idle");
        let waits = {
            let gate = gate.clone();
            thread::spawn(move || drop(gate.enter(Class::DEFAULT, Op::Read, 4096).expect("the class is there")))
        };
        let none = gate.enter_within(Class::DEFAULT, Op::Read, 4096, std::time::Duration::ZERO);
        assert!(none.expect("the class is there").is_none());
        drop(held);
        waits.join().expect("it was let in");
    });
}
