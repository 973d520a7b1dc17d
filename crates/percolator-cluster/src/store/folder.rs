//! Files in a folder, which machines may share.

use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_files::whole_file::{WholeFile, folder_of, temporary_of};
use uuid::Uuid;

use super::error::StoreError;
use super::{Id, NewFile, Store};

/// Files in a folder: `FOLDER/ID/UUID`.
///
/// A file is written under a temporary name beside its place, synced, and renamed; then the folder is synced.
/// The temporary file is locked (`flock`) while its writer lives. On NFS that needs a server that has locks;
/// without them, [`remove_abandoned`](Store::remove_abandoned) relies on what it says: only the holder of the
/// id asks for it.
///
/// Two ids must not differ by the case of letters alone if the file system takes both for one name.
#[derive(Debug)]
pub struct FolderStore {
    folder: PathBuf,
}

impl FolderStore {
    /// Keeps files in a folder that exists. It is not created: if it were, a missing mount would look as if
    /// nothing had ever been kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoStore`] if it is not there, or is no folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        // What is opened by a relative path stays the same if the process changes its folder.
        let found = fs::canonicalize(&folder).and_then(|folder| match fs::metadata(&folder)?.is_dir() {
            true => Ok(folder),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        found.map(|folder| FolderStore { folder }).map_err(|error| {
            let path = shown::path(&folder).to_string();
            StoreError::NoStore { path, source: error.into() }
        })
    }

    fn folder_of(&self, id: &Id) -> PathBuf {
        self.folder.join(id.as_str())
    }

    fn path_of(&self, id: &Id, name: Uuid) -> PathBuf {
        self.folder_of(id).join(name.to_string())
    }

    /// Makes the folder of an id, and its name lasting.
    fn make_folder_of(&self, id: &Id) -> Result<(), StoreError> {
        let folder = self.folder_of(id);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(StoreError::at("make the folder", &folder)(error))
            }
            // Its writer may have died before its name was on the disk.
            made => match sync(&self.folder) {
                // Who may only pass through the store's folder has made nothing in it.
                Err(error) if made.is_err() && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                synced => synced.map_err(StoreError::at("sync the folder", &self.folder)),
            },
        }
    }

    /// The error of a file that should be there.
    fn at_file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        move |error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing { path: shown::path(path).to_string() },
            _ => StoreError::at(what, path)(error),
        }
    }

    /// Examines each unfinished file of an id that is not being written, while it is locked.
    fn each_abandoned(
        &self,
        id: &Id,
        options: &OpenOptions,
        lock: impl Fn(&File) -> Result<(), TryLockError>,
        mut look: impl FnMut(&Path) -> Result<(), StoreError>,
    ) -> Result<usize, StoreError> {
        let mut found = 0;
        for entry in self.entries_of(id)?.iter().filter(|entry| is_partial(&entry.file_name())) {
            let path = entry.path();
            // A file that cannot be opened is not ours: a pipe, a link, another user's.
            let Ok(file) = options.open(&path) else { continue };
            if !file.metadata().is_ok_and(|found| found.is_file()) {
                continue;
            }
            // Without locks, it is unknown whether it is being written.
            if lock(&file).is_ok() {
                look(&path)?;
                found += 1;
            }
        }
        Ok(found)
    }

    /// The entries of the folder of an id, which may not be there.
    fn entries_of(&self, id: &Id) -> Result<Vec<DirEntry>, StoreError> {
        let folder = self.folder_of(id);
        match entries(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            found => found.map_err(StoreError::at("list the folder", &folder)),
        }
    }
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder)?.collect()
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|found| found.is_dir())
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The name of a file of ours. Other files in the folder are left alone.
fn uuid_of(name: &[u8]) -> Option<Uuid> {
    let uuid = Uuid::try_parse_ascii(name).ok()?;
    // There is one spelling, so that a name found is the name opened.
    (uuid.to_string().as_bytes() == name).then_some(uuid)
}

/// Whether a file is a temporary one of [`WholeFile`], whose final name would be a UUID.
fn is_partial(name: &OsStr) -> bool {
    temporary_of(name).is_some_and(|uuid| uuid_of(uuid.as_bytes()).is_some())
}

