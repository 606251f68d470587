//! Simulated disks.

use plimsoll_core::Op;

/// One operation on its way into a simulated disk.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest {
    /// The caller's name for it, given back in [`DeviceCompletion::key`].
    pub key: u64,
    /// What to do.
    pub op: Op,
    /// Where, in bytes.
    pub offset_bytes: u64,
    /// How much, in bytes; 0 for flush.
    pub len_bytes: u32,
}

/// An operation that has come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCompletion {
    /// [`DeviceRequest::key`].
    pub key: u64,
    /// When it came back (virtual nanoseconds).
    pub at_ns: u64,
    /// Bytes moved (0 for operations without length), or a positive errno.
    pub result: Result<u32, i32>,
}
