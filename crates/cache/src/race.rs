//! Combines futures: the first of two to end, or all of several.
//!
//! # Why
//! A hit has a deadline. If it passes, the read's future is dropped, which cancels a read that is still queued.
//!
//! # Limits
//! `race` polls its first future first: if both are ready, that one wins.
//!
//! # Example
//! `race(read, shard.sleep(deadline)).await` is `None` when the read took too long.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

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
