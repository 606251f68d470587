//! The index does what a map does, whatever happens to it.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Begin(u64),
    Finish(usize, u32),
    Abort(usize),
    Remove(u64),
    RemoveAt(u64, bool),
    Relocate(u64, bool, u32),
    Lookup(u64),
    Restore(u64, u32, bool),
    Sweep(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let key = 0..60_u64;
    let op = prop_oneof![
        4 => key.clone().prop_map(Op::Begin),
        6 => (any::<usize>(), 1..100_000_u32).prop_map(|(which, number)| Op::Finish(which, number)),
        1 => any::<usize>().prop_map(Op::Abort),
        1 => key.clone().prop_map(Op::Remove),
        1 => (key.clone(), any::<bool>()).prop_map(|(key, is_right)| Op::RemoveAt(key, is_right)),
        1 => (key.clone(), any::<bool>(), any::<u32>())
            .prop_map(|(key, is_right, to)| Op::Relocate(key, is_right, to)),
        3 => key.clone().prop_map(Op::Lookup),
        1 => (key, 1..100_000_u32, any::<bool>())
            .prop_map(|(key, number, is_ghost)| Op::Restore(key, number, is_ghost)),
        1 => (2..9_u64).prop_map(Op::Sweep),
    ];
    prop::collection::vec(op, 0..300)
}

/// A plain map as the model: key to (place, checksum), no place for a ghost; and the newest insert of each key.
#[derive(Default)]
struct Model {
    known: HashMap<u64, (Option<Extent>, u32)>,
    newest: HashMap<u64, Token>,
    tokens: Vec<(u64, Token)>,
    finished: Vec<usize>,
}

impl Model {
    fn block(&self, key: u64) -> Option<(Extent, u32)> {
        self.known.get(&key).and_then(|(extent, checksum)| extent.map(|extent| (extent, *checksum)))
    }

    fn pick(&self, which: usize) -> Option<(usize, u64, Token)> {
        let at = which.checked_rem(self.tokens.len())?;
        (!self.finished.contains(&at)).then(|| (at, self.tokens[at].0, self.tokens[at].1))
    }
}

fn parts(entry: Entry) -> (Extent, u32) {
    (entry.extent, entry.checksum)
}

fn apply(index: &Index, model: &mut Model, op: &Op) {
    match *op {
        Op::Begin(key) => {
            let token = index.begin_insert(&hash(key));
            model.newest.insert(key, token);
            model.tokens.push((key, token));
        }
        Op::Finish(which, number) => {
            let Some((at, key, token)) = model.pick(which) else { return };
            model.finished.push(at);
            let (place, before, mut logged) = (extent(number, number), model.block(key), None);
            let finish = index.finish_insert(&hash(key), token, place, number, |old, new| {
                logged = Some((old.map(parts), parts(new)));
            });
            if model.newest.get(&key) == Some(&token) {
                model.newest.remove(&key);
                model.known.insert(key, (Some(place), number));
                let Finish::Indexed { displaced } = finish else { panic!("nothing superseded it") };
                assert_eq!((displaced.map(parts), logged), (before, Some((before, (place, number)))));
            } else {
                assert_eq!((finish, logged), (Finish::Superseded, None));
            }
        }
        Op::Abort(which) => {
            let Some((at, key, token)) = model.pick(which) else { return };
            model.finished.push(at);
            index.abort_insert(&hash(key), token);
            if model.newest.get(&key) == Some(&token) {
                model.newest.remove(&key);
            }
        }
        Op::Remove(key) => {
            let (before, mut logged) = (model.block(key), None);
            let removed = index.remove(&hash(key), |old| logged = Some(parts(old)));
            assert_eq!((removed.map(parts), logged), (before, before));
            model.known.remove(&key);
            model.newest.remove(&key);
        }
        Op::RemoveAt(key, is_right) => {
            let expected = model.block(key).filter(|_| is_right);
            let known = known(expected.unwrap_or((extent(1, 100_001), 0)));
            assert_eq!(index.remove_same(&hash(key), &known, |_| ()).map(parts), expected);
            if expected.is_some() {
                model.known.remove(&key);
            }
        }
        Op::Relocate(key, is_right, to) => {
            let from = model.block(key).filter(|_| is_right).unwrap_or((extent(1, 100_001), 0));
            let (to, mut logged) = (extent(to, from.0.len_bytes), None);
            let is_moved = index.relocate(&hash(key), &known(from), to, |old, new| logged = Some((old, new)));
            assert_eq!((is_moved, logged.is_some()), (model.block(key).is_some() && is_right, is_moved));
            if let Some((old, new)) = logged {
                assert_eq!((parts(old), new), (from, Entry { extent: to, ..old }));
                model.known.insert(key, (Some(to), old.checksum));
            }
        }
        Op::Lookup(key) => assert_found(index.lookup(&hash(key)), model.known.get(&key)),
        Op::Restore(key, number, is_ghost) => {
            let slab = if is_ghost { SlabId(SlabId::END) } else { SlabId(number) };
            let entry =
                Entry { extent: Extent { slab, ..extent(number, number) }, checksum: number, tick: number as u16 };
            assert_eq!(index.restore(hash(key), entry).map(parts), model.block(key));
            model.known.insert(key, ((!is_ghost).then_some(entry.extent), number));
        }
        Op::Sweep(divisor) => {
            let mut seen = HashSet::new();
            let verdict = |checksum: u32| match u64::from(checksum) % divisor {
                0 => Verdict::Evict,
                1 => Verdict::Drop,
                _ => Verdict::Keep,
            };
            sweep_all(index, 7, |hash, entry| {
                assert!(seen.insert(hash), "seen twice");
                verdict(entry.checksum)
            });
            assert_eq!(seen.len(), (0..60).filter(|key| model.block(*key).is_some()).count());
            let gone = |place: &Option<Extent>, checksum| place.is_some() && verdict(checksum) == Verdict::Drop;
            model.known.retain(|_, (place, checksum)| !gone(place, *checksum));
            let evicted = |place: &Option<Extent>, checksum| place.is_some() && verdict(checksum) == Verdict::Evict;
            for (place, checksum) in model.known.values_mut().filter(|(place, checksum)| evicted(place, *checksum)) {
                (*place, *checksum) = (None, 0);
            }
        }
    }
}

fn assert_found(found: Found, known: Option<&(Option<Extent>, u32)>) {
    match (found, known) {
        (Found::Absent, None) | (Found::Ghost, Some((None, _))) => {}
        (Found::Block(entry), Some((Some(place), checksum))) => assert_eq!(parts(entry), (*place, *checksum)),
        (found, known) => panic!("{found:?} where the map has {known:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn it_does_what_a_map_does(ops in ops()) {
        let (index, mut model) = (Index::new(1 << 30, 400.0, 1), Model::default());
        for op in &ops {
            apply(&index, &mut model, op);
        }
        for key in 0..60 {
            prop_assert_eq!(index.peek(&hash(key)).map(parts), model.block(key));
            assert_found(index.lookup(&hash(key)), model.known.get(&key));
        }
        assert_sums_agree(&index);
    }
}
