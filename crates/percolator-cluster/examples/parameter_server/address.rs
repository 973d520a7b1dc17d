//! Where the server of a shard is: a record under its lease, so that it is removed when its server ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use percolator_cluster::metadata::{
    Lease, LeaseId, Metadata, MetadataError, Outcome, Record, Revision, Transaction,
};
use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use crate::shards::Shard;

/// How often it is looked whether the lease lasts.
const LOOK: Duration = Duration::from_millis(200);
/// So much longer than its lease is a server waited for that may be dead.
const AFTER_TTL: Duration = Duration::from_secs(5);

/// The server of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    pub(crate) address: SocketAddr,
    /// How many shards it takes the job to have.
    pub(crate) of: u32,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// The checkpoint that it has begun with; none if it began anew.
    pub(crate) restored: Option<Uuid>,
    /// How many gradients had made the weights that it began with.
    pub(crate) updates: u64,
}

impl Address {
    fn parse(record: &Record) -> anyhow::Result<Self> {
        serde_json::from_slice(&record.value).with_context(|| {
            format!("the record {:?} is damaged, or of another version: remove it", record.key)
        })
    }
}

/// Finds the server of a shard, if there is one.
pub(crate) fn find(metadata: &dyn Metadata, shard: &Shard) -> anyhow::Result<Option<Address>> {
    let key = shard.address_key();
    let found = metadata.read(&key)?;
    let address = found.get(&key).map(Address::parse).transpose()?;
    match &address {
        Some(Address { of, .. }) if *of != shard.of => {
            bail!("the job {:?} has {of} shards, and not {}: say --shards {of}", shard.job, shard.of)
        }
        _ => Ok(address),
    }
}

/// An address that others can find, until this is dropped.
pub(crate) struct Announced {
    /// Its end is what the thread waits for.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a thread needs to keep an address findable.
struct Announcing {
    metadata: Arc<dyn Metadata>,
    key: String,
    value: Vec<u8>,
    ttl: Duration,
}

impl Announced {
    /// Announces an address, once that of the server before it is gone. If the lease ends nevertheless,
    /// because nobody could be reached for too long, it is announced again; `failed` learns when that is
    /// impossible, because another server has come.
    pub(crate) fn new(
        metadata: Arc<dyn Metadata>,
        shard: &Shard,
        address: &Address,
        ttl: Duration,
        failed: impl FnOnce(anyhow::Error) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let value = serde_json::to_vec(address)?;
        let announcing = Announcing { metadata, key: shard.address_key(), value, ttl };
        let lease = announcing.announce(ttl.saturating_add(AFTER_TTL))?;
        let (stop, stopped) = channel();
        let keep = move || {
            if let Err(error) = announcing.keep(lease, &stopped) {
                failed(error);
            }
        };
        let thread = thread::Builder::new().name("announced".to_owned()).spawn(keep);
        let thread = thread.context("could not start a thread")?;
        Ok(Announced { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It gives the lease back, which has an end.
            let _ = thread.join();
        }
    }
}

impl Announcing {
    /// Puts the address under a new lease, and waits so long for another one to go.
    fn announce(&self, wait: Duration) -> anyhow::Result<Lease> {
        let lease = Lease::keep(self.metadata.clone(), self.ttl)?;
        let start = Instant::now();
        loop {
            let Some((revision, other)) = self.put(lease.id())? else { return Ok(lease) };
            // Its own under a lease before this one, whose answers were lost, goes with that lease.
            let is_own = other.value == self.value;
            let wait = if is_own { self.ttl.saturating_add(AFTER_TTL) } else { wait };
            let left = wait.saturating_sub(start.elapsed());
            if left.is_zero() {
                let Address { address, host, pid, .. } = Address::parse(&other)?;
                bail!(
                    "{address} is announced already, by process {pid} on {host}: stop that server, or let \
                     this one have another shard"
                );
            }
            self.metadata.wait(&self.key, revision, left)?;
        }
    }

    /// Puts the address if there is none. Otherwise returns the one that there is, and when that was.
    fn put(&self, lease: LeaseId) -> Result<Option<(Revision, Record)>, MetadataError> {
        let put = Transaction::new().when_missing(&*self.key).put_under(lease, &*self.key, &*self.value);
        let Outcome::Refused(found) = self.metadata.transact(&put)? else { return Ok(None) };
        match found.get(&self.key) {
            // It was put, and the answer was lost.
            Some(record) if record.lease == Some(lease) => Ok(None),
            Some(record) => Ok(Some((found.revision, record.clone()))),
            None => self.put(lease),
        }
    }

    fn keep(&self, mut lease: Lease, stopped: &Receiver<()>) -> anyhow::Result<()> {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(LOOK) {
            if !lease.has_ended() {
                continue;
            }
            match self.announce(Duration::ZERO) {
                Ok(another) => lease = another,
                Err(error) if error.is::<MetadataError>() => {
                    warn!("the address could not be announced again: {error:#}");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
