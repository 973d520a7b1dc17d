//! Lends the records of a mapped file.

#![expect(unsafe_code, reason = "records of a mapped file are lent")]

use std::sync::Arc;

use percolator_tfrecord::{FileMap, Frame, HEAD_BYTES, PlainFile};

use super::cursor::Verify;
use crate::base::cache_lines;
use crate::source::page_cache::PageCache;
use crate::source::{Entry, Lender, SourceError, Verifier};

/// The map as the lender of records whose data have not been verified yet. Data of another lender are not in
/// this map.
impl Verifier for FileMap {
    #[inline]
    fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        Ok(self.check(value)?)
    }
}

/// A map, and what the kernel reads of it ahead of the cursor.
pub(super) struct Mapped {
    /// Declared, hence dropped, before the map.
    pub(super) page_cache: PageCache,
    pub(super) map: Arc<FileMap>,
    lender: Lender,
}

impl Mapped {
    /// `map` is one of the file's.
    pub(super) fn new(plain: &PlainFile, map: &Arc<FileMap>, verify: Verify) -> Self {
        let map = map.clone();
        let lender = match verify {
            Verify::ByCursor => Lender::new(map.clone()),
            Verify::ByUser => Lender::verifying(map.clone()),
        };
        // SAFETY: the map begins with the file's first byte, and is kept beside the page cache, which is
        // dropped before it.
        let page_cache = unsafe { PageCache::of(plain.path(), plain.state().id, (*map).as_ref()) };
        Mapped { page_cache, map, lender }
    }

    /// Lends a record that was read from this map.
    #[inline]
    pub(super) fn entry<'a>(
        &'a self,
        frame: Frame,
        key: &'a [u8],
        verify: Verify,
    ) -> Result<Entry<'a>, SourceError> {
        let data = self.map.data(frame);
        if verify == Verify::ByCursor {
            self.map.check(data)?;
        }
        // SAFETY: the data are in the map, which is never written to, and `lender` holds it. What another
        // process could do to the file is the caveat of every map, which `Access::Mapped` names.
        Ok(unsafe { Entry::lent_value(key, data, &self.lender) })
    }

    /// Prefetches the head of a record that is read soon, into the processor's cache.
    #[inline]
    pub(super) fn ask_for_head(&self, offset: u64) {
        cache_lines::ask_for(self.map.bytes(offset..offset.saturating_add(HEAD_BYTES as u64)));
    }
}
