//! Closed lists: flags that take one of a few names, all of which help shows.
//!
//! # Why
//! Who does not know the names finds them in `--help` and in the message for a wrong one, in the same form everywhere.
//!
//! # How it works
//! The types have their names already; [`backend`], [`tune_backend`], [`model`] and [`form`] make parsers of them.
//!
//! # Limits
//! Names that need this machine to be known are no closed list.
//!
//! # Example
//! `--backend spdk` is refused with `[possible values: uring, aio, pool, memory, null]`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::CostForm;
use plimsoll_files::setup::old_defaults::{self, ModelChoice};

/// What `tune` measures with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TuneBackend {
    /// A backend of this machine.
    Machine(BackendKind),
    /// A simulated disk.
    Simulated,
}

/// A backend of this machine.
pub(crate) fn backend() -> impl TypedValueParser<Value = BackendKind> {
    PossibleValuesParser::new(BackendKind::ALL.map(BackendKind::name)).try_map(|name| name.parse())
}

/// A backend of this machine, or `sim`.
pub(crate) fn tune_backend() -> impl TypedValueParser<Value = TuneBackend> {
    let names = BackendKind::ALL.map(BackendKind::name).into_iter().chain(["sim"]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "sim" => Ok(TuneBackend::Simulated),
        name => name.parse().map(TuneBackend::Machine),
    })
}

/// A cost form.
pub(crate) fn form() -> impl TypedValueParser<Value = CostForm> {
    PossibleValuesParser::new(CostForm::ALL.map(CostForm::name)).try_map(|name| name.parse())
}

/// A cost form, or the old defaults.
pub(crate) fn model() -> impl TypedValueParser<Value = ModelChoice> {
    let names = CostForm::ALL.map(CostForm::name).into_iter().chain([old_defaults::NAME]);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}
