//! Documents: what a command has to say, as data that becomes a page, a table or a chart.
//!
//! # Why
//! Results of different commands stand on one page, and look alike there.
//!
//! # How it works
//! [`table`] is rows and columns, also as CSV; [`page`] makes HTML of sections of tables, texts and tiles; [`plot`] makes
//! SVG of curves and bars.
//!
//! # Limits
//! Nothing here knows a command or what its figures mean.
//!
//! # Example
//! See [`page`] and [`plot`].

pub mod page;
pub mod plot;
pub mod table;
