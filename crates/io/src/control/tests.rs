//! Stories of clients and a program.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::backend::OpenOptions;
use crate::backend::choose::BackendKind;
use crate::backend::memory::MemoryBackend;
use crate::buffer::AlignedBuf;
use crate::core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use crate::{Class, Classes, Data, DiskMode, DiskSetup, Reactor, RequestKind, Runtime, ShardOptions, Topology};

/// A directory, removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-control-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Place(path)
    }

    fn sockets(&self) -> PathBuf {
        self.0.join("sockets")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn topology(shards: u16, disk: DiskSetup) -> Topology {
    let classes = Classes::new();
    classes.add_class("query", None, 100).unwrap();
    Topology::new(shards, classes, vec![disk]).unwrap()
}

fn limited() -> DiskSetup {
    let figures = FourFigures {
        read_iops: Rate::per_second(200_000),
        write_iops: Rate::per_second(200_000),
        read_bandwidth: Rate::per_second(2_000_000_000),
        write_bandwidth: Rate::per_second(2_000_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    DiskSetup::new(DiskConfig { model, ..DiskConfig::default() })
}

fn serve(place: &Place, topology: &Topology) -> Server {
    Server::start_in(&place.sockets(), topology, "test").unwrap()
}

fn memory(topology: &Topology) -> Runtime {
    let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
    Runtime::start(topology, &options).unwrap()
}

/// Asks until no shard is missing: a slow machine may take longer than a shard's deadline.
fn whole<T>(ask: impl FnMut() -> T, missing_shards: impl Fn(&T) -> &Vec<u16>) -> T {
    std::iter::repeat_with(ask).find(|answer| missing_shards(answer).is_empty()).unwrap()
}

/// Returns the program's answers to these bytes, one per line, until there are `lines` or the program hangs up.
fn raw(path: &Path, parts: &[&[u8]], lines: usize) -> Vec<String> {
    let mut stream = UnixStream::connect(path).unwrap();
    // The program may hang up in the middle.
    let _ = parts.iter().try_for_each(|part| stream.write_all(part));
    BufReader::new(stream).lines().take(lines).map_while(Result::ok).collect()
}

fn code(error: ClientError) -> ErrorCode {
    match error {
        ClientError::Refused { code, .. } => code,
        other => panic!("{other}"),
    }
}

#[test]
fn two_clients_see_and_change_one_program() {
    let place = Place::new();
    let topology = topology(2, limited());
    let runtime = memory(&topology);
    let server = serve(&place, &topology);
    let [mut one, mut two] = [0, 1].map(|_| Client::connect(server.path()).unwrap());
    assert_eq!((one.hello().shards, one.hello().pid), (2, std::process::id()));
    one.change(&Request::SetShares { class: "query".into(), shares: 7 }).unwrap();
    let limits = LimitsChange { iops: Some(Limit::PerSecond(500)), ..LimitsChange::default() };
    two.change(&Request::SetLimits { class: "query".into(), limits }).unwrap();
    let limits = LimitsChange { read_iops: Some(Limit::PerSecond(9)), ..LimitsChange::default() };
    one.change(&Request::SetLimits { class: "query".into(), limits }).unwrap();
    two.change(&Request::SetMode { disk: None, mode: Mode::Depth(4) }).unwrap();
    let hello = one.refresh().unwrap();
    assert_eq!(hello.disks[0].mode, Mode::Depth(4));
    let query = hello.classes.iter().find(|class| class.class == "query").unwrap();
    assert_eq!((query.shares, query.limits.iops), (7, Some(Limit::PerSecond(500))));
    assert_eq!((query.limits.read_iops, query.limits.write_iops), (Some(Limit::PerSecond(9)), Some(Limit::Unlimited)));
    let first = whole(|| two.snapshot().unwrap(), |snapshot| &snapshot.missing_shards);
    assert_eq!((first.over_ns, first.disks[0].classes.len()), (None, 2));
    assert!(first.disks[0].window_ns.is_some_and(|ns| ns > 0) && first.disks[0].tokens_ns.is_some());
    drop(runtime);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let mut client = Client::connect(server.path()).unwrap();
    let limit = |class: &str, iops| Request::SetLimits {
        class: class.into(),
        limits: LimitsChange { iops: Some(Limit::PerSecond(iops)), ..LimitsChange::default() },
    };
    let table = [
        (Request::SetShares { class: "qery".into(), shares: 7 }, ErrorCode::UnknownClass),
        (Request::SetShares { class: "query".into(), shares: 0 }, ErrorCode::BadValue),
        (limit("qery", 1), ErrorCode::UnknownClass),
        (limit("query", 0), ErrorCode::BadValue),
        (Request::SetMode { disk: Some(1), mode: Mode::Drain }, ErrorCode::UnknownDisk),
        (Request::SetMode { disk: None, mode: Mode::Depth(0) }, ErrorCode::BadValue),
        (Request::TraceStart { name: "/tmp/run.plt".into() }, ErrorCode::BadValue),
        (Request::TraceStart { name: "../run.plt".into() }, ErrorCode::BadValue),
        (Request::TraceStart { name: "7.sock".into() }, ErrorCode::BadValue),
        (Request::TraceStart { name: "taken.plt".into() }, ErrorCode::Trace),
    ];
    std::fs::write(place.sockets().join("taken.plt"), "precious").unwrap();
    let before = client.refresh().unwrap().clone();
    for (request, expected) in table {
        assert_eq!(code(client.change(&request).unwrap_err()), expected, "{request:?}");
    }
    assert_eq!(code(client.stop_trace().unwrap_err()), ErrorCode::Trace);
    assert_eq!(*client.refresh().unwrap(), before);
    assert_eq!(std::fs::read(place.sockets().join("taken.plt")).unwrap(), b"precious");
}

#[test]
fn garbage_half_lines_and_long_lines_harm_nobody() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let mut other = Client::connect(server.path()).unwrap();
    let answers = raw(server.path(), &[b"\xff\x00{]\n", b"\n", b"{\"request\":\"hel", b"lo\"}\n"], 3);
    assert!(answers[0].contains("bad-request") && answers[1].contains("bad-request"), "{answers:?}");
    assert!(answers[2].contains("\"protocol\":2"), "{answers:?}");
    let answers = raw(server.path(), &[&vec![b'x'; 3 * LINE_MAX_BYTES]], 2);
    assert!(answers.len() <= 1 && answers.iter().all(|line| line.contains("at most")), "{answers:?}");
    // The client sends half a line, then hangs up.
    UnixStream::connect(server.path()).unwrap().write_all(b"{\"request\":\"set-shares\"").unwrap();
    assert!(other.refresh().is_ok());
}

#[test]
fn clients_that_ask_nothing_make_room_and_those_that_ask_do_not() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let silent: Vec<_> = (0..16).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    // Each displaces a client that has sent no request.
    let mut asking: Vec<_> = (0..16).map(|_| Client::connect(server.path()).unwrap()).collect();
    for stream in silent {
        let said: Vec<String> = BufReader::new(stream).lines().map_while(Result::ok).collect();
        assert!(said.len() == 1 && said[0].contains("busy"), "{said:?}");
    }
    assert_eq!(code(Client::connect(server.path()).unwrap_err()), ErrorCode::Busy);
    assert!(asking.iter_mut().all(|client| client.refresh().is_ok()));
}

#[test]
fn a_shard_that_does_not_answer_is_named_and_asked_once() {
    let place = Place::new();
    let topology = topology(2, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let mut reactor = Reactor::new(0, &topology, Box::new(MemoryBackend::new(topology.memory()).unwrap())).unwrap();
    let mut client = Client::connect(server.path()).unwrap();
    for _ in 0..3 {
        assert_eq!(client.snapshot().unwrap().missing_shards, [0, 1]);
    }
    assert!(topology.mailboxes().receive(1).is_some() && topology.mailboxes().receive(1).is_none());
    // One shard answers as soon as it runs. How long it takes until then is the machine's matter, so the client asks
    // until it has an answer.
    let asking = std::thread::spawn(move || {
        let missing = || client.snapshot().map(|snapshot| snapshot.missing_shards);
        std::iter::repeat_with(missing).find(|missing| missing.as_ref().ok() != Some(&vec![0, 1]))
    });
    while !asking.is_finished() {
        reactor.reap(&mut Vec::new());
        std::thread::yield_now();
    }
    assert_eq!(asking.join().unwrap().unwrap().unwrap(), [1]);
}

#[test]
fn a_client_that_never_reads_stops_neither_shards_nor_clients() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let backend = Box::new(MemoryBackend::new(topology.memory()).unwrap());
    let reactor = Reactor::new(0, &topology, backend).unwrap();
    let deaf = UnixStream::connect(server.path()).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let line = b"{\"request\":\"hello\"}\n".repeat(100);
    while (&deaf).write(&line).is_ok() {}
    // The shard may wait only for its own disk.
    let mut client = Client::connect(server.path()).unwrap();
    let asking = std::thread::spawn(move || client.refresh().map(|hello| hello.shards));
    assert_eq!(read_all(reactor, &topology, 500, |_| {}), 500);
    assert_eq!(asking.join().unwrap().unwrap(), 1);
    drop(deaf);
}

#[test]
fn metrics_tell_reads_from_writes_and_shards_add_up() {
    let place = Place::new();
    let topology = topology(2, limited());
    let server = serve(&place, &topology);
    let mut client = Client::connect(server.path()).unwrap();
    let silent = client.metrics().unwrap();
    assert_eq!((silent.program.as_str(), silent.shards, silent.missing_shards), ("test", 2, vec![0, 1]));
    let runtime = memory(&topology);
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = topology.file("file".as_ref(), how, 0);
    let query = topology.classes().find("query").unwrap();
    let (sender, done) = std::sync::mpsc::channel();
    for shard in 0..2 {
        let (sender, file) = (sender.clone(), file.clone());
        let work = async move |shard: crate::Shard| {
            for n in 0..30 {
                shard.write_at(&file, query, n * 4096, AlignedBuf::new(4096).unwrap()).await.0.unwrap();
            }
            shard.read_at(&file, query, 0, AlignedBuf::new(4096).unwrap()).await.0.unwrap();
            sender.send(()).unwrap();
        };
        // The first poll sends the job; the channel has its answer.
        let handle = runtime.handle(shard);
        let mut run = std::pin::pin!(handle.run(work));
        let _ = run.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
        done.recv().unwrap();
    }
    // The earlier result is stale by then.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let metrics = whole(|| client.metrics().unwrap(), |metrics| &metrics.missing_shards);
    assert!(metrics.disks[0].model.is_some());
    let query = metrics.disks[0].classes.iter().find(|class| class.class == "query").unwrap();
    let counts = [&query.read, &query.write].map(|way| [way.queue.count, way.device.count, way.total.count]);
    assert_eq!(counts, [[2; 3], [60; 3]]);
    assert_eq!((query.read.requests, query.write.bytes, query.dispatched), (2, 60 * 4096, 62));
    // The snapshot shows both together.
    let snapshot = whole(|| client.snapshot().unwrap(), |snapshot| &snapshot.missing_shards);
    let query = snapshot.disks[0].classes.iter().find(|class| class.class == "query").unwrap();
    assert_eq!((query.total_latency.count, query.reads, query.writes), (62, 2, 60));
}

/// A shard that is busy for longer than any caller waits.
#[test]
fn counters_do_not_fall_while_a_shard_does_not_answer() {
    let topology = topology(2, DiskSetup::unlimited());
    let reactor =
        |shard| Reactor::new(shard, &topology, Box::new(MemoryBackend::new(topology.memory()).unwrap())).unwrap();
    let mut reactors = [reactor(0), reactor(1)];
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = topology.file("file".as_ref(), how, 0);
    for reactor in &mut reactors {
        for tag in 0..5 {
            let (file, class) = (file.clone(), Class::DEFAULT);
            let (kind, data) = (RequestKind::Write { len_bytes: 512 }, Data::One(AlignedBuf::new(512).unwrap()));
            reactor.submit(crate::Request { file, class, kind, offset: tag * 512, data, tag }).unwrap();
        }
        reactor.dispatch();
        reactor.reap(&mut Vec::new());
    }
    let metrics = crate::metrics::Metrics::new(&topology, "test");
    let take = |reactors: &mut [Reactor]| {
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                // The earlier result is stale by then.
                std::thread::sleep(std::time::Duration::from_millis(20));
                metrics.take()
            });
            while !taking.is_finished() {
                reactors.iter_mut().for_each(|reactor| reactor.reap(&mut Vec::new()));
                std::thread::yield_now();
            }
            taking.join().unwrap()
        })
    };
    let requests = |taken: &crate::metrics::ProgramMetrics| taken.disks[0].classes[0].write.requests;
    let all = whole(|| take(&mut reactors), |all| &all.missing_shards);
    assert_eq!(requests(&all), 10);
    let [answers, _busy] = &mut reactors;
    for _ in 0..2 {
        let some = take(std::slice::from_mut(answers));
        assert!(some.missing_shards.contains(&1), "{:?}", some.missing_shards);
        assert_eq!(requests(&some), 10, "the part of a shard that is busy is as it was last");
    }
}

