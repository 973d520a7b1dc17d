//! A server: a shard of the weights, restored, found, changed, and kept.
//!
//! ```text
//! restore       the id is taken, and the newest checkpoint read: Checkpointer
//!   v
//! listen        on a port that need not be the one from before
//!   v
//! announce      the address becomes a record under a lease: address.rs
//!   v
//! serve         a task for each peer: connection.rs; gradients change the state: state.rs
//!   v
//! stop          the address goes, a last checkpoint is written, the id is given back
//! ```

mod connection;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Checkpoints, Entry, Origin, Restored, Writer};
use percolator_cluster::store::FolderStore;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tracing::warn;

use self::connection::Shared;
pub(crate) use self::state::State;
use crate::address::{Address, Announced};
use crate::model;
use crate::options::ServerOptions;
use crate::report::note;
use crate::stop::Stop;

/// The most peers at one time.
const PEERS_MAX: usize = 200;
/// How long a last checkpoint may take. Kubernetes waits longer.
const SAVE_WITHIN: Duration = Duration::from_secs(20);
/// How long peers may take to be gone: they are given up at once, unless one changes the state right now.
const PEERS_GONE_WITHIN: Duration = Duration::from_secs(5);
/// How long a server may take to end, beside one answer of the records.
#[cfg(test)]
pub(crate) const ENDS_WITHIN: Duration = SAVE_WITHIN.saturating_add(PEERS_GONE_WITHIN);
/// How long it is waited after a connection could not be accepted: there may be too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &ServerOptions) -> anyhow::Result<()> {
    let shard = options.shard()?;
    let metadata = options.place.open()?;
    let store = Arc::new(FolderStore::open(&options.checkpoints)?);
    let ttl = options.lease.ttl();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    // Before anything that takes time: the kernel drops signals to a container's first process that are not
    // caught.
    let stop = runtime.block_on(async { Stop::on_signals() })?;
    let weights = &model::initial(options.seed)[shard.weights()];
    let checkpoints = Checkpointer::new(store, metadata.clone(), &shard.id())?
        .every(options.every())
        .keep(2)
        .ttl(ttl)
        .save_within(SAVE_WITHIN)
        .restore(|| State::new(weights))?;
    check(checkpoints.restored())?;
    if stop.is_set() {
        note(&format!("{shard}: was asked to end before it began"));
        return Ok(());
    }
    let listener = runtime.block_on(TcpListener::bind(options.listen));
    let listener = listener.with_context(|| format!("cannot listen at {}", options.listen))?;
    let address = address(options, &listener, &checkpoints)?;
    let failed = stop.clone();
    let announced = Announced::new(metadata, &shard, &address, ttl, move |error| failed.fail(error))?;
    note(&format!("{shard}: at {}, process {}; {}", address.address, address.pid, checkpoints.restored()));

    let shared = Arc::new(Shared { shard, checkpoints, rate: options.rate, stop: stop.clone() });
    runtime.block_on(serve(&listener, &shared));
    drop(announced);
    // Peers are gone, and nothing changes the state any more.
    runtime.shutdown_timeout(PEERS_GONE_WITHIN);
    end(&shared, &stop)
}

/// A shard that begins anew beside one that is trained would spoil the model: so that is nobody's accident.
fn check(restored: &Restored) -> anyhow::Result<()> {
    match restored.origin {
        Origin::Initial if !restored.rejected.is_empty() => {
            bail!("{restored}: nothing was changed; repair it, or remove the record and begin anew")
        }
        _ => Ok(()),
    }
}

fn address(
    options: &ServerOptions,
    listener: &TcpListener,
    checkpoints: &Checkpoints<State>,
) -> anyhow::Result<Address> {
    let mut address = listener.local_addr()?;
    if let Some(ip) = options.advertise_ip {
        address = SocketAddr::new(ip, address.port());
    }
    if address.ip().is_unspecified() {
        bail!("nobody finds a server at {address}: say its address with --advertise-ip");
    }
    let Writer { host, pid } = Writer::this();
    let updates = checkpoints.state().read().updates();
    let restored = checkpoints.restored().entry().map(|entry| entry.uuid);
    Ok(Address { address, of: options.job.shards, host, pid, restored, updates })
}

/// Answers peers until the process is to end.
async fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut peers = JoinSet::new();
    let stopped = shared.stop.wait();
    tokio::pin!(stopped);
    loop {
        tokio::select! {
            () = &mut stopped => break,
            Some(_) = peers.join_next() => {}
            accepted = listener.accept(), if peers.len() < PEERS_MAX => match accepted {
                Ok((stream, peer)) => drop(peers.spawn(connection::serve(stream, peer, shared.clone()))),
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    // A gradient whose answer is cut off is in the last checkpoint, which knows that it was taken.
    peers.shutdown().await;
}

/// Writes the last checkpoint.
fn end(shared: &Shared, stop: &Stop) -> anyhow::Result<()> {
    stop.result()?;
    let Entry { uuid, .. } = shared.checkpoints.save_now().context("the last checkpoint")?;
    let updates = shared.checkpoints.state().read().updates();
    note(&format!("{}: ends, with all its {updates} updates in checkpoint {uuid}", shared.shard));
    Ok(())
}
