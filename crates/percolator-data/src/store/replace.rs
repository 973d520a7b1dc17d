//! How an output gets a name that something else has: nothing is lost, whenever that is interrupted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use percolator_files::input_file;
use percolator_files::what::{Kind, Thing};
use percolator_files::whole_file::{Existing, rename_to_free};
use percolator_tfrecord::Reader;

use super::StoreError;
use super::place::with_ending;

/// The end of the name of what is being replaced.
pub(super) const REPLACED: &str = ".percolator-replaced";

/// The kind of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputKind {
    /// An LMDB, a LevelDB or a TFRecord file.
    Store,
    /// A file beside it.
    File,
}

/// Whether something is at an output's path, which may be replaced.
pub(super) fn check(path: &Path, kind: OutputKind, existing: Existing) -> Result<bool, StoreError> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(StoreError::io(path, "look at the output")(error)),
        Ok(found) => found.file_type(),
    };
    let wrong = match (existing, kind) {
        (Existing::Refuse, _) => return Err(StoreError::Exists { path: path.to_owned() }),
        (_, OutputKind::File) if found.is_file() => None,
        (_, OutputKind::Store) if found.is_file() => not_tfrecord(path),
        (_, OutputKind::Store) if found.is_dir() => not_database(path)?,
        _ => Some("it is neither a folder nor a regular file".to_owned()),
    };
    match wrong {
        None => Ok(true),
        Some(found) => Err(StoreError::NotAStore { path: path.to_owned(), found }),
    }
}

/// Gives an output its name.
pub(super) fn put(from: &Path, to: &Path, kind: OutputKind, existing: Existing) -> Result<(), StoreError> {
    put_away(to, kind, existing)?;
    match rename_to_free(from, to) {
        Ok(()) => Ok(()),
        Err(error) => {
            restore(to)?;
            match error.kind() {
                io::ErrorKind::AlreadyExists => Err(StoreError::Exists { path: to.to_owned() }),
                _ => Err(StoreError::io(to, "give the output its name")(error)),
            }
        }
    }
}

/// Puts away what is at an output's path, if anything is and it may be replaced. Until it is forgotten, it
/// can be [restored](restore).
pub(super) fn put_away(path: &Path, kind: OutputKind, existing: Existing) -> Result<(), StoreError> {
    if !check(path, kind, existing)? {
        return Ok(());
    }
    // The earlier output was replaced: the path has its successor.
    forget(path)?;
    fs::rename(path, replaced(path)).map_err(StoreError::io(path, "replace the output"))
}

/// Gives what was put away its name again, unless its successor has it.
pub(super) fn restore(path: &Path) -> Result<(), StoreError> {
    match rename_to_free(&replaced(path), path) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
            Err(StoreError::io(&replaced(path), "give the output its name again")(error))
        }
        _ => Ok(()),
    }
}

/// Removes what was put away.
pub(super) fn forget(path: &Path) -> Result<(), StoreError> {
    let replaced = replaced(path);
    remove(&replaced).map_err(StoreError::io(&replaced, "remove what was replaced"))
}

/// Removes a file, or a folder and what is in it, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// Where what had an output's name is put.
pub(super) fn replaced(path: &Path) -> PathBuf {
    with_ending(path, REPLACED)
}

/// What a folder is, unless it is a database's, or empty.
fn not_database(path: &Path) -> Result<Option<String>, StoreError> {
    let failed = |action| StoreError::io(path, action);
    let mut is_empty = true;
    for entry in fs::read_dir(path).map_err(failed("list the folder"))? {
        let entry = entry.map_err(failed("list the folder"))?;
        let name = entry.file_name();
        let is_file = entry.file_type().map_err(failed("list the folder"))?.is_file();
        if !is_file || !is_of_database(&name.to_string_lossy()) {
            return Ok(Some(format!("it is a folder with {name:?}, which is no part of a database")));
        }
        is_empty = false;
    }
    let is_lmdb = Thing::at(&path.join("data.mdb")).is_some_and(|thing| thing.kind() == Kind::Lmdb);
    let is_database = is_empty || is_lmdb || names_manifest(path);
    Ok((!is_database).then(|| "it is a folder with neither an LMDB nor a LevelDB".to_owned()))
}

