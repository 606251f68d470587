//! The class of a call: the rules in a form that costs a call a few operations on words.
//!
//! A rule is a bit. A file has the bits of the rules whose path pattern matched when it was opened, a thread of those
//! that match its name, an operation of those that apply to it. The lowest bit in all three is the first rule that
//! matches. The highest bit matches every call.

use crate::handover::{Handover, Kind, RULES_MAX, path_matches};

/// The bit of calls that match no rule.
pub(crate) const NONE_MATCHES: usize = RULES_MAX;

/// The rules of a run.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Thread pattern and path pattern, by bit.
    patterns: Vec<(Option<String>, Option<String>)>,
    kinds: [u64; 4],
    /// Number of the class, by bit.
    classes: Vec<usize>,
}

impl Rules {
    pub(crate) fn new(handover: &Handover) -> Rules {
        let mut rules = Rules { kinds: [1 << NONE_MATCHES; 4], ..Rules::default() };
        for (bit, rule) in handover.rules.iter().take(RULES_MAX).enumerate() {
            rules.patterns.push((rule.thread.clone(), rule.path.clone()));
            rules.classes.push(rule.class);
            for kind in Kind::ALL.iter().filter(|kind| rule.kinds & kind.bit() != 0) {
                rules.kinds[*kind as usize] |= 1 << bit;
            }
        }
        rules
    }

    /// Returns the rules whose path pattern matches; always at least [`NONE_MATCHES`].
    pub(crate) fn of_path(&self, path: &[u8]) -> u64 {
        let matching = self.patterns.iter().enumerate().filter(|(_, (_, pattern))| match pattern {
            None => true,
            Some(pattern) => path_matches(pattern, path),
        });
        matching.fold(1 << NONE_MATCHES, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Returns the rules whose thread pattern matches; always at least [`NONE_MATCHES`].
    pub(crate) fn of_thread(&self, name: &[u8]) -> u64 {
        let matching = self.patterns.iter().enumerate().filter(|(_, (pattern, _))| match pattern {
            None => true,
            Some(pattern) => crate::handover::matches(pattern.as_bytes(), name),
        });
        matching.fold(1 << NONE_MATCHES, |bits, (bit, _)| bits | 1 << bit)
    }

    /// Returns the first rule that matches, and the number of its class.
    #[inline]
    pub(crate) fn first(&self, of_path: u64, of_thread: u64, kind: Kind) -> (usize, usize) {
        let bit = (of_path & of_thread & self.kinds[kind as usize]).trailing_zeros() as usize;
        (bit.min(NONE_MATCHES), self.classes.get(bit).copied().unwrap_or(0))
    }
}
