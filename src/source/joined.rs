//! Several sources as one data set, one behind the other.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_table::checksum::crc32c;

use super::files::Files;
use super::{Cursor, Dealt, Entry, Identity, IndexPlace, Passes, Run, Source, SourceError, VerifiesLater};
use crate::record::RecordId;

/// A source made of several, one behind the other: the shards that a data set was written in, whatever kinds of
/// database they are.
///
/// A record's position is that over all of them: position `p` of the third is that of its record behind all of the first
/// two. Each of them is a file to an [`AutoShardPolicy`](crate::order::AutoShardPolicy). An empty one among them does no harm.
///
/// Every pass has all records of each: where an [`ImageList`](crate::source::ImageList) is [to begin](crate::source::ImageList::skipping)
/// further down, it begins at its first line.
///
/// ```no_run
/// use percolator::Feed;
/// use percolator::source::{Joined, LevelDb, Lmdb};
///
/// let both = Joined::new(Lmdb::open("train_0_lmdb")?).and(LevelDb::open("train_1_leveldb")?);
/// let feed = Feed::builder().source(both).batch_size(64).build()?;
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone)]
pub struct Joined {
    /// All paths, one behind the other.
    path: PathBuf,
    sources: Vec<Arc<dyn Source>>,
    files: Files,
}

impl Joined {
    /// A data set that begins with this source.
    pub fn new(first: impl Source + 'static) -> Self {
        Joined::of(vec![Arc::new(first)])
    }

    /// The same data set, and behind it this source.
    #[must_use]
    pub fn and(self, next: impl Source + 'static) -> Self {
        let mut sources = self.sources;
        sources.push(Arc::new(next));
        Joined::of(sources)
    }

    pub(crate) fn of(sources: Vec<Arc<dyn Source>>) -> Self {
        let paths: Vec<_> = sources.iter().map(|source| source.path().display().to_string()).collect();
        let files = Files::of(sources.iter().map(|source| source.path()));
        let joined = Joined { path: paths.join(", ").into(), sources, files };
        joined.count();
        joined
    }

    /// How many records one of them has, if that is known. It stays what it was first: positions go by it.
    fn records_of(&self, number: usize) -> Option<u64> {
        let counted = || Some(self.files.learn(number, self.sources.get(number)?.records()?));
        self.files.records(number).or_else(counted)
    }

    /// How many records each has.
    fn count(&self) -> Option<Vec<u64>> {
        (0..self.sources.len()).map(|number| self.records_of(number)).collect()
    }

    fn walk(
        &self,
        open: impl Fn(&dyn Source) -> Result<Box<dyn Cursor>, SourceError>,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let walk = |source: &Arc<dyn Source>| {
            let mut cursor = open(&**source)?;
            cursor.seek(0)?;
            Ok(Walk { cursor, at: 0, stay: Stay::Away })
        };
        let walks = self.sources.iter().map(walk).collect::<Result<Vec<_>, SourceError>>()?;
        let mut begins = Vec::with_capacity(walks.len());
        begins.push(0);
        Ok(Box::new(JoinedCursor { source: self.clone(), walks, here: 0, begins, dealt: Dealt::default() }))
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Joined").field(&self.sources).finish()
    }
}

impl Source for Joined {
    fn path(&self) -> &Path {
        &self.path
    }

    fn records(&self) -> Option<u64> {
        let add = |sum: u64, number| Some(sum.saturating_add(self.records_of(number)?));
        (0..self.sources.len()).try_fold(0, add)
    }

    fn identity(&self) -> Identity {
        let parts = (0..).zip(&self.sources);
        parts.fold(Identity::new(), |identity, (number, source): (usize, _)| {
            let mut part = source.identity();
            // One that cannot be read is an error of the walk's.
            if let Ok(mut cursor) = source.cursor()
                && let Ok(Some(first)) = cursor.advance()
            {
                part = part.with_first("record", first.key(), first.value());
            }
            identity.with_part(&format!("database {number}"), &part)
        })
    }

    /// Each pass has all records of each, from the first one on.
    fn passes(&self) -> Passes {
        match self.sources.iter().any(|source| source.passes() == Passes::Shuffled) {
            true => Passes::Shuffled,
            false => Passes::Alike,
        }
    }

