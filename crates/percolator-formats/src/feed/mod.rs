//! Data sets as sources of feeds.
//!
//! ```text
//! Formats -> DataSet -> ShardSource, one a shard   cursor: entries of its records, lent or copied
//!            GrammarParts                         a record's parts, as a decoder takes them
//! msgpack, pairs   LMDBs with other people's records, opened as shards (lmdb)
//! messages   the parts of the records of Percolator's own sources, for whoever looks at them
//! ```

mod cursor;
mod lending;
mod lmdb;
mod messages;
pub(crate) mod msgpack;
pub(crate) mod pairs;
mod parts;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use percolator::source::{
    Cursor, Identity, IndexPlace, Opener, PlaceIndex, RecordParts, Source, SourceError, VerifiesLater,
    WantedFiles,
};
use percolator_files::checksum::crc32c;

use self::cursor::ShardCursor;
use self::lmdb::{format_error, lmdb_of};
pub use self::messages::{parts_of_record, sample_of_record};
use self::parts::GrammarParts;
use crate::{DataSet, FormatError, Options, Seeks, Shard};

/// The commit of a source that cannot be written to while it is read.
const NOT_WRITTEN: u64 = 0;

/// The bytes at either end of a file by which it is recognised.
const RECOGNISED_BYTES: u64 = 512;

/// A shard as a source.
#[derive(Debug)]
struct ShardSource {
    shard: Arc<dyn Shard>,
    parts: Arc<dyn RecordParts>,
    facts: Identity,
    shared: Arc<Shared>,
}

/// What a source and its cursors learn.
#[derive(Debug, Default)]
struct Shared {
    /// The number of records, once it is known. It stays, because plans depend on it.
    records: OnceLock<u64>,
    index: Mutex<Option<(IndexPlace, Arc<PlaceIndex>)>>,
}

/// Opens data of all formats of this package for feeds that name them.
///
/// ```no_run
/// use percolator::Feed;
/// use percolator::example::ExampleImage;
/// use percolator::feed::SourceSpec;
/// use percolator_formats::feed::Formats;
///
/// let image = ExampleImage::encoded("jpg").label("cls");
/// let shards = SourceSpec::files("train-{000000..000099}.tar");
/// let feed = Feed::builder().opener(Formats).data(shards).example(image).batch_size(64).build()?;
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Formats;

impl Opener for Formats {
    fn open(&self, wanted: &WantedFiles<'_>) -> Result<Vec<Arc<dyn Source>>, SourceError> {
        let options = Options {
            access: wanted.access,
            parts: wanted.parts.clone(),
            format: wanted.format.map(str::to_owned),
            settings: wanted.settings.to_vec(),
            within: wanted.is_confined.then(|| wanted.root.to_owned()),
            ..Options::default()
        };
        DataSet::open_below(wanted.root, &[wanted.path], &options).map_err(source_error)?.into_sources()
    }
}

impl DataSet {
    /// The shards as sources, in order.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no shard, or one cannot be read.
    pub fn into_sources(self) -> Result<Vec<Arc<dyn Source>>, SourceError> {
        let Some(grammar) = self.grammar() else {
            return Err(SourceError::other("", "there is no shard in the data set"));
        };
        let parts: Arc<dyn RecordParts> = Arc::new(GrammarParts::new(grammar, self.shards())?);
        let source = |shard: &Arc<dyn Shard>| -> Result<Arc<dyn Source>, SourceError> {
            let facts = facts(&self, &**shard)?;
            let shared = Arc::new(Shared::default());
            if let Some(records) = shard.records() {
                shared.records.get_or_init(|| records);
            }
            let (shard, parts) = (Arc::clone(shard), Arc::clone(&parts));
            Ok(Arc::new(ShardSource { shard, parts, facts, shared }))
        };
        self.shards().iter().map(source).collect()
    }
}

