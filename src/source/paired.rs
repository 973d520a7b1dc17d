//! Two sources walked in step: an image and its mask, an image and its labels.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::record::Key;

use super::{Cursor, Dealt, Entry, Source, SourceError};

/// What makes a record of one source the companion of a record of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Matching {
    /// Both have the same key. The first difference ends the feed: databases that were written apart are
    /// easily sorted apart.
    #[default]
    Keys,
    /// Both have the same position, whatever their keys.
    Order,
}

/// A source each of whose records has a companion from a second source.
///
/// Both must hold as many records: whichever ends first, the feed ends with an error that says so.
pub(crate) struct Paired {
    first: Arc<dyn Source>,
    second: Arc<dyn Source>,
    matching: Matching,
}

impl Paired {
    pub(crate) fn new(first: Arc<dyn Source>, second: Arc<dyn Source>, matching: Matching) -> Self {
        Paired { first, second, matching }
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

    fn records(&self) -> Option<u64> {
        self.first.records()
    }

    fn held_bytes(&self) -> usize {
        self.first.held_bytes().saturating_add(self.second.held_bytes())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(PairedCursor {
            first: self.first.cursor()?,
            second: self.second.cursor()?,
            paths: [self.first.path().to_owned(), self.second.path().to_owned()],
            matching: self.matching,
            index: 0,
        }))
    }
}

/// The error that one of two sources ended after so many records, and the other did not.
fn unpaired(paths: &[PathBuf; 2], ended: usize, records: u64) -> SourceError {
    let (path, longer) = (paths[ended].clone(), paths[1 - ended].clone());
    SourceError::Unpaired { path, records, longer }
}

struct PairedCursor {
    first: Box<dyn Cursor>,
    second: Box<dyn Cursor>,
    paths: [PathBuf; 2],
    matching: Matching,
    /// The position that both are about to read.
    index: u64,
}

impl Cursor for PairedCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let index = self.index;
        self.index += 1;
        let [path, companions] = &self.paths;
        match (self.first.advance()?, self.second.advance()?) {
            (Some(first), Some(second)) if self.matching == Matching::Keys && first.key() != second.key() => {
                Err(SourceError::KeysDiffer {
                    path: path.clone(),
                    companions: companions.clone(),
                    index,
                    key: Key(first.key().to_owned()),
                    found: Key(second.key().to_owned()),
                })
            }
            (Some(first), Some(second)) => Ok(Some(first.with_companion(second))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(unpaired(&self.paths, 1, index)),
            (None, Some(_)) => Err(unpaired(&self.paths, 0, index)),
        }
    }

    /// Whoever does not read the two need not know that they belong together; but both must be there.
    fn skip(&mut self) -> Result<bool, SourceError> {
        match (self.first.skip()?, self.second.skip()?) {
            (first, second) if first == second => {
                self.index += 1;
                Ok(first)
            }
            (is_longer, _) => Err(unpaired(&self.paths, usize::from(is_longer), self.index)),
        }
    }

    fn drop_behind(&mut self) -> bool {
        let drops = [self.first.drop_behind(), self.second.drop_behind()];
        for (path, _) in self.paths.iter().zip(drops).filter(|&(_, this)| !this && drops.contains(&true)) {
            tracing::warn!(source = %path.display(), "drop_behind has no effect on this one of two sources");
        }
        drops.contains(&true)
    }

    fn dealt(&mut self, dealt: Dealt) {
        self.first.dealt(dealt);
        self.second.dealt(dealt);
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.index = 0;
        self.first.rewind()?;
        self.second.rewind()
    }
}
