//! Who has which part of the model, and where: each shard is a range of its weights, and has a server.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use percolator_cluster::metadata::{Lease, Metadata, Outcome, Transaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::data::WEIGHTS;

/// One shard of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shard {
    pub(crate) job: String,
    pub(crate) number: u32,
    /// How many there are.
    pub(crate) of: u32,
}

/// Where the server of a shard is.
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

impl Shard {
    /// All shards of a job.
    pub(crate) fn all(job: &str, of: u32) -> impl Iterator<Item = Shard> {
        (0..of).map(move |number| Shard { job: job.to_owned(), number, of })
    }

    /// The weights that it has. The ranges of all shards follow one another, and their lengths differ by 1 at
    /// most.
    pub(crate) fn weights(&self) -> Range<usize> {
        let at = |number: u32| {
            let place = WEIGHTS as u64 * u64::from(number) / u64::from(self.of.max(1));
            usize::try_from(place).expect("it is not more than WEIGHTS")
        };
        at(self.number)..at(self.number.saturating_add(1))
    }

    /// The id of its checkpoints.
    pub(crate) fn id(&self) -> String {
        format!("{}-shard-{}", self.job, self.number)
    }

    /// The record that says where its server is.
    pub(crate) fn address_key(&self) -> String {
        format!("/parameter-servers/{}/{}", self.job, self.number)
    }

    /// Finds its server, if there is one.
    pub(crate) fn find(&self, metadata: &dyn Metadata) -> anyhow::Result<Option<Address>> {
        let key = self.address_key();
        let Some(record) = metadata.read(&key)?.get(&key).cloned() else { return Ok(None) };
        let address: Address = serde_json::from_slice(&record.value)
            .with_context(|| format!("the record {key:?} is damaged, or of another version: remove it"))?;
        if address.of != self.of {
            bail!("the job {:?} has {} shards, and not {}", self.job, address.of, self.of);
        }
        Ok(Some(address))
    }

    /// Lets others find its server, until the lease ends: when it is dropped, or its process dies. The
    /// address of the server before it goes: who has the id of its checkpoints is the only server.
    pub(crate) fn announce(
        &self,
        metadata: &Arc<dyn Metadata>,
        when: Transaction,
        address: &Address,
        ttl: Duration,
    ) -> anyhow::Result<Lease> {
        let lease = Lease::keep(metadata.clone(), ttl)?;
        let value = serde_json::to_vec(address)?;
        match metadata.transact(&when.put_under(lease.id(), self.address_key(), value))? {
            Outcome::Committed(_) => Ok(lease),
            Outcome::Refused(_) => bail!("another server of {self} has come"),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {} of {}", self.number, self.of, percolator_files::shown::message(&self.job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_all_of_the_model_and_do_not_overlap() {
        for of in [1, 2, 3, 7, 64] {
            let ranges: Vec<_> = Shard::all("job", of).map(|shard| shard.weights()).collect();
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, WEIGHTS));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
            let most = ranges.iter().map(Range::len).max();
            assert!(ranges.iter().all(|range| Some(range.len() + 1) >= most), "{ranges:?}");
        }
    }
}
