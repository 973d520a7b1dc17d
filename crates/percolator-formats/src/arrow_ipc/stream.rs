//! Arrow's streams: messages that follow each other. Their places are found by walking over them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::path::Path;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_ipc::MessageHeader;
use parking_lot::Mutex;
use percolator_files::shown;

use super::batch::{Dictionaries, Layout, apply_dictionary, decode, rows_of};
use super::message::{ArrowSource, Found, Frame, find, parsed, schema_at};
use crate::columns::{Columns, pack_row};
use crate::{Cursor, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard};

/// An Arrow stream.
#[derive(Debug)]
pub(super) struct ArrowStream {
    source: ArrowSource,
    layout: Layout,
    /// Shared by all cursors, so that the messages are walked over once.
    walk: Mutex<Walk>,
}

/// The messages that were found, and where the next one may begin.
#[derive(Debug)]
struct Walk {
    messages: Vec<Entry>,
    next: u64,
    ended: bool,
}

/// A message after the schema.
#[derive(Clone, Debug)]
struct Entry {
    frame: Frame,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Batch { rows: u64 },
    Dictionary { id: i64, delta: bool },
}

impl ArrowStream {
    pub(super) fn open(source: ArrowSource, options: &Options) -> Result<Self, FormatError> {
        let Found::Message(frame) = find(&source, 0, source.bytes())? else {
            return Err(source.damaged(0, "there is no schema: it is empty, or no Arrow stream"));
        };
        let schema = schema_at(&source, &frame)?;
        let columns = Columns::of(source.path(), &schema, options)?;
        let walk = Walk { messages: Vec::new(), next: frame.body.end, ended: false };
        Ok(ArrowStream { source, layout: Layout { schema, columns }, walk: Mutex::new(walk) })
    }

    /// A message after the schema, by its number; `None` past the last one.
    fn message(&self, number: usize) -> Result<Option<Entry>, FormatError> {
        let mut walk = self.walk.lock();
        while walk.messages.len() <= number && !walk.ended {
            match find(&self.source, walk.next, self.source.bytes())? {
                Found::Message(frame) => {
                    let kind = self.kind(&frame)?;
                    walk.next = frame.body.end;
                    walk.messages.push(Entry { frame, kind });
                }
                Found::EndMark(end) => {
                    self.check_rest(end)?;
                    walk.ended = true;
                }
                Found::Nothing => {
                    tracing::debug!(file = %shown::path(self.source.path()), "the stream has no end mark");
                    walk.ended = true;
                }
            }
        }
        Ok(walk.messages.get(number).cloned())
    }

    fn kind(&self, frame: &Frame) -> Result<Kind, FormatError> {
        let at = frame.metadata.start;
        let metadata = self.source.buffer(frame.metadata.clone())?;
        let message = parsed(&self.source, &metadata, at)?;
        if let Some(batch) = message.header_as_record_batch() {
            let rows = rows_of(&batch, &self.layout).map_err(|what| self.source.damaged(at, what))?;
            return Ok(Kind::Batch { rows });
        }
        if let Some(dictionary) = message.header_as_dictionary_batch() {
            return Ok(Kind::Dictionary { id: dictionary.id(), delta: dictionary.isDelta() });
        }
        match message.header_type() {
            MessageHeader::Schema => {
                let what =
                    "a second schema stands in the stream: streams were put together, which is not read";
                Err(FormatError::refused(self.source.path(), what).byte(at))
            }
            MessageHeader::Tensor | MessageHeader::SparseTensor => {
                let what = "a tensor stands in the stream, which is not read";
                Err(FormatError::refused(self.source.path(), what).byte(at))
            }
            other => Err(self.source.damaged(at, format!("a message is of the kind {other:?}"))),
        }
    }

    /// Nothing but zeros may follow the end mark.
    fn check_rest(&self, end: u64) -> Result<(), FormatError> {
        let mut at = end;
        while at < self.source.bytes() {
            let until = at.saturating_add(64 * 1024).min(self.source.bytes());
            if self.source.buffer(at..until)?.iter().any(|byte| *byte != 0) {
                let what = format!(
                    "{} bytes follow the stream's end mark: streams were put together, which is not read",
                    self.source.bytes().saturating_sub(end)
                );
                return Err(FormatError::refused(self.source.path(), what).byte(end));
            }
            at = until;
        }
        Ok(())
    }
}

impl Shard for ArrowStream {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        None
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPlace
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.layout.columns.grammar) as Arc<dyn Grammar>
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        Ok(Box::new(ArrowStreamCursor {
            shard: self,
            position: 0,
            message: 0,
            row: 0,
            decoded: None,
            dictionaries: Dictionaries::new(),
            applied: 0,
            packed: Vec::new(),
        }))
    }
}

