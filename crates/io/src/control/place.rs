//! The directory of the sockets of running programs, which only their owner can enter.
//!
//! # Why
//! A user who reaches a socket can slow a program down. The directory keeps other users from the sockets, and lists the
//! programs for a client.
//!
//! # How it works
//! `$XDG_RUNTIME_DIR/plimsoll`, or `/tmp/plimsoll-UID` if that variable is not set, with mode 0700. A directory that
//! belongs to another user, or is open to others, is refused: in `/tmp` any user may have made it first. Each program
//! has `PID.sock` in it, with mode 0600. A program that died leaves its socket behind; the next program that starts
//! removes it.
//!
//! # Limits
//! One socket per process. Processes in other PID namespaces that share the directory are not listed.
//!
//! # Example
//! Process 4711 of user 1000 on a desktop listens at `/run/user/1000/plimsoll/4711.sock`.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Returns the directory of this user's sockets.
#[must_use]
pub fn directory() -> PathBuf {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match runtime {
        Some(runtime) => runtime.join("plimsoll"),
        None => in_tmp(own_uid()),
    }
}

fn in_tmp(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/plimsoll-{uid}"))
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the socket of process `pid` in `directory`.
pub(super) fn socket_in(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

/// Returns the socket of process `pid`, which may be another user's, if this user may see it and only its owner can
/// enter its directory.
#[must_use]
pub fn socket_of(pid: u32) -> Option<PathBuf> {
    let of_owner =
        owner_of(pid).map(|uid| [(PathBuf::from(format!("/run/user/{uid}/plimsoll")), uid), (in_tmp(uid), uid)]);
    let mut places = std::iter::once((directory(), own_uid())).chain(of_owner.into_iter().flatten());
    places.find_map(|(place, uid)| socket_of_user(&place, uid, pid))
}

/// Returns the socket of process `pid` in a directory that only user `uid` may be able to enter.
pub(super) fn socket_of_user(directory: &Path, uid: u32, pid: u32) -> Option<PathBuf> {
    check(directory, uid).ok()?;
    Some(socket_in(directory, pid)).filter(|path| is_socket(path))
}

pub(super) fn owner_of(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).map(|meta| meta.uid()).ok()
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Returns this user's running programs that serve a socket, by process number.
///
/// # Errors
/// If the directory cannot be read, or other users can enter it. A missing directory is not an error.
pub fn programs() -> io::Result<Vec<(u32, PathBuf)>> {
    programs_in(&directory())
}

pub(super) fn programs_in(directory: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    match check(directory, own_uid()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    }
    let entries = std::fs::read_dir(directory)?;
    let mut found: Vec<_> =
        entries.flatten().filter_map(|entry| Some((pid_of(&entry.path())?, entry.path()))).collect();
    found.retain(|(pid, path)| is_running(*pid) && is_socket(path));
    found.sort_unstable();
    Ok(found)
}

pub(super) fn pid_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".sock")?.parse().ok()
}

fn is_running(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Makes `directory` if it is missing, and checks that only this user can enter it: owner, mode, and that it is not a
/// link.
///
/// # Errors
/// The system's error; `PermissionDenied` with an explanation if other users can enter it.
pub fn prepare(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(directory, own_uid())
}

/// Checks that only user `uid` can enter the directory.
fn check(directory: &Path, uid: u32) -> io::Result<()> {
    // Do not follow a link, whose target could be changed later.
    let meta = std::fs::symlink_metadata(directory)?;
    let refused = |reason: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
    match why_unsafe(&meta, uid) {
        Some(reason) => refused(format!("{} {reason}", directory.display())),
        None => Ok(()),
    }
}

fn why_unsafe(meta: &Metadata, uid: u32) -> Option<String> {
    let mode = meta.mode() & 0o777;
    if !meta.is_dir() {
        Some("is not a directory".to_owned())
    } else if meta.uid() != uid {
        Some(format!("belongs to user {}, not to this one ({uid})", meta.uid()))
    } else if mode & 0o077 != 0 {
        Some(format!("is open to other users (mode {mode:03o}): chmod 700 it"))
    } else {
        None
    }
}

/// Removes the sockets of processes that have ended.
pub(super) fn remove_stale(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_dead = pid_of(&path).is_some_and(|pid| !is_running(pid)) && is_socket(&path);
        // The process may be running in another PID namespace.
        if is_dead && UnixStream::connect(&path).is_err() {
            // Another program may have removed it meanwhile.
            let _ = std::fs::remove_file(&path);
        }
    }
}
