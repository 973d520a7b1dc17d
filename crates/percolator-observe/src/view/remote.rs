//! A feed of another program, whose endpoint a thread queries, so that a slow answer does not delay keys.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use percolator::feed::FeedHandle;
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
    /// Dropped to end the thread, after an answer that is under way.
    _stop: SyncSender<()>,
}

impl Remote {
    /// Attaches to the feed of this name, or to the first one, that the endpoint at this address publishes.
    ///
    /// # Errors
    ///
    /// [`ScrapeError`] if the endpoint does not answer with its numbers now.
    pub fn attach(url: &str, feed: Option<&str>) -> Result<Self, ScrapeError> {
        let (name, numbers) = scrape(url, feed)?.swap_remove(0);
        let last = Arc::new(Mutex::new(Ok(numbers)));
        let (stop, stopped) = sync_channel::<()>(0);
        let (url, wanted, kept) = (url.to_owned(), name.clone(), last.clone());
        let ask = move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(INTERVAL) {
                let found = scrape(&url, Some(&wanted)).map(|mut feeds| feeds.swap_remove(0).1);
                *kept.lock() = found.map_err(|error| shown::with_sources(&error));
            }
        };
        std::thread::Builder::new().name("watch".to_owned()).spawn(ask).map_err(ScrapeError::Thread)?;
        Ok(Remote { name, last, _stop: stop })
    }
}

impl Subject for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&mut self) -> Result<Numbers, String> {
        self.last.lock().clone()
    }

    fn handle(&self) -> Option<&FeedHandle> {
        None
    }
}
