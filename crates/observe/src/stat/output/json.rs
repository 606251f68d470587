//! The document of `iostat -o JSON`, with our keys beside its own.
//!
//! # Why
//! Programs that read iostat's document look for `sysstat.hosts[].statistics[].disk[]` and take the columns by name.
//!
//! # How it works
//! Nesting, keys, their order and the two decimals are those of sysstat 12 (`iostat.c`, `json_stats.c`); our keys
//! follow in the same objects. A document is [`head`], one [`element`] for each interval, [`TAIL`]: at every time the
//! text so far plus the tail is a document.
//!
//! # Limits
//! `timestamp` is present whenever the time is known (in iostat's only with `-t`), in the form of `S_TIME_FORMAT=ISO`.
//!
//! # Example
//! `jq '.sysstat.hosts[0].statistics[-1].disk[] | {disk_device, util, capacity_use, verdict}'`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{keyed_all, rounded, time};
use crate::stat::host::Host;
use crate::stat::programs::ClassRow;
use crate::stat::{CpuShares, Gap, GroupObserved, Judged, Observed, Remark};

/// Version of our keys; it rises when one changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// The end of the document.
pub const TAIL: &str = "\n]}]}}\n";

/// Renders the begin of the document, up to its first interval. Fields that `host` does not know are null; `date` is
/// the day of the first figures, such as `2026-03-14`.
pub fn head(host: &Host, date: Option<&str>) -> serde_json::Result<String> {
    let host = serde_json::to_string(&HostJson::new(host, date))?;
    let fields = host.strip_suffix('}').unwrap_or(&host);
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "{{\"schema\": {SCHEMA}, \"plimsoll\": \"{version}\", \"sysstat\": {{\"hosts\": [{fields},\"statistics\": ["
    ))
}

/// Renders an interval as an object by itself.
pub fn statistics(observed: &Observed, classes: &[ClassRow]) -> serde_json::Result<String> {
    let disks = observed.devices.iter().filter(|judged| judged.interval.gap.is_none());
    let disks = disks.map(disk).collect::<serde_json::Result<Vec<_>>>()?.join(",");
    let begin = serde_json::to_string(&Begin::new(observed))?;
    let begin = begin.strip_suffix('}').unwrap_or(&begin);
    let separator = if begin == "{" { "" } else { "," };
    let end = serde_json::to_string(&End::new(observed, classes))?;
    Ok(format!("{begin}{separator}\"disk\":[{disks}],{}", end.strip_prefix('{').unwrap_or(&end)))
}

/// Renders an interval as an element of the document: all but the first begin with a comma.
pub fn element(observed: &Observed, classes: &[ClassRow], is_first: bool) -> serde_json::Result<String> {
    let separator = if is_first { "\n" } else { ",\n" };
    Ok(format!("{separator}{}", statistics(observed, classes)?))
}

#[derive(Serialize)]
struct HostJson<'a> {
    nodename: Option<&'a str>,
    sysname: &'a str,
    release: Option<&'a str>,
    machine: Option<&'a str>,
    #[serde(rename = "number-of-cpus")]
    cpus: Option<u32>,
    date: Option<&'a str>,
}

impl<'a> HostJson<'a> {
    fn new(host: &'a Host, date: Option<&'a str>) -> HostJson<'a> {
        let known = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        HostJson {
            nodename: known(&host.name),
            sysname: "Linux",
            release: known(&host.kernel),
            machine: known(&host.machine),
            cpus: Some(host.cpus).filter(|cpus| *cpus > 0),
            date,
        }
    }
}

/// The keys of an interval before the disks.
#[derive(Serialize)]
struct Begin {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(rename = "avg-cpu", skip_serializing_if = "Option::is_none")]
    cpu: Option<CpuShares>,
}

impl Begin {
    fn new(observed: &Observed) -> Begin {
        let round = |share: f64| rounded(Some(share), 2).unwrap_or(0.0);
        Begin {
            timestamp: observed.end_unix_ms.and_then(|ms| time(ms, "%Y-%m-%dT%H:%M:%S+0000")),
            cpu: observed.cpu.map(|cpu| CpuShares::from_array(cpu.to_array().map(round))),
        }
    }
}

/// The keys of an interval after the disks.
#[derive(Serialize)]
struct End<'a> {
    end_unix_ms: Option<u64>,
    duration_s: Option<f64>,
    is_since_boot: Option<bool>,
    gaps: Vec<GapJson<'a>>,
    groups: &'a [GroupObserved],
    classes: &'a [ClassRow],
    warnings: &'a [Remark],
}

