//! A batch split into arrays that own their memory.

use std::fmt;
use std::sync::Arc;

use super::batch::Batch;
use crate::base::shape::{Dtype, Extents};
use crate::device::DeviceError;

/// One array of a batch, on the host, that owns its memory. It suits libraries that hold bytes and release
/// them by dropping an owner (`bytes::Bytes::from_owner`, burn's `Bytes`, Arrow's buffers). The batch's
/// memory returns to its lane when the last of its arrays is dropped, on any thread.
#[derive(Clone)]
pub struct OwnedArray {
    batch: Arc<Batch>,
    /// The array's number in the batch's layout.
    number: usize,
}

impl Batch {
    /// Splits the batch into its arrays, field by field. Each is a value that owns its memory; nothing is
    /// copied.
    ///
    /// If the batch went to another device, these are the arrays on the host. The call waits until the copy
    /// from there to the device is done, and the batch's place at the device stays in use, too.
    ///
    /// ```no_run
    /// # use percolator::Feed;
    /// # let mut feed = Feed::builder().lmdb("train_lmdb").build()?;
    /// # let batch = feed.take_lanes()?.remove(0).next().expect("one at least")?;
    /// for array in batch.into_bytes()? {
    ///     let bytes: &[u8] = array.as_ref();
    ///     println!("{}: {} {}, {} bytes", array.name(), array.dtype(), array.shape(), bytes.len());
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device failed on the way.
    pub fn into_bytes(self) -> Result<Vec<OwnedArray>, DeviceError> {
        self.wait()?;
        let batch = Arc::new(self);
        let arrays = 0..batch.filled().layout().arrays().len();
        Ok(arrays.map(|number| OwnedArray { batch: batch.clone(), number }).collect())
    }
}

impl OwnedArray {
    fn array(&self) -> &crate::batch::Array {
        &self.batch.filled().layout().arrays()[self.number]
    }

    /// Returns its batch, which says what the rows are: its records, mask and step.
    #[must_use]
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Returns its name: that of its field, or `FIELD.offsets` or `FIELD.lengths` for what accompanies a
    /// field of varying length.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.array().name
    }

    /// Returns the type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.array().dtype
    }

    /// Returns its extents, records first.
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.batch.filled().extents(self.array())
    }
}

impl AsRef<[u8]> for OwnedArray {
    fn as_ref(&self) -> &[u8] {
        self.batch.filled().array_bytes(self.array())
    }
}

impl fmt::Debug for OwnedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnedArray({}: {} {})", self.name(), self.dtype(), self.shape())
    }
}
