//! Parses the text of a fio job file into sections of settings with their positions.
//!
//! **Why.** fio's files look like INI, with rules of their own: `;` or `#` begins a comment anywhere, a name without a
//! value is a switch, and `${NAME}` is replaced by a variable of the environment.
//!
//! **How.** One pass over the lines. Every setting is looked up in [`super::options`] at once, so that an unknown or
//! refused name is reported at its first line, and a remark about it is made once.
//!
//! **Limits.** Texts of at most 1 MiB. `include FILE` inserts the lines of a file, which may not begin sections, as in
//! fio; a wrong value in them is reported at the line of the `include`. fio inserts nothing for a variable that is not
//! set; here the file is refused.
//!
//! **Example.** `bs = 4k ; small` is the setting `bs` with the value `4k`; `[reads]` begins the section `reads`.

use plimsoll_figures::units::quoted;

use super::options::{self, Use};
use crate::error::{Code, ConfigError, Diagnostic, Source, Span};
use crate::fields::did_you_mean;

const MAX_TEXT_BYTES: usize = 1 << 20;
/// Longest value after variables are replaced, in bytes.
const MAX_VALUE_BYTES: usize = 64 << 10;
/// Words that fio replaces by figures of the machine; here they are refused.
const MACHINE_WORDS: [&str; 3] = ["$pagesize", "$mb_memory", "$ncpus"];

/// Most files that one `include` line adds, with those that they include.
const MAX_INCLUDES: usize = 64;

/// Looks up a variable of the environment.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads an included file, given the name of the including file and the name in the `include` line. `None`: includes
/// are not allowed.
pub(super) type Includes<'a> = Option<&'a dyn Fn(&str, &str) -> Result<Source, ConfigError>>;

#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// fio's first name of the option.
    pub(super) name: &'static str,
    /// The value with variables replaced; `None` if the line has no `=`.
    pub(super) value: Option<String>,
    /// Position of the value, or of the name if there is no value.
    pub(super) value_span: Span,
    /// Number among all settings: settings of an included file have one position.
    pub(super) order: usize,
}

/// A section: a header and the settings up to the next one.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) span: Span,
    /// The settings in the order of the text.
    pub(super) settings: Vec<Setting>,
}

/// Reads all sections. Adds remarks about settings without effect to `warnings`.
pub(super) fn read(
    source: &Source,
    environment: Environment<'_>,
    includes: Includes<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<Section>, ConfigError> {
    if source.text().len() > MAX_TEXT_BYTES {
        let error = source.error(Code::TooLarge, "the job file is larger than 1 MiB");
        return Err(error.with_help("split it"));
    }

    let mut sections: Vec<Section> = Vec::new();
    for span in lines(source) {
        let text = source.slice(&span);
        if text.starts_with('[') {
            sections.push(header(source, text, &span)?);
            continue;
        }

        let Some(section) = sections.last_mut() else {
            let error = source.error_at(&span, Code::Syntax, "an option stands before the first section");
            return Err(error.with_help("begin the file with [global], or with the name of a job in brackets"));
        };

        if let Some(name) = included(text) {
            let mut settings = Vec::new();
            include(source, (name, &span), environment, includes, &mut 0, &mut settings, warnings)?;
            section.settings.extend(settings);
        } else if let Some(setting) = setting(source, text, &span, environment, warnings)? {
            section.settings.push(setting);
        }
    }
    for (order, setting) in sections.iter_mut().flat_map(|section| &mut section.settings).enumerate() {
        setting.order = order;
    }
    Ok(sections)
}

/// Returns the positions of all lines with content, without comments.
fn lines(source: &Source) -> impl Iterator<Item = Span> + '_ {
    let mut start = 0;
    let spans = source.text().split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        trimmed(line.split([';', '#']).next().unwrap_or(""), at)
    });
    spans.filter(|span| !span.is_empty())
}

fn included(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("include")?;
    if rest.is_empty() || rest.starts_with([' ', '\t', '=']) { Some(rest.trim_start_matches('=').trim()) } else { None }
}

/// Reads the settings of the file called `name`. Their position is that of the line that includes it.
fn include(
    source: &Source,
    (name, span): (&str, &Span),
    environment: Environment<'_>,
    includes: Includes<'_>,
    count: &mut usize,
    settings: &mut Vec<Setting>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), ConfigError> {
    let refuse = |code, message: String, help: &str| {
        Err(source.error_at(span, code, message).with_key("include").with_help(help))
    };
    let copy = "copy the lines of the other file to this place";
    let Some(open) = includes else {
        return refuse(Code::NotSupported, "`include` is read in files, and this is only text".to_owned(), copy);
    };
    if name.is_empty() {
        return refuse(Code::WrongType, "`include` has no file".to_owned(), "write `include` and the name of a file");
    }
    *count += 1;
    if *count > MAX_INCLUDES {
        let message = format!("that makes more than {MAX_INCLUDES} included files: do they include one another?");
        return refuse(Code::TooLarge, message, copy);
    }

    let other = match open(source.name(), name) {
        Ok(other) => other,
        Err(error) => {
            let message = format!("{} cannot be included: {}", quoted(name), error.message());
            return refuse(
                Code::Unreadable,
                message,
                "check the path: it counts from here, or from the including file",
            );
        }
    };
    for line in lines(&other) {
        let text = other.slice(&line);
        if text.starts_with('[') {
            let error = other.error_at(&line, Code::Syntax, "an included file cannot begin a section");
            return Err(error.with_help("write the section in the file that includes this one"));
        }
        if let Some(name) = included(text) {
            include(&other, (name, &line), environment, includes, count, settings, warnings)?;
        } else if let Some(setting) = setting(&other, text, &line, environment, warnings)? {
            settings.push(setting);
        }
    }
    for setting in settings {
        setting.value_span = span.clone();
    }
    Ok(())
}

