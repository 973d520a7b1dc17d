//! Replaces the other half of this module in a build without CUDA.

use std::sync::Arc;

use candle_core::{CudaDevice, Tensor};
use percolator::Batch;

use crate::batch::IsWanted;
use crate::error::CandleError;

pub(crate) const IS_BUILT: bool = false;

/// Never reached: the device was refused before.
pub(crate) fn copies(
    _batch: &Batch,
    _gpu: &CudaDevice,
    _is_wanted: IsWanted<'_>,
) -> Result<Vec<(Arc<str>, Tensor)>, CandleError> {
    Err(CandleError::Candle(candle_core::Error::NotCompiledWithCudaSupport))
}
