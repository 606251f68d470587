//! Resolves the name of a device on a command line.
//!
//! **Why.** `--disk` means the same in every command, and a nearly right name should get a suggestion.
//!
//! **How.** `[COUNTx]NAME[:SIZE][:OPERATIONSiops][:BANDWIDTH]`: the members of a RAID 0, a name of the tables in upper
//! or lower case, and for volumes the values beyond the base, in any order, each identified by its unit: `500GiB`,
//! `16000iops`, `1000MiB/s`. Units are those of data sheets, see
//! [`parse_data_sheet_bytes`](plimsoll_figures::units::parse_data_sheet_bytes).
//!
//! **Limits.** Only volumes can have more than their base. An array has at most 256 disks.
//!
//! **Example.** `3xgp3:50GB:250MB/s` are three volumes of 50 GB and 250 MB/s each, as one disk.

use std::fmt;

use plimsoll_figures::units::{parse_data_sheet_bytes, parse_data_sheet_bytes_per_s, parse_operations_per_s, quoted};
use plimsoll_sim::device::presets::{Drive, Instance, Preset, Provision, Volume, drives, instances, names, volumes};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Row {
    Instance(&'static Instance),
    Drive(&'static Drive),
    Volume(&'static Volume),
}

impl Row {
    fn find(name: &str) -> Option<Row> {
        let same = |other: &str| other.eq_ignore_ascii_case(name);
        let instance = || instances().iter().find(|row| same(row.name)).map(Row::Instance);
        let drive = || drives().iter().find(|row| same(row.name)).map(Row::Drive);
        let volume = || volumes().iter().find(|row| same(row.name)).map(Row::Volume);
        instance().or_else(drive).or_else(volume)
    }

    fn preset(&self) -> Preset {
        match self {
            Row::Instance(row) => row.preset(),
            Row::Drive(row) => row.preset(),
            Row::Volume(row) => row.preset(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Resolved {
    /// The whole device, under the given name.
    pub preset: Preset,
    /// One member if the device is an array, otherwise the whole.
    pub member: Preset,
    /// Members; 1 if the device is no array.
    pub count: u32,
    pub row: Row,
}

/// Why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    Unknown {
        name: String,
        closest: Option<String>,
    },
    /// The name is known, but there is no such device; the text says why.
    Refused(String),
}

impl ResolveError {
    pub fn help(&self) -> String {
        match self {
            ResolveError::Unknown { closest: Some(name), .. } => format!("did you mean `{name}`?"),
            ResolveError::Unknown { closest: None, .. } => "`plimsoll presets list` prints the presets".to_owned(),
            ResolveError::Refused(_) => "write NAME, 4xNAME, or for a volume gp3:500GiB:16000iops:1000MiB/s".to_owned(),
        }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::Unknown { name, .. } => write!(f, "no preset is called {}", quoted(name)),
            ResolveError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Returns the device that `text` names; see the module for the form.
///
/// # Errors
/// [`ResolveError::Unknown`] for a name in no table; [`ResolveError::Refused`] for an array of no or too many disks,
/// for parts that cannot be read, and for violations of a volume's rules.
pub fn resolve(text: &str) -> Result<Resolved, ResolveError> {
    let text = text.trim();
    let (count, one) = split_count(text)?;
    let (name, asked) = one.split_once(':').map_or((one, None), |(name, asked)| (name, Some(asked)));
    let Some(row) = Row::find(name) else {
        let candidates: Vec<&str> = names().collect();
        let closest = crate::closest_name(name, &candidates).map(|closest| text.replacen(name, closest, 1));
        return Err(ResolveError::Unknown { name: text.to_owned(), closest });
    };

    let mut member = match (row, asked) {
        (row, None) => row.preset(),
        (Row::Volume(volume), Some(asked)) => {
            volume.provision(&provision(asked)?).map_err(|error| ResolveError::Refused(error.to_string()))?
        }
        (_, Some(_)) => {
            return Err(ResolveError::Refused(format!("{name} is no volume: it cannot be asked for more than it has")));
        }
    };

    if let Some(asked) = asked {
        member.name = format!("{}:{asked}", member.name);
    }
    let preset = member.array(count).map_err(|error| ResolveError::Refused(error.to_string()))?;
    Ok(Resolved { preset, member, count, row })
}

/// Splits `4xNAME`; `NAME` alone has a count of 1.
fn split_count(text: &str) -> Result<(u32, &str), ResolveError> {
    let Some((digits, name)) = text.split_once('x') else { return Ok((1, text)) };
    if digits.is_empty() || name.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok((1, text));
    }
    match digits.parse() {
        Ok(count) => Ok((count, name)),
        Err(_) => Err(ResolveError::Refused(format!("{} is no number of members", quoted(digits)))),
    }
}

/// Reads the values requested of a volume, each identified by its unit.
fn provision(asked: &str) -> Result<Provision, ResolveError> {
    let mut provision = Provision::default();
    for part in asked.split(':') {
        let (slot, what, value) = if let Some(number) = part.strip_suffix("iops").or(part.strip_suffix("IOPS")) {
            (&mut provision.iops, "operations", parse_operations_per_s(number))
        } else if part.contains('/') || part.ends_with("bps") {
            (&mut provision.bandwidth_bytes_per_s, "bandwidth", parse_data_sheet_bytes_per_s(part))
        } else {
            (&mut provision.size_bytes, "a size", parse_data_sheet_bytes(part))
        };
        let value = value.map_err(|error| ResolveError::Refused(format!("{}: {error}", quoted(part))))?;
        if slot.replace(value).is_some() {
            return Err(ResolveError::Refused(format!("{} asks for {what} twice", quoted(asked))));
        }
    }
    Ok(provision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_counts_and_parts() {
        // Text; members of the RAID 0, reads and bytes read per second.
        let cases = [
            ("i3en.24xlarge", 8, 2_056_192, 16_349_396_992),
            ("I3EN.24XLARGE", 8, 2_056_192, 16_349_396_992),
            ("2xi3en.24xlarge", 16, 4_112_384, 32_698_793_984),
            ("4xsamsung-983-dct-1.92tb", 4, 2_320_000, 13_600_000_000),
            ("4xi4i-drive-3.75tb", 4, 1_600_000, 12_350_524_416),
            ("gp3", 1, 3000, 125 << 20),
            ("gp3:16000iops:1000MiB/s", 1, 16_000, 1000 << 20),
            ("gp3:1000MiB/s:16kiops:500GiB", 1, 16_000, 1000 << 20),
            ("3xgp3:50GB:250MB/s", 3, 9000, 750_000_000),
            (" gp3 ", 1, 3000, 125 << 20),
        ];
        for (text, members, read_iops, read_bytes_per_s) in cases {
            let resolved = resolve(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let preset = &resolved.preset;
            assert_eq!(preset.spec.raid0.members, members, "{text}");
            let found = (preset.figures.read_iops.get(), preset.figures.read_bandwidth.get());
            assert_eq!(found, (Some(read_iops), Some(read_bytes_per_s)), "{text}");
            assert!(text.trim().eq_ignore_ascii_case(&preset.name), "{text}: {}", preset.name);
        }
    }

    #[test]
    fn what_is_nearly_right_and_what_is_not() {
        let cases = [
            ("i4i.4xlage", "did you mean `i4i.4xlarge`?"),
            ("4xsamsung-983-dct-1.92t", "did you mean `4xsamsung-983-dct-1.92tb`?"),
            ("gp33:500GiB", "did you mean `gp3:500GiB`?"),
            ("nothing like it", "plimsoll presets list"),
            ("", "plimsoll presets list"),
            ("x", "plimsoll presets list"),
            ("0xgp3", "0 x gp3 are 0 disks"),
            ("257xgp3", "1 to 256"),
            ("99999999999xgp3", "is no number of members"),
            ("i4i.large:5GB", "i4i.large is no volume"),
            ("gp3:", "does not start with a number"),
            ("gp3:500", "write a number and kB"),
            ("gp3:5GB:6GB", "asks for a size twice"),
            ("gp3:20GiB:16000iops", "500 IOPS for each GiB"),
            ("gp3:1000MiB/s", "0.25 MiB/s for each operation"),
            ("gp3:850M/s", "MB/s or MiB/s"),
        ];
        for (text, part) in cases {
            let error = resolve(text).map(|_| ()).unwrap_err();
            let message = format!("{error}; {}", error.help());
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn every_name_is_found() {
        for name in names() {
            assert_eq!(resolve(name).unwrap().preset.name, name);
        }
    }
}
