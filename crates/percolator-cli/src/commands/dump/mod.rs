//! `percolator dump`: writes the batches that a net would see as NumPy arrays.

mod arrays;
mod npy;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use percolator::batch::BatchShape;
use percolator::example::ExampleFields;
use percolator::order::Ranks;
use percolator::transform::CaffeEra;
use percolator::{Batch, FeedBuilder, Field, Layout, Phase, Seed};
use percolator_files::folder_turn::FolderTurn;
use percolator_files::shown;
use percolator_files::whole_file::{self, Existing};
use serde_json::{Value, json};

use crate::args::fields::ExampleArgs;
use crate::args::source::{Source, SourceArgs};
use crate::args::{StateArgs, TransformArgs, with};
use crate::run::stop::Signals;
use crate::terminal::out::{stdout, tell};
use arrays::{Arrays, Written};

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    transform: TransformArgs,
    #[command(flatten)]
    example: ExampleArgs,
    /// The number of batches to write, joined along the first axis.
    #[arg(long, default_value = "1")]
    batches: NonZeroUsize,
    /// Records per batch [default: the net's, otherwise 1].
    #[arg(long)]
    batch_size: Option<usize>,
    /// The seed of crops, mirroring and shuffles: the argument of Caffe::set_random_seed [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// The random sequence [default: caffe for a net with a --seed, otherwise indexed].
    #[arg(long, value_enum)]
    random: Option<RandomArg>,
    /// The solver's rank, which gets the records R, R + N, R + 2N, ... in TRAIN, and all records in TEST. A
    /// layer's own phase, if it has one, decides. The seed is used as given; Caffe's own solver adds its rank
    /// to it.
    #[arg(long, value_name = "R", requires = "of")]
    rank: Option<usize>,
    /// The number of solvers.
    #[arg(long, value_name = "N", requires = "rank")]
    of: Option<usize>,
    /// Worker threads [default: one per core]. The arrays do not depend on it.
    #[arg(short = 'j', long)]
    threads: Option<usize>,
    /// The folder to write to: data.npy (float32; N,C,H,W) and label.npy (float32; N). Any other field is
    /// NAME.npy, with NAME.lengths.npy beside a padded one and NAME.offsets.npy beside a ragged one.
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
    /// Replace arrays that exist.
    #[arg(short, long)]
    force: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RandomArg {
    /// Caffe's own sequence.
    Caffe,
    /// The sequence of Caffe from May 2015 to November 2016, which read through a DataReader.
    #[value(name = "caffe-2015")]
    Caffe2015,
    /// Percolator's own: a function of the seed and the record's position.
    Indexed,
}