/// Reads `count` blocks, many at a time. Returns the number of complete ones. Calls `between` each turn.
fn read_all(mut reactor: Reactor, topology: &Topology, count: u64, between: impl Fn(u64)) -> u64 {
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = topology.file("file".as_ref(), how, 0);
    reactor.set_file_len(&file, 1 << 20).unwrap();
    let classes = [Class::DEFAULT, topology.classes().find("query").unwrap()];
    let (mut sent, mut turn, mut done) = (0, 0, Vec::new());
    let mut whole = std::collections::BTreeSet::new();
    while (whole.len() as u64) < count {
        for _ in 0..30.min(count - sent) {
            let data = Data::One(AlignedBuf::new(4096).unwrap());
            let (file, class) = (file.clone(), classes[sent as usize % 2]);
            let kind = RequestKind::Read { len_bytes: 4096 };
            let request = crate::Request { file, class, kind, offset: sent % 200 * 4096, data, tag: sent };
            reactor.submit(request).unwrap();
            sent += 1;
        }
        turn += 1;
        between(turn);
        reactor.park(None).unwrap();
        reactor.reap(&mut done);
        for done in done.drain(..) {
            assert_eq!(done.result, Ok(4096));
            assert!(whole.insert(done.tag), "{} came back twice", done.tag);
        }
    }
    whole.len() as u64
}

