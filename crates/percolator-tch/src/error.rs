//! Why tensors cannot be made.

use percolator::batch::FieldError;
use percolator::{DeviceError, Dtype, FeedError};
use tch::{Device, Kind};

/// Why a batch does not become torch's tensors.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TchError {
    /// The feed has ended with an error, or has another number of lanes than there are devices. For a bad
    /// record, the error names the file, the key and the record.
    #[error(transparent)]
    Feed(Box<FeedError>),
    /// A field of a batch was asked for as something that it is not. Nothing in this crate returns it: it is
    /// here so that a training loop can use `?` on batches as well.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A batch's device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Torch has no such device.
    #[error("torch has no {device:?} here: {reason}")]
    NoDevice {
        /// The device.
        device: Device,
        /// What it has instead.
        reason: String,
    },
    /// The batch is in the memory of another device.
    #[error(
        "the batch is on {found}, but its tensors were asked for on {wanted:?}: ask for them on \
         Cuda({ordinal}), or build the feed with Device::host, from which they are copied to any device"
    )]
    OtherGpu {
        /// Where the batch is.
        found: String,
        /// The number of that GPU.
        ordinal: usize,
        /// The device that was asked for.
        wanted: Device,
    },
    /// The lane's device makes the elements of this field, so the host does not have them.
    #[error(
        "field {field:?} is transformed on the lane's device, and only there: request its tensor there, or \
         build the feed with .transform_on(TransformPlace::Host)"
    )]
    OnDevice {
        /// The field.
        field: String,
    },
    /// The batch is on a GPU, for which this package was not built.
    #[error(
        "the batch is on a GPU, but percolator-tch was built without its feature cuda or cuda-driver, which \
         makes torch wait for it: build it with one of them"
    )]
    NotBuilt,
    /// Torch does not use the stream that the batch is ordered with.
    #[error(
        "torch's current stream of Cuda({ordinal}) is not its default stream, and a batch waits for that one \
         alone: take tensors while the default stream is current"
    )]
    Stream {
        /// The number of the GPU.
        ordinal: usize,
    },
    /// Torch does not say which stream it uses.
    #[error("torch does not say which stream of Cuda({ordinal}) it uses: {message}")]
    NoStream {
        /// The number of the GPU.
        ordinal: usize,
        /// What libtorch says.
        message: String,
    },
    /// There is no such tensor.
    #[error("the batch has no tensor {wanted:?}; it has {names}")]
    Unknown {
        /// The name that was asked for.
        wanted: String,
        /// The names of those that are left.
        names: String,
    },
    /// A tensor has another type.
    #[error(
        "the tensor {name:?} is of kind {found:?}, but {wanted:?} was asked for: convert it with to_kind, or \
         let the feed make it so"
    )]
    Type {
        /// The tensor.
        name: String,
        /// Its kind.
        found: Kind,
        /// The kind that was asked for.
        wanted: Kind,
    },
    /// The crate tch has no such kind.
    #[error(
        "field {field:?} is of type {dtype}, for which the crate tch has no kind: let the feed's decoder \
         write {instead}"
    )]
    Dtype {
        /// The field.
        field: String,
        /// Its type.
        dtype: Dtype,
        /// The type that holds all of its values.
        instead: &'static str,
    },
    /// Libtorch did not make a tensor of the batch's memory.
    #[error("tensor {name:?}: libtorch cannot {what}: {message}")]
    Copy {
        /// The tensor.
        name: String,
        /// What was asked of it.
        what: &'static str,
        /// What it says.
        message: String,
    },
    /// The crate tch failed at something else than a batch: a training loop can use `?` on what it does with
    /// tensors. This is tch's own message.
    #[error("{0}")]
    Torch(String),
}

/// For training loops that use `?` on what tch returns.
impl From<tch::TchError> for TchError {
    fn from(error: tch::TchError) -> Self {
        TchError::Torch(error.to_string())
    }
}

impl From<FeedError> for TchError {
    fn from(error: FeedError) -> Self {
        TchError::Feed(Box::new(error))
    }
}
