//! A full disk: writes are refused with a reason, reads go on, and writes too once there is space.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
#[path = "../../../crates/skip.rs"]
mod skip;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, Server, request};

/// Writes of a pipeline.
const ROUND: usize = 40;

/// A small file system in memory, unmounted when dropped.
struct SmallDisk<'p>(&'p Path);

impl SmallDisk<'_> {
    /// Mounts it at `path`. If that is not possible, reports the test as skipped.
    fn mount(path: &Path) -> Option<SmallDisk<'_>> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64m", "tmpfs"]).arg(path).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            skip::skip("a file system in memory can be mounted by root alone");
            return None;
        }
        Some(SmallDisk(path))
    }

    /// Leaves not a byte of it free. Returns the file that takes the room.
    fn fill(&self) -> PathBuf {
        let ballast = self.0.join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
        ballast
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_writes_and_recovers() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(directory.path()) else { return };
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");

    let ballast = directory.path().join("ballast");
    std::fs::write(&ballast, vec![1; 51 << 20]).unwrap();
    let until = |expected: &str| {
        let begun = Instant::now();
        loop {
            let answer = server.typed("SET more ahoy");
            if answer.starts_with(expected) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "{answer}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let refusal = until("-DISKFULL ");
    assert!(refusal.contains("nothing was written") && refusal.lines().count() == 1, "{refusal}");
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");
    assert!(server.typed("DEL ship").starts_with("-DISKFULL "));

    std::fs::remove_file(&ballast).unwrap();
    until("+OK");
    assert_eq!(server.typed("GET more"), "$4\r\nahoy\r\n");
    assert!(server.stop().success());
}

/// The reserve of the tree was kept there too, although the log has made its files at the start.
#[test]
fn a_disk_that_has_the_log_alone_may_be_full() {
    let [directory, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let Some(disk) = SmallDisk::mount(elsewhere.path()) else { return };
    let server = Server::start(directory.path(), &["--commitlog-dir", elsewhere.path().to_str().unwrap()]);
    let _ballast = disk.fill();
    // It looks at the free space every 100 ms.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");

    // Each takes a block of the log, which has 1536: the tables are flushed before they are full, and the files used
    // again.
    let begun = Instant::now();
    for key in 0..4000 {
        while server.typed(&format!("SET {key} ahoy")) != "+OK\r\n" {
            assert!(begun.elapsed() < PATIENCE, "at key {key}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert_eq!(server.typed("GET 3999"), "$4\r\nahoy\r\n");
    assert!(server.stop().success());
}

#[test]
fn a_scan_does_not_wait_for_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path()) else { return };
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");

    // Not a byte is left for the flush that a scan needs.
    let ballast = disk.fill();
    let refusal = server.typed("SCAN 0");
    assert!(refusal.starts_with("-DISKFULL ") && refusal.contains("the scan has not begun"), "{refusal}");
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");

    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(server.typed("SCAN 0"), "*2\r\n$1\r\n0\r\n*1\r\n$4\r\nship\r\n");
    assert!(server.stop().success());
}

/// The memory cannot be written to files, so the first signal ends the server only after half a minute.
#[test]
fn a_second_signal_ends_a_server_whose_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path()) else { return };
    let mut server = Server::start(directory.path(), &[]);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    let ballast = disk.fill();

    server.terminate();
    let begun = Instant::now();
    let ended = loop {
        if let Some(ended) = server.ended() {
            break ended;
        }
        assert!(begun.elapsed() < PATIENCE, "the second signal did not end it");
        std::thread::sleep(Duration::from_millis(200));
        server.terminate();
    };
    assert_eq!(ended.code(), Some(130));

    std::fs::remove_file(&ballast).unwrap();
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");
    assert!(server.stop().success());
}

#[test]
fn a_disk_that_the_writes_themselves_fill_loses_none_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(directory.path()) else { return };
    let key = |round: usize, number: usize| format!("{round}-{number}").into_bytes();
    let value = |round: usize, number: usize| format!("{round},{number};").into_bytes().repeat(10_000 + number);
    let mut written = Vec::new();
    let server = Server::start(directory.path(), &[]);
    for round in 0.. {
        let requests = (0..ROUND).map(|number| request(&[b"SET", &key(round, number), &value(round, number)]));
        let answers = server.exchange(&requests.collect::<Vec<_>>().concat());
        let answers: Vec<String> = String::from_utf8(answers).unwrap().lines().map(ToOwned::to_owned).collect();
        assert_eq!(answers.len(), ROUND, "{answers:?}");
        written.extend((0..ROUND).filter(|number| answers[*number] == "+OK").map(|number| (round, number)));
        if let Some(refusal) = answers.iter().find(|answer| *answer != "+OK") {
            assert!(refusal.starts_with("-DISKFULL "), "{refusal}");
            break;
        }
        assert!(round < 1000, "64 MiB are not full after {} writes", written.len());
        // The server looks at the free space every 100 ms, and a round is less than its reserve.
        std::thread::sleep(Duration::from_millis(150));
    }
    let check = |server: &Server| {
        for (round, number) in &written {
            let (value, answer) = (value(*round, *number), server.exchange(&request(&[b"GET", &key(*round, *number)])));
            let expected = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
            assert!(answer == expected, "{round}-{number} of {} writes", written.len());
        }
    };
    check(&server);
    server.kill();
    let server = Server::start(directory.path(), &[]);
    check(&server);
}
