//! Tiles: things with a state each, such as the disks of a host.
//!
//! # Why
//! A reader across the room needs one word for each disk, and the reason beside it.
//!
//! # How it works
//! A [`Tile`] has a name, a state in words, a sentence, some figures, and a line of recent values. Its colour only
//! repeats the state.
//!
//! # Limits
//! The line has no axis: it shows whether a value rises or falls. A chart shows how much.
//!
//! # Example
//! `nvme0n1`, `busy but free`, "97 % of its capacity is free", `U 3 %`, `S 0 %`.

use std::fmt::Write as _;

use crate::answer::Mood;
use crate::plot::escaped;

/// One thing and its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tile {
    pub name: String,
    pub state: String,
    pub mood: Mood,
    /// One sentence with the reason; empty for none.
    pub why: String,
    pub figures: Vec<(String, String)>,
    /// The line: its name, and its values over time as parts of 1, the latest last. Values beyond 0 to 1 are drawn at
    /// the edge, `None` is a gap. With fewer than two values nothing is drawn.
    pub line: (String, Vec<Option<f64>>),
}

pub(super) fn write(page: &mut String, tiles: &[Tile], id: &str) {
    if tiles.is_empty() {
        return;
    }
    let _ = writeln!(page, "<ul class=\"tiles\" id=\"{id}\">");
    for tile in tiles {
        let (name, state) = (escaped(&tile.name), escaped(&tile.state));
        let _ = write!(
            page,
            "<li class=\"tile{}\"><div class=\"tile-head\"><span>{name}</span> <span class=\"state\">{state}</span></div>",
            tile.mood.class()
        );
        if !tile.why.is_empty() {
            let _ = write!(page, "<p>{}</p>", escaped(&tile.why));
        }

        page.push_str("<dl>");
        for (name, value) in &tile.figures {
            let _ = write!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
        }
        let _ = writeln!(page, "</dl>{}</li>", line(&tile.name, &tile.line.0, &tile.line.1));
    }
    page.push_str("</ul>\n");
}

/// Renders a line 100 wide and 24 high, stretched to the width of its tile.
fn line(thing: &str, what: &str, values: &[Option<f64>]) -> String {
    let known: Vec<f64> = values.iter().flatten().copied().filter(|value| value.is_finite()).collect();
    let (Some(last), true) = (known.last(), known.len() > 1) else { return String::new() };

    let step = 100.0 / (values.len() - 1).max(1) as f64;
    let mut path = String::new();
    let mut is_joined = false;

    for (at, value) in values.iter().enumerate() {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            is_joined = false;
            continue;
        };
        let (x, y) = (at as f64 * step, 1.0 + 22.0 * (1.0 - value.clamp(0.0, 1.0)));
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_joined { "L" } else { "M" });
        is_joined = true;
    }

    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let (low, high) = known.iter().fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let told = format!(
        "{what} of {thing} over {} intervals: {} to {}, now {}",
        values.len(),
        percent(low),
        percent(high),
        percent(*last)
    );
    let told = escaped(&told);
    format!(
        "<svg class=\"spark\" viewBox=\"0 0 100 24\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{told}\">\
         <title>{told}</title><line x1=\"0\" y1=\"23\" x2=\"100\" y2=\"23\"/><path d=\"{path}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_says_everything_in_words() {
        let tile = Tile {
            name: "sd<a>".into(),
            state: "saturated".into(),
            mood: Mood::Bad,
            why: "it is full".into(),
            figures: vec![("U".into(), "98 %".into())],
            line: ("U".into(), vec![Some(0.5), None, Some(f64::NAN), Some(7.0), Some(0.98)]),
        };
        let mut page = String::new();
        write(&mut page, &[tile], "t");
        for part in
            ["sd&lt;a&gt;", "saturated", "it is full", "<dd>98 %</dd>", "50 % to 700 %, now 98 %", "M75.0 1.0L100.0"]
        {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("NaN"));
        let mut empty = String::new();
        write(&mut empty, &[], "t");
        assert_eq!((empty.as_str(), line("a", "U", &[Some(1.0)]).as_str()), ("", ""));
    }
}
