use super::gather::{of_cards, of_presets};
use super::*;
use crate::instance::Card;

fn shapes(report: &ScalingReport) -> Vec<(&str, Shape)> {
    report.families.iter().flat_map(|family| &family.figures).map(|figure| (figure.title, figure.shape)).collect()
}

/// The figures of the article on i7i. AWS advertises 150,000 reads and 82,500 writes per 4 vCPUs. Reads are as
/// advertised up to 4xlarge and 25 % below at 48xlarge, writes 25 % below at 4xlarge and 42 % at 48xlarge. Bandwidth is
/// fio's up to 4xlarge, then 8.5 GB/s, where 9.6 GB/s are expected of 12xlarge and fio has 40 GB/s on 48xlarge.
const ARTICLE: &str = "\
instance,read_iops,write_iops,write_bytes_per_s,advertised_read_iops,advertised_write_iops,advertised_write_bytes_per_s
i7i.4xlarge,600000,247500,3370000000,600000,330000,3370000000
i7i.12xlarge,,,8500000000,,,9600000000
i7i.48xlarge,5400000,2296800,8500000000,7200000,3960000,40000000000
";

#[test]
fn the_two_faults_of_the_article_are_told_apart() {
    let report = report(parse_csv("i7i.csv", ARTICLE).unwrap());
    assert_eq!(
        shapes(&report),
        [("read IOPS", Shape::ScalesButLow), ("write IOPS", Shape::ScalesButLow), ("write bandwidth", Shape::Plateaus)]
    );
    let [reads, writes, bandwidth] = &report.families[0].figures[..] else { panic!("three figures") };

    assert_eq!(reads.departs_from.as_deref(), Some("i7i.48xlarge"));
    assert!(reads.sentence.contains("-25 % at i7i.48xlarge"), "{}", reads.sentence);
    assert_eq!(writes.departs_from.as_deref(), Some("i7i.4xlarge"));
    for part in ["-25 % at i7i.4xlarge", "-42 % at i7i.48xlarge", "further behind"] {
        assert!(writes.sentence.contains(part), "{}", writes.sentence);
    }
    let plateau = bandwidth.plateau.as_ref().unwrap();
    assert_eq!((plateau.value, plateau.from.as_str(), plateau.sizes), (8.5e9, "i7i.12xlarge", 2));
    assert!(plateau.causes[0].contains("2^33") && plateau.causes[0].contains("8.59 GB/s"), "{:?}", plateau.causes);
    assert!(report.has_finding());
}

/// The article's fio measured 40 GB/s at the largest size, where its own tool stayed at 8.5.
#[test]
fn references_stand_beside_what_is_judged_and_judge_nothing() {
    let text = "\
instance,read_bytes_per_s,advertised_read_bytes_per_s,reference_read_bw
i7i.4xlarge,4200000000,4300000000,4200000000
i7i.12xlarge,8500000000,9600000000,
i7i.48xlarge,8500000000,40000000000,40000000000
";
    let report = report(parse_csv("r.csv", text).unwrap());
    assert_eq!(report.warnings, [""; 0]);
    let figure = &report.families[0].figures[0];
    let ends = |cells: &[String]| cells[5..].to_vec();
    assert_eq!(figure.headers()[5..], ["reference", "difference from it"]);
    let cells: Vec<_> = figure.cells().iter().map(|cells| ends(cells)).collect();
    assert_eq!(cells, [["4.20 GB/s", "+0.0 %"], ["-", "-"], ["40.0 GB/s", "-78.8 %"]]);
    assert!(to_csv(&report).ends_with(",plateaus,40000000000,-78.75\n"), "{}", to_csv(&report));

    let without: String = text.lines().map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n").collect();
    let plain = super::report(parse_csv("r.csv", &without).unwrap());
    assert_eq!(
        (plain.families[0].figures[0].headers().len(), &plain.families[0].figures[0].sentence),
        (5, &figure.sentence)
    );
}

#[test]
fn figures_per_disk_need_the_number_of_disks() {
    let with = |disks: &str, basis: &str| {
        let row = |name: &str| format!("{name},{disks},{basis},100000\n");
        format!("instance,n_disks,basis,read_iops\n{}{}", row("i9.2xlarge"), row("i9.4xlarge"))
    };
    let refused = |disks, basis| parse_csv("r.csv", &with(disks, basis)).map(|_| ()).unwrap_err().to_string();
    assert!(parse_csv("r.csv", &with("2", "per_disk")).is_ok() && parse_csv("r.csv", &with("", "")).is_ok());
    assert!(refused("", "per_disk").contains("n_disks"));
    assert!(refused("2", "per-disk").contains("instance_total"));
}

