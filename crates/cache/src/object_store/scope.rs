//! Extensions for reads that have no options.
//!
//! # Why
//! `ObjectStore::get_ranges` takes no options, and readers of Parquet files call nothing else; other libraries call
//! `get_opts` with options of their own. The class of a query would be lost there.
//!
//! # How it works
//! While [`with_extensions`] polls its future, the thread has its extensions; a read takes them when it begins.
//!
//! # Limits
//! A read that begins in another task (`tokio::spawn`) does not have them: wrap that task's future, too.
//!
//! # Example
//! See [`with_extensions`].

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;

use ::object_store::{Extensions, GetOptions};

thread_local! {
    static CURRENT: RefCell<Extensions> = RefCell::default();
}

/// Runs `future`. Its reads through a [`super::CachedStore`] that have no extensions of their own have `extensions`: an
/// [`super::IoClass`], or a program's own tags, which the hook and the store below see.
///
/// # Example
/// ```no_run
/// # use object_store::{Extensions, ObjectStore, path::Path};
/// # use plimsoll_cache::object_store::{CachedStore, IoClass, with_extensions};
/// # async fn scan(store: CachedStore, location: Path) -> object_store::Result<()> {
/// let mut extensions = Extensions::default();
/// extensions.insert(IoClass::scan(None));
/// let parts = with_extensions(extensions, store.get_ranges(&location, &[0..4, 90..100])).await?;
/// # Ok(())
/// # }
/// ```
pub async fn with_extensions<T>(mut extensions: Extensions, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = Entered::new(&mut extensions);
        future.as_mut().poll(context)
    })
    .await
}

/// Exchanges the thread's extensions, until it is dropped.
struct Entered<'a>(&'a mut Extensions);

impl<'a> Entered<'a> {
    fn new(extensions: &'a mut Extensions) -> Entered<'a> {
        exchange(extensions);
        Entered(extensions)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

fn exchange(extensions: &mut Extensions) {
    CURRENT.with_borrow_mut(|current| std::mem::swap(current, extensions));
}

/// Returns the options of a read, with the thread's extensions if it has none.
pub(super) fn options_of(mut options: GetOptions) -> GetOptions {
    if options.extensions.is_empty() {
        options.extensions = CURRENT.with_borrow(Extensions::clone);
    }
    options
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn current() -> Option<u8> {
        options_of(GetOptions::new()).extensions.get().copied()
    }

    fn with(number: u8) -> Extensions {
        let mut extensions = Extensions::default();
        extensions.insert(number);
        extensions
    }

    /// Returns what it sees at each of two polls.
    async fn twice() -> [Option<u8>; 2] {
        let first = current();
        crate::race::yield_now().await;
        [first, current()]
    }

    #[test]
    fn each_future_has_its_own_at_every_poll() {
        let mut context = Context::from_waker(Waker::noop());
        let nested = async { (twice().await, with_extensions(with(2), twice()).await, twice().await) };
        let mut outer = pin!(with_extensions(with(1), nested));
        let mut other = pin!(with_extensions(with(3), twice()));
        for round in 0.. {
            let end = outer.as_mut().poll(&mut context);
            assert_eq!(current(), None, "nothing is left behind");
            if round == 0 {
                assert!(other.as_mut().poll(&mut context).is_pending());
            } else if round == 1 {
                assert_eq!(other.as_mut().poll(&mut context), Poll::Ready([Some(3); 2]));
            }
            if let Poll::Ready(seen) = end {
                assert_eq!(seen, ([Some(1); 2], [Some(2); 2], [Some(1); 2]));
                return;
            }
        }
    }

    #[test]
    fn a_read_with_extensions_of_its_own_keeps_them_and_a_panic_leaves_nothing() {
        let mut context = Context::from_waker(Waker::noop());
        let own = pin!(with_extensions(with(1), async {
            let options = GetOptions { extensions: with(9), ..GetOptions::new() };
            options_of(options).extensions.get::<u8>().copied()
        }));
        assert_eq!(own.poll(&mut context), Poll::Ready(Some(9)));
        let panics = std::panic::catch_unwind(|| {
            let mut context = Context::from_waker(Waker::noop());
            let future = pin!(with_extensions(with(1), async { panic!("as a caller may") }));
            let _: Poll<()> = future.poll(&mut context);
        });
        assert!(panics.is_err());
        assert_eq!(current(), None);
    }
}
