//! What a program asks of a reactor, and what it gets back: plain data.
//!
//! A [`Request`] moves its memory in; its [`Done`] (or, where it is refused, [`Refused`]) gives it back. Nothing here does
//! anything.

use std::io;
use std::sync::Arc;

use plimsoll_core::{Failure, Op};

use crate::backend::Memory;
use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;

/// What is asked of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Read into the request's buffers.
    Read {
        /// How many bytes, at most what the buffers hold.
        len_bytes: u32,
    },
    /// Write the request's buffers.
    Write {
        /// How many bytes, at most what the buffers hold.
        len_bytes: u32,
    },
    /// Make what was written durable.
    Sync {
        /// Only the data, as `fdatasync`.
        data_only: bool,
    },
    /// Give the range back to the disk.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Reserve space.
    Allocate {
        /// Length in bytes.
        len_bytes: u64,
        /// Leave the file's length as it is.
        keep_size: bool,
    },
    /// Set the length of the file. The request's offset means nothing.
    SetLen {
        /// The new length in bytes.
        len_bytes: u64,
    },
}

impl RequestKind {
    pub(crate) fn op(self) -> Op {
        match self {
            RequestKind::Read { .. } => Op::Read,
            RequestKind::Write { .. } => Op::Write,
            RequestKind::Sync { .. } => Op::Flush,
            RequestKind::Discard { .. } => Op::Discard,
            // To the scheduler both are a change of where a file lies.
            RequestKind::Allocate { .. } | RequestKind::SetLen { .. } => Op::Allocate,
        }
    }

    pub(crate) fn transfer_bytes(self) -> u32 {
        match self {
            RequestKind::Read { len_bytes } | RequestKind::Write { len_bytes } => len_bytes,
            _ => 0,
        }
    }
}

/// The memory of a request.
#[derive(Debug, Default)]
pub enum Data {
    /// None: everything but reads and writes.
    #[default]
    None,
    /// One buffer.
    One(AlignedBuf),
    /// Several, filled (or written) in order.
    Many(Vec<AlignedBuf>),
}

impl Data {
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Data::None => 0,
            Data::One(buffer) => buffer.len(),
            Data::Many(buffers) => buffers.iter().map(|b| b.len()).sum(),
        }
    }
}

/// One request of a program.
#[derive(Debug)]
pub struct Request {
    /// Of which file.
    pub file: Arc<SharedFile>,
    /// In which class.
    pub class: Class,
    /// What to do.
    pub kind: RequestKind,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// With which memory; it is the reactor's until the request is done.
    pub data: Data,
    /// The caller's name for it.
    pub tag: u64,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// [`Request::tag`].
    pub tag: u64,
    /// Bytes moved (0 for all but reads and writes), fewer than asked only where a file ends or has no room; or why not.
    pub result: Result<u32, RequestError>,
    /// The request's memory, back again. [`Data::None`] where the backend broke down (see [`RefusedReason::Broken`]) while it
    /// had the memory: the reactor keeps it then, because the system may still write to it.
    pub data: Data,
    /// From submit to the end, in nanoseconds.
    pub total_ns: u64,
}

/// Why a request did not do all that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// It failed, or was cancelled, after so many bytes.
    Failed(Failure),
    /// The I/O queue on another shard did not take it. What this shard's own queue does not take [`Reactor::submit`] says at
    /// once, for the same reasons.
    ///
    /// [`Reactor::submit`]: crate::Reactor::submit
    Refused(RefusedReason),
}

impl RequestError {
    /// An error number before the first byte.
    #[must_use]
    pub const fn failed(errno: i32) -> RequestError {
        RequestError::Failed(Failure { errno, moved_bytes: 0 })
    }

    /// The error number; of a refusal the one that comes nearest: `EAGAIN` where it may be tried again later, else `EINVAL`.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            RequestError::Failed(failure) => failure.errno,
            RequestError::Refused(reason) => reason.errno(),
        }
    }

    /// Bytes of the longest prefix that succeeded.
    #[must_use]
    pub const fn moved_bytes(&self) -> u32 {
        match self {
            RequestError::Failed(failure) => failure.moved_bytes,
            RequestError::Refused(_) => 0,
        }
    }
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RequestError::Failed(Failure { errno, moved_bytes: 0 }) => io::Error::from_raw_os_error(*errno).fmt(f),
            RequestError::Failed(Failure { errno, moved_bytes }) => {
                write!(f, "{} after {moved_bytes} bytes", io::Error::from_raw_os_error(*errno))
            }
            RequestError::Refused(reason) => reason.fmt(f),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<RequestError> for io::Error {
    /// A failure keeps its number ([`io::Error::raw_os_error`]) and loses how far it came, a refusal keeps its reason.
    fn from(error: RequestError) -> io::Error {
        match error {
            RequestError::Failed(failure) => io::Error::from_raw_os_error(failure.errno),
            RequestError::Refused(reason) => reason.into(),
        }
    }
}

