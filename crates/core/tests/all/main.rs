//! The scheduler as its users meet it, in virtual time. One test program, a module for each kind of story.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod absences;
mod ageing;
mod alloc;
mod alone;
mod clock_jumps;
mod common;
mod cost;
mod cross_shard;
mod cut;
mod depth_mode;
mod differential;
mod duplex_loop;
mod extremes;
mod hist;
mod latency_targets;
mod limits;
mod limits_apart;
mod next_wakeup;
mod properties;
mod reference;
mod removed;
mod reservations;
#[path = "../../../seeds.rs"]
mod seeds;
mod shares;
mod storm;
mod tokens;
mod wait_reasons;
mod wakeup_credit;
mod window;
