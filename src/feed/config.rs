//! Options that cannot be met, found before anything is started.

use std::path::PathBuf;

use crate::base::memory_limit::LimitSource;
use crate::batch::field::FieldsError;
use crate::decoder::example::ExampleFieldsError;
use crate::device::DeviceError;
use crate::order::{Epochs, OrderError};
use crate::record::StepId;
use percolator_files::caller::{option, words};
use percolator_files::shown;

/// Options that cannot be met.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// No source was named.
    #[error(
        "a feed needs a source: {}",
        words(
            ".lmdb(path), .leveldb(path), .tfrecord(path), or .source(...)",
            "the path of a net or of data",
            "lmdb=, leveldb=, tfrecord= or image_list="
        )
    )]
    NoSource,
    /// A source was attached to a target that does not name it.
    #[error(
        "{} was attached with Target::source(...), but the target names no source that it could be: leave it \
         out",
        shown::path(path)
    )]
    AttachedTooMany {
        /// The source's path.
        path: PathBuf,
    },
    /// A list that is shuffled or skips lines, after another source: its random numbers would be those of the
    /// first.
    #[error(
        "the list {} draws random numbers (shuffle, rand_skip), which only the first source of a feed can: \
         put it first, or leave them out and shuffle the feed",
        shown::path(list)
    )]
    RandomListNotFirst {
        /// The list.
        list: PathBuf,
    },
    /// Something that only a program can give, and that a [spec](crate::feed::FeedSpec) can only name.
    #[error(
        "the {what}{} was attached by the program that described the feed, and is not attached here: attach \
         it with {method}",
        named(name)
    )]
    NotAttached {
        /// What is missing: a source or a decoder.
        what: &'static str,
        /// Its name in the spec, if it has one.
        name: Option<String>,
        /// The builder's method that attaches it.
        method: &'static str,
    },
    /// The name of a device that is neither a host's nor a GPU's.
    #[error(
        "{}{}",
        DeviceError::Unknown { device: device.clone() },
        words("; attach a device of your own with .devices(...)", "", "")
    )]
    NoSuchDevice {
        /// The name.
        device: String,
    },
    /// A share of bad records that is not between 0 and 1.
    #[error(
        "{}: the part of the records that may be bad is a number from 0 to 1",
        option(words("at_most_rate", "bad-rate", "at_most_rate"), found)
    )]
    BadRate {
        /// The share.
        found: f64,
    },
    /// A quarantine file for a feed that ends with the first bad record.
    #[error(
        "a quarantine file names the bad records that a feed goes on after, and this one ends with the \
         first: skip or replace them ({}), or leave the file out",
        goes_on()
    )]
    UselessQuarantine,
    /// Limits of bad records for a feed that ends with the first one.
    #[error(
        "at_most and at_most_rate limit the bad records that a feed goes on after, and this one ends with \
         the first: skip or replace them ({}), or leave the limits out",
        goes_on()
    )]
    UselessLimit,
    /// No device was named.
    #[error(
        "a feed needs at least 1 device: name one with {}",
        words(".devices(...)", "--devices", "devices=...")
    )]
    NoDevice,
    /// A count that must not be zero.
    #[error("{option} is 0; it must be at least 1")]
    Zero {
        /// The option.
        option: &'static str,
    },
    /// A global batch that the ranks cannot share equally.
    #[error(
        "a global batch of {records} records is not a multiple of {ranks} ranks, which all get equal parts: \
         make it one, or follow a plan ({}), which also divides unevenly",
        words(".epochs(...)", "--epochs", "epochs=...")
    )]
    GlobalBatch {
        /// The records of a step.
        records: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// More threads than any machine can run; each device has a thread too.
    #[error("{found} {option} are too many; at most {allowed} are allowed")]
    TooMany {
        /// The option.
        option: &'static str,
        /// Its value.
        found: usize,
        /// The most that are allowed.
        allowed: usize,
    },
    /// A net with several data layers: one feed takes only one.
    #[error(
        "{net}: there are {count} data layers in this state, but a feed takes one: choose with {}",
        words("Feed::layers_of", "--layer NAME", "layer=NAME")
    )]
    SeveralLayers {
        /// The net's file.
        net: String,
        /// The number of data layers.
        count: usize,
    },
    /// A net's TEST layer on more than one device.
    #[error(
        "{devices} devices: in TEST Caffe deals every record of a net's layer to one device; use one device, \
         or feed the database itself, whose records are dealt to all devices"
    )]
    TestOnSeveral {
        /// The number of devices.
        devices: usize,
    },
    /// A target that would be drawn at random while its image is not.
    #[error(
        "the target is mirrored but its image is not: both use the record's random numbers, so mirror both \
         or neither"
    )]
    TargetMirrored,
    /// A target that would be cut from a different place than its image.
    #[error(
        "the target is cropped to {target} but its image {}: in TRAIN both crops must have the same size, to \
         be at the same place", crop_of(*image)
    )]
    TargetCropped {
        /// The side of the target's crop, in pixels.
        target: u32,
        /// The side of the image's crop, or 0 if it has none.
        image: u32,
    },
    /// Two lists, or a list and a database, that would be read in different orders.
    #[error(
        "{field} is {target} for the targets and {image} for the images: both must be read in the same \
         order, so use the same value for both"
    )]
    TargetOrder {
        /// `shuffle` or `rand_skip`.
        field: &'static str,
        /// The value in the targets' layer.
        target: String,
        /// The value in the images' layer; a database has neither field.
        image: String,
    },
    /// A job that cannot be divided.
    #[error(transparent)]
    Order(#[from] OrderError),
    /// Devices that do not match the replicas of their worker.
    #[error(
        "{devices} device(s), but each worker of this job feeds {replicas} replica(s): name one device for \
         each, and set the world to the replicas of all workers together"
    )]
    Replicas {
        /// The number of devices.
        devices: usize,
        /// The number of replicas of a worker.
        replicas: usize,
    },
    /// Ranks, which belong to round-robin order, in a job that has steps.
    #[error(
        "the ranks from {first} on, of {of}, are dealt to in round-robin order, but a feed with epochs or \
         blocks follows a plan: leave the ranks out, or use {} in place of them",
        words("share(JobWorker { world, number })", "--workers and --worker", "rank and world_size")
    )]
    RanksInPlan {
        /// The first rank.
        first: usize,
        /// The number of ranks.
        of: usize,
    },
    /// One pass together with a different number of epochs.
    #[error(
        "{} is one pass, but {}{epochs} is {}: use one of the two",
        words("schedule.once", "--once", "once=True"),
        words("schedule.epochs = ", "--epochs ", "epochs="),
        epochs_of(*epochs)
    )]
    OnceAndEpochs {
        /// The value of [`epochs`](crate::order::Schedule::epochs).
        epochs: u64,
    },
    /// Something that a feed whose steps come in blocks cannot do.
    #[error(
        "the steps of this feed are handed out in blocks while it runs (.blocks), which does not go together \
         with {option}"
    )]
    WithBlocks {
        /// What was asked for.
        option: &'static str,
    },
    /// Something that a feed whose batches are made elsewhere cannot do.
    #[error("the batches of this feed are made elsewhere, which does not go together with {option}")]
    WithSupply {
        /// What was asked for.
        option: &'static str,
    },
    /// An option of a plan, for a feed that has no epochs.
    #[error(
        "{option} needs epochs, and {}",
        without_epochs(*order)
    )]
    NeedsEpochs {
        /// The option.
        option: &'static str,
        /// The order that the feed has instead.
        order: Epochs,
    },
    /// Receipts in round-robin order, where nothing defines what should have been delivered.
    #[error(
        "receipts are checked against a plan, but this feed deals in round-robin order without one: use \
         {}, or, for the same order, {}",
        words(".epochs(n)", "--epochs N", "epochs=n"),
        words(
            ".epochs(0).assignment(Assignment::Caffe)",
            "--epochs 0 --assignment caffe",
            "epochs=0, assignment=\"caffe\""
        )
    )]
    ReceiptsOfRoundRobin,
    /// Receipts of a mixture, whose files are each in their own pass.
    #[error(
        "receipts prove that an epoch had every record once, but mixed databases go through passes of their \
         own: leave out {}",
        words(".receipts, or .mix", "--receipt, or --mix", "receipts, or mix")
    )]
    ReceiptsOfMixture,
    /// A list that has its own order.
    #[error(
        "the image list shuffles itself for each pass, but an epoch of a plan has an order of its own: leave \
         out the list's shuffle, and use {}",
        words(".shuffle(Shuffle::Global)", "--shuffle global", "shuffle=True")
    )]
    ShufflesItself,
    /// An epoch that has no step.
    #[error(
        "an epoch would have no steps: it has {records} records as sharded, but one step of all replicas \
         takes {step_records}, and short batches are dropped; make the batch smaller, or keep the last one"
    )]
    NoSteps {
        /// Records of an epoch.
        records: u64,
        /// Records of a step.
        step_records: u64,
    },
    /// The transform is not possible.
    #[error(transparent)]
    Transform(#[from] crate::transform::TransformError),
    /// A function of rows beside a device that transforms images after it.
    #[error(
        "after_transform sees rows before the device transforms them: transform on the host ({})",
        words("TransformPlace::Host", "--transform-on host", "transform_on=\"host\"")
    )]
    RowsOfDevice,
    /// More crops of each image than can be made.
    #[error("the view {name:?}: {fault}")]
    View {
        /// The field's name.
        name: String,
        /// What was found, and what is needed.
        fault: &'static str,
    },
    /// Batches cannot be mixed this way.
    #[error(transparent)]
    Mixing(#[from] crate::transform::MixingError),
    /// A digest of different data than the feed's.
    #[error(
        "{}: the digest is of other data ({}): it says \"{digest_says}\", but this data set has \
         \"{data_says}\"; use the digest that percolator digest makes \
         of this data set",
        shown::path(path),
        shown::path(taken_of)
    )]
    OtherDigest {
        /// The feed's source.
        path: PathBuf,
        /// The source of the digest.
        taken_of: PathBuf,
        /// What the digest says.
        digest_says: String,
        /// What the feed's data have instead.
        data_says: String,
    },
    /// Fields that no feature of an Example can become.
    #[error(transparent)]
    Example(#[from] ExampleFieldsError),
    /// A batch cannot be made of a decoder's fields.
    #[error(transparent)]
    Fields(#[from] FieldsError),
    /// A feed of several devices, used like one of a single device.
    #[error(
        "the feed has {devices} devices: iterate over all of them (steps), or take its lanes (take_lanes)"
    )]
    SeveralLanes {
        /// The number of devices.
        devices: usize,
    },
    /// A feed of several lanes was asked for the batches of its only one.
    #[error(
        "the feed has {lanes} lanes, and the batches of one were asked for: ask for the steps of all lanes, \
         with a device for each"
    )]
    BatchesOfOneLane {
        /// The number of lanes.
        lanes: usize,
    },
    /// There is not one device for each lane.
    #[error("the feed has {lanes} lane(s), but {devices} device(s) were given: give one for each")]
    DevicesOfLanes {
        /// The number of lanes.
        lanes: usize,
        /// The number of devices.
        devices: usize,
    },
    /// Lanes that resume at different steps, used as one.
    #[error(
        "lane {} resumes at {}, and lane {} at {}: they have no step in common; take the lanes (take_lanes), \
         each on a thread of its own, or resume from a snapshot of lanes that had delivered the same steps",
        one.0, one.1, other.0, other.1
    )]
    UnevenLanes {
        /// A lane, and its next step.
        one: (usize, StepId),
        /// Another one.
        other: (usize, StepId),
    },
    /// Two options that each say what the records are.
    #[error(
        "both {one} and {other} are set, and each says how a record is decoded: leave one of the two out"
    )]
    TwoDecoders {
        /// The option that was set first.
        one: &'static str,
        /// The other one.
        other: &'static str,
    },
    /// An image option together with a decoder that makes no images.
    #[error(
        "{option} is for Caffe's image records, but the feed has a custom decoder: leave one of them out"
    )]
    ImageOption {
        /// The option.
        option: &'static str,
    },
    /// Records with named parts, of which none is known to be the image, and none was named.
    #[error(
        "the records have named parts ({parts}), and a feed must be told which it feeds: name the image and \
         its label, or fields ({})",
        words(
            ".example(...)",
            "--image PART --label PART, --fields ...",
            "image=..., label=..., fields=..."
        )
    )]
    NoPartNamed {
        /// The parts.
        parts: String,
    },
    /// Joined sources whose records have other parts.
    #[error(
        "{} has the parts {found}, but {} has {wanted}: feed them apart",
        shown::path(path),
        shown::path(first)
    )]
    PartsDiffer {
        /// The first source.
        first: PathBuf,
        /// Its parts.
        wanted: String,
        /// The other one.
        path: PathBuf,
        /// Its parts.
        found: String,
    },
    /// A batch would be larger than memory can address.
    #[error("a batch of {batch_size} records of {record} does not fit the address space; make it smaller")]
    BatchTooLarge {
        /// The number of records in a batch.
        batch_size: usize,
        /// What a record consists of.
        record: String,
    },
    /// The memory budget is larger than the limit.
    #[error(
        "the feed needs {needed} bytes of memory, but {allowed} are allowed by {set_by}: {budget}; {}",
        set_by.remedy()
    )]
    OverBudget {
        /// The bytes that the feed needs.
        needed: usize,
        /// The bytes that it may use.
        allowed: usize,
        /// What sets the limit.
        set_by: LimitSource,
        /// The budget, line by line.
        budget: String,
    },
}

/// The options with which a feed goes on after bad records.
fn goes_on() -> &'static str {
    words("BadRecords::skip, BadRecords::replace", "--bad-records", "bad_records=\"skip\" or \"replace\"")
}

fn epochs_of(epochs: u64) -> String {
    if epochs == 0 { "endless".to_owned() } else { format!("{epochs} of them") }
}

/// The order of a feed that has no epochs, and what to do.
fn without_epochs(order: Epochs) -> String {
    match order {
        Epochs::OnePass => {
            let once = words("Epochs::OnePass", "--once", "once=True");
            let instead = words(".epochs(1)", "--epochs 1", "epochs=1");
            format!("{once} delivers one pass in Caffe's order, which has none: set {instead} instead")
        }
        _ => {
            let set = words(
                ".epochs(n), or .epochs(0) for no end",
                "--epochs N, or --epochs 0 for no end",
                "epochs=n, or epochs=0 for no end",
            );
            format!("the feed deals in Caffe's round-robin order, which has none: set {set}")
        }
    }
}

fn named(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!(" {name}")).unwrap_or_default()
}

fn crop_of(side: u32) -> String {
    if side == 0 { "is not".to_owned() } else { format!("to {side}") }
}
