//! The settings that are passed to the program: managed files, disk, classes, rules.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll::core::{ControlConfig, LatencyGoal, Rate};
use plimsoll::sys::statfs;
use plimsoll_files::io_properties::IOPS_BLOCK_BYTES;
use plimsoll_files::run_rules::{MAX_CLASSES, MAX_RULES, RunRules};
use plimsoll_files::setup::{DiskChoice, figures};
use rustix::fs::{MemfdFlags, memfd_create};

use super::handover::{
    CLASSES_MAX, COUNTERS_AT, ClassForm, DiskForm, FILE_NAME, Handover, Kind, RULES_MAX, RuleForm, Seen, VERSION,
    pid_namespace,
};
use crate::failure::Failure;

// The counters have room for the most rules and classes that the reader accepts.
const _: () = assert!(MAX_RULES == RULES_MAX && MAX_CLASSES == CLASSES_MAX);

/// File systems of the kernel, whose files are on no disk.
const KERNELS_OWN: [&str; 2] = ["proc", "sysfs"];

/// Why a path is refused that the program cannot be told.
pub(super) const NOT_UTF8: &str = "the path is not UTF-8: give the directory another name";

/// The managed directories and devices, all on one disk.
pub(super) struct Managed {
    paths: Vec<PathBuf>,
    device: u64,
}

impl Managed {
    /// Finds the paths of `--dir`, or the working directory.
    pub(super) fn find(named: &[PathBuf]) -> Result<Managed, Failure> {
        let here = [PathBuf::from(".")];
        let named = if named.is_empty() { &here } else { named };

        let mut paths = Vec::new();
        let mut device: Option<(u64, &Path)> = None;
        for path in named {
            let cannot = |error: io::Error| Failure::Input(format!("--dir {}: {error}", path.display()));
            let real = path.canonicalize().map_err(cannot)?;
            if real.to_str().is_none() {
                return Err(Failure::Input(format!("--dir {}: {NOT_UTF8}", path.display())));
            }
            let meta = real.metadata().map_err(cannot)?;
            let of_path = match meta.file_type() {
                kind if kind.is_dir() => meta.dev(),
                kind if kind.is_block_device() => meta.rdev(),
                _ => {
                    let path = path.display();
                    return Err(Failure::Input(format!("--dir {path} is neither a directory nor a block device")));
                }
            };

            let file_system = statfs::file_system(&real).map_err(cannot)?;
            if KERNELS_OWN.contains(&file_system.name.as_str()) {
                return Err(Failure::Input(format!(
                    "--dir {} is on {}, whose files are the kernel's and on no disk: name a directory with the program's data",
                    path.display(),
                    file_system.name
                )));
            }

            match device {
                Some((first, other)) if first != of_path => {
                    return Err(Failure::Input(format!(
                        "--dir {} and {} are not on the same disk: one run has one disk",
                        other.display(),
                        path.display()
                    )));
                }
                _ => device = Some((of_path, path)),
            }
            paths.push(real);
        }
        Ok(Managed { paths, device: device.map_or(0, |(device, _)| device) })
    }

    pub(super) fn first(&self) -> &Path {
        self.paths.first().map_or(Path::new("."), PathBuf::as_path)
    }

    pub(super) fn device(&self) -> u64 {
        self.device
    }

    pub(super) fn holds(&self, path: &Path) -> bool {
        self.paths.iter().any(|managed| path.starts_with(managed))
    }

    /// Returns whether a path that begins with `prefix` may be managed.
    pub(super) fn may_hold(&self, prefix: &str) -> bool {
        let managed = |path: &PathBuf| {
            let path = path.to_string_lossy();
            path.starts_with(prefix) || prefix.starts_with(&*path)
        };
        self.paths.iter().any(managed)
    }
}

pub(super) fn disk_form(choice: &DiskChoice, storage: &Path) -> Result<DiskForm, Failure> {
    let figure = |rate: Rate| rate.get().unwrap_or(0);
    let finite = |p: f64| Some(p).filter(|p| p.is_finite());
    let control = ControlConfig::default();
    let mut form = DiskForm {
        block_bytes: [IOPS_BLOCK_BYTES; 2],
        mix_exponent_p: Some(1.0),
        control: control.enabled,
        scale_min: control.scale_min,
        scale_max: control.scale_max,
        throughput_goal: control.throughput_goal,
        latency_goal_ns: choice.latency_goal.map(|goal| match goal {
            LatencyGoal::Ns(ns) => ns,
            LatencyGoal::NoSplit => 0,
        }),
        ..DiskForm::default()
    };

    let figures = match (choice.entry(storage)?, &choice.disk) {
        (Some(entry), _) => {
            form.block_bytes = [entry.block_bytes(); 2];
            form.cost_form = choice.form().or(entry.form).unwrap_or_default().to_string();
            form.mix_exponent_p = finite(entry.mix_exponent_p);
            form.duplex = entry.duplex;
            form.unloaded_latency_ns = entry.unloaded_latency_ns;
            form.scale_max = entry.capacity_scale_max;
            figures(entry)
        }
        (None, Some(disk)) => {
            form.block_bytes = disk.block_bytes;
            form.tables = disk.tables.clone().filter(|_| choice.form().is_none());
            form.cost_form = choice.form().unwrap_or(disk.form).to_string();
            form.mix_exponent_p = finite(disk.mix_exponent_p);
            form.duplex = disk.duplex;
            form.unloaded_latency_ns = disk.unloaded_latency_ns;
            form.scale_max = disk.capacity_scale_max;
            disk.figures
        }
        (None, None) => return Ok(form),
    };

    form.read_iops = figure(figures.read_iops);
    form.write_iops = figure(figures.write_iops);
    form.read_bandwidth = figure(figures.read_bandwidth);
    form.write_bandwidth = figure(figures.write_bandwidth);
    Ok(form)
}

