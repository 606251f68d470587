//! What requests cost: tables of known disks, Seastar's integers, and properties over the whole range of rates.

use plimsoll_core::math::{ln, pow};
use plimsoll_core::{
    Cost, CostForm, CostModel, FourFigures, MAX_TABLE_POINTS, MixExponent, ModelError, Op, PieceLimits, Rate,
    SeastarUnits,
};
use proptest::prelude::*;

const LINE_FORMS: [CostForm; 3] = [CostForm::Knee, CostForm::Additive, CostForm::Max];
const LENGTHS: [u32; 12] = [0, 1, 511, 512, 4095, 4096, 4097, 8192, 65_536, 1 << 20, 1 << 31, u32::MAX];

fn figures(read_iops: u64, read_bandwidth: u64, write_iops: u64, write_bandwidth: u64) -> FourFigures {
    FourFigures {
        read_iops: Rate::per_second(read_iops),
        read_bandwidth: Rate::per_second(read_bandwidth),
        write_iops: Rate::per_second(write_iops),
        write_bandwidth: Rate::per_second(write_bandwidth),
    }
}

fn i4i_2xlarge() -> FourFigures {
    figures(218_786, 1_542_559_872, 121_499, 1_130_867_072)
}

fn model(figures: &FourFigures, form: CostForm) -> CostModel {
    CostModel::from_figures(figures, form, 4096, 4096)
}

/// Requests a second of one length that a model admits.
fn admitted(model: &CostModel, op: Op, len_bytes: u32) -> f64 {
    1.0 / model.cost(op, len_bytes).as_secs_f64()
}

#[test]
fn admitted_reads_of_known_disks() {
    // Thousands a second in the forms additive, knee and max, for 512 B, 4, 8, 16, 64 and 128 KiB.
    type Row = (&'static str, u64, u64, [[u32; 3]; 6]);
    let rows: [Row; 6] = [
        (
            "i3en.3xlarge",
            257_024,
            2_043_674_624,
            [[241, 257, 257], [169, 257, 257], [126, 169, 249], [83, 100, 124], [27, 29, 31], [14, 15, 15]],
        ),
        (
            "i4i.2xlarge",
            218_786,
            1_542_559_872,
            [[203, 218, 218], [138, 218, 218], [101, 138, 188], [65, 79, 94], [21, 22, 23], [11, 11, 11]],
        ),
        (
            "i7i.4xlarge",
            583_935,
            4_266_672_128,
            [[545, 583, 583], [374, 583, 583], [275, 374, 520], [180, 217, 260], [58, 62, 65], [30, 31, 32]],
        ),
        (
            "i7ie.3xlarge",
            325_522,
            3_047_670_528,
            [[308, 325, 325], [226, 325, 325], [173, 226, 325], [118, 140, 186], [40, 43, 46], [21, 22, 23]],
        ),
        (
            "Azure L8s_v3",
            894_399,
            3_740_749_056,
            [[796, 894, 894], [451, 894, 894], [302, 451, 456], [181, 227, 228], [53, 57, 57], [27, 28, 28]],
        ),
        (
            "GCP z3-8",
            750_000,
            3_221_225_472,
            [[670, 750, 750], [383, 750, 750], [257, 383, 393], [155, 194, 196], [46, 49, 49], [23, 24, 24]],
        ),
    ];
    for (disk, iops, bandwidth, expected) in rows {
        let figures = figures(iops, bandwidth, iops, bandwidth);
        for (kib_twice, row) in [1, 8, 16, 32, 128, 256].into_iter().zip(expected) {
            for (form, thousands) in [CostForm::Additive, CostForm::Knee, CostForm::Max].into_iter().zip(row) {
                let ours = admitted(&model(&figures, form), Op::Read, kib_twice * 512) / 1000.0;
                let off = (ours - f64::from(thousands)).abs();
                assert!(off < 1.0, "{disk} {form} {} B: {ours} against {thousands}", kib_twice * 512);
            }
        }
    }
}

#[test]
fn the_knee_stands_at_the_block() {
    let figures = figures(200_000, 2_000_000_000, 100_000, 1_000_000_000);
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 8192);
    for (op, len_bytes, expected_ns) in [
        (Op::Read, 0, 5_000),
        (Op::Read, 4096, 5_000),
        (Op::Read, 8192, 7_048),
        (Op::Write, 8192, 10_000),
        (Op::Write, 9192, 11_000),
        (Op::Flush, 1 << 30, 10_000),
        (Op::Discard, u32::MAX, 10_000),
        (Op::Allocate, 0, 10_000),
    ] {
        assert_eq!(model.cost(op, len_bytes), Cost::from_ns(expected_ns), "{op:?} of {len_bytes}");
    }
}

