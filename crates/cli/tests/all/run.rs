//! `plimsoll run`: real programs under the library do what they do without it, nothing hangs, and what is wrong is told before
//! the program starts.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod charges;
mod descriptors;
mod ends;
mod in_c;
mod live;
mod paths;
mod pieces;
mod processes;
mod programs;
mod random;
mod signals;
mod traces;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::skip::{has_direct_io, skip};
use crate::world::{Ended, PLIMSOLL};

/// Far longer than anything here takes: what has not ended by then hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The library lies beside the command. Tests of one package do not build another's, so it is built here, unless
/// `PLIMSOLL_LIBRARY_IS_BUILT` says that it was (`.ci/run`).
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let beside = Path::new(PLIMSOLL).parent().expect("it is in a directory");
        let library = beside.join("libplimsoll_preload.so");
        if std::env::var_os("PLIMSOLL_LIBRARY_IS_BUILT").is_some() {
            return library;
        }
        let profile = beside.file_name().and_then(|name| name.to_str()).expect("a profile's directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--offline", "-p", "plimsoll-preload", "--manifest-path"]);
        cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
        cargo.args(["--profile", if profile == "debug" { "dev" } else { profile }]);
        cargo.env("CARGO_TARGET_DIR", beside.parent().expect("the target directory"));
        let status = cargo.status().expect("cargo starts");
        assert!(status.success(), "the library cannot be built: {status}");
        library
    })
}

/// A directory for a test, with one of its own for control sockets and locks.
struct World(tempfile::TempDir);

impl World {
    fn new() -> World {
        assert!(library().is_file());
        let world = World(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        std::fs::create_dir(world.data()).unwrap();
        std::fs::create_dir(world.path().join("run")).unwrap();
        world
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.data())
            .stdin(Stdio::null())
            .env("XDG_RUNTIME_DIR", self.path().join("run"));
        command
    }

    /// `plimsoll run FLAGS -- CMD` in the directory of the data.
    fn run(&self, flags: &[&str], cmd: &[&str]) -> Ended {
        let arguments: Vec<&str> = [&["run"], flags, &["--"], cmd].concat();
        ended(self.command(PLIMSOLL, &arguments))
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Waits for the end, with patience.
fn ended(mut command: Command) -> Ended {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        panic!("{command:?} hangs");
    };
    drop(waits.join());
    Ended::of(output.unwrap())
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        skip(format_args!("no {program} here"));
    }
    is_there
}

/// A disk with small pieces, on which calls wait.
const DISK: &str = "disk:\n  read_iops: 20000\n  read_bandwidth: 200M\n  write_iops: 10000\n  write_bandwidth: 150M\n";

#[test]
fn direct_calls_pass_the_gate_and_are_counted_by_their_rules() {
    let world = World::new();
    if !has_direct_io(world.path()) || !has("dd") {
        return;
    }
    let disk = world.file("disk.yaml", DISK);
    let rules = world.file(
        "rules.yaml",
        "classes:\n- {name: query, shares: 500}\n- {name: log, shares: 100}\n- {name: named, shares: 9}\nrules:\n\
         - {thread: nobody, class: named}\n- {path: '*.log', operation: write, class: log}\n\
         - {thread: dd, operation: [read, write], class: query}\n",
    );
    let script =
        "dd if=/dev/zero of=a.log bs=256k count=40 oflag=direct && dd if=a.log of=b bs=64k iflag=direct oflag=direct";
    let flags = ["--disk", &disk, "--rules", &rules, "--explain", "--trace", "../run.plt"];
    let told = world.run(&flags, &["sh", "-c", script]).done().err;
    let line =
        |begin: &str| told.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}: {told}"));
    // 40 of 256 KiB, 160 of 64 KiB each way, and a read that finds the end.
    assert!(line("log").contains("10 MiB") && line("query").contains("10 MiB"), "{told}");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(line("path `*.log`, write: log"))[4..], ["0", "40", "0", "0"], "{told}");
    assert_eq!(words(line("thread `dd`, read or write: query"))[6..], ["161", "160", "0", "0"], "{told}");
    assert_eq!(words(line("thread `nobody`: named"))[3..], ["0", "0", "0", "0"], "{told}");
    assert!(line("through the gate:").contains("10 MiB of 10 MiB that were read"), "{told}");
    // Each process that had the gate wrote a trace.
    let traces = std::fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().path());
    let traces: Vec<PathBuf> = traces.filter(|path| path.to_string_lossy().contains("run.plt")).collect();
    assert_eq!(traces.len(), 2, "{traces:?}");
    for trace in traces {
        ended(world.command(PLIMSOLL, &["trace", "stages", trace.to_str().unwrap()])).done();
    }
}

