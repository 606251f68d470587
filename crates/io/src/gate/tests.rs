//! Threads at a gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use plimsoll_core::{
    CostForm, CostModel, DiskConfig, FourFigures, LatencyGoal, LatencyTarget, Limits, Op, Qos, Rate, Reservation,
};

use super::{Agent, Call, Gate, GateError, GateStartError, Permit};
use crate::backend::choose::BackendKind;
use crate::backend::error_number;
use crate::class::{Class, Classes};
use crate::reactor::Reactor;
use crate::sys::clock::now_ns;
use crate::topology::{DiskMode, DiskSetup, Topology};

pub(super) fn gate_of(setup: DiskSetup) -> Gate {
    let topology = Topology::new(1, Classes::new(), vec![setup]).expect("one disk");
    Gate::new(&topology, 0, 0).expect("its shard is free")
}

/// Concurrent calls.
pub(super) fn deep(depth: u32) -> Gate {
    gate_of(DiskSetup { mode: DiskMode::Depth { max_io_requests: depth }, ..DiskSetup::unlimited() })
}

/// Pieces of about 12 KiB, and little room in the device.
fn small_disk() -> DiskSetup {
    let rate = Rate::per_second(200_000_000);
    let iops = Rate::per_second(100_000);
    let figures = FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: rate, write_bandwidth: rate };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskSetup::new(DiskConfig { model, latency_goal: LatencyGoal::Ns(500_000), ..DiskConfig::default() })
}

fn waits(gate: &Gate, class: Class, count: u32) {
    while gate.class_stats(class).expect("the class is there").queued != count {
        thread::yield_now();
    }
}

#[test]
fn an_idle_gate_lets_a_call_in_whole_and_counts_it() {
    let gate = gate_of(DiskSetup::unlimited());
    let permit = gate.enter(Class::DEFAULT, Op::Read, 8192).unwrap();
    assert_eq!(permit.len_bytes(), 8192);
    permit.end(Ok(5000));
    let failed = gate.enter(Class::DEFAULT, Op::Write, 100).unwrap();
    failed.end(Err(28));
    drop(gate.enter(Class::DEFAULT, Op::Flush, 77).unwrap());
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.read.requests, stats.read.bytes, stats.write.requests, stats.errors), (1, 5000, 2, 1));
    assert_eq!((stats.queued, stats.in_flight), (0, 0));
}

#[test]
fn no_more_calls_than_may_are_in_at_once_and_each_comes_in() {
    let gate = deep(2);
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let permit = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
                    assert!(inside.fetch_add(1, SeqCst) < 2);
                    thread::yield_now();
                    inside.fetch_sub(1, SeqCst);
                    drop(permit);
                }
            });
        }
    });
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.read.requests, stats.queued, stats.in_flight), (2400, 0, 0));
}

#[test]
fn threads_of_a_class_are_let_in_in_the_order_in_which_they_came() {
    let gate = deep(1);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        for number in 0..10 {
            let (gate, sender) = (&gate, sender.clone());
            scope.spawn(move || {
                let permit = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
                sender.send(number).unwrap();
                drop(permit);
            });
            waits(gate, Class::DEFAULT, number + 1);
        }
        drop(held);
    });
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_call_that_gives_up_leaves_nothing_behind() {
    let gate = deep(1);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(2)] {
        assert!(gate.enter_within(Class::DEFAULT, Op::Read, 4096, timeout).unwrap().is_none());
    }
    assert_eq!(gate.class_stats(Class::DEFAULT).unwrap().queued, 0);
    drop(held);
    let permit = gate.enter_within(Class::DEFAULT, Op::Read, 4096, Duration::ZERO).unwrap();
    assert_eq!(permit.unwrap().len_bytes(), 4096);
}

