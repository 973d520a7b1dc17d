//! A batch's fields as columns of Arrow, which lend its memory.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    ArrayRef, FixedSizeListArray, LargeListArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    UInt8Array, UInt64Array,
};
use arrow_buffer::{ArrowNativeType, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, FieldRef, Schema, SchemaRef};
use bytes::Bytes;
use percolator::batch::FieldKind;
use percolator::feed::OwnedArray;
use percolator::{Batch, Dtype, Field};
use serde::{Deserialize, Serialize};

use crate::grpc::{Code, Status};
use crate::request::Column;

/// The key of a column's metadata under which its [`FieldNote`] is.
pub(crate) const FIELD_NOTE: &str = "percolator.field";

/// The key of the schema's metadata under which the version of these rules is, and the version.
pub(crate) const VERSION: (&str, &str) = ("percolator.version", "1");

/// What a field is, beyond what Arrow's types can say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FieldNote {
    /// The type of its elements. Arrow has no bfloat16, whose bits come as u16, and packs booleans, which
    /// come as u8.
    pub(crate) dtype: String,
    pub(crate) kind: NotedKind,
    /// The extents of one record's array.
    pub(crate) shape: Vec<usize>,
    /// The most elements of a record, if it is padded or ragged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<usize>,
    /// What follows the elements of a padded row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pad: Option<String>,
    /// The order of an image's axes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) layout: Option<String>,
}

/// The kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NotedKind {
    Fixed,
    Padded,
    Ragged,
}

/// The columns of a feed's batches.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    fields: Arc<[Field]>,
    added: Arc<[Column]>,
    schema: SchemaRef,
}

impl Columns {
    pub(crate) fn of(fields: &[Field], added: &[Column]) -> Result<Self, Status> {
        let mut columns: Vec<FieldRef> = Vec::new();
        for field in fields {
            if let Some(shape) = field.made_on_device() {
                let message =
                    format!("the field {} is made on a device ({shape}), and none is here", field.name());
                return Err(Status::new(Code::InvalidArgument, message));
            }
            columns.push(Arc::new(column_of(field)?));
            if let FieldKind::Padded { .. } = field.kind() {
                let lengths = format!("{}.lengths", field.name());
                columns.push(Arc::new(ArrowField::new(lengths, DataType::Int64, false)));
            }
        }
        let mut unique: Vec<Column> = Vec::new();
        for &column in added {
            if !unique.contains(&column) {
                unique.push(column);
                let (name, kind) = described(column);
                columns.push(Arc::new(ArrowField::new(name, kind, false)));
            }
        }
        let (key, version) = VERSION;
        let metadata = HashMap::from([(key.to_owned(), version.to_owned())]);
        let schema = Arc::new(Schema::new_with_metadata(columns, metadata));
        Ok(Columns { fields: fields.into(), added: unique.into(), schema })
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The batch of these arrays, if it has the fields that the stream promised.
    fn batch_of<'a>(&self, arrays: &'a [OwnedArray]) -> Result<&'a Batch, Status> {
        let Some(first) = arrays.first() else {
            return Err(Status::new(Code::Internal, "a batch has no array"));
        };
        let batch = first.batch();
        if let Some((found, due)) = batch.fields().iter().zip(&*self.fields).find(|(found, due)| found != due)
        {
            let message = format!(
                "the stream's batches have {due}, and a later batch has {found}: crop or resize the images, \
                 so that all have one shape"
            );
            return Err(Status::new(Code::FailedPrecondition, message));
        }
        Ok(batch)
    }

    /// The columns of a batch, given all of its arrays. They lend the batch's memory.
    pub(crate) fn of_batch(&self, arrays: &[OwnedArray]) -> Result<RecordBatch, Status> {
        let rows = self.batch_of(arrays)?.rows();
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        let mut buffers = arrays.iter().map(lent);
        for field in &*self.fields {
            let kind = match field.kind() {
                FieldKind::Padded { .. } => NotedKind::Padded,
                FieldKind::Ragged { .. } => NotedKind::Ragged,
                _ => NotedKind::Fixed,
            };
            let made = column(self.schema.field(columns.len()), kind, rows, &mut buffers);
            columns.extend(made.map_err(internal)?);
        }
        for (column, values) in self.added.iter().zip(self.added_to(arrays)?) {
            columns.push(added_column(*column, values));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(internal)
    }

    /// The values of the columns that were asked for, row by row.
    pub(crate) fn added_to(&self, arrays: &[OwnedArray]) -> Result<Vec<Vec<u64>>, Status> {
        let batch = self.batch_of(arrays)?;
        let (rows, records) = (batch.rows(), batch.records());
        let of_records = |value: &dyn Fn(usize) -> u64| {
            (0..rows).map(|row| if row < records.len() { value(row) } else { 0 }).collect()
        };
        let added = self.added.iter().map(|column| match column {
            Column::Epoch => of_records(&|row| records[row].epoch),
            Column::Position => of_records(&|row| records[row].index),
            Column::Step => vec![batch.step().map_or(0, |step| step.step); rows],
            Column::Mask => batch.mask().map(u64::from).collect(),
        });
        Ok(added.collect())
    }
}

