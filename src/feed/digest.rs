//! How a feed is checked against the digest of its data set.

use std::sync::Arc;

use super::FeedBuilder;
use super::config::ConfigError;
use crate::receipt::DataDigest;
use crate::source::{Identity, Source};

impl FeedBuilder {
    /// Sets the digest of the data set, which must have been made before. It is not verified in full, which
    /// would take as long as an epoch, but a feed whose data set has another length, or another first or last
    /// record, is refused. The feed's [snapshots](crate::Snapshot) and [receipts](crate::Receipt) contain the
    /// digest, and a run does not [resume](Self::resume) with another digest than it had.
    pub fn with_digest(mut self, digest: &DataDigest) -> Self {
        self.attached.digest = Some(Arc::new(digest.sum()));
        self
    }

    /// Adds the digest to the identity of the data set.
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
                identity.merge(&samples);
                Ok(())
            }
        }
    }
}
