//! Text of others, such as names in files, made harmless for a terminal.

/// Escapes control characters, so that the text cannot control the terminal.
pub fn printable(text: &str) -> String {
    escaped(text, |_| false)
}

/// Escapes control characters as [`printable`] does, except line ends and tabs.
pub fn printable_lines(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Escapes control characters, except those for which `stays` is true.
fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let escape = |letter: char| match letter.is_control() && !stays(letter) {
        true => letter.escape_unicode().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}
