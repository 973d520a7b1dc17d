//! The last batches of a lane, kept until its clients are done with them.
//!
//! A pump puts the lane's batches in, as long as there is room. Each client reads them in order, at its own
//! pace, and acknowledges them. Nothing here waits or knows the time: tasks are woken, and whoever has a
//! clock [looks](Backlog::look) from time to time.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator::feed::OwnedArray;
use percolator::record::{StepEnd, StepId};

use crate::grpc::{Code, Status};

/// What a backlog keeps: clones of a batch, of which each knows its step.
pub(super) trait Kept: Clone {
    fn step(&self) -> Option<StepEnd>;
}

/// All arrays of a batch. The batch goes back to its lane when the last copy of the last one is gone.
pub(super) type Arrays = Arc<[OwnedArray]>;

impl Kept for Arrays {
    fn step(&self) -> Option<StepEnd> {
        self.first()?.batch().step()
    }
}

/// How far clients may be apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// A batch is kept until all clients are done with it.
    OfSlowest,
    /// A batch is kept while it is one of the last; who is slower misses it.
    OfFastest,
}

/// A batch for a client.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) batch: K,
    /// Its number in the client's stream.
    pub(super) number: u64,
    /// The batches that were lost before it.
    pub(super) missed: u64,
}

/// How long a client that gets nothing more may take to leave by itself.
pub(super) const GRACE: Duration = Duration::from_millis(700);

/// How long a client that was told to go on elsewhere may take nothing of the batch that comes before.
const STALLED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Backlog<K> {
    pace: Pace,
    /// The most batches that are kept.
    room: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// The number of the first batch that is kept, counted from the beginning of the lane.
    first: u64,
    kept: VecDeque<K>,
    /// Nobody may join any more.
    is_closed: bool,
    /// The lane has ended, well or not.
    end: Option<Result<(), Status>>,
    readers: HashMap<u64, Reader>,
    next_reader: u64,
    /// The number of clients that the first batch waits for.
    awaited: usize,
    /// Whether clients came or were no longer waited for.
    is_open: bool,
    /// The step of the batch that comes after those that are kept, if it is known.
    next_step: Option<StepId>,
    /// Since when those who look have seen no client here.
    deserted: Option<Instant>,
    pump: Option<Waker>,
}

#[derive(Debug)]
struct Reader {
    /// The number of the batch that it gets next.
    next: u64,
    /// How many batches it got, and how many of those it is done with.
    sent: u64,
    done: u64,
    /// How many batches it holds at most.
    window: u64,
    /// Batches that it missed since the last one that it got.
    missed: u64,
    /// When it last took or acknowledged a batch, or had none to take; later, while it may not take any.
    since: Instant,
    /// Why it gets nothing more.
    outcome: Option<Status>,
    /// Since when it is no longer waited for, if it was let go.
    dismissed: Option<Instant>,
    is_hung_up: bool,
    waker: Option<Waker>,
}

impl Reader {
    /// Whether something waits for it: a batch that it could take, or one that it could acknowledge.
    fn is_due(&self, end: u64) -> bool {
        self.outcome.is_none() && (self.holds() > 0 || self.next < end)
    }

    /// How many batches it got and has not acknowledged.
    fn holds(&self) -> u64 {
        self.sent - self.done
    }

    /// The number of the first batch that it still needs, or may. If it missed some, it is a later one.
    fn needs(&self) -> u64 {
        self.next - self.holds()
    }
}

/// A client's place in a backlog. Dropping it lets go of what is kept for it.
#[derive(Debug)]
pub(super) struct Place<K> {
    backlog: Arc<Backlog<K>>,
    number: u64,
}

impl<K: Kept> Backlog<K> {
    /// For a lane that begins at this step, and whose first batch waits for so many clients.
    pub(super) fn new(pace: Pace, room: usize, awaited: usize, begin: StepId) -> Self {
        let state = State {
            first: 0,
            kept: VecDeque::with_capacity(room),
            is_closed: false,
            end: None,
            readers: HashMap::new(),
            next_reader: 0,
            awaited,
            is_open: false,
            next_step: Some(begin),
            deserted: None,
            pump: None,
        };
        Backlog { pace, room, state: Mutex::new(state) }
    }

