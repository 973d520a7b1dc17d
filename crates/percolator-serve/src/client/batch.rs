//! A batch that came: its columns where they arrived, and what was said about it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_buffer::Buffer;
use arrow_ipc::reader::RecordBatchDecoder;
use arrow_schema::DataType;
use percolator::Dtype;
use percolator::batch::Element;
use percolator::record::StepEnd;

use super::error::ClientError;
use super::fields::{RemoteColumns, RemoteField, RemoteFieldKind};
use super::receive::{Malformed, ReceivedMessage};
use super::shared::PlacedBatch;
use crate::columns::{added_column_named, added_named, column};
use crate::message::BatchNote;

/// A batch of a feed elsewhere. Its memory is used for a later batch of its lane when it, and all clones of
/// its [`RecordBatch`](Self::record_batch) and of that one's arrays, are dropped, on any thread.
pub struct RemoteBatch {
    note: BatchNote,
    columns: Arc<RemoteColumns>,
    values: Vec<Values>,
    batch: RecordBatch,
}

impl fmt::Debug for RemoteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteBatch").field("note", &self.note).finish_non_exhaustive()
    }
}

/// Where a column's elements are.
struct Values {
    elements: Buffer,
    /// Of a ragged column: where each row's elements begin, and where the last ones end.
    offsets: Option<Buffer>,
}

/// An array of a batch that owns its memory, for libraries that hold bytes and release them by dropping an
/// owner. The batch's memory is used again when the last of its arrays is dropped, on any thread.
#[derive(Clone)]
pub struct RemoteArray {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Buffer,
}

impl RemoteArray {
    /// Its name: that of its column, or `NAME.offsets`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Its extents, rows first. Of a ragged column, the number of its elements.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

impl AsRef<[u8]> for RemoteArray {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for RemoteArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteArray({}: {} {:?})", self.name, self.dtype, self.shape)
    }
}

impl RemoteBatch {
    pub(crate) fn decode(columns: &Arc<RemoteColumns>, message: ReceivedMessage) -> Result<Self, Malformed> {
        let ReceivedMessage { header, metadata, body } = message;
        let (note, header) = read_head(&header, &metadata)?;
        let batch = checked(columns, &header, body.len(), &note)?;
        // The memory of nothing has an alignment, too.
        let body = if body.is_empty() { Buffer::default() } else { Buffer::from(body) };
        let (version, dictionaries) = (header.version(), HashMap::new());
        let decoded =
            RecordBatchDecoder::try_new(&body, batch, columns.schema.clone(), &dictionaries, &version)
                // A copy would be memory that is not kept. Servers align what they send.
                .map(|decoder| decoder.with_require_alignment(true))
                .and_then(RecordBatchDecoder::read_record_batch)
                .map_err(|error| wrong("columns that are none", &error))?;
        Self::of(note, columns, decoded)
    }

    /// A batch that is in the server's memory. What the server says of it may be wrong.
    pub(crate) fn placed(columns: &Arc<RemoteColumns>, placed: PlacedBatch) -> Result<Self, Malformed> {
        let PlacedBatch { note, lent, arrays, columns: added } = placed;
        let wrong =
            |what: &dyn fmt::Display| Malformed(format!("a batch with columns that are none: {what}"));
        let (rows, records, all) = (note.rows, note.records, lent.region_bytes());
        if records > rows || rows > all {
            return Err(Malformed(format!("a batch of {records} records in {rows} rows in {all} bytes")));
        }
        let buffers = arrays.into_iter().map(|(offset, bytes)| lent.buffer(offset, bytes));
        let mut buffers = buffers.collect::<Result<Vec<_>, _>>()?.into_iter();
        let (mut added, mut made) = (added.into_iter(), Vec::new());
        while let Some(described) = columns.schema.fields().get(made.len()) {
            match columns.kind(made.len()) {
                Some(kind) => {
                    let of_field = column(described, kind, rows, &mut buffers);
                    made.extend(of_field.map_err(|error| wrong(&error))?);
                }
                None => {
                    let values = added.next().and_then(|values| added_column_named(described.name(), values));
                    made.push(values.ok_or_else(|| wrong(&format!("{:?} is missing", described.name())))?);
                }
            }
        }
        if buffers.next().is_some() || added.next().is_some() {
            return Err(wrong(&"more of them than its schema"));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(columns.schema.clone(), made, &options);
        Self::of(note, columns, batch.map_err(|error| wrong(&error))?)
    }

    fn of(note: BatchNote, columns: &Arc<RemoteColumns>, batch: RecordBatch) -> Result<Self, Malformed> {
        let of_columns = batch.columns().iter().zip(columns.each());
        let values =
            of_columns.map(|(array, field)| Values::of(array, field, note.rows)).collect::<Result<_, _>>()?;
        Ok(RemoteBatch { note, columns: columns.clone(), values, batch })
    }

    pub(crate) fn note(&self) -> &BatchNote {
        &self.note
    }

    /// The arrays of the feed's own fields, as [`Batch::arrays`](percolator::Batch::arrays) has them, without
    /// their names.
    pub(crate) fn arrays_of_feed(&self) -> impl Iterator<Item = &[u8]> {
        let is_added = |at: usize, name: &str| self.columns.kind(at).is_none() && added_named(name).is_some();
        let of_feed = self.columns.each().zip(&self.values).enumerate();
        let of_feed = of_feed.filter(move |(at, (field, _))| !is_added(*at, &field.name));
        let arrays = of_feed.flat_map(|(_, (_, values))| [Some(&values.elements), values.offsets.as_ref()]);
        arrays.flatten().map(|array| &**array)
    }

    /// Its number in its stream, from 0. A lane that connected again counts from 0 again.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.note.number
    }

