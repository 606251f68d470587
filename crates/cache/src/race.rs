//! Combines futures: the first of two to end, one and its deadline, or all of several.
//!
//! # Why
//! A hit has a deadline. If it passes, the read's future is dropped, which cancels a read that is still queued. And no
//! task may wait for ever for a disk that hangs.
//!
//! # Limits
//! `race` polls its first future first: if both are ready, that one wins.
//!
//! # Example
//! `race(read, shard.sleep(deadline)).await` is `None` when the read took too long.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use plimsoll::Shard;

/// Longest wait for one operation of a disk: more than a slow disk needs for 1 MiB, less than the 30 s after which the
/// kernel gives up a command.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Steps in which a deadline passes. If the whole machine was paused, or its clock has jumped, one step ends at once
/// and an operation that was done meanwhile has the others to complete.
const STEPS: u32 = 10;

/// Returns the output of `operation`, or `None` if it takes longer than [`DEADLINE`].
pub(crate) async fn in_time<T>(shard: &Shard, operation: impl Future<Output = T>) -> Option<T> {
    race(operation, pass(shard, DEADLINE)).await
}

/// Sleeps in [`STEPS`] steps.
async fn pass(shard: &Shard, how_long: Duration) {
    for _ in 0..STEPS {
        shard.sleep(how_long / STEPS).await;
    }
}

/// Returns the output of `first`, or `None` if `limit` ends before it.
pub(crate) async fn race<T>(first: impl Future<Output = T>, limit: impl Future<Output = ()>) -> Option<T> {
    let (mut first, mut limit) = (pin!(first), pin!(limit));
    std::future::poll_fn(|context| {
        if let Poll::Ready(value) = first.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        limit.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Lets the other tasks of the shard run once.
pub(crate) async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Longest sleep of [`hold_back`] between two checks of `goes_on`.
const SLEEP_NS: u64 = 1_000_000_000;

/// Sleeps until `bytes` moved since `begin_ns` are within a rate, or `goes_on` is false.
pub(crate) async fn hold_back(shard: &Shard, begin_ns: u64, bytes: u64, bytes_per_s: u64, goes_on: impl Fn() -> bool) {
    let due = Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
    let due_ns = begin_ns.saturating_add(u64::try_from(due.as_nanos()).unwrap_or(u64::MAX));
    while shard.now_ns() < due_ns && goes_on() {
        shard.sleep_until(due_ns.min(shard.now_ns().saturating_add(SLEEP_NS))).await;
    }
}

/// Steps of long work after which other tasks run: some 100 us.
const STEPS_AT_ONCE: u32 = 256;

/// Counts the steps of long work, and lets other tasks run between some of them.
#[derive(Default)]
pub(crate) struct Steps(u32);

impl Steps {
    /// Call it after each step.
    pub(crate) async fn next(&mut self) {
        self.0 += 1;
        if self.0 == STEPS_AT_ONCE {
            self.0 = 0;
            yield_now().await;
        }
    }
}

/// Runs `futures` concurrently. Returns their outputs, in their order.
pub(crate) async fn all<T>(futures: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut under_way: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    std::future::poll_fn(|context| {
        let mut is_done = true;
        for (future, value) in &mut under_way {
            let Some(pinned) = future else { continue };
            match pinned.as_mut().poll(context) {
                Poll::Ready(end) => {
                    *value = Some(end);
                    *future = None;
                }
                Poll::Pending => is_done = false,
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    under_way.into_iter().filter_map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use futures_channel::oneshot;
    use plimsoll::backend::choose::{BackendKind, probe};
    use plimsoll::{Classes, DiskSetup, Reactor, Topology};

    use super::*;

    /// The machine stops for twice the deadline, while an operation is under way that is done by then.
    #[test]
    fn a_pause_of_the_machine_is_not_a_deadline_that_has_passed() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let (backend, _) = probe(Some(BackendKind::Memory), 16).unwrap();
        let shard = Shard::new(Reactor::new(0, &topology, backend).unwrap());
        let deadline = Duration::from_millis(500);
        let end = shard.block_on(async {
            let (answer, answered) = oneshot::channel();
            let own = shard.clone();
            let operation = async move {
                own.sleep(deadline / 2).await;
                let _ = answer.send(());
            };
            shard.spawn(operation).detach();
            shard.spawn(async move { std::thread::sleep(deadline * 2) }).detach();
            race(answered, pass(&shard, deadline)).await
        });
        shard.drop_tasks();
        assert_eq!(end.unwrap(), Some(Ok(())), "it was given up");
    }
}