    /// Whether a client may join that begins with the first batch of the lane: nobody has before. The lane
    /// may have ended by then, if all of it was kept.
    pub(super) fn is_untouched(&self) -> bool {
        let state = self.state.lock();
        state.next_reader == 0 && !state.is_closed
    }

    /// Whether a client that begins anywhere may join.
    pub(super) fn is_live(&self) -> bool {
        self.state.lock().end.is_none()
    }

    /// Gives a client a place at the first batch that is kept. What came before it, it has missed.
    pub(super) fn join(self: &Arc<Self>, window: usize, now: Instant) -> Place<K> {
        self.join_at(&mut self.state.lock(), 0, window, now)
    }

    /// Gives a client a place at the first batch of the lane, unless that has gone.
    pub(super) fn join_first(self: &Arc<Self>, window: usize, now: Instant) -> Option<Place<K>> {
        let mut state = self.state.lock();
        // A lane that failed has told those who were there; who comes later tries anew.
        let may_join =
            state.first == 0 && !state.is_closed && (state.next_reader == 0 || !state.has_failed());
        // Under one lock, here and below: the batch may go as soon as others acknowledge it.
        may_join.then(|| self.join_at(&mut state, 0, window, now))
    }

    /// Gives a client a place at this step, if the batch of that step is kept, or is the next.
    pub(super) fn join_step(self: &Arc<Self>, step: StepId, window: usize, now: Instant) -> Option<Place<K>> {
        let mut state = self.state.lock();
        let mut steps = state.kept.iter().map(Kept::step);
        let at = match steps.position(|end| end.is_some_and(|end| end.id() == step)) {
            _ if state.is_closed => return None,
            Some(kept) => state.first + kept as u64,
            // Steps follow one another, so the next one is known.
            None if state.next_step == Some(step) && !state.has_failed() => {
                state.first + state.kept.len() as u64
            }
            None => return None,
        };
        Some(self.join_at(&mut state, at, window, now))
    }

    fn join_at(self: &Arc<Self>, state: &mut State<K>, at: u64, window: usize, now: Instant) -> Place<K> {
        let start = at.max(state.first);
        let number = state.next_reader;
        state.next_reader += 1;
        let reader = Reader {
            next: start,
            sent: 0,
            done: 0,
            window: window as u64,
            missed: start - at,
            since: now,
            outcome: None,
            dismissed: None,
            is_hung_up: false,
            waker: None,
        };
        state.readers.insert(number, reader);
        state.deserted = None;
        if !state.is_open && state.readers.len() >= state.awaited {
            state.open();
        }
        Place { backlog: self.clone(), number }
    }

