//! Reports a story as a sentence, a table and a picture.
//!
//! # Why
//! The sentence states the result, good or bad; table and picture show how it came about.
//!
//! # How it works
//! Pure functions of the rounds. Table and sentence have medians ([`super::rounds`]). The picture has at most four
//! charts for each way, of its reported round: bytes by class, latency of clients, shares, and how full memory and
//! level 0 were.
//!
//! # Limits
//! See [`super::rounds`]: a range of rounds is no statement about chance.
//!
//! # Example
//! `burst: p99 of reads 2.1 ms alone; in "burst" 84 ms drained, 4.0 ms with static shares, 3.8 ms with controllers.`

use plimsoll_show::plot::{Axis, Chart, Layer, Unit, svg};
use serde_json::{Value, json};

use super::phases::Story;
use super::record::{ClassFigures, LoadFigures, PhaseRecord, Record, Sample, WINDOW_S};
use super::rounds::Rounds;
use super::spread::Spread;
use crate::controllers::Backlog;

/// The load whose latencies the sentence states.
pub const VICTIM: &str = "reads";
/// Least fullness of memory for which the chart of fullness is drawn.
const BACKLOG_SHOWN: f64 = 0.25;

/// Returns the sentence. Figures are medians of the rounds.
#[must_use]
pub fn sentence(story: Story, ways: &[Rounds]) -> String {
    let p99_ms = |way: &Rounds, number| way.spread(number, |phase| phase.load(VICTIM).map(|load| load.ms(0.99))).median;
    let Some((base, told)) = ways.first().and_then(|way| Some((way, way.told(VICTIM)?))) else { return String::new() };

    let hits = |way: &Rounds, number| way.spread(number, |phase| phase.hits).median * 100.0;
    if let Some(last) = told.phases.last().filter(|phase| phase.hits.is_some()) {
        let end = told.phases.len() - 1;
        let of_way = |way: &Rounds| {
            format!(
                "{:.0} % of the reads hit at first and {:.0} % at last with {}, p99 {:.1} and {:.1} ms",
                hits(way, 0),
                hits(way, end),
                way.way.name(),
                p99_ms(way, 0),
                p99_ms(way, end),
            )
        };
        let told_all: Vec<String> = ways.iter().map(of_way).collect();
        return format!("{}, \"{}\" to \"{}\": {}.", story.name(), told.phases[0].name, last.name, told_all.join("; "));
    }

    let calm_ms = ways.iter().map(|way| p99_ms(way, 0)).fold(f64::INFINITY, f64::min);
    let mut sentence = format!("{}: p99 of {VICTIM} {calm_ms:.1} ms alone", story.name());
    for (number, phase) in told.phases.iter().enumerate().skip(1) {
        sentence.push_str(&format!("; in \"{}\"", phase.name));

        let bytes_per_s = |way: &Rounds| way.spread(number, |phase| Some(phase.bytes_per_s())).median;
        for (place, way) in ways.iter().enumerate() {
            if way.records.iter().all(|record| record.phases.len() <= number) {
                continue;
            }

            let part = 100.0 * bytes_per_s(way) / bytes_per_s(base).max(1.0);
            let comma = if place == 0 { "" } else { "," };
            sentence.push_str(&format!("{comma} {:.1} ms {}", p99_ms(way, number), way.way.name()));
            if place > 0 {
                sentence.push_str(&format!(" ({part:.0} % of the drained bytes)"));
            }
        }
    }

    sentence.push('.');
    sentence
}

fn percent(hits: f64) -> String {
    format!("{:.1} % hits", hits * 100.0)
}

