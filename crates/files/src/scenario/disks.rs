//! Reads a disk of a scenario: its behaviour, and the scheduler's belief about it.
//!
//! **Why.** The two are separate because wrong properties are the most common trouble.
//!
//! **How.** `disk` names a preset or a disk file, which defines both; `device` changes the disk's behaviour,
//! `io_properties` or `figures` the scheduler's belief. If only a device is given, the scheduler believes what a
//! measurement of the device would show.
//!
//! **Limits.** One entry of io-properties: the file has one disk, or `mountpoint` selects it.
//!
//! **Example.** `{disk: i3en.3xlarge, figures: {read_iops: 50k, ...}}`: a disk whose figures are understated.

use std::path::Path;

use plimsoll_core::{ControlConfig, CostModel, DiskConfig, LatencyGoal, MixExponent};
use plimsoll_figures::units::quoted;
use plimsoll_sim::device::DeviceSpec;
use plimsoll_sim::world::{DiskMode, SimDisk};

use super::super::disk::{self, DiskModel};
use super::super::error::{Code, ConfigError};
use super::super::fields::{Field, Fields, Schema};
use super::super::{device, io_properties};
use crate::io_properties::mix_exponent;
use crate::keys;
use crate::setup::{disk_config, parse_capacity_scale};

pub(super) const KEYS: [&str; 18] = keys![
    disk device io_properties mountpoint figures model mode max_io_requests num_io_queues latency_goal window duplex
    mix_exponent capacity_scale unloaded_latency max_requests wakeup_credit decay_tau
];

const DISK: Schema = Schema::of("a disk", &KEYS);

const FIGURES: Schema = Schema::of("the figures", &["read_iops", "read_bandwidth", "write_iops", "write_bandwidth"]);

pub(super) fn read(field: &Field<'_>, shards: usize, base: &Path) -> Result<(String, SimDisk), ConfigError> {
    let fields = Fields::read(field, &DISK)?;
    let (name, model) = read_model(&fields, base)?;
    let Some(spec) = model.device.clone() else {
        let error = field
            .at("disk")
            .error(Code::MissingKey, "this disk file has no section `device:`, which the simulator needs");
        return Err(error.with_help("make one with `plimsoll sim fit`, name a preset, or write `device:` here"));
    };
    let mut disk = SimDisk::new(spec, read_config(&fields, &model, base)?);
    disk.mode = read_mode(&fields)?;
    let shards = u32::try_from(shards).unwrap_or(u32::MAX);
    disk.num_io_queues = fields.optional("num_io_queues", |field| Ok(field.count(1..=shards)? as u16))?;
    disk.max_requests = fields.or("max_requests", disk.max_requests, |field| field.count(1..=1 << 24))?;
    disk.decay_tau_ns = fields.or("decay_tau", model.decay_tau_ns, |field| field.time_ns(1_000_000))?;
    disk.wakeup_credit_ns = fields.optional("wakeup_credit", |field| field.time_ns(0))?;
    Ok((name, disk))
}

/// Reads the disk's model from `disk`, `device`, or both.
fn read_model(fields: &Fields<'_>, base: &Path) -> Result<(String, DiskModel), ConfigError> {
    let device_field = fields.get("device");
    let Some(field) = fields.get("disk") else {
        let help = "name a preset or a disk file with `disk:`, or describe one with `device:`";
        let device_field = device_field.ok_or_else(|| fields.missing("disk", help))?;
        let spec = device::read(&device_field, &DeviceSpec::default())?;
        return Ok(("device".to_owned(), DiskModel::of_device(&spec)));
    };

    let name = field.text()?;
    let mut model = disk::find(name, base).map_err(|error| {
        // An unknown name is this line's error; an error inside a file belongs to that file.
        if error.code() != Code::UnknownReference {
            return error;
        }
        let here = field.error(Code::UnknownReference, error.message().to_owned());
        here.with_help(error.help().unwrap_or("name a preset or a file").to_owned())
    })?;

    if let Some(device_field) = device_field {
        let base = model.device.clone().unwrap_or_default();
        model.device = Some(device::read(&device_field, &base)?);
    }

    let shown = model.name.clone().unwrap_or_else(|| name.to_owned());
    Ok((shown, model))
}

