//! (being written)

use super::Scenario;

/// The scenarios of this module.
pub(super) const SCENARIOS: &[Scenario] = &[];
