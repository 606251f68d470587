//! `plimsoll serve` as browsers, Prometheus and people who mean no good meet it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::{World, until};

/// Far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server over the kernel files of a host that is made up, whose counters go on.
pub(crate) struct Server {
    child: Child,
    address: String,
    is_over: Arc<AtomicBool>,
    host: Option<JoinHandle<()>>,
    world: World,
}

/// The files of a host at a tick of a second: two disks that read, one of them nine times as much, and one that is
/// idle.
fn write_host(root: &Path, tick: u64) {
    let diskstats = format!(
        "259 0 nvme0n1 {} 0 {} {} 0 0 0 0 0 {} {} 0 0 0 0 0 0\n\
         259 1 nvme1n1 {} 0 {} {} 0 0 0 0 1 {} {} 0 0 0 0 0 0\n\
         8 0 sda 10 0 80 1 5 0 40 2 0 3 3 0 0 0 0 0 0\n",
        9000 * tick,
        72_000 * tick,
        900 * tick,
        1000 * tick,
        900 * tick,
        1000 * tick,
        8000 * tick,
        120 * tick,
        100 * tick,
        120 * tick,
    );
    let stat = format!("cpu  {} 0 {} {} 0 0 0 0 0 0\n", 20 * tick, 10 * tick, 170 * tick);
    // Readers must never see half of a file.
    let write = |name: &str, text: &str| {
        std::fs::write(root.join("new"), text).unwrap();
        std::fs::rename(root.join("new"), root.join(name)).unwrap();
    };
    write("diskstats", &diskstats);
    write("stat", &stat);
    write("uptime", &format!("{tick}.00 {tick}.00\n"));
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let world = World::new(&[]);
        let proc = world.path().join("proc");
        std::fs::create_dir(&proc).unwrap();
        write_host(&proc, 100);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let host = std::thread::spawn(move || {
            for tick in 101.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                write_host(&proc, tick);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--proc-root", "proc", "--sys-root", "proc", "--no-programs"];
        let mut command = world.command(&[&fixed[..], arguments].concat());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on http://").and_then(|rest| rest.split('/').next());
        let address = address.unwrap_or_else(|| panic!("it says {line}")).to_owned();
        Server { child, address, is_over, host: Some(host), world }
    }

    /// As `127.0.0.1:40123`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Ends it as Ctrl-C does; its exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        // It may have ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        until("it ends", || self.child.try_wait().unwrap()).code()
    }

    /// What it answers to a request: status, head and body.
    fn ask(&self, request: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer}")), head.to_ascii_lowercase(), body.to_owned())
    }

    fn get(&self, path: &str) -> (u16, String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address))
    }

    /// Lets the host stand still, and takes a file of the kernel away.
    fn break_host(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.host.take().map(JoinHandle::join).unwrap().unwrap();
        std::fs::remove_file(self.world.path().join("proc/diskstats")).unwrap();
    }

    /// Asks until an interval has passed.
    fn statistics(&self) -> Value {
        let body = until("statistics", || {
            let (status, _, body) = self.get("/api/stat");
            assert!(matches!(status, 200 | 503), "{status}: {body}");
            (status == 200).then_some(body)
        });
        serde_json::from_str(&body).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.host.take().map(JoinHandle::join);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn page_metrics_and_json_tell_of_the_same_host() {
    let mut server = Server::start(&["--interval", "100ms", "--group", "data=nvme0n1,nvme1n1"]);
    let statistics = server.statistics();
    let disks: Vec<&str> =
        statistics["disk"].as_array().unwrap().iter().filter_map(|d| d["disk_device"].as_str()).collect();
    assert_eq!(disks, ["nvme0n1", "nvme1n1", "sda"]);
    assert_eq!((&statistics["disk"][2]["verdict"], &statistics["disk"][2]["r/s"]), (&"idle".into(), &0.0.into()));
    let reads = [&statistics["disk"][0]["r/s"], &statistics["disk"][1]["r/s"]].map(|rate| rate.as_f64().unwrap());
    // Files change between two looks at them, so a rate may be of a tick more; both disks are in one file.
    assert!((reads[0] / reads[1] - 9.0).abs() < 0.01 && reads[1] > 100.0, "{statistics}");
    let (status, head, page) = server.get("/");
    assert_eq!(status, 200);
    for part in ["cache-control: no-store", "x-content-type-options: nosniff", "default-src 'none'; script-src 'self'"]
    {
        assert!(head.contains(part), "{part}: {head}");
    }
    for part in ["<noscript>", "nvme0n1", "role=\"status\"", "href=\"/style.css\"", "src=\"/app.js\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("style=\"") && !page.contains("<style"), "the policy forbids it");
    let (status, head, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(metrics.contains("plimsoll_disk_verdict{device=\"sda\",verdict=\"idle\"} 1"), "{metrics}");
    assert_eq!(server.get("/fragment").2.matches("<li class=\"tile").count(), 4, "three disks and a group");
    assert_eq!(server.stop(), Some(130));
}

#[test]
fn old_figures_never_pass_for_new_ones() {
    let mut server = Server::start(&["--interval", "100ms"]);
    server.statistics();
    assert!(server.get("/metrics").2.contains("plimsoll_host_look_failed 0"));
    server.break_host();
    let body = until("an error", || Some(server.get("/api/stat")).filter(|(status, ..)| *status == 503)).2;
    let error: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body.lines().count(), 1, "{body}");
    let why = error["error"].as_str().unwrap();
    assert!(why.starts_with("the last look failed: ") && why.contains("diskstats"), "{why}");
    let (status, _, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    assert!(metrics.contains("plimsoll_host_look_failed 1"), "{metrics}");
    assert!(metrics.contains("plimsoll_host_interval_end_timestamp_seconds "), "since when: {metrics}");
    assert!(!metrics.contains("plimsoll_disk_"), "{metrics}");
    let page = server.get("/").2;
    assert!(page.contains("The last look failed: ") && page.contains("nvme0n1"), "{page}");
}

#[test]
fn who_means_no_good_gets_nothing() {
    let server = Server::start(&["--interval", "1h", "--allow-host", "disks.example"]);
    let request = |method: &str, host: &str, path: &str| {
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
    };
    let cases = [
        ("POST", "localhost", "/", 405),
        ("DELETE", "localhost", "/metrics", 405),
        ("PUT", "localhost", "/api/stat", 405),
        ("GET", "evil.example", "/", 421),
        ("GET", "evil.example", "/metrics", 421),
        ("GET", "disks.example:80", "/", 200),
        ("HEAD", "localhost", "/", 200),
        ("GET", "localhost", "/../../etc/passwd", 404),
        ("GET", "localhost", "/api/stat", 503),
    ];
    for (method, host, path, expected) in cases {
        let (status, head, body) = server.ask(&request(method, host, path));
        assert_eq!(status, expected, "{method} {host} {path}: {body}");
        assert!(head.contains("content-security-policy: "), "{head}");
        assert_eq!(body.is_empty(), method == "HEAD", "{method} {body}");
    }
    assert!(server.ask(&request("POST", "localhost", "/")).1.contains("allow: get, head"));
    assert_eq!(server.ask("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").0, 400, "no host");
    assert_eq!(server.ask("what is this\r\n\r\n").0, 400);
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    // It may hang up before all is sent.
    let _ = stream.write_all(long.as_bytes());
    drop(stream);
    assert_eq!(server.get("/").0, 200, "it is still there");
}

#[test]
fn idle_connections_neither_keep_others_out_nor_the_end() {
    let mut server = Server::start(&["--interval", "100ms"]);
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    assert_eq!(server.get("/").0, 200);
    assert_eq!(server.stop(), Some(130));
    drop(idle);
}

/// Asks without end, as fast as the server takes it, and reads no answer. Returns why it had to stop.
fn ask_and_never_read(mut stream: TcpStream) -> std::io::Error {
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    loop {
        if let Err(error) = stream.write_all(requests.as_bytes()) {
            return error;
        }
    }
}

#[test]
fn a_client_that_never_reads_is_hung_up_on() {
    let server = Server::start(&["--interval", "100ms"]);
    // Its write times out with `WouldBlock` if the server lets it hang.
    let error = ask_and_never_read(TcpStream::connect(server.address()).unwrap());
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    assert_eq!(server.get("/metrics").0, 200);
}

#[test]
fn a_scrape_waits_neither_for_clients_that_never_read_nor_for_idle_ones() {
    let mut server = Server::start(&["--interval", "100ms"]);
    for _ in 0..64 {
        let stream = TcpStream::connect(server.address()).unwrap();
        // Not joined: each ends with its connection.
        std::thread::spawn(move || ask_and_never_read(stream));
    }
    let idle: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // Fails after `PATIENCE` if it has to wait until the others have ended.
    assert_eq!(server.get("/metrics").0, 200);
    assert_eq!(server.get("/").0, 200);
    assert_eq!(server.stop(), Some(130));
    drop(idle);
}

#[test]
fn a_scrape_does_not_wait_for_connections_that_are_kept_and_used() {
    let server = Server::start(&["--interval", "100ms"]);
    let kept: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    kept.iter().for_each(|stream| stream.set_read_timeout(Some(PATIENCE)).unwrap());
    let ask_all = move || {
        for mut stream in &kept {
            // The server may have closed it.
            let _ = stream.write_all(b"HEAD /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let _answer = stream.read(&mut [0; 4096]);
        }
    };
    ask_all();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let clients = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            ask_all();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    assert_eq!(server.get("/metrics").0, 200);
    is_over.store(true, Ordering::Relaxed);
    clients.join().unwrap();
}

#[test]
fn what_cannot_be_listened_on_is_said() {
    let world = World::new(&[]);
    let cases: [(&[&str], i32, &[&str]); 5] = [
        (&["--listen", "nonsense"], 2, &["--listen nonsense", "127.0.0.1:9650"]),
        (&["--listen", "192.0.2.1:9650"], 3, &["192.0.2.1:9650", "does not have that address"]),
        (&["--interval", "1ms"], 2, &["expected 100 ms to 3600 s"]),
        (&["--allow-host", "a:80"], 2, &["without a port"]),
        (&["--listen", "127.0.0.1:0", "--proc-root", "missing"], 3, &["cannot read missing/uptime"]),
    ];
    for (arguments, code, fragments) in cases {
        world.run(&[&["serve"], arguments].concat()).assert_refused(code, fragments);
    }
    let server = Server::start(&[]);
    let again = server.world.run(&["serve", "--listen", server.address(), "--no-programs"]);
    again.assert_refused(3, &["another program listens there", "--listen"]);
}
