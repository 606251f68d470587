//! Turns text into a tree of nodes that know their place; no other module knows the YAML library.
//!
//! **Why.** A YAML library that fills structures decides what a number is and which errors exist. Here it only delivers
//! structure; the reader of a key decides what a scalar means, from the text as written. That keeps the library's
//! leniency out (`0x10` and `1_000` are numbers to it, and not to Seastar), and the library, which is young,
//! replaceable.
//!
//! **How.** serde-saphyr drives a visitor that keeps each node with its byte span. Scalars that the library takes for
//! numbers or booleans are replaced by their source text. The library's budget bounds depth and node count while it
//! reads, so that neither nesting nor alias expansion can exhaust the stack or the memory.
//!
//! **Limits.** `MAX_SOURCE_BYTES`, `MAX_DEPTH`, `MAX_NODES`. One document per text. Tags have no effect.
//!
//! **Example.** `a: 0x10` becomes a map of one entry: the scalar `a` at bytes 0..1 and the scalar `0x10` at 3..7.

use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use plimsoll_figures::units::quoted;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error as YamlError, Spanned};

use super::error::{Code, ConfigError, Source, Span};

/// Longest text of a configuration file, in bytes.
pub const MAX_SOURCE_BYTES: usize = 1 << 20;
/// Most levels of nesting. The formats need four.
pub const MAX_DEPTH: usize = 16;
/// Most nodes, with aliases expanded.
pub const MAX_NODES: usize = 50_000;

/// A part of the text.
#[derive(Clone, Debug)]
pub struct Node {
    /// Place of the node. For a map or list this may be only its beginning.
    pub span: Span,
    /// Contents of the node.
    pub value: Value,
}

impl Node {
    /// Returns the single value as written, or `None` for anything else.
    #[must_use]
    pub fn scalar(&self) -> Option<&str> {
        if let Value::Scalar(text) = &self.value { Some(text) } else { None }
    }

    /// Returns the value of `key`, if this is a map with that key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|(name, _)| name.scalar() == Some(key)).map(|(_, node)| node)
    }
}

/// Contents of a node.
#[derive(Clone, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// A single value, as written.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A map: keys and values, in their order.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// Returns the kind of value, for "expected X, found Y".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Scalar(_) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Reads a whole file of at most [`MAX_SOURCE_BYTES`] as text.
pub fn read_file(path: &Path) -> Result<Source, ConfigError> {
    read_file_up_to(path, MAX_SOURCE_BYTES)
}

