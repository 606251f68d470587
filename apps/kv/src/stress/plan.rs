//! The load that `stress` runs, in cassandra-stress's syntax.
//!
//! # Why
//! Users who have measured Cassandra or ScyllaDB know this syntax.
//!
//! # How it works
//! First the command and its parameters (`write n=1000000`, `mixed ratio(read=3,write=1) duration=10s`), then options
//! with theirs: `-pop`, `-rate`, `-col`, `-node`, `-log`, `--format`, `--seed`. Each parameter is parsed at one place;
//! an unknown word is an error that lists the known ones.
//!
//! # Limits
//! Only parameters that suit a store of strings: no profiles, no schema, no `err<`.
//!
//! # Example
//! `stress read duration=10s -pop 'dist=gaussian(1..1000000,500000,1000)' -rate threads=50 fixed=2000/s`

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_figures::units::{parse_duration_ns, parse_size_bytes};

use super::population::{Population, call_of, range_of};
use crate::failure::Failure;

/// Most threads: each has a connection.
const THREADS_MAX: u32 = 10_000;
/// Longest value of a client.
const VALUE_MAX_BYTES: u64 = 64 << 20;
/// Operations per second of a fixed rate: from one in 1000 seconds to more than any client sends.
const RATES_PER_S: RangeInclusive<f64> = 0.001..=1e9;
/// The options, each followed by its parameters.
const OPTIONS: [&str; 7] = ["-pop", "-rate", "-col", "-node", "-log", "--format", "--seed"];

/// The load of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Weights of reads and of writes in a mix.
    pub ratio: (f64, f64),
    /// The keys.
    pub population: Population,
    /// Connections, each with one operation at a time.
    pub threads: u32,
    /// Operations per second of all threads together; `None` for as many as possible.
    pub rate_per_s: Option<f64>,
    /// The length of the load.
    pub duration: Option<Duration>,
    /// The number of operations.
    pub operations: Option<u64>,
    /// Least and greatest length of a value in bytes.
    pub value_bytes: (u64, u64),
    /// The server.
    pub server: SocketAddr,
    /// The file for a log of histograms, one per second.
    pub hdr_file: Option<PathBuf>,
    /// Whether the result is JSON.
    pub is_json: bool,
    /// Seed of keys and lengths.
    pub seed: u64,
}

/// The usage of the command.
pub const USAGE: &str = "usage: plimsoll-kv stress write|read|mixed [ratio(read=3,write=1)] [n=N] [duration=10s]
  -pop dist=uniform(1..N) | dist=gaussian(1..N,MEAN,DEVIATION) | seq=A..B    (uniform(1..1000000))
  -rate threads=T fixed=R/s                                                  (threads=50, as fast as it goes)
  -col size=BYTES | size=uniform(A..B)                                       (size=1KiB)
  -node ADDRESS:PORT                                                         (127.0.0.1:6380)
  -log hdrfile=FILE   --format text|json   --seed N
latency counts from the intended start if there is a fixed rate; the live lines are on stderr";

impl Plan {
    /// Parses the words after `stress`.
    ///
    /// # Errors
    /// [`Failure::Input`] names the bad word and the expected form.
    pub fn of_words(words: &[String]) -> Result<Plan, Failure> {
        read(words).map_err(|error| Failure::Input(format!("{error}\n{USAGE}")))
    }
}

fn read(words: &[String]) -> Result<Plan, String> {
    let (command, words) = words.split_first().ok_or("which load?")?;
    let ratio = match command.as_str() {
        "write" => (0.0, 1.0),
        "read" => (1.0, 0.0),
        "mixed" => (1.0, 1.0),
        other => return Err(format!("`{other}` is none of write, read, mixed")),
    };

    let mut plan = Plan {
        ratio,
        population: Population::Uniform { first: 1, last: 1_000_000 },
        threads: 50,
        rate_per_s: None,
        duration: None,
        operations: None,
        value_bytes: (1024, 1024),
        server: SocketAddr::from(([127, 0, 0, 1], 6380)),
        hdr_file: None,
        is_json: false,
        seed: 1,
    };

    let (mut option, mut is_set) = (command.as_str(), true);
    let without = |option: &str| format!("`{option}` is followed by nothing");
    for word in words {
        if word.starts_with('-') {
            if !OPTIONS.contains(&word.as_str()) {
                return Err(format!("`{word}` is none of {}", OPTIONS.join(", ")));
            }
            if !is_set {
                return Err(without(option));
            }
            (option, is_set) = (word, false);
        } else {
            plan.set(option, word)?;
            is_set = true;
        }
    }
    if !is_set {
        return Err(without(option));
    }
    if plan.duration.is_none() && plan.operations.is_none() {
        return Err("for how long? give duration=10s or n=100000".to_owned());
    }
    Ok(plan)
}

