//! The threads of flushes, compaction and garbage collection, which give way to all others.
//!
//! # Why
//! A flush or a compaction merges, checks and encodes for milliseconds before it gives its thread back. On the threads
//! that serve clients, a query whose block has arrived would wait for that.
//!
//! # How it works
//! A Tokio runtime of its own, whose threads are nicer than the process by [`NICE`]: the kernel runs them where others
//! leave a CPU idle, and for a small part of the time where they do not. SlateDB is built on it, but for the task that
//! takes writes; the commit log stays on the runtime of the clients.
//!
//! # Example
//! `background.handle().spawn(builder.build())`

use std::io;

use rustix::process::{getpriority_process, setpriority_process};
use tokio::runtime::{Builder, Handle, Runtime};

/// Niceness of the threads beyond the process's own: a tenth of the weight of its other threads in the kernel's
/// scheduler (each step is a factor of 1.25).
const NICE: i32 = 10;
/// The kernel's highest niceness.
const NICEST: i32 = 19;

/// The runtime of background work.
pub(crate) struct Background {
    /// Always there until the value is dropped.
    runtime: Option<Runtime>,
}

impl Background {
    /// Starts the runtime, with a thread for each CPU.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start() -> io::Result<Background> {
        // Not read by the threads themselves: those that a thread of the runtime starts have its niceness already.
        let nice = getpriority_process(None)?.saturating_add(NICE).min(NICEST);
        let give_way = move || {
            // Where the system refuses this, background work has the priority of the queries.
            let _ = setpriority_process(None, nice);
        };
        let runtime =
            Builder::new_multi_thread().thread_name("kv-background").enable_all().on_thread_start(give_way).build()?;
        Ok(Background { runtime: Some(runtime) })
    }

    /// Returns the handle by which tasks are started.
    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.as_ref().expect("only drop takes it").handle()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which Tokio refuses inside of asynchronous code.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_run_on_threads_that_give_way() {
        let background = Background::start().unwrap();
        let stat = background.handle().spawn(async { std::fs::read_to_string("/proc/thread-self/stat") });
        let stat = stat.await.unwrap().unwrap();

        let (_, behind_the_name) = stat.rsplit_once(')').unwrap();
        let nice: i32 = behind_the_name.split_whitespace().nth(16).unwrap().parse().unwrap();
        let own = getpriority_process(None).unwrap();
        assert_eq!(nice, (own + NICE).min(NICEST), "the process has {own}");
    }
}