    /// The step that ends with it, and whether it is the last one of its epoch. The short batch at the end of
    /// a single pass has none.
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        Self::step_of(&self.note)
    }

    pub(crate) fn step_of(note: &BatchNote) -> Option<StepEnd> {
        Some(StepEnd { epoch: note.epoch?, step: note.step?, is_last: note.is_last })
    }

    /// The epoch of its step.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        self.note.epoch
    }

    /// The number of records: its first rows.
    #[must_use]
    pub fn records(&self) -> usize {
        self.note.records
    }

    /// The number of rows: its records, and padding after them.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.note.rows
    }

    /// How many batches of a [windowed](crate::Share::Windowed) share were lost before it.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.note.missed
    }

    /// What is appended to its stream's ticket (the first three parts of any ticket of the lane) to go on
    /// after it.
    #[must_use]
    pub fn ticket_end(&self) -> &str {
        &self.note.ticket
    }

    /// The elements of a column, rows one after the other, of the type that the feed's field has.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if it has no such column, one of another type, or one that is
    /// [ragged](Self::ragged).
    pub fn get<T: Element>(&self, name: &str) -> Result<&[T], ClientError> {
        let (at, field) = self.columns.find(name)?;
        match self.values[at].offsets {
            Some(_) => Err(ClientError::Form { name: name.to_owned(), what: "ragged: `ragged` returns it" }),
            None => elements(field, &self.values[at].elements),
        }
    }

    /// The elements of a ragged column, and where each row's begin: one offset for each row, and one more.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if it has no such column, one of another type, or one that is not ragged.
    pub fn ragged<T: Element>(&self, name: &str) -> Result<(&[i64], &[T]), ClientError> {
        let (at, field) = self.columns.find(name)?;
        let Some(offsets) = &self.values[at].offsets else {
            return Err(ClientError::Form { name: name.to_owned(), what: "not ragged: `get` returns it" });
        };
        let offsets = bytemuck::try_cast_slice(offsets).map_err(|error| unreadable(name, &error))?;
        Ok((offsets, elements(field, &self.values[at].elements)?))
    }

    /// The bytes of a column's elements.
    ///
    /// # Errors
    ///
    /// [`ClientError::NoColumn`] if it has no such column.
    pub fn bytes(&self, name: &str) -> Result<&[u8], ClientError> {
        let (at, _) = self.columns.find(name)?;
        Ok(&self.values[at].elements)
    }

    /// The shape of a column: its rows, and the extents of each. Of a ragged column, it is the number of its
    /// elements.
    ///
    /// # Errors
    ///
    /// [`ClientError::NoColumn`] if it has no such column.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>, ClientError> {
        let (at, field) = self.columns.find(name)?;
        Ok(shape_of(field, self.note.rows, &self.values[at].elements))
    }

    /// The epoch of each record, if [asked for](crate::Column::Epoch); 0 in padding.
    #[must_use]
    pub fn epochs(&self) -> Option<&[u64]> {
        self.get("percolator.epoch").ok()
    }

    /// The position of each record, if [asked for](crate::Column::Position); 0 in padding.
    #[must_use]
    pub fn positions(&self) -> Option<&[u64]> {
        self.get("percolator.position").ok()
    }

    /// All columns, as Arrow has them. bf16 is there as u16, and bool as u8.
    #[must_use]
    pub fn record_batch(&self) -> &RecordBatch {
        &self.batch
    }

    /// Splits the batch into arrays that own its memory, column by column: the elements, and, of a ragged
    /// one, where each row's begin (`NAME.offsets`, as `i64`). Nothing is copied.
    #[must_use]
    pub fn into_arrays(self) -> Vec<RemoteArray> {
        let RemoteBatch { note, columns, values, .. } = self;
        let mut arrays = Vec::with_capacity(values.len());
        for (field, Values { elements, offsets }) in columns.each().zip(values) {
            let shape = shape_of(field, note.rows, &elements);
            arrays.push(RemoteArray { name: field.name.clone(), dtype: field.dtype, shape, bytes: elements });
            if let Some(bytes) = offsets {
                let (name, shape) = (format!("{}.offsets", field.name), vec![bytes.len() / size_of::<i64>()]);
                arrays.push(RemoteArray { name, dtype: Dtype::I64, shape, bytes });
            }
        }
        arrays
    }
}

