//! The two types of a batch's floats.

use bytemuck::Pod;
use percolator::batch::Element;
use percolator::half::bf16;

/// The type of all floats of a batch; it has a 0 and a 1.
pub(super) trait Real: Element + Pod {
    const ZERO: Self;
    const ONE: Self;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
}

impl Real for bf16 {
    const ZERO: Self = bf16::ZERO;
    const ONE: Self = bf16::ONE;
}

/// 1 if true, else 0.
#[inline]
pub(super) fn real<T: Real>(is: bool) -> T {
    if is { T::ONE } else { T::ZERO }
}