/// Joins all settings into one handover.
pub(super) fn handover(
    name: &str,
    managed: &Managed,
    disk: DiskForm,
    rules: &RunRules,
    trace: Option<&Path>,
) -> Handover {
    let classes = classes(rules);
    let rule = |rule: &plimsoll_files::run_rules::RunRule| {
        let kinds = Kind::ALL.iter().zip(rule.operations).filter(|(_, is_meant)| *is_meant);
        RuleForm {
            thread: rule.thread.clone(),
            path: rule.path.clone(),
            kinds: kinds.fold(0, |bits, (kind, _)| bits | kind.bit()),
            class: number_of(&classes, &rule.class).unwrap_or(0),
        }
    };
    let rules = rules.rules.iter().map(rule).collect();

    Handover {
        version: VERSION.to_owned(),
        program: format!("plimsoll run {name}"),
        pid_namespace: pid_namespace(),
        devices: vec![managed.device()],
        directories: managed.paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        disk,
        classes,
        rules,
        trace: trace.map(|path| path.to_string_lossy().into_owned()),
    }
}

fn number_of(classes: &[ClassForm], name: &str) -> Option<usize> {
    classes.iter().position(|class| class.name == name)
}

/// Returns the classes, `default` first and parents before their members.
fn classes(rules: &RunRules) -> Vec<ClassForm> {
    let groups = &rules.groups.groups;
    let mut forms = vec![ClassForm { name: "default".to_owned(), shares: 100, ..ClassForm::default() }];
    if let Some(at) = rules.groups.position("default")
        && let Some(group) = groups.get(at)
    {
        let name = group.name.clone();
        forms = vec![ClassForm { name, shares: group.shares, ..ClassForm::default() }.with_qos(&group.qos)];
    }

    let mut left: Vec<usize> = (0..groups.len()).filter(|at| groups[*at].name != "default").collect();
    // The reader allows no cycles, so each round places at least one group.
    while !left.is_empty() {
        let before = left.len();
        left.retain(|at| {
            let group = &groups[*at];
            let parent = group.parent.map(|parent| number_of(&forms, &groups[parent].name));
            let Some(parent) = parent.map_or(Some(None), |parent| parent.map(Some)) else { return true };
            let is_group = groups.iter().any(|member| member.parent == Some(*at));
            let name = group.name.clone();
            let form = ClassForm { name, shares: group.shares, parent, is_group, ..ClassForm::default() };
            forms.push(form.with_qos(&group.qos));
            false
        });
        if left.len() == before {
            break;
        }
    }
    forms
}

/// The file in memory with the settings and the counters.
pub(super) struct Shared {
    file: File,
    handover: Handover,
}

impl Shared {
    pub(super) fn new(handover: &Handover) -> Result<Shared, Failure> {
        let cannot = |error: &dyn std::fmt::Display| Failure::Machine(format!("cannot make memory to share: {error}"));
        let json = serde_json::to_vec(handover).map_err(|error| cannot(&error))?;
        if json.len() + 8 > COUNTERS_AT {
            return Err(Failure::Input("the rules and the model together are too long: at most 1 MiB".to_owned()));
        }
        let file = File::from(memfd_create(FILE_NAME, MemfdFlags::CLOEXEC).map_err(|error| cannot(&error))?);
        let make = || {
            file.set_len((COUNTERS_AT + Seen::BYTES) as u64)?;
            file.write_all_at(&(json.len() as u64).to_le_bytes(), 0)?;
            file.write_all_at(&json, 8)
        };
        make().map_err(|error| cannot(&error))?;
        Ok(Shared { file, handover: handover.clone() })
    }

    pub(super) fn handover(&self) -> &Handover {
        &self.handover
    }

    /// Returns the path at which the program finds the file, as long as this process lives.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Returns the process that has the gate, or had it when it was killed.
    pub(super) fn owner(&self) -> Option<u32> {
        let mut bytes = [0; size_of::<u32>()];
        self.file.read_exact_at(&mut bytes, (COUNTERS_AT + Seen::OWNER_AT) as u64).ok()?;
        Some(u32::from_ne_bytes(bytes)).filter(|pid| *pid != 0)
    }