/// How a shard is recognised: by the settings that decide what its records are, the lengths of its files, and
/// a checksum of their ends. Their names are not part of it, because a copy is the same data set.
fn facts(data: &DataSet, shard: &dyn Shard) -> Result<Identity, SourceError> {
    let mut facts = Identity::new().with("kind", data.format());
    for (name, value) in data.settings() {
        facts = facts.with("setting", format_args!("{name}={value}"));
    }
    for path in shard.files() {
        let io = |error| source_error(FormatError::io(&path, "read the file", error));
        let file = File::open(&path).map_err(io)?;
        let found = file.metadata().map_err(io)?;
        if found.is_dir() {
            continue;
        }
        let mut ends = vec![0; usize::try_from(found.len().min(RECOGNISED_BYTES)).unwrap_or_default()];
        file.read_exact_at(&mut ends, 0).map_err(io)?;
        let head = crc32c(&ends);
        file.read_exact_at(&mut ends, found.len().saturating_sub(RECOGNISED_BYTES)).map_err(io)?;
        facts = facts.with("file", format_args!("{} bytes, {head:08x} {:08x}", found.len(), crc32c(&ends)));
    }
    Ok(match shard.records() {
        Some(records) => facts.with("records", records),
        None => facts,
    })
}

/// The file that has the records of an LMDB.
fn data_file_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("data.mdb") } else { path.to_owned() }
}

/// The error as a source reports it.
fn source_error(error: FormatError) -> SourceError {
    match error {
        FormatError::Io { file, action, cause } => SourceError::Io {
            path: file,
            action,
            message: cause.to_string(),
            kind: cause.kind(),
            code: cause.raw_os_error(),
        },
        FormatError::Damaged { file, at, what } | FormatError::Refused { file, at, what } => {
            let at = at.to_string();
            let place = at.strip_prefix(", ").map(|at| format!("{at}: ")).unwrap_or_default();
            SourceError::other(file, format!("{place}{what}"))
        }
    }
}

impl ShardSource {
    fn index_of(&self) -> Option<Arc<PlaceIndex>> {
        self.shared.index.lock().as_ref().map(|(_, index)| Arc::clone(index))
    }

    fn cursor_of(&self) -> Result<ShardCursor, SourceError> {
        ShardCursor::new(&self.shard, &self.shared)
    }

    /// The places of all records, found by a pass.
    fn walk(&self) -> Result<Vec<[u64; 2]>, SourceError> {
        let mut cursor = Arc::clone(&self.shard).cursor().map_err(source_error)?;
        let mut places = Vec::new();
        while let Some(place) = cursor.skip().map_err(source_error)? {
            places.push(place);
        }
        Ok(places)
    }

    fn make_index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        let mut known = self.shared.index.lock();
        if known.as_ref().is_some_and(|(kept, _)| kept == place) {
            return Ok(());
        }
        let path = self.shard.path();
        let index = PlaceIndex::find_or_build(path, self.facts.clone(), place, || self.walk())?;
        self.shared.learn(path, index.records())?;
        *known = Some((place.clone(), Arc::new(index)));
        Ok(())
    }
}

impl Shared {
    /// Stores the number of records. The first number stays; another one is an error.
    fn learn(&self, path: &Path, records: u64) -> Result<(), SourceError> {
        let known = *self.records.get_or_init(|| records);
        if known == records {
            return Ok(());
        }
        let message = format!(
            "expected {known} records, but there are {records}: the data set has changed; read it again, \
             and if that does not help, remove its record index"
        );
        Err(SourceError::Broken { path: path.to_owned(), index: records.min(known), message })
    }
}

impl Source for ShardSource {
    fn path(&self) -> &Path {
        self.shard.path()
    }

    fn records(&self) -> Option<u64> {
        self.shared.records.get().copied()
    }

    fn identity(&self) -> Identity {
        self.facts.clone()
    }

    fn held_bytes(&self) -> usize {
        self.index_of().map_or(0, |index| index.held_bytes())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(self.cursor_of()?))
    }

    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.cursor()
    }

    fn is_seekable(&self) -> bool {
        match self.shard.seeks() {
            Seeks::ByPosition => true,
            Seeks::ByPlace => self.index_of().is_some(),
            Seeks::InOrder(_) => false,
        }
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        match self.shard.seeks() {
            Seeks::ByPosition => Ok(()),
            Seeks::ByPlace => self.make_index(place),
            Seeks::InOrder(why) => Err(SourceError::NoPositions {
                path: self.shard.path().to_owned(),
                found: why.to_owned(),
                hint: "read it in order, or convert it once",
            }),
        }
    }

    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        if self.records().is_some() {
            return Ok(());
        }
        self.make_index(place)
    }

    fn index_checksum(&self) -> Option<u32> {
        self.index_of().map(|index| index.checksum())
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.shard.files()
    }

    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        Some(Arc::clone(&self.parts))
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(NOT_WRITTEN))
    }
}
