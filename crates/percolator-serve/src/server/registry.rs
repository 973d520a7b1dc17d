//! Who shares what: feeds by all that decides their bytes, and the clients of each.
//!
//! This is Caffe's registry of readers, for users whose number nobody knows: a client that asks for a feed
//! that runs joins it, one that asks for another starts it, and the last one that leaves ends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator::feed::{FeedHandle, FeedSpec, ResolvedFeed};
use percolator::record::StepId;
use percolator::source::IndexPlace;
use percolator::{FeedError, Field};
use percolator_files::shown;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};

use super::admission::{Admission, Admitted, ClientPlace};
use super::backlog::{Arrays, Place, Taken};
use super::confine::{self, DataRoot};
use super::feed::{self, Part, Plan, SharedFeed};
use super::memory::Regions;
use super::status::{ClientStatus, FeedStatus, Method, ServerStatus};
use super::{FeedObserver, Timing};
use crate::grpc::{Code, Status};
use crate::message::{self, BatchNote};
use crate::request::{FeedRequest, Share};
use crate::ticket::{Key, Position, TicketContent};

/// How often the [registry looks](Registry::look).
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How many requests are looked into at one time, on threads that may wait. Of those that wait for a thread,
/// nothing stays when their clients go away.
const LOOKED_INTO: usize = 64;

/// The feeds that run, and what they are started with.
pub(super) struct Registry {
    pub(super) root: DataRoot,
    pub(super) index: IndexPlace,
    pub(super) admission: Arc<Admission>,
    pub(super) key: Key,
    pub(super) regions: Regions,
    pub(super) timing: Timing,
    /// The most batches that a client holds.
    pub(super) window: usize,
    pub(super) observer: Option<Box<dyn FeedObserver>>,
    pub(super) runtime: Handle,
    feeds: Mutex<Vec<Entry>>,
    looking: Arc<Semaphore>,
    /// One start at a time for each identity: others wait, and join what was started.
    starts: Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>,
    is_draining: AtomicBool,
    numbers: AtomicU64,
    totals: Totals,
}

/// What was done since the server began.
#[derive(Debug, Default)]
struct Totals {
    streams: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    dismissed: AtomicU64,
}

/// A feed and its clients.
struct Entry {
    /// What decides its bytes, and who may share it.
    identity: Arc<str>,
    feed: Arc<SharedFeed>,
    clients: Vec<Client>,
}

struct Client {
    number: u64,
    peer: String,
    rank: usize,
    place: Arc<Place<Arrays>>,
    counters: Arc<Counters>,
    /// Ends the client's connection.
    hang_up: Arc<Notify>,
}

/// What a client got.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) method: Method,
    pub(super) batches: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) missed: AtomicU64,
}

/// A request that was found to be one that may be served.
pub(super) struct Prepared {
    spec: FeedSpec,
    share: Share,
    identity: Arc<str>,
    pub(super) ranks: usize,
}

/// A feed as it would be.
pub(super) struct Described {
    pub(super) fields: Arc<[Field]>,
    pub(super) ranks: usize,
    pub(super) memory: u64,
    pub(super) records: Option<u64>,
    /// The channels, the height and the width of the first record before the transform, if it is an image.
    pub(super) input: Option<[usize; 3]>,
    /// Where its run starts, as text, or why that cannot be said.
    pub(super) start: Result<String, String>,
}

/// How a client takes a stream.
pub(super) struct Taking {
    pub(super) method: Method,
    pub(super) peer: String,
    /// The most batches that it wants to hold.
    pub(super) window: Option<usize>,
    pub(super) hang_up: Arc<Notify>,
}

/// A client's stream. Dropping it leaves the feed.
pub(super) struct Subscription {
    pub(super) feed: Arc<SharedFeed>,
    pub(super) place: Arc<Place<Arrays>>,
    pub(super) counters: Arc<Counters>,
    /// Ends the client's connection.
    pub(super) hang_up: Arc<Notify>,
    /// The number of epochs after which the feed ends; `None` if it has no end, or no plan.
    epochs: Option<u64>,
    number: u64,
    registry: Arc<Registry>,
    /// `Some` until the drop.
    client: Option<ClientPlace>,
}

