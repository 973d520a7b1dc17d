//! All servers, as a trainer sees them: one row of weights.
//!
//! A server that does not answer is looked up again, with growing pauses, until the trainer's patience ends:
//! it may come back at another address. A gradient that is sent again has the same number, so the server
//! applies it once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use percolator_cluster::metadata::Metadata;
use percolator_files::shown;
use uuid::Uuid;

use crate::data::WEIGHTS;
use crate::note;
use crate::options::JobOptions;
use crate::shards::Shard;
use crate::wire::{Answer, Ask, Connection, Push};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What does not pass if it is asked again.
#[derive(Debug, thiserror::Error)]
#[error("refuses: {0}")]
struct Refusal(String);

/// The servers of all shards.
pub(crate) struct Servers {
    /// Who waits for them.
    who: String,
    metadata: Arc<dyn Metadata>,
    patience: Duration,
    /// Whether nobody waits any longer.
    asked_to_end: Arc<AtomicBool>,
    servers: Vec<Server>,
    /// By this they know a trainer.
    trainer: Uuid,
    sequence: u64,
}

struct Server {
    shard: Shard,
    connection: Option<Connection>,
}

impl Servers {
    pub(crate) fn new(
        who: &str,
        metadata: &Arc<dyn Metadata>,
        job: &JobOptions,
        patience: Duration,
        asked_to_end: &Arc<AtomicBool>,
    ) -> Self {
        let servers = Shard::all(&job.name, job.shards).map(|shard| Server { shard, connection: None });
        Servers {
            who: who.to_owned(),
            metadata: metadata.clone(),
            patience,
            asked_to_end: asked_to_end.clone(),
            servers: servers.collect(),
            trainer: Uuid::new_v4(),
            sequence: 0,
        }
    }

    /// Returns all weights.
    pub(crate) fn pull(&mut self) -> anyhow::Result<Vec<f32>> {
        self.ask_all(|shard| Ask::Pull(shard.clone()))
    }

    /// Gives each server its part of a gradient. Returns all weights after that.
    pub(crate) fn push(&mut self, gradient: &[f32]) -> anyhow::Result<Vec<f32>> {
        self.sequence += 1;
        let (trainer, sequence) = (self.trainer, self.sequence);
        self.ask_all(|shard| {
            let gradient = gradient.get(shard.weights()).unwrap_or_default().to_vec();
            Ask::Push(shard.clone(), Push { trainer, sequence, gradient })
        })
    }

    /// Asks each server until there is an answer, or patience ends.
    fn ask_all(&mut self, ask: impl Fn(&Shard) -> Ask) -> anyhow::Result<Vec<f32>> {
        let (mut weights, who) = (Vec::with_capacity(WEIGHTS), &self.who);
        for server in &mut self.servers {
            let (start, mut pause, ask) = (Instant::now(), PAUSE_MIN, ask(&server.shard));
            loop {
                let error = match server.ask(&*self.metadata, &ask) {
                    Ok(found) => break weights.extend(found),
                    Err(error) => error,
                };
                server.connection = None;
                let (waited, shard) = (start.elapsed(), &server.shard);
                let is_over = self.asked_to_end.load(Ordering::Relaxed) || waited + pause > self.patience;
                if is_over || error.is::<Refusal>() {
                    return Err(error.context(format!("the server of {shard}: given up after {waited:.1?}")));
                }
                // A short outage is none, and one line is enough.
                if pause == PAUSE_MIN * 4 {
                    note(&format!("{who}: the server of {shard}: {error:#}; it is looked for"));
                }
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        Ok(weights)
    }
}

impl Server {
    fn ask(&mut self, metadata: &dyn Metadata, ask: &Ask) -> anyhow::Result<Vec<f32>> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let found = self.shard.find(metadata)?.context("no server of it is announced")?;
                none.insert(Connection::to(found.address).with_context(|| format!("at {}", found.address))?)
            }
        };
        match connection.ask(ask)? {
            Answer::Weights { weights, .. } if weights.len() == self.shard.weights().len() => Ok(weights),
            Answer::Weights { weights, .. } => bail!(Refusal(format!("it has {} weights", weights.len()))),
            Answer::Refused { message, may_pass } => {
                let message = shown::message(&message).to_string();
                if may_pass { bail!(message) } else { bail!(Refusal(message)) }
            }
        }
    }
}
