//! What can go wrong between a feed and candle.

use candle_core::DType;
use percolator::batch::FieldError;
use percolator::{DeviceError, Dtype, FeedError};
use percolator_files::shown;

/// What can be wrong with a feed, with a device, or with what was asked for.
///
/// It becomes a [`candle_core::Error`] by `?`, and such an error becomes one of these: so a training loop can
/// return either.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum CandleError {
    /// The feed ended with an error, or has another number of lanes than there are devices.
    #[error(transparent)]
    Feed(#[from] FeedError),
    /// There is no such field, or a field of a batch was asked for as something that it is not: a training
    /// loop can use `?` on batches as well.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A CUDA device refused to wait for a batch.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// candle, or the driver of its GPU, failed at something else than the copy of an array. A training loop
    /// can also use `?` on what it does with tensors.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    /// candle could not make a tensor.
    #[error("cannot make a tensor of {array:?}")]
    Copy {
        /// The array of the batch.
        array: String,
        /// candle's error.
        #[source]
        error: Box<candle_core::Error>,
    },
    /// There is no such tensor.
    #[error("there is no tensor {wanted:?}; there are {found}")]
    Unknown {
        /// The requested name.
        wanted: String,
        /// The existing ones.
        found: String,
    },
    /// A tensor has another type.
    #[error("tensor {tensor:?} holds {}, but {} was requested", found.as_str(), wanted.as_str())]
    Type {
        /// The tensor.
        tensor: String,
        /// The type of its elements.
        found: DType,
        /// The requested type.
        wanted: DType,
    },
    /// candle has no tensors of this type.
    #[error(
        "field {field:?} holds {found}, of which candle has no tensors: let the decoder write {instead}, or \
         leave the field out"
    )]
    Dtype {
        /// The field.
        field: String,
        /// The type of its elements.
        found: Dtype,
        /// A type that holds the same values, or, for `u64`, all that a count or an index needs.
        instead: &'static str,
    },
    /// A device that this build has not.
    #[error("this build has no device {device}: build {with}, or ask for tensors on the CPU")]
    NotBuilt {
        /// The device.
        device: &'static str,
        /// What to build, and how.
        with: &'static str,
    },
    /// The batch is on another GPU than the one that was asked for.
    #[error(
        "the batch is on cuda:{found}, but its tensors were requested on cuda:{wanted}: feed \
         Device::cuda({wanted}), or request them on cuda:{found}"
    )]
    OtherGpu {
        /// The number of the GPU that the lane ends at.
        found: usize,
        /// The number of the requested GPU.
        wanted: usize,
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
}

impl CandleError {
    pub(crate) fn unknown<'a>(wanted: &str, found: impl IntoIterator<Item = &'a str>) -> Self {
        let found: Vec<String> = found.into_iter().map(|name| format!("{name:?}")).collect();
        let found = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
        CandleError::Unknown { wanted: wanted.to_owned(), found }
    }

    pub(crate) fn copy(array: &str, error: candle_core::Error) -> Self {
        CandleError::Copy { array: array.to_owned(), error: Box::new(error) }
    }
}

/// For training loops that return candle's errors. Those keep only what an error says, so it says its causes.
impl From<CandleError> for candle_core::Error {
    fn from(error: CandleError) -> Self {
        match error {
            CandleError::Candle(error) => error,
            error => candle_core::Error::wrap(shown::with_sources(&error)),
        }
    }
}
