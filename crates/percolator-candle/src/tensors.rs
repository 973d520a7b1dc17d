//! The tensors of a batch.

use std::sync::Arc;

use candle_core::{DType, Tensor};
use percolator::Batch;
use percolator::record::{RecordId, StepEnd};

use crate::error::CandleError;

/// The tensors of a batch by name, and what the batch says about its rows.
///
/// They are candle's own: they live as long as the program keeps them, and the batch's memory is not among
/// them.
#[derive(Clone, Debug)]
pub struct Tensors {
    tensors: Vec<(Arc<str>, Tensor)>,
    records: Box<[RecordId]>,
    rows: usize,
    step: Option<StepEnd>,
    lane: usize,
}

impl Tensors {
    pub(crate) fn new(batch: &Batch, tensors: Vec<(Arc<str>, Tensor)>) -> Self {
        Tensors {
            tensors,
            records: batch.records().into(),
            rows: batch.rows(),
            step: batch.step(),
            lane: batch.lane(),
        }
    }

    /// Returns a tensor by the name of its field, or as `FIELD.offsets` or `FIELD.lengths`.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if there is none of that name.
    pub fn get(&self, name: &str) -> Result<&Tensor, CandleError> {
        let found = self.tensors.iter().find(|(known, _)| &**known == name);
        found.map(|(_, tensor)| tensor).ok_or_else(|| CandleError::unknown(name, self.names()))
    }

    /// Returns a tensor by its name, if its elements have this type.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if there is none of that name; [`CandleError::Type`] if its elements have
    /// another type.
    pub fn get_as(&self, name: &str, dtype: DType) -> Result<&Tensor, CandleError> {
        let tensor = self.get(name)?;
        if tensor.dtype() == dtype {
            return Ok(tensor);
        }
        Err(CandleError::Type { tensor: name.to_owned(), found: tensor.dtype(), wanted: dtype })
    }

    /// Takes a tensor by its name. It is then no longer among the others.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if there is none of that name, or no longer.
    pub fn take(&mut self, name: &str) -> Result<Tensor, CandleError> {
        match self.tensors.iter().position(|(known, _)| &**known == name) {
            Some(at) => Ok(self.tensors.remove(at).1),
            None => Err(CandleError::unknown(name, self.names())),
        }
    }

    /// Returns the names of the tensors, field by field.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(|(name, _)| &**name)
    }

    /// Returns the tensors with their names, field by field.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (&**name, tensor))
    }

    /// Returns the number of records: of rows that are not padding. See [`Batch::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are no records. At the end of an epoch a replica may get none while others still have
    /// some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Returns the number of rows: the records, and the padding after them. It is the first extent of every
    /// tensor, but for ragged fields and their offsets.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns which rows are records, and not padding: `true` for the first [`len`](Self::len), then
    /// `false`.
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> {
        let records = self.len();
        (0..self.rows).map(move |row| row < records)
    }

    /// Returns which records these are, in the order of the rows.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        &self.records
    }

    /// Returns the step, and whether it is the last of its epoch: see [`Batch::step`].
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.step
    }

    /// Returns the lane that the batch came through.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.lane
    }
}

impl IntoIterator for Tensors {
    type Item = (Arc<str>, Tensor);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.tensors.into_iter()
    }
}
