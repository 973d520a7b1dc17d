//! Other systems than Linux are left to themselves.

use crate::source::Dealt;

/// As where something is done.
#[derive(Debug)]
pub(in crate::source) struct PageCache;

impl PageCache {
    /// # Safety
    ///
    /// Nothing is asked for.
    #[expect(unsafe_code, reason = "as where something is done")]
    pub(in crate::source) unsafe fn of(_path: &std::path::Path, _id: crate::source::file_id::FileId) -> Self {
        PageCache
    }

    pub(in crate::source) fn took(&mut self, _key: &[u8], _value: &[u8]) {}

    pub(in crate::source) fn passed_over(&mut self, _key: &[u8], _value: &[u8]) {}

    pub(in crate::source) fn drop_behind(&mut self) -> bool {
        false
    }

    pub(in crate::source) fn dealt(&mut self, _dealt: Dealt) {}

    pub(in crate::source) fn leave(&mut self) {}

    pub(in crate::source) fn jump(&mut self, _is_end_known: bool) {}

    pub(in crate::source) fn goes_on_until(&mut self, _last: Option<&[u8]>) -> bool {
        true
    }
}
