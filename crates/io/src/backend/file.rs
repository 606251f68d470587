//! Files of the backends that use the operating system's files: opening, alignment, numbering.
//!
//! # Why
//! io_uring, Linux AIO and the pool open files in the same way, and must report the file system's limits for direct
//! I/O, and the remedy if it refuses, in the same words.
//!
//! # How it works
//! [`OsFile::open`] never truncates; with `create_new` it creates exclusively. The alignment comes from `statx`
//! (`STATX_DIOALIGN`, Linux 6.1); on an older kernel, a block device gives its sector size, and for a file a page is
//! assumed. The numbers of [`FileTable`] include a generation, so that the number of a closed file does not name the
//! next file in the same place.
//!
//! The last close of a file whose name was removed frees its space, which took 31 ms for 2 GiB on ext4. A thread of its
//! own does that ([`close`]): a database removes many files, and a shard must not stand still for each.
//!
//! # Limits
//! 65 535 files per backend. A generation recurs after 65 536 uses of the same place.
//!
//! # Example
//! The first file has number 0. It is closed; the next one takes the same place with generation 1: number 65 536. An
//! operation on file 0 now fails with `EBADF`.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, OnceLock, mpsc};

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, ioctl_blksszget, statx};

use super::{AlignSource, FileId, FileInfo, Kind, Memory, OpenOptions, OpenedFile, Operation, error_number, explained};
use crate::sys::{pin, statfs};

/// Alignment if the kernel does not report one: a page.
pub(crate) const ASSUMED_ALIGN_BYTES: u32 = 4096;

/// Most pieces of a vectored operation (`IOV_MAX` of Linux).
const IOV_MAX: u32 = 1024;

/// An open file with the properties that backends need.
#[derive(Debug)]
pub(crate) struct OsFile {
    pub(crate) file: File,
    pub(crate) is_block_device: bool,
}

impl OsFile {
    /// Opens `path`; see [`super::Backend::open`].
    pub(crate) fn open(path: &Path, options: &OpenOptions) -> io::Result<(Self, FileInfo)> {
        let file = open_file(path, options)?;
        let described = describe(path, &file, options);
        match described {
            Ok(info) => Ok((Self { file, is_block_device: info.is_block_device }, info)),
            Err(error) => {
                remove_if_created(path, options);
                Err(error)
            }
        }
    }

    /// Opens as [`OsFile::open`], for the backends of several shards.
    pub(crate) fn open_shared(path: &Path, options: &OpenOptions) -> io::Result<OpenedFile> {
        let (file, info) = Self::open(path, options)?;
        Ok(OpenedFile::new(Arc::new(file), info))
    }

    /// Returns the file that [`OsFile::open_shared`] opened, and its properties now.
    pub(crate) fn shared(opened: &OpenedFile) -> io::Result<(Arc<Self>, FileInfo)> {
        let file: Arc<Self> = opened.file()?;
        let info = FileInfo { len_bytes: file.len_bytes()?, ..opened.info() };
        Ok((file, info))
    }

    /// Returns the length in bytes now; for a block device, its size.
    pub(crate) fn len_bytes(&self) -> io::Result<u64> {
        len_bytes(&self.file, self.is_block_device)
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns whether the last close of the file frees much space: its name was removed.
    fn frees_much_space(&self) -> bool {
        // `st_blocks` counts 512 bytes, whatever the file system's block.
        self.file.metadata().is_ok_and(|of| of.nlink() == 0 && of.blocks() >= CLOSED_APART_BYTES / 512)
    }
}

/// Allocated length of a removed file from which another thread closes it, in bytes: a shorter one is freed in less time
/// than it takes to wake that thread.
const CLOSED_APART_BYTES: u64 = 1 << 20;

/// Releases `file`. If that frees much space, another thread closes it, or, if the system refuses one, this thread.
pub(crate) fn close(file: Arc<OsFile>) {
    static CLOSER: OnceLock<Option<mpsc::Sender<OsFile>>> = OnceLock::new();
    let start = || {
        let (sender, files) = mpsc::channel::<OsFile>();
        let thread = std::thread::Builder::new().name("plimsoll-close".to_owned());
        let run = move || {
            pin::unpin_current_thread();
            files.into_iter().for_each(drop);
        };
        thread.spawn(run).ok().map(|_| sender)
    };

    // The last of the backends that have the file open closes it.
    if let Some(file) = Arc::into_inner(file)
        && file.frees_much_space()
        && let Some(closer) = CLOSER.get_or_init(start)
    {
        let _ = closer.send(file);
    }
}

/// Returns the error for a file number that is not open.
pub(crate) fn unknown_file(file: FileId) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("file number {} is not open in this backend", file.0))
}

