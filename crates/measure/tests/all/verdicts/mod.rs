//! Whether verdicts are true: `test --sweep`, `test --dual`, `trace gaps`, `trace little` and `tune` on simulated disks,
//! most of them disturbed. Of each case one verdict is right; "unclear" is not wrong. `stat` has cases of its own in the
//! crate that it lies in.
//!
//! `--nocapture` shows the tally, and every case that is not right.

mod loads;
mod traces;
mod tune;
mod world;

use plimsoll_core::Op;

use loads::References;
use world::{Above, Beside, Disk, Reach, Situation};

/// Parts of the cases that must be right or unclear, that may be wrong, and that may be unclear.
const WRONG_MOST: f64 = 0.01;
const UNCLEAR_MOST: f64 = 0.10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Right,
    Unclear,
    Wrong,
}

/// What a command said of a situation.
struct Case {
    command: &'static str,
    found: Found,
    /// Whether anything disturbed it: noise, stalls, a neighbour, lost events.
    is_disturbed: bool,
    /// The situation, the truth, and what was said.
    told: String,
}

const fn disk(name: &'static str, op: Op, len_bytes: u32, neighbour_pct: u8) -> Disk {
    Disk { name, op, len_bytes, neighbour_pct }
}

const DISKS: [Disk; 7] = [
    disk("ssd", Op::Read, 4096, 5),
    disk("ssd", Op::Write, 4096, 8),
    disk("ssd", Op::Read, 128 << 10, 30),
    disk("samsung-ssd-860", Op::Read, 4096, 5),
    disk("hfs256gd9tng-62a0a", Op::Read, 16 << 10, 3),
    disk("i4i.2xlarge", Op::Read, 4096, 5),
    disk("gp3", Op::Read, 4096, 30),
];

const LOADS: [(Above, Reach); 5] = [
    (Above::Nothing, Reach::Below),
    (Above::Nothing, Reach::Beyond),
    (Above::Tokens, Reach::Beyond),
    (Above::Depth, Reach::Beyond),
    (Above::Wide, Reach::Beyond),
];

const BESIDE: [Beside; 4] = [Beside::Nothing, Beside::Noise, Beside::Stalls, Beside::Neighbour];

/// Every disk under every load with every disturbance. A neighbour is beside the disk, not behind our scheduler.
fn situations() -> impl Iterator<Item = Situation> {
    let all = DISKS.into_iter().flat_map(|disk| LOADS.map(|(above, reach)| (disk, above, reach)));
    let all = all.flat_map(|(disk, above, reach)| BESIDE.map(|beside| Situation { disk, above, beside, reach }));
    all.filter(|it| it.above == Above::Nothing || it.beside != Beside::Neighbour)
}

/// Prints the tally and the cases that are not right, and fails where too many are not, or where there are fewer cases, or
/// fewer disturbed ones, than `least`.
fn check(cases: &[&Case], least: (usize, usize), left_out: usize) {
    let count = |found: Found| cases.iter().filter(|case| case.found == found).count();
    let (right, unclear, wrong) = (count(Found::Right), count(Found::Unclear), count(Found::Wrong));
    for case in cases.iter().filter(|case| case.found != Found::Right) {
        println!("{} {:?}: {}", case.command, case.found, case.told);
    }
    let command = cases[0].command;
    let disturbed = cases.iter().filter(|case| case.is_disturbed).count();
    println!(
        "{command}: {right} right, {unclear} unclear, {wrong} wrong of {}, {disturbed} disturbed; {left_out} without one \
         truth",
        cases.len()
    );
    let part = |count: usize| count as f64 / cases.len() as f64;
    assert!(part(wrong) <= WRONG_MOST, "{command}: {wrong} of {} verdicts are wrong", cases.len());
    assert!(part(unclear) <= UNCLEAR_MOST, "{command}: {unclear} of {} verdicts are unclear", cases.len());
    let are_enough = cases.len() >= least.0 && disturbed >= least.1;
    assert!(are_enough, "{command}: only {} cases, {disturbed} of them disturbed", cases.len());
}

fn judge(least: (usize, usize), of: impl Fn(&Situation, u64, &mut References) -> Option<Case>) {
    let mut references = References::default();
    let (mut cases, mut left_out) = (Vec::new(), 0);
    for (seed, situation) in (1..).zip(situations()) {
        match of(&situation, seed, &mut references) {
            Some(case) => cases.push(case),
            None => left_out += 1,
        }
    }
    check(&cases.iter().collect::<Vec<_>>(), least, left_out);
}

#[test]
fn of_sweeps() {
    judge((118, 83), loads::of_sweep);
}

#[test]
fn of_dual_runs() {
    judge((96, 68), loads::of_dual);
}

#[test]
fn of_gaps() {
    judge((98, 70), loads::of_gaps);
}

/// Programs of each kind, of which `trace gaps` and `trace little` say what limits them.
#[test]
fn of_programs_in_traces() {
    let found = traces::all();
    for command in ["gaps", "little"] {
        let cases: Vec<&Case> = found.iter().flatten().filter(|case| case.command == command).collect();
        check(&cases, (160, 96), found.len() - cases.len());
    }
}

#[test]
fn of_figures_beside_their_curves() {
    let cases = tune::beside_curves();
    check(&cases.iter().collect::<Vec<_>>(), (1400, 1150), 0);
}

/// Part of the intervals that hold the truth: what "95 %" promises.
const HELD_LEAST: f64 = 0.95;

#[test]
fn of_figures_and_their_intervals() {
    let (cases, measured) = tune::all();
    for weather in tune::WEATHERS {
        let of = || measured.iter().filter(|figure| figure.weather == weather);
        let held = of().filter(|figure| figure.is_held).count();
        println!("tune, {weather:?}: the truth is in {held} of {} intervals", of().count());
    }
    let held = measured.iter().filter(|figure| figure.is_held).count() as f64 / measured.len() as f64;
    println!("tune: the truth is in {:.1} % of {} intervals", 100.0 * held, measured.len());
    check(&cases.iter().collect::<Vec<_>>(), (210, 182), 0);
    assert!(held >= HELD_LEAST, "{held} of the intervals hold the truth");
}