/// The shape of a column: its rows, and the extents of each; of a ragged one, the number of its elements.
fn shape_of(field: &RemoteField, rows: usize, elements: &Buffer) -> Vec<usize> {
    let mut shape = vec![rows];
    match &field.kind {
        RemoteFieldKind::Fixed { shape: of_row } => shape.extend(of_row),
        RemoteFieldKind::Padded { max } => shape.push(*max),
        RemoteFieldKind::Ragged { .. } => shape[0] = elements.len() / field.dtype.size(),
    }
    shape
}

impl Values {
    fn of(array: &dyn Array, field: &RemoteField, rows: usize) -> Result<Self, Malformed> {
        let data = array.to_data();
        let of_elements = data.child_data().first().unwrap_or(&data);
        let found = of_elements.buffers().first().cloned().unwrap_or_default();
        let expected = match field.row_elements() {
            Some(elements) => elements.saturating_mul(rows).saturating_mul(field.dtype.size()),
            None => of_elements.len().saturating_mul(field.dtype.size()),
        };
        if found.len() != expected {
            let (name, found) = (&field.name, found.len());
            return Err(Malformed(format!(
                "a batch whose column {name:?} has {found} bytes, where {expected} should be"
            )));
        }
        let is_ragged = matches!(field.kind, RemoteFieldKind::Ragged { .. });
        let offsets = is_ragged.then(|| data.buffers().first().cloned().unwrap_or_default());
        Ok(Values { elements: found, offsets })
    }
}

fn elements<'b, T: Element>(field: &RemoteField, bytes: &'b [u8]) -> Result<&'b [T], ClientError> {
    if field.dtype != T::DTYPE {
        let (name, found, asked) = (field.name.clone(), field.dtype, T::DTYPE);
        return Err(ClientError::Type { name, found, asked });
    }
    bytemuck::checked::try_cast_slice(bytes).map_err(|error| unreadable(&field.name, &error))
}

fn unreadable(name: &str, error: &dyn fmt::Display) -> ClientError {
    ClientError::Values { name: name.to_owned(), what: error.to_string() }
}

/// What a batch's message says before its body.
pub(super) fn read_head<'h>(
    header: &'h [u8],
    metadata: &[u8],
) -> Result<(BatchNote, arrow_ipc::Message<'h>), Malformed> {
    let note: BatchNote =
        serde_json::from_slice(metadata).map_err(|error| wrong("metadata that are none", &error))?;
    let header =
        arrow_ipc::root_as_message(header).map_err(|error| wrong("a header that is none", &error))?;
    Ok((note, header))
}

/// What a header says of its body, of so many bytes, after all that it says was checked.
pub(super) fn checked<'h>(
    columns: &RemoteColumns,
    header: &arrow_ipc::Message<'h>,
    body: usize,
    note: &BatchNote,
) -> Result<arrow_ipc::RecordBatch<'h>, Malformed> {
    let Some(batch) = header.header_as_record_batch() else {
        return Err(Malformed(format!("{:?} where a batch should be", header.header_type())));
    };
    if usize::try_from(header.bodyLength()) != Ok(body) {
        let stated = header.bodyLength();
        return Err(Malformed(format!("a batch of {body} bytes, whose header says {stated}")));
    }
    check(columns, &batch, body, note)?;
    Ok(batch)
}

