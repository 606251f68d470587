//! The answer of a command that judges: at most three lines, before all tables.
//!
//! # Why
//! A reader wants the verdict, its confidence, and how to raise that; the evidence comes below.
//!
//! # How it works
//! [`Answer::lines`] returns the verdict, the figure with its interval, and the confidence with its reasons, a line
//! each; if one is too long for its line, all three form one paragraph. A paragraph of more than three lines is cut,
//! since the evidence below has it all.
//!
//! # Limits
//! One answer for each command: with several disks or jobs, it is about the one that needs attention most.
//!
//! # Example
//! ```
//! use plimsoll_show::answer::{Answer, Mood};
//! let answer = Answer::new(Mood::Bad, "saturated: the disk is the limiter", "13.6 GB/s", "known to 10 %");
//! assert_eq!(answer.lines(60), ["saturated: the disk is the limiter", "13.6 GB/s", "known to 10 %"]);
//! assert_eq!(answer.lines(30), ["saturated: the disk is the", "limiter. 13.6 GB/s. known to", "10 %"]);
//! ```

pub const LINES_MAX: usize = 3;

/// The weight of a state; the state itself is in words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// Neutral.
    #[default]
    Quiet,
    /// As it should be.
    Good,
    /// Needs attention.
    Heed,
    /// Wrong.
    Bad,
}

impl Mood {
    /// Returns the suffix of an element's class on a page.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Mood::Quiet => "",
            Mood::Good => " good",
            Mood::Heed => " heed",
            Mood::Bad => " bad",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub mood: Mood,
    /// The verdict, the figure with its interval, and the confidence with its reasons, without full stops. Empty parts
    /// are left out.
    parts: [String; LINES_MAX],
}

impl Answer {
    pub fn new(
        mood: Mood,
        verdict: impl Into<String>,
        figure: impl Into<String>,
        confidence: impl Into<String>,
    ) -> Answer {
        Answer { mood, parts: [verdict.into(), figure.into(), confidence.into()] }
    }

    /// Returns the lines, each at most `width` letters long, unless a word is longer.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let parts = || self.parts.iter().filter(|part| !part.is_empty());
        if parts().all(|part| part.chars().count() <= width) {
            return parts().cloned().collect();
        }

        let text = parts().cloned().collect::<Vec<_>>().join(". ");
        let mut lines: Vec<String> = vec![String::new()];
        let mut words = text.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let is_last = lines.len() == LINES_MAX;
            let Some(line) = lines.last_mut() else { break };
            let cut = if is_last && words.peek().is_some() { 2 } else { 0 };
            let letters = line.chars().count();
            if letters == 0 {
                line.push_str(word);
            } else if letters + 1 + word.chars().count() + cut <= width {
                line.extend([" ", word]);
            } else if is_last {
                line.push_str(" \u{2026}");
                break;
            } else {
                lines.push(word.to_owned());
            }
        }
        lines
    }
}

/// Returns `text` with its first letter in upper case.
pub fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_three_lines_of_any_width() {
        let long = "a reason that goes on and on ".repeat(20);
        for (verdict, figure, confidence) in [("short", "", ""), ("short", "1 GB/s", "sure"), (&long, "1 GB/s", &long)]
        {
            let answer = Answer::new(Mood::Quiet, verdict, figure, confidence);
            for width in [20, 80, 100] {
                let lines = answer.lines(width);
                assert!(!lines.is_empty() && lines.len() <= LINES_MAX, "{lines:#?}");
                assert!(lines.iter().all(|line| !line.is_empty() && line.chars().count() <= width), "{lines:#?}");
                let is_cut = lines.last().is_some_and(|line| line.ends_with('\u{2026}'));
                assert_eq!(is_cut, verdict.len() > 100, "{lines:#?}");
            }
        }
    }
}
