//! The records that a replica gets at a step: an iterator over their epochs and positions.
//!
//! The [partition](super::partition) gives the places of the share in its line (`Line`). Each place then
//! leads to a record: what a resumed epoch had left comes first, then the shard's own places, each taken
//! through the shuffle of its epoch, or through the mixture. Everything is computed when it is needed, so a
//! share takes no memory for its records.

use std::ops::Range;

use super::mixture::Mixture;
use super::range::StridedRange;
use super::remainder::Remainder;
use super::sharding::{Shard, ShardName};
use super::{EpochOrder, OrderError, Plan, Shuffle};
use crate::record::RecordId;

/// The records that a replica gets at a step, in the order of their rows in its batch: positions in the whole
/// data set, and epochs.
#[derive(Clone, Debug)]
pub struct ReplicaShare<'a> {
    plan: &'a Plan,
    line: Line<'a>,
    /// Places in the line.
    range: StridedRange,
    /// The order of the last record's epoch in its shard.
    order: Option<(u64, ShardName, EpochOrder)>,
}

/// The sequence in which a step's places are counted: first what another job left of the epoch, if anything,
/// then the shard's own places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    /// What comes before the shard's own places, if anything does.
    pub(super) rest: Option<&'a Remainder>,
    pub(super) shard: &'a Shard,
    /// The place of the shard, counted across epochs, at which its own part of the line begins.
    pub(super) begin: u64,
}

impl<'a> Line<'a> {
    /// The shard of a place, and the place in that shard.
    fn locate(&self, place: u64) -> (&'a Shard, u64) {
        let Some(rest) = self.rest else { return (self.shard, self.begin + place) };
        match place.checked_sub(rest.len()) {
            None => rest.locate(place),
            Some(behind) => (self.shard, self.begin + behind),
        }
    }

    /// The number of places from this one on that are consecutive in one shard; `None` if they are not
    /// consecutive.
    fn neighbours(&self, place: u64) -> Option<u64> {
        match self.rest {
            Some(rest) if place < rest.len() => rest.neighbours(place),
            _ => Some(u64::MAX),
        }
    }

    /// Appends places of the line to a remainder.
    pub(super) fn push_to(&self, rest: &mut Remainder, places: StridedRange) -> Result<(), OrderError> {
        let (own, before) = match self.rest {
            Some(old) => (old.push_to(rest, places)?, old.len()),
            None => (places, 0),
        };
        // The places left over come after the other job's.
        rest.push(self.shard, StridedRange { first: self.begin + own.first.saturating_sub(before), ..own })
    }
}

impl<'a> ReplicaShare<'a> {
    pub(super) fn of(plan: &'a Plan, line: Line<'a>, range: StridedRange) -> Self {
        ReplicaShare { plan, line, range, order: None }
    }

    /// The positions of its next records while they are consecutive, and whether those are all its records;
    /// `None` if none are left, or they are not consecutive.
    pub(crate) fn neighbours(&self) -> Option<(Range<u64>, bool)> {
        let StridedRange { first, stride, len } = self.range;
        let (shuffle, seed) = self.plan.shuffle();
        if len == 0 || stride != 1 || !matches!(shuffle, Shuffle::No | Shuffle::Files) {
            return None;
        }
        let (shard, place) = self.line.locate(first);
        if shard.mixture().is_some() {
            return None;
        }
        let (epoch, place) = (place / shard.records, place % shard.records);
        let mut order = shard.order(shuffle, seed, epoch);
        let number = order.number_at(place);
        let count = len.min(self.line.neighbours(first)?).min(order.neighbours(place)?);
        let count = count.min(shard.neighbours(number)?);
        let position = shard.position(number);
        Some((position..position + count, count == len))
    }

    /// The record at a place of a mixture. Neighbours are from several files, each in its own pass, so
    /// caching an order is not worthwhile.
    fn mixed(&self, mixture: &Mixture, place: u64) -> RecordId {
        let (number, part, draw) = mixture.locate(place);
        let (epoch, place) = (draw / part.records, draw % part.records);
        let (shuffle, seed) = self.plan.shuffle();
        let mut order = shuffle.order(part.records, seed, epoch, number as u64);
        RecordId { epoch, index: part.position + order.number_at(place) }
    }

    /// Where its records are.
    pub(super) fn places(&self) -> (Line<'a>, StridedRange) {
        (self.line, self.range)
    }
}

impl Iterator for ReplicaShare<'_> {
    type Item = RecordId;

    fn next(&mut self) -> Option<RecordId> {
        if self.range.len == 0 {
            return None;
        }
        let (shard, place) = self.line.locate(self.range.first);
        self.range = self.range.without(1);
        if let Some(mixture) = shard.mixture() {
            return Some(self.mixed(mixture, place));
        }
        let (records, name) = (shard.records, shard.name);
        let (epoch, place) = (place / records, place % records);
        if self.order.as_ref().is_none_or(|(of, by, _)| *of != epoch || *by != name) {
            let (shuffle, seed) = self.plan.shuffle();
            self.order = Some((epoch, name, shard.order(shuffle, seed, epoch)));
        }
        let number = self.order.as_mut().map_or(place, |(_, _, order)| order.number_at(place));
        Some(RecordId { epoch, index: shard.position(number) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = usize::try_from(self.range.len).unwrap_or(usize::MAX);
        (len, Some(len))
    }
}

impl ExactSizeIterator for ReplicaShare<'_> {}
impl std::iter::FusedIterator for ReplicaShare<'_> {}