#[test]
fn the_report_is_kept_as_json() {
    let world = World::new();
    if !has_direct_io(world.path()) || !has("dd") {
        return;
    }
    let figures = "read_iops: 1000, write_iops: 1000, read_bandwidth: 10M, write_bandwidth: 10M";
    let disk = world.file("disk.yaml", &format!("disk: {{{figures}}}\n"));
    let flags = ["--disk", &disk, "--format", "json", "-o", "../report.json"];
    let script = "dd if=/dev/zero of=a bs=256k count=40 oflag=direct; exit 3";
    let output = world.run(&flags, &["sh", "-c", script]);
    assert_eq!(output.code, Some(3), "{}", output.err);
    assert!(!output.err.contains("through the gate"), "{}", output.err);

    let text = std::fs::read_to_string(world.path().join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["schema"], &report["exit_code"]), (&1.into(), &3.into()));
    assert_eq!(report["command"], serde_json::json!(["sh", "-c", script]));
    let moved: u64 = 40 * (256 << 10);
    let class = &report["classes"][0];
    assert_eq!((&class["name"], &class["written_bytes"]), (&"default".into(), &moved.into()));
    assert!(class["writes"].as_u64() > Some(40), "calls go in pieces: {class:#}");
    // 10 MiB at 10 MB/s.
    assert!(class["waited_ns"]["tokens"].as_u64() > Some(10_000_000), "{class:#}");
    assert!(class["latency_p99_ns"].as_u64() >= class["waited_p99_ns"].as_u64().max(Some(1)), "{class:#}");
    let by_none = report["rules"].as_array().and_then(|rules| rules.last()).unwrap();
    assert_eq!((&by_none["rule"], &by_none["writes"]), (&serde_json::Value::Null, &40.into()), "{by_none:#}");
    let coverage = &report["coverage"];
    assert_eq!(coverage["intercepted_written_bytes"], moved);
    assert!(coverage["process_bytes"].as_u64().is_none_or(|bytes| bytes >= moved), "{coverage:#}");

    world.run(&flags, &["touch", "x"]).assert_refused(2, &["report.json exists: pass --force"]);
    assert!(!world.data().join("x").exists(), "it is refused before the program starts");
}

#[test]
fn rules_that_match_no_call_are_named() {
    let world = World::new();
    if !has_direct_io(world.path()) || !has("dd") {
        return;
    }
    let rules = |path: &str| format!("classes:\n- {{name: a, shares: 9}}\nrules:\n- {{path: '{path}', class: a}}\n");
    let dd = ["dd", "if=/dev/zero", "of=b", "bs=64k", "count=1", "oflag=direct"];
    for (path, is_named) in [("*.nosuch", true), ("b", false)] {
        let file = world.file("rules.yaml", &rules(path));
        let told = world.run(&["--rules", &file], &dd).err;
        let line = format!("no rule of {file} matched a call: all were of class default\n");
        assert_eq!(told.contains(&line), is_named, "{path}: {told}");
    }
}

#[test]
fn coverage_is_shown_without_root() {
    let world = World::new();
    if !has_direct_io(world.path()) || !has("dd") || !has("unshare") {
        return;
    }
    let dd = "dd if=/dev/zero of=a bs=256k count=40 oflag=direct && dd if=a of=/dev/null bs=64k iflag=direct";
    let arguments = ["-U", "--map-user=1000", "--map-group=1000", PLIMSOLL, "run", "--", "sh", "-c", dd];
    let output = ended(world.command("unshare", &arguments));
    let told = &output.err;
    if told.starts_with("unshare: ") {
        return skip("no user namespaces here");
    }
    // Pages of the programs are read from the disk, too, where the page cache has lost them.
    let is_seen =
        told.contains("through the gate: 10 MiB of ") && told.contains("), 10 MiB of 10 MiB that were written (100 %)");
    assert!(is_seen, "{told}");
}

