//! disk.yaml: what is written is read, and what makes no disk is refused at its line.

use std::path::Path;

use plimsoll_core::Op;
use plimsoll_files::setup::DiskChoice;
use plimsoll_files::{Code, disk};
use plimsoll_sim::device::presets;
use plimsoll_sim::fit::{Cell, fit};

/// A disk of 100,000 reads/s or 1 GB/s, measured up to what it carries.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for write in 0..9 {
        for read in 0..9 - write {
            let p50_ns = 100e3 * (1.0 + 0.1 * f64::from(write + read));
            let (write_bytes_per_s, read_iops) = (f64::from(write) * 125e6, f64::from(read) * 12_500.0);
            cells.push(Cell { write_bytes_per_s, read_iops, p50_ns, p95_ns: p50_ns * 1.5 });
        }
    }
    cells
}

#[test]
fn every_preset_and_a_fit_survive_writing_and_reading() {
    let mut models: Vec<disk::DiskModel> =
        presets::names().filter_map(presets::find).map(|preset| disk::DiskModel::of_preset(&preset)).collect();
    models.push(disk::DiskModel::of_fit(&fit(&cells()).unwrap()));
    for model in models {
        let text = disk::write(&model);
        let read = disk::parse("disk.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(disk::write(&read), text);
        assert_eq!(read.figures, model.figures);
        assert_eq!(read.tables, model.tables);
        assert_eq!((read.max_io_requests, read.num_io_queues), (model.max_io_requests, model.num_io_queues));
        let (was, is) = (model.device.unwrap(), read.device.unwrap());
        assert_eq!((&is.rates, &is.flash, &is.weather, &is.raid0), (&was.rates, &was.flash, &was.weather, &was.raid0));
        assert_eq!((&is.caps, &is.hdd, &is.buffer, &is.channels), (&was.caps, &was.hdd, &was.buffer, &was.channels));
        assert_eq!((&is.latency, &is.interference), (&was.latency, &was.interference));
        assert_eq!(is.latency_surface.is_some(), was.latency_surface.is_some());
    }
}

#[test]
fn a_fit_gives_the_scheduler_what_the_frontier_shows() {
    let fit = fit(&cells()).unwrap();
    let model = disk::DiskModel::of_fit(&fit);
    let config = model.config();
    let long_write_s = config.model.cost(Op::Write, 128 << 10).as_secs_f64();
    let carried = f64::from(128 << 10) / long_write_s;
    assert!((carried / fit.frontier.write_bytes_per_s - 1.0).abs() < 0.01, "{carried}");
    let reads = 1.0 / config.model.cost(Op::Read, 4096).as_secs_f64();
    assert!((reads / fit.frontier.read_iops - 1.0).abs() < 0.01, "{reads}");
    assert!(config.unloaded_latency_ns > 0);
}

#[test]
fn what_makes_no_disk_is_refused_at_its_line() {
    let figures = "disk:\n  read_iops: 1000\n  read_bandwidth: 1M\n  write_iops: 1000\n  write_bandwidth: 1M\n";
    let with = |rest: &str| format!("{figures}{rest}");
    let cases = [
        ("device: {}".to_owned(), Code::MissingKey, "disk"),
        (figures.replace("read_iops: 1000", "read_iops: 0"), Code::OutOfRange, "write 1 to"),
        (figures.replace("  write_iops: 1000\n", ""), Code::MissingKey, "are needed"),
        (with("  mix_exponent: 0\n"), Code::OutOfRange, "above 0"),
        (with("  mix_exponnt: 1\n"), Code::UnknownKey, "mix_exponent"),
        (with("  model: cubic\n"), Code::InvalidValue, "knee"),
        (with("  read_table: [[4096, 1]]\n"), Code::MissingKey, "both tables"),
        (with("  read_table: [[4096, 1]]\n  write_table: [[4096, 1]]\n"), Code::InvalidValue, "pairs"),
        (with("device:\n  rates: {read_iops: 0}\n"), Code::OutOfRange, "positive"),
        (with("device:\n  rates: {read_ops: 5}\n"), Code::UnknownKey, "read_iops"),
        (with("device:\n  raid0: {members: 0}\n"), Code::OutOfRange, "1 to 256"),
        (with("device:\n  latency_surface: {p50_ns: [1]}\n"), Code::MissingKey, "levels"),
        (with("device:\n  caps: [{unit: bits, base_per_s: 1}]\n"), Code::InvalidValue, "bytes"),
    ];
    for (text, code, help) in cases {
        let error = disk::parse("disk.yaml", &text).expect_err(&text);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.help().is_some_and(|advice| advice.contains(help)), "expected {help}:\n{error}");
        assert!(error.line().is_some() && error.key().is_some(), "{error}");
    }
}

#[test]
fn names_that_are_no_disk_get_a_suggestion() {
    let error = disk::find("i4i.2xlarg", Path::new("")).unwrap_err();
    assert!(error.to_string().contains("did you mean `i4i.2xlarge`"), "{error}");
    let error = disk::find("nowhere.yaml", Path::new("")).unwrap_err();
    assert!(error.to_string().contains("plimsoll presets list"), "{error}");
}

#[test]
fn a_disk_says_its_depth() {
    let of = |name: &str| disk::find(name, Path::new("")).unwrap().max_io_requests;
    assert_eq!((of("850-pro"), of("i4i.2xlarge")), (Some(30), None));
    let four = "disk: {read_iops: 1k, read_bandwidth: 1M, write_iops: 1k, write_bandwidth: 1M";
    let text = format!("{four}, max_io_requests: 30, num_io_queues: 6, decay_tau_ns: 20000000}}");
    let model = disk::parse("d", &text).unwrap();
    let choice = DiskChoice { disk: Some(model.clone()), ..DiskChoice::default() };
    assert_eq!(choice.setup(Path::new(".")).unwrap().decay_tau_ns, 20_000_000);
    assert_eq!(disk::parse("again", &disk::write(&model)).unwrap().decay_tau_ns, 20_000_000);
    assert_eq!((model.max_io_requests, model.num_io_queues), (Some(30), Some(6)));
    for bad in ["max_io_requests: 0", "num_io_queues: 65536", "decay_tau_ns: 999999"] {
        assert_eq!(disk::parse("d", &format!("{four}, {bad}}}")).unwrap_err().code(), Code::OutOfRange, "{bad}");
    }
}
