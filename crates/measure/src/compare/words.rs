//! A comparison in words, for tables and pages.
//!
//! **Why.** The terminal and the page show the same texts.
//!
//! **How.** Formats each part of a [`CompareReport`] as text, and makes the [`Section`]s of its page.
//!
//! **Limits.** Figures are rounded for people; JSON has them in full.
//!
//! **Example.** `IOPS`, `1,000`, `900`, `B`, `-10.00 %`, `-10.50 to -9.50`, `<0.0001`, `***`, `worse`.

use plimsoll_figures::stats::ALPHA;
use plimsoll_figures::units::{format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_files::variant_name;
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{Block, Section};
use plimsoll_show::table::Table;

use super::{CompareReport, Comparison, JobVerdict, Overall, SCHEMA, Side, Verdict};

const METRIC_WIDTH: usize = 36;

/// Headers of [`Comparison::cells`].
pub const CELL_HEADERS: [&str; 9] = ["", "A", "other", "", "change", "95 % interval", "p", "", "verdict"];

impl CompareReport {
    pub fn from_json(text: &str) -> Result<CompareReport, String> {
        let report: CompareReport =
            serde_json::from_str(text).map_err(|error| format!("this comparison is damaged: {error}"))?;
        if report.schema > SCHEMA {
            let found = report.schema;
            return Err(format!("this comparison has schema {found}, known is up to {SCHEMA}: use a newer plimsoll"));
        }
        Ok(report)
    }

    /// Returns the jobs or scenarios, each once, in order.
    pub fn job_names(&self) -> Vec<&str> {
        let mut jobs: Vec<&str> = self.comparisons.iter().map(|comparison| comparison.job.as_str()).collect();
        jobs.dedup();
        jobs
    }

    /// Describes which side is better in a job.
    pub fn winner(&self, verdict: &JobVerdict) -> String {
        let JobVerdict { job, side, winner } = verdict;
        let of = |comparison: &&Comparison| comparison.job == *job && comparison.side == *side;
        let has = |verdict: Verdict| self.comparisons.iter().filter(of).any(|comparison| comparison.verdict == verdict);
        match winner {
            Some(winner) if winner == side => format!("A and {side}: {side} is better"),
            Some(_) => format!("A and {side}: A is better"),
            None if has(Verdict::Better) => format!("A and {side}: better in some figures, worse in others"),
            None => format!("A and {side}: no evidence that either is better"),
        }
    }

    /// Describes the verdict on several jobs or points together, for each side but the base; empty for a single job.
    pub fn overall_words(&self) -> Vec<String> {
        let several = self.overall.iter().filter(|overall| overall.better + overall.worse + overall.open > 1);
        several
            .map(|Overall { side, winner, better, worse, open }| {
                let all = better + worse + open;
                let conclusion = match winner {
                    Some(winner) => format!("{winner} is better"),
                    None if *better > 0 => format!("{side} is better in some, A in others"),
                    None => "no evidence that either is better".to_owned(),
                };
                format!(
                    "Overall, A and {side}: {conclusion} (of {all}, {side} is better in {better}, A in {worse}, no evidence \
                     in {open})"
                )
            })
            .collect()
    }

    /// Returns which side is better, by the first job that decides.
    pub fn answer(&self) -> Answer {
        let decided = self.jobs.iter().find(|job| job.winner.is_some()).or_else(|| self.jobs.first());
        let Some(job) = decided else { return Answer::new(Mood::Quiet, "there is nothing to compare", "", "") };

        let more = match self.jobs.len() {
            1 => String::new(),
            jobs => format!(" in {} (one of {jobs} comparisons)", job.job),
        };
        let mood = match job.winner {
            _ if self.regression => Mood::Bad,
            Some(_) => Mood::Good,
            None => Mood::Quiet,
        };

        let first = self.comparisons.iter().find(|comparison| comparison.job == job.job && comparison.side == job.side);
        let figure = first.map_or_else(String::new, |comparison| {
            let [name, base, other, _, change, interval, ..] = comparison.cells();
            let interval = if interval.is_empty() { interval } else { format!(", 95 % interval {interval}") };
            format!("{}: {base} and {other}, {}{interval}", name.trim(), change.trim())
        });

        let confidence = match self.warnings.len() {
            0 => String::new(),
            count => format!("{count} warning(s) say what lowers it"),
        };

        Answer::new(mood, format!("{}{more}", self.winner(job)), figure, confidence)
    }

    /// Explains p and the verdicts.
    pub fn rule(&self) -> String {
        if self.comparisons.iter().all(|comparison| comparison.metric == "rate") {
            return format!(
                "The interval: from what passed and what failed on both sides. better, worse: all of it beyond {} %. same: \
                 all of it within {0} %. open: no evidence.",
                self.threshold_pct
            );
        }
        if self.comparisons.iter().all(|comparison| comparison.p.is_none()) {
            return "These figures are exact, or too few to test.".to_owned();
        }
        format!(
            "p: how often chance makes such a difference, all comparisons taken together; * below {ALPHA}, ** below \
             0.001, *** below 0.0001. better, worse: * and more than {} %. same: surely within {0} %. open: no \
             evidence.",
            self.threshold_pct
        )
    }

    pub fn sections(&self) -> Vec<Section> {
        let sides = self.sides.iter().map(|side| Block::Text(side.line()));
        let overall = self.overall_words().into_iter().map(|words| Block::Text(format!("{words}.")));
        let rule = [Block::Warnings(self.warnings.clone()), Block::Text(self.rule())];
        let blocks = std::iter::once(self.answer().into()).chain(overall).chain(sides).chain(rule).collect();
        let mut sections = vec![Section { heading: "What is compared".to_owned(), blocks }];
        for job in self.job_names() {
            let of_job = self.comparisons.iter().filter(|comparison| comparison.job == job);
            let table = Table::new("", CELL_HEADERS, of_job.map(|comparison| comparison.cells()));
            let winners = self.jobs.iter().filter(|verdict| verdict.job == job && self.jobs.len() > 1);
            let winners = winners.map(|verdict| Block::Text(format!("{}.", self.winner(verdict))));
            let blocks = winners.chain([Block::Table(table)]).collect();
            sections.push(Section { heading: job.to_owned(), blocks });
        }
        sections
    }
}

impl Side {
    /// Returns the side's letter, files, versions and the verdicts on its curves.
    pub fn line(&self) -> String {
        let role = if self.side == 'A' { " (base)" } else { "" };
        let versions = match self.versions.join(", ") {
            versions if versions.is_empty() => String::new(),
            versions => format!(", plimsoll {versions}"),
        };
        let curves: String = self.curves.iter().map(|curve| format!("; {curve}")).collect();
        format!("{}{role}: {}{versions}{curves}", self.side, self.files.join(", "))
    }
}

impl Comparison {
    /// Returns figure, base, other, side, change, its interval, p, stars, verdict: see [`CELL_HEADERS`].
    pub fn cells(&self) -> [String; 9] {
        let Comparison { metric, base, other, side, change_pct, p, p_together, .. } = self;

        let interval = match (self.change_low_pct, self.change_high_pct) {
            // Figures without p are exact, except the ends of a search.
            (Some(low), Some(high)) if p.is_none() && low == high => String::new(),
            (Some(low), Some(high)) => format!("{} to {} %", signed(low), signed(high)),
            _ => String::new(),
        };

        let stars = match p_together {
            Some(p) if *p < 0.0001 => "***",
            Some(p) if *p < 0.001 => "**",
            Some(p) if *p < ALPHA => "*",
            _ => "",
        };

        let chance = match p_together {
            Some(p) if *p < 0.0001 => "<0.0001".to_owned(),
            Some(p) => format!("{p:.4}"),
            None => String::new(),
        };

        [
            metric_name(metric),
            figure(metric, *base),
            figure(metric, *other),
            side.to_string(),
            change_pct.map_or_else(|| "n/a".to_owned(), |change| format!("{} %", signed(change))),
            interval,
            chance,
            stars.to_owned(),
            variant_name(self.verdict),
        ]
    }
}

/// Formats a percentage with a sign, and with two decimals if it is below 100.
fn signed(percent: f64) -> String {
    match percent.abs() {
        small if small < 99.995 => format!("{percent:+.2}"),
        large if large < 1e5 => format!("{percent:+.0}"),
        _ => format!("{percent:+.0e}"),
    }
}

fn metric_name(metric: &str) -> String {
    let name = match metric {
        "throughput_bytes_per_s" => "throughput",
        "iops" => "IOPS",
        "rate" => "highest rate",
        "latency_mean_us" => "latency mean",
        "latency_p50_us" => "latency p50",
        "latency_p95_us" => "latency p95",
        "latency_p99_us" => "latency p99",
        "latency_p99_9_us" => "latency p99.9",
        other => other,
    };
    name.chars().take(METRIC_WIDTH).collect()
}

fn figure(metric: &str, value: f64) -> String {
    match metric {
        "throughput_bytes_per_s" => format_throughput_decimal(value),
        "iops" | "rate" => format_iops(value),
        _ if metric.starts_with("latency_") && metric.ends_with("_us") => format_duration_ns((value * 1e3) as u64),
        _ if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) => format!("{value:.3e}"),
        _ => format!("{value:.4}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}
