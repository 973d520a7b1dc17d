//! One record's part of its batch, to which a decoder writes.

#![expect(unsafe_code, reason = "a row's elements are among those of other rows, which other threads write")]

use std::fmt;

use bytemuck::Pod;

use super::layout::{BatchLayout, Count, Place};
use crate::base::shape::{Dtype, Element};
use crate::batch::field::{self, Field, FieldError, FieldKey, FieldKind};
use crate::receipt::content::ContentHash;
use crate::record::RecordId;
use crate::record::random::RecordRandom;
use crate::transform::{Cut, Draw};

/// One record's places in all fields of its batch. A decoder writes every field once.
///
/// A field is identified by its name, or, slightly faster, by its number in declaration order.
#[must_use = "a row that is not written fails its batch"]
pub struct Row<'a> {
    layout: &'a BatchLayout,
    memory: Memory,
    row: usize,
    id: &'a mut RecordId,
    draw: &'a mut Draw,
    /// Empty if content hashes are not kept.
    content: &'a mut [ContentHash],
    /// The seed of its random numbers, together with its id.
    seed: u64,
    /// One bit for each field that was written.
    written: u64,
    /// One bit for each field of varying length that was lent for writing, and whose length has not been set
    /// since.
    lent: u64,
}

/// The memory of a batch, in which one row of each field belongs to the [`Row`].
#[derive(Clone, Copy)]
pub(super) struct Memory(pub(super) *mut u8);

/// What belongs to a row besides its fields.
pub(super) struct RowParts<'a> {
    pub(super) id: &'a mut RecordId,
    pub(super) draw: &'a mut Draw,
    pub(super) content: &'a mut [ContentHash],
}

/// Returns part of an array.
///
/// # Safety
///
/// - `base` points to at least `start + len` initialised elements, which outlive `'a`.
/// - Nobody else reads or writes the `len` elements from `start` on during `'a`.
pub(super) unsafe fn part<'a, T>(base: *mut T, start: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the caller guarantees that there are this many elements.
    let first = unsafe { base.add(start) };
    // SAFETY: the caller guarantees that nobody else uses them during `'a`.
    unsafe { std::slice::from_raw_parts_mut(first, len) }
}

impl<'a> Row<'a> {
    /// # Safety
    ///
    /// - The memory has the layout, and is initialised.
    /// - `row` is below the layout's rows. Nobody else reads or writes this row of any array while the value
    ///   lives.
    pub(super) unsafe fn new(
        layout: &'a BatchLayout,
        memory: Memory,
        row: usize,
        parts: RowParts<'a>,
        seed: u64,
    ) -> Self {
        let RowParts { id, draw, content } = parts;
        Row { layout, memory, row, id, draw, content, seed, written: 0, lent: 0 }
    }

