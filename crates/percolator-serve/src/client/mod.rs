//! The client: a feed elsewhere, as if it were here.
//!
//! The way of a batch: [`connection`] makes connections, of which each [`call`] has one, on the thread of
//! [`runtime`]; [`receive`] takes a stream's messages apart and puts their bodies into [`slot`]s, or
//! [`scatter`]s them over the memory of a [`feed`] here. If the server is on this machine, [`shared`] hears
//! where its batches are. Each is an [`arrival`] for a [`lane`], which hands them over in order, as a
//! [`batch`] whose columns are the [`fields`] of the feed. [`whole`] is the same for bytes that are all
//! there.

mod arrival;
mod batch;
mod call;
mod connection;
mod error;
mod feed;
mod fields;
mod lane;
mod receive;
mod runtime;
mod scatter;
mod servers;
mod shared;
mod slot;
mod whole;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use serde::Deserialize;

pub use self::batch::{RemoteArray, RemoteBatch};
pub use self::error::ClientError;
pub use self::feed::FeedConnect;
pub use self::fields::{RemoteField, RemoteFieldKind};
pub use self::lane::{LaneCloser, RemoteLane};
pub use self::servers::Discover;

#[cfg(feature = "fleet")]
pub(crate) use self::connection::check_address;
pub(crate) use self::receive::Malformed;
pub(crate) use self::whole::batches_of;

use self::connection::Dialer;
use self::fields::RemoteColumns;
use self::runtime::ClientRuntime;
use self::servers::{FeedDigest, Servers};
use crate::flight::{Action, ActionResult, DescriptorType, FlightDescriptor, FlightInfo};
use crate::grpc;
use crate::request::FeedRequest;
use crate::ticket;

/// How long a lane looks for a server, unless it is set.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);

/// How many batches may be unacknowledged, unless it is set: one is trained on while the next one comes.
const WINDOW: NonZeroUsize = NonZeroUsize::new(2).expect("it is not zero");

/// The version of what a server says about a feed.
const VERSION: u32 = 1;

/// A server of feeds, as a client sees it. It may be cloned and used on any thread, also within an
/// asynchronous program's: what waits, waits on the thread that calls, and never for other lanes.
///
/// ```no_run
/// use percolator::feed::FeedSpec;
/// use percolator_serve::{Client, Column, FeedRequest};
///
/// let client = Client::connect("grpc://127.0.0.1:8815")?;
/// let feed = client.open(&FeedRequest::feed(FeedSpec::default()).columns([Column::Position]))?;
/// let mut lane = feed.lane(0)?;
/// while let Some(batch) = lane.next().transpose()? {
///     let pixels: &[u8] = batch.get("data")?;
///     println!("{} records, {} bytes", batch.records(), pixels.len());
/// }
/// # Ok::<(), percolator_serve::ClientError>(())
/// ```
#[derive(Clone)]
pub struct Client(Arc<Connected>);

/// What a client and its lanes share. The last of them that is dropped ends the client's thread.
struct Connected {
    servers: Servers,
    window: NonZeroUsize,
    give_up_after: Duration,
    runtime: ClientRuntime,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("servers", &self.0.servers).finish_non_exhaustive()
    }
}

/// What a client is made with.
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    place: Place,
    token: Option<String>,
    authorities: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    window: NonZeroUsize,
    give_up_after: Duration,
}

/// Where the servers are.
#[derive(Clone, Debug)]
enum Place {
    Listed(String),
    Found(Arc<dyn Discover>),
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("place", &self.place).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    fn of(place: Place) -> Self {
        ClientBuilder {
            place,
            token: None,
            authorities: None,
            identity: None,
            window: WINDOW,
            give_up_after: GIVE_UP_AFTER,
        }
    }

    /// Says this token to the server.
    pub fn token(self, token: impl Into<String>) -> Self {
        ClientBuilder { token: Some(token.into()), ..self }
    }

    /// Believes a server whose certificate was signed by one of these: a PEM file. `grpc+tls://` needs it.
    pub fn authorities(self, pem: impl Into<PathBuf>) -> Self {
        ClientBuilder { authorities: Some(pem.into()), ..self }
    }

    /// Shows the server this certificate: a PEM file with it and those that lead to its authority, and one
    /// with its key.
    pub fn identity(self, certificate_pem: impl Into<PathBuf>, key_pem: impl Into<PathBuf>) -> Self {
        ClientBuilder { identity: Some((certificate_pem.into(), key_pem.into())), ..self }
    }

    /// The most batches of a lane that the server sends before they are acknowledged: 2, unless it is set,
    /// and never more than 1024, or than the server's own window. Each takes memory here; over `shared://`,
    /// it counts until its memory is no longer read, and takes none.
    pub fn window(self, batches: NonZeroUsize) -> Self {
        ClientBuilder { window: lane::window_of(batches), ..self }
    }

