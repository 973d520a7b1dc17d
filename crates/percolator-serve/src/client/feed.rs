//! A feed whose batches a server makes: the core's own lanes, rings, devices, snapshots and receipts, filled
//! by the lanes of a client.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use percolator::batch::ImageShape;
use percolator::feed::{BatchRoom, LaneSupplier, SuppliedBatch, Supply, SupplyError, SupplyLanes};
use percolator::record::{RecordId, StepId};
use percolator::{Feed, FeedBuilder, FeedError, Snapshot};
use ring::rand::{SecureRandom, SystemRandom};

use super::arrival::ArrivedBatch;
use super::batch::RemoteBatch;
use super::error::ClientError;
use super::lane::RemoteLane;
use super::receive::Malformed;
use super::scatter::RoomPlace;
use super::{Client, FeedFacts, RemoteFeed, malformed};
use crate::flight::{Action, ActionResult};
use crate::request::{Column, FeedRequest, Share};

/// Gives [`Feed`] a `connect` beside its `builder`.
pub trait FeedConnect: Sized {
    /// Builds a feed whose batches the server at this [address](Client::connect) makes: bit for bit what
    /// [`build`](FeedBuilder::build) delivers where the data are, in the same steps and epochs, with the same
    /// snapshots and receipts, on the devices of this machine. Paths start from the server's folder. All that
    /// [`Client::feed`] says holds.
    ///
    /// ```no_run
    /// use percolator::Feed;
    /// use percolator_serve::FeedConnect;
    ///
    /// let described = Feed::builder().lmdb("train_lmdb").batch_size(64).epochs(3);
    /// let mut feed = Feed::connect("grpc://10.0.0.7:8815", described)?; // instead of described.build()?
    /// for step in feed.steps() {
    ///     for batch in step? {
    ///         println!("{} labels", batch.labels()?.len());
    ///     }
    /// }
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FeedError`] as from [`Client::feed`], or if there is no such server.
    fn connect(url: &str, feed: impl Into<FeedBuilder>) -> Result<Self, FeedError>;
}

impl FeedConnect for Feed {
    fn connect(url: &str, feed: impl Into<FeedBuilder>) -> Result<Self, FeedError> {
        Client::connect(url).map_err(SupplyError::new)?.feed(feed)
    }
}

impl Client {
    /// Builds a feed whose batches the server makes: see [`FeedConnect::connect`]. No other client gets any
    /// of them. This client's window bounds what is under way beside the feed's own ring.
    ///
    /// The server names the data and says which record comes when; the feed keeps that for its snapshots. It
    /// [resumes](FeedBuilder::resume) from its own, and from those of a feed that is built where the data
    /// are, and these from its. Its [receipts](FeedBuilder::receipts) are of the positions that the server
    /// sent with each batch. They do not show that the bytes are those of these records: only the server has
    /// read them. If the server goes and comes again, with its key, the feed goes on where it was.
    ///
    /// What the connection reads is copied once, to the batch's own memory, from which the device gets it;
    /// over `shared://`, it is copied there from the server's memory.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the server does not serve the feed, in its words, or if the feed has what cannot be
    /// asked for: a program's own sources, decoders and functions, bad records that are left out, a transform
    /// on devices, receipts of contents, blocks, a single lane, or a snapshot of another job.
    pub fn feed(&self, feed: impl Into<FeedBuilder>) -> Result<Feed, FeedError> {
        self.supplied(feed.into(), Share::Divided, own_group()?)
    }

    /// The same, with other clients of this group: each gets every batch, and the first one waits for all of
    /// them ([`Share::InStep`]). The server decodes once.
    ///
    /// # Errors
    ///
    /// As [`feed`](Self::feed).
    pub fn feed_in_step(
        &self,
        feed: impl Into<FeedBuilder>,
        clients: NonZeroUsize,
        group: &str,
    ) -> Result<Feed, FeedError> {
        self.supplied(feed.into(), Share::InStep { clients }, group.to_owned())
    }

    fn supplied(&self, feed: FeedBuilder, share: Share, group: String) -> Result<Feed, FeedError> {
        let lanes = NonZeroUsize::new(feed.spec().devices.len()).unwrap_or(NonZeroUsize::MIN);
        // What is this client's own does not reach the server.
        let request = FeedRequest::feed(feed.spec().clone()).ranks(lanes).of_feed();
        let request = request.share(share).group(group).columns([Column::Epoch, Column::Position]);
        let (remote, facts) = self.described(&request).map_err(SupplyError::new)?;
        let supply = remote.supply(facts).map_err(SupplyError::new)?;
        feed.build_supplied(supply)
    }
}

/// A group that nobody else names.
fn own_group() -> Result<String, SupplyError> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| SupplyError::new("the system gave no random numbers for a feed's own group"))?;
    Ok(format!("feed-{:032x}", u128::from_le_bytes(bytes)))
}

