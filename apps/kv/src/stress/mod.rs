//! The command `stress`: a client that measures a server.
//!
//! # Why
//! A server's figures are only as good as its client: a fixed rate, latency from the intended start, percentiles of all
//! operations.
//!
//! # How it works
//! [`plan`] parses the words, [`run`] sends the load, [`tally`] counts, [`report`] formats. One line per second goes to
//! stderr, the result to stdout. At a signal the load ends, and the result is what was measured.
//!
//! # Limits
//! One machine, one server. Any server of the Redis protocol will do.
//!
//! # Example
//! `plimsoll-kv stress write n=100000 -pop seq=1..100000 -rate threads=100`

pub mod client;
pub mod plan;
pub mod population;
pub mod report;
pub mod run;
pub mod tally;

use std::time::Duration;

use crate::failure::{Failure, tell};
use crate::interrupt::interruption;
use plan::Plan;
use report::{COLUMNS, HdrLog, Second, json, line};
use run::Load;
use tally::{Kind, Part};

/// Time between two lines.
const SECOND: Duration = Duration::from_secs(1);
/// Percentage of the due operations above which those that have not begun are reported.
const OVERDUE_PERCENT: u64 = 1;
/// Time between two checks whether the load is over.
const LOOK: Duration = Duration::from_millis(10);

/// Runs the command with the words after `stress`.
///
/// # Errors
/// [`Failure::Input`] for bad words, [`Failure::Machine`] without a server, [`Failure::Finding`] if operations failed,
/// [`Failure::Interrupted`] after a signal.
pub fn stress(words: &[String]) -> Result<(), Failure> {
    let plan = Plan::of_words(words)?;
    let mut log = plan.hdr_file.as_deref().map(HdrLog::create).transpose()?;

    let kinds: Vec<Kind> = [(Kind::Read, plan.ratio.0), (Kind::Write, plan.ratio.1)]
        .into_iter()
        .filter_map(|(kind, part)| (part > 0.0).then_some(kind))
        .collect();
    let mut jobs: Vec<(Kind, Part, Vec<Second>)> = kinds.iter().map(|kind| (*kind, Part::new(), Vec::new())).collect();

    let started = Load::start(plan.clone());
    if let (Err(_), Some(path)) = (&started, &plan.hdr_file) {
        // An empty file would refuse the next attempt. What cannot be removed is refused by name then.
        let _ = std::fs::remove_file(path);
    }
    let mut load = started?;
    let interrupted = interruption("ending: what was measured follows")?;
    tell(COLUMNS);

    let mut at = Duration::ZERO;
    loop {
        if *interrupted.borrow() {
            load.stop();
        }
        let is_over = load.is_over();
        let now = load.started().elapsed();
        if now < at + SECOND && !is_over {
            std::thread::sleep(LOOK);
            continue;
        }

        let parts = load.tally().take();
        for (kind, sum, seconds) in &mut jobs {
            let part = &parts[*kind as usize];
            sum.add(part);
            let (length, operations) = (now - at, part.latencies.len());
            seconds.push(Second { length, operations, bytes: part.bytes, mean_ns: part.mean_ns() });
            tell(line(*kind, sum.latencies.len(), part, length, now));
            if let Some(log) = &mut log {
                log.add(at, length, *kind, part)?;
            }
        }

        at = now;
        if is_over {
            break;
        }
    }
    let is_interrupted = *interrupted.borrow();
    // Those that are due after a signal are no part of the load any more.
    let overdue = load.overdue().filter(|_| !is_interrupted);
    load.join();

    if let Some((due, overdue)) =
        overdue.filter(|(due, overdue)| overdue.saturating_mul(100) > due.saturating_mul(OVERDUE_PERCENT))
    {
        tell(format_args!(
            "{overdue} of the {due} operations that were due had not begun at the end: at this rate the server, or this client \
             with its threads, falls behind, and the latencies lack the time for which those have waited"
        ));
    }
    if plan.is_json {
        println!("{:#}", json(&plan, at, &jobs, overdue.map(|(_, overdue)| overdue), is_interrupted));
    } else {
        println!("{COLUMNS}");
        for (kind, sum, _) in &jobs {
            println!("{}", line(*kind, sum.latencies.len(), sum, at, at));
        }
    }

    if is_interrupted {
        return Err(Failure::Interrupted("interrupted: told is what was measured until then".to_owned()));
    }
    match jobs.iter().map(|(_, sum, _)| sum.errors).sum() {
        0 => Ok(()),
        errors => Err(Failure::Finding(format!("{errors} operations failed"))),
    }
}
