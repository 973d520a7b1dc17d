//! Which readers are running, by what they read and for whom.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use once_cell::sync::Lazy;

use super::body::Body;
use crate::keyed::Keyed;
use crate::shape::Phase;

/// What makes two handles share one reader.
///
/// Caffe's key is the text `layer:source`. Both parts may hold a colon, and it lacks the phase, so that
/// training and testing on one database hang each other (BVLC/caffe#3037, #3108). Ours is a tuple, and
/// has a group beside it for two nets in one process that are otherwise alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReaderKey {
    /// The layer's name.
    pub layer: String,
    /// The source's path, canonical where it is on disk.
    pub source: PathBuf,
    /// Training or testing.
    pub phase: Phase,
    /// The consumers that share: a net, a feed.
    pub group: String,
}

impl fmt::Display for ReaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({}", self.layer, self.source.display(), self.phase)?;
        if !self.group.is_empty() {
            write!(f, ", group {}", self.group)?;
        }
        f.write_str(")")
    }
}

static GLOBAL: Lazy<Registry> = Lazy::new(Registry::new);

/// The readers that are running. Most programs never name it and use the process's own; a test or a
/// server may have one to itself.
#[derive(Clone)]
pub struct Registry {
    pub(super) bodies: Arc<Keyed<ReaderKey, Body>>,
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
