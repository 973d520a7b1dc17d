//! Where a database's sidecar may be kept, and its name there.

use std::path::{Path, PathBuf};

use percolator_files::checksum::crc32c;

use super::IndexPlace;

/// The end of the name of an index.
const ENDING: &str = ".percolator-index";

/// How much of a path is kept in the name: file systems allow 255 bytes, and a temporary file's name is
/// longer.
const READABLE_CHARS: usize = 100;

/// The files that may be the sidecar, in order of preference.
pub(super) fn sidecars(place: &IndexPlace, database: &Path) -> Vec<PathBuf> {
    match place {
        IndexPlace::Beside => {
            let in_cache = cache_folder().map(|folder| folder.join(name_of(database)));
            beside(database).into_iter().chain(in_cache).collect()
        }
        IndexPlace::Folder(folder) => vec![folder.join(name_of(database))],
        IndexPlace::Memory => Vec::new(),
    }
}

fn beside(database: &Path) -> Option<PathBuf> {
    let mut name = database.file_name()?.to_owned();
    name.push(ENDING);
    Some(database.with_file_name(name))
}

fn cache_folder() -> Option<PathBuf> {
    let folder = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(cache.join("percolator/indexes"))
}

/// The sidecar's name in a folder shared by many: the end of the path, for readers, and a hash of the whole
/// path. If two databases still share a name, each recognises that the other's index is not its own.
fn name_of(database: &Path) -> String {
    let path = database.as_os_str().as_encoded_bytes();
    let text = String::from_utf8_lossy(path);
    let readable: String = text
        .trim_start_matches('/')
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || "._-".contains(char) { char } else { '_' })
        .collect();
    let from = readable.len().saturating_sub(READABLE_CHARS);
    format!("{}-{:08x}{ENDING}", readable.get(from..).unwrap_or_default(), crc32c(path))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_sidecar_is_named_by_its_database() {
        assert_eq!(beside(Path::new("/data/train_lmdb")), Some("/data/train_lmdb.percolator-index".into()));
        assert_eq!(beside(Path::new("/")), None);
        let folder = IndexPlace::Folder("/indexes".into());
        let names = sidecars(&folder, Path::new("/data/my set/train_lmdb"));
        let name = names[0].to_str().unwrap();
        assert!(name.starts_with("/indexes/data_my_set_train_lmdb-"), "{name}");
        assert_ne!(names, sidecars(&folder, Path::new("/data/my_set/train_lmdb")));
        let long = name_of(&Path::new("/").join("ü".repeat(300)));
        assert!(long.len() < 140, "{long}");
        assert_eq!(sidecars(&IndexPlace::Memory, Path::new("/data/train_lmdb")), Vec::<PathBuf>::new());
    }
}
