//! Pictures of answers.
//!
//! **Why.** A picture shows at once which host is worst, and by how much.
//!
//! **How.** An answer with the columns of a question is drawn as that question's chart, with a bar or line for each
//! row, in order. So an answer keeps its picture if the user adds `WHERE` or `LIMIT`.
//!
//! **Limits.** At most [`ROWS_MAX`] rows. Other answers have no picture.
//!
//! **Example.** `plimsoll-query latency --format svg -o latency.svg`

use std::collections::BTreeMap;

use datafusion::arrow::array::{Array, AsArray as _, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Float64Type, TimeUnit};
use plimsoll_show::plot::{Axis, Bar, Chart, Layer, Unit, svg};

use crate::answer::{Answer, arrow, cells};
use crate::failure::Failure;

/// Most rows of a picture: more do not fit on a screen.
const ROWS_MAX: usize = 30;

/// Most charts of a picture with one chart per host.
const CHARTS_MAX: usize = 6;

/// An answer's rows, as text and as a batch.
struct Rows {
    batch: RecordBatch,
    texts: Vec<Vec<String>>,
}

/// Returns the picture of an answer (SVG).
pub(crate) async fn draw(answer: Answer) -> Result<String, Failure> {
    // One row more, to know whether there are more.
    let batches = answer.first(ROWS_MAX + 1).await?;
    let Some(first) = batches.first() else {
        return Err(Failure::Input("the answer has no rows: there is nothing to draw".to_owned()));
    };

    let batch = concat_batches(&first.schema(), &batches).map_err(arrow)?;
    let has_more = batch.num_rows() > ROWS_MAX;
    let batch = batch.slice(0, batch.num_rows().min(ROWS_MAX));
    let rows = Rows { texts: cells(&batch)?, batch };

    let (title, mut charts) = if rows.has(&["host", "class", "p50_ms", "p99_ms", "p99_9_ms"]) {
        let layers =
            rows.bars(&["host", "class"], &[("p50", "p50_ms"), ("p99", "p99_ms"), ("p99.9", "p99_9_ms")], 1e6)?;
        ("Which class of which host is slow?", vec![bars("time of a request", Unit::Nanoseconds, layers)])
    } else if rows.has(&["host", "used_pct", "saturated_pct", "degraded_pct"]) {
        let columns =
            [("capacity used", "used_pct"), ("time saturated", "saturated_pct"), ("time degraded", "degraded_pct")];
        let layers = rows.bars(&["host"], &columns, 1e-2)?;
        ("Which hosts waste capacity?", vec![bars("part", Unit::Fraction, layers)])
    } else if rows.has(&["class", "change_pct", "low_pct", "high_pct"]) {
        let layers = rows.changes()?;
        ("What did the change do?", vec![bars("change of the p99, with its 95 % interval", Unit::Fraction, layers)])
    } else if rows.has(&["host", "class", "waited_for", "part_of_latency_pct"]) {
        let layers = rows.bars_by("waited_for", &["host", "class"], "part_of_latency_pct", 1e-2)?;
        ("Who is throttled by what?", vec![bars("part of the latency", Unit::Fraction, layers)])
    } else if rows.has(&["host", "at_utc", "class", "op", "queue_ms", "device_ms", "unseen_ms"]) {
        let columns = [("in the queue", "queue_ms"), ("in the device", "device_ms"), ("done, unseen", "unseen_ms")];
        let layers = rows.bars(&["host", "at_utc", "class", "op"], &columns, 1e6)?;
        ("Which requests were the slowest?", vec![bars("time", Unit::Nanoseconds, layers)])
    } else if rows.has(&["host", "disk", "last_utc", "hot_s", "part_pct"]) {
        ("Which disk is hot in turn?", rows.turns()?)
    } else {
        let message = "a picture needs the columns of a question of sql/, as of `SELECT * FROM latency WHERE ...`";
        return Err(Failure::Input(message.to_owned()));
    };

    if let Some(last) = charts.last_mut()
        && has_more
    {
        last.note = Some(format!("The first {ROWS_MAX} rows of the answer."));
    }
    Ok(svg(title, &charts))
}

fn bars(label: &str, unit: Unit, layers: Vec<Layer>) -> Chart {
    Chart { x: Axis::linear(label, unit), layers, ..Chart::default() }
}

