//! Whether the system has a part of a file in memory.

use std::fs::File;

/// By a read that does not wait. Where that cannot be told, as of files on other machines, it is not: to ask for what is
/// there costs little.
#[cfg(target_os = "linux")]
pub(super) fn is_in_memory(file: &File, at: u64) -> bool {
    use std::io::IoSliceMut;

    use rustix::io::{ReadWriteFlags, preadv2};

    let mut byte = [0];
    matches!(preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT), Ok(1))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_in_memory(_file: &File, _at: u64) -> bool {
    false
}
