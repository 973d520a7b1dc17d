//! Reads a file of a data set.

use std::io::{self, Read as _};
use std::path::Path;

use percolator_files::input_file;

/// The longest image file that is read. Each worker has one in memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads a whole image file into a buffer, whose content it replaces.
pub(crate) fn read_file(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    let (file, length) = input_file::open(path)?;
    bytes.clear();
    let room = usize::try_from(length).ok().filter(|_| length <= FILE_BYTES_MAX).ok_or_else(|| {
        let found = format!("it has {length} bytes, and an image file may have {FILE_BYTES_MAX}");
        io::Error::new(io::ErrorKind::FileTooLarge, found)
    })?;
    bytes.try_reserve(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // Without a limit, a file that keeps growing would be read for ever.
    file.take(length).read_to_end(bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // It has no blocks on the disk.
        file.as_file().set_len(FILE_BYTES_MAX + 1).unwrap();
        let said = read_file(file.path(), &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(said, "it has 1073741825 bytes, and an image file may have 1073741824");
        file.as_file().set_len(3).unwrap();
        let mut bytes = vec![7];
        read_file(file.path(), &mut bytes).unwrap();
        assert_eq!(bytes, [0; 3]);
    }
}
