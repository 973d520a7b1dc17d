//! The first record of a source. From it a feed knows its shapes and its memory before it starts.

use std::sync::Arc;

use super::error::FeedError;
use crate::base::memory_limit::MemoryLimit;
use crate::base::offload::NotYet;
use crate::batch::fault::BatchFault;
use crate::batch::field::Field;
use crate::decoder::image::{ImageDecoder, Input};
use crate::record::RecordId;
use crate::source::{FIRST, Identity, Record, Source, SourceError, VerifiesLater, samples};
use crate::workers::processor::{Processor, ScratchBytes};

/// The most bad records at the start of a source: after more, the source is assumed to have records of
/// another kind.
const BAD_AT_START_MAX: u64 = 1000;

/// What is known from the first record of a source.
pub(super) struct FirstRecord {
    /// What the data set is recognised by.
    pub(super) identity: Identity,
    pub(super) fields: Vec<Field>,
    /// If it is an image: its properties before the transform.
    pub(super) input: Option<Input>,
    pub(super) scratch_bytes: ScratchBytes,
    /// The memory that decoding it alone takes.
    pub(super) alone_bytes: usize,
    pub(super) value_bytes: usize,
    pub(super) copied_bytes: usize,
    /// Whether the workers must verify it (a deferred checksum).
    pub(super) is_unverified: bool,
    /// The memory that a cursor holds.
    pub(super) cursor_bytes: usize,
}

impl FirstRecord {
    /// Reads the source's first record that is not bad, or, if all are bad, the first one whose fields can be
    /// determined. `seed` picks the further records by which the data set is recognised. A record that would
    /// take more than `limit` is not decoded: the budget will refuse it.
    pub(super) fn look(
        source: &dyn Source,
        processor: &Processor,
        image: Option<&ImageDecoder>,
        threads: usize,
        seed: u64,
        limit: Option<&MemoryLimit>,
    ) -> Result<Self, FeedError> {
        let helpers = Arc::new(NotYet { threads });
        let mut cursor = source.deferring_cursor(VerifiesLater::promised(Some(helpers)))?;
        let mut identity = None;
        let (mut first_fault, mut first_told) = (None, None);
        for index in 0..BAD_AT_START_MAX {
            let Some(entry) = cursor.advance()? else { break };
            let (key, value, companion) = (entry.key(), entry.value(), entry.companion());
            let record = Record { id: RecordId { epoch: 0, index }, key, value, companion };
            let looked = entry.check().map_err(BatchFault::from).and_then(|()| {
                // Of the first record that can be read, whether or not it can be used.
                identity.get_or_insert_with(|| identified(source, seed, &record));
                let (fields, scratch_bytes) = processor.fields(&record)?;
                let input = Self::input(processor, image, &record)?;
                let alone_bytes = bytes_alone(&fields, &scratch_bytes);
                let is_within = limit.is_none_or(|limit| alone_bytes <= limit.bytes);
                let tried = if is_within { processor.check_good(&record, &fields) } else { Ok(()) };
                let is_good = match tried.map_err(BatchFault::from) {
                    Err(fault) if !processor.is_bad(&fault) => return Err(fault),
                    tried => tried.is_ok(),
                };
                Ok((fields, scratch_bytes, alone_bytes, input, is_good))
            });
            // Bytes that were overwritten in the meantime look wrong too.
            entry.check_used()?;
            let (fields, scratch_bytes, alone_bytes, input, is_good) = match looked {
                Ok(looked) => looked,
                Err(fault) if processor.is_bad(&fault) => {
                    first_fault.get_or_insert(fault);
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            };
            let (value_bytes, copied_bytes) = (entry.value_bytes(), entry.copied_bytes());
            let (is_unverified, first_bytes) = (entry.is_unverified(), value.len());
            let cursor_bytes = cursor.held_bytes(first_bytes).total();
            let first = FirstRecord {
                identity: identity.clone().unwrap_or_default(),
                fields,
                input,
                scratch_bytes,
                alone_bytes,
                value_bytes,
                copied_bytes,
                is_unverified,
                cursor_bytes,
            };
            if is_good {
                return Ok(first);
            }
            first_told.get_or_insert(first);
        }
        if let Some(first) = first_told {
            return Ok(first);
        }
        let empty = || SourceError::Empty { path: source.path().to_owned() }.into();
        Err(first_fault.map_or_else(empty, FeedError::from))
    }

    fn input(
        processor: &Processor,
        image: Option<&ImageDecoder>,
        record: &Record<'_>,
    ) -> Result<Option<Input>, BatchFault> {
        let input = image.map(|image| image.input(record)).transpose();
        Ok(input.map_err(|cause| processor.error(record, cause))?)
    }
}

/// The memory that one record takes by itself: its row, and a worker's scratch memory.
fn bytes_alone(fields: &[Field], scratch_bytes: &ScratchBytes) -> usize {
    let row_bytes = |field: &Field| field.row_elements()?.checked_mul(field.dtype().size());
    let rows = fields.iter().map(|field| row_bytes(field).unwrap_or(usize::MAX));
    rows.chain(scratch_bytes.iter().map(|&(_, bytes)| bytes)).fold(0, usize::saturating_add)
}

/// What the data set is recognised by, given its first record.
fn identified(source: &dyn Source, seed: u64, first: &Record<'_>) -> Identity {
    let &Record { key, value, companion, .. } = first;
    let identity = source.identity().with_samples_of(&samples::look(source, seed));
    let identity = identity.with_first("record", key, value).with_record(FIRST, key, value, companion);
    match companion {
        Some(companion) => identity.with_first("companion", key, companion),
        None => identity,
    }
}
