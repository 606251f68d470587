//! Pictures are complete, finite, inside their frame, and legible.

use proptest::prelude::*;

use super::text::text_width_px;
use super::*;

/// Returns the value of an attribute of a tag.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    tag[start..].split('"').next()
}

fn number(tag: &str, name: &str) -> Option<f64> {
    attribute(tag, name).map(|value| value.parse().unwrap_or_else(|_| panic!("{name} of {tag}")))
}

/// Returns everything between `<` and `>`.
fn tags(picture: &str) -> impl Iterator<Item = &str> {
    picture.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or(""))
}

/// Returns the boxes of all unrotated texts: left, right, baseline and content.
fn texts(picture: &str) -> Vec<(f64, f64, f64, String)> {
    let found = picture.split("<text").skip(1).filter(|rest| !rest.contains("transform=\"rotate")).map(|rest| {
        let (tag, content) = rest.split_once('>').expect("a tag ends");
        let content = content.split("</text>").next().unwrap_or("");
        let plain = content.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        let width = text_width_px(&plain, number(tag, "font-size").unwrap_or(12.0));
        let (x, y) = (number(tag, "x").expect("x"), number(tag, "y").expect("y"));
        let left = match attribute(tag, "text-anchor") {
            Some("end") => x - width,
            Some("middle") => x - width / 2.0,
            _ => x,
        };
        (left, left + width, y, plain)
    });
    found.collect()
}

/// Checks the properties of every picture.
fn check_picture(picture: &str) {
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "not finite");
    let svg = tags(picture).next().expect("a tag");
    let (width, height) = (number(svg, "width").expect("width"), number(svg, "height").expect("height"));
    assert_eq!(attribute(svg, "viewBox"), Some(format!("0 0 {width} {height}").as_str()));
    let mut open: Vec<&str> = Vec::new();
    for tag in tags(picture) {
        let name = tag.split([' ', '\n']).next().unwrap_or("");
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed)),
            None if !tag.ends_with('/') => open.push(name),
            None => {}
        }
        let across = ["x", "x1", "x2", "cx"].into_iter().filter_map(|name| number(tag, name));
        let down = ["y", "y1", "y2", "cy"].into_iter().filter_map(|name| number(tag, name));
        let pairs: Vec<(f64, f64)> = attribute(tag, "points").map_or(Vec::new(), |points| {
            let pair = |pair: &str| {
                let (x, y) = pair.split_once(',').expect("a pair");
                (x.parse().expect("x"), y.parse().expect("y"))
            };
            points.split_whitespace().map(pair).collect()
        });
        for x in across.chain(pairs.iter().map(|pair| pair.0)) {
            assert!((0.0..=width).contains(&x), "{tag}");
        }
        for y in down.chain(pairs.iter().map(|pair| pair.1)) {
            assert!((0.0..=height).contains(&y), "{tag}");
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let texts = texts(picture);
    for (index, (left, right, baseline, text)) in texts.iter().enumerate() {
        assert!(*left >= 0.0 && *right <= width, "\"{text}\" is cut off: {left} to {right}");
        for (other_left, other_right, other_baseline, other) in &texts[index + 1..] {
            let meet = left < other_right && other_left < right && (baseline - other_baseline).abs() < 11.0;
            assert!(!meet, "\"{text}\" meets \"{other}\"");
        }
    }
}

/// Returns the layer that most tests use.
fn layer(points: &[(f64, f64)]) -> Layer {
    Layer::Line { name: "line".into(), points: points.to_vec(), dashed: false }
}

#[test]
fn the_gallery_is_whole_and_legible() {
    let charts = gallery::all();
    let together = svg("All kinds <&>", &charts);
    for picture in charts.iter().map(|chart| svg("", std::slice::from_ref(chart))).chain([together.clone()]) {
        check_picture(&picture);
        assert_eq!(picture.matches("<svg").count(), 1);
        assert!(picture.len() < 150_000, "{}", picture.len());
    }
    for expected in ["class &lt;0&gt; &amp; friends", "and 4 more", "steady state", "knee: 201 k", ">4 KiB<", ">10 k<"]
    {
        assert!(together.contains(expected), "{expected}");
    }
    // Fits by size, the prediction, the frontier, the time series, the crowd.
    assert_eq!(together.matches("<polyline").count(), 2 + 1 + 2 + 1 + 16);
    let residuals = svg("", &gallery::size_curve());
    assert_eq!(residuals.matches("<circle").count(), 12 + 1 + 12 + 1, "reads, and their keys");
    assert_eq!(residuals.matches("<polygon").count(), 12 + 1 + 12 + 1, "writes, and their keys");
}

#[test]
fn charts_of_one_horizontal_axis_share_its_range() {
    let chart = |points: &[(f64, f64)]| Chart {
        x: Axis::linear("time", Unit::Nanoseconds),
        layers: vec![layer(points)],
        ..Chart::default()
    };
    let picture = svg("", &[chart(&[(0.0, 1.0), (100.0, 2.0)]), chart(&[(40.0, 5.0), (60.0, 6.0)])]);
    check_picture(&picture);
    assert_eq!(picture.matches(">100 ns<").count(), 2);
}

#[test]
fn layers_of_one_name_share_colour_and_legend() {
    let points = Layer::Points { name: "line".into(), points: vec![Point::new(0.5, 0.5)] };
    let chart = Chart { layers: vec![layer(&[(0.0, 0.0), (1.0, 1.0)]), points], ..Chart::default() };
    let picture = svg("", &[chart]);
    check_picture(&picture);
    assert_eq!(picture.matches(">line<").count(), 1);
    assert_eq!(picture.matches("#0072b2").count(), 4, "line, point, and a key of each");
}

