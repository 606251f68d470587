//! The thread that serves a program's control socket.
//!
//! # Why
//! Clients must not affect the program's own threads.
//!
//! # How it works
//! One thread polls the socket and all clients. Changes are made in the program's registries, which shards follow. For
//! snapshots and metrics, the thread asks the shards ([`crate::metrics::sample`]).
//!
//! # Limits
//! At most [`CLIENTS_MAX`] clients. A further one displaces one that has sent no request yet, or none for
//! [`IDLE_AFTER`], except the one whose trace is running. If all are busy, it is refused. While the thread asks the
//! shards (at most 200 ms) other clients wait.
//!
//! # Example
//! [`super`] has an example.

use std::fs::Permissions;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::connection::{Connection, Line};
use super::place;
use super::protocol::{
    Answer, ClassSettings, DiskInfo, ErrorCode, Hello, LINE_MAX_BYTES, LimitsChange, Mode, PROTOCOL, Request,
    TraceStopped,
};
use super::snapshot;
use super::traces;
use crate::class::Class;
use crate::metrics::{self, sample::Sample, sample::Sampler};
use crate::topology::Topology;
use crate::trace::{TraceConfig, TraceSummary, file_writer};

/// Most clients at a time.
const CLIENTS_MAX: usize = 16;
/// Time without a request after which a client may be displaced.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// Pause after a client could not be accepted.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Why a program's socket could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Other users can enter the directory for sockets, or it cannot be made.
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// This process serves a socket already.
    AlreadyServed {
        /// The socket.
        path: PathBuf,
    },
    /// The socket or its thread could not be made.
    Io(io::Error),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServeError::Directory { path, error } => {
                write!(f, "cannot use {} for the control socket: {error}", path.display())
            }
            ServeError::AlreadyServed { path } => {
                write!(f, "this process serves {} already: one socket a process", path.display())
            }
            ServeError::Io(error) => write!(f, "cannot make the control socket: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<io::Error> for ServeError {
    fn from(error: io::Error) -> ServeError {
        ServeError::Io(error)
    }
}

/// Serves a program's control socket until it is dropped. See [`super`]. If a child of `fork` drops its copy, the socket
/// stays with its parent.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    /// The process that has the thread.
    pid: u32,
    /// Shutting this end down stops the thread.
    end: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the program that runs on `topology`, under the name `program`, in the [directory](super::directory) of
    /// this user's sockets.
    ///
    /// # Errors
    /// See [`ServeError`]. A program can run without a socket.
    pub fn start(topology: &Topology, program: &str) -> Result<Server, ServeError> {
        Server::start_in(&place::directory(), topology, program)
    }

    /// Serves as [`Server::start`], in `directory`. If it is missing, makes it with mode 0700.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub fn start_in(directory: &Path, topology: &Topology, program: &str) -> Result<Server, ServeError> {
        place::prepare(directory).map_err(|error| ServeError::Directory { path: directory.to_owned(), error })?;
        place::remove_stale(directory);

        let pid = std::process::id();
        let path = place::socket_in(directory, pid);
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(&path).is_ok() {
                    return Err(ServeError::AlreadyServed { path });
                }
                // An earlier process with our number left the socket.
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            other => other?,
        };

        // Until here only the directory has kept other users out.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;

        let (end, ended) = UnixStream::pair()?;
        let responder = Responder::new(topology, program, directory);
        let serve = move || ClientLoop { listener, ended, responder, clients: Vec::new(), accepted: 0 }.serve();
        let thread = std::thread::Builder::new().name("plimsoll-control".to_owned()).spawn(serve)?;
        Ok(Server { path, pid, end: Some(end), thread: Some(thread) })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // This process, a child, has no such thread to wait for.
            std::mem::forget(self.thread.take());
            return;
        }

        // The socket may have been removed by hand.
        let _ = std::fs::remove_file(&self.path);
        if let Some(end) = self.end.take() {
            // Not only closed: a child of `fork` may have a copy of it. If this fails, the thread has ended.
            let _ = end.shutdown(Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            // If it failed, there is nothing to report.
            let _ = thread.join();
        }
    }
}

struct Client {
    /// Unique number of the client, never reused.
    number: u64,
    connection: Connection<UnixStream>,
    /// Time of its last request.
    asked: Option<Instant>,
    /// The sample of the client's last snapshot.
    seen: Option<Arc<Sample>>,
    is_broken: bool,
}

/// The socket and its clients.
struct ClientLoop {
    listener: UnixListener,
    ended: UnixStream,
    responder: Responder,
    clients: Vec<Client>,
    /// Clients accepted so far.
    accepted: u64,
}

