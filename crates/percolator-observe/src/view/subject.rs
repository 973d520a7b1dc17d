//! What the view shows: a feed of this program, or one of another.

use percolator::Feed;
use percolator::feed::FeedHandle;

use crate::Numbers;

/// A feed that can be drawn.
pub trait Subject {
    /// Returns its name.
    fn name(&self) -> &str;

    /// Returns its present numbers, or why there are none. Returns at once.
    ///
    /// # Errors
    ///
    /// A text for the user.
    fn numbers(&mut self) -> Result<Numbers, String>;

    /// Returns the handle of the feed, if it is in this program.
    fn handle(&self) -> Option<&FeedHandle>;
}

/// A feed of this program.
#[derive(Debug)]
pub struct Local {
    name: String,
    handle: FeedHandle,
}

impl Local {
    /// A feed, under a name for its title. The feed itself may go elsewhere.
    #[must_use]
    pub fn new(name: impl Into<String>, feed: &Feed) -> Self {
        Local { name: name.into(), handle: feed.handle() }
    }
}

impl Subject for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&mut self) -> Result<Numbers, String> {
        Ok(Numbers::of(&self.handle))
    }

    fn handle(&self) -> Option<&FeedHandle> {
        Some(&self.handle)
    }
}