#[test]
fn labels_of_marks_close_to_each_other_find_room() {
    let marks = |places: &[(f64, &str)]| -> Vec<Layer> {
        let mark = |(x, label): &(f64, &str)| Layer::VerticalMark { x: *x, label: (*label).to_owned() };
        places.iter().map(mark).chain([layer(&[(0.0, 0.0), (100.0, 1.0)])]).collect()
    };
    for places in [
        vec![(80.0, "knee"), (82.0, "a label that is far too long to stand at the right")],
        vec![(18.0, "a label that is far too long to stand at the left"), (20.0, "knee")],
        vec![(0.0, "begin"), (100.0, "end")],
        vec![(50.0, "one"), (50.0, "same place"), (50.1, "nearly")],
        (50..55).map(|at| (f64::from(at), "an event with a name")).collect(),
    ] {
        let picture = svg("", &[Chart { layers: marks(&places), ..Chart::default() }]);
        check_picture(&picture);
        for (_, label) in &places {
            let wanted = places.iter().filter(|(_, other)| other == label).count();
            assert_eq!(picture.matches(&format!("\">{label}</text>")).count(), wanted, "{places:?}");
        }
    }
}

#[test]
fn a_hundred_thousand_points_make_a_small_picture() {
    let points: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), f64::from(at).sin())).collect();
    let single: Vec<Point> = points.iter().map(|(x, y)| Point::new(*x, *y)).collect();
    let layers = vec![layer(&points), Layer::Points { name: String::new(), points: single }];
    let picture = svg("", &[Chart { layers, ..Chart::default() }]);
    check_picture(&picture);
    assert!(picture.len() < 200_000, "{}", picture.len());
}

#[test]
fn curves_of_scenarios_become_charts_and_empty_ones_are_left_out() {
    let curves = vec![("query".to_owned(), vec![(0.0, 1.0), (f64::NAN, 2.0), (2.0, f64::INFINITY), (3.0, 4.0)])];
    let full = Series { title: "Throughput".into(), x: "time, s".into(), y: "MB/s".into(), curves };
    let empty = Series { title: "Nothing".into(), ..Series::default() };
    let picture = svg("x", &[Chart::from(&full), Chart::from(&empty)]);
    check_picture(&picture);
    assert!(picture.contains("Throughput") && picture.contains("time, s") && !picture.contains("Nothing"));
    check_picture(&svg("nothing at all", &[]));
}

#[test]
fn no_curve_of_a_scenario_lies_on_the_bottom() {
    let scale = |query: f64, backup: f64| {
        let curves = [("query", vec![(0.0, query)]), ("backup", vec![(0.0, backup)]), ("idle", vec![])];
        let curves = curves.map(|(name, points)| (name.to_owned(), points)).to_vec();
        Chart::from(&Series { curves, ..Series::default() }).y.scale
    };
    assert_eq!(scale(1.0, 400.0), Scale::Log10);
    assert_eq!(scale(1.0, 50.0), Scale::Linear);
    assert_eq!(scale(0.0, 400.0), Scale::Linear, "a logarithmic axis has no 0");
    assert_eq!(scale(-1.0, 400.0), Scale::Linear);
}

#[test]
fn long_texts_are_shortened() {
    let long = "a long name for something that nobody wanted to know ".repeat(20);
    let chart = Chart {
        title: long.clone(),
        x: Axis::linear(long.clone(), Unit::Bytes),
        y: Axis::linear(long.clone(), Unit::None),
        layers: vec![
            Layer::Line { name: long.clone(), points: vec![(1.0, 1.0), (9e9, 9e15)], dashed: true },
            Layer::VerticalMark { x: 9e9, label: long.clone() },
            Layer::HorizontalMark { y: 1.0, label: long.clone() },
            Layer::Band { from: f64::NEG_INFINITY, to: f64::INFINITY, label: long.clone() },
        ],
        note: Some(long.clone()),
    };
    check_picture(&svg(&long, &[chart]));
}

/// Returns numbers of every kind, awkward ones more often than chance would.
fn any_number() -> impl Strategy<Value = f64> {
    let awkward = [0.0, -0.0, 1.0, -1.0, 1e100, -1e100, 1e-100, f64::MIN_POSITIVE, f64::MAX, f64::NAN, f64::INFINITY];
    prop_oneof![any::<f64>(), prop::sample::select(awkward.to_vec()), 0.0..10.0, 1e6..1e6 + 1e-3, 1e3..1e12]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_numbers_make_a_whole_picture(
        line in prop::collection::vec((any_number(), any_number()), 0..6),
        points in prop::collection::vec((any_number(), any_number(), any_number(), any_number()), 0..6),
        marks in prop::collection::vec((any_number(), any_number()), 0..6),
        scales in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
        others in prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10]),
        units in prop::sample::select(vec![
            Unit::None, Unit::Bytes, Unit::PerSecond, Unit::BytesPerSecond, Unit::Nanoseconds, Unit::Fraction,
        ]),
    ) {
        let points = points.into_iter().map(|(x, y, low, high)| Point::with_range(x, y, low, high)).collect();
        let mut layers = vec![layer(&line), Layer::Points { name: "points".into(), points }];
        for (x, y) in marks {
            layers.push(Layer::VerticalMark { x, label: "x".into() });
            layers.push(Layer::HorizontalMark { y, label: "y".into() });
            layers.push(Layer::Band { from: x, to: y, label: "band".into() });
        }
        let axis = |scale: Scale| Axis { label: "axis".into(), scale, unit: units };
        check_picture(&svg("", &[Chart { x: axis(scales), y: axis(others), layers, ..Chart::default() }]));
    }
}
