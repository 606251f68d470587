//! Reads the settings that all jobs of a run share: ramp time, backend, goals.
//!
//! **Why.** fio has these for each job; here a run has one of each.
//!
//! **How.** [`read`] reads them from the settings of a job; [`super`] refuses jobs that differ.
//!
//! **Limits.** Settings in which jobs may differ are read by [`super::job`] and [`super::files`].
//!
//! **Example.** `latency_target=2ms`, `latency_percentile=99` is a goal of the run.

use plimsoll::backend::choose::BackendKind;
use plimsoll_figures::units::quoted;

use super::reader::Reader;
use super::values::{self, NS_PER_S, NS_PER_US};
use super::{LatencyGoal, SteadyState};
use crate::error::{Code, ConfigError};
use crate::jobs::SteadyCriterion;

#[derive(Clone, Debug, PartialEq)]
pub struct Common {
    /// Nanoseconds before the measurement begins.
    pub ramp_ns: u64,
    /// The backend of `ioengine`; `None` leaves the choice open.
    pub backend: Option<BackendKind>,
    /// The seed of `randseed`.
    pub seed: Option<u64>,
    /// The latency target, if the run should search for the highest rate that meets it.
    pub latency_goal: Option<LatencyGoal>,
    /// The criterion by which the run may end early.
    pub steady: Option<SteadyState>,
}

/// Reads the settings on which the jobs of a file must agree; `backend` is that of `ioengine`.
pub(super) fn read(reader: &Reader<'_>, backend: Option<BackendKind>) -> Result<Common, ConfigError> {
    Ok(Common {
        ramp_ns: reader.time("ramp_time", NS_PER_S)?.unwrap_or(0),
        backend,
        seed: reader.int("randseed", 0..=u64::MAX)?,
        latency_goal: latency_goal(reader)?,
        steady: steady(reader)?,
    })
}

fn latency_goal(reader: &Reader<'_>) -> Result<Option<LatencyGoal>, ConfigError> {
    let Some(target_ns) = reader.time("latency_target", NS_PER_US)?.filter(|target_ns| *target_ns > 0) else {
        return Ok(None);
    };
    let percentile = |text| values::float(text, 0.0, 100.0).map_err(|wrong| reader.wrong("latency_percentile", wrong));
    let percentile = reader.text("latency_percentile")?.map(percentile).transpose()?.unwrap_or(100.0);
    let window_ns = reader.time("latency_window", NS_PER_US)?.filter(|window_ns| *window_ns > 0);
    Ok(Some(LatencyGoal { target_ns, percentile, window_ns }))
}

fn steady(reader: &Reader<'_>) -> Result<Option<SteadyState>, ConfigError> {
    let name = "steadystate";
    let Some(text) = reader.text(name)? else { return Ok(None) };

    let (word, limit) = text.split_once(':').unwrap_or((text, ""));
    let Some((criterion, is_slope)) = SteadyCriterion::named(word) else {
        let error = reader.error(name, Code::InvalidValue, format!("{} is not a criterion", quoted(word)));
        return Err(error.with_help("write iops:2%, bw:2%, lat:2%, or one of them with `_slope`"));
    };

    let is_percent = limit.ends_with('%');
    let limit = values::float(limit.trim_end_matches('%'), 0.0, 1e18).map_err(|wrong| reader.wrong(name, wrong))?;
    let window_ns = reader.time("steadystate_duration", NS_PER_S)?.unwrap_or(0);
    let ramp_ns = reader.time("steadystate_ramp_time", NS_PER_S)?.unwrap_or(0);
    // Only checked: the interval of samples follows from the length of the window.
    reader.time("steadystate_check_interval", NS_PER_S)?;
    // Without a window fio does not check for a steady state.
    Ok((window_ns > 0).then_some(SteadyState { criterion, is_slope, limit, is_percent, window_ns, ramp_ns }))
}
