//! What was acknowledged is there: after kill -9, after a clean stop; and a directory has one server.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::io::{Read, Write};
use std::sync::Mutex;
use std::time::Duration;

use common::{Server, command, refusal, request};
use plimsoll::trace::format::{Body, Reader};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const WRITERS: u64 = 4;

/// Rounds of kill -9: `PLIMSOLL_KV_ROUNDS`, else 3.
fn rounds() -> u64 {
    std::env::var("PLIMSOLL_KV_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(3)
}

/// The value of write `number`: of a length of its own, and nothing that another write has.
fn value(number: u64) -> Vec<u8> {
    format!("{number}-").into_bytes().repeat(1 + number as usize % 700)
}

#[test]
fn kill_loses_no_acknowledged_write() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(1);
    // Each writer's keys are its own; what it overwrote last must be there.
    let acknowledged: Mutex<Vec<u64>> = Mutex::new(vec![0; (WRITERS * 50) as usize]);
    let mut next = 1;
    for round in 0..rounds() {
        let server = Server::start(directory.path(), &[]);
        let before = acknowledged.lock().unwrap().iter().filter(|number| **number > 0).count();
        let lifetime = Duration::from_millis(random.random_range(200..2000));
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (acknowledged, mut stream) = (&acknowledged, server.connect());
                scope.spawn(move || {
                    let mut number = next + writer;
                    loop {
                        let key = (number / WRITERS * WRITERS + writer) % (WRITERS * 50);
                        let written = stream
                            .write_all(&request(&[b"SET", key.to_string().as_bytes(), &value(number)]))
                            .and_then(|()| stream.read_exact(&mut [0; 5]));
                        if written.is_err() {
                            return;
                        }
                        acknowledged.lock().unwrap()[key as usize] = number;
                        number += WRITERS;
                    }
                });
            }
            std::thread::sleep(lifetime);
            server.kill();
        });
        next += 1_000_000;

        let server = Server::start(directory.path(), &[]);
        let (mut lost, acknowledged) = (Vec::new(), acknowledged.lock().unwrap());
        for (key, number) in acknowledged.iter().enumerate().filter(|(_, number)| **number > 0) {
            let answer = server.exchange(&request(&[b"GET", key.to_string().as_bytes()]));
            let text = String::from_utf8_lossy(&answer).into_owned();
            // A later write may be there too: it was sent, and the reply was lost.
            let found = text.lines().nth(1).and_then(|line| line.split('-').next()?.parse::<u64>().ok());
            let is_whole = found.is_some_and(|found| text.contains(&*String::from_utf8_lossy(&value(found))));
            if !is_whole || found.is_none_or(|found| found < *number) {
                lost.push((key, *number, found));
            }
        }
        assert!(lost.is_empty(), "round {round}, lost (key, acknowledged, found): {lost:?}");
        let after = acknowledged.iter().filter(|number| **number > 0).count();
        assert!(after >= before);
        server.kill();
    }
}

#[test]
fn a_log_with_a_gap_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let mut stream = server.connect();
    // Each has a block of the log to itself: more than a file of 1 MiB.
    for number in 0..300_u32 {
        stream.write_all(&request(&[b"SET", number.to_string().as_bytes(), b"ahoy"])).unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }
    server.kill();
    let log = directory.path().join("commitlog");
    let (first, aside) = (log.join("00000001.log"), directory.path().join("aside"));
    std::fs::rename(&first, &aside).unwrap();
    let refused = command(directory.path(), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("record 1 of the commit log is missing"), "{said}");

    // Nothing was lost by that.
    std::fs::rename(&aside, &first).unwrap();
    let server = Server::start(directory.path(), &[]);
    for number in [0, 150, 299] {
        assert_eq!(server.typed(&format!("GET {number}")), "$4\r\nahoy\r\n");
    }
}

#[test]
fn a_log_with_a_damaged_record_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    // One after the other: each has a record to itself.
    (1..=3).for_each(|key| assert_eq!(server.typed(&format!("SET {key} ahoy")), "+OK\r\n"));
    server.kill();
    let first = directory.path().join("commitlog/00000001.log");
    let whole = std::fs::read(&first).unwrap();
    let mut damaged = whole.clone();
    damaged[4096 + 30] ^= 1;
    std::fs::write(&first, damaged).unwrap();
    let (code, said) = refusal(command(directory.path(), &[]));
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("record 2 of the commit log is damaged; record 3 behind it is whole"), "{said}");

    std::fs::write(&first, whole).unwrap();
    let server = Server::start(directory.path(), &[]);
    (1..=3).for_each(|key| assert_eq!(server.typed(&format!("GET {key}")), "$4\r\nahoy\r\n"));
}

