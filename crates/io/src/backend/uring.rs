//! io_uring: one system call submits many operations, and completions usually need none.
//!
//! # Why
//! io_uring is Linux's cheapest interface to a disk, and the only one that is asynchronous for nearly every operation.
//!
//! # How it works
//! *Setting up.* The ring is made for one thread with deferred task work (Linux 6.1: completions are posted only when
//! this thread asks, so they do not interrupt its work); an older kernel gets the flags that it knows. A new ring first
//! completes a no-op, so that a ring that can be made but not used is detected at once.
//!
//! *Submitting.* `submit` fills an entry. `flush` enters the kernel once for all entries, and so does `wait` if there
//! is nothing to reap. Files are registered (up to [`REGISTERED_FILES`]; the kernel looks up the descriptors of the
//! rest), and memory of a registered region needs no page lookups.
//!
//! *Reaping.* With deferred task work, the kernel raises a flag in shared memory when it could post completions. `reap`
//! enters the kernel only if none has been posted and that flag (or the one for an overflow) is set.
//!
//! *Sleeping.* The ring always holds a read of the doorbell's eventfd, so one enter waits for completions and wake-ups,
//! with the deadline as its timeout. The key `u64::MAX` marks the read's completion, which is not counted.
//!
//! io_uring has no discard on a block device before Linux 6.12, and no change of length before 6.9: a helper thread
//! carries them out.
//!
//! # Limits
//! Linux 5.11 or later. Bound to the thread that made it. Memory of the ring and registered regions may count against
//! `RLIMIT_MEMLOCK`. If the kernel refuses entries for lack of memory, they stay in the ring and are offered again.
//!
//! # Example
//! Three reads are submitted (no system call). `wait(None)` enters once, submits them, and sleeps until one has
//! completed. `reap` returns its completion without a system call.

mod entry;
mod flags;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use entry::{OWN_KEY, own_or_operation, transfer_entry};
pub use flags::ENTRIES_MAX;
use flags::{FLAGS, RingFlags, set_up};
use io_uring::types::{Fd, Timespec};
use io_uring::{opcode, squeue};
use ring::Ring;

use super::doorbell::Doorbell;
use super::file::{FileTable, OsFile, close, unknown_file, validate};
use super::worker::Workers;
use super::{
    Backend, Completion, FileId, FileInfo, Kind, Memory, OpenOptions, OpenedFile, Operation, Region, RegionId,
    Returned, Submit, WakeHandle,
};
use crate::buffer::AlignedBuf;
use crate::sys::clock;

/// Operations taken at once if the caller has no preference.
pub const DEFAULT_ENTRIES: u32 = 256;

/// Most files registered with the ring.
pub const REGISTERED_FILES: u32 = 256;

/// Most memory regions registered with the ring at a time.
pub const REGISTERED_REGIONS: u32 = 64;

/// The kernel's bound for one registered region: 1 GiB.
const REGION_BYTES_MAX: usize = 1 << 30;

/// Sleep before entries that the kernel refused for lack of memory are offered again.
const RETRY: Duration = Duration::from_millis(1);

/// Attempts to submit the entries that name a closing file, [`RETRY`] apart, before the file is left open. The shard is
/// blocked meanwhile.
const CLOSE_TRIES: u32 = 100;

/// An open file, and whether the ring's file table holds it.
struct RingFile {
    os: Arc<OsFile>,
    registered: bool,
}

/// The io_uring backend: a ring of one thread.
pub struct UringBackend {
    ring: Ring,
    doorbell: Arc<Doorbell>,
    files: FileTable<RingFile>,
    /// Size of the ring's file table; 0 if the kernel has none.
    file_places: u32,
    /// The ring's region table, by place. Empty if the kernel has none.
    regions: Vec<Option<RegionId>>,
    /// Regions whose last buffer has been dropped.
    returned: Arc<Returned>,
    /// The target of the eventfd's read, which the kernel may write while the ring holds that read: entry number
    /// `wake_at`.
    wake_word: AlignedBuf,
    wake_at: Option<u64>,
    /// Entries pushed so far.
    pushed: u64,
    /// Operations pushed whose completions have not been seen.
    in_ring: usize,
    ready: VecDeque<Completion>,
    helper: Option<Workers>,
    capacity: usize,
    /// The kernel takes entries only from the thread that made the ring.
    _one_thread: PhantomData<*mut ()>,
}

