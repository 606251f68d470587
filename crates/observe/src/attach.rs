//! `plimsoll attach`: finds running programs, and reads and applies the changes that a user asks for.
//!
//! # Why
//! People write `backup.limit_iops=500`; the control socket takes a request. An unknown class or setting must be
//! reported before anything has changed.
//!
//! # How it works
//! [`socket`] finds the socket of a process, [`running`] all of this user's programs. [`Setting`] is one change as
//! text; [`apply`] checks all of them against the program's classes, then sends them one by one.
//!
//! # Limits
//! Settings are not applied in one step: if a class is removed meanwhile, the settings before it stay applied.
//!
//! # Example
//! ```
//! use plimsoll_observe::attach::Setting;
//! let setting: Setting = "backup.limit_bandwidth=100M".parse()?;
//! assert_eq!(setting.class, "backup");
//! let error = "backup.limit_iosp=5".parse::<Setting>().expect_err("no such setting").to_string();
//! assert!(error.contains("did you mean `limit_iops`?"), "{error}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::{Path, PathBuf};
use std::str::FromStr;

use plimsoll::control::{Client, ClientError, Hello, Limit, LimitsChange, Mode, Request, programs, socket_of};
use plimsoll_figures::units::{UnitError, parse_count, parse_rate_bytes_per_s, quoted};
use plimsoll_files::closest_name;
use serde::Serialize;

/// The output of `plimsoll attach --format json` for one program.
#[derive(Clone, Debug, Serialize)]
pub struct AttachReport<'a> {
    pub schema: u32,
    pub program: &'a Hello,
    pub snapshot: &'a plimsoll::control::Snapshot,
}

/// Why a program could not be found or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    #[error("there is no process {0}: `plimsoll attach` without a number lists the programs that run")]
    NoProcess(u32),
    /// The process serves no socket that this user can see.
    #[error(
        "process {0} is not a Plimsoll program that this user can attach to: it serves no control socket, or it is \
         another user's; `plimsoll attach` without a number lists those that can be"
    )]
    NotServed(u32),
    #[error("the program has no class or group {}{help}", quoted(.class))]
    UnknownClass {
        class: String,
        /// The closest name, or all names of the program.
        help: String,
    },
    /// The program could not be reached, or refused the request.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Returns the socket that `target` means: a process id, or the path of a socket.
pub fn socket(target: &str) -> Result<PathBuf, AttachError> {
    let Ok(pid) = target.parse::<u32>() else { return Ok(PathBuf::from(target)) };
    match socket_of(pid) {
        Some(path) => Ok(path),
        None if Path::new("/proc").join(target).exists() => Err(AttachError::NotServed(pid)),
        None => Err(AttachError::NoProcess(pid)),
    }
}

/// Returns this user's running programs, and a message for each program that does not answer.
pub fn running() -> std::io::Result<(Vec<Hello>, Vec<String>)> {
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (pid, path) in programs()? {
        match Client::connect(&path) {
            Ok(client) => found.push(client.hello().clone()),
            Err(error) => silent.push(format!("process {pid}: {error}")),
        }
    }
    Ok((found, silent))
}

/// One change to a class: `CLASS.shares=N`, or `CLASS.limit_...=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub class: String,
    pub change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Shares(u32),
    /// New limits; those that are `None` stay as they are.
    Limits(LimitsChange),
}

