//! A store and metadata that ask, before each operation, what is to become of it.

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_cluster::metadata::{
    Change, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};
use percolator_cluster::store::{Id, NewFile, Store, StoreError};
use uuid::Uuid;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Write,
    Finish,
    Open,
    List,
    Remove,
    RemoveAbandoned,
    /// The record of a checkpoint is put.
    Put,
    /// The id is taken.
    Take,
    /// Names of files are announced.
    Announce,
    /// A transaction without changes: a read, or the check before files are removed.
    Look,
    Read,
    Grant,
    KeepAlive,
    Revoke,
    Wait,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Go,
    /// It does not happen, and fails.
    Fail,
    /// It happens, and fails all the same: nobody knows.
    Lost,
    /// It fails, and may happen later.
    Later,
    /// There is no room for it.
    Full,
}

pub(crate) type Judge = Arc<dyn Fn(Operation) -> Verdict + Send + Sync>;

/// The store and the metadata of one process.
pub(crate) struct Faulty<T: ?Sized> {
    pub(crate) judge: Judge,
    /// Transactions that may happen later.
    pub(crate) later: Arc<Mutex<Vec<Transaction>>>,
    pub(crate) inner: Arc<T>,
}

impl<T: ?Sized> Faulty<T> {
    pub(crate) fn new(inner: Arc<T>, judge: Judge) -> Self {
        Faulty { judge, later: Arc::default(), inner }
    }
}

impl<T: ?Sized> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

fn io_error(verdict: Verdict) -> io::Error {
    match verdict {
        Verdict::Full => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other("the test lets this fail"),
    }
}

impl Faulty<dyn Store> {
    fn judged<R>(
        &self,
        operation: Operation,
        work: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let failed = |verdict| Err(StoreError::new("do it in", "the test's store", io_error(verdict)));
        match (self.judge)(operation) {
            Verdict::Go => work(),
            Verdict::Lost => {
                work()?;
                failed(Verdict::Lost)
            }
            verdict => failed(verdict),
        }
    }
}

struct FaultyFile<'a> {
    store: &'a Faulty<dyn Store>,
    file: Box<dyn NewFile + 'a>,
}

impl Store for Faulty<dyn Store> {
    fn create<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn NewFile + 'a>, StoreError> {
        let file = self.judged(Operation::Create, || self.inner.create(id, name))?;
        Ok(Box::new(FaultyFile { store: self, file }))
    }

    fn open<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn Read + Send + 'a>, StoreError> {
        self.judged(Operation::Open, || self.inner.open(id, name))
    }

    fn list(&self, id: &Id) -> Result<Vec<Uuid>, StoreError> {
        self.judged(Operation::List, || self.inner.list(id))
    }

    fn ids(&self) -> Result<Vec<Id>, StoreError> {
        self.judged(Operation::List, || self.inner.ids())
    }

    fn length(&self, id: &Id, name: Uuid) -> Result<u64, StoreError> {
        self.judged(Operation::Open, || self.inner.length(id, name))
    }

    fn remove(&self, id: &Id, name: Uuid) -> Result<(), StoreError> {
        self.judged(Operation::Remove, || self.inner.remove(id, name))
    }

    fn remove_abandoned(&self, id: &Id) -> Result<usize, StoreError> {
        self.judged(Operation::RemoveAbandoned, || self.inner.remove_abandoned(id))
    }

    fn abandoned(&self, id: &Id) -> Result<usize, StoreError> {
        self.judged(Operation::List, || self.inner.abandoned(id))
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

impl Write for FaultyFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.store.judge)(Operation::Write) {
            Verdict::Go => self.file.write(bytes),
            verdict => Err(io_error(verdict)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl NewFile for FaultyFile<'_> {
    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        let FaultyFile { store, file } = *self;
        store.judged(Operation::Finish, || file.finish())
    }
}

impl Faulty<dyn Metadata> {
    fn judged<R>(
        &self,
        operation: Operation,
        work: impl FnOnce() -> Result<R, MetadataError>,
    ) -> Result<R, MetadataError> {
        follow((self.judge)(operation), work)
    }
}

fn follow<R>(verdict: Verdict, work: impl FnOnce() -> Result<R, MetadataError>) -> Result<R, MetadataError> {
    let failed = || {
        let (place, what, waited) = ("the test's records".to_owned(), "do it", Duration::from_secs(1));
        Err(MetadataError::Unreachable { place, what, waited, source: None })
    };
    match verdict {
        Verdict::Go => work(),
        Verdict::Lost => {
            work()?;
            failed()
        }
        Verdict::Fail | Verdict::Later | Verdict::Full => failed(),
    }
}

/// What a transaction of the protocol is for.
fn purpose(transaction: &Transaction) -> Operation {
    let puts = |prefix| {
        let is_put = |change: &Change| matches!(change, Change::Put { key, .. } if key.starts_with(prefix));
        transaction.changes().iter().any(is_put)
    };
    match () {
        () if puts("/checkpoints/") => Operation::Put,
        () if puts("/checkpoints-held/") => Operation::Take,
        () if puts("/checkpoints-begun/") => Operation::Announce,
        () => Operation::Look,
    }
}

impl Metadata for Faulty<dyn Metadata> {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.judged(Operation::Read, || self.inner.read(prefix))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let operation = purpose(transaction);
        let verdict = (self.judge)(operation);
        if verdict == Verdict::Later {
            self.later.lock().push(transaction.clone());
        }
        follow(verdict, || self.inner.transact(transaction))
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.judged(Operation::Grant, || self.inner.grant(ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.judged(Operation::KeepAlive, || self.inner.keep_alive(lease))
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.judged(Operation::Revoke, || self.inner.revoke(lease))
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.judged(Operation::Wait, || self.inner.wait(prefix, revision, at_most))
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

/// Wraps both with one judge.
pub(crate) fn faulty(
    store: impl Store + 'static,
    metadata: impl Metadata + 'static,
    judge: impl Fn(Operation) -> Verdict + Send + Sync + 'static,
) -> (Arc<dyn Store>, Arc<dyn Metadata>) {
    let judge: Judge = Arc::new(judge);
    let store: Arc<dyn Store> = Arc::new(store);
    let metadata: Arc<dyn Metadata> = Arc::new(metadata);
    (Arc::new(Faulty::new(store, judge.clone())), Arc::new(Faulty::new(metadata, judge)))
}
