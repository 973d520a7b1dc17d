//! A source in memory that fails on request, through the public `Source` and `Cursor`.
//!
//! Positions are counted from 0, and on through rewinds, for each cursor. A reader and a feed look at the
//! first record with a cursor of its own before they start, so a fault at position 0 occurs when they are
//! built, and any other while they read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use crossbeam_channel::{Receiver, Sender, bounded};
use percolator::source::{Cursor, Entry, Source, SourceError};

enum Fault {
    Error,
    Panic,
    /// Reports that a cursor is here, then waits for a message, or for the other end to be dropped.
    Stall(Sender<()>, Receiver<()>),
}

/// What the source has seen, for a test that has given the source away.
#[derive(Default)]
pub struct Probe {
    reads: Mutex<u64>,
    more: Condvar,
    opened: AtomicUsize,
    living: AtomicUsize,
    is_dropped: AtomicBool,
}

impl Probe {
    /// The number of records that cursors have handed out, including those of the first look.
    pub fn reads(&self) -> u64 {
        *self.reads.lock().unwrap()
    }

    /// Waits until this many records were handed out.
    pub fn wait_for_reads(&self, reads: u64) {
        drop(self.more.wait_while(self.reads.lock().unwrap(), |seen| *seen < reads).unwrap());
    }

    /// The number of cursors alive.
    pub fn cursors(&self) -> usize {
        self.living.load(Ordering::SeqCst)
    }

    /// Whether the source itself is gone.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::SeqCst)
    }
}

/// The test's end of a stall.
pub struct Stall {
    arrived: Receiver<()>,
    release: Option<Sender<()>>,
}

impl Stall {
    /// Waits until a cursor reaches the stall.
    pub fn wait(&self) {
        self.arrived.recv().expect("the walk comes to the stall");
    }

    /// Lets every cursor pass from now on. A drop does too, so that a failing test does not hang.
    pub fn release(&mut self) {
        self.release = None;
    }
}

type CursorHook = Box<dyn Fn(usize) + Send + Sync>;

struct Inner {
    path: PathBuf,
    records: Vec<(Vec<u8>, Vec<u8>)>,
    faults: Vec<(usize, Fault)>,
    on_cursor: Option<CursorHook>,
    probe: Arc<Probe>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.probe.is_dropped.store(true, Ordering::SeqCst);
    }
}

/// Records in memory.
pub struct MemorySource(Arc<Inner>);

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({})", self.0.path.display())
    }
}

impl MemorySource {
    pub fn new(name: &str, records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        MemorySource(Arc::new(Inner {
            path: PathBuf::from("memory").join(name),
            records: records.into_iter().collect(),
            faults: Vec::new(),
            on_cursor: None,
            probe: Arc::default(),
        }))
    }

    /// `count` records of `bytes` bytes, the first eight of which are the record's index.
    pub fn numbered(name: &str, count: usize, bytes: usize) -> Self {
        let value = move |index: usize| {
            let mut value = (index as u64).to_le_bytes().to_vec();
            value.resize(bytes.max(8), value[0]);
            value
        };
        Self::new(name, (0..count).map(|index| (super::key(index), value(index))))
    }

    /// `count` u8 records of one shape, as [`write_images`](super::write_images) makes them.
    pub fn images(name: &str, count: usize, channels: usize, height: usize, width: usize) -> Self {
        Self::new(name, (0..count).map(|index| super::image(index, channels, height, width)))
    }

    fn edit(&mut self) -> &mut Inner {
        Arc::get_mut(&mut self.0).expect("a source is set up before it is used")
    }

    /// Gives an error instead of the record at this position.
    pub fn fail_at(mut self, position: usize) -> Self {
        self.edit().faults.push((position, Fault::Error));
        self
    }

    /// Panics instead of giving the record at this position.
    pub fn panic_at(mut self, position: usize) -> Self {
        self.edit().faults.push((position, Fault::Panic));
        self
    }

    /// Stalls before the record at this position.
    pub fn stall_at(mut self, position: usize) -> (Self, Stall) {
        let (arrived_sender, arrived) = bounded(64);
        let (release, released) = bounded(0);
        self.edit().faults.push((position, Fault::Stall(arrived_sender, released)));
        (self, Stall { arrived, release: Some(release) })
    }

    /// Calls `hook` whenever a cursor is opened, with the number of cursors opened before.
    pub fn on_cursor(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.edit().on_cursor = Some(Box::new(hook));
        self
    }

    pub fn probe(&self) -> Arc<Probe> {
        self.0.probe.clone()
    }
}

impl Source for MemorySource {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn records(&self) -> Option<u64> {
        Some(self.0.records.len() as u64)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        let before = self.0.probe.opened.fetch_add(1, Ordering::SeqCst);
        if let Some(hook) = &self.0.on_cursor {
            hook(before);
        }
        self.0.probe.living.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(MemoryCursor { source: self.0.clone(), at: 0, passed: 0, lent: Vec::new() }))
    }
}

struct MemoryCursor {
    source: Arc<Inner>,
    at: usize,
    /// Positions before the last rewind.
    passed: usize,
    /// Key and value of the record that is lent now. Overwritten at the next step, so that a borrow kept too
    /// long shows rubbish.
    lent: Vec<u8>,
}

impl Cursor for MemoryCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.lent.fill(0xdd);
        let Some((key, value)) = self.source.records.get(self.at) else { return Ok(None) };
        let position = self.passed + self.at;
        for (at, fault) in &self.source.faults {
            if *at == position {
                match fault {
                    Fault::Error => {
                        return Err(SourceError::Broken {
                            path: self.source.path.clone(),
                            index: self.at as u64,
                            message: "a fault of the test".to_owned(),
                        });
                    }
                    Fault::Panic => panic!("a panic of the test at position {position}"),
                    Fault::Stall(arrived, release) => {
                        let _ = arrived.try_send(());
                        let _ = release.recv();
                    }
                }
            }
        }
        self.lent.clear();
        self.lent.extend_from_slice(key);
        self.lent.extend_from_slice(value);
        self.at += 1;
        *self.source.probe.reads.lock().unwrap() += 1;
        self.source.probe.more.notify_all();
        let (key, value) = self.lent.split_at(key.len());
        Ok(Some(Entry::borrowed(key, value)))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.passed += self.at;
        self.at = 0;
        Ok(())
    }
}

impl Drop for MemoryCursor {
    fn drop(&mut self) {
        self.source.probe.living.fetch_sub(1, Ordering::SeqCst);
    }
}