#[test]
fn a_single_size_at_a_power_of_two_is_a_plateau_and_a_wrong_advertisement_is_set_aside() {
    // Measured with a limit of 2^33 B/s; the advertised reads of 16xlarge have a digit too many.
    let text = "\
instance,read_iops,read_bandwidth_Bps,advertised_read_iops,advertised_write_iops,measured_read_iops,measured_read_bw,\
measured_write_iops,state
i4i.2xlarge,200633,1427463808,200000,110000,,,,\"current, (x)\"
i4i.4xlarge,401266,2854927616,400000,220000,302635,2853325312,221201,\"current, (x)\"
i4i.8xlarge,802532,5709855232,800000,440000,519944,5704762368,442395,\"current, (x)\"
i4i.16xlarge,1605064,11419710464,16000000,880000,752697,8585068032,750060,\"current, (x)\"
im4gn.16xlarge,1004212,8264334848,1000000,800000,556572,8128993280,497509,
";
    let report = report(parse_csv("r.csv", text).unwrap());
    assert_eq!(
        shapes(&report),
        [("read IOPS", Shape::ScalesButLow), ("read bandwidth", Shape::Plateaus), ("write IOPS", Shape::ScalesButLow)]
    );

    let figures = &report.families[0].figures;
    assert!(figures[1].sentence.contains("seen at i4i.16xlarge only") && figures[1].sentence.contains("2^33"));
    assert_eq!(figures[0].points[2].advertised, Some(1_605_064.0), "what was expected stands in");
    assert!(figures[0].sentence.contains("look before the disks"), "{}", figures[0].sentence);
    let kinds: Vec<_> = figures[0].points.iter().map(|point| point.advertised_kind).collect();
    assert_eq!(kinds, [Some(AdvertisedKind::Stated), Some(AdvertisedKind::Stated), Some(AdvertisedKind::Expected)]);
    assert!(figures[0].cells()[2][3].ends_with("(expected)") && to_csv(&report).contains(",expected,"));
    assert!(figures[1].sentence.contains("where expected are"), "{}", figures[1].sentence);

    let warnings = report.warnings.join("\n");
    for part in
        ["not read: state", "10 times", "expected, 1605064, stands in", "i4i.2xlarge", "one measured size: im4gn"]
    {
        assert!(warnings.contains(part), "no `{part}` in {warnings}");
    }
}

/// Name; vCPUs, measured, advertised (0 for none) and disks of each size; shape; part of the sentence.
type Case<'c> = (&'c str, &'c [(f64, f64, f64, u32)], Shape, &'c str);

#[test]
fn shapes_of_invented_families() {
    let family = |rows: &[(f64, f64, f64, u32)]| {
        let size = |(vcpus, measured, advertised, disks): &(f64, f64, f64, u32)| Size {
            name: format!("x.{vcpus}"),
            vcpus: *vcpus,
            n_disks: Some(*disks),
            measured: [Some(*measured), None, None, None],
            advertised: [(*advertised > 0.0).then_some((*advertised, AdvertisedKind::Stated)), None, None, None],
            reference: [None; 4],
            submission_ns: Some(2000.0),
        };
        let sizes = rows.iter().map(size).collect();
        let mut report =
            report(Input { families: vec![Family { name: "x".into(), source: "t".into(), sizes }], warnings: vec![] });
        report.families.remove(0).figures.remove(0)
    };

    let cases: [Case<'_>; 12] = [
        ("right", &[(2.0, 1e5, 1e5, 1), (4.0, 1.9e5, 2e5, 2)], Shape::AsAdvertised, "as advertised"),
        ("middle", &[(2.0, 1e5, 1e5, 1), (4.0, 1e5, 2e5, 1), (8.0, 4e5, 4e5, 2)], Shape::LowAtSomeSizes, "x.4 (-50 %)"),
        (
            "metal without an advertised figure",
            &[(2.0, 7e4, 1e5, 1), (4.0, 1.4e5, 2e5, 2), (4.0, 1.4e5, 0.0, 2)],
            Shape::ScalesButLow,
            "same part is missing",
        ),
        (
            "larger sizes without an advertised figure",
            &[(2.0, 1e5, 1e5, 1), (4.0, 1.4e5, 2e5, 2), (8.0, 2.8e5, 0.0, 4)],
            Shape::ScalesButLow,
            "-30 % at x.4, the largest size of which anything is advertised",
        ),
        ("constant part", &[(2.0, 7e4, 1e5, 1), (4.0, 1.4e5, 2e5, 2)], Shape::ScalesButLow, "same part is missing"),
        (
            "flat as advertised",
            &[(2.0, 7e5, 1e6, 1), (4.0, 7.1e5, 1e6, 1)],
            Shape::LowWithoutGrowth,
            "low without growth: -30 % at x.2, -29 % at x.4; what is advertised does not grow either",
        ),
        (
            "falls",
            &[(2.0, 7e5, 7e5, 1), (4.0, 5e5, 1.4e6, 2)],
            Shape::LowWithoutGrowth,
            "-64 % at x.4, the largest size; what is advertised grows 2.0 times",
        ),
        ("disks", &[(2.0, 7e5, 7e5, 2), (4.0, 7.1e5, 1.4e6, 2)], Shape::Plateaus, "same number of disks (2)"),
        ("thread", &[(2.0, 5e5, 5e5, 1), (4.0, 5.1e5, 1e6, 2)], Shape::Plateaus, "one thread can submit 500,000"),
        ("unknown", &[(2.0, 7e5, 7e5, 1), (4.0, 7.1e5, 1.4e6, 2)], Shape::Plateaus, "no known cause fits"),
        ("nothing advertised", &[(2.0, 1e5, 0.0, 1), (8.0, 3e5, 0.0, 2)], Shape::Grows, "3.0 times over 4 times"),
        (
            "flat, nothing advertised",
            &[(2.0, 1e5, 0.0, 1), (8.0, 1e5, 0.0, 2)],
            Shape::Plateaus,
            "nothing is advertised",
        ),
    ];

    for (name, rows, shape, part) in cases {
        let figure = family(rows);
        assert_eq!(figure.shape, shape, "{name}: {}", figure.sentence);
        assert!(figure.sentence.contains(part), "{name}: {}", figure.sentence);
    }
}

