//! Data of other libraries: how they are opened.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::Args;
use percolator::feed::SourceSpec;
use percolator::source::Access;
use percolator_data::{Kind, OpenOptions};
use percolator_formats::feed::Formats;
use percolator_formats::{DataSet, Options};

/// How data of other libraries are read.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FormatArgs {
    /// Read the paths as this format of another library, whatever they look like: tar, parquet, csv, ...
    #[arg(long, value_name = "NAME")]
    read_as: Option<String>,
    /// Set an option of the format, such as delimiter=; of csv. May be given several times.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
}

/// The format of another library that a path has. A folder with records of Percolator's own is theirs,
/// whatever lies beside them; the LMDBs of other libraries are told by what is in them.
fn told(path: &Path) -> Option<&'static str> {
    let is_own = |format: &str| {
        path.is_dir() && !format.starts_with("lmdb-") && matches!(Kind::at("", path), Ok(Some(_)))
    };
    percolator_formats::format_of(path).ok().flatten().filter(|format| !is_own(format))
}

fn setting(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').ok_or_else(|| anyhow!("{text:?} is not NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

impl FormatArgs {
    /// Whether the paths are to be read as another library's, whatever they look like.
    pub(crate) fn is_given(&self) -> bool {
        self.read_as.is_some() || !self.settings.is_empty()
    }

    /// Whether a path has data of another library. What cannot be told is said by whoever opens it.
    pub(crate) fn is_of_another(&self, path: &Path) -> bool {
        self.is_given() || told(path).is_some()
    }

    /// Whether a path has data of another library that can be fed. A list of images cannot: it has their
    /// paths only.
    pub(crate) fn can_be_fed(&self, path: &Path) -> bool {
        self.is_given() || told(path).is_some_and(|format| format != "list")
    }

    /// Lets a path be opened as another library's data if it has any. What Percolator reads itself stays what
    /// it is: a list of images, a model's arrays.
    pub(crate) fn opened(&self, path: &Path, options: OpenOptions) -> OpenOptions {
        let is_own = |format: &str| ["list", "npy", "npz"].contains(&format);
        match self.is_given() || told(path).is_some_and(|format| !is_own(format)) {
            true => options.opened_by(Formats, self.read_as.clone(), self.settings.clone()),
            false => options,
        }
    }

    /// The path as a feed's spec names it.
    pub(crate) fn spec_of(&self, path: &Path) -> SourceSpec {
        let (path, format, settings) = (path.to_owned(), self.read_as.clone(), self.settings.clone());
        SourceSpec::Files { path, format, settings }
    }

    /// Opens a path.
    pub(crate) fn open(&self, path: &Path, access: Access) -> anyhow::Result<DataSet> {
        let mut options = Options::default();
        options.access = access;
        options.format.clone_from(&self.read_as);
        options.settings.clone_from(&self.settings);
        DataSet::open(&[path], &options).context("cannot open the data set")
    }
}
