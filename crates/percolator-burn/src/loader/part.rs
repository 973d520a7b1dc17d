//! Which part of a feed a loader delivers, and how much of an epoch that is.

use std::error::Error;
use std::ops::Range;

use percolator::FeedBuilder;
use percolator::feed::FeedSpec;
use percolator::order::{Block, Blocks, JobWorker, LastBatch, OrderError, Plan};
use percolator::record::StepId;

use crate::error::BurnError;

/// Which part of a feed a loader delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All lanes: the batches of a step one after the other.
    Whole,
    /// One lane of several.
    Lane(usize),
    /// The steps whose first item is one of these, in each epoch: all lanes.
    Items(Range<usize>),
}

impl Part {
    /// The part that burn means by these items, of `whole` in all.
    pub(super) fn of(items: Range<usize>, whole: usize, lanes: usize) -> Self {
        // What burn gives to one of as many devices.
        let each = whole / lanes.max(1);
        let of_lane = |lane: usize| lane * each..if lane + 1 == lanes { whole } else { (lane + 1) * each };
        let lane = (0..lanes).find(|&lane| lanes > 1 && of_lane(lane) == items);
        // With fewer items than devices, some get nothing, and one gets all.
        lane.filter(|_| each > 0).map_or(Part::Items(items), Part::Lane)
    }
}

/// The steps of an epoch that a loader delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) epoch: u64,
    /// Ends after the last step that has a row.
    pub(super) steps: Range<u64>,
    /// How many records these steps have.
    pub(super) items: usize,
}

/// A part of a feed's plan.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    plan: Plan,
    /// The replicas that the lanes are.
    replicas: Range<usize>,
    /// Whether batches without records have rows.
    pads: bool,
    items: Option<Range<usize>>,
}

impl Scope {
    pub(super) fn of(spec: &FeedSpec, plan: &Plan, part: &Part) -> Result<Self, BurnError> {
        let lanes = match spec.schedule.worker {
            Some(JobWorker { world, number }) => world.replicas_of(number)?,
            None => 0..spec.devices.len(),
        };
        let (replicas, items) = match part {
            Part::Whole => (lanes, None),
            Part::Lane(lane) => (lanes.start + lane..lanes.start + lane + 1, None),
            Part::Items(items) => (lanes, Some(items.clone())),
        };
        let pads = spec.schedule.last_batch == Some(LastBatch::Pad);
        Ok(Scope { plan: plan.clone(), replicas, pads, items })
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How much of an epoch it is.
    pub(super) fn extent(&self, epoch: u64) -> Result<Extent, OrderError> {
        let of_epoch = self.plan.steps(epoch)?;
        let (mut before, mut items) = (0, 0);
        let mut steps: Option<Range<u64>> = None;
        for step in 0..of_epoch {
            let records = self.records(epoch, step)?;
            let is_part = self.items.as_ref().is_none_or(|items| items.contains(&before));
            before += records;
            if is_part && (records > 0 || self.pads) {
                items += records;
                steps = Some(steps.map_or(step, |steps| steps.start)..step + 1);
            }
        }
        Ok(Extent { epoch, steps: steps.unwrap_or(0..0), items })
    }

    /// How many records come before a step of an extent.
    pub(super) fn items_before(&self, extent: &Extent, step: u64) -> Result<usize, OrderError> {
        (extent.steps.start..step).map(|step| self.records(extent.epoch, step)).sum()
    }

    fn records(&self, epoch: u64, step: u64) -> Result<usize, OrderError> {
        self.replicas.clone().map(|replica| Ok(self.plan.share(epoch, step, replica)?.len())).sum()
    }
}

/// The part of each epoch that a loader delivers, as blocks, from one epoch on. It never ends: a loader has
/// as many epochs as burn asks for.
#[derive(Debug)]
struct PartOfEpochs {
    scope: Scope,
    epoch: u64,
    /// After this many, the first one comes again; 0 if none does.
    epochs: u64,
}

impl Blocks for PartOfEpochs {
    fn next(
        &mut self,
        _plan: &Plan,
        _is_stopping: &dyn Fn() -> bool,
    ) -> Result<Option<Block>, Box<dyn Error + Send + Sync>> {
        let Extent { epoch, steps, .. } = self.scope.extent(self.epoch)?;
        self.epoch = epoch_after(epoch, self.epochs);
        let first = StepId { epoch, step: steps.start };
        // Every epoch has as many steps, for a feed that wraps has no such parts. So a part without steps has
        // none in any epoch, and is never iterated over.
        Ok((!steps.is_empty()).then(|| Block { first, steps: steps.end - steps.start }))
    }
}

/// Makes a feed deliver a part of each epoch, from one epoch on.
pub(super) fn in_blocks(feed: FeedBuilder, scope: Scope, epoch: u64, epochs: u64) -> FeedBuilder {
    // The blocks decide when the feed ends.
    feed.epochs(0).blocks(PartOfEpochs { scope, epoch, epochs })
}

/// The epoch after this one, in a feed of `epochs` epochs, which starts again after the last; 0 means no end.
pub(super) fn epoch_after(epoch: u64, epochs: u64) -> u64 {
    let next = epoch.saturating_add(1);
    if epochs == 0 { next } else { next % epochs }
}

#[cfg(test)]
mod tests {
    use percolator::order::{BatchSize, Job, World};

