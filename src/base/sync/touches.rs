//! Plain memory under the model checker, which sees locks, queues and atomics, but not the bytes that they
//! guard.
//!
//! Code that touches a part of such memory reports it here. Two touches of one part, of which one is a write,
//! must be ordered by the checker's primitives: the first must happen before the second. Otherwise some
//! schedule has both at the same time, and the scenario fails, whichever came first in the current one.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use shuttle::current::{clock, me};
use shuttle::sync::atomic::AtomicBool;

/// Who has touched which part of a memory.
#[derive(Debug, Default)]
pub(crate) struct Touches(Mutex<Vec<Part>>);

#[derive(Clone, Debug, Default)]
struct Part {
    written: Option<Event>,
    /// The last of each thread since the write.
    read: Vec<Event>,
}

/// A moment of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    thread: usize,
    time: u32,
}

impl Event {
    /// A new moment of this thread, which no other thread knows of before they synchronise.
    fn now() -> Self {
        // A load of an atomic that no other thread has gives the thread a new time, without a switch of
        // threads.
        let _ = AtomicBool::new(false).get_mut();
        let thread = usize::from(me());
        Event { thread, time: clock()[thread] }
    }

    /// Whether this thread knows of it.
    fn is_known(self) -> bool {
        clock()[..].get(self.thread).is_some_and(|time| *time >= self.time)
    }
}

impl Touches {
    /// Writes to these parts.
    ///
    /// # Panics
    ///
    /// If another thread may be reading or writing one of them.
    pub(crate) fn write(&self, parts: Range<usize>) {
        self.touch(parts, |number, part, now| {
            let earlier = part.written.iter().chain(&part.read);
            assert!(earlier.copied().all(Event::is_known), "part {number} is written while it is in use");
            *part = Part { written: Some(now), read: Vec::new() };
        });
    }

    /// Reads these parts.
    ///
    /// # Panics
    ///
    /// If another thread may be writing one of them.
    pub(crate) fn read(&self, parts: Range<usize>) {
        self.touch(parts, |number, part, now| {
            assert!(part.written.is_none_or(Event::is_known), "part {number} is read while it is written");
            part.read.retain(|event| event.thread != now.thread);
            part.read.push(now);
        });
    }

    fn touch(&self, range: Range<usize>, each: impl Fn(usize, &mut Part, Event)) {
        let now = Event::now();
        // Not one of the checker's locks, which would order the touches.
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() < range.end {
            parts.resize(range.end, Part::default());
        }
        for (number, part) in range.clone().zip(&mut parts[range]) {
            each(number, part, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::base::sync::{bounded, thread};

    /// Whether any schedule finds a fault in what two threads do.
    fn is_found(scenario: fn(Arc<Touches>)) -> bool {
        let run = || shuttle::check_random(move || scenario(Arc::default()), 20);
        catch_unwind(AssertUnwindSafe(run)).is_err()
    }

    #[test]
    fn touches_that_nothing_orders_are_found() {
        let found: [fn(Arc<Touches>); 3] = [
            |touches| {
                let other = touches.clone();
                let thread = thread::spawn(move || other.write(1..3));
                touches.write(0..2);
                thread.join().unwrap();
            },
            |touches| {
                let other = touches.clone();
                let thread = thread::spawn(move || other.read(0..1));
                touches.write(0..1);
                thread.join().unwrap();
            },
            |touches| {
                let (sender, receiver) = bounded(1);
                let other = touches.clone();
                let thread = thread::spawn(move || {
                    sender.send(()).unwrap();
                    // What is sent before a write does not tell of it.
                    other.write(0..1);
                });
                receiver.recv().unwrap();
                touches.read(0..1);
                thread.join().unwrap();
            },
        ];
        for (number, scenario) in found.into_iter().enumerate() {
            assert!(is_found(scenario), "scenario {number}");
        }
    }

    #[test]
    fn touches_in_an_order_are_not() {
        let ordered: [fn(Arc<Touches>); 3] = [
            |touches| {
                touches.write(0..2);
                let other = touches.clone();
                let thread = thread::spawn(move || other.read(0..1));
                touches.read(0..2);
                touches.write(1..2);
                thread.join().unwrap();
                touches.write(0..2);
            },
            |touches| {
                let other = touches.clone();
                let thread = thread::spawn(move || other.write(1..2));
                touches.write(0..1);
                thread.join().unwrap();
            },
            |touches| {
                let (sender, receiver) = bounded(1);
                let other = touches.clone();
                let thread = thread::spawn(move || {
                    other.write(0..1);
                    sender.send(()).unwrap();
                });
                receiver.recv().unwrap();
                touches.write(0..1);
                thread.join().unwrap();
            },
        ];
        for (number, scenario) in ordered.into_iter().enumerate() {
            assert!(!is_found(scenario), "scenario {number}");
        }
    }
}
