//! What can be wrong with a net: where it stands, what was found, and what is allowed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::base::shown;

/// A place in the text of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPlace {
    /// From 1.
    pub line: u32,
    /// In characters, from 1.
    pub column: u32,
}

impl fmt::Display for TextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// What a message begins with: `path:line:column: `, as far as these are known.
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

/// The most characters of a net's own words that a message shows, escapes counted as they are shown.
const SHOWN_MAX: usize = 60;

/// The most layers, or names, that a message lists.
pub(super) const LISTED_MAX: usize = 20;

/// A net's own words as a message shows them: cut where they are long, on one line.
pub(super) fn clip(text: &str) -> String {
    clip_escaped(text, |_| false)
}

/// The inside of a string as the net has it: its backslashes and quotes are escapes already.
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

/// The first of these names, and how many more there are.
pub(super) fn clip_list(names: &[String]) -> String {
    let mut listed: Vec<_> = names.iter().take(LISTED_MAX).map(|name| clip(name)).collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        listed.push(format!("and {more} more"));
    }
    listed.join(", ")
}

/// A net that cannot be read, or cannot be fed.
#[derive(Clone, Debug, PartialEq)]
pub struct NetError {
    /// The file, where the net came from one.
    pub path: Option<PathBuf>,
    /// The place in its text, where it has one.
    pub at: Option<TextPlace>,
    /// What is wrong. It is part of the message, and therefore not given again as the error's source.
    pub cause: Box<NetCause>,
}

impl NetError {
    /// An error without a place.
    pub(super) fn new(cause: NetCause) -> Self {
        Self { path: None, at: None, cause: Box::new(cause) }
    }

    /// An error at a place of the text.
    pub(super) fn at(place: TextPlace, cause: NetCause) -> Self {
        Self { at: Some(place), ..Self::new(cause) }
    }

    /// The same, of this file.
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

/// What can be wrong with a net.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetCause {
    /// The file cannot be read.
    #[error("cannot be read: {message}")]
    Io {
        /// What the operating system said.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
    },
    /// There is more of it than Caffe reads.
    #[error("a net may have at most {allowed} bytes, found more")]
    TooLarge {
        /// The most bytes there may be.
        allowed: u64,
    },
    /// The bytes are no serialised `NetParameter`.
    #[error("not a serialised NetParameter: {message}")]
    Binary {
        /// What the bytes are wrong in.
        message: String,
    },
    /// The file has bytes that no text has, and is not a serialised net either.
    #[error("neither a serialised net ({binary}) nor the text of one ({text})")]
    Neither {
        /// What is wrong with it as wire bytes.
        binary: Box<NetError>,
        /// What is wrong with it as text.
        text: Box<NetError>,
    },

    /// A character that starts no token.
    #[error("found {found}, with which nothing of protobuf's text format starts")]
    Character {
        /// The character, quoted, or its byte.
        found: String,
    },
    /// A string has no end.
    #[error("the string is not closed on its line; did you miss a quote?")]
    StringNotClosed,
    /// An escape that there is not.
    #[error(
        "invalid escape sequence in a string, at {found}: allowed are \\a \\b \\f \\n \\r \\t \\v \\\\ \\? \\' \\\", \
         octal bytes to \\377, \\xFF, \\uFFFF and \\UFFFFFFFF"
    )]
    Escape {
        /// The text from its backslash on.
        found: String,
    },
    /// A path whose bytes are not text. Names of other things are read whatever their bytes.
    #[error("the string of {field} is not UTF-8; rename the file, or give its path in UTF-8")]
    NotUtf8 {
        /// The field.
        field: &'static str,
    },
    /// Digits that are no number.
    #[error("\"{found}\" is not a number of protobuf's text format")]
    Number {
        /// The text up to the next blank or symbol.
        found: String,
    },
    /// Something else must stand here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What must stand here.
        expected: String,
        /// What does.
        found: String,
    },
    /// Messages in messages in messages.
    #[error("messages are nested too deeply: allowed are {allowed} levels")]
    TooDeep {
        /// The most levels there may be.
        allowed: usize,
    },
    /// More layers than any net has.
    #[error("the net has too many layers: allowed are {allowed}")]
    TooManyLayers {
        /// The most there may be.
        allowed: usize,
    },
    /// A field that the message does not have.
    #[error("message type \"caffe.{message}\" has no field named \"{found}\"; {hint}")]
    NoSuchField {
        /// The message.
        message: &'static str,
        /// The field as written.
        found: String,
        /// What it may have been meant to be.
        hint: String,
    },
    /// A field that may be given once.
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
        /// The smallest there may be.
        min: i64,
        /// The largest there may be.
        max: u64,
    },
    /// A value that the enum does not have.
    #[error("unknown enumeration value of \"{found}\" for field \"{field}\": allowed are {allowed}")]
    EnumValue {
        /// The field.
        field: &'static str,
        /// The value as written.
        found: String,
        /// The names there are.
        allowed: String,
    },
    /// A solver's file where a net's is due.
    #[error("this is a solver, not a net: it has the field \"{field}\"; give the net that it names")]
    Solver {
        /// The field that only a solver has.
        field: &'static str,
    },

    /// A net in two versions of the format at once.
    #[error(
        "refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and 'layers' \
         fields (the first of either: {layer} and {layers}); use one of them for the whole net"
    )]
    BothLayerFields {
        /// Where the first `layer` stands, or which one it is.
        layer: String,
        /// Where the first `layers` stands, or which one it is.
        layers: String,
    },
    /// A net of `layers` of which only some hold a V0 `layer`.
    #[error(
        "the net has 'layers' both with a V0 'layer' in them ({old}) and without ({new}), of which Caffe would \
         keep only the names of the blobs; write all of them in one way"
    )]
    MixedVersions {
        /// Where the first V0 layer stands, or which one it is.
        old: String,
        /// Where the first V1 layer stands, or which one it is.
        new: String,
    },
    /// A layer cannot be.
    #[error("layer {layer}: {error}")]
    Layer {
        /// Its name, quoted, or its number where it has none.
        layer: String,
        /// What is wrong with it.
        error: LayerError,
    },
    /// No layer of the net is fed in the state that was asked for.
    #[error(
        "in the state {state} the net has no data layer that Percolator feeds (Data or ImageData): {found}"
    )]
    NoDataLayer {
        /// The phase, the level and the stages.
        state: String,
        /// The layers that may have been meant, each with why it is left out.
        found: String,
    },
}

