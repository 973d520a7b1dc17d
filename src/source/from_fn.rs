//! A source whose records a function makes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Cursor, Entry, Identity, Source, SourceError};

/// Writes the value of the record at a position into an empty buffer.
type Make = dyn Fn(u64, &mut Vec<u8>) -> Result<(), SourceError> + Send + Sync;

/// A source whose records a function makes: from a custom file format, from a network, from nothing.
///
/// The feed's reader and `build` call the function for positions in any order; several feeds may call it at
/// the same time. It should only fetch bytes, and leave their meaning to a [decoder](crate::RecordDecoder),
/// which runs on all workers. A record's key is its position, in eight digits.
///
/// ```
/// use percolator::{Feed, Tokens};
/// use percolator::source::{FnSource, SourceError};
///
/// let corpus: Vec<u8> = (0..10_000_u16).flat_map(u16::to_le_bytes).collect();
/// let blocks = FnSource::new("corpus", 19, move |position, value| {
///     let start = usize::try_from(position * 1024).map_err(|error| SourceError::other("corpus", error))?;
///     let block = corpus.get(start..start + 1024);
///     value.extend_from_slice(block.ok_or_else(|| SourceError::other("corpus", "it ends within a block"))?);
///     Ok(())
/// });
/// let feed = Feed::builder().source(blocks).decoder(Tokens::u16(512)).batch_size(4).epochs(1).build()?;
/// assert_eq!(feed.records(), Some(19));
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone)]
pub struct FnSource {
    name: PathBuf,
    records: u64,
    make: Arc<Make>,
}

impl FnSource {
    /// Creates a source of `records` records, which messages call `name`. `make` fills an empty buffer with
    /// the value of the record at a position, counted from 0.
    pub fn new(
        name: impl Into<PathBuf>,
        records: u64,
        make: impl Fn(u64, &mut Vec<u8>) -> Result<(), SourceError> + Send + Sync + 'static,
    ) -> Self {
        FnSource { name: name.into(), records, make: Arc::new(make) }
    }
}

impl fmt::Debug for FnSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FnSource")
            .field("name", &self.name)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

impl Source for FnSource {
    fn path(&self) -> &Path {
        &self.name
    }

    fn records(&self) -> Option<u64> {
        Some(self.records)
    }

    fn identity(&self) -> Identity {
        Identity::new().with("records", self.records)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(FnCursor { source: self.clone(), next: 0, key: String::new(), value: Vec::new() }))
    }
}

struct FnCursor {
    source: FnSource,
    next: u64,
    key: String,
    value: Vec<u8>,
}

impl Cursor for FnCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        use std::fmt::Write as _;

        if self.next >= self.source.records {
            return Ok(None);
        }
        self.key.clear();
        let _ = write!(self.key, "{:08}", self.next);
        self.value.clear();
        (self.source.make)(self.next, &mut self.value)?;
        self.next += 1;
        Ok(Some(Entry::borrowed(self.key.as_bytes(), &self.value)))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        let is_there = self.next < self.source.records;
        self.next += u64::from(is_there);
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.next = position;
        Ok(())
    }
}
