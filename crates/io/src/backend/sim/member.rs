//! The backend of one shard of a simulated world.
//!
//! # Why
//! The world keeps only copies of data; the callers' memory, and with it all unsafe code, stays with the shard whose
//! operations use it.
//!
//! # How it works
//! `submit` copies the data to write out of the caller's memory (unless the world keeps no contents) and launches the
//! operation; `reap` copies the data read into it. Between the two, the memory is not touched. `wait` moves the world's
//! clock, or waits for a thread that does.
//!
//! # Limits
//! After a crash of the world, its backends return their operations in flight and refuse all others.
//!
//! # Example
//! ```
//! use plimsoll::backend::sim::{SimConfig, SimWorld};
//! use plimsoll::backend::Backend;
//! let world = SimWorld::new(&SimConfig::default())?;
//! let mut backend = world.backend(8);
//! backend.wait(Some(5_000_000_000))?;
//! assert_eq!((backend.now_ns(), world.now_ns()), (5_000_000_000, 5_000_000_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use slab::Slab;

use super::flight::{Flight, Landed};
use super::machine::Member;
use super::{Machine, Pace, Shared};
use crate::backend::file::{FileTable, unknown_file, validate};
use crate::backend::{
    AlignSource, Backend, Completion, FileId, FileInfo, Kind, Memory, OpenOptions, OpenedFile, Operation, Submit, Wake,
    WakeHandle, explained,
};

/// A file as this shard has opened it.
#[derive(Clone, Copy)]
struct OpenFile {
    file: usize,
    write: bool,
    /// Offsets, lengths and addresses must be multiples of this.
    align_bytes: u32,
    dsync: bool,
}

/// An open file for all backends of its world.
struct SharedOpenFile {
    world: Arc<Shared>,
    /// The boot of the world in which it was opened.
    boot: u64,
    open: OpenFile,
}

/// The backend of one shard in a [`SimWorld`](super::SimWorld).
pub struct SimBackend {
    shared: Arc<Shared>,
    member: usize,
    boot: u64,
    capacity: usize,
    /// Whether the world keeps contents.
    keep_contents: bool,
    files: FileTable<OpenFile>,
    operations: Slab<Operation>,
    reaped: Vec<Landed>,
}

struct SimWake {
    shared: Arc<Shared>,
    member: usize,
    boot: u64,
}

impl Wake for SimWake {
    fn wake(&self) {
        let mut machine = self.shared.machine();
        if machine.boot == self.boot
            && let Some(member) = machine.members.get_mut(self.member)
        {
            member.is_woken = true;
        }
        drop(machine);
        self.shared.changed.notify_all();
    }
}

impl SimBackend {
    pub(super) fn new(shared: &Arc<Shared>, capacity: u32) -> SimBackend {
        let mut machine = shared.machine();
        let (member, boot) = (machine.members.insert(Member::default()), machine.boot);
        let keep_contents = machine.keeps_contents();
        drop(machine);
        SimBackend {
            shared: Arc::clone(shared),
            member,
            boot,
            capacity: capacity.max(1) as usize,
            keep_contents,
            files: FileTable::new(),
            operations: Slab::new(),
            reaped: Vec::new(),
        }
    }

    /// Returns the backend's number in the world.
    pub(crate) fn member(&self) -> usize {
        self.member
    }

