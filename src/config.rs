//! What the user asked for, checked before anything is opened, and the memory that it will take.

use std::fmt;
use std::path::PathBuf;

use crate::batch::field::FieldsError;
use crate::order::OrderError;
use crate::record::RecordId;
use crate::transform::Draw;

/// What was asked for cannot be.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No source was named.
    #[error("a feed needs a source: .lmdb(path), .leveldb(path), or .source(...)")]
    NoSource,
    /// No device was named.
    #[error("a feed needs at least 1 device")]
    NoDevice,
    /// A count that must not be zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// A step's records that cannot be divided.
    #[error(
        "a global batch of {records} records is no multiple of {ranks} ranks; each rank has as many as any other"
    )]
    GlobalBatch {
        /// The records of a step.
        records: usize,
        /// How many ranks there are.
        ranks: usize,
    },
    /// More threads than any machine serves: each device, too, has one of its own.
    #[error("{found} {option} are too many; at most {allowed} may be")]
    TooMany {
        /// The option.
        option: &'static str,
        /// Its value.
        found: usize,
        /// The most there may be.
        allowed: usize,
    },
    /// A net with several data layers, of which one feed can have only one.
    #[error(
        "{net}: there are {count} data layers in this state, and a feed is of one: choose with Feed::layers_of"
    )]
    SeveralLayers {
        /// The net's file.
        net: String,
        /// How many.
        count: usize,
    },
    /// A net's TEST layer on more devices than one.
    #[error(
        "{devices} devices: in TEST Caffe deals every record of a net's layer to one; name one device, or feed the \
         database itself, whose records are dealt to all"
    )]
    TestOnSeveral {
        /// How many devices were named.
        devices: usize,
    },
    /// A target that would be drawn at random where its image is not.
    #[error(
        "the target is mirrored and its image is not: in every record the two have the same random numbers, so \
         mirror both or neither"
    )]
    TargetMirrored,
    /// A target that would be cut from another place than its image.
    #[error(
        "the target is cropped to {target} and its image {}: in TRAIN a crop of both must be of one size, to lie at \
         the same place", crop_of(*image)
    )]
    TargetCropped {
        /// The side of the target's crop, in pixels.
        target: u32,
        /// That of the image's, or 0 if it has none.
        image: u32,
    },
    /// Two lists, or a list and a database, that would not come in the same order.
    #[error(
        "{field} is {target} for the targets and {image} for the images: both must be read in the same order, so \
         say the same of both"
    )]
    TargetOrder {
        /// `shuffle` or `rand_skip`.
        field: &'static str,
        /// As the targets' layer has it.
        target: String,
        /// As the images' layer has it; a database has neither.
        image: String,
    },
    /// A job cannot be divided so.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Devices that are not the replicas of their worker.
    #[error(
        "{devices} device(s), and each worker of this job feeds {replicas} replica(s): name a device for each, and let \
         the world have the replicas of all workers together"
    )]
    Replicas {
        /// How many devices were named.
        devices: usize,
        /// How many replicas a worker has.
        replicas: usize,
    },
    /// Ranks, which are of the ring, in a job that has steps.
    #[error(
        "ranks({first}, {of}) deals round and round, and epochs, shuffles and workers are of a plan: leave \
         them out, or say worker(World::new(...), number) in place of ranks"
    )]
    RanksInPlan {
        /// The first rank.
        first: usize,
        /// How many there are.
        of: usize,
    },
    /// One pass, and another number of epochs.
    #[error(
        "once() is one pass, and epochs({epochs}) is {}: say one of the two", epochs_of(*epochs)
    )]
    OnceAndEpochs {
        /// What was said to [`epochs`](crate::FeedBuilder::epochs).
        epochs: u64,
    },
    /// Receipts of the ring, of which nothing says what it should have delivered.
    #[error(
        "receipts are held against a plan, and this feed goes round and round by none: say .epochs(n), or, to go round as it \
         does, .epochs(0).assignment(Assignment::Caffe)"
    )]
    ReceiptsOfRing,
    /// Receipts of a mixture, whose files are each in a pass of their own.
    #[error(
        "receipts prove that an epoch had every record once, and of databases that are mixed each goes through passes of its own: leave \
         out .receipts, or .mix"
    )]
    ReceiptsOfMixture,
    /// A list whose order is its own.
    #[error(
        "the list of images shuffles itself, each pass anew, and an epoch of a plan has an order of its own: leave out \
         the list's shuffle, and say .shuffle(Shuffle::Global)"
    )]
    ShufflesItself,
    /// An epoch that has no step.
    #[error(
        "an epoch has no step: its {records} records, as they are sharded, do not fill the {step_records} that all \
         replicas take at one, and short batches are dropped; make the batch smaller, or keep the last one"
    )]
    NoSteps {
        /// Records of an epoch.
        records: u64,
        /// Records of a step.
        step_records: u64,
    },
    /// The transform cannot be.
    #[error(transparent)]
    Transform(#[from] crate::transform::TransformError),
    /// A digest of other data than the feed's.
    #[error(
        "{}: the digest is of other data ({}): it says \"{digest_says}\", and here it is \"{data_says}\"; give the digest \
         of this data set, as percolator digest makes it", path.display(), taken_of.display()
    )]
    OtherDigest {
        /// What the feed reads.
        path: PathBuf,
        /// What the digest was made of.
        taken_of: PathBuf,
        /// What the digest says.
        digest_says: String,
        /// What is here.
        data_says: String,
    },
    /// A batch cannot be made of the fields of a decoder.
    #[error(transparent)]
    Fields(#[from] FieldsError),
    /// A feed of several devices, used as one of a single one.
    #[error("the feed has {devices} devices: step through all of them (steps), or take its lanes (lanes)")]
    SeveralLanes {
        /// How many it has.
        devices: usize,
    },
    /// A decoder, and fields or a closure beside it.
    #[error("both .decoder(...) and .fields(...) or .decode(...) were said: leave one of the two out")]
    TwoDecoders,
    /// A closure without fields, or fields without one.
    #[error("{said} was said without {missing}: say .fields([...]) and .decode(...), or .decoder(...)")]
    HalfADecoder {
        /// What was said.
        said: &'static str,
        /// What goes with it.
        missing: &'static str,
    },
    /// An image's transform, with a decoder that makes no images.
    #[error(
        "{option} is for Caffe's image records, and the feed has a decoder of its own: leave one of them out"
    )]
    ImageOption {
        /// The option.
        option: &'static str,
    },
    /// A batch would be larger than memory can address.
    #[error("a batch of {batch_size} records of {record} does not fit the address space; make it smaller")]
    BatchTooLarge {
        /// Records in a batch.
        batch_size: usize,
        /// What one is made of.
        record: String,
    },
    /// The budget is larger than the limit.
    #[error(
        "the feed needs {needed} bytes of memory, and {allowed} are allowed: {budget}; lower the batch size or \
         the prefetch"
    )]
    OverBudget {
        /// What it needs.
        needed: usize,
        /// What it may have.
        allowed: usize,
        /// What for.
        budget: String,
    },
}

