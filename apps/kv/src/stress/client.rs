//! A connection of a client: one request, one reply.
//!
//! # Why
//! Each client has its own thread, like cassandra-stress's: a shared runtime would add its timers to the latency.
//!
//! # How it works
//! A blocking socket without Nagle's algorithm; the buffers are reused.
//!
//! # Limits
//! A reply must come within [`TIMEOUT`].
//!
//! # Example
//! `Client::connect(server)?.ask(&[b"GET", b"ship"])`

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::resp::{Answer, Reply, parse_reply};

/// Longest wait for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of a read.
const READ_BYTES: usize = 64 << 10;

/// A connection to a server.
pub struct Client {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl Client {
    /// Connects to `server`.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(server: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream, request: Vec::new(), reply: Vec::new() })
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// The system's error, or `InvalidData` if the answer is no reply.
    pub fn ask(&mut self, words: &[&[u8]]) -> io::Result<Answer> {
        self.request.clear();
        Reply::Array(words.len()).write(&mut self.request);
        for word in words {
            Reply::Bulk(word).write(&mut self.request);
        }
        self.stream.write_all(&self.request)?;

        self.reply.clear();
        loop {
            let parsed = parse_reply(&self.reply);
            if let Some((answer, _)) = parsed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                return Ok(answer);
            }

            let have = self.reply.len();
            self.reply.resize(have + READ_BYTES, 0);
            let read = self.stream.read(&mut self.reply[have..])?;
            self.reply.truncate(have + read);
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
