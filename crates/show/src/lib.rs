//! Documents: the results of a command as data, rendered as a page, a table or a chart.
//!
//! # Why
//! Results of different commands stand on one page and look alike there.
//!
//! # How it works
//! [`answer`] holds a command's conclusion; [`table`] holds rows and columns, and renders CSV; [`page`] renders HTML
//! from sections of tables, texts and tiles; [`plot`] renders SVG of curves and bars;
//! [`printable`] escapes text of others.
//!
//! # Limits
//! Nothing here knows a command or the meaning of its figures.
//!
//! # Example
//! See [`page`] and [`plot`].

#![allow(missing_docs, reason = "the tools' own crate: a name that says all needs no line")]

pub mod answer;
pub mod page;
pub mod plot;
pub mod printable;
pub mod table;
