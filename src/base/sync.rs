//! Locks, channels and threads: the real ones, or the model checker's.
//!
//! The reader and everything below it take their concurrency primitives from here. So `tests/model.rs` and
//! the `model` modules (`RUSTFLAGS="--cfg shuttle"`) run the code that ships, under a scheduler that explores
//! interleavings a machine seldom shows. The model is sequentially consistent: it finds errors in some order
//! of the steps, not errors that only a weaker memory ordering allows.

#[cfg(shuttle)]
pub(crate) use self::model::*;
#[cfg(not(shuttle))]
pub(crate) use self::real::*;

/// A panic's message.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(not(shuttle))]
mod real {
    pub(crate) use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread;

    /// Receives from a queue. Returns `None` when the queue has ended, or is empty and `alarm` has
    /// disconnected.
    pub(crate) fn recv_unless<T>(queue: &Receiver<T>, alarm: &Receiver<()>) -> Option<T> {
        crossbeam_channel::select_biased! {
            recv(queue) -> item => item.ok(),
            // Whatever was sent before the alarm is in the queue by now.
            recv(alarm) -> _ => queue.try_recv().ok(),
        }
    }
}

/// The subset of the real types that the reader uses, on shuttle's primitives. They exist only while a
/// scenario runs: a static must not hold one.
#[cfg(shuttle)]
mod model {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::time::Instant;

    pub(crate) use crossbeam_channel::{RecvError, SendError, TryRecvError};
    use shuttle::sync as shut;
    pub(crate) use shuttle::sync::atomic;
    pub(crate) use shuttle::thread;

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

    /// A locked queue with the rules of crossbeam's bounded one: it is closed by dropping either side, and
    /// receivers drain it before it ends. Items queued when the last receiver drops stay until the last
    /// sender has dropped as well, and are dropped there (only the unbounded flavour is emptied by its
    /// receivers).
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
        /// Signalled at every change, to both senders and receivers.
        changed: Condvar,
    }

    #[derive(Debug)]
    pub(crate) struct Sender<T>(Arc<Channel<T>>);
    #[derive(Debug)]
    pub(crate) struct Receiver<T>(Arc<Channel<T>>);

    pub(crate) fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        assert!(capacity > 0, "the model has no rendezvous channel");
        let queue = Queue { items: VecDeque::new(), capacity, senders: 1, receivers: 1 };
        let channel = Arc::new(Channel { queue: Mutex::new(queue), changed: Condvar::new() });
        (Sender(channel.clone()), Receiver(channel))
    }

    /// Ignores the alarm: the checker cannot wait on two queues. Every alarm of a scenario also ends its
    /// queue.
    pub(crate) fn recv_unless<T>(queue: &Receiver<T>, _alarm: &Receiver<()>) -> Option<T> {
        queue.recv().ok()
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
            self.0.queue.lock().receivers -= 1;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Runs for the real queue and the model's: the checker must not find conserved what the machine loses.
    #[test]
    fn a_queue_keeps_what_is_in_it_until_both_of_its_ends_have_gone() {
        fn check() {
            let item = Arc::new(());
            let (sender, receiver) = bounded(2);
            sender.send(item.clone()).unwrap();
            drop(receiver);
            assert!(sender.send(item.clone()).is_err(), "nobody will take it");
            assert_eq!(Arc::strong_count(&item), 2, "the last receiver drops nothing");
            drop(sender);
            assert_eq!(Arc::strong_count(&item), 1);
            let (sender, receiver) = bounded(2);
            sender.send(item.clone()).unwrap();
            drop(sender);
            assert!(receiver.recv().is_ok() && receiver.recv().is_err(), "it is drained before it ends");
        }
        // There is only one order of steps, and `explore` wants more.
        #[cfg(shuttle)]
        shuttle::check_random(check, 1);
        #[cfg(not(shuttle))]
        check();
    }
}
