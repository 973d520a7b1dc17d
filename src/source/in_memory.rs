//! Whether a part of a file is in the page cache.

use std::fs::File;

/// Whether the byte at `at` is in the page cache, found by a read that does not wait. If the kernel cannot
/// tell, as for files on other machines, the answer is no: requesting data that is already there costs
/// little.
#[cfg(all(target_os = "linux", not(miri)))]
pub(super) fn is_in_memory(file: &File, at: u64) -> bool {
    use std::io::IoSliceMut;

    use rustix::io::{ReadWriteFlags, preadv2};

    let mut byte = [0];
    matches!(preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT), Ok(1))
}

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(super) fn is_in_memory(_file: &File, _at: u64) -> bool {
    false
}