/// Why a request was refused. It is given back whole.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub reason: RefusedReason,
    /// The request.
    pub request: Request,
}

/// See [`Refused`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedReason {
    /// The class is not known (any more), or is a group.
    UnknownClass,
    /// As many requests as may be are under way: wait for some, or shed load.
    Full,
    /// It would wait longer than its class allows (`Qos::max_delay_ns`): shed load.
    Overloaded {
        /// How long it would be expected to wait.
        expected_ns: u64,
    },
    /// The buffers hold fewer bytes than the request wants to move.
    BufferTooSmall,
    /// More than 1024 buffers, the most that the system takes in one call.
    TooManyBuffers,
    /// The file was made by another topology: its numbers mean nothing here.
    ForeignFile,
    /// The file is of a disk that the topology does not have.
    UnknownDisk,
    /// The backend of the shard with the I/O queue has broken down, with this error number (`ESHUTDOWN` where it gave none).
    /// The reactor takes nothing more.
    Broken {
        /// What the backend said.
        errno: i32,
    },
}

impl RefusedReason {
    /// See [`RequestError::errno`].
    pub(crate) const fn errno(self) -> i32 {
        match self {
            RefusedReason::Full | RefusedReason::Overloaded { .. } => libc::EAGAIN,
            RefusedReason::Broken { errno } => errno,
            _ => libc::EINVAL,
        }
    }
}

impl From<RefusedReason> for io::Error {
    /// [`io::ErrorKind::WouldBlock`] where it may be tried again later, else `InvalidInput`; the reason can be had again with
    /// `error.get_ref()` and `downcast_ref`. A broken backend keeps its error number instead.
    fn from(reason: RefusedReason) -> io::Error {
        match reason {
            RefusedReason::Broken { errno } => io::Error::from_raw_os_error(errno),
            RefusedReason::Full | RefusedReason::Overloaded { .. } => io::Error::new(io::ErrorKind::WouldBlock, reason),
            _ => io::Error::new(io::ErrorKind::InvalidInput, reason),
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RefusedReason::UnknownClass => "the request's class is a group, or was removed",
            RefusedReason::Full => "too many requests under way: wait for completions, or shed load",
            RefusedReason::Overloaded { expected_ns } => {
                return write!(f, "the request would wait {expected_ns} ns, longer than its class allows: shed load");
            }
            RefusedReason::BufferTooSmall => "the request's buffers hold fewer bytes than it wants to move",
            RefusedReason::TooManyBuffers => "a request takes at most 1024 buffers",
            RefusedReason::UnknownDisk => {
                "the request's file is of a disk that the topology does not have: they count from 0"
            }
            RefusedReason::ForeignFile => "the request's file was made by another topology than this shard's",
            RefusedReason::Broken { .. } => "the backend of the shard with the I/O queue has broken down",
        })
    }
}

impl std::error::Error for Refused {}

impl std::error::Error for RefusedReason {}

/// A request without memory that keeps the tag of the one that travels.
pub(crate) fn stand_in_of(request: &Request) -> Request {
    Request {
        file: request.file.clone(),
        class: request.class,
        kind: request.kind,
        offset: request.offset,
        data: Data::None,
        tag: request.tag,
    }
}

/// The part of `data` that begins at `from` and is `len` long, as a backend takes it.
pub(crate) fn memory(data: &mut Data, from: u32, len: u32, iov: &mut Option<Box<[libc::iovec]>>) -> Memory {
    match data {
        Data::None => Memory::None,
        Data::One(buffer) => match buffer.part(from as usize, len as usize) {
            Some((ptr, region)) => Memory::Contiguous { ptr, len_bytes: len, region },
            None => Memory::None,
        },
        Data::Many(buffers) => {
            let (mut skip, mut want) = (from as usize, len as usize);
            let mut list = Vec::with_capacity(buffers.len());
            for buffer in buffers {
                if skip >= buffer.len() {
                    skip -= buffer.len();
                    continue;
                }
                let take = (buffer.len() - skip).min(want);
                if take > 0
                    && let Some((ptr, _)) = buffer.part(skip, take)
                {
                    list.push(libc::iovec { iov_base: ptr.cast(), iov_len: take });
                }
                want -= take;
                skip = 0;
            }
            let list = iov.insert(list.into_boxed_slice());
            Memory::Vectored { iov: list.as_ptr(), count: list.len() as u32 }
        }
    }
}
