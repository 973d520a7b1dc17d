//! `percolator inspect`: what a data set or a model holds.

mod grid;
mod one;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{bail, ensure};
use clap::Args;
use percolator_data::inspect::{self, InspectOptions, PICTURES_MAX, PictureOptions, ShownPicture};
use percolator_data::scan::Progress;
use percolator_data::{DataSet, Found};
use percolator_files::shown;

use crate::args::data_set::DataArgs;
use crate::args::{ChannelsArg, ContentArg, TransformArgs};
use crate::commands::model;
use crate::output::{FileKind, Output};
use crate::terminal::out::stdout;

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    data: DataArgs,
    /// Look at every record, and decode it: duplicates are found by their pixels, too.
    #[arg(long)]
    all: bool,
    /// Without --all, look at this many records, evenly spread, and at the headers of their images.
    #[arg(long, value_name = "N", default_value_t = 10_000, conflicts_with = "all",
        value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// What the values are [default: what most of them are; with --record, what its own is].
    #[arg(long, value_enum, value_name = "KIND")]
    content: Option<ContentArg>,
    /// Write the report as one HTML file that needs no network: with histograms, and pictures, evenly spread,
    /// with their labels and numbers.
    #[arg(long, value_name = "REPORT.html")]
    html: Option<PathBuf>,
    /// Write one picture of pictures, evenly spread, as --recipe, --crop and the other options of a transform
    /// make them: all but means, scales and normalizations.
    #[arg(long, value_name = "SHEET.png", conflicts_with_all = ["record", "html", "all"])]
    grid: Option<PathBuf>,
    /// In --grid, show what so many epochs make of each picture, side by side.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "grid",
        value_parser = clap::value_parser!(u64).range(1..=100))]
    transformed: u64,
    #[command(flatten)]
    transform: TransformArgs,
    /// The order of three or four channels of images that are not encoded: Caffe's are bgr, CIFAR's rgb.
    #[arg(long, value_enum, default_value_t)]
    channels: ChannelsArg,
    /// The number of pictures in the HTML report, or of records in the grid.
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=PICTURES_MAX))]
    pictures: u64,
    /// Show one record: the one with this number if it is a number without leading zeros, otherwise the one
    /// with this key. Its image is drawn if the output is a terminal.
    #[arg(long, value_name = "KEY|N", conflicts_with_all = ["all", "html"])]
    record: Option<OsString>,
    /// Write the record's image to this file.
    #[arg(short, long, value_name = "FILE.png", requires = "record")]
    out: Option<PathBuf>,
}

/// The side of a picture in the HTML report, in pixels.
const PICTURE_SIDE: usize = 112;

impl Inspect {
    pub(crate) fn run<'a>(&'a self) -> anyhow::Result<()> {
        let output = |path: &'a Option<PathBuf>, kind| {
            path.as_ref().map(|path| self.data.output(path, kind)).transpose()
        };
        let html = output(&self.html, FileKind::Report)?;
        let picture = output(&self.out, FileKind::Picture)?;
        let grid = output(&self.grid, FileKind::Picture)?;
        ensure!(
            grid.is_some() || !self.transform.is_given(),
            "options of a transform, such as --crop, are for --grid: say where its sheet is written"
        );
        let data = match self.data.options().find(&self.data.path)? {
            Found::DataSet(data) => data,
            Found::Model(path) => return self.list_model(&path),
        };
        if let Some(grid) = grid {
            let sheet = self.data.watched(|progress, _| self.sheet(&data, progress))?;
            return grid.write(&sheet);
        }
        match &self.record {
            Some(word) => one::show(&data, word, picture, self),
            None => self.report(&data, html),
        }
    }

    fn list_model(&self, path: &Path) -> anyhow::Result<()> {
        if self.record.is_some() || self.html.is_some() || self.grid.is_some() {
            bail!(
                "{}: a model's files, which have no records; `percolator model show` shows one tensor",
                shown::path(path)
            );
        }
        model::list(path, self.data.json, self.data.quiet)
    }

    fn report(&self, data: &DataSet, html: Option<Output<'_>>) -> anyhow::Result<()> {
        let options = InspectOptions {
            all: self.all,
            sample: self.sample,
            content: self.content.map(Into::into),
            threads: self.data.threads,
        };
        let (report, pictures) = self.data.watched(|progress, _| {
            let report = inspect::inspect(data, &options, progress)?;
            Ok((report, self.pictures(data, progress)?))
        })?;
        let html = html.map(|html| html.write(inspect::html(&report, &pictures).as_bytes()));
        // The report is printed even if the file cannot be written.
        if self.data.json {
            stdout().json("percolator.inspect/1", &report)?;
        } else {
            let mut out = stdout();
            write!(out, "{}", inspect::text(&report))?;
            if let (Some(path), Some(Ok(()))) = (&self.html, &html) {
                writeln!(out, "\n{}: {} pictures", shown::path(path), pictures.len())?;
            }
            out.finish()?;
        }
        html.unwrap_or(Ok(()))
    }

    /// The pictures that are shown.
    fn pictures(&self, data: &DataSet, progress: &Progress) -> anyhow::Result<Vec<ShownPicture>> {
        if self.html.is_none() {
            return Ok(Vec::new());
        }
        Ok(inspect::pictures(data, &self.picture_options(), progress)?)
    }

    fn picture_options(&self) -> PictureOptions {
        let (content, channels) = (self.content.map(Into::into), self.channels.into());
        PictureOptions { count: self.pictures, side: PICTURE_SIDE, content, channels }
    }
}
