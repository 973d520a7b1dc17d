//! What receipts prove, epoch by epoch, with texts for people.

use std::fmt;
use std::ops::Range;

use percolator::receipt::Digest;

/// The number of ranges of positions that are listed.
const RANGES_MAX: usize = 16;

/// What the receipts of a run prove. [`Verdict::of`] returns one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The epochs that are in a receipt, in order.
    pub epochs: Vec<EpochVerdict>,
    /// Epochs in no receipt, between others that are in one, of which no record can still come. (A
    /// job that resumed another gets that job's rest in its own order, some epochs ahead of others.)
    pub absent_epochs: Vec<Range<u64>>,
    /// Replicas without a receipt.
    pub absent_replicas: Vec<AbsentReplicas>,
}

impl Verdict {
    /// Whether nothing is wrong: each epoch is covered exactly once, or, if it is the last one, still under
    /// way; no receipt is missing; and, if a digest of the data set was given, the bytes of each covered
    /// epoch are proven. Epochs before the first one in the receipts are not checked.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let has_all = self.absent_epochs.is_empty() && self.absent_replicas.is_empty();
        has_all && self.epochs.iter().all(EpochVerdict::is_sound)
    }

    /// The first epoch that was not covered, of this many from 0 on.
    #[must_use]
    pub fn first_not_covered(&self, epochs: u64) -> Option<u64> {
        let covered = self.epochs.iter().filter(|epoch| epoch.state == EpochState::Covered);
        let mut next = 0;
        for epoch in covered {
            if epoch.epoch != next {
                break;
            }
            next += 1;
        }
        (next < epochs).then_some(next)
    }
}

/// The state of an epoch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpochState {
    /// Each record was delivered as often as it is due, unless it was bad: once, or, with
    /// [`AutoShardPolicy::Off`](percolator::order::AutoShardPolicy::Off), once to each worker. What the plan
    /// drops is not due.
    Covered,
    /// It is the last epoch, and its last steps were not given yet. Nothing is wrong so far.
    UnderWay,
    /// Records are missing, came too often, or are not those of the steps that a receipt lists.
    Broken,
}

/// What was found for an epoch.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochVerdict {
    /// The epoch.
    pub epoch: u64,
    /// Its state.
    pub state: EpochState,
    /// How often each record is due.
    pub times: u64,
    /// How many records are due if nothing is dropped.
    pub due: u64,
    /// How many were delivered, including those that came too often.
    pub delivered: u64,
    /// How many the plan leaves out of the epoch by design.
    pub dropped: u64,
    /// How many are still to come, if it is under way.
    pub pending: u64,
    /// What is missing. If the epoch is under way: what is missing from the steps that were skipped.
    pub missing: Positions,
    /// What came too often.
    pub doubled: Positions,
    /// The bad records that the run [left out](percolator::FeedBuilder::bad_records). Their steps came, so
    /// they are not missing.
    pub bad: Positions,
    /// Its steps, if all receipts that have any are of one plan.
    pub steps: Option<GivenSteps>,
    /// The steps that are missing.
    pub missing_steps: Vec<MissingSteps>,
    /// The steps that were given more than once.
    pub doubled_steps: Vec<DoubledSteps>,
    /// The receipts whose records are not those of their steps.
    pub deviations: Vec<Deviation>,
    /// What its records contained, if a [digest](percolator::receipt::DataDigest) of the data set was given.
    pub contents: Option<ContentsVerdict>,
}

impl EpochVerdict {
    fn is_sound(&self) -> bool {
        match &self.contents {
            None | Some(ContentsVerdict::Proven) => self.state != EpochState::Broken,
            // A digest is given as proof, so an epoch that has ended must be proven.
            Some(ContentsVerdict::NotKnown) => self.state == EpochState::UnderWay,
            Some(ContentsVerdict::Differ(_) | ContentsVerdict::NotSaid { .. }) => false,
        }
    }
}

/// What is known about the bytes of an epoch's records.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentsVerdict {
    /// All delivered records contain what the data set does.
    Proven,
    /// Some do not.
    Differ(Vec<ContentsDeviation>),
    /// Some receipts lack the contents of some of their records.
    NotSaid {
        /// The receipts.
        receipts: Vec<String>,
    },
    /// Not all records of the data set were delivered as often as they are due, and the digest has only the
    /// sum over all of them. One with [each record's hash](percolator::receipt::DigestDetail::EachRecord) can
    /// prove more.
    NotKnown,
}

/// Receipts whose bytes differ from the data set's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentsDeviation {
    /// One receipt if each record's hash is known, otherwise all that have records of the epoch.
    pub receipts: Vec<String>,
    /// The digest of the receipts' contents.
    pub found: Digest,
    /// The digest of the same records in the data set.
    pub due: Digest,
}

/// How far an epoch has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenSteps {
    /// The number of steps of the epoch.
    pub of: u64,
    /// The number of steps that all replicas were given, counted from the first.
    pub by_all: u64,
    /// The number of steps that the furthest replica was given.
    pub by_some: u64,
}

/// Positions of records in the data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// How many there are. A position that is missing twice, or came twice too often, counts twice.
    pub count: u64,
    /// The first of them, as ranges.
    pub ranges: Vec<Range<u64>>,
    /// Whether there are more.
    pub has_more: bool,
}

