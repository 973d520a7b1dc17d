//! Why there are no tensors.

use percolator::{DeviceError, Dtype, FeedError};
use tch::{Device, Kind};

/// Why a batch does not become torch's tensors.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TchError {
    /// The feed has ended with an error: for a bad record, it names the file, the key and the record.
    #[error(transparent)]
    Feed(Box<FeedError>),
    /// A batch's device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The feed has other than one lane.
    #[error(
        "the feed has {lanes} lanes, and tensors() takes one: call tensors_on() with torch's device for each \
         lane, or build the feed with one device"
    )]
    Lanes {
        /// How many it has.
        lanes: usize,
    },
    /// Not as many devices as lanes.
    #[error(
        "the feed has {lanes} lane(s), but {devices} device(s) of torch's were given: give one for each lane"
    )]
    Devices {
        /// How many lanes it has.
        lanes: usize,
        /// How many devices were given.
        devices: usize,
    },
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
    OtherDevice {
        /// Where the batch is.
        found: String,
        /// The number of that GPU.
        ordinal: usize,
        /// The device that was asked for.
        wanted: Device,
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
    NoTensor {
        /// The name that was asked for.
        wanted: String,
        /// The names of those that are left.
        names: String,
    },
    /// A tensor is of another kind.
    #[error(
        "the tensor {name:?} is of kind {found:?}, but {wanted:?} was asked for: convert it with to_kind, or \
         let the feed make it so"
    )]
    Kind {
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
    /// Libtorch refused.
    #[error("tensor {name:?}: libtorch cannot {what}: {message}")]
    Torch {
        /// The tensor.
        name: String,
        /// What was asked of it.
        what: &'static str,
        /// What it says.
        message: String,
    },
}

impl From<FeedError> for TchError {
    fn from(error: FeedError) -> Self {
        TchError::Feed(Box::new(error))
    }
}
