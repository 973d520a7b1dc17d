//! What can be changed while a feed runs.

use std::sync::Arc;

use super::budget::MemoryBudget;
use super::config::ConfigError;
use super::error::FeedError;
use super::resolve::THREADS_MAX;
use crate::base::memory_limit::MemoryLimit;
use crate::reader::ReaderWatch;
use crate::workers::Roster;

/// Pauses a feed, or changes the number of its threads, from any thread: see
/// [`Feed::control`](super::Feed::control). It keeps neither the feed nor its database open, and has no
/// effect on a feed that has ended.
///
/// Neither changes a byte of any batch, the order of batches, or what a snapshot or receipt says.
///
/// ```no_run
/// # use percolator::Feed;
/// let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).threads(2).build()?;
/// let control = feed.control();
/// for (number, step) in feed.steps().enumerate() {
///     let batches = step?;
///     if number == 1000 {
///         control.set_threads(control.threads() + 1)?;
///     }
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FeedControl(Arc<Controlled>);

/// The parts of a feed that a control changes.
#[derive(Debug)]
pub(super) struct Controlled {
    pub(super) reader: ReaderWatch,
    pub(super) roster: Arc<Roster>,
    /// The budget of the feed as it was built.
    pub(super) budget: MemoryBudget,
    pub(super) memory_limit: Option<MemoryLimit>,
}

impl FeedControl {
    pub(super) fn new(controlled: Controlled) -> Self {
        FeedControl(Arc::new(controlled))
    }

    /// Stops the reader before its next run of records. Records that were dealt before are still delivered:
    /// at most a ring's batches. Then consumers wait, until the feed is [resumed](Self::resume), cancelled or
    /// dropped.
    pub fn pause(&self) {
        self.0.reader.set_paused(true);
    }

    /// Lets the reader continue with the record at which it was stopped.
    pub fn resume(&self) {
        self.0.reader.set_paused(false);
    }

    /// Whether the feed is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.0.reader.is_paused()
    }

    /// Returns how many worker threads are active now.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.roster.governor().active()
    }

    /// Sets how many worker threads are active from now on, and returns that number. As with
    /// [`FeedBuilder::threads`](super::FeedBuilder::threads), the feed no longer chooses it. Surplus threads
    /// stand by, and keep their memory; missing ones are started. The returned number is the requested one,
    /// unless the feed has ended: then it is the number that there were.
    ///
    /// # Errors
    ///
    /// [`FeedError::Config`] if the number is 0 or too large, or if the memory of more threads is over the
    /// feed's [limit](super::FeedBuilder::memory_limit). [`FeedError::Thread`] if a thread cannot be started.
    /// Then as many stay active as before; threads that were started by then stand by.
    pub fn set_threads(&self, threads: usize) -> Result<usize, FeedError> {
        let option = "threads";
        if threads == 0 {
            return Err(ConfigError::Zero { option }.into());
        }
        if threads > THREADS_MAX {
            return Err(ConfigError::TooMany { option, found: threads, allowed: THREADS_MAX }.into());
        }
        let Controlled { roster, memory_limit, .. } = &*self.0;
        if threads > roster.governor().threads() {
            self.budget_of(threads).check(memory_limit.as_ref())?;
            roster
                .grow(threads)
                .map_err(|error| FeedError::Thread { name: "worker".to_owned(), source: error.into() })?;
        }
        // None is started once the work has ended.
        let threads = threads.min(roster.governor().threads());
        roster.governor().set(threads);
        Ok(threads)
    }

    pub(super) fn memory_budget(&self) -> MemoryBudget {
        self.budget_of(self.0.roster.governor().threads())
    }

    fn budget_of(&self, threads: usize) -> MemoryBudget {
        self.0.budget.with_threads(threads)
    }
}
