//! Caches on real files: refusals that only the kernel can make.
//!
//! If the build directory is on a file system without direct I/O, the tests are skipped with one line that says so.

use crate::skip;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll::control::{Client, Request, Server};
use plimsoll::metrics::Metrics;
use plimsoll_cache::stats::DiskHealth;
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, CreateOptions, DiskSource, HostOptions, Lookup};
use tempfile::TempDir;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn sources(directory: &Path, names: &[&str]) -> Vec<DiskSource> {
    names.iter().map(|name| DiskSource::at(directory.join(name))).collect()
}

/// Creates a cache on the files `a` and `b`. If their file system has no direct I/O, prints a line and returns `None`.
fn world() -> Option<TempDir> {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !skip::has_direct_io(directory.path()) {
        return None;
    }
    let disks = sources(directory.path(), &["a", "b"]);
    for disk in &disks {
        std::fs::File::create_new(&disk.path).unwrap().set_len(16 << 20).unwrap();
    }
    let options = CreateOptions { slab_bytes: Some(1 << 20), ..CreateOptions::default() };
    block_on(BlockCache::create(&options, &disks, &HostOptions::default())).unwrap();
    Some(directory)
}

fn open(directory: &Path, names: &[&str]) -> Result<BlockCache, CacheError> {
    block_on(BlockCache::open(CacheConfig::default(), &sources(directory, names), &HostOptions::default()))
}

#[test]
fn a_disk_by_two_names_is_named_twice() {
    let Some(world) = world() else { return };
    std::fs::hard_link(world.path().join("a"), world.path().join("hard")).unwrap();
    std::os::unix::fs::symlink(world.path().join("a"), world.path().join("soft")).unwrap();
    for name in ["hard", "soft"] {
        let error = open(world.path(), &["a", "b", name]).err().unwrap();
        assert!(
            matches!(&error, CacheError::Twice { path, first } if path.ends_with(name) && first.ends_with("a")),
            "{error}"
        );
        let options = CreateOptions { force: true, ..CreateOptions::default() };
        let disks = sources(world.path(), &["a", name]);
        let error = block_on(BlockCache::create(&options, &disks, &HostOptions::default())).unwrap_err();
        assert!(
            matches!(&error, CacheError::Twice { path, first } if path.ends_with(name) && first.ends_with("a")),
            "{error}"
        );
    }
    block_on(open(world.path(), &["a", "b"]).unwrap().close()).unwrap();
}

/// It was said that another process had it open.
#[test]
fn a_disk_of_the_cache_is_not_added_by_another_name() {
    let Some(world) = world() else { return };
    std::fs::hard_link(world.path().join("a"), world.path().join("hard")).unwrap();
    std::os::unix::fs::symlink(world.path().join("a"), world.path().join("soft")).unwrap();
    let cache = open(world.path(), &["a", "b"]).unwrap();
    for name in ["a", "./a", "hard", "soft"] {
        for force in [false, true] {
            let path = world.path().join(name);
            let error = block_on(cache.add_disk(&DiskSource::at(path.clone()), force)).unwrap_err();
            assert!(matches!(&error, CacheError::Twice { first, .. } if first.ends_with("a")), "{error}");
            let first = world.path().join("a");
            let both = format!("{}: the same disk is named twice: it is {}", path.display(), first.display());
            assert_eq!(error.to_string(), both);
        }
    }
    // The cache of another process, or of this one, is something else.
    let error = open(world.path(), &["a", "b"]).err().expect("it is open");
    assert!(matches!(error, CacheError::Locked { .. }) && error.to_string().contains("or this one"), "{error}");
    assert_eq!(cache.stats().disks.len(), 2);
    block_on(cache.close()).unwrap();
    block_on(open(world.path(), &["a", "b"]).unwrap().close()).unwrap();
}

/// It was missing twice, and the cache was opened without it. A directory stands for a device that cannot be opened.
#[test]
fn a_disk_that_cannot_be_opened_by_two_names_is_named_twice() {
    let Some(world) = world() else { return };
    std::fs::create_dir(world.path().join("c")).unwrap();
    std::os::unix::fs::symlink(world.path().join("c"), world.path().join("soft")).unwrap();
    let error = open(world.path(), &["a", "b", "c", "soft"]).err().expect("it is named twice");
    assert!(
        matches!(&error, CacheError::Twice { path, first } if path.ends_with("soft") && first.ends_with("c")),
        "{error}"
    );
    let options = CreateOptions { force: true, ..CreateOptions::default() };
    let disks = sources(world.path(), &["soft", "a", "c"]);
    let error = block_on(BlockCache::create(&options, &disks, &HostOptions::default())).unwrap_err();
    assert!(
        matches!(&error, CacheError::Twice { path, first } if path.ends_with("c") && first.ends_with("soft")),
        "{error}"
    );
    block_on(open(world.path(), &["a", "b"]).unwrap().close()).unwrap();
}

#[test]
fn an_open_cache_is_locked() {
    let Some(world) = world() else { return };
    let cache = open(world.path(), &["a", "b"]).unwrap();
    for names in [&["a", "b"][..], &["b"]] {
        let error = open(world.path(), names).err().unwrap();
        assert!(matches!(error, CacheError::Locked { .. }), "{error}");
    }
    block_on(cache.close()).unwrap();
    block_on(open(world.path(), &["a", "b"]).unwrap().close()).unwrap();
}

