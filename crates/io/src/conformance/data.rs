//! Checks of files and their contents: written data is read back, and invalid operations end with an error.
//!
//! # Why
//! A wrong byte or a wrong file is a backend's worst fault.
//!
//! # How it works
//! Each check writes a pattern that differs by block and seed, and compares the data read back.
//!
//! # Limits
//! A check is skipped, with the reason, if the file system lacks an operation.
//!
//! # Example
//! `short_reads` reads over the end of a file: the first read is short, the next returns 0 bytes.

use std::io;

use super::kit::{BLOCK, Kit, Rig, Verdict, buffer, contiguous, expect, pattern, same};
use crate::backend::{AlignSource, Completion, FileId, Kind, Memory, OpenOptions, Submit};
use crate::buffer::AlignedBuf;

pub(super) fn write_and_read(kit: &mut Kit<'_>, direct: bool) -> Verdict {
    let (mut data, mut back) = (buffer(8 * BLOCK)?, buffer(8 * BLOCK)?);
    let mut rig = kit.backend()?;
    let (file, info) = kit.create(&mut rig, direct)?;
    expect("length of a new file", &info.len_bytes, &0)?;
    pattern(&mut data, 1);
    rig.all(Kind::Write, file, 0, &mut data)?;
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data read back", &back, &data)?;
    expect("length", &rig.len(file)?, &data.len().try_into().unwrap_or(0))?;
    let refused = direct && info.align_source == AlignSource::NotNeeded;
    Ok(refused.then(|| "direct I/O is refused or means nothing here; done buffered".to_owned()))
}

pub(super) fn vectored(kit: &mut Kit<'_>) -> Verdict {
    let (mut data, mut back) = (buffer(6 * BLOCK)?, buffer(6 * BLOCK)?);
    pattern(&mut data, 2);
    // Pieces of 1, 2 and 3 blocks; lists and buffers outlive the backend.
    let pieces = |bytes: &mut AlignedBuf| {
        let (first, rest) = bytes.split_at_mut(BLOCK);
        let (second, third) = rest.split_at_mut(2 * BLOCK);
        [first, second, third].map(|piece| libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() })
    };

    let (from, into) = (pieces(&mut data), pieces(&mut back));
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, true)?;
    for (kind, list) in [(Kind::Write, &from), (Kind::Read, &into)] {
        let operation = rig.operation(kind, file, 0, Memory::Vectored { iov: list.as_ptr(), count: 3 });
        expect("bytes moved", &rig.one(operation)?, &Ok(6 * BLOCK as u32))?;
    }
    same("data read back", &back, &data)?;

    let too_many = Memory::Vectored { iov: from.as_ptr(), count: 1025 };
    let operation = rig.operation(Kind::Read, file, 0, too_many);
    expect("1025 pieces", &rig.one(operation)?, &Err(libc::EINVAL))?;
    Ok(None)
}

pub(super) fn short_reads(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(2 * BLOCK)?;
    let mut rig = kit.backend()?;
    for direct in [false, true] {
        let file = kit.filled(&mut rig, direct, 2, 3)?;
        for (offset, moved) in [(0, 2 * BLOCK), (BLOCK, BLOCK), (2 * BLOCK, 0), (64 * BLOCK, 0)] {
            let result = rig.transfer(Kind::Read, file, offset as u64, &mut back)?;
            expect(&format!("read of 2 blocks at {offset} of a file of 2 blocks"), &result, &Ok(moved as u32))?;
        }
        rig.backend.set_file_len(file, 1).map_err(|error| error.to_string())?;
        expect("read of a file of one byte", &rig.transfer(Kind::Read, file, 0, &mut back)?, &Ok(1))?;
    }
    Ok(None)
}

pub(super) fn syncs(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let options = OpenOptions { write: true, create_new: true, direct: false, dsync: true, directory: false };
    let (file, _) = rig.backend.open(&kit.path(), &options).map_err(|error| error.to_string())?;
    rig.all(Kind::Write, file, 0, &mut data)?;
    for data_only in [true, false] {
        if !rig.plain(Kind::Sync { data_only }, file, 0)? {
            return Err("sync is not supported".to_owned());
        }
    }
    Ok(None)
}