impl Rows {
    fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|name| self.batch.schema_ref().index_of(name).is_ok())
    }

    fn text(&self, row: usize, column: &str) -> &str {
        self.batch.schema_ref().index_of(column).map_or("", |index| &self.texts[row][index])
    }

    fn name(&self, row: usize, columns: &[&str]) -> String {
        columns.iter().map(|column| self.text(row, column)).collect::<Vec<_>>().join(" ")
    }

    /// Returns a column as numbers. Times become seconds since 1970.
    fn numbers(&self, column: &str) -> Result<Vec<Option<f64>>, Failure> {
        let index = self.batch.schema_ref().index_of(column).map_err(arrow)?;
        let mut values = std::sync::Arc::clone(self.batch.column(index));

        let mut scale = 1.0;
        if let DataType::Timestamp(_, zone) = values.data_type() {
            let micros = cast(&values, &DataType::Timestamp(TimeUnit::Microsecond, zone.clone())).map_err(arrow)?;
            (values, scale) = (cast(&micros, &DataType::Int64).map_err(arrow)?, 1e-6);
        }

        let floats = cast(&values, &DataType::Float64).map_err(arrow)?;
        Ok(floats.as_primitive::<Float64Type>().iter().map(|value| value.map(|it| it * scale)).collect())
    }

    /// Returns a layer for each of `columns` (name in the legend, column), with a bar for each row.
    fn bars(&self, row: &[&str], columns: &[(&str, &str)], scale: f64) -> Result<Vec<Layer>, Failure> {
        let layer = |(name, column): &(&str, &str)| {
            let values = self.numbers(column)?.into_iter().enumerate();
            let bars = values.filter_map(|(number, value)| Some(self.bar(number, row, value? * scale, None)));
            Ok(Layer::Bars { name: (*name).to_owned(), from: 0.0, bars: bars.collect() })
        };
        columns.iter().map(layer).collect()
    }

    /// Returns a layer for each value of the column `by`.
    fn bars_by(&self, by: &str, row: &[&str], column: &str, scale: f64) -> Result<Vec<Layer>, Failure> {
        let mut layers = BTreeMap::<&str, Vec<Bar>>::new();
        for (number, value) in self.numbers(column)?.into_iter().enumerate() {
            let Some(value) = value else { continue };
            layers.entry(self.text(number, by)).or_default().push(self.bar(number, row, value * scale, None));
        }
        Ok(layers.into_iter().map(|(name, bars)| Layer::Bars { name: name.to_owned(), from: 0.0, bars }).collect())
    }

    fn bar(&self, row: usize, name: &[&str], value: f64, range: Option<(f64, f64)>) -> Bar {
        Bar { row: self.name(row, name), value, range }
    }

    /// Returns the change of each class with its interval.
    fn changes(&self) -> Result<Vec<Layer>, Failure> {
        let (changes, lows, highs) = (self.numbers("change_pct")?, self.numbers("low_pct")?, self.numbers("high_pct")?);
        let bars = changes.iter().zip(lows.iter().zip(&highs)).enumerate().filter_map(|(number, (change, ends))| {
            let range = ends.0.zip(*ends.1).map(|(low, high)| (low / 100.0, high / 100.0));
            Some(self.bar(number, &["class"], (*change)? / 100.0, range))
        });
        Ok(vec![Layer::Bars { name: String::new(), from: 0.0, bars: bars.collect() }])
    }

    /// Returns a chart for each host: the hot disk over time, and its part of the host's bytes.
    fn turns(&self) -> Result<Vec<Chart>, Failure> {
        let (ends, lasts, parts) = (self.numbers("last_utc")?, self.numbers("hot_s")?, self.numbers("part_pct")?);

        let turns = ends.iter().zip(lasts.iter().zip(&parts)).enumerate().filter_map(|(row, (end, (last, part)))| {
            let (end, begin) = ((*end)?, (*end)? - (*last)?);
            Some((self.text(row, "host"), self.text(row, "disk"), begin, end, (*part)? / 100.0))
        });
        let turns: Vec<_> = turns.collect();

        let zero = turns.iter().map(|turn| turn.2).fold(f64::INFINITY, f64::min);
        let mut hosts: Vec<&str> = Vec::new();
        for (host, ..) in &turns {
            if !hosts.contains(host) {
                hosts.push(host);
            }
        }
        let axis = Axis::linear("time since the first turn", Unit::Nanoseconds);

        let charts = hosts.iter().take(CHARTS_MAX).map(|host| {
            let line = |&(_, disk, begin, end, part): &(&str, &str, f64, f64, f64)| Layer::Line {
                name: disk.to_owned(),
                points: vec![((begin - zero) * 1e9, part), ((end - zero) * 1e9, part)],
                dashed: false,
            };

            let mut of_host: Vec<_> = turns.iter().filter(|turn| turn.0 == *host).collect();
            // Sorted by disk, for the order of the legend.
            of_host.sort_by(|a, b| a.1.cmp(b.1));

            let layers = of_host.into_iter().map(line).collect();
            let y = Axis::linear("part of the bytes", Unit::Fraction);
            Chart { title: (*host).to_owned(), x: axis.clone(), y, layers, note: None }
        });

        Ok(charts.collect())
    }
}
