//! The reader of a replay: reads the trace a second time and deals its requests to the shards.
//!
//! **Why.** Shards must neither wait for a file nor hold a whole trace.
//!
//! **How.** A thread reads, puts requests in order and sends them in batches through bounded channels, so it is never
//! far ahead. When the first request arrives, every shard gets an empty batch, so that all can begin together. Before
//! the reader waits for a full channel, it sends its batches for the other shards.
//!
//! **Limits.** A shard that takes no batches for long stops the reader, and so in the end the others. When all shards
//! have ended, the reader still reads to the end: visitors of traces cannot stop it.
//!
//! **Example.** 1,000 requests of shards 0 and 5 on two shards: 500 each, in batches of 256 and 244.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use plimsoll_observe::trace::TraceError;
use plimsoll_observe::trace::arrivals::{Arrival, Arrivals};

use super::ReplayPlan;

const BATCH: usize = 256;
const BATCHES_HELD: usize = 64;

pub(super) type Batches = Receiver<Vec<Arrival>>;

/// The reader's thread. Returns the number of requests that came out of order.
type Feed = JoinHandle<Result<u64, TraceError>>;

/// Starts the reader. Returns it, and the channel of each shard.
pub(super) fn start(plan: &ReplayPlan) -> (Feed, HashMap<u16, Batches>) {
    let (mut lanes, mut receivers) = (Vec::new(), HashMap::new());
    for shard in 0..plan.topology.shards() {
        let (sender, receiver) = sync_channel(BATCHES_HELD);
        lanes.push(Lane { sender: Some(sender), batch: Vec::with_capacity(BATCH) });
        receivers.insert(shard, receiver);
    }
    let (trace, survey) = (plan.trace.clone(), Arc::clone(&plan.survey));
    let reader = std::thread::spawn(move || {
        let mut dealer = Dealer { lanes, has_begun: false };
        let mut arrivals = Arrivals::new();
        survey.read_again(&trace, &mut |item| arrivals.visit(&item, &mut |arrival| dealer.deal(arrival)))?;
        arrivals.finish(&mut |arrival| dealer.deal(arrival));
        dealer.flush();
        Ok(arrivals.unordered)
    });
    (reader, receivers)
}

struct Lane {
    /// `None` once the shard has ended.
    sender: Option<SyncSender<Vec<Arrival>>>,
    batch: Vec<Arrival>,
}

impl Lane {
    /// Sends a batch, and waits for room if the channel is full.
    fn send(&mut self, batch: Vec<Arrival>) {
        if self.sender.as_ref().is_some_and(|sender| sender.send(batch).is_err()) {
            self.sender = None;
        }
    }
}

struct Dealer {
    lanes: Vec<Lane>,
    has_begun: bool,
}

impl Dealer {
    fn deal(&mut self, arrival: Arrival) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.lanes.iter_mut().for_each(|lane| lane.send(Vec::new()));
        }

        let at = usize::from(arrival.shard) % self.lanes.len().max(1);
        let Some(lane) = self.lanes.get_mut(at) else { return };
        lane.batch.push(arrival);
        if lane.batch.len() < BATCH {
            return;
        }

        let batch = std::mem::replace(&mut lane.batch, Vec::with_capacity(BATCH));
        let Some(sender) = &lane.sender else { return };
        match sender.try_send(batch) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => lane.sender = None,
            Err(TrySendError::Full(batch)) => {
                // Serve the other shards before waiting for this one.
                self.flush_but(at);
                if let Some(lane) = self.lanes.get_mut(at) {
                    lane.send(batch);
                }
            }
        }
    }

    fn flush_but(&mut self, but: usize) {
        for (_, lane) in self.lanes.iter_mut().enumerate().filter(|(at, lane)| *at != but && !lane.batch.is_empty()) {
            let batch = std::mem::replace(&mut lane.batch, Vec::with_capacity(BATCH));
            lane.send(batch);
        }
    }

    fn flush(&mut self) {
        self.flush_but(usize::MAX);
    }
}