#[test]
fn where_bytes_are_the_limit_the_knee_is_bytes_alone() {
    // 4096 bytes take longer than one operation may: no base is left.
    let model = model(&figures(1_000_000, 1_000_000_000, 1, 1), CostForm::Knee);
    assert_eq!(model.cost(Op::Read, 4096), Cost::from_ns(4_096));
    assert_eq!(model.cost(Op::Read, 500), Cost::from_ns(1_000));
}

#[test]
fn seastar_golden_integers() {
    let units = SeastarUnits::from_figures(&i4i_2xlarge());
    assert_eq!(units.blocks_count_rate, Rate::per_second(385_639_968));
    assert_eq!(units.req_count_rate, Rate::per_second(28_004_608));
    assert_eq!(units.disk_req_write_to_read_multiplier, 230);
    assert_eq!(units.disk_blocks_write_to_read_multiplier, 174);
    assert_eq!((units.bucket_limit(750_000), units.bucket_threshold(750_000)), (12_582_912, 82_251));
    let model = model(&i4i_2xlarge(), CostForm::Seastar);
    for (len_bytes, read, write, read_iops, write_iops) in [
        (512, 82_251, 145_360, 203_976, 115_418),
        (1536, 93_389, 160_499, 179_649, 104_532),
        (4096, 121_232, 198_348, 138_389, 84_585),
        (16_384, 254_879, 380_025, 65_824, 44_148),
        (65_536, 789_466, 1_106_730, 21_251, 15_159),
        (131_072, 1_502_250, 2_075_671, 11_168, 8_083),
        (1 << 20, 11_481_223, 15_640_836, 1_461, 1_073),
    ] {
        for (op, golden, iops) in [(Op::Read, read, read_iops), (Op::Write, write, write_iops)] {
            assert_eq!(model.seastar_capacity(op, len_bytes), golden, "{op:?} of {len_bytes}");
            let ours = admitted(&model, op, len_bytes);
            assert!((ours - f64::from(iops)).abs() <= 1.0, "{op:?} of {len_bytes}: {ours} a second against {iops}");
            // There and back again loses less than a unit.
            let back = SeastarUnits::capacity_of_cost(model.cost(op, len_bytes));
            assert!(golden - back <= 1, "{golden} came back as {back}");
        }
    }
    assert_eq!(model.seastar_capacity(Op::Read, 1023), 82_251, "lengths are rounded down to 512 bytes");
    assert_eq!(model.seastar_capacity(Op::Flush, 4096), model.seastar_capacity(Op::Write, 0));
}

#[test]
fn seastar_weights_are_truncated_as_in_seastar() {
    // Writes ten times as fast as reads weigh 12, not 12.8; 200 times as fast nothing at all.
    let ten = SeastarUnits::from_figures(&figures(1_000, 1 << 30, 10_000, 1 << 30));
    assert_eq!(ten.disk_req_write_to_read_multiplier, 12);
    let free = SeastarUnits::from_figures(&figures(1_000, 1 << 20, 200_000, 200 << 20));
    assert_eq!((free.capacity(Op::Write, 1 << 20), free.bucket_threshold(750_000)), (0, 1));
    let limits = model(&figures(1_000, 1 << 30, 200_000, 200 << 30), CostForm::Seastar).piece_limits(Some(750_000));
    assert_eq!(limits.write_max_bytes, 16 << 20);
}

#[test]
fn seastar_form_where_only_some_figures_are_limited() {
    let read_only = FourFigures { read_iops: Rate::per_second(1_000), ..FourFigures::UNLIMITED };
    let write_only = FourFigures {
        write_iops: Rate::per_second(1_000),
        write_bandwidth: Rate::per_second(1_000_000),
        ..FourFigures::UNLIMITED
    };
    let second = 1000 << 24;
    for (figures, op, len_bytes, expected) in [
        (read_only, Op::Read, 1 << 20, second / 1000),
        (read_only, Op::Write, 1 << 20, 0),
        (write_only, Op::Read, 1 << 20, 0),
        (write_only, Op::Write, 0, second / 1000),
        (write_only, Op::Write, 512_000, second / 1000 + second * 512 / 1000),
    ] {
        let ours = model(&figures, CostForm::Seastar).seastar_capacity(op, len_bytes);
        assert!(ours.abs_diff(expected) <= 1, "{figures:?} {op:?} {len_bytes}: {ours} against {expected}");
    }
}

