//! Caffe's nets, `.prototxt` and `.caffemodel`: which data layers they have, and what these ask for.
//!
//! A net is read (`text`, `binary`), brought to today's form (`upgrade`), filtered by a state
//! (`state`), and what is left of its data layers is checked (`layer`) and given out. No file but the net's
//! own is opened.

mod binary;
mod error;
mod forks;
mod ignored;
mod kinds;
mod layer;
mod select;
mod state;
mod text;
mod upgrade;
mod warning;

use std::io;
use std::path::{Path, PathBuf};

use self::text::notes::{Fillers, Form, LayerNotes, Notes};
use self::warning::Passed;
use crate::base::input_file;
use crate::proto::NetParameter;

pub use self::error::{LayerError, NetCause, NetError, TextPlace};
pub use self::layer::{LayerSource, TransformSpec};
pub use self::select::DataLayer;
pub use self::state::NetState;
pub use self::warning::{NetWarning, WarningKind};

/// The largest net that is read: Caffe's `kProtoReadBytesLimit`.
const BYTES_MAX: u64 = i32::MAX as u64;

/// The most layers of a net: far more than any has, and few enough that their messages, which are larger in
/// memory than the few bytes that can ask for one, stay below 160 MiB.
///
/// Beside its layers, a net takes up to about a hundred times its own bytes: a rule of two bytes on the wire is
/// 72 in a vector that doubles. Weights take nothing.
const LAYERS_MAX: usize = 1 << 16;

/// A net of Caffe, brought to today's form.
///
/// ```
/// use percolator::{Net, Phase};
/// use percolator::net::{LayerSource, NetState};
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
/// # Ok::<(), percolator::net::NetError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Net {
    path: Option<PathBuf>,
    parameter: NetParameter,
    /// What is known of each layer beside its message, in the same order.
    layers: Vec<LayerRecord>,
    /// What is passed over of the net as a whole.
    passed: Vec<Passed>,
}

/// What is known of a layer beside its message.
#[derive(Clone, Debug)]
struct LayerRecord {
    notes: LayerNotes,
    /// What the upgrade passed over.
    passed: Vec<Passed>,
}

impl Net {
    /// Reads a net from a file, be it text or wire bytes.
    ///
    /// The content says which: wire bytes of a net that has a layer always hold a control character that is no
    /// whitespace, and text that protobuf reads holds none outside of comments and strings. So a file without
    /// any is read as text; a file with some is read as wire bytes first, and as text where that fails.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or what is in it is wrong in form. The error names the path and, for text, the
    /// line and the column. Where the file could be either, what is wrong with both.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let net = read(path).and_then(|bytes| {
            if !binary::cannot_be_text(&bytes) {
                return Self::of_text(&bytes);
            }
            Self::from_binary(&bytes).or_else(|binary| {
                // A serialised net that is wrong as a net is not text for that.
                if !matches!(*binary.cause, NetCause::Binary { .. }) {
                    return Err(binary);
                }
                Self::of_text(&bytes).map_err(|text| {
                    NetError::new(NetCause::Neither { binary: Box::new(binary), text: Box::new(text) })
                })
            })
        });
        let net = net.map_err(|error| error.within(Some(path)))?;
        Ok(Self { path: Some(path.to_owned()), ..net })
    }

    /// Reads the text of a net.
    ///
    /// # Errors
    ///
    /// The text is not protobuf's, or a value is not of its field's type, or a message that all nets need is not as
    /// Caffe's schema has it. The error names the line and the column. Fields that a data layer must not have are
    /// refused by [`data_layers`](Self::data_layers), if the layer is part of the net.
    pub fn from_text(text: &str) -> Result<Self, NetError> {
        Self::of_text(text.as_bytes())
    }

    /// Reads the wire bytes of a net.
    ///
    /// # Errors
    ///
    /// The bytes are not a `NetParameter`, or hold both `layer` and `layers`.
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
        let (parameter, passed) = upgrade::upgrade(parameter, &notes.layers)?;
        let layers = notes.layers.into_iter().zip(passed);
        let layers = layers.map(|((_, notes), passed)| LayerRecord { notes, passed }).collect();
        Ok(Self { path: None, parameter, layers, passed: notes.unknown.warnings().collect() })
    }

    /// The net in today's form: its layers are all in `layer`.
    #[must_use]
    pub fn parameter(&self) -> &NetParameter {
        &self.parameter
    }

    /// What messages about the feed of one of its layers begin with: the file, the place, the layer.
    pub(crate) fn title_of(&self, layer: &DataLayer) -> String {
        let origin = error::Origin { path: self.path(), at: layer.at };
        format!("{origin}layer \"{}\"", error::clip(&layer.name))
    }

    /// The file that the net came from.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl NetParameter {
    /// Reads the text of a net as it is written, in whatever form: [`Net`] brings it to today's.
    ///
    /// What the schema does not have, because no data layer needs it, is checked for its form and gone.
    ///
    /// # Errors
    ///
    /// As [`Net::from_text`]. A field of a fork that would change the arrays is an error, too, and so is one that
    /// Caffe refuses in a layer of type Data or ImageData, for they would be gone without a trace; a [`Net`]
    /// refuses them once their layer is asked for.
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
                let error = LayerError::Foreign { field: foreign.fork.name(), owner: foreign.fork.owner };
                let cause = NetCause::Layer { layer: layer_name(None, index), error };
                return Err(NetError::at(foreign.at, cause));
            }
        }
        Ok(parameter)
    }

    /// Reads the wire bytes of a net as they are: [`Net`] brings it to today's form.
    ///
    /// # Errors
    ///
    /// The bytes are not a `NetParameter`, or hold more layers than any net has.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, NetError> {
        binary::parse(bytes)
    }
}

/// A path of a net, seen from `root`: as it is where it is absolute, or where there is no root.
///
/// Caffe itself knows no root but the working directory.
#[must_use]
pub fn rooted(root: Option<&Path>, path: &Path) -> PathBuf {
    root.map_or_else(|| path.to_owned(), |root| root.join(path))
}

/// How messages call a layer: by its name, quoted, or by its number from 0.
fn layer_name(name: Option<&str>, index: usize) -> String {
    match name {
        Some(name) if !name.is_empty() => format!("\"{}\"", error::clip(name)),
        _ => format!("number {index} (without a name)"),
    }
}

/// The bytes of a file no larger than [`BYTES_MAX`].
fn read(path: &Path) -> Result<Vec<u8>, NetError> {
    input_file::read(path, BYTES_MAX).map_err(|error| {
        NetError::new(match error.kind() {
            io::ErrorKind::FileTooLarge => NetCause::TooLarge { allowed: BYTES_MAX },
            kind => NetCause::Io { message: error.to_string(), kind },
        })
    })
}