impl Plan {
    fn set(&mut self, option: &str, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').unwrap_or(("", word));
        let wrong = |reason: &str| format!("`{option} {word}`: {reason}");

        match (option, name) {
            ("mixed", name) if name.starts_with("ratio(") => self.ratio = ratio_of(word).ok_or_else(|| wrong(RATIO))?,
            ("write" | "read" | "mixed", "n") => {
                let count = value.parse().ok().filter(|count| *count > 0);
                self.operations = Some(count.ok_or_else(|| wrong("a number of operations, such as n=100000"))?);
            }
            ("write" | "read" | "mixed", "duration") => {
                let ns = parse_duration_ns(value).map_err(|error| wrong(&error.to_string()))?;
                self.duration = Some(Duration::from_nanos(ns));
            }
            ("-pop", _) => self.population = word.parse()?,
            ("-rate", "threads") => {
                let threads = value.parse().ok().filter(|threads| (1..=THREADS_MAX).contains(threads));
                self.threads = threads.ok_or_else(|| wrong("1 to 10000 threads"))?;
            }
            ("-rate", "fixed") => {
                let rate = value.strip_suffix("/s").unwrap_or(value).parse().ok();
                let rate = rate.filter(|rate| RATES_PER_S.contains(rate));
                self.rate_per_s =
                    Some(rate.ok_or_else(|| wrong("0.001 to 1e9 operations per second, such as fixed=2000/s"))?);
            }
            ("-col", "size") => {
                self.value_bytes = size_of(value).ok_or_else(|| wrong("size=1KiB or size=uniform(A..B)"))?
            }
            ("-node", "") => self.server = word.parse().map_err(|_| wrong("an address and a port, 127.0.0.1:6380"))?,
            ("-log", "hdrfile") => self.hdr_file = Some(PathBuf::from(value)),
            ("--format", "") if word == "json" => self.is_json = true,
            ("--format", "") if word == "text" => self.is_json = false,
            ("--seed", "") => self.seed = word.parse().map_err(|_| wrong("a number"))?,
            _ => return Err(wrong("unknown")),
        }

        Ok(())
    }
}

const RATIO: &str = "write ratio(read=3,write=1)";

fn ratio_of(word: &str) -> Option<(f64, f64)> {
    let (_, parts) = call_of(word)?;
    let mut ratio = (0.0, 0.0);

    for part in parts.split(',') {
        let (name, value) = part.split_once('=')?;
        let value = value.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0)?;
        match name.trim() {
            "read" => ratio.0 = value,
            "write" => ratio.1 = value,
            _ => return None,
        }
    }

    (ratio.0 + ratio.1 > 0.0).then_some(ratio)
}

fn size_of(value: &str) -> Option<(u64, u64)> {
    let lower = value.to_ascii_lowercase();
    let size = match call_of(&lower) {
        Some(("uniform", range)) => range_of(range)?,
        Some(("fixed", size)) => (parse_size_bytes(size).ok()?, parse_size_bytes(size).ok()?),
        Some(_) => return None,
        None => (parse_size_bytes(value).ok()?, parse_size_bytes(value).ok()?),
    };
    (size.1 <= VALUE_MAX_BYTES).then_some(size)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    fn plan(text: &str) -> Result<Plan, Failure> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Plan::of_words(&words)
    }

    #[test]
    fn the_words_of_cassandra_stress() {
        let read = plan(
            "mixed ratio(read=3,write=1) duration=10s -pop dist=gaussian(1..100,50,10) -rate threads=7 fixed=2000/s \
             -col size=uniform(10..20) -node 127.0.0.1:7000 --format json --seed 9",
        );
        let expected = Plan {
            ratio: (3.0, 1.0),
            population: Population::Gaussian { first: 1, last: 100, mean: 50.0, deviation: 10.0 },
            threads: 7,
            rate_per_s: Some(2000.0),
            duration: Some(Duration::from_secs(10)),
            operations: None,
            value_bytes: (10, 20),
            server: SocketAddr::from(([127, 0, 0, 1], 7000)),
            hdr_file: None,
            is_json: true,
            seed: 9,
        };
        assert_eq!(read.unwrap(), expected);
        assert_eq!(plan("write n=5 -col size=FIXED(4k) -pop seq=1..9").unwrap().value_bytes, (4096, 4096));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("", "which load?"),
            ("scan", "`scan`"),
            ("read", "for how long?"),
            ("read n=0", "`read n=0`"),
            ("read duration=10", "`read duration=10`"),
            ("read n=1 -rate threads=0", "`-rate threads=0`"),
            ("read n=1 -rate fixed=fast", "`-rate fixed=fast`"),
            ("read n=1 -pop zipf", "`zipf`"),
            ("read n=1 -col size=1TB", "`-col size=1TB`"),
            ("read n=1 -mode native", "`-mode` is none of -pop,"),
            ("read n=1 --format=json", "`--format=json` is none of"),
            ("read n=1 --seed -5", "`-5` is none of"),
            ("read n=1 -rate -pop seq=1..9", "`-rate` is followed by nothing"),
            ("read n=1 -pop", "`-pop` is followed by nothing"),
            ("read n=1 -rate fixed=1e-20", "`-rate fixed=1e-20`"),
            ("read n=1 -rate fixed=NaN", "`-rate fixed=NaN`"),
            ("mixed n=1 ratio(read=0,write=0)", "ratio("),
            ("read n=1 -node localhost", "`-node localhost`"),
        ];
        for (text, named) in cases {
            let error = plan(text).unwrap_err();
            assert!(matches!(&error, Failure::Input(message) if message.contains(named)), "{text}: {error}");
        }
    }
}
