use super::*;
use crate::stat::{Basis, Columns, DeviceInterval, GroupObserved, Part};

fn judged(device: &str, kib_per_s: f64) -> Judged {
    let columns =
        Columns { write_kib_per_s: Some(kib_per_s), queue: Some(2.0), util_percent: Some(99.0), ..Columns::default() };
    Judged {
        interval: DeviceInterval { device: device.to_owned(), columns, ..DeviceInterval::default() },
        capacity_use: Some(0.03),
        capacity_basis: Basis::Model("disk.yaml".to_owned()),
        saturation: Some(0.0),
        ..Judged::default()
    }
}

fn observed(loads: &[f64]) -> Observed {
    let sum: f64 = loads.iter().sum();
    let name = |index: usize| format!("nvme{index}n1");
    let part = |(index, load): (usize, &f64)| Part { device: name(index), bytes_share: load / sum, await_ms: None };
    Observed {
        duration_s: Some(2.0),
        devices: loads.iter().enumerate().map(|(index, load)| judged(&name(index), *load)).collect(),
        groups: vec![GroupObserved {
            group: "md0".to_owned(),
            parts: loads.iter().enumerate().map(part).collect(),
            effective_devices: super::super::groups::effective_devices(loads),
            ..GroupObserved::default()
        }],
        ..Observed::default()
    }
}

fn lines(chart: &Chart) -> Vec<(&str, &[(f64, f64)])> {
    let line = |layer: &'_ Layer| matches!(layer, Layer::Line { .. });
    let layers = chart.layers.iter().filter(|layer| line(layer));
    layers
        .filter_map(|layer| match layer {
            Layer::Line { name, points, .. } => Some((name.as_str(), points.as_slice())),
            _ => None,
        })
        .collect()
}

#[test]
fn every_figure_has_its_chart() {
    let mut series = Series::default();
    series.push(&Observed { is_since_boot: true, ..observed(&[1.0]) });
    series.push(&Observed { may_be_since_boot: true, ..observed(&[1.0]) });
    let charts = |series: &Series| PICTURES.iter().flat_map(|name| series.picture(name)).collect::<Vec<Chart>>();
    assert!(charts(&series).is_empty());

    series.push(&observed(&[300.0, 100.0]));
    series.push(&observed(&[100.0, 300.0]));
    let charts = charts(&series);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    let expected = [
        "Throughput of each device",
        "Capacity use (U), and %util, which misleads",
        "Queue saturation (S)",
        "Requests under way",
        "md0: part of each device of the bytes moved",
        "md0: how many devices do the work",
    ];
    assert_eq!(titles, expected);

    assert_eq!(lines(&charts[0])[0], ("nvme0n1", &[(1e9, 300.0 * 1024.0), (3e9, 100.0 * 1024.0)][..]));
    let names: Vec<&str> = lines(&charts[1]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["nvme0n1 U", "nvme0n1 %util (misleads)", "nvme1n1 U", "nvme1n1 %util (misleads)"]);
    assert_eq!(lines(&charts[4])[1], ("nvme1n1", &[(1e9, 0.25), (3e9, 0.75)][..]));
    assert_eq!(lines(&charts[5])[0].1[0].1, f64::from(1.6f32));
    assert!(plimsoll_show::plot::svg("stat", &charts).contains("%util (misleads)"));
    assert!(series.picture("another").is_empty());
}

#[test]
fn a_long_series_keeps_its_ends_and_its_mean_in_bounded_memory() {
    let mut series = Series::default();
    let count = 20_000;
    for index in 0..count {
        series.push(&observed(&[f64::from(index), 1.0]));
    }
    assert!(series.samples.len() < SAMPLES_MAX);
    let charts = series.picture("throughput");
    let points = lines(&charts[0])[0].1;
    assert!(points.len() > SAMPLES_MAX / 2 - 1, "{}", points.len());
    let (first, last) = (points[0], points[points.len() - 1]);
    assert!(first.0 < 100e9 && last.0 > 0.995 * 2e9 * f64::from(count), "{first:?} {last:?}");
    // The load grows by 1 an interval, so each point's value is the number of the interval at its time.
    for (at_ns, bytes) in points {
        let index = at_ns / 2e9 - 0.5;
        assert!((bytes / 1024.0 - index).abs() < 1.0, "{bytes} at {at_ns}");
    }
}

#[test]
fn devices_come_and_go_and_many_are_cut() {
    let mut series = Series::default();
    series.push(&observed(&[5.0]));
    series.push(&observed(&(0..20).map(f64::from).collect::<Vec<_>>()));
    series.push(&Observed::default());
    let charts = series.picture("throughput");
    let names: Vec<&str> = lines(&charts[0]).into_iter().map(|(name, _)| name).collect();
    assert!(names.len() == 12 && names.contains(&"nvme8n1") && names.contains(&"nvme19n1"), "the busiest: {names:?}");
    assert!(names.is_sorted(), "colours follow the order, as in pictures of groups: {names:?}");
    assert_eq!(charts[0].note.as_deref(), Some("The 12 busiest of 20 devices."));
    for _ in 0..3 {
        series.push(&observed(&vec![1.0; 1000]));
    }
    assert_eq!(series.curves.len(), CURVES_MAX);
}

#[test]
fn idle_devices_are_left_out_and_hung_ones_are_not() {
    let mut interval = observed(&[5.0, 0.0, 0.0]);
    interval.devices[1].interval.columns.queue = Some(0.0);
    let mut series = Series::default();
    series.push(&interval);
    let charts = series.picture("throughput");
    let names: Vec<&str> = lines(&charts[0]).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["nvme0n1", "nvme2n1"]);
}
