//! Runs the commands of clients and sends their replies.
//!
//! # Why
//! A SET must not be acknowledged before it is durable, and a pipeline of SETs must not wait for each of them.
//!
//! # How it works
//! [`Session::execute`] runs one command and appends its reply to the session's output. A write leaves a handle;
//! [`Session::flush`] waits for the last handle, which covers the earlier ones, and only then sends the output. So the
//! writes of a pipeline become durable together, and no reply is sent before its write is durable. Output of more than
//! [`OUTPUT_BYTES`] is flushed at once; [`read`] says what memory longer values take.
//! A client that reads nothing of a reply for [`PATIENCE`], or less than 64 KiB a second of a longer one, is
//! disconnected, so that it does not hold up the others.
//!
//! While memory or level 0 fills, writes are delayed ([`crate::controllers`]): each batch, and in a long one each
//! [`DELAYED_BYTES`].
//!
//! # Limits
//! Only the commands of [`COMMANDS`]; only GET of CONFIG. SET takes no options. A read may see a write of another
//! connection that is not durable yet.
//!
//! # Example
//! `SET ship ahoy` replies `+OK`; `GET ship` then `$4 ahoy`.

pub mod read;
mod scan;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slatedb::{Error, WriteHandle};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::budget::{Budget, MeanLength};
use crate::database::{Database, Scan};
use crate::resp::{Limits, Reply};
use crate::scans::{Scans, matches};
use crate::settings::MemoryPlan;

/// Most output that waits while the next command of a pipeline runs, in bytes; and most keys that a step of a scan
/// returns, but for the last.
pub const OUTPUT_BYTES: usize = 64 << 10;
/// Longest time in which a client reads nothing of a reply.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a pipeline's writes that one delay is for: with writes as long as this, the longest delay is long enough.
pub const DELAYED_BYTES: usize = 16 << 10;
/// Fewest bytes that a write counts as: a short row takes about as much memory.
const ROW_MIN_BYTES: usize = 64;
/// Least rate at which a client reads a long reply, or sends a long request: a slow line's. A slower client would hold
/// up the others for hours.
const BYTES_PER_S_MIN: f64 = 65_536.0;
/// Metrics of SlateDB that INFO shows.
const FIGURES: [&str; 4] = ["l0_sst_count", "sorted_run_count", "backpressure_count", "write_ops"];

/// The commands.
const COMMANDS: [&str; 11] = ["GET", "SET", "MGET", "DEL", "SCAN", "PING", "ECHO", "INFO", "CONFIG", "COMMAND", "QUIT"];

/// State that all connections share.
pub struct Service {
    /// The database.
    pub database: Database,
    /// The bounds of requests.
    pub limits: Limits,
    /// Most connections at a time.
    connections_max: usize,
    /// Places for further connections.
    pub places: Arc<Semaphore>,
    /// When the server started.
    started: Instant,
    /// Connections that were refused.
    pub refused: AtomicU64,
    /// Commands so far.
    commands: AtomicU64,
}

/// Bounds of the memory of all connections together.
#[derive(Clone)]
pub struct Shared {
    /// Memory for long requests.
    pub requests: Budget,
    /// Memory for long replies.
    pub replies: Budget,
    /// The mean length of values read.
    pub value_bytes: MeanLength,
    /// Held by the one read that goes on without memory.
    pub alone: Arc<Mutex<()>>,
    /// Places for connections that read several keys at once.
    pub batches: Arc<Semaphore>,
    /// The scans.
    pub scans: Arc<Scans<Scan>>,
}

impl Shared {
    /// Returns the bounds of `memory`, for values of `limits`.
    #[must_use]
    pub fn of(memory: &MemoryPlan, limits: &Limits) -> Shared {
        Shared {
            requests: Budget::new(memory.requests_bytes),
            replies: Budget::new(memory.replies_bytes),
            value_bytes: MeanLength::new(limits.value_max_bytes),
            alone: Arc::default(),
            batches: Arc::new(Semaphore::new(read::BATCHES_MAX)),
            scans: Arc::new(Scans::new(memory.scans_max)),
        }
    }
}

