//! Batches of rows: checked against their bodies, then decoded and validated by Arrow.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashMap;

use arrow_array::ArrayRef;
use arrow_buffer::Buffer;
use arrow_ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow_ipc::{CompressionType, MetadataVersion, RecordBatch};
use arrow_schema::{DataType, SchemaRef};

use super::message::{ArrowSource, Frame, parsed};
use crate::FormatError;
use crate::columns::Columns;
use crate::table_files::caught;

/// The most rows of a batch: what Arrow asks of writers. Columns without bytes could state any number.
const ROWS_MAX: i64 = i32::MAX as i64;

/// What a run of one byte takes in a zstd frame, and how many bytes it is at most.
const ZSTD_RUN: (u64, u64) = (4, 128 * 1024);

/// The most bytes that one byte of an LZ4 block stands for.
const LZ4_RATIO: u64 = 255;

/// What all batches of a file or stream are decoded with.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) schema: SchemaRef,
    pub(super) columns: Columns,
}

/// The values of dictionaries by their numbers.
pub(super) type Dictionaries = HashMap<i64, ArrayRef>;

/// The number of rows that a batch states, checked against those of its columns.
pub(super) fn rows_of(batch: &RecordBatch<'_>, layout: &Layout) -> Result<u64, String> {
    let types = layout.schema.fields().iter().map(|field| field.data_type());
    check_nodes(batch, types)
}

/// Decodes a batch's columns.
pub(super) fn decode(
    source: &ArrowSource,
    frame: &Frame,
    layout: &Layout,
    dictionaries: &Dictionaries,
) -> Result<Vec<ArrayRef>, FormatError> {
    let at = frame.metadata.start;
    let metadata = source.buffer(frame.metadata.clone())?;
    let message = parsed(source, &metadata, at)?;
    let batch = message.header_as_record_batch();
    let batch = batch.ok_or_else(|| source.damaged(at, "here is no batch any more: the file has changed"))?;
    let body = source.buffer(frame.body.clone())?;
    let damaged = |what: String| source.damaged(at, what);

    rows_of(&batch, layout).map_err(damaged)?;
    check_buffers(&batch, &body).map_err(damaged)?;
    let version = message.version();
    let decoded = columns(&body, batch, layout, &layout.columns.numbers, dictionaries, version);
    decoded.map_err(|what| {
        // One column after the other shows whose fault it is.
        let of_columns = || layout.columns.numbers.iter().zip(&layout.columns.names);
        let failed = |&(number, _): &(&usize, &String)| {
            columns(&body, batch, layout, &[*number], dictionaries, version).is_err()
        };
        let name = of_columns().find(failed).map(|(_, name)| format!("column {name:?}: "));
        damaged(format!("a batch is damaged: {}{what}", name.unwrap_or_default()))
    })
}

fn columns(
    body: &Buffer,
    batch: RecordBatch<'_>,
    layout: &Layout,
    numbers: &[usize],
    dictionaries: &Dictionaries,
    version: MetadataVersion,
) -> Result<Vec<ArrayRef>, String> {
    caught(|| {
        RecordBatchDecoder::try_new(body, batch, SchemaRef::clone(&layout.schema), dictionaries, &version)
            .and_then(|decoder| decoder.with_projection(Some(numbers)).read_record_batch())
            .map(|batch| batch.columns().to_vec())
            .map_err(|error| error.to_string())
    })
}

/// Adds a dictionary to those that are there.
pub(super) fn apply_dictionary(
    source: &ArrowSource,
    frame: &Frame,
    layout: &Layout,
    dictionaries: &mut Dictionaries,
) -> Result<(), FormatError> {
    let at = frame.metadata.start;
    let metadata = source.buffer(frame.metadata.clone())?;
    let message = parsed(source, &metadata, at)?;
    let damaged = |what: String| source.damaged(at, format!("a dictionary is damaged: {what}"));
    let dictionary = message.header_as_dictionary_batch();
    let dictionary = dictionary.ok_or_else(|| damaged("here is no dictionary".to_owned()))?;
    let batch = dictionary.data().ok_or_else(|| damaged("it has no values".to_owned()))?;
    let body = source.buffer(frame.body.clone())?;
    check_rows(batch.length()).map_err(damaged)?;
    check_buffers(&batch, &body).map_err(damaged)?;
    let version = message.version();
    caught(|| {
        read_dictionary(&body, dictionary, &layout.schema, dictionaries, &version)
            .map_err(|error| error.to_string())
    })
    .map_err(damaged)
}

fn check_rows(rows: i64) -> Result<u64, String> {
    match u64::try_from(rows) {
        Ok(rows_) if rows <= ROWS_MAX => Ok(rows_),
        _ => Err(format!("a batch states {rows} rows; 0 to {ROWS_MAX} are possible")),
    }
}