impl UringBackend {
    /// Returns a backend for `entries` operations at once (clamped to 1 to [`ENTRIES_MAX`], rounded up to a power of
    /// two).
    ///
    /// # Errors
    /// `EPERM` or `ENOSYS` if io_uring is forbidden or missing, `ENOMEM` if the memlock limit is too low, `Unsupported`
    /// if the kernel is older than 5.11.
    pub fn new(entries: u32) -> io::Result<Self> {
        Self::with_flags(entries, &FLAGS)
    }

    /// Returns a backend with the first of `flags` that this kernel accepts; tests try those of older kernels.
    fn with_flags(entries: u32, flags: &[RingFlags]) -> io::Result<Self> {
        let ring = set_up(entries.clamp(1, ENTRIES_MAX).next_power_of_two(), flags)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is older than Linux 5.11"));
        }
        let capacity = ring.params().sq_entries() as usize;

        let doorbell = Doorbell::new()?;
        let wake: WakeHandle = Arc::<Doorbell>::clone(&doorbell);
        let mut backend = Self {
            ring: Ring::new(ring),
            doorbell,
            files: FileTable::new(),
            file_places: 0,
            regions: Vec::new(),
            returned: Returned::new(&wake),
            wake_word: AlignedBuf::with_align(size_of::<u64>(), align_of::<u64>())?,
            wake_at: None,
            pushed: 0,
            in_ring: 0,
            ready: VecDeque::with_capacity(capacity),
            helper: None,
            capacity,
            _one_thread: PhantomData,
        };

