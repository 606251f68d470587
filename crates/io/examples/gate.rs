//! A program that makes its own reads, on its own threads, and asks the scheduler before each.
//!
//! Queries read, a backup reads the whole file, both through a gate; the backup has a tenth of the shares. Tokio's
//! `spawn_blocking` takes the same closures: a `Gate` is cheap to clone and may be used from any thread.
//!
//! ```text
//! cargo run --release -p plimsoll --example gate -- /path/to/a/large/file
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll::core::{CostForm, CostModel, DiskConfig, FourFigures, Op, Rate};
use plimsoll::{Classes, DiskSetup, Gate, Topology};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give a file to read")?;
    let file = File::open(path)?;
    let len_bytes = file.metadata()?.len().max(4096);

    // The disk's limits, which `plimsoll tune` measures.
    let figures = FourFigures {
        read_iops: Rate::per_second(20_000),
        write_iops: Rate::per_second(20_000),
        read_bandwidth: Rate::per_second(500_000_000),
        write_bandwidth: Rate::per_second(500_000_000),
    };
    let model = CostModel::from_figures(&figures, CostForm::Knee, 4096, 4096);
    let classes = Classes::new();
    let query = classes.add_class("query", None, 1000)?;
    let backup = classes.add_class("backup", None, 100)?;
    let topology = Topology::new(1, classes, vec![DiskSetup::new(DiskConfig { model, ..DiskConfig::default() })])?;
    let gate = Gate::new(&topology, 0, 0)?;

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (gate, file, is_over) = (gate.clone(), &file, &is_over);
            scope.spawn(move || {
                let mut buffer = [0; 4096];
                let mut at = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                while !is_over.load(Ordering::Relaxed) {
                    at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let Ok(permit) = gate.enter(query, Op::Read, 4096) else { return };
                    let read = file.read_at(&mut buffer, at % len_bytes / 4096 * 4096);
                    permit.end(read.map(|bytes| bytes as u32).map_err(|error| error.raw_os_error().unwrap_or(5)));
                }
            });
        }
        let (backup_gate, file, is_over) = (gate.clone(), &file, &is_over);
        scope.spawn(move || {
            let mut buffer = vec![0; 4 << 20];
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed) {
                // The disk's latency goal decides into how many pieces a long call is split.
                let read = backup_gate.transfer(backup, Op::Read, buffer.len(), |offset, len| {
                    file.read_at(&mut buffer[offset..offset + len], at + offset as u64)
                });
                at = match read {
                    Ok(0) => 0,
                    Ok(bytes) => at + bytes as u64,
                    Err(_) => return,
                };
            }
        });
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        for (name, class) in [("query", query), ("backup", backup)] {
            if let Some(stats) = gate.class_stats(class) {
                let (calls, mb) = (stats.read.requests as f64 / seconds, stats.read.bytes as f64 / 1e6 / seconds);
                println!("{name}: {calls:.0} calls/s, {mb:.1} MB/s");
            }
        }
    });
    Ok(())
}
