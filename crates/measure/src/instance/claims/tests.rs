use super::*;
use crate::instance::published;

#[test]
fn the_claims_of_the_article_come_out_with_their_reasons() {
    let report = report();
    let wrong: Vec<(&str, Option<SlipKind>)> = report
        .claims
        .iter()
        .filter(|claim| claim.verdict == Verdict::Wrong)
        .map(|claim| (claim.text.as_str(), claim.slip))
        .collect();
    assert_eq!(
        wrong,
        [
            ("i3.16xlarge has 480 GB per core", Some(SlipKind::OtherInput)),
            ("i3.metal has 426 GB per core", Some(SlipKind::OtherInput)),
            ("a TB of i3.16xlarge costs 1,857.96 USD a year", None),
            ("a TB of i3.metal costs 1,857.06 USD a year", Some(SlipKind::RoundedInput)),
            ("i3en.24xlarge has 50 % more cores than i3.metal", Some(SlipKind::OtherBase)),
            ("i3en.24xlarge has 400 % more storage than i3.metal", Some(SlipKind::OfForMore)),
            ("the L3 cache of i3en is a 36 % decrease", Some(SlipKind::SwappedBase)),
            ("5 tables of 90 billion keys of 1 kB are around 45 TB", Some(SlipKind::PowerOfTen)),
        ]
    );

    assert_eq!(report.wrong, wrong.len());
    let stress = report.claims.iter().filter(|claim| claim.text.starts_with("stress-ng"));
    assert_eq!(stress.filter(|claim| claim.verdict == Verdict::Exact).count(), 9);

    let of = |start: &str| report.claims.iter().find(|claim| claim.text.starts_with(start)).unwrap();
    for (start, verdict, computed) in [
        ("i3.16xlarge has 480", Verdict::Wrong, "475.0 GB"),
        ("a TB of i3en.24xlarge", Verdict::WithinRounding, "1,006.744 USD/TB"),
        ("the L3", Verdict::Wrong, "-26.7 %"),
        ("i3en.24xlarge has 50", Verdict::Wrong, "33.3 %"),
        ("i3en.24xlarge has 400", Verdict::Wrong, "294.7 %"),
        ("6.49 TB", Verdict::OtherPrefix, "86.53 Gbit/s"),
        ("4.26 GB", Verdict::OtherPrefix, "565.2 Mbit/s"),
        ("sends north of 5", Verdict::Exact, "6.1 M/s"),
        ("22 %", Verdict::Exact, "22.1 %"),
        ("write bandwidth is 27 % higher than that of i3.metal", Verdict::WithinRounding, "27.7 %"),
        ("random reads are 66", Verdict::WithinRounding, "66.7 %"),
        ("5 tables", Verdict::Wrong, "450.0 TB"),
        ("i3en.24xlarge reads at 2 M", Verdict::Exact, "2.0 M IOPS"),
    ] {
        assert_eq!((of(start).verdict, of(start).computed.as_str()), (verdict, computed), "{start}");
    }

    for (start, parts) in [
        ("the L3", ["45 MiB", "+36.4 %", "-26.7 %"]),
        ("i3en.24xlarge has 50", ["i3.16xlarge (32)", "i3.metal (36)", "+33.3 %"]),
        ("i3en.24xlarge has 400", ["60 TB", "394.7 %", "+294.7 %"]),
        ("6.49 TB", ["TiB", "2^40", "86.53 Gbit/s"]),
        ("a TB of i3.metal", ["15 TB", "15.2 TB", "1,832.637"]),
        ("i3.16xlarge has 480", ["15,360 GB", "15,200 GB", "i3.metal has 426 GB per core"]),
        ("i3.metal has 426", ["15,360 GB", "15,200 GB", "i3.16xlarge has 480 GB per core"]),
        ("5 tables", ["power of ten", "450.0 TB", "10 times too small"]),
    ] {
        parts.iter().for_each(|part| assert!(of(start).why.contains(part), "{start}: {}", of(start).why));
    }
}

/// A number as the article or the table writes it, and the weight of its last digit: `-36 %` is -36 and 1.
fn written(text: &str) -> (f64, f64) {
    let number = text.trim_start_matches(|c: char| c != '-' && !c.is_ascii_digit()).replace(',', "");
    let number = number.split(' ').next().unwrap();
    let decimals = number.split_once('.').map_or(0, |(_, behind)| behind.len());
    (number.parse().unwrap(), 10f64.powi(-(decimals as i32)))
}

