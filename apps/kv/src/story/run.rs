//! Runs a story in one way: server and clients in this process.
//!
//! # Why
//! One command, nothing to install, and the clients are the ones that measure any server.
//!
//! # How it works
//! A database is filled, settles until compactions are through, and is opened anew, so that its cache is cold. Then the
//! server starts, and the phases follow each other without a pause. [`super::record`] says what is looked at.
//!
//! # Limits
//! Clients take their part of the processors; the table shows how many were busy.
//!
//! # Example
//! `run_way(&setting, Way::Drained).await`

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plimsoll::control::{Client, Snapshot};
use plimsoll::sys::rusage::process_cpu_s;
use slatedb::compactor::stats::RUNNING_COMPACTIONS;
use slatedb::db_stats::{BACKPRESSURE_COUNT, L0_STALL_COUNT};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::phases::{Phase, Story};
use super::record::{ClassFigures, LoadFigures, PhaseRecord, Record, Sample, Way, machine_cpu_s};
use crate::command::Service;
use crate::controllers::Controllers;
use crate::database::{Database, DatabaseOptions};
use crate::failure::Failure;
use crate::resp::Limits;
use crate::server::serve_connections;
use crate::stress::population::key;
use crate::stress::run::Load;
use crate::stress::tally::Part;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// A tree that has neither changed nor been compacted for so long has settled.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest wait for that.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Lifetime of a scan's view of the keys.
const SCAN_LIFETIME: Duration = Duration::from_secs(3600);

/// What all ways of a story have in common.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The story.
    pub story: Story,
    /// The database's options; each way has a directory of its own below this one.
    pub database: DatabaseOptions,
    /// Keys that the database is filled with.
    pub keys: u64,
    /// Length of a phase.
    pub length: Duration,
}

/// Runs the story in one way.
///
/// # Errors
/// See [`Failure`].
pub async fn run_way(setting: &Setting, way: Way) -> Result<Record, Failure> {
    let mut options = setting.database.clone();
    options.directory = options.directory.join(way.name().replace(' ', "-"));
    let directory = options.directory.clone();
    options.is_drained = way == Way::Drained;
    let database = Database::open(&options).await?;
    fill(&database, setting).await?;
    database.close().await?;

    let database = Database::open(&options).await?;
    let socket = database.engine().control_socket().map(ToOwned::to_owned);
    let socket = socket.map_err(|reason| Failure::machine("a story looks through the control socket", reason))?;
    let listening = |error| Failure::machine("cannot listen on loopback", error);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.map_err(listening)?;
    let server = listener.local_addr().map_err(listening)?;
    let service = Arc::new(Service {
        database,
        limits: Limits { key_max_bytes: 1 << 10, value_max_bytes: 1 << 20 },
        connections_max: 1000,
        started: Instant::now(),
        connections: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        commands: AtomicU64::new(0),
    });
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve_connections(listener, Arc::clone(&service), stopped.clone()));
    let controlling = (way == Way::Controllers).then(|| {
        let service = Arc::clone(&service);
        tokio::spawn(async move { Controllers::new(&service.database).run(&service.database, stopped).await })
    });

    let attach = || Client::connect(&socket).map_err(|error| Failure::machine("cannot look at the classes", error));
    let mut stage = Stage {
        service: Arc::clone(&service),
        looks: attach()?,
        ends: attach()?,
        begun: Instant::now(),
        record: Record { way, phases: Vec::new(), samples: Vec::new() },
    };
    for phase in setting.story.phases(server, setting.keys, setting.length) {
        stage = stage.play(phase).await?;
    }
    let record = stage.end();

    // Both tasks hold a receiver.
    let _ = stop.send(true);
    for task in [Some(serving), controlling].into_iter().flatten() {
        task.await.map_err(|error| Failure::machine("the server failed", error))?;
    }
    let service = Arc::into_inner(service);
    let service = service.ok_or_else(|| Failure::Machine("a connection did not end".to_owned()))?;
    service.database.close().await?;
    let removed = std::fs::remove_dir_all(&directory);
    removed.map_err(|error| Failure::machine(format_args!("cannot remove {}", directory.display()), error))?;
    Ok(record)
}

/// Fills the database and waits until compactions are through.
async fn fill(database: &Database, setting: &Setting) -> Result<(), Failure> {
    let failed = |error| Failure::machine("cannot fill the database", error);
    let content: Vec<u8> = (0..setting.story.value_bytes() + 256).map(|at| ((at * at) >> 3) as u8).collect();
    let mut last = None;
    for number in 1..=setting.keys {
        let from = number as usize % 256;
        let value = &content[from..from + setting.story.value_bytes() as usize];
        last = Some(database.set(&key(number), value).await.map_err(failed)?);
    }
    if let Some(handle) = last {
        handle.await_durable().await.map_err(failed)?;
    }
    database.slatedb().flush().await.map_err(failed)?;

    let (begun, mut changed) = (Instant::now(), Instant::now());
    let mut id = database.slatedb().manifest().id();
    while changed.elapsed() < SETTLED && begun.elapsed() < SETTLE_TIMEOUT {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = database.slatedb().manifest().id();
        if now != id || database.figure(RUNNING_COMPACTIONS) > 0 {
            (id, changed) = (now, Instant::now());
        }
    }
    Ok(())
}

