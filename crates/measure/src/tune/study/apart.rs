//! Distinguishes a disk that limits operations and bytes apart from one with a single budget of device time.
//!
//! **Why.** A cloud volume of 3000 operations and 250 MB/s a second reads 1907 times 128 KiB. The usual form of cost,
//! the knee, adds the costs of operations and bytes, and would admit 1189: 0.62 of the paid rate.
//!
//! **How.** Rates by size are compared with both forms. If operations and bytes apart (`max`) explain every size and
//! the knee does not, the disk has two limits. The mix exponent is then fitted at the limit in force: short reads and
//! long writes use different limits, and would look as if they did not disturb each other.
//!
//! **Limits.** Needs rates of random requests by size. Sizes below the block at which operations were counted are
//! ignored: they may be slow for another reason (`physical_block`).
//!
//! **Example.** 3000 reads/s of 4, 16 and 64 KiB, 1907 of 128 KiB: `max` is exact, and the knee is 38 % off.

use plimsoll::core::{CostForm, CostModel, FourFigures, Op};

use super::super::report::{Frontier, LimitsApart, SizeCurve, TuneReport};
use super::frontier;

/// Largest error of `max` at any size, in per cent, at which `max` explains the disk.
const EXPLAINED_PCT: f64 = 5.0;
/// Least error of the knee at some size, in per cent, from which on the knee does not explain the disk.
const MISSED_PCT: f64 = 15.0;

/// Returns the two limits of the disk, or `None` if there is no evidence for them.
pub(super) fn limits_apart(report: &TuneReport) -> Option<LimitsApart> {
    let figures = report.four_figures().ok()?;
    let curves = [(Op::Read, report.read_sizes.as_ref()?), (Op::Write, report.write_sizes.as_ref()?)];
    let blocks_bytes = [report.read_block.bytes, report.write_block.bytes];
    let error_pct = |form| {
        let model = CostModel::from_figures(&figures, form, blocks_bytes[0], blocks_bytes[1]);
        let errors = curves.iter().zip(blocks_bytes).map(|((op, curve), block)| error_pct(&model, *op, curve, block));
        errors.fold(0.0, f64::max)
    };

    let (error_pct, knee_error_pct) = (error_pct(CostForm::Max), error_pct(CostForm::Knee));
    (error_pct <= EXPLAINED_PCT && knee_error_pct >= MISSED_PCT).then(|| LimitsApart {
        error_pct,
        knee_error_pct,
        mix_exponent_p: report.frontier.as_ref().and_then(|frontier| mix_exponent(frontier, &figures)),
    })
}

/// Returns the largest error of `model`'s rates, in per cent of the measured ones.
fn error_pct(model: &CostModel, op: Op, curve: &SizeCurve, block_bytes: u32) -> f64 {
    let points = curve.points.iter().filter(|point| point.block_bytes >= block_bytes);
    let errors =
        points.map(|point| (1.0 / (model.cost(op, point.block_bytes).as_secs_f64() * point.iops) - 1.0).abs() * 100.0);
    errors.fold(0.0, f64::max)
}

/// Returns the mix exponent at the limit in force in each mix; `None` if it is infinite.
fn mix_exponent(measured: &Frontier, figures: &FourFigures) -> Option<f64> {
    let part = |per_s: f64, of: plimsoll::core::Rate| of.get().map_or(0.0, |most| per_s / most as f64);
    let loads = measured.points.iter().map(|point| {
        let reads = point.reads * measured.read_iops;
        let written_bytes = point.writes * measured.write_bytes_per_s;
        let operations = (
            part(reads, figures.read_iops),
            part(written_bytes / f64::from(measured.write_block_bytes), figures.write_iops),
        );
        let bytes = (
            part(reads * f64::from(measured.read_block_bytes), figures.read_bandwidth),
            part(written_bytes, figures.write_bandwidth),
        );
        if operations.0 + operations.1 > bytes.0 + bytes.1 { operations } else { bytes }
    });
    Some(frontier::mix_exponent(&loads.collect::<Vec<_>>())?.mix_exponent).filter(|p| p.is_finite())
}

#[cfg(test)]
mod tests {
    use plimsoll::core::Rate;

    use super::super::super::report::{FrontierPoint, SizePoint};
    use super::*;

    fn figures(iops: u64, bytes_per_s: u64) -> FourFigures {
        let (iops, bandwidth) = (Rate::per_second(iops), Rate::per_second(bytes_per_s));
        FourFigures { read_iops: iops, write_iops: iops, read_bandwidth: bandwidth, write_bandwidth: bandwidth }
    }

    /// Returns the rates by size of a disk of this form.
    fn curve(form: CostForm, figures: &FourFigures) -> SizeCurve {
        let model = CostModel::from_figures(figures, form, 4096, 4096);
        let points = (9..=20).map(|power| {
            let block_bytes = 1u32 << power;
            let iops = 1.0 / model.cost(Op::Read, block_bytes).as_secs_f64();
            SizePoint { block_bytes, iops, bytes_per_s: iops * f64::from(block_bytes), depth: 32 }
        });
        SizeCurve { points: points.collect(), model_residuals_pct: Vec::new(), fit: None }
    }

    #[test]
    fn each_form_explains_its_own_curve() {
        let figures = figures(3000, 250_000_000);
        let error = |form, of| {
            error_pct(&CostModel::from_figures(&figures, form, 4096, 4096), Op::Read, &curve(of, &figures), 4096)
        };
        assert!(error(CostForm::Max, CostForm::Max) < 0.1 && error(CostForm::Knee, CostForm::Knee) < 0.1);
        assert!(error(CostForm::Knee, CostForm::Max) > 35.0 && error(CostForm::Max, CostForm::Knee) > 35.0);
    }

    #[test]
    fn short_reads_beside_long_writes_are_judged_at_the_limit_in_force() {
        // One budget of 3000 operations and one of 250 MB/s for both: beside reads of 4 KiB, writes of 128 KiB get
        // nearly all bytes until operations run out.
        let figures = figures(3000, 250_000_000);
        let point = |reads: f64| {
            let left = (3000.0 - reads) * 131_072.0;
            FrontierPoint { reads: reads / 3000.0, writes: left.min(250e6 - reads * 4096.0) / 250e6 }
        };
        let measured = Frontier {
            read_iops: 3000.0,
            read_block_bytes: 4096,
            write_bytes_per_s: 250e6,
            write_block_bytes: 131_072,
            points: [0.0, 500.0, 1000.0, 1500.0, 2000.0, 2500.0, 3000.0].map(point).to_vec(),
            mix_exponent_p: None,
            rmse: 0.0,
        };
        let apart = mix_exponent(&measured, &figures).unwrap();
        assert!((apart - 1.0).abs() < 0.02, "{apart}");
        let pairs: Vec<(f64, f64)> = measured.points.iter().map(|point| (point.reads, point.writes)).collect();
        let as_one_budget = frontier::mix_exponent(&pairs).unwrap().mix_exponent;
        assert!(as_one_budget > 1.3, "{as_one_budget}");
    }
}
