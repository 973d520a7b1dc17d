//! Servers that come and go, under one name: each registers, clients find those that are there.

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use percolator_cluster::metadata::{Lease, Metadata, MetadataError, Record, Transaction};
use percolator_files::shown;
use serde::{Deserialize, Serialize};

use crate::client::{ClientError, Discover, check_address};

/// How long a server that does not say so is taken for alive.
const TTL: Duration = Duration::from_secs(10);

/// How often a server looks whether its lease has ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The version of what a server registers.
const VERSION: u32 = 1;

/// Servers of feeds that are found under one name, in records that all of them and their clients reach: those
/// of etcd, or of a folder. They serve the same data, and sign tickets with one key, so that each can go on
/// with the lanes of another.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use percolator_cluster::metadata::FolderMetadata;
/// use percolator_serve::{Client, Fleet, Server};
///
/// let fleet = Fleet::new(Arc::new(FolderMetadata::open("/run/percolator")?), "imagenet")?;
/// let server =
///     Server::builder("/data").listen(([127, 0, 0, 1], 0).into()).key_file("/run/percolator/key").start()?;
/// let member = fleet.join(&format!("grpc://{}", server.addresses()[0]))?;
/// let client = Client::discover(Arc::new(fleet)).connect()?;
/// # drop((member, client));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fleet {
    metadata: Arc<dyn Metadata>,
    name: String,
}

/// What a server registers.
#[derive(Debug, Serialize, Deserialize)]
struct Registered {
    version: u32,
    /// What clients connect to.
    url: String,
}

/// Why there is no fleet, or no place in it.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The name cannot be part of a key.
    #[error(
        "{name:?} is no name of a fleet: one has 1 to 100 characters, each a letter, a digit, '-', '_' or '.'"
    )]
    Name {
        /// The name.
        name: String,
    },
    /// The address is none that clients can connect to.
    #[error(transparent)]
    Address(#[from] ClientError),
    /// The records cannot be read or changed.
    #[error("the records of the fleet {name:?} cannot be used")]
    Metadata {
        /// The fleet.
        name: String,
        /// Why.
        #[source]
        error: MetadataError,
    },
    /// A record is none of a server.
    #[error(
        "the record {} in {} is none of a server that this version knows: {what}",
        shown::line(key),
        shown::line(place)
    )]
    Record {
        /// Its key.
        key: String,
        /// Where the records are.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The system gave no thread.
    #[error("the thread that keeps a server registered cannot be started")]
    Thread(#[source] std::io::Error),
}

impl Fleet {
    /// The fleet of this name. It has the servers that have [joined](Self::join) it.
    ///
    /// # Errors
    ///
    /// [`FleetError::Name`] if it is none.
    pub fn new(metadata: Arc<dyn Metadata>, name: impl Into<String>) -> Result<Self, FleetError> {
        let name = name.into();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        match (1..=100).contains(&name.len()) && name.bytes().all(is_part) {
            true => Ok(Fleet { metadata, name }),
            false => Err(FleetError::Name { name }),
        }
    }

    /// Registers a server, at the address by which clients reach it, until what this returns is dropped. If
    /// the process dies, or does not reach the records for 10 s, the server is gone from them. It registers
    /// again when it reaches them, but not where somebody else has removed its record.
    ///
    /// # Errors
    ///
    /// [`FleetError`] if the address is none, or the records cannot be changed.
    pub fn join(&self, url: &str) -> Result<Member, FleetError> {
        check_address(url)?;
        let lease = self.register(url)?;
        let (leave, left) = channel::<()>();
        let (fleet, url) = (self.clone(), url.to_owned());
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            let mut lease = Some(lease);
            while left.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if lease.as_ref().is_some_and(|lease| !lease.has_ended()) {
                    continue;
                }
                // Clients that do not find it go to the others meanwhile.
                lease = None;
                match fleet.register(&url) {
                    Ok(again) => lease = Some(again),
                    Err(error) => tracing::warn!(
                        error = %shown::with_sources(&error), "a server is not registered, and tries again"
                    ),
                }
            }
        });
        let thread = thread.map_err(FleetError::Thread)?;
        Ok(Member { leave: Some(leave), thread: Some(thread) })
    }

    /// Puts a server's record, which goes with its lease.
    fn register(&self, url: &str) -> Result<Lease, FleetError> {
        let failed = |error| FleetError::Metadata { name: self.name.clone(), error };
        let lease = Lease::keep(self.metadata.clone(), TTL).map_err(failed)?;
        let key = format!("{}{}", self.prefix(), lease.id());
        let record = Registered { version: VERSION, url: url.to_owned() };
        let record = serde_json::to_vec(&record).expect("texts and numbers are JSON");
        self.metadata.transact(&Transaction::new().put_under(lease.id(), key, record)).map_err(failed)?;
        Ok(lease)
    }

    fn prefix(&self) -> String {
        format!("servers/{}/", self.name)
    }

    /// The address of a record, if it is one that this version knows.
    fn url(&self, record: &Record) -> Result<String, FleetError> {
        let wrong = |what| FleetError::Record { key: record.key.clone(), place: self.metadata.place(), what };
        let registered: Registered =
            serde_json::from_slice(&record.value).map_err(|error| wrong(error.to_string()))?;
        match registered.version {
            VERSION => Ok(registered.url),
            other => Err(wrong(format!("it is of version {other}, and this is {VERSION}"))),
        }
    }
}

impl Discover for Fleet {
    /// Leaves out what it does not know, unless that is all that there is.
    fn servers(&self) -> Result<Vec<String>, Box<dyn Error + Send + Sync>> {
        let read = self.metadata.read(&self.prefix());
        let read = read.map_err(|error| FleetError::Metadata { name: self.name.clone(), error })?;
        let (mut urls, mut unknown) = (Vec::new(), None);
        for record in &read.records {
            match self.url(record) {
                Ok(url) => urls.push(url),
                Err(error) => {
                    tracing::warn!(%error, "a server is left out");
                    unknown = unknown.or(Some(error));
                }
            }
        }
        match unknown {
            Some(error) if urls.is_empty() => Err(error.into()),
            _ => Ok(urls),
        }
    }

    fn place(&self) -> String {
        format!("the fleet {:?} of {}", self.name, self.metadata.place())
    }
}

/// A server's place in a [`Fleet`], which it leaves when this is dropped. Whoever has found it before keeps
/// its connections: [`Server::drain`](crate::Server::drain) ends them. Where the records do not answer, the
/// drop waits for as long as some questions may take.
#[derive(Debug)]
pub struct Member {
    /// Taken when it leaves.
    leave: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.leave = None;
        // Each answer that it waits for has a limit of time.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
