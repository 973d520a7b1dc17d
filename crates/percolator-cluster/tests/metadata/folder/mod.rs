//! The records in a folder.

mod checkpoints;
mod damage;
mod full;
mod killed;
mod leases;
mod model;
mod processes;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use percolator_cluster::metadata::{
    FolderMetadata, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};
use tempfile::TempDir;

use crate::contract;

#[test]
fn a_folder_keeps_the_contract() {
    contract::check(&|| Arc::new(OfSeveral::new(1)));
}

#[test]
fn a_folder_that_is_opened_three_times_keeps_the_contract() {
    contract::check(&|| Arc::new(OfSeveral::new(3)));
}

/// Asks several handles of one folder in turn.
#[derive(Debug)]
struct OfSeveral {
    handles: Vec<FolderMetadata>,
    next: AtomicUsize,
    _folder: TempDir,
}

impl OfSeveral {
    fn new(count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let handles = (0..count).map(|_| FolderMetadata::open(folder.path().join("new")).unwrap()).collect();
        OfSeveral { handles, next: AtomicUsize::new(0), _folder: folder }
    }

    fn one(&self) -> &FolderMetadata {
        &self.handles[self.next.fetch_add(1, Ordering::Relaxed) % self.handles.len()]
    }
}

impl Metadata for OfSeveral {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.one().read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.one().transact(transaction)
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.one().grant(ttl)
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.one().keep_alive(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.one().revoke(lease)
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        self.one().wait(prefix, revision, at_most)
    }

    fn place(&self) -> String {
        self.one().place()
    }
}

/// Makes a change that nothing prevents.
fn commit(records: &FolderMetadata, transaction: &Transaction) -> Revision {
    match records.transact(transaction).unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Refused(found) => panic!("refused: {found:?}"),
    }
}