impl RemoteFeed {
    /// What a feed here is built from.
    fn supply(self, facts: FeedFacts) -> Result<Supply, ClientError> {
        let FeedFacts { columns, input, start, no_start } = facts;
        let Some(start) = start else {
            let url = self.server.url.clone();
            return Err(ClientError::NoStart { url, why: no_start.unwrap_or_else(|| "nothing".to_owned()) });
        };
        let start: Snapshot = start
            .parse()
            .map_err(|error| malformed(&self.server, &format!("a feed's start that is none: {error}")))?;
        let fields = columns.of_feed().map_err(|found| self.server.malformed(found))?;
        let records = self.records;
        let mut supply = Supply::new(start, fields, Arc::new(ServedLanes(self)));
        supply.records = records;
        supply.input_shape = input.map(|[channels, height, width]| ImageShape { channels, height, width });
        Ok(supply)
    }
}

/// The lanes of a feed elsewhere.
struct ServedLanes(RemoteFeed);

impl fmt::Debug for ServedLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedLanes").field(&self.0.server).finish()
    }
}

impl ServedLanes {
    /// The ticket of a lane from a step on, which only a server can sign.
    fn ticket(&self, lane: usize, from: StepId) -> Result<String, ClientError> {
        let feed = &self.0;
        let ranks = feed.ranks();
        let ticket = feed.tickets.get(lane).ok_or(ClientError::NoRank { rank: lane, ranks })?;
        if from == StepId::default() {
            return Ok(ticket.clone());
        }
        let StepId { epoch, step } = from;
        let body = serde_json::json!({ "ticket": ticket, "epoch": epoch, "step": step }).to_string();
        let action = Action { r#type: "position".to_owned(), body: body.into() };
        let (server, ActionResult { body }) = feed.client.ask(feed.digest, "DoAction", &action)?;
        String::from_utf8(body.into()).map_err(|_| malformed(&server, "a ticket that is no text"))
    }
}

impl SupplyLanes for ServedLanes {
    fn supplier(&self, lane: usize, from: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError> {
        let feed = &self.0;
        let rooms = Arc::new(RoomPlace::new(feed.records));
        let lane = self.ticket(lane, from).and_then(|ticket| {
            let rooms = Some(rooms.clone());
            RemoteLane::new(&feed.client.0, feed.digest, feed.server.clone(), &ticket, rooms)
        });
        Ok(Box::new(ServedLane { lane: lane.map_err(SupplyError::new)?, rooms }))
    }
}

/// A lane of a feed elsewhere that fills batches here.
struct ServedLane {
    lane: RemoteLane,
    rooms: Arc<RoomPlace>,
}

impl ServedLane {
    /// The batch that came, in the room that was put there for it.
    fn placed(&self, arrived: ArrivedBatch) -> Result<SuppliedBatch, Malformed> {
        match arrived {
            ArrivedBatch::Scattered(scattered) => Ok(scattered.batch),
            ArrivedBatch::Received(batch) => {
                let room = self.rooms.take();
                let room = room.ok_or_else(|| Malformed("a batch for which there is no room".to_owned()))?;
                copy(&batch, room, &self.rooms)
            }
        }
    }
}

impl LaneSupplier for ServedLane {
    fn fill(&mut self, room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
        self.rooms.put(room);
        let arrived = self.lane.next_arrived().transpose().map_err(SupplyError::new)?;
        let placed = arrived.map(|arrived| self.placed(arrived)).transpose();
        // Whoever resumes asks for what was not handed over, so nothing else is waited for.
        self.lane.acknowledge();
        placed.map_err(|Malformed(found)| SupplyError::new(self.lane.malformed(&found)))
    }

    fn closer(&self) -> Box<dyn Fn() + Send> {
        let closer = self.lane.closer();
        Box::new(move || closer.close())
    }
}

/// Copies a batch of the server's memory to where the feed has it. Every length is the server's word.
fn copy(batch: &RemoteBatch, mut room: BatchRoom, known: &RoomPlace) -> Result<SuppliedBatch, Malformed> {
    let (rows, records) = (batch.rows(), batch.records());
    let unfit =
        |room: &BatchRoom| Malformed(format!("a batch of {rows} rows that is not one of {}", room.layout()));
    let mut number = 0;
    for bytes in batch.arrays_of_feed() {
        if number == room.arrays() || room.array_mut(number).len() < bytes.len() {
            return Err(unfit(&room));
        }
        room.array_mut(number)[..bytes.len()].copy_from_slice(bytes);
        number += 1;
    }
    if number != room.arrays() || rows > room.layout().rows() || batch.missed() > 0 {
        return Err(unfit(&room));
    }
    let (Some(epochs), Some(positions)) = (batch.epochs(), batch.positions()) else {
        return Err(Malformed("a batch that does not say which records it has".to_owned()));
    };
    let ids = epochs.iter().zip(positions).map(|(&epoch, &index)| RecordId { epoch, index });
    for (place, id) in room.records_mut().iter_mut().zip(ids.take(records)) {
        known.check(id)?;
        *place = id;
    }
    Ok(room.filled(batch.step(), rows, records))
}
