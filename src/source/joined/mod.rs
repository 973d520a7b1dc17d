//! Several sources concatenated into one data set.

use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use percolator_files::checksum::crc32c;
use percolator_files::parallel::try_map;

use super::{
    Cursor, Entry, Files, HeldBytes, Identity, IndexPlace, Passes, RecordParts, Run, Source, SourceError,
    SpareBuffers, VerifiesLater,
};
use crate::record::RecordId;

/// A source that concatenates several: the shards that a data set was written in, of any kinds of database.
///
/// Positions count over all of them: the first record of the third source comes after all records of the
/// first two. Each source is a file to an [`AutoShardPolicy`](crate::order::AutoShardPolicy). Empty sources
/// are allowed.
///
/// Every pass has all records of each source. An [`ImageList`](crate::source::ImageList) that [skips
/// lines](crate::source::ImageList::skipping) starts at its first line here.
///
/// If a source cannot be read when it is joined, every feed of the joined one ends with that error: join them
/// again.
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
    /// What names all of them.
    path: PathBuf,
    sources: Vec<Arc<dyn Source>>,
    files: Files,
    /// The sum of their commits before their records were counted: a commit to any of them changes it,
    /// because each only grows.
    commit: Result<Option<u64>, SourceError>,
}

impl Joined {
    /// Creates a data set that begins with this source.
    pub fn new(first: impl Source + 'static) -> Self {
        Joined::of(vec![Arc::new(first)])
    }

    /// Appends a source to the data set.
    #[must_use]
    pub fn and(mut self, next: impl Source + 'static) -> Self {
        self.push(Arc::new(next));
        self.path = self.files.name();
        self
    }

    /// Joins sources in this order. A feed of none has no record.
    #[must_use]
    pub fn of(sources: Vec<Arc<dyn Source>>) -> Self {
        let (path, files) = (PathBuf::new(), Files::of([]));
        let mut joined =
            Joined { path, sources: Vec::with_capacity(sources.len()), files, commit: Ok(Some(0)) };
        sources.into_iter().for_each(|source| joined.push(source));
        joined.path = joined.files.name();
        joined
    }

    /// Appends a source, and accesses no other.
    fn push(&mut self, source: Arc<dyn Source>) {
        if let Ok(sum) = &mut self.commit {
            match source.commit() {
                Ok(commit) => *sum = sum.zip(commit).map(|(sum, commit)| sum.wrapping_add(commit)),
                Err(error) => self.commit = Err(error),
            }
        }
        self.files.push(source.path());
        self.sources.push(source);
        // Its commit comes before its count.
        self.records_of(self.sources.len() - 1);
    }

    /// The number of records in a source, if known. The first answer stays, because positions depend on it.
    fn records_of(&self, number: usize) -> Option<u64> {
        let counted = || Some(self.files.learn(number, self.sources.get(number)?.records()?));
        self.files.records(number).or_else(counted)
    }

    /// The number of records in each source, if all are known.
    fn counts(&self) -> Option<Vec<u64>> {
        (0..self.sources.len()).map(|number| self.records_of(number)).collect()
    }

    /// The sources; a joined one is replaced by its own sources.
    fn leaves(&self) -> Vec<&Arc<dyn Source>> {
        let mut leaves = Vec::new();
        let mut rest: Vec<_> = self.sources.iter().rev().collect();
        while let Some(source) = rest.pop() {
            match source.parts() {
                [] => leaves.push(source),
                parts => rest.extend(parts.iter().rev()),
            }
        }
        leaves
    }

    /// Does work on each leaf, on as many at once as there are processors. The error is that of the first
    /// leaf that has one.
    fn for_each_leaf(
        &self,
        work: impl Fn(&dyn Source) -> Result<(), SourceError> + Sync,
    ) -> Result<(), SourceError> {
        try_map("source", 0, self.leaves(), |leaf| work(&**leaf)).map(drop)
    }