/// Linux counts the whole folio that a write into the page cache makes dirty, here up to 2 MiB for 8 KiB: of 32 writes
/// through the gate the report said that nearly all had gone past it.
#[test]
fn what_the_kernel_counts_beyond_the_writes_is_not_missed() {
    let world = World::new();
    if !has("dd") {
        return;
    }
    std::fs::write(world.data().join("a"), vec![0; 8 << 20]).unwrap();
    let told = world.run(&[], &["dd", "if=/dev/zero", "of=a", "bs=8k", "count=32", "conv=notrunc", "oflag=dsync"]).err;
    let line = told.lines().find(|line| line.starts_with("through the gate: ")).unwrap_or_default();
    assert!(line.contains("256 KiB of 256 KiB that were written (100 %)"), "{told}");
    assert!(!told.contains("the rest is of other files"), "{told}");
}

#[test]
fn exit_codes_are_the_programs() {
    let world = World::new();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
    {
        assert_eq!(world.run(&[], &["sh", "-c", script]).code, Some(code), "{script}");
    }
}

#[test]
fn what_is_wrong_is_told_before_the_program_starts() {
    let world = World::new();
    let rules = world.file("bad.yaml", "classes: [{name: a, shares: 1}]\nrules:\n- {class: b}\n");
    let far = world.file(
        "io.yaml",
        "disks: [{mountpoint: /proc, read_iops: 1, write_iops: 1, read_bandwidth: 1M, write_bandwidth: 1M}]\n",
    );
    let text = world.file("text", "no program\n");
    let table: [(&[&str], &[&str], &[&str]); 11] = [
        (&["--rules", "rokcsdb"], &["touch", "x"], &["rokcsdb", "default, rocksdb, mysql, postgres"]),
        (&["--rules", &rules], &["touch", "x"], &["bad.yaml:3", "no class called \"b\""]),
        (&["--disk", "no-such-disk"], &["touch", "x"], &["no-such-disk"]),
        (&["--io-properties", &far], &["touch", "x"], &["no disk of the io-properties holds", "/proc"]),
        (&["--dir", "/nowhere"], &["touch", "x"], &["--dir /nowhere", "No such file"]),
        (&["--trace", "../t", "-o", "../t"], &["touch", "x"], &["--trace and -o name the same file"]),
        (&["--trace", "../t", "-o", ".././t"], &["touch", "x"], &["--trace and -o name the same file"]),
        (&["--dir", ".", "--dir", "/dev"], &["touch", "x"], &["are not on the same disk"]),
        (&["--dir", "/proc"], &["touch", "x"], &["--dir /proc is on proc", "on no disk", "name a directory"]),
        (&[], &["no-such-program"], &["there is no program `no-such-program` in PATH"]),
        (&[], &[&text], &["text", "cannot be executed"]),
    ];
    for (flags, cmd, parts) in table {
        world.run(flags, cmd).assert_refused(2, parts);
        assert!(!world.data().join("x").exists(), "{flags:?}");
    }
}

#[test]
fn static_programs_are_refused() {
    let world = World::new();
    if !has("cc") {
        return;
    }
    let source = world.file("a.c", "int main(void) { return 0; }\n");
    let program = world.path().join("static").to_str().unwrap().to_owned();
    if ended(world.command("cc", &["-static", "-o", &program, &source])).code != Some(0) {
        return skip("no static C library here");
    }
    world.run(&[], &[&program]).assert_refused(2, &["is a static program"]);
}

