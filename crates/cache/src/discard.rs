//! Discards empty slabs on the device, one at a time.
//!
//! # Why
//! A flash device that knows its unused space collects garbage with less copying. But a burst of discards after a
//! checkpoint stalls many devices, so discards have a class of their own with few shares.
//!
//! # How it works
//! A checkpoint queues the slabs that it has emptied. One task takes them in turn: it claims a slab that is still free
//! in the allocator, discards it, and returns it. A slab that is in use again is skipped. A discard that takes longer
//! than any operation may goes on alone: slabs of other disks follow, those of its disk are skipped.
//!
//! # Limits
//! Off unless configured: in a file a discard makes a hole, which a later write must allocate again.
//!
//! # Example
//! A checkpoint empties 40 slabs of 32 MiB; 10 are in use again within the second in which the other 30 are discarded.

use std::sync::Arc;

use plimsoll::Shard;

use crate::engine::Engine;
use crate::entry::SlabId;
use crate::metadata;
use crate::stats::IoKind;
use crate::sync::{lock, read};

impl Engine {
    /// Queues `slabs`, and starts the task that discards them unless it runs already.
    pub(crate) fn start_discards(self: &Arc<Engine>, shard: &Shard, slabs: Vec<SlabId>) {
        if !self.config.discard {
            return;
        }
        if !self.upkeep.discards.add(slabs) {
            return;
        }
        let (engine, own) = (Arc::clone(self), shard.clone());
        let work = async move {
            while let Some(slab) = engine.upkeep.discards.next(engine.to_keeper.is_stopping()) {
                engine.discard(&own, slab).await;
            }
        };
        shard.spawn(work).detach();
    }

    async fn discard(self: &Arc<Engine>, shard: &Shard, slab: SlabId) {
        let Some((number, begin)) = self.place(slab) else { return };
        let Some(disk) = self.disk(number) else { return };
        let (_, in_flight) = disk.progress([IoKind::Discard]);
        // An earlier discard has been in flight for long: the disk hangs.
        if in_flight > 0 {
            return;
        }
        if lock(&self.alloc).claim_metadata(slab).is_err() {
            return;
        }

        let (engine, own) = (Arc::clone(self), shard.clone());
        let discard = async move {
            let len_bytes = u64::from(engine.identity.geometry.slab_bytes);
            disk.discard(&own, engine.classes.discard, begin, len_bytes).await;
            // If the disk has begun a new life meanwhile, the slab may be in use there.
            let _gate = read(&engine.gate);
            if engine.is_member(&disk) {
                lock(&engine.alloc).return_slab(slab);
            }
            Ok(())
        };
        // The slab is not used before its discard has ended, but the slabs of other disks do not wait for it.
        let _ = metadata::to_its_end(shard, discard).await;
    }
}