#[test]
fn unlimited_is_zero() {
    let mut models = vec![CostModel::unlimited(), CostModel::default()];
    models.extend(CostForm::ALL.map(|form| model(&FourFigures::UNLIMITED, form)));
    for model in models {
        assert!(model.is_unlimited());
        for op in [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Allocate] {
            for len_bytes in LENGTHS {
                assert_eq!(model.cost(op, len_bytes), Cost::ZERO);
                assert_eq!(model.seastar_capacity(op, len_bytes), 0);
            }
        }
        let back = model.rates_back();
        assert_eq!((back.read_iops, back.write_bandwidth), (f64::INFINITY, f64::INFINITY));
        let limits = model.piece_limits(Some(750_000));
        assert_eq!(
            (limits.effective_goal_ns, limits.read_max_bytes, limits.write_max_bytes),
            (750_000, 16 << 20, 16 << 20,)
        );
    }
    assert!(
        !model(&FourFigures { write_bandwidth: Rate::per_second(1), ..FourFigures::UNLIMITED }, CostForm::Max)
            .is_unlimited()
    );
}

/// Direct I/O on sectors of 4 KiB refuses any other cut.
#[test]
fn figures_of_half_kib_blocks_cut_at_4_kib() {
    let figures = i4i_2xlarge();
    for (form, block_bytes) in CostForm::ALL.into_iter().flat_map(|form| [512, 1024, 4096].map(|block| (form, block))) {
        let model = CostModel::from_figures(&figures, form, block_bytes, block_bytes);
        for goal_ns in [None, Some(1), Some(50_001), Some(750_000), Some(3_333_333)] {
            let limits = model.piece_limits(goal_ns);
            let remainders = [limits.read_max_bytes % 4096, limits.write_max_bytes % 4096];
            assert_eq!(remainders, [0, 0], "{form}, {block_bytes} B, {goal_ns:?}: {limits:?}");
        }
    }
}

#[test]
fn extreme_figures_saturate() {
    for rate in [0, 1, 1_000_000_000, 10_000_000_000_000, u64::MAX] {
        for other in [0, 1, 1_000_000_000, 10_000_000_000_000, u64::MAX] {
            for form in CostForm::ALL {
                for block_bytes in [0, 1, 4096, u32::MAX] {
                    let model = CostModel::from_figures(&figures(rate, other, other, rate), form, block_bytes, 0);
                    let costs = LENGTHS.map(|len_bytes| model.cost(Op::Read, len_bytes));
                    assert!(costs.is_sorted(), "{rate} {other} {form}");
                    let limits = model.piece_limits(Some(0));
                    assert!(limits.read_max_bytes >= 65_536 && limits.write_max_bytes <= 16 << 20);
                }
            }
        }
    }
    // A byte a second: 2^32 bytes take longer than a cost can say.
    assert_eq!(model(&figures(1, 1, 1, 1), CostForm::Additive).cost(Op::Read, u32::MAX), Cost::MAX);
}

#[test]
fn figures_scale() {
    let scaled = figures(1_000, 3, 10_000, 1 << 40).scaled(0.25);
    assert_eq!(scaled, figures(250, 1, 2_500, 1 << 38));
    assert_eq!(FourFigures::UNLIMITED.scaled(0.5), FourFigures::UNLIMITED);
    for nonsense in [0.0, -1.0, f64::NAN, f64::INFINITY, 1.0] {
        assert_eq!(i4i_2xlarge().scaled(nonsense), i4i_2xlarge(), "{nonsense}");
    }
}

#[test]
fn forms_have_names() {
    for form in CostForm::ALL {
        assert_eq!(form.to_string().parse(), Ok(form));
        assert_eq!(model(&i4i_2xlarge(), form).form(), Some(form));
    }
    let error = "kink".parse::<CostForm>().unwrap_err();
    assert_eq!(error.to_string(), "unknown cost form; use knee, additive, max or seastar");
}

