//! A [`BlockCache`] as the wrapper's cache.

use futures_util::future::{BoxFuture, FutureExt};
use plimsoll::Class;

use super::Blocks;
use crate::block::Block;
use crate::cache::BlockCache;
use crate::engine::GetOptions;

impl Blocks for BlockCache {
    fn get<'a>(&'a self, key: &'a [u8], class: Option<Class>) -> BoxFuture<'a, Option<Block>> {
        async move { self.get_with(key, GetOptions { class, deadline: None }).await.ok()?.block() }.boxed()
    }

    fn insert(&self, key: &[u8], value: Block, class: Option<Class>) {
        // What cannot be stored is dropped and counted by the engine.
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().insert_detached(hash, &value, class);
        }
    }

    fn remove(&self, key: &[u8]) {
        if let Ok(hash) = self.engine().hash(key) {
            self.engine().remove(&hash);
        }
    }
}
