//! The processes of a run: one has the gate, all pass it, and one that dies takes nothing with it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

use super::{DISK, Ended, PLIMSOLL, World, ended, has, library};
use crate::skip::skip;

/// In the report where calls have gone past because of another process.
const GONE_PAST: &str = "while the process that has the gate did not answer";

/// Runs a program in Python, and checks that it has ended well and that nothing has gone past the gate.
fn run_python(world: &World, flags: &[&str], script: &str) -> Ended {
    let output = world.run(&[flags, &["--explain"]].concat(), &["python3", "-c", script]).done();
    assert!(!output.err.contains(GONE_PAST), "{output:#?}");
    output
}

/// Calls that no rule matched: reads, writes, syncs, allocations.
fn without_rule(output: &Ended) -> Vec<u64> {
    let told = &output.err;
    let row = told.lines().find_map(|line| line.strip_prefix("no rule: default"));
    let counts = row.unwrap_or_else(|| panic!("{told}")).split_whitespace();
    counts.map(|count| count.parse().expect("a count")).collect()
}

/// Starts children, and waits for all of them.
const CHILDREN: &str = r#"
import os, sys, threading, time
def children(count, work):
    started = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            work(number)
            os._exit(0)
        started.append(child)
    return started
def all_well(started):
    for child in started: assert os.waitpid(child, 0)[1] == 0
file = os.open('a', os.O_CREAT | os.O_RDWR | os.O_DSYNC)
def write(times, len=100):
    for at in range(times): assert os.pwrite(file, b'x' * len, at * len) == len
"#;

#[test]
fn processes_made_by_fork_and_by_exec_pass_the_gate_of_the_first() {
    let world = World::new();
    if !has("python3") || !has("dd") {
        return;
    }
    let script = format!(
        "{CHILDREN}\nwrite(1)\nall_well(children(4, lambda n: write(25)))\n\
         os.system('dd if=a of=b bs=8 oflag=dsync count=20 2>/dev/null')\n\
         all_well(children(3, lambda n: all_well(children(2, lambda m: write(5)))))\nwrite(1)"
    );
    let output = run_python(&world, &[], &script);
    assert_eq!(without_rule(&output)[1], 1 + 100 + 20 + 30 + 1, "{}", output.err);
}

#[test]
fn a_limit_holds_the_processes_of_a_run_together() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let rules =
        world.file("rules.yaml", "classes: [{name: slow, shares: 9, limit_iops: 100}]\nrules: [{class: slow}]\n");
    let began = Instant::now();
    run_python(
        &world,
        &["--rules", &rules],
        &format!("{CHILDREN}\nwrite(1)\nall_well(children(5, lambda n: write(40)))"),
    );
    // Each alone would have taken 0.4 s; all are 201 calls of 100 a second.
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
}

#[test]
fn the_permits_of_a_process_that_is_killed_come_back() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let disk = world.file("disk.yaml", DISK);
    // Killed are more threads in a call than the disk has room for.
    let script = format!(
        "{CHILDREN}\ndef storm(number):\n for _ in range(10): threading.Thread(target=write, args=(10**9, 70000)).start()\n \
         time.sleep(0.2); os.kill(os.getpid(), 9)\n\
         def write(times, len=100):\n for at in range(times): os.pwrite(file, b'x' * len, at % 9 * len)\n\
         write(1)\nfor _ in range(4): [os.waitpid(child, 0) for child in children(4, storm)]\nwrite(300, 70000)"
    );
    run_python(&world, &["--disk", &disk], &script);
}

#[test]
fn if_the_process_with_the_gate_is_killed_or_runs_another_program_the_next_has_it() {
    let world = World::new();
    if !has("python3") || !has("true") || !has("sleep") {
        return;
    }
    // As a static program, the last one does not load the library. It lives on.
    let unmanaged = "import shutil; os.execve(shutil.which('sleep'), ['sleep', '300'], {})";
    for end in ["os.kill(os.getpid(), 9)", "os.execvp('true', ['true'])", "sys.exit()", unmanaged] {
        // The first child has the gate. Nobody waits for it until the others have ended.
        let script = format!(
            "{CHILDREN}\ndef first(number):\n write(1); open('begun', 'w'); time.sleep(0.3)\n {end}\n\
             first = children(1, first)[0]\nwhile not os.path.exists('begun'): time.sleep(0.01)\n\
             os.unlink('begun')\ndef some():\n for _ in range(200): write(1); time.sleep(0.002)\n\
             others = children(3, lambda n: some())\nsome()\nall_well(others)\nos.kill(first, 9)\nos.waitpid(first, 0)"
        );
        let output = world.run(&["--explain"], &["python3", "-c", &script]).done();
        assert_eq!(without_rule(&output)[1], 801, "{end}: {}", output.err);
    }
}

#[test]
fn a_process_in_another_pid_namespace_does_not_take_the_gate() {
    let world = World::new();
    if !has("python3") || !has("unshare") || !has("dd") {
        return;
    }
    let can_unshare = ended(world.command("unshare", &["-rpf", "true"])).code == Some(0);
    if !can_unshare {
        skip("no PID namespaces may be made here");
        return;
    }
    // By exec, and by fork alone.
    let script = format!(
        "{CHILDREN}\nwrite(1)\nassert os.system('unshare -rpf dd if=a of=b bs=8 oflag=dsync count=5 2>/dev/null') == 0\n\
         def alone(number):\n import ctypes\n assert ctypes.CDLL(None).unshare(0x30000000) == 0\n \
         all_well(children(1, lambda n: write(7)))\n\
         all_well(children(1, alone))\nwrite(1)"
    );
    let output = run_python(&world, &[], &script);
    let told = &output.err;
    assert!(told.contains("of processes in PID namespaces of their own"), "{told}");
    assert_eq!(without_rule(&output)[1], 2, "{told}");
}