#[test]
fn rules_that_match_nothing_are_a_warning() {
    let world = World::new();
    let rules = world.file(
        "rules.yaml",
        "classes: [{name: a, shares: 1}]\nrules:\n- {path: '/elsewhere/*', class: a}\n- {class: a}\n- {thread: x, class: a}\n",
    );
    let told = world.run(&["--rules", &rules], &["true"]).done().err;
    assert!(told.contains("the rule `path `/elsewhere/*`: a` matches nothing"), "{told}");
    assert!(told.contains("rules.yaml:5") && told.contains("this rule matches nothing"), "{told}");
}

#[test]
fn the_second_run_on_a_disk_is_refused_and_told_who_has_it() {
    let world = World::new();
    let mut first = world.command(PLIMSOLL, &["run", "--", "sh", "-c", "echo begun >begun; exec sleep 600"]);
    let mut first = first.stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + PATIENCE;
    while !world.data().join("begun").exists() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(5));
    }
    let trace = world.file("old.plt", "an older trace");
    let second = world.run(&["--trace", &trace, "--force"], &["true"]);
    second.assert_refused(3, &["another `plimsoll run` has disk", "sleep 600"]);
    assert_eq!(std::fs::read_to_string(&trace).unwrap(), "an older trace");
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    // The signal was handed on, and the program's end is ours.
    assert_eq!(first.wait().unwrap().code(), Some(143));
    assert_eq!(world.run(&[], &["true"]).code, Some(0));
}

#[test]
fn a_directory_for_locks_that_is_not_this_users_alone_is_refused() {
    let world = World::new();
    let (place, elsewhere) = (world.path().join("run/plimsoll"), world.path().join("elsewhere"));
    let refused = |part: &str| {
        world.run(&[], &["touch", "x"]).assert_refused(3, &[part]);
        assert!(!world.data().join("x").exists(), "the program was started");
    };
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &place).unwrap();
    refused("is not a directory");
    std::fs::remove_file(&place).unwrap();
    std::fs::create_dir(&place).unwrap();
    std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    refused("is open to other users (mode 777)");
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count() + std::fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_directory_of_the_environment_that_is_not_there_is_told() {
    let world = World::new();
    let mut command = world.command(PLIMSOLL, &["run", "--", "touch", "x"]);
    command.env("XDG_RUNTIME_DIR", world.path().join("gone"));
    let says = format!("XDG_RUNTIME_DIR names {}, which does not exist; unset it", world.path().join("gone").display());
    ended(command).assert_refused(3, &[&says]);
    assert!(!world.data().join("x").exists(), "the program was started");
}

#[test]
fn a_trace_names_each_file_whenever_it_was_opened() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    // All are open before the first call makes the gate, one descriptor becomes another's, and one has no name any more.
    let script = "import os\nf=[os.open(n,os.O_CREAT|os.O_RDWR|os.O_DSYNC) for n in ('one','two','three','four')]\n\
                  os.pwrite(f[2],b'x'*3000,0);os.pwrite(f[1],b'x'*2000,0)\n\
                  os.dup2(f[0],f[1]);os.pwrite(f[1],b'x'*1000,0)\n\
                  os.unlink('four');os.pwrite(f[3],b'x'*4000,0)";
    world.run(&["--trace", "../run.plt"], &["python3", "-c", script]).done();
    let csv = ended(world.command(PLIMSOLL, &["trace", "export", "../run.plt", "--to", "csv"])).done().out;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).unwrap();
    let (file, len) = (column("file"), column("len_bytes"));
    let seen: Vec<_> = rows[1..].iter().map(|row| (row[file].rsplit('/').next().unwrap(), row[len])).collect();
    assert_eq!(seen, [("three", "3000"), ("two", "2000"), ("one", "1000"), ("four", "4000")], "{csv}");
}

/// Threads, forks and signals at once.
const STORM: &str = r#"
import mmap, os, signal, sys, threading
count = [0]
signal.signal(signal.SIGALRM, lambda *a: count.__setitem__(0, count[0] + 1))
fd = os.open('a', os.O_RDWR | os.O_CREAT | (os.O_DIRECT if sys.argv[1] == 'direct' else 0))
block = mmap.mmap(-1, 16384)
for at in range(64): os.pwrite(fd, block, at * 16384)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
wrong = []
def work(number):
    memory = mmap.mmap(-1, 16384)
    for turn in range(2):
        if os.preadv(fd, [memory], (number * 5 + turn) % 64 * 16384) != 16384: wrong.append('read')
        if os.pwrite(fd, memory, (number + turn) % 64 * 16384) != 16384: wrong.append('write')
    os.fdatasync(fd)