    use super::*;

    fn scope(records: u64, replicas: usize, items: Option<Range<usize>>) -> Scope {
        let world = World::new(1, replicas).expect("a world");
        let plan = Job::new([records], BatchSize::PerReplica(4), world).plan().expect("a plan");
        Scope { plan, replicas: 0..replicas, pads: false, items }
    }

    #[test]
    fn a_part_is_a_lane_if_burn_means_one() {
        assert_eq!([Part::of(0..5, 11, 2), Part::of(5..11, 11, 2)], [Part::Lane(0), Part::Lane(1)]);
        assert_eq!(Part::of(0..6, 11, 2), Part::Items(0..6));
        assert_eq!(Part::of(0..5, 11, 1), Part::Items(0..5));
        assert_eq!(Part::of(0..0, 1, 2), Part::Items(0..0));
    }

    #[test]
    fn every_batch_is_in_one_part_alone() {
        for (records, parts) in [(27, 2), (27, 3), (4, 3), (1, 2), (100, 7)] {
            let whole = scope(records, 1, None).extent(0).expect("an extent");
            let each = whole.items / parts;
            let ends = (1..parts).map(|part| part * each).chain([whole.items]);
            let starts = (0..parts).map(|part| part * each);
            let (mut next, mut items) = (0, 0);
            for (start, end) in starts.zip(ends) {
                let part = scope(records, 1, Some(start..end)).extent(0).expect("an extent");
                if !part.steps.is_empty() {
                    assert_eq!(part.steps.start, next, "{records} records in {parts} parts");
                    next = part.steps.end;
                }
                items += part.items;
            }
            assert_eq!((next, items), (whole.steps.end, whole.items), "{records} records in {parts} parts");
        }
    }

    #[test]
    fn an_extent_ends_with_the_last_records_of_its_lanes() {
        let both = scope(9, 2, None);
        let whole = both.extent(0).expect("an extent");
        assert_eq!(whole, Extent { epoch: 0, steps: 0..2, items: 9 });
        assert_eq!(both.items_before(&whole, 1), Ok(8));
        let second = Scope { replicas: 1..2, ..both.clone() };
        assert_eq!(second.extent(0), Ok(Extent { epoch: 0, steps: 0..1, items: 4 }));
        let padded = Scope { pads: true, ..second };
        assert_eq!(padded.extent(0), Ok(Extent { epoch: 0, steps: 0..2, items: 4 }));
    }

    #[test]
    fn epochs_start_again_after_the_last() {
        assert_eq!([epoch_after(0, 0), epoch_after(7, 0)], [1, 8]);
        assert_eq!([epoch_after(0, 3), epoch_after(2, 3), epoch_after(0, 1)], [1, 0, 0]);
    }
}
