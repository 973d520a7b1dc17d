//! The feed of a loader, between epochs and within one.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use percolator::feed::{FeedHandle, ResolvedFeed};
use percolator::order::OrderError;
use percolator::record::StepId;
use percolator::{Feed, FeedBuilder, FeedError};

use super::part::{self, Extent, Part, Scope};
use crate::error::BurnError;

/// The feed of a loader, which one iterator at a time has. It lives on between epochs, so that what comes
/// next is prefetched meanwhile.
#[derive(Debug)]
pub(super) struct Source {
    feed: FeedBuilder,
    part: Part,
    scope: Scope,
    /// How many epochs the feed has; 0 if there is no end.
    epochs: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The step with which the next epoch of the loader begins. It is the first of an epoch, unless the feed
    /// resumes from a snapshot within one.
    begins_at: StepId,
    holder: Holder,
    handle: Option<FeedHandle>,
}

/// Who has the feed.
#[derive(Debug)]
enum Holder {
    /// Nobody: the feed is built when it is needed.
    Nobody,
    /// The loader. Its next step is this one.
    Loader(Box<Feed>, StepId),
    /// An iterator.
    Iterator,
    /// Nobody any more: the feed ended with this error.
    Failed(FeedError),
}

/// One epoch of a loader, under way. It has the loader's feed until it ends, in one way or another.
#[derive(Debug)]
pub(super) struct Session {
    source: Arc<Source>,
    pub(super) feed: Box<Feed>,
    pub(super) extent: Extent,
    /// How many items came before its first step.
    pub(super) items_before: usize,
    /// The next step.
    pub(super) at: StepId,
}

impl Source {
    /// The feed of a whole loader. It starts at once.
    pub(super) fn whole(feed: FeedBuilder) -> Result<Self, BurnError> {
        let schedule = &feed.spec().schedule;
        if schedule.blocks {
            return Err(BurnError::Blocks);
        }
        let has_epochs = schedule.epochs.is_some();
        let epochs = schedule.epochs.unwrap_or(u64::from(schedule.once));
        // Without epochs there is no plan.
        let feed = if has_epochs { feed } else { feed.epochs(epochs) };
        let resolved: ResolvedFeed = feed.clone().resolve()?;
        let plan = resolved.plan().expect("a feed with epochs follows a plan").clone();
        let scope = Scope::of(resolved.spec(), &plan, &Part::Whole)?;
        let running = Box::new(resolved.launch()?);
        let stands_at = next_step(&running);
        let is_over = epochs > 0 && stands_at.epoch >= epochs;
        let begins_at = if is_over { StepId::default() } else { stands_at };
        // What cannot be counted is an error now, and not in the first epoch.
        scope.extent(begins_at.epoch)?;
        let handle = Some(running.handle());
        let state = State { begins_at, holder: Holder::Loader(running, stands_at), handle };
        Ok(Source { feed, part: Part::Whole, scope, epochs, state: Mutex::new(state) })
    }

    /// The feed of a part of this loader. It starts when it is iterated over.
    pub(super) fn part_of(&self, items: Range<usize>) -> Result<Self, BurnError> {
        let Range { start, end } = items;
        if self.part != Part::Whole {
            return Err(BurnError::PartOfPart { start, end });
        }
        let part = Part::of(items, self.extent()?.items, self.feed.spec().devices.len());
        if matches!(part, Part::Items(_)) && self.scope.plan().wraps() {
            // Epochs differ in length, and burn's bounds are those of one epoch.
            return Err(BurnError::Wraps);
        }
        let scope = Scope::of(self.feed.spec(), self.scope.plan(), &part)?;
        let feed = match part {
            Part::Lane(lane) => self.feed.clone().only_lane(lane)?,
            Part::Whole | Part::Items(_) => self.feed.clone(),
        };
        let mut state = self.state.lock();
        if matches!(state.holder, Holder::Loader(..)) {
            // A caller that divides a loader uses its parts, and this feed's threads and memory would be
            // additional.
            (state.holder, state.handle) = (Holder::Nobody, None);
        }
        let state = State { begins_at: state.begins_at, holder: Holder::Nobody, handle: None };
        Ok(Source { feed, part, scope, epochs: self.epochs, state: Mutex::new(state) })
    }

    pub(super) fn handle(&self) -> Option<FeedHandle> {
        self.state.lock().handle.clone()
    }