threads = [threading.Thread(target=work, args=(number,)) for number in range(1000)]
[thread.start() for thread in threads]
children = []
for number in range(60):
    child = os.fork()
    if child == 0:
        ok = os.pwrite(fd, mmap.mmap(-1, 16384), number % 64 * 16384) == 16384
        inner = os.fork()
        if inner == 0: os._exit(0 if os.pread(os.open('a', os.O_RDONLY), 100, 0) else 1)
        os._exit(0 if ok and os.waitpid(inner, 0)[1] == 0 else 1)
    children.append(child)
for child in children:
    if os.waitpid(child, 0)[1] != 0: wrong.append('child')
[thread.join() for thread in threads]
signal.setitimer(signal.ITIMER_REAL, 0)
if os.system('true') != 0: wrong.append('exec')
print(wrong or 'all is well')
"#;

#[test]
fn threads_forks_and_signals_at_once_hang_nothing() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let (storm, disk) = (world.file("storm.py", STORM), world.file("disk.yaml", DISK));
    let kinds = if has_direct_io(world.path()) { &["direct", "buffered"][..] } else { &["buffered"] };
    for kind in kinds {
        let output = world.run(&["--disk", &disk], &["python3", &storm, kind]);
        assert_eq!(output.out, "all is well\n", "{kind}: {}", output.err);
    }
}

