//! The running readers, by key.

use std::fmt;
use std::sync::Arc;

use once_cell::sync::Lazy;

use super::key::ReaderKey;
use super::thread::ReaderThread;
use crate::base::keyed::Keyed;

static GLOBAL: Lazy<Registry> = Lazy::new(Registry::new);

/// The running readers. Most programs use the process-wide registry without naming it; a test or a server may
/// have its own. Each feed has one of its own, because feeds do not share readers.
#[derive(Clone)]
pub struct Registry {
    pub(super) bodies: Arc<Keyed<ReaderKey, ReaderThread>>,
}

impl Registry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Registry { bodies: Keyed::new() }
    }

    /// The process-wide registry.
    #[must_use]
    pub fn global() -> &'static Registry {
        &GLOBAL
    }

    /// The number of readers that are running, starting or stopping.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Default for Registry {
    fn default() -> Self {
        Registry::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bodies.fmt(f)
    }
}
