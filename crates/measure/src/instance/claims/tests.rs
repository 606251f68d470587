use super::*;

fn text(claims: &str) -> String {
    format!(
        "source: a\ndate: 2019-05\nmachines:\n  - {{card: i3.16xlarge, price_per_core_year: 880.50 USD}}\n  \
         - {{card: i3.metal}}\n  - {{card: i3en.24xlarge}}\nclaims:\n{claims}"
    )
}

fn one(claim: &str) -> Checked {
    let ledger = parse("c.yaml", &text(&format!("  - {{claim: c, {claim}}}\n")), &find_published).unwrap();
    check(&ledger).claims.remove(0)
}

#[test]
fn the_ledger_of_the_article_comes_out_with_its_reasons() {
    let report = check(&built_in().unwrap());
    let wrong: Vec<(&str, Option<&str>)> = report
        .claims
        .iter()
        .filter(|claim| claim.verdict == Verdict::Wrong)
        .map(|claim| (claim.claim.as_str(), claim.slip))
        .collect();
    assert_eq!(
        wrong,
        [
            ("i3.16xlarge has 480 GB per core", Some("other-input")),
            ("i3.metal has 426 GB per core", Some("other-input")),
            ("a TB of i3.16xlarge costs 1,857.96 USD a year", None),
            ("a TB of i3.metal costs 1,857.06 USD a year", Some("rounded-input")),
            ("i3en.24xlarge has 50 % more cores than i3.metal", Some("other-base")),
            ("i3en.24xlarge has 400 % more storage than i3.metal", Some("of-for-more")),
            ("the L3 cache of i3en is a 36 % decrease", Some("swapped-base")),
            ("5 tables of 90 billion keys of 1 kB are around 45 TB", Some("power-of-ten")),
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
fn the_tables_of_the_article_come_out() {
    let tables = check(&built_in().unwrap()).tables;
    let names: Vec<(&str, usize, usize)> = tables.iter().map(|t| (t.name, t.machines.len(), t.rows.len())).collect();
    assert_eq!(names, [("economics", 3, 3), ("processors", 2, 9), ("storage", 3, 4)]);
    assert_eq!(
        tables[0].cells()[2],
        ["price per TB", "USD a year", "1,853.68", "1,832.64", "-1.14 %", "1,006.74", "-45.69 %"]
    );
    let differences: Vec<String> = tables[1].cells().into_iter().filter_map(|row| row.last().cloned()).collect();
    let published = ["+41.51", "+36.70", "+25.31", "+12.48", "-2.02", "-32.85", "+20.52", "+13.67", "+16.03"];
    assert_eq!(differences, published.map(|percent| format!("{percent} %")));
    assert_eq!(tables[2].cells()[2], ["random write", "k IOPS", "830", "1,400", "+68.67 %", "1,600", "+92.77 %"]);
}

#[test]
fn verdicts_and_the_slips_that_prove_them() {
    let percent = |figure: &str, stated: &str, slip: &str| {
        let slip = if slip.is_empty() { String::new() } else { format!(", slip: {{{slip}, why: w}}") };
        format!("kind: percent, figure: {figure}, of: i3en.24xlarge, against: i3.16xlarge, stated: \"{stated}\"{slip}")
    };
    let value = |figure: &str, rest: &str| format!("kind: value, figure: {figure}, of: i3.metal, {rest}");
    let turned = "name: swapped-base, of: i3.16xlarge, against: i3en.24xlarge";
    let cases = [
        (percent("cpu.l3_bytes", "36 %", turned), Verdict::Wrong, Some("swapped-base")),
        (percent("cpu.cores", "-33 %", turned), Verdict::Wrong, Some("swapped-base")),
        (percent("stress_ng.cache", "141.5 %", "name: of-for-more, kind: share"), Verdict::Wrong, Some("of-for-more")),
        (
            percent("disk.read_iops", "92.8 %", "name: sister-figure, figure: disk.write_iops"),
            Verdict::Wrong,
            Some("sister-figure"),
        ),
        // The slip does not give the stated number, or nothing is wrong.
        (percent("disk.read_iops", "20.8 %", "name: sister-figure, figure: disk.write_iops"), Verdict::Wrong, None),
        (percent("stress_ng.cache", "41.509 %", turned), Verdict::Exact, None),
        (percent("stress_ng.cache", "77 %", ""), Verdict::Wrong, None),
        (
            value("disk.bytes", "stated: 13.82 TB, slip: {name: binary-prefix, stated: 13.82 TiB, why: w}"),
            Verdict::OtherPrefix,
            Some("binary-prefix"),
        ),
        (value("disk.bytes", "stated: 15.2 TB"), Verdict::Exact, None),
        (
            "kind: share, figure: disk.bytes, of: i3.metal, against: i3en.24xlarge, stated: 25 %".into(),
            Verdict::Exact,
            None,
        ),
        (
            "kind: value, figure: network.received_bits_per_s, of: i3en.24xlarge, stated: 95.1 Gbit/s".into(),
            Verdict::Exact,
            None,
        ),
        (value("disk.read_iops", "bound: above, stated: 4 M"), Verdict::Wrong, None),
        (value("disk.read_iops", "bound: above, stated: 3.1 M"), Verdict::WithinRounding, None),
    ];

    for (claim, verdict, slip) in cases {
        let checked = one(&claim);
        assert_eq!((checked.verdict, checked.slip), (verdict, slip), "{claim}: {}", checked.why);
        assert_eq!(checked.why.is_empty(), verdict == Verdict::Exact, "{claim}");
    }
}

#[test]
fn what_cannot_be_checked_is_refused_with_line_and_key() {
    let claim = |rest: &str| text(&format!("  - {{claim: c, {rest}}}\n"));
    let whole = "kind: value, figure: disk.bytes, of: i3.metal, stated: 15 TB";
    let good = claim(whole);
    let cases = [
        (String::new(), None, "nothing in this text"),
        ("claims: 3".to_owned(), Some(1), "needs `machines`"),
        (good.replace("source: a", "sauce: a"), Some(1), "did you mean `source`"),
        (good.replace("date: 2019-05\n", ""), Some(1), "needs `date`"),
        (good.replace("i3.metal}", "i3.meta}"), Some(5), "did you mean `i3.metal`"),
        (good.replace("card: i3.metal", "card: i3.16xlarge"), Some(5), "stands here twice"),
        (good.replace("card: i3.metal", "card: i3.metal, price_per_core_year: 700 EUR"), Some(5), "in one currency"),
        (good.replace("880.50 USD", "0 USD"), Some(4), "a price is above 0"),
        (claim("kind: valu, figure: disk.bytes, of: i3.metal, stated: 15 TB"), Some(8), "did you mean `value`"),
        (claim("kind: value, figure: disk.byte, of: i3.metal, stated: 15 TB"), Some(8), "did you mean `disk.bytes`"),
        (claim("kind: value, figure: stress_ng.cpu, of: i3.metal, stated: 15"), Some(8), "i3.metal has no figure"),
        (claim("kind: value, figure: disk.bytes, of: i4.metal, stated: 15 TB"), Some(8), "did you mean `i3.metal`"),
        (claim("kind: value, figure: disk.bytes, of: i3.metal, stated: 15 TBit"), Some(8), "no unit that is known"),
        (claim("kind: value, figure: disk.bytes, of: i3.metal, stated: 15 %"), Some(8), "does not fit the kind"),
        (claim("kind: value, figure: disk.bytes, of: i3.metal"), Some(8), "needs `stated`"),
        (
            claim("kind: value, against: i3.metal, figure: disk.bytes, of: i3.metal, stated: 1"),
            Some(8),
            "has no `against`",
        ),
        (claim("kind: product, factors: [disk.bytes], stated: 15 TB"), Some(8), "needs `of`"),
        (claim("kind: product, factors: [0, 1 kB], stated: 15 TB"), Some(8), "a factor is above 0"),
        (claim("kind: product, of: i3.metal, factors: [price_per_core_year], stated: 15"), Some(8), "has no figure"),
        (claim(&format!("{whole}, bound: over")), Some(8), "is not a bound"),
        (claim(&format!("{whole}, slip: {{name: swaped-base, why: w}}")), Some(8), "did you mean `swapped-base`"),
        (claim(&format!("{whole}, slip: {{name: swapped-base}}")), Some(8), "needs `why`"),
        (claim(&format!("{whole}, slip: {{name: swapped-base, why: \"\"}}")), Some(8), "the value is empty"),
        (
            claim(&format!("{whole}, slip: {{name: other-base, why: w, of: i4.metal}}")),
            Some(8),
            "did you mean `i3.metal`",
        ),
        (text("  []\n"), Some(8), "there is no claim"),
    ];

    assert!(parse("c.yaml", &good, &find_published).is_ok());
    for (text, line, part) in cases {
        let error = parse("c.yaml", &text, &find_published).unwrap_err();
        assert!(error.to_string().contains(part), "{error}: expected {part}");
        if line.is_some_and(|line| line > 1) {
            assert_eq!(error.line(), line, "{error}");
        }
    }
}

#[test]
fn outputs_hold_every_claim() {
    let reports = [check(&built_in().unwrap())];
    let csv = to_csv(&reports);
    assert_eq!(csv.lines().count(), reports[0].claims.len() + 1);
    assert!(csv.contains(",other_prefix,binary-prefix,"), "{csv}");
    let json: serde_json::Value = serde_json::to_value(&reports).unwrap();
    assert_eq!((&json[0]["schema"], &json[0]["wrong"]), (&serde_json::json!(1), &serde_json::json!(8)));
    assert_eq!(json[0]["tables"][1]["base"], "i3.16xlarge");
    let page = page(&reports);
    assert!(page.contains("8 of ") && page.contains("of i3.16xlarge") && !page.contains("NaN"));
}
