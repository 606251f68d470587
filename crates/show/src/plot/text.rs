//! Text in pictures: escaping, estimated widths, shortening and wrapping.
//!
//! # Why
//! A picture is drawn without knowing the reader's fonts; labels must neither overlap nor break the markup.
//!
//! # How it works
//! Each character counts as a part of the font size, by class of character. The parts are those of wide sans-serif
//! faces (DejaVu Sans, Verdana), rounded up, so that narrower faces leave room.
//!
//! # Limits
//! Widths are estimates: text in a wider face may touch its neighbour.
//!
//! # Example
//! `64 KiB` at 12 pixels is estimated at 43 pixels; `a<b` is written as `a&lt;b`.

/// Escapes `text` as content or attribute of XML or HTML. Characters that XML does not allow become U+FFFD.
pub fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            '\t' | '\n' | '\r' => result.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => result.push('\u{fffd}'),
            c => result.push(c),
        }
    }
    result
}

/// Estimates the width of `text` in a font of `size_px`.
pub(super) fn text_width_px(text: &str, size_px: f64) -> f64 {
    text.chars().map(|c| size_px * em(c)).sum()
}

/// Returns the width of a character as a part of the font size.
fn em(c: char) -> f64 {
    match c {
        ' ' | '.' | ',' | ':' | ';' | '\'' | '|' | 'i' | 'j' | 'l' | 'I' => 0.35,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' | '[' | ']' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' | '\u{2026}' => 1.0,
        c if c > '\u{2000}' => 1.0,
        c if c.is_uppercase() => 0.76,
        _ => 0.65,
    }
}

/// Fits `text` on one line of at most `width_px`; an ellipsis replaces the rest.
pub(super) fn shortened(text: &str, width_px: f64, size_px: f64) -> String {
    let line: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    let line = line.trim();
    if text_width_px(line, size_px) <= width_px {
        return line.to_owned();
    }
    let mut left_px = width_px - size_px;
    let fits = |c: &char| {
        left_px -= size_px * em(*c);
        left_px >= 0.0
    };
    let kept: String = line.chars().take_while(fits).collect();
    format!("{}\u{2026}", kept.trim_end())
}

/// Breaks `text` into lines of at most `width_px`, at most `lines_max` of them.
pub(super) fn wrapped(text: &str, width_px: f64, size_px: f64, lines_max: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == lines_max;
        match lines.last_mut() {
            Some(line) if is_last || text_width_px(&format!("{line} {word}"), size_px) <= width_px => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| shortened(line, width_px, size_px)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        for (text, expected) in [
            ("a & b", "a &amp; b"),
            ("<script>", "&lt;script&gt;"),
            ("\"it's\"", "&quot;it&#39;s&quot;"),
            ("bell\u{7}null\0", "bell\u{fffd}null\u{fffd}"),
            ("ü €", "ü €"),
        ] {
            assert_eq!(escaped(text), expected);
        }
    }

    #[test]
    fn long_text_is_shortened_or_wrapped() {
        assert_eq!(shortened("short", 100.0, 12.0), "short");
        assert_eq!(shortened("two\nlines", 100.0, 12.0), "two lines");
        let long = "word ".repeat(100);
        for text in [long.as_str(), &"M".repeat(500), &"\u{4e00}".repeat(500)] {
            assert!(text_width_px(&shortened(text, 200.0, 12.0), 12.0) <= 200.0);
            let lines = wrapped(text, 200.0, 12.0, 3);
            assert!(lines.len() <= 3 && lines.iter().all(|line| text_width_px(line, 12.0) <= 200.0), "{lines:?}");
        }
        assert_eq!(wrapped("one two", 200.0, 12.0, 3), ["one two"]);
        assert!(wrapped(" ", 200.0, 12.0, 3).is_empty());
    }
}
