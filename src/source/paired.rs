//! Two sources read in step: an image and its mask, an image and its labels.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use super::{
    Cursor, Entry, Files, HeldBytes, Identity, IndexPlace, Passes, Source, SourceError, SpareBuffers,
    VerifiesLater,
};
use crate::record::Key;

/// What makes a record of one source the companion of a record of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Matching {
    /// Both have the same key. The first mismatch ends the feed: databases that were written separately are
    /// easily ordered differently.
    #[default]
    Keys,
    /// Both have the same position, whatever their keys.
    Order,
}

/// A source whose records each have a companion from a second source.
///
/// Both must have the same number of records. If one ends first, the feed ends with an error that names it.
pub(crate) struct Paired {
    first: Arc<dyn Source>,
    second: Arc<dyn Source>,
    matching: Matching,
}

impl Paired {
    pub(crate) fn new(first: Arc<dyn Source>, second: Arc<dyn Source>, matching: Matching) -> Self {
        Paired { first, second, matching }
    }

    /// Checks that both have the same number of records, as far as both are known.
    pub(crate) fn check_counts(&self) -> Result<(), SourceError> {
        let (Some(first), Some(second)) = (self.first.records(), self.second.records()) else {
            return Ok(());
        };
        let [first_path, second_path] = [&self.first, &self.second].map(|source| source.path().to_owned());
        match first.cmp(&second) {
            Ordering::Equal => Ok(()),
            Ordering::Less => {
                Err(SourceError::Unpaired { path: first_path, records: first, longer: second_path })
            }
            Ordering::Greater => {
                Err(SourceError::Unpaired { path: second_path, records: second, longer: first_path })
            }
        }
    }
}

impl fmt::Debug for Paired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paired").field("first", &self.first).field("second", &self.second).finish()
    }
}

impl Source for Paired {
    fn path(&self) -> &Path {
        self.first.path()
    }

    fn paths(&self) -> Vec<PathBuf> {
        [&self.first, &self.second].into_iter().flat_map(|source| source.paths()).collect()
    }

    fn records(&self) -> Option<u64> {
        self.first.records()
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        self.first.file_records()
    }

    fn held_bytes(&self) -> usize {
        self.first.held_bytes().saturating_add(self.second.held_bytes())
    }

    fn is_seekable(&self) -> bool {
        self.first.is_seekable() && self.second.is_seekable()
    }

    fn identity(&self) -> Identity {
        Identity::new()
            .with_part("first", &self.first.identity())
            .with_part("second", &self.second.identity())
    }

    fn passes(&self) -> Passes {
        self.first.passes().max(self.second.passes())
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.first.index(place)?;
        self.second.index(place)?;
        // Some sources know their count only after indexing.
        self.check_counts()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(self.pair(self.first.cursor()?, self.second.cursor()?))
    }

    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.first.count(place)?;
        self.second.count(place)?;
        self.check_counts()
    }

    fn files(&self) -> Files {
        self.first.files()
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        let commits = self.first.commit()?.zip(self.second.commit()?);
        Ok(commits.map(|(first, second)| first.wrapping_add(second)))
    }

    fn has_several_lenders(&self) -> bool {
        self.first.has_several_lenders() || self.second.has_several_lenders()
    }

    /// Only values are left to the caller: the contents of two blocks are compared, so each is verified
    /// first.
    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        let promise = promise.of_values();
        let first = self.first.deferring_cursor(promise.clone())?;
        Ok(self.pair(first, self.second.deferring_cursor(promise)?))
    }
}

impl Paired {
    fn pair(&self, first: Box<dyn Cursor>, second: Box<dyn Cursor>) -> Box<dyn Cursor> {
        Box::new(PairedCursor {
            first,
            second,
            names: Names {
                paths: [self.first.path().to_owned(), self.second.path().to_owned()],
                files: [self.first.files(), self.second.files()],
                records: [self.first.records(), self.second.records()],
            },
            matching: self.matching,
            index: 0,
            bytes: [0; 2],
        })
    }
}

/// What messages need to know about the two sources.
struct Names {
    paths: [PathBuf; 2],
    /// The files of each.
    files: [Files; 2],
    /// The number of records that each declares.
    records: [Option<u64>; 2],
}

impl Names {
    /// The error for a position at which `ended` has no record and the other source has.
    fn unpaired(&self, ended: usize, index: u64) -> SourceError {
        let (path, longer) = (self.paths[ended].clone(), self.paths[1 - ended].clone());
        // A seek may have gone past the end of the source.
        let records = self.records[ended].map_or(index, |records| records.min(index));
        SourceError::Unpaired { path, records, longer }
    }
}

