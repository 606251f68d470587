//! Compares machines: capacities, costs, and how a family of machines scales with its sizes.
//!
//! **Why.** A database needs processor, memory, disk and network in some ratio, and machines are sold in other ratios.
//! Advertised figures differ from measured ones, a percentage without its base proves anything, and no price list has
//! the price of a terabyte or of a million operations.
//!
//! **How.** A [`Card`] has all that is known of one machine: figures under the names of [`figures`], measured here,
//! published, or taken from the table of presets. Everything else reads only cards:
//!
//! ```text
//!  measure ---\                     /--> compare    ratios, their causes, and the machine for a need
//!  published --+--> Card (a file) -+---> scaling    a family by size: advertised against measured
//!  presets ---/                     \--> claims     published claims about machines, computed again
//!                    prices --------/
//! ```
//!
//! **Limits.** A card describes one machine at one time: neighbours, firmware and the day of the week change its
//! figures. Before you buy hundreds, measure several and compare them.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::{Card, Figure, Origin};
//! let mut card = Card::new("db-7", Origin::measured("2026-11-21"));
//! card.set("cpu.cores", Figure::exact(8.0));
//! card.set("disk.read_iops", Figure::of_samples(vec![99_000.0, 101_000.0, 100_000.0]).ok_or("no samples")?);
//! let again = Card::from_json("db-7.json", &card.to_json())?;
//! assert_eq!(again, card);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod card;
pub mod claims;
pub mod compare;
pub mod economics;
pub mod figures;
pub mod find;
pub mod measure;
pub mod page;
pub mod prices;
pub mod published;
pub mod scaling;

pub use card::{Card, CardError, Figure, Origin, OriginKind};