#[test]
fn modes_change_under_load_and_every_request_comes_back() {
    let topology = topology(1, limited());
    let backend = Box::new(MemoryBackend::new(topology.memory()).unwrap());
    let reactor = Reactor::new(0, &topology, backend).unwrap();
    let modes = [DiskMode::Drain, DiskMode::Depth { max_io_requests: 2 }, DiskMode::Scheduled];
    let change = |turn: u64| {
        if turn.is_multiple_of(3) {
            assert!(topology.set_mode(0, modes[(turn / 3) as usize % 3]));
        }
    };
    assert_eq!(read_all(reactor, &topology, 2_000, change), 2_000);
    assert!(!topology.set_mode(1, DiskMode::Drain));
}

#[test]
fn sockets_are_their_owners_alone() {
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    assert_eq!((mode(&place.sockets()), mode(server.path())), (0o700, 0o600));
    let again = Server::start_in(&place.sockets(), &topology, "again").unwrap_err();
    assert!(matches!(again, ServeError::AlreadyServed { .. }), "{again}");
    assert_eq!(place::programs_in(&place.sockets()).unwrap(), [(std::process::id(), server.path().to_owned())]);
    let path = server.path().to_owned();
    drop(server);
    assert!(!path.exists() && place::programs_in(&place.sockets()).unwrap().is_empty());
    assert!(matches!(Client::connect(&path).unwrap_err(), ClientError::NotServed { .. }));

    // Open to others, and a link to a directory that is not.
    std::fs::set_permissions(place.sockets(), Permissions::from_mode(0o750)).unwrap();
    let error = Server::start_in(&place.sockets(), &topology, "x").unwrap_err().to_string();
    assert!(error.contains("mode 750") && error.contains("chmod 700"), "{error}");
    let own = place::own_uid();
    let socket = UnixListener::bind(place::socket_in(&place.sockets(), 7)).unwrap();
    let error = place::programs_in(&place.sockets()).unwrap_err().to_string();
    assert!(error.contains("mode 750"), "{error}");
    assert_eq!(place::socket_of_user(&place.sockets(), own, 7), None);
    std::fs::set_permissions(place.sockets(), Permissions::from_mode(0o700)).unwrap();
    assert!(place::socket_of_user(&place.sockets(), own, 7).is_some());
    assert_eq!(place::socket_of_user(&place.sockets(), own + 1, 7), None);
    drop(socket);
    let link = place.0.join("link");
    symlink(place.sockets(), &link).unwrap();
    let error = Server::start_in(&link, &topology, "x").unwrap_err().to_string();
    assert!(error.contains("not a directory"), "{error}");
}