fn open_file(path: &Path, options: &OpenOptions) -> io::Result<File> {
    if options.directory && (options.write || options.create_new || options.direct || options.dsync) {
        let message = format!("cannot open {}: a directory is opened with `directory` alone", path.display());
        return Err(explained(libc::EINVAL, message));
    }

    // Create a new file without O_DIRECT and set the flag afterwards. Otherwise a file system that refuses O_DIRECT
    // would leave the new file behind although the open failed.
    let direct_at_open = options.direct && !options.create_new;

    let mut flags = 0;
    if direct_at_open {
        flags |= libc::O_DIRECT;
    }
    if options.dsync {
        flags |= libc::O_DSYNC;
    }
    if options.directory {
        flags |= libc::O_DIRECTORY;
    }

    // O_NONBLOCK: opening a named pipe must not hang. The flag is cleared below, because io_uring answers EAGAIN for
    // files with it, instead of waiting.
    flags |= libc::O_NONBLOCK;

    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(options.write || options.create_new)
        .create_new(options.create_new)
        .custom_flags(flags)
        .open(path);
    let file = opened.map_err(|error| open_error(path, options, direct_at_open, &error))?;

    let added = if options.direct && options.create_new { OFlags::DIRECT } else { OFlags::empty() };
    if let Err(errno) = fcntl_getfl(&file).and_then(|now| fcntl_setfl(&file, (now - OFlags::NONBLOCK) | added)) {
        remove_if_created(path, options);
        return Err(open_error(path, options, options.direct, &errno.into()));
    }
    Ok(file)
}

fn remove_if_created(path: &Path, options: &OpenOptions) {
    if options.create_new {
        let _ = std::fs::remove_file(path);
    }
}

fn open_error(path: &Path, options: &OpenOptions, direct: bool, error: &io::Error) -> io::Error {
    if direct && error.raw_os_error() == Some(libc::EINVAL) {
        return direct_refused(path);
    }
    let path = path.display();
    let hint = match error.kind() {
        _ if error.raw_os_error() == Some(libc::EMFILE) => ": close some, or raise `ulimit -n`",
        _ if error.raw_os_error() == Some(libc::ENFILE) => ": the whole system has too many: raise `fs.file-max`",
        io::ErrorKind::AlreadyExists => ": it is never overwritten; remove it or choose another name",
        io::ErrorKind::NotFound if options.create_new => ": its directory must exist",
        io::ErrorKind::NotFound => ": check the path, or ask for the file to be created",
        io::ErrorKind::PermissionDenied => ": check its owner and mode (block devices usually need root or group disk)",
        io::ErrorKind::NotADirectory if options.directory => ": only a directory is opened with `directory`",
        io::ErrorKind::ReadOnlyFilesystem => ": open it for reading only",
        _ => "",
    };
    explained(error_number(error), format!("cannot open {path}: {error}{hint}"))
}

fn direct_refused(path: &Path) -> io::Error {
    let message = format!(
        "cannot open {} for direct I/O: its file system ({}) refuses O_DIRECT; use a file on ext4, xfs or a block \
         device, or open it without direct I/O",
        path.display(),
        statfs::name_for_message(path)
    );
    explained(libc::EINVAL, message)
}

fn describe(path: &Path, file: &File, options: &OpenOptions) -> io::Result<FileInfo> {
    let metadata = file.metadata()?;
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.is_file() && !options.directory {
        let message = format!("cannot use {}: neither a regular file nor a block device", path.display());
        return Err(explained(libc::EINVAL, message));
    }
    let (memory_align_bytes, offset_align_bytes, align_source) =
        alignment(path, file, is_block_device, options.direct)?;
    Ok(FileInfo {
        len_bytes: len_bytes(file, is_block_device)?,
        memory_align_bytes,
        offset_align_bytes,
        align_source,
        is_block_device,
        device: if is_block_device { metadata.rdev() } else { metadata.dev() },
    })
}

