//! A feed as burn's data loader.

mod epoch;
mod part;
mod source;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn_core::data::dataloader::{DataLoader, DataLoaderIterator};
use burn_core::tensor::Device;
use percolator::FeedBuilder;
use percolator::feed::FeedHandle;

use self::epoch::EpochItems;
use self::source::Source;
use crate::error::BurnError;
use crate::tensors::Tensors;

/// Makes items of tensors.
type Batcher<O> = dyn Fn(Tensors) -> Result<O, BurnError> + Send + Sync;

/// A feed as burn's [`DataLoader`]: an item of it is what the program's own function makes of the tensors of
/// a batch.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use burn::data::dataloader::DataLoader;
/// use burn::tensor::{Device, Int, Tensor};
/// use percolator::{Feed, Shuffle};
/// use percolator_burn::{BurnError, FeedLoader};
///
/// struct Digits {
///     images: Tensor<4>,
///     labels: Tensor<1, Int>,
/// }
///
/// fn main() -> Result<(), BurnError> {
///     let feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64);
///     let feed = feed.epochs(0).shuffle(Shuffle::Global);
///     let loader = FeedLoader::new(feed, &Device::flex(), |batch| {
///         Ok(Digits { images: batch.get("data")?, labels: batch.get_int("label")? })
///     })?;
///     let loader: Arc<dyn DataLoader<Digits>> = Arc::new(loader);
///     // ... SupervisedTraining::new(folder, loader, validation)
///     # let _ = loader;
///     Ok(())
/// }
/// ```
///
/// # Epochs
///
/// Each [`iter`](DataLoader::iter) is the next epoch of the feed: an item counts as one record, and the
/// progress after the last batch is exactly [`num_items`](DataLoader::num_items). The feed lives on between
/// epochs, so the first batches of the next one are prefetched while burn validates. After the last epoch
/// that the feed was [built for](FeedBuilder::epochs) it starts again with the first, as validation needs: a
/// feed of a [single pass](percolator::Epochs::OnePass) delivers the same batches each time. A feed that was
/// built for none gets as many as burn asks for.
///
/// If an iterator is dropped early, the next one begins the same epoch again. Two at a time are an error.
///
/// # Resuming
///
/// burn's own checkpoints are of whole epochs. Give the number of `SupervisedTraining::checkpoint` to
/// [`checkpoint`](Self::checkpoint) as well, and the loader begins with the epoch after it, with the batches
/// that the run that was not stopped would have got. To resume within an epoch, write the loop yourself: take
/// a [`Snapshot`](percolator::Snapshot) from [`BurnFeed::tensors`](crate::BurnFeed::tensors) and save it
/// with the records of model and optimiser. A feed that [resumes](FeedBuilder::resume) from it makes a loader
/// of which the first epoch is what is left of that one.
///
/// # Several devices
///
/// burn's strategies divide a loader among the devices. Give the feed one lane for each
/// (`.devices([Device::host(0), Device::host(1)])`): each device then gets a lane's batches, all devices get
/// the same number of steps (with [`LastBatch::Pad`](percolator::LastBatch::Pad) or
/// [`LastBatch::Drop`](percolator::LastBatch::Drop) always, which `ExecutionStrategy::ddp` needs), and all
/// together get each record once an epoch. The parts do not wait for each other: each has a feed
/// [of its own](FeedBuilder::only_lane).
///
/// Otherwise a part has the steps whose first item is within its bounds, in each epoch, so that parts that
/// follow each other have each batch once. (A feed cannot be divided like this if it resumes, is a worker of
/// a job, or has batches that [wrap](percolator::LastBatch::Wrap) into the next epoch: its epochs differ in
/// length.)
///
/// # Errors
///
/// An error of the feed is an item, after the batches that were complete, and burn stops the training with
/// it: it is `LearningResult::error`, and a [`BurnError::Feed`] is among its sources. Each later iterator has
/// it as its only item. So has the iterator of a part that cannot be. An error of the program's own function
/// is the item of its batch alone: an iterator that is used further goes on with the next batch.
pub struct FeedLoader<O> {
    /// An error if this is a part that cannot be.
    source: Result<Arc<Source>, Arc<BurnError>>,
    device: Device,
    batcher: Arc<Batcher<O>>,
}

impl<O> FeedLoader<O> {
    /// Starts a feed, whose batches become tensors on the device (burn may [move](DataLoader::to_device) the
    /// loader to another). `batcher` makes an item of each.
    ///
    /// # Errors
    ///
    /// [`BurnError::Feed`] if the feed cannot be built; [`BurnError::Blocks`] if its steps come in blocks;
    /// [`BurnError::Order`] if the records of its first epoch cannot be counted.
    pub fn new(
        feed: FeedBuilder,
        device: &Device,
        batcher: impl Fn(Tensors) -> Result<O, BurnError> + Send + Sync + 'static,
    ) -> Result<Self, BurnError> {
        let source = Ok(Arc::new(Source::whole(feed)?));
        Ok(FeedLoader { source, device: device.clone(), batcher: Arc::new(batcher) })
    }

    /// Lets the loader begin with the epoch after `epochs` epochs, as burn's `SupervisedTraining::checkpoint`
    /// with the same number lets the training begin with it.
    #[must_use]
    pub fn checkpoint(self, epochs: usize) -> Self {
        if let Ok(source) = &self.source {
            source.continue_after(epochs as u64);
        }
        self
    }

    /// Returns a handle on the feed that runs now, if one does. A loader that starts again may have another
    /// one.
    #[must_use]
    pub fn handle(&self) -> Option<FeedHandle> {
        self.source().ok().and_then(|source| source.handle())
    }

    fn source(&self) -> Result<&Arc<Source>, BurnError> {
        match &self.source {
            Ok(source) => Ok(source),
            Err(error) => Err(BurnError::NoPart(error.clone())),
        }
    }

    /// The number of items of the next epoch. One that cannot be counted has an error as its only item.
    fn items(&self) -> usize {
        let extent = self.source().and_then(|source| Ok(source.extent()?));
        extent.map_or(0, |extent| extent.items)
    }

    /// The part of this loader with these items.
    fn part(&self, items: Range<usize>) -> Result<Arc<Source>, Arc<BurnError>> {
        let source = self.source.clone()?;
        if items == (0..self.items()) {
            return Ok(source);
        }
        Ok(Arc::new(source.part_of(items)?))
    }

    fn with(&self, source: Result<Arc<Source>, Arc<BurnError>>, device: &Device) -> Self {
        FeedLoader { source, device: device.clone(), batcher: self.batcher.clone() }
    }
}

impl<O: 'static> DataLoader<O> for FeedLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(EpochItems::begin(self))
    }

    fn num_items(&self) -> usize {
        self.items()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.with(self.source.clone(), device))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.with(self.part(start..end), &self.device))
    }
}

impl<O> fmt::Debug for FeedLoader<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedLoader")
            .field("items", &self.items())
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
