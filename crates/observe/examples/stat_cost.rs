//! What `stat` costs on a host with many devices: CPU time of a look, and of what is made of it.
//!
//! `cargo run --release -p plimsoll-observe --example stat_cost [DEVICES [LOOKS]]` makes the files of such a host in a
//! temporary directory, with counters that move, and looks at it as `stat` does: read, set against the last reading,
//! judge, print. It prints the CPU time of each in microseconds, and the part of a CPU at one look a second. Figures
//! of a real `/proc` add what the kernel takes to print its counters.

use std::fmt::Write as _;
use std::path::Path;

use plimsoll::sys::rusage::process_cpu_ns;
use plimsoll_observe::stat::host::Sampler;
use plimsoll_observe::stat::output::{csv, json};
use plimsoll_observe::stat::watch::{Watch, WatchOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let devices: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let looks: u64 = arguments.next().map_or(Ok(200), |text| text.parse())?;
    let root = tempfile::tempdir()?;
    for device in 0..devices {
        let queue = root.path().join(format!("class/block/nvme{device}n1/queue"));
        std::fs::create_dir_all(&queue)?;
        std::fs::write(queue.join("rotational"), "0\n")?;
        std::fs::write(queue.join("nr_requests"), "1023\n")?;
    }
    std::fs::write(root.path().join("stat"), "cpu  1000 0 500 8000 500 0 0 0 0 0\n")?;
    let mut sampler = Sampler::new(root.path(), root.path());
    let mut watch = Watch::new(WatchOptions::default());
    write_host(root.path(), devices, 1)?;
    let mut before = sampler.sample()?;
    let (mut look_us, mut json_us, mut csv_us) = (0.0, 0.0, 0.0);
    for second in 2..looks + 2 {
        write_host(root.path(), devices, second)?;
        let start_us = cpu_us();
        let now = sampler.sample()?;
        let mut interval = now.since(&before);
        now.keep_shown(&mut interval, sampler.facts(), false);
        let observed = watch.observe(&interval, sampler.facts());
        before = now;
        let judged_us = cpu_us();
        let json = json::element(&observed, &[], false)?;
        let json_end_us = cpu_us();
        let csv = csv::lines(&observed);
        look_us += judged_us - start_us;
        json_us += json_end_us - judged_us;
        csv_us += cpu_us() - json_end_us;
        assert!(csv.lines().count() as u64 == devices && !json.is_empty(), "every device is seen");
    }
    println!("{devices} devices, {looks} looks");
    for (what, us) in [("read and judge", look_us), ("print JSON", json_us), ("print CSV", csv_us)] {
        let us = us / looks as f64;
        println!("{what:15} {us:7.0} us a look, {:.3} % of a CPU at one a second", 100.0 * us / 1e6);
    }
    Ok(())
}

/// The counters at a second: every device reads and writes at a rate of its own.
fn write_host(root: &Path, devices: u64, second: u64) -> Result<()> {
    let mut text = String::new();
    for device in 0..devices {
        let count = (1000 + 37 * device) * second * 60;
        writeln!(
            text,
            " 259 {device:7} nvme{device}n1 {count} 10 {} {} {} 99 {} {} {} {} {} 0 0 0 0 {second} {second}",
            count * 8,
            count / 8,
            count / 2,
            count * 4,
            count / 40,
            device % 5,
            second * 990,
            count / 7,
        )?;
    }
    std::fs::write(root.join("diskstats"), text)?;
    Ok(std::fs::write(root.join("uptime"), format!("{second}.00 {second}.00\n"))?)
}

/// CPU time of this process so far.
fn cpu_us() -> f64 {
    process_cpu_ns() as f64 / 1e3
}
