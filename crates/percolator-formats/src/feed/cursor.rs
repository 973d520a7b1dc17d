//! A shard's cursor as a source's.

use std::fmt::Write as _;
use std::sync::Arc;

use percolator::source::{Cursor, Entry, PlaceIndex, SourceError};

use super::lending::Lending;
use super::{Shared, source_error};
use crate::{Cursor as Reader, Key, Record, Seeks, Shard};

/// Reads a shard's records as entries.
pub(super) struct ShardCursor {
    shard: Arc<dyn Shard>,
    shared: Arc<Shared>,
    reader: Box<dyn Reader>,
    /// The number of the next record.
    position: u64,
    /// Whether the cursor was sent past the last record.
    is_past_end: bool,
    index: Option<Arc<PlaceIndex>>,
    key: String,
    lending: Lending,
}

impl ShardCursor {
    pub(super) fn new(shard: &Arc<dyn Shard>, shared: &Arc<Shared>) -> Result<Self, SourceError> {
        Ok(ShardCursor {
            shard: Arc::clone(shard),
            shared: Arc::clone(shared),
            reader: Arc::clone(shard).cursor().map_err(source_error)?,
            position: 0,
            is_past_end: false,
            index: None,
            key: String::new(),
            lending: Lending::default(),
        })
    }

    /// The place of a record, if the shard or its index knows it; `None` past the last one.
    fn place(&mut self, position: u64) -> Result<Option<Option<[u64; 2]>>, SourceError> {
        match self.shard.seeks() {
            Seeks::InOrder(_) => Ok(None),
            Seeks::ByPosition if self.shard.records().is_some_and(|records| position >= records) => {
                Ok(Some(None))
            }
            Seeks::ByPosition => {
                self.shard.place(position).map(|place| Some(Some(place))).map_err(source_error)
            }
            Seeks::ByPlace => {
                if self.index.is_none() {
                    self.index = self.shared.index.lock().as_ref().map(|(_, index)| Arc::clone(index));
                }
                let place = |index: &Arc<PlaceIndex>| index.place(self.shard.path(), position);
                self.index.as_ref().map(place).transpose()
            }
        }
    }

    /// Notes that there are no more records.
    fn ended(&self) -> Result<(), SourceError> {
        if self.is_past_end { Ok(()) } else { self.shared.learn(self.shard.path(), self.position) }
    }
}

impl Cursor for ShardCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        if self.is_past_end {
            return Ok(None);
        }
        let ShardCursor { shard, shared, reader, position, key, lending, .. } = self;
        let Some(Record { key: name, value, .. }) = reader.advance().map_err(source_error)? else {
            shared.learn(shard.path(), *position)?;
            return Ok(None);
        };
        let number = *position;
        *position += 1;
        key.clear();
        let name = match name {
            Key::Bytes(name) => name,
            Key::Number(name) => {
                let _ = write!(key, "{name}");
                key.as_bytes()
            }
            Key::None => {
                let _ = write!(key, "{number:08}");
                key.as_bytes()
            }
        };
        Ok(Some(lending.entry(name, value)))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        if self.is_past_end {
            return Ok(false);
        }
        let is_there = self.reader.skip().map_err(source_error)?.is_some();
        if !is_there {
            self.ended()?;
        }
        self.position += u64::from(is_there);
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        // Only a cursor that reads in order can be told to begin again by a place that all have.
        match self.shard.seeks() {
            Seeks::InOrder(_) => self.reader.seek([0, 0], 0).map_err(source_error)?,
            Seeks::ByPosition | Seeks::ByPlace => {
                self.reader = Arc::clone(&self.shard).cursor().map_err(source_error)?;
            }
        }
        (self.position, self.is_past_end) = (0, false);
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position && !self.is_past_end {
            return Ok(());
        }
        match self.place(position)? {
            Some(Some(place)) => {
                self.reader.seek(place, position).map_err(source_error)?;
                (self.position, self.is_past_end) = (position, false);
            }
            Some(None) => (self.position, self.is_past_end) = (position, true),
            None => {
                if position < self.position || self.is_past_end {
                    self.rewind()?;
                }
                while self.position < position && self.skip()? {}
            }
        }
        Ok(())
    }
}
