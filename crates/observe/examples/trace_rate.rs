//! How fast a trace is read and analysed: `trace_rate make FILE EVENTS` writes one, `trace_rate read FILE` does no more
//! than read it, `trace_rate stages FILE` makes the analysis of `plimsoll trace stages`.
//!
//! The trace has four shards with chunks of 4,000 events, eight classes, 32 requests under way on each shard, and the
//! seven events of a request of one piece.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::time::Instant;

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::core::{Op, WaitReason};
use plimsoll::trace::format::{Clock, Writer};
use plimsoll_observe::trace::read;
use plimsoll_observe::trace::stages::{By, Stages};

const KINDS: [EventKind; 7] = [
    EventKind::Queued,
    EventKind::Dispatched,
    EventKind::Submitted,
    EventKind::Completed,
    EventKind::Reaped,
    EventKind::Finished,
    EventKind::Callback,
];

fn event(number: u64) -> Event {
    // Request r is at station s in step r + 8 s, so that many requests are under way.
    let (step, station) = (number / KINDS.len() as u64, number % KINDS.len() as u64);
    let request = (step + 1).saturating_sub(8 * station);
    Event {
        time_ns: 1_000_000 + number * 300,
        request,
        offset_bytes: 4096 * (request % 1_000_003),
        len_bytes: 4096 << (request % 3),
        detail: 0,
        class: (request % 8) as u16,
        disk: 0,
        piece: 0,
        kind: KINDS.get(station as usize).copied().unwrap_or(EventKind::Queued),
        op: if request.is_multiple_of(4) { Op::Write } else { Op::Read },
        reason: Some(WaitReason::Tokens),
    }
}

fn make(path: &Path, events: u64) -> std::io::Result<()> {
    let mut writer = Writer::new(BufWriter::new(File::create_new(path)?), Clock::Virtual, 0)?;
    let mut first = 0;
    while 4 * first < events {
        let chunk: Vec<Event> = (first..first + 4_000).map(event).filter(|event| event.request > 0).collect();
        (0..4).try_for_each(|shard| writer.events(shard, 0, &chunk))?;
        first += 4_000;
    }
    writer.flush()
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let begin = Instant::now();
    let events = match words[..] {
        ["make", path, events] => return Ok(make(path.as_ref(), events.parse()?)?),
        ["read", path] => read(path.as_ref(), &mut |_| {})?.events,
        ["stages", path] => {
            let mut stages = Stages::new(&[By::Class, By::Size]);
            let trace = read(path.as_ref(), &mut |item| stages.visit(&item))?;
            let report = stages.finish(&trace);
            println!("{} groups, {} pieces; lost: {:?}", report.groups.len(), report.spans, report.lost);
            report.events
        }
        _ => return Err("expected: make FILE EVENTS, read FILE, or stages FILE".into()),
    };
    println!("{events} events, {:.2} million a second", events as f64 / 1e6 / begin.elapsed().as_secs_f64());
    Ok(())
}
