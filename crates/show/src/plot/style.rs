//! Colours, dashes and shapes that tell layers apart.
//!
//! # Why
//! Readers who cannot tell colours apart must still be able to tell lines apart.
//!
//! # How it works
//! The names of layers are numbered in the order of the chart; colour, dashes and shape follow from the number.
//!
//! # Limits
//! After 84 names the styles repeat.
//!
//! # Example
//! The ninth name has the colour of the second, and other dashes.

use super::{Chart, Layer};

pub(super) const MARK_STROKE: &str = "stroke=\"#444444\" stroke-width=\"1.2\" stroke-dasharray=\"5 3\"";

/// Okabe and Ito, "Color Universal Design" (2008), without the yellow.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const DASHES: [&str; 3] = ["", "2 3", "9 3 2 3"];
const DASHES_OF_DASHED: [&str; 3] = ["7 4", "7 4 2 4", "12 4 2 4 2 4"];
/// Corners around a point; none for a circle.
const SHAPES: [&[(f64, f64)]; 4] = [
    &[],
    &[(-3.3, -3.3), (3.3, -3.3), (3.3, 3.3), (-3.3, 3.3)],
    &[(0.0, -4.4), (4.1, 3.1), (-4.1, 3.1)],
    &[(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)],
];

/// Colour, dashes and shape of the layers of one name.
#[derive(Clone, Copy)]
pub(super) struct Style {
    index: usize,
}

impl Style {
    pub(super) fn colour(self) -> &'static str {
        COLOURS.get(self.index % COLOURS.len()).copied().unwrap_or("#000000")
    }

    pub(super) fn shape(self) -> &'static [(f64, f64)] {
        SHAPES.get(self.index % SHAPES.len()).copied().unwrap_or(&[])
    }

    pub(super) fn stroke(self, dashed: bool) -> String {
        let dashes = if dashed { DASHES_OF_DASHED } else { DASHES };
        let dashes = match dashes.get(self.index / COLOURS.len() % dashes.len()) {
            None | Some(&"") => String::new(),
            Some(dashes) => format!(" stroke-dasharray=\"{dashes}\""),
        };
        format!("stroke=\"{}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{dashes}", self.colour())
    }
}

pub(super) struct Styles<'a> {
    pub(super) names: Vec<&'a str>,
}

impl<'a> Styles<'a> {
    pub(super) fn of(chart: &'a Chart) -> Styles<'a> {
        let mut names: Vec<&str> = Vec::new();
        for layer in &chart.layers {
            if let Layer::Line { name, .. } | Layer::Points { name, .. } | Layer::Bars { name, .. } = layer
                && !names.contains(&name.as_str())
            {
                names.push(name);
            }
        }
        Styles { names }
    }

    pub(super) fn style(&self, name: &str) -> Style {
        Style { index: self.names.iter().position(|known| *known == name).unwrap_or(0) }
    }
}