/// The story while it is played.
struct Stage {
    service: Arc<Service>,
    /// Looks every half second.
    looks: Client,
    /// Looks at the ends of phases.
    ends: Client,
    begun: Instant,
    record: Record,
}

impl Stage {
    /// Plays a phase. Looking blocks, so it happens on a thread for that.
    async fn play(self, phase: Phase) -> Result<Stage, Failure> {
        let (is_over, scanned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let scanning = phase.has_scan.then(|| {
            let (service, is_over, scanned) = (Arc::clone(&self.service), Arc::clone(&is_over), Arc::clone(&scanned));
            tokio::spawn(async move { scan(&service.database, &is_over, &scanned).await })
        });
        let counted = Arc::clone(&scanned);
        let played = tokio::task::spawn_blocking(move || self.look_on(&phase, &counted)).await;
        is_over.store(true, Ordering::Relaxed);
        if let Some(scanning) = scanning {
            scanning.await.map_err(|error| Failure::machine("the scan failed", error))??;
        }
        played.map_err(|error| Failure::machine("the story failed", error))?
    }

    /// Returns what was seen, and lets go of the server.
    fn end(self) -> Record {
        self.record
    }

    fn look_on(mut self, phase: &Phase, scanned: &AtomicU64) -> Result<Stage, Failure> {
        let classes = self.service.database.topology().classes().clone();
        for (name, shares) in phase.shares {
            // The story's classes are there.
            let _ = classes.find(name).map(|class| classes.set_shares(class, *shares));
        }
        let loads: Vec<Load> =
            phase.loads.iter().map(|load| Load::start(load.plan.clone())).collect::<Result<_, _>>()?;
        let (from, cpu_s, machine_s, stalls) = (Instant::now(), process_cpu_s(), machine_cpu_s(), self.stalls());
        snapshot(&mut self.ends)?;

        let mut sums: Vec<Part> = phase.loads.iter().map(|_| Part::new()).collect();
        let mut last = from;
        while from.elapsed() < phase.duration {
            std::thread::sleep(LOOK.min(phase.duration.saturating_sub(from.elapsed())));
            let classes = ClassFigures::of_all(&snapshot(&mut self.looks)?);
            let (now, taken) = (Instant::now(), loads.iter().map(taken).collect::<Vec<Part>>());
            let figures = |(part, load): (&Part, &super::phases::PhaseLoad)| figures(load.name, part, now - last);
            let sample = Sample {
                at_s: self.begun.elapsed().as_secs_f64(),
                classes,
                loads: taken.iter().zip(&phase.loads).map(figures).collect(),
            };
            self.record.samples.push(sample);
            sums.iter_mut().zip(&taken).for_each(|(sum, part)| sum.add(part));
            last = now;
        }

        let length = from.elapsed();
        let cpus = (process_cpu_s() - cpu_s) / length.as_secs_f64();
        let classes = ClassFigures::of_all(&snapshot(&mut self.ends)?);
        let record = PhaseRecord {
            name: phase.name,
            from_s: (from - self.begun).as_secs_f64(),
            length,
            classes,
            loads: sums.iter().zip(&phase.loads).map(|(sum, load)| figures(load.name, sum, length)).collect(),
            cpus,
            other_cpus: ((machine_cpu_s() - machine_s) / length.as_secs_f64() - cpus).max(0.0),
            scanned: scanned.load(Ordering::Relaxed),
            stalls: self.stalls() - stalls,
        };
        self.record.phases.push(record);
        Ok(self)
    }

    fn stalls(&self) -> u64 {
        let database = &self.service.database;
        database.figure(BACKPRESSURE_COUNT) + database.figure(L0_STALL_COUNT)
    }
}

fn snapshot(client: &mut Client) -> Result<Snapshot, Failure> {
    client.snapshot().map_err(|error| Failure::machine("cannot look at the classes", error))
}

/// Takes what a load has noted since the last time, reads and writes together.
fn taken(load: &Load) -> Part {
    let [mut part, writes] = load.tally().take();
    part.add(&writes);
    part
}

fn figures(name: &'static str, part: &Part, length: Duration) -> LoadFigures {
    let per_s = part.latencies.len() as f64 / length.as_secs_f64().max(1e-9);
    LoadFigures { name, per_s, part: part.clone() }
}

/// Scans all keys again and again until the phase is over.
async fn scan(database: &Database, is_over: &AtomicBool, scanned: &AtomicU64) -> Result<(), Failure> {
    let failed = |error| Failure::machine("the scan failed", error);
    while !is_over.load(Ordering::Relaxed) {
        let mut scan = database.scan(SCAN_LIFETIME).await.map_err(failed)?;
        while !is_over.load(Ordering::Relaxed) && scan.next().await.map_err(failed)?.is_some() {
            scanned.fetch_add(1, Ordering::Relaxed);
        }
        scan.close().await;
    }
    Ok(())
}
