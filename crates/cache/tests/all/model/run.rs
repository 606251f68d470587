//! Lives of a cache under load and faults, each step checked against the map that forgets.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use plimsoll::backend::sim::{SimConfig, SimDisk, SimDiskState, SimFaults};
use plimsoll_cache::stats::{DiskHealth, DropReason, MissReason};
use plimsoll_cache::{BlockCache, CacheConfig, CacheError, Inserted, Lookup, Placement};

use super::forgetful::{Forgetful, State};
use super::members::Members;
use crate::world::{Life, Town, value_of};

/// The disk that is always present.
const ANCHOR: usize = 0;

/// The faults and the load of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Family {
    pub(crate) faults: SimFaults,
    /// No block may be lost: no faults but crashes, and room for everything.
    pub(crate) is_strict: bool,
    /// More blocks than there is room for.
    pub(crate) is_crowded: bool,
    /// Disks get slow, refuse writes, fail, leave and return.
    pub(crate) has_states: bool,
    /// Disks hang, too, also at an opening.
    pub(crate) has_hangs: bool,
    /// Disks hang with their writes alone, too.
    pub(crate) has_write_hangs: bool,
    /// Disks are added, expanded, removed and forgotten.
    pub(crate) has_changes: bool,
    /// A block may be found damaged.
    pub(crate) may_corrupt: bool,
}

/// With this, an operation takes half a minute or more.
const HANGS: SimDiskState = SimDiskState::Slow { factor: 300_000.0 };

/// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled", 2016.
pub(crate) struct Dice(Cell<u64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        let mut state = self.0.get();
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        self.0.set(state);
        (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound.max(1)
    }

    pub(crate) fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// All runs.
pub(crate) async fn join(mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    std::future::poll_fn(move |context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

struct Run {
    family: Family,
    seed: u64,
    dice: Dice,
    model: RefCell<Forgetful>,
    town: Town,
    keys: u64,
    key: Option<[u8; 32]>,
    /// Nothing was dropped for want of room since then, so every block must be there.
    is_strict: Cell<bool>,
    can_narrow: bool,
    members: RefCell<Members>,
    /// Length of the largest disk.
    largest_mib: Cell<u64>,
}

/// Returns the bytes of a value: its length, too, follows from its number.
fn bytes_of(key: u32, value: u32, is_crowded: bool) -> Vec<u8> {
    let dice = Dice::new(u64::from(value) << 20 | u64::from(key));
    let few = [1, 512, 4000, 8192, 16_384, 100_000, 300_000];
    let len = match dice.below(100) {
        0..2 => few[6],
        2..5 => few[5],
        n if is_crowded => 1 + dice.below(if n < 80 { 16 << 10 } else { 64 << 10 }) as usize,
        n => few[n as usize % 5],
    };
    value_of(value ^ key << 16, len)
}

/// Runs one seed.
pub(crate) fn run(family: Family, seed: u64) {
    let dice = Dice::new(seed ^ 0xC0FF_EE00);
    let disks = 2 + dice.below(3) as u16;
    let mount = |n: u16| PathBuf::from(format!("/disk{n}"));
    let disk = |n| SimDisk { mount: mount(n), ..SimDisk::default() };
    let sector_bytes = if dice.one_in(2) { 512 } else { 4096 };
    let config = SimConfig { seed, disks: (0..disks).map(disk).collect(), sector_bytes, ..SimConfig::default() };
    let mib = if family.is_strict { 64 } else { 24 + dice.below(41) };
    let mut town = Town::of(&config, mib << 20);
    town.seed = seed;
    let key = dice.one_in(4).then_some([7; 32]);
    let first = if family.has_changes { 1 + dice.below(u64::from(disks)) as usize } else { usize::from(disks) };
    let members = RefCell::new(Members::new(usize::from(disks), first));
    town.create_with(1 << 20, key, &town.disks[..first]);
    let keys = if family.is_crowded { 20 * mib * u64::from(disks) } else { 300 };
    let is_strict = Cell::new(family.is_strict);
    let can_narrow = !family.may_corrupt && !family.has_states;
    let (model, largest_mib) = (RefCell::default(), Cell::new(mib));
    let run = Run { family, seed, dice, model, town, keys, key, is_strict, can_narrow, members, largest_mib };
    // Many short lives make long logs, and so snapshots.
    let (lives, part) = if run.dice.one_in(4) { (16, 4) } else { (2 + run.dice.below(5), 1) };
    for number in 0..lives {
        run.live(number, part);
    }
    run.town.calm();
    let life = run.open(true);
    life.run(async |cache| run.verify(cache).await);
}

impl Run {
    fn config(&self) -> CacheConfig {
        let dice = &self.dice;
        CacheConfig {
            checkpoint_interval: Duration::from_millis([20, 100, 500, 3_600_000][dice.below(4) as usize]),
            target_free_blocks_pct: if self.family.is_crowded { 10.0 } else { 1.0 },
            placement: Placement::ALL[dice.below(3) as usize].1,
            memory_bytes: if dice.one_in(3) { 1 << 20 } else { 0 },
            discard: dice.one_in(3),
            encryption_key: self.key,
            // By the seed alone, so that other seeds run as they did.
            reject_first: self.seed % 4 == 3,
            seed: dice.below(1 << 40),
            ..CacheConfig::default()
        }
    }

    /// Opens the cache with the disks present. If `is_calm`, there are no faults, and opening must succeed.
    fn open(&self, is_calm: bool) -> Life {
        if !is_calm && let Ok(life) = self.try_open() {
            return life;
        }
        self.town.world.set_faults(SimFaults::default()).unwrap();
        self.try_open().unwrap_or_else(|error| panic!("it does not open: {error}; seed {}", self.seed))
    }

    /// Opens the cache with the disks that the operator lists. A disk that is refused leaves the list.
    fn try_open(&self) -> Result<Life, CacheError> {
        loop {
            let listed = self.members.borrow().listed(&self.town);
            let error = match self.town.try_open_of(&self.config(), &listed) {
                Ok(life) => return Ok(life),
                Err(error) => error,
            };
            if !self.family.has_changes || !self.members.borrow_mut().refused(&self.town, &error) {
                return Err(error);
            }
        }
    }

    fn live(&self, number: u64, part: u64) {
        let dice = &self.dice;
        self.town.world.set_faults(self.family.faults).unwrap();
        let life = self.open(number == 0 || dice.one_in(2));
        self.town.world.set_faults(self.family.faults).unwrap();
        if !dice.one_in(4) {
            life.run(async |cache| self.verify(cache).await);
        }
        let cache = life.cache.as_ref().unwrap();
        let tasks = 1 + dice.below(6);
        let ops = if self.family.is_crowded { 800 } else { 100 + dice.below(300) } / part;
        let mut work: Vec<Pin<Box<dyn Future<Output = ()>>>> = Vec::new();
        for _ in 0..tasks {
            work.push(Box::pin(self.work(&life, cache, ops)));
        }
        if self.family.has_states {
            work.push(Box::pin(self.shake(&life)));
        }
        if self.family.has_changes {
            work.push(Box::pin(self.change(&life, cache)));
        }
        let landed = self.town.world.landed() + 1 + dice.below(tasks * ops);
        let how = dice.below(3);
        if how == 0 {
            life.runtime().block_on_until_landed(0, join(work), landed).unwrap();
        } else {
            life.runtime().block_on(0, join(work)).unwrap();
        }
        if how == 1 {
            let asked = self.model.borrow_mut().tick();
            if life.try_close().is_ok() {
                self.model.borrow_mut().checkpointed(asked);
            }
        } else {
            life.crash();
        }
        // Changes that a failed close has not made durable are as uncertain as after a crash.
        self.model.borrow_mut().crashed();
        self.grow_one();
        self.leave_some_out();
    }

    /// Makes a disk larger than all others, for the cache to be told of it later.
    fn grow_one(&self) {
        if self.family.has_changes && self.dice.one_in(3) {
            self.town.calm();
            self.largest_mib.update(|mib| mib + 1 + self.dice.below(8));
            self.town.set_len(self.dice.below(self.town.disks.len() as u64) as usize, self.largest_mib.get() << 20);
        }
    }

    /// Takes some disks away for the next opening, but never the anchor.
    fn leave_some_out(&self) {
        if !self.family.has_states {
            return;
        }
        for disk in 0..self.town.disks.len() {
            let is_there = disk == ANCHOR || !self.dice.one_in(5);
            let hangs = self.family.has_hangs && disk != ANCHOR && self.dice.one_in(8);
            let state = match (is_there, hangs) {
                (true, false) => SimDiskState::Healthy,
                (true, true) => HANGS,
                (false, _) => SimDiskState::Gone,
            };
            self.town.world.set_disk_state(disk, state).unwrap();
        }
    }

    async fn shake(&self, life: &Life) {
        let shard = life.runtime().shard(0).clone();
        for _ in 0..self.dice.below(6) {
            shard.sleep(Duration::from_micros(self.dice.below(20_000))).await;
            let disk = 1 + self.dice.below(self.town.disks.len() as u64 - 1) as usize;
            let state = match self.dice.below(6) {
                _ if self.family.has_hangs && self.dice.one_in(2) => HANGS,
                _ if self.family.has_write_hangs && self.dice.one_in(2) => SimDiskState::WritesHang,
                0 => SimDiskState::Slow { factor: 50.0 },
                1 => SimDiskState::ReadOnly,
                2 => SimDiskState::Failed,
                3 => SimDiskState::Gone,
                _ => SimDiskState::Healthy,
            };
            self.town.world.set_disk_state(disk, state).unwrap();
            if self.dice.one_in(3) {
                // Long enough for a disk to be readmitted.
                shard.sleep(Duration::from_secs(6)).await;
            }
        }
    }

    /// Changes the disks of the cache, as its operator.
    async fn change(&self, life: &Life, cache: &BlockCache) {
        let shard = life.runtime().shard(0).clone();
        for _ in 0..self.dice.below(8) {
            shard.sleep(Duration::from_micros(self.dice.below(20_000))).await;
            let disk = self.dice.below(self.town.disks.len() as u64) as usize;
            let source = &self.town.disks[disk];
            match self.dice.below(6) {
                0..3 => {
                    self.members.borrow_mut().begins_to_add(disk);
                    let added = cache.add_disk(source, self.dice.one_in(2)).await;
                    if added.is_ok() {
                        self.members.borrow_mut().is_added(disk);
                    }
                }
                3 if disk != ANCHOR => {
                    if cache.remove_disk(&source.path).is_ok() {
                        self.members.borrow_mut().begins_to_leave(disk);
                    }
                }
                4 => drop(cache.expand_disk(&source.path).await),
                _ => self.forget_one(cache).await,
            }
        }
    }

    /// Forgets a disk that is missing, if there is one.
    async fn forget_one(&self, cache: &BlockCache) {
        let disks = cache.stats().disks;
        if let Some(missing) = disks.iter().find(|disk| disk.health == DiskHealth::Missing) {
            let present: Vec<String> = disks.iter().map(|disk| disk.path.clone()).collect();
            self.members.borrow_mut().forgotten(&self.town, &present);
            drop(cache.forget_disk(missing.number).await);
        }
    }

    async fn work(&self, life: &Life, cache: &BlockCache, ops: u64) {
        let shard = life.runtime().shard(0).clone();
        for _ in 0..ops {
            // Few keys, so that they are often looked up.
            let key = self.dice.below(1 + self.dice.below(self.keys)) as u32;
            match self.dice.below(100) {
                0..45 => self.insert(cache, key).await,
                45..85 => self.get(cache, key).await,
                85..97 => self.remove(cache, key).await,
                97..98 => self.checkpoint(cache).await,
                _ => shard.sleep(Duration::from_micros(self.dice.below(3000))).await,
            }
        }
    }

    async fn insert(&self, cache: &BlockCache, key: u32) {
        let (value, event) = self.model.borrow_mut().begin_insert(key);
        let bytes = bytes_of(key, value, self.family.is_crowded);
        let end = cache.insert(&key.to_le_bytes(), &bytes).await.unwrap();
        self.model.borrow_mut().end(key, event, end == Inserted::Stored);
        if let Inserted::Dropped(reason) = end
            && self.family.is_strict
        {
            assert!(
                matches!(reason, DropReason::Superseded | DropReason::NoSpace | DropReason::FirstUse),
                "{reason:?}, seed {}",
                self.seed
            );
        }
    }

    async fn remove(&self, cache: &BlockCache, key: u32) {
        let event = self.model.borrow_mut().begin_remove(key);
        cache.remove(&key.to_le_bytes()).await.unwrap();
        self.model.borrow_mut().end(key, event, true);
    }

    async fn checkpoint(&self, cache: &BlockCache) {
        let asked = self.model.borrow_mut().tick();
        match cache.checkpoint().await {
            Ok(_) => self.model.borrow_mut().checkpointed(asked),
            Err(error) => assert!(!self.family.is_strict, "{error}, seed {}", self.seed),
        }
    }

    async fn get(&self, cache: &BlockCache, key: u32) {
        let asked = self.model.borrow_mut().tick();
        // A checkpoint made during a look-up does not exclude states that were possible when the look-up began.
        let mut possible = self.model.borrow().possible(key, asked);
        let found = cache.get(&key.to_le_bytes()).await.unwrap();
        possible.extend(self.model.borrow().possible(key, asked));
        let seed = self.seed;
        match found {
            Lookup::Hit(block) => {
                let is_it = |state: &State| match state {
                    State::Absent => None,
                    State::Value(value) => {
                        (block[..] == bytes_of(key, *value, self.family.is_crowded)).then_some(*value)
                    }
                };
                let Some(value) = possible.iter().find_map(is_it) else {
                    let is_it = |value: &u32| block[..] == bytes_of(key, *value, self.family.is_crowded);
                    let was: Vec<u32> = (1..10_000).filter(is_it).take(9).collect();
                    let len = block.len();
                    let stats = cache.stats();
                    let disks: Vec<_> =
                        stats.disks.iter().map(|disk| (disk.health, &disk.why, disk.free_slabs)).collect();
                    eprintln!(
                        "{disks:?}; {} evictions, {} moves, drops {:?}",
                        stats.evictions, stats.moves, stats.drops
                    );
                    panic!("key {key} has {len} bytes, value {was:?}, possible are {possible:?}; seed {seed}")
                };
                if self.can_narrow {
                    self.model.borrow_mut().seen(key, value);
                }
            }
            Lookup::Miss(reason) => {
                let is_known = possible.iter().all(|state| *state != State::Absent);
                let is_lost = is_known && self.is_strict.get();
                assert!(!is_lost, "key {key} is lost ({reason:?}), possible are {possible:?}; seed {seed}");
                let is_damaged = matches!(reason, MissReason::Corrupt) && !self.family.may_corrupt;
                assert!(!is_damaged, "key {key} is damaged, possible are {possible:?}; seed {seed}");
            }
        }
    }

    async fn verify(&self, cache: &BlockCache) {
        let keys = self.model.borrow().keys();
        for key in keys {
            self.get(cache, key).await;
        }
    }
}

/// Runs `few` seeds, or those that the test is given.
pub(crate) fn run_seeds(family: Family, few: u64) {
    crate::seeds::each(few, |seed| run(family, seed));
}
