//! What a run charges of writes into the page cache, and of copies inside the kernel.

use std::thread;
use std::time::{Duration, Instant};

use super::{DISK, World, compiled, has};
use crate::skip::has_direct_io;

/// A limit of 10 MB a second on everything.
const SLOW: &str = "classes: [{name: slow, shares: 9, limit_bandwidth: 10M}]\nrules: [{class: slow}]\n";

/// Runs a command, and returns the report.
fn report(world: &World, flags: &[&str], cmd: &[&str]) -> serde_json::Value {
    let told = world.run(&[flags, &["--format", "json"]].concat(), cmd).done().err;
    let json = told.find("\n{").map_or("", |at| &told[at..]);
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {told}"))
}

/// Bytes that were read and written through the gate.
fn charged(report: &serde_json::Value) -> [u64; 2] {
    ["intercepted_read_bytes", "intercepted_written_bytes"]
        .map(|key| report["coverage"][key].as_u64().unwrap_or_else(|| panic!("{report:#}")))
}

#[test]
fn small_files_that_are_closed_unsynced_are_charged_in_the_long_run() {
    if !has("python3") || !has("dd") {
        return;
    }
    let file = "f=os.open(str(n),os.O_CREAT|os.O_WRONLY)\n [os.write(f,b'x'*102400) for _ in range(9)]";
    let by = |end: &str| format!("import os,sys\nfor n in range(20):\n {file}\n {end}");
    let open_at_the_end = by("pass");
    // A child has the descriptors of its parent, and none of what the parent owes.
    let fork = by("if os.fork() == 0: os.closerange(3, 99); sys.exit()\n os.wait(); os.close(f)");
    let replaced = by("os.dup2(os.open('other', os.O_CREAT|os.O_WRONLY), f)");
    let ways: [(&str, &[&str]); 6] = [
        ("close", &["python3", "-c", &by("os.close(f)")]),
        ("close_range", &["python3", "-c", &by("os.closerange(f, f + 1)")]),
        ("dup2", &["python3", "-c", &replaced]),
        ("fork", &["python3", "-c", &fork]),
        ("exit", &["sh", "-c", &format!("python3 -c \"{open_at_the_end}\"; dd if=/dev/zero of=a bs=1M count=1")]),
        ("processes", &["sh", "-c", "for n in $(seq 20); do dd if=/dev/zero of=$n bs=100K count=9; done"]),
    ];
    let written = 20 * 9 * 102_400;
    let check = &|way: &str, cmd: &[&str]| {
        let world = World::new();
        let rules = world.file("rules.yaml", SLOW);
        let began = Instant::now();
        let [_, bytes] = charged(&report(&world, &["--rules", &rules], cmd));
        // Less than a MiB is left at the end.
        let most = if way == "exit" { written + (1 << 20) } else { written };
        assert!((written - (2 << 20)..=most).contains(&bytes), "{way}: {bytes} of {written}");
        // Of "processes", each has a gate of its own, which had a full bucket of its own.
        assert!(began.elapsed() >= Duration::from_secs(1), "{way}: {:?}", began.elapsed());
    };
    // They wait for their limit.
    thread::scope(|scope| {
        for (way, cmd) in ways {
            scope.spawn(move || check(way, cmd));
        }
    });
}

/// libc opens them itself, without a call of `open`.
#[test]
fn files_of_new_names_are_charged() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let script = r#"
import ctypes, os
libc = ctypes.CDLL(None)
for name, *arguments in ("mkstemp",), ("mkostemp", os.O_APPEND), ("mkstemps", 2), ("mkostemps", 2, os.O_APPEND):
    for function in getattr(libc, name), getattr(libc, name + "64"):
        path = ctypes.create_string_buffer(b"XXXXXX.c" if 2 in arguments else b"XXXXXX")
        file = function(path, *arguments)
        assert os.write(file, b"x" * (1 << 20)) == 1 << 20
        os.fsync(file)
"#;
    let report = report(&world, &[], &["python3", "-c", script]);
    assert_eq!(charged(&report)[1], 8 << 20, "{report:#}");
}

