//! The fields of a batch on the host, as a training loop reads them.

use std::ops::Deref;

use crate::base::shape::{Dtype, Element, Extents};
use crate::batch::field::{self, Field, FieldError, FieldKey};
use crate::batch::{Array, ArrayPart, Filled};

/// A field of a batch, with its elements on the host.
#[derive(Clone, Copy, Debug)]
pub struct FieldView<'a> {
    field: &'a Field,
    shape: Extents,
    bytes: &'a [u8],
    /// Where each record's elements start, or how many there are.
    counts: &'a [i64],
    is_ragged: bool,
    is_padded: bool,
}

impl<'a> FieldView<'a> {
    pub(super) fn of(filled: &'a Filled, key: impl FieldKey) -> Result<Self, FieldError> {
        let layout = filled.layout();
        let number = field::find(layout.fields(), key)?;
        let array = |part| layout.array_of(number, part);
        let counts = |array: Option<&Array>| -> &'a [i64] {
            array.map_or(&[], |array| bytemuck::cast_slice(filled.array_bytes(array)))
        };
        let values = array(ArrayPart::Values).expect("every field has its elements");
        let (offsets, lengths) = (array(ArrayPart::Offsets), array(ArrayPart::Lengths));
        Ok(FieldView {
            field: &layout.fields()[number],
            shape: filled.extents(values),
            bytes: filled.array_bytes(values),
            counts: counts(offsets.or(lengths)),
            is_ragged: offsets.is_some(),
            is_padded: lengths.is_some(),
        })
    }

    /// Returns its declaration: its name, its type, and what each record has of it.
    #[must_use]
    pub fn field(&self) -> &'a Field {
        self.field
    }

    /// Returns the type of its elements on the host.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.field.dtype()
    }

    /// Returns the extents of its elements on the host, records first. For a ragged field, it is the total
    /// number of elements.
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.shape
    }

    /// Returns its elements as bytes, in the machine's byte order.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns how many elements each row of a padded field has before the padding.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the field is not [padded](Field::padded).
    pub fn lengths(&self) -> Result<&'a [i64], FieldError> {
        if self.is_padded {
            return Ok(self.counts);
        }
        Err(FieldError::NotPadded { field: self.field.to_string() })
    }

    /// Returns its elements, records one after the other.
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
        // Everything else was checked when the batch was laid out.
        let values = values.map_err(|_| FieldError::NoBool { field: name.to_owned() })?;
        Ok(Values { values, shape: self.shape })
    }

    /// Returns its elements, and where each record's elements start.
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
    /// Returns the extents, records first.
    #[must_use]
    pub fn shape(&self) -> Extents {
        self.shape
    }

    /// Returns the elements, which live as long as the batch is borrowed.
    #[must_use]
    pub fn into_slice(self) -> &'a [T] {
        self.values
    }

    /// Returns one row's elements.
    ///
    /// # Panics
    ///
    /// If there is no such row, as a slice does.
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

/// The elements of a ragged field: all of them, and where each row's elements start.
#[derive(Clone, Copy, Debug)]
pub struct Ragged<'a, T> {
    values: &'a [T],
    offsets: &'a [i64],
}

impl<'a, T> Ragged<'a, T> {
    /// Returns all elements, rows one after the other.
    #[must_use]
    pub fn values(&self) -> &'a [T] {
        self.values
    }

    /// Returns where each row's elements start in [`values`](Self::values), and where the last row's end: one
    /// number more than there are rows.
    #[must_use]
    pub fn offsets(&self) -> &'a [i64] {
        self.offsets
    }

    /// Returns one row's elements.
    ///
    /// # Panics
    ///
    /// If there is no such row, as a slice does.
    #[must_use]
    pub fn row(&self, row: usize) -> &'a [T] {
        let at = |row: usize| usize::try_from(self.offsets[row]).expect("offsets count what is in memory");
        &self.values[at(row)..at(row + 1)]
    }

    /// Returns the rows, padding included.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a [T]> {
        let this = Ragged { values: self.values, offsets: self.offsets };
        (0..self.offsets.len().saturating_sub(1)).map(move |row| this.row(row))
    }
}