impl ClientLoop {
    fn serve(mut self) {
        while let Some(ready) = self.wait() {
            for (client, flags) in self.clients.iter_mut().zip(ready) {
                client.serve(flags, &mut self.responder);
            }
            let is_over = |client: &mut Client| client.is_broken || client.connection.is_over();
            for gone in self.clients.extract_if(.., is_over) {
                self.responder.forget(gone.number);
            }
            self.accept();
        }
        // No client can stop the trace any more.
        drop(self.responder.stop_trace());
    }

    /// Waits until the socket or a client is ready. Returns each client's ready events, or `None` at the end.
    fn wait(&self) -> Option<Vec<PollFlags>> {
        let mut fds = vec![PollFd::new(&self.ended, PollFlags::IN), PollFd::new(&self.listener, PollFlags::IN)];
        for client in &self.clients {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.connection.wants_to_read());
            flags.set(PollFlags::OUT, client.connection.wants_to_write());
            fds.push(PollFd::new(&client.connection.stream, flags));
        }
        loop {
            match poll(&mut fds, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                // `poll` has no memory, so serving is impossible.
                Err(_) => return None,
            }
        }

        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let (first, clients) = ready.split_at_checked(2)?;
        first.first()?.is_empty().then(|| clients.to_vec())
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    // Perhaps no descriptors are left. The client waits, and this thread must not spin.
                    std::thread::sleep(ACCEPT_RETRY);
                    return;
                }
            };

            if stream.set_nonblocking(true).is_err() || !is_allowed(&stream) {
                continue;
            }

            self.accepted += 1;
            let connection = Connection::new(stream);
            let mut client = Client { number: self.accepted, connection, asked: None, seen: None, is_broken: false };
            if self.clients.len() >= CLIENTS_MAX && !self.displace_one() {
                let message = format!("{CLIENTS_MAX} clients are attached already: end one of them");
                client.tell(&refusal(ErrorCode::Busy, message));
                continue;
            }
            self.clients.push(client);
        }
    }

    /// Disconnects an idle client. Returns whether there was one.
    fn displace_one(&mut self) -> bool {
        let clients: Vec<_> = self.clients.iter().map(|client| (client.number, client.asked)).collect();
        let recording = self.responder.trace.as_ref().map(|trace| trace.client);
        let Some(at) = idlest(&clients, recording, Instant::now()) else { return false };
        let message =
            format!("another client needed the place of this one, which asked nothing: {CLIENTS_MAX} at a time");
        self.clients.remove(at).tell(&refusal(ErrorCode::Busy, message));
        true
    }
}

/// Returns the index of the client to displace: the one whose last request is the oldest, if that is at least
/// [`IDLE_AFTER`] ago. `clients` has numbers and times of the last requests, in the order of arrival.
fn idlest(clients: &[(u64, Option<Instant>)], recording: Option<u64>, now: Instant) -> Option<usize> {
    let others = clients.iter().enumerate().filter(|(_, (number, _))| Some(*number) != recording);
    let (at, (_, asked)) = others.min_by_key(|(_, (_, asked))| *asked)?;
    asked.is_none_or(|asked| now.saturating_duration_since(asked) >= IDLE_AFTER).then_some(at)
}

/// Returns whether the client is the same user, or root. The permissions ensure that too, but a descriptor can be
/// passed on.
fn is_allowed(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| {
        let uid = peer.uid.as_raw();
        uid == 0 || uid == place::own_uid()
    })
}

impl Client {
    fn serve(&mut self, ready: PollFlags, responder: &mut Responder) {
        if ready.is_empty() {
            return;
        }

        // Requests sent before the client hung up are still answered.
        let has_gone = ready.intersects(PollFlags::HUP | PollFlags::ERR);
        let result = match ready.contains(PollFlags::OUT) {
            true => self.connection.send(),
            false => self.connection.receive(),
        };
        self.is_broken |= result.is_err();

        while !self.is_broken && !self.connection.wants_to_write() {
            match self.connection.next_line() {
                None => break,
                Some(Line::Whole(line)) => {
                    self.asked = Some(Instant::now());
                    let answer = responder.answer(&line, self.number, &mut self.seen);
                    self.tell(&answer);
                }
                Some(Line::TooLong) => {
                    let message = format!("a request has at most {LINE_MAX_BYTES} bytes");
                    self.connection.end();
                    self.tell(&refusal(ErrorCode::BadRequest, message));
                }
            }
        }
        self.is_broken |= has_gone;
    }

    fn tell(&mut self, answer: &Answer) {
        let sent = match serde_json::to_string(answer) {
            Ok(line) => self.connection.answer(&line),
            Err(error) => Err(error.into()),
        };
        self.is_broken |= sent.is_err();
    }
}

