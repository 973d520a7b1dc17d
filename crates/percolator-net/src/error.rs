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

    /// A character that starts no token.
    #[error("found {found}, which starts no token of protobuf's text format")]
    Character {
        /// The character, quoted, or its byte.
        found: String,
    },
    /// A string is not closed.
    #[error("the string is not closed on its line; did you miss a quote?")]
    StringNotClosed,
    /// An invalid escape sequence.
    #[error(
        "invalid escape sequence in a string, at {found}: allowed are \\a \\b \\f \\n \\r \\t \\v \\\\ \\? \
         \\' \\\", octal bytes to \\377, \\xFF, \\uFFFF and \\UFFFFFFFF"
    )]
    Escape {
        /// The text from its backslash on.
        found: String,
    },
    /// A path that is not UTF-8. Other names are read whatever their bytes.
    #[error("the string of {field} is not UTF-8; rename the file, or give its path in UTF-8")]
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// A malformed number.
    #[error("\"{found}\" is not a number of protobuf's text format")]
    Number {
        /// The text up to the next whitespace or symbol.
        found: String,
    },
    /// An unexpected token.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What is expected here.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Messages are nested too deeply.
    #[error("messages are nested too deeply: allowed are {allowed} levels")]
    TooDeep {
        /// The maximum number of levels.
        allowed: usize,
    },
    /// Too many layers.
    #[error("the net has too many layers: allowed are {allowed}")]
    TooManyLayers {
        /// The maximum number of layers.
        allowed: usize,
    },
    /// A field that the message does not have.
    #[error("message type \"caffe.{message}\" has no field named \"{found}\"; {hint}")]
    NoSuchField {
        /// The message.
        message: &'static str,
        /// The field as written.
        found: String,
        /// What may have been meant.
        hint: String,
    },
    /// A field that may be set only once.
    #[error("non-repeated field \"{field}\" is specified multiple times")]
    Duplicate {
        /// The field.
        field: &'static str,
    },
    /// A number that does not fit its field.
    #[error("{field} is {found}: allowed are whole numbers from {min} to {max}")]
    Range {
        /// The field.
        field: &'static str,
        /// The number as written.
        found: String,
        /// The smallest allowed value.
        min: i64,
        /// The largest allowed value.
        max: u64,
    },
    /// A value that the enum does not have.
    #[error("unknown enumeration value of \"{found}\" for field \"{field}\": allowed are {allowed}")]
    EnumValue {
        /// The field.
        field: &'static str,
        /// The value as written.
        found: String,
        /// The allowed names and numbers.
        allowed: String,
    },
    /// A solver instead of a net.
    #[error("this is a solver, not a net: it has the field \"{field}\"; give the net that it names")]
    Solver {
        /// The field that only a solver has.
        field: &'static str,
    },

    /// A net with both `layer` and `layers`.
    #[error(
        "refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and \
         'layers' fields (the first of either: {layer} and {layers}); use one of them for the whole net"
    )]
    BothLayerFields {
        /// The first `layer`, and its place if known.
        layer: String,
        /// The first `layers`, and its place if known.
        layers: String,
    },
    /// A net of `layers` of which only some hold a V0 `layer`.
    #[error(
        "the net has 'layers' both with a V0 'layer' in them ({old}) and without ({new}), of which Caffe \
         would keep only the names of the blobs; write all of them in one way"
    )]
    MixedVersions {
        /// The first V0 layer, and its place if known.
        old: String,
        /// The first V1 layer, and its place if known.
        new: String,
    },
    /// An invalid layer.
    #[error("layer {layer}: {error}")]
    Layer {
        /// The layer's name, quoted, or its number if it has no name.
        layer: String,
        /// What is wrong with it.
        error: LayerError,
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

/// What is wrong with one layer.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayerError {
    /// Both include and exclude rules.
    #[error("specify either include rules or exclude rules; not both")]
    BothRules,
    /// No batch size.
    #[error("positive batch size required: {field} is not set, or 0")]
    NoBatchSize {
        /// The field that sets it.
        field: &'static str,
    },
    /// A batch with more records than a Caffe blob can hold.
    #[error("{field} is {found}: allowed are 1 to {allowed}")]
    BatchSize {
        /// The field that sets it.
        field: &'static str,
        /// The value found.
        found: u32,
        /// The largest allowed batch size.
        allowed: u32,
    },
    /// A prefetch of 0: nothing would ever be read.
    #[error("data_param.prefetch is 0: allowed are 1 batch or more, and 4 are the default")]
    NoPrefetch,
    /// No path to read from.
    #[error("{field} is not set, or empty")]
    NoPath {
        /// The field that names a file.
        field: &'static str,
    },
    /// A backend that Caffe does not have.
    #[error("unknown database backend {found}: allowed are LEVELDB (0) and LMDB (1)")]
    Backend {
        /// Its number.
        found: i32,
    },
    /// Both a mean file and mean values.
    #[error(
        "cannot specify mean_file and mean_value at the same time: found \"{mean_file}\" and {values} \
         mean_value"
    )]
    TwoMeans {
        /// The file.
        mean_file: String,
        /// The number of mean values.
        values: usize,
    },
    /// Both `force_color` and `force_gray`.
    #[error("cannot set both force_color and force_gray")]
    ColorAndGray,
    /// Only one of `new_height` and `new_width`.
    #[error(
        "current implementation requires new_height and new_width to be set at the same time: found \
         {new_height} and {new_width}"
    )]
    HalfSize {
        /// As set in the layer, or 0.
        new_height: u32,
        /// As set in the layer, or 0.
        new_width: u32,
    },
    /// An image with more elements than a Caffe blob can hold.
    #[error("images of {new_height}x{new_width} are too large: allowed are {allowed} elements")]
    Size {
        /// As set in the layer.
        new_height: u32,
        /// As set in the layer.
        new_width: u32,
        /// The maximum number of elements.
        allowed: u32,
    },
    /// A negative size in a V0 layer, where sizes are signed.
    #[error("{field} is {found}: allowed are 0 or more")]
    Negative {
        /// The field.
        field: &'static str,
        /// The value found.
        found: i32,
    },
    /// A data layer with bottoms.
    #[error("{} {kind} layer takes 0 bottom blobs as input, found {found}", article(kind))]
    Bottoms {
        /// The type of the layer.
        kind: &'static str,
        /// The number found.
        found: usize,
    },
    /// A data layer without tops, or with more than data and labels.
    #[error(
        "{} {kind} layer produces {}2 top blobs as output, found {found}",
        article(kind),
        if *least < 2 { "at least 1 and at most " } else { "" }
    )]
    Tops {
        /// The type of the layer.
        kind: &'static str,
        /// The number found.
        found: usize,
        /// The minimum number of tops.
        least: usize,
    },
    /// `propagate_down` set for bottoms that the data layer does not have.
    #[error(
        "propagate_down must be specified either 0 times or once per bottom blob: found {found}, and the \
         layer has {bottoms} bottom blobs; leave it out"
    )]
    PropagateDown {
        /// The number found.
        found: usize,
        /// The number of bottoms.
        bottoms: usize,
    },
    /// Loss weights for only some tops, or for more tops than there are.
    #[error(
        "loss_weight must be unspecified or specified once per top blob: found {found}, and the layer has \
         {tops} top blobs; leave it out"
    )]
    LossWeights {
        /// The number found.
        found: usize,
        /// The number of tops.
        tops: usize,
    },
    /// Parameters for learned blobs, of which a data layer has none.
    #[error(
        "too many params specified: found {found}, and a data layer has 0 blobs to train; leave them out \
         (param, and in old layers blobs_lr, weight_decay and blob_share_mode)"
    )]
    Params {
        /// The number found.
        found: usize,
    },
    /// Two blobs of one name.
    #[error("top blob \"{top}\" produced by multiple sources: layer {earlier} has it too")]
    SameTop {
        /// The blob.
        top: String,
        /// The earlier layer, or the same one.
        earlier: String,
    },
    /// A fork's field that would change the arrays.
    #[error(
        "{field} is a field of {owner} that Percolator does not support; ignoring it would change the arrays"
    )]
    Foreign {
        /// The message and the field.
        field: String,
        /// The fork, or forks, that have the field.
        owner: &'static str,
    },
}

/// The indefinite article for a layer type.
fn article(kind: &str) -> &'static str {
    if kind.starts_with('I') { "an" } else { "a" }
}
