//! Simulated devices, worlds and scenarios. One test program, a module for each kind of story.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;
mod device_latency;
mod device_rates;
mod device_stories;
mod scenarios;
#[path = "../../../seeds.rs"]
mod seeds;
mod surface_fit;
mod surface_simulate;
mod surface_table;
mod world_alloc;
mod world_basics;
mod world_counters;
mod world_loads;
mod world_random;
mod world_shards;