#[test]
fn a_process_with_the_gate_that_is_stopped_holds_no_other() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let script = format!(
        "{CHILDREN}\nimport signal\ndef first(number):\n write(1); open('begun', 'w')\n \
         while not os.path.exists('end'): time.sleep(0.01)\n\
         first = children(1, first)\nwhile not os.path.exists('begun'): time.sleep(0.01)\n\
         write(1)\nos.kill(first[0], signal.SIGSTOP)\nwrite(50)\n\
         os.kill(first[0], signal.SIGCONT)\nopen('end', 'w')\nall_well(first)\nwrite(1)"
    );
    let told = world.run(&[], &["python3", "-c", &script]).done().err;
    assert!(told.contains(GONE_PAST), "{told}");
}

/// It kept the disk's room, and the process that would have continued it waited for that.
#[test]
fn a_process_without_the_gate_that_is_stopped_holds_no_other() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let disk = world.file("disk.yaml", DISK);
    // More threads are in a call than the disk has room for.
    let script = format!(
        "{CHILDREN}\nimport signal\ndef storm(number):\n \
         for _ in range(10): threading.Thread(target=write, args=(10**9, 70000)).start()\n time.sleep(1000)\n\
         def write(times, len=100):\n for at in range(times): os.pwrite(file, b'x' * len, at % 9 * len)\n\
         write(1)\nfor _ in range(4):\n child = children(1, storm)[0]\n time.sleep(0.2)\n \
         os.kill(child, signal.SIGSTOP)\n write(30, 70000)\n os.kill(child, signal.SIGCONT)\n write(30, 70000)\n \
         os.kill(child, 9)\n os.waitpid(child, 0)"
    );
    run_python(&world, &["--disk", &disk], &script);
}

/// The command has ended, and its number is now another process's. The library took the first bytes of its pipe.
#[test]
fn a_program_that_outlives_its_run_leaves_the_files_of_others_alone() {
    let world = World::new();
    if !has("true") {
        return;
    }
    let path = world.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("the directory takes a pipe");
    let mut options = File::options();
    options.read(true).write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut pipe = options.open(&path).unwrap();
    pipe.write_all(b"not a run's file").unwrap();
    let mut command = world.command("true", &[]);
    command.env("LD_PRELOAD", library()).env("PLIMSOLL_RUN", &path);
    ended(command).done();
    let mut left = [0; 100];
    let len = pipe.read(&mut left).unwrap();
    assert_eq!(String::from_utf8_lossy(&left[..len]), "not a run's file");
}

/// Initializes a PostgreSQL server, runs pgbench on it, and checks that what it has written adds up.
const POSTGRES: &str = r#"
PATH=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -n 1):$PATH; HOME=$PWD; mkdir s
initdb -D d -A trust >/dev/null
pg_ctl -s -w -D d -l log -o "-c listen_addresses='' -c unix_socket_directories=$PWD/s -c shared_buffers=16MB -c max_wal_size=64MB" start
pgbench -h $PWD/s -d postgres -i -s 1 -q 2>/dev/null
pgbench -h $PWD/s -d postgres -c 8 -j 2 -t 100 --random-seed=7 2>/dev/null | grep -E 'processed|failed'
psql -h $PWD/s -d postgres -Atc 'select sum(abalance) = (select sum(delta) from pgbench_history), count(*) from pgbench_accounts'
psql -h $PWD/s -d postgres -Atc 'select count(*) from pgbench_history; checkpoint'
pg_ctl -s -w -D d -m fast stop
pg_controldata d | grep 'cluster state'; rm -r d s log
"#;

#[test]
fn a_whole_postgres_server_passes_one_gate() {
    let world = World::new();
    if !has("unshare") || !has("pgbench") || !has("/usr/lib/postgresql/*/bin/initdb") {
        return;
    }
    // PostgreSQL refuses to be root. A socket's path has at most 107 bytes.
    let as_another = ["-U", "--map-user=1000", "--map-group=1000"];
    if ended(world.command("unshare", &[&as_another[..], &["true"]].concat())).code != Some(0) {
        return skip("no user namespaces here");
    }
    if world.data().as_os_str().len() > 80 {
        return skip("the path of the test is too long for a socket");
    }
    let run =
        |cmd: &[&str]| ended(world.command("unshare", &[&as_another[..], cmd, &["sh", "-ec", POSTGRES]].concat()));
    let without = run(&[]);
    assert_eq!(without.code, Some(0), "{}", without.err);
    let disk = world.file("disk.yaml", DISK);
    let with = run(&[PLIMSOLL, "run", "--rules", "postgres", "--disk", &disk, "--"]);
    let told = &with.err;
    assert_eq!(with.out, without.out, "{told}");
    assert!(told.contains("through the gate: ") && !told.contains(GONE_PAST), "{told}");
}

#[test]
fn what_the_gate_cannot_see_of_a_child_is_named() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    // Each look of the command wakes its first thread.
    let script = format!(
        "{CHILDREN}\nimport mmap\nwrite(1)\nmapping = mmap.mmap(file, 100)\n\
         def looks():\n return next(int(line.split()[1]) for line in open(f'/proc/{{sys.argv[1]}}/status')\
         if line.startswith('voluntary'))\n\
         enough = looks() + 5\nwhile looks() < enough: time.sleep(0.01)"
    );
    let told = world.run(&[], &["sh", "-c", "python3 -c \"$0\" $PPID; true", &script]).done().err;
    assert!(told.contains("\nnot seen: reads and writes of mapped files (mmap), such as "), "{told}");
}