#[test]
fn calls_of_a_removed_class_end_and_unknown_ones_are_refused() {
    let gate = deep(1);
    let classes = gate.topology().classes().clone();
    let (doomed, group) = (classes.add_class("doomed", None, 1).unwrap(), classes.add_group("g", None, 1).unwrap());
    assert_eq!(gate.enter(group, Op::Read, 1).unwrap_err(), GateError::UnknownClass);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.enter(doomed, Op::Read, 4096).map(drop));
        waits(&gate, doomed, 1);
        classes.remove(doomed).unwrap();
        // Nothing else happens at the gate: the thread that keeps the time sees it.
        assert_eq!(waiting.join().unwrap(), Err(GateError::ClassRemoved));
    });
    drop(held);
    drop(gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap());
    assert_eq!(error_number(&GateError::ClassRemoved.into()), libc::ECANCELED, "as a file's requests");
}

#[test]
fn a_call_that_finds_nothing_before_it_wakes_the_threads_of_a_removed_class() {
    let gate = gate_of(DiskSetup::unlimited());
    let classes = gate.topology().classes().clone();
    let doomed = classes.add_class("doomed", None, 1).unwrap();
    let limits = Limits { iops: Rate::per_second(1), ..Limits::default() };
    classes.set_qos(doomed, Qos { limits, ..Qos::default() }).unwrap();
    drop(gate.enter(doomed, Op::Read, 4096).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.enter(doomed, Op::Read, 4096).map(drop));
        waits(&gate, doomed, 1);
        classes.remove(doomed).unwrap();
        let permit = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
        assert!(gate.0.lock().to_wake.is_empty());
        drop(permit);
        assert_eq!(waiting.join().unwrap(), Err(GateError::ClassRemoved));
    });
}

#[test]
fn long_calls_go_whole_where_nobody_waits_and_in_pieces_where_the_disk_has_no_more_room() {
    let gate = gate_of(DiskSetup::unlimited());
    let mut calls = Vec::new();
    let moved = gate.transfer(Class::DEFAULT, Op::Write, 10 << 20, |offset, len| {
        calls.push((offset, len));
        Ok(len)
    });
    assert_eq!((moved.unwrap(), &calls[..]), (10 << 20, &[(0, 10 << 20)][..]));

    let gate = gate_of(small_disk());
    let mut calls = Vec::new();
    let moved = gate.transfer(Class::DEFAULT, Op::Write, 3_000_000, |offset, len| {
        calls.push((offset, len));
        Ok(len)
    });
    assert_eq!(moved.unwrap(), 3_000_000);
    assert!(calls.len() > 3, "{calls:?}");
    let mut next = 0;
    for (offset, len) in calls {
        assert_eq!((offset, len > 0), (next, true));
        next += len;
    }
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.write.bytes, stats.errors, stats.cancelled, stats.in_flight), (3_000_000, 0, 0, 0));
}

#[test]
fn a_short_call_ends_a_transfer_and_an_error_after_bytes_is_told_as_a_short_one() {
    let gate = gate_of(small_disk());
    let short = gate.transfer(Class::DEFAULT, Op::Read, 1_000_000, |offset, len| Ok(if offset > 0 { 7 } else { len }));
    let first = short.unwrap();
    assert!(first > 7 && first < 1_000_000, "{first}");
    let error = || std::io::Error::from_raw_os_error(5);
    let failed = gate.transfer(Class::DEFAULT, Op::Read, 1_000_000, |offset, len| match offset {
        0 => Ok(len),
        _ => Err(error()),
    });
    assert!(failed.is_ok_and(|moved| moved < 1_000_000));
    let failed = gate.transfer(Class::DEFAULT, Op::Read, 1_000_000, |_, _| Err(error()));
    assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
}