/// They reach the disk at once, and were charged as writes into the page cache: a MiB later, or never.
#[test]
fn writes_whose_flags_make_them_durable_are_charged_at_once() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let script = "import os\nf=os.open('a',os.O_CREAT|os.O_RDWR)\n\
                  for flag in os.RWF_DSYNC,os.RWF_SYNC: assert os.pwritev(f,[b'x'*102400],0,flag)==102400";
    let report = report(&world, &[], &["python3", "-c", script]);
    assert_eq!(charged(&report)[1], 2 * 102_400, "{report:#}");
}

/// libc closes them without a call of `close`. The file that gets the number next was taken for the one before.
#[test]
fn a_file_in_memory_that_gets_a_number_after_closefrom_is_not_charged() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let script = "import ctypes,os\nf=os.open('a',os.O_CREAT|os.O_RDWR|os.O_DSYNC)\nassert os.pwrite(f,b'x'*1000,0)==1000\n\
                  libc=ctypes.CDLL(None)\nif hasattr(libc,'closefrom'): libc.closefrom(f)\nelse: os.close(f)\n\
                  m=os.memfd_create('m')\nassert m==f\nassert os.pwrite(m,b'x'*(4<<20),0)==4<<20\nos.fsync(m)";
    let report = report(&world, &[], &["python3", "-c", script]);
    assert_eq!(charged(&report)[1], 1000, "{report:#}");
}

/// A child of `vfork` has descriptors of its own, but the memory of its parent.
const IN_VFORK: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    static char buffer[1 << 20];
    int ends[2], file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0600);
    pipe(ends);
    if (vfork() == 0) {
        dup2(ends[1], file);
        _exit(write(file, "x", 1) != 1);
    }
    return pwrite(file, buffer, sizeof buffer, 0) != sizeof buffer;
}
"#;

#[test]
fn a_file_is_charged_after_a_child_of_vfork_has_used_its_number() {
    let world = World::new();
    let Some(program) = compiled(&world, IN_VFORK) else { return };
    let report = report(&world, &[], &[&program]);
    assert_eq!(charged(&report)[1], 1 << 20, "{report:#}");
}

#[test]
fn copies_inside_the_kernel_are_charged() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let rules = world.file("rules.yaml", SLOW);
    let len: u64 = 6 << 20;
    let contents: Vec<u8> = (0..len).map(|at| (at / 4096 % 251) as u8).collect();
    // As `cp` does: it asks for more than there is, until nothing comes.
    let files = "import os,socket,threading\ni=os.open('from',os.O_RDONLY)\no=os.open('to',os.O_CREAT|os.O_WRONLY)\n";
    let socket = "a,b=socket.socketpair()\ndef take():\n with os.fdopen(os.dup(b.fileno()),'rb') as f: f.read()\n\
                  t=threading.Thread(target=take)\nt.start()\nwhile os.sendfile(a.fileno(),i,None,1<<30): pass\n\
                  a.close()\nt.join()";
    let pipe = "r,w=os.pipe()\nwhile (n:=os.splice(i,w,1<<16)):\n while n: n-=os.splice(r,o,n)";
    let ways = [
        ("copy_file_range", "while os.copy_file_range(i,o,1<<40): pass", true),
        ("copy_file_range at offsets", "n=0\nwhile (m:=os.copy_file_range(i,o,1<<22,n,n)): n+=m", true),
        ("sendfile", "while os.sendfile(o,i,None,1<<30): pass", true),
        ("sendfile at an offset", "n=0\nwhile (m:=os.sendfile(o,i,n,1<<22)): n+=m", true),
        ("sendfile to a socket", socket, false),
        ("splice", pipe, true),
    ];
    for (way, copy, is_written) in ways {
        std::fs::write(world.data().join("from"), &contents).unwrap();
        let _ = std::fs::remove_file(world.data().join("to"));
        let began = Instant::now();
        let report = report(&world, &["--rules", &rules], &["python3", "-c", &format!("{files}{copy}")]);
        let [read, written] = charged(&report);
        let cached = report["coverage"]["page_cache_bytes"].as_u64().unwrap();
        assert_eq!(read + cached, len, "{way}: {report:#}");
        if is_written {
            assert!((len - (2 << 20)..=len).contains(&written), "{way}: {written} of {len}");
            assert!(began.elapsed() >= Duration::from_millis(300), "{way}: {:?}", began.elapsed());
            assert!(std::fs::read(world.data().join("to")).unwrap() == contents, "{way}: another file");
        }
    }
}

