//! The two types of a batch's floats.

use percolator::Row;
use percolator::batch::{Element, FieldError};
use percolator::half::bf16;

/// The type of all floats of a batch; it has a 0 and a 1.
pub(super) trait Real: Element {
    const ZERO: Self;
    const ONE: Self;

    /// The record's elements of a field, to be written in place.
    fn values_mut<'r>(row: &'r mut Row<'_>, field: usize) -> Result<&'r mut [Self], FieldError>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn values_mut<'r>(row: &'r mut Row<'_>, field: usize) -> Result<&'r mut [Self], FieldError> {
        row.values_mut(field)
    }
}

impl Real for bf16 {
    const ZERO: Self = bf16::ZERO;
    const ONE: Self = bf16::ONE;

    fn values_mut<'r>(row: &'r mut Row<'_>, field: usize) -> Result<&'r mut [Self], FieldError> {
        row.values_mut(field)
    }
}

/// 1 if true, else 0.
#[inline]
pub(super) fn real<T: Real>(is: bool) -> T {
    if is { T::ONE } else { T::ZERO }
}