impl<'a> End<'a> {
    fn new(observed: &'a Observed, classes: &'a [ClassRow]) -> End<'a> {
        let gap = |judged: &'a Judged| {
            let (disk_device, gap) = (judged.interval.device.as_str(), judged.interval.gap?);
            Some(GapJson { disk_device, gap, why: &judged.why })
        };
        End {
            end_unix_ms: observed.end_unix_ms,
            duration_s: rounded(observed.duration_s, 6),
            is_since_boot: observed.since_boot(),
            gaps: observed.devices.iter().filter_map(gap).collect(),
            groups: &observed.groups,
            classes,
            warnings: &observed.remarks,
        }
    }
}

/// Renders a device. Writes its columns as text with two decimals, as iostat does. This also takes half the time of
/// serializing numbers: a host may have hundreds of devices.
fn disk(judged: &Judged) -> serde_json::Result<String> {
    let mut text = format!("{{\"disk_device\":{}", serde_json::to_string(&judged.interval.device)?);
    for (key, value) in keyed_all(&judged.interval.columns) {
        // Writing to a string cannot fail.
        let _ = match value.filter(|value| value.is_finite()) {
            Some(value) => write!(text, ",\"{key}\":{value:.2}"),
            None => write!(text, ",\"{key}\":null"),
        };
    }
    let in_flight = serde_json::to_string(&judged.interval.in_flight)?;
    let ours = serde_json::to_string(judged)?;
    let _ = write!(text, ",\"in_flight\":{in_flight},{}", ours.strip_prefix('{').unwrap_or(&ours));
    Ok(text)
}

#[derive(Serialize)]
struct GapJson<'a> {
    disk_device: &'a str,
    gap: Gap,
    why: &'a str,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::keyed;
    use super::super::tests::observed;
    use super::*;

    fn document(elements: usize) -> Value {
        let host = Host { name: "a \"host\"".to_owned(), cpus: 2, ..Host::default() };
        let mut text = head(&host, Some("2024-03-14")).unwrap();
        for at in 0..elements {
            text.push_str(&element(&observed(), &[], at == 0).unwrap());
        }
        text.push_str(TAIL);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn it_is_a_document_after_any_number_of_intervals() {
        for elements in [0, 1, 3] {
            let document = document(elements);
            let host = &document["sysstat"]["hosts"][0];
            assert_eq!((&host["nodename"], &host["number-of-cpus"]), (&json!("a \"host\""), &json!(2)));
            assert_eq!((&host["release"], &host["date"]), (&Value::Null, &json!("2024-03-14")));
            assert_eq!(host["statistics"].as_array().map(Vec::len), Some(elements));
        }
    }

    #[test]
    fn columns_are_iostats_and_ours_stand_beside_them() {
        let document = document(1);
        let statistics = &document["sysstat"]["hosts"][0]["statistics"][0];
        assert_eq!(statistics["timestamp"], "2024-03-15T00:53:14+0000");
        assert_eq!(statistics["avg-cpu"]["user"], 0.33);
        let disks = statistics["disk"].as_array().unwrap();
        assert_eq!(disks.len(), 2, "what appeared has no figures");
        assert_eq!(statistics["gaps"][0]["disk_device"], "sdb");
        assert_eq!(statistics["gaps"][0]["gap"], "appeared");

        let disk = &disks[1];
        let expected = [
            ("disk_device", json!("nvme0n1")),
            ("r/s", json!(1234.57)),
            ("r_await", json!(0.13)),
            ("aqu-sz", json!(0.23)),
            ("util", json!(100.0)),
            ("d/s", Value::Null),
            ("in_flight", json!(0)),
            ("capacity_use", json!(0.1235)),
            ("capacity_basis", json!("model")),
            ("capacity_model", json!("i4i.2xlarge")),
            ("saturation", json!(0.0)),
            ("read_saturation", Value::Null),
            ("verdict", json!("saturated")),
            ("warnings", json!([{"code": "util-misleads", "message": "it does"}])),
        ];
        for (key, value) in expected {
            assert_eq!(disk[key], value, "{key}");
        }

        let group = &statistics["groups"][0];
        assert_eq!((&group["effective_devices"], &group["verdict"]), (&json!(1.06), &json!("imbalanced")));
        assert_eq!(group["members"][0], json!({"disk_device": "nvme0n1", "bytes_share": 0.97, "await_ms": null}));
    }

    #[test]
    fn iostats_keys_come_first_and_in_its_order() {
        let text = element(&observed(), &[], true).unwrap();
        let at = |key: &str| text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key}"));
        let keys = keyed(&crate::stat::Columns::default()).map(|(key, _)| key);
        let order: Vec<usize> = keys.chain(["in_flight", "verdict"]).map(at).collect();
        assert!(order.is_sorted(), "{order:?}");
    }
}