#[test]
fn sockets_of_dead_processes_are_removed() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    drop(serve(&place, &topology));
    // No process has so high a number; the other is our own number, as left by an earlier process.
    let dead = [place.sockets().join("4294967295.sock"), place::socket_in(&place.sockets(), std::process::id())];
    for path in &dead {
        drop(UnixListener::bind(path).unwrap());
    }
    let note = place.sockets().join("4294967295.txt");
    std::fs::write(&note, "not a socket").unwrap();
    assert_eq!(place::programs_in(&place.sockets()).unwrap().len(), 1);
    let server = serve(&place, &topology);
    assert!(!dead[0].exists() && note.exists());
    assert!(Client::connect(server.path()).is_ok());
}

#[test]
fn a_trace_is_started_and_stopped_from_outside() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let mut client = Client::connect(server.path()).unwrap();
    let path = place.sockets().join("run.plt");
    client.change(&Request::TraceStart { name: "run.plt".into() }).unwrap();
    assert!(client.refresh().unwrap().is_tracing);
    let twice = client.change(&Request::TraceStart { name: "other.plt".into() });
    assert_eq!(code(twice.unwrap_err()), ErrorCode::Trace);
    let reactor = Reactor::new(0, &topology, Box::new(MemoryBackend::new(topology.memory()).unwrap())).unwrap();
    read_all(reactor, &topology, 10, |_| {});
    let stopped = client.stop_trace().unwrap();
    assert!(stopped.events >= 60 && stopped.error.is_none() && stopped.path == path, "{stopped:?}");
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    assert!(meta.len() >= 40 * stopped.events);
    // Never over an existing file.
    assert_eq!(code(client.change(&Request::TraceStart { name: "run.plt".into() }).unwrap_err()), ErrorCode::Trace);
}

