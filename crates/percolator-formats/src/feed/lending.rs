//! Lends the bytes of mapped files.

#![expect(unsafe_code, reason = "bytes of a mapped file are lent")]

use std::sync::Arc;

use percolator::source::{Entry, Lender};

use crate::{FileMap, Lent};

/// The map that the last bytes were lent from.
#[derive(Default)]
pub(super) struct Lending(Option<(Arc<FileMap>, Lender)>);

impl Lending {
    /// The entry of a record: lent if its bytes are in a map, otherwise the cursor's.
    #[inline]
    pub(super) fn entry<'a>(&'a mut self, key: &'a [u8], value: Lent<'a>) -> Entry<'a> {
        let bytes = value.bytes();
        let Lent::Mapped(map, _) = value else { return Entry::borrowed(key, bytes) };
        if !self.0.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, map)) {
            let owner: Arc<FileMap> = Arc::clone(map);
            self.0 = Some((Arc::clone(map), Lender::new(owner)));
        }
        let Some((_, lender)) = &self.0 else { return Entry::borrowed(key, bytes) };
        // SAFETY: `bytes` are a range of `map` (`Lent::bytes`), which is never written to, moved or freed
        // before it is dropped (`FileMap`), and `lender` holds that very map. What another process could do
        // to the file is the caveat of every map, which `Access::Mapped` names.
        unsafe { Entry::lent_value(key, bytes, lender) }
    }
}
