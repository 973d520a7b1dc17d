//! Files that are kept under an id, each named by a UUID.
//!
//! | implementation | for |
//! |---|---|
//! | [`FolderStore`] | a local folder, or one that machines share (NFS) |
//!
//! The interface requires no more than object stores offer: a file appears whole under its name, once, or not
//! at all; it is never changed; names are listed. A record in [metadata](crate::metadata), not the store,
//! says which of the files count.

mod error;
mod folder;
mod id;

use std::fmt;
use std::io::{Read, Write};

use uuid::Uuid;

pub use self::error::StoreError;
pub use self::folder::FolderStore;
pub use self::id::{ID_BYTES_MAX, Id, IdError};

/// Where files are kept.
pub trait Store: Send + Sync + fmt::Debug {
    /// Starts a file of `id`, which gets the name `name` when it is [finished](NewFile::finish).
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn create<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn NewFile + 'a>, StoreError>;

    /// Opens a file of `id` to be read from its beginning.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if there is none of this name, and any other [`StoreError`].
    fn open<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn Read + Send + 'a>, StoreError>;

    /// Returns the names of all finished files of `id`, in no order.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn list(&self, id: &Id) -> Result<Vec<Uuid>, StoreError>;

    /// Returns the ids that may have files here, in their order. One whose files have all gone may be among
    /// them.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn ids(&self) -> Result<Vec<Id>, StoreError>;

    /// Returns how many bytes a finished file of `id` has.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if there is none of this name, and any other [`StoreError`].
    fn length(&self, id: &Id, name: Uuid) -> Result<u64, StoreError>;

    /// Removes a file of `id`. Removing one that is not there is no error. Once it is removed, a new file may
    /// get its name.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn remove(&self, id: &Id, name: Uuid) -> Result<(), StoreError>;

    /// Removes what writers of `id` began, did not finish, and no longer write. Returns how many there were.
    /// Only the holder of the id may ask for that: files that others still write where this process cannot
    /// see them no longer count, and the others learn that when they finish.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn remove_abandoned(&self, id: &Id) -> Result<usize, StoreError>;

    /// Counts what [`remove_abandoned`](Self::remove_abandoned) would remove now.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    fn abandoned(&self, id: &Id) -> Result<usize, StoreError>;

    /// Says where the files are, for messages.
    fn place(&self) -> String;
}

/// A file that is being written. Dropping it before it is finished removes it.
pub trait NewFile: Write + Send {
    /// Lets the file appear under its name, once every byte of it is where no crash of a machine can reach
    /// it.
    ///
    /// # Errors
    ///
    /// [`StoreError`]. The file may be there all the same, or not.
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}
