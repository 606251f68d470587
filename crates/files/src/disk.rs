//! disk.yaml: a disk model, for the scheduler and for the simulator.
//!
//! **Why.** Four figures are the limits of a disk for one kind of request each. A model also states how reads and
//! writes disturb each other, how long a request takes on the idle disk, and, for the simulator, how the disk behaves
//! under load.
//!
//! **How.** The section `disk:` has the values that a scheduler needs, the optional section `device:` a simulated disk.
//! [`find`] accepts a file or the name of a preset; no file is ever found implicitly. [`write()`] prints a file that
//! [`parse`] reads, with plain integers and no suffixes.
//!
//! **Limits.** One disk in a file. Without tables the cost of a request follows from the four figures.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::disk;
//! let text = "
//! disk:
//!   read_iops: 255000
//!   read_bandwidth: 2G
//!   write_iops: 180000
//!   write_bandwidth: 900M
//!   mix_exponent: 0.8
//! ";
//! let model = disk::parse("disk.yaml", text)?;
//! assert_eq!(model.mix_exponent_p, 0.8);
//! assert_eq!(disk::parse("copy", &disk::write(&model))?.figures, model.figures);
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::fmt::Write as _;
use std::path::Path;

use plimsoll_core::{ControlConfig, CostForm, CostModel, DECAY_TAU_NS, DiskConfig, FourFigures, MixExponent, Rate};
use plimsoll_figures::units::{parse_io_properties_figure, quoted};
use plimsoll_sim::device::{DeviceSpec, presets};
use plimsoll_sim::fit::Fit;

use super::device::{self, SizeTable, Value};
use super::error::{Code, ConfigError, Source};
use super::fields::{Field, Fields, Refused, Schema};
use super::io_properties::{MAX_FIGURE, cost_form, mix_exponent, mix_exponent_text};
use super::yaml;
use crate::keys;
use crate::presets::{ResolveError, resolve};

/// Length at which operations are counted by default: 4 KiB.
const BLOCK_BYTES: u32 = 4096;

#[derive(Clone, Debug)]
pub struct DiskModel {
    pub name: Option<String>,
    pub figures: FourFigures,
    /// The form of the cost of a request by the figures. Not used with tables.
    pub form: CostForm,
    /// The length at which read and write operations were counted, in bytes.
    pub block_bytes: [u32; 2],
    /// Measured reads and writes as (length in bytes, operations per second), which replace the figures.
    pub tables: Option<[SizeTable; 2]>,
    /// p in (r/R)^p + (w/W)^p = 1; above 0, or infinite.
    pub mix_exponent_p: f64,
    /// Whether reads and writes are limited separately.
    pub duplex: bool,
    /// Median latency of a small read on the idle disk, in nanoseconds; 0 if unknown.
    pub unloaded_latency_ns: u64,
    /// Highest factor by which the closed loop may exceed this model, 1 to 100; 1 for data-sheet figures, a ceiling.
    pub capacity_scale_max: f64,
    /// Most requests in flight, for scheduling by depth alone. `None`: unknown.
    pub max_io_requests: Option<u32>,
    /// I/O queues over which these are divided, for scheduling by depth alone. `None`: one for each shard.
    pub num_io_queues: Option<u16>,
    /// Time constant with which a class's past use of the disk fades, for scheduling by depth alone, in nanoseconds;
    /// above 0.
    pub decay_tau_ns: u64,
    /// The device that the simulator runs, if the file has one.
    pub device: Option<DeviceSpec>,
}

impl DiskModel {
    pub fn config(&self) -> DiskConfig {
        let [read_block, write_block] = self.block_bytes;
        let by_figures = || CostModel::from_figures(&self.figures, self.form, read_block, write_block);
        // Readers and makers of tables have checked them.
        let model = match &self.tables {
            Some([read, write]) => CostModel::from_table(read, write).unwrap_or_else(|_| by_figures()),
            None => by_figures(),
        };
        DiskConfig {
            model,
            mix: MixExponent::new(self.mix_exponent_p).unwrap_or(MixExponent::LINEAR),
            duplex: self.duplex,
            unloaded_latency_ns: self.unloaded_latency_ns,
            control: ControlConfig { scale_max: self.capacity_scale_max, ..ControlConfig::default() },
            ..DiskConfig::default()
        }
    }

    /// Returns the model of a preset. A volume limits operations and bytes apart, each for reads and writes together.
    pub fn of_preset(preset: &presets::Preset) -> DiskModel {
        let of_device = DiskModel::of_device(&preset.spec);
        let is_volume = preset.kind == presets::PresetKind::Volume;
        DiskModel {
            name: Some(preset.name.clone()),
            figures: preset.figures,
            form: if is_volume { CostForm::Max } else { of_device.form },
            block_bytes: if is_volume { [BLOCK_BYTES; 2] } else { of_device.block_bytes },
            mix_exponent_p: if is_volume { 1.0 } else { preset.mix_exponent_p },
            unloaded_latency_ns: preset.unloaded_latency_ns,
            max_io_requests: preset.max_io_requests,
            ..of_device
        }
    }

