//! A rewritten checkpoint: the same tensors, in the same slices, in the same order.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use percolator_files::input_file;
use percolator_files::whole_file::{self, Existing};

use super::{ConvertError, Progress, Summary, checkpoint};
use crate::Checkpoint;
use crate::checkpoint::{CheckpointWriter, Place, Slice, TensorInfo, new_prefix};
use crate::paths::with_suffix;

/// How a checkpoint is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyOptions {
    /// The data files of the copy; by default, as many as the checkpoint has.
    pub shards: Option<usize>,
    /// What becomes of a checkpoint that has the copy's prefix; by default, it is an error.
    pub existing: Existing,
}

/// A tensor that was saved whole, or a slice of one.
struct Piece<'a> {
    tensor: TensorInfo<'a>,
    /// Which of its slices; `None` if it was saved whole.
    slice: Option<&'a Slice>,
    place: Place,
}

/// Writes a checkpoint's tensors to another prefix: the data files have the same bytes in the same order,
/// slices stay slices, and the index is TensorFlow's. So a checkpoint that TensorFlow wrote is copied byte
/// for byte. If `shards` is set, the tensors are distributed again to this many data files, in their order
/// and by their bytes. The graph that a saver of TensorFlow 1 writes beside a checkpoint, a `.meta` file, is
/// copied along; [`Summary::has_graph`] says so.
///
/// Each checksum is verified. One tensor or slice is in memory at a time.
///
/// # Errors
///
/// [`ConvertError`] if tensors share bytes, if one cannot be read or written, or if the prefix is that of the
/// checkpoint itself, also of one that its writer put aside to replace it;
/// [`ConvertError::Exists`] if there are files of another [that stays](CopyOptions::existing). If the graph
/// cannot be copied, the checkpoint is there without it; one that replaced another may have the other's graph
/// beside it.
pub fn copy_checkpoint(
    from: &Checkpoint,
    to: impl AsRef<Path>,
    options: &CopyOptions,
    progress: &Progress,
) -> Result<Summary, ConvertError> {
    let to = to.as_ref();
    let CopyOptions { shards, existing } = *options;
    let count = shards.unwrap_or(from.shards().max(1));
    if checkpoint::replaces(to, count, &checkpoint::paths(from))? {
        return Err(ConvertError::SamePlace { path: to.to_owned() });
    }
    CheckpointWriter::check(to, count, existing)?;
    // Of one that was put aside to be replaced, the graph stayed where it was.
    let own_prefix = new_prefix(from.prefix()).unwrap_or_else(|| from.prefix().to_owned());
    let graph = Graph::open(&own_prefix)?;
    existing.check(&meta_path(to)).map_err(ConvertError::name(&meta_path(to)))?;
    from.check_all_sharing()?;
    for tensor in from.tensors().filter(|tensor| !tensor.is_complete) {
        // The error says which slices are missing.
        from.tensor(tensor.name)?;
    }
    let mut pieces: Vec<Piece<'_>> = from.tensors().flat_map(pieces).collect();
    // A piece without elements starts where the next one does, and comes before it.
    pieces.sort_by_key(|piece| (piece.place.shard, piece.place.offset, piece.place.bytes));
    let weight = |piece: &Piece<'_>| piece.place.bytes.max(1);
    let total = pieces.iter().map(weight).fold(0, u64::saturating_add);
    progress.begin(total);
    let mut writer = CheckpointWriter::create_sharded(to, count)?.existing(existing);
    if graph.is_some() {
        whole_file::check(&meta_path(to)).map_err(ConvertError::write(&meta_path(to)))?;
    }
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
    summary.has_graph = graph.is_some();
    writer.finish_with(|_| Ok(()), || copy_graph(graph, to, existing))?;
    summary.tensors = from.len();
    Ok(summary)
}

/// The graph that a saver of TensorFlow 1 writes beside a checkpoint, open for reading.
struct Graph {
    path: PathBuf,
    file: File,
}

impl Graph {
    /// Opens the graph of a checkpoint, if it has one.
    fn open(prefix: &Path) -> Result<Option<Self>, ConvertError> {
        let path = meta_path(prefix);
        // Opening a link that leads nowhere fails as if nothing were there.
        let is_none = |error: &io::Error| {
            error.kind() == ErrorKind::NotFound && matches!(input_file::is_there(&path), Ok(false))
        };
        match input_file::open(&path) {
            Ok((file, _bytes)) => Ok(Some(Graph { path, file })),
            Err(error) if is_none(&error) => Ok(None),
            Err(error) => Err(ConvertError::read(&path)(error)),
        }
    }
}

fn meta_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".meta")
}

/// Writes a graph beside a checkpoint that was named just now.
fn copy_graph(graph: Option<Graph>, prefix: &Path, existing: Existing) -> Result<(), ConvertError> {
    let to = meta_path(prefix);
    let Some(Graph { path, mut file }) = graph else {
        if existing == Existing::Refuse {
            // One that has appeared since that check is not ours.
            return Ok(());
        }
        // A graph that is there belongs to the checkpoint that was just replaced. If it is a link, others may
        // have what it leads to.
        return match fs::remove_file(&to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(ConvertError::write(&to)),
        };
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(ConvertError::read(&path))?;
    whole_file::write_over(&to, &[&bytes], existing).map_err(ConvertError::name(&to))
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