/// Compares the rows of the columns with the batch's, and their number with the schema's.
fn check_nodes<'a>(
    batch: &RecordBatch<'_>,
    types: impl Iterator<Item = &'a DataType>,
) -> Result<u64, String> {
    let rows = check_rows(batch.length())?;
    let mut nodes = batch.nodes().into_iter().flatten();
    for (column, dtype) in types.enumerate() {
        let first = nodes.next().map(|node| node.length());
        if first != Some(batch.length()) {
            let found = first.map_or("none".to_owned(), |rows| rows.to_string());
            return Err(format!("a batch states {rows} rows, and its column {column} {found}"));
        }
        let below = nodes_of(dtype).saturating_sub(1);
        if nodes.by_ref().take(below).filter(|node| node.length() >= 0).count() != below {
            return Err(format!("a batch's column {column} has not as many parts as its type"));
        }
    }
    match nodes.count() {
        0 => Ok(rows),
        more => Err(format!("a batch has {more} parts of columns more than the schema")),
    }
}

/// The number of nodes that a type has in a batch.
fn nodes_of(dtype: &DataType) -> usize {
    use DataType as D;

    let below = match dtype {
        D::List(field)
        | D::LargeList(field)
        | D::ListView(field)
        | D::LargeListView(field)
        | D::FixedSizeList(field, _)
        | D::Map(field, _) => nodes_of(field.data_type()),
        D::Struct(fields) => fields.iter().map(|field| nodes_of(field.data_type())).sum(),
        D::Union(fields, _) => fields.iter().map(|(_, field)| nodes_of(field.data_type())).sum(),
        D::RunEndEncoded(ends, values) => {
            nodes_of(ends.data_type()).saturating_add(nodes_of(values.data_type()))
        }
        _ => 0,
    };
    below.saturating_add(1)
}

/// Compares the places of the buffers with the body, and the lengths that packed ones state with what they
/// can be, before anything is allocated.
fn check_buffers(batch: &RecordBatch<'_>, body: &[u8]) -> Result<(), String> {
    let codec = batch.compression().map(|compression| compression.codec());
    let mut unpacked = 0_u64;
    for (number, buffer) in batch.buffers().into_iter().flatten().enumerate() {
        let place = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let bytes = place
            .and_then(|(offset, length)| body.get(offset..offset.checked_add(length)?))
            .ok_or_else(|| {
                format!(
                    "buffer {number} has {} bytes from byte {} of the body, which has {}",
                    buffer.length(),
                    buffer.offset(),
                    body.len()
                )
            })?;
        if let (Some(codec), false) = (codec, bytes.is_empty()) {
            let length = unpacked_length(codec, bytes).map_err(|what| format!("buffer {number} {what}"))?;
            unpacked = unpacked.saturating_add(length);
        }
    }
    // The decoder allocates as much, and would end the process if it could not.
    let possible =
        usize::try_from(unpacked).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
    match possible {
        true => Ok(()),
        false => {
            Err(format!("a batch takes {unpacked} bytes unpacked, which is more than there is memory for"))
        }
    }
}

/// The length that a packed buffer states, if it can be that long.
fn unpacked_length(codec: CompressionType, buffer: &[u8]) -> Result<u64, String> {
    let Some((length, packed)) = buffer.split_first_chunk::<8>() else {
        return Err(format!("is packed, and has {} bytes, not even its length", buffer.len()));
    };
    let length = i64::from_le_bytes(*length);
    // It is stored as it is.
    if length == -1 {
        return Ok(0);
    }
    let length = u64::try_from(length).map_err(|_| format!("states a negative length, {length}"))?;
    if length == 0 {
        return Ok(0);
    }
    let bytes = packed.len() as u64;
    let most = match codec {
        CompressionType::ZSTD => {
            match zstd::zstd_safe::get_frame_content_size(packed) {
                Err(_) => return Err("is no zstd frame".to_owned()),
                Ok(Some(stated)) if stated > length => {
                    return Err(format!("states {length} bytes, and its zstd frame {stated}"));
                }
                Ok(_) => {}
            }
            let (run, length) = ZSTD_RUN;
            bytes.checked_div(run).unwrap_or_default().saturating_add(1).saturating_mul(length)
        }
        CompressionType::LZ4_FRAME if packed.starts_with(&[0x04, 0x22, 0x4D, 0x18]) => {
            bytes.saturating_mul(LZ4_RATIO)
        }
        CompressionType::LZ4_FRAME => return Err("is no LZ4 frame".to_owned()),
        other => return Err(format!("is packed with {other:?}, which is unknown")),
    };
    if length > most {
        return Err(format!(
            "states a length of {length} bytes unpacked, and its {bytes} bytes give {most} at most"
        ));
    }
    Ok(length)
}
