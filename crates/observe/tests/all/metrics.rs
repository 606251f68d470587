//! Metrics from end to end: a program with a control socket and a host's verdicts, as Prometheus reads them, and what
//! `monitoring/` makes of them. Prometheus's own tool judges where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::buffer::AlignedBuf;
use plimsoll::control::{Client, Server};
use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, Rate};
use plimsoll::metrics::{ClassMetrics, LATENCY_BOUNDS_NS, Metrics, ProgramMetrics, encode};
use plimsoll::{Classes, DiskSetup, Runtime, ShardOptions, Topology};
use plimsoll_observe::metrics::encode_host;
use plimsoll_observe::stat::{Basis, Columns, DeviceInterval, GroupObserved, Judged, Observed, Part, Remark, Verdict};

use crate::skip::skip;

const BLOCK_BYTES: u32 = 4096;
const READS: u64 = 200;
const WRITES: u64 = 100;
/// A name that must be escaped.
const QUERY: &str = "query \"fast\" \\ 1";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        std::thread::yield_now();
    }
}

fn topology() -> Topology {
    let classes = Classes::new();
    let background = classes.add_group("background", None, 50).unwrap();
    classes.add_class(QUERY, None, 100).unwrap();
    classes.add_class("backup", Some(background), 20).unwrap();
    let figures = FourFigures {
        read_iops: Rate::per_second(50_000),
        write_iops: Rate::per_second(50_000),
        read_bandwidth: Rate::per_second(1_000_000_000),
        write_bandwidth: Rate::per_second(1_000_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, BLOCK_BYTES, BLOCK_BYTES);
    let disks = vec![DiskSetup::new(DiskConfig { model, ..DiskConfig::default() }), DiskSetup::unlimited()];
    Topology::new(2, classes, disks).unwrap()
}

/// Writes as `backup` and reads as [`QUERY`], on both shards.
async fn work(runtime: &Runtime, topology: &Topology) -> io::Result<()> {
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = topology.file("table".as_ref(), how, 0);
    let (backup, query) = (topology.classes().find("backup").unwrap(), topology.classes().find(QUERY).unwrap());
    let block = || AlignedBuf::new(BLOCK_BYTES as usize).unwrap();
    let offset = |n: u64| n % WRITES * u64::from(BLOCK_BYTES);
    for n in 0..WRITES {
        runtime.handle(n as u16 % 2).write_at(&file, backup, offset(n), block()).await.0?;
    }
    for n in 0..READS {
        runtime.handle(n as u16 % 2).read_at(&file, query, offset(n), block()).await.0?;
    }
    Ok(())
}

/// What a program says of itself over its control socket after its work.
fn program() -> &'static ProgramMetrics {
    static PROGRAM: OnceLock<ProgramMetrics> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let place = tempfile::tempdir().unwrap();
        let topology = topology();
        let options = ShardOptions { backend: Some(BackendKind::Memory), pin: false, ..ShardOptions::default() };
        let runtime = Runtime::start(&topology, &options).unwrap();
        let server = Server::start_in(&place.path().join("sockets"), &topology, "test").unwrap();
        block_on(work(&runtime, &topology)).unwrap();
        // A slow machine may take longer than a shard's deadline.
        let whole = |ask: &mut dyn FnMut() -> ProgramMetrics| {
            std::iter::repeat_with(ask).find(|metrics| metrics.missing_shards.is_empty()).unwrap()
        };
        let mut client = Client::connect(server.path()).unwrap();
        let metrics = whole(&mut || client.metrics().unwrap());
        let inside = Metrics::new(&topology, "test");
        let direct = whole(&mut || inside.take());
        for (asked, direct) in metrics.disks.iter().zip(&direct.disks) {
            assert_eq!(asked.classes, direct.classes, "who asks makes no difference");
        }
        drop(runtime);
        metrics
    })
}

