//! The client of the control socket, which `plimsoll attach` uses, for any program.
//!
//! # Why
//! A client must verify that the right program answers, and must not wait for ever.
//!
//! # How it works
//! [`Client::connect`] checks that the socket belongs to a process of this user or of root. (If this user is root: to
//! the owner of the process that the name `PID.sock` gives, or else of the process that listens.) It then sends
//! `hello`; another version of the protocol is an error. Each request waits for its answer for at most [`PATIENCE`].
//!
//! # Limits
//! One request at a time.
//!
//! # Example
//! [`super`] has an example.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::place;
use super::protocol::{Answer, ErrorCode, Hello, PROTOCOL, Request, Snapshot, TraceStopped};
use crate::metrics::ProgramMetrics;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest answer, in bytes.
const ANSWER_MAX_BYTES: u64 = 64 << 20;

/// Why a request to a program failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such socket, or no process listens.
    NotServed {
        /// The socket.
        path: PathBuf,
    },
    /// The socket belongs to another user.
    NotAllowed {
        /// The socket.
        path: PathBuf,
    },
    /// The process that answers is not a Plimsoll program.
    NotPlimsoll {
        /// The fault in its answer.
        reason: String,
    },
    /// The program uses another version of the protocol.
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The program refused.
    Refused {
        /// Kind of the error.
        code: ErrorCode,
        /// Its explanation.
        message: String,
    },
    /// The program has ended, or does not answer.
    Io(io::Error),
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::NotServed { path } => {
                write!(f, "{}: no running program serves this socket", path.display())
            }
            ClientError::NotAllowed { path } => {
                write!(f, "{}: it belongs to another user: only its owner and root may attach", path.display())
            }
            ClientError::NotPlimsoll { reason } => write!(f, "what answers is not a Plimsoll program: {reason}"),
            ClientError::Version { theirs } => write!(
                f,
                "the program speaks version {theirs} of the control protocol, this is version {PROTOCOL}: use the \
                 plimsoll command of its version"
            ),
            ClientError::Refused { message, .. } => f.write_str(message),
            ClientError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the program has ended")
            }
            ClientError::Io(error) => write!(f, "the program does not answer: {error}"),
        }
    }
}

impl std::error::Error for ClientError {}

/// A connection to a running program.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    hello: Hello,
}