    /// Lets the next epoch of the loader be the one after `epochs` epochs.
    pub(super) fn continue_after(&self, epochs: u64) {
        let epoch = if self.epochs == 0 { epochs } else { epochs % self.epochs };
        self.state.lock().begins_at = StepId { epoch, step: 0 };
    }

    /// How much of the next epoch, or of the one under way, the loader delivers.
    pub(super) fn extent(&self) -> Result<Extent, OrderError> {
        let epoch = self.state.lock().begins_at.epoch;
        self.scope.extent(epoch)
    }

    /// Builds the feed, and lets it begin with a step.
    fn start(&self, at: StepId) -> Result<Box<Feed>, FeedError> {
        if let Part::Items(_) = self.part {
            let feed = part::in_blocks(self.feed.clone(), self.scope.clone(), at.epoch, self.epochs);
            return Ok(Box::new(feed.build()?));
        }
        let mut feed = Box::new(self.feed.clone().build()?);
        if next_step(&feed) != at {
            feed.seek(at)?;
        }
        Ok(feed)
    }

    /// Lets a feed begin with another step than its next one.
    fn restart(&self, mut feed: Box<Feed>, at: StepId) -> Result<Box<Feed>, FeedError> {
        if let Part::Items(_) = self.part {
            // Steps that come in blocks cannot be sought.
            drop(feed);
            return self.start(at);
        }
        feed.seek(at)?;
        Ok(feed)
    }

    /// The first step of an epoch that the loader delivers.
    fn first_step(&self, epoch: u64) -> u64 {
        match self.part {
            Part::Items(_) => self.scope.extent(epoch).map_or(0, |extent| extent.steps.start),
            Part::Whole | Part::Lane(_) => 0,
        }
    }
}

impl Session {
    /// Begins the next epoch of a loader.
    pub(super) fn begin(source: &Arc<Source>) -> Result<Self, BurnError> {
        let mut state = source.state.lock();
        let begins_at = state.begins_at;
        let extent = source.scope.extent(begins_at.epoch)?;
        let at = match begins_at.step {
            0 => StepId { step: source.first_step(begins_at.epoch), ..begins_at },
            _ => begins_at,
        };
        let items_before = source.scope.items_before(&extent, at.step)?;
        let feed = match std::mem::replace(&mut state.holder, Holder::Iterator) {
            Holder::Iterator => return Err(BurnError::InUse),
            Holder::Failed(error) => Err(error),
            Holder::Nobody => source.start(at),
            Holder::Loader(feed, stands_at) if stands_at == at => Ok(feed),
            Holder::Loader(feed, _) => source.restart(feed, at),
        };
        match feed {
            Ok(feed) => {
                state.handle = Some(feed.handle());
                Ok(Session { source: source.clone(), feed, extent, items_before, at })
            }
            Err(error) => {
                state.holder = Holder::Failed(error.clone());
                Err(error.into())
            }
        }
    }

    /// Gives the feed back after the last batch of the epoch.
    pub(super) fn finish(self) {
        let source = self.source;
        let epoch = part::epoch_after(self.extent.epoch, source.epochs);
        let stands_at = match source.part {
            Part::Items(_) => StepId { epoch, step: source.first_step(epoch) },
            // The feed itself does not start again after its last epoch.
            Part::Whole | Part::Lane(_) => StepId { epoch: self.extent.epoch.saturating_add(1), step: 0 },
        };
        let mut state = source.state.lock();
        state.begins_at = StepId { epoch, step: 0 };
        state.holder = Holder::Loader(self.feed, stands_at);
    }

    /// Gives the feed back from within the epoch, which begins again with the next session.
    pub(super) fn abandon(self) {
        self.source.state.lock().holder = Holder::Loader(self.feed, self.at);
    }

    /// Drops the feed, so that the next session has a new one.
    pub(super) fn discard(self) {
        let Session { source, feed, .. } = self;
        drop(feed);
        let mut state = source.state.lock();
        (state.holder, state.handle) = (Holder::Nobody, None);
    }

    /// Notes the error with which the feed ended.
    pub(super) fn fail(self, error: FeedError) {
        self.source.state.lock().holder = Holder::Failed(error);
    }
}

/// The step that the slowest of a feed's lanes gets next.
fn next_step(feed: &Feed) -> StepId {
    feed.next_steps().into_iter().min().unwrap_or_default()
}
