//! A decoder made of declared fields and a closure.

use super::{Decoded, RecordDecoder, WorkerSetup};
use crate::batch::Row;
use crate::batch::field::Field;
use crate::source::Record;

/// What [`FeedBuilder::decode`](crate::FeedBuilder::decode) makes.
pub(crate) struct Closure<F> {
    fields: Vec<Field>,
    decode: F,
}

impl<F> Closure<F> {
    pub(crate) fn new(fields: Vec<Field>, decode: F) -> Self {
        Closure { fields, decode }
    }
}

impl<F> RecordDecoder for Closure<F>
where
    F: Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
{
    type Scratch = ();

    fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(self.fields.clone())
    }

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> Self::Scratch {}

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        (self.decode)(record, row)
    }
}
