//! Tests a measurement with a write bound on a machine so busy that runs are repeated, and so write more than planned.

use plimsoll_sim::device::{DeviceSpec, RateSpec};

use super::record::{Entry, Load, Sample};
use super::rig::Rig;
use super::*;

/// A rig that makes each run six times, as [`DiskRig`] does if threads begin late. All six write.
struct LateRig(SimRig);

impl Rig for LateRig {
    fn fill(&mut self, wanted_bytes: u64, max_s: f64, progress: &mut dyn FnMut(f64)) -> Result<u64, TuneError> {
        self.0.fill(wanted_bytes, max_s, progress)
    }

    fn run(&mut self, load: &Load) -> Result<Sample, TuneError> {
        for _ in 0..5 {
            self.0.run(load)?;
        }
        self.0.run(load)
    }

    fn discard_beyond(&mut self, kept_part: f64) -> Result<(), TuneError> {
        self.0.discard_beyond(kept_part)
    }

    fn costs(&mut self) -> Result<Entry, TuneError> {
        self.0.costs()
    }

    fn now_s(&self) -> f64 {
        self.0.now_s()
    }

    fn written_bytes(&self) -> u64 {
        self.0.written_bytes()
    }

    fn is_stopped(&self) -> bool {
        self.0.is_stopped()
    }
}

#[test]
fn a_bounded_measurement_on_a_busy_machine_has_all_four_figures() {
    for write_bytes_per_s in [3e8, 1e9] {
        let rates = RateSpec { write_bytes_per_s, read_bytes_per_s: 3e9, ..RateSpec::default() };
        let spec = DeviceSpec { rates, ..DeviceSpec::default() };
        let disk = SimulatedDisk::new(format!("{write_bytes_per_s} B/s"), spec);
        // Like the demo's options, with half of its write bound and without mixes.
        let options = TuneOptions {
            shards: 1,
            data_bytes: 512 << 20,
            max_write_bytes: Some(2 << 30),
            phase_s: Some(1.5),
            figures_only: true,
            ..TuneOptions::quick("/nowhere")
        };
        let mut rig = LateRig(simulated_rig(&disk, &options, &Control::default()).unwrap());
        let choice = Choice { kind: BackendKind::Null, reason: "virtual time".to_owned() };
        let header =
            header(&options, (Site::of_simulated(&disk), None), choice, SIMULATED_ALIGN_BYTES, Vec::new()).unwrap();
        let report = conduct(&mut rig, Recorder::create(None, header).unwrap(), &mut ()).unwrap();
        assert!(report.written_bytes <= 2 << 30, "{}", disk.name);
        assert!(report.four_figures().is_ok(), "{}: {:?}", disk.name, report.four_figures());
    }
}