#[test]
fn a_trace_ends_with_the_client_that_started_it_and_with_no_other() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let [one, mut two, mut three] = [0; 3].map(|_| Client::connect(server.path()).unwrap());
    two.change(&Request::TraceStart { name: "run.plt".into() }).unwrap();
    drop(one);
    // Two rounds: a hang-up is noticed at the latest in the first.
    assert!((0..2).all(|_| three.refresh().unwrap().is_tracing));
    drop(two);
    assert!(three.refresh().is_ok());
    assert!(!three.refresh().unwrap().is_tracing);
    assert_eq!(code(three.stop_trace().unwrap_err()), ErrorCode::Trace);
    // A new one can begin.
    three.change(&Request::TraceStart { name: "next.plt".into() }).unwrap();
    assert!(three.stop_trace().unwrap().error.is_none());
}

#[test]
fn a_record_of_the_programs_own_is_not_ended_from_outside() {
    let place = Place::new();
    let topology = topology(1, DiskSetup::unlimited());
    let server = serve(&place, &topology);
    let mut client = Client::connect(server.path()).unwrap();
    client.change(&Request::TraceStart { name: "run.plt".into() }).unwrap();
    assert!(topology.trace().stop().is_some());
    let out: Box<dyn Write + Send> = Box::new(std::io::sink());
    let writer = crate::trace::format::Writer::new(out, crate::trace::format::Clock::Monotonic, 0).unwrap();
    topology.trace().start(writer, crate::trace::TraceConfig::default()).unwrap();
    assert_eq!(code(client.stop_trace().unwrap_err()), ErrorCode::Trace);
    drop((client, server));
    assert!(topology.trace().is_recording());
    assert!(topology.trace().stop().is_some());
}

