//! The consecutive files that a source consists of, and which of them a record is in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::OnceCell;
use percolator_files::checksum::crc32c;

/// The most files whose name together has every path.
const NAMED_MAX: usize = 3;

/// The paths of a source's files, and how many records each has, as far as known. Messages name records by
/// this, so that they keep no database open. Clones share what is known.
///
/// A source of several files returns a clone with each [`Source::files`](super::Source::files), and
/// [learns](Self::learn) how many records a file has before its cursor returns a record of the next one.
#[derive(Clone, Debug)]
pub struct Files(Arc<Vec<File>>);

#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    /// Set once; never changes afterwards.
    records: OnceCell<u64>,
}

impl Files {
    /// Files with these paths, whose record counts are unknown.
    #[must_use]
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let file = |path: &Path| File { path: path.to_owned(), records: OnceCell::new() };
        Files(Arc::new(paths.into_iter().map(file).collect()))
    }

    /// Appends a file whose record count is unknown. Clones that were made before do not get it.
    pub(super) fn push(&mut self, path: &Path) {
        Arc::make_mut(&mut self.0).push(File { path: path.to_owned(), records: OnceCell::new() });
    }

    /// A name for all of them: their paths, or, if there are many, the first, the last and the number.
    pub(crate) fn name(&self) -> PathBuf {
        let shown = |file: &File| file.path.display().to_string();
        match &**self.0 {
            [first, .., last] if self.0.len() > NAMED_MAX => {
                format!("{} to {} ({} databases)", shown(first), shown(last), self.0.len()).into()
            }
            few => few.iter().map(shown).collect::<Vec<_>>().join(", ").into(),
        }
    }

    /// A checksum of the paths, if the [name](Self::name) leaves some of them out.
    pub(crate) fn checksum(&self) -> Option<u32> {
        let add = |checksum: u32, file: &File| {
            crc32c(&[&checksum.to_le_bytes(), file.path.as_os_str().as_encoded_bytes()].concat())
        };
        (self.0.len() > NAMED_MAX).then(|| self.0.iter().fold(0, add))
    }

    /// The number of records in a file, if known.
    pub(super) fn records(&self, number: usize) -> Option<u64> {
        self.0.get(number)?.records.get().copied()
    }

    /// Notes the number of records in a file, by the file's number from 0, unless it is already known.
    /// Returns the known number.
    pub fn learn(&self, number: usize, records: u64) -> u64 {
        self.0.get(number).map_or(records, |file| *file.records.get_or_init(|| records))
    }

    /// The path of the file that a record is in, by its position over all files.
    ///
    /// A cursor learns where a file ends before it returns a record of the next file. So for every record
    /// that was returned, the counts of the files before its own are known.
    #[must_use]
    pub fn path_of(&self, position: u64) -> &Path {
        let mut before = position;
        for File { path, records } in &**self.0 {
            match records.get().and_then(|&records| before.checked_sub(records)) {
                Some(behind) => before = behind,
                None => return path,
            }
        }
        self.0.last().map_or(Path::new(""), |file| &file.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_lies_in_the_file_that_its_position_leads_to() {
        let files = Files::of(["a", "b", "c"].map(Path::new));
        assert_eq!(files.path_of(7), Path::new("a"), "nothing is known yet");
        assert_eq!(files.learn(0, 3), 3);
        assert_eq!(
            [0, 2, 3, 9].map(|position| files.path_of(position).to_str().unwrap()),
            ["a", "a", "b", "b"]
        );
        files.learn(1, 0);
        assert_eq!([2, 3].map(|position| files.path_of(position).to_str().unwrap()), ["a", "c"]);
        assert_eq!(files.learn(0, 5), 3, "what is known stays");
        files.learn(2, 1);
        assert_eq!(files.path_of(4), Path::new("c"), "past the end it is the last one");
    }
}
