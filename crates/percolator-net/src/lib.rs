//! Caffe nets (`.prototxt` and `.caffemodel`): which data layers they have, and how those are configured.
//!
//! A [`Net`] is read (`text`, `binary`), upgraded to the current format (`upgrade`) and filtered by a
//! [`NetState`] (`state`). The data layers that remain are checked (`layer`) and returned (`select`). No file
//! but the net's own is opened. [`proto`] has Caffe's messages as they are.
//!
//! It is built for Percolator, and does not depend on its feeds. Unix only.

mod binary;
mod error;
mod forks;
mod ignored;
mod kinds;
mod layer;
pub mod proto;
mod select;
mod state;
mod text;
mod upgrade;
mod warning;

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::{input_file, what};

use self::proto::NetParameter;
use self::text::notes::{Fillers, Form, LayerNotes, Notes};
use self::warning::Ignored;

pub use self::error::{NetCause, NetError, TextPlace};
pub use self::layer::{LayerSource, TransformSpec};
pub use self::select::DataLayer;
pub use self::state::{NetState, Phase};
pub use self::warning::{NetWarning, WarningKind};

/// The largest net file that is read, in bytes: Caffe's `kProtoReadBytesLimit`.
const BYTES_MAX: u64 = i32::MAX as u64;

/// The maximum number of layers in a net, far more than any real net has. A few bytes of input can declare a
/// layer, and its message is much larger in memory. With this bound, all messages together stay below 160
/// MiB.
///
/// Apart from its layers, a net takes up to about a hundred times its own size: a rule of two bytes on the
/// wire is 72 bytes in a vector that doubles. Weights take nothing.
const LAYERS_MAX: usize = 1 << 16;

/// A Caffe net, upgraded to the current format.
///
/// ```
/// use percolator_net::{LayerSource, Net, NetState, Phase};
///
/// let net = Net::from_text(
///     r#"
///     layer {
///       name: "mnist" type: "Data" top: "data" top: "label"
///       include { phase: TRAIN }
///       transform_param { scale: 0.00390625 }
///       data_param { source: "mnist_train_lmdb" batch_size: 64 backend: LMDB }
///     }
///     layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" }
///     "#,
/// )?;
/// let layers = net.data_layers(&NetState::from(Phase::Train))?;
/// assert_eq!((layers.len(), layers[0].batch_size), (1, 64));
/// assert_eq!(layers[0].source, LayerSource::Lmdb { path: "mnist_train_lmdb".into() });
/// # Ok::<(), percolator_net::NetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Net {
    path: Option<PathBuf>,
    parameter: NetParameter,
    /// What is known about each layer beyond its message, in the same order.
    layers: Vec<LayerInfo>,
    /// What is ignored of the net as a whole.
    ignored: Vec<Ignored>,
}

/// What is known about a layer beyond its message.
#[derive(Clone, Debug)]
struct LayerInfo {
    notes: LayerNotes,
    /// What the upgrade ignored.
    ignored: Vec<Ignored>,
}

