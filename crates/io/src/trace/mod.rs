//! Records the stations of every request of a program.
//!
//! # Why
//! A latency says that something was slow; the stations of the requests tell where. A program must be able to record
//! them at any time, in full, without changing its behaviour by it.
//!
//! # How it works
//! [`Tracing`], from [`Topology::trace`](crate::Topology::trace), starts and stops a trace at any time, from any
//! thread. Each shard writes events ([`plimsoll_core::trace`]) into a ring of its own; a thread carries them from the
//! rings to a file ([`mod@format`]). A shard never waits for that: if its ring is full, the event is dropped and
//! counted.
//! ```text
//!   shard 0  --ring-->  \
//!   shard 1  --ring-->   recorder, every 10 ms  -->  names, chunks of events
//!   disk's decisions --> /
//! ```
//! A shard checks once a turn whether a trace has begun or ended. Without one, a station costs it one comparison.
//!
//! # What the times mean
//! Each time is read at the station itself, except:
//!
//! * *Completed* is the moment at which the shard began to look, for all completions that it found then: the moment it
//!   learnt of them. The piece may have been done before; its `detail` is the longest time for which it may have been.
//!   That is the time since the shard's previous look, or, if it has slept meanwhile, since it woke up: a completion
//!   ends the sleep, so the completions found were not there when the sleep began. A wait of 10 us or more counts as a
//!   sleep; handing requests to the system takes less. In virtual time every wait does.
//! * *Reaped* and the *Finished* that follows from it have one time.
//! * *Callback* is when [`Reactor::reap`](crate::Reactor::reap) handed out the ended requests: one time for all of
//!   them. A future is woken then, and polled in the same turn.
//! * *Submitted* is when the backend had taken the piece, or, if it finished the piece at once, when it was handed
//!   over.
//! * *Control* has the time of the decision. It is recorded among the events of shard 0.
//!
//! # Limits
//! A trace holds only events from while it runs: of a request that was under way before, the stations after its start.
//! A request for another shard's queue is recorded there, from its arrival to Finished, under a number of that shard;
//! it has no Callback. The number of a closed file is used again: events in the rings at that moment may appear under
//! the name of the next file.
//!
//! # Example
//! ```
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::choose::BackendKind;
//! use plimsoll::buffer::AlignedBuf;
//! use plimsoll::trace::TraceConfig;
//! use plimsoll::trace::format::{Clock, Writer};
//! use plimsoll::{Class, Classes, DiskSetup, Reactor, Shard, Topology};
//!
//! let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let file = topology.file("/any/path".as_ref(), OpenOptions::default(), 0);
//! let shard = Shard::new(Reactor::new(0, &topology, BackendKind::Null.make(16)?)?);
//! let tracing = topology.trace();
//! let out: Box<dyn std::io::Write + Send> = Box::new(std::io::sink()); // or a file
//! tracing.start(Writer::new(out, Clock::Monotonic, 0)?, TraceConfig::default())?;
//! shard.block_on(shard.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096)?))?;
//! let summary = tracing.stop().expect("it was recording");
//! assert!(summary.error.is_none());
//! // Queued, Dispatched, Submitted, Completed, Reaped, Finished, Callback.
//! assert_eq!((summary.events, summary.dropped_events), (7, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod format;
mod names;
mod recorder;
mod ring;
mod tracer;

pub(crate) use recorder::Recorder;
pub use recorder::{TraceConfig, TraceStartError, TraceSummary, TraceWriter, Tracing, file_writer};
pub(crate) use tracer::Tracer;
