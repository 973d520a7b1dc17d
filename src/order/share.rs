//! The records of a replica's share of a step.

use super::rest::Rest;
use super::sharding::{Shard, ShardName};
use super::stretch::Stretch;
use super::{EpochOrder, OrderError, Plan};
use crate::record::RecordId;

/// The records that a replica gets at a step, in the order of their places in its batch: positions in the whole data set, and their
/// epochs.
#[derive(Clone, Debug)]
pub struct ReplicaShare<'a> {
    plan: &'a Plan,
    line: Line<'a>,
    /// Places in the line.
    stretch: Stretch,
    /// The order of the epoch, in the shard, that the last record was of.
    order: Option<(u64, ShardName, EpochOrder)>,
}

/// What a step's places are counted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// What comes first, if anything does that is not of the shard.
    pub(super) rest: Option<&'a Rest>,
    pub(super) shard: &'a Shard,
    /// Which place of the shard, counted on through the epochs, its first one is.
    pub(super) begin: u64,
}

impl<'a> Line<'a> {
    /// The shard that a place is of, and the place in that.
    fn locate(&self, place: u64) -> (&'a Shard, u64) {
        let Some(rest) = self.rest else { return (self.shard, self.begin + place) };
        match place.checked_sub(rest.len()) {
            None => rest.locate(place),
            Some(behind) => (self.shard, self.begin + behind),
        }
    }

    /// Adds places of it to a rest.
    pub(super) fn push_to(&self, rest: &mut Rest, places: Stretch) -> Result<(), OrderError> {
        let (own, before) = match self.rest {
            Some(old) => (old.push_to(rest, places)?, old.len()),
            None => (places, 0),
        };
        // What is left lies behind the other's.
        rest.push(self.shard, Stretch { first: self.begin + own.first.saturating_sub(before), ..own })
    }
}

impl<'a> ReplicaShare<'a> {
    pub(super) fn of(plan: &'a Plan, line: Line<'a>, stretch: Stretch) -> Self {
        ReplicaShare { plan, line, stretch, order: None }
    }

    /// Where its records lie.
    pub(super) fn places(&self) -> (Line<'a>, Stretch) {
        (self.line, self.stretch)
    }
}

impl Iterator for ReplicaShare<'_> {
    type Item = RecordId;

    fn next(&mut self) -> Option<RecordId> {
        if self.stretch.len == 0 {
            return None;
        }
        let (shard, place) = self.line.locate(self.stretch.first);
        self.stretch = self.stretch.without(1);
        let (records, name) = (shard.records, shard.name);
        let (epoch, place) = (place / records, place % records);
        if self.order.as_ref().is_none_or(|(of, by, _)| *of != epoch || *by != name) {
            let (shuffle, seed) = self.plan.shuffle();
            self.order = Some((epoch, name, shuffle.order(records, seed, epoch, name.worker)));
        }
        let number = self.order.as_ref().map_or(place, |(_, _, order)| order.number_at(place));
        Some(RecordId { epoch, index: shard.position(number) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = usize::try_from(self.stretch.len).unwrap_or(usize::MAX);
        (len, Some(len))
    }
}

impl ExactSizeIterator for ReplicaShare<'_> {}
impl std::iter::FusedIterator for ReplicaShare<'_> {}
