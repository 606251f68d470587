//! What is said of a trace at the end is true.

use std::path::Path;

use super::{PLIMSOLL, World, ended, has};

/// Opens a file, and can write into it.
const WRITES: &str = "import os,resource,sys\nf=os.open('a',os.O_CREAT|os.O_RDWR|os.O_DSYNC)\n\
                      def write(times):\n for _ in range(times): os.pwrite(f,b'x'*100,0)\n";

/// Runs a script in Python with a trace. Returns the lines that speak of it.
fn said(world: &World, trace: &str, script: &str) -> Vec<String> {
    let output = world.run(&["--trace", trace, "--force"], &["python3", "-c", &format!("{WRITES}{script}")]);
    let told = &output.err;
    told.lines().filter(|line| line.contains("run.plt")).map(str::to_owned).collect()
}

fn is_readable(world: &World, trace: &Path) -> bool {
    ended(world.command(PLIMSOLL, &["trace", "stages", trace.to_str().unwrap()])).code == Some(0)
}

#[test]
fn what_is_said_of_a_trace_is_true() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    let path = world.path().join("run.plt");
    let whole = "../run.plt: what happened to every call at the gate, for `plimsoll trace`";
    assert_eq!(said(&world, "../run.plt", "write(500)"), [whole]);
    assert!(is_readable(&world, &path));

    // Three processes, one after the other.
    let both = "for n in range(3):\n if os.fork()==0: write(9); sys.exit()\n os.wait()";
    assert_eq!(
        said(&world, "../run.plt", both),
        [
            "../run.plt and 2 file(s) ../run.plt.PID, one for each process that had the gate: what happened to every call at \
          the gate, for `plimsoll trace`"
        ]
    );

    assert_eq!(said(&world, "../run.plt", "os.close(f)"), ["../run.plt is not written: no call came to the gate"]);

    assert_eq!(
        said(&world, "../run.plt", "write(500)\nos.kill(os.getpid(),9)"),
        ["warning: ../run.plt: what happened to the calls at the gate, without the last ones of a process that was \
          killed, called exec or still runs, for `plimsoll trace`"]
    );
}

#[test]
fn a_trace_that_cannot_be_written_is_told_with_the_reason() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    // As on a disk that is full: files longer than this are refused.
    let full = "resource.setrlimit(resource.RLIMIT_FSIZE,(20000,20000))\nwrite(3000)";
    let expected = "warning: ../run.plt is incomplete: File too large (os error 27)";
    assert_eq!(said(&world, "../run.plt", full), [expected]);
    // A process that ends at once says so too.
    let killed = format!("{full}\nimport time\ntime.sleep(0.5)\nos.kill(os.getpid(),9)");
    assert_eq!(said(&world, "../run.plt", &killed), [expected]);

    std::fs::create_dir(world.path().join("gone")).unwrap();
    assert_eq!(
        said(&world, "../gone/run.plt", "os.rmdir('../gone')\nwrite(9)"),
        ["warning: ../gone/run.plt is not written: No such file or directory (os error 2)"]
    );
}