impl Dump {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut names = self.names();
        let existing = Existing::replaced_if(self.force);
        names.iter().try_for_each(|name| arrays::check_free(&self.out, name, existing))?;
        // Checked before the data are read, which may take long.
        self.check_place(names.first().map_or("data", |name| name))?;
        let source = self.source.found(self.state.root(), self.json)?;
        self.example.check_use(&source)?;
        for name in &names {
            source.check_output(&self.out.join(format!("{name}.npy")), self.state.root())?;
        }
        let described = source.describe(&self.state, &self.transform)?;
        let has_labels = described.has_labels && self.example.has_labels();
        let feed = self.example.with_options(described.feed);
        let mut feed = self.with_options(&source, feed)?.build()?;
        std::fs::create_dir_all(&self.out).with_context(|| self.no_folder())?;
        let mut lane = feed.take_lanes()?.remove(0);
        // Shapes are those of the rank's own first record, like Caffe's blobs: the database's first may be
        // another rank's.
        let first = lane.next().context("there is no batch")??;
        let shape = first.shape();
        let signals = Signals::catch()?;
        let mut columns = self.columns(&first, has_labels)?;
        names.extend(columns.iter().map(|column| column.name.clone()));
        let mut statistics = self.example.has_images().then(|| Statistics::new(shape));
        let batches = std::iter::once(Ok(first)).chain(lane).take(self.batches.get());
        for (number, batch) in batches.enumerate() {
            let batch = batch?;
            if signals.caught().is_some() {
                break;
            }
            if batch.shape() != shape {
                let (found, first) = (batch.shape(), shape);
                bail!(
                    "{}: batch {number} is {found} and the first {first}, and arrays of different shapes \
                     cannot be joined: crop, or dump --batches {number}",
                    shown::path(&described.origin)
                );
            }
            columns.iter_mut().try_for_each(|column| column.write(&batch))?;
            if let Some(statistics) = &mut statistics {
                statistics.add(&batch)?;
            }
        }
        if let Some((signal, code)) = signals.caught() {
            tell(&format!("{signal}: stopped: no array was written"));
            return Ok(ExitCode::from(code));
        }
        // All files are complete before anything is printed, so a closed output does not lose them. The
        // data's file is named last: if it is there, so are the others. Others wait for this turn, so the
        // arrays are put on the disk before it. Naming them waits for the disk once more, but has little to
        // write.
        let complete = columns.into_iter().map(Arrays::complete).collect::<Result<Vec<_>, _>>()?;
        let (written, files): (Vec<_>, Vec<_>) = complete.into_iter().unzip();
        let turn = FolderTurn::take(&self.out);
        // Those before stay until now. Another run may have named its arrays meanwhile.
        self.make_room(&names, existing)?;
        files.into_iter().rev().flatten().try_for_each(|file| file.name(existing))?;
        drop(turn);
        let labels = statistics.as_ref().map(|statistics| statistics.labels).filter(|_| has_labels);
        let channels = statistics.map(|statistics| statistics.channels);
        match self.json {
            true => stdout().json("percolator.dump/1", &facts(&written, channels.as_deref(), labels)),
            false => stdout().text(self.lines(&written, channels.as_deref(), labels).as_bytes()),
        }?;
        Ok(ExitCode::SUCCESS)
    }

    /// What was written, in lines. The first two arrays of images are the pixels and the labels.
    fn lines(&self, written: &[Written], channels: Option<&[Moments]>, labels: Option<Moments>) -> String {
        let mut said = String::new();
        for (number, array) in written.iter().enumerate() {
            said += &array.lines();
            match (number, channels, labels) {
                (0, Some(channels), _) => {
                    let line = |(number, moments)| format!("  channel {number}: {moments}\n");
                    said.extend(channels.iter().enumerate().map(line));
                }
                (1, _, Some(labels)) => said += &format!("  {labels}\n"),
                _ => {}
            }
        }
        if channels.is_some() && labels.is_none() {
            said += match self.example.is_given() {
                true => "no label.npy: there is no --label\n",
                false => "no label.npy: the layer has no second top\n",
            };
        }
        said
    }

    /// The names of the arrays, as far as they are known before the data are read.
    fn names(&self) -> Vec<String> {
        let images = if self.example.has_images() { &["data", "label"][..] } else { &[] };
        let fields = self.example.fields.iter().flat_map(ExampleFields::fields);
        let fields = fields.map(|field| field.field().name().to_owned());
        images.iter().map(|&name| name.to_owned()).chain(fields).collect()
    }

    /// Removes the arrays that are replaced, or checks that there are none: with others beside them, they
    /// would pass for this run's.
    fn make_room(&self, names: &[String], existing: Existing) -> anyhow::Result<()> {
        names.iter().try_for_each(|name| match existing {
            Existing::Refuse => arrays::check_free(&self.out, name, existing),
            Existing::Replace => arrays::remove_stale(&self.out, name),
        })
    }

    /// The arrays to write. Images are called `data`, and labels, as f32, `label`; all other fields follow.
    fn columns(&self, first: &Batch, has_labels: bool) -> anyhow::Result<Vec<Arrays>> {
        let records = first.shape().records.saturating_mul(self.batches.get());
        let strings: Vec<&str> = self
            .example
            .fields
            .iter()
            .flat_map(ExampleFields::fields)
            .filter(|field| field.is_string())
            .map(|field| field.field().name())
            .collect();
        let create = |name: &str, field: &Field| {
            Arrays::create(&self.out, name, field, records, strings.contains(&field.name()))
        };
        if !self.example.has_images() {
            return first.fields().iter().map(|field| create(field.name(), field)).collect();
        }
        let mut columns = Vec::new();
        for (name, field) in [("data", "data"), ("label", "label_f32")] {
            if name == "data" || has_labels {
                columns.push(create(name, first.field(field)?.field())?);
            }
        }
        let is_other = |field: &&Field| !["data", "label", "label_f32"].contains(&field.name());
        for field in first.fields().iter().filter(is_other) {
            columns.push(create(field.name(), field)?);
        }
        Ok(columns)
    }

    fn no_folder(&self) -> String {
        format!("cannot make the folder {}", shown::path(&self.out))
    }

    /// Checks that the folder of the arrays can be created. It is not created yet, because the run may fail.
    fn check_place(&self, name: &str) -> anyhow::Result<()> {
        let folders = self.out.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
        if let Some(missing) = folders.take_while(|folder| folder.symlink_metadata().is_err()).last() {
            // Without a slash at its end, which only a folder's path may have.
            let missing: PathBuf = missing.components().collect();
            return whole_file::check(&missing).with_context(|| self.no_folder());
        }
        // If the folder exists, this only checks it.
        std::fs::create_dir_all(&self.out).with_context(|| self.no_folder())?;
        let data = self.out.join(format!("{name}.npy"));
        if data.parent().is_some_and(|parent| !parent.exists()) {
            return Ok(());
        }
        whole_file::check(&data).with_context(|| format!("cannot create {}", shown::path(&data)))
    }

    fn with_options(&self, source: &Source, feed: FeedBuilder) -> anyhow::Result<FeedBuilder> {
        let feed = with(feed, self.batch_size, FeedBuilder::batch_size);
        let mut feed = with(feed, self.threads, FeedBuilder::threads);
        if let (Some(rank), Some(of)) = (self.rank, self.of) {
            ensure!(rank < of, "--rank {rank}: of {of} ranks, the last is {}", of.saturating_sub(1));
            // In TEST, Caffe gives every record to one solver. A net's layer may have its own phase, and its
            // feed uses that.
            if source.is_net() || self.state.phase() == Phase::Train {
                feed = feed.share(Ranks { first: rank, of });
            }
        }
        let seed = self.seed.unwrap_or(0);
        let caffe_seed =
            || u32::try_from(seed).ok().with_context(|| format!("--seed {seed}: Caffe's seeds have 32 bits"));
        let random = self.random.unwrap_or(match self.seed {
            Some(_) if source.is_net() => RandomArg::Caffe,
            _ => RandomArg::Indexed,
        });
        Ok(match random {
            RandomArg::Caffe => feed.seed(Seed::Caffe { seed: caffe_seed()?, era: CaffeEra::Today }),
            RandomArg::Caffe2015 => feed.seed(Seed::Caffe { seed: caffe_seed()?, era: CaffeEra::DataReader }),
            RandomArg::Indexed => feed.seed(seed),
        })
    }
}

