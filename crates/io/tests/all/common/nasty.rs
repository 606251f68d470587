//! A backend that does what disks and kernels are allowed to do and rarely do: late completions, in another order, short
//! transfers, errors, refusals. Seeded, so that a failure comes again.
//!
//! An operation touches its memory at the very last moment, when its completion is reaped. Whoever frees the memory
//! of a request in flight is found out by [`Faults::is_live`].

use std::io;
use std::path::Path;

use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::{
    Backend, Completion, FileId, FileInfo, Kind, Memory, OpResult, OpenOptions, OpenedFile, Operation, Submit,
    WakeHandle,
};

/// What goes wrong, in percent of the operations.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    pub(crate) seed: u64,
    pub(crate) short_percent: u64,
    pub(crate) busy_percent: u64,
    pub(crate) error_percent: u64,
    /// The error.
    pub(crate) errno: i32,
    /// Finished inside `submit`.
    pub(crate) at_once_percent: u64,
    /// A completion is held back for up to so many turns.
    pub(crate) late_turns_max: u64,
    /// Operations on the file "hung" come back after so many turns.
    pub(crate) hung_turns: u64,
    /// Only transfers that touch this byte of the file fail, and always.
    pub(crate) bad_byte: Option<u64>,
    pub(crate) capacity: usize,
    /// Files are block devices of this length.
    pub(crate) device_bytes: Option<u64>,
    /// Transfers are shortened to a multiple of this.
    pub(crate) align_bytes: u32,
    /// Asked for the first byte of memory before it is touched.
    pub(crate) is_live: fn(*const u8) -> bool,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            seed: 1,
            short_percent: 0,
            busy_percent: 0,
            error_percent: 0,
            errno: libc::EIO,
            at_once_percent: 0,
            late_turns_max: 0,
            hung_turns: 0,
            bad_byte: None,
            capacity: 32,
            device_bytes: None,
            align_bytes: 512,
            is_live: |_| true,
        }
    }
}

struct Late {
    turns: u64,
    operation: Operation,
    error: Option<i32>,
}

pub(crate) struct Nasty {
    inner: MemoryBackend,
    faults: Faults,
    random: u64,
    late: Vec<Late>,
    hung: Option<FileId>,
    /// The file that is attached next is "hung": it was just opened here.
    is_next_hung: bool,
}

impl Nasty {
    pub(crate) fn new(store: &MemoryStore, faults: Faults) -> Nasty {
        Nasty {
            inner: MemoryBackend::new(store).unwrap(),
            faults,
            random: faults.seed,
            late: Vec::new(),
            hung: None,
            is_next_hung: false,
        }
    }

    pub(crate) fn boxed(faults: Faults) -> Box<dyn Backend> {
        Box::new(Nasty::new(&MemoryStore::default(), faults))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 32) % bound.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && self.below(100) < percent
    }

    fn shorten(&mut self, mut operation: Operation) -> Operation {
        match &mut operation.memory {
            Memory::Contiguous { len_bytes, .. } if *len_bytes > self.faults.align_bytes => {
                let blocks = u64::from(*len_bytes / self.faults.align_bytes);
                *len_bytes = self.faults.align_bytes * (1 + self.below(blocks) as u32).min(blocks as u32);
            }
            Memory::Vectored { count, .. } if *count > 1 => *count = 1 + self.below(u64::from(*count)) as u32,
            _ => {}
        }
        operation
    }

    fn carry_out(&mut self, late: Late) -> OpResult {
        if let Some(code) = late.error {
            return Err(code);
        }
        match late.operation.memory {
            Memory::None => {}
            Memory::Contiguous { ptr, .. } => assert!((self.faults.is_live)(ptr), "the buffer was freed in flight"),
            Memory::Vectored { iov, count } => {
                // SAFETY: the submitter keeps the list until the completion is reaped, which is now.
                for piece in unsafe { std::slice::from_raw_parts(iov, count as usize) } {
                    assert!((self.faults.is_live)(piece.iov_base.cast()), "the buffer was freed in flight");
                }
            }
        }
        // SAFETY: the submitter keeps the memory until the completion is reaped, which is now.
        match unsafe { self.inner.submit(late.operation) } {
            Submit::Done(result) => result,
            answer => panic!("a memory backend that finishes at once said {answer:?}"),
        }
    }
}

// SAFETY: memory is touched when the completion is reaped, or inside `submit`; an operation is then taken off the list. What is
// in flight at the drop is forgotten, untouched.
unsafe impl Backend for Nasty {
    fn name(&self) -> &'static str {
        "nasty"
    }

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        self.is_next_hung = path.ends_with("hung");
        self.inner.open_shared(path, options)
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        let (file, info) = self.inner.attach(file)?;
        if std::mem::take(&mut self.is_next_hung) {
            self.hung = Some(file);
        }
        let info = FileInfo { offset_align_bytes: self.faults.align_bytes, ..info };
        let device = self.faults.device_bytes.map(|len_bytes| FileInfo { is_block_device: true, len_bytes, ..info });
        Ok((file, device.unwrap_or(info)))
    }

    fn close(&mut self, file: FileId) {
        self.inner.close(file);
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.inner.file_len(file)
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.inner.set_file_len(file, len_bytes)
    }

    unsafe fn submit(&mut self, mut operation: Operation) -> Submit {
        if self.late.len() >= self.faults.capacity || self.chance(self.faults.busy_percent) {
            return Submit::Busy;
        }
        let is_transfer = matches!(operation.kind, Kind::Read | Kind::Write);
        if is_transfer && self.chance(self.faults.short_percent) {
            operation = self.shorten(operation);
        }
        let is_bad = match (self.faults.bad_byte, operation.memory) {
            (Some(byte), Memory::Contiguous { len_bytes, .. }) => {
                (operation.offset..operation.offset + u64::from(len_bytes)).contains(&byte)
            }
            _ => false,
        };
        let error = (is_bad || self.chance(self.faults.error_percent)).then_some(self.faults.errno);
        let is_hung = self.hung == Some(operation.file);
        let turns = if is_hung { self.faults.hung_turns } else { self.below(self.faults.late_turns_max + 1) };
        let late = Late { turns, operation, error };
        if self.chance(self.faults.at_once_percent) {
            return Submit::Done(self.carry_out(late));
        }
        self.late.push(late);
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        let (ripe, late): (Vec<Late>, Vec<Late>) = self.late.drain(..).partition(|late| late.turns == 0);
        self.late = late;
        for late in &mut self.late {
            late.turns -= 1;
        }
        let count = ripe.len();
        for late in ripe {
            let key = late.operation.key;
            let result = self.carry_out(late);
            sink(Completion { key, result });
        }
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        if self.late.is_empty() {
            return self.inner.wait(deadline_ns);
        }
        Ok(())
    }

    fn wake_handle(&self) -> WakeHandle {
        self.inner.wake_handle()
    }

    fn in_flight(&self) -> usize {
        self.late.len()
    }

    fn capacity(&self) -> usize {
        self.faults.capacity
    }
}