impl Client {
    /// Attaches to the program behind the socket `path`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotServed { path: path.to_owned() }
            }
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed { path: path.to_owned() },
            _ => ClientError::Io(error),
        })?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| ClientError::Io(error.into()))?;
        let pid = place::pid_of(path).unwrap_or(peer.pid.as_raw_nonzero().get().unsigned_abs());
        check_peer(path, peer.uid.as_raw(), place::own_uid(), place::owner_of(pid))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(ClientError::Io)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(ClientError::Io)?;
        let mut stream = BufReader::new(stream);
        let hello = say_hello(&mut stream)?;
        Ok(Client { stream, hello })
    }

    /// Returns the program's description of itself, as of the last hello.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks for the program's description again: its classes, their shares and limits as they are now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn refresh(&mut self) -> Result<&Hello, ClientError> {
        self.hello = say_hello(&mut self.stream)?;
        Ok(&self.hello)
    }

    /// Returns a snapshot of the program. Its rates cover the time since the last call.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn snapshot(&mut self) -> Result<Snapshot, ClientError> {
        match ask(&mut self.stream, &Request::Snapshot {})? {
            Answer::Snapshot(snapshot) => Ok(snapshot),
            other => Err(unexpected(&other)),
        }
    }

    /// Returns all counters of the program, for [`encode`](crate::metrics::encode). A program of an older version of
    /// the library refuses ([`ErrorCode::BadRequest`]).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn metrics(&mut self) -> Result<ProgramMetrics, ClientError> {
        match ask(&mut self.stream, &Request::Metrics {})? {
            Answer::Metrics(metrics) => Ok(metrics),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a request that changes something.
    ///
    /// # Errors
    /// See [`ClientError`]; then nothing has changed.
    pub fn change(&mut self, request: &Request) -> Result<(), ClientError> {
        match ask(&mut self.stream, request)? {
            Answer::Done {} => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Stops the trace that a `trace-start` began.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stop_trace(&mut self) -> Result<TraceStopped, ClientError> {
        match ask(&mut self.stream, &Request::TraceStop {})? {
            Answer::TraceStopped(stopped) => Ok(stopped),
            other => Err(unexpected(&other)),
        }
    }
}

/// Checks whether this user (`ours`) may trust an answer by user `theirs` for a process of `owner`.
fn check_peer(path: &Path, theirs: u32, ours: u32, owner: Option<u32>) -> Result<(), ClientError> {
    match (theirs == ours || theirs == 0, ours == 0) {
        (true, _) => Ok(()),
        (false, false) => Err(ClientError::NotAllowed { path: path.to_owned() }),
        (false, true) if owner == Some(theirs) => Ok(()),
        // Root may attach to any user's program, but the answer must come from the process's owner.
        (false, true) => {
            let reason = format!("user {theirs} answers at {}, and the process is not that user's", path.display());
            Err(ClientError::NotPlimsoll { reason })
        }
    }
}

fn say_hello(stream: &mut BufReader<UnixStream>) -> Result<Hello, ClientError> {
    send(stream, &Request::Hello {})?;
    let line = receive(stream)?;
    // The version first: in another one the rest may differ.
    let value: serde_json::Value = serde_json::from_slice(&line).map_err(|error| not_plimsoll(&error))?;
    let theirs = value.get("protocol").and_then(serde_json::Value::as_u64);
    if let Some(theirs) = theirs.and_then(|theirs| u32::try_from(theirs).ok()).filter(|theirs| *theirs != PROTOCOL) {
        return Err(ClientError::Version { theirs });
    }
    match serde_json::from_value(value).map_err(|error| not_plimsoll(&error))? {
        Answer::Hello(hello) => Ok(hello),
        Answer::Error { code, message } => Err(ClientError::Refused { code, message }),
        other => Err(unexpected(&other)),
    }
}

fn ask(stream: &mut BufReader<UnixStream>, request: &Request) -> Result<Answer, ClientError> {
    send(stream, request)?;
    let line = receive(stream)?;
    match serde_json::from_slice(&line).map_err(|error| not_plimsoll(&error))? {
        Answer::Error { code, message } => Err(ClientError::Refused { code, message }),
        answer => Ok(answer),
    }
}

fn send(stream: &mut BufReader<UnixStream>, request: &Request) -> Result<(), ClientError> {
    let mut line = serde_json::to_vec(request).map_err(|error| ClientError::Io(error.into()))?;
    line.push(b'\n');
    match stream.get_mut().write_all(&line) {
        // The program has hung up; its earlier answer has the reason.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ClientError::Io(error)),
        _ => Ok(()),
    }
}

fn receive(stream: &mut BufReader<UnixStream>) -> Result<Vec<u8>, ClientError> {
    let mut line = Vec::new();
    match stream.by_ref().take(ANSWER_MAX_BYTES).read_until(b'\n', &mut line) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => return Err(ClientError::Io(error)),
        _ => {}
    }
    match line.pop() {
        Some(b'\n') => Ok(line),
        _ => Err(ClientError::Io(io::ErrorKind::UnexpectedEof.into())),
    }
}

fn not_plimsoll(error: &serde_json::Error) -> ClientError {
    ClientError::NotPlimsoll { reason: error.to_string() }
}

fn unexpected(answer: &Answer) -> ClientError {
    let reason = match answer {
        Answer::Hello(_) => "it answers with `hello`",
        Answer::Snapshot(_) => "it answers with `snapshot`",
        Answer::Metrics(_) => "it answers with `metrics`",
        Answer::Done {} => "it answers with `done`",
        Answer::TraceStopped(_) => "it answers with `trace-stopped`",
        Answer::Error { .. } => "it answers with an error",
    };
    ClientError::NotPlimsoll { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_owner_of_a_process_answers_for_it() {
        // The user who answers, the user who asks, the owner of the process.
        let table = [
            (7, 7, Some(7), true),
            (0, 7, Some(7), true),
            (8, 7, Some(8), false),
            (7, 0, Some(7), true),
            (0, 0, Some(7), true),
            (7, 0, Some(8), false),
            (7, 0, Some(0), false),
            (7, 0, None, false),
        ];
        for (theirs, ours, owner, is_trusted) in table {
            let checked = check_peer("x.sock".as_ref(), theirs, ours, owner);
            assert_eq!(checked.is_ok(), is_trusted, "{theirs} {ours} {owner:?}");
        }
    }
}
