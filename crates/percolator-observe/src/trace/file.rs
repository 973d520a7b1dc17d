//! The file of a trace, which a separate thread writes: it is whole or absent.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use percolator_files::shown;
use percolator_files::whole_file::{Existing, WholeFile};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use super::Record;
use super::json::Events;
use super::layer::{Listener, targets};

/// How many records may wait to be written: some milliseconds' worth, in about a megabyte.
const RECORDS_MAX: usize = 8192;

/// A trace that cannot be written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file is there.
    #[error(
        "{}: the file exists; choose another path for the trace, or have it replaced",
        shown::path(.path)
    )]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The file cannot be written. What was written is removed.
    #[error("{}: cannot write the trace, and no file is left", shown::path(.path))]
    Write {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
}

/// What a trace has.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Slices: what threads did, and where batches were.
    pub slices: u64,
    /// Batches whose whole way is in it.
    pub batches: u64,
}

/// A trace that is being written. It gets its name when it is [finished](Self::finish); if it is dropped
/// before that, nothing remains.
#[derive(Debug)]
pub struct TraceFile {
    listener: Listener,
    path: PathBuf,
    existing: Existing,
    /// `Some` until the end.
    thread: Option<JoinHandle<io::Result<Written>>>,
}

/// A complete file that has yet to get its name.
#[derive(Debug)]
struct Written {
    file: WholeFile,
    summary: Summary,
}

impl TraceFile {
    /// Starts a trace that will have this path. Nothing is recorded before a subscriber has its
    /// [layer](Self::layer).
    ///
    /// # Errors
    ///
    /// [`TraceError`] if no file can be there, or one is.
    pub fn create(path: &Path, existing: Existing) -> Result<Self, TraceError> {
        let refused = |error| TraceError::Write { path: path.to_owned(), error };
        existing.check(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => TraceError::Exists { path: path.to_owned() },
            _ => refused(error),
        })?;
        let file = WholeFile::create(path).map_err(refused)?;
        let (records, received) = bounded(RECORDS_MAX);
        let thread = std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || write(file, &received))
            .map_err(refused)?;
        let listener = Listener::new(Instant::now(), records);
        Ok(TraceFile { listener, path: path.to_owned(), existing, thread: Some(thread) })
    }

    /// Returns the layer that a subscriber needs. It has a filter of its own, so that spans are made whatever
    /// is logged. All feeds of the process are in the trace.
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        self.listener.clone().with_filter(targets())
    }

    /// Completes the file and gives it its name. What happens later is not in it.
    ///
    /// # Errors
    ///
    /// [`TraceError`] if it could not be written, at any moment, or if a file has its name meanwhile. Then
    /// there is no trace.
    pub fn finish(mut self) -> Result<Summary, TraceError> {
        let (path, existing) = (std::mem::take(&mut self.path), self.existing);
        self.finish_at(&path, existing)
    }

    /// The same with another path, in the folder of the trace's own: something may have come there meanwhile.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn finish_at(mut self, path: &Path, existing: Existing) -> Result<Summary, TraceError> {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AlreadyExists => TraceError::Exists { path: path.to_owned() },
            _ => TraceError::Write { path: path.to_owned(), error },
        };
        let written = self.end().unwrap_or_else(|| Err(io::Error::other("its thread has panicked")));
        let Written { file, summary } = written.map_err(refused)?;
        let named = file.at(path).and_then(|file| file.finish_over(existing));
        named.map(|()| summary).map_err(refused)
    }

    /// Ends the recording and joins the thread; `None` if it has panicked, or was joined before.
    fn end(&mut self) -> Option<io::Result<Written>> {
        let thread = self.thread.take()?;
        // The queue stays open, because the subscriber's layer has a sender as well.
        self.listener.end();
        thread.join().ok()
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        // What is not named is removed.
        drop(self.end());
    }
}

/// Writes records until the last one. After an error the queue closes, and nothing waits for it.
fn write(file: WholeFile, records: &Receiver<Record>) -> io::Result<Written> {
    let mut events = Events::begin(BufWriter::with_capacity(1 << 16, file.file()))?;
    let end = loop {
        match records.recv() {
            Ok(Record::End { at }) => break at,
            Ok(record) => events.record(record)?,
            // There is no sender any more: this file was dropped.
            Err(_) => break Duration::ZERO,
        }
    };
    let (slices, batches) = events.end(end)?;
    Ok(Written { file, summary: Summary { slices, batches } })
}