#[test]
fn others_that_answer_are_not_taken_for_programs() {
    let place = Place::new();
    let path = place.0.join("x.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let table = [
        ("HTTP/1.1 400 Bad Request\n", "not a Plimsoll program"),
        ("{\"answer\":\"hello\",\"protocol\":99}\n", "version 99"),
        ("{\"answer\":\"done\"}\n", "not a Plimsoll program"),
        ("", "has ended"),
    ];
    for (answer, expected) in table {
        let asking = std::thread::spawn({
            let path = path.clone();
            move || Client::connect(&path).unwrap_err().to_string()
        });
        let (mut stream, _) = listener.accept().unwrap();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut String::new()).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        drop(stream);
        let error = asking.join().unwrap();
        assert!(error.contains(expected), "{answer}: {error}");
    }
}

/// A child of `fork` has a copy of the server, but not its thread. It once removed its parent's socket, and then failed to
/// join that thread.
#[test]
fn a_child_of_fork_leaves_the_socket_to_its_parent() {
    let place = Place::new();
    let server = serve(&place, &topology(1, DiskSetup::unlimited()));
    // SAFETY: the child drops the server and ends, and touches nothing that other threads may have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(server);
        // SAFETY: it ends the child, and runs nothing else.
        unsafe { libc::_exit(7) };
    }

    let mut status = 0;
    let mut waited = 0;
    while waited < 1_000 {
        // SAFETY: `status` is writable during the call.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            break;
        }
        waited += 1;
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // SAFETY: the call touches no memory; if the child has ended, no process has its number.
    let _ = waited == 1_000 && unsafe { libc::kill(child, libc::SIGKILL) } == 0;
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "the child: {status} after {waited} looks");
    assert!(Client::connect(server.path()).is_ok());
}

/// A child of `fork` has its parent's end of the pair that stops the server's thread, until the child ends.
#[test]
fn a_child_of_fork_does_not_keep_the_server_of_its_parent() {
    let place = Place::new();
    let server = serve(&place, &topology(1, DiskSetup::unlimited()));
    // SAFETY: the child only waits for its end.
    let child = unsafe { libc::fork() };
    if child == 0 {
        loop {
            // SAFETY: the call touches no memory.
            unsafe { libc::pause() };
        }
    }

    let (end, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(server);
        end.send(())
    });
    let ended = ended.recv_timeout(std::time::Duration::from_secs(10));
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
    assert_eq!(ended, Ok(()), "the server has ended while the child lived");
}