    /// Checks `operation` and returns its flight.
    ///
    /// # Safety
    /// The operation's memory must be valid, and no other code may touch it until the call returns.
    unsafe fn flight(&self, operation: &Operation) -> Result<Flight, i32> {
        validate(operation)?;
        let open = self.files.get(operation.file).ok_or(libc::EBADF)?;
        if !open.write && !matches!(operation.kind, Kind::Read | Kind::Sync { .. }) {
            return Err(libc::EBADF);
        }
        let (mut len_bytes, mut is_aligned, mut data) = (0_usize, true, Vec::new());
        match operation.kind {
            Kind::Discard { len_bytes: 0 } | Kind::Allocate { len_bytes: 0, .. } => return Err(libc::EINVAL),
            Kind::Discard { .. } | Kind::Allocate { .. } | Kind::Sync { .. } | Kind::SetLen { .. } => {}
            Kind::Read | Kind::Write => {
                let align = open.align_bytes as usize;
                let mut measure = |ptr: *mut u8, len: usize| {
                    len_bytes = len_bytes.saturating_add(len);
                    is_aligned &= ptr.addr().is_multiple_of(align) && len.is_multiple_of(align);
                };
                // SAFETY: the caller keeps the list of pieces valid until we return.
                unsafe { each_piece(operation.memory, &mut measure) };
                is_aligned &= operation.offset.is_multiple_of(u64::from(open.align_bytes));
            }
        }

        let total_bytes = u32::try_from(len_bytes).map_err(|_| libc::EINVAL)?;
        let end_bytes = operation.offset.checked_add(u64::from(total_bytes)).ok_or(libc::EINVAL)?;
        if !is_aligned || end_bytes > i64::MAX as u64 {
            return Err(libc::EINVAL);
        }

        if operation.kind == Kind::Write && self.keep_contents {
            data.reserve_exact(len_bytes);
            let mut copy = |ptr: *mut u8, len: usize| {
                // SAFETY: the caller promises that every piece is readable and not written until we return.
                data.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr, len) });
            };
            // SAFETY: as above, for the list.
            unsafe { each_piece(operation.memory, &mut copy) };
        }

        let (file, is_dsync, kind, offset) = (open.file, open.dsync, operation.kind, operation.offset);
        Ok(Flight { member: self.member, key: 0, file, kind, offset, len_bytes: total_bytes, data, is_dsync })
    }

    /// Waits for the operations in flight. Moves the clock even if other shards have work.
    fn land_everything(&mut self) {
        loop {
            self.reap(&mut |_| {});
            let mut machine = self.shared.machine();
            let next_ns = machine.next_event_ns();
            match next_ns {
                Some(at_ns) if !self.operations.is_empty() => machine.advance_to(at_ns),
                // Hanging requests must end before their shard: their keys would name other operations of its
                // successor.
                None if !self.operations.is_empty() && machine.release_hanging() => {}
                _ => return,
            }
        }
    }

    /// Returns whether there is a reason to wake up. If not, records in the world that this shard waits.
    fn is_called(&self, machine: &mut Machine, deadline_ns: Option<u64>) -> io::Result<bool> {
        let (now_ns, boot) = (machine.now_ns, machine.boot);
        let Some(member) = machine.members.get_mut(self.member) else { return Err(dead()) };
        let is_woken = std::mem::take(&mut member.is_woken);
        let is_called = is_woken || !member.ready.is_empty() || deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        member.waiting = if is_called { None } else { Some(deadline_ns) };
        if boot == self.boot || is_called { Ok(is_called) } else { Err(dead()) }
    }
}

// SAFETY: written data is copied inside `submit`, read data just before its completion is passed to the sink; the entry
// of `operations` is removed with it, so each key is returned once. `drop` touches memory of operations in flight, then
// ends.
unsafe impl Backend for SimBackend {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn now_ns(&self) -> u64 {
        self.shared.machine().now_ns
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        let mut machine = self.shared.machine();
        if machine.boot != self.boot {
            return Err(dead());
        }
        let file = machine.open(path, options)?;
        let align_bytes = if options.direct { machine.sector_bytes() } else { 1 };
        let (len_bytes, disk) = machine.files.get(file).map_or((0, 0), |file| (file.len_bytes(), file.disk));
        drop(machine);
        let info = FileInfo {
            len_bytes,
            memory_align_bytes: align_bytes,
            offset_align_bytes: align_bytes,
            align_source: if options.direct { AlignSource::Kernel } else { AlignSource::NotNeeded },
            is_block_device: false,
            device: disk as u64,
        };

        let write = options.write || options.create_new;
        let open = OpenFile { file, write, align_bytes, dsync: options.dsync };
        Ok(OpenedFile::new(Arc::new(SharedOpenFile { world: Arc::clone(&self.shared), boot: self.boot, open }), info))
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        let shared: Arc<SharedOpenFile> = file.file()?;
        if !Arc::ptr_eq(&shared.world, &self.shared) {
            let message = "cannot use a file of another simulated world: each has its own topology".to_owned();
            return Err(explained(libc::EXDEV, message));
        }
        let machine = self.shared.machine();
        if machine.boot != self.boot || shared.boot != self.boot {
            return Err(dead());
        }
        let len_bytes = machine.files.get(shared.open.file).map_or(0, |file| file.len_bytes());
        drop(machine);
        Ok((self.files.insert(shared.open)?, FileInfo { len_bytes, ..file.info() }))
    }