/// Statistics of images and of their labels.
struct Statistics {
    shape: BatchShape,
    channels: Vec<Moments>,
    labels: Moments,
}

impl Statistics {
    fn new(shape: BatchShape) -> Self {
        let channels = vec![Moments::default(); shape.image.channels];
        Statistics { shape, channels, labels: Moments::default() }
    }

    fn add(&mut self, batch: &Batch) -> anyhow::Result<()> {
        debug_assert_eq!(self.shape.layout, Layout::Nchw);
        self.labels.add(batch.labels_f32()?);
        let plane = self.shape.image.height * self.shape.image.width;
        for record in batch.pixels::<f32>()?.chunks_exact(self.shape.record_elements()) {
            for (channel, plane) in self.channels.iter_mut().zip(record.chunks_exact(plane)) {
                channel.add(plane);
            }
        }
        Ok(())
    }
}

/// What was written, for programs.
fn facts(written: &[Written], channels: Option<&[Moments]>, labels: Option<Moments>) -> Value {
    json!({
        "arrays": written.iter().map(Written::facts).collect::<Vec<_>>(),
        "channels": channels.map(|channels| channels.iter().map(Moments::facts).collect::<Vec<_>>()),
        "labels": labels.as_ref().map(Moments::facts),
    })
}

/// Summary statistics of many numbers.
#[derive(Clone, Copy, Debug)]
struct Moments {
    min: f32,
    max: f32,
    sum: f64,
    count: u64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, count: 0 }
    }
}

impl Moments {
    fn add(&mut self, numbers: &[f32]) {
        for &number in numbers {
            self.min = self.min.min(number);
            self.max = self.max.max(number);
            self.sum += f64::from(number);
        }
        self.count += numbers.len() as u64;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn facts(&self) -> Value {
        json!({ "min": self.min, "max": self.max, "mean": self.mean() })
    }
}

impl std::fmt::Display for Moments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Moments { min, max, .. } = self;
        write!(f, "min {min}, max {max}, mean {:.6}", self.mean())
    }
}