/// What a program in C relies on: errno, checked calls, threads that are cancelled in a call, streams that close descriptors
/// inside libc, `_Fork`.
const IN_C: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
static int file;
static void *read_for_ever(void *none) {
    char *buffer = malloc(1 << 18);
    for (;;) {
        if (pread(file, buffer, 1 << 18, 0) < 0) abort();
        if (pwrite(file, buffer, 1 << 14, 0) < 0) abort();
        pthread_testcancel();
    }
    return none;
}
static void *read_a_pipe(void *end) {
    char byte;
    read(*(int *)end, &byte, 1);
    return end;
}
int main(void) {
    char buffer[4096] = {0};
    file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0644);
    for (int at = 0; at < 64; at++) if (pwrite(file, buffer, 4096, at * 4096) != 4096) puts("write");
    errno = 77;
    if (pread(file, buffer, sizeof buffer, 0) != 4096 || errno != 77) puts("errno is lost");
    if (pread(file, (void *)1, 4096, 0) != -1 || errno != EFAULT) puts("EFAULT");
    if (pwrite(open("a", O_RDONLY | O_DSYNC), buffer, 9, 0) != -1 || errno != EBADF) puts("EBADF");
    if (read(file, buffer, 4096) != 4096 || lseek(file, 0, SEEK_CUR) != 4096) puts("position");
    struct iovec part = {buffer, 4096};
    int plain = open("a", O_RDWR);
    for (int n = 0; n < 2; n++) {
        int of = n ? plain : file;
        lseek(of, 4096, SEEK_SET);
        errno = 0;
        if (preadv2(of, &part, 1, -2, 0) != -1 || errno != EINVAL) puts("preadv2");
        errno = 0;
        if (pwritev2(of, &part, 1, -2, 0) != -1 || errno != EINVAL) puts("pwritev2");
        if (lseek(of, 0, SEEK_CUR) != 4096) puts("position after preadv2");
        if (preadv2(of, &part, 1, -1, 0) != 4096 || lseek(of, 0, SEEK_CUR) != 8192) puts("preadv2 where it stands");
    }
    // A part of it is in the page cache, where the file system has one that it gives back.
    struct iovec half[2] = {{malloc(1 << 16), 1 << 16}, {malloc(1 << 16), 1 << 16}};
    posix_fadvise(plain, 0, 0, POSIX_FADV_RANDOM);
    for (int n = 0; n < 3; n++) {
        posix_fadvise(plain, 0, 0, POSIX_FADV_DONTNEED);
        lseek(plain, 0, SEEK_SET);
        if (pread(plain, buffer, 4096, 0) != 4096) puts("first page");
        ssize_t all = n == 0 ? preadv(plain, half, 2, 0) : n == 1 ? readv(plain, half, 2) : preadv2(plain, half, 2, -1, 0);
        if (all != 1 << 17 || lseek(plain, 0, SEEK_CUR) != (n ? 1 << 17 : 0)) printf("short of the cache: %zd\n", all);
    }
    int from = open("a", O_RDONLY), to = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0644);
    off_t in = 1000, out = 0;
    errno = 77;
    if (copy_file_range(from, &in, to, &out, 1 << 30, 0) != (1 << 18) - 1000 || errno != 77) puts("copy_file_range");
    if (in != 1 << 18 || out != in - 1000 || lseek(from, 0, SEEK_CUR) != 0) puts("offsets of copy_file_range");
    if (copy_file_range(from, &in, to, &out, 9, 0) != 0 || errno != 77) puts("copy_file_range at the end");
    if (copy_file_range(to, 0, from, 0, 9, 0) != -1 || errno != EBADF) puts("copy_file_range into a file that is read");
    if (copy_file_range(from, 0, to, 0, 9, 77) != -1 || errno != EINVAL) puts("flags of copy_file_range");
    errno = 77;
    in = 0;
    if (sendfile(to, from, &in, 5000) != 5000 || in != 5000 || lseek(to, 0, SEEK_CUR) != 5000) puts("sendfile");
    if (sendfile(to, from, 0, 7000) != 7000 || lseek(from, 0, SEEK_CUR) != 7000 || errno != 77) puts("position of sendfile");
    if (sendfile(from, to, 0, 9) != -1 || errno != EBADF) puts("sendfile into a file that is read");
    if (splice(from, 0, to, 0, 9, 0) != -1 || errno != EINVAL) puts("splice without a pipe");
    FILE *stream = fdopen(open("a", O_RDONLY), "r");
    fclose(stream);
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    if (write(pair[1], "ahoy", 4) != 4 || read(pair[0], buffer, 9) != 4) puts("socket");
    // The only thread cancels itself: the next call ends it, and with it the process.
    int status = 1, ends[2];
    pid_t alone = fork();
    if (alone == 0) {
        pthread_cancel(pthread_self());
        write(pair[1], "x", 1);
        _exit(1);
    }
    if (waitpid(alone, &status, 0) != alone || status != 0) puts("cancelled alone");
    // The first thread beside it is cancelled while it waits.
    pthread_t waiting;
    void *result = 0;
    pipe(ends);
    pthread_create(&waiting, 0, read_a_pipe, &ends[0]);
    usleep(2000);
    pthread_cancel(waiting);
    pthread_join(waiting, &result);
    if (result != PTHREAD_CANCELED) puts("cancelled in read");
    for (int round = 0; round < 10; round++) {
        pthread_t threads[8];
        for (int n = 0; n < 8; n++) pthread_create(&threads[n], 0, read_for_ever, 0);
        usleep(2000);
        for (int n = 0; n < 8; n++) pthread_cancel(threads[n]);
        for (int n = 0; n < 8; n++) pthread_join(threads[n], 0);
    }
    for (int n = 0; n < 20; n++) {
        pid_t child = _Fork();
        if (child == 0) _exit(pread(file, buffer, 100, 0) != 100);
        int status = 1;
        if (waitpid(child, &status, 0) != child || status != 0) puts("child");
    }
    if (pread(file, buffer, 4096, 0) != 4096) puts("at the end");
    puts("done");
    return 0;
}
"#;

