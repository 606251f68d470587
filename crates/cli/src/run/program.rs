//! Checks before the program starts whether the library can be loaded into it, so that it does not run unmanaged.
//!
//! # How it works
//! The file is found as a shell finds it. Its ELF header is compared with the library's: class, machine, and the
//! dynamic linker. A script is judged by its interpreter.
//!
//! # Limits
//! Programs that the program starts are not checked.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Most scripts interpreted by scripts, as in the kernel.
const SCRIPTS_MAX: usize = 4;

/// Finds the program that `name` names, and checks it.
pub(super) fn check(name: &str, library: &Path) -> Result<PathBuf, Failure> {
    let path = find(name)?;
    let mut judged = path.clone();
    for _ in 0..SCRIPTS_MAX {
        match interpreter(&judged)? {
            Some(interpreter) => judged = find(&interpreter)?,
            None => break,
        }
    }
    check_elf(&judged, library)?;
    Ok(path)
}

fn find(name: &str) -> Result<PathBuf, Failure> {
    let is_program = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0);
    if name.contains('/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Err(error) => Err(Failure::Input(format!("{name}: {error}"))),
            Ok(_) if !is_program(&path) => {
                Err(Failure::Input(format!("{name} is not a program: it cannot be executed")))
            }
            Ok(_) => Ok(path),
        };
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&directories).map(|directory| directory.join(name));
    found.find(|path| is_program(path)).ok_or_else(|| Failure::Input(format!("there is no program `{name}` in PATH")))
}

/// Returns the interpreter, if the file is a script.
fn interpreter(path: &Path) -> Result<Option<String>, Failure> {
    let head = head(path)?;
    let Some(rest) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or(rest);
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let interpreter = words.next().map(str::to_owned);
    // For `env`, the interpreter is its next word.
    let is_env = interpreter.as_deref().is_some_and(|it| it.ends_with("/env"));
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
    Ok(if is_env { named.map(str::to_owned).or(interpreter) } else { interpreter })
}

fn head(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut head = vec![0; 4096];
    let read = File::open(path).and_then(|file| file.read_at(&mut head, 0));
    let read = read.map_err(|error| Failure::Input(format!("cannot look into {}: {error}", path.display())))?;
    head.truncate(read);
    Ok(head)
}

/// Fields of an ELF file that decide whether the library can be loaded.
#[derive(Debug, PartialEq, Eq)]
struct Elf {
    /// Class and byte order.
    form: [u8; 2],
    machine: u16,
    linker: Option<String>,
}

/// Reads a header. Returns `None` if it cannot be read.
fn elf(head: &[u8], file: &File) -> Option<Elf> {
    let form = [*head.get(4)?, *head.get(5)?];
    let machine = number(head, 18, 2)? as u16;
    if form != [2, 1] {
        return Some(Elf { form, machine, linker: None });
    }
    let (offset, entry_bytes, entries) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?.min(64));
    let mut linker = None;
    for entry in 0..entries {
        let mut header = [0; 56];
        file.read_exact_at(&mut header, offset.checked_add(entry * entry_bytes)?).ok()?;
        // PT_INTERP
        if number(&header, 0, 4)? == 3 {
            let mut name = vec![0; usize::try_from(number(&header, 32, 8)?).ok()?.min(4096)];
            file.read_exact_at(&mut name, number(&header, 8, 8)?).ok()?;
            linker = Some(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned());
        }
    }
    Some(Elf { form, machine, linker })
}

/// Returns the little-endian number in `len` bytes from `at` on.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn check_elf(path: &Path, library: &Path) -> Result<(), Failure> {
    let name = path.display();
    let refuse = |why: String| Err(Failure::Input(format!("{name} {why}")));
    let header = head(path)?;
    if !header.starts_with(b"\x7fELF") {
        return refuse("is neither an ELF program nor a script: it cannot be run with the library".to_owned());
    }
    let open = |path: &Path| File::open(path).map_err(|error| Failure::Machine(format!("{}: {error}", path.display())));

    let (file, library_file) = (open(path)?, open(library)?);
    let (program, ours) = (elf(&header, &file), elf(&head(library)?, &library_file));
    let (Some(program), Some(ours)) = (program, ours) else {
        return refuse("has an ELF header that cannot be read".to_owned());
    };

    if (program.form, program.machine) != (ours.form, ours.machine) {
        return refuse(format!(
            "is for another architecture than {} (machine {}, not {}): the library cannot be loaded into it",
            library.display(),
            program.machine,
            ours.machine
        ));
    }

    let Some(linker) = program.linker else {
        return refuse(
            "is a static program: there is no dynamic linker in it that would load the library, so its I/O cannot be managed"
                .to_owned(),
        );
    };

    if linker.contains("musl") {
        return refuse(format!("is built for another C library ({linker}), and ours for glibc"));
    }

    let meta = file.metadata().map_err(|error| Failure::Machine(format!("{name}: {error}")))?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mode = meta.permissions().mode();
    if mode & 0o4000 != 0 && meta.uid() != uid || mode & 0o2000 != 0 && meta.gid() != gid {
        return refuse(
            "is a setuid or setgid program: the dynamic linker loads no library of another user into it; run it as its owner"
                .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &Path) -> String {
        check_elf(path, &std::env::current_exe().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn what_the_library_cannot_be_loaded_into_is_told() {
        let own = std::env::current_exe().unwrap();
        assert!(check_elf(&own, &own).is_ok());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        std::fs::write(&path, "plain text").unwrap();
        assert!(refused(&path).contains("neither an ELF program nor a script"));
        let mut bytes = std::fs::read(&own).unwrap();
        bytes[18] = 8;
        std::fs::write(&path, &bytes).unwrap();
        assert!(refused(&path).contains("another architecture"));
        bytes[18] = std::fs::read(&own).unwrap()[18];
        // Without program headers there is no linker.
        bytes[56] = 0;
        bytes[57] = 0;
        std::fs::write(&path, &bytes).unwrap();
        assert!(refused(&path).contains("a static program"));
    }

    #[test]
    fn scripts_are_judged_by_their_interpreters() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        for (first, expected) in [
            ("#!/bin/sh -e\n", Some("/bin/sh")),
            ("#! /usr/bin/env -S A=b python3 -u\n", Some("python3")),
            ("#!/usr/bin/env bash\n", Some("bash")),
            ("echo\n", None),
        ] {
            std::fs::write(&path, first).unwrap();
            assert_eq!(interpreter(&path).unwrap().as_deref(), expected);
        }
    }
}
