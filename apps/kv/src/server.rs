//! The server's connections: how many, how large, and how they end.
//!
//! # Why
//! Clients must not decide how much memory the server takes, nor lose a reply because it stops.
//!
//! # How it works
//! Each connection is a task with a buffer. Its whole requests run in order, GETs that follow one another at once
//! ([`crate::command::read`]), then their replies are sent together. A request longer than [`BUFFER_BYTES`] takes the
//! rest of its memory from a budget that all connections share; if the budget is spent, the client gets an error. It
//! must arrive in time, or its connection is closed: it holds up others. Long replies have a budget of their own. When
//! the server stops, a connection ends after the requests that it has read.
//!
//! # Limits
//! An idle connection stays open as long as its client's machine answers; after [`IDLE`] it has no buffers. The memory
//! of a large request is returned once it is answered.
//!
//! # Example
//! `serve_connections(listener, service, stop)` returns when all connections have ended.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;

use crate::budget::Budget;
use crate::command::read::READS_MAX;
use crate::command::{Next, Service, Session, Shared, transfer_timeout};
use crate::resp::{Parsed, parse};

/// Buffer that each connection has apart from the shared budget, in bytes.
pub const BUFFER_BYTES: usize = 64 << 10;
/// Fewest bytes by which the buffer of a long request grows: its length is known one argument at a time.
const GROWTH_BYTES: usize = 4 << 10;
/// Time without a request after which a connection gives its buffers back, until the next one begins.
const IDLE: Duration = Duration::from_secs(1);
/// Time that connections have for their last replies after the server was stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a client has to read the last reply before the connection is closed.
const LINGER: Duration = Duration::from_millis(500);
/// Time without traffic after which the kernel asks whether the client's machine is still there, as in Redis.
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Questions without an answer after which it closes the connection, and the time between two.
const QUESTIONS: u32 = 3;
const QUESTION_INTERVAL: Duration = Duration::from_secs(100);
/// Pause after a failed accept; most failures are a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Serves connections until `stop` is true, then waits a bounded time until the open ones end.
pub async fn serve_connections(listener: TcpListener, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let shared = Shared::of(service.database.memory(), &service.limits);

    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|is_over| *is_over) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };

        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };

        match Arc::clone(&service.places).try_acquire_owned() {
            Ok(place) => {
                let connection = Connection::new(stream, Arc::clone(&service), shared.clone());
                let stop = stop.clone();
                connections.spawn(async move {
                    // A failed connection concerns only its client.
                    let _ = connection.serve(stop).await;
                    drop(place);
                });
            }
            Err(_) => {
                service.refused.fetch_add(1, Ordering::Relaxed);
                connections.spawn(refuse(stream));
            }
        }
    }

    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
        connections.shutdown().await;
    }
}

/// Returns whether the words of a request are a GET of a key.
fn is_get(words: &[Cow<'_, [u8]>]) -> bool {
    matches!(words, [name, _] if name.eq_ignore_ascii_case(b"GET"))
}

async fn refuse(mut stream: TcpStream) {
    // The client may have gone already.
    let _ = stream.write_all(b"-ERR max number of clients reached (--max-connections)\r\n").await;
    let _ = stream.shutdown().await;
}

/// Has the kernel close the connection if the client's machine is gone without a word: it would keep its place for ever.
fn keep_alive(stream: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, QUESTION_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, QUESTIONS)?;
    sockopt::set_socket_keepalive(stream, true)
}

struct Connection {
    reader: OwnedReadHalf,
    session: Session<tokio::net::tcp::OwnedWriteHalf>,
    service: Arc<Service>,
    buffer: Vec<u8>,
    /// Memory for long requests, shared by all connections.
    budget: Budget,
    /// Memory taken from the shared budget.
    taken: Option<OwnedSemaphorePermit>,
    /// When the request that has it began: took memory, or followed another one.
    begun: Instant,
}

impl Connection {
    fn new(stream: TcpStream, service: Arc<Service>, shared: Shared) -> Connection {
        // Replies are sent whole, so Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let _ = keep_alive(&stream);
        let (reader, writer) = stream.into_split();
        let budget = shared.requests.clone();
        let session = Session::new(Arc::clone(&service), writer, shared);
        Connection { reader, session, service, buffer: Vec::new(), budget, taken: None, begun: Instant::now() }
    }

    async fn serve(mut self, stop: watch::Receiver<bool>) -> io::Result<()> {
        let served = self.serve_requests(stop).await;
        // The scans of a client that is gone would keep their files.
        self.session.close().await;
        served?;

        // If unread bytes remained, the kernel would reset the connection, and the client could lose the last reply.
        let mut rest = vec![0; BUFFER_BYTES];
        let discard = async { while self.reader.read(&mut rest).await.is_ok_and(|read| read > 0) {} };
        let _ = tokio::time::timeout(LINGER, discard).await;
        Ok(())
    }

