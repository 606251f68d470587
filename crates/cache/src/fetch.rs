//! Look-ups that fetch a missing block from the origin: one fetch for all readers that want it at the same time.
//!
//! # Why
//! A block that has become hot is missed by a hundred readers at once. One fetch serves all of them, and it must not
//! be slow because its first reader was a background job.
//!
//! # How it works
//! The first reader that misses a key leads a *flight*; readers that miss it meanwhile follow. The leader calls its
//! `fetch` with its class. When a reader in a class with more shares joins, `fetch` is called once more with that
//! class, beside the first call, and the first result wins (priority inheritance). All get the block, and it is
//! inserted: no reader waits for its write, and until the write has ended, new readers get the block from the flight.
//! If the key was inserted or removed since the fetch began, the block may be older: it is not inserted (a *lease*
//! decides), and readers that come after the change do not join the flight. If the leader's future is dropped, one
//! follower takes over and fetches itself. If its fetch fails, the leader gets the error; the followers try once more,
//! together, and get that attempt's error if it fails too. A leader checks the index once more before it fetches; if
//! the block is cached by now, it gives up the lead and reads the block.
//!
//! # Limits
//! A leader that is neither polled nor dropped keeps its followers waiting. A promoted fetch may ask the origin twice.
//!
//! # Example
//! A prefetch (10 shares) is fetching a block when a query (1000 shares) misses it. The query's own request starts
//! beside the first, and both readers have the block when the faster one is back.

use std::sync::Arc;

use plimsoll::Class;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::error::CacheError;
use crate::flight::{Flown, Followed, Joined, Leader, Ranked, race_on_promotion};
use crate::key::KeyHash;
use crate::lookup::{GetOptions, Lookup};
use crate::stats::MissReason;

/// Where a block came from.
#[derive(Clone, Debug)]
pub enum Fetched {
    /// It was cached.
    Hit(Block),
    /// This call fetched it.
    Origin(Block),
    /// Another call, at the same time, fetched it.
    Shared(Block),
}

impl Fetched {
    /// Returns the block, wherever it came from.
    #[must_use]
    pub fn into_block(self) -> Block {
        match self {
            Fetched::Hit(block) | Fetched::Origin(block) | Fetched::Shared(block) => block,
        }
    }
}

/// Why there is no block.
#[derive(Debug)]
pub enum FetchError<E> {
    /// The key is impossible, or the cache has been closed.
    Cache(CacheError),
    /// The origin failed. Readers that waited for one fetch share its error.
    Origin(Arc<E>),
}

impl<E: std::fmt::Display> std::fmt::Display for FetchError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FetchError::Cache(error) => error.fmt(f),
            FetchError::Origin(error) => error.fmt(f),
        }
    }
}

impl<E: std::fmt::Debug + std::fmt::Display> std::error::Error for FetchError<E> {}

impl BlockCache {
    /// Returns the block of `key`. If it is not cached, calls `fetch` to get it from the origin, and begins to insert
    /// it. `fetch` takes the class in which its result is wanted. If a reader in a class with more shares joins,
    /// `fetch` is called again with that class; see the module `fetch` in the source.
    ///
    /// [`BlockCache::get`] finds the block once it is written; this function has it at once.
    ///
    /// # Errors
    /// The error of `fetch`, its own or that of another call with errors of this type; or that the key is impossible. A
    /// block that the cache has no room for is not an error.
    pub async fn get_or_fetch<E, F>(
        &self,
        key: &[u8],
        options: GetOptions,
        fetch: impl FnMut(Class) -> F,
    ) -> Result<Fetched, FetchError<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<Vec<u8>, E>>,
    {
        let hash = self.engine().hash(key).map_err(FetchError::Cache)?;
        let class = options.class.unwrap_or(self.engine().classes.hit);
        // With more than one further attempt, the last of many readers would wait for those of all others.
        let mut is_last_attempt = false;
        loop {
            let reason = match self.look_up(hash, options).await.map_err(FetchError::Cache)? {
                Lookup::Hit(block) => return Ok(Fetched::Hit(block)),
                Lookup::Miss(reason) => reason,
            };
            let leader = match self.engine().flights.join(hash, self.ranked(class)) {
                Joined::Lead(leader) => leader,
                Joined::Follow(follower) => match follower.await {
                    Followed::Value(Ok(block)) => return Ok(Fetched::Shared(block)),
                    Followed::Value(Err(error)) => match error.downcast() {
                        Ok(error) if is_last_attempt => return Err(FetchError::Origin(error)),
                        // An error of another type is none of this caller's.
                        end => {
                            is_last_attempt |= end.is_ok();
                            continue;
                        }
                    },
                    Followed::Lead(leader) => leader,
                },
            };
            if !self.has_come(&hash, reason) {
                return self.lead(hash, leader, options, fetch).await;
            }
        }
    }

    /// Returns whether a block that was not cached is cached now. A former leader may have ended between this caller's
    /// look-up and its lead. A block that is cached but cannot be read does not count.
    fn has_come(&self, hash: &KeyHash, reason: MissReason) -> bool {
        !reason.was_cached() && self.engine().index.peek(hash).is_some()
    }

    async fn lead<E, F>(
        &self,
        hash: KeyHash,
        mut leader: Leader<Flown>,
        options: GetOptions,
        fetch: impl FnMut(Class) -> F,
    ) -> Result<Fetched, FetchError<E>>
    where
        E: Send + Sync + 'static,
        F: Future<Output = Result<Vec<u8>, E>>,
    {
        let lease = self.engine().lease(hash);
        let value = match race_on_promotion(leader.urgency(), fetch).await {
            Ok(value) => value,
            Err(error) => {
                let error = Arc::new(error);
                leader.publish(Err(Arc::clone(&error) as _));
                return Err(FetchError::Origin(error));
            }
        };
        let block = Block::from_vec(value);
        leader.publish(Ok(block.clone()));
        // A value that cannot be cached (empty, too long, out of date by now) still answers this call.
        self.engine().insert_fetched(lease, &block, options.class, move || drop(leader));
        Ok(Fetched::Origin(block))
    }

    /// Ranks a class by its shares: more shares are more urgent.
    fn ranked(&self, class: Class) -> Ranked {
        let shares = self.classes().list().get(class.index()).map_or(0, |info| info.shares);
        Ranked { class, rank: shares }
    }
}