    /// How long a lane tries to connect again before it ends with an error: a minute, unless it is set.
    pub fn give_up_after(self, time: Duration) -> Self {
        ClientBuilder { give_up_after: time, ..self }
    }

    /// Makes the client, and asks the server whether it is there.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if it is not, or does not want this client.
    pub fn connect(self) -> Result<Client, ClientError> {
        let runtime = ClientRuntime::start().map_err(ClientError::Thread)?;
        let ClientBuilder { place, token, authorities, identity, window, give_up_after } = self;
        let tasks = runtime.tasks();
        let make = move |name, url| {
            let identity = identity.as_ref().map(|(certificate, key)| (&**certificate, &**key));
            Dialer::new(name, url, token.as_deref(), authorities.as_deref(), identity, tasks.clone())
        };
        let servers = match place {
            Place::Listed(urls) => Servers::listed(&urls, make)?,
            Place::Found(discover) => Servers::found(discover, make)?,
        };
        let client = Client(Arc::new(Connected { servers, window, give_up_after, runtime }));
        // TLS and tokens are refused when something is asked for.
        client.status()?;
        Ok(client)
    }
}

impl Client {
    /// Connects to a server, and asks whether it is there.
    ///
    /// | address | which server | its batches |
    /// |---|---|---|
    /// | `grpc://HOST:PORT` | one at a port | travel over TCP |
    /// | `grpc+tls://HOST:PORT` | the same, with TLS: [`builder`](Self::builder) | travel encrypted |
    /// | `grpc+unix:///PATH` | one at a Unix socket | travel through it |
    /// | `shared:///PATH` | the same, on this machine | do not travel: they are read in its memory |
    ///
    /// Several servers that serve the same data and sign with the same key may be named, with commas between
    /// them. Which one a feed is taken from depends on the feed alone, so that all its clients meet there if
    /// they name the servers in one order. If a server fails, its lanes go on at the next one, each exactly
    /// where it was.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if it is not, or does not want this client.
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::builder(url).connect()
    }

    /// Prepares a client for a server that wants a token, or has TLS: `grpc+tls://HOST:PORT`.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::of(Place::Listed(url.into()))
    }

    /// Prepares a client for servers that come and go, such as those of a `Fleet` (with the feature of that
    /// name). Each feed has an order of all servers that is its own, so that its clients meet at one, and
    /// feeds spread over all of them. If that server fails, its lanes go on at the next one, each exactly
    /// where it was.
    pub fn discover(servers: Arc<dyn Discover>) -> ClientBuilder {
        ClientBuilder::of(Place::Found(servers))
    }

    /// What the server does at the moment, as JSON; of several, one that answers.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if it does not answer.
    pub fn status(&self) -> Result<String, ClientError> {
        let action = Action { r#type: "status".to_owned(), ..Action::default() };
        let (server, ActionResult { body }) = self.ask(FeedDigest::any(), "DoAction", &action)?;
        String::from_utf8(body.into()).map_err(|_| malformed(&server, "a status that is no text"))
    }

    /// Asks for a feed. It is started by its first lane.
    ///
    /// # Errors
    ///
    /// [`ClientError`] if the server does not answer, or does not serve it.
    pub fn open(&self, request: &FeedRequest) -> Result<RemoteFeed, ClientError> {
        Ok(self.described(request)?.0)
    }

    /// A feed, and what a feed here is made of.
    fn described(&self, request: &FeedRequest) -> Result<(RemoteFeed, FeedFacts), ClientError> {
        let (kind, cmd) = (DescriptorType::Cmd.into(), request.to_json()?.into());
        let descriptor = FlightDescriptor { kind, cmd, path: Vec::new() };
        let digest = FeedDigest::of(request);
        let (server, info): (_, FlightInfo) = self.ask(digest, "GetFlightInfo", &descriptor)?;
        let facts: Facts = serde_json::from_slice(&info.app_metadata)
            .map_err(|error| malformed(&server, &format!("facts about a feed that are none: {error}")))?;
        if facts.version != VERSION {
            let found = format!("facts of the version {}, and this client knows {VERSION}", facts.version);
            return Err(malformed(&server, &found));
        }
        let columns = RemoteColumns::of_encapsulated(&info.schema);
        let columns = columns.map_err(|found| server.malformed(found))?;
        let tickets = info.endpoint.into_iter().filter_map(|endpoint| endpoint.ticket);
        let tickets: Result<Vec<_>, _> =
            tickets.map(|ticket| String::from_utf8(ticket.ticket.into())).collect();
        let tickets = tickets.map_err(|_| malformed(&server, "a ticket that is no text"))?;
        if tickets.len() != facts.ranks {
            let found = format!("{} tickets for {} ranks", tickets.len(), facts.ranks);
            return Err(malformed(&server, &found));
        }
        let fields = columns.fields();
        let Facts { window, memory_bytes, records, input, start, no_start, .. } = facts;
        let window = window.clamp(1, self.0.window.get());
        let of_feed = FeedFacts { columns, input, start, no_start };
        let feed = RemoteFeed {
            client: self.clone(),
            digest,
            server,
            fields,
            tickets,
            window,
            memory_bytes,
            records,
        };
        Ok((feed, of_feed))
    }

    /// Goes on with a ticket: that of a rank, or of a lane that ended anywhere. Where servers are
    /// [discovered](Self::discover), it asks which there are. It connects in the background; if that fails,
    /// the first batch is the error.
    ///
    /// # Errors
    ///
    /// [`ClientError::Ticket`] if it is none.
    pub fn resume(&self, ticket: &str) -> Result<RemoteLane, ClientError> {
        let stream = ticket::unverified(ticket);
        // A ticket that is none is the lane's to refuse, or the server's.
        let digest = stream.map_or(FeedDigest::any(), |stream| FeedDigest::of(&stream.request));
        let server = self.0.servers.now(digest).swap_remove(0);
        RemoteLane::new(&self.0, digest, server, ticket, None)
    }

    /// Asks for one message, and waits for it: from the first server or, if it is not there, from the next
    /// one that is. Returns which one answered.
    fn ask<A: Message + Default>(
        &self,
        digest: FeedDigest,
        method: &'static str,
        message: &impl Message,
    ) -> Result<(Arc<Dialer>, A), ClientError> {
        let asked = grpc::framed(message);
        let mut failed = None;
        for server in self.0.servers.now(digest) {
            match self.0.runtime.wait(server.clone().ask(method, asked.clone())) {
                Ok(answer) => {
                    let answer = grpc::decoded(answer);
                    let answer = answer.map_err(|status| malformed(&server, &status.message))?;
                    return Ok((server, answer));
                }
                Err(error) if error.may_pass() => failed = failed.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        Err(failed.expect("a client has a server"))
    }
}

fn malformed(server: &Dialer, found: &str) -> ClientError {
    server.malformed(Malformed(found.to_owned()))
}

/// What a server says about a feed.
#[derive(Deserialize)]
struct Facts {
    version: u32,
    ranks: usize,
    /// The most batches that a client has and has not acknowledged.
    window: usize,
    memory_bytes: u64,
    records: Option<u64>,
    #[serde(default)]
    input: Option<[usize; 3]>,
    #[serde(default)]
    start: Option<String>,
    #[serde(default)]
    no_start: Option<String>,
}

/// What a feed here is made of, beside the lanes.
struct FeedFacts {
    columns: RemoteColumns,
    /// The channels, the height and the width of the first record, if it is an image.
    input: Option<[usize; 3]>,
    /// Where its run starts, or why the server does not say so.
    start: Option<String>,
    no_start: Option<String>,
}

/// A feed of a server: what it is, and where its lanes begin.
#[derive(Clone, Debug)]
pub struct RemoteFeed {
    client: Client,
    digest: FeedDigest,
    /// Which server has it.
    server: Arc<Dialer>,
    fields: Vec<RemoteField>,
    tickets: Vec<String>,
    window: usize,
    memory_bytes: u64,
    records: Option<u64>,
}

impl RemoteFeed {
    /// The fields of its batches.
    #[must_use]
    pub fn fields(&self) -> &[RemoteField] {
        &self.fields
    }

    /// The number of its lanes.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.tickets.len()
    }

    /// How many batches of a lane may be unacknowledged: this client's window, or the server's, if that is
    /// smaller.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// The memory that the server needs for it.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The number of records of the data, if it is known.
    #[must_use]
    pub fn records(&self) -> Option<u64> {
        self.records
    }

    /// The ticket of a rank, from its beginning. Another process may [take](Client::resume) it.
    ///
    /// # Panics
    ///
    /// If there are fewer [ranks](Self::ranks).
    #[must_use]
    pub fn ticket(&self, rank: usize) -> &str {
        &self.tickets[rank]
    }

    /// The lane of a rank, from its beginning. It connects in the background; if that fails, the first batch
    /// is the error.
    ///
    /// # Errors
    ///
    /// [`ClientError::NoRank`] if there are fewer.
    pub fn lane(&self, rank: usize) -> Result<RemoteLane, ClientError> {
        let ticket = self.tickets.get(rank).ok_or(ClientError::NoRank { rank, ranks: self.ranks() })?;
        RemoteLane::new(&self.client.0, self.digest, self.server.clone(), ticket, None)
    }
}
