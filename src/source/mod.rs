//! Where records are stored: [`Lmdb`], [`LevelDb`], [`TfRecord`], [`ImageList`], several of them [`Joined`],
//! a function ([`FnSource`]), or a type of your own.
//!
//! A [`Source`] is opened once and shared. Each [`Cursor`] reads it independently, in key order or by
//! position, and lends or copies a record's key and value ([`Entry`]). A source does not know what the bytes
//! mean: that is the decoder's part. The crate's own sources also read ahead, defer checksums to the workers,
//! and keep an index of where each record is ([`IndexPlace`]).

mod checksum;
mod entry;
mod error;
mod files;
mod from_fn;
mod held_bytes;
mod identity;
pub(crate) mod image_list;
mod in_memory;
mod index;
pub(crate) mod joined;
mod lenders;
pub mod leveldb;
pub(crate) mod lmdb;
mod opener;
mod page_cache;
pub(crate) mod paired;
mod parts;
pub(crate) mod run;
pub(crate) mod samples;
pub mod tfrecord;

use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::record::RecordId;

pub(crate) use self::checksum::{CHECKSUM_BYTES, UnverifiedTable};
pub use self::checksum::{Verifier, VerifiesLater};
pub(crate) use self::entry::Damage;
pub use self::entry::Entry;
pub use self::error::SourceError;
pub use self::files::Files;
pub use self::from_fn::FnSource;
pub use self::held_bytes::HeldBytes;
pub use self::identity::Identity;
pub(crate) use self::identity::{FIRST, INDEX, LAST};
pub use self::image_list::{ImageList, ImageListError, ListedFile};
pub use self::index::{IndexPlace, PlaceIndex};
pub use self::joined::Joined;
pub(crate) use self::lenders::LENDERS_BYTES;
pub use self::lenders::Lender;
pub use self::leveldb::LevelDb;
pub use self::lmdb::{Lmdb, LmdbError, LmdbOptions};
pub use self::opener::{Opener, WantedFiles};
pub use self::paired::Matching;
pub use self::parts::{Part, PartFault, RecordParts};
pub(crate) use self::run::{COMPANION_BYTES, NUMBER_BYTES, PLACE_BYTES};
pub use self::run::{Record, Run};
pub use self::tfrecord::TfRecord;
pub use percolator_files::{Access, Buffers, SpareBuffers};

/// How far ahead of a cursor its files are read when they are not in memory.
const READ_AHEAD_BYTES: u64 = 64 << 20;

/// The commit of a source that cannot be written to while it is read.
const NOT_WRITTEN: u64 = 0;

/// A source of records, opened for reading.
///
/// A source is cheap to share; each [`Cursor`] reads it independently. Path, records and cursor are all that
/// a source must have; the other methods let it do more: be found by position, name its files, read ahead.
/// A feed asks the crate's own sources nothing beyond them, so a source that wraps another one can pass
/// everything on.
pub trait Source: Send + Sync + fmt::Debug {
    /// The source's path, which names it in messages and in the registry.
    fn path(&self) -> &Path;

    /// All files and folders that it reads, for whoever decides what may be read.
    fn paths(&self) -> Vec<PathBuf> {
        vec![self.path().to_owned()]
    }

    /// The number of records, if known without reading them. A [plan](crate::order::Plan) is made for this
    /// number: if a cursor then has more, or fewer, the feed ends with an error.
    fn records(&self) -> Option<u64>;

    /// Distinguishes this data set from others, and from its own earlier states. A
    /// [`Snapshot`](crate::Snapshot) recognises its data set by this. The path and the modification time are
    /// not part of it: a copy is the same data set. A feed adds the first record.
    fn identity(&self) -> Identity {
        match self.records() {
            Some(records) => Identity::new().with("records", records),
            None => Identity::new(),
        }
    }

    /// How passes over the source differ. Nearly every source has the same records in the same order in each
    /// pass.
    fn passes(&self) -> Passes {
        Passes::Alike
    }

    /// The number of records in each of the consecutive files that make up the source, if known.
    /// [`AutoShardPolicy::File`](crate::order::AutoShardPolicy::File) distributes these files. By default a
    /// source is one file.
    fn file_records(&self) -> Option<Vec<u64>> {
        Some(vec![self.records()?])
    }

    /// Bytes kept in memory outside the page cache, as far as known before a cursor is opened. A feed's
    /// memory budget counts them.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Opens a cursor before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read.
    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError>;

    /// Whether a cursor seeks to any position directly ([`Cursor::seek`]) instead of scanning up to it.
    /// Shuffling a source that has to scan would read most of it for each record.
    fn is_seekable(&self) -> bool {
        false
    }

    /// Makes the source seekable if that takes an index of its records: loads the index from `place`, or
    /// builds it and stores it there, which may take seconds. A source that needs no index, or cannot have
    /// one, stays as it is; [`is_seekable`](Self::is_seekable) tells which. Open cursors use the index from
    /// their next seek on.
    ///
    /// An index that is damaged, or is of another state of the database, is rebuilt; an event reports it.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read, is damaged, has records without positions, or is a
    /// compressed file ([`InOrderAlone`](crate::tfrecord::TfRecordError::InOrderAlone)).
    fn index(&self, _place: &IndexPlace) -> Result<(), SourceError> {
        Ok(())
    }

