//! The numbers of feeds for other programs: at an address that Prometheus reads, and through the crate
//! [`metrics`], to whatever recorder a program has installed.
//!
//! [`FAMILIES`](crate::FAMILIES) has all names; the guide's page on watching has a table of them.

mod endpoint;
mod facade;
mod scrape;

use std::sync::Arc;

use parking_lot::RwLock;
use percolator::feed::FeedHandle;

pub use self::endpoint::{Endpoint, EndpointError};
pub use self::facade::{Facade, Publisher, describe};
pub use self::scrape::{ScrapeError, scrape};

use crate::Numbers;

/// The port at which a feed's numbers are published unless told otherwise.
pub const PORT: u16 = 9464;

/// Feeds by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Feeds(Arc<RwLock<Vec<(String, FeedHandle)>>>);

impl Feeds {
    /// Returns an empty list.
    #[must_use]
    pub fn new() -> Self {
        Feeds::default()
    }

    /// Adds a feed, or replaces the one of this name.
    pub fn put(&self, name: impl Into<String>, handle: FeedHandle) {
        let name = name.into();
        let mut feeds = self.0.write();
        match feeds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = handle,
            None => feeds.push((name, handle)),
        }
    }

    /// Removes the feed of this name, if there is one.
    pub fn remove(&self, name: &str) {
        self.0.write().retain(|(known, _)| known != name);
    }

    /// Returns the present state of each feed, in the order in which they were added.
    #[must_use]
    pub fn numbers(&self) -> Vec<(String, Numbers)> {
        self.0.read().iter().map(|(name, handle)| (name.clone(), Numbers::of(handle))).collect()
    }
}
