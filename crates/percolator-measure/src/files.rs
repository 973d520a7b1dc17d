//! Loads files into memory, and drops them from it.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use percolator_files::input_file;

use crate::error::MeasureError;
use crate::process::bytes_after;

/// Reads the files into memory if they fit in what is free. Returns whether they did.
pub(crate) fn load(files: &[PathBuf]) -> Result<bool, MeasureError> {
    if !fit(files)? {
        return Ok(false);
    }
    let mut buffer = vec![0; 1 << 20];
    for path in files {
        let Some((mut file, bytes)) = open(path)? else { continue };
        let parts: Vec<_> = input_file::data_parts(&file, bytes).collect();
        for part in parts {
            file.seek(SeekFrom::Start(part.start)).map_err(failed(path, "seek in the file"))?;
            let mut part = (&file).take(part.end - part.start);
            while part.read(&mut buffer).map_err(failed(path, "read the file"))? > 0 {}
        }
    }
    Ok(true)
}

/// Opens a file; `None` for what is no regular one. A list may name a FIFO, which would be waited for, or a
/// device without an end.
fn open(path: &Path) -> Result<Option<(File, u64)>, MeasureError> {
    input_file::open_regular(path).map_err(failed(path, "open the file"))
}

/// Whether the files fit in the memory that is free, as far as the system says.
pub(crate) fn fit(files: &[PathBuf]) -> Result<bool, MeasureError> {
    let mut bytes = 0_u64;
    for path in files {
        bytes += input_file::data_bytes(path).map_err(failed(path, "look at the file"))?;
    }
    Ok(available_bytes().is_none_or(|available| bytes <= available))
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> MeasureError {
    move |error| MeasureError::File { path: path.to_owned(), action, error }
}

/// The memory that Linux could use for files without taking it from programs.
fn available_bytes() -> Option<u64> {
    bytes_after("MemAvailable:", &std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Asks the system to drop the files from its page cache, which needs no privileges. It keeps pages that are
/// mapped by a process, and those not yet on disk.
#[cfg(target_os = "linux")]
pub(crate) fn evict(files: &[PathBuf]) -> Result<(), MeasureError> {
    use rustix::fs::{Advice, fadvise};

    for path in files {
        let Some((file, _)) = open(path)? else { continue };
        fadvise(&file, 0, None, Advice::DontNeed)
            .map_err(|error| failed(path, "drop the file from memory")(error.into()))?;
    }
    Ok(())
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn evict(_files: &[PathBuf]) -> Result<(), MeasureError> {
    Err(MeasureError::Machine(
        "reading from storage cannot be measured: this system cannot be asked to drop files from memory; \
         Linux can"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An LMDB may have the length of its map, 1 TiB, and a few pages.
    #[test]
    fn the_holes_of_a_file_need_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.mdb");
        std::fs::write(&path, [7; 10_000]).unwrap();
        let Some(available) = available_bytes() else { return };
        File::options().write(true).open(&path).unwrap().set_len(4 * available).unwrap();
        let files = [path];
        assert!(fit(&files).unwrap());
        assert!(load(&files).unwrap());
    }

    #[test]
    fn what_is_no_regular_file_is_left_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let [fifo, image] = ["fifo", "image"].map(|name| folder.path().join(name));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        std::fs::write(&image, [7; 100]).unwrap();
        let files = [fifo, image, "/dev/zero".into()];
        assert!(load(&files).unwrap());
        if cfg!(target_os = "linux") {
            evict(&files).unwrap();
        }
        assert!(load(&[folder.path().join("none")]).is_err());
    }
}
