//! Records in etcd.

mod messages;
mod read;
mod watch;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tonic::codegen::BoxFuture;
use tonic::{Code, Status};

use self::messages::Prefix;
use super::Metadata;
use super::error::MetadataError;
use super::records::{LeaseId, Records, Revision};
use super::transaction::{Change, Outcome, Transaction};
use crate::etcd::rpc::{
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
};
use crate::etcd::{Client, EtcdOptions, Failure, Repeat, Session};

/// Records in etcd, version 3.3 or newer, which processes on any machine share.
///
/// Revisions are those of the cluster, so they also grow with what others do in it. Leases are etcd's, whole
/// seconds of at least one and a half times its election timeout (2 s by default). It should compact its
/// history (`--auto-compaction-retention`), since it keeps each value that a record ever had.
///
/// A call that fails as [`MetadataError::Unreachable`] has asked as many of the endpoints as its deadline
/// allows, which its source names one by one. If it was a transaction, it was tried again only where no
/// endpoint can have taken it. A transaction that fails as [`MetadataError::Full`] may have been made as
/// well. A read of many records, and a wait, are several requests, each with a deadline.
///
/// ```no_run
/// use percolator_cluster::etcd::EtcdOptions;
/// use percolator_cluster::metadata::{EtcdMetadata, Metadata, Transaction};
///
/// let options = EtcdOptions::new(["http://127.0.0.1:2379"]).prefix("/jobs/digits/");
/// let records = EtcdMetadata::connect(&options)?;
/// records.transact(&Transaction::new().when_missing("leader").put("leader", "me"))?;
/// # Ok::<(), percolator_cluster::metadata::MetadataError>(())
/// ```
#[derive(Debug)]
pub struct EtcdMetadata {
    client: Client,
    prefix: Prefix,
    place: String,
}

impl EtcdMetadata {
    /// Connects to the first of the endpoints that answers, logs in if there is a user, and checks etcd's
    /// version.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Options`] if the options cannot be met, a file of certificates among them;
    /// [`MetadataError::Unreachable`] if no endpoint answers until the deadline; [`MetadataError::Denied`] if
    /// the user, the password or a certificate is refused; [`MetadataError::Damaged`] if the version is not
    /// one that can be used.
    pub fn connect(options: &EtcdOptions) -> Result<Self, MetadataError> {
        let place = || options.place();
        let refused = |message| MetadataError::Options { place: place(), message };
        let client = Client::new(options, options.targets().map_err(refused)?);
        let client = client.map_err(|error| MetadataError::Failed {
            place: place(),
            what: "start the thread of the client",
            source: Arc::new(error),
        })?;
        let metadata = EtcdMetadata { client, prefix: Prefix::new(&options.prefix), place: place() };
        metadata.client.connect().map_err(|failure| metadata.error("connect", failure))?;
        Ok(metadata)
    }

    fn error(&self, what: &'static str, failure: Failure) -> MetadataError {
        let place = self.place.clone();
        match failure {
            Failure::NoAnswer { attempts, waited } => {
                MetadataError::Unreachable { place, what, waited, source: Some(Arc::new(attempts)) }
            }
            Failure::Denied { message } => MetadataError::Denied { place, what, message },
            Failure::Foreign { message } => MetadataError::Damaged { place, message },
            Failure::Answer { code, message } => self.answer(what, code, message),
        }
    }

    /// What an error that the cluster answers with means.
    fn answer(&self, what: &'static str, code: Code, message: String) -> MetadataError {
        let place = self.place.clone();
        let says = |part: &str| message.contains(part);
        match code {
            Code::PermissionDenied | Code::Unauthenticated => MetadataError::Denied { place, what, message },
            _ if says("authentication failed") || says("user name is empty") => {
                MetadataError::Denied { place, what, message }
            }
            Code::ResourceExhausted if says("space exceeded") => {
                let message = format!(
                    "{message}: compact its history and defragment it, or raise --quota-backend-bytes, \
                     then run `etcdctl alarm disarm`"
                );
                MetadataError::Full { place, message }
            }
            _ if says("request is too large") || says("too many operations") || says("larger than max") => {
                let message = format!(
                    "{place} takes no more: {message}; its options --max-request-bytes and --max-txn-ops \
                     must not be below the defaults"
                );
                MetadataError::Transaction { message }
            }
            Code::DataLoss => MetadataError::Damaged { place, message },
            code => {
                let source = Arc::new(io::Error::other(format!("{message} ({code:?})")));
                MetadataError::Failed { place, what, source }
            }
        }
    }

