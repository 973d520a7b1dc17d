//! TODO
mod batch;
mod cuda;
mod dtype;
mod error;
mod feed;
mod tensors;

pub use batch::CandleBatch;
pub use error::CandleError;
pub use feed::{CandleFeed, TensorSteps, TensorStepsOn};
pub use tensors::Tensors;
