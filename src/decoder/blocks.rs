//! Records that are plain bytes or blocks of tokens.

use super::{DecodeFailure, Decoded, RecordDecoder, WorkerSetup};
use crate::base::shape::Dtype;
use crate::batch::Row;
use crate::batch::field::{Field, FieldError};
use crate::source::Record;

/// Copies each record's value as it is to the field `data` of bytes.
///
/// ```
/// use percolator::{Feed, RawBytes};
///
/// let of_one_length = Feed::builder().lmdb("features").decoder(RawBytes::fixed());
/// let of_any = Feed::builder().lmdb("documents").decoder(RawBytes::up_to(65_536));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawBytes {
    /// The maximum length; `None` if all records are as long as the first.
    max: Option<usize>,
}

const DATA: usize = 0;

impl RawBytes {
    /// For records that are all as long as the first.
    #[must_use]
    pub fn fixed() -> Self {
        RawBytes { max: None }
    }

    /// For records of any length up to `max` bytes; the field is [ragged](Field::ragged).
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

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        Ok(row.write(DATA, record.value)?)
    }
}

/// Writes each record's value, a block of little-endian tokens, to the field `tokens`. A record with a
/// different number of tokens is an error.
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
    /// Blocks of `block` unsigned 16-bit tokens. Batches hold them as i32, the type with which frameworks
    /// index.
    #[must_use]
    pub fn u16(block: usize) -> Self {
        Tokens { block, stored: Stored::U16, dtype: Dtype::I32 }
    }

    /// Blocks of `block` signed 32-bit tokens.
    #[must_use]
    pub fn i32(block: usize) -> Self {
        Tokens { block, stored: Stored::I32, dtype: Dtype::I32 }
    }

    /// Makes batches hold the tokens as i64.
    #[must_use]
    pub fn as_i64(self) -> Self {
        Tokens { dtype: Dtype::I64, ..self }
    }

    /// Makes batches hold the tokens in their stored type: u16 or i32.
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

    fn may_reshape(&self) -> bool {
        false
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
