//! Findings about a configuration file: the fault, its place, and the remedy.
//!
//! **Why.** "bad value" without a line makes people bisect their file. Every finding of the configuration readers names
//! the source, line, column and key, what was expected, and the repair.
//!
//! **How.** A [`Diagnostic`] keeps its own excerpt of the source (the line and two neighbours on each side), so that
//! `Display` can print it after the text is gone. [`ConfigError`] is a diagnostic that ends the reading; warnings are
//! plain diagnostics.
//!
//! **Limits.** One error per reading, the first. Excerpts with lines above 300 bytes are left out; the position stays.
//!
//! **Example.**
//!
//! ```text
//! error[unknown-key]: a disk has no key "read_iop"
//!   --> io.yaml:3:5
//!    |
//! 1 | disks:
//! 2 |   - mountpoint: /mnt
//! 3 |     read_iop: 1000
//!    |     ^^^^^^^^
//!    |
//!    = help: did you mean `read_iops`?
//! ```

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

/// Severity of a [`Diagnostic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file was refused.
    Error,
    /// The file was read, but a part of it does not have the effect that it seems to have.
    Warning,
}

/// The kind of a [`Diagnostic`], stable across releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The file cannot be opened or is not UTF-8.
    Unreadable,
    /// The text is larger, deeper or has more parts than any sensible file.
    TooLarge,
    /// The text is not YAML, or uses a part of YAML that is not read (several documents, merge keys).
    Syntax,
    /// The file is empty.
    Empty,
    /// A key that no version of the format knows.
    UnknownKey,
    /// A key or value of an older version of the format.
    Obsolete,
    /// A key or value of the format that is not supported yet.
    NotSupported,
    /// A required key is missing.
    MissingKey,
    /// The same key twice in one map.
    DuplicateKey,
    /// The same name, mount point or id twice.
    DuplicateName,
    /// A list where a value was expected, and so on.
    WrongType,
    /// A value that cannot be understood.
    InvalidValue,
    /// A value that is understood, but outside its range.
    OutOfRange,
    /// A placeholder that a template should have replaced.
    Template,
    /// Three dots in place of omitted text.
    Elided,
    /// A name that refers to nothing.
    UnknownReference,
    /// Groups that are their own ancestors, or nested too deep.
    Cycle,
    /// A key that has no effect beside another one.
    Ignored,
    /// A value that was understood, but is not reliable.
    Doubtful,
}

impl Code {
    /// Returns the code as it is printed, such as `missing-key`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::TooLarge => "too-large",
            Self::Syntax => "syntax",
            Self::Empty => "empty",
            Self::UnknownKey => "unknown-key",
            Self::Obsolete => "obsolete",
            Self::NotSupported => "not-supported",
            Self::MissingKey => "missing-key",
            Self::DuplicateKey => "duplicate-key",
            Self::DuplicateName => "duplicate-name",
            Self::WrongType => "wrong-type",
            Self::InvalidValue => "invalid-value",
            Self::OutOfRange => "out-of-range",
            Self::Template => "template",
            Self::Elided => "elided",
            Self::UnknownReference => "unknown-reference",
            Self::Cycle => "cycle",
            Self::Ignored => "ignored",
            Self::Doubtful => "doubtful",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One finding about a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    severity: Severity,
    code: Code,
    source_name: Arc<str>,
    /// Line and column, both counted from 1, the column in characters.
    position: Option<(usize, usize)>,
    key: Option<String>,
    message: String,
    help: Option<String>,
    excerpt: Option<Excerpt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    text: String,
    first_line: usize,
    span_bytes: Range<usize>,
}

impl Diagnostic {
    /// Returns whether the file was refused.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the kind of finding.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the name that the caller gave the text, usually a path.
    #[must_use]
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Returns the line, counted from 1; `None` if the finding is about the whole file.
    #[must_use]
    pub fn line(&self) -> Option<usize> {
        self.position.map(|(line, _)| line)
    }

    /// Returns the column in characters, counted from 1; `None` if the finding is about the whole file.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        self.position.map(|(_, column)| column)
    }

    /// Returns the path of the key, such as `disks[0].read_iops`, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the fault, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the remedy, in one line.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    fn render(&self) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(self.message.as_str()).id(self.code.as_str());

        let mut group = match &self.excerpt {
            Some(excerpt) => title.element(
                Snippet::source(excerpt.text.as_str())
                    .line_start(excerpt.first_line)
                    .path(&*self.source_name)
                    .fold(false)
                    .annotation(AnnotationKind::Primary.span(excerpt.span_bytes.clone())),
            ),
            None => {
                let origin = Origin::path(&*self.source_name);
                title.element(match self.position {
                    Some((line, column)) => origin.line(line).char_column(column),
                    None => origin,
                })
            }
        };

        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render())
    }
}

