//! The subset of the real types that the stages use, on shuttle's primitives.
//!
//! They exist only while a scenario runs: a static must not hold one. No time passes in the model, so that a
//! schedule can be repeated: a wait's deadline has passed when the wait begins, or it never passes. Only a
//! wait shorter than a [moment](MOMENT) may end at any time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use crossbeam_channel::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use shuttle::rand::{Rng as _, thread_rng};
use shuttle::sync as shut;
pub(crate) use shuttle::sync::atomic;
pub(crate) use shuttle::thread;

pub(crate) use super::touches::Touches;

/// The checker's locks have the interface of the standard library's.
pub(crate) mod std_locks {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

/// Does not poison, like parking_lot's.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shut::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` only during a wait.
    held: Option<shut::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(shut::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.0.lock().unwrap_or_else(|poison| poison.into_inner())) }
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect("a guard is empty only inside a wait")
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("a guard is empty only inside a wait")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(shut::Condvar);

/// Whether a wait ended at its deadline.
pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Condvar(shut::Condvar::new())
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.held.take().expect("a guard is empty only inside a wait");
        guard.held = Some(self.0.wait(held).unwrap_or_else(|poison| poison.into_inner()));
    }

    /// No time passes in the model, so that a run can be repeated: a deadline either has passed when the
    /// wait begins or never passes. As with the real type, other threads may take the lock before a wait
    /// that timed out reacquires it.
    pub(crate) fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        let timed_out = deadline <= Instant::now();
        if timed_out {
            drop(guard.held.take());
            guard.held = guard.mutex.lock().held;
        } else {
            self.wait(guard);
        }
        WaitTimeoutResult(timed_out)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A wait for less than this is a poll of something that announces nothing. It may end at any time.
const MOMENT: Duration = Duration::from_secs(1);

/// A locked queue with the rules of crossbeam's: it is closed by dropping either side, and receivers drain it
/// before it ends. Items queued when the last receiver drops are dropped with it if the queue is unbounded;
/// if it is bounded, they stay until the last sender has dropped as well.
struct Queue<T> {
    items: VecDeque<T>,
    capacity: usize,
    senders: usize,
    receivers: usize,
}

struct Channel<T> {
    queue: Mutex<Queue<T>>,
    /// Signalled at every change, to both senders and receivers.
    changed: Condvar,
    selecting: Arc<Selecting>,
}

impl<T> Channel<T> {
    fn with_capacity(capacity: usize) -> Arc<Self> {
        let queue = Queue { items: VecDeque::new(), capacity, senders: 1, receivers: 1 };
        Arc::new(Channel { queue: Mutex::new(queue), changed: Condvar::new(), selecting: Arc::default() })
    }

    fn announce(&self) {
        self.changed.notify_all();
        self.selecting.announce();
    }
}

pub(crate) struct Sender<T>(Arc<Channel<T>>);
pub(crate) struct Receiver<T>(Arc<Channel<T>>);

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}

pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "the model has no rendezvous channel");
    let channel = Channel::with_capacity(capacity);
    (Sender(channel.clone()), Receiver(channel))
}

pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}

/// A receiver that never has anything, and does not end.
pub(crate) fn never<T>() -> Receiver<T> {
    // It counts a sender that does not exist, so that it never ends.
    Receiver(Channel::with_capacity(1))
}

/// Receives from a queue. Returns `None` when the queue has ended, or is empty and `alarm` has
/// disconnected.
pub(crate) fn recv_unless<T>(queue: &Receiver<T>, alarm: &Receiver<()>) -> Option<T> {
    select! {
        recv(queue) -> item => item.ok(),
        recv(alarm) -> _ => queue.try_recv().ok(),
        default(Duration::MAX) => None,
    }
}

impl<T> Sender<T> {
    pub(crate) fn send(&self, item: T) -> Result<(), SendError<T>> {
        let mut queue = self.0.queue.lock();
        while queue.items.len() == queue.capacity && queue.receivers > 0 {
            self.0.changed.wait(&mut queue);
        }
        if queue.receivers == 0 {
            return Err(SendError(item));
        }
        queue.items.push_back(item);
        drop(queue);
        self.0.announce();
        Ok(())
    }