pub(super) fn discard(kit: &mut Kit<'_>) -> Verdict {
    let (mut data, mut back) = (buffer(8 * BLOCK)?, buffer(8 * BLOCK)?);
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, true, 8, 4)?;
    pattern(&mut data, 4);
    if !rig.plain(Kind::Discard { len_bytes: 3 * BLOCK as u64 }, file, 2 * BLOCK as u64)? {
        return Ok(Some("the file system cannot punch holes".to_owned()));
    }
    data.iter_mut().skip(2 * BLOCK).take(3 * BLOCK).for_each(|byte| *byte = 0);
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data around and in the discarded range", &back, &data)?;
    expect("length", &rig.len(file)?, &(8 * BLOCK as u64))?;
    Ok(None)
}

pub(super) fn allocate(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, false, 1, 5)?;
    let len_bytes = 16 * BLOCK as u64;
    if !rig.plain(Kind::Allocate { len_bytes, keep_size: true }, file, 0)? {
        return Ok(Some("the file system cannot allocate ahead".to_owned()));
    }
    expect("length kept", &rig.len(file)?, &(BLOCK as u64))?;
    rig.plain(Kind::Allocate { len_bytes, keep_size: false }, file, 0)?;
    expect("length grown", &rig.len(file)?, &len_bytes)?;
    rig.all(Kind::Read, file, len_bytes - BLOCK as u64, &mut back)?;
    expect("allocated space reads as zeros", &back.iter().all(|&byte| byte == 0), &true)?;
    Ok(None)
}

pub(super) fn lengths(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let file = kit.filled(&mut rig, false, 2, 7)?;
    let mut first = buffer(2 * BLOCK)?;
    pattern(&mut first, 7);
    for len_bytes in [BLOCK as u64 - 1, 3 * BLOCK as u64, BLOCK as u64 - 1, 0] {
        expect("a length is set", &rig.plain(Kind::SetLen { len_bytes }, file, 0)?, &true)?;
        expect("length", &rig.len(file)?, &len_bytes)?;
        if len_bytes > BLOCK as u64 {
            rig.all(Kind::Read, file, 0, &mut back)?;
            let (kept, cut) = (&first[..BLOCK - 1], 0);
            same("what was kept, and a zero where it was cut", &back, &[kept, &[cut]].concat())?;
        }
    }
    let too_long = rig.operation(Kind::SetLen { len_bytes: u64::MAX }, file, 0, Memory::None);
    expect("a length beyond all files", &rig.one(too_long)?, &Err(libc::EINVAL))?;
    Ok(None)
}

pub(super) fn registered_memory(kit: &mut Kit<'_>) -> Verdict {
    const LEN_BYTES: usize = 4 * BLOCK;
    let mut wanted = buffer(LEN_BYTES)?;
    pattern(&mut wanted, 6);
    let (mut stranger, mut own);
    let mut other_rig = kit.backend()?;
    let mut rig = kit.backend()?;
    let register =
        |rig: &mut Rig| AlignedBuf::registered(2, LEN_BYTES, rig.backend.as_mut()).map_err(|e| e.to_string());
    (stranger, own) = (register(&mut other_rig)?, register(&mut rig)?);

    let (file, _) = kit.create(&mut rig, true)?;
    let mut registered = false;

    // Memory that another backend has registered must work too.
    for buffers in [&mut own, &mut stranger] {
        let [from, into] = buffers.buffers.as_mut_slice() else { return Err("not two buffers".to_owned()) };
        from.copy_from_slice(&wanted);
        for (kind, buffer) in [(Kind::Write, from), (Kind::Read, &mut *into)] {
            let (ptr, region) = buffer.part(0, LEN_BYTES).ok_or("no such part")?;
            registered |= region.is_some();
            let memory = Memory::Contiguous { ptr, len_bytes: LEN_BYTES as u32, region };
            let operation = rig.operation(kind, file, 0, memory);
            expect("bytes moved", &rig.one(operation)?, &Ok(LEN_BYTES as u32))?;
        }
        same("data read back", into, &wanted)?;
    }
    Ok((!registered).then(|| "memory is not registered here; done without".to_owned()))
}

pub(super) fn large(kit: &mut Kit<'_>) -> Verdict {
    const LEN_BYTES: usize = 16 << 20;
    let (mut data, mut back) = (buffer(LEN_BYTES)?, buffer(LEN_BYTES)?);
    let mut rig = kit.backend()?;
    let (file, _) = kit.create(&mut rig, true)?;
    pattern(&mut data, 7);
    rig.all(Kind::Write, file, 0, &mut data)?;
    rig.all(Kind::Read, file, 0, &mut back)?;
    same("data read back", &back, &data)?;
    Ok(None)
}

