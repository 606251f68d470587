//! Typed values from the maps of a configuration file.
//!
//! **Why.** Every map of every format is read the same way: known keys, keys refused by name, unknown keys; and every
//! value has the same ways to be wrong. The checks are written once, so that all formats use the same words.
//!
//! **How.** A [`Schema`] lists the keys of a kind of map. [`Fields::read`] checks a node against it and gives access by
//! key. A [`Field`] converts one value, and knows its place and path for errors.
//!
//! **Limits.** No defaults and no rules between keys: those belong to the format.
//!
//! **Example.** With `Schema::of("a disk", &["read_iops"])`, the map `{read_iop: 5}` gives
//! `a disk has no key "read_iop"`, help "did you mean `read_iops`?".

use std::ops::RangeInclusive;

use plimsoll_figures::units::{UnitError, format_count, format_duration_ns, parse_count, parse_duration_ns, quoted};

use super::error::{Code, ConfigError, Source, Span};
use super::yaml::{ELIDED_MESSAGE, Node, Value, elided};

/// Largest figure that counts as a measurement: 10^15 operations/s or bytes/s. No device comes near it; larger figures
/// are "unlimited" in disguise.
pub const MAX_FIGURE: u64 = 1_000_000_000_000_000;

/// The names of keys, flags or columns as an array of texts: `keys![read_iops duplex]` is `["read_iops", "duplex"]`.
#[macro_export]
macro_rules! keys {
    ($($key:ident)*) => { [$(stringify!($key)),*] };
}

/// The keys of one kind of map.
pub struct Schema<'s> {
    /// The thing that the map describes, with its article.
    pub what: &'static str,
    /// The keys that are read, unless they are among `refused`.
    pub known: &'s [&'static str],
    /// The keys that are refused by name.
    pub refused: &'static [Refused],
}

impl<'s> Schema<'s> {
    /// Returns a schema that refuses no key by name.
    #[must_use]
    pub const fn of(what: &'static str, known: &'s [&'static str]) -> Schema<'s> {
        Schema { what, known, refused: &[] }
    }

    /// Returns whether `key` is read.
    #[must_use]
    pub fn reads(&self, key: &str) -> bool {
        self.known.contains(&key) && self.refusal(key).is_none()
    }

    /// Returns the refusal of `key`, if it is refused by name.
    #[must_use]
    pub fn refusal(&self, key: &str) -> Option<&'static Refused> {
        self.refused.iter().find(|refused| refused.key == key)
    }

    fn keys_text(&self) -> String {
        let keys: Vec<&str> = self.known.iter().copied().filter(|key| self.reads(key)).collect();
        format!("the keys of {} are {}", self.what, list_of(&keys))
    }
}

/// A key that exists but is refused.
pub struct Refused {
    /// The key.
    pub key: &'static str,
    /// [`Code::Obsolete`], [`Code::NotSupported`], or [`Code::UnknownKey`] for a key of another format.
    pub code: Code,
    /// The advice for the user.
    pub help: &'static str,
}

impl Refused {
    /// Returns the refusal of a key that is not supported.
    pub const fn not_supported(key: &'static str, help: &'static str) -> Self {
        Self { key, code: Code::NotSupported, help }
    }

    /// Returns the refusal of a key of older files.
    pub const fn obsolete(key: &'static str, help: &'static str) -> Self {
        Self { key, code: Code::Obsolete, help }
    }

    /// Returns the refusal of a key that only files of another format have.
    pub const fn of_other_format(key: &'static str, help: &'static str) -> Self {
        Self { key, code: Code::UnknownKey, help }
    }
}

/// Longest time in a file, in nanoseconds: 30 days.
pub const MAX_TIME_NS: u64 = 30 * 86_400_000_000_000;

/// A map whose keys have been checked.
pub struct Fields<'a> {
    map: Field<'a>,
    what: &'static str,
    /// Where the map begins.
    pub span: Span,
    entries: &'a [(Node, Node)],
}

/// One value and its place.
#[derive(Clone)]
pub struct Field<'a> {
    source: &'a Source,
    /// The path of the key, such as `[0].shard_info.reqsize`.
    path: String,
    /// The value.
    pub node: &'a Node,
}

