//! What the view shows: a feed of this program, or one of another.

use percolator::Feed;
use percolator::feed::{FeedControl, FeedWatch};

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

    /// Returns the control of the feed, if it is in this program.
    fn control(&self) -> Option<&FeedControl>;
}

/// A feed of this program.
#[derive(Debug)]
pub struct Local {
    name: String,
    watch: FeedWatch,
    control: FeedControl,
}

impl Local {
    /// A feed, under a name for its title. The feed itself may go elsewhere.
    #[must_use]
    pub fn new(name: impl Into<String>, feed: &Feed) -> Self {
        Local { name: name.into(), watch: feed.watch(), control: feed.control() }
    }
}

impl Subject for Local {
    fn name(&self) -> &str {
        &self.name
    }

    fn numbers(&mut self) -> Result<Numbers, String> {
        Ok(Numbers::of(&self.watch))
    }

    fn control(&self) -> Option<&FeedControl> {
        Some(&self.control)
    }
}