/// Returns for each claim, in its unit, what the cards give, and what gives the stated number if that is not it: a known
/// error, or a price that was rounded afterwards.
fn computed() -> Vec<(f64, Option<f64>)> {
    let (i3, metal, i3en) = ("i3.16xlarge", "i3.metal", "i3en.24xlarge");
    let value = |of: &str, key: &str| published::find(of).and_then(|card| card.value(key)).unwrap();
    let percent = |key: &str, of: &str, against: &str| (value(of, key) / value(against, key) - 1.0) * 100.0;
    let gain = |key: &str| (percent(key, i3en, i3), None);
    let cores = |of: &str| value(of, "cpu.cores");
    let tb = |of: &str| value(of, "disk.bytes") / 1e12;
    let (tib, gib) = (2f64.powi(40), 2f64.powi(30));
    let table_1 = [
        (1e3 * tb(i3) / cores(i3), Some(15_360.0 / cores(i3))),
        (1e3 * tb(metal) / cores(metal), Some(15_360.0 / cores(metal))),
        (tb(i3en) / cores(i3en), None),
        (880.50 * cores(i3) / tb(i3), None),
        (773.78 * cores(metal) / tb(metal), Some(773.775 * cores(metal) / 15.0)),
        (1258.43 * cores(i3en) / tb(i3en), Some(1258.435 * cores(i3en) / tb(i3en))),
    ];
    let specifications = [
        (percent("cpu.cores", i3en, metal), Some(percent("cpu.cores", i3en, i3))),
        (percent("disk.bytes", i3en, metal), Some(100.0 * tb(i3en) / tb(metal))),
        (percent("cpu.l3_bytes", i3en, i3), Some(-percent("cpu.l3_bytes", i3, i3en))),
        (value(i3, "disk.read_bytes_per_s") / gib, None),
    ];
    let stressors = ["cache", "cpu", "dentry", "icache", "matrix", "memcpy", "qsort", "timer", "tsc"];
    let network = [
        (6.49e12 * 8.0 / 600.0 / 1e9, Some(6.49 * tib * 8.0 / 600.0 / 1e9)),
        (value(i3en, "network.packets_sent_per_s") / 1e6, None),
        (value(i3en, "network.packet_loss_pct"), None),
        (4.26e9 * 8.0 / 60.3 / 1e6, Some(4.26 * gib * 8.0 / 60.3 / 1e6)),
    ];
    let storage = [
        (value(i3en, "disk.read_iops") / 1e6, None),
        (value(i3en, "disk.read_bytes_per_s") / 1e9, None),
        gain("disk.write_bytes_per_s"),
        (percent("disk.write_bytes_per_s", i3en, metal), None),
        gain("disk.read_iops"),
        (5.0 * 90e9 * 1e3 / 1e12, Some(5.0 * 9e9 * 1e3 / 1e12)),
    ];
    let differences = stressors.map(|stressor| gain(&format!("stress_ng.{stressor}")));
    [&table_1[..], &specifications, &differences, &network, &storage].concat()
}

#[test]
fn every_number_of_the_table_is_computed_again() {
    let claims = report().claims;
    assert_eq!(claims.len(), computed().len());
    for (claim, (value, instead)) in claims.iter().zip(computed()) {
        let (stated, last_digit) = written(&claim.stated);
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
        assert!(near(claim.computed_value, value) && near(claim.stated_value, stated), "{value}: {claim:?}");
        let (shown, shown_digit) = written(&claim.computed);
        assert!((shown - value).abs() <= 0.501 * shown_digit, "{value}: {claim:?}");

        let is_bound_kept = (claim.stated.starts_with("above") && value > stated)
            || (claim.stated.starts_with("at least") && value >= stated);
        let rounds = |value: f64| (value - stated).abs() < 0.5 * last_digit;
        // Digits were cut off where rounding would have gone up, or the last digit is a zero that is rounding itself.
        let is_cut = |value: f64| (0.0..last_digit).contains(&(value.abs() - stated.abs()));
        let gives = |value: f64| rounds(value) || is_cut(value) || (stated == 400.0 && (value - stated).abs() < 50.0);
        let is_exact = rounds(value) || is_bound_kept;
        assert_eq!(is_exact, claim.verdict == Verdict::Exact, "{claim:?}");
        assert_eq!(is_exact, claim.why.is_empty(), "{claim:?}");
        assert!(instead.is_none_or(gives), "{instead:?}: {claim:?}");
        match claim.verdict {
            Verdict::Exact => assert!(instead.is_none() && claim.slip.is_none(), "{claim:?}"),
            Verdict::WithinRounding => assert!(is_cut(value) || instead.is_some(), "{claim:?}"),
            Verdict::OtherPrefix => assert_eq!(claim.slip, Some(SlipKind::BinaryPrefix), "{claim:?}"),
            Verdict::Wrong => assert_eq!(claim.slip.is_some(), instead.is_some(), "{claim:?}"),
        }
    }
}

#[test]
fn outputs_hold_every_claim() {
    let report = report();
    let csv = to_csv(&report);
    assert_eq!(csv.lines().count(), report.claims.len() + 1);
    assert!(csv.contains(",other_prefix,binary-prefix,"), "{csv}");
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["schema"], &json["wrong"]), (&serde_json::json!(3), &serde_json::json!(8)));
    let page = page(&report);
    assert!(page.contains("8 of ") && !page.contains("NaN"));
}
