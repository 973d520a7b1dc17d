//! The first record of a source. From it a feed knows its shapes and its memory before it starts.

use std::sync::Arc;

use crate::base::offload::NotYet;
use crate::batch::field::Field;
use crate::decoder::image::{ImageDecoder, Input};
use crate::error::FeedError;
use crate::record::RecordId;
use crate::source::{FIRST, Identity, Record, Source, SourceError, VerifiesLater, samples};
use crate::workers::processor::{Processor, ScratchBytes};

/// What is known from the first record of a source.
pub(super) struct FirstRecord {
    /// What the data set is recognised by.
    pub(super) identity: Identity,
    pub(super) fields: Vec<Field>,
    /// If it is an image: its properties before the transform.
    pub(super) input: Option<Input>,
    pub(super) scratch_bytes: ScratchBytes,
    pub(super) value_bytes: usize,
    pub(super) copied_bytes: usize,
    /// Whether the workers must verify it (a deferred checksum).
    pub(super) is_unverified: bool,
    /// The memory that a cursor holds.
    pub(super) cursor_bytes: usize,
}

impl FirstRecord {
    /// `seed` picks the further records that the data set is recognised by.
    pub(super) fn look(
        source: &dyn Source,
        processor: &Processor,
        image: Option<&ImageDecoder>,
        threads: usize,
        seed: u64,
    ) -> Result<Self, FeedError> {
        let helpers = Arc::new(NotYet { threads });
        let mut cursor = source.deferring_cursor(VerifiesLater::promised(Some(helpers)))?;
        let Some(entry) = cursor.advance()? else {
            return Err(SourceError::Empty { path: source.path().to_owned() }.into());
        };
        entry.check()?;
        let (key, value, companion) = (entry.key(), entry.value(), entry.companion());
        let record = Record { id: RecordId::default(), key, value, companion };
        let (fields, scratch_bytes) = processor.fields(&record)?;
        let input = image.map(|image| image.input(&record)).transpose();
        let input = input.map_err(|cause| processor.error(&record, cause))?;
        let (value_bytes, copied_bytes) = (entry.value_bytes(), entry.copied_bytes());
        let identity = source.identity().with_samples_of(&samples::look(source, seed));
        let mut identity =
            identity.with_first("record", key, value).with_record(FIRST, key, value, companion);
        if let Some(companion) = companion {
            identity = identity.with_first("companion", key, companion);
        }
        let (is_unverified, first_bytes) = (entry.is_unverified(), value.len());
        let cursor_bytes = cursor.held_bytes(first_bytes);
        Ok(FirstRecord {
            identity,
            fields,
            input,
            scratch_bytes,
            value_bytes,
            copied_bytes,
            is_unverified,
            cursor_bytes,
        })
    }
}