#[test]
fn a_measured_table_is_interpolated_in_cost() {
    let read = [(4096, 200_000.0), (65_536, 20_000.0)];
    let write = [(512, 50_000.0), (4096, 100_000.0), (8192, 100_000.0)];
    let model = CostModel::from_table(&read, &write).unwrap();
    assert_eq!((model.form(), model.is_unlimited()), (None, false));
    for (op, len_bytes, expected_ns) in [
        (Op::Read, 0, 5_000),
        (Op::Read, 4096, 5_000),
        (Op::Read, 34_816, 27_500),
        (Op::Read, 65_536, 50_000),
        (Op::Read, 126_976, 95_000),
        (Op::Flush, 65_536, 20_000),
        (Op::Write, 512, 20_000),
        (Op::Write, 2304, 15_000),
        (Op::Write, 4096, 10_000),
        (Op::Write, 6000, 10_000),
        (Op::Write, u32::MAX, 10_000),
    ] {
        assert_eq!(model.cost(op, len_bytes), Cost::from_ns(expected_ns), "{op:?} of {len_bytes}");
    }
    let back = model.rates_back();
    assert!((back.read_iops / 200_000.0 - 1.0).abs() < 1e-9);
    assert!((back.read_bandwidth / (61_440.0 / 45e-6) - 1.0).abs() < 1e-9);
    assert_eq!(back.write_bandwidth, f64::INFINITY);
}

#[test]
fn a_table_whose_last_points_fall_stays_level_beyond() {
    let falling = [(4096, 100_000.0), (8192, 125_000.0)];
    let model = CostModel::from_table(&falling, &falling).unwrap();
    for (len_bytes, expected_ns) in [(4096, 10_000), (6144, 9_000), (8192, 8_000), (65_536, 8_000), (u32::MAX, 8_000)] {
        assert_eq!(model.cost(Op::Read, len_bytes), Cost::from_ns(expected_ns), "{len_bytes}");
    }
    assert_eq!(model.rates_back().read_bandwidth, f64::INFINITY);
}