/// Returns the table: for each way and phase its clients, then its classes. For several rounds, each figure is the
/// median, with the least and the greatest below; shares, waits and notes are those of the reported round.
#[must_use]
pub fn table(ways: &[Rounds]) -> String {
    let mut table = String::new();
    for way in ways {
        let Some(told) = way.told(VICTIM) else { continue };
        for (number, phase) in told.phases.iter().enumerate() {
            table.push_str(&heading(way, number, phase));
            table.push_str("  client                    op/s            p50 ms     p99 ms     max ms   errors\n");

            for load in &phase.loads {
                let figure =
                    |value: fn(&LoadFigures) -> f64| way.spread(number, |phase| phase.load(load.name).map(value));
                let figures = [
                    figure(|load| load.per_s),
                    figure(|load| load.ms(0.5)),
                    figure(|load| load.ms(0.99)),
                    figure(|load| load.ms(1.0)),
                    figure(|load| load.part.errors as f64),
                ];

                rows(&mut table, way, load.name, &figures, |name, [per_s, p50_ms, p99_ms, max_ms, errors]| {
                    format!("  {name:<14} {per_s:>15.0} {p50_ms:>17.2} {p99_ms:>10.2} {max_ms:>10.2} {errors:>8.0}")
                });
            }

            table.push_str("  class          shares     MB/s        p50 ms     p99 ms   queue p99   waits for\n");
            for class in phase.classes.iter().filter(|class| class.bytes_per_s > 0.0 || class.p99_ns > 0) {
                let figure = |value: fn(&ClassFigures) -> f64| {
                    way.spread(number, |phase| phase.classes.iter().find(|other| other.name == class.name).map(value))
                };
                let figures = [
                    figure(|class| class.bytes_per_s / 1e6),
                    figure(|class| class.p50_ns as f64 / 1e6),
                    figure(|class| class.p99_ns as f64 / 1e6),
                    figure(|class| class.queue_p99_ns as f64 / 1e6),
                ];

                let (shares, waited) = (class.shares.to_string(), class.waited.as_ref());
                let waited = waited.map_or(String::new(), |(reason, part)| format!("{reason} {:.0} %", part * 100.0));

                rows(&mut table, way, &class.name, &figures, |name, [mb_per_s, p50_ms, p99_ms, queue_p99_ms]| {
                    // The rows of a range have neither shares nor reasons.
                    let (shares, waited) = if name == class.name { (&*shares, &*waited) } else { ("", "") };
                    let row = format!(
                        "  {name:<14} {shares:>6} {mb_per_s:>8.1} {p50_ms:>13.2} {p99_ms:>10.2} {queue_p99_ms:>11.2}   {waited}",
                    );
                    row.trim_end().to_owned()
                });
            }
        }
    }
    table
}

/// Returns the line above the table of a phase.
fn heading(way: &Rounds, number: usize, phase: &PhaseRecord) -> String {
    let stalls = way.spread(number, |phase| Some(phase.stalls as f64));
    let hits = way.spread(number, |phase| phase.hits);
    let unsteadiness = Spread::of(way.records.iter().filter_map(|record| record.unsteadiness(number, VICTIM)));

    let range =
        |from: String, to: String| if way.records.len() > 1 { format!(" ({from} to {to})") } else { String::new() };

    let mut more = Vec::new();
    if unsteadiness.median > 0.0 {
        let Spread { median, min, max } = unsteadiness;
        let range = range(format!("{min:.2}"), format!("{max:.2}"));
        more.push(format!("p99 of {VICTIM} in {WINDOW_S:.0} s at most {median:.2}{range} times its median"));
    }

    more.extend(phase.note.clone());
    if phase.hits.is_some() {
        more.push(percent(hits.median) + &range(percent(hits.min), percent(hits.max)));
    }
    if way.records.len() > 1 {
        more.push(format!("medians of {} rounds, least and greatest below", way.records.len()));
    }

    format!(
        "\n{}, {} ({:.0} s, {:.1} CPUs busy, {:.1} by others, {} stalls{}{})\n",
        way.way.name(),
        phase.name,
        way.spread(number, |phase| Some(phase.length.as_secs_f64())).median,
        way.spread(number, |phase| Some(phase.cpus)).median,
        way.spread(number, |phase| Some(phase.other_cpus)).median,
        stalls.median,
        range(stalls.min.to_string(), stalls.max.to_string()),
        more.iter().map(|note| format!(", {note}")).collect::<String>(),
    )
}

/// Adds the row of medians. If there are several rounds, adds the rows of least and greatest below it.
fn rows<const N: usize>(
    table: &mut String,
    way: &Rounds,
    name: &str,
    figures: &[Spread; N],
    row: impl Fn(&str, [f64; N]) -> String,
) {
    let mut add = |name: &str, figures| {
        table.push_str(&row(name, figures));
        table.push('\n');
    };
    add(name, figures.map(|figure| figure.median));
    if way.records.len() > 1 {
        add("  least", figures.map(|figure| figure.min));
        add("  greatest", figures.map(|figure| figure.max));
    }
}

