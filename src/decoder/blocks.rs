//! Records that are plain bytes: as they are, or as blocks of tokens.

use super::{DecodeFailure, Decoded, RecordDecoder, WorkerSetup};
use crate::base::shape::Dtype;
use crate::batch::Row;
use crate::batch::field::{Field, FieldError};
use crate::source::Record;

/// Each record's value as it is, in the field `data` of bytes.
///
/// ```
/// use percolator::{Feed, RawBytes};
///
/// let of_one_length = Feed::builder().lmdb("features").decoder(RawBytes::fixed());
/// let of_any = Feed::builder().lmdb("documents").decoder(RawBytes::up_to(65_536));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawBytes {
    /// `None`: all are as long as the first.
    max: Option<usize>,
}

const DATA: usize = 0;

impl RawBytes {
    /// Of records that are all as long as the first.
    #[must_use]
    pub fn fixed() -> Self {
        RawBytes { max: None }
    }

    /// Of records of any length up to `max` bytes: the field is [ragged](Field::ragged).
    #[must_use]
    pub fn up_to(max: usize) -> Self {
        RawBytes { max: Some(max) }
    }
}

impl RecordDecoder for RawBytes {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![match self.max {
            None => Field::new("data", Dtype::U8, [first.value.len()]),
            Some(max) => Field::ragged("data", Dtype::U8, max),
        }])
    }

    fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(row.write(DATA, record.value)?)
    }
}

/// Each record's value as a block of tokens, low byte first, in the field `tokens`: as many as were said, or an error.
///
/// ```
/// use percolator::{Feed, Tokens};
///
/// // Records of 1024 u16 each, as nanoGPT writes them, as the i64 that an embedding takes.
/// let feed = Feed::builder().lmdb("corpus").batch_size(8).decoder(Tokens::u16(1024).as_i64());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    block: usize,
    stored: Stored,
    dtype: Dtype,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    U16,
    I32,
}

const TOKENS: usize = 0;

impl Tokens {
    /// Blocks of so many tokens of two bytes, without a sign. In a batch they are i32, which frameworks index with.
    #[must_use]
    pub fn u16(block: usize) -> Self {
        Tokens { block, stored: Stored::U16, dtype: Dtype::I32 }
    }

    /// Blocks of so many tokens of four bytes, with a sign.
    #[must_use]
    pub fn i32(block: usize) -> Self {
        Tokens { block, stored: Stored::I32, dtype: Dtype::I32 }
    }

    /// In a batch they are i64.
    #[must_use]
    pub fn as_i64(self) -> Self {
        Tokens { dtype: Dtype::I64, ..self }
    }

    /// In a batch they are u16, as they lie, if that is what they are; others stay what they are.
    #[must_use]
    pub fn as_stored(self) -> Self {
        let dtype = match self.stored {
            Stored::U16 => Dtype::U16,
            Stored::I32 => Dtype::I32,
        };
        Tokens { dtype, ..self }
    }

    fn stored_bytes(self) -> usize {
        match self.stored {
            Stored::U16 => size_of::<u16>(),
            Stored::I32 => size_of::<i32>(),
        }
    }
}

impl RecordDecoder for Tokens {
    type Scratch = ();

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("tokens", self.dtype, [self.block])])
    }

    fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        let (value, each) = (record.value, self.stored_bytes());
        if value.len() != self.block.saturating_mul(each) {
            let found = value.len();
            let allowed = self.block;
            return Err(match found % each {
                0 => {
                    let field = "tokens".to_owned();
                    FieldError::Length { field, found: found / each, allowed, is_most: false }.into()
                }
                _ => {
                    DecodeFailure::new(format!("{found} bytes are not {allowed} tokens of {each} bytes each"))
                }
            });
        }
        let (pairs, fours) = (value.as_chunks().0, value.as_chunks().0);
        match (self.stored, self.dtype) {
            (Stored::U16, Dtype::I32) => {
                let tokens = row.values_mut::<i32>(TOKENS)?;
                tokens.iter_mut().zip(pairs).for_each(|(to, &from)| *to = u16::from_le_bytes(from).into());
            }
            (Stored::U16, Dtype::I64) => {
                let tokens = row.values_mut::<i64>(TOKENS)?;
                tokens.iter_mut().zip(pairs).for_each(|(to, &from)| *to = u16::from_le_bytes(from).into());
            }
            (Stored::U16, _) => {
                let tokens = row.values_mut::<u16>(TOKENS)?;
                tokens.iter_mut().zip(pairs).for_each(|(to, &from)| *to = u16::from_le_bytes(from));
            }
            (Stored::I32, Dtype::I64) => {
                let tokens = row.values_mut::<i64>(TOKENS)?;
                tokens.iter_mut().zip(fours).for_each(|(to, &from)| *to = i32::from_le_bytes(from).into());
            }
            (Stored::I32, _) => {
                let tokens = row.values_mut::<i32>(TOKENS)?;
                tokens.iter_mut().zip(fours).for_each(|(to, &from)| *to = i32::from_le_bytes(from));
            }
        }
        Ok(())
    }
}
