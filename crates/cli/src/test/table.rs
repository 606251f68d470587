//! The result of a single run for people.

use plimsoll_figures::units::{format_bytes_binary, format_iops, format_throughput_decimal};
use plimsoll_measure::experiment::words::us;
use plimsoll_measure::report::{DirectionReport, JobReport, TestReport};

use crate::screen;

pub(super) fn table(report: &TestReport) -> String {
    let own = |job: &JobReport| {
        // Latencies without requests are unknown, not zero. Jobs that compute or unlink move no bytes.
        let of_requests = |text: String| if job.requests > 0 { text } else { "-".to_owned() };
        let of_bytes = |text: String| if job.bytes > 0 || job.requests == 0 { text } else { "-".to_owned() };
        vec![
            job.name.clone(),
            job.kind.to_owned(),
            job.shares.to_string(),
            of_bytes(format_bytes_binary(job.request_bytes)),
            format_iops(job.iops),
            of_bytes(format_throughput_decimal(job.throughput_bytes_per_s)),
            of_requests(us(job.latency.p50_us)),
            of_requests(us(job.latency.p99_us)),
            of_requests(us(job.latency.p99_9_us)),
            format!("{:.1}", job.device_depth.average),
        ]
    };
    // A job that mixes directions has a line for each below its own; one that flushes, a line for its flushes.
    let part = |kind: &str, part: &DirectionReport| {
        let empty = String::new;
        vec![
            empty(),
            kind.to_owned(),
            empty(),
            empty(),
            format_iops(part.iops),
            format_throughput_decimal(part.throughput_bytes_per_s),
            us(part.latency.p50_us),
            us(part.latency.p99_us),
            us(part.latency.p99_9_us),
            empty(),
        ]
    };

    let mut headers = vec!["job", "type", "shares", "size", "IOPS", "rate", "p50", "p99", "p99.9", "depth"];
    let mut rows: Vec<Vec<String>> = Vec::new();
    // Indices of the jobs' own lines.
    let mut lines: Vec<usize> = Vec::new();
    for job in &report.jobs {
        lines.push(rows.len());
        rows.push(own(job));
        let parts = [("- reads", &job.reads), ("- writes", &job.writes), ("- flushes", &job.flushes)];
        rows.extend(parts.into_iter().filter_map(|(kind, direction)| Some(part(kind, direction.as_ref()?))));
    }
    // Omit columns of zeros, which would take width from the others.
    let splits: Vec<u64> = report.jobs.iter().map(|job| job.io_queue.map_or(0, |q| q.split)).collect();
    let errors: Vec<u64> = report.jobs.iter().map(|job| job.errors).collect();
    let faults: Vec<u64> = report.jobs.iter().map(|job| job.fault_count).collect();
    let overdue: Vec<u64> = report.jobs.iter().map(|job| job.overdue).collect();
    for (name, counts) in [("splits", splits), ("errors", errors), ("faults", faults), ("overdue", overdue)] {
        if counts.iter().any(|count| *count > 0) {
            headers.push(name);
            rows.iter_mut().enumerate().for_each(|(at, row)| {
                let count = lines.iter().position(|line| *line == at).and_then(|job| counts.get(job));
                row.push(count.map_or_else(String::new, u64::to_string));
            });
        }
    }

    let mut text = screen::table(&headers, rows);
    // Jobs may run one after another, with rates over their own times: compute the totals over the whole run.
    let moving = || report.jobs.iter().filter(|job| job.bytes > 0);
    let a_second = |count: u64| if report.elapsed_s > 0.0 { count as f64 / report.elapsed_s } else { 0.0 };
    let total = a_second(moving().map(|job| job.bytes).sum());
    let iops = a_second(moving().map(|job| job.requests).sum());
    let cpu = report.cpu_s_per_million_requests.map_or_else(String::new, |s| format!(", {s:.2} CPU s per million"));
    let total = format!(
        "Total {} IOPS, {} in {:.2} s on {} shard(s), backend {} ({}){cpu}",
        format_iops(iops),
        format_throughput_decimal(total),
        report.elapsed_s,
        report.made.shards,
        report.made.backend,
        report.made.backend_reason
    );
    text.push_str(&format!("\n\n{}\n", screen::wrap(&total)));
    text.push_str("depth: mean number of pieces of the class in the device");
    text.push_str(if headers.contains(&"splits") { "; splits: requests sent in several pieces\n" } else { "\n" });
    text
}