fn wrong(what: &str, error: &dyn fmt::Display) -> Malformed {
    Malformed(format!("a batch with {what}: {error}"))
}

/// What Arrow's decoder takes for granted: it panics where a number says what is not there.
fn check(
    columns: &RemoteColumns,
    batch: &arrow_ipc::RecordBatch<'_>,
    body: usize,
    note: &BatchNote,
) -> Result<(), Malformed> {
    let rows = note.rows;
    if usize::try_from(batch.length()) != Ok(rows) || note.records > rows || rows > body {
        let (length, records) = (batch.length(), note.records);
        return Err(Malformed(format!(
            "a batch of {length} rows in {body} bytes, which says that {rows} are rows and {records} records"
        )));
    }
    if batch.compression().is_some() {
        return Err(Malformed("a compressed batch, which nobody asked for".to_owned()));
    }
    let mut nodes = batch.nodes().into_iter().flatten();
    let mut buffers = batch.buffers().into_iter().flatten();
    // An array of this length, if it is known, and the sizes of which its buffers' lengths are multiples.
    let mut array = |name: &str, expected: Option<usize>, sizes: &[usize]| -> Result<(), Malformed> {
        let unusable = |what: &dyn fmt::Debug| {
            Malformed(format!("a batch of {rows} rows in {body} bytes whose column {name:?} has {what:?}"))
        };
        let node = nodes.next().ok_or_else(|| unusable(&"no array"))?;
        let length = usize::try_from(node.length()).unwrap_or(usize::MAX);
        if node.null_count() != 0 || expected.map_or(length > body, |expected| length != expected) {
            return Err(unusable(node));
        }
        for size in sizes {
            let buffer = buffers.next().ok_or_else(|| unusable(&"no buffer"))?;
            let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
            let fits = |(offset, length): (usize, usize)| {
                offset.checked_add(length).is_some_and(|end| end <= body) && length.is_multiple_of(*size)
            };
            if !place.is_some_and(fits) {
                return Err(unusable(buffer));
            }
        }
        Ok(())
    };
    for column in columns.schema.fields() {
        let name = column.name();
        match column.data_type() {
            DataType::FixedSizeList(_, elements) => {
                array(name, Some(rows), &[1])?;
                let elements =
                    usize::try_from(*elements).ok().and_then(|elements| elements.checked_mul(rows));
                let elements = elements.filter(|&elements| elements <= body);
                let too_many =
                    || Malformed(format!("a batch of {rows} rows in {body} bytes, too few for {name:?}"));
                array(name, Some(elements.ok_or_else(too_many)?), &[1, 1])?;
            }
            DataType::LargeList(_) => {
                array(name, Some(rows), &[1, size_of::<i64>()])?;
                array(name, None, &[1, 1])?;
            }
            _ => array(name, Some(rows), &[1, 1])?,
        }
    }
    match nodes.next() {
        Some(_) => Err(Malformed("a batch with more columns than its schema".to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fields::tests::{item, noted, schema};
    use crate::client::slot::BodyPool;
    use arrow_array::{
        ArrayRef, FixedSizeListArray, Int32Array, Int64Array, LargeListArray, UInt8Array, UInt16Array,
        UInt64Array,
    };
    use arrow_buffer::OffsetBuffer;
    use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
    use arrow_schema::{Field, Schema};
    use percolator::half::bf16;
    use serde_json::{Value, json};

    fn all_kinds() -> Schema {
        let image = DataType::FixedSizeList(item(DataType::UInt8), 6);
        let words = DataType::FixedSizeList(item(DataType::Int64), 2);
        let tokens = DataType::LargeList(item(DataType::Int32));
        schema(vec![
            noted(
                "image",
                image,
                &json!({"dtype": "u8", "kind": "fixed", "shape": [2, 3], "layout": "nchw"}),
            ),
            noted("half", DataType::UInt16, &json!({"dtype": "bf16", "kind": "fixed", "shape": []})),
            noted("flag", DataType::UInt8, &json!({"dtype": "bool", "kind": "fixed", "shape": []})),
            noted("tokens", tokens, &json!({"dtype": "i32", "kind": "ragged", "shape": [], "max": 9})),
            noted("words", words, &json!({"dtype": "i64", "kind": "padded", "shape": [2], "max": 2})),
            Field::new("words.lengths", DataType::Int64, false),
            Field::new("percolator.epoch", DataType::UInt64, false),
        ])
    }

    fn three_rows() -> RecordBatch {
        let image = Arc::new(UInt8Array::from_iter_values(0..18)) as ArrayRef;
        let words = Arc::new(Int64Array::from_iter_values(0..6)) as ArrayRef;
        let tokens = Arc::new(Int32Array::from_iter_values([5, 6, 7])) as ArrayRef;
        let offsets = OffsetBuffer::new(vec![0_i64, 2, 2, 3].into());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(FixedSizeListArray::new(item(DataType::UInt8), 6, image, None)),
            Arc::new(UInt16Array::from_iter_values(
                [1.0, -2.5, 0.0].map(|value| bf16::from_f32(value).to_bits()),
            )),
            Arc::new(UInt8Array::from_iter_values([1, 0, 1])),
            Arc::new(LargeListArray::new(item(DataType::Int32), offsets, tokens, None)),
            Arc::new(FixedSizeListArray::new(item(DataType::Int64), 2, words, None)),
            Arc::new(Int64Array::from_iter_values([2, 1, 0])),
            Arc::new(UInt64Array::from_iter_values([4, 4, 0])),
        ];
        RecordBatch::try_new(Arc::new(all_kinds()), columns).unwrap()
    }

    fn note() -> Value {
        json!({
            "number": 8, "epoch": 4, "step": 7, "is_last": true, "records": 2, "rows": 3, "missed": 1,
            "ticket": ".5-0.mac"
        })
    }

    fn message(pool: &Arc<BodyPool>, note: &Value) -> ReceivedMessage {
        let (mut tracker, mut context) = (DictionaryTracker::new(false), IpcWriteContext::default());
        let options = IpcWriteOptions::default();
        let encoded = IpcDataGenerator::default().encode(&three_rows(), &mut tracker, &options, &mut context);
        let (_, encoded) = encoded.unwrap();
        let mut slot = pool.slot(encoded.arrow_data.len()).unwrap();
        slot.extend(&encoded.arrow_data).unwrap();
        let metadata = format!("{note}   ").into_bytes();
        ReceivedMessage { header: encoded.ipc_message, metadata, body: slot.into_bytes() }
    }

    fn columns() -> Arc<RemoteColumns> {
        Arc::new(RemoteColumns::of(all_kinds()).unwrap())
    }

    fn refused(change: impl FnOnce(&mut ReceivedMessage)) -> String {
        let mut message = message(&BodyPool::new(1), &note());
        change(&mut message);
        RemoteBatch::decode(&columns(), message).unwrap_err().0
    }

    #[test]
    fn columns_are_read_where_they_came() {
        let pool = BodyPool::new(1);
        let message = message(&pool, &note());
        let body = message.body.as_ptr_range();
        let batch = RemoteBatch::decode(&columns(), message).unwrap();
        assert_eq!(batch.get::<u8>("image").unwrap(), (0..18).collect::<Vec<u8>>());
        assert!(body.contains(&batch.bytes("image").unwrap().as_ptr()), "the column was copied");
        assert_eq!(batch.get::<bf16>("half").unwrap(), [1.0, -2.5, 0.0].map(bf16::from_f32));
        assert_eq!(batch.get::<bool>("flag").unwrap(), [true, false, true]);
        assert_eq!(batch.ragged::<i32>("tokens").unwrap(), (&[0, 2, 2, 3][..], &[5, 6, 7][..]));
        assert_eq!(batch.get::<i64>("words").unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(batch.get::<i64>("words.lengths").unwrap(), [2, 1, 0]);
        assert_eq!((batch.epochs(), batch.positions()), (Some(&[4, 4, 0][..]), None));
        let shapes = ["image", "half", "tokens", "words"].map(|name| batch.shape(name).unwrap());
        assert_eq!(shapes, [vec![3, 2, 3], vec![3], vec![3], vec![3, 2]]);
        assert_eq!((batch.number(), batch.records(), batch.rows(), batch.missed()), (8, 2, 3, 1));
        assert_eq!(batch.step(), Some(StepEnd { epoch: 4, step: 7, is_last: true }));
        assert_eq!(batch.epoch(), Some(4));
        assert_eq!(batch.record_batch(), &three_rows());
        assert_eq!(batch.ticket_end(), ".5-0.mac");
    }

    #[test]
    fn arrays_own_the_memory_of_their_batch() {
        let pool = BodyPool::new(1);
        let batch = RemoteBatch::decode(&columns(), message(&pool, &note())).unwrap();
        let first = batch.bytes("image").unwrap().as_ptr();
        let arrays = batch.into_arrays();
        let found: Vec<_> =
            arrays.iter().map(|array| (array.name(), array.dtype(), array.shape().to_vec())).collect();
        assert_eq!(
            found,
            [
                ("image", Dtype::U8, vec![3, 2, 3]),
                ("half", Dtype::Bf16, vec![3]),
                ("flag", Dtype::Bool, vec![3]),
                ("tokens", Dtype::I32, vec![3]),
                ("tokens.offsets", Dtype::I64, vec![4]),
                ("words", Dtype::I64, vec![3, 2]),
                ("words.lengths", Dtype::I64, vec![3]),
                ("percolator.epoch", Dtype::U64, vec![3]),
            ]
        );
        for array in &arrays {
            assert_eq!(array.as_ref().len(), array.shape().iter().product::<usize>() * array.dtype().size());
        }
        assert_eq!(arrays[0].as_ref().as_ptr(), first, "it was copied");
        assert_eq!(format!("{:?}", arrays[0]), "RemoteArray(image: u8 [3, 2, 3])");
        // One that is left keeps the memory of all.
        let offsets = arrays.into_iter().nth(4).unwrap();
        let second = RemoteBatch::decode(&columns(), message(&pool, &note())).unwrap();
        assert_ne!(second.bytes("image").unwrap().as_ptr(), first);
        let offsets: &[i64] = bytemuck::cast_slice(offsets.as_ref());
        assert_eq!(offsets, [0, 2, 2, 3]);
    }

    #[test]
    fn a_slot_comes_back_after_the_last_view() {
        let pool = BodyPool::new(1);
        let batch = RemoteBatch::decode(&columns(), message(&pool, &note())).unwrap();
        let (first, view) = (batch.bytes("image").unwrap().as_ptr(), batch.record_batch().clone());
        drop(batch);
        let second = RemoteBatch::decode(&columns(), message(&pool, &note())).unwrap();
        assert_ne!(second.bytes("image").unwrap().as_ptr(), first);
        assert_eq!(view, three_rows());
        drop(view);
        let third = RemoteBatch::decode(&columns(), message(&pool, &note())).unwrap();
        assert_eq!(third.bytes("image").unwrap().as_ptr(), first);
    }

    #[test]
    fn what_is_asked_for_wrongly_says_what_is_there() {
        let batch = RemoteBatch::decode(&columns(), message(&BodyPool::new(1), &note())).unwrap();
        let error = batch.get::<u8>("imagine").unwrap_err().to_string();
        assert_eq!(
            error,
            "there is no column \"imagine\": the batches have image, half, flag, tokens, words, \
             words.lengths, percolator.epoch"
        );
        assert!(batch.get::<u16>("half").unwrap_err().to_string().contains("bf16"));
        assert!(batch.get::<i32>("tokens").unwrap_err().to_string().contains("ragged"));
        assert!(batch.ragged::<i64>("words").unwrap_err().to_string().contains("not ragged"));
    }

    #[test]
    fn a_batch_that_cannot_be_is_refused() {
        let with_note = |note: Value| refused(|message| message.metadata = note.to_string().into());
        assert!(refused(|message| message.metadata.truncate(5)).contains("metadata"));
        assert!(refused(|message| message.header.clear()).contains("header"));
        assert!(refused(|message| message.body.truncate(64)).contains("whose header says"));
        let mut note = note();
        note["rows"] = json!(4);
        assert!(with_note(note.clone()).contains("4 are rows"));
        note["rows"] = json!(3);
        note["records"] = json!(4);
        assert!(with_note(note).contains("4 records"));
        let others =
            Arc::new(RemoteColumns::of(schema(vec![Field::new("a", DataType::Int8, false)])).unwrap());
        let message = message(&BodyPool::new(1), &self::note());
        assert!(RemoteBatch::decode(&others, message).unwrap_err().0.contains("more columns"));
    }

    /// Whatever is changed in a header, it is a batch or an error.
    #[test]
    fn no_header_is_believed() {
        let pool = BodyPool::new(1);
        let length = message(&pool, &note()).header.len();
        let mut refused = 0;
        for at in 0..length {
            for change in [0x01, 0x08, 0x80, 0xff] {
                let mut message = message(&pool, &note());
                message.header[at] ^= change;
                refused += usize::from(RemoteBatch::decode(&columns(), message).is_err());
            }
        }
        assert!(refused > length, "{refused} of {length}");
    }
}
