//! How a story is told: a sentence, a table, a picture.
//!
//! # Why
//! The sentence says what came out, also where it is not what one hoped for; table and picture say how.
//!
//! # How it works
//! Pure functions of the records. The picture has three charts for each way: bytes by class, latency of clients, shares.
//!
//! # Limits
//! Of several rounds the one with the median is shown: no statement about chance.
//!
//! # Example
//! `burst: p99 of reads 2.1 ms alone; in "burst" 84 ms drained, 4.0 ms with static shares, 3.8 ms with controllers.`

use plimsoll_show::plot::{Axis, Chart, Layer, Unit, svg};
use serde_json::{Value, json};

use super::phases::Story;
use super::record::{ClassFigures, LoadFigures, PhaseRecord, Record, Sample};

/// Latencies of whom the sentence is about.
pub const VICTIM: &str = "reads";

/// Returns the sentence.
#[must_use]
pub fn sentence(story: Story, records: &[Record]) -> String {
    let p99_ms = |phase: &PhaseRecord| quantile_ms(phase, VICTIM, 0.99);
    let Some(base) = records.first() else { return String::new() };
    if let Some(last) = base.phases.last().filter(|phase| phase.hits.is_some()) {
        let told = records.iter().filter_map(|record| {
            let (first, last) = (record.phases.first()?, record.phases.last()?);
            let percent = |phase: &PhaseRecord| phase.hits.unwrap_or(0.0) * 100.0;
            Some(format!(
                "{:.0} % of the reads hit at first and {:.0} % at last with {}, p99 {:.1} and {:.1} ms",
                percent(first),
                percent(last),
                record.way.name(),
                p99_ms(first),
                p99_ms(last),
            ))
        });
        let told: Vec<String> = told.collect();
        return format!("{}, \"{}\" to \"{}\": {}.", story.name(), base.phases[0].name, last.name, told.join("; "));
    }
    let calm: Vec<f64> = records.iter().filter_map(|record| record.phases.first()).map(p99_ms).collect();
    let calm_ms = calm.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sentence = format!("{}: p99 of {VICTIM} {calm_ms:.1} ms alone", story.name());
    for (number, phase) in base.phases.iter().enumerate().skip(1) {
        sentence.push_str(&format!("; in \"{}\"", phase.name));
        for (place, record) in records.iter().enumerate() {
            let Some(phase) = record.phases.get(number) else { continue };
            let base_bytes = base.phases[number].bytes_per_s().max(1.0);
            let part = 100.0 * phase.bytes_per_s() / base_bytes;
            let comma = if place == 0 { "" } else { "," };
            sentence.push_str(&format!("{comma} {:.1} ms {}", p99_ms(phase), record.way.name()));
            if place > 0 {
                sentence.push_str(&format!(" ({part:.0} % of the drained bytes)"));
            }
        }
    }
    sentence.push('.');
    sentence
}

fn quantile_ms(phase: &PhaseRecord, load: &str, quantile: f64) -> f64 {
    phase.load(load).map_or(0.0, |load| load.part.latencies.value_at_quantile(quantile) as f64 / 1e6)
}

fn percent(hits: f64) -> String {
    format!("{:.1} % hits", hits * 100.0)
}

/// Returns the table: for each way and phase its clients, then its classes.
#[must_use]
pub fn table(records: &[Record]) -> String {
    let mut table = String::new();
    for record in records {
        for phase in &record.phases {
            table.push_str(&format!(
                "\n{}, {} ({:.0} s, {:.1} CPUs busy, {:.1} by others, {} stalls{})\n",
                record.way.name(),
                phase.name,
                phase.length.as_secs_f64(),
                phase.cpus,
                phase.other_cpus,
                phase.stalls,
                phase
                    .note
                    .iter()
                    .cloned()
                    .chain(phase.hits.map(percent))
                    .map(|note| format!(", {note}"))
                    .collect::<String>(),
            ));
            table.push_str("  client                    op/s            p50 ms     p99 ms     max ms   errors\n");
            for load in &phase.loads {
                let ms = |quantile| load.part.latencies.value_at_quantile(quantile) as f64 / 1e6;
                table.push_str(&format!(
                    "  {:<14} {:>15.0} {:>17.2} {:>10.2} {:>10.2} {:>8}\n",
                    load.name,
                    load.per_s,
                    ms(0.5),
                    ms(0.99),
                    ms(1.0),
                    load.part.errors
                ));
            }
            table.push_str("  class          shares     MB/s        p50 ms     p99 ms   queue p99   waits for\n");
            for class in phase.classes.iter().filter(|class| class.bytes_per_s > 0.0 || class.p99_ns > 0) {
                let ms = |ns: u64| ns as f64 / 1e6;
                let waited = class.waited.as_ref();
                table.push_str(&format!(
                    "  {:<14} {:>6} {:>8.1} {:>13.2} {:>10.2} {:>11.2}   {}\n",
                    class.name,
                    class.shares,
                    class.bytes_per_s / 1e6,
                    ms(class.p50_ns),
                    ms(class.p99_ns),
                    ms(class.queue_p99_ns),
                    waited.map_or(String::new(), |(reason, part)| format!("{reason} {:.0} %", part * 100.0)),
                ));
            }
        }
    }
    table
}

