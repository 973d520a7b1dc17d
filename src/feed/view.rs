//! A batch's fields on the host, as a training loop reads them.

use std::ops::Deref;

use crate::base::shape::{Dtype, Element, Extents};
use crate::batch::field::{self, Field, FieldError, FieldKey};
use crate::batch::{Array, Filled, Part};

/// A field of a batch, with its elements on the host.
#[derive(Clone, Copy, Debug)]
pub struct FieldView<'a> {
    field: &'a Field,
    shape: Extents,
    bytes: &'a [u8],
    /// Where each record's elements begin, or how many there are.
    counts: &'a [i64],
    is_ragged: bool,
}

impl<'a> FieldView<'a> {
    pub(super) fn of(filled: &'a Filled, key: impl FieldKey) -> Result<Self, FieldError> {
        let layout = filled.layout();
        let number = field::find(layout.fields(), key)?;
        let array = |part| layout.array_of(number, part);
        let counts = |array: Option<&Array>| -> &'a [i64] {
            array.map_or(&[], |array| bytemuck::cast_slice(filled.array_bytes(array)))
        };
        let values = array(Part::Values).expect("every field has its elements");
        let offsets = array(Part::Offsets);
        Ok(FieldView {
            field: &layout.fields()[number],
            shape: filled.extents(values),
            bytes: filled.array_bytes(values),
            counts: counts(offsets.or(array(Part::Lengths))),
            is_ragged: offsets.is_some(),
        })
    }

    /// Its name, its type, and what each record has of it.
    #[must_use]
    pub fn field(&self) -> &'a Field {
        self.field
    }

    /// The type of its elements on the host.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.field.dtype()
    }

    /// The extents of its elements on the host, records first. Of a ragged field, how many there are in all.
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.shape
    }

    /// Its elements as bytes, in the machine's byte order.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Of a padded field, how many elements each row has before the padding; of another, none.
    #[must_use]
    pub fn lengths(&self) -> &'a [i64] {
        if self.is_ragged { &[] } else { self.counts }
    }

    /// Its elements, records one after the other.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if they have another type, or if the field is [ragged](Self::ragged).
    pub fn get<T: Element>(&self) -> Result<Values<'a, T>, FieldError> {
        if self.is_ragged {
            return Err(FieldError::Ragged { field: self.field.name().to_owned() });
        }
        self.values()
    }

    fn values<T: Element>(&self) -> Result<Values<'a, T>, FieldError> {
        let (name, found) = (self.field.name(), self.field.dtype());
        if self.field.made_on_device().is_some_and(|made| made.dtype == T::DTYPE) {
            return Err(FieldError::OnDevice { field: name.to_owned(), found, wanted: T::DTYPE });
        }
        if found != T::DTYPE {
            return Err(FieldError::Dtype { field: name.to_owned(), found, wanted: T::DTYPE });
        }
        let values = bytemuck::checked::try_cast_slice(self.bytes);
        // All else was seen to be right when the batch was laid out.
        let values = values.map_err(|_| FieldError::NoBool { field: name.to_owned() })?;
        Ok(Values { values, shape: self.shape })
    }

    /// Its elements, and where each record's begin.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if they have another type, or if the field is not ragged.
    pub fn ragged<T: Element>(&self) -> Result<Ragged<'a, T>, FieldError> {
        let Values { values, .. } = self.values()?;
        match self.is_ragged {
            true => Ok(Ragged { values, offsets: self.counts }),
            false => Err(FieldError::NotRagged { field: self.field.name().to_owned() }),
        }
    }
}

/// The elements of a field, records one after the other: a slice, and its shape.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a, T> {
    values: &'a [T],
    shape: Extents,
}

impl<'a, T> Values<'a, T> {
    /// The extents, records first.
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.shape
    }

    /// The elements, for as long as the batch is there.
    #[must_use]
    pub fn into_slice(self) -> &'a [T] {
        self.values
    }

    /// One row's elements.
    ///
    /// # Panics
    ///
    /// If there are not so many rows, as a slice does.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [T] {
        let elements: usize = self.shape.iter().skip(1).product();
        &self.values[row * elements..(row + 1) * elements]
    }
}

impl<T> Deref for Values<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.values
    }
}

/// The elements of a ragged field: all of them, and where each row's begin.
#[derive(Clone, Copy, Debug)]
pub struct Ragged<'a, T> {
    values: &'a [T],
    offsets: &'a [i64],
}

impl<'a, T> Ragged<'a, T> {
    /// All elements, rows one after the other.
    #[must_use]
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Where each row's elements begin in [`values`](Self::values), and where the last one's end: one more than there are
    /// rows.
    #[must_use]
    pub fn offsets(&self) -> &'a [i64] {
        self.offsets
    }

    /// One row's elements.
    ///
    /// # Panics
    ///
    /// If there are not so many rows, as a slice does.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [T] {
        let at = |row: usize| usize::try_from(self.offsets[row]).expect("offsets count what lies in memory");
        &self.values[at(row)..at(row + 1)]
    }

    /// The rows, padding included.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [T]> {
        let this = Ragged { values: self.values, offsets: self.offsets };
        (0..self.offsets.len().saturating_sub(1)).map(move |row| this.row(row))
    }
}
