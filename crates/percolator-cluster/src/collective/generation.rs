//! One generation of a group, as one of its processes sees it: what it puts, reads and waits for.

use std::sync::Arc;
use std::time::Duration;

use percolator_distribute::CollectiveError;

use super::error::GroupError;
use super::keys::GenerationKeys;
use super::records::{LeftRecord, MarkRecord, PART_BYTES, add_words, part_bytes, parts, read, write};
use crate::metadata::{Lease, LeaseId, Metadata, MetadataError, Outcome, Record, Records, Transaction};
use crate::patience::Deadline;

/// How long what a process brought to its last round stays after it has left, at the least.
const LINGER: Duration = Duration::from_secs(60);
/// And at the most: etcd grants no lease of hundreds of years.
const LINGER_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How often a waiting process checks its own lease.
const LOOK: Duration = Duration::from_secs(5);

/// A generation, and this process's place in it.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) metadata: Arc<dyn Metadata>,
    pub(super) keys: GenerationKeys,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) lease: Lease,
}

/// What a process brought to a round, to be removed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) round: u64,
    pub(super) words: usize,
}

impl From<GroupError> for CollectiveError {
    fn from(error: GroupError) -> Self {
        CollectiveError::Failed(Arc::new(error))
    }
}

impl Generation {
    /// Puts what this process brings to a round, and removes what it brought to an earlier one, which all
    /// have read.
    pub(super) fn enter(
        &self,
        round: u64,
        words: &[u64],
        read_by_all: Option<Entered>,
        deadline: Deadline,
    ) -> Result<(), GroupError> {
        let mut mine = self.parts(round, words);
        let last = mine.pop();
        for (key, bytes) in mine {
            self.change(deadline, |all| all.put_under(self.lease.id(), &*key, &*bytes))?;
        }
        let mark = write(&MarkRecord::of(words));
        self.change(deadline, |mut all| {
            if let Some(old) = read_by_all {
                let part = |part| self.keys.part(old.round, self.rank, part);
                let keys = (0..parts(old.words)).map(part).chain([self.keys.mark(old.round, self.rank)]);
                all = keys.fold(all, Transaction::remove);
            }
            if let Some((key, bytes)) = &last {
                all = all.put_under(self.lease.id(), &**key, &**bytes);
            }
            all.put_under(self.lease.id(), self.keys.mark(round, self.rank), &*mark)
        })
    }

    /// The records of this process's parts of a round.
    fn parts(&self, round: u64, words: &[u64]) -> Vec<(String, Vec<u8>)> {
        let key = |part| self.keys.part(round, self.rank, part);
        part_bytes(words).enumerate().map(|(part, bytes)| (key(part), bytes)).collect()
    }