impl Net {
    /// Reads a net from a file, in text or binary format.
    ///
    /// The content decides the format. The wire bytes of a net with at least one layer always contain a
    /// control character that is not whitespace. Text that protobuf accepts has none outside comments and
    /// strings. So a file without any is read as text. A file with some is read as wire bytes first, and as
    /// text if that fails.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or its content is malformed. The error names the path and, for text, the line
    /// and the column. If the file could be in either format, the error says what is wrong with both.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let net = read(path).and_then(|bytes| {
            if !binary::cannot_be_text(&bytes) {
                return Self::of_text(&bytes);
            }
            Self::from_binary(&bytes).or_else(|binary| {
                // A serialised net that is invalid as a net is not text either.
                if !matches!(*binary.cause, NetCause::Binary { .. }) {
                    return Err(binary);
                }
                Self::of_text(&bytes).map_err(|text| {
                    NetError::new(NetCause::Neither { binary: Box::new(binary), text: Box::new(text) })
                })
            })
        });
        let net = net.map_err(|error| instead(path, error).within(Some(path)))?;
        Ok(Self { path: Some(path.to_owned()), ..net })
    }

    /// Reads a net in text format.
    ///
    /// # Errors
    ///
    /// The text is not in protobuf's text format, a value does not have its field's type, or a message that
    /// all nets need does not match Caffe's schema. The error names the line and the column. Fields that a
    /// data layer must not have are refused by [`data_layers`](Self::data_layers), if the layer is part of
    /// the net.
    pub fn from_text(text: &str) -> Result<Self, NetError> {
        Self::of_text(text.as_bytes())
    }

    /// Reads a net in binary format (wire bytes).
    ///
    /// # Errors
    ///
    /// The bytes are not a `NetParameter`, hold both `layer` and `layers`, or hold more layers than any net
    /// has.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, NetError> {
        let parameter = binary::parse(bytes)?;
        let unseen = LayerNotes { fillers: Fillers::Unknown, ..LayerNotes::default() };
        let old = parameter.layers.iter().map(|_| (Form::V1, unseen.clone()));
        let new = parameter.layer.iter().map(|_| (Form::V2, unseen.clone()));
        let notes = Notes { layers: old.chain(new).collect(), ..Notes::default() };
        Self::new(parameter, notes)
    }

    fn of_text(text: &[u8]) -> Result<Self, NetError> {
        let (parameter, notes) = text::parse(text)?;
        Self::new(parameter, notes)
    }

    fn new(parameter: NetParameter, notes: Notes) -> Result<Self, NetError> {
        let (parameter, ignored) = upgrade::upgrade(parameter, &notes.layers)?;
        let layers = notes.layers.into_iter().zip(ignored);
        let layers = layers.map(|((_, notes), ignored)| LayerInfo { notes, ignored }).collect();
        Ok(Self { path: None, parameter, layers, ignored: notes.unknown.warnings().collect() })
    }

    /// The net in the current format: all its layers are in `layer`.
    #[must_use]
    pub fn parameter(&self) -> &NetParameter {
        &self.parameter
    }

    /// The prefix of messages about what reads one of the net's layers: the file, the place, the layer.
    #[must_use]
    pub fn title_of(&self, layer: &DataLayer) -> String {
        let origin = error::Origin { path: self.path(), at: layer.at };
        format!("{origin}layer \"{}\"", error::clip(&layer.name))
    }

    /// The file that the net was read from, if any.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl NetParameter {
    /// Reads a net in text format as written, without an upgrade. [`Net`] upgrades it to the current format.
    ///
    /// Fields that no data layer needs are not in the schema. Their syntax is checked, and they are dropped.
    ///
    /// # Errors
    ///
    /// As [`Net::from_text`]. A fork's field that would change the arrays is an error, too. So is a field
    /// that Caffe refuses in a layer of type Data or ImageData. Otherwise such fields would be dropped
    /// without a trace; a [`Net`] refuses them when their layer is requested.
    pub fn from_text(text: &str) -> Result<Self, NetError> {
        let (parameter, notes) = text::parse(text.as_bytes())?;
        let (mut old, mut new) = (parameter.layers.iter(), parameter.layer.iter());
        for (index, (form, layer)) in notes.layers.iter().enumerate() {
            let is_fed = match form {
                Form::V1 => old.next().is_some_and(kinds::is_fed_v1),
                Form::V2 => new.next().is_some_and(|layer| kinds::is_fed(layer.r#type())),
            };
            if let Some(error) = layer.refusal().filter(|_| is_fed) {
                return Err(error);
            }
            if let Some(foreign) = layer.foreign.iter().find(|foreign| !foreign.harmless) {
                let cause = NetCause::Layer { layer: layer_name(None, index), fault: foreign.fork.fault() };
                return Err(NetError::at(foreign.at, cause));
            }
        }
        Ok(parameter)
    }

    /// Reads a net in binary format as it is, without an upgrade. [`Net`] upgrades it to the current format.
    ///
    /// # Errors
    ///
    /// The bytes are not a `NetParameter`, or hold more layers than any net has.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, NetError> {
        binary::parse(bytes)
    }
}

/// Resolves a path in a net against `root`. An absolute path stays as it is, and so does any path without a
/// root.
///
/// Caffe itself resolves paths against the working directory only.
#[must_use]
pub fn rooted(root: Option<&Path>, path: &Path) -> PathBuf {
    root.map_or_else(|| path.to_owned(), |root| root.join(path))
}

/// A layer's name in messages: its own, quoted, or its number from 0.
fn layer_name(name: Option<&str>, index: usize) -> String {
    match name {
        Some(name) if !name.is_empty() => format!("\"{}\"", error::clip(name)),
        _ => format!("number {index} (without a name)"),
    }
}

/// The error for something else than a net, if it is known what it is.
fn instead(path: &Path, error: NetError) -> NetError {
    if matches!(*error.cause, NetCause::TooLarge { .. }) {
        return error;
    }
    match what::instead_of(&[what::Kind::Net, what::Kind::Text], path) {
        Some(thing) => NetError::new(NetCause::Instead { thing: thing.to_string() }),
        None => error,
    }
}

/// Reads a file of at most [`BYTES_MAX`] bytes.
fn read(path: &Path) -> Result<Vec<u8>, NetError> {
    input_file::read(path, BYTES_MAX).map_err(|error| {
        NetError::new(match error.kind() {
            io::ErrorKind::FileTooLarge => NetCause::TooLarge { allowed: BYTES_MAX },
            kind => NetCause::Io { message: error.to_string(), kind },
        })
    })
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