    fn join_cursors(
        &self,
        open: impl Fn(&dyn Source) -> Result<Box<dyn Cursor>, SourceError>,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let spare = Rc::default();
        let open_member = |source: &Arc<dyn Source>| {
            let mut cursor = open(&**source)?;
            cursor.share_buffers(&spare);
            cursor.seek(0)?;
            Ok(Member { cursor, at: 0 })
        };
        let members = self.sources.iter().map(open_member).collect::<Result<Vec<_>, SourceError>>()?;
        let mut begins = Vec::with_capacity(members.len());
        begins.push(0);
        Ok(Box::new(JoinedCursor {
            source: self.clone(),
            members,
            here: 0,
            begins,
            until: Until { number: 0, end: u64::MAX },
        }))
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

    fn paths(&self) -> Vec<PathBuf> {
        self.sources.iter().flat_map(|source| source.paths()).collect()
    }

    fn records(&self) -> Option<u64> {
        let add = |sum: u64, number| Some(sum.saturating_add(self.records_of(number)?));
        (0..self.sources.len()).try_fold(0, add)
    }

    fn identity(&self) -> Identity {
        let parts = (0..).zip(&self.sources);
        parts.fold(Identity::new(), |identity, (number, source): (usize, _)| {
            let mut part = source.identity();
            // A source that cannot be read is an error that its cursor reports.
            if let Ok(mut cursor) = source.cursor()
                && let Ok(Some(first)) = cursor.advance()
            {
                part = part.with_first("record", first.key(), first.value());
            }
            identity.with_part(&format!("database {number}"), &part)
        })
    }

    /// Each pass has all records of each source, from its first record.
    fn passes(&self) -> Passes {
        match self.sources.iter().any(|source| source.passes() == Passes::Shuffled) {
            true => Passes::Shuffled,
            false => Passes::Alike,
        }
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        self.counts()
    }

    fn held_bytes(&self) -> usize {
        self.sources.iter().fold(0, |sum, source| sum.saturating_add(source.held_bytes()))
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.join_cursors(|source| source.cursor())
    }

    fn is_seekable(&self) -> bool {
        self.sources.iter().all(|source| source.is_seekable())
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.for_each_leaf(|source| source.index(place))?;
        self.counts();
        Ok(())
    }

    /// Asks the last source, which is rarely empty.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        if let Some(last) = self.sources.last() {
            last.look_at_last(look);
        }
    }

    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.for_each_leaf(|source| source.count(place))?;
        self.counts();
        Ok(())
    }

    /// The counts stay as they were found, so the relevant commit is the one before counting.
    fn commit(&self) -> Result<Option<u64>, SourceError> {
        self.commit.clone()
    }

    /// Known only if every source has one.
    fn index_checksum(&self) -> Option<u32> {
        let checksums = self.sources.iter().map(|source| source.index_checksum());
        let checksums = checksums.collect::<Option<Vec<u32>>>()?;
        Some(crc32c(&checksums.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>()))
    }

    fn files(&self) -> Files {
        self.files.clone()
    }

    fn parts(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// Those of the first source. A feed checks that the others describe theirs alike.
    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        self.sources.first()?.record_parts()
    }

    fn has_several_lenders(&self) -> bool {
        true
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.join_cursors(|source| source.deferring_cursor(promise.clone()))
    }
}

/// The cursor of one of the sources.
struct Member {
    cursor: Box<dyn Cursor>,
    /// The position in its source of the next record.
    at: u64,
}

/// Reads all sources one after the other.
///
/// # Invariants
///
/// 1. `members[number].at` is the position of that cursor, whichever one is active.
/// 2. `begins` has the positions at which sources begin, starting with the first source, as far as they are
///    known: at least one, and no more than there are sources.
/// 3. All cursors but that of `here` have put their buffers where the next one finds them.
///
/// A step accesses only the source that it is in, so its cost does not grow with their number.
struct JoinedCursor {
    source: Joined,
    members: Vec<Member>,
    /// The source of the last step.
    here: usize,
    begins: Vec<u64>,
    until: Until,
}

/// Where reading ends after the next seek.
#[derive(Clone, Copy, Debug)]
struct Until {
    /// The last source that is read.
    number: usize,
    /// The position in that source.
    end: u64,
}

impl Until {
    /// Tells the cursor of a source that the joined cursor reaches: from a source before the last one,
    /// reading continues.
    fn tell(self, number: usize, cursor: &mut dyn Cursor) {
        match number.cmp(&self.number) {
            Ordering::Less => cursor.reads_until(u64::MAX),
            Ordering::Equal => cursor.reads_until(self.end),
            Ordering::Greater => {}
        }
    }
}

impl JoinedCursor {
    /// The source that a position is in, as far as the beginnings are known, and the position in that source.
    fn find(&mut self, position: u64) -> (usize, u64) {
        while self.begins.len() < self.members.len()
            && let Some(records) = self.source.records_of(self.begins.len() - 1)
        {
            let before = self.begins.last().copied().unwrap_or_default();
            self.begins.push(before.saturating_add(records));
        }
        // Of the sources that begin at the same position, all but the last are empty.
        let number = self.begins.partition_point(|&begin| begin <= position) - 1;
        (number, position - self.begins[number])
    }

    /// Whether a source's cursor is past its last record, as far as the number of records is known.
    fn is_through(&self, number: usize) -> bool {
        self.source.files.records(number) == Some(self.members[number].at)
    }

    /// Moves to the beginning of the next source; `false` if there is none.
    fn go_on(&mut self) -> Result<bool, SourceError> {
        self.check_end()?;
        let next = self.here + 1;
        if next == self.members.len() {
            return Ok(false);
        }
        self.enter(next);
        self.go_to(0)?;
        Ok(true)
    }

