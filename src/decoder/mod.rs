//! Decoders turn a record's bytes into its row of a batch.
//!
//! From the first record, a decoder declares which [fields](crate::Field) a batch has; then it writes one
//! record at a time. It is a function of the record and its random numbers. Between records it keeps only a
//! worker's scratch memory, so that neither the order of the records nor the number of threads affects what
//! it writes.
//!
//! No earlier stage (source, reader, plan) knows what a record means, and no later one (batch, device) knows
//! where the record came from.

mod blocks;
mod closure;
mod erased;
pub(crate) mod example;
mod failure;
pub(crate) mod front;
pub(crate) mod image;
pub(crate) mod image_step;
pub(crate) mod labels;
pub(crate) mod parts;
pub(crate) mod target;
pub(crate) mod views;

pub use self::blocks::{RawBytes, Tokens};
pub(crate) use self::closure::Closure;
pub(crate) use self::erased::{ErasedDecoder, ErasedScratch};
pub use self::failure::{DecodeFailure, Decoded};
pub use self::image::image_of;
pub use crate::batch::{RecordCause, RecordError, RecordRandom, Row};
pub use percolator_image::{ImageFileDecoder, Planes};

use crate::batch::field::Field;
use crate::source::Record;

/// Turns records into rows.
///
/// ```
/// use percolator::{DecodeFailure, Dtype, Field, RecordDecoder, Row};
/// use percolator::decoder::Decoded;
/// use percolator::decoder::WorkerSetup;
/// use percolator::source::Record;
///
/// /// A record is a class byte followed by 4 numbers.
/// struct Points;
///
/// impl RecordDecoder for Points {
///     type Scratch = ();
///
///     fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
///         Ok(vec![Field::new("point", Dtype::F32, [4]), Field::scalar("class", Dtype::I64)])
///     }
///
///     fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}
///
///     fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
///         let (&class, numbers) =
///             record.value.split_first().ok_or_else(|| DecodeFailure::new("the record is empty"))?;
///         row.set("class", i64::from(class))?;
///         let point = row.values_mut::<f32>("point")?;
///         if numbers.len() != 4 * point.len() {
///             return Err(DecodeFailure::new(format!("{} bytes are not 4 numbers", numbers.len())));
///         }
///         for (element, bytes) in point.iter_mut().zip(numbers.as_chunks().0) {
///             *element = f32::from_le_bytes(*bytes);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait RecordDecoder: Send + Sync + 'static {
    /// What a worker keeps between records: buffers, but nothing that affects a row.
    type Scratch: 'static;

    /// Declares the fields of a batch, given the first record of the source. They are fixed from then on, and
    /// determine the memory of all batches.
    ///
    /// # Errors
    ///
    /// What is wrong with the record. The feed is then not built; one that goes on after [bad
    /// records](crate::BadRecords) takes the fields from the next record. It does the same if this record
    /// cannot be [decoded](Self::decode).
    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>>;

    /// Creates a worker's scratch memory. Called once on each worker's thread, and once for each record that
    /// is decoded by itself, outside a batch, to see whether it is bad.
    fn scratch(&self, setup: WorkerSetup) -> Self::Scratch;

    /// Writes all fields of a record to its row.
    ///
    /// # Errors
    ///
    /// What is wrong with the record: a function of its bytes. The feed then ends with an error that names
    /// the record, as it does if this panics, or goes on after it as after any [bad
    /// record](crate::BadRecords). A failure that is [not the record's](DecodeFailure::not_of_record) ends
    /// every feed.
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut Self::Scratch) -> Decoded;

    /// Called by a worker that has decoded several records, one after the other, and may now have to wait for
    /// more. Here, a decoder releases anything that it keeps between records and that other workers wait for,
    /// such as a lock; by default there is nothing.
    fn rest(&self, scratch: &mut Self::Scratch) {
        let _ = scratch;
    }

    /// Whether the batches of a feed may have different fields (default: they may). If so, the first record
    /// of each batch is given to [`reshape`](Self::reshape) before a worker decodes it: its lane's thread, of
    /// which there is one, then verifies every batch's first record. A decoder that never reshapes says
    /// `false` and spares the lane that.
    fn may_reshape(&self) -> bool {
        true
    }

    /// Returns the fields of the batch that a record starts, or `None` (the default) if they are those of the
    /// previous batch. Only extents and maxima may change, as the extents of uncropped images do; names,
    /// types and their order stay. Called only if [`may_reshape`](Self::may_reshape) says so.
    ///
    /// # Errors
    ///
    /// What is wrong with the record.
    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        let _ = (first, fields);
        Ok(None)
    }

    /// What the feed's [memory budget](crate::feed::MemoryBudget) should count for one worker's scratch
    /// memory, given the first record. For each part: a label that names the holder and the content, and the
    /// number of bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with the record.
    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        let _ = first;
        Ok(Vec::new())
    }
}

/// The conditions for which a worker's scratch memory is made.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerSetup {
    /// Whether the batches of all lanes together are larger than the caches. If so, writing rows past the
    /// caches is faster.
    pub is_past_caches: bool,
}