fn host() -> Observed {
    let device = |name: &str, verdict, used| Judged {
        interval: DeviceInterval {
            device: name.to_owned(),
            columns: Columns { util_percent: Some(100.0), ..Columns::default() },
            ..DeviceInterval::default()
        },
        capacity_use: Some(used),
        capacity_basis: Basis::HighestSeen,
        saturation: Some(0.0),
        read_saturation: Some(0.0),
        write_saturation: Some(0.0),
        verdict,
        why: "97 % of its capacity is free".to_owned(),
        remarks: vec![Remark { code: "util-misleads", message: "It is busy, not full.".to_owned() }],
    };
    let part = |device: &str, bytes_share| Part { device: device.to_owned(), bytes_share, await_ms: Some(0.1) };
    let group = GroupObserved {
        group: "md0".to_owned(),
        parts: vec![part("nvme0n1", 0.9), part("nvme1n1", 0.1)],
        effective_devices: Some(1.0 / (0.81 + 0.01)),
        verdict: Verdict::Imbalanced,
        why: "one of two does 90 %".to_owned(),
        remarks: vec![Remark { code: "straggler", message: "It lags.".to_owned() }],
    };
    Observed {
        end_unix_ms: Some(1_700_000_000_000),
        duration_s: Some(1.0),
        devices: vec![device("nvme0n1", Verdict::BusyButFree, 0.03), device("nvme1n1", Verdict::Ok, 0.4)],
        groups: vec![group],
        ..Observed::default()
    }
}

/// What `plimsoll serve` says of itself, as its own tests check.
const OF_SERVE: &str = "# HELP plimsoll_host_look_failed 1 where the last look failed.\n\
                        # TYPE plimsoll_host_look_failed gauge\nplimsoll_host_look_failed 0\n";

/// One page, as a host with one program gives it.
fn page() -> String {
    encode(std::slice::from_ref(program())) + &encode_host(&host()) + OF_SERVE
}

/// What `promtool` says; `None`, and one line why, where there is none.
fn promtool(arguments: &[&str], input: &str, directory: &Path) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(format_args!("promtool is not installed, so `promtool {}` was not run", arguments.join(" ")));
            return None;
        }
        Err(error) => panic!("promtool: {error}"),
    };
    // One that does not read it hangs up.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Some(child.wait_with_output().unwrap())
}

fn assert_success(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(monitoring().join(file)).unwrap()
}

/// All values of the key `key`, wherever they stand.
fn values_of(key: &str, within: &serde_json::Value, found: &mut Vec<String>) {
    match within {
        serde_json::Value::Object(map) => {
            found.extend(map.get(key).and_then(|value| value.as_str()).map(str::to_owned));
            map.values().for_each(|value| values_of(key, value, found));
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| values_of(key, value, found)),
        _ => {}
    }
}

fn dashboard(file: &str) -> (Vec<String>, Vec<String>) {
    let dashboard: serde_json::Value = serde_json::from_str(&read(file)).unwrap();
    let (mut expressions, mut variables) = (Vec::new(), Vec::new());
    values_of("expr", &dashboard, &mut expressions);
    values_of("query", &dashboard, &mut variables);
    (expressions, variables)
}

/// The words of `text` that begin as metrics do.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter));
    words.filter(|word| word.starts_with("plimsoll_") && !word.ends_with('_')).collect()
}