#[test]
fn an_empty_file_is_no_cache() {
    let Some(world) = world() else { return };
    std::fs::File::create_new(world.path().join("c")).unwrap().set_len(16 << 20).unwrap();
    let error = open(world.path(), &["a", "b", "c"]).err().unwrap();
    assert!(error.to_string().contains("it is empty"), "{error}");
}

#[test]
fn a_directory_and_a_capacity_make_a_cache() {
    let world = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !skip::has_direct_io(world.path()) {
        return;
    }
    let directory = world.path().join("below");
    // What a creation left that was cut short is no obstacle.
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("cache.new"), [7; 5000]).unwrap();
    for life in 0..3_u8 {
        let cache = block_on(BlockCache::open_or_create(&directory, 24 << 20)).unwrap();
        let capacity_bytes = cache.stats().disks[0].capacity_bytes;
        assert!((20 << 20..=24 << 20).contains(&capacity_bytes), "{capacity_bytes}: the slabs suit it");
        let again = block_on(BlockCache::open_or_create(&directory, 24 << 20)).err().unwrap();
        assert!(matches!(again, CacheError::Locked { .. }), "{again}");
        block_on(cache.insert(&[life], &[life; 5000])).unwrap();
        for old in 0..=life {
            let Lookup::Hit(block) = block_on(cache.get(&[old])).unwrap() else { panic!("{old} is lost") };
            assert_eq!(block[..], [old; 5000]);
        }
        block_on(cache.close()).unwrap();
    }
    let error = block_on(BlockCache::open_or_create(&world.path().join("other"), 1 << 20)).err().unwrap();
    assert!(matches!(error, CacheError::TooSmall { .. }), "{error}");
}

/// A process that has a lease on a file. As long as it has, or 45 s, no other process returns from opening the file.
struct Lease(Child);

impl Lease {
    /// Returns `None`, and says why, if the machine cannot do that.
    fn of(path: &Path) -> Option<Lease> {
        // The kernel asks for the lease by SIGIO.
        let script = "import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
sys.stdin.read()";
        let longest_s = std::fs::read_to_string("/proc/sys/fs/lease-break-time").unwrap_or_default();
        if !longest_s.trim().parse::<u64>().is_ok_and(|longest_s| longest_s >= 30) {
            skip::skip("the kernel has no leases, or ends them within 30 s (fs.lease-break-time)");
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut process) = command.spawn() else {
            skip::skip("there is no python3 to hold a lease");
            return None;
        };
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).unwrap();
        let lease = Lease(process);
        if line.trim() != "held" {
            skip::skip("the file system has no leases");
            return None;
        }
        Some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opening a disk blocked the shard for as long as the device did not answer.
#[test]
fn a_disk_that_hangs_as_it_is_opened_is_missing_until_it_answers() {
    let Some(world) = world() else { return };
    let Some(lease) = Lease::of(&world.path().join("b")) else { return };
    let cache = open(world.path(), &["a", "b"]).unwrap();
    let health = |cache: &BlockCache| cache.stats().disks.iter().map(|disk| disk.health).collect::<Vec<_>>();
    assert_eq!(health(&cache), [DiskHealth::Healthy, DiskHealth::Missing]);
    let findings = cache.findings();
    assert!(findings.len() == 1 && findings[0].contains("/b: cannot open it: it has not answered"), "{findings:?}");

    drop(lease);
    // Far longer than it takes: what has not come back by then never does.
    let end = Instant::now() + Duration::from_secs(300);
    while health(&cache) != [DiskHealth::Healthy; 2] {
        assert!(Instant::now() < end, "{:?}", health(&cache));
        std::thread::sleep(Duration::from_millis(50));
    }
    block_on(cache.insert(b"key", b"value")).unwrap();
    block_on(cache.close()).unwrap();
    block_on(open(world.path(), &["a", "b"]).unwrap().close()).unwrap();
}

/// Metrics and the control socket need a topology, and that of a cache's own shards was not to be had.
#[test]
fn a_cache_on_shards_of_its_own_is_seen_and_changed_from_outside() {
    let directory = tempfile::tempdir().unwrap();
    block_on(async {
        let cache = BlockCache::open_or_create(directory.path(), 32 << 20).await.unwrap();
        cache.insert(b"a", b"a block").await.unwrap();
        cache.checkpoint().await.unwrap();
        let metrics = Metrics::new(cache.topology(), "cache");
        // A slow machine may take longer than a shard's deadline.
        let seen = std::iter::repeat_with(|| metrics.take()).find(|seen| seen.missing_shards.is_empty()).unwrap();
        let fill = seen.disks[0].classes.iter().find(|class| class.class == "cache.fill").unwrap();
        assert_eq!(fill.write.requests, 1);

        let server = Server::start_in(&directory.path().join("sockets"), cache.topology(), "cache").unwrap();
        let mut client = Client::connect(server.path()).unwrap();
        client.change(&Request::SetShares { class: "cache.fill".into(), shares: 7 }).unwrap();
        let fill = cache.classes().find("cache.fill").unwrap();
        assert_eq!(cache.classes().list()[fill.index()].shares, 7);
        drop(server);
        cache.close().await.unwrap();
    });
}
