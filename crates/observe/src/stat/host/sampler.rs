//! Takes readings of a host, one after the other.
//!
//! # Why
//! An expensive reading changes what it measures. On a host with hundreds of devices most of the cost is in strings and
//! small files that do not change.
//!
//! # How it works
//! Each reading takes three files, read into one buffer that is reused. The [`facts`] of a device (a dozen small files)
//! are read if it was absent from the reading before, or had another number there.
//!
//! # Limits
//! A disk that grows or gets another queue while it is watched keeps the facts of when it appeared.
//!
//! # Example
//! See the parent module.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::sys::diskstats;

use super::{CpuTicks, Reading, facts};
use crate::stat::Facts;

/// Takes readings of a host and keeps the facts about its devices.
#[derive(Debug)]
pub struct Sampler {
    proc_root: PathBuf,
    sys_root: PathBuf,
    text: String,
    /// Names and numbers of the devices in the latest reading.
    known: HashMap<String, (u32, u32)>,
    facts: Facts,
}

impl Sampler {
    /// Returns a sampler that reads these directories: `/proc` and `/sys` for this host.
    #[must_use]
    pub fn new(proc_root: &Path, sys_root: &Path) -> Sampler {
        let (proc_root, sys_root) = (proc_root.to_owned(), sys_root.to_owned());
        Sampler { proc_root, sys_root, text: String::new(), known: HashMap::new(), facts: Facts::new() }
    }

    /// Takes a reading.
    ///
    /// # Errors
    /// If `uptime` or `diskstats` cannot be read or parsed; the message has the path.
    pub fn sample(&mut self) -> io::Result<Reading> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let uptime_cs = self.read("uptime", |text| uptime_cs(text).ok_or_else(|| "no uptime".to_owned()))?;
        let cpu = self.read("stat", |text| Ok(cpu_ticks(text))).unwrap_or(None);
        let devices = self.read("diskstats", |text| diskstats::parse(text).map_err(|error| error.to_string()))?;
        let reading = Reading { at_unix_ms: at.as_millis() as u64, uptime_cs, cpu, devices };
        self.look_up(&reading);
        Ok(reading)
    }

    /// Returns the facts about all devices seen so far, those that have disappeared included.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> io::Result<T> {
        let path = self.proc_root.join(name);
        self.text.clear();
        let read = File::open(&path).and_then(|mut file| file.read_to_string(&mut self.text));
        read.map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
        let wrong = |reason| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {reason}", path.display()));
        parse(&self.text).map_err(wrong)
    }

    /// Reads the facts of devices that are new in `reading`.
    fn look_up(&mut self, reading: &Reading) {
        let number = |disk: &diskstats::DiskStats| (disk.major, disk.minor);
        for disk in reading.devices.iter().filter(|disk| self.known.get(&disk.name) != Some(&number(disk))) {
            self.facts.insert(disk.name.clone(), facts(&self.sys_root, &disk.name));
        }
        let is_known = |disk: &diskstats::DiskStats| self.known.get(&disk.name) == Some(&number(disk));
        if self.known.len() != reading.devices.len() || !reading.devices.iter().all(is_known) {
            self.known = reading.devices.iter().map(|disk| (disk.name.clone(), number(disk))).collect();
        }
    }
}

/// Returns the first number of `/proc/uptime`, `45126.08 25924.85`, in hundredths.
fn uptime_cs(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    let hundredths = Some(hundredths).filter(|digits| digits.len() == 2)?;
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)
}

/// Parses the line of all CPUs in `/proc/stat`. Numbers that old kernels lack, after the first four, are 0.
fn cpu_ticks(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = [0; 8];
    let mut numbers = line.split_ascii_whitespace().map_while(|word| word.parse().ok());
    let read = ticks.iter_mut().zip(&mut numbers).map(|(tick, number)| *tick = number).count();
    (read >= 4).then(|| CpuTicks::from_array(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptimes_and_ticks_are_read_or_refused() {
        let table = [
            ("45126.08 25924.85\n", Some(4_512_608)),
            ("0.00 0.00", Some(0)),
            ("1.5 1", None),
            ("", None),
            ("12 13", None),
            ("99999999999999999999.00 1", None),
            ("-1.00 1", None),
        ];
        for (text, expect) in table {
            assert_eq!(uptime_cs(text), expect, "{text}");
        }
        let table = [
            ("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1\n", Some([1, 2, 3, 4, 5, 6, 7, 8])),
            ("cpu0 1 1 1 1\ncpu  1 2 3 4\n", Some([1, 2, 3, 4, 0, 0, 0, 0])),
            ("cpu 1 2 x 4\n", None),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(cpu_ticks(text).map(CpuTicks::to_array), expect, "{text}");
        }
    }

    #[test]
    fn a_host_without_counters_is_an_error_with_the_path() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
        let mut sampler = Sampler::new(root.path(), root.path());
        let failed = |sampler: &mut Sampler| sampler.sample().map_err(|error| error.to_string());
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("uptime")));
        write("uptime", "5.00 5.00\n")?;
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("diskstats")));
        write("diskstats", "8 0 sda 1\n")?;
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("diskstats: line 1")));
        write("diskstats", "8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n")?;
        let reading = sampler.sample()?;
        assert_eq!((reading.uptime_cs, reading.cpu, reading.devices.len()), (500, None, 1));
        assert!(sampler.facts().contains_key("sda"));
        Ok(())
    }

    #[test]
    fn facts_are_looked_up_again_for_another_device_of_the_name() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
        std::fs::create_dir_all(root.path().join("class/block/sda"))?;
        write("uptime", "5.00 5.00\n")?;
        let mut sampler = Sampler::new(root.path(), root.path());
        let table = [
            ("8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n", "100", Some(51_200)),
            ("8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n", "200", Some(51_200)),
            ("8 16 sda 1 0 8 1 0 0 0 0 0 1 1\n", "300", Some(153_600)),
            ("", "400", Some(153_600)),
            ("8 16 sda 1 0 8 1 0 0 0 0 0 1 1\n", "500", Some(256_000)),
        ];
        for (lines, sectors, expect) in table {
            write("diskstats", lines)?;
            write("class/block/sda/size", sectors)?;
            sampler.sample()?;
            assert_eq!(sampler.facts()["sda"].size_bytes, expect, "{lines}{sectors}");
        }
        Ok(())
    }
}
