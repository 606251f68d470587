//! What this machine cannot do ends with exit code 3, says what stands in the way, and leaves nothing behind.
//!
//! File systems are mounted in a mount namespace of their own (`unshare`), which needs no root where user namespaces
//! are allowed, and disappears with the run. A lack of locked memory no longer keeps io_uring from starting (it is
//! accounted to the control group since Linux 5.12), so a seccomp filter forbids it here, as containers do.

use std::process::{Command, Stdio};

use crate::skip::{has_direct_io, skip};
use crate::world::{Ended, PLIMSOLL, READS, World};

/// Runs the binary on `mounted`, a fresh file system; its stdout is what is left in there. `None` where nothing can be
/// mounted.
fn run_on(world: &World, file_system: &str, options: &str, arguments: &str) -> Option<Ended> {
    std::fs::create_dir_all(world.path().join("mounted")).expect("a directory can be made");
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c", script]);
        command.current_dir(world.path()).stdin(Stdio::null()).env("PLIMSOLL", PLIMSOLL).output()
    };
    let mount = format!("mount -t {file_system} -o {options} none mounted");
    match unshare(&mount) {
        Ok(output) if output.status.success() => {}
        other => {
            skip(format_args!("cannot mount {file_system} in a namespace: {other:?}"));
            return None;
        }
    }
    let script = format!(
        "{mount} && {{ [ ! -f named ] || cp named mounted; }} && \"$PLIMSOLL\" {arguments} >result; code=$?; \
         ls -A mounted; exit $code"
    );
    let ended = Ended::of(unshare(&script).expect("it ran before"));
    let result = std::fs::read_to_string(world.path().join("result")).expect("the shell made it");
    assert_eq!(result, "", "{ended:#?}");
    Some(ended)
}

const COMMANDS: [&str; 3] = ["test reads.yaml --storage mounted", "tune mounted -c 1 --data-size 16M", "demo mounted"];

#[test]
fn a_directory_that_is_read_only() {
    for arguments in COMMANDS {
        let world = World::new(&[("reads.yaml", READS)]);
        let Some(ended) = run_on(&world, "tmpfs", "ro,size=2g", arguments) else { return };
        ended.assert_refused(3, &["mounted/plimsoll-", "Read-only file system", "mounted for writing"]);
    }
}

#[test]
fn a_directory_without_space() {
    for arguments in COMMANDS {
        let world = World::new(&[("reads.yaml", READS)]);
        let Some(ended) = run_on(&world, "tmpfs", "size=20m", arguments) else { return };
        ended.assert_refused(3, &["mounted has 20 MiB free, but", "free some space or ask for less data"]);
    }
}

/// What was begun is removed, so that the same command can run again with more space.
#[test]
fn a_file_that_has_no_space() {
    let cases = [
        ("size=20m", "cache create c.yaml mounted/a.disk --size 320MiB", "cannot write mounted/a.disk: No space left"),
        // A file system of two pages, of which another file has both.
        ("size=8k", "stat --record mounted/s.rec", "cannot write mounted/s.rec: No space left"),
        ("size=8k", "tune . --data-size 16M --backend null --record mounted/r.jsonl", "mounted/r.jsonl: No space left"),
    ];
    for (options, arguments, message) in cases {
        let world = World::new(&[("named", &"x".repeat(8192))]);
        let Some(ended) = run_on(&world, "tmpfs", options, arguments) else { return };
        assert_eq!(ended.out, "named\n", "{ended:#?}");
        assert!(ended.code == Some(3) && ended.err.contains(message), "{ended:#?}");
    }
}

#[test]
fn a_file_without_direct_io() {
    let world = World::new(&[("reads.yaml", READS), ("named", &"x".repeat(65536))]);
    let Some(mut ended) = run_on(&world, "ramfs", "mode=755", "test reads.yaml --storage mounted/named --duration 1")
    else {
        return;
    };
    assert_eq!(std::mem::take(&mut ended.out), "named\n");
    // Opening happens on the shards, after the remark on the unlimited disk.
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let error = ended.err.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(error.contains("mounted/named") && error.contains("ramfs) refuses O_DIRECT"), "{error}");
}

/// Forbids io_uring_setup (425 on every architecture) and becomes the command after it.
const WITHOUT_URING: &str = r#"
import ctypes, os, struct, sys
def statement(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)
program = (statement(0x20, 0)                  # load the number of the system call
           + statement(0x15, 425, 0, 1)        # io_uring_setup?
           + statement(0x06, 0x00050001)       # fail with EPERM
           + statement(0x06, 0x7fff0000))      # allow
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
prctl = ctypes.CDLL(None, use_errno=True).prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
what = Program(4, program)
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.addressof(what), 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn io_uring_that_is_forbidden() {
    let world = World::new(&[("reads.yaml", READS)]);
    let before = world.contents();
    let run = |more: &[&str]| {
        let always = ["-c", WITHOUT_URING, PLIMSOLL, "test", "reads.yaml", "--duration", "50ms", "--format", "json"];
        let mut command = Command::new("python3");
        Some(Ended::of(command.args(always).args(more).current_dir(world.path()).output().ok()?))
    };
    match run(&["--backend", "uring"]) {
        None => return skip("there is no python3 to set a seccomp filter with"),
        Some(ended) if ended.code == Some(77) => return skip("no seccomp filter can be set"),
        Some(ended) => {
            assert_eq!((ended.code, ended.out.as_str()), (Some(3), ""), "{ended:#?}");
            assert!(ended.err.contains("backend uring cannot be used"), "{ended:#?}");
            assert!(ended.err.contains("kernel.io_uring_disabled") && ended.err.contains("seccomp"), "{ended:#?}");
        }
    }
    assert!(world.contents() == before);
    // Not asked for by name, the next best is taken, and said why.
    if !has_direct_io(world.path()) {
        return;
    }
    let ended = run(&[]).unwrap().done();
    let report = ended.json();
    assert_ne!(report["backend"], "uring");
    assert!(report["backend_reason"].as_str().unwrap().contains("backend uring cannot be used"), "{report}");
    assert!(world.contents() == before);
}