/// Returns memory alignment and offset alignment, in bytes, and their source.
fn alignment(path: &Path, file: &File, is_block_device: bool, direct: bool) -> io::Result<(u32, u32, AlignSource)> {
    if !direct {
        return Ok((1, 1, AlignSource::NotNeeded));
    }
    let asked = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    if let Ok(answer) = asked
        && answer.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        return match (answer.stx_dio_mem_align, answer.stx_dio_offset_align) {
            // Zeros mean that this file cannot do direct I/O, although the open succeeded.
            (0, _) | (_, 0) => Err(direct_refused(path)),
            (memory, offset) => Ok((memory, offset, AlignSource::Kernel)),
        };
    }
    if is_block_device && let Ok(sector_bytes) = ioctl_blksszget(file) {
        return Ok((sector_bytes, sector_bytes, AlignSource::Kernel));
    }
    Ok((ASSUMED_ALIGN_BYTES, ASSUMED_ALIGN_BYTES, AlignSource::AssumedPage))
}

fn len_bytes(file: &File, is_block_device: bool) -> io::Result<u64> {
    if is_block_device {
        // The position of the file is unused: all transfers name their offset.
        let mut file = file;
        return file.seek(SeekFrom::End(0));
    }
    Ok(file.metadata()?.len())
}

/// Refuses operations that no backend can carry out, before they reach the kernel, which interprets some differently:
/// an io_uring offset of `u64::MAX` means the current file position.
pub(crate) fn validate(operation: &Operation) -> Result<(), i32> {
    let len_bytes = match (operation.kind, operation.memory) {
        (Kind::Read | Kind::Write, Memory::None) => return Err(libc::EINVAL),
        (Kind::Read | Kind::Write, Memory::Vectored { count, .. }) if count > IOV_MAX => return Err(libc::EINVAL),
        (Kind::Read | Kind::Write, Memory::Vectored { .. }) | (Kind::Sync { .. }, _) => 0,
        (Kind::Read | Kind::Write, Memory::Contiguous { len_bytes, .. }) => u64::from(len_bytes),
        (Kind::Discard { len_bytes } | Kind::Allocate { len_bytes, .. } | Kind::SetLen { len_bytes }, _) => len_bytes,
    };
    let end = operation.offset.checked_add(len_bytes).ok_or(libc::EINVAL)?;
    if operation.key == u64::MAX || end > i64::MAX as u64 { Err(libc::EINVAL) } else { Ok(()) }
}

/// Open files by number; see the module's documentation.
#[derive(Debug)]
pub(crate) struct FileTable<T> {
    places: Vec<Place<T>>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u16,
    value: Option<T>,
}

