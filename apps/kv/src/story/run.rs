//! Runs a story in one way: server and clients in this process.
//!
//! # Why
//! A story needs one command and no installation, and its clients are those of `stress`.
//!
//! # How it works
//! A database is filled, settles (its compactions end), and is reopened, so that its cache is cold. Then the server
//! starts, and the phases follow each other without a pause. [`super::record`] describes the measurements. A second
//! server is a second database on the same engine: the same disk and classes.
//!
//! # Limits
//! The clients use processors too; the table shows how many were busy.
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

use super::phases::{Job, Phase, PhaseLoad, Story};
use super::record::{ClassFigures, LoadFigures, PhaseRecord, Record, Sample, Way, machine_cpu_s};
use super::tier::far_away;
use crate::command::Service;
use crate::controllers::{Backlog, Controllers};
use crate::database::Database;
use crate::engine::Engine;
use crate::failure::Failure;
use crate::options::DatabaseOptions;
use crate::repair;
use crate::resp::Limits;
use crate::server::serve_connections;
use crate::stress::population::key;
use crate::stress::run::Load;
use crate::stress::tally::Part;

/// Time between two samples.
const LOOK: Duration = Duration::from_millis(500);
/// Time without changes and compactions after which a tree has settled.
const SETTLED: Duration = Duration::from_secs(2);
/// Longest wait for a tree to settle.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Lifetime of a scan's view of the keys.
const SCAN_LIFETIME: Duration = Duration::from_secs(3600);

/// The settings that all ways of a story share.
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

