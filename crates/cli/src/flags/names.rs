//! Flags whose values are a closed list of names; the help shows them all.
//!
//! **Why.** A user finds the names in `--help` and in the message for a wrong one, in the same form everywhere.
//!
//! **How.** The types already have the names; [`backend`], [`tune_backend`], [`model`] and [`form`] make parsers from
//! them.
//!
//! **Limits.** Names that depend on this machine are not a closed list.
//!
//! **Example.** `--backend spdk` is refused with `[possible values: uring, aio, pool, memory, null]`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use plimsoll::backend::choose::BackendKind;
use plimsoll::core::CostForm;
use plimsoll_files::setup::old_defaults::{self, ModelChoice};

/// The disk that `tune` measures: through a backend of this machine, or simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TuneBackend {
    Machine(BackendKind),
    Simulated,
}

pub(crate) fn backend() -> impl TypedValueParser<Value = BackendKind> {
    PossibleValuesParser::new(BackendKind::ALL.map(BackendKind::name)).try_map(|name| name.parse())
}

pub(crate) fn tune_backend() -> impl TypedValueParser<Value = TuneBackend> {
    let names = BackendKind::ALL.map(BackendKind::name).into_iter().chain(["sim"]);
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "sim" => Ok(TuneBackend::Simulated),
        name => name.parse().map(TuneBackend::Machine),
    })
}

pub(crate) fn form() -> impl TypedValueParser<Value = CostForm> {
    PossibleValuesParser::new(CostForm::ALL.map(CostForm::name)).try_map(|name| name.parse())
}

/// Returns a parser for cost forms and the old defaults.
pub(crate) fn model() -> impl TypedValueParser<Value = ModelChoice> {
    let names = CostForm::ALL.map(CostForm::name).into_iter().chain([old_defaults::NAME]);
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}
