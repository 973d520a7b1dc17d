//! XLNet's data.

mod error;
mod glob;
mod vocabulary;

pub use error::PrepareError;
pub use vocabulary::Vocabulary;