fn refusal(code: ErrorCode, message: String) -> Answer {
    Answer::Error { code, message }
}

/// Answers requests about the program.
struct Responder {
    topology: Topology,
    program: String,
    /// The directory for traces.
    directory: PathBuf,
    sampler: Sampler,
    trace: Option<Trace>,
}

/// A trace that a client started.
struct Trace {
    path: PathBuf,
    /// Number of the client that started it; the trace ends when that client disconnects.
    client: u64,
    /// Number of the trace: the program may have ended it and begun another.
    record: u64,
}

impl Responder {
    fn new(topology: &Topology, program: &str, directory: &Path) -> Responder {
        let (sampler, directory) = (Sampler::new(topology), directory.to_owned());
        Responder { topology: topology.clone(), program: program.to_owned(), directory, sampler, trace: None }
    }

    fn answer(&mut self, line: &[u8], client: u64, seen: &mut Option<Arc<Sample>>) -> Answer {
        let request = match serde_json::from_slice(line) {
            Ok(request) => request,
            Err(error) => {
                let message = format!("not a request of protocol {PROTOCOL}: {error}");
                return refusal(ErrorCode::BadRequest, message);
            }
        };

        let done = match request {
            Request::Hello {} => Ok(Answer::Hello(self.hello())),
            Request::Snapshot {} => {
                let sample = self.sampler.sample();
                let snapshot = snapshot::snapshot(&self.topology, &sample, seen.as_deref());
                *seen = Some(sample);
                Ok(Answer::Snapshot(snapshot))
            }
            Request::Metrics {} => {
                Ok(Answer::Metrics(metrics::of_program(&self.program, &self.topology, &self.sampler.sample())))
            }
            Request::SetShares { class, shares } => self.set_shares(&class, shares),
            Request::SetLimits { class, limits } => self.set_limits(&class, limits),
            Request::SetMode { disk, mode } => self.set_mode(disk, mode),
            Request::TraceStart { name } => self.start_trace(&name, client),
            Request::TraceStop {} => self.stop_trace().map(Answer::TraceStopped).ok_or_else(|| {
                refusal(ErrorCode::Trace, "no trace is being recorded that was started here".to_owned())
            }),
        };
        done.unwrap_or_else(|refusal| refusal)
    }

    fn hello(&self) -> Hello {
        let topology = &self.topology;

        let disk = |disk: u16| {
            let is_unlimited = topology.disk(disk)?.is_unlimited();
            Some(DiskInfo { disk, mode: topology.mode(disk)?.into(), is_unlimited })
        };

        let table = topology.classes().list();
        let class = |info: &crate::class::ClassInfo| ClassSettings {
            class: info.name.to_string(),
            group: info.parent.and_then(|group| table.get(group.index())).map(|group| group.name.to_string()),
            is_group: info.is_group,
            shares: info.shares,
            limits: LimitsChange::from(info.qos.limits),
        };

        Hello {
            protocol: PROTOCOL,
            plimsoll: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            program: self.program.clone(),
            shards: topology.shards(),
            disks: (0..topology.disks()).filter_map(disk).collect(),
            classes: table.iter().filter(|info| !info.removed).map(class).collect(),
            is_tracing: topology.trace().is_recording(),
        }
    }

    fn class(&self, name: &str) -> Result<Class, Answer> {
        let unknown = || refusal(ErrorCode::UnknownClass, format!("there is no class or group `{name}`"));
        self.topology.classes().find(name).ok_or_else(unknown)
    }

    fn set_shares(&self, name: &str, shares: u32) -> Result<Answer, Answer> {
        let class = self.class(name)?;
        if shares == 0 {
            return Err(refusal(ErrorCode::BadValue, "shares are 1 to 4294967295".to_owned()));
        }
        let set = self.topology.classes().set_shares(class, shares);
        set.map(|()| Answer::Done {}).map_err(|error| refusal(ErrorCode::UnknownClass, error.to_string()))
    }

    fn set_limits(&self, name: &str, limits: LimitsChange) -> Result<Answer, Answer> {
        let class = self.class(name)?;
        let mut is_valid = true;
        let set = self.topology.classes().update_qos(class, |qos| match limits.applied_to(qos.limits) {
            Some(changed) => qos.limits = changed,
            None => is_valid = false,
        });
        match set {
            Ok(()) if is_valid => Ok(Answer::Done {}),
            Ok(()) => Err(refusal(ErrorCode::BadValue, "a limit is at least 1 a second, or \"unlimited\"".to_owned())),
            Err(error) => Err(refusal(ErrorCode::UnknownClass, error.to_string())),
        }
    }

