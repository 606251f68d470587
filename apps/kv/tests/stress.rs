//! The client against the server: what it writes it reads, and its results have their form.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use common::Server;
use serde_json::Value;

fn stress(server: &Server, words: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
    command.arg("stress").args(words.split_whitespace()).args(["-node", &server.address.to_string()]);
    command.output().unwrap()
}

#[test]
fn what_is_written_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let log = directory.path().join("latencies.hlog");
    let words = format!("write n=300 -pop seq=1..300 -rate threads=4 -col size=200 -log hdrfile={}", log.display());
    let written = stress(&server, &words);
    assert!(written.status.success(), "{written:?}");
    let text = String::from_utf8(written.stdout).unwrap();
    assert!(text.lines().nth(1).unwrap().starts_with("write,       300,"), "{text}");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().any(|line| line.starts_with("Tag=write,")), "{log}");

    let read = stress(&server, "read n=300 -pop seq=1..300 -rate threads=3 fixed=3000/s --format json");
    assert!(read.status.success(), "{read:?}");
    let result: Value = serde_json::from_slice(&read.stdout).unwrap();
    let job = &result["jobs"][0];
    assert_eq!((&result["schema"], &job["name"], &job["requests"]), (&1.into(), &"read".into(), &300.into()));
    assert_eq!((&job["errors"], &job["missing"]), (&0.into(), &0.into()));
    let sum = |list: &Value, get: fn(&Value) -> &Value| -> u64 {
        list.as_array().unwrap().iter().map(|entry| get(entry).as_u64().unwrap()).sum()
    };
    assert_eq!(sum(&job["intervals"], |interval| &interval["requests"]), 300);
    assert_eq!(sum(&job["histogram"], |bucket| &bucket[1]), 300);

    let mixed = stress(&server, "mixed ratio(read=1,write=1) n=200 -pop dist=uniform(1001..2000) -rate threads=2");
    let text = String::from_utf8(mixed.stdout).unwrap();
    assert!(text.contains("\nread ,") && text.contains("\nwrite,"), "{text}");
}

#[test]
fn operations_that_were_due_and_did_not_begin_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    // No server does it: a thread waits for each reply.
    let behind = stress(&server, "read duration=1s -rate threads=1 fixed=1e8/s --format json");
    let result: Value = serde_json::from_slice(&behind.stdout).unwrap();
    let done = result["jobs"][0]["requests"].as_u64().unwrap();
    assert_eq!(result["overdue"], 100_000_000 - done);
    let said = String::from_utf8(behind.stderr).unwrap();
    assert!(said.contains("of the 100000000 operations that were due had not begun"), "{said}");

    let all = stress(&server, "read n=20 duration=1h -rate fixed=1000/s --format json");
    let result: Value = serde_json::from_slice(&all.stdout).unwrap();
    assert_eq!((&result["jobs"][0]["requests"], &result["overdue"]), (&20.into(), &0.into()));
    let said = String::from_utf8(all.stderr).unwrap();
    assert!(!said.contains("had not begun"), "{said}");
}

/// What an hour had measured was lost.
#[test]
fn a_signal_ends_the_load_and_what_was_measured_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
    command.args(["stress", "read", "duration=1h", "-rate", "threads=2", "fixed=100/s", "--format", "json"]);
    command.args(["-node", &server.address.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(said.nth(1).unwrap().unwrap().starts_with("read "), "a line for each second");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());

    let told = child.wait_with_output().unwrap();
    assert_eq!(told.status.code(), Some(130));
    let result: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!((&result["interrupted"], &result["overdue"]), (&true.into(), &Value::Null));
    assert!(result["jobs"][0]["requests"].as_u64().unwrap() > 0);
}

#[test]
fn failures_have_their_codes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--max-value", "100"]);
    assert_eq!(stress(&server, "write n=10 -rate threads=1 -col size=200").status.code(), Some(1));
    assert_eq!(stress(&server, "scan n=10").status.code(), Some(2));
    let address = server.address.to_string();
    assert!(server.stop().success());
    let log = directory.path().join("latencies.hlog");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
    command.args(["stress", "read", "n=1", "-node", &address, "-log"]).arg(format!("hdrfile={}", log.display()));
    let nobody = command.output().unwrap();
    assert_eq!(nobody.status.code(), Some(3), "{nobody:?}");
    assert!(!log.exists(), "the next attempt may make it");
}
