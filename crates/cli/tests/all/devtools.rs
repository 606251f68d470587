//! A headless browser: pages at a size and in a colour scheme, what they say, load and complain of.
//!
//! Chromium speaks the DevTools protocol over a WebSocket: JSON commands with a number, answers with that number, and
//! events between them, which are kept. Where there is no Chromium, a test is skipped; one that is there must start.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// Far longer than anything takes: a browser that has not answered by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    next_id: u64,
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts one; else why there is none.
    pub(crate) fn start() -> Result<Browser, &'static str> {
        let runs = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
        let name = NAMES.iter().find(runs).ok_or("there is no Chromium here")?;
        let profile = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
        let mut command = Command::new(name);
        command.args(["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"]);
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg("about:blank");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it has told its version");
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let (found, address) = std::sync::mpsc::channel();
        // Read to its end: a full pipe would stop the browser.
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix("DevTools listening on ") {
                    let _ = found.send(address.to_owned());
                }
            }
        });
        let Ok(address) = address.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{name} did not say where it listens");
        };
        let (socket, _) = tungstenite::connect(address).expect("the browser listens");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a timeout");
        }
        let mut browser =
            Browser { child, socket, session: String::new(), next_id: 1, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        browser.session = browser.call("Target.attachToTarget", target)["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Ok(browser)
    }

    /// Sends a command and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(command.to_string())).expect("the browser listens");
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().expect("the browser answers") {
                return serde_json::from_str(&text).expect("the browser speaks JSON");
            }
        }
    }

    /// Goes to a page and waits until it is loaded.
    pub(crate) fn open(&mut self, url: &str) {
        self.events.clear();
        let answer = self.call("Page.navigate", json!({"url": url}));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
        self.wait_for("document.readyState === 'complete' && document.querySelector('main') !== null");
    }

    /// A screen of this width in CSS pixels, light or dark.
    pub(crate) fn screen(&mut self, width: u32, height: u32, is_dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// What an expression comes to; promises are awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let give_up = Instant::now() + PATIENCE;
        while self.evaluate(expression) != true {
            assert!(
                Instant::now() < give_up,
                "{expression} does not become true: {}",
                self.evaluate("document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Errors and warnings of the page since it was opened.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // The answer comes after all events so far.
        self.evaluate("1");
        let is_complaint = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => matches!(event["params"]["type"].as_str(), Some("error" | "warning")),
            Some("Log.entryAdded") => {
                matches!(event["params"]["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            _ => false,
        };
        self.events.iter().filter(is_complaint).map(Value::to_string).collect()
    }

    /// Addresses that the page has asked for since it was opened.
    pub(crate) fn requests(&mut self) -> Vec<String> {
        self.evaluate("1");
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.filter_map(|event| event["params"]["request"]["url"].as_str()).map(str::to_owned).collect()
    }

    /// Pictures of the screen as it is and of the whole page, for people, where the variable PLIMSOLL_SCREENSHOTS names
    /// a directory.
    pub(crate) fn screenshot(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("PLIMSOLL_SCREENSHOTS") else { return };
        let size = &self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"];
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let whole = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        for (ending, parameters) in [("", json!({"format": "png"})), ("-whole", whole)] {
            let picture = self.call("Page.captureScreenshot", parameters);
            let path = Path::new(&directory).join(format!("{name}{ending}.png"));
            std::fs::write(path, base64(picture["data"].as_str().unwrap())).expect("a screenshot can be written");
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes that a text of base64 stands for.
fn base64(text: &str) -> Vec<u8> {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|digit| *digit != b'=').collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | value(*digit)) << (6 * (4 - four.len()));
        bits.to_be_bytes().into_iter().skip(1).take(four.len() - 1).collect::<Vec<_>>()
    });
    bytes.collect()
}
