//! The open connections of the server, and which of them ends if there are too many.
//!
//! # Why
//! Clients that are idle, hang or never read must not keep others out, nor delay them until a timeout ends.
//!
//! # How it works
//! Each connection numbers its moves: bytes that its client sent, and bytes that the client took. There are at most
//! [`CONNECTIONS_MAX`] connections. One more replaces another: of the client (by address) with the most connections,
//! the one whose last move is oldest ([`to_end`]). A client that takes nothing of an answer for [`WRITE_TIME`] loses
//! its connection, even if its place is not needed.
//!
//! # Limits
//! Clients behind one proxy or on one host have one address, so only the order of their moves decides between them.
//!
//! # Example
//! A scrape that finds 64 idle connections is answered at once; the longest idle one is closed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

/// Most connections at a time. Clients are few; each connection costs a descriptor and the kernel's buffers.
const CONNECTIONS_MAX: usize = 64;
/// Time within which a client must take a part of an answer: far more than a working network needs.
const WRITE_TIME: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Connections {
    open: Vec<Open>,
    moves: Arc<AtomicU64>,
}

struct Open {
    task: JoinHandle<()>,
    client: IpAddr,
    /// Number of this connection's last move.
    last_move: Arc<AtomicU64>,
}

impl Connections {
    /// Runs `serve` over `stream` in a task. If there are too many connections, ends another one first.
    pub(super) async fn open<F>(&mut self, stream: TcpStream, client: IpAddr, serve: impl FnOnce(Watched) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.make_room().await;

        let moves = Moves { all: Arc::clone(&self.moves), last: Arc::default() };
        moves.note();
        let last_move = Arc::clone(&moves.last);
        let task = tokio::spawn(serve(Watched { stream: TokioIo::new(stream), moves, write_end: None }));
        self.open.push(Open { task, client, last_move });
    }

    async fn make_room(&mut self) {
        self.open.retain(|open| !open.task.is_finished());
        if self.open.len() < CONNECTIONS_MAX {
            return;
        }

        let moves: Vec<(IpAddr, u64)> =
            self.open.iter().map(|open| (open.client, open.last_move.load(Ordering::Relaxed))).collect();
        if let Some(at) = to_end(&moves) {
            let Open { task, .. } = self.open.swap_remove(at);
            task.abort();
            // Wait until the descriptor is closed. An aborted task reports an error.
            let _ = task.await;
        }
    }

    pub(super) async fn ended(self) {
        for open in self.open {
            // A task that panicked has ended too.
            let _ = open.task.await;
        }
    }
}

/// Returns the index of the connection to end, by clients and last moves: of the client with the most connections, the
/// one whose last move is oldest.
fn to_end(moves: &[(IpAddr, u64)]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for (client, _) in moves {
        *counts.entry(*client).or_default() += 1;
    }

    let rank = |(_, (client, last)): &(usize, &(IpAddr, u64))| (counts.get(client).copied(), Reverse(*last));
    moves.iter().enumerate().max_by_key(rank).map(|(at, _)| at)
}

/// The moves of one connection, numbered together with those of all.
struct Moves {
    all: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
}

impl Moves {
    fn note(&self) {
        // One thread runs all connections, so relaxed ordering suffices.
        self.last.store(self.all.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// A client's stream that numbers its moves, and fails if the client takes nothing for [`WRITE_TIME`].
pub(super) struct Watched {
    stream: TokioIo<TcpStream>,
    moves: Moves,
    /// Deadline of the pending write, if there is one.
    write_end: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    /// Returns the outcome of a write; a write that waits too long fails.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<std::io::Result<usize>>,
    ) -> Poll<std::io::Result<usize>> {
        if polled.is_ready() {
            self.moves.note();
            self.write_end = None;
            return polled;
        }
        let end = self.write_end.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIME)));
        end.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            self.moves.note();
        }
        polled
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Client and last move of each connection, and the one that ends.
    type Case = (&'static [(u8, u64)], Option<usize>);

    #[test]
    fn the_client_with_the_most_connections_loses_the_one_that_was_idle_longest() {
        let client = |last: u8| IpAddr::from([192, 0, 2, last]);
        let table: [Case; 5] = [
            (&[], None),
            (&[(1, 7)], Some(0)),
            (&[(1, 7), (1, 5), (1, 6)], Some(1)),
            // A client with only one connection keeps it, however long it was idle.
            (&[(1, 0), (2, 8), (2, 3), (2, 9)], Some(2)),
            (&[(1, 4), (2, 3), (3, 5)], Some(1)),
        ];
        for (moves, expected) in table {
            let moves: Vec<(IpAddr, u64)> = moves.iter().map(|(last, number)| (client(*last), *number)).collect();
            assert_eq!(to_end(&moves), expected, "{moves:?}");
        }
    }
}
