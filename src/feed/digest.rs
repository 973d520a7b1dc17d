//! The digest of a feed's data set: how it is made, and how a feed is checked against it.

use std::sync::Arc;

use super::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::resolve::of_source;
use crate::receipt::{DataDigest, DigestDetail};
use crate::source::{Identity, Passes, Source};
use percolator_files::Progress;

impl FeedBuilder {
    /// Makes the digest of what the feed would read, including its targets' companions. The feed is not
    /// built; only its source and its targets matter. This takes one pass over the data set, which all
    /// processors hash.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the source cannot be opened or read, or is a list that shuffles itself.
    pub fn digest(&self, detail: DigestDetail) -> Result<DataDigest, FeedError> {
        // No other code has the progress, so it is never stopped.
        self.digest_watched(detail, &Progress::new())?.ok_or(FeedError::Cancelled)
    }

    /// Makes the same [digest](Self::digest), and reports its progress; `None` if the progress was told to
    /// stop. The progress is in records, with a total of 0 if the source does not know how many it has; its
    /// bytes are those of the values.
    ///
    /// # Errors
    ///
    /// As of [`digest`](Self::digest).
    pub fn digest_watched(
        &self,
        detail: DigestDetail,
        progress: &Progress,
    ) -> Result<Option<DataDigest>, FeedError> {
        of_source(|| {
            let source = self.open_source(&self.layer_seeds())?.source;
            if source.passes() == Passes::Shuffled {
                return Err(ConfigError::ShufflesItself.into());
            }
            Ok(DataDigest::of(&*source, detail, progress)?)
        })
    }

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
