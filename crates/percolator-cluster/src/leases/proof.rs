//! What the workers of a job have delivered, and what that proves.

use std::collections::BTreeSet;

use percolator::Receipt;
use percolator::receipt::DataDigest;
use percolator_proof::Verdict;

use super::error::LeaseError;
use super::job::{Job, JobStatus};

/// What counts of a job's epochs.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct JobAccount {
    /// How many epochs are done, from the first on.
    pub done: u64,
    /// The receipts of those epochs, each with a name.
    pub receipts: Vec<(String, Receipt)>,
    /// The epochs from there on of which blocks were opened and are not done, in order, and the one of which
    /// the next block is. One that is missing between two of them is done.
    pub under_way: Vec<EpochUnderWay>,
    /// Whether a worker has seen that the metadata were set back to a copy: steps that count once may have
    /// been trained on more often.
    pub was_set_back: bool,
}

/// An epoch of which blocks were opened and are not done, or of which the next block is.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochUnderWay {
    /// The epoch.
    pub epoch: u64,
    /// How many of its blocks are done.
    pub done: u64,
    /// How many of them workers have.
    pub held: u64,
    /// How many it has.
    pub blocks: u64,
}

/// What the receipts of a job prove.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobVerdict {
    /// How many epochs are done, from the first on.
    pub done: u64,
    /// What is proven of them.
    pub verdict: Verdict,
    /// The epochs after them, of which nothing is said yet.
    pub under_way: Vec<EpochUnderWay>,
    /// Whether the metadata were set back: see [`JobAccount::was_set_back`].
    pub was_set_back: bool,
}

impl JobVerdict {
    /// Whether each epoch that is done had every record once, and nothing else is wrong with it: the metadata
    /// were not set back, either.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        !self.was_set_back && self.verdict.is_sound() && self.verdict.first_not_covered(self.done).is_none()
    }
}

impl JobStatus {
    /// Returns how many epochs are done, from the first on, and those from there on that are under way.
    #[must_use]
    pub fn epochs_by_state(&self) -> (u64, Vec<EpochUnderWay>) {
        let blocks = self.blocks_per_epoch;
        // Only the epochs that have open blocks: the records may say that there are any number between them.
        let begun: BTreeSet<u64> =
            self.open.iter().map(|open| open.block.epoch).chain([self.next.epoch]).collect();
        let done = begun.first().copied().unwrap_or_default();
        let under_way = begun.into_iter().map(|epoch| {
            let of_epoch = || self.open.iter().filter(move |open| open.block.epoch == epoch);
            let (open, held) =
                (of_epoch().count(), of_epoch().filter(|open| !open.holders.is_empty()).count());
            let opened = if epoch < self.next.epoch { blocks } else { self.next.number };
            EpochUnderWay { epoch, done: opened.saturating_sub(open as u64), held: held as u64, blocks }
        });
        let is_begun = |epoch: &EpochUnderWay| epoch.epoch < self.next.epoch || self.next.number > 0;
        (done, under_way.filter(is_begun).collect())
    }
}

impl Job {
    /// Returns what counts of the epochs that are done.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read.
    pub fn account(&self) -> Result<JobAccount, LeaseError> {
        // In this order: what is done stays so.
        let status = self.status()?;
        let (done, under_way) = status.epochs_by_state();
        let receipts = self.receipts_of(|epoch| epoch < done)?;
        // They are not those of a later job of the name.
        self.check()?;
        Ok(JobAccount { done, receipts, under_way, was_set_back: status.was_set_back })
    }

    /// Judges what the workers have delivered: whether each epoch that is done had every record once. With
    /// the digest of a data set (its name and itself), also whether the bytes were the right ones.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read, or the receipts are not of one run.
    pub fn verdict(&self, digest: Option<(&str, &DataDigest)>) -> Result<JobVerdict, LeaseError> {
        let JobAccount { done, receipts, under_way, was_set_back } = self.account()?;
        let named = receipts.iter().map(|(name, receipt)| (name.as_str(), receipt));
        let verdict = match digest {
            // What is missing is found by the number of epochs that are done.
            _ if receipts.is_empty() => {
                Verdict { epochs: Vec::new(), absent_epochs: Vec::new(), absent_replicas: Vec::new() }
            }
            None => Verdict::of(named)?,
            Some(digest) => Verdict::with_digest(digest, named)?,
        };
        Ok(JobVerdict { done, verdict, under_way, was_set_back })
    }
}
