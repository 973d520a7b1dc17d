//! Which readers are running, by what they read and for whom.

use std::fmt;
use std::sync::Arc;

use once_cell::sync::Lazy;

use super::key::ReaderKey;
use super::thread::ReaderThread;
use crate::base::keyed::Keyed;

static GLOBAL: Lazy<Registry> = Lazy::new(Registry::new);

/// The readers that are running. Most programs never name it and use the process's own; a test or a
/// server may have one to itself.
#[derive(Clone)]
pub struct Registry {
    pub(super) bodies: Arc<Keyed<ReaderKey, ReaderThread>>,
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Registry { bodies: Keyed::new() }
    }

    /// The process's own.
    #[must_use]
    pub fn global() -> &'static Registry {
        &GLOBAL
    }

    /// How many readers are running, or just starting or stopping.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    /// Whether there is none.
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
