//! Inputs from files, one after the other, on any toolchain.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Runs a body on each of these files, and on the files of each of these folders. A property that does not
/// hold ends it, after it has named the file.
#[must_use]
pub fn replay(body: fn(&[u8]), given: impl Iterator<Item = PathBuf>) -> ExitCode {
    let mut inputs = Vec::new();
    for given in given {
        match given.is_dir() {
            true => inputs.extend(files_of(&given)),
            false => inputs.push(given),
        }
    }
    for path in &inputs {
        match std::fs::read(path) {
            Ok(bytes) => {
                println!("{}: {} bytes", path.display(), bytes.len());
                body(&bytes);
            }
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} inputs", inputs.len());
    ExitCode::SUCCESS
}

/// The files of a folder, sorted.
pub(crate) fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort_unstable();
    files
}
