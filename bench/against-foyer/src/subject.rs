//! The two caches, behind the same few calls.
//!
//! # Why
//! Whoever measures must not know which one it is.
//!
//! # How it works
//! Both get one directory, the same bytes of disk and memory, direct I/O and io_uring, with one thread for it. foyer
//! writes on insertion, as Plimsoll does (its other policy writes what memory evicts). What memory answers is told from
//! what the disk does by whether the look-up is ready at once.
//!
//! # Limits
//! foyer places entries at borders of 4 KiB, each with a header of 36 bytes, and Plimsoll at 512 bytes without: of the
//! same bytes of disk foyer keeps fewer. That is part of the comparison, and the hit ratio shows it.
//!
//! # Example
//! `Subject::open(Kind::Foyer, &setup).await?.get(7).await?`

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    IoEngineConfig, RecoverMode, UringIoEngineConfig,
};
use plimsoll::backend::choose::BackendKind;
use plimsoll_cache::{BlockCache, CacheConfig, CreateOptions, DiskSource, HostOptions, InsertOptions, Lookup};

/// Whatever goes wrong ends the measurement.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Which cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// This project's.
    Plimsoll,
    /// The other.
    Foyer,
}

impl Kind {
    /// Both, with their names.
    pub const ALL: [(Kind, &str); 2] = [(Kind::Plimsoll, "plimsoll"), (Kind::Foyer, "foyer")];
}

/// What both get.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Where the files are; exists.
    pub directory: PathBuf,
    /// On disk.
    pub disk_bytes: u64,
    /// In memory, besides.
    pub memory_bytes: u64,
    /// Inserts that foyer may have waiting; beyond, it drops. Plimsoll's default is 256 MiB in flight.
    pub waiting_bytes: u64,
}

/// Where a look-up found something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// At once.
    InMemory,
    /// After a read.
    OnDisk,
    /// Nothing.
    Nowhere,
}

/// An open cache.
#[derive(Clone)]
pub enum Subject {
    /// [`Kind::Plimsoll`]
    Plimsoll(Arc<BlockCache>),
    /// [`Kind::Foyer`]
    Foyer(HybridCache<u64, Vec<u8>>),
}

impl Subject {
    /// Opens what is in the directory, or makes a new cache there.
    ///
    /// # Errors
    /// What the cache said.
    pub async fn open(kind: Kind, setup: &Setup) -> Result<Subject> {
        match kind {
            Kind::Plimsoll => Ok(Subject::Plimsoll(Arc::new(open_plimsoll(setup).await?))),
            Kind::Foyer => Ok(Subject::Foyer(open_foyer(setup).await?)),
        }
    }

    /// Looks `key` up; its value must begin with it.
    ///
    /// # Errors
    /// What the cache said, or that the value is another's.
    pub async fn get(&self, key: u64) -> Result<Found> {
        let (found, begins) = match self {
            Subject::Plimsoll(cache) => {
                let bytes = key.to_le_bytes();
                let (lookup, was_ready) = watched(cache.get(&bytes)).await;
                match lookup? {
                    Lookup::Hit(block) if was_ready => (Found::InMemory, block.starts_with(&bytes)),
                    Lookup::Hit(block) => (Found::OnDisk, block.starts_with(&bytes)),
                    Lookup::Miss(_) => (Found::Nowhere, true),
                }
            }
            Subject::Foyer(cache) => {
                let lookup = cache.get(&key);
                let waits = lookup.need_await();
                match lookup.await? {
                    Some(entry) if !waits => (Found::InMemory, entry.value().starts_with(&key.to_le_bytes())),
                    Some(entry) => (Found::OnDisk, entry.value().starts_with(&key.to_le_bytes())),
                    None => (Found::Nowhere, true),
                }
            }
        };
        if begins { Ok(found) } else { Err(format!("key {key} has another key's value").into()) }
    }

    /// Stores a value; waits for nothing but, where `wait`, room.
    ///
    /// # Errors
    /// What the cache said.
    pub async fn insert(&self, key: u64, value: Vec<u8>, wait: bool) -> Result<()> {
        match self {
            Subject::Plimsoll(cache) if wait => {
                cache
                    .insert_with(&key.to_le_bytes(), &value, InsertOptions { wait, ..InsertOptions::default() })
                    .await?;
            }
            Subject::Plimsoll(cache) => {
                let cache = Arc::clone(cache);
                tokio::spawn(async move { cache.insert(&key.to_le_bytes(), &value).await });
            }
            Subject::Foyer(cache) => {
                cache.insert(key, value);
            }
        }
        Ok(())
    }

    /// Waits until what was inserted has been written.
    pub async fn settle(&self) {
        if let Subject::Foyer(cache) = self {
            cache.storage().wait().await;
        }
    }

    /// Closes it in good order.
    ///
    /// # Errors
    /// What the cache said.
    pub async fn close(self) -> Result<()> {
        match self {
            Subject::Plimsoll(cache) => {
                let cache = Arc::into_inner(cache).ok_or("somebody still uses the cache")?;
                Ok(cache.close().await?)
            }
            Subject::Foyer(cache) => {
                cache.storage().wait().await;
                Ok(cache.close().await?)
            }
        }
    }
}

/// What a future gives, and whether it did so when it was first asked.
async fn watched<T>(future: impl Future<Output = T>) -> (T, bool) {
    let mut future = pin!(future);
    let mut is_first = true;
    std::future::poll_fn(|context| {
        let was_first = std::mem::replace(&mut is_first, false);
        match future.as_mut().poll(context) {
            Poll::Ready(value) => Poll::Ready((value, was_first)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn open_plimsoll(setup: &Setup) -> Result<BlockCache> {
    let path = setup.directory.join("disk");
    let disks = [DiskSource::at(path.clone())];
    let host = HostOptions { backend: Some(BackendKind::Uring), ..HostOptions::default() };
    if !path.exists() {
        std::fs::File::create_new(&path)?.set_len(setup.disk_bytes)?;
        BlockCache::create(&CreateOptions::default(), &disks, &host).await?;
    }
    let config = CacheConfig { memory_bytes: setup.memory_bytes, ..CacheConfig::default() };
    Ok(BlockCache::open(config, &disks, &host).await?)
}

async fn open_foyer(setup: &Setup) -> Result<HybridCache<u64, Vec<u8>>> {
    let device = FsDeviceBuilder::new(setup.directory.join("foyer"))
        .with_capacity(usize::try_from(setup.disk_bytes)?)
        .with_direct(true)
        .build()?;
    let waiting_bytes = usize::try_from(setup.waiting_bytes)?;
    let engine = BlockEngineConfig::new(device)
        .with_buffer_pool_size(waiting_bytes)
        .with_submit_queue_size_threshold(waiting_bytes);
    let ring: Box<dyn IoEngineConfig> = UringIoEngineConfig::new().with_io_depth(256).boxed();
    let cache = HybridCacheBuilder::new()
        .with_name("foyer")
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(usize::try_from(setup.memory_bytes)?)
        .with_weighter(|_: &u64, value: &Vec<u8>| value.len())
        .storage()
        .with_io_engine_config(ring)
        .with_engine_config(engine)
        .with_recover_mode(RecoverMode::Quiet)
        .build()
        .await?;
    Ok(cache)
}