/// Runs the story in one way. If `interrupted` turns true, returns the phases that had ended by then.
///
/// # Errors
/// See [`Failure`].
pub async fn run_way(setting: &Setting, way: Way, interrupted: &watch::Receiver<bool>) -> Result<Record, Failure> {
    let home = setting.database.directory.join(way.name().replace([' ', '\''], "-"));
    let is_drained = way == Way::Drained;
    let options = |name| DatabaseOptions { directory: home.join(name), is_drained, ..setting.database.clone() };
    let first = options("first");

    let database = Database::open(&first).await?;
    fill(&database, setting, interrupted).await?;

    let manifest = database.slatedb().manifest();
    let tree_bytes = manifest.l0().iter().map(|view| view.estimate_size()).sum::<u64>()
        + manifest.compacted().iter().map(|run| run.estimate_size()).sum::<u64>();
    database.close().await?;

    let engine = Arc::new(Engine::start(&first)?);
    let (tier, fetched) = match setting.story {
        Story::Cold => {
            let (tier, fetched) = far_away(&engine, way, &home, tree_bytes).await?;
            (Some(tier), Some(fetched))
        }
        _ => (None, None),
    };
    let database = Database::open_on(&engine, &first, engine.classes, tier).await?;

    let second = match setting.story {
        Story::Repair => {
            let classes = engine.classes.of_receiver();
            Some(Arc::new(Database::open_on(&engine, &options("second"), classes, None).await?))
        }
        _ => None,
    };

    let socket = engine.control_socket().map(ToOwned::to_owned);
    let socket = socket.map_err(|reason| Failure::machine("a story looks through the control socket", reason))?;
    drop(engine);

    let listening = |error| Failure::machine("cannot listen on loopback", error);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.map_err(listening)?;
    let server = listener.local_addr().map_err(listening)?;

    let limits = Limits { key_max_bytes: 1 << 10, value_max_bytes: 1 << 20 };
    let service = Arc::new(Service::new(database, limits, 1000));

    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(serve_connections(listener, Arc::clone(&service), stopped.clone()));
    let controlling = (way == Way::Controllers).then(|| {
        let service = Arc::clone(&service);
        tokio::spawn(async move { Controllers::new(&service.database).run(&service.database, stopped).await })
    });

    let attach = || Client::connect(&socket).map_err(|error| Failure::machine("cannot look at the classes", error));
    let mut stage = Stage {
        service: Arc::clone(&service),
        second: second.clone(),
        fetched,
        looks: attach()?,
        ends: attach()?,
        begun: Instant::now(),
        interrupted: interrupted.clone(),
        record: Record { way, phases: Vec::new(), samples: Vec::new() },
    };

    for phase in setting.story.phases(server, setting.keys, setting.length) {
        if *interrupted.borrow() {
            break;
        }
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
    if let Some(second) = second.and_then(Arc::into_inner) {
        second.close().await?;
    }
    service.database.close().await?;

    let removed = std::fs::remove_dir_all(&home);
    removed.map_err(|error| Failure::machine(format_args!("cannot remove {}", home.display()), error))?;
    Ok(record)
}

/// Fills the database and waits until its tree has settled, or until `interrupted` is true.
async fn fill(database: &Database, setting: &Setting, interrupted: &watch::Receiver<bool>) -> Result<(), Failure> {
    let failed = |error| Failure::machine("cannot fill the database", error);
    let content: Vec<u8> = (0..setting.story.value_bytes() + 256).map(|at| ((at * at) >> 3) as u8).collect();

    let mut last = None;
    for number in (1..=setting.keys).take_while(|_| !*interrupted.borrow()) {
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
    while changed.elapsed() < SETTLED && begun.elapsed() < SETTLE_TIMEOUT && !*interrupted.borrow() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = database.slatedb().manifest().id();
        if now != id || database.figure(RUNNING_COMPACTIONS) > 0 {
            (id, changed) = (now, Instant::now());
        }
    }
    Ok(())
}

/// A running story.
struct Stage {
    service: Arc<Service>,
    second: Option<Arc<Database>>,
    /// Reads that queries have sent to the far store.
    fetched: Option<Arc<AtomicU64>>,
    /// Queries the classes every half second.
    looks: Client,
    /// Queries the classes at both ends of a phase.
    ends: Client,
    begun: Instant,
    interrupted: watch::Receiver<bool>,
    record: Record,
}

/// State that the job and the measuring thread of a phase share.
#[derive(Default)]
struct Cues {
    /// Keys that the job has processed.
    keys: AtomicU64,
    /// Whether the job must end.
    is_over: AtomicBool,
    /// Whether the job has ended.
    is_done: AtomicBool,
}

impl Stage {
    /// Runs a phase. Measuring blocks, so it has its own thread.
    async fn play(self, phase: Phase) -> Result<Stage, Failure> {
        let cues = Arc::new(Cues::default());
        let job = phase.job.map(|job| {
            let (service, second, cues) = (Arc::clone(&self.service), self.second.clone(), Arc::clone(&cues));
            tokio::spawn(async move {
                let note = work(job, &service.database, second.as_deref(), &cues).await;
                cues.is_done.store(true, Ordering::Relaxed);
                note
            })
        });

        let (seen, interrupted) = (Arc::clone(&cues), self.interrupted.clone());
        let played = tokio::task::spawn_blocking(move || self.look_on(&phase, &seen)).await;
        cues.is_over.store(true, Ordering::Relaxed);

        let note = match job {
            Some(job) if *interrupted.borrow() => {
                job.abort();
                // The job was aborted. If it failed instead, its result no longer matters.
                let _ = job.await;
                None
            }
            Some(job) => Some(job.await.map_err(|error| Failure::machine("a server's work failed", error))??),
            None => None,
        };

        let mut stage = played.map_err(|error| Failure::machine("the story failed", error))??;
        if let Some(phase) = stage.record.phases.last_mut().filter(|_| !*interrupted.borrow()) {
            phase.note = note;
        }
        Ok(stage)
    }

    /// Returns the record, and releases the server.
    fn end(self) -> Record {
        self.record
    }

    fn look_on(mut self, phase: &Phase, cues: &Cues) -> Result<Stage, Failure> {
        let classes = self.service.database.topology().classes().clone();
        for (name, shares) in phase.shares {
            // The classes that stories name exist.
            let _ = classes.find(name).map(|class| classes.set_shares(class, *shares));
        }

        let mut loads: Vec<Load> =
            phase.loads.iter().map(|load| Load::start(load.plan.clone())).collect::<Result<_, _>>()?;

        let (from, cpu_s, machine_s, stalls) = (Instant::now(), process_cpu_s(), machine_cpu_s(), self.stalls());
        snapshot(&mut self.ends)?;

        let mut sums: Vec<Part> = phase.loads.iter().map(|_| Part::new()).collect();
        let (mut last, fetched) = (from, self.fetched());
        let mut stalls_before = stalls;
        let mut fetched_before = fetched;

        let ends_itself = phase.job.is_some_and(|job| job != Job::Scan);
        let is_over =
            || if ends_itself { cues.is_done.load(Ordering::Relaxed) } else { from.elapsed() >= phase.duration };
        loop {
            let rest = if ends_itself { LOOK } else { phase.duration.saturating_sub(from.elapsed()) };
            std::thread::sleep(LOOK.min(rest));

            let classes = ClassFigures::of_all(&snapshot(&mut self.looks)?);
            let (now, taken) = (Instant::now(), loads.iter().map(taken).collect::<Vec<Part>>());
            let figures = |(part, load): (&Part, &PhaseLoad)| figures(load.name, part, &Part::new(), now - last);

            let fetched_now = self.fetched();
            let hits = hits(fetched_before, fetched_now, &taken);
            fetched_before = fetched_now;

            let stalls_now = self.stalls();
            let sample = Sample {
                at_s: self.begun.elapsed().as_secs_f64(),
                classes,
                loads: taken.iter().zip(&phase.loads).map(figures).collect(),
                hits,
                backlog: Backlog::of(&self.service.database),
                stalls: stalls_now - std::mem::replace(&mut stalls_before, stalls_now),
            };

            self.record.samples.push(sample);
            sums.iter_mut().zip(&taken).for_each(|(sum, part)| sum.add(part));
            last = now;

            if *self.interrupted.borrow() {
                return Ok(self);
            }
            if is_over() {
                break;
            }
        }

        let length = from.elapsed();
        let cpus = (process_cpu_s() - cpu_s) / length.as_secs_f64();
        let classes = ClassFigures::of_all(&snapshot(&mut self.ends)?);
        let (other_cpus, stalls) =
            (((machine_cpu_s() - machine_s) / length.as_secs_f64() - cpus).max(0.0), self.stalls() - stalls);
        let hits = hits(fetched, self.fetched(), &sums);

        // Those under way count too, and those that were due: without them, the phase would look better the longer they
        // take.
        loads.iter().for_each(Load::stop);
        let mut ends = Vec::new();
        for ((load, sum), seen) in loads.iter_mut().zip(&mut sums).zip(&phase.loads) {
            let (rest, overdue) = load.end();
            sum.add(&rest);
            let last = self
                .record
                .samples
                .last_mut()
                .and_then(|last| last.loads.iter_mut().find(|last| last.name == seen.name));
            if let Some(last) = last {
                last.part.add(&rest);
                last.part.add(&overdue);
            }
            ends.push(figures(seen.name, sum, &overdue, length));
        }

        let record = PhaseRecord {
            name: phase.name,
            from_s: (from - self.begun).as_secs_f64(),
            length,
            classes,
            loads: ends,
            cpus,
            other_cpus,
            note: None,
            stalls,
            hits,
        };

        self.record.phases.push(record);
        Ok(self)
    }

    fn fetched(&self) -> Option<u64> {
        self.fetched.as_ref().map(|fetched| fetched.load(Ordering::Relaxed))
    }

    fn stalls(&self) -> u64 {
        let database = &self.service.database;
        database.figure(BACKPRESSURE_COUNT) + database.figure(L0_STALL_COUNT)
    }
}

fn snapshot(client: &mut Client) -> Result<Snapshot, Failure> {
    client.snapshot().map_err(|error| Failure::machine("cannot look at the classes", error))
}

/// Takes the operations of a load since the last call, reads and writes together.
fn taken(load: &Load) -> Part {
    let [mut part, writes] = load.tally().take();
    part.add(&writes);
    part
}

/// Returns the figures of a load whose operations are `part`. `overdue` were due and had not begun: their latencies are
/// at least the time for which they had waited.
fn figures(name: &'static str, part: &Part, overdue: &Part, length: Duration) -> LoadFigures {
    let per_s = part.latencies.len() as f64 / length.as_secs_f64().max(1e-9);
    let mut part = part.clone();
    part.add(overdue);
    LoadFigures { name, per_s, overdue: overdue.latencies.len(), part }
}

/// Returns the part of the reads that fetched nothing from the far store.
fn hits(before: Option<u64>, after: Option<u64>, loads: &[Part]) -> Option<f64> {
    let reads = loads.iter().map(|part| part.latencies.len()).sum::<u64>().max(1);
    // Reads in flight count in the next sample, so there may be more fetches than reads.
    Some((1.0 - (after? - before?) as f64 / reads as f64).max(0.0))
}

/// Does the servers' job of a phase, and returns a note on its result.
async fn work(job: Job, first: &Database, second: Option<&Database>, cues: &Cues) -> Result<String, Failure> {
    let second = || second.ok_or_else(|| Failure::Machine("this story has no second server".to_owned()));
    let keys = || cues.keys.load(Ordering::Relaxed);

    Ok(match job {
        Job::Scan => {
            scan(first, cues).await?;
            format!("{} keys scanned", keys())
        }
        Job::AddNode => {
            repair::fill(first, second()?, &cues.keys).await?;
            format!("{} keys streamed", keys())
        }
        Job::Repair => {
            let found = repair::repair(first, second()?, &cues.keys).await?;
            let repair::Differences { ranges, differing, copied, .. } = found;
            format!("{differing} of {ranges} ranges differed, {copied} keys copied")
        }
        Job::Cleanup => {
            // Keys are evenly spread over their first digit, which is hexadecimal.
            repair::cleanup(first, |key| key < b"8".as_slice(), &cues.keys).await?;
            format!("{} keys deleted", keys())
        }
    })
}

/// Scans all keys repeatedly until the phase is over.
async fn scan(database: &Database, cues: &Cues) -> Result<(), Failure> {
    let failed = |error| Failure::machine("the scan failed", error);
    let is_over = || cues.is_over.load(Ordering::Relaxed);
    while !is_over() {
        let mut scan = database.scan(SCAN_LIFETIME).await.map_err(failed)?;
        while !is_over() && scan.next().await.map_err(failed)?.is_some() {
            cues.keys.fetch_add(1, Ordering::Relaxed);
        }
        scan.close().await;
    }
    Ok(())
}
