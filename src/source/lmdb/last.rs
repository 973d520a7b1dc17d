//! The last record. Only a few pages are read, whatever the length of the file.

use super::Lmdb;
use super::environment::View;
use super::page::{Holds, Value};
use super::values::Values;
use crate::source::SourceError;

impl Lmdb {
    /// Shows the key and the value of the last record, if it can be read.
    pub(super) fn show_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        if let Err(error) = self.try_show_last(look) {
            tracing::debug!(%error, "the last record cannot be read");
        }
    }

    fn try_show_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), SourceError> {
        let view = View::begin(&self.environment)?;
        let pages = view.pages();
        let mut walk = view.walk(self.tree(&view)?, Holds::Records);
        let mut values = Values::default();
        let shown = walk.last(pages).and_then(|last| {
            let Some((key, value)) = last else { return Ok(()) };
            let value = match value {
                Value::Inline(value) => value,
                Value::Overflow { page, bytes } => {
                    let (read, _) = values.read(pages, page, bytes)?;
                    values.bytes(read.range)
                }
            };
            view.check()?;
            look(key, value);
            Ok(())
        });
        shown.map_err(|fault| view.error(fault, None))
    }
}