    /// Returns the model that a scheduler would have after measuring the device.
    pub fn of_device(spec: &DeviceSpec) -> DiskModel {
        let (rates, members) = (&spec.rates, f64::from(spec.raid0.members));
        let rate = |per_s: f64| Rate::per_second((per_s * members).round() as u64);
        let has_tables = !rates.read_table.is_empty() && !rates.write_table.is_empty();
        let scaled = |table: &[(u32, f64)]| table.iter().map(|(len, per_s)| (*len, per_s * members)).collect();

        DiskModel {
            name: None,
            figures: FourFigures {
                read_iops: rate(rates.read_iops),
                read_bandwidth: rate(rates.read_bytes_per_s),
                write_iops: rate(rates.write_iops),
                write_bandwidth: rate(rates.write_bytes_per_s),
            },
            form: CostForm::Knee,
            block_bytes: [rates.iops_block_bytes; 2],
            tables: has_tables.then(|| [scaled(&rates.read_table), scaled(&rates.write_table)]),
            mix_exponent_p: spec.mix_exponent_p,
            duplex: false,
            unloaded_latency_ns: (spec.latency.read_ns + spec.network_rtt_ns as f64).round() as u64,
            capacity_scale_max: 1.0,
            max_io_requests: None,
            num_io_queues: None,
            decay_tau_ns: DECAY_TAU_NS,
            device: Some(spec.clone()),
        }
    }

    /// Returns the model of a fit. The scheduler gets the measured frontier, not additional properties of the simulated
    /// device.
    pub fn of_fit(fit: &Fit) -> DiskModel {
        let (spec, frontier) = (&fit.spec, &fit.frontier);

        let part = frontier.read_iops / spec.rates.read_iops;
        let mut shown = spec.clone();
        let rates = &mut shown.rates;
        rates.read_iops *= part;
        rates.read_bytes_per_s *= part;
        rates.write_iops *= part;
        rates.write_bytes_per_s *= part;
        rates.write_table.iter_mut().for_each(|(_, per_s)| *per_s *= part);

        let line = CostModel::from_figures(&DiskModel::of_device(&shown).figures, CostForm::Knee, 4096, 4096);
        let read_point = |len_bytes: u32| {
            let cost_s = line.cost(plimsoll_core::Op::Read, len_bytes).as_secs_f64();
            (len_bytes, 1.0 / cost_s.max(1e-15))
        };
        shown.rates.read_table = shown.rates.write_table.iter().map(|(len_bytes, _)| read_point(*len_bytes)).collect();
        DiskModel { device: Some(spec.clone()), ..DiskModel::of_device(&shown) }
    }
}

const TOP: Schema = Schema {
    what: "a disk file",
    known: &["disk", "device"],
    refused: &[Refused::of_other_format("disks", OF_IO_PROPERTIES)],
};

/// Help for an io-properties file that is given as a disk file.
const OF_IO_PROPERTIES: &str =
    "this is an io-properties file: give it with --io-properties (`plimsoll info` takes it without)";

const DISK: Schema = Schema::of(
    "a disk model",
    &keys![
        name read_iops read_bandwidth write_iops write_bandwidth model read_block_bytes write_block_bytes read_table
        write_table mix_exponent duplex unloaded_latency_ns capacity_scale_max max_io_requests num_io_queues
        decay_tau_ns
    ],
);

const TOP_HELP: &str = "write `disk:` with the four figures below it, or take a preset by its name";

/// Reads the text of a disk file. `source_name` is used in messages only.
///
/// # Errors
/// With the line: unknown or missing keys, figures of 0 or unreadable ones, invalid tables, an impossible device.
pub fn parse(source_name: &str, text: &str) -> Result<DiskModel, ConfigError> {
    parse_source(&Source::new(source_name, text))
}

pub fn parse_from_file(path: &Path) -> Result<DiskModel, ConfigError> {
    parse_source(&yaml::read_file(path)?)
}

/// Returns the preset called `name` (`i4i.2xlarge`, `4x983-dct`, `gp3:500GiB`: see [`resolve`]), or else reads the
/// file; relative paths start at `base`.
///
/// # Errors
/// The errors of [`parse_from_file`]. If there is neither a preset nor a file: the nearest preset, or why the preset is
/// refused.
pub fn find(name: &str, base: &Path) -> Result<DiskModel, ConfigError> {
    let error = match resolve(name) {
        Ok(resolved) => return Ok(DiskModel::of_preset(&resolved.preset)),
        Err(error) => error,
    };
    let path = base.join(name);
    if path.exists() {
        return parse_from_file(&path);
    }
    let message = match &error {
        ResolveError::Unknown { .. } => format!("{} is neither a preset nor a file", quoted(name)),
        ResolveError::Refused(reason) => reason.clone(),
    };
    Err(Source::new(name, "").error(Code::UnknownReference, message).with_help(error.help()))
}