impl Registry {
    #[expect(clippy::too_many_arguments, reason = "it is made in one place")]
    pub(super) fn new(
        root: DataRoot,
        index: IndexPlace,
        admission: Arc<Admission>,
        key: Key,
        regions: Regions,
        timing: Timing,
        window: usize,
        observer: Option<Box<dyn FeedObserver>>,
        runtime: Handle,
    ) -> Self {
        Registry {
            root,
            index,
            admission,
            key,
            regions,
            timing,
            window,
            observer,
            runtime,
            feeds: Mutex::default(),
            looking: Arc::new(Semaphore::new(LOOKED_INTO)),
            starts: Mutex::default(),
            is_draining: AtomicBool::new(false),
            numbers: AtomicU64::new(0),
            totals: Totals::default(),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Checks a request, and finds out what it is about.
    pub(super) async fn prepare(self: &Arc<Self>, request: FeedRequest) -> Result<Prepared, Status> {
        let registry = self.clone();
        self.blocking(move || {
            let invalid =
                |error: &dyn std::fmt::Display| Status::new(Code::InvalidArgument, error.to_string());
            let builder = request.builder().map_err(|error| invalid(&error))?;
            let spec = registry.root.confine(builder.spec(), &registry.index)?;
            let share = serde_json::to_string(&request.share).map_err(|error| invalid(&error))?;
            let identity = confine::identity(&spec)?;
            let identity = format!("{}\n{share}\n{identity}", request.group).into();
            Ok(Prepared { ranks: spec.devices.len(), spec, share: request.share, identity })
        })
        .await
    }

    /// Finds out what a feed would be, without starting it.
    pub(super) async fn describe(self: &Arc<Self>, prepared: Prepared) -> Result<Described, Status> {
        let plan = self.plan(&prepared, Part::Whole);
        let ranks = prepared.ranks;
        let resolved = self.resolve(plan).await?;
        let records = resolved.source().records();
        let (fields, memory) =
            (resolved.layout().fields().into(), resolved.memory_budget().total_bytes() as u64);
        let input = resolved.input_shape().map(|image| [image.channels, image.height, image.width]);
        let start = resolved.snapshot();
        let start = start.map(|start| start.to_string()).map_err(|error| shown::with_sources(&error));
        Ok(Described { fields, ranks, memory, records, input, start })
    }

    /// Gives a client the stream that its ticket is for, or `None` if it has had all of it.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        content: TicketContent,
        taking: Taking,
    ) -> Result<Option<Subscription>, Status> {
        let step = match content.from {
            None => None,
            Some(Position::Step(step)) => Some(step),
            Some(Position::End) => return Ok(None),
        };
        if self.is_draining() {
            return Err(draining());
        }
        let client = self.admission.client()?;
        let rank = content.stream.rank;
        let prepared = self.prepare(content.stream.request).await?;
        if rank >= prepared.ranks {
            let message = format!("there is no rank {rank}: the feed has {}, counted from 0", prepared.ranks);
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let start = self.start_of(&prepared.identity);
        let _start = start.lock().await;
        let mut asked = Asked { prepared: &prepared, rank, step, taking: Some(taking), client: Some(client) };
        {
            let mut feeds = self.feeds.lock();
            // Under the lock: a drain tells those who are here, and who came after it would never be told.
            if self.is_draining() {
                return Err(draining());
            }
            if let Some(subscription) = self.join(&mut feeds, &mut asked) {
                return Ok(Some(subscription));
            }
        }
        let part = step.map_or(Part::Whole, |step| Part::Rank(rank, step));
        let feed = self.start(&prepared, part).await?;
        // Nothing may be awaited between the two: a client that went away meanwhile would leave a feed behind
        // that nobody ends.
        let mut feeds = self.feeds.lock();
        if self.is_draining() {
            return Err(draining());
        }
        feeds.push(Entry { identity: prepared.identity.clone(), feed, clients: Vec::new() });
        self.share_threads(&feeds);
        // Of this feed alone: another one may have come to the step meanwhile, and this one would stay.
        let started = feeds.len() - 1;
        if let Some(subscription) = self.join(&mut feeds[started..], &mut asked) {
            if let Some(observer) = &self.observer {
                observer.started(&subscription.feed.name, &subscription.feed.handle);
            }
            return Ok(Some(subscription));
        }
        feeds.pop();
        Err(Status::new(Code::Internal, "nobody can join the feed that was started; please report it"))
    }

    /// Joins a feed that runs, if there is one with a place.
    fn join(self: &Arc<Self>, feeds: &mut [Entry], asked: &mut Asked<'_>) -> Option<Subscription> {
        let now = Instant::now();
        let (entry, place) =
            feeds.iter_mut().filter(|entry| entry.identity == asked.prepared.identity).find_map(|entry| {
                let window = asked.taking.as_ref()?.window.unwrap_or(self.window).clamp(1, self.window);
                let (backlog, part) = (entry.feed.backlog(asked.rank)?, entry.feed.part);
                let place = match (asked.prepared.share, asked.step) {
                    (Share::Divided, step) => {
                        let is_its = match step {
                            None => part == Part::Whole,
                            Some(step) => part == Part::Rank(asked.rank, step),
                        };
                        (is_its && backlog.is_untouched()).then(|| backlog.join(window, now))
                    }
                    (Share::Windowed { .. }, None) => {
                        let may_join = backlog.is_live() || backlog.is_untouched();
                        (part == Part::Whole && may_join).then(|| backlog.join(window, now))
                    }
                    // Each gets every batch: who comes too late for the first one begins a feed.
                    (_, None) => (part == Part::Whole).then(|| backlog.join_first(window, now)).flatten(),
                    (_, Some(step)) if part == Part::Rank(asked.rank, step) && backlog.is_untouched() => {
                        Some(backlog.join(window, now))
                    }
                    (_, Some(step)) => backlog.join_step(step, window, now),
                };
                Some((entry, place?))
            })?;
        let Taking { method, peer, hang_up, .. } = asked.taking.take()?;
        let zero = AtomicU64::default;
        let counters = Arc::new(Counters { method, batches: zero(), bytes: zero(), missed: zero() });
        let (place, number) = (Arc::new(place), self.numbers.fetch_add(1, Ordering::Relaxed));
        entry.clients.push(Client {
            number,
            peer,
            rank: asked.rank,
            place: place.clone(),
            counters: counters.clone(),
            hang_up: hang_up.clone(),
        });
        self.totals.streams.fetch_add(1, Ordering::Relaxed);
        Some(Subscription {
            feed: entry.feed.clone(),
            place,
            counters,
            hang_up,
            epochs: asked.prepared.spec.schedule.epochs.filter(|&epochs| epochs > 0),
            number,
            registry: self.clone(),
            client: asked.client.take(),
        })
    }

    /// Starts a feed, which nobody knows of yet.
    async fn start(self: &Arc<Self>, prepared: &Prepared, part: Part) -> Result<Arc<SharedFeed>, Status> {
        let plan = self.plan(prepared, part);
        let resolved = self.resolve(plan.clone()).await?;
        let memory = resolved.memory_budget().total_bytes() as u64;
        let admitted: Admitted = self.admission.feed(memory)?;
        let name = format!("feed-{}", self.numbers.fetch_add(1, Ordering::Relaxed));
        let runtime = self.runtime.clone();
        let started = move || {
            let started = SharedFeed::start(&plan, resolved, name, admitted, &runtime);
            started.map(Arc::new).map_err(|error| feed::of_feed(&error))
        };
        self.blocking(started).await
    }

    fn plan(&self, prepared: &Prepared, part: Part) -> Plan {
        Plan {
            spec: prepared.spec.clone(),
            opener: self.root.opener(),
            regions: self.regions.clone(),
            share: prepared.share,
            part,
            window: self.window,
            threads: self.admission.limits().threads,
            memory_limit: self.admission.memory().1,
        }
    }

    async fn resolve(self: &Arc<Self>, plan: Plan) -> Result<ResolvedFeed, Status> {
        let admission = self.admission.clone();
        let resolve = move || {
            plan.resolve().map_err(|error: FeedError| match feed::over_budget(&error) {
                Some((needed, free)) if free == plan.memory_limit => admission.too_much(needed, free),
                _ => feed::of_feed(&error),
            })
        };
        let resolved = self.blocking(resolve).await?;
        match resolved.layout().bytes() {
            bytes if bytes > message::BODY_BYTES_MAX => Err(message::too_large(bytes)),
            _ => Ok(resolved),
        }
    }

    /// Does work that may take long, on a thread that may wait.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        // Held by the work itself, which goes on when nobody waits for it.
        let place = self.looking.clone().acquire_owned().await;
        let work = move || {
            let done = work();
            drop(place);
            done
        };
        match self.runtime.spawn_blocking(work).await {
            Ok(done) => done,
            Err(_) => {
                Err(Status::new(Code::Internal, "the server panicked over this request; please report it"))
            }
        }
    }

    fn start_of(&self, identity: &Arc<str>) -> Arc<tokio::sync::Mutex<()>> {
        let mut starts = self.starts.lock();
        if let Some(start) = starts.get(identity).and_then(Weak::upgrade) {
            return start;
        }
        starts.retain(|_, start| start.strong_count() > 0);
        let start = Arc::default();
        starts.insert(identity.clone(), Arc::downgrade(&start));
        start
    }

    /// Divides the threads among the feeds.
    fn share_threads(&self, feeds: &[Entry]) {
        let each = (self.admission.limits().threads / feeds.len().max(1)).max(1);
        for Entry { feed, .. } in feeds {
            if let Err(error) = feed.handle.set_threads(each) {
                tracing::warn!(feed = %feed.name, %error, "its number of threads stays as it is");
            }
        }
    }

    fn leave(&self, feed: &SharedFeed, client: u64) {
        let mut feeds = self.feeds.lock();
        if let Some(entry) = feeds.iter_mut().find(|entry| entry.feed.name == feed.name)
            && let Some(at) = entry.clients.iter().position(|known| known.number == client)
        {
            feed.left(entry.clients.remove(at).rank);
        }
        let is_deserted = |entry: &Entry| entry.feed.name == feed.name && entry.clients.is_empty();
        let Some(at) = feeds.iter().position(is_deserted) else { return };
        let gone = feeds.remove(at);
        self.share_threads(&feeds);
        drop(feeds);
        if let Some(observer) = &self.observer {
            observer.ended(&gone.feed.name);
        }
    }

    /// Lets go of those who keep others waiting, and hangs up on those who do not notice.
    pub(super) fn look(&self, now: Instant) {
        let Timing { patience, join_within } = self.timing;
        let feeds = self.feeds.lock();
        for Entry { feed, clients, .. } in &*feeds {
            feed.look(now, patience, join_within);
            for client in clients.iter().filter(|client| client.place.stays(now)) {
                self.hang_up_on(&client.hang_up);
            }
        }
    }

    /// Ends the connection of a client that does not notice that it is no longer waited for.
    pub(super) fn hang_up_on(&self, client: &Notify) {
        self.totals.dismissed.fetch_add(1, Ordering::Relaxed);
        client.notify_one();
    }

    /// Takes no new clients, and tells those who are here to go on elsewhere.
    pub(super) fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        for Entry { clients, .. } in &*self.feeds.lock() {
            clients.iter().for_each(|client| client.place.dismiss(draining()));
        }
    }

