//! What is left of an epoch in which the world changed.

use std::collections::HashMap;

use super::OrderError;
use super::plan::{COUNTED_MAX, records_before};
use super::range::StridedRange;
use super::sharding::{Shard, ShardName};

/// The most files in lists of all its shards together, for each file of the data set. The shards of one job
/// that reads whole files list each file once, and few jobs leave something of the same epoch.
const FILES_MAX: usize = 16;

/// What is left of an epoch that another job began: the tails of its streams, joined into one stream. The
/// resuming job divides it among all its replicas, whatever its policy. The epochs after it are as if there
/// had been no other job, except those before or around `goes_on_at`.
///
/// So every record of the epoch is delivered as often as in the job that began it: before the change, or
/// after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remainder {
    pub(super) epoch: u64,
    /// The place, counted across epochs, at which the run goes on after the remainder, if that is not the
    /// beginning of the next epoch: the last batches of some replicas had wrapped beyond it, and the others
    /// had not reached the end of this epoch.
    pub(super) goes_on_at: Option<u64>,
    /// The shards that the pieces are from.
    shards: Vec<Shard>,
    /// The number of each shard in that list.
    numbers: HashMap<ShardName, usize>,
    /// The number of files of all these shards, as far as they take memory.
    files: usize,
    pieces: Vec<Piece>,
}

/// Places of one of the shards, counted across epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    /// The place in the remainder at which the piece begins.
    begin: u64,
    /// The number of the shard.
    shard: usize,
    range: StridedRange,
}

impl Remainder {
    pub(super) fn of(epoch: u64) -> Self {
        Remainder {
            epoch,
            goes_on_at: None,
            shards: Vec::new(),
            numbers: HashMap::new(),
            files: 0,
            pieces: Vec::new(),
        }
    }

    /// The place of a shard, counted across epochs, at which its own part goes on.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`].
    pub(super) fn end(&self, shard: &Shard) -> Result<u64, OrderError> {
        self.goes_on_at.map_or_else(|| records_before(self.epoch + 1, shard.records), Ok)
    }

    /// The number of records in it.
    pub(super) fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.begin + piece.range.len)
    }

    /// Appends places of a shard.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`].
    pub(super) fn push(&mut self, shard: &Shard, range: StridedRange) -> Result<(), OrderError> {
        self.push_of(shard.name, range, || Ok(shard.clone()))
    }

    /// The same for the shard of this name, which is created if none of its places was appended before.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`], and those of `make`.
    pub(super) fn push_of(
        &mut self,
        name: ShardName,
        range: StridedRange,
        make: impl FnOnce() -> Result<Shard, OrderError>,
    ) -> Result<(), OrderError> {
        if range.len == 0 {
            return Ok(());
        }
        // A single place has no stride. Setting it to 1 keeps strides from growing with each change.
        let range = if range.len == 1 { StridedRange { stride: 1, ..range } } else { range };
        let begin = self.len();
        if begin.saturating_add(range.len) > COUNTED_MAX {
            return Err(OrderError::TooMany { what: "records that are left", allowed: COUNTED_MAX });
        }
        let shard = match self.numbers.get(&name) {
            Some(&number) => number,
            None => self.add(make()?)?,
        };
        if let Some(last) = self.pieces.last_mut()
            && last.shard == shard
            && last.range.stride == range.stride
            && last.range.without(last.range.len).first == range.first
        {
            last.range.len += range.len;
        } else {
            self.pieces.push(Piece { begin, shard, range });
        }
        Ok(())
    }

    /// Adds a shard, and returns its number.
    fn add(&mut self, shard: Shard) -> Result<usize, OrderError> {
        let (files, allowed) = (self.files + shard.pieces(), FILES_MAX.saturating_mul(shard.files()));
        if files > allowed {
            let what = "files of the shards that something is left of";
            return Err(OrderError::TooMany { what, allowed: allowed as u64 });
        }
        let number = self.shards.len();
        self.numbers.insert(shard.name, number);
        self.files = files;
        self.shards.push(shard);
        Ok(number)
    }

    /// The shard of a place in the remainder, and the place in that shard.
    pub(super) fn locate(&self, place: u64) -> (&Shard, u64) {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.begin <= place) - 1];
        let StridedRange { first, stride, .. } = piece.range;
        (&self.shards[piece.shard], first + (place - piece.begin) * stride)
    }

    /// The most workers that any of its shards was made for.
    pub(super) fn workers_max(&self) -> u64 {
        self.shards.iter().map(|shard| shard.name.workers).max().unwrap_or(1)
    }

    /// The first and the last epoch that its records are from, if it has any.
    pub(super) fn epochs(&self) -> Option<(u64, u64)> {
        let epochs = self.pieces.iter().map(|Piece { shard, range, .. }| {
            let (records, last) = (self.shards[*shard].records.max(1), range.without(range.len - 1).first);
            (range.first / records, last / records)
        });
        epochs.reduce(|(first, last), (begin, end)| (first.min(begin), last.max(end)))
    }

    /// The number of places from this one on that are consecutive in their shard; `None` if they are not
    /// consecutive.
    pub(super) fn neighbours(&self, place: u64) -> Option<u64> {
        let piece = &self.pieces[self.pieces.partition_point(|piece| piece.begin <= place) - 1];
        (piece.range.stride == 1).then(|| piece.begin + piece.range.len - place)
    }

    /// Its pieces, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (ShardName, StridedRange)> {
        self.pieces.iter().map(|piece| (self.shards[piece.shard].name, piece.range))
    }

    /// Appends to another remainder the records at some places of this one, as far as this one goes. Returns
    /// the places past its end.
    pub(super) fn push_to(
        &self,
        other: &mut Remainder,
        places: StridedRange,
    ) -> Result<StridedRange, OrderError> {
        let mut left = places;
        let from = self.pieces.partition_point(|piece| piece.begin + piece.range.len <= places.first);
        for piece in &self.pieces[from..] {
            if left.len == 0 {
                break;
            }
            let here = left.only(left.before(piece.begin + piece.range.len));
            if here.len > 0 {
                let within = StridedRange { first: here.first - piece.begin, ..here };
                other.push(&self.shards[piece.shard], piece.range.of(within))?;
            }
            left = left.without(here.len);
        }
        Ok(left)
    }
}
