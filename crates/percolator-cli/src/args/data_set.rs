//! A whole data set to read: arguments of `mean`, `inspect` and `verify`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::Args;
use percolator::Progress;
use percolator_data::OpenOptions;
use percolator_data::store::Existing;
use percolator_files::shown;

use crate::args::formats::FormatArgs;
use crate::args::{OpenArgs, with};
use crate::output::{FileKind, Output};
use crate::terminal::progress::{self, Lines};

/// A data set, and how it is read and reported.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    /// The data set: an LMDB's or a LevelDB's folder, a TFRecord file, a folder or a quoted pattern of them,
    /// a text file that lists images and labels, or data of another library: shards of WebDataset, Parquet,
    /// Arrow, JSON lines and more.
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Prepend this to each name in a list of images, as it is (Caffe's root_folder).
    #[arg(long, value_name = "PREFIX")]
    root: Option<OsString>,
    /// The feature of tf.train.Examples that has the image [default: each whose strings are JPEG or PNG
    /// files; where one is wanted, image/encoded, or the only one], or the part of another library's records
    /// [default: image, jpg, png or the like].
    #[arg(long, value_name = "FEATURE")]
    image: Option<String>,
    #[command(flatten)]
    open: OpenArgs,
    #[command(flatten)]
    formats: FormatArgs,
    /// Worker threads [default: one per core]. The results do not depend on it.
    #[arg(short = 'j', long, value_name = "N")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Replace output files that exist.
    #[arg(short, long)]
    pub(crate) force: bool,
}

impl OpenArgs {
    pub(crate) fn options(&self) -> OpenOptions {
        let options = OpenOptions::default().access(self.access()).log_gaps(self.log_gaps());
        with(options, self.database.as_ref(), OpenOptions::database)
    }
}

impl DataArgs {
    pub(crate) fn existing(&self) -> Existing {
        Existing::replaced_if(self.force)
    }

    pub(crate) fn options(&self) -> OpenOptions {
        let options = with(self.open.options(), self.root.as_ref(), OpenOptions::root_folder);
        let options = with(options, self.image.as_ref(), OpenOptions::image_feature);
        self.formats.opened(&self.path, options)
    }

    /// Does work, which may print lines, beside a progress bar; on SIGINT or SIGTERM, it is told to stop.
    pub(crate) fn watched<T: Send>(
        &self,
        work: impl FnOnce(&Progress, &Lines) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        progress::watched(self.quiet, progress::rate, work)
    }

    /// Checks that an output file can be written, before there is anything to write.
    pub(crate) fn output<'a>(&self, path: &'a Path, kind: FileKind) -> anyhow::Result<Output<'a>> {
        ensure!(!self.holds(path), "{}: it is a part of the data set: give another path", shown::path(path));
        Output::check(path, kind, self.existing())
    }

    /// Whether a file is one of the data set's, or would be if it were there.
    fn holds(&self, path: &Path) -> bool {
        // A new file in a database's folder is none of the database's.
        let is_database = ["data.mdb", "CURRENT"].iter().any(|file| self.path.join(file).exists());
        let files = percolator_tfrecord::files(&self.path).unwrap_or_default();
        let mut places = files.iter().chain([&self.path]).filter_map(|file| file.canonicalize().ok());
        let is_in_place = |there: PathBuf| places.any(|place| there.starts_with(place));
        path.canonicalize().is_ok_and(is_in_place)
            || !is_database && percolator_tfrecord::is_among(path, "", &self.path)
    }
}