#[test]
fn powers_of_two_are_known_by_value_and_rounding() {
    let cases = [(8_585_068_032.0, Some(33)), (8.5e9, Some(33)), (8_500_000_001.0, None), (9.6e9, None), (512.0, None)];
    for (value, power) in cases {
        assert_eq!(cause::power_of_two(value), power, "{value}");
    }
}

#[test]
fn families_of_the_table_and_of_cards() {
    let read = |name: &str| report(families(&[name.to_owned()]).unwrap());
    let i7i = read("i7i.4xlarge");
    assert_eq!((i7i.families[0].family.as_str(), i7i.families[0].figures.len()), ("i7i", 4));
    let reads = &i7i.families[0].figures[0];
    assert_eq!((reads.shape, reads.departs_from.as_deref()), (Shape::ScalesButLow, Some("i7i.8xlarge")));
    assert!(reads.points.iter().all(|point| point.advertised_kind == Some(AdvertisedKind::Inferred)));
    assert!(i7i.warnings.iter().any(|warning| warning.contains("circular")), "{:?}", i7i.warnings);
    assert!(!read("i4i").warnings.concat().contains("circular"));

    // Every family of the table can be judged, or has an error with the reason.
    let mut names: Vec<String> =
        plimsoll_files::presets::instances().iter().map(plimsoll_files::presets::Instance::family).collect();
    names.dedup();
    for name in names {
        match of_presets(&name) {
            Ok(input) => assert!(!report(input).families[0].figures.is_empty(), "{name}"),
            Err(error) => assert!(matches!(error, ScalingError::TooFewSizes { .. }), "{error}"),
        }
    }

    let cards =
        ["i3.16xlarge", "i3.metal", "i3en.24xlarge"].map(|name| crate::instance::published::find(name).unwrap());
    let of_cards = of_cards(&cards).unwrap();
    assert_eq!(of_cards.families[0].sizes.len(), 2);
    assert!(of_cards.warnings[0].contains("i3en"));
}

/// Returns a card of this date.
fn card_of(date: &str, name: &str, threads: Option<f64>, reads: Option<f64>) -> Card {
    let mut card = Card::new(name, crate::instance::Origin::measured(date));
    let figures = [("cpu.threads", threads), ("disk.read_iops", reads)];
    let known = figures.into_iter().filter_map(|(key, value)| Some((key, value?)));
    known.for_each(|(key, value)| card.set(key, crate::instance::Figure::exact(value)));
    card
}

/// They were two sizes.
#[test]
fn of_two_cards_of_one_machine_the_later_counts() {
    let card = |date: &str, name: &str, reads: f64| card_of(date, name, Some(2.0), Some(reads));
    let cards = [card("2026-05", "m.large", 2e5), card("2026-03", "m.large", 1e5), card("2026-04", "m.xlarge", 3e5)];
    let found = of_cards(&cards).unwrap();
    let mut sizes: Vec<_> = found.families[0].sizes.iter().map(|size| (size.name.as_str(), size.measured[0])).collect();
    sizes.sort_by_key(|(name, _)| *name);
    assert_eq!(sizes, [("m.large", Some(2e5)), ("m.xlarge", Some(3e5))]);
    assert_eq!(found.warnings, ["m.large: of its cards, that of 2026-05 counts"]);
    assert!(matches!(of_cards(&cards[..2]), Err(ScalingError::TooFewSizes { .. })));
}