#[test]
fn the_work_of_a_program_is_in_its_metrics() {
    let [model, unlimited] = &program().disks[..] else { panic!("{:?}", program().disks) };
    assert_eq!((program().program.as_str(), program().pid, program().shards), ("test", std::process::id(), 2));
    assert!(model.model.is_some() && unlimited.model.is_none());
    let class = |name: &str| model.classes.iter().find(|class| class.class == name).unwrap();
    let (query, backup) = (class(QUERY), class("backup"));
    assert_eq!((query.group.as_deref(), query.shares), (None, 100));
    assert_eq!((backup.group.as_deref(), backup.shares), (Some("background"), 20));
    let done = |class: &ClassMetrics| [&class.read, &class.write].map(|way| (way.requests, way.bytes));
    assert_eq!(done(query), [(READS, READS * u64::from(BLOCK_BYTES)), (0, 0)]);
    assert_eq!(done(backup), [(0, 0), (WRITES, WRITES * u64::from(BLOCK_BYTES))]);
    for (used, unused, requests) in [(&query.read, &query.write, READS), (&backup.write, &backup.read, WRITES)] {
        for latency in [&used.queue, &used.device, &used.total] {
            assert_eq!(latency.count, requests);
            assert!(latency.buckets.iter().map(|(_, count)| count).sum::<u64>() <= requests);
            assert!(latency.buckets.iter().all(|(bound_ns, _)| LATENCY_BOUNDS_NS.contains(bound_ns)));
        }
        assert!(used.total.sum_ns >= used.device.sum_ns, "{used:?}");
        assert_eq!((unused.queue.count, unused.device.count, unused.total.count), (0, 0, 0));
    }
    // By the model a request takes 20 us.
    assert_eq!(query.consumed_ns, READS * 20_000);
    assert!(query.dispatched == READS && query.activations == READS && query.errors == 0, "{query:?}");
    assert!(unlimited.classes.iter().all(|class| class.dispatched == 0));
}

