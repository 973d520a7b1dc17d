//! Errors of a net: the place, what was found, and what is allowed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;

/// A place in the text of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPlace {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The prefix of a message, `path:line:column: `, as far as these are known.
pub(super) struct Origin<'a> {
    pub(super) path: Option<&'a Path>,
    pub(super) at: Option<TextPlace>,
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.path, self.at) {
            (Some(path), Some(at)) => write!(f, "{}:{at}: ", shown::path(path)),
            (Some(path), None) => write!(f, "{}: ", shown::path(path)),
            (None, Some(at)) => write!(f, "{at}: "),
            (None, None) => Ok(()),
        }
    }
}

/// The maximum number of characters of a net's own text that a message shows. Escapes count as shown.
const SHOWN_MAX: usize = 60;

/// The maximum number of layers, or names, that a message lists.
pub(super) const LISTED_MAX: usize = 20;

/// A net's own text as a message shows it: truncated if long, on one line.
pub(super) fn clip(text: &str) -> String {
    clip_escaped(text, |_| false)
}

/// As [`clip`], for the raw content of a quoted string: its backslashes and quotes are already escapes.
pub(super) fn clip_written(raw: &[u8]) -> String {
    clip_escaped(&String::from_utf8_lossy(raw), |character| matches!(character, '\\' | '\'' | '"'))
}

fn clip_escaped(text: &str, is_plain: impl Fn(char) -> bool) -> String {
    let (mut shown, mut length) = (String::new(), 0);
    for character in text.chars() {
        let escaped = character.escape_debug();
        length += if is_plain(character) { 1 } else { escaped.len() };
        if length > SHOWN_MAX {
            shown.push_str("...");
            break;
        }
        if is_plain(character) { shown.push(character) } else { shown.extend(escaped) }
    }
    shown
}

/// The first of these names, and the number of the rest.
pub(super) fn clip_list(names: &[String]) -> String {
    let mut listed: Vec<_> = names.iter().take(LISTED_MAX).map(|name| clip(name)).collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    listed.join(", ")
}

/// An error for a net that cannot be read or fed.
#[derive(Clone, Debug, PartialEq)]
pub struct NetError {
    /// The file, if the net was read from one.
    pub path: Option<PathBuf>,
    /// The place in the text, if known.
    pub at: Option<TextPlace>,
    /// The cause. The message contains it, so it is not also the error's source.
    pub cause: Box<NetCause>,
}

impl NetError {
    /// An error without a place.
    pub(super) fn new(cause: NetCause) -> Self {
        Self { path: None, at: None, cause: Box::new(cause) }
    }

    /// An error at a place in the text.
    pub(super) fn at(place: TextPlace, cause: NetCause) -> Self {
        Self { at: Some(place), ..Self::new(cause) }
    }

    /// What is wrong at a place in the text.
    pub(super) fn text(place: TextPlace, fault: impl Into<String>) -> Self {
        Self::at(place, NetCause::Text { fault: fault.into() })
    }

    /// The same error, in this file.
    pub(super) fn within(self, path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), ..self }
    }
}

impl fmt::Display for NetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Origin { path: self.path.as_deref(), at: self.at }, self.cause)
    }
}

impl std::error::Error for NetError {}

/// The cause of a [`NetError`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetCause {
    /// The file cannot be read.
    #[error("cannot be read: {message}")]
    Io {
        /// The operating system's message.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
    },
    /// Something else is at the path, and it is known what.
    #[error("not a net: it is {thing}")]
    Instead {
        /// What is there, and what to do about it.
        thing: String,
    },
    /// The net is larger than Caffe accepts.
    #[error("a net may have at most {allowed} bytes, found more")]
    TooLarge {
        /// The maximum number of bytes.
        allowed: u64,
    },
    /// The bytes are not a serialised `NetParameter`.
    #[error("not a serialised NetParameter: {message}")]
    Binary {
        /// What is wrong with the bytes.
        message: String,
    },
    /// The file has bytes that text cannot have, and is not a serialised net either.
    #[error("neither a serialised net ({binary}) nor the text of one ({text})")]
    Neither {
        /// What is wrong with it as wire bytes.
        binary: Box<NetError>,
        /// What is wrong with it as text.
        text: Box<NetError>,
    },

    /// The text is not that of a net: not in protobuf's text format, or with a field or a value that Caffe's
    /// schema does not have.
    #[error("{fault}")]
    Text {
        /// What was found, and what is allowed.
        fault: String,
    },
    /// Too many layers.
    #[error("the net has too many layers: allowed are {allowed}")]
    TooManyLayers {
        /// The maximum number of layers.
        allowed: usize,
    },
    /// A solver instead of a net.
    #[error("this is a solver, not a net: it has the field \"{field}\"; give the net that it names")]
    Solver {
        /// The field that only a solver has.
        field: &'static str,
    },

    /// The net's layers are written in more than one of Caffe's formats.
    #[error("{fault}")]
    MixedFormats {
        /// The first layers of both, and what to do.
        fault: String,
    },
    /// An invalid layer.
    #[error("layer {layer}: {fault}")]
    Layer {
        /// The layer's name, quoted, or its number if it has no name.
        layer: String,
        /// What is wrong with it: what was found, and what is allowed.
        fault: String,
    },
    /// No layer of the net is fed in the requested state.
    #[error(
        "in the state {state} the net has no data layer that Percolator feeds (Data or ImageData): {found}"
    )]
    NoDataLayer {
        /// The phase, the level and the stages.
        state: String,
        /// The layers that may have been meant, each with the reason why it is left out.
        found: String,
    },
}
