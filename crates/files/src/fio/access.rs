//! Reads the distribution of a job's random positions.
//!
//! **Why.** Real loads have hot data; fio has five ways to describe it.
//!
//! **How.** `random_distribution` names the shape and its parameter, which is used as given; zones are pairs of shares.
//!
//! Evenly drawn positions come once each before any is repeated, unless `norandommap` is set.
//!
//! **Limits.** Zones in bytes, a centre of the shape, and zones that differ between reads and writes are refused. As in
//! fio, only evenly drawn positions use a map.
//!
//! **Example.** `zoned:60/10:40/` sends 60 % of the requests to the first tenth of the data, the others to the rest.

use plimsoll_figures::units::quoted;

use super::reader::{Reader, not_supported};
use super::values::{self, directions};
use crate::error::{Code, ConfigError};
use crate::jobs::{Access, JobKind};

pub(super) fn read(reader: &Reader<'_>, kind: JobKind) -> Result<Access, ConfigError> {
    let name = "random_distribution";
    if !kind.is_random() {
        return Ok(Access::Uniform);
    }
    let text = reader.text(name)?.unwrap_or("random");
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));

    let figure = |default: f64, low: f64, high: f64| match rest {
        "" => Ok(default),
        text if text.contains([':', ',']) => {
            not_supported(reader, name, "a centre, or figures by direction, are not supported", "write one figure")
        }
        text => values::float(text, low, high).map_err(|wrong| reader.wrong(name, wrong)),
    };

    // fio's defaults: 1.1 and 0.2.
    match word {
        "random" if reader.flag("norandommap")? => Ok(Access::Uniform),
        "random" => Ok(Access::Once),
        "zipf" => Ok(Access::Zipf { theta: figure(1.1, 1e-6, 10.0)? }),
        "pareto" => Ok(Access::Pareto { h: figure(0.2, 1e-6, 1.0 - 1e-6)? }),
        "normal" => {
            if rest.is_empty() {
                let error = reader.error(name, Code::InvalidValue, "`normal` needs its deviation");
                return Err(error.with_help("write normal:20, for example"));
            }
            Ok(Access::Normal { deviation_pct: figure(20.0, 1e-6, 100.0)? })
        }
        "zoned" => zones(reader, name, rest, kind),
        "zoned_abs" => {
            not_supported(reader, name, "zones in bytes are not supported", "write them in per cent: zoned:60/10:40/90")
        }
        other => {
            let error = reader.error(name, Code::InvalidValue, format!("{} is not a distribution", quoted(other)));
            Err(error.with_help("write random, zipf:1.2, pareto:0.2, normal:20 or zoned:60/10:40/90"))
        }
    }
}

fn zones(reader: &Reader<'_>, name: &str, list: &str, kind: JobKind) -> Result<Access, ConfigError> {
    let mut parts = directions(kind).iter().map(|direction| values::of_direction(list, *direction));
    let first = parts.next().flatten().unwrap_or("");
    if parts.any(|part| part != Some(first)) {
        let help = "write one job for the reads and one for the writes";
        return not_supported(reader, name, "reads and writes of one job cannot have zones of their own", help);
    }

    let wrong = |wrong| reader.wrong(name, wrong);
    let pairs = values::pairs(first).map_err(wrong)?;
    let percent = |text: &str| values::float(text, 0.0, 100.0).map_err(wrong);
    let requests = pairs.iter().map(|(text, _)| match *text {
        "" => Ok(None),
        text => percent(text).map(Some),
    });
    let requests = values::fill_percents(&requests.collect::<Result<Vec<_>, _>>()?).map_err(wrong)?;
    let data = pairs.iter().map(|(_, text)| text.map(percent).transpose()).collect::<Result<Vec<_>, _>>()?;
    let data = values::fill_percents(&data).map_err(wrong)?;

    let zones: Vec<(f64, f64)> = requests.into_iter().zip(data).collect();
    if zones.iter().any(|(requests_pct, data_pct)| *requests_pct > 0.0 && *data_pct <= 0.0) {
        let error = reader.error(name, Code::OutOfRange, "a zone gets requests and has no data");
        return Err(error.with_help("write zones as requests/data in per cent, such as zoned:60/10:40/90"));
    }
    Ok(Access::Zoned(zones))
}
