//! A program that answers as many hosts with `plimsoll serve` would: each host is a simulated disk with a database's six
//! classes of I/O on it.
//!
//! **Why.** What a thousand hosts cost a Prometheus shows only when one reads a thousand hosts.
//!
//! **How.** All disks run on one thread, in virtual time that is never ahead of the clock. Host N answers at
//! `/N/metrics`, with the verdict of `stat` on what its classes did since the last scrape, and with the classes
//! themselves. One host of a hundred has more to do than its disk can; the others use a twentieth of theirs.
//!
//! **Limits.** Where one CPU cannot simulate all hosts, their time falls behind the clock's, and rates look lower. A
//! connection is closed after its answer. What a disk did is taken from the classes, its only users: `%util` is the
//! device time of requests, at most all of the time.
//!
//! **Example.** `cargo run --release -p plimsoll-benches --example fleet -- 127.0.0.1:9700 1000`

use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use plimsoll::backend::OpenOptions;
use plimsoll::backend::sim::{SimConfig, SimDisk, SimWorld};
use plimsoll::buffer::AlignedBuf;
use plimsoll::metrics::{CONTENT_TYPE, DirectionMetrics, Metrics, ProgramMetrics, encode};
use plimsoll::{Class, Classes, DiskMode, DiskSetup, ReactorConfig, Shard, SharedFile, SimRuntime, Topology};
use plimsoll_files::disk::{self, DiskModel};
use plimsoll_observe::metrics::encode_host;
use plimsoll_observe::stat::capacity::Capacity;
use plimsoll_observe::stat::watch::{ANY_DEVICE, Watch, WatchOptions};
use plimsoll_observe::stat::{Columns, DeviceInterval, Facts, Interval};

type Failed = Box<dyn Error + Send + Sync>;

/// The disk of each host: slow, so that a thousand of them do not take a CPU.
const DISK: &str = "hdd";
/// Most of the disk: with short ways of the arm it does more than its figures.
const FILE_BYTES: u64 = 3 << 40;

/// The classes, with their shares, the part of a host's requests that they make, and the length of these.
const CLASSES: [(&str, u32, f64, usize, Does); 6] = [
    ("query", 200, 0.4, 4096, Does::Read),
    ("commitlog", 200, 0.2, 4096, Does::Write),
    ("memtable", 100, 0.1, 16_384, Does::Write),
    ("compaction", 100, 0.15, 16_384, Does::Both),
    ("repair", 20, 0.1, 16_384, Does::Both),
    ("analytics", 20, 0.05, 16_384, Does::Read),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    Read,
    Write,
    Both,
}

/// Threads that answer.
const ANSWERING: usize = 4;

/// Virtual time of a turn. Between two turns a host answers scrapes.
const TURN: Duration = Duration::from_millis(20);

fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let (Some(address), Some(hosts), None) = (words.next(), words.next(), words.next()) else {
        return Err("expected an address and a number of hosts, such as 127.0.0.1:9700 1000".into());
    };
    let hosts: usize = hosts.parse().map_err(|error| format!("{hosts}: expected a number of hosts: {error}"))?;
    let model = disk::find(DISK, Path::new("."))?;
    let listener = TcpListener::bind(&address).map_err(|error| format!("{address}: {error}"))?;

    let (ready, made) = mpsc::channel();
    let volume = model.clone();
    // Simulated shards stay on the thread that made them.
    let clock_ns = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&clock_ns);
    let simulating = std::thread::spawn(move || simulate(hosts, &volume, &ready, &clock));
    let Ok(metrics) = made.recv() else {
        return simulating.join().unwrap_or_else(|_| Err("the simulation panicked".into()));
    };
    let answers: Vec<Mutex<Answers>> =
        metrics.into_iter().map(|metrics| Mutex::new(Answers::new(metrics, &clock_ns, &model))).collect();
    println!("{hosts} hosts at http://{address}/0/metrics to /{}/metrics", hosts.saturating_sub(1));

    let answers = Arc::new(answers);
    for _ in 0..ANSWERING {
        let (listener, answers) = (listener.try_clone()?, Arc::clone(&answers));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                match stream {
                    // A client that left is no matter of this program's.
                    Ok(stream) => _ = answer(stream, &answers),
                    // Too many connections: some will have ended.
                    Err(_) => std::thread::sleep(TURN),
                }
            }
        });
    }
    simulating.join().unwrap_or_else(|_| Err("the simulation panicked".into()))
}

