//! A feed as observed from outside.

use std::sync::Arc;

use super::Gauges;
use super::budget::MemoryBudget;
use super::progress::LaneProgress;
use crate::feed::stats::Stats;
use crate::order::Plan;
use crate::record::StepId;

/// Reports on a feed from any thread, at any time: see [`Feed::watch`](super::Feed::watch). It keeps neither
/// the feed nor its database open. A feed that [seeks](super::Feed::seek) has new lanes, and needs a new
/// watch.
///
/// ```no_run
/// # use percolator::Feed;
/// let mut feed = Feed::builder().lmdb("ilsvrc12_train_lmdb").batch_size(64).epochs(1).build()?;
/// let watch = feed.watch();
/// for (number, step) in feed.steps().enumerate() {
///     let batches = step?;
///     if number % 1000 == 0 {
///         println!("{:?}: {}", watch.next_steps(), watch.stats());
///     }
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FeedWatch {
    gauges: Arc<Gauges>,
    plan: Option<Arc<Plan>>,
    progress: Arc<[Arc<LaneProgress>]>,
}

impl FeedWatch {
    pub(super) fn new(
        gauges: &Arc<Gauges>,
        plan: Option<&Arc<Plan>>,
        progress: &[Arc<LaneProgress>],
    ) -> Self {
        FeedWatch { gauges: gauges.clone(), plan: plan.cloned(), progress: progress.into() }
    }

    /// Returns what has been done so far, and who waited for whom.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.gauges.read()
    }

    /// Returns the memory that the feed uses, holder by holder: see
    /// [`Feed::memory_budget`](super::Feed::memory_budget). It includes [threads](super::FeedControl) that
    /// were added while the feed runs.
    #[must_use]
    pub fn memory_budget(&self) -> MemoryBudget {
        self.gauges.control.memory_budget()
    }

    /// Whether the feed is [paused](super::FeedControl::pause).
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.gauges.control.is_paused()
    }

    /// Whether all lanes of the feed have ended, or were dropped: nothing more is
    /// delivered.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.gauges.clock.has_ended()
    }

    /// Returns which record comes when, and to which replica: see [`Feed::plan`](super::Feed::plan).
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_deref()
    }

    /// Returns where each lane is, in the order of the lanes: the next step, after the batch that was last
    /// handed to its consumer. If the feed follows no [plan](Self::plan), steps count from 0, and all are in
    /// epoch 0.
    #[must_use]
    pub fn next_steps(&self) -> Vec<StepId> {
        self.progress.iter().map(|lane| lane.next().1).collect()
    }
}