    /// That of the last source, which hardly is empty.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        if let Some(last) = self.sources.last() {
            last.look_at_last(look);
        }
    }

    /// Where all have one.
    fn index_checksum(&self) -> Option<u32> {
        let checksums = self.sources.iter().map(|source| source.index_checksum());
        let checksums = checksums.collect::<Option<Vec<u32>>>()?;
        Some(crc32c(&checksums.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>()))
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        self.count()
    }

    fn files(&self) -> Files {
        self.files.clone()
    }

    fn has_several_lenders(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> usize {
        self.sources.iter().fold(0, |sum, source| sum.saturating_add(source.held_bytes()))
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.walk(|source| source.cursor())
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.walk(|source| source.deferring_cursor(promise.clone()))
    }

    fn is_seekable(&self) -> bool {
        self.sources.iter().all(|source| source.is_seekable())
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.sources.iter().try_for_each(|source| source.index(place))?;
        self.count();
        Ok(())
    }
}

/// A walk over one of the sources.
struct Walk {
    cursor: Box<dyn Cursor>,
    /// The position in its source that its next step comes to.
    at: u64,
    stay: Stay,
}

/// Whether the whole walk is in a source, and what of it may still be in use: it matters where that is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    /// Nothing of it is in use any more.
    Away,
    Here,
    /// The walk has gone on, and the source's own has not been told.
    Left,
    /// It is told how far the runs are, until so many are used as had been begun when the walk went on.
    Until(u64),
}

impl Walk {
    /// Goes to a position, unless it is there.
    fn go_to(&mut self, position: u64) -> Result<(), SourceError> {
        if self.at != position {
            self.cursor.seek(position)?;
            self.at = position;
        }
        Ok(())
    }
}

/// A walk over all of them.
///
/// # Invariants
///
/// 1. `walks[number].at` is where that walk is, whichever one is at work.
/// 2. `begins` has, from the first one on, the positions at which sources begin, as far as they are known: there is one, and
///    no more than sources.
struct JoinedCursor {
    source: Joined,
    walks: Vec<Walk>,
    /// The source that the last step was in.
    here: usize,
    begins: Vec<u64>,
    dealt: Dealt,
}

impl JoinedCursor {
    /// The source that a position lies in, as far as it is known where they begin, and the position in it.
    fn find(&mut self, position: u64) -> (usize, u64) {
        while self.begins.len() < self.walks.len()
            && let Some(records) = self.source.records_of(self.begins.len() - 1)
        {
            let before = self.begins.last().copied().unwrap_or_default();
            self.begins.push(before.saturating_add(records));
        }
        // Of sources that begin at the same position all but the last are empty.
        let number = self.begins.partition_point(|&begin| begin <= position) - 1;
        (number, position - self.begins[number])
    }

    /// Whether the walk over a source is behind its last record, as far as it is known which that is.
    fn is_through(&self, number: usize) -> bool {
        self.source.files.records(number) == Some(self.walks[number].at)
    }

    /// Goes on to the beginning of the next source; `false` if there is none.
    fn go_on(&mut self) -> Result<bool, SourceError> {
        let here = self.here;
        if self.is_through(here) && self.walks[here].cursor.skip()? {
            let known = self.walks[here].at;
            return Err(SourceError::Broken {
                path: self.source.sources[here].path().to_owned(),
                index: known,
                message: format!("the database goes on, and was said to have {known} records,"),
            });
        }
        let next = self.here + 1;
        if next == self.walks.len() {
            return Ok(false);
        }
        self.come_to(next);
        self.walks[next].go_to(0)?;
        Ok(true)
    }

    fn come_to(&mut self, number: usize) {
        if self.here != number {
            self.walks[self.here].stay = Stay::Left;
            self.here = number;
        }
        self.walks[number].stay = Stay::Here;
    }
}

/// A source has come to its end behind so many records.
fn ended(source: &Joined, number: usize, records: u64) -> Result<(), SourceError> {
    let known = source.files.learn(number, records);
    if known == records {
        return Ok(());
    }
    Err(SourceError::Broken {
        path: source.sources[number].path().to_owned(),
        index: records,
        message: format!("the database ends, and was said to have {known} records,"),
    })
}