    /// Runs requests until the client has sent the last one, or the server stops.
    async fn serve_requests(&mut self, mut stop: watch::Receiver<bool>) -> io::Result<()> {
        loop {
            let (least_bytes, next) = self.run_requests().await?;
            if next == Next::Close || !self.make_room(least_bytes).await? {
                return Ok(());
            }
            // A long request has memory that others wait for; a short one may take its time.
            let is_long = self.taken.is_some();
            let due = if is_long { self.begun + transfer_timeout(least_bytes) } else { Instant::now() + IDLE };
            let read = tokio::select! {
                read = self.reader.read_buf(&mut self.buffer) => Some(read?),
                _ = stop.wait_for(|is_over| *is_over) => Some(0),
                () = tokio::time::sleep_until(due.into()) => None,
            };
            let Some(read) = read else {
                if is_long {
                    self.session.error("ERR a long request did not arrive in time: at least 64 KiB a second");
                    return self.session.flush().await;
                }
                self.rest(&mut stop).await?;
                continue;
            };
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Gives the buffers back, and waits until the client sends something or the server stops.
    async fn rest(&mut self, stop: &mut watch::Receiver<bool>) -> io::Result<()> {
        self.buffer.shrink_to_fit();
        self.session.give_buffer_back();
        tokio::select! {
            readable = self.reader.readable() => readable.map(drop),
            _ = stop.wait_for(|is_over| *is_over) => Ok(()),
        }
    }

    /// Runs the whole requests in the buffer and sends their replies. Returns the least length of the partial one that
    /// remains.
    async fn run_requests(&mut self) -> io::Result<(usize, Next)> {
        let mut at = 0;
        let (least_bytes, next) = loop {
            match parse(&self.buffer[at..], &self.service.limits) {
                Ok(Parsed::Partial { least_bytes }) => break (least_bytes, Next::Command),
                Ok(Parsed::Request { arguments: mut keys, len_bytes }) if is_get(&keys) => {
                    at += len_bytes;
                    keys.remove(0);
                    // GETs that follow one another are read at once.
                    while keys.len() < READS_MAX
                        && let Ok(Parsed::Request { mut arguments, len_bytes }) =
                            parse(&self.buffer[at..], &self.service.limits)
                        && is_get(&arguments)
                    {
                        at += len_bytes;
                        keys.extend(arguments.pop());
                    }
                    self.session.execute_gets(&keys).await?;
                }
                Ok(Parsed::Request { arguments, len_bytes }) => {
                    let arguments: Vec<&[u8]> = arguments.iter().map(AsRef::as_ref).collect();
                    at += len_bytes;
                    if self.session.execute(&arguments).await? == Next::Close {
                        break (0, Next::Close);
                    }
                }
                Err(error) => {
                    self.session.error(&format!("ERR {error}"));
                    break (0, Next::Close);
                }
            }
        };

        self.session.flush().await?;
        self.buffer.drain(..at);
        if at > 0 {
            self.begun = Instant::now();
        }
        Ok((least_bytes, next))
    }

    /// Extends the buffer for a request of `least_bytes`. If the budget is spent, replies with an error and returns
    /// false.
    async fn make_room(&mut self, least_bytes: usize) -> io::Result<bool> {
        if least_bytes <= BUFFER_BYTES {
            self.buffer.shrink_to(BUFFER_BYTES);
            self.buffer.reserve_exact(BUFFER_BYTES.saturating_sub(self.buffer.len()).max(1));
            self.taken = None;
            return Ok(true);
        }

        let room_bytes = least_bytes.next_multiple_of(GROWTH_BYTES);
        let long_bytes = room_bytes - BUFFER_BYTES;
        if self.taken.is_none() {
            self.begun = Instant::now();
        }
        if !self.budget.try_take(&mut self.taken, long_bytes) {
            let has_bytes = self.budget.total_bytes();
            if long_bytes > has_bytes {
                let message = format!(
                    "OOM a request of {least_bytes} bytes: of its --memory this server has {has_bytes} for them"
                );
                self.session.error(&message);
            } else {
                self.session
                    .error("OOM too many large requests at once: repeat it later, or give the server more --memory");
            }
            self.session.flush().await?;
            return Ok(false);
        }

        self.buffer.reserve_exact(room_bytes - self.buffer.len());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;
    use crate::database::Database;
    use crate::options::DatabaseOptions;
    use crate::resp::Limits;
    use crate::settings::MEMORY_MIN_BYTES;

    /// Each kept up to 128 KiB after a long pipeline.
    #[tokio::test]
    async fn an_idle_connection_has_no_buffers() {
        let directory = tempfile::tempdir().unwrap();
        let options = DatabaseOptions { memory_bytes: MEMORY_MIN_BYTES, ..DatabaseOptions::new(directory.path()) };
        let limits = Limits { key_max_bytes: 1 << 10, value_max_bytes: 1 << 20 };
        let service = Arc::new(Service::new(Database::open(&options).await.unwrap(), limits, 10));
        let shared = Shared::of(service.database.memory(), &service.limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = Connection::new(stream, Arc::clone(&service), shared);
        let (_running, stop) = watch::channel(false);

        // The second pipeline wakes it, and a part of a request is kept.
        for pings in [4000, 1] {
            let exchange = async {
                client.write_all(&[&b"PING\r\n".repeat(pings)[..], b"PI"].concat()).await.unwrap();
                client.read_exact(&mut vec![0; b"+PONG\r\n".len() * pings]).await.unwrap();
                client.write_all(b"NG\r\nPIN").await.unwrap();
                client.read_exact(&mut [0; 7]).await.unwrap();
                tokio::time::sleep(2 * IDLE).await;
                client.write_all(b"G\r\n").await.unwrap();
                client.read_exact(&mut [0; 7]).await.unwrap();
                tokio::time::sleep(2 * IDLE).await;
            };
            tokio::select! {
                biased;
                ended = connection.serve_requests(stop.clone()) => panic!("{ended:?}"),
                () = exchange => {}
            }
            assert_eq!((connection.buffer.capacity(), connection.session.buffer_bytes()), (0, 0));
        }
        drop(connection);
        Arc::into_inner(service).unwrap().database.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_client_whose_machine_is_gone_does_not_keep_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(!sockopt::socket_keepalive(&stream).unwrap());
        keep_alive(&stream).unwrap();
        let seen = (sockopt::socket_keepalive(&stream), sockopt::tcp_keepidle(&stream), sockopt::tcp_keepcnt(&stream));
        assert_eq!(seen, (Ok(true), Ok(KEEP_ALIVE), Ok(QUESTIONS)));
    }
}
