//! Arrow's files: a table at the end says where each batch is.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_ipc::{Block, Footer, MessageHeader};
use arrow_schema::Schema;
use parking_lot::Mutex;

use super::batch::{Dictionaries, Layout, apply_dictionary, decode, rows_of};
use super::message::{ArrowSource, Found, Frame, find, parsed, schema_at, schema_of};
use super::{CONTINUATION, MAGIC};
use crate::columns::{Columns, pack_row};
use crate::{Cursor, FormatError, Grammar, Key, Lent, Options, Place, Record, Seeks, Shard};

/// Where the first message is: after the magic, padded.
const FIRST_MESSAGE: u64 = 8;

/// An Arrow file.
#[derive(Debug)]
pub(super) struct ArrowFile {
    source: ArrowSource,
    layout: Layout,
    batches: Vec<Frame>,
    /// The number of rows before each batch, and that of all.
    starts: Vec<u64>,
    dictionaries: Vec<Frame>,
    /// Read when the first cursor wants them.
    read: Mutex<Option<Arc<Dictionaries>>>,
}

/// What the footer says, with its places checked.
struct FooterTable {
    layout: Layout,
    batches: Vec<Frame>,
    dictionaries: Vec<Frame>,
}

impl ArrowFile {
    pub(super) fn open(source: ArrowSource, options: &Options) -> Result<Self, FormatError> {
        let FooterTable { layout, batches, dictionaries } = footer(&source, options)?;
        let mut starts = vec![0_u64];
        let mut before = 0_u64;
        for (number, frame) in batches.iter().enumerate() {
            let at = frame.metadata.start;
            let metadata = source.buffer(frame.metadata.clone())?;
            let batch = parsed(&source, &metadata, at)?.header_as_record_batch();
            let batch = batch.ok_or_else(|| source.damaged(at, format!("batch {number} is no batch")))?;
            let rows = rows_of(&batch, &layout)
                .map_err(|what| source.damaged(at, format!("batch {number}: {what}")).record(before))?;
            before = before.saturating_add(rows);
            starts.push(before);
        }
        Ok(ArrowFile { source, layout, batches, starts, dictionaries, read: Mutex::new(None) })
    }

    fn rows(&self) -> u64 {
        self.starts.last().copied().unwrap_or_default()
    }

    /// The batch that has a row, and the row's number in it.
    fn find(&self, row: u64) -> Option<(usize, u64)> {
        let batch = self.starts.partition_point(|start| *start <= row).checked_sub(1)?;
        self.batches.get(batch)?;
        Some((batch, row.checked_sub(*self.starts.get(batch)?)?))
    }

    fn dictionaries(&self) -> Result<Arc<Dictionaries>, FormatError> {
        let mut read = self.read.lock();
        if let Some(dictionaries) = &*read {
            return Ok(Arc::clone(dictionaries));
        }
        let (mut dictionaries, mut whole) = (Dictionaries::new(), HashSet::new());
        for frame in &self.dictionaries {
            let at = frame.metadata.start;
            let metadata = self.source.buffer(frame.metadata.clone())?;
            let header = parsed(&self.source, &metadata, at)?.header_as_dictionary_batch();
            let header = header.ok_or_else(|| self.source.damaged(at, "a dictionary is none"))?;
            if !header.isDelta() && !whole.insert(header.id()) {
                let what =
                    format!("dictionary {} stands twice, which is possible in streams only", header.id());
                return Err(self.source.damaged(at, what));
            }
            apply_dictionary(&self.source, frame, &self.layout, &mut dictionaries)?;
        }
        Ok(Arc::clone(read.insert(Arc::new(dictionaries))))
    }
}

fn footer(source: &ArrowSource, options: &Options) -> Result<FooterTable, FormatError> {
    let end = source.bytes();
    let tail = source.buffer(end.saturating_sub(10)..end)?;
    let Some(length) = tail.strip_suffix(MAGIC).and_then(|length| length.first_chunk::<4>()) else {
        let what = "there is no ARROW1 at the end: it is cut, or still being written; copy it again";
        return Err(source.damaged(end, what));
    };
    let length = i32::from_le_bytes(*length);
    let tail_start = end.saturating_sub(10);
    let start = u64::try_from(length).ok().and_then(|length| tail_start.checked_sub(length));
    let Some(start) = start.filter(|start| *start >= FIRST_MESSAGE) else {
        let what = format!("the footer's length is {length} bytes, and the file's {end}");
        return Err(source.damaged(tail_start, what));
    };
    let bytes = source.buffer(start..tail_start)?;
    let footer = arrow_ipc::root_as_footer(&bytes)
        .map_err(|error| source.damaged(start, format!("the footer cannot be parsed: {error}")))?;

    let schema = schema_of(source, footer.schema(), start)?;
    compare_with_first_message(source, start, &schema)?;
    let columns = Columns::of(source.path(), &schema, options)?;
    let layout = Layout { schema, columns };
    let batches = frames(source, &footer, start, MessageHeader::RecordBatch)?;
    let dictionaries = frames(source, &footer, start, MessageHeader::DictionaryBatch)?;
    Ok(FooterTable { layout, batches, dictionaries })
}

