//! Plimsoll's block cache beside foyer's hybrid cache: the same work, in turn, on the same disk.
//!
//! # Why
//! A figure of one cache alone says more of the machine than of the cache.
//!
//! # How it works
//! Each measurement is a process of its own (this program calls itself), so that memory, threads and CPU time of one do
//! not count for the other; they take turns, and medians and their ratio are printed. See README.md.
//!
//! # Limits
//! Linux with io_uring, and a file system with direct I/O.
//!
//! # Example
//! `cargo run --release -- --directory /mnt/nvme/scratch --rounds 5`

mod subject;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use subject::{Kind, Result, Setup};
use work::Load;

/// The options with their defaults and meanings.
const OPTIONS: [(&str, &str, &str); 10] = [
    ("directory", ".", "on the disk to measure; a directory is made in it and removed"),
    ("rounds", "3", "of each cache, in turn"),
    ("values", "8192,1024", "lengths of values for hits, in bytes"),
    ("disk-mib", "1024", "of disk for hits"),
    ("memory-mib", "64", "of memory for values"),
    ("readers", "32", "look-ups at a time"),
    ("seconds", "10", "of look-ups in each round"),
    ("data-pct", "100", "all values together, of the disk"),
    ("entries", "1000000", "of 1 KiB to recover; 0: leave it out"),
    ("waiting-mib", "64", "of inserts that foyer may have waiting"),
];

type Options = BTreeMap<&'static str, String>;

fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--help") {
        OPTIONS.iter().for_each(|(name, default, what)| println!("--{name:12} {what} ({default})"));
        return Ok(());
    }
    if arguments.first().is_some_and(|first| first == "once") {
        let rest = arguments.split_off(4.min(arguments.len()));
        return once(&arguments, &options(&rest)?);
    }
    let options = options(&arguments)?;
    for value_bytes in text(&options, "values").split(',') {
        println!("hits, values of {value_bytes} bytes");
        compare(&options, &arguments, "hits", value_bytes)?;
    }
    if number(&options, "entries")? > 0 {
        println!("recovery of {} entries of 1024 bytes, then 10 s idle", text(&options, "entries"));
        compare(&options, &arguments, "recovery", "1024")?;
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<Options> {
    let mut options: Options = OPTIONS.iter().map(|(name, default, _)| (*name, (*default).to_owned())).collect();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} has no value", pair.join(" ")).into()) };
        let known = name.strip_prefix("--").and_then(|name| options.get_mut(name));
        *known.ok_or_else(|| format!("{name}: no such option; see --help"))? = value.clone();
    }
    Ok(options)
}

fn text<'a>(options: &'a Options, name: &str) -> &'a str {
    options.get(name).map_or("", String::as_str)
}

fn number(options: &Options, name: &str) -> Result<u64> {
    text(options, name).parse().map_err(|error| format!("--{name}: {error}").into())
}

/// Rounds of both in turn, and a table.
fn compare(options: &Options, arguments: &[String], what: &str, value_bytes: &str) -> Result<()> {
    let mut figures: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    for round in 0..number(options, "rounds")?.max(1) {
        for (column, (_, name)) in Kind::ALL.iter().enumerate() {
            eprintln!("round {} of {name}", round + 1);
            let command = Command::new(std::env::current_exe()?)
                .args(["once", name, what, value_bytes])
                .args(arguments)
                .stderr(std::process::Stdio::inherit())
                .output()?;
            if !command.status.success() {
                return Err(format!("{name} failed: {}", command.status).into());
            }
            for line in String::from_utf8(command.stdout)?.lines() {
                // foyer prints lines of its own.
                let Some((figure, value)) = line.strip_prefix("figure ").and_then(|rest| rest.split_once(' ')) else {
                    continue;
                };
                figures.entry(figure.to_owned()).or_default()[column].push(value.parse()?);
            }
        }
    }
    println!("  {:22} {:>14} {:>14} {:>10}", "median", "plimsoll", "foyer", "ratio");
    for (figure, [ours, theirs]) in figures {
        let (ours, theirs) = (median(ours), median(theirs));
        println!("  {figure:22} {ours:14.3} {theirs:14.3} {:10.2}", ours / theirs);
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One measurement, in a process of its own: `once NAME WHAT VALUE_BYTES OPTIONS`.
fn once(arguments: &[String], options: &Options) -> Result<()> {
    let [_, name, what, value_bytes] = arguments else { return Err("once NAME WHAT VALUE_BYTES".into()) };
    let (kind, _) = Kind::ALL.into_iter().find(|(_, known)| known == name).ok_or("no such cache")?;
    let value_bytes: usize = value_bytes.parse()?;
    let directory = PathBuf::from(text(options, "directory")).join(format!("against-foyer-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let result = measure(kind, what, value_bytes, options, &directory);
    std::fs::remove_dir_all(&directory)?;
    for (figure, value) in result? {
        println!("figure {figure} {value}");
    }
    Ok(())
}

fn measure(kind: Kind, what: &str, value_bytes: usize, options: &Options, directory: &Path) -> Result<work::Figures> {
    let mib = |name| number(options, name).map(|mib| mib << 20);
    let entries = number(options, "entries")?;
    // Room for all of foyer's entries: 4 KiB each, its lists of them, and blocks that it keeps clean.
    let recovery_bytes = (256 << 20) + entries * 4096 / 8 * 9;
    let setup = Setup {
        directory: directory.to_owned(),
        disk_bytes: if what == "recovery" { recovery_bytes } else { mib("disk-mib")? },
        memory_bytes: mib("memory-mib")?,
        waiting_bytes: mib("waiting-mib")?,
    };
    let load = Load {
        keys: (setup.disk_bytes * number(options, "data-pct")? / 100 / value_bytes.max(8) as u64).max(1),
        value_bytes: value_bytes.max(8),
        readers: usize::try_from(number(options, "readers")?)?,
        time: Duration::from_secs(number(options, "seconds")?),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
    match what {
        "hits" => runtime.block_on(work::hits(kind, &setup, &load)),
        "recovery" => runtime.block_on(work::recovery(kind, &setup, entries, load.value_bytes)),
        _ => Err("hits or recovery".into()),
    }
}
