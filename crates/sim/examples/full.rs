use plimsoll_core::{CostForm, CostModel, DiskConfig, Op};
use plimsoll_sim::device::presets::{self, Provision, volumes, Preset};
use plimsoll_sim::workload::{JobSpec, Load, SizeDist};
use plimsoll_sim::world::{self, ClassSpec, DiskMode, ShardSpec, SimDisk, WorldSpec};

fn run(preset: &Preset, mode: DiskMode, op: Op, len: u32, shards: u32, cfg: DiskConfig) -> (f64, f64) {
    let disk = SimDisk { mode, ..SimDisk::new(preset.spec.clone(), cfg) };
    let job = JobSpec { name: "a".into(), class: "a".into(), op, load: Load::closed(16), sizes: SizeDist::Fixed(len), ..JobSpec::default() };
    let secs: u64 = std::env::var("SECS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let spec = WorldSpec {
        seed: 1, warmup_ns: 500_000_000, duration_ns: secs * 1_000_000_000,
        disks: vec![disk], classes: vec![ClassSpec::new("a", 100)], jobs: vec![job],
        shards: vec![ShardSpec::default(); shards as usize], ..WorldSpec::default()
    };
    let report = world::run(&spec).unwrap();
    (report.disks[0].bytes_per_s, report.disks[0].mean_in_device)
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let gp3 = volumes().iter().find(|v| v.name == "gp3").unwrap();
    let mut list: Vec<Preset> = vec![
        gp3.provision(&Provision { size_bytes: Some(50 << 30), iops: None, bandwidth_bytes_per_s: Some(250_000_000) }).unwrap(),
        gp3.provision(&Provision { size_bytes: Some(1 << 40), iops: Some(16000), bandwidth_bytes_per_s: None }).unwrap(),
    ];
    for name in ["i3en.24xlarge", "i7ie.6xlarge", "i4i.2xlarge", "i3.16xlarge", "im4gn.4xlarge", "io2", "gp2", "i4i.32xlarge"] {
        match presets::find(name) { Some(p) => list.push(p), None => eprintln!("no {name}") }
    }
    let mut all = vec![];
    for preset in &list {
        if !preset.name.contains(&filter) { continue; }
        let cfg = DiskConfig { model: CostModel::from_figures(&preset.figures, if std::env::var("MAX").is_ok() { CostForm::Max } else { CostForm::Knee }, 4096, 4096), ..DiskConfig::default() };
        for len in [4096, 128 << 10, 1 << 20] {
            for op in [Op::Read, Op::Write] {
                for shards in [1, 4, 16] {
                    let (d, dn) = run(preset, DiskMode::Drain, op, len, shards, cfg.clone());
                    let (s, sn) = run(preset, DiskMode::Scheduled, op, len, shards, cfg.clone());
                    all.push(s / d);
                    println!("{:28} {:>5}K {:?} {:>2} shards: {:>8.1} of {:>8.1} MB/s = {:.2}  in device {:.1} / {:.1}{}", preset.name, len >> 10, op, shards, s / 1e6, d / 1e6, s / d, sn, dn, if s / d < 0.9 { "  <----" } else { "" });
                }
            }
        }
    }
    all.sort_by(f64::total_cmp);
    println!("{} cases, worst {:.2}, median {:.3}, below 0.9: {}", all.len(), all[0], all[all.len() / 2], all.iter().filter(|r| **r < 0.9).count());
}
