//! Reads faults and changes that happen while a scenario runs.
//!
//! **Why.** The quality of a scheduler shows when something changes: a disk slows down, a class gets other shares, a
//! job starts.
//!
//! **How.** `faults` are windows of time in which a disk misbehaves; `actions` change classes, jobs and members of a
//! RAID 0 at a time. Times count from the beginning of the warm-up. Each entry does one thing.
//!
//! **Limits.** The shape of the world (shards, disks, names) stays the same.
//!
//! **Example.** `faults: [{disk: 0, from: 1s, until: 2s, slow: 0.25}]`, `actions: [{at: 3s, stop_job: backup}]`.

use plimsoll_figures::units::format_duration_ns;
use plimsoll_sim::device::{FaultKind, FaultWindow};
use plimsoll_sim::world::{Action, Change, WorldSpec};

use super::super::device::read_member_fault;
use super::super::error::{Code, ConfigError, Diagnostic};
use super::super::fields::{Field, Fields, Schema, list_of};
use super::super::qos;
use super::super::sched_groups::{MAX_SHARES, check_group};

const EIO: u32 = 5;

const FAULT: Schema =
    Schema::of("a fault", &["disk", "from", "until", "slow", "errors", "errno", "short", "hang", "hang_for", "hold"]);

const WHAT_FAULTS_DO: [&str; 5] = ["slow", "errors", "short", "hang", "hold"];

const ACTION: Schema =
    Schema::of("an action", &["at", "set_shares", "set_qos", "remove_class", "start_job", "stop_job", "set_member"]);

const SET_QOS: Schema = Schema::of("set_qos", qos::with_qos_keys!("class"));

const SET_SHARES: Schema = Schema::of("set_shares", &["class", "shares"]);

pub(super) fn read_disk_number(field: &Field<'_>, world: &WorldSpec) -> Result<usize, ConfigError> {
    let number = field.count(0..=u32::MAX)? as usize;
    if number < world.disks.len() {
        return Ok(number);
    }
    let error = field.error(Code::UnknownReference, format!("there is no disk {number}"));
    Err(error.with_help(match world.disks.len() {
        0 => "add `disks:` with a disk".to_owned(),
        disks => format!("disks count from 0 in the order of `disks:`; this scenario has {disks}"),
    }))
}

/// Returns the one key of `keys` that the entry has; an error for none and for several.
fn only_one<'a>(entry: &Field<'a>, fields: &Fields<'a>, keys: &[&'static str]) -> Result<&'static str, ConfigError> {
    let present: Vec<&'static str> = keys.iter().copied().filter(|key| fields.get(key).is_some()).collect();
    match present.as_slice() {
        [one] => Ok(one),
        [] => {
            let error = entry.error(Code::MissingKey, "this entry does nothing");
            Err(error.with_help(format!("write one of {}", list_of(keys))))
        }
        _ => {
            let error = entry.error(Code::Ignored, format!("{} in one entry", list_of(&present)));
            Err(error.with_help("one entry does one thing: write an entry for each"))
        }
    }
}

/// Reads `faults` into the devices of the world.
pub(super) fn read_faults(
    list: &Field<'_>,
    world: &mut WorldSpec,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), ConfigError> {
    for entry in &list.list()? {
        let fields = Fields::read(entry, &FAULT)?;
        let disk = fields.or("disk", 0, |field| read_disk_number(field, world))?;
        let until = fields.required("until", "write when it ends, such as `until: 2s`")?;

        let window = FaultWindow {
            from_ns: fields.or("from", 0, |field| field.time_ns(0))?,
            until_ns: until.time_ns(1)?,
            kind: read_kind(entry, &fields)?,
        };

        if window.until_ns <= window.from_ns {
            let error = until.error(Code::OutOfRange, "the fault ends before it begins");
            return Err(error.with_help("write a time after `from`"));
        }

        window.check().map_err(|error| entry.error(Code::OutOfRange, error.to_string()))?;
        warnings.extend(after_the_end(fields.get("from"), window.from_ns, world));
        if let Some(disk) = world.disks.get_mut(disk) {
            disk.device.faults.push(window);
        }
    }
    Ok(())
}

