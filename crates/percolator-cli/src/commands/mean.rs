//! `percolator mean`: the mean image of a data set, and its channels' means and standard deviations.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use percolator_data::mean::{self, MeanOptions, Sums};
use percolator_files::shown::{self, count};
use serde_json::json;

use crate::args::data_set::DataArgs;
use crate::args::{ChannelsArg, ColorArg, ContentArg, size};
use crate::output::FileKind;
use crate::terminal::out::stdout;

#[derive(Debug, Args)]
pub(crate) struct Mean {
    #[command(flatten)]
    data: DataArgs,
    /// The file to write, as Caffe's compute_image_mean writes it. Without it, only the channels' values are
    /// computed, for which images may differ in size.
    #[arg(value_name = "MEAN.binaryproto")]
    out: Option<PathBuf>,
    /// First resize every image to this many rows and columns.
    #[arg(long, value_name = "HxW", value_parser = size)]
    resize: Option<[u32; 2]>,
    /// The channels to decode encoded images to.
    #[arg(long, value_enum, default_value_t)]
    color: ColorArg,
    /// The order of three or four channels, for PyTorch's lines: encoded images and Caffe's own are bgr,
    /// and CIFAR's files rgb.
    #[arg(long, value_enum, default_value_t)]
    channels: ChannelsArg,
    /// What the values are [default: what most of them are].
    #[arg(long, value_enum, value_name = "KIND")]
    content: Option<ContentArg>,
    /// Add bytes up as Caffe does, in 32-bit floats and in the order of the keys: also beyond 2^24, where its
    /// sums are rounded. Without it, they are exact. Floats are always added as Caffe does.
    #[arg(long)]
    caffe: bool,
}

impl Mean {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let out = self.out.as_ref().map(|out| self.data.output(out, FileKind::Mean)).transpose()?;
        let data = self.data.options().open(&self.data.path)?;
        let options = MeanOptions {
            resize: self.resize.map(|sides| sides.map(|side| side as usize).into()),
            content: self.content.map(Into::into),
            color: self.color.into(),
            sums: if self.caffe { Sums::Caffe } else { Sums::Exact },
            only_channels: self.out.is_none(),
            threads: self.data.threads,
        };
        let mean = self.data.watched(|progress, _| Ok(mean::mean(&data, &options, progress)?))?;
        // The file is there before anything is printed, so a closed output does not lose it. If it cannot be
        // written, what was computed is printed even so.
        let written = match out {
            Some(out) => mean.to_binaryproto().map_err(Into::into).and_then(|bytes| out.write(&bytes)),
            None => Ok(()),
        };
        self.print(&mean, self.out.as_deref().filter(|_| written.is_ok()))?;
        written
    }

    /// Prints the mean, and the file that has it.
    fn print(&self, mean: &mean::Mean, file: Option<&Path>) -> anyhow::Result<()> {
        let channels = match self.color {
            ColorArg::Rgb => ChannelsArg::Rgb,
            _ => self.channels,
        };
        let (means, stds) = mean.for_pytorch(channels.into());
        if self.data.json {
            let shape = mean.shape.map(|shape| [shape.channels, shape.height, shape.width]);
            return stdout().json(
                "percolator.mean/1",
                &json!({
                    "records": mean.records,
                    "shape": shape,
                    "channels": mean.channels,
                    "pytorch": { "mean": means, "std": stds },
                    "beyond_caffe": mean.beyond_caffe,
                    "out": file.map(Path::to_string_lossy),
                }),
            );
        }
        let mut out = stdout();
        let images = count(mean.records, "image");
        match (file, mean.shape) {
            (Some(path), Some(shape)) => {
                writeln!(out, "{}: {shape}, the mean of {images}", shown::path(path))?
            }
            _ => writeln!(out, "{}: {images}", shown::path(&self.data.path))?,
        }
        writeln!(out, "\nCaffe, a line for each channel as stored:")?;
        for line in mean.for_caffe() {
            writeln!(out, "  {line}")?;
        }
        let order = match mean.channels.len() {
            3 | 4 => ", red first",
            _ => "",
        };
        let values = if mean.are_bytes { "values from 0 to 1" } else { "the floats as they are" };
        writeln!(out, "\nPyTorch's Normalize, of {values}{order}:")?;
        let list = |numbers: &[f64]| {
            numbers.iter().map(|number| format!("{number:.6}")).collect::<Vec<_>>().join(", ")
        };
        writeln!(out, "  mean = [{}]", list(&means))?;
        writeln!(out, "  std = [{}]", list(&stds))?;
        if mean.are_bytes && matches!(mean.channels.len(), 1 | 3) {
            let color = if mean.channels.len() == 3 { "--color rgb " } else { "" };
            let options = |numbers: &[f64]| list(numbers).replace(", ", ",");
            writeln!(out, "\npercolator feed's options, for encoded images:")?;
            writeln!(out, "  {color}--mean {} --std {}", options(&means), options(&stds))?;
        }
        if mean.beyond_caffe > 0 {
            writeln!(
                out,
                "\nCaffe's own sums round beyond 2^24, as they would for {} elements; these are exact. \
                 --caffe gives Caffe's bits.",
                mean.beyond_caffe
            )?;
        }
        out.finish()
    }
}