/// Returns the story as JSON, in the form that docs/formats.md describes.
#[must_use]
pub fn json(story: Story, ways: &[Rounds], is_interrupted: bool) -> Value {
    let class = |class: &ClassFigures| {
        json!({
            "class": class.name, "shares": class.shares, "bytes_per_s": class.bytes_per_s, "p50_ns": class.p50_ns,
            "p99_ns": class.p99_ns, "queue_p99_ns": class.queue_p99_ns, "waited": class.waited,
        })
    };
    let load = |load: &LoadFigures| {
        let quantile_ns = |quantile| load.part.latencies.value_at_quantile(quantile);
        json!({
            "client": load.name, "per_s": load.per_s, "overdue": load.overdue, "p50_ns": quantile_ns(0.5), "p99_ns": quantile_ns(0.99),
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
            "at_s": sample.at_s, "hits": sample.hits, "stalls": sample.stalls,
            "backlog": {
                "memory": sample.backlog.memory, "level_0": sample.backlog.level_0, "compaction": sample.backlog.compaction,
            },
            "clients": sample.loads.iter().map(load).collect::<Vec<_>>(),
            "classes": sample.classes.iter().map(class).collect::<Vec<_>>(),
        })
    };

    let round = |record: &Record| {
        let mut phases: Vec<Value> = record.phases.iter().map(phase).collect();
        for (number, phase) in phases.iter_mut().enumerate() {
            phase["unsteadiness"] = json!(record.unsteadiness(number, VICTIM));
        }
        json!({ "phases": phases, "samples": record.samples.iter().map(sample).collect::<Vec<_>>() })
    };

    let way = |way: &Rounds| {
        let (told, rounds) = (way.told_index(VICTIM), way.records.iter().map(round).collect::<Vec<_>>());
        json!({ "way": way.way.name(), "told": told, "rounds": rounds })
    };

    json!({
        "schema": 2, "plimsoll_kv": env!("CARGO_PKG_VERSION"), "story": story.name(), "interrupted": is_interrupted,
        "sentence": sentence(story, ways), "ways": ways.iter().map(way).collect::<Vec<_>>(),
    })
}

/// Returns the picture of each way's reported round.
#[must_use]
pub fn picture(story: Story, ways: &[Rounds]) -> String {
    let told: Vec<&Record> = ways.iter().filter_map(|way| way.told(VICTIM)).collect();
    let charts: Vec<Chart> = told.iter().flat_map(|record| charts(record, &told)).collect();
    svg(&format!("Story `{}`", story.name()), &charts)
}

/// Returns the charts of one way. A class that moved bytes in any of `all` has a line in each, so it always has the
/// same colour.
fn charts(record: &Record, all: &[&Record]) -> Vec<Chart> {
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

    let mut charts = vec![
        chart(
            "bytes by class",
            Axis::linear("read and written", Unit::BytesPerSecond),
            classes(|class| class.bytes_per_s),
        ),
        chart("client latency, p99", Axis::log10("from the intended start", Unit::Nanoseconds), latencies),
    ];

    if record.samples.iter().any(|sample| sample.hits.is_some()) {
        let hits = |sample: &Sample| sample.hits.map(|hits| ("hits".to_owned(), hits * 100.0)).into_iter().collect();
        charts.push(chart("reads that hit", Axis::linear("percent", Unit::None), lines(&record.samples, hits)));
        return charts;
    }

    charts.push(chart("shares", Axis::linear("shares", Unit::None), classes(|class| f64::from(class.shares))));
    if all.iter().flat_map(|record| &record.samples).any(|sample| sample.backlog.memory >= BACKLOG_SHOWN) {
        let full = |sample: &Sample| {
            let Backlog { memory, level_0, .. } = sample.backlog;
            vec![("memory for writes".to_owned(), memory * 100.0), ("level 0".to_owned(), level_0 * 100.0)]
        };
        charts.push(chart("how full", Axis::linear("percent", Unit::None), lines(&record.samples, full)));
    }
    charts
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