#[test]
fn a_transfer_of_gibibytes_is_not_short_because_the_kernel_moves_less_at_once() {
    const MOST_BYTES: usize = 0x7fff_f000;
    let gate = gate_of(DiskSetup::unlimited());
    let len_bytes = (5 << 30) + 512;
    let moved = gate.transfer(Class::DEFAULT, Op::Read, len_bytes, |offset, len| {
        assert_eq!((offset % 4096, len % 512), (0, 0), "direct I/O takes whole blocks");
        Ok(len.min(MOST_BYTES))
    });
    assert_eq!(moved.unwrap(), len_bytes);
}

#[test]
fn a_limit_wakes_by_time_and_one_that_is_lifted_is_felt() {
    let gate = gate_of(DiskSetup::unlimited());
    let classes = gate.topology().classes();
    let slow = classes.add_class("slow", None, 100).unwrap();
    let limited = |per_s| Qos {
        limits: Limits { iops: Rate::per_second(per_s), ..Limits::default() },
        reservation: Reservation::default(),
        latency_target: None::<LatencyTarget>,
        ..Qos::default()
    };
    classes.set_qos(slow, limited(500)).unwrap();
    for _ in 0..20 {
        drop(gate.enter(slow, Op::Read, 4096).unwrap());
    }
    assert!(gate.class_stats(slow).unwrap().waited_for_ns(plimsoll_core::WaitReason::Limit) > 0);
    // One call of 1 KiB in 17 minutes.
    let per_s = Rate::per_second(1);
    classes.set_qos(slow, Qos { limits: Limits { bandwidth: per_s, ..Limits::default() }, ..Qos::default() }).unwrap();
    drop(gate.enter(slow, Op::Read, 1024).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gate.enter(slow, Op::Read, 1024).map(drop));
        waits(&gate, slow, 1);
        classes.set_qos(slow, Qos::default()).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
}