#[test]
fn a_table_that_cannot_be_used_says_why() {
    let good = [(512, 1000.0), (4096, 900.0)];
    let many = vec![(512, 1000.0); MAX_TABLE_POINTS + 1];
    type Points<'a> = &'a [(u32, f64)];
    let cases: [(Points, Points, &str); 7] = [
        (&[], &good, "the read table has 0 points; give 2 to 64"),
        (&good, &good[..1], "the write table has 1 points; give 2 to 64"),
        (&many, &good, "the read table has 65 points; give 2 to 64"),
        (
            &[(512, 1.0), (512, 2.0)],
            &good,
            "length 512 of the read table is not above the one before; sort, and drop doubles",
        ),
        (
            &good,
            &[(512, 0.0), (1024, 2.0)],
            "0 writes a second at length 512; measure it again, or leave the point out",
        ),
        (
            &good,
            &[(512, 1.0), (1024, f64::NAN)],
            "NaN writes a second at length 1024; measure it again, or leave the point out",
        ),
        (
            &[(0, f64::INFINITY), (1024, 1.0)],
            &good,
            "inf reads a second at length 0; measure it again, or leave the point out",
        ),
    ];
    for (read, write, message) in cases {
        let error: ModelError = CostModel::from_table(read, write).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn pieces_fit_the_latency_goal() {
    let slow = figures(100, 100_000_000, 100, 100_000_000);
    let even = figures(200_000, 2_000_000_000, 100_000, 1_000_000_000);
    let goal = Some(750_000);
    let limits = |effective_goal_ns, read_max_bytes, write_max_bytes| PieceLimits {
        effective_goal_ns,
        read_max_bytes,
        write_max_bytes,
    };
    let unsplit = u32::MAX - 4095;
    for (figures, form, goal_ns, expected) in [
        (i4i_2xlarge(), CostForm::Seastar, goal, limits(750_000, 1 << 20, 512 << 10)),
        (i4i_2xlarge(), CostForm::Additive, goal, limits(750_000, 1 << 20, 512 << 10)),
        (slow, CostForm::Additive, goal, limits(10_655_360, 64 << 10, 64 << 10)),
        // Without the base 747.048 us are left for 1 494 096 bytes read, 744.096 us for 744 096 bytes written.
        (even, CostForm::Knee, goal, limits(750_000, 364 * 4096, 181 * 4096)),
        (even, CostForm::Max, goal, limits(750_000, 366 * 4096, 183 * 4096)),
        (even, CostForm::Knee, Some(0), limits(71_440, 33 * 4096, 64 << 10)),
        (even, CostForm::Knee, Some(u64::MAX), limits(u64::MAX, 16 << 20, 16 << 20)),
        (even, CostForm::Knee, None, limits(750_000, unsplit, unsplit)),
        (slow, CostForm::Additive, None, limits(10_655_360, unsplit, unsplit)),
    ] {
        assert_eq!(model(&figures, form).piece_limits(goal_ns), expected, "{form} {goal_ns:?}");
    }
}

#[test]
fn what_a_mix_yields() {
    let cases = [
        (0.6, 0.5, 0.630),
        (1.0, 0.3, 1.0),
        (1.2, 0.5, 1.1225),
        (1.6, 0.5, 1.2968),
        (2.2, 0.5, 1.4595),
        (2.0, 0.25, 1.2649),
        (f64::INFINITY, 0.25, 1.3333),
        (f64::INFINITY, 0.75, 1.3333),
        (1e6, 0.5, 2.0),
        (1e-6, 0.5, 1.0 / 1024.0),
        (2.2, 0.0, 1.0),
        (2.2, 1.0, 1.0),
        (2.2, -3.0, 1.0),
        (2.2, 7.0, 1.0),
        (2.2, f64::NAN, 1.0),
    ];
    for (p, write_share, expected) in cases {
        let mix = MixExponent::new(p).unwrap();
        let capacity = mix.capacity(write_share);
        assert!((capacity - expected).abs() < 0.001, "p {p}, f {write_share}: {capacity} against {expected}");
        assert!(capacity >= 1.0 / 1024.0, "{capacity} is too little to divide by");
        assert_eq!(mix.p(), p);
    }
    for nonsense in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        assert_eq!(MixExponent::new(nonsense), None);
    }
    assert_eq!(MixExponent::new(1.0), Some(MixExponent::LINEAR));
    assert_eq!(MixExponent::new(f64::INFINITY), Some(MixExponent::FULL_DUPLEX));
    assert_ne!(MixExponent::LINEAR, MixExponent::FULL_DUPLEX);
}

/// A rate whose logarithm is uniform between those of `low` and `high`.
fn rate(low: f64, high: f64) -> impl Strategy<Value = u64> {
    (0.0..=1.0).prop_map(move |x| (low * pow(high / low, x)).round() as u64)
}

fn any_figures() -> impl Strategy<Value = FourFigures> {
    (rate(1.0, 1e9), rate(1e6, 1e13), rate(1.0, 1e9), rate(1e6, 1e13))
        .prop_map(|(read_iops, read_bw, write_iops, write_bw)| figures(read_iops, read_bw, write_iops, write_bw))
}

/// Whether two rates agree within 0.5 %.
fn agree(ours: f64, configured: Rate) -> bool {
    configured.get().is_some_and(|n| (ours / n as f64 - 1.0).abs() <= 0.005)
}

fn check_rates_back(figures: &FourFigures) {
    for form in LINE_FORMS {
        let model = model(figures, form);
        let back = model.rates_back();
        assert!(agree(back.read_iops, figures.read_iops), "{form} {figures:?} {back:?}");
        assert!(agree(back.write_iops, figures.write_iops), "{form} {figures:?} {back:?}");
        assert!(agree(back.read_bandwidth, figures.read_bandwidth), "{form} {figures:?} {back:?}");
        assert!(agree(back.write_bandwidth, figures.write_bandwidth), "{form} {figures:?} {back:?}");
        // The same from costs alone, where the lengths of this world reach the slope.
        for (op, bandwidth) in [(Op::Read, figures.read_bandwidth), (Op::Write, figures.write_bandwidth)] {
            let (half, full) = (model.cost(op, u32::MAX / 2), model.cost(op, u32::MAX));
            if half > model.cost(op, 0) {
                let slope = full.saturating_sub(half).as_secs_f64() / f64::from(u32::MAX - u32::MAX / 2);
                assert!(agree(1.0 / slope, bandwidth), "{form} {op:?} {figures:?}");
            }
        }
    }
}

#[test]
fn rates_come_back_at_the_corners() {
    for iops in [1, 999, 1_000_000_000] {
        for bandwidth in [1_000_000, 123_456_789, 10_000_000_000_000] {
            for write_iops in [1, 1_000_000_000] {
                check_rates_back(&figures(iops, bandwidth, write_iops, bandwidth));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rates_come_back_within_half_a_per_cent(figures in any_figures()) {
        check_rates_back(&figures);
    }

    #[test]
    fn a_longer_request_never_costs_less(
        figures in any_figures(),
        form in 0usize..4,
        a in any::<u32>(),
        b in any::<u32>(),
        block_bytes in any::<u32>(),
    ) {
        let model = CostModel::from_figures(&figures, CostForm::ALL[form], block_bytes, block_bytes);
        for op in [Op::Read, Op::Write] {
            prop_assert!(model.cost(op, a.min(b)) <= model.cost(op, a.max(b)));
            // The slowest rates of the range take 4295 s for the longest request: nothing saturates.
            prop_assert!(model.cost(op, u32::MAX) < Cost::MAX);
        }
    }

    #[test]
    fn one_block_costs_one_operation(figures in any_figures(), block_bytes in 1u32..1 << 20) {
        let model = CostModel::from_figures(&figures, CostForm::Knee, block_bytes, block_bytes);
        let by_bytes = f64::from(block_bytes) * figures.read_bandwidth.seconds_per_unit();
        let expected = by_bytes.max(figures.read_iops.seconds_per_unit());
        let cost = model.cost(Op::Read, block_bytes).as_secs_f64();
        prop_assert!((cost / expected - 1.0).abs() < 1e-5, "{} against {}", cost, expected);
    }

    #[test]
    fn pieces_are_as_long_as_the_goal_allows(figures in any_figures(), goal_ns in rate(1.0, 1e9), form in 0usize..4) {
        let form = CostForm::ALL[form];
        let model = model(&figures, form);
        let limits = model.piece_limits(Some(goal_ns));
        let effective = Cost::from_ns(limits.effective_goal_ns);
        prop_assert!(limits.effective_goal_ns >= goal_ns);
        for (op, piece) in [(Op::Read, limits.read_max_bytes), (Op::Write, limits.write_max_bytes)] {
            // The fixed part of a cost is a third of a piece's at the most, but in the forms that are Seastar's; where
            // operations are limited apart, a quarter.
            let is_seastars = matches!(form, CostForm::Additive | CostForm::Seastar);
            let parts = match form {
                _ if is_seastars => 0,
                CostForm::Max => 4,
                _ => 3,
            };
            let fixed = Cost::from_fs(model.cost(op, 0).as_fs().saturating_mul(parts));
            let most = effective.max(fixed);
            prop_assert!(model.cost(op, piece) <= most);
            prop_assert!((65_536..=16 << 20).contains(&piece) && piece % 4096 == 0);
            let next = if is_seastars { piece * 2 } else { piece + 4096 };
            prop_assert!(next > 16 << 20 || model.cost(op, next) > most, "{} would fit, too", next);
        }
    }

    #[test]
    fn a_table_passes_through_its_points(
        gaps in prop::collection::vec((1u32..1 << 24, 0.0f64..1.0), 2..MAX_TABLE_POINTS),
    ) {
        let mut len_bytes = 0;
        let points: Vec<(u32, f64)> = gaps
            .iter()
            .map(|(gap_bytes, x)| {
                len_bytes += gap_bytes;
                (len_bytes, pow(1e7, *x))
            })
            .collect();
        let model = CostModel::from_table(&points, &points).unwrap();
        for (len_bytes, ops_per_s) in points {
            let ours = admitted(&model, Op::Write, len_bytes);
            prop_assert!((ours / ops_per_s - 1.0).abs() < 1e-6, "{} against {}", ours, ops_per_s);
        }
    }

    #[test]
    fn the_table_of_a_mix_is_near_the_formula(p in 1.0f64..100.0, write_share in 0.0f64..=1.0) {
        let exact = pow(pow(1.0 - write_share, p) + pow(write_share, p), -1.0 / p);
        let ours = MixExponent::new(p).unwrap().capacity(write_share);
        prop_assert!(ln(ours / exact).abs() < 0.004, "p {} f {}: {} against {}", p, write_share, ours, exact);
    }
}
