//! A file as the crate `hdf5-pure` reads what describes its data sets.
//!
//! What it reads is bounded, as a tree whose nodes lead in circles would be read for ever. It runs on a
//! thread of its own: types nest as deeply as a file says, and a panic is an error.

use std::panic;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use hdf5_pure::{Error, FormatError as Hdf5Error, Source};
use parking_lot::Mutex;
use percolator_files::shown;

use super::newer;
use crate::{DataFile, FormatError};

/// The stack that the deepest nesting of a header's 64 KiB takes.
const STACK_BYTES: usize = 128 << 20;

/// What describes data sets may be read so often as a whole: as a group's members, as one of them, as an
/// index.
const PASSES: u64 = 8;

/// What may be read of any file.
const LEAST_BYTES: u64 = 4 << 20;

/// What a reading counts for at least.
const READING_BYTES: u64 = 64;

/// What bounds the reading of one file.
#[derive(Debug)]
pub(super) struct Bounds {
    left: AtomicU64,
    /// Whether the descriptions were read. They are read in the same way again.
    done: AtomicBool,
    /// What the system said last, in its own words.
    failed: Mutex<Option<FormatError>>,
}

impl Bounds {
    pub(super) fn of(file: &DataFile) -> Arc<Self> {
        let left = file.bytes().saturating_mul(PASSES).saturating_add(LEAST_BYTES);
        Arc::new(Bounds {
            left: AtomicU64::new(left),
            done: AtomicBool::new(false),
            failed: Mutex::new(None),
        })
    }

    /// Ends the count: all descriptions were read.
    pub(super) fn lift(&self) {
        self.done.store(true, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> Result<(), Hdf5Error> {
        if self.done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let wanted = bytes.max(READING_BYTES);
        let taken =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(wanted));
        taken.map(|_| ()).map_err(|_| {
            Hdf5Error::Source("its groups or indexes lead in circles: more is read than they can have".into())
        })
    }

    /// The crate's error about a file, and a data set of it.
    pub(super) fn failure(&self, path: &Path, part: &str, error: &Error) -> FormatError {
        if let Some(failed) = self.failed.lock().take() {
            return failed;
        }
        let named = if part.is_empty() { String::new() } else { format!("{part}: ") };
        let what = format!("{named}{}", words(error));
        if is_refusal(error) { FormatError::refused(path, what) } else { FormatError::damaged(path, what) }
    }
}

/// What the crate says, without its name for all of it.
fn words(error: &Error) -> String {
    match error {
        Error::Format(Hdf5Error::Source(what)) => what.clone(),
        Error::Format(error) => error.to_string(),
        error => error.to_string(),
    }
}

/// Whether a file has what is not read, as far as the crate tells.
fn is_refusal(error: &Error) -> bool {
    match error {
        Error::FileMarkedInUse(_) => true,
        Error::Format(error) => matches!(
            error,
            Hdf5Error::UnsupportedVersion(_)
                | Hdf5Error::UnsupportedMessage(_)
                | Hdf5Error::UnsupportedFilteredHeapObject
                | Hdf5Error::UnsupportedVirtualLayout
                | Hdf5Error::UnsupportedExternalStorage
                | Hdf5Error::UnsupportedSohmReference
                | Hdf5Error::UnsupportedFilter(_)
        ),
        _ => false,
    }
}

/// A file from a byte on, for the crate.
#[derive(Debug)]
pub(super) struct FileSource {
    file: Arc<DataFile>,
    shift: u64,
    bounds: Arc<Bounds>,
    /// Whether the messages of the header that was read last have numbers.
    numbers: AtomicBool,
}

impl FileSource {
    pub(super) fn new(file: &Arc<DataFile>, shift: u64, bounds: &Arc<Bounds>) -> Self {
        let (file, bounds) = (Arc::clone(file), Arc::clone(bounds));
        FileSource { file, shift, bounds, numbers: AtomicBool::new(false) }
    }
}

impl Source for FileSource {
    fn len(&self) -> u64 {
        self.file.bytes().saturating_sub(self.shift)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Hdf5Error> {
        let length = buffer.len() as u64;
        let end = offset.checked_add(length).ok_or(Hdf5Error::OffsetOverflow { offset, length })?;
        if end > self.len() {
            return Err(Hdf5Error::UnexpectedEof {
                expected: usize::try_from(end).unwrap_or(usize::MAX),
                available: usize::try_from(self.len()).unwrap_or(usize::MAX),
            });
        }
        self.bounds.take(length)?;
        let mut read = Vec::new();
        let range = offset.saturating_add(self.shift)..end.saturating_add(self.shift);
        match self.file.read(range, &mut read) {
            Ok(bytes) => {
                buffer.copy_from_slice(bytes);
                if let Some(numbers) = newer::has_numbers(buffer) {
                    self.numbers.store(numbers, Ordering::Relaxed);
                }
                newer::make_known(buffer, self.numbers.load(Ordering::Relaxed));
                Ok(())
            }
            Err(error) => {
                let what = shown::with_sources(&error);
                *self.bounds.failed.lock() = Some(error);
                Err(Hdf5Error::Source(what))
            }
        }
    }
}

/// Does what uses the crate, on a thread with a large stack. A panic is damage: it is the crate's, about
/// bytes that it did not expect.
pub(super) fn guarded<T: Send>(
    path: &Path,
    work: impl FnOnce() -> Result<T, FormatError> + Send,
) -> Result<T, FormatError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("hdf5".to_owned()).stack_size(STACK_BYTES);
        let started = thread.spawn_scoped(scope, || {
            let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
            result.unwrap_or_else(|panic| {
                let what = format!(
                    "the reader of HDF5 stopped at what it did not expect ({}): the file is damaged",
                    shown::panic_message(&*panic)
                );
                Err(FormatError::damaged(path, what))
            })
        });
        let started = started.map_err(|error| FormatError::io(path, "start a thread to read it", error))?;
        started.join().unwrap_or_else(|_| Err(FormatError::damaged(path, "the reader of HDF5 stopped")))
    })
}
