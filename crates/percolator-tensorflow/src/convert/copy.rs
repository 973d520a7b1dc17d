//! A checkpoint, written anew: the same tensors, in the same slices, in the same order.

use std::path::Path;

use super::{ConvertError, Progress, Summary, checkpoint};
use crate::Checkpoint;
use crate::checkpoint::{CheckpointWriter, Place, Slice, TensorInfo};

/// A tensor that was saved whole, or a slice of one.
struct Piece<'a> {
    tensor: TensorInfo<'a>,
    /// Which of its slices; `None` if it was saved whole.
    slice: Option<&'a Slice>,
    place: Place,
}

/// Writes a checkpoint's tensors to another prefix: the data files have the same bytes in the same order,
/// slices stay slices, and the index is TensorFlow's. So a checkpoint that TensorFlow wrote is copied byte
/// for byte. With `shards`, the tensors are dealt anew to this many data files, in their order and by their
/// bytes.
///
/// Each checksum is verified. One tensor or slice is in memory at a time.
///
/// # Errors
///
/// [`ConvertError`] if a tensor cannot be read or written, or if the prefix is that of the checkpoint itself.
pub fn copy_checkpoint(
    from: &Checkpoint,
    to: impl AsRef<Path>,
    shards: Option<usize>,
    progress: &Progress,
) -> Result<Summary, ConvertError> {
    let to = to.as_ref();
    let count = shards.unwrap_or(from.shards().max(1));
    if checkpoint::replaces(to, count, &checkpoint::paths(from))? {
        return Err(ConvertError::SamePlace { path: to.to_owned() });
    }
    for tensor in from.tensors().filter(|tensor| !tensor.is_complete) {
        // The error says which slices are missing.
        from.tensor(tensor.name)?;
    }
    let mut pieces: Vec<Piece<'_>> = from.tensors().flat_map(pieces).collect();
    // A piece without elements starts where the next one does, and comes before it.
    pieces.sort_by_key(|piece| (piece.place.shard, piece.place.offset, piece.place.bytes));
    let weight = |piece: &Piece<'_>| piece.place.bytes.max(1);
    let total: u64 = pieces.iter().map(weight).sum();
    progress.begin(total);
    let mut writer = CheckpointWriter::create_sharded(to, count)?;
    let (mut summary, mut done) = (Summary::default(), 0);
    for piece in pieces {
        ConvertError::check(progress)?;
        writer.set_shard(match shards {
            None => piece.place.shard as usize,
            Some(shards) => share(done, total, shards),
        })?;
        let name = piece.tensor.name;
        match piece.slice {
            None => {
                let tensor = from.tensor(name)?;
                writer.add(name, &tensor)?;
                summary.bytes += tensor.byte_length() as u64;
            }
            Some(slice) => {
                let shape = piece.tensor.shape;
                let tensor = from.region(name, &slice.region(shape))?;
                writer.add_slice(name, shape, &slice.extents, &tensor)?;
                summary.bytes += tensor.byte_length() as u64;
            }
        }
        done += weight(&piece);
        progress.add_done(weight(&piece));
    }
    writer.finish()?;
    summary.tensors = from.len();
    Ok(summary)
}

fn pieces(tensor: TensorInfo<'_>) -> impl Iterator<Item = Piece<'_>> {
    let whole = tensor.place.map(|place| Piece { tensor, slice: None, place });
    let slices = tensor.slices.iter();
    let slices = slices.map(move |slice| Piece { tensor, slice: Some(slice), place: slice.place });
    whole.into_iter().chain(slices)
}

/// The data file of the piece before which this much of the total is done.
pub(super) fn share(done: u64, total: u64, shards: usize) -> usize {
    let shard = u128::from(done) * shards as u128 / u128::from(total.max(1));
    usize::try_from(shard).map_or(0, |shard| shard.min(shards.saturating_sub(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_data_file_gets_its_share() {
        let shards: Vec<_> = (0..6).map(|done| share(done, 6, 3)).collect();
        assert_eq!(shards, [0, 0, 1, 1, 2, 2]);
        assert_eq!(share(u64::MAX - 1, u64::MAX, 4), 3);
        assert_eq!(share(0, 0, 1), 0);
    }
}