impl<'a> Fields<'a> {
    /// Checks that `field` is a map with no other keys than those of `schema`.
    pub fn read(field: &Field<'a>, schema: &Schema<'_>) -> Result<Self, ConfigError> {
        let entries = match &field.node.value {
            Value::Map(entries) => entries.as_slice(),
            _ => return Err(field.wrong_type("a map")),
        };
        let span = entries.first().map_or(&field.node.span, |(key, _)| &key.span).clone();
        let fields = Self { map: field.clone(), what: schema.what, span, entries };
        for (key_node, value_node) in entries {
            fields.check_key(key_node, value_node, schema)?;
        }
        Ok(fields)
    }

    fn check_key(&self, key_node: &Node, value_node: &Node, schema: &Schema<'_>) -> Result<(), ConfigError> {
        let at_key = |code, message: String| self.map.source.error_at(&key_node.span, code, message);
        let Some(key) = key_node.scalar() else {
            let message = format!("a key must be a word, and this is {}", key_node.value.kind());
            return Err(at_key(Code::WrongType, message).with_help(schema.keys_text()));
        };

        if schema.reads(key) {
            return Ok(());
        }

        let path = self.map.path_of(key);
        if let Some(refused) = schema.refusal(key) {
            let message = match refused.code {
                Code::Obsolete => format!("the key `{key}` is obsolete"),
                Code::UnknownKey => format!("{} has no key `{key}`", schema.what),
                _ => format!("the key `{key}` is not supported yet"),
            };
            return Err(at_key(refused.code, message).with_help(refused.help).with_key(path));
        }

        if is_elided(key) || stands_for_more(value_node) && key.trim_matches('.').is_empty() {
            return Err(elided(at_key(Code::Elided, ELIDED_MESSAGE.to_owned())).with_key(path));
        }

        let message = format!("{} has no key {}", schema.what, quoted(key));
        let candidates = schema.known.iter().copied().chain(schema.refused.iter().map(|refused| refused.key));
        let help = did_you_mean(key, candidates).unwrap_or_else(|| schema.keys_text());
        Err(at_key(Code::UnknownKey, message).with_help(help).with_key(path))
    }

    /// Returns the value of `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<Field<'a>> {
        self.map.get(key)
    }

    /// Returns the value of `key`, or an error with the advice `help`.
    pub fn required(&self, key: &str, help: &str) -> Result<Field<'a>, ConfigError> {
        self.get(key).ok_or_else(|| self.missing(key, help))
    }

    /// Reads the value of `key` with `read`, if there is one.
    pub fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Field<'a>) -> Result<T, ConfigError>,
    ) -> Result<Option<T>, ConfigError> {
        self.get(key).map(|field| read(&field)).transpose()
    }

    /// Reads the value of `key` with `read`, or returns `usual` if there is none.
    pub fn or<T>(
        &self,
        key: &str,
        usual: T,
        read: impl FnOnce(&Field<'a>) -> Result<T, ConfigError>,
    ) -> Result<T, ConfigError> {
        self.get(key).map_or(Ok(usual), |field| read(&field))
    }

    /// Returns the error for a required key that is missing.
    pub fn missing(&self, key: &str, help: &str) -> ConfigError {
        if let Some((_, node)) = self.entries.iter().find(|(_, node)| stands_for_more(node)) {
            return elided(self.map.source.error_at(&node.span, Code::Elided, ELIDED_MESSAGE))
                .with_key(self.map.path_of(key));
        }

        let swallowed = self.entries.iter().map(|(_, node)| node).find(|node| {
            let written = self.map.source.slice(&node.span);
            written.contains('\n') && written.contains(key)
        });
        if let Some(node) = swallowed {
            let message = format!("`{key}` of {} is read as part of this value", self.what);
            let error = self.map.source.error_at(&node.span, Code::MissingKey, message);
            return error.with_help(INDENTATION_HELP).with_key(self.map.path_of(key));
        }

        let message = format!("{} needs `{key}`", self.what);
        let error = self.map.source.error_at(&self.span, Code::MissingKey, message).with_key(self.map.path_of(key));
        if self.map.source.text().lines().any(|line| line.trim() == "...") {
            return error.with_help(format!("{help}; the `...` in this text stands for keys that were left out"));
        }
        error.with_help(help)
    }
}

const INDENTATION_HELP: &str = "YAML reads an indented line without a colon and a space as more of the value above: \
                                start every key of a map in the same column";

impl<'a> Field<'a> {
    /// Returns the root of a text, with an empty path. Refuses an empty text; `help` names the expected content.
    pub fn root(source: &'a Source, node: &'a Node, help: &str) -> Result<Self, ConfigError> {
        match &node.value {
            Value::Null => Err(source.error(Code::Empty, "there is nothing in this text").with_help(help)),
            Value::List(items) if items.is_empty() => {
                Err(source.error_at(&node.span, Code::Empty, "the list is empty").with_help(help))
            }
            _ => Ok(Self { source, path: String::new(), node }),
        }
    }

