//! The numbers of descriptors are the program's: none is taken, closed or written to by the library.

use super::programs::contents;
use super::{World, ended, has};

/// A shell, which names descriptors by their numbers, after its first call has made the gate.
const SHELL: &str = "echo first >a; exec 3>b 4>c 5>d 6>e 7>f; \
                     for n in 1 2 3 4 5; do for to in 3 4 5 6 7; do echo $n >&$to; done; sleep 0.02; done; \
                     exec 3>&- 5>&-; echo last >>a; cat b c d e f | md5sum";

/// A daemon, which closes all that it has not opened, and then opens files and accepts a client.
const DAEMON: &str = r#"python3 -c '
import os, socket, time
def write(file, at): assert os.pwrite(file, b"x" * 100, at * 100) == 100
write(os.open("a", os.O_CREAT | os.O_RDWR | os.O_DSYNC), 0)
os.closerange(3, 256)
files = [os.open("b%d" % n, os.O_CREAT | os.O_RDWR | os.O_DSYNC) for n in range(9)]
server, client = socket.create_server(("127.0.0.1", 0)), socket.socket()
client.connect(server.getsockname())
accepted, _ = server.accept()
for at in range(20):
    for file in files: write(file, at)
    client.sendall(b"ahoy")
    assert accepted.recv(4) == b"ahoy"
    time.sleep(0.01)
print(files, server.fileno(), client.fileno(), accepted.fileno(), [os.fstat(file).st_size for file in files])
'"#;

#[test]
fn every_number_of_a_descriptor_is_the_programs() {
    for (needed, script) in [("md5sum", SHELL), ("python3", DAEMON)] {
        if !has(needed) {
            continue;
        }
        let plain = World::new();
        let without = ended(plain.command("sh", &["-c", script])).done();
        for flags in [&[][..], &["--trace", "../run.plt"]] {
            let managed = World::new();
            let with = managed.run(flags, &["sh", "-c", script]);
            let told = &with.err;
            assert_eq!(with.code, Some(0), "{flags:?} {script}\n{told}");
            assert_eq!(with.out, without.out, "{told}");
            assert!(contents(&managed.data()) == contents(&plain.data()), "files differ: {flags:?} {script}\n{told}");
            // A shell ends by `_exit`.
            if needed == "python3" && !flags.is_empty() {
                let whole = "run.plt: what happened to every call at the gate, for `plimsoll trace`\n";
                assert!(told.contains(whole), "{told}");
            }
        }
    }
}