pub(super) fn unaligned(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(2 * BLOCK)?;
    let mut rig = kit.backend()?;
    let (file, info) = kit.create(&mut rig, true)?;
    if info.align_source == AlignSource::NotNeeded {
        return Ok(Some("direct I/O is refused or means nothing here".to_owned()));
    }
    rig.all(Kind::Write, file, 0, &mut data)?;
    for (offset, skip, len_bytes) in [(1, 0, BLOCK), (0, 1, BLOCK), (0, 0, BLOCK - 1)] {
        let part = data.get_mut(skip..skip + len_bytes).ok_or("no such part")?;
        let result = rig.transfer(Kind::Read, file, offset, part)?;
        // Some file systems (tmpfs) accept any alignment; the operation must end with a correct result.
        if !matches!(result, Err(libc::EINVAL)) && !matches!(result, Ok(moved) if moved as usize == len_bytes) {
            return Err(format!("offset {offset}, address + {skip}, length {len_bytes}: {result:?}"));
        }
    }
    Ok(None)
}

pub(super) fn exclusive_create(kit: &mut Kit<'_>) -> Verdict {
    let mut back = buffer(BLOCK)?;
    let mut wanted = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let path = kit.path();
    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let read = OpenOptions::default();

    expect("a missing file", &rig.backend.open(&path, &read).map_err(|e| e.kind()), &Err(io::ErrorKind::NotFound))?;
    let (file, _) = rig.backend.open(&path, &create).map_err(|error| error.to_string())?;
    pattern(&mut wanted, 8);
    rig.all(Kind::Write, file, 0, &mut wanted)?;
    let Err(error) = rig.backend.open(&path, &create) else { return Err("an existing file was created".to_owned()) };
    expect("kind of error", &error.kind(), &io::ErrorKind::AlreadyExists)?;
    expect("the message names the path", &error.to_string().contains(&path.display().to_string()), &true)?;

    let (again, info) = rig.backend.open(&path, &read).map_err(|error| error.to_string())?;
    expect("length after the refusal", &info.len_bytes, &(BLOCK as u64))?;
    rig.all(Kind::Read, again, 0, &mut back)?;
    same("data after the refusal", &back, &wanted)?;
    Ok(None)
}

pub(super) fn read_only(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let path = kit.path();
    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    rig.backend.open(&path, &create).map_err(|error| error.to_string())?;
    let (file, _) = rig.backend.open(&path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    expect("write", &rig.transfer(Kind::Write, file, 0, &mut data)?, &Err(libc::EBADF))?;
    Ok(None)
}

pub(super) fn bad_files(kit: &mut Kit<'_>) -> Verdict {
    let mut data = buffer(BLOCK)?;
    let mut rig = kit.backend()?;
    let (closed, _) = kit.create(&mut rig, false)?;
    rig.backend.close(closed);
    let (next, _) = kit.create(&mut rig, false)?;
    rig.backend.close(FileId(77_777));
    for file in [closed, FileId(77_777), FileId(u32::MAX)] {
        for kind in [Kind::Read, Kind::Write, Kind::Sync { data_only: true }] {
            let result = rig.transfer(kind, file, 0, &mut data)?;
            expect(&format!("{kind:?} of {file:?}"), &result, &Err(libc::EBADF))?;
        }
        expect("its length", &rig.backend.file_len(file).map_err(|e| e.kind()), &Err(io::ErrorKind::NotFound))?;
    }
    let overflow = rig.transfer(Kind::Read, next, u64::MAX, &mut data)?;
    expect("an offset past the largest", &overflow, &Err(libc::EINVAL))?;
    rig.all(Kind::Write, next, 0, &mut data)?;
    Ok(None)
}

pub(super) fn close_in_flight(kit: &mut Kit<'_>) -> Verdict {
    let (mut back, mut wanted) = (buffer(BLOCK)?, buffer(BLOCK)?);
    let mut rig = kit.backend()?;
    let other = kit.filled(&mut rig, true, 1, 10)?;
    let other_path = kit.dir.join(format!("file-{}", kit.files));
    rig.backend.close(other);
    let file = kit.filled(&mut rig, true, 1, 9)?;

    let read = rig.operation(Kind::Read, file, 0, contiguous(&mut back));
    let submitted = rig.submit(read);
    // The next file may take the place of the closed one before the kernel has seen the read.
    rig.backend.close(file);
    rig.backend.open(&other_path, &OpenOptions::default()).map_err(|error| error.to_string())?;
    if submitted == Submit::Queued {
        let done = rig.finish(1)?;
        expect("completions", &done, &vec![Completion { key: read.key, result: Ok(BLOCK as u32) }])?;
    }

    pattern(&mut wanted, 9);
    same("data of the file that was closed", &back, &wanted)?;
    Ok(None)
}
