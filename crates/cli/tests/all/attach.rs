//! Running programs that are looked at and changed from outside.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Ended, PLIMSOLL, READS, World, until};

/// A `plimsoll test` in memory that runs until it is dropped, with a directory for sockets of its own.
struct Program {
    world: World,
    child: Child,
}

impl Program {
    fn start() -> Program {
        let world = World::new(&[("reads.yaml", READS)]);
        std::fs::create_dir(world.path().join("run")).expect("a directory can be made");
        let mut command = Command::new(PLIMSOLL);
        command.args(["test", "reads.yaml", "--backend", "memory", "--duration", "1000"]);
        command.current_dir(world.path()).env("XDG_RUNTIME_DIR", world.path().join("run"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut program = Program { child: child.expect("the binary starts"), world };
        until("it has a socket", || {
            assert!(program.child.try_wait().expect("it is our child").is_none(), "it ended before its time");
            program.socket().exists().then_some(())
        });
        program
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn socket(&self) -> PathBuf {
        self.world.path().join("run/plimsoll").join(format!("{}.sock", self.child.id()))
    }

    fn attach(&self, arguments: &[&str]) -> Ended {
        attach(self.world.path(), arguments)
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let pid = self.pid();
        let mut all = vec![pid.as_str(), "--format", "json", "--interval", "0.3"];
        all.extend(arguments);
        self.attach(&all).done().json()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let _ = self.child.wait();
    }
}

fn attach(directory: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(PLIMSOLL);
    command.arg("attach").args(arguments).current_dir(directory).env("XDG_RUNTIME_DIR", directory.join("run"));
    Ended::of(command.stdin(Stdio::null()).output().expect("the binary starts"))
}

#[test]
fn a_running_test_is_seen_and_changed() {
    let program = Program::start();
    let pid = program.pid();
    let listed = program.attach(&[]);
    assert!(listed.out.contains(&pid) && listed.out.contains("plimsoll test"), "{listed:#?}");

    let report = program.json(&["--set", "reads.shares=77", "--set", "reads.limit_iops=50", "--mode", "depth:3"]);
    assert_eq!(report["program"]["disks"][0]["mode"]["depth"], 3, "{report}");
    let classes = report["program"]["classes"].as_array().expect("a list");
    let reads = classes.iter().find(|class| class["class"] == "reads").expect("the class of the job");
    assert_eq!((&reads["shares"], &reads["limits"]["iops"]), (&77.into(), &50.into()), "{report}");
    let shown = &report["snapshot"]["disks"][0]["classes"];
    assert!(shown.as_array().is_some_and(|shown| shown.iter().any(|class| class["class"] == "reads")), "{report}");

    let table = program.attach(&[
        &pid,
        "--once",
        "--interval",
        "0.1",
        "--mode",
        "drain",
        "--set",
        "reads.limit_iops=unlimited",
        "--set",
        "reads.shares=500",
    ]);
    assert!(table.out.contains("waits: why"), "{table:#?}");
    assert!(table.err.contains("reads: limit_iops 50 -> unlimited\nreads: shares 77 -> 500\n"), "{table:#?}");
    assert!(table.out.contains("disk 0: drain, no model") && table.out.contains("reads"), "{table:#?}");
    table.assert_fits();
}

#[test]
fn a_running_test_is_traced_for_a_while() {
    let program = Program::start();
    let pid = program.pid();
    let arguments = [&pid, "--once", "--interval", "0.1", "--trace", "run.plt"];
    let ended = program.attach(&arguments);
    assert!(ended.code == Some(0) && ended.err.contains("events recorded"), "{ended:#?}");
    assert!(program.world.path().join("run.plt").exists());
    program.attach(&arguments).assert_refused(2, &["run.plt", "exists"]);
}

#[test]
fn a_change_comes_after_the_trace_has_begun_and_a_misspelled_one_before_it() {
    let program = Program::start();
    let pid = program.pid();
    let traced =
        |setting, file| program.attach(&[&pid, "--once", "--interval", "0.1", "--set", setting, "--trace", file]);
    traced("raeds.shares=5", "run.plt").assert_refused(2, &["did you mean `reads`?"]);
    assert!(!program.world.path().join("run.plt").exists());
    let ended = traced("reads.shares=5", "run.plt");
    assert!(ended.code == Some(0) && ended.err.contains("events recorded"), "{ended:#?}");
    // The trace is refused: nothing has changed.
    traced("reads.shares=9", "run.plt").assert_refused(2, &["run.plt", "exists"]);
    let report = program.json(&[]);
    let classes = report["program"]["classes"].as_array().expect("a list");
    assert!(classes.iter().any(|class| class["class"] == "reads" && class["shares"] == 5), "{report}");
}

#[test]
fn what_a_program_recorded_before_it_ended_is_told() {
    let world = World::new(&[]);
    let listener = UnixListener::bind(world.path().join("x.sock")).expect("a socket can be made");
    let hello = r#"{"answer":"hello","protocol":2,"plimsoll":"0","pid":1,"program":"short","shards":1,"disks":[],"classes":[],"is_tracing":false}"#;
    let directory = world.path().to_owned();
    // It ends where it is asked for a snapshot.
    let program = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody attaches");
        let mut requests = BufReader::new(stream.try_clone().expect("a copy")).lines();
        for answer in [hello, r#"{"answer":"done"}"#, hello] {
            let request = requests.next().expect("a request").expect("it is read");
            let request: serde_json::Value = serde_json::from_str(&request).expect("it is JSON");
            if let Some(name) = request["name"].as_str() {
                std::fs::write(directory.join(name), "recorded").expect("the record can be made");
            }
            writeln!(stream, "{answer}").expect("it is taken");
        }
    });
    let ended = attach(world.path(), &["x.sock", "--once", "--trace", "run.plt"]);
    program.join().expect("it was asked as often");
    assert!(ended.code == Some(0) && ended.err.contains("run.plt holds what it recorded"), "{ended:#?}");
    assert_eq!(std::fs::read(world.path().join("run.plt")).expect("it was moved here"), b"recorded");
    let left = std::fs::read_dir(world.path()).expect("a directory").flatten().map(|entry| entry.file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().starts_with("attach-")).count(), 0);
}

#[test]
fn what_cannot_be_attached_to_or_set_is_told() {
    let program = Program::start();
    let pid = program.pid();
    let own = std::process::id().to_string();
    let table: [(&[&str], i32, &[&str]); 9] = [
        (&["4294967295"], 2, &["no process 4294967295"]),
        (&[&own], 2, &["not a Plimsoll program"]),
        (&["no-such.sock"], 2, &["no running program"]),
        (&[&pid, "--set", "raeds.shares=5"], 2, &["raeds", "did you mean `reads`?"]),
        (&[&pid, "--set", "reads.share=5"], 2, &["did you mean `shares`?"]),
        (&[&pid, "--set", "reads.shares=0"], 2, &["write 1 to"]),
        (&[&pid, "--mode", "depth:0"], 2, &["depth:N"]),
        (&[&pid, "--interval", "0"], 2, &["expected 50"]),
        (&["--once"], 2, &["PID"]),
    ];
    for (arguments, code, fragments) in table {
        program.attach(arguments).assert_refused(code, fragments);
    }
}

#[test]
fn where_nothing_runs_nothing_is_listed() {
    let world = World::new(&[]);
    let table = attach(world.path(), &[]);
    assert!(table.code == Some(0) && table.out.is_empty() && table.err.contains("no program runs"), "{table:#?}");
    assert_eq!(attach(world.path(), &["--format", "json"]).out.trim(), "[]");
}