    /// Ends everything at once.
    pub(super) fn end(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        let status =
            Status::new(Code::Unavailable, "the server ended: go on with your ticket when it is back");
        for Entry { feed, .. } in &*self.feeds.lock() {
            feed.end(&status);
        }
    }

    pub(super) fn has_clients(&self) -> bool {
        !self.feeds.lock().is_empty()
    }

    /// The schemas' fields of the feeds that run, with their names and sources.
    pub(super) fn running(&self) -> Vec<(String, String, Arc<[Field]>)> {
        let feeds = self.feeds.lock();
        feeds
            .iter()
            .map(|Entry { feed, .. }| (feed.name.clone(), feed.source.clone(), feed.fields.clone()))
            .collect()
    }

    pub(super) fn status(&self) -> ServerStatus {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let feeds = self.feeds.lock();
        let feeds = feeds.iter().map(|Entry { feed, clients, .. }| FeedStatus {
            name: feed.name.clone(),
            source: feed.source.clone(),
            share: feed.share,
            ranks: feed.ranks(),
            memory_bytes: feed.admitted.memory,
            threads: FeedHandle::threads(&feed.handle),
            clients: clients
                .iter()
                .map(|client| ClientStatus {
                    peer: client.peer.clone(),
                    rank: client.rank,
                    method: client.counters.method,
                    batches: number(&client.counters.batches),
                    bytes: number(&client.counters.bytes),
                    unacknowledged: client.place.held(),
                    missed: number(&client.counters.missed),
                })
                .collect(),
        });
        let feeds = feeds.collect();
        ServerStatus {
            is_draining: self.is_draining(),
            memory_bytes: self.admission.memory().0,
            memory_limit_bytes: self.admission.limits().memory_bytes,
            threads: self.admission.limits().threads,
            feeds,
            streams_total: number(&self.totals.streams),
            batches_total: number(&self.totals.batches),
            bytes_total: number(&self.totals.bytes),
            dismissed_total: number(&self.totals.dismissed),
        }
    }
}

