//! One client of the control socket: its incomplete line, and its unsent answers.
//!
//! # Why
//! One thread serves all clients, so no client may make it wait, not even one that sends half a line or reads no
//! answers.
//!
//! # How it works
//! Everything is nonblocking. Received bytes are kept until their line is whole; unsent bytes are kept until the client
//! takes them. A client that sends too long a line gets an error and is closed; one that lets answers pile up is closed
//! without an error.
//!
//! # Limits
//! A line has at most [`LINE_MAX_BYTES`], unsent answers at most [`UNSENT_MAX_BYTES`]. While answers are unsent, the
//! client's requests are not read.
//!
//! # Example
//! `he` arrives and is kept; `llo\n` arrives, and the line `hello` is whole.

use std::io::{self, Read, Write};

use super::protocol::LINE_MAX_BYTES;

/// Most bytes of unsent answers; beyond, the client is closed.
pub(super) const UNSENT_MAX_BYTES: usize = 4 << 20;

/// One client; see the module's documentation.
pub(super) struct Connection<S> {
    pub(super) stream: S,
    received: Vec<u8>,
    unsent: Vec<u8>,
    /// Reading has ended; the client is closed once all answers are sent.
    is_ending: bool,
}

/// A line from a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A whole line, without its end.
    Whole(Vec<u8>),
    /// Longer than allowed.
    TooLong,
}

impl<S: Read + Write> Connection<S> {
    pub(super) fn new(stream: S) -> Connection<S> {
        Connection { stream, received: Vec::new(), unsent: Vec::new(), is_ending: false }
    }

    /// Returns whether to read further requests.
    pub(super) fn wants_to_read(&self) -> bool {
        !self.is_ending && self.unsent.is_empty()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns whether the client can be closed.
    pub(super) fn is_over(&self) -> bool {
        self.is_ending && self.unsent.is_empty()
    }

    /// Receives the bytes that have arrived, at most a line's worth.
    ///
    /// # Errors
    /// If the connection is broken.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        let mut part = [0; 4096];
        while self.received.len() < LINE_MAX_BYTES {
            match self.stream.read(&mut part) {
                Ok(0) => {
                    // Half a line is not a request.
                    self.is_ending = true;
                    return Ok(());
                }
                Ok(n) => self.received.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the next line, if it is whole or too long.
    pub(super) fn next_line(&mut self) -> Option<Line> {
        match self.received.iter().position(|byte| *byte == b'\n') {
            Some(end) if end < LINE_MAX_BYTES => {
                let rest = self.received.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.pop();
                Some(Line::Whole(line))
            }
            None if self.received.len() < LINE_MAX_BYTES => None,
            _ => {
                self.received.clear();
                Some(Line::TooLong)
            }
        }
    }

    /// Closes the connection after the answers so far and the next one.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Sends an answer, and keeps the unsent part.
    ///
    /// # Errors
    /// If the connection is broken, or too many bytes are unsent.
    pub(super) fn answer(&mut self, line: &str) -> io::Result<()> {
        self.unsent.extend_from_slice(line.as_bytes());
        self.unsent.push(b'\n');
        if self.unsent.len() > UNSENT_MAX_BYTES {
            return Err(io::Error::other("the client does not take its answers"));
        }
        self.send()
    }

    /// Sends as much as the client takes.
    ///
    /// # Errors
    /// If the connection is broken.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.unsent.drain(..n.min(self.unsent.len()))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Returns its parts one after the other, and takes `room` bytes.
    #[derive(Default)]
    struct Script {
        parts: VecDeque<Vec<u8>>,
        room: usize,
        sent: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(mut part) = self.parts.pop_front() else { return Err(io::ErrorKind::WouldBlock.into()) };
            let n = part.len().min(into.len());
            into[..n].copy_from_slice(&part[..n]);
            if n < part.len() {
                self.parts.push_front(part.split_off(n));
            }
            Ok(n)
        }
    }

    impl Write for Script {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            let n = from.len().min(self.room);
            self.room -= n;
            self.sent.extend_from_slice(&from[..n]);
            if n == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(n) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(parts: &[&[u8]]) -> (Vec<Line>, Connection<Script>) {
        let parts = parts.iter().map(|part| part.to_vec()).collect();
        let mut connection = Connection::new(Script { parts, ..Script::default() });
        let mut lines = Vec::new();
        while !connection.stream.parts.is_empty() && !connection.is_over() {
            connection.receive().unwrap();
            lines.extend(std::iter::from_fn(|| connection.next_line()));
        }
        (lines, connection)
    }

    #[test]
    fn lines_come_in_parts_and_together() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(lines(&[b"he", b"llo\nsnap", b"shot\n\nx"]).0, [whole("hello"), whole("snapshot"), whole("")]);
        let (got, connection) = lines(&[b"half", b""]);
        assert!(got.is_empty() && connection.is_over());
        let long = vec![b'x'; LINE_MAX_BYTES];
        assert_eq!(lines(&[&long]).0, [Line::TooLong]);
        let mut just = vec![b'x'; LINE_MAX_BYTES - 1];
        just.push(b'\n');
        assert_eq!(lines(&[&just]).0, [Line::Whole(vec![b'x'; LINE_MAX_BYTES - 1])]);
    }

    #[test]
    fn answers_wait_for_a_slow_client_up_to_a_bound() {
        let mut connection = Connection::new(Script { room: 3, ..Script::default() });
        connection.answer("abcde").unwrap();
        assert!(connection.wants_to_write() && !connection.wants_to_read());
        connection.stream.room = 10;
        connection.send().unwrap();
        assert_eq!(connection.stream.sent, b"abcde\n");
        assert!(connection.wants_to_read());
        connection.stream.room = 0;
        assert!(connection.answer(&"x".repeat(UNSENT_MAX_BYTES)).is_err());
    }
}