fn parse_source(source: &Source) -> Result<DiskModel, ConfigError> {
    let root = yaml::parse(source)?;
    let top = Fields::read(&Field::root(source, &root, TOP_HELP)?, &TOP)?;
    let device = top.optional("device", |field| device::read(field, &DeviceSpec::default()))?;
    let fields = Fields::read(&top.required("disk", TOP_HELP)?, &DISK)?;
    let block = |key: &str| fields.or(key, BLOCK_BYTES, |field| field.count(512..=1 << 30));

    Ok(DiskModel {
        name: fields.optional("name", Field::string)?,
        figures: read_figures(&fields)?,
        form: fields.or("model", CostForm::Knee, cost_form)?,
        block_bytes: [block("read_block_bytes")?, block("write_block_bytes")?],
        tables: read_tables(&fields)?,
        mix_exponent_p: fields.or("mix_exponent", 1.0, mix_exponent)?,
        duplex: fields.or("duplex", false, Field::boolean)?,
        unloaded_latency_ns: fields.or("unloaded_latency_ns", 0, Field::latency_ns)?,
        capacity_scale_max: fields.or("capacity_scale_max", 1.0, |field| {
            field.number(|scale| (1.0..=100.0).contains(&scale), "from 1 to 100")
        })?,
        max_io_requests: fields.optional("max_io_requests", |field| field.count(1..=u32::MAX))?,
        num_io_queues: fields
            .optional("num_io_queues", |field| field.count(1..=u16::MAX.into()))?
            .and_then(|queues| u16::try_from(queues).ok()),
        decay_tau_ns: fields
            .or("decay_tau_ns", DECAY_TAU_NS, |field| field.count(1_000_000..=u32::MAX).map(u64::from))?,
        device,
    })
}

pub(super) fn read_figures(fields: &Fields<'_>) -> Result<FourFigures, ConfigError> {
    let figure = |key: &str| {
        let help = "all of read_iops, read_bandwidth, write_iops and write_bandwidth are needed";
        let figure = fields.required(key, help)?.figure(parse_io_properties_figure, 1..=MAX_FIGURE, "a second")?;
        Ok(Rate::per_second(figure))
    };
    Ok(FourFigures {
        read_iops: figure("read_iops")?,
        read_bandwidth: figure("read_bandwidth")?,
        write_iops: figure("write_iops")?,
        write_bandwidth: figure("write_bandwidth")?,
    })
}

fn read_tables(fields: &Fields<'_>) -> Result<Option<[SizeTable; 2]>, ConfigError> {
    let (read, write) = match (fields.get("read_table"), fields.get("write_table")) {
        (None, None) => return Ok(None),
        (Some(read), Some(write)) => (read, write),
        (Some(_), None) => return Err(fields.missing("write_table", "write both tables, or none")),
        (None, Some(_)) => return Err(fields.missing("read_table", "write both tables, or none")),
    };
    let tables = [SizeTable::read(&read)?, SizeTable::read(&write)?];
    match CostModel::from_table(&tables[0], &tables[1]) {
        Ok(_) => Ok(Some(tables)),
        Err(error) => {
            let at = if error.to_string().contains("write") { write } else { read };
            let help = "write pairs of length in bytes and operations a second, lengths rising: [[4096, 200000], ...]";
            Err(at.error(Code::InvalidValue, error.to_string()).with_help(help))
        }
    }
}

/// Prints a model as a file that [`parse`] reads.
pub fn write(model: &DiskModel) -> String {
    let mut text = String::from("disk:\n");
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "  {key}: {value}");
    };

    if let Some(name) = &model.name {
        line("name", yaml::quoted_scalar(name));
    }
    let figures = [
        ("read_iops", model.figures.read_iops),
        ("read_bandwidth", model.figures.read_bandwidth),
        ("write_iops", model.figures.write_iops),
        ("write_bandwidth", model.figures.write_bandwidth),
    ];
    for (key, rate) in figures {
        line(key, rate.get().unwrap_or(MAX_FIGURE).clamp(1, MAX_FIGURE).to_string());
    }

    line("model", model.form.to_string());
    line("read_block_bytes", model.block_bytes[0].to_string());
    line("write_block_bytes", model.block_bytes[1].to_string());
    if let Some([read, write]) = &model.tables {
        line("read_table", Value::text(read));
        line("write_table", Value::text(write));
    }
    line("mix_exponent", mix_exponent_text(model.mix_exponent_p));
    line("duplex", model.duplex.to_string());
    line("unloaded_latency_ns", model.unloaded_latency_ns.to_string());
    if model.capacity_scale_max != 1.0 {
        line("capacity_scale_max", model.capacity_scale_max.to_string());
    }
    let depth = [("max_io_requests", model.max_io_requests), ("num_io_queues", model.num_io_queues.map(u32::from))];
    for (key, value) in depth.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        line(key, value.to_string());
    }
    if model.decay_tau_ns != DECAY_TAU_NS {
        line("decay_tau_ns", model.decay_tau_ns.to_string());
    }
    if let Some(spec) = &model.device {
        text.push_str("device:\n");
        text.push_str(&device::write(spec));
    }
    text
}
