//! A server: a shard of the weights, restored, found, changed, and kept.
//!
//! ```text
//! restore       the id is taken, and the newest checkpoint read: Checkpointer
//!   v
//! announce      the address becomes a record under a lease: shards
//!   v
//! serve         a thread for each peer; gradients change the state
//!   v
//! stop          the address goes, a last checkpoint is written, the id is given back
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::iter::zip;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Checkpoint, CheckpointError, Checkpoints, Origin, Writer};
use percolator_cluster::metadata::Transaction;
use percolator_cluster::store::FolderStore;
use serde::{Deserialize, Serialize};
use tracing::warn;
use uuid::Uuid;

use crate::note;
use crate::options::ServerOptions;
use crate::shards::{Address, Shard};
use crate::wire::{Answer, Ask, Connection, Push};

/// The length of a step, as a factor of the gradient.
const RATE: f32 = 0.5;
/// The most peers at one time. More are not answered.
const PEERS_MAX: usize = 200;
/// How long a peer may be silent. A trainer that waits for a block connects again when it has one.
const SILENT_FOR: Duration = Duration::from_secs(300);
/// How long a last checkpoint may take. Kubernetes waits longer.
pub(crate) const SAVE_WITHIN: Duration = Duration::from_secs(20);
/// How often it is looked whether the server is to end, and the pause after a peer that could not connect.
const LOOK: Duration = Duration::from_millis(100);

/// What a server keeps of its shard. All of it is in each checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    pub(crate) weights: Vec<f32>,
    /// How many gradients were taken.
    pub(crate) updates: u64,
    /// The last sequence number of each trainer that there ever was.
    trainers: BTreeMap<Uuid, u64>,
}

impl State {
    /// A model that has learned nothing yet: its loss is convex, so no start is better than another.
    pub(crate) fn new(length: usize) -> Self {
        State { weights: vec![0.0; length], updates: 0, trainers: BTreeMap::new() }
    }

    /// Takes a gradient, unless it was taken before. Returns whether it was new.
    fn apply(&mut self, push: &Push) -> anyhow::Result<bool> {
        let (found, due) = (push.gradient.len(), self.weights.len());
        ensure!(found == due, "a gradient of {found} numbers, and this shard has {due}");
        let is_finite = push.gradient.iter().all(|slope| slope.is_finite());
        ensure!(is_finite, "a gradient with a number that is not finite");
        if self.trainers.get(&push.trainer).is_some_and(|sequence| push.sequence <= *sequence) {
            return Ok(false);
        }
        for (weight, slope) in zip(&mut self.weights, &push.gradient) {
            *weight = (*weight - RATE * slope).clamp(f32::MIN, f32::MAX);
        }
        self.updates += 1;
        self.trainers.insert(push.trainer, push.sequence);
        Ok(true)
    }
}

impl Checkpoint for State {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(to, self)?)
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let read: State = serde_json::from_reader(from)?;
        if read.weights.len() != self.weights.len() {
            return Err(io::Error::other("it is of a shard of another length"));
        }
        *self = read;
        Ok(())
    }
}

/// What all peers of a server share.
struct Server {
    shard: Shard,
    checkpoints: Checkpoints<State>,
    /// Another process has the shard, so this one ends.
    lost: OnceLock<CheckpointError>,
}

