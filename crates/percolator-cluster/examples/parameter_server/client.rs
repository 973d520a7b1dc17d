//! All servers, as a trainer sees them: one row of weights.
//!
//! A server that does not answer is looked up again, with growing pauses, until the trainer's patience ends:
//! it may come back at another address. A gradient that is sent again has the same number, so the server
//! applies it once.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percolator_cluster::metadata::Metadata;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::address::{self, Address};
use crate::model::WEIGHTS;
use crate::report::note;
use crate::shards::Shard;
use crate::wire::{
    self, Answer, Ask, Expected, Probe, Pull, Push, Refused, Request, Said, Weights, WireError,
};

/// How long a connection or an answer may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Why a server does not do what is asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    #[error("no server of it is announced")]
    NotFound,
    #[error("cannot be connected to")]
    Connect(#[source] std::io::Error),
    #[error("cannot be connected to within {ANSWER_WITHIN:?}")]
    ConnectSlow,
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("refuses: {message}")]
    Refused { message: String, may_pass: bool },
    #[error("answers what was not asked")]
    Other,
    #[error("has {found} weights, and {expected} are due")]
    Length { found: usize, expected: usize },
    #[error(transparent)]
    Find(anyhow::Error),
}

impl ServerError {
    /// Whether asking again may help.
    fn may_pass(&self) -> bool {
        match self {
            ServerError::Refused { may_pass, .. } => *may_pass,
            ServerError::Find(error) => error.is::<percolator_cluster::metadata::MetadataError>(),
            ServerError::Other | ServerError::Length { .. } => false,
            _ => true,
        }
    }
}

/// A server, and the connection to it.
struct Server {
    shard: Shard,
    metadata: Arc<dyn Metadata>,
    /// Where it was last.
    address: Option<Address>,
    stream: Option<TcpStream>,
}

impl Server {
    /// Asks until there is an answer, or patience ends.
    async fn ask(&mut self, ask: Ask, patience: Patience<'_>) -> anyhow::Result<Weights> {
        let Shard { job, number, of } = self.shard.clone();
        let request = Request { job, shard: number, of, ask: Some(ask) };
        let (start, mut pause, mut is_said) = (Instant::now(), PAUSE_MIN, false);
        loop {
            let error = match self.try_ask(&request).await {
                Ok(weights) => {
                    if is_said {
                        let (waited, is_back) = (start.elapsed(), Back(self.address.as_ref()));
                        note(&format!(
                            "{}: {} answers {is_back}, after {waited:.1?}",
                            patience.who, self.shard
                        ));
                    }
                    return Ok(weights);
                }
                Err(error) => error,
            };
            self.stream = None;
            let waited = start.elapsed();
            let (shard, place) = (&self.shard, Back(self.address.as_ref()));
            if !error.may_pass() || waited + pause > patience.at_most {
                let message = format!("the server of {shard} {place}: given up after {waited:.1?}");
                return Err(anyhow::Error::new(error).context(message));
            }
            // A short outage is none.
            if !is_said && pause > PAUSE_MIN {
                let error = anyhow::Error::new(error);
                note(&format!(
                    "{}: the server of {shard} {place}: {error:#}; it is looked for",
                    patience.who
                ));
                is_said = true;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn try_ask(&mut self, request: &Request) -> Result<Weights, ServerError> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(connect(&self.metadata, &self.shard, &mut self.address).await?),
        };
        wire::send(stream, request).await?;
        let numbers = self.shard.weights().len();
        let expected = Expected { peer: "parameter server", numbers, begins_within: ANSWER_WITHIN };
        let Answer { said } = wire::receive(stream, expected).await?;
        match said {
            Some(Said::Weights(weights)) if weights.weights.len() == numbers => Ok(weights),
            Some(Said::Weights(Weights { weights, .. })) => {
                Err(ServerError::Length { found: weights.len(), expected: numbers })
            }
            Some(Said::Refused(Refused { message, may_pass })) => {
                let message = percolator_files::shown::message(&message).to_string();
                Err(ServerError::Refused { message, may_pass })
            }
            Some(Said::Present(_)) | None => Err(ServerError::Other),
        }
    }
}

/// Finds the server of a shard, and connects to it.
async fn connect(
    metadata: &Arc<dyn Metadata>,
    shard: &Shard,
    address: &mut Option<Address>,
) -> Result<TcpStream, ServerError> {
    let find = {
        let (metadata, shard) = (metadata.clone(), shard.clone());
        move || address::find(&*metadata, &shard)
    };
    // The records are read by a thread that may wait.
    let found = tokio::task::spawn_blocking(find).await.map_err(|error| ServerError::Find(error.into()))?;
    let found = found.map_err(ServerError::Find)?.ok_or(ServerError::NotFound)?;
    let place = found.address;
    *address = Some(found);
    let stream = timeout(ANSWER_WITHIN, TcpStream::connect(place)).await;
    let stream = stream.map_err(|_| ServerError::ConnectSlow)?.map_err(ServerError::Connect)?;
    // Without this it is only slower.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Where a server is, for messages.
struct Back<'a>(Option<&'a Address>);

impl fmt::Display for Back<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Address { address, .. }) => write!(f, "at {address}"),
            None => write!(f, "(never seen)"),
        }
    }
}

