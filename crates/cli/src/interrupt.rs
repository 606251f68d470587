//! Ctrl-C (and SIGTERM, SIGHUP) end the work; the command then prints its results so far and cleans up as always.

use plimsoll_measure::load::Control;

use crate::failure::Failure;

/// Lets the signals stop `control`.
pub(crate) fn stop_on_signal(control: &Control) -> Result<(), Failure> {
    let control = control.clone();
    ctrlc::set_handler(move || control.stop())
        .map_err(|error| Failure::Machine(format!("cannot install the Ctrl-C handler: {error}")))
}
