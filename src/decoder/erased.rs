//! A type-erased decoder, as a feed keeps it.

use std::any::Any;
use std::sync::Arc;

use super::{Decoded, RecordDecoder, WorkerSetup};
use crate::batch::Row;
use crate::batch::field::Field;
use crate::source::Record;

/// A worker's scratch memory, of a decoder's own type.
pub(crate) struct ErasedScratch(Box<dyn Any>);

/// A [`RecordDecoder`] whose scratch type is erased.
pub(crate) trait ErasedDecoder: Send + Sync {
    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>>;
    fn may_reshape(&self) -> bool;
    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>>;
    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>>;
    fn scratch(&self, setup: WorkerSetup) -> ErasedScratch;
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut ErasedScratch) -> Decoded;
    fn rest(&self, scratch: &mut ErasedScratch);
}

impl<D: RecordDecoder> ErasedDecoder for D {
    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        RecordDecoder::fields(self, first)
    }

    fn may_reshape(&self) -> bool {
        RecordDecoder::may_reshape(self)
    }

    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        RecordDecoder::reshape(self, first, fields)
    }

    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        RecordDecoder::scratch_bytes(self, first)
    }

    fn scratch(&self, setup: WorkerSetup) -> ErasedScratch {
        ErasedScratch(Box::new(RecordDecoder::scratch(self, setup)))
    }

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut ErasedScratch) -> Decoded {
        let scratch = scratch.0.downcast_mut().expect("a worker's scratch memory is its decoder's");
        RecordDecoder::decode(self, record, row, scratch)
    }

    fn rest(&self, scratch: &mut ErasedScratch) {
        let scratch = scratch.0.downcast_mut().expect("a worker's scratch memory is its decoder's");
        RecordDecoder::rest(self, scratch);
    }
}

/// A decoder that several feeds share.
impl<D: RecordDecoder> RecordDecoder for Arc<D> {
    type Scratch = D::Scratch;

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        RecordDecoder::fields(&**self, first)
    }

    fn may_reshape(&self) -> bool {
        RecordDecoder::may_reshape(&**self)
    }

    fn reshape(&self, first: &Record<'_>, fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        RecordDecoder::reshape(&**self, first, fields)
    }

    fn scratch_bytes(&self, first: &Record<'_>) -> Decoded<Vec<(&'static str, usize)>> {
        RecordDecoder::scratch_bytes(&**self, first)
    }

    fn scratch(&self, setup: WorkerSetup) -> Self::Scratch {
        RecordDecoder::scratch(&**self, setup)
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, scratch: &mut Self::Scratch) -> Decoded {
        RecordDecoder::decode(&**self, record, row, scratch)
    }

    fn rest(&self, scratch: &mut Self::Scratch) {
        RecordDecoder::rest(&**self, scratch);
    }
}
