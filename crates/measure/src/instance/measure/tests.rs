use plimsoll::backend::choose::BackendKind;

use super::*;

/// Returns options for a card that is measured at once, without other programs and the real disk.
fn tiny() -> CardOptions {
    let mut disk = TuneOptions::quick(std::env::temp_dir());
    disk.backend = Some(BackendKind::Null);
    disk.figures_only = true;
    disk.shards = 1;
    disk.data_bytes = 8 << 20;
    disk.phase_s = Some(0.01);
    let budgets = Budgets { samples: 3, seconds: [60.0, 0.01, 0.0, 0.0] };
    CardOptions { disk: Some(disk), budgets, skip: vec![Group::StressNg, Group::Network], ..CardOptions::new("tiny") }
}

#[test]
fn budgets_keep_to_what_is_promised() {
    for (budgets, promised_s) in [(Budgets::STANDARD, 360.0), (Budgets::QUICK, 90.0)] {
        let total_s: f64 = Group::ALL.iter().map(|group| budgets.of(*group)).sum();
        assert!(total_s <= promised_s, "{total_s} s");
        assert!(budgets.samples >= 3, "an interval takes three");
        // Rounding loses a nanosecond.
        assert!(budgets.sample_ns(Group::Submission, submission::MEASUREMENTS) >= 99_999_999);
    }
}

#[test]
fn groups_are_known_by_their_names() {
    for group in Group::ALL {
        assert_eq!(group.name().parse(), Ok(group));
    }
    assert_eq!("stress-ng".parse(), Ok(Group::StressNg));
    assert!("gpu".parse::<Group>().is_err_and(|why| why.contains("disk, submission, stress_ng")));
}

#[test]
fn every_figure_of_a_card_is_there_or_missing_with_a_reason() {
    let measured = measure(&tiny(), &mut (), &Control::default()).unwrap();
    let card = measured.card;
    assert!(measured.disk.is_some() && card.name == "tiny" && card.origin.date.len() == 10, "{card:?}");
    for kind in figures::FIGURES {
        let (group, _) = kind.key.split_once('.').unwrap();
        let is_missing = card.missing.contains_key(kind.key) || card.missing.contains_key(group);
        assert!(card.value(kind.key).is_some() != is_missing, "{}: {:?}", kind.key, card.missing);
    }
    assert_eq!(Card::from_json("tiny.json", &card.to_json()).unwrap(), card);
}

#[test]
fn a_stop_leaves_reasons() {
    let control = Control::default();
    control.stop.ask();
    let card = measure(&tiny(), &mut (), &control).unwrap().card;
    for group in Group::ALL {
        let expected = if tiny().skip.contains(&group) { "left out (--skip)" } else { INTERRUPTED };
        assert_eq!(card.missing.get(group.name()).map(String::as_str), Some(expected), "{group:?}");
    }
}

#[test]
fn a_disk_that_makes_no_sense_ends_it_and_none_is_missing() {
    let mut options = tiny();
    options.disk = options.disk.map(|disk| TuneOptions { shards: 0, ..disk });
    assert!(measure(&options, &mut (), &Control::default()).is_err());
    // The bound on written bytes holds for the disk and the submissions together.
    options.disk = options.disk.map(|disk| TuneOptions { shards: 1, max_write_bytes: Some(300 << 20), ..disk });
    let error = measure(&options, &mut (), &Control::default()).unwrap_err().to_string();
    assert!(error.contains("at least 456 MiB, more than --max-write 300 MiB"), "{error}");
    options.disk = None;
    options.skip = Group::ALL.into_iter().filter(|group| *group != Group::Disk).collect();
    let card = measure(&options, &mut (), &Control::default()).unwrap().card;
    assert!(card.missing.get("disk").is_some_and(|why| why.contains("--storage DIR")));
}

#[test]
fn stolen_time_is_a_figure_and_much_of_it_a_warning() {
    let ticks = |line: &str| Ticks::parse(line).unwrap();
    let before = ticks("cpu  0 0 0 0 0 0 0 0");
    for (after, percent, warnings) in [("cpu  0 0 0 99 0 0 0 1", 1.0, 0), ("cpu  0 0 0 90 0 0 0 10", 10.0, 1)] {
        let card = card_of(|card| steal(card, Some((before, ticks(after)))));
        assert_eq!((card.value("cpu.steal_pct"), card.warnings.len()), (Some(percent), warnings));
    }
    assert_eq!(card_of(|card| steal(card, None)).missing.len(), 1);
}
