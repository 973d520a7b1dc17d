//! Does nothing on systems other than Linux, and under Miri.

/// Has the same interface as on Linux.
#[derive(Debug)]
pub(in crate::source) struct PageCache;

impl PageCache {
    /// # Safety
    ///
    /// None required: nothing is done.
    #[expect(unsafe_code, reason = "the same interface as on Linux")]
    pub(in crate::source) unsafe fn of(
        _path: &std::path::Path,
        _id: percolator_files::file_id::FileId,
        _map: &[u8],
    ) -> Self {
        PageCache
    }

    pub(in crate::source) fn took(&mut self, _value: &[u8]) {}

    pub(in crate::source) fn passed_over(&mut self, _value: &[u8]) {}

    pub(in crate::source) fn close(&mut self) {}

    pub(in crate::source) fn jump(&mut self, _is_end_known: bool) {}

    pub(in crate::source) fn reads_until(&mut self, _last: Option<&[u8]>) -> bool {
        true
    }
}
