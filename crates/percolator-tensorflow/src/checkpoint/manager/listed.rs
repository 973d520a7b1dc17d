//! What a manager resumes from: the list of its folder.

use std::fs;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use crate::checkpoint::state::{StateError, StateFile};
use crate::checkpoint::writer::{ends_in_name, new_prefix};
use crate::paths::folder_of;

/// The list of a folder. Its paths are joined to the folder's, which need not be UTF-8.
#[derive(Debug)]
pub(super) struct Listed {
    /// The latest checkpoint, wherever it is: it is never removed.
    pub(super) latest: PathBuf,
    /// The checkpoints of the folder itself, the oldest first, each with its time of writing if it is listed.
    pub(super) kept: Vec<(PathBuf, Option<f64>)>,
    pub(super) preserved: f64,
    /// Whether an earlier checkpoint is listed at the path at which it is kept while it is replaced.
    pub(super) has_previous: bool,
}

impl Listed {
    /// Reads the list, if there is one.
    pub(super) fn read(state: &StateFile, folder: &Path) -> Result<Option<Self>, StateError> {
        let Some(listed) = state.parsed()? else { return Ok(None) };
        let latest = state.place_of(&listed.model_checkpoint_path);
        let times = listed.all_model_checkpoint_timestamps.into_iter().map(Some);
        let times = times.chain(std::iter::repeat(None));
        let paths = listed.all_model_checkpoint_paths.into_iter().map(|path| folder.join(path));
        // No checkpoint is at a path without a name, and other files must not be taken for its own.
        let kept: Vec<_> = paths.zip(times).filter(|(prefix, _)| ends_in_name(prefix)).collect();
        let is_previous = |prefix: &Path| new_prefix(prefix).is_some();
        let has_previous = is_previous(&latest) || kept.iter().any(|(prefix, _)| is_previous(prefix));
        let kept = of_folder(kept, folder, state.path());
        Ok(Some(Listed { latest, kept, preserved: listed.last_preserved_timestamp, has_previous }))
    }
}

/// Forgets the checkpoints of other folders. The list of a copied folder may name those of the original
/// folder, and an unpacked list anybody's: this manager must not remove them.
fn of_folder<T>(listed: Vec<(PathBuf, T)>, folder: &Path, list: &Path) -> Vec<(PathBuf, T)> {
    let place = |prefix: &Path| fs::canonicalize(folder_of(prefix)).ok();
    let here = place(&folder.join("name"));
    let is_here = |prefix: &Path| prefix.parent() == Some(folder) || here.is_some() && place(prefix) == here;
    let (own, others): (Vec<_>, Vec<_>) = listed.into_iter().partition(|(prefix, _)| is_here(prefix));
    if let Some((first, _)) = others.first() {
        let (list, first, others) = (shown::path(list), shown::path(first), others.len());
        tracing::warn!(
            %list, %first, others,
            "checkpoints of other folders are listed: they are not removed, and no longer listed after a save"
        );
    }
    own
}
