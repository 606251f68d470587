//! A program's requests to a reactor, and their results: plain data.
//!
//! A [`Request`] moves its memory in; its [`Done`] (or its [`Refused`]) gives it back. Nothing here acts.

use std::io;
use std::sync::Arc;

use plimsoll_core::{Failure, Op};

use crate::backend::Memory;
use crate::buffer::AlignedBuf;
use crate::class::Class;
use crate::file::SharedFile;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads into the request's buffers.
    Read {
        /// Bytes to read, at most as many as the buffers hold.
        len_bytes: u32,
    },
    /// Writes the request's buffers.
    Write {
        /// Bytes to write, at most as many as the buffers hold.
        len_bytes: u32,
    },
    /// Makes completed writes durable.
    Sync {
        /// Whether to sync only the data, as `fdatasync`.
        data_only: bool,
    },
    /// Frees the space of the range.
    Discard {
        /// Length in bytes.
        len_bytes: u64,
    },
    /// Reserves space.
    Allocate {
        /// Length in bytes.
        len_bytes: u64,
        /// Whether the file's length stays as it is.
        keep_size: bool,
    },
    /// Sets the length of the file. The request's offset is ignored.
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
            // The scheduler treats both alike: both change the file's extents.
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
    /// No memory: every operation but reads and writes.
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
    /// The file to operate on.
    pub file: Arc<SharedFile>,
    /// Its class.
    pub class: Class,
    /// The operation.
    pub kind: RequestKind,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Its memory, owned by the reactor until the request is done.
    pub data: Data,
    /// The caller's name for the request, returned in [`Done::tag`].
    pub tag: u64,
}

/// The name of a request under way, for [`Reactor::cancel`](crate::Reactor::cancel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) key: u32,
    pub(crate) serial: u32,
}

/// A request that has ended.
#[derive(Debug)]
pub struct Done {
    /// [`Request::tag`].
    pub tag: u64,
    /// Bytes moved (0 for all but reads and writes): fewer than requested only at the end of the file or if the disk is
    /// full. Or the error.
    pub result: Result<u32, RequestError>,
    /// The request's memory, returned. [`Data::None`] if the backend broke down (see [`RefusedReason::Broken`]) while
    /// it had the memory: the reactor keeps it then, because the system may still write to it.
    pub data: Data,
    /// Time from submit to the end, in nanoseconds.
    pub total_ns: u64,
}

/// The error of a request that was not carried out in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The request failed or was cancelled, possibly after moving some bytes.
    Failed(Failure),
    /// The I/O queue, on another shard, refused the request. Refusals by this shard's own queue, for the same reasons,
    /// are returned at once by [`Reactor::submit`].
    ///
    /// [`Reactor::submit`]: crate::Reactor::submit
    Refused(RefusedReason),
}

impl RequestError {
    /// Returns a failure with this error number that moved no bytes.
    #[must_use]
    pub const fn failed(errno: i32) -> RequestError {
        RequestError::Failed(Failure { errno, moved_bytes: 0 })
    }

    /// Returns the error number; for a refusal the nearest one: `EAGAIN` if it may be tried again later, else `EINVAL`.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            RequestError::Failed(failure) => failure.errno,
            RequestError::Refused(reason) => reason.errno(),
        }
    }

    /// Returns the bytes of the longest prefix that succeeded.
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
    /// Keeps the number of a failure ([`io::Error::raw_os_error`]), but not its moved bytes; keeps the reason of a
    /// refusal.
    fn from(error: RequestError) -> io::Error {
        match error {
            RequestError::Failed(failure) => io::Error::from_raw_os_error(failure.errno),
            RequestError::Refused(reason) => reason.into(),
        }
    }
}

/// A refused request, returned with its memory.
#[derive(Debug)]
pub struct Refused {
    /// The reason.
    pub reason: RefusedReason,
    /// The request.
    pub request: Request,
}

/// The reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusedReason {
    /// The class is unknown, was removed, or is a group.
    UnknownClass,
    /// The shard's most requests are under way: wait for some, or shed load.
    Full,
    /// The request would wait longer than its class allows (`Qos::max_delay_ns`): shed load.
    Overloaded {
        /// Its expected wait, in nanoseconds.
        expected_ns: u64,
    },
    /// The buffers hold fewer bytes than the request is to move.
    BufferTooSmall,
    /// More than 1024 buffers, the system's limit for one call.
    TooManyBuffers,
    /// Another topology made the file: its numbers mean nothing here.
    ForeignFile,
    /// The file is on a disk that the topology does not have.
    UnknownDisk,
    /// The backend of the shard with the I/O queue has broken down, with this error number (`ESHUTDOWN` if it gave
    /// none). The reactor accepts no further requests.
    Broken {
        /// The backend's error number.
        errno: i32,
    },
}

impl RefusedReason {
    /// Returns the error number, as [`RequestError::errno`].
    pub(crate) const fn errno(self) -> i32 {
        match self {
            RefusedReason::Full | RefusedReason::Overloaded { .. } => libc::EAGAIN,
            RefusedReason::Broken { errno } => errno,
            _ => libc::EINVAL,
        }
    }
}

impl From<RefusedReason> for io::Error {
    /// Returns [`io::ErrorKind::WouldBlock`] if the request may be tried again later, else `InvalidInput`;
    /// `error.get_ref()` and `downcast_ref` give the reason back. A broken backend keeps its error number instead.
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
            RefusedReason::UnknownClass => {
                "the request's class is a group, was removed, or is of another registry than the topology's"
            }
            RefusedReason::Full => "too many requests under way: wait for completions, or shed load",
            RefusedReason::Overloaded { expected_ns } => {
                return write!(f, "the request would wait {expected_ns} ns, longer than its class allows: shed load");
            }
            RefusedReason::BufferTooSmall => "the request's buffers hold fewer bytes than it wants to move",
            RefusedReason::TooManyBuffers => "a request takes at most 1024 buffers",
            RefusedReason::UnknownDisk => {
                "the request's file is of a disk that the topology does not have: they count from 0"
            }
            RefusedReason::ForeignFile => {
                "the request's file was made by another topology than this shard's: open it by this one"
            }
            RefusedReason::Broken { .. } => "the backend of the shard with the I/O queue has broken down",
        })
    }
}

impl std::error::Error for Refused {}

impl std::error::Error for RefusedReason {}

/// Returns a copy of the request without memory, for the sender to keep while the request travels.
pub(crate) fn without_memory(request: &Request) -> Request {
    Request {
        file: request.file.clone(),
        class: request.class,
        kind: request.kind,
        offset: request.offset,
        data: Data::None,
        tag: request.tag,
    }
}

/// Returns the `len` bytes of `data` from `from` on, in the form that a backend takes.
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
