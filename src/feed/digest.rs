//! What the data set of a feed holds: made of it, and held against it.

use std::sync::Arc;

use super::FeedBuilder;
use crate::config::ConfigError;
use crate::error::FeedError;
use crate::receipt::{DataDigest, DigestDetail};
use crate::source::{Identity, Passes, Source};

impl FeedBuilder {
    /// The digest of what the feed would read, its targets' companions included: the feed is not built, and
    /// nothing but the source and the targets matters. It takes a walk over the data set, which is hashed on
    /// all processors.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the source cannot be opened or read, or is a list that shuffles itself.
    pub fn digest(&self, detail: DigestDetail) -> Result<DataDigest, FeedError> {
        let source = self.open_source(&self.layer_seeds())?.source;
        if source.passes() == Passes::Shuffled {
            return Err(ConfigError::ShufflesItself.into());
        }
        Ok(DataDigest::of(&*source, detail)?)
    }

    /// The digest of the data set, made before. It is not made again here: that takes as long as an epoch.
    /// But a feed of another length, or with another first or last record, is refused; its
    /// [snapshots](crate::Snapshot) and [receipts](crate::Receipt) have it, and a run does not [go
    /// on](Self::resume) with another digest than it had.
    pub fn with_digest(mut self, digest: &DataDigest) -> Self {
        self.attached.digest = Some(Arc::new(digest.sum()));
        self
    }

    /// Adds the digest to what the data set is known by.
    pub(super) fn know_digest(
        &self,
        source: &dyn Source,
        identity: &mut Identity,
    ) -> Result<(), ConfigError> {
        let Some(digest) = &self.attached.digest else { return Ok(()) };
        let other = |(digest_says, data_says)| ConfigError::OtherDigest {
            path: source.path().to_owned(),
            taken_of: digest.source().into(),
            digest_says,
            data_says,
        };
        let known = digest.contents().records();
        if let Some(records) = source.records().filter(|&records| records != known) {
            return Err(other((format!("{known} records"), format!("{records} records"))));
        }
        let samples = digest.samples();
        match samples.contradiction(identity) {
            Some(difference) => Err(other(difference)),
            None => {
                identity.take_in(&samples);
                Ok(())
            }
        }
    }
}
