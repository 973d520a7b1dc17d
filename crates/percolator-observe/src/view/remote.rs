//! A feed of another program, whose endpoint a thread queries, so that a slow answer does not delay keys.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use percolator::feed::FeedControl;
use percolator_files::shown;

use super::Subject;
use crate::Numbers;
use crate::metrics::{ScrapeError, scrape};

/// How often the endpoint is asked.
const INTERVAL: Duration = Duration::from_millis(500);

/// A feed of another program. It cannot be controlled from here.
#[derive(Debug)]
pub struct Remote {
    name: String,
    last: Arc<Mutex<Result<Numbers, String>>>,
    /// Dropped to end the thread.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Remote {
    /// Attaches to the feed of this name, or to the first one, that the endpoint at this address publishes.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`] if the endpoint does not answer with its numbers now.
    pub fn attach(url: &str, feed: Option<&str>) -> Result<Self, ScrapeError> {
        let feeds = scrape(url)?;
        let names = || feeds.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let found = match feed {
            Some(feed) => feeds.iter().find(|(name, _)| name == feed),
            None => feeds.first(),
        };
        let Some((name, numbers)) = found.cloned() else {
            return Err(ScrapeError::no_such_feed(url, feed.unwrap_or_default(), names()));
        };
        let last = Arc::new(Mutex::new(Ok(numbers)));
        let (stop, stopped) = sync_channel::<()>(0);
        let (url, wanted, kept) = (url.to_owned(), name.clone(), last.clone());
        let ask = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
                let found = scrape(&url).map_err(|error| shown::with_sources(&error)).and_then(|feeds| {
                    let found = feeds.into_iter().find(|(name, _)| *name == wanted);
                    found.map(|(_, numbers)| numbers).ok_or_else(|| "the feed is gone".to_owned())
                });
                *kept.lock() = found;
            }
        };
        let started: io::Result<_> = std::thread::Builder::new().name("watch".to_owned()).spawn(ask);
        let thread = started.map_err(ScrapeError::Thread)?;
        Ok(Remote { name, last, stop: Some(stop), thread: Some(thread) })
    }
}

impl Subject for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&mut self) -> Result<Numbers, String> {
        self.last.lock().clone()
    }

    fn control(&self) -> Option<&FeedControl> {
        None
    }
}

impl Drop for Remote {
    /// An answer that is under way is not waited for: the thread ends after it.
    fn drop(&mut self) {
        self.stop = None;
        drop(self.thread.take());
    }
}