#[test]
fn a_clean_stop_keeps_everything_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let commitlog = tempfile::tempdir().unwrap();
    let flags = ["--commitlog-dir", commitlog.path().to_str().unwrap()];
    let server = Server::start(directory.path(), &flags);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    assert!(commitlog.path().join("commitlog").is_dir());
    assert!(server.stop().success());
    let server = Server::start(directory.path(), &flags);
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");
}

#[test]
fn a_server_that_does_not_find_its_commit_log_is_refused() {
    let [directory, other, elsewhere] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let flags = ["--commitlog-dir", elsewhere.path().to_str().unwrap()];
    let server = Server::start(directory.path(), &flags);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    server.kill();

    let trace = directory.path().join("kv.plt");
    let (code, said) = refusal(command(directory.path(), &["--trace", trace.to_str().unwrap()]));
    assert!(code == Some(2) && said.contains("may have acknowledged writes"), "{code:?} {said}");
    assert!(!trace.exists(), "the next attempt may record there");
    assert!(said.contains(elsewhere.path().to_str().unwrap()), "{said}");

    // As if its file system were not mounted.
    let (log, aside) = (elsewhere.path().join("commitlog"), elsewhere.path().join("aside"));
    std::fs::rename(&log, &aside).unwrap();
    let (code, said) = refusal(command(directory.path(), &flags));
    assert!(code == Some(2) && said.contains("may have acknowledged writes"), "{code:?} {said}");
    std::fs::rename(&aside, &log).unwrap();

    let (code, said) = refusal(command(other.path(), &flags));
    assert!(code == Some(2) && said.contains("the commit log of another database"), "{code:?} {said}");

    let server = Server::start(directory.path(), &flags);
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");
    // After a clean stop the tree has everything, so another log will do.
    assert!(server.stop().success());
    let server = Server::start(directory.path(), &[]);
    assert_eq!(server.typed("GET ship"), "$4\r\nahoy\r\n");
    assert!(server.stop().success());
}

#[test]
fn the_commit_log_may_be_given_the_directory_of_the_tree() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--commitlog-dir", directory.path().to_str().unwrap()]);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    assert!(server.stop().success());
}

#[test]
fn a_trace_has_the_requests_of_all_classes_and_overwrites_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("kv.plt");
    let flags = ["--trace", trace.to_str().unwrap()];
    let server = Server::start(&directory.path().join("db"), &flags);
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    assert!(server.stop().success());
    let mut reader = Reader::new(std::fs::File::open(&trace).unwrap()).unwrap();
    let (mut names, mut events) = (Vec::new(), 0);
    while let Some(chunk) = reader.next_chunk().unwrap() {
        match chunk.body {
            Body::Names(told) => names.extend(told.classes.into_values().map(|class| class.name)),
            Body::Events(told) => events += told.count(),
        }
    }
    assert!(reader.lost().is_nothing(), "{:?}", reader.lost());
    assert!(names.iter().any(|name| name == "commitlog") && events > 0, "{names:?}, {events} events");

    let refused = command(&directory.path().join("db"), &flags).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("cannot record ") && said.contains("kv.plt: File exists"), "{said}");
}

#[test]
fn a_directory_has_one_server_and_one_version() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let refused = command(directory.path(), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("in use by another server"), "{said}");
    assert!(server.stop().success());

    std::fs::write(directory.path().join("plimsoll-kv.lock"), "plimsoll-kv 9\n").unwrap();
    let refused = command(directory.path(), &[]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("says `plimsoll-kv 9`, this program reads `plimsoll-kv 2`"), "{said}");
}

#[test]
fn bad_flags_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("io-properties.yaml");
    let cases: [(&[&str], i32, &str); 4] = [
        (&["--memory", "1MiB"], 2, "at least 16 MiB"),
        (&["--max-value", "0"], 2, "1 B to 512 MiB"),
        (&["--io-properties", missing.to_str().unwrap()], 2, "io-properties.yaml"),
        (&["--listen", "192.0.2.1:1"], 3, "cannot listen on 192.0.2.1:1"),
    ];
    for (flags, code, named) in cases {
        let refused = common::plain_command(directory.path(), flags).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(named), "{flags:?}: {said}");
    }
}
