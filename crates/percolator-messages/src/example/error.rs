//! The errors in a record's bytes.

use percolator_files::shown;

use crate::wire::WireError;

/// Why a record is not an `Example`, or not a `SequenceExample`. Offsets count from its first byte.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExampleError {
    /// Its bytes are not a protobuf message, or one of another kind.
    #[error("not a tf.train.Example: {0}")]
    Wire(WireError),
    /// A name that is not UTF-8.
    #[error("not a tf.train.Example: the name {} at byte {offset} is not UTF-8", shown::quoted(name))]
    Name {
        /// Where it starts.
        offset: usize,
        /// The name.
        name: Vec<u8>,
    },
}

/// The message says it, so it is not the source as well.
impl From<WireError> for ExampleError {
    fn from(error: WireError) -> Self {
        ExampleError::Wire(error)
    }
}