/// What a client asks for, until it has it.
struct Asked<'p> {
    prepared: &'p Prepared,
    rank: usize,
    step: Option<StepId>,
    taking: Option<Taking>,
    client: Option<ClientPlace>,
}

impl Subscription {
    /// What a batch says about itself, given the stream's ticket.
    pub(super) fn note(&self, taken: &Taken<Arrays>, ticket: &str) -> Result<BatchNote, Status> {
        let Some(first) = taken.batch.first() else {
            return Err(Status::new(Code::Internal, "a batch has no array; please report it"));
        };
        let step = first.batch().step();
        let position = match step {
            Some(end) if end.is_last && self.epochs.is_some_and(|epochs| end.epoch + 1 >= epochs) => {
                Position::End
            }
            Some(end) => Position::Step(end.next()),
            // The short batch at the end of a single pass.
            None => Position::End,
        };
        Ok(BatchNote {
            number: taken.number,
            epoch: step.map(|step| step.epoch),
            step: step.map(|step| step.step),
            is_last: step.is_some_and(|step| step.is_last),
            records: first.batch().len(),
            rows: first.batch().rows(),
            missed: taken.missed,
            ticket: self.registry.key.position(ticket, position),
        })
    }

    /// Counts what was sent.
    pub(super) fn count(&self, batches: u64, bytes: u64, missed: u64) {
        let add = |counter: &AtomicU64, number| counter.fetch_add(number, Ordering::Relaxed);
        add(&self.counters.batches, batches);
        add(&self.counters.bytes, bytes);
        add(&self.counters.missed, missed);
        add(&self.registry.totals.batches, batches);
        add(&self.registry.totals.bytes, bytes);
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Who sees that it has left may have its place.
        self.client = None;
        self.registry.leave(&self.feed, self.number);
    }
}

/// What a client is told when the server is about to end.
pub(super) fn draining() -> Status {
    let message = "this server is about to end, and takes no more clients: go on with your ticket elsewhere, \
                   or here when it is back";
    Status::new(Code::Unavailable, message)
}
