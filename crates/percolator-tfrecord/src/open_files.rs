//! Files that are read instead of mapped. Only some stay open: a data set may have more files than a process
//! may have open.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use percolator_files::file_id::FileState;
use percolator_files::input_file::open_without_waiting;
use percolator_files::whole_file::kind_of;

use crate::error::TfRecordError;

/// The most files that stay open, over all data sets, besides those being read: a process is often limited to
/// 1,024 open files.
const KEPT_MAX: usize = 256;

/// A walk's file, while it is open.
type Slot = Mutex<Option<Arc<File>>>;

/// The files that were opened last. The walks own them: a file is closed with its walk.
static KEPT: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

/// Opens a path that must be a regular file, without waiting for a pipe.
pub(crate) fn open(path: &Path) -> Result<(File, FileState), TfRecordError> {
    let io = |action| move |error: std::io::Error| TfRecordError::io(path, action, &error);
    let file = open_without_waiting(path).map_err(io("open the file"))?;
    let found = file.metadata().map_err(io("look at the file"))?;
    if !found.is_file() {
        let found = kind_of(found.file_type());
        return Err(TfRecordError::NoFile { file: path.to_owned(), found });
    }
    Ok((file, FileState::of(&found)))
}

/// Opens a file that was open before. It must still be the same file, in the same state.
pub(crate) fn open_again(path: &Path, state: FileState) -> Result<File, TfRecordError> {
    let (file, now) = open(path)?;
    if now == state {
        return Ok(file);
    }
    let found = match () {
        () if now.id != state.id => "another file has taken its place".to_owned(),
        () if now.bytes != state.bytes => format!("it has {} now", now.bytes),
        () => "it was written to since, or another file has taken its place".to_owned(),
    };
    Err(TfRecordError::Changed { file: path.to_owned(), was: state.bytes, found })
}

/// A walk's file. It is opened when needed, and may be closed between two uses.
#[derive(Debug, Default)]
pub(crate) struct OpenFile(Option<Arc<Slot>>);

impl OpenFile {
    /// The file, opened again if it has been closed.
    pub(crate) fn get(&mut self, path: &Path, state: FileState) -> Result<Arc<File>, TfRecordError> {
        let slot = self.0.get_or_insert_default();
        if let Some(file) = &*slot.lock() {
            return Ok(file.clone());
        }
        let file = Arc::new(open_again(path, state)?);
        *slot.lock() = Some(file.clone());
        let mut kept = KEPT.lock();
        kept.push_back(Arc::downgrade(slot));
        if kept.len() > KEPT_MAX {
            kept.retain(|slot| slot.strong_count() > 0);
        }
        let oldest = if kept.len() > KEPT_MAX { kept.pop_front() } else { None };
        drop(kept);
        // Closed only after the lock is released.
        if let Some(oldest) = oldest.and_then(|oldest| oldest.upgrade()) {
            let closed = oldest.lock().take();
            drop(closed);
        }
        Ok(file)
    }
}