    pub(super) fn counters(&self) -> io::Result<Seen> {
        let mut bytes = vec![0; Seen::BYTES];
        self.file.read_exact_at(&mut bytes, COUNTERS_AT as u64)?;
        Ok(Seen::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::core::CostForm;
    use plimsoll_files::setup::ModelChoice;
    use plimsoll_files::{disk, io_properties, run_rules};

    use super::super::handover::{Latency, matches, path_matches};
    use super::*;

    #[test]
    fn the_disk_that_is_handed_over_is_the_one_that_was_chosen() {
        let choice = DiskChoice::default;
        let preset = |name: &str| DiskChoice { disk: Some(disk::find(name, Path::new("")).unwrap()), ..choice() };
        let text = "disks: [{mountpoint: /, read_iops: 90000, read_bandwidth: 1G, write_iops: 40000, write_bandwidth: 500M, \
                    rate_factor: 0.5, duplex: true, physical_block_size: 8192}]";
        let properties = io_properties::parse("io.yaml", text).unwrap();
        let text = "disks: [{mountpoint: /, read_iops: 3000, read_bandwidth: 1G, write_iops: 3000, write_bandwidth: 500M, \
                    model: max, mix_exponent: 1.4, unloaded_latency_ns: 600000, capacity_scale_max: 1.5}]";
        let volume = DiskChoice { properties: Some(io_properties::parse("io.yaml", text).unwrap()), ..choice() };
        let file =
            disk::parse("disk.yaml", "disk: {read_iops: 9k, read_bandwidth: 1G, write_iops: 8k, write_bandwidth: 90M}");
        let table = [
            choice(),
            preset("i4i.2xlarge"),
            preset("gp3"),
            volume.clone(),
            DiskChoice { model: Some(ModelChoice::Form(CostForm::Additive)), ..volume },
            DiskChoice { model: Some(ModelChoice::Form(CostForm::Additive)), ..preset("i4i.2xlarge") },
            DiskChoice { disk: Some(file.unwrap()), ..choice() },
            DiskChoice { properties: Some(properties), latency_goal: Some(LatencyGoal::Ns(2_000_000)), ..choice() },
            DiskChoice { latency_goal: Some(LatencyGoal::NoSplit), ..preset("i3en.3xlarge") },
        ];
        for choice in table {
            let form = disk_form(&choice, Path::new("/")).unwrap();
            let told: DiskForm = serde_json::from_str(&serde_json::to_string(&form).unwrap()).unwrap();
            let (given, wanted) = (told.setup().config, choice.setup(Path::new("/")).unwrap().config);
            assert_eq!(format!("{given:?}"), format!("{wanted:?}"));
        }
    }

    #[test]
    fn patterns_match_as_people_read_them() {
        let table = [
            ("*", "", true),
            ("*", "anything", true),
            ("rocksdb:low", "rocksdb:low", true),
            ("rocksdb:low", "rocksdb:lower", false),
            ("*.sst", "000012.sst", true),
            ("*.sst", "000012.sst.tmp", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("**x", "xx", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(path_matches("*.log", b"/data/db/1.log") && !path_matches("*.log", b"/data.log/db"));
        assert!(path_matches("/data/*", b"/data/db/1.log") && !path_matches("*/db", b"/data/db/1.log"));
    }

    #[test]
    fn parents_come_before_their_members_and_default_is_the_first() {
        let text = "classes:\n- {name: b, shares: 2, parent: g}\n- {name: g, shares: 5, parent: h}\n- {name: h, shares: 7}\n\
                    - {name: default, shares: 9, limit_iops: 4}\nrules: [{class: b}]\n";
        let forms = classes(&run_rules::parse("rules.yaml", text).unwrap());
        assert_eq!(forms.iter().map(|form| form.name.as_str()).collect::<Vec<_>>(), ["default", "h", "g", "b"]);
        assert_eq!((forms[0].shares, forms[0].limits[0]), (9, 4));
        let parents: Vec<_> = forms.iter().map(|form| (form.parent, form.is_group)).collect();
        assert_eq!(parents, [(None, false), (None, true), (Some(1), true), (Some(2), false)]);
        let handover = Handover { classes: forms, ..Handover::default() };
        assert_eq!(handover.make_classes().unwrap().list().len(), 4);
    }

    #[test]
    fn a_bucket_holds_what_lies_above_the_one_before() {
        assert_eq!([0, 1, 7, 8, 16].map(Latency::upper_ns), [8, 9, 15, 17, 35]);
        for ns in [8, 9, 17, 100, 12_345, 1 << 30] {
            let at = Latency::bucket(ns);
            assert!(Latency::upper_ns(at) >= ns && (at == 0 || Latency::upper_ns(at - 1) < ns), "{ns} in {at}");
        }
    }
}