/// What a connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the next command.
    Command,
    /// Send the output and close.
    Close,
}

/// Runs a connection's commands; holds their replies until they are sent.
pub struct Session<W> {
    service: Arc<Service>,
    writer: W,
    output: Vec<u8>,
    /// The last write whose reply is in the output.
    unacknowledged: Option<WriteHandle>,
    shared: Shared,
    /// The number of the connection among those with scans.
    owner: u64,
    /// Memory taken for the value in the output.
    taken: Option<OwnedSemaphorePermit>,
    /// Bytes of further writes that the last delay is for.
    delayed_bytes: usize,
}

impl<W: AsyncWrite + Unpin> Session<W> {
    /// Returns the session of a connection whose replies go to `writer`.
    pub fn new(service: Arc<Service>, writer: W, shared: Shared) -> Session<W> {
        let owner = shared.scans.owner();
        Session {
            service,
            writer,
            output: Vec::new(),
            unacknowledged: None,
            shared,
            owner,
            taken: None,
            delayed_bytes: 0,
        }
    }

    /// Runs the command whose words are `arguments`, and appends its reply to the output.
    ///
    /// # Errors
    /// The connection failed, or writes did not become durable.
    pub async fn execute(&mut self, arguments: &[&[u8]]) -> io::Result<Next> {
        let [name, arguments @ ..] = arguments else { return Ok(Next::Command) };
        self.service.commands.fetch_add(1, Ordering::Relaxed);
        let name = String::from_utf8_lossy(&name[..name.len().min(32)]).to_ascii_uppercase();

        match (name.as_str(), arguments) {
            ("GET", keys @ [_]) => self.get_each(keys).await?,
            ("SET", [key, value]) => self.set(key, value).await,
            ("MGET", keys @ [_, ..]) => self.get_all(keys).await?,
            ("DEL", keys @ [_, ..]) => self.delete(keys).await?,
            ("SCAN", [cursor, options @ ..]) => self.scan(cursor, options).await,
            ("PING", []) => self.reply(Reply::Simple("PONG")),
            // `redis-cli --pipe` ends with an ECHO.
            ("PING" | "ECHO", [message]) => self.reply(Reply::Bulk(message)),
            ("INFO", _) => {
                let info = self.service.info();
                self.reply(Reply::Bulk(info.as_bytes()));
            }
            ("CONFIG", [verb, patterns @ ..]) if verb.eq_ignore_ascii_case(b"GET") => self.config(patterns),
            ("CONFIG", _) => self.error("ERR only CONFIG GET: settings are flags of `plimsoll-kv serve`"),
            ("COMMAND", [verb]) if verb.eq_ignore_ascii_case(b"COUNT") => {
                self.reply(Reply::Integer(COMMANDS.len() as i64));
            }
            ("COMMAND", [verb]) if verb.eq_ignore_ascii_case(b"LIST") => {
                self.reply(Reply::Array(COMMANDS.len()));
                COMMANDS.iter().for_each(|name| self.reply(Reply::Bulk(name.as_bytes())));
            }
            // COMMAND INFO and DOCS ask for descriptions. These are optional, and there are none.
            ("COMMAND", _) => self.reply(Reply::Array(0)),
            ("QUIT", _) => {
                self.reply(Reply::Simple("OK"));
                return Ok(Next::Close);
            }
            // Any web page may have a browser send such a request, with commands in its body.
            ("POST" | "HOST:", _) => {
                self.error("ERR this is no server of HTTP");
                return Ok(Next::Close);
            }
            ("GET" | "SET" | "MGET" | "DEL" | "SCAN" | "PING" | "ECHO", _) => {
                self.error(&format!("ERR wrong number of arguments for '{name}' (SET takes a key and a value)"));
            }
            _ => self.error(&format!(
                "ERR unknown command '{}': there are {}",
                name.escape_default(),
                COMMANDS.join(" ")
            )),
        }

        self.flush_if_large().await?;
        Ok(Next::Command)
    }