/// The name of a column that may be asked for, and the type of its elements.
fn described(column: Column) -> (&'static str, DataType) {
    match column {
        Column::Epoch => ("percolator.epoch", DataType::UInt64),
        Column::Position => ("percolator.position", DataType::UInt64),
        Column::Step => ("percolator.step", DataType::UInt64),
        Column::Mask => ("percolator.mask", DataType::UInt8),
    }
}

/// The column of this name, if it is one that may be asked for.
pub(crate) fn added_named(name: &str) -> Option<Column> {
    let mut all = [Column::Epoch, Column::Position, Column::Step, Column::Mask].into_iter();
    all.find(|&column| described(column).0 == name)
}

/// The column of this name that was asked for, if there is one that may be.
pub(crate) fn added_column_named(name: &str, values: Vec<u64>) -> Option<ArrayRef> {
    added_named(name).map(|column| added_column(column, values))
}

/// A column that was asked for.
fn added_column(column: Column, values: Vec<u64>) -> ArrayRef {
    match column {
        Column::Mask => {
            Arc::new(UInt8Array::from_iter_values(values.into_iter().map(|value| u8::from(value != 0))))
        }
        Column::Epoch | Column::Position | Column::Step => Arc::new(UInt64Array::from_iter_values(values)),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn internal(error: ArrowError) -> Status {
    Status::new(
        Code::Internal,
        format!("a batch does not become columns of Arrow: {error}; please report it"),
    )
}

/// The column of a field's elements.
fn column_of(field: &Field) -> Result<ArrowField, Status> {
    let (dtype, layout) = (field.dtype(), field.layout().map(|layout| layout.to_string().to_lowercase()));
    let of_elements = arrow_type(dtype)?;
    let elements = || Arc::new(ArrowField::new("item", of_elements.clone(), false));
    let (kind, shape, max) = match field.kind() {
        FieldKind::Padded { max, .. } => (NotedKind::Padded, vec![max], Some(max)),
        FieldKind::Ragged { max } => (NotedKind::Ragged, Vec::new(), Some(max)),
        FieldKind::Fixed(extents) => (NotedKind::Fixed, extents.to_vec(), None),
        _ => {
            let message = format!("the field {field} is of a kind that has no column yet");
            return Err(Status::new(Code::Unimplemented, message));
        }
    };
    let mut metadata = HashMap::new();
    let of_arrow = match kind {
        NotedKind::Ragged => DataType::LargeList(elements()),
        NotedKind::Fixed if shape.is_empty() => of_elements,
        NotedKind::Fixed | NotedKind::Padded => {
            metadata.insert("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned());
            let described = serde_json::json!({ "shape": shape }).to_string();
            metadata.insert("ARROW:extension:metadata".to_owned(), described);
            DataType::FixedSizeList(elements(), row_elements(field, &shape)?)
        }
    };
    let pad = match field.kind() {
        FieldKind::Padded { pad, .. } => Some(pad.to_string()),
        _ => None,
    };
    let note = FieldNote { dtype: dtype.to_string(), kind, shape, max, pad, layout };
    let note = serde_json::to_string(&note).expect("names and numbers can be written");
    metadata.insert(FIELD_NOTE.to_owned(), note);
    Ok(ArrowField::new(field.name(), of_arrow, false).with_metadata(metadata))
}

/// The number of elements of a row, as Arrow counts them.
fn row_elements(field: &Field, shape: &[usize]) -> Result<i32, Status> {
    let elements = shape.iter().try_fold(1_usize, |all, &extent| all.checked_mul(extent));
    elements.and_then(|elements| i32::try_from(elements).ok()).ok_or_else(|| {
        let message = format!("a record's part of {field} has more elements than Arrow can count (2^31)");
        Status::new(Code::InvalidArgument, message)
    })
}

/// Arrow's type of the elements.
fn arrow_type(dtype: Dtype) -> Result<DataType, Status> {
    Ok(match dtype {
        Dtype::F64 => DataType::Float64,
        Dtype::F32 => DataType::Float32,
        Dtype::F16 => DataType::Float16,
        Dtype::I64 => DataType::Int64,
        Dtype::I32 => DataType::Int32,
        Dtype::I16 => DataType::Int16,
        Dtype::I8 => DataType::Int8,
        Dtype::U64 => DataType::UInt64,
        Dtype::U32 => DataType::UInt32,
        Dtype::U16 | Dtype::Bf16 => DataType::UInt16,
        Dtype::U8 | Dtype::Bool => DataType::UInt8,
        other => {
            let message = format!("elements of type {other} have no column yet");
            return Err(Status::new(Code::Unimplemented, message));
        }
    })
}

/// The columns of one field, as they are described: its elements, and the lengths of a padded one. Takes its
/// buffers: the elements, and then the offsets of a ragged one, or the lengths of a padded one. They may be
/// another process's, so all that Arrow relies on is checked.
pub(crate) fn column(
    described: &ArrowField,
    kind: NotedKind,
    rows: usize,
    buffers: &mut impl Iterator<Item = Buffer>,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let missing = || unfit(format!("the batch lacks an array of {}", described.name()));
    let mut take = || buffers.next().ok_or_else(missing);
    let values = take()?;
    Ok(match (kind, described.data_type()) {
        (NotedKind::Ragged, DataType::LargeList(item)) => {
            let (offsets, values) = (offsets(take()?, rows)?, elements(item.data_type(), values)?);
            vec![Arc::new(LargeListArray::try_new(item.clone(), offsets, values, None)?)]
        }
        (NotedKind::Fixed | NotedKind::Padded, DataType::FixedSizeList(item, size)) => {
            // Arrow multiplies without a check.
            let all = usize::try_from(*size).ok().and_then(|size| size.checked_mul(rows));
            let values = elements(item.data_type(), values)?;
            if all != Some(values.len()) {
                let (name, found) = (described.name(), values.len());
                return Err(unfit(format!("{rows} rows of {size} elements of {name} in {found}")));
            }
            let list = FixedSizeListArray::try_new_with_length(item.clone(), *size, values, None, rows)?;
            let mut columns: Vec<ArrayRef> = vec![Arc::new(list)];
            if kind == NotedKind::Padded {
                columns.push(elements(&DataType::Int64, take()?)?);
            }
            columns
        }
        (_, of_elements) => vec![elements(of_elements, values)?],
    })
}

/// Where the elements of each row begin, and where the last ones end.
fn offsets(buffer: Buffer, rows: usize) -> Result<OffsetBuffer<i64>, ArrowError> {
    let offsets = scalars::<i64>(buffer)?;
    let are_in_order =
        offsets.first().is_some_and(|&first| first >= 0) && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    if Some(offsets.len()) != rows.checked_add(1) || !are_in_order {
        let found = offsets.len();
        return Err(unfit(format!("{found} offsets of {rows} rows, which must follow one another")));
    }
    Ok(OffsetBuffer::new(offsets))
}

/// Elements of this type, one after the other.
fn elements(kind: &DataType, buffer: Buffer) -> Result<ArrayRef, ArrowError> {
    match kind {
        DataType::Float64 => primitive::<Float64Type>(buffer),
        DataType::Float32 => primitive::<Float32Type>(buffer),
        DataType::Float16 => primitive::<Float16Type>(buffer),
        DataType::Int64 => primitive::<Int64Type>(buffer),
        DataType::Int32 => primitive::<Int32Type>(buffer),
        DataType::Int16 => primitive::<Int16Type>(buffer),
        DataType::Int8 => primitive::<Int8Type>(buffer),
        DataType::UInt64 => primitive::<UInt64Type>(buffer),
        DataType::UInt32 => primitive::<UInt32Type>(buffer),
        DataType::UInt16 => primitive::<UInt16Type>(buffer),
        DataType::UInt8 => primitive::<UInt8Type>(buffer),
        other => Err(unfit(format!("elements of the type {other}, of which there are none"))),
    }
}

fn primitive<T: ArrowPrimitiveType>(buffer: Buffer) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(PrimitiveArray::<T>::new(scalars::<T::Native>(buffer)?, None)))
}

/// All that a buffer has, as values. Arrays start at multiples of 64 bytes.
fn scalars<T: ArrowNativeType>(buffer: Buffer) -> Result<ScalarBuffer<T>, ArrowError> {
    let (bytes, size) = (buffer.len(), size_of::<T>());
    if !bytes.is_multiple_of(size) || buffer.as_ptr().align_offset(align_of::<T>()) != 0 {
        let start = buffer.as_ptr();
        return Err(unfit(format!("{bytes} bytes at {start:?}, where values of {size} should be")));
    }
    Ok(ScalarBuffer::new(buffer, 0, bytes / size))
}

fn unfit(what: String) -> ArrowError {
    ArrowError::InvalidArgumentError(what)
}

/// The bytes of an array, where they are.
fn lent(array: &OwnedArray) -> Buffer {
    if array.as_ref().is_empty() {
        // Without bytes, an owner's address is not kept, and need not be aligned.
        return Buffer::from_vec(Vec::<u64>::new());
    }
    Buffer::from(Bytes::from_owner(array.clone()))
}
