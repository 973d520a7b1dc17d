//! Makes stores from images, and from other stores.
//!
//! ```text
//! input      items in order: image files, pixels, records                       crate::input
//!   v
//! pipeline   items dealt to workers; what they make comes back in order
//!   v
//! maker      a worker: reads the file, decodes, resizes, encodes (image,
//!   |        encode); or copies, strips, takes an Example apart (record)
//!   v
//! shards     into the writer of its output, committed together with the state   crate::store
//!   v
//! report     what was written, and what was skipped and why
//! ```
//!
//! - The result of an item depends only on the item, and records are written in the items' order: the output
//!   is the same for any number of threads.
//! - After each commit the position is saved (`state`), so a conversion that was interrupted at any moment
//!   can be resumed, and then has the same records as an uninterrupted one.
//! - An item that cannot be converted is skipped, counted and listed; the others are converted.

mod encode;
mod error;
mod image;
mod maker;
mod pipeline;
mod record;
mod report;
mod shards;
mod state;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use percolator_files::shown::count;

use crate::input::{Input, InputError};
use crate::store::{Backend, Earlier, Existing, Place, StoreError, followed, with_ending};
use crate::workers::Workers;

pub use self::encode::{Encoding, UnknownEncoding};
pub use self::error::ConvertError;
pub use self::image::{Encoded, ImageOptions};
pub use self::record::{ExampleNames, RecordOptions};
pub use self::report::{Skipped, Summary};
pub use percolator::Progress;

use self::state::State;
use self::write::{Paths, Writing};

/// A conversion, to be run.
///
/// ```no_run
/// use percolator_data::convert::{Convert, ImageOptions, Progress};
/// use percolator_data::input::ListedImages;
/// use percolator_data::store::Backend;
///
/// let images = ListedImages::open("train.txt".as_ref(), "images/", Some(1))?;
/// let summary = Convert::new(images, "train_lmdb", Backend::Lmdb)
///     .images(ImageOptions { resize: Some([256, 256]), ..ImageOptions::default() })
///     .run(&Progress::new())?;
/// println!("{} records, {} images skipped", summary.records, summary.skipped);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a conversion must be run"]
pub struct Convert {
    input: Box<dyn Input>,
    output: PathBuf,
    backend: Backend,
    images: ImageOptions,
    records: RecordOptions,
    shards: Option<NonZeroU32>,
    threads: Option<usize>,
    is_forced: bool,
    is_resuming: bool,
}

impl Convert {
    /// A conversion of an input to a store of this kind and path.
    pub fn new(input: impl Input + 'static, output: impl Into<PathBuf>, backend: Backend) -> Self {
        Convert {
            input: Box::new(input),
            output: output.into(),
            backend,
            images: ImageOptions::default(),
            records: RecordOptions::default(),
            shards: None,
            threads: None,
            is_forced: false,
            is_resuming: false,
        }
    }

    /// What is made of image files.
    pub fn images(mut self, options: ImageOptions) -> Self {
        self.images = options;
        self
    }

    /// What is made of another store's records.
    pub fn records(mut self, options: RecordOptions) -> Self {
        self.records = options;
        self
    }

    /// Writes this many stores, `NAME-00000-of-00004` and so on: each has a range of the items, and the
    /// ranges are equally long, or one item longer.
    pub fn shards(mut self, shards: NonZeroU32) -> Self {
        self.shards = Some(shards);
        self
    }

    /// The number of workers [default: one for each processor].
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Replaces outputs that exist, once the new ones are whole. The unfinished output of an earlier run is
    /// removed, unless this one [goes on](Self::resume) with it.
    pub fn force(mut self, is_forced: bool) -> Self {
        self.is_forced = is_forced;
        self
    }

    /// Goes on with the unfinished output of an earlier run of the same conversion, if there is any.
    pub fn resume(mut self, is_resuming: bool) -> Self {
        self.is_resuming = is_resuming;
        self
    }

    /// Runs the conversion on this thread and the workers.
    ///
    /// The progress is in items; its bytes are those of the values that this run has written.
    ///
    /// An item that cannot be converted is skipped; the summary says how many were. The outputs are there
    /// once all of them are whole. Files beside the output list what was skipped (`NAME.skipped.txt`), and
    /// the names of classes (`NAME.labels.txt`, if the input has any): a line each.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if the input cannot be read, an output cannot be written, not one item could be
    /// converted, or the progress was told to stop. Output that is written by then is kept, and the error
    /// says where.
    pub fn run(&self, progress: &Progress) -> Result<Summary, ConvertError> {
        // Each has a job in its hands, one that waits for it, and one that is done.
        let workers = Workers::new("convert", self.threads, 3)?;
        let items = match self.shards {
            Some(_) => Some(self.input.count(&|| progress.is_stopped())?),
            None => self.input.items(),
        };
        if let (Some(shards), Some(items)) = (self.shards, items)
            && u64::from(shards.get()) > items
        {
            let found = format!("{shards} shards cannot be made of {}", count(items, "item"));
            return Err(InputError::format(self.input.path(), found).into());
        }
        progress.begin(items.unwrap_or(0));
        let name = followed(&self.output);
        let paths = self.paths(&name);
        let outputs = paths.outputs();
        outputs.iter().try_for_each(|output| self.check_is_no_input(&output.path))?;
        let existing = Existing::replaced_if(self.is_forced);
        let earlier = match (self.is_resuming, self.is_forced) {
            (true, _) => Earlier::Resume,
            (false, true) => Earlier::Remove,
            (false, false) => Earlier::Refuse,
        };
        let place = Place::take(&name, outputs, existing, earlier)?;
        let about = self.about(items);
        let state = if place.is_resumed() { State::load(place.folder(), &about)? } else { None };
        match &state {
            Some(state) => state.check(place.folder(), items, self.shards.map_or(1, NonZeroU32::get))?,
            None => place.clear()?,
        }
        Writing::start(self, items, place, state, about)?.run(&workers, progress, paths)
    }

    /// Refuses to replace what is read.
    fn check_is_no_input(&self, output: &Path) -> Result<(), StoreError> {
        let Ok(there) = fs::canonicalize(output) else { return Ok(()) };
        let is_there = |input: &PathBuf| fs::canonicalize(input).is_ok_and(|input| input.starts_with(&there));
        match self.input.files().into_iter().find(is_there) {
            Some(input) => Err(StoreError::Same { path: output.to_owned(), input }),
            None => Ok(()),
        }
    }

    /// Facts about the conversion: one with others is another.
    fn about(&self, items: Option<u64>) -> BTreeMap<String, String> {
        let facts = [
            ("kind of output", self.backend.to_string()),
            ("shards", format!("{:?}", self.shards)),
            ("items", format!("{items:?}")),
            ("input", self.input.identity()),
            ("options for images", format!("{:?}", self.images)),
            ("options for records", format!("{:?}", self.records)),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }

    /// The paths of the outputs.
    fn paths(&self, name: &Path) -> Paths {
        let stores = match self.shards {
            None => vec![name.to_owned()],
            Some(shards) => {
                let store = |shard| with_ending(name, &format!("-{shard:05}-of-{shards:05}"));
                (0..shards.get()).map(store).collect()
            }
        };
        // One that belongs to the replaced output is removed with it.
        let has_labels = self.input.classes().is_some() || self.is_forced;
        let labels = has_labels.then(|| with_ending(name, ".labels.txt"));
        Paths { stores, labels, skipped: with_ending(name, ".skipped.txt") }
    }
}