    /// Whether there is room for one more batch. If not, the task is woken when there is.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.has_room(self.pace, self.room) {
            return Poll::Ready(());
        }
        state.pump = Some(context.waker().clone());
        Poll::Pending
    }

    /// Puts the lane's next batch in.
    pub(super) fn put(&self, batch: K) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        state.next_step = batch.step().map(|end| end.next());
        if self.pace == Pace::OfFastest && state.kept.len() >= self.room {
            state.kept.pop_front();
            state.first += 1;
        }
        state.kept.push_back(batch);
        state.wake_readers();
    }

    /// Puts the lane's end in.
    pub(super) fn end(&self, outcome: Result<(), Status>) {
        let mut state = self.state.lock();
        state.end.get_or_insert(outcome);
        state.wake_readers();
    }

    /// Tells all clients that they get nothing more, and why.
    pub(super) fn dismiss(&self, status: &Status) {
        let mut state = self.state.lock();
        for reader in state.readers.values_mut() {
            reader.outcome.get_or_insert_with(|| status.clone());
        }
        state.is_closed = true;
        state.end.get_or_insert(Err(status.clone()));
        state.kept.clear();
        state.wake_readers();
        // It drops the lane, for which other lanes of the feed wait.
        state.wake_pump();
    }

    /// Whether nobody has been here for so long, as far as those who look have seen.
    pub(super) fn is_deserted(&self, now: Instant, time: Duration) -> bool {
        let state = self.state.lock();
        let is_past = |since| now.saturating_duration_since(since) > time;
        state.readers.is_empty() && state.deserted.is_some_and(is_past)
    }

    /// No longer waits for clients that have not come.
    pub(super) fn open(&self) {
        self.state.lock().open();
    }

    /// Lets go of the clients that did nothing for so long although something waits for them.
    pub(super) fn look(&self, now: Instant, patience: Duration) {
        let mut state = self.state.lock();
        let (end, is_open) = (state.first + state.kept.len() as u64, state.is_open);
        state.deserted = state.readers.is_empty().then(|| state.deserted.unwrap_or(now));
        let mut are_dismissed = false;
        for reader in state.readers.values_mut() {
            if reader.outcome.is_some() {
                // Who was told for another reason may still be taking a batch.
                if now.saturating_duration_since(reader.since) > STALLED {
                    reader.dismissed.get_or_insert(now);
                }
                continue;
            }
            if !is_open || !reader.is_due(end) {
                reader.since = reader.since.max(now);
            } else if now.saturating_duration_since(reader.since) > patience {
                are_dismissed = true;
                reader.dismissed = Some(now);
                reader.outcome = Some(Status::new(
                    Code::DeadlineExceeded,
                    format!(
                        "this client neither took nor acknowledged a batch for {patience:.0?}, while {} \
                         waited for it, and it is no longer waited for: its ticket goes on after the last \
                         batch that it acknowledged (the server's --patience is how long it waits)",
                        if reader.holds() > 0 { "its last one" } else { "the next one" }
                    ),
                ));
            }
        }
        if are_dismissed {
            state.forget_done(self.pace);
            state.wake_readers();
        }
    }
}

impl<K> State<K> {
    /// Whether the lane ended with an error.
    fn has_failed(&self) -> bool {
        matches!(self.end, Some(Err(_)))
    }

    fn has_room(&self, pace: Pace, room: usize) -> bool {
        if self.end.is_some() {
            return true;
        }
        match pace {
            Pace::OfSlowest => self.kept.len() < room,
            Pace::OfFastest => {
                let live = self.readers.values().filter(|reader| reader.outcome.is_none());
                let fastest = live.map(Reader::needs).max().unwrap_or(0);
                let end = self.first + self.kept.len() as u64;
                end < fastest.max(self.first) + room as u64
            }
        }
    }

    fn open(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.wake_readers();
        }
    }

    /// Drops what nobody needs any more.
    fn forget_done(&mut self, pace: Pace) {
        if pace == Pace::OfSlowest {
            let live = self.readers.values().filter(|reader| reader.outcome.is_none());
            // Without clients, what is kept waits for the next.
            if let Some(slowest) = live.map(Reader::needs).min() {
                while self.first < slowest && self.kept.pop_front().is_some() {
                    self.first += 1;
                }
            }
        }
        self.wake_pump();
    }

    fn wake_pump(&mut self) {
        if let Some(waker) = self.pump.take() {
            waker.wake();
        }
    }

    fn wake_readers(&mut self) {
        for reader in self.readers.values_mut() {
            if let Some(waker) = reader.waker.take() {
                waker.wake();
            }
        }
    }
}

