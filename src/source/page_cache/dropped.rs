//! Pages of a mapped file that are not to stay in the system's memory.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::sync::Once;

use rustix::fs::{Advice, fadvise};

/// Drops so much of a file, or all from `start` on. The system drops no page that a process has mapped: so first out of
/// the map, which is for `empty_map` to do, then out of the memory.
pub(in crate::source) fn drop_pages(
    file: &File,
    start: u64,
    len: Option<NonZeroU64>,
    empty_map: impl FnOnce() -> io::Result<()>,
) {
    static SAID: Once = Once::new();

    let emptied = empty_map();
    let dropped = fadvise(file, start, len, Advice::DontNeed).map_err(io::Error::from);
    if let Err(error) = emptied.and(dropped) {
        // What cannot be dropped once cannot be dropped a thousand times.
        SAID.call_once(|| tracing::warn!(%error, "drop_behind: the system does not drop what was used"));
        tracing::debug!(%error, start, "the system does not drop what was used");
    }
}
