//! The section `device:` of a disk file, or of a scenario's disk: the behaviour of a simulated disk.
//!
//! **Why.** A [`DeviceSpec`] is plain numbers. A file uses the same names, so that a parameter in the simulator's
//! messages can be found in the file.
//!
//! **How.** One table (`sections`) lists every parameter with its place in the structure. Reading and writing use it,
//! so that neither can omit one. Names carry their units, values are plain numbers; lists of pairs are written as
//! `[[4096, 200000], [131072, 9000]]`. Missing parameters have their defaults.
//!
//! **Limits.** Faults at a time are not part of a disk, but of a scenario.
//!
//! **Example.** `rates: {read_iops: 0}` gives `rates.read_iops is 0; it must be positive and finite`, at that value.

use std::fmt::Write as _;

use plimsoll_sim::device::{
    BufferSpec, CapSpec, CapUnit, ChannelSpec, DeviceSpec, FlashSpec, HddSpec, InterferenceSpec, LatencySpec,
    MemberFault, RaidSpec, RateSpec, WeatherSpec,
};
use plimsoll_sim::latency_surface::LatencySurface;

use super::error::{Code, ConfigError};
use super::fields::{Field, Fields, Schema};

/// Points of (length in bytes, operations per second), with rising lengths.
pub type SizeTable = Vec<(u32, f64)>;

trait Parameter {
    fn set(&mut self, field: &Field<'_>) -> Result<(), ConfigError>;
    fn text(&self) -> String;
}

/// A type of value in a file.
pub(super) trait Value: Sized {
    fn read(field: &Field<'_>) -> Result<Self, ConfigError>;
    fn text(&self) -> String;
}

impl<T: Value> Parameter for T {
    fn set(&mut self, field: &Field<'_>) -> Result<(), ConfigError> {
        *self = T::read(field)?;
        Ok(())
    }

    fn text(&self) -> String {
        Value::text(self)
    }
}

impl Value for f64 {
    fn read(field: &Field<'_>) -> Result<f64, ConfigError> {
        if field.is_scalar() && field.text()? == "infinite" {
            return Ok(f64::INFINITY);
        }
        field.number(|_| true, "with its decimals, or in the form 1e6")
    }