impl<K: Kept> Place<K> {
    /// The next batch, or the end, or why there is nothing more. The task is woken when there is.
    pub(super) fn poll_next(
        &self,
        context: &mut Context<'_>,
        now: Instant,
    ) -> Poll<Option<Result<Taken<K>, Status>>> {
        let mut state = self.backlog.state.lock();
        let State { first, kept, end, readers, is_open, .. } = &mut *state;
        let Some(reader) = readers.get_mut(&self.number) else { return Poll::Ready(None) };
        if let Some(status) = &reader.outcome {
            return Poll::Ready(Some(Err(status.clone())));
        }
        if reader.next < *first {
            reader.missed += *first - reader.next;
            reader.next = *first;
        }
        let holds = reader.holds();
        let kept = usize::try_from(reader.next - *first).ok().and_then(|at| kept.get(at));
        match (kept, end) {
            (Some(batch), _) if *is_open && holds < reader.window => {
                let taken = Taken {
                    batch: batch.clone(),
                    number: reader.sent,
                    missed: std::mem::take(&mut reader.missed),
                };
                reader.next += 1;
                reader.sent += 1;
                reader.since = reader.since.max(now);
                Poll::Ready(Some(Ok(taken)))
            }
            (None, Some(Ok(()))) => Poll::Ready(None),
            (None, Some(Err(status))) => Poll::Ready(Some(Err(status.clone()))),
            _ => {
                reader.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether the client has acknowledged all that it got. The task is woken when it has.
    pub(super) fn poll_done(&self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        let mut state = self.backlog.state.lock();
        let Some(reader) = state.readers.get_mut(&self.number) else { return Poll::Ready(Ok(())) };
        if let Some(status) = &reader.outcome {
            return Poll::Ready(Err(status.clone()));
        }
        if reader.holds() == 0 {
            return Poll::Ready(Ok(()));
        }
        reader.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Says that the client is done with all batches of its stream up to this number.
    pub(super) fn acknowledge(&self, number: u64, now: Instant) -> Result<(), Status> {
        let mut state = self.backlog.state.lock();
        let Some(reader) = state.readers.get_mut(&self.number) else { return Ok(()) };
        if number >= reader.sent {
            let sent = reader.sent;
            let message = format!("batch {number} was acknowledged, and {sent} were sent in this stream");
            let status = Status::new(Code::InvalidArgument, message);
            reader.outcome.get_or_insert_with(|| status.clone());
            state.wake_readers();
            return Err(status);
        }
        if number >= reader.done {
            reader.done = number + 1;
            reader.since = reader.since.max(now);
            if let Some(waker) = reader.waker.take() {
                waker.wake();
            }
            state.forget_done(self.backlog.pace);
        }
        Ok(())
    }

    /// The client wants to hold at most so many batches. It never gets more than it did before.
    pub(super) fn narrow(&self, window: usize) {
        if let Some(reader) = self.backlog.state.lock().readers.get_mut(&self.number) {
            reader.window = reader.window.min(window.max(1) as u64);
        }
    }

    /// The client is kept waiting until then, and is not to blame for it.
    pub(super) fn excuse(&self, until: Instant) {
        if let Some(reader) = self.backlog.state.lock().readers.get_mut(&self.number) {
            reader.since = reader.since.max(until);
        }
    }

    /// Why the client gets nothing more. The task is woken when it is told.
    pub(super) fn poll_dismissed(&self, context: &mut Context<'_>) -> Poll<Status> {
        let mut state = self.backlog.state.lock();
        let Some(reader) = state.readers.get_mut(&self.number) else { return Poll::Pending };
        if let Some(status) = &reader.outcome {
            return Poll::Ready(status.clone());
        }
        reader.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Whether it was let go, since it did nothing.
    pub(super) fn is_let_go(&self) -> bool {
        let state = self.backlog.state.lock();
        state.readers.get(&self.number).is_some_and(|reader| reader.dismissed.is_some())
    }

    /// Whether it was let go some time ago, and is still here: its connection takes nothing, so it does not
    /// know. Says so once.
    pub(super) fn stays(&self, now: Instant) -> bool {
        let mut state = self.backlog.state.lock();
        let Some(reader) = state.readers.get_mut(&self.number) else { return false };
        let is_late = |then| now.saturating_duration_since(then) > GRACE;
        reader.dismissed.is_some_and(is_late) && !std::mem::replace(&mut reader.is_hung_up, true)
    }

    /// How many batches it holds.
    pub(super) fn held(&self) -> u64 {
        let state = self.backlog.state.lock();
        state.readers.get(&self.number).map_or(0, Reader::holds)
    }

    /// Ends the client's stream with this status.
    pub(super) fn dismiss(&self, status: Status) {
        let mut state = self.backlog.state.lock();
        if let Some(reader) = state.readers.get_mut(&self.number) {
            reader.outcome.get_or_insert(status);
            if let Some(waker) = reader.waker.take() {
                waker.wake();
            }
            state.forget_done(self.backlog.pace);
        }
    }
}

impl<K> Drop for Place<K> {
    fn drop(&mut self) {
        let mut state = self.backlog.state.lock();
        state.readers.remove(&self.number);
        state.forget_done(self.backlog.pace);
    }
}
