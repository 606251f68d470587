//! Writes [`Info`] for programs: JSON, Seastar's YAML, CSV.
//!
//! **Why.** The forms are contracts; docs/formats.md describes them.
//!
//! **How.** JSON is the structure itself, units in its names. YAML is the output of Seastar's `ioinfo`, and nothing
//! else. CSV has a line for each disk and size.
//!
//! **Limits.** A missing limit is null in JSON and YAML, and empty in CSV.
//!
//! **Example.** `disks[0].forms.knee.sizes[3].read_iops` is the rate of 4 KiB reads per second by the knee.

use std::fmt::{Display, Write as _};

use plimsoll_figures::units::quoted;

use super::{Info, IoInfo, SIZES_BYTES};

impl Info {
    /// Returns YAML: `ioinfo`'s map, or for several disks a list of maps, each under a comment with the disk's name.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        if let [disk] = self.disks.as_slice() {
            write_map(&mut text, &disk.ioinfo, ["", ""]);
            return text;
        }
        for disk in &self.disks {
            let _ = writeln!(text, "# {}", quoted(disk.label()));
            write_map(&mut text, &disk.ioinfo, ["- ", "  "]);
        }
        text
    }

    /// Returns CSV: a header, then a line for each disk and size, with the columns of each form. `disk` is the position
    /// of the disk in the file, from 1.
    pub fn to_csv(&self) -> String {
        let mut text = String::from("disk,bytes");
        for form in self.disks.first().map_or(&[][..], |disk| &disk.forms) {
            for column in ["read_cost_ns", "write_cost_ns", "read_iops", "mixed_iops", "write_iops"] {
                let _ = write!(text, ",{}_{column}", form.name);
            }
        }
        text.push('\n');

        for disk in &self.disks {
            for bytes in SIZES_BYTES {
                let _ = write!(text, "{},{bytes}", disk.ioinfo.io_queue.id);
                for size in disk.forms.iter().filter_map(|form| form.size(bytes)) {
                    let _ = write!(text, ",{:.3},{:.3}", size.read_cost_ns, size.write_cost_ns);
                    for iops in [size.read_iops, size.mixed_iops, size.write_iops] {
                        let _ = write!(text, ",{}", iops.map_or_else(String::new, |iops| format!("{iops:.3}")));
                    }
                }
                text.push('\n');
            }
        }
        text
    }
}

/// Writes one map; its first line begins with `indent[0]`, the others with `indent[1]`.
fn write_map(text: &mut String, info: &IoInfo, indent: [&str; 2]) {
    let (queue, fair) = (&info.io_queue, &info.fair_queue);
    let mut lines = vec![
        format!("disk_read_max_length: {}", value(info.disk_read_max_length)),
        format!("disk_write_max_length: {}", value(info.disk_write_max_length)),
        format!("device: {}", value(info.device)),
        format!("io_latency_goal_ms: {}", info.io_latency_goal_ms),
        "io_queue:".to_owned(),
        format!("  id: {}", queue.id),
        format!("  req_count_rate: {}", value(queue.req_count_rate)),
        format!("  blocks_count_rate: {}", value(queue.blocks_count_rate)),
        format!("  disk_req_write_to_read_multiplier: {}", queue.disk_req_write_to_read_multiplier),
        format!("  disk_blocks_write_to_read_multiplier: {}", queue.disk_blocks_write_to_read_multiplier),
        "fair_queue:".to_owned(),
        "  capacities:".to_owned(),
    ];

    for (bytes, capacity) in &fair.capacities {
        lines.push(format!("    {bytes}:"));
        lines.push(format!("      read: {}", capacity.read));
        lines.push(format!("      write: {}", capacity.write));
    }

    lines.extend([
        format!("  per_tick_grab_threshold: {}", fair.per_tick_grab_threshold),
        "  token_bucket:".to_owned(),
        format!("    limit: {}", fair.token_bucket.limit),
        format!("    rate: {}", fair.token_bucket.rate),
        format!("    threshold: {}", fair.token_bucket.threshold),
    ]);

    let [first, others] = indent;
    for (number, line) in lines.iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if number == 0 { first } else { others });
    }
}

fn value(value: Option<impl Display>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}