    /// The fields of the batch, in declaration order.
    #[must_use]
    pub fn fields(&self) -> &'a [Field] {
        self.layout.fields()
    }

    /// Writes all of the record's elements of a field: exactly as many as its shape has, or up to the maximum
    /// if the field is padded or ragged.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if there is no such field, if its elements have another type, or if the number of
    /// elements is wrong.
    #[inline]
    pub fn write<T: Element>(&mut self, field: impl FieldKey, values: &[T]) -> Result<(), FieldError> {
        let field = self.find::<T>(field)?;
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let kind = self.fields()[field].kind();
        let capacity = self.capacity(field);
        match kind {
            FieldKind::Fixed(_) if bytes.len() == capacity.len() => {
                capacity.copy_from_slice(bytes);
                self.written |= 1 << field;
                Ok(())
            }
            FieldKind::Padded { .. } | FieldKind::Ragged { .. } if bytes.len() <= capacity.len() => {
                capacity[..bytes.len()].copy_from_slice(bytes);
                self.end_at(field, values.len());
                Ok(())
            }
            _ => Err(self.wrong_length(field, values.len())),
        }
    }

    /// Writes the record's only element of a field.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    #[inline]
    pub fn set<T: Element>(&mut self, field: impl FieldKey, value: T) -> Result<(), FieldError> {
        self.write(field, std::slice::from_ref(&value))
    }

    /// Writes all of the record's elements of a field of any type, given as bytes in the machine's byte
    /// order. Otherwise the same as [`write`](Self::write). It is for decoders that learn the types of their
    /// fields when they run.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if there is no such field, if the number of bytes is not that of a number of elements
    /// that the field takes, or if an element of a field of booleans is neither 0 nor 1.
    pub fn write_bytes(&mut self, field: impl FieldKey, bytes: &[u8]) -> Result<(), FieldError> {
        let number = field::find(self.fields(), field)?;
        let field = &self.fields()[number];
        let (dtype, size) = (field.dtype(), field.dtype().size());
        if dtype == Dtype::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(FieldError::NotBool { field: field.name().to_owned() });
        }
        if !bytes.len().is_multiple_of(size) {
            let (field, found) = (field.name().to_owned(), bytes.len());
            return Err(FieldError::PartOfElement { field, dtype, found });
        }
        let is_fixed = matches!(field.kind(), FieldKind::Fixed(_));
        let elements = bytes.len() / size;
        let capacity = self.capacity(number).len();
        let fits = if is_fixed { bytes.len() == capacity } else { bytes.len() <= capacity };
        if !fits {
            return Err(self.wrong_length(number, elements));
        }
        self.capacity(number)[..bytes.len()].copy_from_slice(bytes);
        match is_fixed {
            true => self.written |= 1 << number,
            false => self.end_at(number, elements),
        }
        Ok(())
    }

    /// The record's elements of a field, to be written in place. They still hold values of an earlier batch:
    /// write all of them, because that cannot be checked. For a padded or ragged field this is room for the
    /// maximum, and the field counts as written only when its [length](Self::set_len) is set.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if there is no such field, or if its elements have another type.
    #[inline]
    pub fn values_mut<T: Element + Pod>(&mut self, field: impl FieldKey) -> Result<&mut [T], FieldError> {
        let field = self.find::<T>(field)?;
        if !matches!(self.fields()[field].kind(), FieldKind::Fixed(_)) {
            (self.lent, self.written) = (self.lent | 1 << field, self.written & !(1 << field));
        }
        Ok(bytemuck::cast_slice_mut(self.bytes_mut(field)))
    }

    /// Sets the number of elements that the record has of a padded or ragged field, after they were written
    /// through [`values_mut`](Self::values_mut). [`write`](Self::write) sets it by itself.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if there is no such field, if there is no room for `len` elements, or if `len` is not 0
    /// and the elements were not lent for writing before. A field of a fixed shape accepts only the length of
    /// its shape, and does not count as written by this.
    pub fn set_len(&mut self, field: impl FieldKey, len: usize) -> Result<(), FieldError> {
        let number = field::find(self.fields(), field)?;
        match self.fields()[number].kind() {
            FieldKind::Fixed(extents) if extents.checked_elements() == Some(len) => return Ok(()),
            FieldKind::Padded { max, .. } | FieldKind::Ragged { max } if len <= max => {}
            _ => return Err(self.wrong_length(number, len)),
        }
        if len > 0 && self.lent & 1 << number == 0 {
            return Err(FieldError::NotWritten { field: self.fields()[number].name().to_owned() });
        }
        self.end_at(number, len);
        Ok(())
    }

    /// Ends a padded or ragged field after `len` elements.
    fn end_at(&mut self, number: usize, len: usize) {
        let field = &self.fields()[number];
        let size = field.dtype().size();
        if let FieldKind::Padded { .. } = field.kind() {
            let pad = self.layout.place(number).pad;
            for element in self.capacity(number)[len * size..].chunks_exact_mut(size) {
                element.copy_from_slice(&pad[..size]);
            }
        }
        self.count(number, len);
        (self.written, self.lent) = (self.written | 1 << number, self.lent & !(1 << number));
    }

    /// The record's own random numbers: a function of the feed's seed and the record's id, the same on any
    /// thread, in any batch and after any resume. Each call restarts them.
    #[must_use]
    pub fn random(&self) -> RecordRandom {
        RecordRandom::new(self.seed, *self.id)
    }

    /// The number of this row in its batch, from 0.
    #[must_use]
    pub fn number(&self) -> usize {
        self.row
    }

    #[inline]
    fn find<T: Element>(&self, field: impl FieldKey) -> Result<usize, FieldError> {
        let number = field::find(self.fields(), field)?;
        let field = &self.fields()[number];
        if field.dtype() == T::DTYPE {
            return Ok(number);
        }
        Err(FieldError::Dtype { field: field.name().to_owned(), found: field.dtype(), wanted: T::DTYPE })
    }

    #[cold]
    fn wrong_length(&self, field: usize, found: usize) -> FieldError {
        let field = &self.fields()[field];
        let is_most = !matches!(field.kind(), FieldKind::Fixed(_));
        let allowed = field.row_elements().unwrap_or(usize::MAX);
        FieldError::Length { field: field.name().to_owned(), found, allowed, is_most }
    }

    /// The bytes of the record's elements of a field, aligned to their type. A fixed field then counts as
    /// written.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, field: usize) -> &mut [u8] {
        if let FieldKind::Fixed(_) = self.fields()[field].kind() {
            self.written |= 1 << field;
        }
        self.capacity(field)
    }

    #[inline]
    fn capacity(&mut self, field: usize) -> &mut [u8] {
        let Place { values, row_bytes, .. } = *self.layout.place(field);
        // SAFETY: the layout has more than `self.row` rows of this field, of which this one belongs to this
        // value (`new`), and `&mut self` prevents lending it twice.
        unsafe { part(self.memory.0, values + self.row * row_bytes, row_bytes) }
    }

    /// Stores how many elements the record has of a padded or ragged field.
    fn count(&mut self, field: usize, len: usize) {
        let at = match self.fields()[field].kind() {
            FieldKind::Fixed(_) => return,
            FieldKind::Padded { .. } => self.row,
            // The first offset belongs to the batch. While the batch is written, each other entry is its
            // row's length.
            FieldKind::Ragged { .. } => self.row + 1,
        };
        let start = self.layout.place(field).counts + at * size_of::<Count>();
        // SAFETY: the layout has one entry a row there, of which this one belongs to this value (`new`).
        let count = unsafe { part(self.memory.0, start, size_of::<Count>()) };
        let len = Count::try_from(len).unwrap_or(Count::MAX);
        count.copy_from_slice(bytemuck::bytes_of(&len));
    }

    /// Stores the record's random numbers for the worker that writes it: they are drawn in the order of the
    /// records, but the records are written in any order.
    pub(crate) fn set_draw(&mut self, draw: Draw) {
        *self.draw = draw;
    }

    /// The record's random numbers.
    pub(crate) fn draw(&self) -> Draw {
        *self.draw
    }

    /// Stores what the device that transforms the record cuts out of it.
    pub(crate) fn set_cut(&mut self, cut: Cut) {
        let Some((_, _, cuts)) = self.layout.staged(self.layout.rows()) else { return };
        let start = cuts + self.row * size_of::<Cut>();
        // SAFETY: the layout has one entry a row there, of which this one belongs to this value (`new`).
        let place = unsafe { part(self.memory.0, start, size_of::<Cut>()) };
        place.copy_from_slice(bytemuck::bytes_of(&cut));
    }

    /// Stores the record's hash for the receipt.
    pub(crate) fn set_content(&mut self, hash: ContentHash) {
        self.content.fill(hash);
    }

    /// Stores the record's id.
    pub(crate) fn set_id(&mut self, id: RecordId) {
        *self.id = id;
    }

    /// Checks that every field was written.
    #[inline]
    pub(crate) fn check_written(&self) -> Result<(), FieldError> {
        let all = u64::MAX >> (u64::BITS as usize - self.fields().len());
        if self.written == all { Ok(()) } else { Err(self.not_written()) }
    }

    #[cold]
    fn not_written(&self) -> FieldError {
        let first = (!self.written).trailing_zeros() as usize;
        FieldError::NotWritten { field: self.fields()[first].name().to_owned() }
    }

    /// Writes a padding row: zeros, and no elements in padded and ragged fields.
    pub(super) fn clear(&mut self) {
        for number in 0..self.fields().len() {
            match self.fields()[number].kind() {
                FieldKind::Fixed(_) => self.bytes_mut(number).fill(0),
                FieldKind::Padded { .. } | FieldKind::Ragged { .. } => {
                    self.end_at(number, 0);
                }
            }
        }
        self.set_cut(Cut::default());
        *self.id = RecordId::default();
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({}, row {})", self.id, self.row)
    }
}