#[test]
fn cards_that_are_no_sizes_are_named_with_the_reason() {
    let card = |name: &str, threads: Option<f64>, reads: Option<f64>| card_of("2026", name, threads, reads);

    // Name of the card, its threads and reads; part of the message.
    let cases = [
        ("ok", Some(8.0), Some(1e5), "ok: its name has no size (FAMILY.SIZE)"),
        ("ok", None, Some(1e5), "ok: left out: it has no `cpu.threads`, and its name no size"),
        ("m.large", Some(8.0), None, "m.large: left out: it has no figure of a disk"),
        ("m.large", Some(8.0), Some(1e5), "m.large: the only card of a family called m"),
    ];
    for (name, threads, reads, part) in cases {
        let error = of_cards(&[card(name, threads, reads)]).unwrap_err().to_string();
        assert!(error.starts_with("cards: ") && error.contains(part), "{error}");
    }
}

#[test]
fn what_cannot_be_read_says_where_and_what_to_do() {
    let good = "instance,read_iops\na.large,100\na.xlarge,200\n";
    assert!(parse_csv("f.csv", good).is_ok());
    let cases = [
        (String::new(), None, "nothing in this text"),
        ("# only\n\n".to_owned(), None, "nothing in this text"),
        ("instance,read_iops\n".to_owned(), None, "no line below the header"),
        ("model,GB\nx,1\n".to_owned(), Some(1), "`instance` is missing"),
        ("instance,advertised_read_iops\nx.large,1\n".to_owned(), Some(1), "no column holds what was measured"),
        (good.replace("read_iops", "read_iosp"), Some(1), "did you mean `read_iops`"),
        (good.replace("read_iops", "read_iops,read_iops"), Some(1), "stands twice"),
        (good.replace("100", "0"), Some(2), "out of range"),
        (good.replace("200", "-5"), Some(3), "out of range"),
        (good.replace("200", "inf"), Some(3), "out of range"),
        (good.replace("200", "2e5k"), Some(3), "not a number"),
        (good.replace("200", "2,3"), Some(3), "3 fields, where the header has 2"),
        (good.replace("a.large", ""), Some(2), "no name"),
        (good.replace("a.large", "a.xlarge"), Some(3), "stands here twice"),
        (good.replace("a.large", "b.large"), None, "one measured size only of b, a"),
        (good.replace("large", "huge"), None, "add a column `vcpus`"),
        (good.replace("100", "").replace("200", ""), None, "without a measured figure"),
    ];

    for (text, line, part) in cases {
        let error = parse_csv("f.csv", &text).unwrap_err();
        assert!(error.to_string().contains(part), "{error}: expected {part}");
        assert_eq!(error.line(), line, "{error}");
        assert!(error.help().is_some_and(|help| !help.is_empty()));
    }

    for (name, part) in [
        ("i7j", "did you mean `i7i`"),
        ("z3", "did you mean `z3-highmem-highlssd` or `z3-highmem-standardlssd`?"),
        ("i7", "`i7i` or `i7ie`?"),
        ("nonsense-family", "one of"),
        ("no.csv", "cannot read the file"),
    ] {
        let error = families(&[name.to_owned()]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn every_family_has_a_picture_of_its_own() {
    let names = ["a b", "a_b", "a_b-2", "A_B", &"c".repeat(80), &"c".repeat(81)];
    let family = |name: &str| FamilyReport { family: name.to_owned(), source: String::new(), figures: Vec::new() };
    let families = names.into_iter().map(family).collect();
    let report = ScalingReport { schema: 1, plimsoll: "", families, warnings: Vec::new() };
    let found: Vec<String> = pictures(&report).into_iter().map(|(name, _)| name.to_lowercase()).collect();
    assert_eq!(found[..4], ["scaling-a_b", "scaling-a_b-2", "scaling-a_b-2-2", "scaling-a_b-3"]);
    let different: std::collections::BTreeSet<&String> = found.iter().collect();
    assert_eq!(different.len(), names.len(), "{found:?}");
}

#[test]
fn outputs_hold_every_point() {
    let report = report(parse_csv("i7i.csv", ARTICLE).unwrap());
    assert_eq!(to_csv(&report).lines().count(), 1 + 2 + 2 + 3);
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    assert_eq!(json["families"][0]["figures"][2]["shape"], "plateaus");
    let pictures = pictures(&report);
    assert_eq!((pictures.len(), pictures[0].0.as_str(), pictures[0].1.len()), (1, "scaling-i7i", 3));
    let page = page(&report);
    assert!(page.contains("plateau, 8.50 GB/s") && !page.contains("NaN"));
    assert_eq!(
        ["z3-highmem-88-highlssd", "Standard_L16s_v9", "i9.48xlarge", "db-7", "x"].map(names::vcpus_of),
        [Some(88.0), Some(16.0), Some(192.0), Some(7.0), None]
    );
}