    pub(crate) fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let mut queue = self.0.queue.lock();
        if queue.receivers == 0 {
            return Err(TrySendError::Disconnected(item));
        }
        if queue.items.len() == queue.capacity {
            return Err(TrySendError::Full(item));
        }
        queue.items.push_back(item);
        drop(queue);
        self.0.announce();
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.queue.lock().items.len()
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let mut queue = self.0.queue.lock();
        while queue.items.is_empty() && queue.senders > 0 {
            self.0.changed.wait(&mut queue);
        }
        let item = queue.items.pop_front();
        drop(queue);
        self.0.announce();
        item.ok_or(RecvError)
    }

    pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut queue = self.0.queue.lock();
        let item = queue.items.pop_front();
        let ended = queue.senders == 0;
        drop(queue);
        // A look changes nothing: if selects announced their looks to each other, they would never wait.
        if item.is_some() {
            self.0.announce();
        }
        item.ok_or(if ended { TryRecvError::Disconnected } else { TryRecvError::Empty })
    }

    pub(crate) fn recv_timeout(&self, patience: Duration) -> Result<T, RecvTimeoutError> {
        select! {
            recv(self) -> item => item.map_err(|RecvError| RecvTimeoutError::Disconnected),
            default(patience) => Err(RecvTimeoutError::Timeout),
        }
    }

    pub(crate) fn try_iter(&self) -> impl Iterator<Item = T> {
        std::iter::from_fn(|| self.try_recv().ok())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.queue.lock().items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a select finds here: an item, the end of the queue, or `None`.
    pub(crate) fn poll(&self) -> Option<Result<T, RecvError>> {
        match self.try_recv() {
            Ok(item) => Some(Ok(item)),
            Err(TryRecvError::Disconnected) => Some(Err(RecvError)),
            Err(TryRecvError::Empty) => None,
        }
    }

    /// Makes every change of the queue announce itself to a select, until the guard is dropped.
    pub(crate) fn watch(&self, signal: &Arc<Signal>) -> Watch {
        self.0.selecting.0.lock().push(signal.clone());
        Watch { selecting: self.0.selecting.clone(), signal: signal.clone() }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.queue.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.queue.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.queue.lock().senders -= 1;
        self.0.announce();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.receivers -= 1;
        let is_discarded = queue.receivers == 0 && queue.capacity == usize::MAX;
        let discarded = if is_discarded { std::mem::take(&mut queue.items) } else { VecDeque::new() };
        drop(queue);
        drop(discarded);
        self.0.announce();
    }
}

/// The selects that wait for a change of one queue.
#[derive(Debug, Default)]
pub(crate) struct Selecting(Mutex<Vec<Arc<Signal>>>);

impl Selecting {
    fn announce(&self) {
        for signal in &*self.0.lock() {
            *signal.has_changed.lock() = true;
            signal.changed.notify_all();
        }
    }
}

/// Wakes one select.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    has_changed: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Waits for a change since the last wait. Returns `false` if none comes in time.
    pub(crate) fn wait(&self, patience: Duration) -> bool {
        let mut has_changed = self.has_changed.lock();
        if patience < MOMENT && !*has_changed {
            drop(has_changed);
            // A poll costs no time; PCT would rank a thread that yields behind all others.
            if !patience.is_zero() {
                thread::yield_now();
            }
            return false;
        }
        while !*has_changed {
            self.changed.wait(&mut has_changed);
        }
        *has_changed = false;
        true
    }
}

/// Ends the announcements of one queue to one select.
pub(crate) struct Watch {
    selecting: Arc<Selecting>,
    signal: Arc<Signal>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.selecting.0.lock().retain(|signal| !Arc::ptr_eq(signal, &self.signal));
    }
}

/// The queue at which a select begins to look: crossbeam's choice among several ready ones is random, too.
pub(crate) fn first_of(queues: usize) -> usize {
    thread_rng().gen_range(0..queues)
}

/// Crossbeam's `select!`, as far as the stages use it: `recv` arms that end with a comma, and a time limit.
macro_rules! model_select {
    ($(recv($queue:expr) -> $item:pat => $body:expr,)+ default($patience:expr) => $none:expr $(,)?) => {
        'select: {
            let patience: std::time::Duration = $patience;
            let signal = std::sync::Arc::<$crate::base::sync::Signal>::default();
            let watches = [$(($queue).watch(&signal)),+];
            loop {
                let first = $crate::base::sync::first_of(watches.len());
                // First the queues from `first` on, then those before it.
                for looks_behind in [false, true] {
                    let mut number = 0;
                    $(
                        if (number < first) == looks_behind
                            && let Some(found) = ($queue).poll()
                        {
                            let $item = found;
                            break 'select ($body);
                        }
                        number += 1;
                    )+
                    let _ = number;
                }
                if !signal.wait(patience) {
                    break 'select ($none);
                }
            }
        }
    };
}

pub(crate) use model_select as select;
