//! Reads the machine from the kernel: processor, caches, memory, disks, network cards, hypervisor.
//!
//! **Why.** A figure means nothing without the machine it was measured on.
//!
//! **How.** Files of `/proc` and `/sys`, whose roots are parameters, so that tests read trees of their own. Sockets,
//! cores and caches come from the topology of the processors that are online. If this process may use fewer of them, a
//! fact and a warning say so.
//!
//! **Limits.** A virtual machine shows the topology that its hypervisor invents, and often no speed of its network
//! card. The clock is that in the model's name, or the kernel's base frequency; other frequencies change from moment to
//! moment.
//!
//! **Example.** `cpu0/cache/index3/size` is `32768K`, its `shared_cpu_list` `0-7`, and there are two such caches on a
//! socket: `cpu.l3_bytes` 67 108 864.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use plimsoll::sys::sysfs::{self, cpus_in_list, text};
use plimsoll_figures::units::{format_bytes_decimal, parse_size_bytes};

use crate::Roots;
use crate::instance::{Card, Figure};

#[derive(Clone, Debug, PartialEq, Eq)]
struct Thread {
    socket: String,
    /// The core's number within its socket.
    core: String,
    l3: Option<Cache>,
}

/// A third-level cache, identified by the threads that share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cache {
    shared: String,
    bytes: u64,
}

/// Reads the machine into its card. `allowed` is the number of hardware threads that this process may use.
pub(super) fn read(card: &mut Card, roots: &Roots, allowed: usize) {
    let threads = threads(roots);
    processor(roots, &threads, card);
    if threads.len() > allowed {
        card.warnings.push(format!(
            "this process may use {allowed} of {} hardware threads: the machine may carry more",
            threads.len()
        ));
        card.fact("cpu.allowed_threads", allowed.to_string());
    }

    memory(roots, card);
    system(roots, card);
    disks(roots, card);
    network_cards(roots, card);
}

/// Returns the host name of the machine, or `machine` if it has none.
pub fn host_name() -> String {
    let name = text(&Roots::default().proc, "sys/kernel/hostname").unwrap_or_default();
    if name.is_empty() || name == "(none)" { "machine".to_owned() } else { name }
}

fn number(directory: &Path, name: &str) -> Option<u64> {
    text(directory, name)?.parse().ok()
}

/// Returns the names in a directory, sorted; none if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let mut names = sysfs::names_in(directory);
    names.sort();
    names
}

fn threads(roots: &Roots) -> Vec<Thread> {
    let cpus = roots.sys.join("devices/system/cpu");
    let online = text(&cpus, "online").unwrap_or_default();

    let thread = |cpu: usize| {
        let directory = cpus.join(format!("cpu{cpu}"));
        let topology = |name: &str| text(&directory.join("topology"), name);
        let caches = directory.join("cache");
        let is_l3 = |name: &&String| number(&caches.join(name), "level") == Some(3);
        let l3 = names(&caches).iter().find(is_l3).and_then(|name| {
            let cache = caches.join(name);
            let shared = text(&cache, "shared_cpu_list")?;
            Some(Cache { shared, bytes: parse_size_bytes(&text(&cache, "size")?).ok()? })
        });
        Thread {
            socket: topology("physical_package_id").unwrap_or_default(),
            // Without a topology, each thread counts as a core.
            core: topology("core_id").unwrap_or_else(|| cpu.to_string()),
            l3,
        }
    };
    cpus_in_list(&online).map(thread).collect()
}

fn processor(roots: &Roots, threads: &[Thread], card: &mut Card) {
    let info = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
    let model = cpuinfo(&info, "model name").or_else(|| cpuinfo(&info, "Model")).map(str::to_owned);
    let cores: BTreeSet<(&str, &str)> = threads.iter().map(|t| (t.socket.as_str(), t.core.as_str())).collect();
    let sockets: BTreeSet<&str> = threads.iter().map(|thread| thread.socket.as_str()).collect();

    if threads.is_empty() {
        let reason = "the kernel shows no processors under /sys/devices/system/cpu";
        card.miss("cpu.cores", reason);
        card.miss("cpu.threads", reason);
    } else {
        card.set("cpu.cores", Figure::exact(cores.len() as f64));
        card.set("cpu.threads", Figure::exact(threads.len() as f64));
        card.fact("cpu.sockets", sockets.len().to_string());
        card.fact("cpu.threads_per_core", (threads.len() / cores.len().max(1)).to_string());
        card.fact("cpu.numa_nodes", sysfs::numa_nodes(&roots.sys).to_string());
    }

    let base_khz = number(&roots.sys, "devices/system/cpu/cpu0/cpufreq/base_frequency");
    match model.as_deref().and_then(model_hz).or(base_khz.map(|khz| khz as f64 * 1e3)) {
        Some(hz) => card.set("cpu.clock_hz", Figure::exact(hz)),
        None => {
            card.miss("cpu.clock_hz", "neither the model's name nor the kernel states it: see the model's data sheet")
        }
    }

    // Each distinct third-level cache of the first socket counts once.
    let first = threads.first().map(|thread| thread.socket.as_str());
    let on_first = threads.iter().filter(|thread| Some(thread.socket.as_str()) == first);
    let caches: BTreeSet<&Cache> = on_first.filter_map(|thread| thread.l3.as_ref()).collect();
    match caches.iter().map(|cache| cache.bytes).sum::<u64>() {
        0 => card.miss("cpu.l3_bytes", "the kernel tells of no third-level cache"),
        bytes => card.set("cpu.l3_bytes", Figure::exact(bytes as f64)),
    }

    card.facts.extend(model.map(|model| ("cpu.model".to_owned(), model)));
}

