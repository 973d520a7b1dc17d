//! `percolator inspect`: what a data set or a model holds.

mod one;
pub(crate) mod text;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use percolator_data::inspect::{self, InspectOptions, PICTURES_MAX, PictureOptions, ShownPicture};
use percolator_data::scan::Progress;
use percolator_data::{DataSet, Found};
use percolator_files::{shown, whole_file};

use crate::args::{ChannelsArg, ContentArg};
use crate::data_set::{DataArgs, stdout};
use crate::model;
use crate::output::{self, FileKind, Output};
use crate::watch::Ended;

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
    /// Write a contact sheet: pictures, evenly spread, with their labels and numbers.
    #[arg(long, value_name = "SHEET.png")]
    grid: Option<PathBuf>,
    /// Write the report as one HTML file that needs no network: histograms, sizes, pictures.
    #[arg(long, value_name = "REPORT.html")]
    html: Option<PathBuf>,
    /// The order of three or four channels of images that are not encoded: Caffe's are bgr, CIFAR's rgb.
    #[arg(long, value_enum, default_value_t)]
    channels: ChannelsArg,
    /// The number of pictures in the sheet, and in the HTML report.
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=PICTURES_MAX))]
    pictures: u64,
    /// Show one record: the one with this number if it is a number without leading zeros, otherwise the one
    /// with this key. Its image is drawn if the output is a terminal.
    #[arg(long, value_name = "KEY|N", conflicts_with_all = ["all", "grid", "html"])]
    record: Option<OsString>,
    /// Show the record as text only.
    #[arg(long, requires = "record")]
    text: bool,
    /// Write the record's image to this file.
    #[arg(long, value_name = "FILE.png", requires = "record")]
    out: Option<PathBuf>,
}

/// The side of a picture in the sheet and in the HTML report, in pixels.
const PICTURE_SIDE: usize = 112;

impl Inspect {
    pub(crate) fn run<'a>(&'a self) -> anyhow::Result<ExitCode> {
        if let (Some(grid), Some(html)) = (&self.grid, &self.html) {
            let is_same = whole_file::is_same_place(grid, html).unwrap_or(false);
            ensure!(!is_same, "{}: --grid and --html need a file each", shown::path(grid));
        }
        let output = |path: &'a Option<PathBuf>, kind| {
            path.as_ref().map(|path| self.data.output(path, kind)).transpose()
        };
        let grid = output(&self.grid, FileKind::Picture)?;
        let html = output(&self.html, FileKind::Report)?;
        let picture = output(&self.out, FileKind::Picture)?;
        let data = match self.data.options().find(&self.data.path)? {
            Found::DataSet(data) => data,
            Found::Model(path) => return self.list_model(&path),
        };
        match &self.record {
            Some(word) => one::show(&data, word, picture, self),
            None => self.report(&data, grid, html),
        }
    }

    fn list_model(&self, path: &Path) -> anyhow::Result<ExitCode> {
        if self.record.is_some() || self.grid.is_some() || self.html.is_some() {
            bail!(
                "{}: a model's files, which have no records; `percolator model show` shows one tensor",
                shown::path(path)
            );
        }
        model::list(path, self.data.json, self.data.quiet)
    }

    fn report(
        &self,
        data: &DataSet,
        grid: Option<Output<'_>>,
        html: Option<Output<'_>>,
    ) -> anyhow::Result<ExitCode> {
        let options = InspectOptions {
            all: self.all,
            sample: self.sample,
            content: self.content.map(Into::into),
            threads: self.data.threads,
        };
        let looked = self.data.watched(|progress| {
            let report = inspect::inspect(data, &options, progress)?;
            Ok((report, self.pictures(data, progress)?))
        })?;
        let (report, pictures) = match looked {
            Ended::Done(looked) => looked,
            Ended::Stopped(code) => return Ok(code),
        };
        let grid = grid.map(|grid| grid.write(&inspect::sheet(&pictures).to_png()?));
        let html = html.map(|html| html.write(inspect::html(&report, &pictures).as_bytes()));
        let mut out = stdout();
        if self.data.json {
            serde_json::to_writer_pretty(&mut out, &report)?;
            writeln!(out)?;
        } else {
            text::write(&report, &mut out)?;
            for (path, written) in [(&self.grid, &grid), (&self.html, &html)] {
                if let (Some(path), Some(Ok(()))) = (path, written) {
                    writeln!(out, "\n{}: {} pictures", shown::path(path), pictures.len())?;
                }
            }
        }
        out.finish()?;
        // Each is written, whatever the other's error is, and the report is printed whatever theirs are.
        output::both(grid.unwrap_or(Ok(())), html.unwrap_or(Ok(()))).map(|()| ExitCode::SUCCESS)
    }

    /// The pictures that are shown. A sheet needs at least one; a report does without.
    fn pictures(&self, data: &DataSet, progress: &Progress) -> anyhow::Result<Vec<ShownPicture>> {
        if self.grid.is_none() && self.html.is_none() {
            return Ok(Vec::new());
        }
        let content = self.content.map(Into::into);
        let channels = self.channels.into();
        let options = PictureOptions { count: self.pictures, side: PICTURE_SIDE, content, channels };
        match inspect::pictures(data, &options, progress) {
            Err(inspect::InspectError::NoImages { .. }) if self.grid.is_none() => Ok(Vec::new()),
            pictures => Ok(pictures?),
        }
    }
}