impl Store for FolderStore {
    fn create<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn NewFile + 'a>, StoreError> {
        self.make_folder_of(id)?;
        let path = self.path_of(id, name);
        let file = WholeFile::create(&path).map_err(StoreError::at("write", &path))?;
        Ok(Box::new(FolderFile { file, path }))
    }

    fn open<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn Read + Send + 'a>, StoreError> {
        let path = self.path_of(id, name);
        let (file, _) = percolator_files::input_file::open(&path).map_err(Self::at_file("open", &path))?;
        Ok(Box::new(file))
    }

    fn list(&self, id: &Id) -> Result<Vec<Uuid>, StoreError> {
        // A folder is not ours, whatever its name is.
        let name = |entry: &DirEntry| uuid_of(entry.file_name().as_bytes()).filter(|_| !is_folder(entry));
        Ok(self.entries_of(id)?.iter().filter_map(name).collect())
    }

    fn ids(&self) -> Result<Vec<Id>, StoreError> {
        let entries = entries(&self.folder).map_err(StoreError::at("list the folder", &self.folder))?;
        // Other folders are left alone. Neither is one that disappears while it is examined, nor a link,
        // which may be another id's folder under a second name.
        let folders = entries.iter().filter(|entry| is_folder(entry));
        let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
        let mut ids: Vec<_> = names.filter_map(|name| Id::new(name).ok()).collect();
        ids.sort();
        Ok(ids)
    }

    fn length(&self, id: &Id, name: Uuid) -> Result<u64, StoreError> {
        let path = self.path_of(id, name);
        Ok(fs::metadata(&path).map_err(Self::at_file("look at", &path))?.len())
    }

    fn remove(&self, id: &Id, name: Uuid) -> Result<(), StoreError> {
        remove(&self.path_of(id, name))
    }

    fn remove_abandoned(&self, id: &Id) -> Result<usize, StoreError> {
        // It stays locked until it is gone: a writer that has only just created it makes another. On NFS,
        // only who may write may have it alone.
        self.each_abandoned(id, partials().write(true), File::try_lock, remove)
    }

    fn abandoned(&self, id: &Id) -> Result<usize, StoreError> {
        // Two that count do not take one another for a writer.
        self.each_abandoned(id, &partials(), File::try_lock_shared, |_| Ok(()))
    }

    fn place(&self) -> String {
        shown::path(&self.folder).to_string()
    }
}

/// How unfinished files are opened: through no link, and without waiting for the other end of a pipe.
fn partials() -> OpenOptions {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags.bits().cast_signed());
    options
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(StoreError::at("remove", path)),
    }
}

/// A file that is being written.
struct FolderFile {
    file: WholeFile,
    path: PathBuf,
}

impl Write for FolderFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile for FolderFile {
    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        let FolderFile { file, path } = *self;
        let folder = folder_of(&path);
        file.finish().map_err(StoreError::at("finish", &path))?;
        // A record will say that the file is there, so its name must outlast the machine's power.
        sync(folder).map_err(StoreError::at("sync the folder", folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &FolderStore, id: &Id, bytes: &[u8]) -> Uuid {
        let name = Uuid::new_v4();
        let mut file = store.create(id, name).unwrap();
        file.write_all(bytes).unwrap();
        file.finish().unwrap();
        name
    }

    fn entries(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    /// A pipe would be waited for, and a device may have no end.
    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let id = Id::new("shard").unwrap();
        let name = put(&store, &id, b"bytes");
        let path = folder.path().join("shard").join(name.to_string());
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = || {
            let error = store.open(&id, name).map(drop).unwrap_err();
            std::error::Error::source(&error).unwrap().to_string()
        };
        assert!(refused().contains("only regular files are read"), "{}", refused());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(refused().contains("only regular files are read"), "{}", refused());
    }

    #[test]
    fn a_file_is_there_when_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let [id, other] = ["shard", "shard 2"].map(|id| Id::new(id).unwrap());
        assert!(store.list(&id).unwrap().is_empty());
        assert_eq!(store.remove_abandoned(&id).unwrap(), 0);
        let name = put(&store, &id, b"bytes");
        let elsewhere = put(&store, &other, b"others");
        fs::write(folder.path().join("shard/notes.txt"), "a user's").unwrap();
        fs::write(folder.path().join("shard").join(name.simple().to_string()), "no name of ours").unwrap();
        fs::create_dir(folder.path().join("shard").join(Uuid::new_v4().to_string())).unwrap();
        assert_eq!(store.list(&id).unwrap(), [name]);
        assert_eq!(store.length(&id, name).unwrap(), 5);
        fs::create_dir(folder.path().join(".hidden")).unwrap();
        fs::write(folder.path().join("a file"), "").unwrap();
        assert_eq!(store.ids().unwrap(), [id.clone(), other.clone()]);
        let mut bytes = Vec::new();
        store.open(&id, name).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"bytes");

