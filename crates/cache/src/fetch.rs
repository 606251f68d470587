//! A look-up that goes to the origin where it must: once for all who want the same block at the same time.
//!
//! # Why
//! A block that has become hot is missed by a hundred readers at once. One fetch is enough for all of them, and it must not
//! be slow because the first of them was a background job.
//!
//! # How it works
//! The first who misses leads a *flight*; who misses the same key meanwhile follows it. The leader calls its `fetch` with
//! its class. When somebody of a class with more shares joins, `fetch` is called once more with that class, beside the
//! first call, and whichever ends first wins (priority inheritance). What was fetched is given to all, and inserted before
//! that unless the key was inserted or removed since the fetch began: then it may be older than what came (a *lease*).
//! A leader whose fetch fails, or who goes away, hands over to one follower, which then fetches itself.
//!
//! # Limits
//! A leader that is neither polled nor dropped keeps its followers waiting. A promoted fetch may ask the origin twice.
//!
//! # Example
//! A prefetch (10 shares) has begun to fetch a block, a query (1000 shares) wants it: the query's own request goes out beside
//! it, and both have the block when the faster one is back.

use plimsoll::Class;

use crate::block::Block;
use crate::cache::BlockCache;
use crate::error::CacheError;
use crate::flight::{Followed, Joined, Leader, Ranked, race_on_promotion};
use crate::key::KeyHash;
use crate::lookup::{GetOptions, Lookup};

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
    /// The block.
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
    /// The origin did not give it.
    Origin(E),
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
    /// The block of `key`: cached, or else what `fetch` gets from the origin, which is then inserted. `fetch` is told in
    /// which class its result is wanted, and is called again with a higher one (more shares) when somebody of that class
    /// joins; see the module `fetch` in the source.
    ///
    /// # Errors
    /// What `fetch` said, or that the key is impossible. That the cache has no room is no error.
    pub async fn get_or_fetch<E, F>(
        &self,
        key: &[u8],
        options: GetOptions,
        fetch: impl FnMut(Class) -> F,
    ) -> Result<Fetched, FetchError<E>>
    where
        F: Future<Output = Result<Vec<u8>, E>>,
    {
        match self.get_with(key, options).await.map_err(FetchError::Cache)? {
            Lookup::Hit(block) => return Ok(Fetched::Hit(block)),
            Lookup::Miss(_) => {}
        }
        let hash = self.engine().hash(key).map_err(FetchError::Cache)?;
        let class = options.class.unwrap_or(self.engine().classes.hit);
        let leader = match self.engine().flights.join(hash, self.ranked(class)) {
            Joined::Lead(leader) => leader,
            Joined::Follow(follower) => match follower.await {
                Followed::Value(block) => return Ok(Fetched::Shared(block)),
                Followed::Lead(leader) => leader,
            },
        };
        self.lead(hash, leader, options, fetch).await
    }

    async fn lead<E, F>(
        &self,
        hash: KeyHash,
        mut leader: Leader<Block>,
        options: GetOptions,
        fetch: impl FnMut(Class) -> F,
    ) -> Result<Fetched, FetchError<E>>
    where
        F: Future<Output = Result<Vec<u8>, E>>,
    {
        let lease = self.engine().lease(hash);
        let value = race_on_promotion(leader.urgency(), fetch).await.map_err(FetchError::Origin)?;
        // A value that cannot be cached (empty, too long, out of date by now) is still what was asked for.
        let _ = self.engine().insert_fetched(lease, &value, options.class).await;
        let block = Block::from_vec(value);
        leader.finish(block.clone());
        Ok(Fetched::Origin(block))
    }

    /// Classes with more shares are more urgent.
    fn ranked(&self, class: Class) -> Ranked {
        let shares = self.classes().list().get(class.index()).map_or(0, |info| info.shares);
        Ranked { class, rank: shares }
    }
}