    fn text(&self) -> String {
        if self.is_infinite() { "infinite".to_owned() } else { self.to_string() }
    }
}

impl Value for u64 {
    fn read(field: &Field<'_>) -> Result<u64, ConfigError> {
        field.figure(plimsoll_figures::units::parse_count, 0..=1 << 60, "(a plain whole number)")
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    fn read(field: &Field<'_>) -> Result<u32, ConfigError> {
        field.count(0..=u32::MAX)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    fn read(field: &Field<'_>) -> Result<bool, ConfigError> {
        field.boolean()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl<T: Value> Value for Option<T> {
    fn read(field: &Field<'_>) -> Result<Option<T>, ConfigError> {
        if field.is_scalar() && field.text()? == "none" { Ok(None) } else { T::read(field).map(Some) }
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "none".to_owned(), Value::text)
    }
}

impl<A: Value, B: Value> Value for (A, B) {
    fn read(field: &Field<'_>) -> Result<(A, B), ConfigError> {
        match field.list()?.as_slice() {
            [first, second] => Ok((A::read(first)?, B::read(second)?)),
            _ => Err(field.error(Code::WrongType, "expected a pair").with_help("write two values: [4096, 200000]")),
        }
    }

    fn text(&self) -> String {
        format!("[{}, {}]", self.0.text(), self.1.text())
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(field: &Field<'_>) -> Result<Vec<T>, ConfigError> {
        field.list()?.iter().map(T::read).collect()
    }

    fn text(&self) -> String {
        format!("[{}]", self.iter().map(Value::text).collect::<Vec<_>>().join(", "))
    }
}

type Parameters<'a> = Vec<(&'static str, &'a mut dyn Parameter)>;

/// Lists the fields of a structure as parameters of the same names; fields after a semicolon are read elsewhere.
macro_rules! parameters {
    ($of:expr; $type:ident: $($name:ident),+ $(; $($other:ident),+)?) => {{
        let $type { $($name: _,)+ $($($other: _),+)? } = &$of;
        vec![$((stringify!($name), &mut $of.$name as &mut dyn Parameter)),+]
    }};
}

/// Returns every parameter by section; parameters without a section come first.
fn sections(spec: &mut DeviceSpec) -> Vec<(&'static str, Parameters<'_>)> {
    let top = parameters!(
        spec; DeviceSpec: capacity_bytes, mix_exponent_p, mix_memory_ns, network_rtt_ns, error_rate, short_rate, hdd,
        caps, latency_surface; rates, latency, channels, interference, buffer, flash, weather, raid0, faults
    );
    let rates = parameters!(
        spec.rates; RateSpec: read_iops, read_bytes_per_s, write_iops, write_bytes_per_s, iops_block_bytes,
        read_table, write_table, rewrite_block_bytes, flush_ns, discard_ns
    );
    let interference = parameters!(
        spec.interference; InterferenceSpec: program_ns, suspend, block_probability, memory_ns
    );
    let flash = parameters!(
        spec.flash; FlashSpec: garbage_collection, over_provisioning, initial_fill, fill_curve, discard_residue,
        pause_mean_ns, pause_period_ns
    );
    let weather = parameters!(
        spec.weather; WeatherSpec: capacity_steps, drift_per_s, noise_sigma, noise_step_ns, stalls_per_s,
        stall_min_ns, stall_alpha, stall_max_ns, stalls
    );

    vec![
        ("", top),
        ("rates", rates),
        ("latency", parameters!(spec.latency; LatencySpec: read_ns, write_ns, per_kib_ns, command_max_bytes, sigma)),
        ("channels", parameters!(spec.channels; ChannelSpec: independent, count, stripe_bytes)),
        ("interference", interference),
        ("buffer", parameters!(spec.buffer; BufferSpec: size_bytes, burst_bytes_per_s, flush_drains)),
        ("flash", flash),
        ("weather", weather),
        ("raid0", parameters!(spec.raid0; RaidSpec: members, chunk_bytes, member_faults)),
    ]
}

fn hdd_parameters(hdd: &mut HddSpec) -> Parameters<'_> {
    parameters!(hdd; HddSpec: seek_min_ns, seek_max_ns, rotation_ns, elevator_depth)
}

fn fault_parameters(fault: &mut MemberFault) -> Parameters<'_> {
    parameters!(fault; MemberFault: member, speed_factor, error_rate)
}

impl Value for HddSpec {
    fn read(field: &Field<'_>) -> Result<HddSpec, ConfigError> {
        let mut hdd = HddSpec::default();
        set_all(field, "a hard disk", hdd_parameters(&mut hdd), &[])?;
        Ok(hdd)
    }

    fn text(&self) -> String {
        flow_map(&hdd_parameters(&mut self.clone()))
    }
}

impl Value for MemberFault {
    fn read(field: &Field<'_>) -> Result<MemberFault, ConfigError> {
        read_member_fault(field, &[])
    }

    fn text(&self) -> String {
        flow_map(&fault_parameters(&mut self.clone()))
    }
}

impl Value for CapSpec {
    fn read(field: &Field<'_>) -> Result<CapSpec, ConfigError> {
        let known = ["unit", "unit_bytes", "base_per_s", "burst_per_s", "credits"];
        let fields = Fields::read(field, &Schema::of("a cap", &known))?;
        let unit_field = fields.required("unit", "write `unit: operations` or `unit: bytes`")?;
        let unit = match unit_field.text()? {
            "bytes" => CapUnit::Bytes,
            "operations" => CapUnit::Operations { unit_bytes: fields.or("unit_bytes", 0, u32::read)? },
            _ => return Err(unit_field.not_one_of("what a cap counts", &["operations", "bytes"])),
        };
        let base_per_s = f64::read(&fields.required("base_per_s", "write how many a second")?)?;
        let burst_per_s = fields.or("burst_per_s", base_per_s, f64::read)?;
        Ok(CapSpec { unit, base_per_s, burst_per_s, credits: fields.or("credits", 0.0, f64::read)? })
    }

    fn text(&self) -> String {
        let unit = match self.unit {
            CapUnit::Bytes => "bytes".to_owned(),
            CapUnit::Operations { unit_bytes } => format!("operations, unit_bytes: {unit_bytes}"),
        };
        let CapSpec { base_per_s, burst_per_s, credits, .. } = self;
        format!("{{unit: {unit}, base_per_s: {base_per_s}, burst_per_s: {burst_per_s}, credits: {credits}}}")
    }
}

impl Value for LatencySurface {
    fn read(field: &Field<'_>) -> Result<LatencySurface, ConfigError> {
        let known = ["write_bytes_per_s", "read_iops", "p50_ns", "p95_ns"];
        let fields = Fields::read(field, &Schema::of("a latency surface", &known))?;
        let help =
            "a surface has levels of write_bytes_per_s and read_iops, and p50_ns and p95_ns at all pairs of them";
        let column = |key: &str| Vec::<f64>::read(&fields.required(key, help)?);
        let (p50_ns, p95_ns) = (column("p50_ns")?, column("p95_ns")?);
        LatencySurface::new(column("write_bytes_per_s")?, column("read_iops")?, &p50_ns, &p95_ns)
            .map_err(|error| field.error(Code::InvalidValue, error.to_string()).with_help(help))
    }

    /// Returns the surface with a line for each write level.
    fn text(&self) -> String {
        let (writes, reads) = self.levels();
        let table = |at: &dyn Fn(f64, f64) -> f64| {
            let rows = writes.iter().map(|&write| {
                let row: Vec<String> = reads.iter().map(|&read| at(write, read).round().to_string()).collect();
                format!("\n      {}", row.join(", "))
            });
            rows.collect::<Vec<_>>().join(",")
        };
        let list = |levels: &[f64]| Value::text(&levels.to_vec());
        format!(
            "{{\n    write_bytes_per_s: {},\n    read_iops: {},\n    p50_ns: [{}],\n    p95_ns: [{}]}}",
            list(writes),
            list(reads),
            table(&|write, read| self.p50_ns(write, read)),
            table(&|write, read| self.p95_ns(write, read))
        )
    }
}

fn flow_map(parameters: &Parameters<'_>) -> String {
    let entries: Vec<String> = parameters.iter().map(|(key, value)| format!("{key}: {}", value.text())).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Reads a member fault; the caller reads the keys `also` of the same map.
pub(super) fn read_member_fault(field: &Field<'_>, also: &[&'static str]) -> Result<MemberFault, ConfigError> {
    let mut fault = MemberFault { member: 0, speed_factor: 1.0, error_rate: 0.0 };
    set_all(field, "a member fault", fault_parameters(&mut fault), also)?;
    Ok(fault)
}

/// Sets the parameters that a map names, and returns the map, which may also have the keys `also`.
fn set_all<'a>(
    field: &Field<'a>,
    what: &'static str,
    parameters: Parameters<'_>,
    also: &[&'static str],
) -> Result<Fields<'a>, ConfigError> {
    let known: Vec<&'static str> = parameters.iter().map(|(key, _)| *key).chain(also.iter().copied()).collect();
    let fields = Fields::read(field, &Schema::of(what, &known))?;
    for (key, parameter) in parameters {
        if let Some(value) = fields.get(key) {
            parameter.set(&value)?;
        }
    }
    Ok(fields)
}

/// Reads a device. Parameters that are not in the map stay as in `base`.
pub(super) fn read(field: &Field<'_>, base: &DeviceSpec) -> Result<DeviceSpec, ConfigError> {
    let mut spec = base.clone();
    let mut sections = sections(&mut spec);
    let names: Vec<&'static str> = sections.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect();
    let (_, top) = sections.remove(0);
    let fields = set_all(field, "a device", top, &names)?;
    for (section, parameters) in sections {
        if let Some(map) = fields.get(section) {
            set_all(&map, "this part of a device", parameters, &[])?;
        }
    }
    spec.check().map_err(|error| {
        let at = field.at(error.key.split('.').next().unwrap_or_default());
        at.error(Code::OutOfRange, error.to_string()).with_help(format!("write a value that is {}", error.expected))
    })?;
    Ok(spec)
}

/// Returns the text that [`read`] reads as `spec`, indented by two. Sections that equal the default are left out.
pub(super) fn write(spec: &DeviceSpec) -> String {
    let (mut spec, mut default) = (spec.clone(), DeviceSpec::default());
    let mut text = String::new();
    for ((section, parameters), (_, usual)) in sections(&mut spec).iter().zip(sections(&mut default)) {
        let values: Vec<(&str, String)> = parameters.iter().map(|(key, value)| (*key, value.text())).collect();
        let is_usual = values.iter().zip(usual).all(|((_, value), (_, usual))| *value == usual.text());
        if is_usual && !section.is_empty() {
            continue;
        }
        let indent = if section.is_empty() { "" } else { "  " };
        if !section.is_empty() {
            let _ = writeln!(text, "  {section}:");
        }
        for (key, value) in values.iter().filter(|(_, value)| value != "none" && value != "[]") {
            let _ = writeln!(text, "  {indent}{key}: {value}");
        }
    }
    text
}