        backend.try_round_trip()?;
        if backend.ring.submitter().register_files_sparse(REGISTERED_FILES).is_ok() {
            backend.file_places = REGISTERED_FILES;
        }
        if backend.ring.submitter().register_buffers_sparse(REGISTERED_REGIONS).is_ok() {
            backend.regions = vec![None; REGISTERED_REGIONS as usize];
        }
        Ok(backend)
    }

    /// Sends a no-op through the ring: a sandbox may allow making a ring and forbid entering it.
    fn try_round_trip(&mut self) -> io::Result<()> {
        let entry = opcode::Nop::new().build().user_data(OWN_KEY);
        // SAFETY: a no-op names no memory.
        unsafe { self.push(&entry) }.map_err(|()| io::Error::other("a new ring is full"))?;
        loop {
            match self.ring.enter(1) {
                Ok(_) if self.ring.completion().next().is_some() => return Ok(()),
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds an entry to the ring; fails if the ring is full.
    ///
    /// # Safety
    /// The memory named by `entry` must stay valid until its completion has been seen.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> Result<(), ()> {
        // SAFETY: the caller keeps the entry's memory valid until its completion has been seen.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| ())?;
        self.pushed += 1;
        Ok(())
    }

    /// Puts a read of the eventfd into the ring unless it holds one. Returns `false` if the ring is full.
    fn arm_wake(&mut self) -> bool {
        if self.wake_at.is_none() {
            let len_bytes = size_of::<u64>() as u32;
            let read = opcode::Read::new(Fd(self.doorbell.raw_fd()), self.wake_word.as_mut_ptr(), len_bytes);
            let entry = read.build().user_data(OWN_KEY);
            // SAFETY: the backend owns the word and the eventfd, and its drop waits for this read or keeps the word.
            self.wake_at = unsafe { self.push(&entry) }.is_ok().then_some(self.pushed);
        }
        self.wake_at.is_some()
    }

    /// Returns the number of operations that the kernel has taken and not completed.
    fn in_kernel(&mut self) -> usize {
        let left = self.ring.submission().len();
        let taken = self.pushed - left as u64;
        let is_wake_left = self.wake_at.is_some_and(|number| number > taken);
        self.in_ring - (left - usize::from(is_wake_left))
    }

    /// Enters the kernel until it has taken all entries, or can take no more now.
    fn submit_entries(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.enter(0) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // EBUSY: completions must be taken first. EAGAIN: no memory in the kernel now.
                    Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Makes the kernel post the completions that it holds back (deferred task work, overflow), if its flags show any.
    fn post_held_back(&mut self) {
        let submission = self.ring.submission();
        let held_back = submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if held_back {
            // Also submits new entries, which does no harm. After an error the flags stay set, and the next flush or
            // wait meets the same error and returns it.
            let _ = self.ring.enter(0);
        }
    }

    /// Moves the posted completions to `ready`; if there are none, those held back. If there are both, the latter wait
    /// for the next enter, which also submits entries.
    fn collect_posted(&mut self) {
        if !self.collect() {
            self.post_held_back();
            self.collect();
        }
    }

    /// Moves the completion queue to `ready`. Returns whether it held any completion, including those of the ring's own
    /// entries.
    fn collect(&mut self) -> bool {
        let mut any = false;
        for entry in self.ring.completion() {
            any = true;
            match own_or_operation(entry.user_data(), entry.result()) {
                None => self.wake_at = None,
                Some(completion) => {
                    self.in_ring = self.in_ring.saturating_sub(1);
                    self.ready.push_back(completion);
                }
            }
        }
        if let Some(helper) = self.helper.as_mut() {
            helper.collect(&mut self.ready);
        }
        any
    }

    /// Unregisters the regions whose last buffer has been dropped. No operation names them any more: a buffer is kept
    /// until its operation has completed, and a region until its last buffer has been dropped.
    fn forget_regions(&mut self) {
        if !self.returned.is_any() {
            return;
        }
        for id in self.returned.take() {
            let Some(place) = self.regions.iter().position(|known| *known == Some(id)) else { continue };
            let nothing = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }];
            // SAFETY: an empty place names no memory. If this fails, the kernel keeps the old pages until the place is
            // used again; no operation names them.
            let _ = unsafe { self.ring.submitter().register_buffers_update(place as u32, &nothing, None) };
            self.regions[place] = None;
        }
    }

    /// Sleeps in the kernel once, until a completion (of the eventfd's read, too) or the deadline.
    fn sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let timeout = deadline_ns.map(|deadline_ns| {
            let (seconds, rest_ns) = clock::until(deadline_ns);
            Timespec::new().sec(seconds.min(i64::MAX as u64)).nsec(rest_ns)
        });

        let slept = match timeout.as_ref() {
            Some(timeout) => self.ring.enter_for(timeout),
            None => self.ring.enter(1),
        };

        match slept.map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR), _)) => Ok(()),
            Err((Some(libc::EBUSY | libc::EAGAIN), _)) => {
                // The kernel has no room: wait, unless there are completions to take.
                if !self.collect() {
                    std::thread::sleep(RETRY);
                }
                Ok(())
            }
            Err((_, error)) => Err(error),
        }
    }

    /// Passes an operation without memory to the helper thread, which the first one starts.
    fn submit_to_helper(&mut self, operation: Operation, file: Arc<OsFile>) -> Submit {
        if self.helper.is_none() {
            match Workers::start(1, &self.doorbell) {
                Ok(helper) => self.helper = Some(helper),
                Err(error) => return Submit::Done(Err(error.raw_os_error().unwrap_or(libc::EAGAIN))),
            }
        }
        let Some(helper) = self.helper.as_mut() else { return Submit::Busy };
        // SAFETY: only discards and changes of length come here; neither names memory.
        unsafe { helper.push(operation, file) };
        Submit::Queued
    }

    /// Returns the entry of an operation, by registered file and memory if possible.
    fn entry(&self, operation: &Operation, file: &RingFile) -> squeue::Entry {
        let region = match operation.memory {
            Memory::Contiguous { region, .. } if region.is_some() => {
                self.regions.iter().position(|known| *known == region)
            }
            _ => None,
        };
        let region = region.and_then(|place| u16::try_from(place).ok());

        let entry = if file.registered {
            // The flag makes the kernel read the number as a place in the ring's file table.
            let place = Fd(FileTable::<RingFile>::index(operation.file) as i32);
            transfer_entry(operation, place, region).flags(squeue::Flags::FIXED_FILE)
        } else {
            transfer_entry(operation, Fd(file.os.raw_fd()), region)
        };
        entry.user_data(operation.key)
    }
}