/// Reads a whole file of at most `most_bytes` as text.
pub fn read_file_up_to(path: &Path, most_bytes: usize) -> Result<Source, ConfigError> {
    let name = path.display().to_string();
    let whole_file = Source::new(&name, "");
    let unreadable = |error: std::io::Error| {
        whole_file
            .error(Code::Unreadable, format!("cannot read the file: {error}"))
            .with_help("check the path and its permissions")
    };

    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(most_bytes as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > most_bytes {
        return Err(too_large(&whole_file, most_bytes));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(Source::new(&name, text)),
        Err(error) => {
            let (valid, _) = bytes.split_at(error.valid_up_to());
            let source = Source::new(&name, &String::from_utf8_lossy(valid));
            let end = source.text().len();
            let error = source.error_at(&(end..end), Code::Unreadable, "the file is not UTF-8 from here on");
            Err(error.with_help("save the file as UTF-8; a binary file is not a configuration file"))
        }
    }
}

/// Parses the one document of a source.
pub fn parse(source: &Source) -> Result<Node, ConfigError> {
    if source.text().len() > MAX_SOURCE_BYTES {
        return Err(too_large(source, MAX_SOURCE_BYTES));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
        },
        merge_keys: MergeKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        ignore_binary_tag_for_string: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Spanned<RawValue>>(source.text(), options) {
        Ok(root) => Ok(node_from(source, root)),
        Err(error) => Err(explain(source, &error)),
    }
}

fn too_large(source: &Source, most_bytes: usize) -> ConfigError {
    source
        .error(Code::TooLarge, format!("the text is larger than {most_bytes} bytes"))
        .with_help("a configuration file is small; is this the right file?")
}

/// The library's output, before scalars are replaced by their source text.
enum RawValue {
    Null,
    /// A number or boolean; the source text replaces it.
    Inferred(String),
    Text(String),
    List(Vec<Spanned<RawValue>>),
    Map(Vec<(Spanned<RawValue>, Spanned<RawValue>)>),
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, a list or a single value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Inferred(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        Ok(RawValue::Inferred(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Inferred(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Inferred(value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(RawValue::Map(map))
    }
}

/// Converts a raw node. [`MAX_DEPTH`], which the library has enforced, bounds the recursion.
fn node_from(source: &Source, raw: Spanned<RawValue>) -> Node {
    let span = span_of(source, &raw.defined);
    let value = match raw.value {
        RawValue::Null => Value::Null,
        RawValue::Text(text) => Value::Scalar(text),
        RawValue::Inferred(value) => {
            let written = source.slice(&span).trim().trim_matches(['"', '\'']);
            Value::Scalar(if written.is_empty() { value } else { written.to_owned() })
        }
        RawValue::List(items) => Value::List(items.into_iter().map(|item| node_from(source, item)).collect()),
        RawValue::Map(entries) => Value::Map(
            entries.into_iter().map(|(key, value)| (node_from(source, key), node_from(source, value))).collect(),
        ),
    };
    Node { span, value }
}

/// Returns the byte span of a location. The scanner's errors carry no byte offset; line and column give theirs.
fn span_of(source: &Source, location: &serde_saphyr::Location) -> Span {
    let span = location.span();
    if let (Some(start), Some(len)) = (span.byte_offset(), span.byte_len()) {
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        return start..start.saturating_add(usize::try_from(len).unwrap_or(0));
    }
    let line_number = usize::try_from(location.line()).unwrap_or(usize::MAX);
    let column_index = usize::try_from(location.column().saturating_sub(1)).unwrap_or(usize::MAX);
    let line = source.line(line_number);
    let offset = line.char_indices().nth(column_index).map_or(line.trim_end().len(), |(offset, _)| offset);
    let start = source.line_start(line_number) + offset;
    start..start.saturating_add(1)
}

/// Returns our message for an error of the library.
fn explain(source: &Source, error: &YamlError) -> ConfigError {
    let full_text = error.to_string();
    let text = full_text.split(" at line ").next().unwrap_or("not YAML");
    let too_complex = text.contains("limit exceeded") || text.contains("recursion");
    let (code, message, help) = match error {
        YamlError::DuplicateMappingKey { key, .. } => (
            Code::DuplicateKey,
            format!("the key {} appears twice in the same map", quoted(key.as_deref().unwrap_or("?"))),
            "remove one of the two",
        ),
        YamlError::MultipleDocuments { .. } => (
            Code::Syntax,
            "there is more than one YAML document in this text".to_owned(),
            "keep one document: remove everything from the second `---`, or from `...`, on",
        ),
        YamlError::MergeKeyNotAllowed { .. } => (
            Code::Syntax,
            "merge keys (`<<`) are not supported".to_owned(),
            "write the keys out; other readers of these files do not know merge keys either",
        ),
        YamlError::Budget { .. } => too_complex_words(),
        _ if too_complex => too_complex_words(),
        _ => (
            Code::Syntax,
            format!("this is not YAML: {text}"),
            "check this line and the one above: keys of one map start in the same column, with spaces and not tabs, \
             and have a space after the colon",
        ),
    };

    let Some(location) = error.location().filter(|location| location.line() > 0) else {
        return source.error(code, message).with_help(help);
    };
    let span = span_of(source, &location);
    if code == Code::Syntax && source.line_of(span.start).trim() == "..." {
        return elided(source.error_at(&span, Code::Elided, ELIDED_MESSAGE));
    }
    source.error_at(&span, code, message).with_help(help)
}

/// The message about three dots in place of a key or value.
pub const ELIDED_MESSAGE: &str = "something was left out here: `...` is not a value";

/// Adds the advice for omitted text.
pub fn elided(error: ConfigError) -> ConfigError {
    error.with_help("write out what was left out; a sample in a manual is often abridged")
}

fn too_complex_words() -> (Code, String, &'static str) {
    let message = format!("the text has more than {MAX_DEPTH} levels or {MAX_NODES} nodes");
    (Code::TooLarge, message, "a configuration file is small and flat; is this the right file?")
}

/// Returns `text` as a YAML scalar in double quotes, which every reader reads back unchanged.
#[must_use]
pub fn quoted_scalar(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