/// Runs all hosts, and sends their metrics. `clock_ns` is their clock.
fn simulate(
    hosts: usize,
    model: &DiskModel,
    ready: &mpsc::Sender<Vec<Metrics>>,
    clock_ns: &AtomicU64,
) -> Result<(), Failed> {
    let made: Vec<(SimRuntime, Metrics)> = (0..hosts).map(|number| host(number, model)).collect::<Result<_, _>>()?;
    let (runtimes, metrics): (Vec<_>, Vec<_>) = made.into_iter().unzip();
    ready.send(metrics)?;
    let began = Instant::now();
    for turn in 1u32.. {
        std::thread::sleep((TURN * turn).saturating_sub(began.elapsed()));
        runtimes.iter().try_for_each(|runtime| runtime.run_for(TURN))?;
        clock_ns.store((TURN * turn).as_nanos() as u64, Relaxed);
    }
    Ok(())
}

/// Returns a host whose classes have begun.
fn host(number: usize, model: &DiskModel) -> Result<(SimRuntime, Metrics), Failed> {
    let spec = model.device.clone().ok_or_else(|| format!("{DISK}: nothing is known of its inside"))?;
    let most_per_s = 1.0 / model.figures.read_iops.seconds_per_unit();
    let is_overloaded = number.is_multiple_of(100);
    let requests_per_s = most_per_s * if is_overloaded { 2.0 } else { 0.05 };
    // Nothing is held back, or what waits would wait in the program, where `stat` sees no saturated disk.
    let mode = if is_overloaded { DiskMode::Drain } else { DiskMode::Scheduled };
    let disks = vec![SimDisk { spec, ..SimDisk::default() }];
    let config = SimConfig { seed: number as u64 + 1, disks, keep_contents: false, ..SimConfig::default() };
    let world = SimWorld::new(&config)?;
    let setup = DiskSetup { max_requests: 256, mode, ..DiskSetup::new(model.config()) };
    let topology = Topology::with_config(1, Classes::new(), vec![setup], ReactorConfig { max_requests: 256 })?;
    let runtime = SimRuntime::new(&world, &topology)?;

    let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = topology.file("data".as_ref(), create, 0);
    let shard = runtime.shard(0).clone();
    runtime.block_on(0, shard.set_len(&file, Class::DEFAULT, FILE_BYTES))??;
    for (at, (name, shares, part, len_bytes, does)) in CLASSES.into_iter().enumerate() {
        let class = topology.classes().add_class(name, None, shares)?;
        let load = Load { class, len_bytes, does, mean_s: 1.0 / (part * requests_per_s) };
        shard.spawn(offer(shard.clone(), Arc::clone(&file), load, (number * CLASSES.len() + at) as u64)).detach();
    }
    Ok((runtime, Metrics::new(&topology, "database")))
}

struct Load {
    class: Class,
    len_bytes: usize,
    does: Does,
    mean_s: f64,
}

/// Offers the load for ever: requests come by a Poisson process, and wait for none before them.
async fn offer(shard: Shard, file: Arc<SharedFile>, load: Load, seed: u64) {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = move || {
        // xorshift64 (Marsaglia 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    loop {
        let uniform = (draw() >> 11) as f64 / (1u64 << 53) as f64;
        shard.sleep(Duration::from_secs_f64(-load.mean_s * (1.0 - uniform).ln())).await;
        let offset = draw() % (FILE_BYTES / load.len_bytes as u64) * load.len_bytes as u64;
        let is_read = load.does == Does::Read || load.does == Does::Both && draw() % 2 == 0;
        let Ok(buffer) = AlignedBuf::new(load.len_bytes) else { continue };
        let (own, file, class) = (shard.clone(), Arc::clone(&file), load.class);
        let request = async move {
            // Refusals and errors are counted where they happen.
            let _ = if is_read {
                own.read_at(&file, class, offset, buffer).await
            } else {
                own.write_at(&file, class, offset, buffer).await
            };
        };
        shard.spawn(request).detach();
    }
}

