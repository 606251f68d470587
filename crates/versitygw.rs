//! A real S3 server on this machine, versitygw over a directory: one place for the tests of all crates, which take it by
//! `#[path]`, beside `skip.rs`.

#![allow(dead_code, reason = "each crate uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip::skip;

/// How to install the server on the machine that runs the test.
const INSTALL: &str = "go install github.com/versity/versitygw/cmd/versitygw@v1.8.0";

pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    /// Of the buckets, and of the server's own data.
    pub(crate) dirs: [tempfile::TempDir; 2],
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Finds the server on the PATH, or where `go install` puts it.
fn program() -> Option<PathBuf> {
    let go_path = Command::new("go").args(["env", "GOPATH"]).output().ok();
    let go_path = go_path.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(go_path);
    dirs.map(|dir| dir.join("versitygw")).find(|file| file.is_file())
}

impl Server {
    /// Starts a server with the bucket `bucket`, the key `test` and the secret `testtest`, or prints one line that says why it cannot.
    pub(crate) fn start() -> Option<Server> {
        let Some(program) = program() else {
            skip(format_args!("versitygw is not installed ({INSTALL})"));
            return None;
        };
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        std::fs::create_dir(dirs[0].path().join("bucket")).unwrap();
        // A free port, released again. If another process takes it meanwhile, the server reports that and ends.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .args(["--port", &format!("127.0.0.1:{port}"), "--access", "test", "--secret", "testtest", "--quiet"])
            // Metadata in files: extended attributes are not everywhere.
            .args(["posix", "--sidecar"])
            .args([dirs[1].path(), dirs[0].path()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut server = Server { child: child.unwrap(), port, dirs };
        server.wait_until_it_listens();
        Some(server)
    }

    fn wait_until_it_listens(&mut self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(60) {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("versitygw ended at once: {status}");
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("versitygw did not listen within a minute");
    }
}