/// Returns all of it as JSON, of the form that docs/formats.md describes.
#[must_use]
pub fn json(story: Story, records: &[Record]) -> Value {
    let class = |class: &ClassFigures| {
        json!({
            "class": class.name, "shares": class.shares, "bytes_per_s": class.bytes_per_s, "p50_ns": class.p50_ns,
            "p99_ns": class.p99_ns, "queue_p99_ns": class.queue_p99_ns, "waited": class.waited,
        })
    };
    let load = |load: &LoadFigures| {
        let quantile_ns = |quantile| load.part.latencies.value_at_quantile(quantile);
        json!({
            "client": load.name, "per_s": load.per_s, "p50_ns": quantile_ns(0.5), "p99_ns": quantile_ns(0.99),
            "max_ns": quantile_ns(1.0), "errors": load.part.errors, "missing": load.part.missing,
        })
    };
    let phase = |phase: &PhaseRecord| {
        json!({
            "phase": phase.name, "from_s": phase.from_s, "length_s": phase.length.as_secs_f64(), "cpus": phase.cpus,
            "other_cpus": phase.other_cpus, "stalls": phase.stalls, "hits": phase.hits, "note": phase.note,
            "clients": phase.loads.iter().map(load).collect::<Vec<_>>(),
            "classes": phase.classes.iter().map(class).collect::<Vec<_>>(),
        })
    };
    let sample = |sample: &Sample| {
        json!({
            "at_s": sample.at_s, "hits": sample.hits,
            "clients": sample.loads.iter().map(load).collect::<Vec<_>>(),
            "classes": sample.classes.iter().map(class).collect::<Vec<_>>(),
        })
    };
    let way = |record: &Record| {
        json!({
            "way": record.way.name(), "phases": record.phases.iter().map(phase).collect::<Vec<_>>(),
            "samples": record.samples.iter().map(sample).collect::<Vec<_>>(),
        })
    };
    json!({
        "schema": 1, "plimsoll_kv": env!("CARGO_PKG_VERSION"), "story": story.name(),
        "sentence": sentence(story, records), "ways": records.iter().map(way).collect::<Vec<_>>(),
    })
}

/// Returns the picture.
#[must_use]
pub fn picture(story: Story, records: &[Record]) -> String {
    let charts: Vec<Chart> = records.iter().flat_map(|record| charts(record, records)).collect();
    svg(&format!("Story `{}`", story.name()), &charts)
}

/// Returns the charts of one way. A class that moved anything in any of `all` has a line in each, and so one colour.
fn charts(record: &Record, all: &[Record]) -> [Chart; 3] {
    let moved = |name: &str| {
        let mut classes = all.iter().flat_map(|record| &record.samples).flat_map(|sample| &sample.classes);
        classes.any(|class| class.name == name && class.bytes_per_s > 0.0)
    };
    let classes = |value: fn(&ClassFigures) -> f64| {
        lines(&record.samples, |sample| {
            let seen = sample.classes.iter().filter(|class| moved(&class.name));
            seen.map(|class| (class.name.clone(), value(class))).collect()
        })
    };
    let latencies = lines(&record.samples, |sample| {
        let p99 = |load: &LoadFigures| load.part.latencies.value_at_quantile(0.99) as f64;
        sample.loads.iter().map(|load| (load.name.to_owned(), p99(load))).collect()
    });
    let latencies = latencies.into_iter().filter(|(_, points)| points.iter().any(|point| point.1 > 0.0)).collect();
    let chart = |what: &str, y: Axis, lines: Vec<(String, Vec<(f64, f64)>)>| {
        let line = |(name, points): (String, Vec<(f64, f64)>)| Layer::Line { name, points, dashed: false };
        let mut layers: Vec<Layer> = lines.into_iter().map(line).collect();
        layers.extend(
            record.phases.iter().map(|phase| Layer::VerticalMark { x: phase.from_s, label: phase.name.to_owned() }),
        );
        let x = Axis::linear("seconds", Unit::None);
        Chart { title: format!("{}: {what}", record.way.name()), x, y, layers, note: None }
    };
    [
        chart(
            "bytes by class",
            Axis::linear("read and written", Unit::BytesPerSecond),
            classes(|class| class.bytes_per_s),
        ),
        chart("latency of clients, 99 of 100", Axis::log10("from the intended start", Unit::Nanoseconds), latencies),
        if record.samples.iter().any(|sample| sample.hits.is_some()) {
            let hits =
                |sample: &Sample| sample.hits.map(|hits| ("hits".to_owned(), hits * 100.0)).into_iter().collect();
            chart("reads that hit", Axis::linear("percent", Unit::None), lines(&record.samples, hits))
        } else {
            chart("shares", Axis::linear("shares", Unit::None), classes(|class| f64::from(class.shares)))
        },
    ]
}

/// Returns a line for each name in the samples.
fn lines(samples: &[Sample], values: impl Fn(&Sample) -> Vec<(String, f64)>) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for sample in samples {
        for (name, value) in values(sample) {
            match lines.iter_mut().find(|line| line.0 == name) {
                Some(line) => line.1.push((sample.at_s, value)),
                None => lines.push((name, vec![(sample.at_s, value)])),
            }
        }
    }
    lines
}
