//! Ctrl-C (and SIGTERM, SIGHUP) end the work; the command then prints its results so far and cleans up as always.

use plimsoll_measure::load::Stop;

use crate::failure::Failure;

pub(crate) fn stop_on_signal(stop: &Stop) -> Result<(), Failure> {
    let stop = stop.clone();
    ctrlc::set_handler(move || stop.ask())
        .map_err(|error| Failure::Machine(format!("cannot install the Ctrl-C handler: {error}")))
}