impl Cursor for JoinedCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        while self.is_through(self.here) {
            if !self.go_on()? {
                return Ok(None);
            }
        }
        let JoinedCursor { source, walks, here, .. } = self;
        let first = *here;
        for (number, Walk { cursor, at, stay }) in walks.iter_mut().enumerate().skip(first) {
            if number > first && *at > 0 {
                cursor.seek(0)?;
                *at = 0;
            }
            (*here, *stay) = (number, Stay::Here);
            if let Some(entry) = cursor.advance()? {
                *at += 1;
                return Ok(Some(entry));
            }
            ended(source, number, *at)?;
            *stay = Stay::Left;
        }
        Ok(None)
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        loop {
            let number = self.here;
            if !self.is_through(number) {
                self.come_to(number);
                if self.walks[number].cursor.skip()? {
                    self.walks[number].at += 1;
                    return Ok(true);
                }
                ended(&self.source, number, self.walks[number].at)?;
            }
            if !self.go_on()? {
                return Ok(false);
            }
        }
    }

    fn drop_behind(&mut self) -> bool {
        let drops: Vec<bool> = self.walks.iter_mut().map(|walk| walk.cursor.drop_behind()).collect();
        let drops_any = drops.contains(&true);
        for (source, _) in self.source.sources.iter().zip(drops).filter(|&(_, this)| drops_any && !this) {
            tracing::warn!(source = %source.path().display(), "drop_behind has no effect on this one of several");
        }
        drops_any
    }

    fn dealt(&mut self, dealt: Dealt) {
        self.walks[self.here].cursor.dealt(dealt);
        if dealt.begun == self.dealt.begun {
            return;
        }
        self.dealt = dealt;
        for Walk { cursor, stay, .. } in &mut self.walks {
            if *stay == Stay::Left {
                cursor.leave();
                *stay = Stay::Until(dealt.begun);
            }
            if let Stay::Until(runs) = *stay {
                cursor.dealt(dealt);
                if runs <= dealt.used {
                    *stay = Stay::Away;
                }
            }
        }
    }

    fn leave(&mut self) {
        self.walks[self.here].stay = Stay::Left;
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.come_to(0);
        for walk in &mut self.walks {
            walk.cursor.rewind()?;
            walk.at = 0;
        }
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        let (number, local) = self.find(position);
        self.come_to(number);
        if let Some(records) = self.source.records_of(number) {
            return self.walks[number].go_to(local.min(records));
        }
        // Nobody knows how far it goes: the position may lie behind it.
        if self.walks[number].at > local {
            self.walks[number].go_to(0)?;
        }
        for _ in self.walks[number].at..local {
            if !self.skip()? {
                break;
            }
        }
        Ok(())
    }

    fn foresee(&mut self, position: u64) {
        let (number, local) = self.find(position);
        self.walks[number].cursor.foresee(local);
    }

    fn goes_on_until(&mut self, position: u64) {
        let (number, local) = self.find(position.saturating_sub(1));
        for walk in &mut self.walks[..number] {
            walk.cursor.goes_on_until(u64::MAX);
        }
        let is_known = position != u64::MAX;
        let end = if is_known { local.saturating_add(1) } else { u64::MAX };
        self.walks[number].cursor.goes_on_until(end);
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        self.walks[self.here].cursor.give(id, run)
    }

    fn held_bytes(&self) -> usize {
        // What is unpacked ahead is shared: each that has begun knows all of it.
        self.walks.iter().map(|walk| walk.cursor.held_bytes()).max().unwrap_or_default()
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::base::offload::NotYet;
    use crate::source::leveldb::LevelDb;

    #[test]
    fn databases_share_what_is_unpacked_ahead_of_the_walk() {
        let open = || {
            let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb/snappy");
            LevelDb::open(data).unwrap()
        };
        let held = |source: &dyn Source, steps: usize| {
            let helpers = Arc::new(NotYet { threads: 4 });
            let mut cursor = source.deferring_cursor(VerifiesLater::promised(Some(helpers))).unwrap();
            for _ in 0..steps {
                cursor.advance().unwrap().unwrap();
            }
            cursor.held_bytes()
        };
        let joined = (1..8).fold(Joined::new(open()), |joined, _| joined.and(open()));
        let (one, eight) = (held(&open(), 1), held(&joined, 1));
        assert!(one < eight && eight < 2 * one, "{one} {eight}");
        let mut records = 0;
        let mut cursor = open().cursor().unwrap();
        while cursor.skip().unwrap() {
            records += 1;
        }
        assert_eq!(held(&joined, 8 * records), eight, "as known at the first record");
    }
}
