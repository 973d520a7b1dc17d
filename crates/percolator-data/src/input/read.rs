//! Reads a file of a data set.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file, and returns it with its length. A FIFO would block until somebody writes, and a
/// device may have no end, so neither is opened.
pub(super) fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    match found.is_file() {
        true => Ok((file, found.len())),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Reads a whole file into a buffer, whose content it replaces.
pub(crate) fn read_file(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (file, length) = open_file(path)?;
    bytes.clear();
    let room = usize::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.try_reserve(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Without a limit, a file that keeps growing would be read for ever.
    file.take(length).read_to_end(bytes)?;
    Ok(())
}