impl Positions {
    /// Adds a position after all others, `times` times.
    pub(crate) fn push(&mut self, position: u64, times: u64) {
        self.count = self.count.saturating_add(times);
        let has_room = self.ranges.len() < RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.end == position && !self.has_more => last.end += 1,
            _ if has_room => self.ranges.push(position..position + 1),
            _ => self.has_more = true,
        }
    }
}

/// `3-5, 9`.
impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, Range { start, end }) in self.ranges.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            match end - start {
                1 => write!(f, "{separator}{start}")?,
                _ => write!(f, "{separator}{start}-{}", end - 1)?,
            }
        }
        f.write_str(if self.has_more { ", and more" } else { "" })
    }
}

/// Replicas without a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentReplicas {
    /// The replicas.
    pub replicas: Range<usize>,
    /// The number of replicas of their job.
    pub of: usize,
}

/// Steps that are in no receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSteps {
    /// The replicas, each of which lacks these steps.
    pub replicas: Range<usize>,
    /// The steps.
    pub steps: Range<u64>,
}

/// Steps that were given more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubledSteps {
    /// The replica that was given them.
    pub replica: usize,
    /// The steps.
    pub steps: Range<u64>,
    /// The receipts that list them.
    pub receipts: Vec<String>,
}

/// A receipt whose records are not those that its plan has for its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The receipt.
    pub receipt: String,
    /// The records, and how many times too often each was delivered; negative for how many times it was not.
    /// `None` if they are too many to be named.
    pub records: Option<Vec<(u64, i64)>>,
}

impl fmt::Display for AbsentReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas = Members(&self.replicas);
        write!(f, "no receipt of {replicas} of {}: give those of all ranks", self.of)
    }
}

impl fmt::Display for MissingSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.steps;
        write!(f, "{}: no receipt has steps {start}..{end}", Members(&self.replicas))
    }
}

impl fmt::Display for DoubledSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DoubledSteps { replica, steps: Range { start, end }, receipts } = self;
        write!(
            f,
            "replica {replica}: steps {start}..{end} were given more than once: {}",
            receipts.join(", ")
        )
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: its records are not those of its steps: ", self.receipt)?;
        let Some(records) = &self.records else { return f.write_str("more than can be named") };
        for (number, (record, times)) in records.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            match times {
                -1 => write!(f, "{separator}not {record}")?,
                1 => write!(f, "{separator}also {record}")?,
                ..=0 => write!(f, "{separator}not {record}, {} times", times.unsigned_abs())?,
                _ => write!(f, "{separator}also {record}, {times} times")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for ContentsDeviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContentsDeviation { receipts, found, due } = self;
        write!(f, "{}: bytes differ from the data set's: digest {found}, expected {due}", receipts.join(", "))
    }
}

/// `replica 3`, or `replicas 3..5`.
struct Members<'a>(&'a Range<usize>);

impl fmt::Display for Members<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            1 => write!(f, "replica {}", self.0.start),
            _ => write!(f, "replicas {}..{}", self.0.start, self.0.end),
        }
    }
}

/// One line, and a further line for each detail.
impl fmt::Display for EpochVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EpochVerdict { epoch, times, due, delivered, dropped, bad, .. } = self;
        write!(f, "epoch {epoch}: ")?;
        match self.state {
            EpochState::Covered => {
                let how_often = if *times == 1 { "once" } else { "once by each worker" };
                write!(
                    f,
                    "covered: {} records, each {how_often}",
                    due.saturating_sub(*dropped).saturating_sub(bad.count) / times
                )?;
            }
            EpochState::UnderWay => {
                write!(f, "under way: ")?;
                if let Some(GivenSteps { of, by_all, by_some }) = self.steps {
                    write!(f, "steps 0..{by_all} of {of}")?;
                    if by_some > by_all {
                        write!(f, " (some replicas 0..{by_some})")?;
                    }
                    write!(f, ", ")?;
                }
                write!(f, "{delivered} of {due} records")?;
            }
            EpochState::Broken => {
                write!(f, "broken: {delivered} records delivered, {due} due")?;
            }
        }
        if *dropped > 0 {
            write!(f, "; {dropped} dropped, as the plan says")?;
        }
        match &self.contents {
            Some(ContentsVerdict::Proven) => write!(f, "; bytes as in the data set")?,
            Some(ContentsVerdict::NotKnown) => {
                write!(f, "; bytes not proven: the digest covers all records together, and not all came")?;
            }
            Some(ContentsVerdict::NotSaid { receipts }) => {
                write!(f, "\n  {}: no content hashes of some records", receipts.join(", "))?;
            }
            Some(ContentsVerdict::Differ(deviations)) => {
                deviations.iter().try_for_each(|deviation| write!(f, "\n  {deviation}"))?;
            }
            None => {}
        }
        let positions =
            [("bad, and left out", bad), ("missing", &self.missing), ("too often", &self.doubled)];
        for (what, positions) in positions {
            if positions.count > 0 {
                write!(f, "\n  {} {what}: {positions}", positions.count)?;
            }
        }
        self.missing_steps.iter().try_for_each(|steps| write!(f, "\n  {steps}"))?;
        self.doubled_steps.iter().try_for_each(|steps| write!(f, "\n  {steps}"))?;
        self.deviations.iter().try_for_each(|deviation| write!(f, "\n  {deviation}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_that_are_too_many_to_count_are_as_many_as_can_be() {
        let mut positions = Positions::default();
        positions.push(3, u64::MAX - 1);
        positions.push(4, 7);
        assert_eq!((positions.count, positions.to_string()), (u64::MAX, "3-4".to_owned()));
    }
}
