//! A feed as others see it.

use std::sync::Arc;

use super::Gauges;
use super::progress::Progress;
use crate::feed::stats::Stats;
use crate::order::Plan;
use crate::record::StepId;

/// What can be asked of a feed from anywhere, at any time: see [`Feed::watch`](super::Feed::watch). It keeps
/// neither the feed nor its database open. A feed that [goes elsewhere](super::Feed::seek) has new lanes,
/// which want a new watch.
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
    progress: Arc<[Arc<Progress>]>,
}

impl FeedWatch {
    pub(super) fn new(gauges: &Arc<Gauges>, plan: Option<&Arc<Plan>>, progress: &[Arc<Progress>]) -> Self {
        FeedWatch { gauges: gauges.clone(), plan: plan.cloned(), progress: progress.into() }
    }

    /// What has been done so far, and who waited for whom.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.gauges.read()
    }

    /// Which record comes when, and where to: see [`Feed::plan`](super::Feed::plan).
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_deref()
    }

    /// Where each lane is, in the order of the lanes: the step that it comes to next, after the batch that
    /// its consumer was handed last. Of a feed that goes by no [plan](Self::plan), steps count from 0, all in
    /// epoch 0.
    #[must_use]
    pub fn next_steps(&self) -> Vec<StepId> {
        self.progress.iter().map(|lane| lane.next().1).collect()
    }
}