/// What can be wrong with one layer.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayerError {
    /// Rules of both kinds.
    #[error("specify either include rules or exclude rules; not both")]
    BothRules,
    /// A batch of nothing.
    #[error("positive batch size required: {field} is not set, or 0")]
    NoBatchSize {
        /// Which batch size.
        field: &'static str,
    },
    /// A batch of more records than a blob of Caffe has room for.
    #[error("{field} is {found}: allowed are 1 to {allowed}")]
    BatchSize {
        /// Which batch size.
        field: &'static str,
        /// What it is.
        found: u32,
        /// The most it may be.
        allowed: u32,
    },
    /// Nothing would ever be read.
    #[error("data_param.prefetch is 0: allowed are 1 batch or more, and 4 are the default")]
    NoPrefetch,
    /// There is nothing to read from.
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
    /// Both kinds of mean.
    #[error(
        "cannot specify mean_file and mean_value at the same time: found \"{mean_file}\" and {values} mean_value"
    )]
    TwoMeans {
        /// The file.
        mean_file: String,
        /// How many values there are.
        values: usize,
    },
    /// Both kinds of decoding.
    #[error("cannot set both force_color and force_gray")]
    ColorAndGray,
    /// Half a size.
    #[error(
        "current implementation requires new_height and new_width to be set at the same time: found {new_height} \
         and {new_width}"
    )]
    HalfSize {
        /// As in the layer, or 0.
        new_height: u32,
        /// As in the layer, or 0.
        new_width: u32,
    },
    /// An image of more elements than a blob of Caffe has room for.
    #[error("images of {new_height}x{new_width} are too large: allowed are {allowed} elements")]
    Size {
        /// As in the layer.
        new_height: u32,
        /// As in the layer.
        new_width: u32,
        /// The most elements there may be.
        allowed: u32,
    },
    /// A size of the V0 form, which has a sign.
    #[error("{field} is {found}: allowed are 0 or more")]
    Negative {
        /// The field.
        field: &'static str,
        /// What it is.
        found: i32,
    },
    /// Something flows into a data layer.
    #[error("{} {kind} layer takes 0 bottom blobs as input, found {found}", article(kind))]
    Bottoms {
        /// The type of the layer.
        kind: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A layer of nothing, or of more than data and labels.
    #[error(
        "{} {kind} layer produces {}2 top blobs as output, found {found}",
        article(kind),
        if *least < 2 { "at least 1 and at most " } else { "" }
    )]
    Tops {
        /// The type of the layer.
        kind: &'static str,
        /// How many there are.
        found: usize,
        /// How many there must be at the least.
        least: usize,
    },
    /// A wish for the blobs that flow in, of which a data layer has none.
    #[error(
        "propagate_down must be specified either 0 times or once per bottom blob: found {found}, and the layer has \
         {bottoms} bottom blobs; leave it out"
    )]
    PropagateDown {
        /// How many there are.
        found: usize,
        /// How many blobs flow in.
        bottoms: usize,
    },
    /// Weights of some tops, or of more than there are.
    #[error(
        "loss_weight must be unspecified or specified once per top blob: found {found}, and the layer has {tops} top \
         blobs; leave it out"
    )]
    LossWeights {
        /// How many there are.
        found: usize,
        /// How many blobs flow out.
        tops: usize,
    },
    /// Wishes for blobs of its own, of which a data layer has none.
    #[error(
        "too many params specified: found {found}, and a data layer has 0 blobs to train; leave them out (param, and in \
         old layers blobs_lr, weight_decay and blob_share_mode)"
    )]
    Params {
        /// How many there are.
        found: usize,
    },
    /// Two blobs of one name.
    #[error("top blob \"{top}\" produced by multiple sources: layer {earlier} has it too")]
    SameTop {
        /// The blob.
        top: String,
        /// The layer before, or the same one.
        earlier: String,
    },
    /// A field of a fork that would change the arrays.
    #[error("{field} is {owner}'s, and Percolator has no counterpart; without it the arrays would be others")]
    Foreign {
        /// Message and field.
        field: String,
        /// Whose field it is.
        owner: &'static str,
    },
}

/// The article that goes before a layer's type.
fn article(kind: &str) -> &'static str {
    if kind.starts_with('I') { "an" } else { "a" }
}
