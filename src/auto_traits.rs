//! Types that must cross threads do, and types that must outlive their caller do: checked when the tests are
//! compiled.

use crate::batch::{BatchLayout, Field, FieldError};
use crate::device::{Device, DeviceError};
use crate::dlpack::{DlpackBatch, DlpackTensor};
use crate::example::{ExampleError, ExampleFieldsError, FeatureError, GrammarError};
use crate::feed::{
    Batch, BatchRoom, ConfigError, Feed, FeedBuilder, FeedError, FeedHandle, FeedSpec, IntoBatches, Lane,
    OwnedArray, ResolvedFeed, Stats, SuppliedBatch, SupplyError,
};
use crate::leveldb::LevelDb;
use crate::net::{Net, NetError};
use crate::order::{Job, OrderError, Plan, Schedule, World};
use crate::reader::{Canceller, DataReader, Lease, Registry};
use crate::receipt::{DataDigest, EpochAccount, Receipt, ReceiptError};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::source::{ImageList, Joined, Lender, Lmdb, Source, SourceError};
use crate::transform::{MeanImage, Transform, TransformError};

const fn moves<T: Send + 'static>() {}
const fn is_shared<T: Send + Sync + 'static>() {}
const fn is_an_error<T: std::error::Error + Send + Sync + 'static>() {}

const _: () = {
    moves::<BatchRoom>();
    moves::<Feed>();
    moves::<Lane>();
    moves::<Lease>();
    moves::<DataReader>();
    moves::<IntoBatches>();
    moves::<OwnedArray>();
    moves::<DlpackBatch>();
    moves::<DlpackTensor>();
    moves::<ResolvedFeed>();
    moves::<SuppliedBatch>();
};

const _: () = {
    is_shared::<Batch>();
    is_shared::<BatchLayout>();
    is_shared::<Canceller>();
    is_shared::<DataDigest>();
    is_shared::<Device>();
    is_shared::<EpochAccount>();
    is_shared::<Box<dyn Source>>();
    is_shared::<FeedBuilder>();
    is_shared::<FeedHandle>();
    is_shared::<FeedSpec>();
    is_shared::<Field>();
    is_shared::<ImageList>();
    is_shared::<Job>();
    is_shared::<Joined>();
    is_shared::<Lender>();
    is_shared::<LevelDb>();
    is_shared::<Lmdb>();
    is_shared::<MeanImage>();
    is_shared::<Net>();
    is_shared::<Plan>();
    is_shared::<Receipt>();
    is_shared::<Registry>();
    is_shared::<Schedule>();
    is_shared::<Snapshot>();
    is_shared::<Stats>();
    is_shared::<Transform>();
    is_shared::<World>();
};

const _: () = {
    is_an_error::<ConfigError>();
    is_an_error::<DeviceError>();
    is_an_error::<ExampleError>();
    is_an_error::<ExampleFieldsError>();
    is_an_error::<FeatureError>();
    is_an_error::<FeedError>();
    is_an_error::<FieldError>();
    is_an_error::<GrammarError>();
    is_an_error::<NetError>();
    is_an_error::<OrderError>();
    is_an_error::<ReceiptError>();
    is_an_error::<SnapshotError>();
    is_an_error::<SourceError>();
    is_an_error::<SupplyError>();
    is_an_error::<TransformError>();
};