    fn close(&mut self, file: FileId) {
        self.files.remove(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        let open = self.files.get(file).ok_or_else(|| unknown_file(file))?;
        let machine = self.shared.machine();
        if machine.boot != self.boot {
            return Err(dead());
        }
        machine.check_state(open.file, false).map_err(io::Error::from_raw_os_error)?;
        machine.files.get(open.file).map(|file| file.len_bytes()).ok_or_else(|| unknown_file(file))
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        let open = self.files.get(file).ok_or_else(|| unknown_file(file))?;
        if !open.write || len_bytes > i64::MAX as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut machine = self.shared.machine();
        if machine.boot != self.boot {
            return Err(dead());
        }
        machine.set_len(open.file, len_bytes)
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        // SAFETY: our caller keeps the memory valid, and leaves it alone, at least until this call returns.
        let mut flight = match unsafe { self.flight(&operation) } {
            Ok(flight) => flight,
            Err(errno) => return Submit::Done(Err(errno)),
        };

        let mut machine = self.shared.machine();
        if machine.boot != self.boot {
            return Submit::Done(Err(libc::EIO));
        }

        let is_change = !matches!(flight.kind, Kind::Read | Kind::Sync { .. });
        if let Err(errno) = machine.check_state(flight.file, is_change) {
            return Submit::Done(Err(errno));
        }
        if flight.len_bytes == 0 && matches!(flight.kind, Kind::Read | Kind::Write) {
            return Submit::Done(Ok(0));
        }
        if self.operations.len() >= self.capacity {
            return Submit::Busy;
        }

        flight.key = self.operations.insert(operation);
        machine.launch(flight);
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        let mut reaped = std::mem::take(&mut self.reaped);
        if let Some(member) = self.shared.machine().members.get_mut(self.member) {
            reaped.extend(member.ready.drain(..));
        }

        let mut count = 0;
        for Landed { key, result, data } in reaped.drain(..) {
            let Some(operation) = self.operations.try_remove(key) else { continue };
            if operation.kind == Kind::Read {
                let mut rest = data.as_slice();
                let mut copy = |ptr: *mut u8, len: usize| {
                    let (now, later) = rest.split_at(len.min(rest.len()));
                    rest = later;
                    // SAFETY: the submitter keeps every piece writable, and does not access it, until the sink below
                    // has been given the completion; `now` is our own and no longer than the piece.
                    unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), ptr, now.len()) };
                };
                // SAFETY: as above, for the list of pieces.
                unsafe { each_piece(operation.memory, &mut copy) };
            }
            sink(Completion { key: operation.key, result });
            count += 1;
        }
        self.reaped = reaped;
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let mut machine = self.shared.machine();
        loop {
            if self.is_called(&mut machine, deadline_ns)? {
                return Ok(());
            }

            match machine.pace {
                Pace::Noted => return Ok(()),
                Pace::Alone => match machine.next_event_ns().into_iter().chain(deadline_ns).min() {
                    Some(at_ns) => machine.advance_to(at_ns),
                    None => return Err(deadlock(machine.now_ns)),
                },
                Pace::Together => {
                    let next_ns = if machine.are_all_idle() { machine.next_instant_ns() } else { None };
                    if let Some(at_ns) = next_ns {
                        machine.advance_to(at_ns);
                        self.shared.changed.notify_all();
                    } else {
                        machine = self.shared.changed.wait(machine).unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::new(SimWake { shared: Arc::clone(&self.shared), member: self.member, boot: self.boot })
    }

    fn in_flight(&self) -> usize {
        self.operations.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

impl Drop for SimBackend {
    fn drop(&mut self) {
        self.land_everything();
        self.shared.machine().members.try_remove(self.member);
        // The other shards may be waiting only for this one.
        self.shared.changed.notify_all();
    }
}

fn dead() -> io::Error {
    io::Error::other("the simulated machine has crashed since this backend was made: begin again with a new one")
}

fn deadlock(now_ns: u64) -> io::Error {
    io::Error::other(format!(
        "deadlock at {} s: the shard waits, nothing is in flight and no timer is set, so nothing can ever happen",
        now_ns as f64 / 1e9
    ))
}

/// Calls `visit(first byte, length)` for every piece that is not empty.
///
/// # Safety
/// The list of a vectored memory must be valid until the call returns.
unsafe fn each_piece(memory: Memory, visit: &mut dyn FnMut(*mut u8, usize)) {
    match memory {
        Memory::None | Memory::Vectored { count: 0, .. } | Memory::Contiguous { len_bytes: 0, .. } => {}
        Memory::Contiguous { ptr, len_bytes, .. } => visit(ptr, len_bytes as usize),
        Memory::Vectored { iov, count } => {
            // SAFETY: the caller promises `count` elements at `iov` until we return.
            let pieces = unsafe { std::slice::from_raw_parts(iov, count as usize) };
            pieces
                .iter()
                .filter(|piece| piece.iov_len > 0)
                .for_each(|piece| visit(piece.iov_base.cast(), piece.iov_len));
        }
    }
}