#[test]
fn a_read_at_the_position_is_charged_up_to_the_end_of_the_file() {
    let world = World::new();
    if !has_direct_io(world.path()) || !has("dd") {
        return;
    }
    std::fs::write(world.data().join("a"), vec![7; 1 << 20]).unwrap();
    let disk = world.file("disk.yaml", DISK);
    let dd = ["dd", "if=a", "of=/dev/null", "bs=64M", "count=1", "iflag=direct"];
    let [read, _] = charged(&report(&world, &["--disk", &disk], &dd));
    assert_eq!(read, 1 << 20);
}

/// A program whose first thread has ended before another opens a file.
const FIRST_THREAD_ENDS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *work(void *none) {
    static char buffer[1 << 20];
    char path[64], line[256], *end;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
    do {
        usleep(1000);
        int stat = open(path, O_RDONLY);
        line[read(stat, line, sizeof line - 1)] = 0;
        close(stat);
        end = strrchr(line, ')');
    } while (end[2] != 'Z');
    exit(write(open("a", O_RDWR | O_CREAT | O_DSYNC, 0600), buffer, sizeof buffer) != sizeof buffer);
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_exit(0);
}
"#;

/// /proc/self has its descriptors, which are none.
#[test]
fn files_that_are_opened_after_the_end_of_the_first_thread_are_charged() {
    let world = World::new();
    let Some(program) = compiled(&world, FIRST_THREAD_ENDS) else { return };
    let report = report(&world, &[], &[&program]);
    assert_eq!(charged(&report)[1], 1 << 20, "{report:#}");
}

/// libc puts /dev/null in the place of a file: for a stream, and for the standard streams of a daemon.
const NULL_INSTEAD: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
static char buffer[4 << 20];
int main(int count, char **ways) {
    int ends[2], file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0600);
    write(file, buffer, 1000);
    if (count > 1) {
        FILE *stream = freopen("/dev/null", "w", fdopen(file, "w"));
        return fileno(stream) != file || write(file, buffer, sizeof buffer) != sizeof buffer;
    }
    dup2(file, 1);
    pipe(ends);
    if (fork() == 0) return daemon(1, 0) != 0 || write(1, buffer, sizeof buffer) != sizeof buffer;
    close(ends[1]);
    return read(ends[0], buffer, 1) != 0;
}
"#;

#[test]
fn what_libc_puts_in_the_place_of_a_file_is_not_charged() {
    let world = World::new();
    let Some(program) = compiled(&world, NULL_INSTEAD) else { return };
    for way in [&[][..], &["freopen"]] {
        let report = report(&world, &[], &[&[program.as_str()], way].concat());
        assert_eq!(charged(&report)[1], 1000, "{way:?}: {report:#}");
    }
}

/// Writes a MiB to the descriptor of a stream, as the C++ library does for its own, or to one that came from a socket.
const FROM_ELSEWHERE: &str = r#"
import ctypes, os, socket, sys
libc = ctypes.CDLL(None)
libc.fopen.restype = libc.freopen.restype = ctypes.c_void_p
if sys.argv[1] == 'socket':
    ends = socket.socketpair()
    file = os.open('a', os.O_CREAT | os.O_WRONLY)
    socket.send_fds(ends[0], [b'x'], [0, file])
    os.close(file)
    file = socket.recv_fds(ends[1], 1, 2)[1][1]
else:
    stream = ctypes.c_void_p(libc.fopen(b'a' if sys.argv[1] == 'fopen' else b'/dev/null', b'w'))
    if sys.argv[1] == 'freopen': stream = ctypes.c_void_p(libc.freopen(b'a', b'w', stream))
    file = libc.fileno(stream)
assert os.write(file, b'x' * (1 << 20)) == 1 << 20
os.fsync(file)
"#;

#[test]
fn files_that_are_opened_without_a_call_of_open_are_charged() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    for way in ["fopen", "freopen", "socket"] {
        let report = report(&world, &[], &["python3", "-c", FROM_ELSEWHERE, way]);
        assert_eq!(charged(&report)[1], 1 << 20, "{way}: {report:#}");
    }
}
