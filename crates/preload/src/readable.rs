//! Whether the program's memory can be read: the kernel answers a bad pointer with EFAULT, and the library must not
//! crash on one that it reads first.
//!
//! # How it works
//! `rt_sigprocmask` copies a set of 8 bytes in, and then refuses a request that does not exist.
//!
//! # Limits
//! Another thread may unmap the memory afterwards.

use std::ffi::c_void;

use crate::errno;

/// A request that `rt_sigprocmask` refuses after it has read the set.
const NO_REQUEST: libc::c_long = -1;
const WORD_BYTES: usize = 8;
/// The smallest page of any architecture.
const PAGE_BYTES: usize = 4096;

/// Returns whether `len_bytes` at `at` can be read; at least 8.
pub(crate) fn is_readable(at: *const c_void, len_bytes: usize) -> bool {
    let Some(last) = at.addr().checked_add(len_bytes.max(WORD_BYTES) - WORD_BYTES) else { return false };
    errno::keep(|| {
        // One word in each page is enough, and the last one, which may end in another page.
        let is_one_page = at.addr() / PAGE_BYTES == (last + (WORD_BYTES - 1)) / PAGE_BYTES;
        let mut next = if is_one_page { last } else { at.addr() };
        loop {
            let word = at.with_addr(next);
            // SAFETY: the call reads a word, if there is one, and changes nothing.
            let result = unsafe {
                libc::syscall(libc::SYS_rt_sigprocmask, NO_REQUEST, word, std::ptr::null_mut::<c_void>(), WORD_BYTES)
            };
            if result < 0 && errno::get() == libc::EFAULT {
                return false;
            }
            if next == last {
                return true;
            }
            next = (next / PAGE_BYTES + 1).saturating_mul(PAGE_BYTES).min(last);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_readable_up_to_a_page_that_is_not_there() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE_BYTES, libc::PROT_READ, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        // SAFETY: the last page of the mapping, which nobody uses.
        let is_cut =
            unsafe { libc::mprotect(pages.wrapping_byte_add(2 * PAGE_BYTES), PAGE_BYTES, libc::PROT_NONE) } == 0;
        assert!(is_cut);
        for (offset, len_bytes, expected) in [
            (0, 8, true),
            (0, 2 * PAGE_BYTES, true),
            (0, 2 * PAGE_BYTES + 8, false),
            (2 * PAGE_BYTES - 16, 16, true),
            (2 * PAGE_BYTES - 16, 32, false),
            (2 * PAGE_BYTES - 4, 8, false),
            (2 * PAGE_BYTES, 8, false),
        ] {
            let at = pages.wrapping_byte_add(offset);
            assert_eq!(is_readable(at, len_bytes), expected, "{len_bytes} bytes at {offset}");
        }
        assert!(!is_readable(std::ptr::without_provenance(16), 16));
        assert!(!is_readable(std::ptr::without_provenance(usize::MAX - 3), 16));
    }
}
