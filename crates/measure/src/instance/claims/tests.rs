use super::*;

#[test]
fn the_claims_of_the_article_come_out_with_their_reasons() {
    let report = check();
    assert_eq!(report.claims.len(), article::claims().len(), "a claim names what is not there");
    let wrong: Vec<(&str, Option<SlipKind>)> = report
        .claims
        .iter()
        .filter(|claim| claim.verdict == Verdict::Wrong)
        .map(|claim| (claim.claim, claim.slip))
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
    let stress = report.claims.iter().filter(|claim| claim.claim.starts_with("stress-ng"));
    assert_eq!(stress.filter(|claim| claim.verdict == Verdict::Exact).count(), 9);

    let of = |start: &str| report.claims.iter().find(|claim| claim.claim.starts_with(start)).unwrap();
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

#[test]
fn verdicts_and_the_slips_that_prove_them() {
    let (i3, metal, i3en) = ("i3.16xlarge", "i3.metal", "i3en.24xlarge");
    let percent = |figure, stated| Claim::new("c", Formula::Percent { figure, of: i3en, against: i3 }, stated);
    let turned = |figure| Formula::Percent { figure, of: i3, against: i3en };
    let value = |figure, stated| Claim::new("c", Formula::Value { figure, of: metal }, stated);
    let share = |figure, against| Formula::Share { figure, of: i3en, against };
    let cases = [
        (
            percent("cpu.cores", "-33 %").slip(SlipKind::SwappedBase, turned("cpu.cores"), "w"),
            Verdict::Wrong,
            Some(SlipKind::SwappedBase),
        ),
        (
            percent("stress_ng.cache", "141.5 %").slip(SlipKind::OfForMore, share("stress_ng.cache", i3), "w"),
            Verdict::Wrong,
            Some(SlipKind::OfForMore),
        ),
        // The slip does not give the stated number, or nothing is wrong.
        (
            percent("disk.read_iops", "20.8 %").slip(SlipKind::OtherBase, share("disk.read_iops", metal), "w"),
            Verdict::Wrong,
            None,
        ),
        (
            percent("stress_ng.cache", "41.51 %").slip(SlipKind::SwappedBase, turned("stress_ng.cache"), "w"),
            Verdict::Exact,
            None,
        ),
        (percent("stress_ng.cache", "77 %"), Verdict::Wrong, None),
        (value("disk.bytes", "15.2 TB"), Verdict::Exact, None),
        (
            Claim::new("c", Formula::Share { figure: "disk.bytes", of: metal, against: i3en }, "25 %"),
            Verdict::Exact,
            None,
        ),
        (
            Claim::new("c", Formula::Value { figure: "network.received_bits_per_s", of: i3en }, "95.1 Gbit/s"),
            Verdict::Exact,
            None,
        ),
        (value("disk.read_iops", "4 M IOPS").above(), Verdict::Wrong, None),
        (value("disk.read_iops", "3.1 M IOPS").above(), Verdict::WithinRounding, None),
    ];

    let machines = Machine::all();
    for (claim, verdict, slip) in cases {
        let checked = check_one(&claim, &machines).unwrap();
        assert_eq!((checked.verdict, checked.slip), (verdict, slip), "{checked:?}");
        assert_eq!(checked.why.is_empty(), verdict == Verdict::Exact, "{checked:?}");
    }
}

#[test]
fn outputs_hold_every_claim() {
    let report = check();
    let csv = to_csv(&report);
    assert_eq!(csv.lines().count(), report.claims.len() + 1);
    assert!(csv.contains(",other_prefix,binary-prefix,"), "{csv}");
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["schema"], &json["wrong"]), (&serde_json::json!(3), &serde_json::json!(8)));
    let page = page(&report);
    assert!(page.contains("8 of ") && !page.contains("NaN"));
}
