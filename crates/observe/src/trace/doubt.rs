//! Whether a verdict on a trace depends on a part of its time.
//!
//! **Why.** A trace is one run. If its threads do not get a CPU for a while, or if nothing is asked for between two
//! loads, that part of the time may decide what the whole seems to show.
//!
//! **How.** A verdict is given again without each slice of the time, and for each half of the slices. If one of these
//! is another, the verdict is unclear; a half may be too little to tell. [`super::gaps`] also leaves out pauses,
//! [`super::levels`] levels whose rates vary.
//!
//! **Limits.** A disturbance that is the same in all slices is not seen. Bursts with pauses between them are a program
//! that offers too little once each pause is short beside the whole.
//!
//! **Example.** A program asks for little in 300 ms, and is held back by tokens in 310 ms that were disturbed. Without
//! one slice of the latter its own pace is what took most of the time. So the limiter is unclear.

/// What settles an unclear verdict.
pub(super) const RECORD_AGAIN: &str = "record it again, for longer, on a machine that does nothing else";

/// Another verdict, which some of the time shows.
pub(super) struct Doubt<V> {
    pub(super) shows: V,
    pub(super) without: String,
}

impl<V: PartialEq> Doubt<V> {
    /// Finds slices of the time, of those that begin at `begins_ns`, without which `judge` does not return `found`.
    /// Calls it with the begins of the slices that are left out. Half of the time may leave the question open (`open`).
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

    /// Returns the sentence that says so, from words for what all of the time and what the rest of it shows.
    pub(super) fn sentence(&self, unclear: &str, found: &str, shows: &str) -> String {
        format!("{unclear}: {found} over all of the time, but {shows} without {}; {RECORD_AGAIN}", self.without)
    }
}