/// Compiles a program in C. Returns `None` if that cannot be done here.
fn compiled(world: &World, source: &str) -> Option<String> {
    if !has("cc") {
        return None;
    }
    let source = world.file("a.c", source);
    let program = world.path().join("in-c").to_str().unwrap().to_owned();
    let flags = ["-O2", "-w", "-D_GNU_SOURCE", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64", "-pthread"];
    let built = ended(world.command("cc", &[&flags[..], &["-o", &program, &source]].concat()));
    if built.code != Some(0) {
        skip(format_args!("cc cannot build it here: {}", built.err));
        return None;
    }
    Some(program)
}

#[test]
fn a_program_in_c_notices_nothing() {
    let world = World::new();
    let Some(program) = compiled(&world, IN_C) else { return };
    let disk = world.file("disk.yaml", DISK);
    let output = world.run(&["--disk", &disk], &[&program]);
    assert_eq!(output.out, "done\n", "{}", output.err);
}

#[test]
fn a_read_that_is_refused_does_not_end_the_looks_into_the_page_cache() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let cached = |between: &str| {
        let script = format!(
            "import os\nf=os.open('a',os.O_CREAT|os.O_RDWR)\nos.pwrite(f,b'x'*(1<<20),0)\n{between}os.pread(f,1<<20,0)"
        );
        let told = world.run(&[], &["python3", "-c", &script]).err;
        assert!(told.contains("through the gate: "), "{told}");
        told.lines().find(|line| line.starts_with("from the page cache")).map(str::to_owned)
    };
    let line = cached("");
    if line.is_none() {
        return skip("the file system here cannot be asked what is in the page cache");
    }
    // The end is past the last offset that there is: EINVAL.
    let refused = "try: os.pread(f,100,(1<<63)-10); print('no error')\nexcept OSError: pass\n";
    assert_eq!(cached(refused), line);
}

#[test]
fn a_program_that_is_killed_leaves_its_counters_and_no_gate() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let disk = world.file("disk.yaml", DISK);
    let script = "for i in 1 2 3; do python3 -c 'import os,threading\nf=os.open(\"a\",os.O_CREAT|os.O_RDWR|os.O_DSYNC)\n\
                  def w():\n while True: os.pwrite(f,b\"x\"*70000,0)\n\
                  [threading.Thread(target=w,daemon=True).start() for _ in range(20)]\n\
                  for _ in range(20): os.pwrite(f,b\"y\"*9,0)\nos.kill(os.getpid(),9)'; done; exit 5";
    let output = world.run(&["--disk", &disk], &["sh", "-c", script]);
    let told = &output.err;
    assert_eq!(output.code, Some(5), "{told}");
    assert!(told.lines().any(|line| line.starts_with("default")), "{told}");
    assert!(!told.contains("did not answer"), "the dead had the gate: {told}");
}

#[test]
fn a_limit_holds_a_program_and_attach_lifts_it() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let rules = world.file("rules.yaml", "classes: [{name: slow, shares: 9, limit_iops: 1}]\nrules: [{class: slow}]\n");
    // It stays until attach has answered, however fast the disk is.
    let script = "import os,time\nf=os.open('a',os.O_CREAT|os.O_RDWR|os.O_DSYNC)\nopen('pid','w').write(str(os.getpid()))\n\
                  os.rename('pid','begun')\nfor _ in range(3000): os.pwrite(f,b'x',0)\n\
                  while not os.path.exists('end'): time.sleep(0.01)";
    let mut command = world.command(PLIMSOLL, &["run", "--rules", &rules, "--", "python3", "-c", script]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + PATIENCE;
    let pid = loop {
        assert!(Instant::now() < give_up, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
        let Ok(pid) = std::fs::read_to_string(world.data().join("begun")) else { continue };
        let shown = ended(world.command(PLIMSOLL, &["attach", &pid, "--format", "json"]));
        if shown.code == Some(0) {
            assert!(shown.out.contains("\"slow\""), "{shown:?}");
            break pid;
        }
    };
    // 3000 seconds at this limit.
    assert!(child.try_wait().unwrap().is_none());
    ended(world.command(PLIMSOLL, &["attach", &pid, "--set", "slow.limit_iops=unlimited"])).done();
    std::fs::write(world.data().join("end"), "").unwrap();
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > give_up {
            child.kill().unwrap();
            panic!("the limit was lifted, and it goes on waiting");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
