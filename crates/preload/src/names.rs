//! The calling thread's name, as the set of rules that match it. It is read at a thread's first call, after any thread
//! was renamed, and every [`CALLS_A_LOOK`] calls, for names that were set without libc.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::rules::Rules;

/// Calls of a thread after which its name is read again.
const CALLS_A_LOOK: u32 = 256;

/// Number of times that a thread was renamed.
static NAMED: AtomicU32 = AtomicU32::new(1);

#[derive(Clone, Copy)]
struct Known {
    rules: u64,
    named: u32,
    calls: u32,
}

std::thread_local! {
    static KNOWN: Cell<Known> = const { Cell::new(Known { rules: 0, named: 0, calls: 0 }) };
}

/// Records that some thread has a new name.
pub(crate) fn changed() {
    NAMED.fetch_add(1, Relaxed);
}

/// Returns the rules whose thread pattern matches the calling thread.
pub(crate) fn of_this_thread(rules: &Rules) -> u64 {
    let named = NAMED.load(Relaxed);
    let look = || {
        let mut name = [0_u8; 16];
        // SAFETY: the kernel writes at most 16 bytes, its own limit, into the array.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        rules.of_thread(&name[..len])
    };

    let known = KNOWN.try_with(|known| {
        let mut now = known.get();
        now.calls += 1;
        if now.named != named || now.calls >= CALLS_A_LOOK {
            now = Known { rules: look(), named, calls: 0 };
        }
        known.set(now);
        now.rules
    });
    known.unwrap_or_else(|_| look())
}