/// The schema stands at the beginning, too. Polars writes it there without its length, which nobody reads.
fn compare_with_first_message(source: &ArrowSource, end: u64, schema: &Schema) -> Result<(), FormatError> {
    let first = source.buffer(FIRST_MESSAGE..FIRST_MESSAGE.saturating_add(4).min(end))?;
    if !first.starts_with(&CONTINUATION) {
        return Ok(());
    }
    let Found::Message(frame) = find(source, FIRST_MESSAGE, end)? else {
        return Err(source.damaged(FIRST_MESSAGE, "there is no schema at the beginning"));
    };
    let first = schema_at(source, &frame)?;
    let fields = |schema: &Schema| -> Vec<_> {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    match fields(&first) == fields(schema) {
        true => Ok(()),
        false => Err(source.damaged(FIRST_MESSAGE, "the schemas at the beginning and at the end differ")),
    }
}

/// The messages that a table of the footer names, each found where the table says.
fn frames(
    source: &ArrowSource,
    footer: &Footer<'_>,
    end: u64,
    kind: MessageHeader,
) -> Result<Vec<Frame>, FormatError> {
    let blocks = match kind {
        MessageHeader::DictionaryBatch => footer.dictionaries(),
        _ => footer.recordBatches(),
    };
    blocks.into_iter().flatten().enumerate().map(|(n, block)| frame(source, n, block, end, kind)).collect()
}

fn frame(
    source: &ArrowSource,
    number: usize,
    block: &Block,
    end: u64,
    kind: MessageHeader,
) -> Result<Frame, FormatError> {
    let named = format!("message {number} of the footer's {kind:?} table");
    let stated = (block.offset(), block.metaDataLength(), block.bodyLength());
    let at = u64::try_from(block.offset()).ok().filter(|at| *at >= FIRST_MESSAGE);
    let at = at.ok_or_else(|| source.damaged(end, format!("{named} is at byte {}", block.offset())))?;
    let Found::Message(frame) = find(source, at, end)? else {
        return Err(source.damaged(at, format!("there is nothing where the footer has {named}")));
    };
    let metadata = i64::try_from(frame.metadata.end.saturating_sub(at));
    let body = i64::try_from(frame.body.end.saturating_sub(frame.body.start));
    if metadata != Ok(stated.1.into()) || body != Ok(stated.2) {
        let what = format!(
            "{named} has {} bytes and {} of a body there, and itself {metadata:?} and {body:?}",
            stated.1, stated.2
        );
        return Err(source.damaged(at, what));
    }
    let bytes = source.buffer(frame.metadata.clone())?;
    let found = parsed(source, &bytes, at)?.header_type();
    match found == kind {
        true => Ok(frame),
        false => Err(source.damaged(at, format!("{named} is of the kind {found:?}"))),
    }
}

impl Shard for ArrowFile {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn records(&self) -> Option<u64> {
        Some(self.rows())
    }

    fn seeks(&self) -> Seeks {
        Seeks::ByPosition
    }

    fn grammar(&self) -> Arc<dyn Grammar> {
        Arc::clone(&self.layout.columns.grammar) as Arc<dyn Grammar>
    }

    fn cursor(self: Arc<Self>) -> Result<Box<dyn Cursor>, FormatError> {
        let dictionaries = self.dictionaries()?;
        Ok(Box::new(ArrowFileCursor {
            shard: self,
            dictionaries,
            next: 0,
            decoded: None,
            packed: Vec::new(),
        }))
    }
}

/// Reads an Arrow file's rows.
struct ArrowFileCursor {
    shard: Arc<ArrowFile>,
    dictionaries: Arc<Dictionaries>,
    next: u64,
    /// A batch's number and its columns.
    decoded: Option<(usize, Vec<ArrayRef>)>,
    packed: Vec<u8>,
}

impl Cursor for ArrowFileCursor {
    fn advance(&mut self) -> Result<Option<Record<'_>>, FormatError> {
        let position = self.next;
        let ArrowFile { source, layout, batches, .. } = &*self.shard;
        let Some((batch, row)) = self.shard.find(position) else { return Ok(None) };
        if self.decoded.as_ref().is_none_or(|(decoded, _)| *decoded != batch) {
            // The memory of the one before is free for this one.
            self.decoded = None;
        }
        let (_, columns) = match (&mut self.decoded, batches.get(batch)) {
            (Some(decoded), _) => decoded,
            (none, Some(frame)) => {
                let columns = decode(source, frame, layout, &self.dictionaries)
                    .map_err(|error| error.record(position))?;
                none.insert((batch, columns))
            }
            (None, None) => return Ok(None),
        };
        let row = usize::try_from(row).unwrap_or(usize::MAX);
        pack_row(columns, &layout.columns.names, row, &mut self.packed)
            .map_err(|fault| FormatError::damaged(source.path(), fault.to_string()).record(position))?;
        self.next = position.saturating_add(1);
        Ok(Some(Record { key: Key::None, value: Lent::Buffer(&self.packed), place: [position, 0] }))
    }

    fn skip(&mut self) -> Result<Option<Place>, FormatError> {
        if self.next >= self.shard.rows() {
            return Ok(None);
        }
        let place = [self.next, 0];
        self.next = self.next.saturating_add(1);
        Ok(Some(place))
    }

    fn seek(&mut self, place: Place, position: u64) -> Result<(), FormatError> {
        let [row, zero] = place;
        if row >= self.shard.rows() || zero != 0 {
            let what =
                format!("there are {} rows, and no place {place:?}: the file has changed", self.shard.rows());
            return Err(FormatError::damaged(self.shard.source.path(), what).record(position));
        }
        self.next = row;
        Ok(())
    }
}