#[test]
fn the_page_says_what_was_done() {
    let (page, pid) = (page(), std::process::id());
    let labels = format!(r#"program="test",pid="{pid}",disk="0",class="query \"fast\" \\ 1""#);
    let bytes = READS * u64::from(BLOCK_BYTES);
    let lines = [
        format!("plimsoll_io_queue_total_bytes{{{labels}}} {bytes}"),
        format!("plimsoll_io_queue_total_read_ops{{{labels}}} {READS}"),
        format!("plimsoll_io_queue_consumption{{{labels},stream=\"rw\"}} 0.004"),
        format!("plimsoll_io_queue_latency_seconds_count{{{labels},direction=\"read\",stage=\"total\"}} {READS}"),
        r#"plimsoll_disk_verdict{device="nvme0n1",verdict="busy-but-free"} 1"#.to_owned(),
    ];
    for line in lines {
        assert!(page.lines().any(|found| found == line), "{line}\n{page}");
    }
}

/// Prometheus reads the page, and finds no fault but with names that are Seastar's.
#[test]
fn promtool_checks_the_page() {
    let Some(output) = promtool(&["check", "metrics"], &page(), &monitoring()) else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    // 3: some name is not as advised; anything else, and the page cannot be read.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{told}");
    let seastar = [
        "total_bytes",
        "total_operations",
        "total_read_bytes",
        "total_read_ops",
        "total_write_bytes",
        "total_write_ops",
        "total_split_ops",
        "total_delay_sec",
        "total_exec_sec",
        "starvation_time_sec",
        "consumption",
        "activations",
    ];
    for fault in told.lines() {
        let name = fault.split_whitespace().next().unwrap_or_default();
        let seastars = name.strip_prefix("plimsoll_io_queue_").is_some_and(|word| seastar.contains(&word));
        assert!(seastars, "{fault}");
    }
}

#[test]
fn promtool_checks_and_tests_the_rules() {
    let all = [
        ["check", "rules", "alerts.yaml"],
        ["test", "rules", "alerts_test.yaml"],
        ["test", "rules", "rules_test.yaml"],
        // With the rules and targets that it names.
        ["check", "config", "prometheus.yaml"],
    ];
    for arguments in all {
        promtool(&arguments, "", &monitoring()).iter().for_each(assert_success);
    }
}

/// A fleet's Prometheus drops most series of a host. An alert whose series are dropped never fires, and nobody is told.
#[test]
fn a_fleet_keeps_what_its_rules_and_its_dashboard_ask_for() {
    let config = read("prometheus.yaml").replace("\\\n", "");
    let kept: String = config.split("regex: \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let kept: BTreeSet<&str> = kept.split('|').map(str::trim).collect();
    assert!(kept.len() > 10, "{kept:?}");
    let (expressions, variables) = dashboard("grafana-fleet.json");
    for text in [read("rules.yaml"), read("alerts.yaml"), expressions.join("\n"), variables.join("\n")] {
        // What a rule records is no series of a host.
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
        for name in words.filter(|word| word.starts_with("plimsoll_") && !word.contains(':')) {
            assert!(kept.contains(name), "{name} is asked for, and dropped");
        }
    }
    let page = page();
    for name in &kept {
        assert!(["{", " "].iter().any(|end| page.contains(&format!("\n{name}{end}"))), "nothing exports {name}");
    }
}

/// A dashboard that asks for a series that no rule records is empty, and nobody is told why.
#[test]
fn every_recorded_series_is_tested_told_of_and_drawn() {
    let rules = read("rules.yaml");
    let recorded: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    assert_eq!(recorded.len(), 7);
    let (expressions, variables) = dashboard("grafana-fleet.json");
    for name in &recorded {
        assert!(read("rules_test.yaml").contains(&format!("- expr: {name}\n")), "{name} is not tested");
        assert!(read("README.md").contains(&format!("`{name}`")), "README.md does not tell of {name}");
        let drawn = expressions.iter().any(|expression| expression.contains(&format!("{name}{{")));
        let feeds = rules.contains(&format!(", {name})"));
        assert!(drawn || feeds, "{name} is drawn nowhere");
    }
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_:".contains(letter);
    let all = [expressions, variables].concat().join("\n");
    for word in all.split(|letter: char| !is_part(letter)).filter(|word| word.contains(":plimsoll_")) {
        assert!(recorded.contains(word), "no rule records {word}");
    }
}

#[test]
fn every_alert_is_tested_firing_and_not_firing() {
    let (rules, tests) = (read("alerts.yaml"), read("alerts_test.yaml"));
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let mut tested: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    let mut lines = tests.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(alert) = line.strip_prefix("alertname: ") {
            let is_quiet = lines.next() == Some("exp_alerts: []");
            tested.entry(alert).or_default()[usize::from(is_quiet)] = true;
        }
    }
    for alert in alerts {
        assert_eq!(tested.get(alert), Some(&[true, true]), "{alert}");
        assert!(read("README.md").contains(&format!("`{alert}`")), "README.md does not tell of {alert}");
    }
}

#[test]
fn every_name_that_is_used_is_exported_and_every_name_exported_is_told_of() {
    let page = page();
    let families: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let (mut expressions, mut variables) = dashboard("grafana-dashboard.json");
    assert!(expressions.len() > 20 && variables.len() > 5, "{expressions:?} {variables:?}");
    let fleet = dashboard("grafana-fleet.json");
    expressions.extend(fleet.0);
    variables.extend(fleet.1);
    let files = ["alerts.yaml", "alerts_test.yaml", "rules.yaml", "rules_test.yaml"].map(read).join("\n");
    let used = [files, expressions.join("\n"), variables.join("\n")];
    for name in used.iter().flat_map(|text| names(text)) {
        let family = name.strip_suffix("_bucket").unwrap_or(name);
        assert!(families.contains(family), "nothing exports {name}");
    }
    let readme = read("README.md");
    let is_told = |family: &str| {
        let prefixes = ["", "plimsoll_io_queue_", "plimsoll_io_disk_", "plimsoll_disk_"];
        prefixes
            .iter()
            .filter_map(|prefix| family.strip_prefix(prefix))
            .any(|word| readme.contains(&format!("`{word}`")))
    };
    families.iter().for_each(|family| assert!(is_told(family), "README.md does not tell of {family}"));
}

/// Every query of the dashboards is one that Prometheus can run: each becomes a rule that is checked.
#[test]
fn promtool_checks_the_queries_of_the_dashboards() {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let expressions = ["grafana-dashboard.json", "grafana-fleet.json"].map(|file| dashboard(file).0).concat();
    for (number, expression) in expressions.iter().enumerate() {
        let expression = expression.replace("$__rate_interval", "5m");
        // What is left are variables inside of strings, which a matcher takes as they are.
        rules +=
            &format!("      - record: query:{number}\n        expr: {}\n", serde_json::to_string(&expression).unwrap());
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("rules.yaml"), rules).unwrap();
    promtool(&["check", "rules", "rules.yaml"], "", place.path()).iter().for_each(assert_success);
}
