//! Checks a [`DeviceSpec`].
//!
//! # Why
//! A rate of zero or NaN would not fail in the model: it would run and give nonsense, or never return a request.
//!
//! # How it works
//! One table of (key, value, kind of number) holds the plain parameters; checks of several parameters together follow.
//! The first that fails is reported.
//!
//! # Limits
//! The check refuses impossible values; it does not judge whether a disk is plausible.
//!
//! # Example
//! A `raid0.members` of 0 gives "raid0.members is 0; it must be from 1 to 256".

use super::spec::*;

const POSITIVE: &str = "positive and finite";
const NOT_NEGATIVE: &str = "finite, 0 or more";
const SHARE: &str = "from 0 to 1";
const RISING: &str = "rising";

/// Largest rate or duration accepted. A larger one is an error of unit.
const LARGEST: f64 = 1e18;

impl DeviceSpec {
    /// Checks that a device can be made of the specification.
    ///
    /// # Errors
    /// The first parameter that is out of range, with the expected range.
    pub fn check(&self) -> Result<(), SpecError> {
        self.check_numbers()?;
        self.check_counts()?;
        check_table("rates.read_table", &self.rates.read_table)?;
        check_table("rates.write_table", &self.rates.write_table)?;
        self.check_curves()?;
        self.check_caps()?;
        self.check_faults()
    }

    fn check_numbers(&self) -> Result<(), SpecError> {
        let (rates, latency, interference) = (&self.rates, &self.latency, &self.interference);
        let (flash, weather) = (&self.flash, &self.weather);
        let positive = [
            ("rates.read_iops", rates.read_iops),
            ("rates.read_bytes_per_s", rates.read_bytes_per_s),
            ("rates.write_iops", rates.write_iops),
            ("rates.write_bytes_per_s", rates.write_bytes_per_s),
            ("mix_memory_ns", self.mix_memory_ns),
            ("interference.memory_ns", interference.memory_ns),
            ("flash.pause_period_ns", flash.pause_period_ns),
            ("weather.noise_step_ns", weather.noise_step_ns as f64),
            ("weather.stall_min_ns", weather.stall_min_ns),
            ("weather.stall_alpha", weather.stall_alpha),
            ("channels.stripe_bytes", f64::from(self.channels.stripe_bytes)),
            ("hdd.rotation_ns", self.hdd.as_ref().map_or(1.0, |hdd| hdd.rotation_ns)),
        ];

        let not_negative = [
            ("rates.flush_ns", rates.flush_ns),
            ("rates.discard_ns", rates.discard_ns),
            ("latency.read_ns", latency.read_ns),
            ("latency.write_ns", latency.write_ns),
            ("latency.per_kib_ns", latency.per_kib_ns),
            ("interference.program_ns", interference.program_ns),
            ("buffer.burst_bytes_per_s", self.buffer.burst_bytes_per_s),
            ("flash.pause_mean_ns", flash.pause_mean_ns),
            ("weather.noise_sigma", weather.noise_sigma),
            ("weather.stalls_per_s", weather.stalls_per_s),
            ("weather.stall_max_ns", weather.stall_max_ns),
            ("hdd.seek_min_ns", self.hdd.as_ref().map_or(0.0, |hdd| hdd.seek_min_ns)),
            ("hdd.seek_max_ns", self.hdd.as_ref().map_or(0.0, |hdd| hdd.seek_max_ns)),
        ];

        let shares = [
            ("interference.block_probability", interference.block_probability),
            ("flash.initial_fill", flash.initial_fill),
            ("flash.discard_residue", flash.discard_residue),
            ("error_rate", self.error_rate),
            ("short_rate", self.short_rate),
        ];

        for (key, value) in positive {
            require(value > 0.0 && value < LARGEST, key, POSITIVE, &value)?;
        }
        for (key, value) in not_negative {
            require((0.0..LARGEST).contains(&value), key, NOT_NEGATIVE, &value)?;
        }
        for (key, value) in shares {
            require((0.0..=1.0).contains(&value), key, SHARE, &value)?;
        }

        let sigma = latency.sigma;
        require((0.0..=8.0).contains(&sigma), "latency.sigma", "from 0 to 8", &sigma)?;
        let p = self.mix_exponent_p;
        require(p > 0.0, "mix_exponent_p", "above 0, or infinite", &p)?;
        let drift = weather.drift_per_s;
        require(drift.is_finite(), "weather.drift_per_s", "finite", &drift)?;
        let spare = flash.over_provisioning;
        require((0.005..=4.0).contains(&spare), "flash.over_provisioning", "from 0.005 to 4", &spare)
    }

