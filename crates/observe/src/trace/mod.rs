//! Where the time of requests went: traces of programs with this scheduler, and of the kernel's block layer.
//!
//! **Why.** A slow request waited somewhere: for its class's turn, for tokens, in the kernel, in the device, or
//! completed but not yet reaped. Only a trace tells which.
//!
//! **How.** [`read`] recognises the format and hands spans to a visitor. Each analysis is a visitor that keeps sums,
//! never the spans.
//!
//! ```text
//!  own (PLIMTRCE) --\                                 /--> stages   Q2D, D2C, C2R per class and size
//!  blkparse text ----+--> read --> Item, Item, ... --+---> gaps     waits although nothing was in the way
//!  blktrace binary --/             then a Trace       +--> little   is the limiter above the disk?
//!                                                      +-> diff     two traces of one load
//!                                                       \> export   text, CSV, Parquet, Perfetto
//! ```
//!
//! **Limits.** All times of a trace are of one clock. Memory is bounded by the requests in flight at one time, not by
//! the file.
//!
//! **Example.** The longest time that a request spent in the device:
//! ```no_run
//! use plimsoll_observe::trace;
//! use plimsoll_observe::trace::span::Item;
//!
//! let mut longest_ns = 0;
//! let trace = trace::read("requests.plt".as_ref(), &mut |item| {
//!     if let Item::Span(span) = item
//!         && let (Some(out_ns), Some(completed_ns)) = (span.out_ns(), span.completed_ns)
//!     {
//!         longest_ns = longest_ns.max(completed_ns.saturating_sub(out_ns));
//!     }
//! })?;
//! println!("{longest_ns} ns, of {} spans; {}", trace.spans, trace.lost.join("; "));
//! # Ok::<(), trace::TraceError>(())
//! ```

pub mod arrivals;
pub mod beside;
pub mod diff;
mod doubt;
pub mod export;
pub mod gaps;
pub mod kernel;
pub mod levels;
pub mod little;
pub mod order;
pub mod own;
mod parts;
pub mod show;
pub mod span;
pub mod stages;
#[cfg(test)]
#[path = "tests/story.rs"]
mod story;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use plimsoll::trace::format::OpenError;

use show::Head;
use span::{Item, Trace};

/// Why no part of a trace can be read. The caller adds the path.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot open it: {0}")]
    Open(io::Error),
    #[error("cannot read it: {0}")]
    Io(#[from] io::Error),
    /// The file begins as a program's own trace, but cannot be read as one.
    #[error("{0}")]
    Own(#[from] OpenError),
    /// The file is no trace, or of a form that is not read. The sentence names the found and the expected form.
    #[error("{0}")]
    Format(String),
}

/// Bytes at the beginning of a file that decide its format.
pub const HEAD_BYTES: u64 = 1 << 16;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 1 << 18;

/// The first four bytes of blktrace binary as a number: its magic, without the version in the lowest byte.
const BLKTRACE_MAGIC: u32 = 0x6561_7400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Own,
    Blktrace,
    Blkparse,
}

/// Hands each item of the trace at `path` (`-`: standard input) to `visit`, whatever its form, and returns its summary.
/// Damaged or missing parts are no error: see [`Trace::lost`].
pub fn read(path: &Path, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    if path == Path::new("-") {
        return read_from(io::stdin().lock(), visit);
    }
    let files = files_of(path);
    match files.as_slice() {
        [file] => read_from(File::open(file).map_err(TraceError::Open)?, visit),
        files => kernel::read_blktrace_files(files, visit),
    }
}

/// Returns the files of the trace at `path`: blktrace writes one for each CPU, and any of them stands for all.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    kernel::cpu_files(path)
}

/// Returns the names, the begin and the unix time of the trace at `path`, which a writer needs before the first item.
/// For a program's own trace this takes a fraction of the time of [`read`].
pub fn read_head(path: &Path) -> Result<Head, TraceError> {
    if let [file] = files_of(path).as_slice() {
        let mut file = File::open(file).map_err(TraceError::Open)?;
        let (form, _) = opened(&file)?;
        if form == Form::Own {
            file.rewind()?;
            return own::read_head(file);
        }
    }

    let mut head = Head::default();
    let trace = read(path, &mut |item| head.visit(&item))?;
    head.names = trace.names;
    head.unix_at_zero_ns = trace.unix_at_zero_ns.and_then(|ns| i64::try_from(ns).ok());
    Ok(head)
}

