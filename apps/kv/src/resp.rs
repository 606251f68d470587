//! The Redis serialization protocol, version 2: requests in, replies out.
//!
//! # Why
//! Every language has a client for it, and redis-benchmark can measure the server. A request is always a list of
//! strings, so its parser is small, has no recursion that a client could drive, and knows the length of a value before
//! the value arrives.
//!
//! # How it works
//! [`parse`] finds in the bytes that have arrived a whole request, a partial one (with its least length), or an error
//! after which the connection cannot be understood. It copies nothing but typed words, which may have quotes.
//! [`Reply`] writes replies. [`parse_reply`] parses one reply for clients; it keeps neither values nor the elements of
//! arrays.
//!
//! # Limits
//! Bounds are in [`Limits`]. A partial request is parsed again from its beginning when more bytes arrive; with at most
//! [`ARGUMENTS_MAX`] arguments that costs little.
//!
//! # Example
//! `*1\r\n$4\r\nPING\r\n` is the request `PING`; so is the typed line `PING\r\n`.

use std::borrow::Cow;
use std::fmt;

/// Most arguments of a request, its command included. This bounds the keys of MGET and DEL.
pub const ARGUMENTS_MAX: usize = 1024;
/// Longest line: a request typed by hand, a length, or an error.
pub const LINE_MAX_BYTES: usize = 1024;

/// The bounds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest key in bytes.
    pub key_max_bytes: usize,
    /// Longest value in bytes.
    pub value_max_bytes: usize,
}

impl Limits {
    /// Returns the most bytes of a request.
    #[must_use]
    pub fn request_max_bytes(&self) -> usize {
        self.value_max_bytes + 16 * self.key_max_bytes + (64 << 10)
    }
}

/// A request at the beginning of a connection's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'b> {
    /// A whole request.
    Request {
        /// Its arguments.
        arguments: Vec<Cow<'b, [u8]>>,
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// A part of a request.
    Partial {
        /// The least length that the whole request can have, in bytes.
        least_bytes: usize,
    },
}

/// Why bytes are no request. The connection must be closed, because the beginning of the next request is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A line is too long.
    LongLine,
    /// A number was expected in a line that begins with this byte.
    Number(char),
    /// Another byte was expected.
    Byte {
        /// The byte expected.
        expected: char,
        /// The byte found.
        found: u8,
    },
    /// The number of arguments, if it is 0 or too large.
    Arguments(i64),
    /// A quote of a typed request is not closed, or no space follows it.
    Quotes,
    /// An argument is too long.
    LongArgument {
        /// Its length in bytes.
        len_bytes: i64,
        /// The most allowed.
        max_bytes: usize,
    },
    /// The request is too long as a whole.
    LongRequest {
        /// The most allowed.
        max_bytes: usize,
    },
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Protocol error: ")?;
        match self {
            ProtocolError::LongLine => write!(f, "a line has more than {LINE_MAX_BYTES} bytes"),
            ProtocolError::Number(prefix) => write!(f, "expected a number after '{prefix}'"),
            ProtocolError::Byte { expected, found } => {
                write!(f, "expected '{}', found '{}'", expected.escape_default(), found.escape_ascii())
            }
            ProtocolError::Arguments(count) => write!(f, "{count} arguments, send 1 to {ARGUMENTS_MAX}"),
            ProtocolError::Quotes => write!(f, "unbalanced quotes in request"),
            ProtocolError::LongArgument { len_bytes, max_bytes } => {
                write!(f, "an argument of {len_bytes} bytes, at most {max_bytes} are allowed")
            }
            ProtocolError::LongRequest { max_bytes } => write!(f, "a request has more than {max_bytes} bytes"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Parses the first request of `bytes`.
///
/// # Errors
/// See [`ProtocolError`].
pub fn parse<'b>(bytes: &'b [u8], limits: &Limits) -> Result<Parsed<'b>, ProtocolError> {
    if bytes.first().is_some_and(|first| *first != b'*') {
        return Ok(typed(bytes)?.map_or(Parsed::Partial { least_bytes: bytes.len() + 1 }, |found| found));
    }

    let Some((count, mut at)) = number(bytes, 0, '*')? else {
        return Ok(Parsed::Partial { least_bytes: bytes.len() + 1 });
    };
    let Some(count) = usize::try_from(count).ok().filter(|count| (1..=ARGUMENTS_MAX).contains(count)) else {
        return Err(ProtocolError::Arguments(count));
    };

    let mut arguments = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((len, begin)) = number(bytes, at, '$')? else {
            return Ok(Parsed::Partial { least_bytes: bytes.len() + 1 });
        };
        let max_bytes = limits.value_max_bytes.max(limits.key_max_bytes);
        let Some(len) = usize::try_from(len).ok().filter(|len| *len <= max_bytes) else {
            return Err(ProtocolError::LongArgument { len_bytes: len, max_bytes });
        };
        if begin + len + 2 > limits.request_max_bytes() {
            return Err(ProtocolError::LongRequest { max_bytes: limits.request_max_bytes() });
        }
        let Some(end) = bytes.get(begin + len..begin + len + 2) else {
            return Ok(Parsed::Partial { least_bytes: begin + len + 2 });
        };
        expect(end[0], '\r')?;
        expect(end[1], '\n')?;
        arguments.push(Cow::Borrowed(&bytes[begin..begin + len]));
        at = begin + len + 2;
    }

    Ok(Parsed::Request { arguments, len_bytes: at })
}

