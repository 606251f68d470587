//! The scans of a connection: cursors, and patterns of keys.
//!
//! # Why
//! SCAN reads all keys in small steps. A step must continue at the end of the last one, and an abandoned scan must not
//! keep files of the database for ever.
//!
//! # How it works
//! Cursor 0 begins a scan, which has its own reader of the keys as they are then. Each step returns a new cursor for
//! the reader; the last step returns cursor 0. A connection has at most [`SCANS_MAX`] scans; a further one ends the
//! oldest.
//!
//! # Limits
//! A cursor is valid once, on its connection, for [`LIFETIME`].
//!
//! # Example
//! `SCAN 0 COUNT 100 MATCH user:*`

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::database::Scan;

/// Most scans of a connection.
pub const SCANS_MAX: usize = 4;
/// Longest time of a scan.
pub const LIFETIME: Duration = Duration::from_secs(3600);

/// The scans of a connection.
#[derive(Default)]
pub struct Scans {
    open: VecDeque<(u64, Instant, Scan)>,
    last_cursor: u64,
}

impl Scans {
    /// Takes the scan of `cursor`, if there is one.
    pub fn take(&mut self, cursor: u64) -> Option<Scan> {
        let at = self.open.iter().position(|(known, begun, _)| *known == cursor && begun.elapsed() < LIFETIME)?;
        self.open.remove(at).map(|(_, _, scan)| scan)
    }

    /// Keeps `scan` and returns its cursor. If there are too many scans, returns the oldest too, for closing.
    pub fn keep(&mut self, scan: Scan) -> (u64, Option<Scan>) {
        let oldest = if self.open.len() == SCANS_MAX { self.open.pop_front() } else { None };
        self.last_cursor += 1;
        self.open.push_back((self.last_cursor, Instant::now(), scan));
        (self.last_cursor, oldest.map(|(_, _, scan)| scan))
    }

    /// Ends all scans.
    pub async fn close(&mut self) {
        for (_, _, scan) in self.open.drain(..) {
            scan.close().await;
        }
    }
}

/// Returns whether `key` matches `pattern`: `*` is any bytes, `?` one byte, `[a-c]` one of these, `[^a]` one other than
/// these, `\` the next byte itself.
#[must_use]
pub fn matches(pattern: &[u8], key: &[u8]) -> bool {
    // `again`: where to retry if the rest after the last `*` does not match.
    let (mut at, mut in_key, mut again) = (0, 0, None);

    loop {
        if pattern.get(at) == Some(&b'*') {
            again = Some((at + 1, in_key));
            at += 1;
            continue;
        }

        if at == pattern.len() && in_key == key.len() {
            return true;
        }

        let one = key.get(in_key).and_then(|byte| one_byte(&pattern[at..], *byte));
        match (one, again) {
            (Some(len), _) => (at, in_key) = (at + len, in_key + 1),
            (None, Some((after, from))) if from < key.len() => {
                again = Some((after, from + 1));
                (at, in_key) = (after, from + 1);
            }
            (None, _) => return false,
        }
    }
}

/// Returns the length of the first element of `pattern` if `byte` matches it.
fn one_byte(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', wanted, ..] => (*wanted == byte).then_some(2),
        [b'[', rest @ ..] => {
            let len = rest.iter().position(|end| *end == b']')?;
            let (is_negated, set) = match &rest[..len] {
                [b'^', set @ ..] => (true, set),
                set => (false, set),
            };
            let is_in = set.contains(&byte)
                || set.windows(3).any(|range| range[1] == b'-' && (range[0]..=range[2]).contains(&byte));
            (is_in != is_negated).then_some(len + 2)
        }
        [wanted, ..] => (*wanted == byte).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_redis_has_them() {
        let cases = [
            ("*", "", true),
            ("*", "anything", true),
            ("user:*", "user:1", true),
            ("user:*", "use:1", false),
            ("*:1", "user:1:1", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-c]llo", "hbllo", true),
            (r"a\*b", "a*b", true),
            (r"a\*b", "axb", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("[", "[", false),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, key, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), key.as_bytes()), expected, "{pattern} of {key}");
        }
    }
}
