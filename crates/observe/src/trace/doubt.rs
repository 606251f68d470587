//! Tests whether a verdict on a trace depends on one part of its time.
//!
//! **Why.** A trace is one run. If its threads do not get a CPU for a while, or if the program requests nothing between
//! two loads, that part may decide the verdict on the whole.
//!
//! **How.** The verdict is computed again without each slice of the time, and for each half of the slices. If one of
//! these verdicts differs, the verdict is unclear; a half may leave the question open. [`super::gaps`] also leaves out
//! pauses, [`super::levels`] levels whose rates vary.
//!
//! **Limits.** A disturbance that is the same in all slices is not found. Bursts with pauses that are short beside the
//! whole time are judged as a program that offers too little.
//!
//! **Example.** A program offers little for 300 ms, then tokens hold it back for 310 ms that were disturbed. Without
//! one slice of the latter, the program's own pace took most of the time. So the limiter is unclear.

/// The advice that follows an unclear verdict.
pub(super) const RECORD_AGAIN: &str = "record it again, for longer, on a machine that does nothing else";

/// A different verdict, which a part of the time shows.
pub(super) struct Doubt<V> {
    pub(super) shows: V,
    pub(super) without: String,
}

impl<V: PartialEq> Doubt<V> {
    /// Finds slices, among those that begin at `begins_ns`, without which `judge` does not return `found`. Calls
    /// `judge` with the begins of the slices to leave out. For half of the time, `judge` may also return `open`.
    pub(super) fn find(begins_ns: &[u64], found: V, open: V, judge: impl Fn(&[u64]) -> V) -> Option<Doubt<V>> {
        // Half of two or three slices is not half of the time.
        let halves = [0, 1].into_iter().filter(|_| begins_ns.len() >= 4).find_map(|from| {
            let left_out_ns: Vec<u64> = begins_ns.iter().skip(from).step_by(2).copied().collect();
            let shows = judge(&left_out_ns);
            let is_another = shows != found && shows != open;
            is_another.then(|| Doubt { shows, without: "every second part of it".to_owned() })
        });
        halves.or_else(|| {
            begins_ns.iter().enumerate().find_map(|(at, begin_ns)| {
                let shows = judge(&[*begin_ns]);
                let without = || format!("part {} of {} of it", at + 1, begins_ns.len());
                (shows != found).then(|| Doubt { shows, without: without() })
            })
        })
    }

    /// Formats the doubt: `found` is the verdict over all of the time, `shows` that over the rest, both in words.
    pub(super) fn sentence(&self, unclear: &str, found: &str, shows: &str) -> String {
        format!("{unclear}: {found} over all of the time, but {shows} without {}; {RECORD_AGAIN}", self.without)
    }
}
