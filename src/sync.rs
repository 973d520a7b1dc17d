//! Locks, channels and threads: the real ones, or those of the model checker.
//!
//! Everything below the feed takes its concurrency from here, so that `tests/model.rs`
//! (`RUSTFLAGS="--cfg shuttle"`) runs the very code that ships under a scheduler that tries the
//! interleavings a machine seldom shows.

#[cfg(shuttle)]
pub(crate) use self::model::*;
#[cfg(not(shuttle))]
pub(crate) use self::real::*;

#[cfg(not(shuttle))]
mod real {
    pub(crate) use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;
}

/// The subset of the real types that the reader uses, on shuttle's primitives. The channel is a plain
/// locked queue with crossbeam's rules: bounded, closed by dropping either side, drained before it ends.
#[cfg(shuttle)]
mod model {
    use std::collections::VecDeque;
    use std::time::Instant;

    pub(crate) use crossbeam_channel::{RecvError, SendError, TryRecvError};
    use shuttle::sync as shut;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shut::Mutex<T>);
    pub(crate) struct MutexGuard<'a, T>(Option<shut::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(shut::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(|poison| poison.into_inner())))
        }
    }

    impl<T> std::ops::Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("a guard is empty only inside a wait")
        }
    }

    impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("a guard is empty only inside a wait")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(shut::Condvar);

    /// The answer of a wait with a deadline. Model time does not pass: no deadline is ever reached.
    pub(crate) struct WaitTimeoutResult;

    impl WaitTimeoutResult {
        pub(crate) fn timed_out(&self) -> bool {
            false
        }
    }

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(shut::Condvar::new())
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("a guard is empty only inside a wait");
            guard.0 = Some(self.0.wait(inner).unwrap_or_else(|poison| poison.into_inner()));
        }

        pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
            self.wait(guard);
            WaitTimeoutResult
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    #[derive(Debug)]
    struct Queue<T> {
        items: VecDeque<T>,
        capacity: usize,
        senders: usize,
        receivers: usize,
    }

    #[derive(Debug)]
    struct Channel<T> {
        queue: Mutex<Queue<T>>,
        changed: Condvar,
    }

    #[derive(Debug)]
    pub(crate) struct Sender<T>(std::sync::Arc<Channel<T>>);
    #[derive(Debug)]
    pub(crate) struct Receiver<T>(std::sync::Arc<Channel<T>>);

    pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        let queue = Queue { items: VecDeque::new(), capacity, senders: 1, receivers: 1 };
        let channel = std::sync::Arc::new(Channel { queue: Mutex::new(queue), changed: Condvar::new() });
        (Sender(channel.clone()), Receiver(channel))
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
            self.0.changed.notify_all();
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
            self.0.changed.notify_all();
            item.ok_or(RecvError)
        }

        pub(crate) fn try_recv(&self) -> Result<T, TryRecvError> {
            let mut queue = self.0.queue.lock();
            let item = queue.items.pop_front();
            let ended = queue.senders == 0;
            drop(queue);
            self.0.changed.notify_all();
            item.ok_or(if ended { TryRecvError::Disconnected } else { TryRecvError::Empty })
        }

        pub(crate) fn len(&self) -> usize {
            self.0.queue.lock().items.len()
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
            self.0.changed.notify_all();
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            let mut queue = self.0.queue.lock();
            queue.receivers -= 1;
            // Crossbeam drops what nobody can receive any more as soon as the last receiver goes.
            let orphans =
                if queue.receivers == 0 { std::mem::take(&mut queue.items) } else { VecDeque::new() };
            drop(queue);
            drop(orphans);
            self.0.changed.notify_all();
        }
    }
}
