//! The files that a source consists of, one behind the other: which of them a record lies in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::OnceCell;

/// The names of a source's files, and how many records each has, as far as that is known. Whoever names a record in a
/// message keeps this, and keeps no database open by it. Clones know the same.
#[derive(Clone, Debug)]
pub struct Files(Arc<[File]>);

#[derive(Debug)]
struct File {
    path: PathBuf,
    /// Once it is known, it stays.
    records: OnceCell<u64>,
}

impl Files {
    /// Those of these names, of which nothing else is known.
    pub(crate) fn of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let file = |path: &Path| File { path: path.to_owned(), records: OnceCell::new() };
        Files(paths.into_iter().map(file).collect())
    }

    /// How many records one of them has, if that is known.
    pub(super) fn records(&self, number: usize) -> Option<u64> {
        self.0.get(number)?.records.get().copied()
    }

    /// One of them has so many records, unless something else was known of it; what is known then.
    pub(super) fn learn(&self, number: usize, records: u64) -> u64 {
        self.0.get(number).map_or(records, |file| *file.records.get_or_init(|| records))
    }

    /// The file that a record lies in, by its position over all of them.
    ///
    /// A walk comes to know where a file ends before it hands out a record of the next one. So of a record that was
    /// handed out, the files before its own are known.
    pub(crate) fn path_of(&self, position: u64) -> &Path {
        let mut before = position;
        for File { path, records } in &*self.0 {
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