/// Does as [`read`] does, with an open file, a pipe or memory.
pub fn read_from(input: impl Read, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    let (form, mut input) = opened(input)?;
    let input: &mut dyn BufRead = &mut input;
    match form {
        Form::Own => own::read_own(&mut &mut *input, visit),
        Form::Blktrace => kernel::read_blktrace(input, visit),
        Form::Blkparse => kernel::read_blkparse(input, visit),
    }
}

/// Returns the form of a trace, and all its bytes.
fn opened(mut input: impl Read) -> Result<(Form, impl BufRead), TraceError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    let form = form_of(&head)?;
    Ok((form, Cursor::new(head).chain(BufReader::with_capacity(BUFFER_BYTES, input))))
}

/// Returns whether a file that begins with `head` is a trace, as its first [`HEAD_BYTES`] show.
pub fn is_trace(head: &[u8]) -> bool {
    form_of(head.get(..HEAD_BYTES as usize).unwrap_or(head)).is_ok()
}

fn form_of(head: &[u8]) -> Result<Form, TraceError> {
    if head.is_empty() {
        return Err(TraceError::Format("the file is empty; expected a trace".to_owned()));
    }

    if head.starts_with(b"PLIMTRCE") {
        return Ok(Form::Own);
    }

    match head.first_chunk() {
        Some(magic) if u32::from_le_bytes(*magic) & !0xff == BLKTRACE_MAGIC => return Ok(Form::Blktrace),
        Some(magic) if u32::from_be_bytes(*magic) & !0xff == BLKTRACE_MAGIC => {
            return Err(TraceError::Format(
                "blktrace binary of a big-endian machine, and little-endian is expected: print it with blkparse, and \
                 give that text"
                    .to_owned(),
            ));
        }
        _ => {}
    }

    let is_text = !head.contains(&0);
    if is_text && String::from_utf8_lossy(head).lines().any(is_blkparse) {
        return Ok(Form::Blkparse);
    }

    Err(TraceError::Format(
        "this is no trace: expected what --trace FILE wrote (it begins with PLIMTRCE), what blktrace wrote (binary), \
         or what blkparse printed (lines such as `8,0 1 5 0.000105 123 D R 2048 + 8 [name]`)"
            .to_owned(),
    ))
}

/// Returns whether a line is an event as blkparse prints it: `major,minor cpu sequence seconds pid action`.
fn is_blkparse(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let device = words.next().and_then(|word| word.split_once(','));
    let is_device = device.is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok());
    let mut is_number = || words.next().is_some_and(|word| word.parse::<u64>().is_ok());
    is_device && is_number() && is_number() && words.next().is_some_and(|word| word.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart_by_what_is_in_the_file() {
        let cases: [(&[u8], Option<Form>); 9] = [
            (b"PLIMTRCE", Some(Form::Own)),
            (&0x6561_7407_u32.to_le_bytes(), Some(Form::Blktrace)),
            (&0x6561_7407_u32.to_be_bytes(), None),
            (
                b"Input file sda.blktrace.0 added\n  8,16 7 2147  0.999400390 630169  I   W 44 + 8 [x]\n",
                Some(Form::Blkparse),
            ),
            (b"259,0 12 5 0.000005654 114067  D  WS 401408 + 8 [fio]", Some(Form::Blkparse)),
            (b"1,5 a b c", None),
            (b"", None),
            (b"{\"schema\": 1}", None),
            (b"8,0 1 1 0.5\0", None),
        ];

        for (head, form) in cases {
            assert_eq!(is_trace(head), form.is_some(), "{:?}", String::from_utf8_lossy(head));
            match (form_of(head), form) {
                (Ok(found), Some(form)) => assert_eq!(found, form),
                (Err(TraceError::Format(sentence)), None) => assert!(sentence.contains("expected"), "{sentence}"),
                other => panic!("{:?}: {other:?}", String::from_utf8_lossy(head)),
            }
        }
    }

    #[test]
    fn what_cannot_be_opened_or_is_no_file_is_told() {
        for path in ["/nonexistent/trace.plt", "/"] {
            assert!(matches!(read(path.as_ref(), &mut |_| {}), Err(TraceError::Open(_) | TraceError::Io(_))), "{path}");
        }
    }

    #[test]
    fn a_damaged_head_is_told() {
        let error = read_from(b"PLIMTRCE and then nothing".as_slice(), &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