#[test]
fn a_gate_has_a_shard_to_itself() {
    let topology = Topology::new(2, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let backend = || BackendKind::Null.make(8).unwrap();
    assert_eq!(Gate::new(&topology, 2, 0).err(), Some(GateStartError::NoSuchShard { shard: 2 }));
    assert_eq!(Gate::new(&topology, 0, 1).err(), Some(GateStartError::NoSuchDisk { disk: 1 }));
    let gate = Gate::new(&topology, 0, 0).unwrap();
    assert_eq!(Gate::new(&topology, 0, 0).err(), Some(GateStartError::IsOpen { shard: 0 }));
    assert!(Reactor::new(0, &topology, backend()).is_err());
    let reactor = Reactor::new(1, &topology, backend()).unwrap();
    assert_eq!(Gate::new(&topology, 1, 0).err(), Some(GateStartError::IsOpen { shard: 1 }));
    drop((gate, reactor));
    drop((Gate::new(&topology, 1, 0).unwrap(), Reactor::new(0, &topology, backend()).unwrap()));
    let shared = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    let topology = Topology::new(2, Classes::new(), vec![shared]).unwrap();
    assert_eq!(Gate::new(&topology, 0, 0).err(), Some(GateStartError::QueuesAreShared { disk: 0 }));
}

#[cfg(feature = "metrics")]
#[test]
fn metrics_see_a_gate_without_waiting_for_it() {
    let gate = deep(1);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    let metrics = crate::metrics::Metrics::new(gate.topology(), "test").take();
    assert_eq!(metrics.missing_shards, Vec::<u16>::new());
    assert_eq!(metrics.disks[0].classes[0].class, "default");
    drop(held);
}

#[test]
fn a_trace_has_all_stations_of_a_call() {
    use crate::trace::TraceConfig;
    use crate::trace::format::{Clock, Writer};
    let gate = gate_of(DiskSetup::unlimited());
    let file = gate.name_file("/data/x".as_ref());
    let (sender, receiver) = channel::<u8>();
    struct Out(std::sync::mpsc::Sender<u8>);
    impl std::io::Write for Out {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            bytes.iter().for_each(|byte| self.0.send(*byte).unwrap());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let out: Box<dyn std::io::Write + Send> = Box::new(Out(sender));
    gate.topology().trace().start(Writer::new(out, Clock::Monotonic, 0).unwrap(), TraceConfig::default()).unwrap();
    let call = super::Call { class: Class::DEFAULT, op: Op::Read, len_bytes: 4096, offset_bytes: 8192, file };
    gate.enter_for(call).unwrap().end(Ok(4096));
    let summary = gate.topology().trace().stop().unwrap();
    assert_eq!((summary.events, summary.dropped_events, summary.last_request), (7, 0, 1));
    drop(summary);
    let bytes: Vec<u8> = receiver.try_iter().collect();
    assert!(bytes.windows(7).any(|window| window == b"/data/x"));
}

#[test]
fn an_operation_that_moves_no_bytes_is_one_call() {
    let gate = gate_of(DiskSetup::unlimited());
    for (op, len_bytes) in [(Op::Flush, 0), (Op::Flush, 4096), (Op::Discard, 5 << 30), (Op::Allocate, 1 << 20)] {
        let mut calls = Vec::new();
        let moved = gate.transfer(Class::DEFAULT, op, len_bytes, |offset, len| {
            calls.push((offset, len));
            assert!(calls.len() < 10, "{op:?} is called again and again: {calls:?}");
            Ok(len)
        });
        assert_eq!((moved.unwrap(), calls), (len_bytes, vec![(0, len_bytes)]), "{op:?}");
    }
}

#[test]
fn a_gate_that_holds_signals_delivers_them_while_the_thread_sleeps() {
    static SEEN: AtomicU32 = AtomicU32::new(0);
    extern "C" fn note(_: libc::c_int) {
        SEEN.fetch_add(1, SeqCst);
    }
    let setup = DiskSetup { mode: DiskMode::Depth { max_io_requests: 1 }, ..DiskSetup::unlimited() };
    let topology = Topology::new(1, Classes::new(), vec![setup]).expect("one disk");
    let gate = Gate::holding_signals(&topology, 0, 0).expect("its shard is free");
    // SAFETY: the handler only adds to an atomic number.
    unsafe { libc::signal(libc::SIGURG, note as *const () as libc::sighandler_t) };
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    thread::scope(|scope| {
        let (send, receive) = channel();
        let gate = &gate;
        scope.spawn(move || {
            // SAFETY: the call has no precondition.
            send.send(unsafe { libc::pthread_self() }).unwrap();
            drop(gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap());
        });
        let waiting = receive.recv().unwrap();
        waits(gate, Class::DEFAULT, 1);
        for seen in 1..=3 {
            // SAFETY: the thread cannot end while its call waits.
            assert_eq!(unsafe { libc::pthread_kill(waiting, libc::SIGURG) }, 0);
            while SEEN.load(SeqCst) < seen {
                thread::yield_now();
            }
        }
        assert_eq!(gate.class_stats(Class::DEFAULT).unwrap().queued, 1);
        drop(held);
    });
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.read.requests, stats.queued, stats.in_flight), (2, 0, 0));
}

fn read_of(class: Class) -> Call {
    Call { class, op: Op::Read, len_bytes: 4096, offset_bytes: 0, file: 0 }
}

/// Polls, and returns the tokens of the calls that are over, with their permits or errors.
fn polled<'a>(agent: &mut Agent<'a>) -> (Vec<u64>, Vec<Result<Permit<'a>, GateError>>) {
    let mut over = Vec::new();
    agent.poll(|token, permit| over.push((token, permit)));
    over.into_iter().unzip()
}

