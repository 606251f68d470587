//! The command SCAN.
//!
//! # Why
//! Of the commands it alone lasts over several requests, and needs a flush before it begins.
//!
//! # How it works
//! Cursor 0 begins a scan in a place of [`crate::scans`]; each step takes the scan from there, reads COUNT keys or
//! [`OUTPUT_BYTES`] of those that match, and puts it back under its next cursor.
//!
//! # Limits
//! See [`crate::scans`].
//!
//! # Example
//! `SCAN 0 MATCH user:* COUNT 100`

use std::time::{Duration, Instant};

use tokio::io::AsyncWrite;

use super::{OUTPUT_BYTES, Session};
use crate::database::Scan;
use crate::resp::Reply;
use crate::scans::{LIFETIME, matches};

/// Time that a scan has to begin on a full disk. Below the reserve there is mostly space for the flush that it needs.
const SCAN_PATIENCE: Duration = Duration::from_secs(5);
/// Most keys that a step of a scan reads.
const SCAN_COUNT_MAX: u64 = 100_000;
/// Longest pattern: a scan compares each key with it.
const PATTERN_MAX_BYTES: usize = 1 << 10;

impl<W: AsyncWrite + Unpin> Session<W> {
    pub(super) async fn scan(&mut self, cursor: &[u8], options: &[&[u8]]) {
        let (cursor, count, pattern) = match scan_options(cursor, options) {
            Ok(read) => read,
            Err(message) => return self.error(message),
        };
        let (mut scan, place) = match self.shared.scans.take(self.owner, cursor) {
            Some(taken) => taken,
            None if cursor > 0 => return self.no_cursor(),
            None => {
                let Some((place, ended)) = self.shared.scans.begin(self.owner, Instant::now()) else {
                    let most = self.service.database.memory().scans_max;
                    return self.error(&format!(
                        "OOM {most} scans are under way: repeat it later, or give the server more --memory"
                    ));
                };
                if let Some(ended) = ended {
                    ended.close().await;
                }
                match self.begin_scan().await {
                    Ok(scan) => (scan, place),
                    Err(message) => return self.error(&message),
                }
            }
        };
        if place.has_expired(Instant::now()) {
            scan.close().await;
            return self.no_cursor();
        }

        let (mut keys, mut keys_count) = (Vec::new(), 0);
        let mut is_over = false;
        for _ in 0..count {
            // COUNT bounds the keys, not their bytes.
            if keys.len() >= OUTPUT_BYTES {
                break;
            }
            // Keys in memory never wait, and each may be compared for milliseconds: other clients have their turn.
            tokio::task::consume_budget().await;
            match scan.next().await {
                Ok(Some((key, _))) if matches(pattern, &key) => {
                    Reply::Bulk(&key).write(&mut keys);
                    keys_count += 1;
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    is_over = true;
                    break;
                }
                Err(error) => {
                    scan.close().await;
                    return self.failed(&error);
                }
            }
        }

        let cursor = if is_over {
            scan.close().await;
            0
        } else {
            self.shared.scans.keep(self.owner, scan, place, Instant::now())
        };

        self.reply(Reply::Array(2));
        self.reply(Reply::Bulk(cursor.to_string().as_bytes()));
        self.reply(Reply::Array(keys_count));
        self.output.append(&mut keys);
    }

    fn no_cursor(&mut self) {
        self.error("ERR no such cursor: a cursor is good once, on its own connection; begin with 0");
    }

    /// Begins a scan. Returns the error for the client if that failed, or takes longer than [`SCAN_PATIENCE`] on a full
    /// disk.
    async fn begin_scan(&self) -> Result<Scan, String> {
        let full = async {
            tokio::time::sleep(SCAN_PATIENCE).await;
            self.service.database.space().until_full("the scan has not begun: it waits for memory to be flushed").await
        };
        tokio::select! {
            begun = self.service.database.scan(LIFETIME) => begun.map_err(|error| format!("ERR {error}")),
            refusal = full => Err(refusal),
        }
    }
}

/// Parses the arguments of SCAN: the cursor, the count of keys to read, and the pattern.
fn scan_options<'a>(cursor: &[u8], options: &[&'a [u8]]) -> Result<(u64, u64, &'a [u8]), &'static str> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok());
    let cursor = number(cursor).ok_or("ERR invalid cursor: it is a number, 0 to begin")?;
    let (mut count, mut pattern) = (10, &b"*"[..]);
    for option in options.chunks(2) {
        match option {
            [name, word] if name.eq_ignore_ascii_case(b"COUNT") => {
                let asked = number(word).filter(|count| (1..=SCAN_COUNT_MAX).contains(count));
                count = asked.ok_or("ERR COUNT is a number from 1 to 100000")?;
            }
            [name, word] if name.eq_ignore_ascii_case(b"MATCH") => {
                let short = (word.len() <= PATTERN_MAX_BYTES).then_some(*word);
                pattern = short.ok_or("ERR a pattern has at most 1024 bytes")?;
            }
            _ => return Err("ERR syntax error: SCAN cursor [MATCH pattern] [COUNT count]"),
        }
    }
    Ok((cursor, count, pattern))
}
