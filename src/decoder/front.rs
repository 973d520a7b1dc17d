//! What presents a record of another kind as a Datum, with further fields.

use super::example::{ExampleFront, Found};
use super::parts::PartsFront;
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use percolator_image::ColorMode;
use percolator_messages::Datum;

/// Presents a record as a Datum.
#[derive(Debug)]
pub(crate) enum Front {
    /// An Example.
    Example(ExampleFront),
    /// A record with named parts.
    Parts(PartsFront),
}

impl Front {
    /// What a worker keeps between records.
    pub(super) fn scratch(&self) -> Option<Found> {
        match self {
            Front::Example(example) => Some(example.scratch()),
            Front::Parts(_) => None,
        }
    }

    pub(super) fn is_interleaved(&self) -> bool {
        match self {
            Front::Example(example) => example.is_interleaved(),
            Front::Parts(parts) => parts.is_interleaved(),
        }
    }

    /// Whether all images have the same number of channels, if files are decoded in this mode.
    pub(super) fn has_fixed_channels(&self, color: ColorMode) -> bool {
        match self {
            Front::Example(example) => example.has_fixed_channels(color),
            Front::Parts(parts) => parts.has_fixed_channels(color),
        }
    }

    /// Checks that the first record of a feed has what the fields beside the image need.
    pub(super) fn check(&self, record: &[u8]) -> Result<(), RecordCause> {
        match self {
            Front::Example(example) => example.check(record),
            Front::Parts(parts) => parts.fields().check(record),
        }
    }

    /// The Datum that the first record of a batch stands for.
    pub(super) fn first_datum<'a>(&'a self, record: &'a [u8]) -> Result<Datum<'a>, RecordCause> {
        match self {
            Front::Example(example) => example.first_datum(record),
            Front::Parts(parts) => parts.datum(record),
        }
    }

    /// The Datum that a record stands for. Notes in `found` where an Example's features are.
    #[inline]
    pub(super) fn datum<'a>(
        &'a self,
        record: &'a [u8],
        found: &mut Option<Found>,
    ) -> Result<Datum<'a>, RecordCause> {
        match (self, found) {
            (Front::Example(example), Some(found)) => example.datum(record, found),
            (Front::Example(example), None) => example.first_datum(record),
            (Front::Parts(parts), _) => parts.datum(record),
        }
    }

    /// The fields beside those of the image.
    pub(super) fn fields(&self) -> Vec<Field> {
        match self {
            Front::Example(example) => example.fields().fields().collect(),
            Front::Parts(parts) => parts.fields().fields().collect(),
        }
    }

    /// Writes these fields, starting with the row's field `first`. An Example's features have been found.
    #[inline]
    pub(super) fn write(
        &self,
        record: &[u8],
        found: &Option<Found>,
        row: &mut Row<'_>,
        first: usize,
    ) -> Result<(), RecordCause> {
        match (self, found) {
            (Front::Example(example), Some(found)) => example.fields().write(record, found, row, first),
            (Front::Example(_), None) => Ok(()),
            (Front::Parts(parts), _) => parts.fields().write(record, row, first),
        }
    }
}
