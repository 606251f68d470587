//! Records the stations of every request of a program.
//!
//! # Why
//! A latency shows that a request was slow; its stations show where. A program must be able to record them at any time,
//! in full, without a change of its behaviour.
//!
//! # How it works
//! [`Tracing`], from [`Topology::trace`](crate::Topology::trace), starts and stops a trace at any time, from any
//! thread. Each shard writes events ([`plimsoll_core::trace`]) into its own ring; a thread copies them from the rings
//! to a file ([`mod@format`]). A shard never waits for the thread: if its ring is full, the event is dropped and
//! counted.
//! ```text
//!   shard 0  --ring-->  \
//!   shard 1  --ring-->   recorder, every 10 ms  -->  names, chunks of events
//!   disk's decisions --> /
//! ```
//! A shard checks once a turn whether a trace has begun or ended. Without a trace, a station costs one comparison.
//!
//! # What the times mean
//! Each time is read at the station itself, except:
//!
//! * *Completed* is the time at which the shard began to reap, for all completions that it found then. The piece may
//!   have completed earlier; its `detail` is the longest time by which. That is the time since the shard's previous
//!   reap, or, if it has slept meanwhile, since it woke up: a completion ends the sleep, so the completions found were
//!   not there when the sleep began. A wait of 10 us or more counts as a sleep; passing requests to the system takes
//!   less. In virtual time every wait counts.
//! * *Reaped* and the *Finished* that follows from it have the same time.
//! * *Callback* is when [`Reactor::reap`](crate::Reactor::reap) returned the ended requests: one time for all of them.
//!   A future is woken then, and polled in the same turn.
//! * *Submitted* is when the backend had taken the piece, or, if it finished the piece at once, when the piece was
//!   passed to it.
//! * *Control* has the time of the decision. It is recorded among the events of shard 0.
//!
//! # Limits
//! A trace holds only events of the time in which it runs: of an earlier request, only the later stations. A request
//! for another shard's queue is recorded there, from its arrival to Finished, under a number of that shard; it has no
//! Callback. The number of a closed file is reused: events that are in the rings then may appear under the name of the
//! next file.
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