    /// Returns an error about this value.
    pub fn error(&self, code: Code, message: impl Into<String>) -> ConfigError {
        self.source.error_at(&self.node.span, code, message).with_key(self.path.clone())
    }

    /// Returns the items of a list.
    pub fn list(&self) -> Result<Vec<Field<'a>>, ConfigError> {
        let Value::List(items) = &self.node.value else {
            return Err(self.wrong_type("a list"));
        };
        let field = |(index, node)| Field { source: self.source, path: format!("{}[{index}]", self.path), node };
        Ok(items.iter().enumerate().map(field).collect())
    }

    /// Returns a single value that is not empty, as text.
    pub fn text(&self) -> Result<&'a str, ConfigError> {
        let text = self.node.scalar().ok_or_else(|| self.wrong_type("a single value"))?;
        if text.is_empty() {
            return Err(self
                .error(Code::InvalidValue, "the value is empty")
                .with_help("write a value, or remove the key"));
        }
        if is_elided(text) {
            return Err(elided(self.error(Code::Elided, ELIDED_MESSAGE)));
        }
        if text.starts_with('$') || text.contains("${") || text.contains("{{") {
            let message = format!("{} is a placeholder of a template", quoted(text));
            let help = "replace it by its value; this file was meant to be filled in by a script";
            return Err(self.error(Code::Template, message).with_help(help));
        }
        let written = self.source.slice(&self.node.span);
        if text.contains('\n') || (written.contains('\n') && !written.starts_with(['"', '\''])) {
            return Err(self.error(Code::InvalidValue, "the value spans several lines").with_help(INDENTATION_HELP));
        }
        Ok(text)
    }

    /// Reads a value with `parse`, inside `range`; `unit` names the counted thing, such as "bytes".
    pub fn figure(
        &self,
        parse: fn(&str) -> Result<u64, UnitError>,
        range: RangeInclusive<u64>,
        unit: &str,
    ) -> Result<u64, ConfigError> {
        let text = self.text()?;
        let value = parse(text).map_err(|error| self.unit_error(error))?;
        if range.contains(&value) {
            return Ok(value);
        }
        let bound = match () {
            () if value == 0 => "0 is not possible here".to_owned(),
            () if value < *range.start() => format!("{} is too small", quoted(text)),
            () => format!("{} is too large", quoted(text)),
        };
        let (low, high) = (format_count(*range.start()), format_count(*range.end()));
        Err(self.error(Code::OutOfRange, bound).with_help(format!("write {low} to {high} {unit}")))
    }

    /// Reads a latency in nanoseconds, at most a minute.
    pub fn latency_ns(&self) -> Result<u64, ConfigError> {
        self.figure(parse_count, 0..=60_000_000_000, "ns")
    }

    /// Reads a plain whole number inside `range`.
    pub fn count(&self, range: RangeInclusive<u32>) -> Result<u32, ConfigError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        let value = self.figure(whole_number, range, "(a plain whole number)")?;
        Ok(u32::try_from(value).unwrap_or(u32::MAX))
    }

    /// Reads a number for which `holds` returns true; `expected` describes these, as "above 0".
    pub fn number(&self, holds: impl Fn(f64) -> bool, expected: &str) -> Result<f64, ConfigError> {
        let text = self.text()?;
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
        match text.parse::<f64>() {
            Ok(value) if plain && value.is_finite() && holds(value) => Ok(value),
            Ok(value) if plain && value.is_finite() => {
                let error = self.error(Code::OutOfRange, format!("{} is out of range", quoted(text)));
                Err(error.with_help(format!("write a number {expected}")))
            }
            _ => {
                let error = self.error(Code::InvalidValue, format!("{} is not a number", quoted(text)));
                Err(error.with_help(format!("write a number {expected}, such as 0.5 or 1e6")))
            }
        }
    }

    /// Reads a length of time with its unit, from `least_ns` nanoseconds to 30 days.
    pub fn time_ns(&self, least_ns: u64) -> Result<u64, ConfigError> {
        self.figure(parse_duration_ns, least_ns..=MAX_TIME_NS, "ns").map_err(|error| {
            if error.code() != Code::OutOfRange {
                return error;
            }
            error.with_help(format!("write {} to 720 h (30 days)", format_duration_ns(least_ns)))
        })
    }

    /// Returns the text of [`Field::text`] as an owned string.
    pub fn string(&self) -> Result<String, ConfigError> {
        self.text().map(str::to_owned)
    }

    /// Returns the error for a name that refers to nothing; `names` are the existing ones.
    pub fn unknown_name(&self, what: &str, names: &[&str]) -> ConfigError {
        let name = self.text().unwrap_or("");
        let help = did_you_mean(name, names.iter().copied()).unwrap_or_else(|| match names {
            [] => format!("there is no {what} at all: add one"),
            names => format!("name one of {}", list_of(names)),
        });
        self.error(Code::UnknownReference, format!("there is no {what} called {}", quoted(name))).with_help(help)
    }

    /// Returns the text that contains the value.
    pub fn source(&self) -> &'a Source {
        self.source
    }

    /// Returns whether this is a map with the key `key`.
    pub fn has_key(&self, key: &str) -> bool {
        self.node.get(key).is_some()
    }

    fn get(&self, key: &str) -> Option<Self> {
        Some(Self { source: self.source, path: self.path_of(key), node: self.node.get(key)? })
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Returns the value of `key` of this map for an error about it, or the map itself if there is none.
    #[must_use]
    pub fn at(&self, key: &str) -> Self {
        self.get(key).unwrap_or_else(|| self.clone())
    }

    /// Returns whether this is a single value.
    pub fn is_scalar(&self) -> bool {
        self.node.scalar().is_some()
    }

    /// Returns whether this is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// Reads a truth value, in the words of YAML 1.1.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Ok(true),
            "false" | "no" | "off" | "n" => Ok(false),
            other => {
                let error = self.error(Code::InvalidValue, format!("{} is not a truth value", quoted(other)));
                Err(error.with_help("write true or false"))
            }
        }
    }

    /// Returns the value that `all` gives for the word; `what` names the kind of word, with its article.
    pub fn one_of<T: Copy>(&self, what: &str, all: &[(&str, T)]) -> Result<T, ConfigError> {
        let text = self.text()?;
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let found = all.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| self.not_one_of(what, &names))
    }

    /// Returns the error for a word that is none of `words`.
    pub fn not_one_of(&self, what: &str, words: &[&str]) -> ConfigError {
        let word = self.text().unwrap_or("");
        let help = did_you_mean(word, words.iter().copied());
        let help = help.unwrap_or_else(|| format!("write one of {}", list_of(words)));
        self.error(Code::InvalidValue, format!("{} is not {what}", quoted(word))).with_help(help)
    }

    /// Returns an error about a part of this value that is not a figure.
    pub fn unit_error(&self, error: UnitError) -> ConfigError {
        self.error(Code::InvalidValue, error.message).with_help(error.help)
    }

    /// Returns the error for a node of the wrong kind.
    pub fn wrong_type(&self, expected: &str) -> ConfigError {
        let found = &self.node.value;
        if stands_for_more(self.node) {
            return elided(self.error(Code::Elided, ELIDED_MESSAGE));
        }
        let message = format!("expected {expected}, found {}", found.kind());
        let help = match (expected, found) {
            (_, Value::Null) => "write the value, or indent what belongs to this key".to_owned(),
            ("a list", _) => "start each item with `- `, or write [item, item]".to_owned(),
            ("a map", _) => "write `key: value` lines, all starting in the same column".to_owned(),
            _ => "write the value on the line of its key, without `- ` before it".to_owned(),
        };
        self.error(Code::WrongType, message).with_help(help)
    }
}

fn whole_number(text: &str) -> Result<u64, UnitError> {
    let wrong = |message: String| UnitError { message, help: "write a plain whole number, such as 16".to_owned() };
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong(format!("{} is not a plain whole number", quoted(text))));
    }
    text.parse().map_err(|_| wrong("the figure is too large for 64 bits".to_owned()))
}

fn is_elided(text: &str) -> bool {
    text == "..." || text == "\u{2026}" || text.ends_with(" ...") || text.ends_with("\n...")
}

/// Returns whether this value stands for omitted text.
fn stands_for_more(node: &Node) -> bool {
    node.scalar().is_some_and(is_elided)
}

/// Returns the words in backquotes, separated by commas.
pub fn list_of(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Returns advice to write the candidate that `word` was probably meant to be.
#[must_use]
pub fn did_you_mean<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    closest(word, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}

/// Returns the candidate that `word` was probably meant to be: at most a third of its letters differ (`-` equals `_`).
pub fn closest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A longer word is not a misspelt key, and the distance takes quadratic time.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase().replace('-', "_");
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.replace('-', "_")), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