/// Whether a file of this name may be part of an LMDB or a LevelDB, or lie beside them.
fn is_of_database(name: &str) -> bool {
    let names = ["data.mdb", "lock.mdb", "CURRENT", "LOCK", "LOG", "LOG.old"];
    let endings = [".ldb", ".sst", ".log", ".dbtmp"];
    names.contains(&name)
        || name.starts_with("MANIFEST-")
        || name.contains(".percolator-")
        || endings.iter().any(|ending| {
            name.strip_suffix(ending).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        })
}

/// Whether a folder has the file CURRENT of a LevelDB, and the manifest that it names.
fn names_manifest(folder: &Path) -> bool {
    /// More bytes than a CURRENT that names a MANIFEST can have.
    const CURRENT_BYTES_MAX: u64 = 64;

    let named = input_file::read(&folder.join("CURRENT"), CURRENT_BYTES_MAX).ok();
    let named = named.as_deref().and_then(|named| std::str::from_utf8(named).ok());
    let manifest = named.and_then(|named| named.strip_suffix('\n'));
    manifest.is_some_and(|name| name.starts_with("MANIFEST-") && folder.join(name).is_file())
}

/// What a file is, unless it is a TFRecord file, or empty.
fn not_tfrecord(path: &Path) -> Option<String> {
    let is_empty = fs::metadata(path).is_ok_and(|found| found.len() == 0);
    let first = || Reader::open(path)?.advance().map(drop);
    match if is_empty { Ok(()) } else { first() } {
        Ok(()) => None,
        Err(error) => Some(format!("it is no TFRecord file ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Backend;
    use super::*;

    #[test]
    fn only_stores_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for backend in [Backend::Lmdb, Backend::LevelDb, Backend::TfRecord] {
            let path = at(&backend.to_string());
            let mut writer = backend.create(&path).unwrap();
            writer.put(b"key", b"value").unwrap();
            writer.finish().unwrap();
            assert!(check(&path, OutputKind::Store, Existing::Replace).unwrap(), "{backend}");
            let error = check(&path, OutputKind::Store, Existing::Refuse).unwrap_err();
            assert!(matches!(error, StoreError::Exists { .. }), "{error}");
        }
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("empty file"), "").unwrap();
        for name in ["empty", "empty file"] {
            assert!(check(&at(name), OutputKind::Store, Existing::Replace).unwrap(), "{name}");
        }
        assert!(!check(&at("absent"), OutputKind::Store, Existing::Refuse).unwrap());

        // Files with a database's names make no database.
        for (name, files) in [
            ("pages", &[("data.mdb", "a text that is long enough to have a number at its front")][..]),
            ("tables", &[("000005.ldb", ""), ("CURRENT", "MANIFEST-000001\n")]),
            ("logs", &[("000003.log", "measured")]),
        ] {
            fs::create_dir(at(name)).unwrap();
            files.iter().for_each(|(file, text)| fs::write(at(name).join(file), text).unwrap());
        }
        fs::create_dir_all(at("nested/data.mdb")).unwrap();
        fs::write(at("thesis.txt"), "a text that took years to write").unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
        for name in ["pages", "tables", "logs", "nested", "thesis.txt", "link"] {
            let error = check(&at(name), OutputKind::Store, Existing::Replace).unwrap_err();
            assert!(matches!(error, StoreError::NotAStore { .. }), "{name}: {error}");
        }
        assert!(check(&at("thesis.txt"), OutputKind::File, Existing::Replace).unwrap());
        assert!(check(&at("nested"), OutputKind::File, Existing::Replace).is_err());
    }
}