/// Returns the position of `text` without surrounding blanks, if `text` begins at byte `at`.
fn trimmed(text: &str, at: usize) -> Span {
    let begin = at + (text.len() - text.trim_start().len());
    begin..begin + text.trim().len()
}

fn header(source: &Source, text: &str, span: &Span) -> Result<Section, ConfigError> {
    let Some((name, rest)) = text.get(1..).and_then(|text| text.rsplit_once(']')) else {
        let error = source.error_at(span, Code::Syntax, "the header of a section has no `]`");
        return Err(error.with_help("write [name] on a line of its own"));
    };
    let error = |code, message: &str| source.error_at(span, code, message);
    if !rest.trim().is_empty() {
        return Err(error(Code::Syntax, "something follows the `]`").with_help("begin a new line after the header"));
    }
    if name.trim().is_empty() {
        return Err(error(Code::Empty, "the section has no name").with_help("name it; results are listed under it"));
    }
    if name.chars().any(char::is_control) {
        let error = error(Code::InvalidValue, "the name of the section holds a control character");
        return Err(error.with_help("remove it"));
    }
    Ok(Section { name: name.to_owned(), span: span.clone(), settings: Vec::new() })
}

/// Reads one line. Returns `None` for an option that needs no action.
fn setting(
    source: &Source,
    text: &str,
    span: &Span,
    environment: Environment<'_>,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Option<Setting>, ConfigError> {
    let (word, raw) = match text.split_once('=') {
        Some((word, raw)) => (word.trim_end(), Some(raw)),
        None => (text, None),
    };
    let name_span = span.start..span.start + word.len();
    let Some((name, treatment)) = options::find(word) else { return Err(unknown(source, word, &name_span)) };

    let value_span = raw.map_or(name_span.clone(), |raw| trimmed(raw, span.end - raw.len()));
    let value = raw.map(|raw| expand(source, raw.trim(), &value_span, environment)).transpose()?;
    let setting = Setting { name, value, value_span, order: 0 };
    let refuse = |reason: &str| {
        let error = source.error_at(&name_span, Code::NotSupported, format!("`{word}` is not supported"));
        Err(error.with_key(name).with_help(reason))
    };

    match *treatment {
        Use::Read => {}
        Use::Silent => return Ok(None),
        Use::Note(why) => {
            let warning = source.error_at(&name_span, Code::Ignored, format!("`{word}` has no effect here"));
            warnings.push(warning.with_key(name).with_help(why).into_warning());
            return Ok(None);
        }
        Use::Only(words, help) => {
            let value = setting.value.as_deref().unwrap_or("1");
            return if words.contains(&value) { Ok(None) } else { refuse(help) };
        }
        Use::Refused(help) => return refuse(help),
    }
    Ok(Some(setting))
}

fn unknown(source: &Source, word: &str, span: &Span) -> ConfigError {
    let error =
        source.error_at(span, Code::UnknownKey, format!("fio has no option {}, or it is not known here", quoted(word)));
    let help = did_you_mean(word, options::all_names());
    let help = help.unwrap_or_else(|| "remove it, if the load stays the same without it".to_owned());
    error.with_key(word.chars().take(64).collect::<String>()).with_help(help)
}

fn expand(source: &Source, raw: &str, span: &Span, environment: Environment<'_>) -> Result<String, ConfigError> {
    if let Some(word) = MACHINE_WORDS.iter().find(|word| raw.contains(**word)) {
        let error = source.error_at(span, Code::NotSupported, format!("`{word}` is not replaced here"));
        return Err(error.with_help("write the figure, so that the file means the same load on every machine"));
    }

    let mut value = String::new();
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else {
            let error = source.error_at(span, Code::Syntax, "`${` has no `}`");
            return Err(error.with_help("write ${NAME}"));
        };
        let Some(text) = environment(name) else {
            let message = format!("the environment has no variable {}", quoted(name));
            let error = source.error_at(span, Code::UnknownReference, message);
            return Err(error.with_help("set it, or write the value; fio would take nothing in its place"));
        };
        value.push_str(before);
        value.push_str(&text);
        rest = behind;
        if value.len() > MAX_VALUE_BYTES {
            let error = source.error_at(span, Code::TooLarge, "the value is longer than 64 KiB");
            return Err(error.with_help("shorten it"));
        }
    }

    value.push_str(rest);
    Ok(value)
}