/// Parses the first line of `bytes` as a typed request. An empty line has no arguments.
fn typed(bytes: &[u8]) -> Result<Option<Parsed<'_>>, ProtocolError> {
    let Some(end) = line_end(bytes, 0)? else { return Ok(None) };

    let mut arguments = Vec::new();
    let mut rest = bytes[..end].trim_ascii_start();
    while !rest.is_empty() {
        let (word, after) = word(rest).ok_or(ProtocolError::Quotes)?;
        arguments.push(Cow::Owned(word));
        rest = after.trim_ascii_start();
    }

    Ok(Some(Parsed::Request { arguments, len_bytes: end + 1 }))
}

/// Returns the first word of a typed line, and what follows it; `None` if its quotes are wrong. A word ends with its
/// closing quote. In `"..."`, `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH` are bytes, and `\` makes another byte stand for
/// itself; in `'...'`, only a quote.
fn word(line: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut rest, mut quote) = (Vec::new(), line, None);
    loop {
        let (byte, len) = match (quote, rest) {
            (None, []) => return Some((word, rest)),
            (None, [space, ..]) if space.is_ascii_whitespace() => return Some((word, rest)),
            (None, [begin @ (b'"' | b'\''), after @ ..]) => {
                (quote, rest) = (Some(*begin), after);
                continue;
            }
            (Some(_), []) => return None,
            (Some(end), [byte, after @ ..]) if *byte == end => {
                return after.first().is_none_or(u8::is_ascii_whitespace).then_some((word, after));
            }
            (Some(b'"'), [b'\\', b'x', digits @ ..]) if hexadecimal(digits).is_some() => (hexadecimal(digits)?, 4),
            (Some(b'"'), [b'\\', escaped, ..]) => (unescaped(*escaped), 2),
            (Some(_), [b'\\', b'\'', ..]) => (b'\'', 2),
            (_, [byte, ..]) => (*byte, 1),
        };
        word.push(byte);
        rest = &rest[len..];
    }
}

/// Returns the byte of two hexadecimal digits.
fn hexadecimal(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    Some((digit(0)? << 4 | digit(1)?) as u8)
}

/// Returns the byte that `byte` stands for after a backslash.
fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

/// Returns the index of the `\n` that ends the line from `begin`, if it has arrived.
fn line_end(bytes: &[u8], begin: usize) -> Result<Option<usize>, ProtocolError> {
    let window = &bytes[begin..bytes.len().min(begin + LINE_MAX_BYTES)];
    match window.iter().position(|byte| *byte == b'\n') {
        Some(end) => Ok(Some(begin + end)),
        None if window.len() == LINE_MAX_BYTES => Err(ProtocolError::LongLine),
        None => Ok(None),
    }
}

/// Returns the number in the line at `at`, which begins with `prefix`, and the index after the line.
fn number(bytes: &[u8], at: usize, prefix: char) -> Result<Option<(i64, usize)>, ProtocolError> {
    let Some(first) = bytes.get(at) else { return Ok(None) };
    expect(*first, prefix)?;
    let Some(end) = line_end(bytes, at)? else { return Ok(None) };
    let digits = bytes[at + 1..end].strip_suffix(b"\r").ok_or(ProtocolError::Number(prefix))?;
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    Ok(Some((number.ok_or(ProtocolError::Number(prefix))?, end + 1)))
}

fn expect(found: u8, expected: char) -> Result<(), ProtocolError> {
    if char::from(found) == expected { Ok(()) } else { Err(ProtocolError::Byte { expected, found }) }
}

