//! Where a conversion is, in a file beside what it has written.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use percolator_files::{input_file, whole_file};
use serde::{Deserialize, Serialize};

use super::maker::Size;
use crate::store::{Mark, STATE, StoreError};

/// Far more than a state has.
const BYTES_MAX: u64 = 64 << 20;

/// The state of a conversion after a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// Facts about the conversion. One with other facts does not go on with it.
    pub(super) about: BTreeMap<String, String>,
    /// The number of the next item.
    pub(super) next: u64,
    /// The output that is being written, and how far it is. Those before it are whole.
    pub(super) shard: u32,
    pub(super) mark: Option<Mark>,
    /// The records written, and the bytes of their values.
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The items skipped, and the bytes of the list of them.
    pub(super) skipped: u64,
    pub(super) skipped_bytes: u64,
    /// The size of the first image.
    pub(super) size: Option<Size>,
}

impl State {
    /// Reads the state of a conversion that is to be resumed; `None` if it has not committed anything.
    pub(super) fn load(folder: &Path, about: &BTreeMap<String, String>) -> Result<Option<Self>, StoreError> {
        let path = folder.join(STATE);
        let changed = |found| StoreError::Changed { path: path.clone(), found };
        let text = match input_file::read(&path, BYTES_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io(&path, "read the state")(error)),
        };
        let state: State = serde_json::from_slice(&text)
            .map_err(|error| changed(format!("the state cannot be read: {error}")))?;
        match about.iter().find(|(name, fact)| state.about.get(*name) != Some(fact)) {
            None => Ok(Some(state)),
            Some((name, wanted)) => {
                let none = String::new();
                let found = state.about.get(name).unwrap_or(&none);
                Err(changed(format!(
                    "the run that did not finish was another: its {name}: {found}; this one's: {wanted}"
                )))
            }
        }
    }

    /// Refuses a state that no run of this conversion leaves, before anything is done with it, because later
    /// counts start from its numbers.
    pub(super) fn check(&self, folder: &Path, items: Option<u64>, shards: u32) -> Result<(), StoreError> {
        let State { next, records, skipped, shard, .. } = self;
        let found = if records.checked_add(*skipped) != Some(*next) {
            format!("the state has {records} records and {skipped} skipped items, but {next} items in all")
        } else if let Some(items) = items.filter(|items| next > items) {
            format!("the state has {next} items, of {items}")
        } else if *shard >= shards {
            format!("the state is of output number {shard}, counted from 0, of {shards}")
        } else if self.mark.is_none() {
            "the state does not say how far the output is".to_owned()
        } else {
            return Ok(());
        };
        Err(StoreError::Changed { path: folder.join(STATE), found })
    }

    pub(super) fn save(&self, folder: &Path) -> Result<(), StoreError> {
        let path = folder.join(STATE);
        let text = serde_json::to_vec(self).map_err(io::Error::other);
        text.and_then(|text| whole_file::write(&path, &[&text]))
            .map_err(StoreError::io(&path, "save the state"))
    }
}
