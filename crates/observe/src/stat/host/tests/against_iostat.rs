//! Compares our columns with those of the installed iostat.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use plimsoll::sys::diskstats;
use serde_json::Value;

use super::super::*;
use crate::skip::skip;
use crate::stat::output::keyed;

/// Returns the disks of iostat's first report with these arguments; `None`, with a line that says why, without iostat.
fn report(arguments: &[&str], directory: Option<&Path>) -> Option<Vec<Value>> {
    let mut command = Command::new("iostat");
    command.env("LC_ALL", "C").args(arguments);
    if let Some(directory) = directory {
        command.arg("-f").arg(directory);
    }

    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            skip(format_args!("this iostat refuses: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        Err(error) => {
            skip(format_args!("there is no iostat here: {error}"));
            return None;
        }
    };

    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    Some(document["sysstat"]["hosts"][0]["statistics"][0]["disk"].as_array().unwrap().clone())
}

/// Returns a figure as read back from iostat's output: with two decimals, 0 if unknown.
fn printed(value: Option<f64>) -> f64 {
    format!("{:.2}", value.unwrap_or(0.0)).parse().unwrap()
}

/// The counters do not change, so that rates since boot only fall as the uptime grows: iostat's figures are between
/// ours before and after its run.
#[test]
fn columns_equal_iostats_to_the_last_digit() {
    let stats = [
        "30000001 12345 987654321 4711001 20000003 54321 123456789 815002 3 7777777 9999999 1003 17 9001 333 5005 4441",
        "7 0 57 1 0 0 0 0 0 1 1 0 0 0 0 0 0",
        "0 0 0 0 99999999 1 799999992 12345678 0 1 2 0 0 0 0 0 0",
        "123456 7 9876543 21 5 6 7 8 9 10 11",
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut devices = Vec::new();
    for (at, stat) in stats.iter().enumerate() {
        let device = directory.path().join(format!("block/x{at}"));
        std::fs::create_dir_all(&device).unwrap();
        std::fs::write(device.join("stat"), format!("{stat}\n")).unwrap();
        devices.extend(diskstats::parse(&format!("0 {at} x{at} {stat}")).unwrap());
    }

    let mut sampler = Sampler::new(Path::new("/proc"), Path::new("/sys"));
    let mut since_boot = || {
        let reading = sampler.sample().ok()?;
        Some(Reading { devices: devices.clone(), ..reading }.since_boot().devices)
    };
    let Some(before) = since_boot() else { return skip("/proc cannot be read here") };
    let Some(disks) = report(&["-d", "-x", "-o", "JSON"], Some(directory.path())) else { return };
    let after = since_boot().unwrap();
    assert_eq!(disks.len(), stats.len());
    for disk in &disks {
        let named = |devices: &[DeviceInterval]| {
            devices.iter().find(|device| disk["disk_device"] == device.device).unwrap().columns
        };
        for ((key, most), (_, least)) in keyed(&named(&before)).zip(keyed(&named(&after))) {
            let theirs = disk[key].as_f64().unwrap();
            let (least, most) = (printed(least), printed(most));
            assert!((least..=most).contains(&theirs), "{disk}: {key} is {theirs}, ours {least} to {most}");
        }
    }
}

#[test]
fn the_devices_shown_are_iostats() {
    let mut sampler = Sampler::new(Path::new("/proc"), Path::new("/sys"));
    let mut shown = || -> Option<BTreeSet<String>> {
        let reading = sampler.sample().ok()?;
        let shown =
            reading.devices.iter().filter(|disk| is_used(&disk.counters) && !is_partition(&disk.name, sampler.facts()));
        Some(shown.map(|disk| disk.name.clone()).collect())
    };
    let Some(before) = shown() else { return skip("/proc cannot be read here") };
    let Some(disks) = report(&["-d", "-x", "-o", "JSON"], None) else { return };
    if shown() != Some(before.clone()) {
        return skip("devices come and go here");
    }
    let theirs = disks.iter().filter_map(|disk| disk["disk_device"].as_str().map(str::to_owned));
    assert_eq!(before, theirs.collect());
}