    fn set_mode(&self, disk: Option<u16>, mode: Mode) -> Result<Answer, Answer> {
        if mode == Mode::Depth(0) {
            return Err(refusal(ErrorCode::BadValue, "a depth is 1 to 4294967295".to_owned()));
        }
        let disks = self.topology.disks();
        if let Some(disk) = disk.filter(|disk| *disk >= disks) {
            let message = format!("there is no disk {disk}: they are 0 to {}", disks.saturating_sub(1));
            return Err(refusal(ErrorCode::UnknownDisk, message));
        }
        for disk in (0..disks).filter(|number| disk.is_none_or(|disk| disk == *number)) {
            self.topology.set_mode(disk, mode.into());
        }
        Ok(Answer::Done {})
    }

    fn start_trace(&mut self, name: &str, client: u64) -> Result<Answer, Answer> {
        let trace = |message: String| refusal(ErrorCode::Trace, message);
        let path = self.directory.join(name);
        if !traces::is_plain_name(name) {
            let directory = self.directory.display();
            let message = format!("{name}: give a plain name that ends in .plt: traces are made in {directory}");
            return Err(refusal(ErrorCode::BadValue, message));
        }
        if self.topology.trace().is_recording() {
            return Err(trace("a trace is being recorded already: stop it first".to_owned()));
        }
        let cannot = |error: &dyn std::fmt::Display| trace(format!("cannot record {}: {error}", path.display()));

        let file = traces::create(&self.directory, name).map_err(|error| cannot(&error))?;
        let started = file_writer(file).map_err(|error| cannot(&error)).and_then(|writer| {
            self.topology.trace().start_numbered(writer, TraceConfig::default()).map_err(|e| cannot(&e))
        });
        let record = started.inspect_err(|_| {
            // The file is empty.
            let _ = std::fs::remove_file(&path);
        })?;

        self.trace = Some(Trace { path, client, record });
        Ok(Answer::Done {})
    }

    /// Stops the trace of a client that has disconnected; otherwise it would grow until the disk is full.
    fn forget(&mut self, client: u64) {
        if self.trace.as_ref().is_some_and(|trace| trace.client == client) {
            // No client is left to get the answer.
            drop(self.stop_trace());
        }
    }

    /// Stops the trace that a client started.
    fn stop_trace(&mut self) -> Option<TraceStopped> {
        let Trace { path, record, .. } = self.trace.take()?;
        let TraceSummary { events, dropped_events, error, mut writer, .. } =
            self.topology.trace().stop_numbered(record)?;
        let error = error.or_else(|| writer.flush().err()).map(|error| error.to_string());
        Some(TraceStopped { path, events, dropped_events, error })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{TryRecvError, channel};

    use super::*;
    use crate::control::Limit;
    use crate::core::Rate;
    use crate::{Classes, DiskSetup, Qos};

    /// The thread of the socket copied the limits, changed its own, and wrote all of them back.
    #[test]
    fn a_change_of_the_program_is_not_lost_to_one_by_the_socket() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let responder = Responder::new(&topology, "test", Path::new("/"));
        let limits = LimitsChange { iops: Some(Limit::PerSecond(7)), ..LimitsChange::default() };
        let (running, ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while ended.try_recv() == Err(TryRecvError::Empty) {
                    responder.set_limits("default", limits).unwrap();
                }
            });
            let mut expected = Rate::Unlimited;
            for n in 1..500_000 {
                let (mut before, next) = (None, Rate::per_second(n));
                let replace = |qos: &mut Qos| before = Some(std::mem::replace(&mut qos.limits.read_iops, next));
                topology.classes().update_qos(Class::DEFAULT, replace).unwrap();
                assert_eq!(before, Some(expected));
                expected = next;
            }
            drop(running);
        });
    }

    #[test]
    fn the_idlest_client_makes_room_unless_it_records() {
        let start = Instant::now();
        let at = |s: u64| Some(start + Duration::from_secs(s));
        // Clients, the one whose trace runs, the time in seconds, and the one to disconnect.
        let check = |asked: &[Option<Instant>], recording, now_s, expected| {
            let clients: Vec<_> = (0..).zip(asked.iter().copied()).collect();
            assert_eq!(
                idlest(&clients, recording, start + Duration::from_secs(now_s)),
                expected,
                "{asked:?} at {now_s}"
            );
        };
        check(&[at(5), None, None], None, 5, Some(1));
        check(&[at(5), None, None], Some(1), 5, Some(2));
        check(&[at(5), at(3), at(4)], None, 62, None);
        check(&[at(5), at(3), at(4)], None, 63, Some(1));
        check(&[at(5), at(3), at(4)], Some(1), 63, None);
        check(&[at(5), at(3), at(4)], Some(1), 64, Some(2));
        check(&[None], Some(0), 1000, None);
    }
}