// SAFETY: only entries of this ring name an operation's memory to the kernel. Each counts in `in_ring` until its
// completion has been seen, the kernel posts one for each, and `drop` waits for all.
unsafe impl Backend for UringBackend {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }

    fn open_shared(&mut self, path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        OsFile::open_shared(path, options)
    }

    fn attach(&mut self, file: &OpenedFile) -> io::Result<(FileId, FileInfo)> {
        let (os, info) = OsFile::shared(file)?;
        let fd = os.raw_fd();
        let id = self.files.insert(RingFile { os, registered: false })?;
        let place = FileTable::<RingFile>::index(id);
        let registered = place < self.file_places
            && matches!(self.ring.submitter().register_files_update(place, &[fd]), Ok(updated) if updated == 1);
        if let Some(file) = self.files.get_mut(id) {
            file.registered = registered;
        }
        Ok((id, info))
    }

    fn close(&mut self, file: FileId) {
        let Some(known) = self.files.get(file) else { return };
        let registered = known.registered;

        // Entries that the kernel has not taken yet may name the file's place or descriptor: submit them first.
        let mut tries = 0;
        while !self.ring.submission().is_empty() {
            tries += 1;
            if tries > CLOSE_TRIES || self.submit_entries().is_err() {
                // The ring is broken, or the kernel still has no memory for the entries. They may still be executed, so
                // the file stays open until the ring's drop.
                return;
            }
            self.post_held_back();
            if !self.collect() && !self.ring.submission().is_empty() {
                std::thread::sleep(RETRY);
            }
        }

        if registered {
            let place = FileTable::<RingFile>::index(file);
            // If this fails, the place keeps the file open until it is used again or the ring is dropped.
            let _ = self.ring.submitter().register_files_update(place, &[-1]);
        }
        if let Some(file) = self.files.remove(file) {
            close(file.os);
        }
    }

    fn file_len(&mut self, file: FileId) -> io::Result<u64> {
        self.files.get(file).ok_or_else(|| unknown_file(file))?.os.len_bytes()
    }

    fn set_file_len(&mut self, file: FileId, len_bytes: u64) -> io::Result<()> {
        self.files.get(file).ok_or_else(|| unknown_file(file))?.os.file.set_len(len_bytes)
    }

    unsafe fn register_memory(&mut self, ptr: *mut u8, len_bytes: usize) -> io::Result<Region> {
        self.forget_regions();
        if self.regions.is_empty() {
            let what = "this kernel's io_uring registers no memory piece by piece: Linux 5.19 does";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        if len_bytes == 0 || len_bytes > REGION_BYTES_MAX {
            let what = format!("the kernel registers 1 byte to 1 GiB at a time, not {len_bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }

        let Some(place) = self.regions.iter().position(Option::is_none) else {
            let what =
                format!("all {REGISTERED_REGIONS} regions of this ring are in use: make fewer, larger sets of buffers");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        };
        let none_left =
            || io::Error::new(io::ErrorKind::QuotaExceeded, "the process has used up the numbers of regions");
        let region = self.returned.region().ok_or_else(none_left)?;

        let piece = [libc::iovec { iov_base: ptr.cast(), iov_len: len_bytes }];
        // SAFETY: the caller keeps the memory allocated as long as the region lives. The kernel holds its own reference
        // to the pages until the place is emptied or the ring is dropped.
        unsafe { self.ring.submitter().register_buffers_update(place as u32, &piece, None) }.map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ENOMEM) => io::Error::new(
                    error.kind(),
                    format!("the kernel will not pin {len_bytes} bytes more: raise RLIMIT_MEMLOCK (ulimit -l)"),
                ),
                _ => error,
            }
        })?;
        self.regions[place] = Some(region.id());
        Ok(region)
    }

    unsafe fn submit(&mut self, operation: Operation) -> Submit {
        if let Err(errno) = validate(&operation) {
            return Submit::Done(Err(errno));
        }
        let Some(file) = self.files.get(operation.file) else { return Submit::Done(Err(libc::EBADF)) };
        if self.in_flight() >= self.capacity {
            return Submit::Busy;
        }

        let is_helpers = match operation.kind {
            Kind::Discard { .. } => file.os.is_block_device,
            Kind::SetLen { .. } => true,
            _ => false,
        };
        if is_helpers {
            let file = Arc::clone(&file.os);
            return self.submit_to_helper(operation, file);
        }

        let entry = self.entry(&operation, file);
        // SAFETY: the caller keeps the operation's memory valid until `reap` has returned its completion.
        if unsafe { self.push(&entry) }.is_err() {
            return Submit::Busy;
        }
        self.in_ring += 1;
        Submit::Queued
    }

    fn flush(&mut self) -> io::Result<()> {
        self.submit_entries()
    }

    fn reap(&mut self, sink: &mut dyn FnMut(Completion)) -> usize {
        self.forget_regions();
        self.collect_posted();
        let count = self.ready.len();
        self.ready.drain(..).for_each(sink);
        count
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        loop {
            self.collect_posted();
            let late = deadline_ns.is_some_and(|deadline_ns| clock::now_ns() >= deadline_ns);
            if self.doorbell.take_woken() || !self.ready.is_empty() || late {
                // No sleep follows, which would submit new entries too.
                return self.submit_entries();
            }

            if !self.arm_wake() {
                self.submit_entries()?;
                if !self.arm_wake() {
                    // The kernel takes no entries now. Return soon instead of sleeping without a way to be woken.
                    std::thread::sleep(RETRY);
                    return Ok(());
                }
            }

            if self.doorbell.begin_sleep() {
                let slept = self.sleep(deadline_ns);
                self.doorbell.end_sleep();
                slept?;
            }
        }
    }

    fn wake_handle(&self) -> WakeHandle {
        Arc::<Doorbell>::clone(&self.doorbell)
    }

    fn in_flight(&self) -> usize {
        let helping = self.helper.as_ref().map_or(0, Workers::pending);
        self.in_ring + helping + self.ready.len()
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

/// The words to which the kernel may still write for rings that were dropped while a sandbox forbade to enter them.
static WORDS_LEFT: Mutex<Vec<AlignedBuf>> = Mutex::new(Vec::new());

impl Drop for UringBackend {
    /// Executes all accepted operations and waits for them: afterwards the kernel must not write to their memory. If
    /// the kernel refuses every enter, because a sandbox now forbids it, drops the operations that it has not taken. If
    /// it has taken some, waits for ever, because it may still write to memory that would be freed.
    fn drop(&mut self) {
        while self.in_ring > 0 || self.wake_at.is_some() {
            if self.wake_at.is_some() {
                self.doorbell.signal();
            }
            let Err(error) = self.ring.enter(1) else {
                self.collect();
                continue;
            };
            if self.collect() {
                continue;
            }
            if !is_for_now(&error) && self.in_kernel() == 0 {
                // The kernel cancels the read of the eventfd some time after this, so its target stays.
                let word = std::mem::replace(&mut self.wake_word, AlignedBuf::empty());
                WORDS_LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(word);
                return;
            }
            std::thread::sleep(RETRY);
        }
    }
}

/// Returns whether an enter failed for a reason that passes: a signal, full completions (EBUSY), no memory in the
/// kernel (EAGAIN).
fn is_for_now(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

#[cfg(test)]
mod tests;