pub(crate) fn run(options: &ServerOptions) -> anyhow::Result<()> {
    let (number, of) = (options.shard, options.job.shards);
    ensure!(number < of, "there are {of} shards, 0 to {}, and no shard {number}", of - 1);
    let shard = Shard { job: options.job.name.clone(), number, of };
    let asked = crate::asked_to_end()?;
    let metadata = options.job.open()?;
    let store = Arc::new(FolderStore::open(&options.checkpoints)?);
    let checkpoints = Checkpointer::new(store, metadata.clone(), &shard.id())?
        .every(options.checkpoint_every)
        .keep(2)
        .ttl(options.job.ttl)
        .save_within(SAVE_WITHIN)
        .restore(|| State::new(shard.weights().len()))?;
    let restored = checkpoints.restored();
    // A shard that begins anew beside a trained one would spoil the model: so that is nobody's accident.
    let is_lost = restored.origin == Origin::Initial && !restored.rejected.is_empty();
    ensure!(!is_lost, "{restored}: nothing was changed; repair it, or remove the record and begin anew");

    let listener = TcpListener::bind(options.listen);
    let listener = listener.with_context(|| format!("cannot listen at {}", options.listen))?;
    let mut address = listener.local_addr()?;
    address = SocketAddr::new(options.advertise_ip.unwrap_or(address.ip()), address.port());
    ensure!(!address.ip().is_unspecified(), "nobody finds a server at {address}: --advertise-ip");
    let Writer { host, pid } = Writer::this();
    let updates = checkpoints.state().read().updates;
    let uuid = restored.entry().map(|entry| entry.uuid);
    let found = Address { address, of, host, pid, restored: uuid, updates };
    let mut lease = shard.announce(&metadata, Transaction::new(), &found, options.job.ttl)?;
    note(&format!("{shard}: at {address}, process {pid}; {restored}"));

    let mut server = Arc::new(Server { shard, checkpoints, lost: OnceLock::new() });
    let accepting = Arc::downgrade(&server);
    thread::spawn(move || accept(&listener, &accepting));
    while !asked.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
        if let Some(error) = server.lost.get() {
            bail!("{}: {error}", server.shard);
        }
        if lease.has_ended() {
            // The place of the records could not be reached for too long.
            let when = Transaction::new().when_missing(server.shard.address_key());
            lease = server.shard.announce(&metadata, when, &found, options.job.ttl)?;
        }
    }
    drop(lease);
    // Once no peer changes the state any more, the last checkpoint has all gradients that were ever taken.
    let Server { shard, checkpoints, .. } = loop {
        match Arc::try_unwrap(server) {
            Ok(server) => break server,
            Err(shared) => server = shared,
        }
        thread::sleep(Duration::from_millis(1));
    };
    let entry = checkpoints.save_now().context("the last checkpoint")?;
    let updates = checkpoints.state().read().updates;
    note(&format!("{shard}: ends, with all its {updates} updates in checkpoint {}", entry.uuid));
    Ok(())
}

/// Answers peers for as long as the process lives.
fn accept(listener: &TcpListener, server: &Weak<Server>) {
    for stream in listener.incoming() {
        let served = stream.and_then(|stream| {
            // A stream that is dropped is closed.
            if server.weak_count() > PEERS_MAX {
                return Err(io::Error::other("there are too many peers"));
            }
            let server = server.clone();
            let serve = move || {
                if let Err(error) = serve(&server, stream) {
                    warn!(%error, "a peer is lost");
                }
            };
            thread::Builder::new().spawn(serve)
        });
        if let Err(error) = served {
            warn!(%error, "a connection could not be accepted");
            thread::sleep(LOOK);
        }
    }
}

/// Answers a peer until it closes the connection, or says what cannot be answered, or the server ends.
fn serve(server: &Weak<Server>, stream: TcpStream) -> io::Result<()> {
    let mut peer = Connection::new(stream, SILENT_FOR)?;
    loop {
        match peer.receive() {
            Ok(None) => return Ok(()),
            Ok(Some(ask)) => {
                let Some(answer) = server.upgrade().map(|server| server.answer(ask)) else { return Ok(()) };
                peer.send(&answer)?;
            }
            // After what is no message, nobody knows where the next one begins.
            Err(error) => {
                peer.send(&refused(format!("{error}; is this peer no trainer?"), false))?;
                return Err(error);
            }
        }
    }
}

impl Server {
    fn answer(&self, ask: Ask) -> Answer {
        match ask {
            // It was another server's address, and may be in the trainer's memory still.
            Ask::Pull(asked) | Ask::Push(asked, _) if asked != self.shard => {
                refused(format!("this is {}, and not {asked}", self.shard), true)
            }
            Ask::Pull(_) => self.weights(),
            Ask::Push(_, push) => self.push(&push),
        }
    }

    fn weights(&self) -> Answer {
        let state = self.checkpoints.state().read();
        Answer::Weights { updates: state.updates, weights: state.weights.clone() }
    }

    fn push(&self, push: &Push) -> Answer {
        let applied = self.checkpoints.state().write().apply(push);
        match applied.map(|is_new| if is_new { self.checkpoints.step() } else { Ok(()) }) {
            Ok(Ok(())) => self.weights(),
            Ok(Err(error)) => {
                let answer = refused(format!("this server has ended: {error}"), true);
                let _ = self.lost.set(error);
                answer
            }
            Err(bad) => refused(bad.to_string(), false),
        }
    }
}

fn refused(message: String, may_pass: bool) -> Answer {
    Answer::Refused { message, may_pass }
}
