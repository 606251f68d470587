//! A server of its own for each test, and a client that sends any bytes.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a test that panics has failed")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Long enough for any machine; no test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts a server on `directory` with further flags, and waits until it serves.
    pub(crate) fn start(directory: &Path, flags: &[&str]) -> Server {
        Server::start_command(command(directory, flags))
    }

    /// Starts the server of `command`, and waits until it serves.
    pub(crate) fn start_command(mut command: Command) -> Server {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address =
            line.split(" on ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_else(|| panic!("{line}"));
        let address = address.parse().unwrap();
        // What it says later must find a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Server { child, address }
    }

    /// Starts the server of `command`, which listens on `address` and whose words nobody hears, and waits until it
    /// serves.
    pub(crate) fn start_unheard(mut command: Command, address: SocketAddr) -> Server {
        let server = Server { child: command.spawn().unwrap(), address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < PATIENCE, "it does not serve");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Returns the most memory that the server has taken since `reset`, in bytes.
    pub(crate) fn peak_bytes(&self, reset: bool) -> u64 {
        let of = |name: &str| format!("/proc/{}/{name}", self.child.id());
        if reset {
            // `proc(5)`: 5 makes the peak what is taken now.
            std::fs::write(of("clear_refs"), "5").unwrap();
        }
        let status = std::fs::read_to_string(of("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the server to stop, as `kill` does.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Returns how the server ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Asks the server to stop, and returns how it ended.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.child.wait().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends `request`, says that no more will come, and returns all that the server answers.
    pub(crate) fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = self.connect();
        let mut writer = stream.try_clone().unwrap();
        let request = request.to_vec();
        let sender = std::thread::spawn(move || {
            // The server may close before it has read everything.
            let _ = writer.write_all(&request).and_then(|()| writer.shutdown(Shutdown::Write));
        });
        let mut answer = Vec::new();
        // As above: a reset ends what can be read.
        let _ = stream.read_to_end(&mut answer);
        sender.join().unwrap();
        answer
    }

    /// Returns the answer to a line as one types it.
    pub(crate) fn typed(&self, line: &str) -> String {
        String::from_utf8_lossy(&self.exchange(format!("{line}\r\n").as_bytes())).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command that serves `directory` with further flags.
pub(crate) fn command(directory: &Path, flags: &[&str]) -> Command {
    let mut command = plain_command(directory, &["--listen", "127.0.0.1:0", "--memory", "16MiB"]);
    command.args(flags);
    command
}

/// Returns the command that serves `directory` with these flags alone.
pub(crate) fn plain_command(directory: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
    command.arg("serve").arg("--dir").arg(directory).args(flags).stdin(Stdio::null());
    command
}

/// Returns how a server ended that must not start, and what it said.
pub(crate) fn refusal(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        if line.starts_with("serving ") {
            child.kill().unwrap();
        }
        said.push_str(&line);
    }
    (child.wait().unwrap().code(), said)
}

/// Returns `command` with the limits of `ulimit LIMITS`.
pub(crate) fn limited(limits: &str, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit {limits} && exec \"$0\" \"$@\"")).arg(command.get_program());
    limited.args(command.get_args()).stdin(Stdio::null());
    limited
}

/// Returns the bytes of a request.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