    /// Returns which of the leases that a transaction puts records under has ended. etcd says only that one
    /// has.
    fn ended_lease(&self, transaction: &Transaction) -> Option<LeaseId> {
        let leases: BTreeSet<_> = transaction
            .changes()
            .iter()
            .filter_map(|change| match change {
                Change::Put { lease, .. } => *lease,
                Change::Remove { .. } => None,
            })
            .collect();
        let has_ended = |lease: &LeaseId| {
            match self.client.ask(Repeat::Allowed, LeaseTimeToLiveRequest { id: lease.0 }) {
                // The seconds that are left: 0 is less than one.
                Ok(answer) => answer.ttl < 0,
                Err(failure) => matches!(failure, Failure::Answer { code: Code::NotFound, .. }),
            }
        };
        let first = leases.first().copied();
        if leases.len() < 2 {
            return first;
        }
        leases.into_iter().find(has_ended).or(first)
    }

    fn damaged(&self, message: String) -> MetadataError {
        MetadataError::Damaged { place: self.place.clone(), message }
    }
}

impl Metadata for EtcdMetadata {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        let range = self.prefix.range(prefix);
        let pages = self.client.call(move |calls| read::pages(calls, range));
        let (revision, found) = pages.map_err(|failure| self.error("read records", failure))?;
        let records = found.into_iter().map(|found| self.prefix.record(found)).collect::<Result<_, _>>();
        let records = records.map_err(|message| self.damaged(message))?;
        Ok(Records { revision: Revision(revision), records })
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        transaction.check()?;
        // What only compares is a read.
        let repeat = if transaction.changes().is_empty() { Repeat::Allowed } else { Repeat::Forbidden };
        let answer = match self.client.ask(repeat, self.prefix.transaction(transaction)) {
            Ok(answer) => answer,
            Err(Failure::Answer { code: Code::NotFound, message }) if message.contains("lease not found") => {
                // If it was put under none, etcd has found something else.
                let lease = self.ended_lease(transaction).unwrap_or(LeaseId(0));
                return Err(MetadataError::LeaseExpired { lease });
            }
            Err(failure) => return Err(self.error("make a transaction", failure)),
        };
        let no_revision = || self.damaged("it answers without saying at which revision".to_owned());
        let revision = Revision(answer.header.ok_or_else(no_revision)?.revision);
        if answer.succeeded {
            return Ok(Outcome::Committed(revision));
        }
        let records = self.prefix.refused(answer).map_err(|message| self.damaged(message))?;
        Ok(Outcome::Refused(Records { revision, records }))
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        const WHAT: &str = "grant a lease";
        let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0)).max(1);
        // Too long for this is too long for etcd, which says so.
        let ttl = i64::try_from(seconds).unwrap_or(i64::MAX);
        // A lease whose number was lost ends by itself.
        let answer = self.client.ask(Repeat::Allowed, LeaseGrantRequest { ttl });
        let answer = answer.map_err(|failure| self.error(WHAT, failure))?;
        if answer.id == 0 || !answer.error.is_empty() {
            return Err(self.answer(WHAT, Code::Unknown, format!("no lease, {:?}", answer.error)));
        }
        Ok(LeaseId(answer.id))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        let request = LeaseKeepAliveRequest { id: lease.0 };
        let make = move |session: Session| -> BoxFuture<_, Status> {
            Box::pin(async move { session.ask_on(tokio_stream::once(request)).await })
        };
        let kept = self.client.call(move |calls| async move {
            calls.request(Repeat::Allowed, &make).await.map(|(_, answer)| answer)
        });
        match kept {
            Ok(answer) if answer.ttl > 0 => Ok(Duration::from_secs(answer.ttl.unsigned_abs())),
            Ok(_) | Err(Failure::Answer { code: Code::NotFound, .. }) => {
                Err(MetadataError::LeaseExpired { lease })
            }
            Err(failure) => Err(self.error("keep a lease alive", failure)),
        }
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        match self.client.ask(Repeat::Allowed, LeaseRevokeRequest { id: lease.0 }) {
            Ok(_) | Err(Failure::Answer { code: Code::NotFound, .. }) => Ok(()),
            Err(failure) => Err(self.error("revoke a lease", failure)),
        }
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        let range = self.prefix.range(prefix);
        let changed = self.client.call(move |calls| watch::changed(calls, range, revision.0, at_most));
        changed.map_err(|failure| self.error("wait for a change", failure))
    }

    fn place(&self) -> String {
        self.place.clone()
    }
}