fn epochs_of(epochs: u64) -> String {
    if epochs == 0 { "no end".to_owned() } else { format!("{epochs} of them") }
}

fn crop_of(side: u32) -> String {
    if side == 0 { "is not".to_owned() } else { format!("to {side}") }
}

/// The memory that a feed will use beside the page cache, holder by holder, as long as no record is larger than
/// the first. Where one is, the buffers that meet it grow, and stay grown.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MemoryBudget {
    /// One line a holder.
    pub lines: Vec<BudgetLine>,
}

/// What one holder will use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLine {
    /// Who holds it, and what it is.
    pub holder: &'static str,
    /// How many pieces.
    pub count: usize,
    /// Bytes of each.
    pub bytes_each: usize,
}

impl BudgetLine {
    /// Bytes of all pieces together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.count.saturating_mul(self.bytes_each)
    }
}

impl MemoryBudget {
    /// Bytes of all holders together.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.lines.iter().fold(0, |total, line| total.saturating_add(line.bytes()))
    }

    pub(crate) fn of(terms: &BudgetTerms<'_>) -> Self {
        let slots = terms.lanes * terms.prefetch;
        let places = terms.lanes * terms.runs * terms.run_records;
        let [first, others] = match terms.is_of_images {
            true => ["batches: pixels", "batches: targets, labels"],
            false => ["batches: the first field", "batches: other fields"],
        };
        let line = |holder, count, bytes_each| BudgetLine { holder, count, bytes_each };
        let mut lines = vec![
            line(first, slots, terms.first_field_bytes),
            line(others, slots, terms.memory_bytes - terms.first_field_bytes),
            line("batches: names, draws", slots, terms.records * TAG_BYTES),
            line("batches: hashes of contents", slots, terms.records * terms.hash_bytes),
            line("reader: where records lie", places, terms.place_bytes),
            line("queues: runs", terms.lanes * terms.runs, terms.run_bytes),
            line("queues: offloaded tasks", terms.offloaded, terms.offloaded_bytes),
            line("reader: copies of keys and values", places, terms.copied_bytes),
            line("source: what it keeps of its own", 1, terms.held_bytes),
        ];
        lines.extend(terms.scratch_bytes.iter().map(|&(holder, bytes)| line(holder, terms.threads, bytes)));
        lines.push(line("transform: mean images", 1, terms.mean_elements.saturating_mul(size_of::<f32>())));
        MemoryBudget { lines: lines.into_iter().filter(|line| line.bytes() > 0).collect() }
    }
}

/// The record's name and its random numbers.
const TAG_BYTES: usize = size_of::<RecordId>() + size_of::<Draw>();

/// What a budget is derived from.
#[derive(Debug)]
pub(crate) struct BudgetTerms<'a> {
    pub(crate) lanes: usize,
    pub(crate) prefetch: usize,
    pub(crate) threads: usize,
    /// Records of a batch.
    pub(crate) records: usize,
    /// Of a batch's first field, and of its whole memory.
    pub(crate) first_field_bytes: usize,
    pub(crate) memory_bytes: usize,
    pub(crate) is_of_images: bool,
    /// Of a record's contents; 0 where nobody asked for it.
    pub(crate) hash_bytes: usize,
    pub(crate) runs: usize,
    pub(crate) run_records: usize,
    pub(crate) place_bytes: usize,
    pub(crate) run_bytes: usize,
    /// What the reader may have the workers do.
    pub(crate) offloaded: usize,
    pub(crate) offloaded_bytes: usize,
    /// Of a record's key, value and companion, as far as they are not lent.
    pub(crate) copied_bytes: usize,
    pub(crate) held_bytes: usize,
    /// Of one worker, holder by holder.
    pub(crate) scratch_bytes: &'a [(&'static str, usize)],
    pub(crate) mean_elements: usize,
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            let BudgetLine { holder, count, bytes_each } = line;
            writeln!(f, "{:>14} bytes  {holder} ({count} x {bytes_each})", line.bytes())?;
        }
        write!(f, "{:>14} bytes  in all", self.total_bytes())
    }
}