/// Reads a stream's rows.
struct ArrowStreamCursor {
    shard: Arc<ArrowStream>,
    /// The next record's number.
    position: u64,
    /// The message where the next row may be, and its number there.
    message: usize,
    row: u64,
    /// A batch's message and its columns.
    decoded: Option<(usize, Vec<ArrayRef>)>,
    /// As they are after this many messages.
    dictionaries: Dictionaries,
    applied: usize,
    packed: Vec<u8>,
}

impl ArrowStreamCursor {
    /// Goes over messages without a next row; returns the batch that has it.
    fn settle(&mut self) -> Result<Option<Entry>, FormatError> {
        loop {
            let entry = self.shard.message(self.message).map_err(|error| error.record(self.position))?;
            match entry {
                None => return Ok(None),
                Some(entry) if matches!(entry.kind, Kind::Batch { rows } if self.row < rows) => {
                    return Ok(Some(entry));
                }
                Some(_) => {
                    self.message = self.message.saturating_add(1);
                    self.row = 0;
                }
            }
        }
    }

    /// Decodes the batch at the current message, unless it is decoded.
    fn load(&mut self, entry: &Entry) -> Result<(), FormatError> {
        if self.decoded.as_ref().is_some_and(|(message, _)| *message == self.message) {
            return Ok(());
        }
        // The memory of the one before is free for this one.
        self.decoded = None;
        self.bring_dictionaries()?;
        let ArrowStream { source, layout, .. } = &*self.shard;
        self.decoded = Some((self.message, decode(source, &entry.frame, layout, &self.dictionaries)?));
        Ok(())
    }

    /// Brings the dictionaries to what they are before the current message.
    fn bring_dictionaries(&mut self) -> Result<(), FormatError> {
        let mut back = Vec::new();
        for number in self.message..self.applied {
            back.extend(self.shard.message(number)?.filter(|entry| entry.kind.dictionary().is_some()));
        }
        if !back.is_empty() {
            self.dictionaries.clear();
            self.applied = 0;
        }
        // What a later one replaces is not read.
        let mut due: Vec<Entry> = Vec::new();
        for number in self.applied..self.message {
            let Some(entry) = self.shard.message(number)? else { break };
            let Some((id, delta)) = entry.kind.dictionary() else { continue };
            if !delta {
                due.retain(|before| before.kind.dictionary().is_none_or(|(of, _)| of != id));
            }
            due.push(entry);
        }
        for entry in &due {
            let applied = apply_dictionary(
                &self.shard.source,
                &entry.frame,
                &self.shard.layout,
                &mut self.dictionaries,
            );
            if let Err(error) = applied {
                // The next call finds the same error.
                self.dictionaries.clear();
                self.applied = 0;
                return Err(error);
            }
        }
        self.applied = self.message;
        Ok(())
    }
}

impl Kind {
    fn dictionary(self) -> Option<(i64, bool)> {
        match self {
            Kind::Dictionary { id, delta } => Some((id, delta)),
            Kind::Batch { .. } => None,
        }
    }
}

impl Cursor for ArrowStreamCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let Some(entry) = self.settle()? else { return Ok(None) };
        self.load(&entry).map_err(|error| error.record(self.position))?;
        let Some((_, columns)) = &self.decoded else { return Ok(None) };
        let row = usize::try_from(self.row).unwrap_or(usize::MAX);
        let ArrowStream { source, layout, .. } = &*self.shard;
        pack_row(columns, &layout.columns.names, row, &mut self.packed)
            .map_err(|fault| FormatError::damaged(source.path(), fault.to_string()).record(self.position))?;
        let place = [self.message as u64, self.row];
        self.row = self.row.saturating_add(1);
        self.position = self.position.saturating_add(1);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.settle()?.is_none() {
            return Ok(None);
        }
        let place = [self.message as u64, self.row];
        self.row = self.row.saturating_add(1);
        self.position = self.position.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let [message, row] = place;
        let message = usize::try_from(message).unwrap_or(usize::MAX);
        let entry = self.shard.message(message)?;
        if !entry.is_some_and(|entry| matches!(entry.kind, Kind::Batch { rows } if row < rows)) {
            let what = format!("there is no row {row} of message {message}: the file has changed");
            return Err(FormatError::damaged(self.shard.source.path(), what).record(position));
        }
        (self.message, self.row, self.position) = (message, row, position);
        Ok(())
    }
}
