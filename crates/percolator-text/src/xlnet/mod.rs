//! XLNet's data, as the public `data_utils.py` prepares it: text into tokens, tokens into rows of two
//! segments with masked n-grams, rows into records of `tf.train.Example`; and these records, fed.
//!
//! All values are the script's, for the same flags and seeds. [`prepare`] writes a data set, [`XlnetData`]
//! opens one, and [`XlnetDecoder`] turns its records into what the model takes.

mod blocks;
mod data;
mod decoder;
mod error;
mod flags;
mod glob;
mod info;
mod mask;
mod preparation;
mod prepare;
mod records;
mod segments;
mod stream;
mod token_file;
mod tokens;
mod vocabulary;

pub use data::{DataError, DataFlags, XlnetData};
pub use decoder::{InputError, InputFlags, XlnetDecoder};
pub use error::PrepareError;
pub use flags::{Flags, Split};
pub use info::RecordInfo;
pub use percolator::Progress;
pub use preparation::Preparation;
pub use prepare::{Options, PassSummary, Summary, prepare};
pub use tokens::TextCounts;
pub use vocabulary::Vocabulary;
