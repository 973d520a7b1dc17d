//! The class `_ServerFeed`: what a loader has of a feed that runs at a server.
//!
//! Taking a batch from a lane waits for the server, however long that takes, so a thread of its own has the
//! lane. The consumer asks that thread for a batch, and waits in [turns](crate::running). It asks for one at
//! a time, because asking acknowledges the batch before. What has come stays until the consumer takes it: so
//! Ctrl-C loses nothing, and the ticket is that of what follows what was taken.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator::feed::FeedSpec;
use percolator::order::{Job, World};
use percolator::record::StepId;
use percolator_serve::{
    Client, ClientError, LaneCloser, RemoteBatch, RemoteFeed, RemoteField, RemoteFieldKind, RemoteLane,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::batch::Taken;
use crate::errors;
use crate::iterators::Batches;
use crate::options::{self, AtServer, json};
use crate::order::Plan;
use crate::process::OfProcess;
use crate::running::{
    CLOSED, Close, IteratorTurn, TURN, closed_at_exit, collect_cycles, elsewhere, next, without_interpreter,
};

/// The consumer's end of a lane. Dropping it ends the lane and its connection.
struct LaneEnd {
    ask: Sender<()>,
    answers: Receiver<Answer>,
    state: LaneState,
    closer: LaneCloser,
    /// `Some` until the drop.
    thread: Option<JoinHandle<()>>,
}

/// What a lane gives: a batch, or its end.
type Answer = Result<RemoteBatch, LaneEnded>;

/// Why nothing more comes.
enum LaneEnded {
    Failed(ClientError),
    /// The feed is over, which one without an end is not.
    Over,
    Panicked,
}

enum LaneState {
    /// Nothing was asked for.
    Idle,
    /// A batch was asked for.
    Asked,
    /// It has come.
    Answered(Box<Answer>),
    /// Nothing more comes.
    Ended,
}

impl LaneEnd {
    fn start(mut lane: RemoteLane) -> io::Result<Self> {
        let (ask, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let closer = lane.closer();
        let run = move || {
            while asked.recv().is_ok() {
                let next = lane.next().map_or(Err(LaneEnded::Over), |next| next.map_err(LaneEnded::Failed));
                let is_last = next.is_err();
                if answer.send(next).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("server lane".to_owned()).spawn(run)?;
        Ok(LaneEnd { ask, answers, state: LaneState::Idle, closer, thread: Some(thread) })
    }

    /// Whether something can be taken without waiting, after one turn at most.
    fn is_ready(&mut self) -> bool {
        if let LaneState::Idle = self.state {
            // If the thread is gone, there is no answer.
            let _ = self.ask.send(());
            self.state = LaneState::Asked;
        }
        if let LaneState::Asked = self.state {
            let answer = match self.answers.recv_timeout(TURN) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => Err(LaneEnded::Panicked),
            };
            self.state = LaneState::Answered(Box::new(answer));
        }
        true
    }

    /// Takes what has come, unless it is a batch of a later epoch than this one.
    fn take(&mut self, epoch: Option<u64>) -> Option<Answer> {
        let LaneState::Answered(answer) = &self.state else { return None };
        let found = (**answer).as_ref().ok().and_then(RemoteBatch::epoch);
        if found.zip(epoch).is_some_and(|(found, wanted)| found > wanted) {
            return None;
        }
        let next = if answer.is_err() { LaneState::Ended } else { LaneState::Idle };
        match std::mem::replace(&mut self.state, next) {
            LaneState::Answered(answer) => Some(*answer),
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, LaneState::Ended)
    }
}

impl Drop for LaneEnd {
    fn drop(&mut self) {
        // Its thread may be waiting for the server, which counts it among its clients until it is gone.
        self.closer.close();
        // Or for a question, which nobody asks any more.
        self.ask = mpsc::channel().0;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Where the training is.
struct Position {
    /// The ticket of its stream.
    stream: String,
    /// The ticket of what follows the batch that was taken last.
    ticket: String,
    /// The step that follows it, if one was taken.
    next: Option<StepId>,
}

impl Position {
    fn of(ticket: String, next: Option<StepId>) -> Self {
        // The position, if there is one, follows the third part.
        let end = ticket.match_indices('.').nth(2).map_or(ticket.len(), |(end, _)| end);
        Position { stream: ticket[..end].to_owned(), ticket, next }
    }
}

/// Counts a batch whose memory somebody has.
struct HeldBatch(Arc<AtomicUsize>);

impl HeldBatch {
    fn new(held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(1, Ordering::Relaxed);
        HeldBatch(held.clone())
    }
}

impl Drop for HeldBatch {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct SharedServerFeed(OfProcess<ServerParts>);

struct ServerParts {
    /// `None` once it was closed.
    client: Mutex<Option<Client>>,
    /// `None` until the first batch is asked for, and once it was closed.
    lane: Mutex<Option<LaneEnd>>,
    position: Mutex<Position>,
    is_iterated: AtomicBool,
    missed: Mutex<u64>,
    /// The number of batches whose memory somebody has.
    held: Arc<AtomicUsize>,
}

impl ServerParts {
    fn close(&self) {
        let (lane, client) = (self.lane.lock().take(), self.client.lock().take());
        drop((lane, client));
    }
}

impl Drop for ServerParts {
    fn drop(&mut self) {
        // The last of a client's owners waits for what it has still to say.
        without_interpreter(|| self.close());
    }
}

impl Close for SharedServerFeed {
    fn close(&self) {
        if self.0.is_here() {
            self.0.get_anywhere().close();
        }
    }
}

/// A feed that runs at a server: one rank of it.
#[pyclass(frozen, name = "_ServerFeed", module = "percolator._core")]
pub(crate) struct ServerFeed {
    shared: Arc<SharedServerFeed>,
    spec: FeedSpec,
    rank: usize,
    ranks: usize,
    fields: Vec<RemoteField>,
    records: Option<u64>,
    /// The ticket of its stream, from the beginning.
    beginning: String,
    /// The most batches that the server lends.
    window: usize,
    give_up_after: Duration,
    is_lent: bool,
}

impl ServerFeed {
    fn parts(&self, py: Python<'_>) -> PyResult<&ServerParts> {
        self.shared.0.get(py)
    }

    /// Starts the lane where the training is, if none runs.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let parts = self.parts(py)?;
        let began: Result<bool, ClientError> = py.detach(|| {
            let Some(client) = parts.client.lock().clone() else { return Ok(false) };
            let mut lane = parts.lane.lock();
            if lane.as_ref().is_none_or(LaneEnd::has_ended) {
                let ticket = parts.position.lock().ticket.clone();
                let started = client.resume(&ticket)?;
                *lane = Some(LaneEnd::start(started).map_err(ClientError::Thread)?);
            }
            Ok(true)
        });
        match began {
            Ok(true) => Ok(()),
            Ok(false) => Err(errors::closed(py, CLOSED)),
            Err(error) => Err(errors::client(py, &error, "SnapshotError")),
        }
    }

    /// The next batch of an epoch, or `None` at its end. Those of earlier epochs are left out. If no epoch is
    /// given, it is whatever comes.
    pub(crate) fn next_of(&self, py: Python<'_>, epoch: Option<u64>) -> PyResult<Option<Taken>> {
        let parts = self.parts(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        loop {
            let all_held = self.told_if_all_held(parts);
            let taken = next(py, &parts.lane, LaneEnd::is_ready, all_held, |lane| lane.take(epoch))?;
            let batch = match taken {
                Some(Ok(batch)) => batch,
                Some(Err(LaneEnded::Failed(error))) => return Err(self.exception(py, parts, &error)),
                Some(Err(LaneEnded::Over)) => {
                    return Err(errors::server(py, "the server's feed ended, which has no end"));
                }
                Some(Err(LaneEnded::Panicked)) => {
                    return Err(errors::server(py, "receiving panicked: see the standard error"));
                }
                None => return Ok(None),
            };
            {
                let mut position = parts.position.lock();
                position.ticket = format!("{}{}", position.stream, batch.ticket_end());
                position.next = batch.step().map(|step| step.next());
            }
            *parts.missed.lock() += batch.missed();
            if batch.epoch().zip(epoch).is_none_or(|(found, wanted)| found >= wanted) {
                let held: Arc<dyn Any + Send + Sync> = Arc::new(HeldBatch::new(&parts.held));
                return Ok(Some(Taken::of_server(batch, self.rank, self.is_lent, &held)));
            }
        }
    }

    /// A ticket that a server does not take is wrong where it came from.
    fn exception(&self, py: Python<'_>, parts: &ServerParts, error: &ClientError) -> PyErr {
        let is_its_own = parts.position.lock().ticket == self.beginning;
        errors::client(py, error, if is_its_own { "ConfigError" } else { "SnapshotError" })
    }

    /// Tells a consumer that waits for memory which it holds itself: as many batches as the server lends.
    /// What comes next may be on its way, so it is told late.
    fn told_if_all_held(&self, parts: &ServerParts) -> impl FnMut(Python<'_>) -> PyResult<()> {
        let (began, mut has_collected) = (Instant::now(), false);
        move |py| {
            let held = parts.held.load(Ordering::Relaxed);
            if !self.is_lent || held < self.window {
                return Ok(());
            }
            if !has_collected {
                has_collected = true;
                collect_cycles(py)?;
            }
            let waited = began.elapsed();
            if waited < self.give_up_after { Ok(()) } else { Err(errors::lent_held(py, held, waited)) }
        }
    }
}

#[pymethods]
impl ServerFeed {
    #[new]
    #[pyo3(signature = (server, **options))]
    fn new(py: Python<'_>, server: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let AtServer { client, request, spec, rank, give_up_after, is_lent } =
            options::at_server(py, server, options)?;
        let connect = move || -> Result<(Client, RemoteFeed), ClientError> {
            let client = client.connect()?;
            let feed = client.open(&request)?;
            Ok((client, feed))
        };
        let (client, feed) = elsewhere(py, "connect", connect)?
            .ok_or_else(|| errors::server(py, "connecting panicked: see the standard error"))?
            .map_err(|error| errors::client(py, &error, "ConfigError"))?;
        if rank >= feed.ranks() {
            let message = format!("there is no rank {rank}: the feed has {}, counted from 0", feed.ranks());
            return Err(errors::config(py, &message));
        }
        let beginning = feed.ticket(rank).to_owned();
        let parts = ServerParts {
            client: Mutex::new(Some(client)),
            lane: Mutex::new(None),
            position: Mutex::new(Position::of(beginning.clone(), None)),
            is_iterated: AtomicBool::new(false),
            missed: Mutex::new(0),
            held: Arc::default(),
        };
        let shared = Arc::new(SharedServerFeed(OfProcess::new(parts)));
        closed_at_exit(&shared);
        Ok(ServerFeed {
            shared,
            spec,
            rank,
            ranks: feed.ranks(),
            fields: feed.fields().to_vec(),
            records: feed.records(),
            window: feed.window(),
            beginning,
            give_up_after,
            is_lent,
        })
    }

    /// The batches of an epoch, or of the rest of it, each as a function of it returns it; of the epoch that
    /// comes, if none is given.
    #[pyo3(signature = (convert, epoch=None))]
    fn _converted(slf: &Bound<'_, Self>, convert: Py<PyAny>, epoch: Option<u64>) -> PyResult<Batches> {
        slf.get().begin(slf.py())?;
        Ok(Batches::of_server(slf.clone().unbind(), epoch, convert))
    }

    /// Goes on with a ticket, whose next step is this one, if that is known.
    #[pyo3(signature = (ticket, next=None))]
    fn go_on(&self, py: Python<'_>, ticket: String, next: Option<(u64, u64)>) -> PyResult<()> {
        let parts = self.parts(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        py.detach(|| {
            let lane = parts.lane.lock().take();
            drop(lane);
            *parts.position.lock() = Position::of(ticket, next.map(StepId::from));
        });
        Ok(())
    }

    /// The ticket of what follows the batch that was taken last.
    #[getter]
    fn ticket(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.parts(py)?.position.lock().ticket.clone())
    }

    /// The ticket of its stream, from the beginning.
    #[getter]
    fn beginning(&self) -> &str {
        &self.beginning
    }

    /// The epoch and the step that follow the batch that was taken last, if one was taken.
    #[getter]
    fn next_step(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        let next = self.parts(py)?.position.lock().next;
        Ok(next.map(|step| (step.epoch, step.step)))
    }

    /// How many batches of a windowed share came too early for this client.
    #[getter]
    fn missed(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(*self.parts(py)?.missed.lock())
    }

    /// How many steps an epoch has, and how many records each of them, if that is known. The order of the
    /// records is the server's, and not this one's.
    #[getter]
    fn plan(&self) -> Option<Plan> {
        let (schedule, records) = (&self.spec.schedule, self.records?);
        // A mixture's epochs depend on each of its databases.
        if !schedule.mix.is_empty() || !schedule.is_planned() {
            return None;
        }
        let world = World::new(1, self.ranks).ok()?;
        let job = Job::new([records], self.spec.batch_size, world)
            .assignment(schedule.assignment.unwrap_or_default());
        let job = match schedule.last_batch {
            Some(last_batch) => job.last_batch(last_batch),
            None => job,
        };
        job.plan().ok().map(Plan::new)
    }

    /// What a batch consists of: each field's type and a record's shape.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for RemoteField { name, dtype, kind, .. } in &self.fields {
            let shape = match kind {
                RemoteFieldKind::Fixed { shape } => shape.clone(),
                RemoteFieldKind::Padded { max } | RemoteFieldKind::Ragged { max } => vec![*max],
                _ => Vec::new(),
            };
            found.set_item(name, (dtype.to_string(), PyTuple::new(py, shape)?))?;
        }
        Ok(found)
    }

    /// The names of a batch's arrays: its fields, and the offsets or lengths of those whose length varies.
    #[getter]
    fn _arrays(&self) -> Vec<String> {
        let second = |field: &RemoteField| match field.kind {
            RemoteFieldKind::Ragged { .. } => Some(format!("{}.offsets", field.name)),
            RemoteFieldKind::Padded { .. } => Some(format!("{}.lengths", field.name)),
            _ => None,
        };
        self.fields.iter().flat_map(|field| [Some(field.name.clone()), second(field)]).flatten().collect()
    }

    /// The options that the server was asked with.
    fn spec<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::spec_to(py, &self.spec)
    }

    /// Ends the connection. Batches that are held stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let parts = self.parts(py)?;
        py.detach(|| parts.close());
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        let parts = self.parts(py)?;
        Ok(py.detach(|| parts.client.lock().is_none()))
    }
}