    fn enter(&mut self, number: usize) {
        if self.here != number {
            self.members[self.here].cursor.set_aside();
            self.here = number;
            self.until.tell(number, &mut *self.members[number].cursor);
        }
    }

    /// Seeks to a position in the source that the cursor has reached, unless its cursor is there already.
    fn go_to(&mut self, position: u64) -> Result<(), SourceError> {
        let member = &mut self.members[self.here];
        if member.at != position {
            member.cursor.seek(position)?;
            member.at = position;
        }
        Ok(())
    }
}

/// Handles the end of a source after this many records.
fn ended(source: &Joined, number: usize, records: u64) -> Result<(), SourceError> {
    let known = source.files.learn(number, records);
    if known == records {
        return Ok(());
    }
    Err(other_count(&*source.sources[number], records, known, "ends"))
}

/// The error for a source that does not have the records that were counted when it was joined.
fn other_count(source: &dyn Source, index: u64, known: u64, found: &str) -> SourceError {
    let message = match source.records() {
        Some(now) if now != known => format!(
            "the database had {known} records when it was joined, and has {now} now: something has written \
             to it since; join it again when that is done"
        ),
        _ => format!("expected {known} records, but the database {found}"),
    };
    SourceError::Broken { path: source.path().to_owned(), index, message }
}

impl Cursor for JoinedCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        while self.is_through(self.here) {
            if !self.go_on()? {
                return Ok(None);
            }
        }
        let JoinedCursor { source, members, here, until, .. } = self;
        let before = |number: usize| {
            let add = |sum: u64, number| Some(sum.saturating_add(source.files.records(number)?));
            (0..number).try_fold(0, add)
        };
        let first = *here;
        for (number, Member { cursor, at }) in members.iter_mut().enumerate().skip(first) {
            if number > first {
                until.tell(number, &mut **cursor);
                if *at > 0 {
                    cursor.seek(0)?;
                    *at = 0;
                }
            }
            *here = number;
            if let Some(entry) = cursor.advance()? {
                *at += 1;
                // Rare, and only for a list of files that shuffles itself. Others number by place here.
                let own = entry.number().filter(|own| own.saturating_add(1) != *at);
                let of_all = |own: u64| Some(own.saturating_add(before(number)?));
                return Ok(Some(entry.numbered(own.and_then(of_all))));
            }
            // At its end, it has put its buffers where the next one finds them.
            ended(source, number, *at)?;
        }
        Ok(None)
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        loop {
            let number = self.here;
            if !self.is_through(number) {
                self.enter(number);
                if self.members[number].cursor.skip()? {
                    self.members[number].at += 1;
                    return Ok(true);
                }
                ended(&self.source, number, self.members[number].at)?;
            }
            if !self.go_on()? {
                return Ok(false);
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.check_end()?;
        self.enter(0);
        for member in &mut self.members {
            member.cursor.rewind()?;
            member.at = 0;
        }
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        let (number, local) = self.find(position);
        // In the order of a shuffle, another source than the next may follow, or none.
        if (number, local) != (self.here, self.members[self.here].at) {
            self.check_end()?;
        }
        self.enter(number);
        if let Some(records) = self.source.records_of(number) {
            return self.go_to(local.min(records));
        }
        // The source's length is unknown: the position may be past its end.
        if self.members[number].at > local {
            self.go_to(0)?;
        }
        for _ in self.members[number].at..local {
            if !self.skip()? {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> u64 {
        self.members.iter_mut().fold(0, |sum, member| sum.wrapping_add(member.cursor.commit()))
    }

    fn check_end(&mut self) -> Result<(), SourceError> {
        let here = self.here;
        self.members[here].cursor.check_end()?;
        if !self.is_through(here) || !self.members[here].cursor.skip()? {
            return Ok(());
        }
        let known = self.members[here].at;
        Err(other_count(&*self.source.sources[here], known, known, "continues"))
    }

    fn foresee(&mut self, position: u64) {
        let (number, local) = self.find(position);
        self.members[number].cursor.foresee(local);
    }

    fn reads_until(&mut self, position: u64) {
        let (number, local) = self.find(position.saturating_sub(1));
        let is_known = position != u64::MAX;
        let end = if is_known { local.saturating_add(1) } else { u64::MAX };
        self.until = Until { number, end };
        self.until.tell(self.here, &mut *self.members[self.here].cursor);
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        self.members[self.here].cursor.give(id, run)
    }

    fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        for member in &mut self.members {
            member.cursor.share_buffers(spare);
        }
    }

    fn set_aside(&mut self) {
        self.members[self.here].cursor.set_aside();
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        let held = self.members.iter_mut().map(|member| member.cursor.held_bytes(value_bytes));
        held.fold(HeldBytes::default(), |all, one| HeldBytes {
            own: all.own.saturating_add(one.own),
            shared: all.shared.max(one.shared),
        })
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
