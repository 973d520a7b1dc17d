//! Dropping pages of a mapped file from memory.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::Once;

use rustix::fs::{Advice, fadvise};

/// Drops `len` bytes of a file from `start` on, or everything from there. The kernel drops no page that a
/// process has mapped, so `empty_map` first takes the pages out of the map.
pub(in crate::source) fn drop_pages(
    file: &File,
    start: u64,
    len: Option<NonZeroU64>,
    empty_map: impl FnOnce() -> io::Result<()>,
) {
    static WARNED: Once = Once::new();

    let emptied = empty_map();
    let dropped = fadvise(file, start, len, Advice::DontNeed).map_err(io::Error::from);
    if let Err(error) = emptied.and(dropped) {
        // Warn only once: if one part cannot be dropped, none can.
        WARNED.call_once(|| tracing::warn!(%error, "drop_behind: the kernel does not drop used pages"));
        tracing::debug!(%error, start, "the kernel does not drop used pages");
    }
}