/// A reply of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'b> {
    /// A word, such as `OK`.
    Simple(&'b str),
    /// An error; its first word is its kind. Line ends in the text become spaces.
    Error(&'b str),
    /// A number.
    Integer(i64),
    /// A string.
    Bulk(&'b [u8]),
    /// No value.
    Null,
    /// An array; its elements follow as this number of replies.
    Array(usize),
}

impl Reply<'_> {
    /// Appends the reply to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Simple(word) => line(out, '+', word),
            Reply::Error(message) => line(out, '-', message.replace(['\r', '\n'], " ")),
            Reply::Integer(number) => line(out, ':', number),
            Reply::Bulk(bytes) => {
                line(out, '$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Reply::Null => out.extend_from_slice(b"$-1\r\n"),
            Reply::Array(len) => line(out, '*', len),
        }
    }
}

fn line(out: &mut Vec<u8>, prefix: char, content: impl fmt::Display) {
    use std::io::Write;
    // Writing to memory does not fail.
    let _ = write!(out, "{prefix}{content}\r\n");
}

/// A reply as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No error; whether the reply has a value.
    Value(bool),
    /// An error.
    Error(String),
}

/// Returns the first reply of `bytes` and its length, or `None` if it has not arrived completely.
///
/// # Errors
/// The bytes are no reply.
pub fn parse_reply(bytes: &[u8]) -> Result<Option<(Answer, usize)>, ProtocolError> {
    let (mut at, mut left) = (0, 1_u64);
    let mut answer = Answer::Value(true);

    while left > 0 {
        left -= 1;

        let Some(first) = bytes.get(at) else { return Ok(None) };
        let prefix = char::from(*first);
        match prefix {
            '+' | '-' => {
                let Some(end) = line_end(bytes, at)? else { return Ok(None) };
                if prefix == '-' {
                    answer = Answer::Error(String::from_utf8_lossy(&bytes[at + 1..end]).trim_end().to_owned());
                }
                at = end + 1;
            }
            ':' | '$' | '*' => {
                let Some((number, end)) = number(bytes, at, prefix)? else { return Ok(None) };
                let len = u64::try_from(number).ok();
                at = end;
                match (prefix, len) {
                    ('$', Some(len)) => at = at.saturating_add(len as usize).saturating_add(2),
                    ('*', Some(len)) => left = left.saturating_add(len),
                    ('$' | '*', None) if left == 0 => answer = Answer::Value(false),
                    _ => {}
                }
            }
            _ => return Err(ProtocolError::Byte { expected: '+', found: *first }),
        }
    }

    Ok((at <= bytes.len()).then_some((answer, at)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    type Words = Option<&'static [&'static [u8]]>;

    /// A quote was a byte like any other, and a value with a space was two arguments.
    #[test]
    fn typed_words_have_quotes_as_in_redis() {
        let limits = Limits { key_max_bytes: 10, value_max_bytes: 10 };
        let cases: [(&[u8], Words); 13] = [
            (b"SET ship ahoy\r\n", Some(&[b"SET", b"ship", b"ahoy"])),
            (b" \t GET  x \n", Some(&[b"GET", b"x"])),
            (b"\r\n", Some(&[])),
            (b"SET \"a ship\" ''\r\n", Some(&[b"SET", b"a ship", b""])),
            (b"a\"b c\" d'e f'\n", Some(&[b"ab c", b"de f"])),
            (b"\"\\n\\r\\t\\b\\a\\\\\\\"\\q\"\n", Some(&[b"\n\r\t\x08\x07\\\"q"])),
            (b"\"\\x00\\xfF\\xg0\"\n", Some(&[b"\x00\xffxg0"])),
            (b"'\\n \\' \"'\n", Some(&[b"\\n ' \""])),
            (b"\"open\r\n", None),
            (b"'open\n", None),
            (b"\"ends with a backslash\\\n", None),
            (b"\"a\"b\n", None),
            (b"'a''b'\n", None),
        ];
        for (line, expected) in cases {
            let parsed = parse(line, &limits);
            let shown = line.escape_ascii();
            let request = |words: &[&'static [u8]]| {
                let arguments = words.iter().map(|word| Cow::Borrowed(*word)).collect();
                Parsed::Request { arguments, len_bytes: line.len() }
            };
            assert_eq!(parsed, expected.map(request).ok_or(ProtocolError::Quotes), "{shown}");
        }
    }
}
