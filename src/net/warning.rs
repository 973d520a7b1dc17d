//! What is passed over in a net although somebody may have meant something by it.

use std::fmt;
use std::path::PathBuf;

use super::error::{Origin, TextPlace};

/// Something in a net that is not heeded. The caller logs it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetWarning {
    /// The file, where the net came from one.
    pub path: Option<PathBuf>,
    /// The place in its text, where it has one.
    pub at: Option<TextPlace>,
    /// The layer's name, quoted, or its number where it has none; `None` where it is the net's own.
    pub layer: Option<String>,
    /// What is not heeded.
    pub kind: WarningKind,
}

impl fmt::Display for NetWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Origin { path: self.path.as_deref(), at: self.at }.fmt(f)?;
        if let Some(layer) = &self.layer {
            write!(f, "layer {layer}: ")?;
        }
        self.kind.fmt(f)
    }
}

/// Something that is passed over, and where it stands.
pub(super) type Passed = (Option<TextPlace>, WarningKind);

/// What is not heeded.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WarningKind {
    /// A field that Caffe's schema has and Caffe's layer does not read.
    #[error("{field} is ignored, as in Caffe; {instead}")]
    Ignored {
        /// Message and field.
        field: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// A message of which a layer reads one field, with others in it.
    #[error("{message} is ignored but for {read}, as in Caffe; {instead}")]
    IgnoredBut {
        /// The message.
        message: &'static str,
        /// The field that is read.
        read: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// An infinite number, or none, with which pixels are reckoned.
    #[error("{field} is {found}, as Caffe would take it; the arrays will not be of finite numbers")]
    NotFinite {
        /// Message and field.
        field: &'static str,
        /// What it is.
        found: String,
    },
    /// Blobs that are filled by hand.
    #[error(
        "the net's own inputs ({names}) are not fed by Percolator, which feeds Data and ImageData layers"
    )]
    Inputs {
        /// The first of their names.
        names: String,
    },
    /// A field of a fork that changes nothing in the arrays, or is set to what changes nothing.
    #[error("{field} is {owner}'s and is passed over; it changes nothing in the arrays")]
    Foreign {
        /// Message and field.
        field: String,
        /// Whose field it is.
        owner: &'static str,
    },
    /// A field that neither Caffe nor a known fork has.
    #[error("the field \"{field}\" is unknown and is passed over")]
    Unknown {
        /// The field.
        field: String,
    },
    /// More such fields than are named.
    #[error("{count} more unknown fields are passed over")]
    MoreUnknown {
        /// How many, counting each time.
        count: usize,
    },
    /// A field beside a V0 layer.
    #[error("beside a V0 'layer', Caffe reads only bottom and top: {fields} ignored")]
    BesideV0 {
        /// The fields.
        fields: String,
    },
    /// A field of V0 that this type of layer does not read.
    #[error("unknown parameter {field} for layer type {kind}: it is ignored, as in Caffe")]
    V0Field {
        /// The field.
        field: &'static str,
        /// The layer's type, as V0 names it.
        kind: &'static str,
    },
    /// A layer that supplies data, but not through Percolator.
    #[error("of type {kind}, it is not fed by Percolator, which feeds Data and ImageData layers")]
    NotFed {
        /// The layer's type.
        kind: String,
    },
    /// What the net says of its own state gives way to what the caller says.
    #[error("the net's own state says {field} {own}; {given} was asked for and stands in its place")]
    State {
        /// `phase` or `level`.
        field: &'static str,
        /// What the net says.
        own: String,
        /// What the caller says.
        given: String,
    },
}