struct PairedCursor {
    first: Box<dyn Cursor>,
    second: Box<dyn Cursor>,
    names: Names,
    matching: Matching,
    /// The position that both cursors read next.
    index: u64,
    /// The lengths of the last two values.
    bytes: [usize; 2],
}

impl Cursor for PairedCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let index = self.index;
        self.index += 1;
        match (self.first.advance()?, self.second.advance()?) {
            (Some(first), Some(second)) if self.matching == Matching::Keys && first.key() != second.key() => {
                // Data that were overwritten in the meantime look different.
                first.check_used()?;
                second.check_used()?;
                let [path, companions] = &self.names.files;
                Err(SourceError::KeysDiffer {
                    path: path.path_of(index).to_owned(),
                    companions: companions.path_of(index).to_owned(),
                    index,
                    key: Key(first.key().to_owned()),
                    found: Key(second.key().to_owned()),
                })
            }
            (Some(first), Some(second)) => {
                self.bytes = [first.value().len(), second.value().len()];
                Ok(Some(first.with_companion(second)))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(self.names.unpaired(1, index)),
            (None, Some(_)) => Err(self.names.unpaired(0, index)),
        }
    }

    /// A skipped pair is not compared, but both records must exist.
    fn skip(&mut self) -> Result<bool, SourceError> {
        match (self.first.skip()?, self.second.skip()?) {
            (first, second) if first == second => {
                self.index += 1;
                Ok(first)
            }
            (is_longer, _) => Err(self.names.unpaired(usize::from(is_longer), self.index)),
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.index = 0;
        self.first.rewind()?;
        self.second.rewind()
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.index = position;
        self.first.seek(position)?;
        self.second.seek(position)
    }

    fn commit(&mut self) -> u64 {
        self.first.commit().wrapping_add(self.second.commit())
    }

    fn check_end(&mut self) -> Result<(), SourceError> {
        self.first.check_end()?;
        self.second.check_end()
    }

    fn reads_until(&mut self, position: u64) {
        self.first.reads_until(position);
        self.second.reads_until(position);
    }

    fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.first.share_buffers(spare);
        self.second.share_buffers(spare);
    }

    fn set_aside(&mut self) {
        self.first.set_aside();
        self.second.set_aside();
    }

    fn held_bytes(&mut self, _value_bytes: usize) -> HeldBytes {
        let [first, second] = self.bytes;
        let (first, second) = (self.first.held_bytes(first), self.second.held_bytes(second));
        HeldBytes {
            own: first.own.saturating_add(second.own),
            shared: first.shared.saturating_add(second.shared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::image_list::ImageList;

    /// Two lists whose file names are the keys.
    fn pair(first: &[&str], second: &[&str], matching: Matching) -> (tempfile::TempDir, Paired) {
        let folder = tempfile::tempdir().unwrap();
        let list = |name: &str, files: &[&str]| -> Arc<dyn Source> {
            for file in files {
                std::fs::write(folder.path().join(file), file).unwrap();
            }
            let path = folder.path().join(name);
            std::fs::write(&path, files.iter().map(|file| format!("{file} 1\n")).collect::<String>())
                .unwrap();
            Arc::new(ImageList::open(path).unwrap().relative_to(folder.path()))
        };
        let (first, second) = (list("first.txt", first), list("second.txt", second));
        (folder, Paired::new(first, second, matching))
    }

    #[test]
    fn both_of_a_pair_seek_to_a_position() {
        let (_folder, pair) = pair(&["a", "b", "c", "d"], &["a", "b", "x", "d"], Matching::Keys);
        pair.index(&IndexPlace::Memory).unwrap();
        assert!(pair.is_seekable());
        let mut cursor = pair.cursor().unwrap();
        for position in [3, 1, 3] {
            cursor.seek(position).unwrap();
            let entry = cursor.advance().unwrap().unwrap();
            assert_eq!(entry.key(), [b"a", b"b", b"c", b"d"][usize::try_from(position).unwrap()]);
            assert!(entry.companion().unwrap().ends_with(entry.key()));
        }
        cursor.seek(2).unwrap();
        let error = cursor.advance().unwrap_err();
        assert!(matches!(error, SourceError::KeysDiffer { index: 2, .. }), "{error}");
        cursor.seek(4).unwrap();
        assert!(cursor.advance().unwrap().is_none());
    }

    #[test]
    fn the_shorter_of_a_pair_is_reported_with_its_length_after_any_seek() {
        let (folder, pair) = pair(&["a", "b"], &["a", "b", "c", "d", "e", "f"], Matching::Order);
        let mut cursor = pair.cursor().unwrap();
        cursor.seek(4).unwrap();
        let error = cursor.advance().unwrap_err();
        let path = folder.path().join("first.txt");
        let longer = folder.path().join("second.txt");
        assert_eq!(error, SourceError::Unpaired { path, records: 2, longer });
    }
}