fn read_config(fields: &Fields<'_>, model: &DiskModel, base: &Path) -> Result<DiskConfig, ConfigError> {
    let mut config = model.config();
    let form = fields.optional("model", io_properties::cost_form)?;
    let [read_block, write_block] = model.block_bytes;
    if let Some(form) = form {
        config.model = CostModel::from_figures(&model.figures, form, read_block, write_block);
    }

    match (fields.get("io_properties"), fields.get("figures")) {
        (Some(_), Some(field)) => {
            let error = field.error(Code::Ignored, "`figures` and `io_properties` say the same thing twice");
            return Err(error.with_help("keep one of the two"));
        }
        (Some(field), None) => {
            let believed = read_properties(fields, &field, form, base)?;
            let DiskConfig { latency_goal, window_ns, groups, .. } = config;
            config = DiskConfig { latency_goal, window_ns, groups, ..believed };
        }
        (None, Some(field)) if field.is_scalar() && field.text()? == "unlimited" => {
            config.model = CostModel::unlimited();
        }
        (None, Some(field)) => {
            let figures = disk::read_figures(&Fields::read(&field, &FIGURES)?)?;
            config.model = CostModel::from_figures(&figures, form.unwrap_or_default(), read_block, write_block);
        }
        (None, None) => {}
    }

    if let (Some(field), None) = (fields.get("mountpoint"), fields.get("io_properties")) {
        let error = field.error(Code::Ignored, "`mountpoint` has no effect without `io_properties`");
        return Err(error.with_help("it chooses a disk of an io-properties file: add `io_properties:`, or remove it"));
    }

    read_options(fields, &mut config)?;
    Ok(config)
}

fn read_properties(
    fields: &Fields<'_>,
    field: &Field<'_>,
    form: Option<plimsoll_core::CostForm>,
    base: &Path,
) -> Result<DiskConfig, ConfigError> {
    let properties = io_properties::parse_from_file(&base.join(field.text()?))?;

    let entry = match (fields.get("mountpoint"), properties.disks.as_slice()) {
        (None, [only]) => only,
        (None, many) => {
            let error = field.error(Code::MissingKey, format!("that file has {} disks", many.len()));
            return Err(error.with_help("say which of them with `mountpoint:`"));
        }
        (Some(mountpoint), disks) => {
            let name = mountpoint.text()?;
            let found = disks.iter().find(|disk| disk.mountpoints.iter().any(|mount| mount == name));
            let names: Vec<&str> = disks.iter().flat_map(|disk| disk.mountpoints.iter().map(String::as_str)).collect();
            found.ok_or_else(|| mountpoint.unknown_name("mount point in that file", &names))?
        }
    };

    Ok(disk_config(entry, form))
}

fn read_options(fields: &Fields<'_>, config: &mut DiskConfig) -> Result<(), ConfigError> {
    config.latency_goal = fields.or("latency_goal", config.latency_goal, |field| match field.text()? {
        "none" => Ok(LatencyGoal::NoSplit),
        _ => field.time_ns(1_000).map(LatencyGoal::Ns),
    })?;

    if let Some(field) = fields.get("window") {
        config.window_ns = Some(field.time_ns(1).map_err(|error| {
            if error.code() == Code::OutOfRange {
                return error.with_help("a window of 0 admits nothing: write how much device time may be under way");
            }
            error
        })?);
    }

    config.duplex = fields.or("duplex", config.duplex, Field::boolean)?;
    let mix = |field: &Field<'_>| Ok(MixExponent::new(mix_exponent(field)?).unwrap_or(MixExponent::LINEAR));
    config.mix = fields.or("mix_exponent", config.mix.clone(), mix)?;
    config.unloaded_latency_ns = fields.or("unloaded_latency", config.unloaded_latency_ns, |field| field.time_ns(0))?;
    config.control = fields.or("capacity_scale", config.control, read_capacity_scale)?;
    Ok(())
}

fn read_capacity_scale(field: &Field<'_>) -> Result<ControlConfig, ConfigError> {
    parse_capacity_scale(field.text()?).map_err(|error| field.unit_error(error))
}

fn read_mode(fields: &Fields<'_>) -> Result<DiskMode, ConfigError> {
    let most = fields.get("max_io_requests");
    let mode = match fields.get("mode") {
        None => DiskMode::Scheduled,
        Some(field) => match field.text()? {
            "scheduled" => DiskMode::Scheduled,
            "drain" => DiskMode::Drain,
            "depth" => {
                let help = "write how many requests may be in flight, such as `max_io_requests: 128`";
                let most = fields.required("max_io_requests", help)?;
                return Ok(DiskMode::Depth { max_io_requests: most.count(1..=1 << 20)? });
            }
            _ => return Err(field.not_one_of("a mode", &["scheduled", "depth", "drain"])),
        },
    };

    match most {
        Some(field) => {
            let message = format!("max_io_requests {} has no effect without `mode: depth`", quoted(field.text()?));
            Err(field.error(Code::Ignored, message).with_help("add `mode: depth`, or remove it"))
        }
        None => Ok(mode),
    }
}