    /// Waits until the writes so far are durable, then sends the output.
    ///
    /// # Errors
    /// The connection failed. If writes did not become durable, the client gets an error in place of all replies that
    /// were not sent yet, and the connection must be closed.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.delayed_bytes = 0;
        if let Some(handle) = self.unacknowledged.take()
            && let Err(error) = handle.await_durable().await
        {
            self.output.clear();
            self.error(&format!("ERR writes are not durable: {error}"));
            send(&mut self.writer, &self.output, PATIENCE).await?;
            return Err(io::Error::other(error.to_string()));
        }

        send(&mut self.writer, &self.output, PATIENCE).await?;
        self.output.clear();
        self.output.shrink_to(OUTPUT_BYTES);
        self.taken = None;
        Ok(())
    }

    /// Frees the memory of the output. Nothing may wait in it.
    pub(crate) fn give_buffer_back(&mut self) {
        debug_assert!(self.output.is_empty(), "replies wait to be sent");
        self.output = Vec::new();
    }

    /// Returns the memory of the output, in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.output.capacity()
    }

    /// Appends an error reply.
    pub fn error(&mut self, message: &str) {
        self.reply(Reply::Error(message));
    }

    /// Ends the connection.
    pub async fn close(&mut self) {
        for scan in self.shared.scans.take_all(self.owner) {
            scan.close().await;
        }
        // The client may be gone already.
        let _ = self.writer.shutdown().await;
    }

    fn reply(&mut self, reply: Reply<'_>) {
        reply.write(&mut self.output);
    }

    fn failed(&mut self, error: &Error) {
        self.error(&format!("ERR {error}"));
    }

    async fn flush_if_large(&mut self) -> io::Result<()> {
        if self.output.len() > OUTPUT_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Returns whether `key` has an allowed length.
    fn is_key(&self, key: &[u8]) -> bool {
        (1..=self.service.limits.key_max_bytes).contains(&key.len())
    }

    /// Returns whether `key` has an allowed length. If not, appends an error reply.
    fn check_key(&mut self, key: &[u8]) -> bool {
        let is_key = self.is_key(key);
        if !is_key {
            let max_bytes = self.service.limits.key_max_bytes;
            self.error(&format!("ERR a key of {} bytes: keys have 1 to {max_bytes} bytes", key.len()));
        }
        is_key
    }

    /// Returns whether the disk has space for writes. If not, appends an error reply.
    fn check_space(&mut self) -> bool {
        let refusal = self.service.database.space().refusal();
        if let Some(reason) = &refusal {
            self.error(reason);
        }
        refusal.is_none()
    }

    async fn set(&mut self, key: &[u8], value: &[u8]) {
        let max_bytes = self.service.limits.value_max_bytes;
        if value.len() > max_bytes {
            return self.error(&format!("ERR a value of {} bytes: values have at most {max_bytes}", value.len()));
        }
        if !self.check_key(key) || !self.check_space() {
            return;
        }

        self.delay_write(key.len() + value.len()).await;
        match self.or_full(self.service.database.set(key, value)).await {
            Ok(handle) => {
                self.unacknowledged = Some(handle);
                self.reply(Reply::Simple("OK"));
            }
            Err(message) => self.error(&message),
        }
    }

    /// Waits before a write of `len_bytes`, unless the last delay is for this one too.
    async fn delay_write(&mut self, len_bytes: usize) {
        let len_bytes = len_bytes.max(ROW_MIN_BYTES);
        if self.delayed_bytes < len_bytes {
            if let Some(delay) = self.service.database.write_delay() {
                tokio::time::sleep(delay).await;
            }
            self.delayed_bytes = DELAYED_BYTES;
        }
        self.delayed_bytes = self.delayed_bytes.saturating_sub(len_bytes);
    }

    /// Waits for `write`. Returns the error for the client if it failed, or waits for memory that the disk has no space to
    /// flush.
    async fn or_full<T>(&self, write: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
        tokio::select! {
            biased;
            written = write => written.map_err(|error| format!("ERR {error}")),
            refusal = self.service.database.space().until_full("this write may be there or not") => Err(refusal),
        }
    }

    async fn delete(&mut self, keys: &[&[u8]]) -> io::Result<()> {
        if !keys.iter().all(|key| self.check_key(key)) || !self.check_space() {
            return Ok(());
        }

        let mut deleted = 0;
        for key in keys {
            self.delay_write(key.len()).await;
            // The value is read, to know whether there is one.
            let alone = self.take_memory().await?;
            let removed = self.or_full(self.service.database.remove(key)).await;
            drop(alone);
            self.taken = None;
            match removed {
                Ok(Some((len_bytes, handle))) => {
                    self.shared.value_bytes.add(len_bytes);
                    self.unacknowledged = Some(handle);
                    deleted += 1;
                }
                Ok(None) => self.shared.value_bytes.add(0),
                Err(message) => {
                    self.error(&message);
                    return Ok(());
                }
            }
        }

        self.reply(Reply::Integer(deleted));
        Ok(())
    }

    fn config(&mut self, patterns: &[&[u8]]) {
        let (limits, memory) = (self.service.limits, *self.service.database.memory());
        let settings = [
            ("appendonly", "yes".to_owned()),
            ("maxclients", self.service.connections_max.to_string()),
            ("maxmemory", memory.total_bytes.to_string()),
            ("proto-max-bulk-len", limits.value_max_bytes.to_string()),
            ("save", String::new()),
        ];

        let is_asked = |name: &str| patterns.iter().any(|pattern| matches(pattern, name.as_bytes()));
        let asked: Vec<_> = settings.iter().filter(|(name, _)| is_asked(name)).collect();

        self.reply(Reply::Array(2 * asked.len()));
        for (name, value) in asked {
            self.reply(Reply::Bulk(name.as_bytes()));
            self.reply(Reply::Bulk(value.as_bytes()));
        }
    }
}

