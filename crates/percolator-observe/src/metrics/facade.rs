//! The same numbers through the crate `metrics`.
//!
//! Its counters are integers. So times, which are counters of seconds at the endpoint, are gauges here, with
//! the same names and values.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use metrics::{Key, Label, counter, describe_counter, describe_gauge, gauge};

use super::Feeds;
use crate::numbers::{FAMILIES, Kind, Numbers, visit};

/// Tells the installed recorder what each metric means.
pub fn describe() {
    for family in FAMILIES {
        match family.kind {
            Kind::Counter if !family.name.contains("_seconds") => describe_counter!(family.name, family.help),
            Kind::Counter | Kind::Gauge => describe_gauge!(family.name, family.help),
        }
    }
}

/// What was given to a recorder: its counters can be added to, but not set, so it gets the difference since
/// the last time.
#[derive(Debug, Default)]
pub struct Facade {
    counted: HashMap<Key, u64>,
}

impl Facade {
    /// Gives the present state of a feed to the installed recorder. Without one, nothing happens.
    ///
    /// A counter that is lower than before has restarted, as after a seek, and its whole count is added.
    pub fn publish(&mut self, feed: &str, numbers: &Numbers) {
        visit(numbers, |family, labels, number| {
            let label = |(name, value): (&'static str, String)| Label::new(name, value);
            let mut all = vec![Label::new("feed", feed.to_owned())];
            all.extend(labels.pairs().into_iter().map(label));
            match (family.kind, number.whole()) {
                (Kind::Counter, Some(count)) => {
                    let counted = self.counted.entry(Key::from_parts(family.name, all.clone())).or_default();
                    let more = count.checked_sub(*counted).unwrap_or(count);
                    *counted = count;
                    // Even if nothing has come: a counter of 0 is a number, too.
                    counter!(family.name, all).increment(more);
                }
                (Kind::Counter | Kind::Gauge, _) => gauge!(family.name, all).set(number.float()),
            }
        });
    }
}

/// A thread that [publishes](Facade::publish) feeds from time to time. Dropping it publishes them once more,
/// and ends it.
#[derive(Debug)]
pub struct Publisher {
    /// Dropped to end the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Publisher {
    /// Publishes the feeds at these intervals, those that are added later as well.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the thread cannot be started.
    pub fn start(feeds: &Feeds, interval: Duration) -> io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let feeds = feeds.clone();
        let run = move || {
            describe();
            let mut facade = Facade::default();
            loop {
                let is_over = matches!(stopped.recv_timeout(interval), Err(RecvTimeoutError::Disconnected));
                for (name, numbers) in feeds.numbers() {
                    facade.publish(&name, &numbers);
                }
                if is_over {
                    break;
                }
            }
        };
        let thread = std::thread::Builder::new().name("metrics:facade".to_owned()).spawn(run)?;
        Ok(Publisher { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
