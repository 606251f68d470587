//! Entries of the ring, and the operations to which completions belong.
//!
//! # Why
//! Each kind of operation has its own entry, and a transfer with registered memory another.
//!
//! # How it works
//! Pure functions. [`OWN_KEY`] marks the ring's own entries.
//!
//! # Limits
//! Operations must have passed `validate`.
//!
//! # Example
//! A read into registered memory is a `ReadFixed`, any other contiguous one a `Read`.

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{opcode, squeue};

use super::super::{Completion, Kind, Memory, Operation};

/// Key of the ring's own entries; no operation has it.
pub(super) const OWN_KEY: u64 = u64::MAX;

/// Returns the completion of an operation, or `None` for one of the ring's own entries.
pub(super) fn own_or_operation(user_data: u64, result: i32) -> Option<Completion> {
    let result = u32::try_from(result).map_err(|_| result.saturating_neg());
    (user_data != OWN_KEY).then_some(Completion { key: user_data, result })
}

/// Returns the entry of an operation that has passed `validate`, so that its memory fits its kind. `region` is the
/// place of the registered region that holds the memory.
pub(super) fn transfer_entry(operation: &Operation, file: Fd, region: Option<u16>) -> squeue::Entry {
    let offset = operation.offset;
    match (operation.kind, operation.memory, region) {
        (Kind::Read, Memory::Contiguous { ptr, len_bytes, .. }, Some(region)) => {
            opcode::ReadFixed::new(file, ptr, len_bytes, region).offset(offset).build()
        }
        (Kind::Write, Memory::Contiguous { ptr, len_bytes, .. }, Some(region)) => {
            opcode::WriteFixed::new(file, ptr, len_bytes, region).offset(offset).build()
        }
        (Kind::Read, Memory::Contiguous { ptr, len_bytes, .. }, None) => {
            opcode::Read::new(file, ptr, len_bytes).offset(offset).build()
        }
        (Kind::Write, Memory::Contiguous { ptr, len_bytes, .. }, None) => {
            opcode::Write::new(file, ptr, len_bytes).offset(offset).build()
        }
        (Kind::Read, Memory::Vectored { iov, count }, _) => opcode::Readv::new(file, iov, count).offset(offset).build(),
        (Kind::Write, Memory::Vectored { iov, count }, _) => {
            opcode::Writev::new(file, iov, count).offset(offset).build()
        }
        (Kind::Sync { data_only }, ..) => {
            let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(file).flags(flags).build()
        }
        (Kind::Discard { len_bytes }, ..) => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(file, len_bytes).offset(offset).mode(mode).build()
        }
        (Kind::Allocate { len_bytes, keep_size }, ..) => {
            let mode = if keep_size { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
            opcode::Fallocate::new(file, len_bytes).offset(offset).mode(mode).build()
        }
        // Not reached, and harmless: the helper sets lengths, and `validate` refuses transfers without memory.
        (Kind::SetLen { .. }, ..) | (Kind::Read | Kind::Write, Memory::None, _) => opcode::Nop::new().build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_completions_are_told_from_operations() {
        let cases = [
            (OWN_KEY, 8, None),
            (3, 8, Some(Ok(8))),
            (3, -libc::EIO, Some(Err(libc::EIO))),
            (0, i32::MIN, Some(Err(i32::MAX))),
        ];
        for (key, result, expect) in cases {
            assert_eq!(own_or_operation(key, result), expect.map(|result| Completion { key, result }));
        }
    }
}
