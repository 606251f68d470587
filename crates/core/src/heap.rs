//! A min-heap of (virtual time, node) with four children per node.
//!
//! Four children make the heap half as deep as two and keep siblings on neighbouring cache lines: with eight classes it
//! has two levels. Entries are never searched: a key that has become too small, or a node without work, is corrected
//! when it reaches the top (see `tree`). Keys are clocks: they wrap, and are compared by difference.

use crate::clock::is_before;

/// One entry: a key and its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) node: u32,
}

const ARITY: usize = 4;

/// A min-heap; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    entries: Vec<Entry>,
    members: usize,
}

impl Heap {
    /// Makes room for one more node, so that `push` never allocates.
    pub(crate) fn add_member(&mut self) {
        self.members += 1;
        self.entries.reserve(self.members.saturating_sub(self.entries.len()));
    }

    /// Removes `node` for good.
    pub(crate) fn remove_member(&mut self, node: u32) {
        self.members = self.members.saturating_sub(1);
        self.remove(node);
    }

    /// Returns all entries, the top first, the others in no order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn peek(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1);
    }

    fn sift_up(&mut self, mut at: usize) {
        let entry = self.entries[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !is_before(entry.key, self.entries[parent].key) {
                break;
            }
            self.entries[at] = self.entries[parent];
            at = parent;
        }
        self.entries[at] = entry;
    }

    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let top = self.peek()?;
        if let Some(last) = self.entries.pop()
            && !self.entries.is_empty()
        {
            self.sift_down(last);
        }
        Some(top)
    }

    /// Lowers the key of `node`, wherever it is. Linear, but rarely needed.
    pub(crate) fn lower(&mut self, node: u32, key: u64) {
        if let Some(at) = self.entries.iter().position(|entry| entry.node == node)
            && is_before(key, self.entries[at].key)
        {
            self.entries[at].key = key;
            self.sift_up(at);
        }
    }

    /// Raises the key of the top.
    pub(crate) fn raise_top(&mut self, key: u64) {
        if let Some(top) = self.entries.first().copied() {
            self.sift_down(Entry { key, node: top.node });
        }
    }

    /// Removes `node`, wherever it is. Linear: for removals of classes, not for requests.
    fn remove(&mut self, node: u32) {
        let kept: Vec<Entry> = self.entries.iter().copied().filter(|e| e.node != node).collect();
        self.entries.clear();
        for entry in kept {
            self.push(entry);
        }
    }

    /// Puts `entry` in the place of the top, and moves it down to its place.
    fn sift_down(&mut self, entry: Entry) {
        let entries = self.entries.as_mut_slice();
        let mut at = 0;
        while let Some((child, least)) = least_child(entries, at) {
            if !is_before(least.key, entry.key) {
                break;
            }
            entries[at] = least;
            at = child;
        }
        entries[at] = entry;
    }
}

/// Returns the child of `at` with the smallest key, and its position.
fn least_child(entries: &[Entry], at: usize) -> Option<(usize, Entry)> {
    let first = at * ARITY + 1;
    let children = entries.get(first..)?;
    if let [a, b, c, d, ..] = children {
        // The smallest is unpredictable: two rounds without branches instead of three mispredicted ones.
        let (ab, one) = if is_before(b.key, a.key) { (1, b) } else { (0, a) };
        let (cd, other) = if is_before(d.key, c.key) { (3, d) } else { (2, c) };
        let (offset, least) = if is_before(other.key, one.key) { (cd, other) } else { (ab, one) };
        return Some((first + offset, *least));
    }
    let earlier = |a: (usize, Entry), b: (usize, Entry)| if is_before(b.1.key, a.1.key) { b } else { a };
    let (offset, least) = children.iter().copied().enumerate().reduce(earlier)?;
    Some((first + offset, least))
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn comes_out_sorted(keys in prop::collection::vec(0u64..1000, 0..200)) {
            let mut heap = Heap::default();
            for (node, key) in keys.iter().enumerate() {
                heap.push(Entry { key: *key, node: node as u32 });
            }
            heap.remove(0);
            let mut expected: Vec<u64> = keys.iter().skip(1).copied().collect();
            expected.sort_unstable();
            let out: Vec<u64> = std::iter::from_fn(|| heap.pop()).map(|e| e.key).collect();
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn raising_the_top_keeps_the_order(keys in prop::collection::vec(0u64..1000, 1..100), raise in 0u64..1500) {
            let mut heap = Heap::default();
            for key in &keys {
                heap.push(Entry { key: *key, node: 0 });
            }
            let mut expected = keys.clone();
            expected.sort_unstable();
            let raised = raise.max(expected[0]);
            expected[0] = raised;
            expected.sort_unstable();
            heap.raise_top(raised);
            let out: Vec<u64> = std::iter::from_fn(|| heap.pop()).map(|e| e.key).collect();
            prop_assert_eq!(out, expected);
        }
    }
}