/// A limit: the name of its setting, its place, and whether it is of bytes.
type LimitOf = (&'static str, fn(&mut LimitsChange) -> &mut Option<Limit>, bool);

const LIMITS: [LimitOf; 6] = [
    ("limit_iops", |limits| &mut limits.iops, false),
    ("limit_read_iops", |limits| &mut limits.read_iops, false),
    ("limit_write_iops", |limits| &mut limits.write_iops, false),
    ("limit_bandwidth", |limits| &mut limits.bytes_per_s, true),
    ("limit_read_bandwidth", |limits| &mut limits.read_bytes_per_s, true),
    ("limit_write_bandwidth", |limits| &mut limits.write_bytes_per_s, true),
];

impl FromStr for Setting {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Setting, UnitError> {
        let wrong = |message: String, help: String| UnitError { message, help };
        let form = "write CLASS.SETTING=VALUE, such as backup.limit_iops=500";
        // A class name may hold dots and equals signs; settings and values do not.
        let parts = text.rsplit_once('=').and_then(|(left, value)| Some((left.rsplit_once('.')?, value)));
        let Some(((class, setting), value)) = parts.filter(|((class, _), _)| !class.is_empty()) else {
            return Err(wrong(format!("{} is not a setting", quoted(text)), form.to_owned()));
        };

        let limit = |parse: fn(&str) -> Result<u64, UnitError>| match value {
            "unlimited" | "none" => Ok(Some(Limit::Unlimited)),
            _ => match parse(value)? {
                0 => Err(wrong("a limit of 0 would stop the class for ever".to_owned(), "write at least 1".to_owned())),
                units => Ok(Some(Limit::PerSecond(units))),
            },
        };

        let change = if setting == "shares" {
            let shares = u32::try_from(parse_count(value)?).ok().filter(|shares| *shares > 0);
            let bad = || wrong(format!("{} are no shares", quoted(value)), "write 1 to 4294967295".to_owned());
            Change::Shares(shares.ok_or_else(bad)?)
        } else if let Some((_, place, is_bytes)) = LIMITS.iter().find(|(name, ..)| *name == setting) {
            let mut limits = LimitsChange::default();
            *place(&mut limits) = limit(if *is_bytes { parse_rate_bytes_per_s } else { parse_count })?;
            Change::Limits(limits)
        } else {
            let names: Vec<&str> = ["shares"].into_iter().chain(LIMITS.map(|(name, ..)| name)).collect();
            let help = match closest_name(setting, &names) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("there are {}", names.join(", ")),
            };
            return Err(wrong(format!("a class has no setting {}", quoted(setting)), help));
        };
        Ok(Setting { class: class.to_owned(), change })
    }
}

/// Reads a mode: `scheduled`, `drain`, or `depth:N`.
pub fn parse_mode(text: &str) -> Result<Mode, UnitError> {
    let depth = |text: &str| text.parse::<u32>().ok().filter(|depth| *depth > 0);
    match (text, text.strip_prefix("depth:").and_then(depth)) {
        ("scheduled", _) => Ok(Mode::Scheduled),
        ("drain", _) => Ok(Mode::Drain),
        (_, Some(depth)) => Ok(Mode::Depth(depth)),
        _ => Err(UnitError {
            message: format!("{} is not a mode", quoted(text)),
            help: "write scheduled, drain, or depth:N with N of at least 1".to_owned(),
        }),
    }
}

/// Returns the text that [`parse_mode`] reads as `mode`.
pub fn format_mode(mode: Mode) -> String {
    match mode {
        Mode::Scheduled => "scheduled".to_owned(),
        Mode::Drain => "drain".to_owned(),
        Mode::Depth(depth) => format!("depth:{depth}"),
    }
}

/// Returns the requests that apply `settings` to the program of `hello`.
pub fn requests(hello: &Hello, settings: &[Setting]) -> Result<Vec<Request>, AttachError> {
    let names: Vec<&str> = hello.classes.iter().map(|class| class.class.as_str()).collect();
    let request = |setting: &Setting| {
        let class = setting.class.clone();
        if !names.contains(&class.as_str()) {
            let help = match closest_name(&class, &names) {
                Some(name) => format!(": did you mean `{name}`?"),
                None => format!(": it has {}", names.join(", ")),
            };
            return Err(AttachError::UnknownClass { class, help });
        }
        Ok(match setting.change {
            Change::Shares(shares) => Request::SetShares { class, shares },
            Change::Limits(limits) => Request::SetLimits { class, limits },
        })
    };
    settings.iter().map(request).collect()
}

/// Returns a line for each of `settings`, such as `backup: shares 100 -> 500`; `before` is the program's state before.
pub fn describe(before: &Hello, settings: &[Setting]) -> Vec<String> {
    let shown = |limit: Option<Limit>| match limit {
        Some(Limit::PerSecond(units)) => units.to_string(),
        Some(Limit::Unlimited) | None => "unlimited".to_owned(),
    };

    let mut lines = Vec::new();
    for Setting { class, change } in settings {
        let Some(old) = before.classes.iter().find(|info| info.class == *class) else { continue };
        match change {
            Change::Shares(shares) => lines.push(format!("{class}: shares {} -> {shares}", old.shares)),
            Change::Limits(new) => {
                let (mut old, mut new) = (old.limits, *new);
                for (name, place, _) in LIMITS {
                    if let Some(new) = *place(&mut new) {
                        lines.push(format!("{class}: {name} {} -> {}", shown(*place(&mut old)), shown(Some(new))));
                    }
                }
            }
        }
    }
    lines
}