/// Who waits for a server, and how long.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    pub(crate) who: &'a str,
    pub(crate) at_most: Duration,
}

/// The servers of all shards.
pub(crate) struct Servers {
    servers: Vec<Server>,
    /// The number by which they know this trainer.
    trainer: u64,
    sequence: u64,
}

impl Servers {
    pub(crate) fn new(metadata: &Arc<dyn Metadata>, job: &str, shards: u32) -> Self {
        let server = |shard| Server { shard, metadata: metadata.clone(), address: None, stream: None };
        let (trainer, _) = uuid::Uuid::new_v4().as_u64_pair();
        Servers { servers: Shard::all(job, shards).map(server).collect(), trainer, sequence: 0 }
    }

    /// Returns all weights, and how many gradients each shard has taken.
    pub(crate) async fn pull(&mut self, patience: Patience<'_>) -> anyhow::Result<(Vec<f32>, Vec<u64>)> {
        let (mut weights, mut updates) = (Vec::with_capacity(WEIGHTS), Vec::new());
        for server in &mut self.servers {
            let found = server.ask(Ask::Pull(Pull {}), patience).await?;
            weights.extend(found.weights);
            updates.push(found.updates);
        }
        Ok((weights, updates))
    }

    /// Gives each server its part of a gradient. Returns all weights after that.
    pub(crate) async fn push(
        &mut self,
        gradient: &[f32],
        patience: Patience<'_>,
    ) -> anyhow::Result<Vec<f32>> {
        let mut weights = Vec::with_capacity(WEIGHTS);
        self.sequence += 1;
        for server in &mut self.servers {
            let part = gradient.get(server.shard.weights()).unwrap_or_default().to_vec();
            let push = Push { trainer: self.trainer, sequence: self.sequence, gradient: part };
            weights.extend(server.ask(Ask::Push(push), patience).await?.weights);
        }
        Ok(weights)
    }
}

/// Asks whoever is at an address whether it is a server.
pub(crate) async fn probe(address: std::net::SocketAddr) -> Result<String, ServerError> {
    let stream = timeout(ANSWER_WITHIN, TcpStream::connect(address)).await;
    let mut stream = stream.map_err(|_| ServerError::ConnectSlow)?.map_err(ServerError::Connect)?;
    let request = Request { ask: Some(Ask::Probe(Probe {})), ..Request::default() };
    wire::send(&mut stream, &request).await?;
    let expected = Expected { peer: "parameter server", numbers: 0, begins_within: ANSWER_WITHIN };
    match wire::receive::<Answer>(&mut stream, expected).await?.said {
        Some(Said::Present(wire::Present { job, shard, updates })) => {
            let job = percolator_files::shown::message(&job).to_string();
            Ok(format!("shard {shard} of {job}, {updates} updates"))
        }
        _ => Err(ServerError::Other),
    }
}
