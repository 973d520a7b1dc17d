//! Tensors on NVIDIA's GPUs.

#[cfg(not(feature = "cuda"))]
mod disabled;
#[cfg(feature = "cuda")]
mod enabled;

#[cfg(not(feature = "cuda"))]
pub(crate) use self::disabled::{IS_BUILT, copies};
#[cfg(feature = "cuda")]
pub(crate) use self::enabled::{IS_BUILT, copies};