/// Applies all `settings`, then sets `mode` for all disks if one is given. If a class is unknown, nothing has changed.
pub fn apply(client: &mut Client, settings: &[Setting], mode: Option<Mode>) -> Result<(), AttachError> {
    for request in requests(client.hello(), settings)? {
        client.change(&request)?;
    }
    if let Some(mode) = mode {
        client.change(&Request::SetMode { disk: None, mode })?;
    }
    client.refresh()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use plimsoll::control::ClassSettings;

    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        let none = LimitsChange::default();
        let table = [
            ("a.shares=400", Ok(Change::Shares(400))),
            ("a.limit_iops=1_000", Ok(Change::Limits(LimitsChange { iops: Some(Limit::PerSecond(1000)), ..none }))),
            ("a.limit_iops=none", Ok(Change::Limits(LimitsChange { iops: Some(Limit::Unlimited), ..none }))),
            (
                "a.limit_read_bandwidth=1M/s",
                Ok(Change::Limits(LimitsChange { read_bytes_per_s: Some(Limit::PerSecond(1 << 20)), ..none })),
            ),
            ("a.shares=0", Err("write 1 to 4294967295")),
            ("a.shares=4294967296", Err("write 1 to 4294967295")),
            ("a.shares=", Err("not a count")),
            ("a.limit_iops=0", Err("at least 1")),
            ("a.limit_iops=-4", Err("not a count")),
            ("a.limit_bandwith=1M", Err("did you mean `limit_bandwidth`?")),
            ("a.x=1", Err("there are shares, limit_iops")),
            ("shares=1", Err("CLASS.SETTING=VALUE")),
            (".shares=1", Err("CLASS.SETTING=VALUE")),
            ("a.shares", Err("CLASS.SETTING=VALUE")),
        ];

        for (text, expected) in table {
            match (text.parse::<Setting>(), expected) {
                (Ok(setting), Ok(change)) => assert_eq!(setting, Setting { class: "a".into(), change }, "{text}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
        assert_eq!("a.b=c.shares=1".parse::<Setting>().map(|setting| setting.class), Ok("a.b=c".to_owned()));
    }

    #[test]
    fn modes_are_read_as_they_are_shown() {
        for mode in [Mode::Scheduled, Mode::Drain, Mode::Depth(7)] {
            assert_eq!(parse_mode(&format_mode(mode)), Ok(mode));
        }
        for text in ["", "depth", "depth:0", "depth:x", "Drain"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_class_is_told_before_anything_changes() {
        let class = |class: &str| ClassSettings {
            class: class.to_owned(),
            group: None,
            is_group: false,
            shares: 100,
            limits: LimitsChange::default(),
        };

        let hello = Hello {
            protocol: 1,
            plimsoll: "0".into(),
            pid: 1,
            program: "test".into(),
            shards: 1,
            disks: Vec::new(),
            classes: vec![class("query"), class("backup")],
            is_tracing: false,
        };

        let settings = ["query.shares=1", "bakup.shares=2"].map(|text| text.parse().unwrap());
        let error = requests(&hello, &settings).unwrap_err().to_string();
        assert!(error.contains("bakup") && error.contains("did you mean `backup`?"), "{error}");
        assert_eq!(requests(&hello, &settings[..1]).unwrap().len(), 1);
    }

    #[test]
    fn processes_without_a_socket_are_told_apart() {
        // 4294967295 is above the highest process id; our own process exists.
        assert!(matches!(socket("4294967295"), Err(AttachError::NoProcess(4_294_967_295))));
        let own = std::process::id();
        assert!(matches!(socket(&own.to_string()), Err(AttachError::NotServed(pid)) if pid == own));
        assert_eq!(socket("/run/x.sock").unwrap(), Path::new("/run/x.sock"));
    }
}
