//! Seccomp filters, for tests of what a sandbox forbids.

use libc::c_long;

/// The system calls that open a file.
#[cfg(target_arch = "x86_64")]
pub(crate) const OPENS: [(c_long, Option<u32>); 2] = [(libc::SYS_open, None), (libc::SYS_openat, None)];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OPENS: [(c_long, Option<u32>); 1] = [(libc::SYS_openat, None)];

/// Makes the kernel answer `answer` (`SECCOMP_RET_...`) to these system calls of the calling thread; with the number of
/// an argument, only if that is not 0. Returns whether it will.
pub(crate) fn forbid(calls: &[(c_long, Option<u32>)], answer: u32) -> bool {
    let step = |code, k, jt, jf| libc::sock_filter { code, k, jt, jf };
    let load = |offset_bytes| step(0x20, offset_bytes, 0, 0);
    // Loads the number of the call, compares it, and returns the answer. Without a match, allows the call.
    let mut steps = vec![load(0)];
    for (call, argument) in calls {
        let is_zero = argument.map(|number| [load(16 + 8 * number), step(0x15, 0, 1, 0)]);
        let rest = is_zero.iter().flatten().copied().chain([step(0x06, answer, 0, 0), load(0)]);
        let rest: Vec<_> = rest.collect();
        steps.push(step(0x15, *call as u32, 0, rest.len() as u8));
        steps.extend(rest);
    }
    steps.push(step(0x06, libc::SECCOMP_RET_ALLOW, 0, 0));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the call touches no memory.
    let is_bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: the kernel copies the program, which lives until the call has ended.
    is_bound && unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0
}