#[test]
fn an_agent_waits_for_many_and_is_rung_for() {
    let gate = deep(2);
    let rings = Arc::new(AtomicU32::new(0));
    let ring = Arc::clone(&rings);
    let mut agent = gate.agent(move || {
        ring.fetch_add(1, SeqCst);
    });
    let call = read_of(Class::DEFAULT);
    let own = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    for token in 0..=3 {
        assert!(agent.ask(&call, token).unwrap().is_none());
    }
    let (tokens, mut first) = polled(&mut agent);
    assert_eq!(tokens, [0]);
    assert!(!agent.is_called());

    // Another thread ends its call, which admits one of the agent's.
    drop(own);
    assert!(agent.is_called() && rings.load(SeqCst) > 0);
    let (tokens, second) = polled(&mut agent);
    assert_eq!(tokens, [1]);
    assert!(!agent.is_called());

    agent.withdraw(2);
    agent.withdraw(7);
    let now_ns = now_ns();
    first.remove(0).unwrap().end_for_other(Ok(4096), now_ns, now_ns);
    assert_eq!(polled(&mut agent).0, [3]);
    assert!(agent.poll(|_, _| panic!("nothing waits")).is_none());
    drop(second);
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.read.requests, stats.queued, stats.in_flight), (4, 0, 0));
}

#[test]
fn an_agent_keeps_the_time_and_learns_of_removed_classes() {
    let gate = gate_of(DiskSetup::unlimited());
    let classes = gate.topology().classes();
    let [slow, gone] = ["slow", "gone"].map(|name| classes.add_class(name, None, 100).unwrap());
    for class in [slow, gone] {
        let limits = Limits { iops: Rate::per_second(50), ..Limits::default() };
        classes.set_qos(class, Qos { limits, ..Qos::default() }).unwrap();
    }
    let mut agent = gate.agent(|| ());
    for token in 0..5 {
        // Permits that end at once.
        drop(agent.ask(&read_of(slow), token).unwrap());
        drop(agent.ask(&read_of(gone), 100 + token).unwrap());
    }
    drop(polled(&mut agent));
    classes.remove(gone).unwrap();
    let mut over = Vec::new();
    // Sleeps as long as the agent says and not longer: the limit wakes by time.
    while let Some(until_ns) = agent.poll(|token, permit| over.push((token, permit.is_ok()))) {
        thread::sleep(Duration::from_nanos(until_ns.saturating_sub(now_ns())));
    }
    let of_slow = over.iter().filter(|(token, is_ok)| *token < 100 && *is_ok).count() as u64;
    assert_eq!(gate.class_stats(slow).unwrap().read.requests, 5, "{over:?}");
    assert!(of_slow > 0 && over.iter().any(|(token, is_ok)| *token >= 100 && !is_ok), "{over:?}");
}

#[test]
fn an_agent_that_is_dropped_withdraws_its_calls() {
    let gate = deep(1);
    let held = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
    let mut agent = gate.agent(|| ());
    for token in 0..3 {
        assert!(agent.ask(&read_of(Class::DEFAULT), token).unwrap().is_none());
    }
    // One is admitted, and not reported yet.
    drop(held);
    drop(agent);
    let stats = gate.class_stats(Class::DEFAULT).unwrap();
    assert_eq!((stats.queued, stats.in_flight, stats.errors), (0, 0, 1));
}

#[test]
fn what_passes_before_and_after_the_call_of_another_thread_is_not_the_disks_time() {
    for (began_us, ended_us, device_us) in [(1000, 2000, 1000), (0, 1500, 1500), (1500, 1000, 0)] {
        let gate = gate_of(DiskSetup::unlimited());
        let permit = gate.enter(Class::DEFAULT, Op::Read, 4096).unwrap();
        let admitted_ns = now_ns();
        while now_ns() < admitted_ns + 2_000_000 {
            thread::yield_now();
        }
        permit.end_for_other(Ok(4096), admitted_ns + began_us * 1000, admitted_ns + ended_us * 1000);
        let mut device_ns = 0.0;
        gate.class_latencies(Class::DEFAULT, &mut |_, latencies| device_ns = latencies.device.mean());
        assert_eq!(device_ns, f64::from(device_us) * 1000.0);
    }
}
