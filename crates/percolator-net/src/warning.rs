//! What is ignored in a net although it may have been meant to have an effect.

use std::fmt;
use std::path::PathBuf;

use super::error::{Origin, TextPlace};

/// Something in a net that is ignored. The caller logs it.
#[derive(Clone, Debug, PartialEq)]
pub struct NetWarning {
    /// The file, if the net was read from one.
    pub path: Option<PathBuf>,
    /// The place in the text, if known.
    pub at: Option<TextPlace>,
    /// The layer's name, quoted, or its number if it has no name. `None` for the net itself.
    pub layer: Option<String>,
    /// What is ignored.
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

/// What is ignored, and its place.
pub(super) type Ignored = (Option<TextPlace>, WarningKind);

/// What is ignored.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WarningKind {
    /// A field that Caffe's schema has but Caffe's layer does not read.
    #[error("{field} is ignored, as in Caffe; {instead}")]
    Ignored {
        /// The message and the field.
        field: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// A message of which the layer reads only one field, with others set.
    #[error("{message} is ignored but for {read}, as in Caffe; {instead}")]
    IgnoredBut {
        /// The message.
        message: &'static str,
        /// The field that is read.
        read: &'static str,
        /// What to write instead.
        instead: &'static str,
    },
    /// An infinite or NaN parameter that enters the pixel arithmetic.
    #[error("{field} is {found}, which Caffe accepts; the arrays will have elements that are not finite")]
    NotFinite {
        /// The message and the field.
        field: &'static str,
        /// The value found.
        found: String,
    },
    /// Blobs that the caller fills.
    #[error(
        "the net's own inputs ({names}) are not fed by Percolator, which feeds Data and ImageData layers"
    )]
    Inputs {
        /// The first of their names.
        names: String,
    },
    /// A fork's field that does not affect the arrays, or is set to a value that does not.
    #[error("{field} is {owner}'s and is ignored; it changes nothing in the arrays")]
    Foreign {
        /// The message and the field.
        field: String,
        /// The fork, or forks, that have the field.
        owner: &'static str,
    },
    /// A field that neither Caffe nor a known fork has.
    #[error("the field \"{field}\" is unknown and is ignored")]
    Unknown {
        /// The field.
        field: String,
    },
    /// Further unknown fields that are not named.
    #[error("{count} more unknown fields are ignored")]
    MoreUnknown {
        /// How many, each occurrence counted.
        count: usize,
    },
    /// Fields beside a V0 layer, in the V1 layer that contains it.
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
    #[error("layers of type {kind} are not fed by Percolator, which feeds Data and ImageData layers")]
    NotFed {
        /// The layer's type.
        kind: String,
    },
    /// A field of the net's own state that the caller's state overrides.
    #[error("the net's own state sets {field} {own}; the requested {given} overrides it")]
    State {
        /// `phase` or `level`.
        field: &'static str,
        /// The net's value.
        own: String,
        /// The caller's value.
        given: String,
    },
}