/// Returns a warning if `at_ns` is never reached because the run ends earlier.
fn after_the_end(field: Option<Field<'_>>, at_ns: u64, world: &WorldSpec) -> Option<Diagnostic> {
    let end_ns = world.warmup_ns.saturating_add(world.duration_ns);
    let field = field.filter(|_| at_ns >= end_ns)?;
    let message = format!("the run has ended by then: it lasts {}, the warm-up included", format_duration_ns(end_ns));
    Some(field.error(Code::Ignored, message).with_help("times count from the beginning of the warm-up").into_warning())
}

fn read_kind(entry: &Field<'_>, fields: &Fields<'_>) -> Result<FaultKind, ConfigError> {
    let key = only_one(entry, fields, &WHAT_FAULTS_DO)?;
    let field = fields.required(key, "write its value")?;
    let rate = || field.number(|rate| (0.0..=1.0).contains(&rate), "from 0 to 1, a part of the requests");
    Ok(match key {
        "slow" => FaultKind::Slow {
            speed_factor: field.number(|factor| factor > 0.0, "above 0: the part of its speed that is left")?,
        },
        "errors" => {
            FaultKind::Errors { rate: rate()?, errno: fields.or("errno", EIO, |field| field.count(1..=4095))? as i32 }
        }
        "short" => FaultKind::Short { rate: rate()? },
        "hold" => field.one_of("what is held", &[("writes", FaultKind::HoldWrites)])?,
        _ => FaultKind::Hang {
            requests: field.count(1..=u32::MAX)?,
            for_ns: fields.optional("hang_for", |field| field.time_ns(0))?,
        },
    })
}

pub(super) fn read_actions(
    list: &Field<'_>,
    world: &mut WorldSpec,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), ConfigError> {
    for entry in &list.list()? {
        let fields = Fields::read(entry, &ACTION)?;
        let at_ns = fields.required("at", "write when, such as `at: 1s`")?.time_ns(0)?;
        warnings.extend(after_the_end(fields.get("at"), at_ns, world));
        let keys = &ACTION.known[1..];
        let key = only_one(entry, &fields, keys)?;
        let field = fields.required(key, "write its value")?;
        let change = read_change(key, &field, world)?;
        world.actions.push(Action { at_ns, change });
    }
    Ok(())
}

fn read_change(key: &str, field: &Field<'_>, world: &WorldSpec) -> Result<Change, ConfigError> {
    let class_help = "name the class that changes";
    Ok(match key {
        "set_shares" => {
            let fields = Fields::read(field, &SET_SHARES)?;
            Change::SetShares {
                class: class_name(&fields.required("class", class_help)?, world)?,
                shares: fields.required("shares", "write its new shares")?.count(1..=MAX_SHARES)?,
            }
        }
        "set_qos" => {
            let fields = Fields::read(field, &SET_QOS)?;
            let class = class_name(&fields.required("class", class_help)?, world)?;
            let qos = qos::read(&fields)?;
            if world.classes.iter().any(|group| group.is_group && group.name == class) {
                check_group(&class, &qos, field)?;
            }
            Change::SetQos { class, qos }
        }
        "remove_class" => Change::RemoveClass { class: class_name(field, world)? },
        "start_job" => Change::StartJob { job: job_name(field, world)? },
        "stop_job" => Change::StopJob { job: job_name(field, world)? },
        _ => {
            let fault = read_member_fault(field, &["disk"])?;
            let known = ["disk", "member", "speed_factor", "error_rate"];
            let fields = Fields::read(field, &Schema::of("set_member", &known))?;
            let disk = fields.or("disk", 0, |field| read_disk_number(field, world))?;
            Change::SetMember { disk, fault }
        }
    })
}

pub(super) fn class_name(field: &Field<'_>, world: &WorldSpec) -> Result<String, ConfigError> {
    known_name(field, "class", world.classes.iter().map(|class| class.name.as_str()))
}

fn job_name(field: &Field<'_>, world: &WorldSpec) -> Result<String, ConfigError> {
    known_name(field, "job", world.jobs.iter().map(|job| job.name.as_str()))
}

fn known_name<'n>(field: &Field<'_>, what: &str, names: impl Iterator<Item = &'n str>) -> Result<String, ConfigError> {
    let (name, names): (_, Vec<&str>) = (field.text()?, names.collect());
    if names.contains(&name) { Ok(name.to_owned()) } else { Err(field.unknown_name(what, &names)) }
}