impl<T> FileTable<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    /// Inserts `value` and returns its number.
    ///
    /// # Errors
    /// If all 65 535 places are taken.
    pub(crate) fn insert(&mut self, value: T) -> io::Result<FileId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u16::try_from(self.places.len()).ok().filter(|&index| index < u16::MAX);
                let full = || explained(libc::EMFILE, "65535 files are open in this backend: close some".to_owned());
                let index = index.ok_or_else(full)?;
                self.places.push(Place { generation: 0, value: None });
                index
            }
        };

        let Some(place) = self.places.get_mut(usize::from(index)) else { return Err(io::ErrorKind::Other.into()) };
        place.value = Some(value);
        Ok(FileId(u32::from(place.generation) << 16 | u32::from(index)))
    }

    pub(crate) fn get(&self, id: FileId) -> Option<&T> {
        let place = self.places.get(Self::index(id) as usize)?;
        if u32::from(place.generation) == id.0 >> 16 { place.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, id: FileId) -> Option<&mut T> {
        let place = self.places.get_mut(Self::index(id) as usize)?;
        if u32::from(place.generation) == id.0 >> 16 { place.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, id: FileId) -> Option<T> {
        let place = self.places.get_mut(Self::index(id) as usize)?;
        if u32::from(place.generation) != id.0 >> 16 {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(Self::index(id) as u16);
        Some(value)
    }

    /// Returns the place of a number: small, and reused after a close.
    pub(crate) fn index(id: FileId) -> u32 {
        id.0 & 0xffff
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::skip::skip;

    #[test]
    fn a_closed_number_does_not_name_the_next_file() -> io::Result<()> {
        let mut table = FileTable::new();
        let first = table.insert("a")?;
        assert_eq!(table.remove(first), Some("a"));
        let second = table.insert("b")?;
        assert_eq!(FileTable::<&str>::index(first), FileTable::<&str>::index(second));
        assert_eq!((table.get(first), table.get(second)), (None, Some(&"b")));
        assert_eq!((table.remove(first), table.get(FileId(99))), (None, None));
        Ok(())
    }

    #[test]
    fn a_full_table_is_an_error() -> io::Result<()> {
        let mut table = FileTable::new();
        for _ in 0..u16::MAX {
            table.insert(())?;
        }
        assert!(table.insert(()).is_err());
        Ok(())
    }

    #[test]
    fn the_space_of_a_removed_file_is_freed_by_another_thread() -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("plimsoll-removed-{}", std::process::id()));
        let (file, _) = OsFile::open(&path, &OpenOptions { create_new: true, ..OpenOptions::default() })?;
        let other = File::open(&path)?;
        let written = file.file.write_all_at(&vec![7; 2 << 20], 0);
        let before = file.frees_much_space();
        std::fs::remove_file(&path)?;
        written?;
        assert_eq!((before, file.frees_much_space()), (false, true));

        file.file.lock()?;
        close(Arc::new(file));
        // The lock ends with the close.
        other.lock()
    }

    #[test]
    fn impossible_operations_are_refused() {
        let memory = Memory::Contiguous { ptr: std::ptr::null_mut(), len_bytes: 512, region: None };
        let vectored = |count| Memory::Vectored { iov: std::ptr::null(), count };
        let cases = [
            (1, Kind::Read, 0, memory, Ok(())),
            (u64::MAX, Kind::Read, 0, memory, Err(libc::EINVAL)),
            (1, Kind::Write, 0, Memory::None, Err(libc::EINVAL)),
            (1, Kind::Read, u64::MAX, memory, Err(libc::EINVAL)),
            (1, Kind::Read, i64::MAX as u64, memory, Err(libc::EINVAL)),
            (1, Kind::Read, 0, vectored(1024), Ok(())),
            (1, Kind::Read, 0, vectored(1025), Err(libc::EINVAL)),
            (1, Kind::Sync { data_only: true }, 0, Memory::None, Ok(())),
            (1, Kind::Discard { len_bytes: u64::MAX }, 1, Memory::None, Err(libc::EINVAL)),
        ];
        for (key, kind, offset, memory, expect) in cases {
            let operation = Operation { key, file: FileId(0), kind, offset, memory };
            assert_eq!(validate(&operation), expect, "{operation:?}");
        }
    }

    #[test]
    fn errors_name_the_path_and_what_to_do() {
        let missing = std::env::temp_dir().join("plimsoll-no-such-directory").join("file");
        for (create_new, hint) in [(false, "check the path"), (true, "directory must exist")] {
            let options = OpenOptions { create_new, ..OpenOptions::default() };
            let Err(error) = OsFile::open(&missing, &options) else { panic!("{} exists", missing.display()) };
            let text = error.to_string();
            assert!(text.contains("plimsoll-no-such-directory") && text.contains(hint), "{text}");
        }
        for (errno, hint) in [(libc::EMFILE, "raise `ulimit -n`"), (libc::ENFILE, "raise `fs.file-max`")] {
            let error = open_error(&missing, &OpenOptions::default(), false, &io::Error::from_raw_os_error(errno));
            assert!(error_number(&error) == errno && error.to_string().contains(hint), "{error}");
        }
        let Err(error) = OsFile::open(&std::env::temp_dir(), &OpenOptions::default()) else { panic!("a directory") };
        assert!(error.to_string().contains("neither a regular file"), "{error}");
    }

    #[test]
    fn a_file_system_without_direct_io_says_so_and_leaves_nothing_behind() {
        // sysfs has no O_DIRECT on any kernel.
        let path = Path::new("/sys/kernel/uevent_seqnum");
        if !path.exists() {
            skip("no /sys here");
            return;
        }
        let options = OpenOptions { direct: true, ..OpenOptions::default() };
        let Err(error) = OsFile::open(path, &options) else {
            skip("/sys takes O_DIRECT here");
            return;
        };
        let text = error.to_string();
        assert!(text.contains("sysfs") && text.contains("without direct I/O"), "{text}");
    }
}