impl Service {
    /// Returns the state of a server of `database` that starts now.
    #[must_use]
    pub fn new(database: Database, limits: Limits, connections_max: usize) -> Service {
        let (places, [refused, commands]) = (Arc::new(Semaphore::new(connections_max)), Default::default());
        Service { database, limits, connections_max, places, started: Instant::now(), refused, commands }
    }

    /// Returns the text of INFO.
    #[must_use]
    pub fn info(&self) -> String {
        let mut info = format!(
            "# Server\r\nplimsoll_kv_version:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n\
             # Clients\r\nconnected_clients:{}\r\nrejected_connections:{}\r\n\
             # Stats\r\ntotal_commands_processed:{}\r\nfree_bytes:{}\r\n# Database\r\ntotal_mem_size_bytes:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            self.started.elapsed().as_secs(),
            self.connections_max - self.places.available_permits(),
            self.refused.load(Ordering::Relaxed),
            self.commands.load(Ordering::Relaxed),
            self.database.space().free_bytes(),
            self.database.unflushed_bytes(),
        );

        for figure in FIGURES {
            let value = self.database.figure(&format!("slatedb.db.{figure}"));
            info.push_str(&format!("{figure}:{value}\r\n"));
        }

        info.push_str("# Classes\r\n");
        for class in self.database.topology().classes().list() {
            info.push_str(&format!("{}:shares={}\r\n", class.name, class.shares));
        }
        info
    }
}

/// Writes `bytes` to `writer`.
///
/// # Errors
/// The system's error, or `TimedOut` if the client takes nothing for `patience`, or less than [`BYTES_PER_S_MIN`]
/// after that.
async fn send(writer: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let longest = patience + at_least_rate(bytes.len());
    let sent = async {
        while !bytes.is_empty() {
            let written = tokio::time::timeout(patience, writer.write(bytes)).await??;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[written..];
        }
        Ok(())
    };
    tokio::time::timeout(longest, sent).await?
}

fn at_least_rate(bytes: usize) -> Duration {
    Duration::from_secs_f64(bytes as f64 / BYTES_PER_S_MIN)
}

/// Returns the longest time in which a client sends a request of `bytes` that has memory of the shared budget.
#[must_use]
pub fn transfer_timeout(bytes: usize) -> Duration {
    PATIENCE + at_least_rate(bytes)
}

#[cfg(test)]
mod tests;