/// What a host answers, and what it remembers for that.
struct Answers {
    metrics: Metrics,
    watch: Watch,
    before: ProgramMetrics,
    clock_ns: Arc<AtomicU64>,
    asked_ns: u64,
    page: String,
}

impl Answers {
    fn new(metrics: Metrics, clock_ns: &Arc<AtomicU64>, model: &DiskModel) -> Answers {
        let capacities = [(ANY_DEVICE.to_owned(), Capacity::of_model(DISK, model))].into();
        let watch = Watch::new(WatchOptions { capacities, ..WatchOptions::default() });
        Answers {
            metrics,
            watch,
            before: ProgramMetrics::default(),
            clock_ns: Arc::clone(clock_ns),
            asked_ns: 0,
            page: String::new(),
        }
    }

    fn page(&mut self) -> &str {
        let now_ns = self.clock_ns.load(Relaxed);
        // Within a turn nothing new has happened.
        if now_ns == self.asked_ns {
            return &self.page;
        }
        let duration_s = (now_ns - self.asked_ns) as f64 / 1e9;
        self.asked_ns = now_ns;
        let now = self.metrics.take();
        let device = DeviceInterval {
            device: "nvme0n1".to_owned(),
            columns: columns(&now, &self.before, duration_s),
            in_flight: Some(now.disks.iter().flat_map(|disk| &disk.classes).map(|class| class.in_flight).sum()),
            gap: None,
        };
        let interval = Interval { duration_s: Some(duration_s), devices: vec![device], ..Interval::default() };
        let observed = self.watch.observe(&interval, &Facts::new());
        self.page = encode_host(&observed) + &encode(std::slice::from_ref(&now));
        self.before = now;
        &self.page
    }
}

/// Requests, bytes, and time in the device in ns.
fn total(of: &ProgramMetrics, direction: fn(&plimsoll::metrics::ClassMetrics) -> &DirectionMetrics) -> [f64; 3] {
    let each = of.disks.iter().flat_map(|disk| &disk.classes).map(direction);
    each.fold([0.0; 3], |[requests, bytes, ns], it| {
        [requests + it.requests as f64, bytes + it.bytes as f64, ns + it.device.sum_ns as f64]
    })
}

/// Returns what `iostat -x` would have shown.
fn columns(now: &ProgramMetrics, before: &ProgramMetrics, duration_s: f64) -> Columns {
    let since = |direction| {
        let (now, before) = (total(now, direction), total(before, direction));
        [now[0] - before[0], now[1] - before[1], now[2] - before[2]]
    };
    let (reads, writes) = (since(|class| &class.read), since(|class| &class.write));
    let await_ms = |[requests, _, ns]: [f64; 3]| if requests > 0.0 { ns / requests / 1e6 } else { 0.0 };
    let under_way = (reads[2] + writes[2]) / 1e9 / duration_s;
    Columns {
        reads_per_s: Some(reads[0] / duration_s),
        writes_per_s: Some(writes[0] / duration_s),
        read_kib_per_s: Some(reads[1] / 1024.0 / duration_s),
        write_kib_per_s: Some(writes[1] / 1024.0 / duration_s),
        read_await_ms: Some(await_ms(reads)),
        write_await_ms: Some(await_ms(writes)),
        queue: Some(under_way),
        util_percent: Some(100.0 * under_way.min(1.0)),
        ..Columns::default()
    }
}

/// Answers one request, and closes the connection.
fn answer(mut stream: TcpStream, hosts: &[Mutex<Answers>]) -> io::Result<()> {
    let patience = Some(Duration::from_secs(2));
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // The rest of the head is read, or closing would reset the connection.
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}

    let number = first.strip_prefix("GET /").and_then(|rest| rest.split_once("/metrics"));
    let host = number.and_then(|(number, _)| hosts.get(number.parse::<usize>().ok()?));
    let (status, body) = match host {
        Some(host) => ("200 OK", host.lock().unwrap_or_else(PoisonError::into_inner).page().to_owned()),
        None => ("404 Not Found", "There is no such host.\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