/// The refusal of a configuration file. Dereferences to the [`Diagnostic`] with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Box<Diagnostic>);

impl Deref for ConfigError {
    type Target = Diagnostic;

    fn deref(&self) -> &Diagnostic {
        &self.0
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// Replaces the advice.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.0.help = Some(help.into());
        self
    }

    /// Names the key that the finding is about.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.0.key = Some(key.into());
        self
    }

    /// Turns the refusal into a warning.
    #[must_use]
    pub fn into_warning(mut self) -> Diagnostic {
        self.0.severity = Severity::Warning;
        *self.0
    }
}

/// A range of bytes of a source text.
pub type Span = Range<usize>;

/// A named text, shared by all findings about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
    /// Start of each line, so that a finding need not scan the text.
    line_starts: Arc<[usize]>,
}

/// Lines shown before and after the line of a finding.
const CONTEXT_LINES: usize = 2;
/// Longest line of a shown excerpt; longer ones would fill the screen.
const MAX_EXCERPT_LINE_BYTES: usize = 300;

impl Source {
    /// Returns a text with the name that messages give it.
    pub fn new(name: &str, text: &str) -> Self {
        // A byte order mark is not part of the text, and would move every column of line 1.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(index, _)| index + 1)).collect();
        Self { name: name.into(), text: text.into(), line_starts }
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name that messages give the text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text of `span`, or an empty text if there is none.
    pub fn slice(&self, span: &Span) -> &str {
        self.text.get(span.clone()).unwrap_or("")
    }

    /// Returns line number `line`, counted from 1, with its line feed, or an empty text if there is no such line.
    pub fn line(&self, line: usize) -> &str {
        self.slice(&(self.line_start(line)..self.line_start(line.saturating_add(1))))
    }

    /// Returns the line that contains the byte at `offset`.
    pub fn line_of(&self, offset: usize) -> &str {
        self.line(self.line_number(offset))
    }

    fn line_number(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|line_start| *line_start <= offset)
    }

    /// Returns the start of line number `line`, counted from 1, or the end of the text if there is no such line.
    pub fn line_start(&self, line: usize) -> usize {
        self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len())
    }

    /// Returns a finding about the file as a whole.
    pub fn error(&self, code: Code, message: impl Into<String>) -> ConfigError {
        ConfigError(Box::new(Diagnostic {
            severity: Severity::Error,
            code,
            source_name: Arc::clone(&self.name),
            position: None,
            key: None,
            message: message.into(),
            help: None,
            excerpt: None,
        }))
    }

    /// Returns a finding about `span`.
    pub fn error_at(&self, span: &Span, code: Code, message: impl Into<String>) -> ConfigError {
        let mut error = self.error(code, message);
        let start = self.char_boundary(span.start);
        let end = self.char_boundary(span.end).max(start);
        let line = self.line_number(start);
        let column = self.slice(&(self.line_start(line)..start)).chars().count() + 1;

        error.0.position = Some((line, column));
        error.0.excerpt = self.excerpt(line, start, end);
        error
    }

    /// Returns the last character boundary at or before `offset`.
    fn char_boundary(&self, offset: usize) -> usize {
        let mut boundary = offset.min(self.text.len());
        while !self.text.is_char_boundary(boundary) {
            boundary -= 1;
        }
        boundary
    }

    /// Returns the lines around line number `line`, with the part of `start..end` on that line.
    fn excerpt(&self, line: usize, start: usize, end: usize) -> Option<Excerpt> {
        let first_line = line.saturating_sub(CONTEXT_LINES).max(1);
        let lines = first_line..=line + CONTEXT_LINES;
        if lines.clone().any(|number| self.line(number).len() > MAX_EXCERPT_LINE_BYTES) {
            return None;
        }
        let text: String = lines.map(|number| self.line(number)).collect();
        let text_start = self.line_start(first_line);
        let content_end = self.line_start(line) + self.line(line).trim_end().len();
        let end = end.min(content_end).max(start);
        (!text.is_empty()).then(|| Excerpt { text, first_line, span_bytes: start - text_start..end - text_start })
    }
}