    fn check_counts(&self) -> Result<(), SpecError> {
        require(self.capacity_bytes >= 4096, "capacity_bytes", "at least 4096", &self.capacity_bytes)?;
        let members = self.raid0.members;
        require((1..=256).contains(&members), "raid0.members", "from 1 to 256", &members)?;
        let chunk = self.raid0.chunk_bytes;
        require((1..=1 << 40).contains(&chunk), "raid0.chunk_bytes", "from 1 to 2^40", &chunk)?;
        if let Some(most) = self.latency.command_max_bytes {
            require(most >= 512, "latency.command_max_bytes", "at least 512, or none", &most)?;
        }
        if let Some(count) = self.channels.count {
            require((1..=1024).contains(&count), "channels.count", "from 1 to 1024", &count)?;
        }
        let depth = self.hdd.as_ref().map_or(1, |hdd| hdd.elevator_depth);
        require((1..=32).contains(&depth), "hdd.elevator_depth", "from 1 to 32", &depth)
    }

    fn check_curves(&self) -> Result<(), SpecError> {
        let (curve, weather) = (&self.flash.fill_curve, &self.weather);
        for &(fill, factor) in curve {
            require((0.0..=1.0).contains(&fill), "flash.fill_curve", "fill levels from 0 to 1", &fill)?;
            require(factor > 0.0 && factor < LARGEST, "flash.fill_curve", "positive factors", &factor)?;
        }
        let rises = curve.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
        require(rises, "flash.fill_curve", RISING, &"not rising")?;
        for &(_, factor) in &weather.capacity_steps {
            require(factor > 0.0 && factor < LARGEST, "weather.capacity_steps", "positive factors", &factor)?;
        }
        let rises = weather.capacity_steps.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
        require(rises, "weather.capacity_steps", RISING, &"not rising")?;
        let apart = weather.stalls.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
        require(apart, "weather.stalls", RISING, &"not rising")
    }

    fn check_caps(&self) -> Result<(), SpecError> {
        for cap in &self.caps {
            let (base, burst) = (cap.base_per_s, cap.burst_per_s);
            require(base > 0.0 && base < LARGEST, "caps.base_per_s", POSITIVE, &base)?;
            require((base..LARGEST).contains(&burst), "caps.burst_per_s", "at least caps.base_per_s", &burst)?;
            require((0.0..LARGEST).contains(&cap.credits), "caps.credits", NOT_NEGATIVE, &cap.credits)?;
        }
        Ok(())
    }

    fn check_faults(&self) -> Result<(), SpecError> {
        for fault in &self.raid0.member_faults {
            let (key, member) = ("raid0.member_faults.member", fault.member);
            require(member < self.raid0.members, key, "below raid0.members", &member)?;
            let (key, factor) = ("raid0.member_faults.speed_factor", fault.speed_factor);
            require(factor > 0.0 && factor < LARGEST, key, POSITIVE, &factor)?;
            let (key, rate) = ("raid0.member_faults.error_rate", fault.error_rate);
            require((0.0..=1.0).contains(&rate), key, SHARE, &rate)?;
        }
        self.faults.iter().try_for_each(FaultWindow::check)
    }
}

impl FaultWindow {
    /// Checks that the fault can be injected.
    ///
    /// # Errors
    /// The parameter that is out of range, with the expected range.
    pub fn check(&self) -> Result<(), SpecError> {
        require(self.from_ns < self.until_ns, "faults.until_ns", "above faults.from_ns", &self.until_ns)?;
        match self.kind {
            FaultKind::Errors { rate, errno } => {
                require(errno > 0, "faults.errno", "positive", &errno)?;
                require((0.0..=1.0).contains(&rate), "faults.rate", SHARE, &rate)
            }
            FaultKind::Short { rate } => require((0.0..=1.0).contains(&rate), "faults.rate", SHARE, &rate),
            FaultKind::Hang { requests, .. } => require(requests > 0, "faults.requests", "at least 1", &requests),
            FaultKind::HoldWrites => Ok(()),
            FaultKind::Slow { speed_factor: factor } => {
                require(factor > 0.0 && factor < LARGEST, "faults.speed_factor", POSITIVE, &factor)
            }
        }
    }
}

fn check_table(key: &'static str, table: &[(u32, f64)]) -> Result<(), SpecError> {
    require(table.len() != 1, key, "empty, or at least two points", &table.len())?;
    require(table.len() <= plimsoll_core::MAX_TABLE_POINTS, key, "at most 64 points", &table.len())?;
    for &(_, ops_per_s) in table {
        require(ops_per_s > 0.0 && ops_per_s < LARGEST, key, "positive operations a second", &ops_per_s)?;
    }
    let rises = table.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0));
    require(rises, key, "rising in length", &"not rising")
}

fn require(
    holds: bool,
    key: &'static str,
    expected: &'static str,
    found: &dyn std::fmt::Display,
) -> Result<(), SpecError> {
    if holds { Ok(()) } else { Err(SpecError { key, expected, found: found.to_string() }) }
}