    /// Makes a change, if this process is still in the generation.
    fn change(
        &self,
        deadline: Deadline,
        change: impl Fn(Transaction) -> Transaction,
    ) -> Result<(), GroupError> {
        let lease = self.lease.id();
        let held = Transaction::new().when_held_by(self.keys.rank(self.rank), lease);
        let transaction = change(held);
        match deadline.patiently(|| self.metadata.transact(&transaction))? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Refused(_) => Err(MetadataError::LeaseExpired { lease }.into()),
        }
    }

    /// Waits until all have entered a round, and returns what they brought.
    pub(super) fn gather(
        &self,
        round: u64,
        mine: &[u64],
        deadline: Deadline,
    ) -> Result<Vec<u64>, CollectiveError> {
        let failed = |error: MetadataError| CollectiveError::from(GroupError::from(error));
        loop {
            let live = deadline.patiently(|| self.metadata.read(&self.keys.live())).map_err(failed)?;
            if let Some(marks) = self.marks(&live, round)? {
                return self.collect(round, mine, &marks, deadline);
            }
            let left = deadline.left();
            if left.is_zero() {
                let missing = self.missing(&live, round).collect();
                return Err(CollectiveError::Late { missing, size: self.size, waited: deadline.patience });
            }
            let wait = || self.metadata.wait(&self.keys.live(), live.revision, left.min(LOOK));
            deadline.patiently(wait).map_err(failed)?;
        }
    }

    /// The ranks that have not entered a round.
    fn missing<'a>(&'a self, live: &'a Records, round: u64) -> impl Iterator<Item = usize> + 'a {
        (0..self.size).filter(move |&rank| live.get(&self.keys.mark(round, rank)).is_none())
    }

    /// What each process brings to a round; none if some are still expected.
    fn marks(&self, live: &Records, round: u64) -> Result<Option<Vec<MarkRecord>>, CollectiveError> {
        let missing: Vec<usize> = self.missing(live, round).collect();
        if missing.is_empty() {
            let marks = (0..self.size).filter_map(|rank| live.get(&self.keys.mark(round, rank)));
            let marks = marks.map(MarkRecord::read).collect::<Result<Vec<_>, _>>()?;
            let wanted = marks.first().map_or(0, |mark| mark.words);
            return match marks.iter().position(|mark| mark.words != wanted) {
                None => Ok(Some(marks)),
                Some(rank) => Err(CollectiveError::Uneven { rank, found: marks[rank].words, wanted }),
            };
        }
        let gone = |rank: &usize| live.get(&self.keys.rank(*rank)).is_none();
        let gone: Vec<usize> = missing.into_iter().filter(gone).collect();
        if gone.contains(&self.rank) {
            let lease = self.lease.id();
            return Err(GroupError::from(MetadataError::LeaseExpired { lease }).into());
        }
        match self.first_of(&gone, live)? {
            Some(left) => Err(left),
            None => Ok(None),
        }
    }

    /// Of those that have gone, the one to name: the first that said why, since others may have left because
    /// of it; or else one that died.
    fn first_of(&self, gone: &[usize], live: &Records) -> Result<Option<CollectiveError>, GroupError> {
        let left = gone.iter().map(|&rank| {
            let record = live.get(&self.keys.left(rank));
            let left: LeftRecord = record.map(read).transpose()?.unwrap_or_default();
            let when = record.map(|record| record.created);
            // One that died has no record, and comes before those that have.
            let order = (left.reason.is_none(), when, rank);
            let reason = left.reason.map(Into::into);
            Ok((order, CollectiveError::Left { rank, size: self.size, reason }))
        });
        let left = left.collect::<Result<Vec<_>, GroupError>>()?;
        Ok(left.into_iter().min_by_key(|(order, _)| *order).map(|(_, left)| left))
    }

    /// The words of a round that all have entered.
    fn collect(
        &self,
        round: u64,
        mine: &[u64],
        marks: &[MarkRecord],
        deadline: Deadline,
    ) -> Result<Vec<u64>, CollectiveError> {
        if parts(mine.len()) == 0 {
            return Ok(marks.iter().flat_map(|mark| mark.inline.iter().copied()).collect());
        }
        let read = |keys: &str| {
            let found = deadline.patiently(|| self.metadata.read(keys));
            found.map_err(|error| CollectiveError::from(GroupError::from(error)))
        };
        // Of many bytes, only one process's at a time are there twice.
        let is_small = size_of_val(mine) * self.size <= 16 * PART_BYTES;
        let together = if is_small { Some(read(&self.keys.data(round))?) } else { None };
        let mut all = Vec::with_capacity(mine.len() * self.size);
        for rank in 0..self.size {
            if rank == self.rank {
                all.extend(mine);
                continue;
            }
            let folder = self.keys.data_of(round, rank);
            let alone = match &together {
                Some(_) => Records::default(),
                None => read(&folder)?,
            };
            let records = &together.as_ref().unwrap_or(&alone).records;
            let start = records.partition_point(|record| record.key < folder);
            let of_it = records[start..].iter().take_while(|record| record.key.starts_with(&folder));
            self.add(&mut all, of_it, rank, mine.len())?;
        }
        Ok(all)
    }

    /// Adds the words of one process.
    fn add<'a>(
        &self,
        all: &mut Vec<u64>,
        records: impl Iterator<Item = &'a Record>,
        rank: usize,
        due: usize,
    ) -> Result<(), CollectiveError> {
        let before = all.len();
        let mut found = 0;
        for record in records {
            found += 1;
            if found > parts(due) {
                break;
            }
            add_words(all, record)?;
        }
        if found < parts(due) {
            // They were there when the round was complete: its lease has ended since then.
            return Err(CollectiveError::Left { rank, size: self.size, reason: None });
        }
        if found > parts(due) || all.len() - before != due {
            let (key, words) = (self.keys.rank(rank), all.len() - before);
            let message = format!("what it brought has {words} words in {found} parts, and states {due}");
            return Err(GroupError::Record { key, message }.into());
        }
        Ok(())
    }

    /// Leaves: says so, and lets stay what this process brought to the last round that all had entered. It
    /// takes back what it brought to one that it gave up.
    pub(super) fn resign(
        &self,
        reason: Option<&str>,
        last: (u64, &[u64]),
        given_up: Option<u64>,
        timeout: Duration,
        deadline: Deadline,
    ) -> Result<(), GroupError> {
        // The others may be in a step, which is as long as a round may take.
        let linger: LeaseId =
            deadline.patiently(|| self.metadata.grant(timeout.clamp(LINGER, LINGER_MAX)))?;
        let left = write(&LeftRecord { reason: reason.map(str::to_owned) });
        let (round, words) = last;
        for (key, bytes) in self.parts(round, words) {
            self.change(deadline, |all| all.put_under(linger, &*key, &*bytes))?;
        }
        let mark = write(&MarkRecord::of(words));
        let given_up = given_up.map(|round| self.keys.mark(round, self.rank));
        self.change(deadline, |all| {
            given_up
                .iter()
                .fold(all, |all, key| all.remove(&**key))
                .put_under(linger, self.keys.mark(round, self.rank), &*mark)
                .put_under(linger, self.keys.left(self.rank), &*left)
                .remove(self.keys.rank(self.rank))
        })
    }
}