/// Returns the value of the first line called `name` in a file like `/proc/cpuinfo`, unless it is empty.
fn cpuinfo<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
}

/// Reads the clock of a name such as `... CPU @ 2.30GHz`, in hertz.
fn model_hz(model: &str) -> Option<f64> {
    let (_, clock) = model.rsplit_once('@')?;
    let clock = clock.trim();
    let (digits, scale) = match (clock.strip_suffix("GHz"), clock.strip_suffix("MHz")) {
        (Some(digits), _) => (digits, 1e9),
        (_, Some(digits)) => (digits, 1e6),
        _ => return None,
    };
    // Rounds to the stated decimals, away from their nearest binary fraction.
    digits.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0).map(|v| (v * scale).round())
}

fn memory(roots: &Roots, card: &mut Card) {
    let info = fs::read_to_string(roots.proc.join("meminfo")).unwrap_or_default();
    let total_kib = cpuinfo(&info, "MemTotal").and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    match total_kib.and_then(|kib| kib.checked_mul(1 << 10)) {
        Some(bytes) => card.set("memory.bytes", Figure::exact(bytes as f64)),
        None => card.miss("memory.bytes", "/proc/meminfo does not tell it"),
    }
}

/// Adds facts about the kernel, its clock, and the product.
fn system(roots: &Roots, card: &mut Card) {
    let proc = |path: &str| text(&roots.proc, path);
    let sys = |path: &str| text(&roots.sys, path);
    let info = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();

    let flags = cpuinfo(&info, "flags").unwrap_or_default();
    let is_virtual = flags.split_whitespace().any(|flag| flag == "hypervisor");
    let vendor = sys("class/dmi/id/sys_vendor");
    let product = sys("class/dmi/id/product_name");
    let hypervisor = match (sys("hypervisor/type"), is_virtual, &vendor) {
        (Some(kind), ..) => Some(kind),
        (None, true, Some(vendor)) => Some(format!("yes, {vendor}")),
        (None, true, None) => Some("yes, of unknown kind".to_owned()),
        (None, false, _) => None,
    };

    let facts = [
        ("cpu.governor", sys("devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("machine.vendor", vendor),
        ("machine.product", product),
        ("machine.hypervisor", hypervisor),
        ("os.kernel", proc("sys/kernel/osrelease")),
        ("os.clock_source", sys("devices/system/clocksource/clocksource0/current_clocksource")),
    ];
    card.facts.extend(facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
}

/// Returns the names and directories of the devices of a class that are on a bus: no loopback, bridges, RAM disks.
fn on_bus(class: &Path) -> Vec<(String, PathBuf)> {
    let devices = names(class).into_iter().map(|name| (name.clone(), class.join(name)));
    devices.filter(|(_, directory)| directory.join("device").exists()).collect()
}

/// Adds a fact for each disk of the machine, except virtual ones of the kernel.
fn disks(roots: &Roots, card: &mut Card) {
    for (name, directory) in on_bus(&roots.sys.join("block")) {
        let Some(sectors) = number(&directory, "size").filter(|sectors| *sectors > 0) else { continue };
        let model = text(&directory, "device/model").unwrap_or_else(|| "unknown model".to_owned());
        let size = format_bytes_decimal(sectors.saturating_mul(512));
        let kind = if number(&directory, "queue/rotational") == Some(1) { ", spinning" } else { "" };
        card.fact(&format!("disk.{name}"), format!("{model}, {size}{kind}"));
    }
}

/// Adds a fact for each network card, and the speed of the fastest card as the machine's.
fn network_cards(roots: &Roots, card: &mut Card) {
    let mut fastest_mbit = 0;
    for (name, directory) in on_bus(&roots.sys.join("class/net")) {
        let driver = fs::canonicalize(directory.join("device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let driver = driver.unwrap_or_else(|| "unknown driver".to_owned());
        // -1 if the driver does not know it.
        let mbit = number(&directory, "speed").filter(|mbit| *mbit > 0);
        fastest_mbit = fastest_mbit.max(mbit.unwrap_or(0));
        let speed = mbit.map_or_else(|| "speed unknown".to_owned(), |mbit| format!("{mbit} Mbit/s"));
        card.fact(&format!("network.{name}"), format!("{driver}, {speed}"));
    }

    match fastest_mbit {
        0 => card.miss("network.link_bits_per_s", "no network card tells its speed; see what the provider states"),
        mbit => card.set("network.link_bits_per_s", Figure::exact(mbit as f64 * 1e6)),
    }
}

/// Time of all processors since the boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    /// Reads `/proc/stat`; returns `None` if it does not count the time that the hypervisor took.
    pub(super) fn read(roots: &Roots) -> Option<Ticks> {
        Ticks::parse(&fs::read_to_string(roots.proc.join("stat")).ok()?)
    }

    pub(super) fn parse(stat: &str) -> Option<Ticks> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // user nice system idle iowait irq softirq steal; the guest times that follow are part of user and nice.
        let numbers: Vec<u64> = line.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
        let &[_, _, _, _, _, _, _, stolen] = numbers.as_slice() else { return None };
        let all = numbers.iter().fold(0, |sum: u64, ticks| sum.saturating_add(*ticks));
        Some(Ticks { all, stolen })
    }

    /// Returns the time since `earlier` that the hypervisor took, in per cent of all; `None` if no time has passed.
    pub(super) fn stolen_pct(self, earlier: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(earlier.all).filter(|all| *all > 0)?;
        Some(self.stolen.saturating_sub(earlier.stolen) as f64 * 100.0 / all as f64)
    }
}

#[cfg(test)]
mod tests;