        let mut dropped = store.create(&id, Uuid::new_v4()).unwrap();
        dropped.write_all(b"half").unwrap();
        assert_eq!(store.list(&id).unwrap(), [name]);
        drop(dropped);
        assert_eq!(entries(&folder.path().join("shard")), 4);

        store.remove(&id, name).unwrap();
        store.remove(&id, name).unwrap();
        for missing in [store.open(&id, name).err().unwrap(), store.length(&id, name).unwrap_err()] {
            assert!(matches!(&missing, StoreError::Missing { path } if path.ends_with(&name.to_string())));
        }
        assert_eq!(store.list(&other).unwrap(), [elsewhere]);
    }

    #[test]
    fn what_nobody_writes_any_more_is_removed_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let id = Id::new("shard").unwrap();
        let kept = put(&store, &id, b"kept");
        let mut living = store.create(&id, Uuid::new_v4()).unwrap();
        let at = |name: String| folder.path().join("shard").join(name);
        let partial = |boot: &str| format!("{}.{boot}-7f-1a2b-0.percolator-partial", Uuid::new_v4());
        let dead = [at(partial("ffffffff")), at(partial("0"))];
        let others = [
            at("notes.ffffffff-7f-1a2b-0.percolator-partial".to_owned()),
            at("a.percolator-partial".to_owned()),
        ];
        dead.iter().chain(&others).for_each(|path| fs::write(path, "half").unwrap());
        assert_eq!(store.abandoned(&id).unwrap(), 2);
        assert!(dead.iter().all(|dead| dead.exists()));
        assert_eq!(store.remove_abandoned(&id).unwrap(), 2);
        assert_eq!(store.abandoned(&id).unwrap(), 0);
        assert!(dead.iter().all(|dead| !dead.exists()) && others.iter().all(|other| other.exists()));
        living.write_all(b"whole").unwrap();
        living.finish().unwrap();
        assert_eq!(store.list(&id).unwrap().len(), 2);
        assert!(store.list(&id).unwrap().contains(&kept));
    }

    #[test]
    fn a_store_that_is_not_there_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["none", "file"] {
            let error = FolderStore::open(folder.path().join(name)).unwrap_err();
            assert!(matches!(error, StoreError::NoStore { .. }), "{error:?}");
            assert!(error.to_string().contains(name) && error.to_string().contains("mount it"), "{error}");
        }
        assert!(!folder.path().join("none").exists());
        let store = FolderStore::open(folder.path()).unwrap();
        let error = store.create(&Id::new("file").unwrap(), Uuid::new_v4()).err().unwrap();
        assert!(error.to_string().contains("could not write"), "{error}");
        let message = StoreError::new("write", "x", io::ErrorKind::StorageFull.into()).to_string();
        assert!(message.contains("the store is full"), "{message}");
    }

    /// A link would be another id's folder under a second name. What is no file of ours is left alone.
    #[test]
    fn links_and_pipes_are_not_looked_through() {
        let folder = tempfile::tempdir().unwrap();
        let store = FolderStore::open(folder.path()).unwrap();
        let id = Id::new("one").unwrap();
        let name = put(&store, &id, b"whole");
        std::os::unix::fs::symlink("one", folder.path().join("two")).unwrap();
        assert_eq!(store.ids().unwrap(), std::slice::from_ref(&id));
        let partial = |rest: &str| folder.path().join(format!("one/{name}.{rest}.percolator-partial"));
        std::os::unix::fs::symlink("nowhere", partial("0-1-1-0")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, partial("0-1-1-1"), rustix::fs::Mode::RUSR).unwrap();
        fs::write(partial("0-1-1-2"), "begun").unwrap();
        assert_eq!((store.abandoned(&id).unwrap(), store.remove_abandoned(&id).unwrap()), (1, 1));
        assert_eq!(store.list(&id).unwrap(), [name]);
    }
}