    /// Makes the number of records known. The source becomes seekable only if that takes its index.
    ///
    /// # Errors
    ///
    /// As [`index`](Self::index).
    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.index(place)
    }

    /// A checksum of the index of the records, if there is an index that stays the same as long as the data
    /// set does.
    fn index_checksum(&self) -> Option<u32> {
        None
    }

    /// The names of the consecutive files that make up the source. Messages name a record's file by them.
    fn files(&self) -> Files {
        Files::of([self.path()])
    }

    /// The sources that it joins, if it has no records of its own. A source that joins it then works with
    /// these, and not with it. None of them may lead back here.
    fn parts(&self) -> &[Arc<dyn Source>] {
        &[]
    }

    /// What finds the named parts in its records, if they have any.
    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        None
    }

    /// Whether neighbouring records may have different [lenders](Lender). If so, holders of several records
    /// reserve room for the lenders.
    fn has_several_lenders(&self) -> bool {
        false
    }

    /// Calls `look` with the key and the value of the last record, if a source that is not seekable reaches
    /// that record directly and can read it.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        let _ = look;
    }

    /// The newest commit to the source: a number that every commit changes, and that stays the same if the
    /// source cannot be written to while it is read. A feed that has counted the records compares this with
    /// the [commit of the cursor](Cursor::commit) that reads them, and ends with [`SourceError::Committed`]
    /// if they differ. `None`, the default, compares nothing. Override this and the cursor's method, or
    /// neither.
    ///
    /// # Errors
    ///
    /// As [`cursor`](Self::cursor).
    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Opens a [cursor](Self::cursor) for a feed, whose workers verify deferred checksums before they use the
    /// values. By default, the cursor verifies everything itself.
    ///
    /// This cursor may leave the values that it lends to their [`Verifier`], without a look at their bytes.
    /// What it copies, it verifies itself. The cursors of [`cursor`](Self::cursor) verify every value before
    /// they return it: whoever reads them verifies nothing.
    ///
    /// A source that wraps another one may pass the promise on if its cursor passes on the entries as they
    /// are, and [`Cursor::give`]. One that reads or changes values leaves this method as it is: nobody has
    /// verified them yet.
    ///
    /// # Errors
    ///
    /// As [`cursor`](Self::cursor).
    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        let _ = promise;
        self.cursor()
    }
}

/// How the passes over a source differ from one another.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Passes {
    /// They do not differ.
    #[default]
    Alike,
    /// The first pass starts after some records: a list with a `rand_skip`. A [plan](crate::order::Plan),
    /// which knows records by position, is not affected; a run in round-robin order cannot be resumed.
    FirstIsShorter,
    /// Each pass has its own order: a list that shuffles itself. No plan can tell which record comes when.
    Shuffled,
}

/// Reads a source in key order, or seeks by position. A cursor stays on the thread that created it.
pub trait Cursor {
    /// Reads the next record; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the record cannot be read. Reading ends there.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError>;

    /// Skips the next record without returning its bytes; `false` past the last one.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    fn skip(&mut self) -> Result<bool, SourceError> {
        Ok(self.advance()?.is_some())
    }

    /// Goes back before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read any more.
    fn rewind(&mut self) -> Result<(), SourceError>;

    /// Seeks to a position: the next step returns the record of that number, counted from 0 in the cursor's
    /// order. Reading then continues from there. Seeking past the end is allowed; [`advance`](Self::advance)
    /// then returns `None`.
    ///
    /// The default implementation takes time proportional to the position: it rewinds and skips all records
    /// before it. A source that can do better ([`Source::is_seekable`]) should override it. So should a
    /// source whose passes differ, because the default rewinds.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance) and [`rewind`](Self::rewind).
    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.rewind()?;
        for _ in 0..position {
            if !self.skip()? {
                break;
            }
        }
        Ok(())
    }

    /// A hint: after its next seek, the cursor reads record by record up to this position and then seeks
    /// elsewhere; `u64::MAX` if it continues. Read-ahead should end there.
    fn reads_until(&mut self, position: u64) {
        let _ = position;
    }

    /// A hint: the cursor will seek to this position soon.
    fn foresee(&mut self, position: u64) {
        let _ = position;
    }

    /// Adds the record of the last step to an empty run, together with the buffer that its value fills, so
    /// that a large value is not copied. A reader asks for it only if the entry says that its value [fills a
    /// buffer](Entry::is_whole), as entries of the crate's own cursors may. The entry's bytes are gone
    /// afterwards. Returns `false` if nothing was added.
    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let _ = (id, run);
        false
    }

    /// The [commit](Source::commit) that the cursor reads.
    fn commit(&mut self) -> u64 {
        NOT_WRITTEN
    }

    /// If the cursor is past the last expected record of one of several [joined](Joined) sources, checks that
    /// this source has no more. A cursor that continues into the next source checks this anyway, and so does
    /// a seek; this is for a reader that stops there.
    ///
    /// # Errors
    ///
    /// [`SourceError::Broken`] if the source has more records.
    fn check_end(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// The cursor uses these buffers instead of new ones. It puts its own there at its end, and when it is
    /// [set aside](Self::set_aside). Called before the first step.
    fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        let _ = spare;
    }

    /// Reading continues in another source: the cursor closes what it has open for read-ahead, and puts its
    /// buffers where the next cursor finds them. The last entry's bytes are gone afterwards. A cursor in the
    /// middle of a compressed file also closes the file.
    fn set_aside(&mut self) {}

    /// The most memory that the cursor keeps outside the page cache, if its values have `value_bytes` bytes.
    /// A feed's memory budget counts it, and asks at the first record.
    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        let _ = value_bytes;
        HeldBytes::default()
    }
}
