//! `percolator convert shards`: records as other libraries read them, in tars or Parquet files.

use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use percolator::order::{BatchSize, Job, World};
use percolator::source::{self, IndexPlace, Source};
use percolator::{Progress, Shuffle};
use percolator_files::shown::{self, count};
use percolator_files::whole_file::Existing;
use percolator_formats::feed::sample_of_record;
use percolator_formats::write::{ParquetWriter, RecordWriter, TarWriter};
use percolator_formats::{Cursor, FormatError, Key, Part, Place, Seeks, Shard};
use serde_json::json;

use crate::args::records::RecordArgs;
use crate::run::exit;
use crate::terminal::out::stdout;
use crate::terminal::progress::watched;

#[derive(Debug, Args)]
pub(super) struct ToShards {
    /// The data: files, folders, or quoted patterns, of any format that is read, in this order.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    records: RecordArgs,
    /// The file to write.
    #[arg(short, long, value_name = "NAME")]
    out: PathBuf,
    /// Its format [default: as NAME ends].
    #[arg(long = "as", value_enum)]
    written_as: Option<ShardFormat>,
    /// Write this many files, such as train-000000.tar for train.tar, each with a range of the records.
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroU64>,
    /// Shuffle all records, in the order of this seed.
    #[arg(long, value_name = "SEED")]
    shuffle: Option<u64>,
    /// Write only so many records: the first ones of the order.
    #[arg(long, value_name = "N")]
    head: Option<u64>,
    /// Replace outputs that exist, once the new ones are whole.
    #[arg(short, long)]
    force: bool,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShardFormat {
    /// WebDataset's: a member for each part.
    Tar,
    /// A column for each part.
    Parquet,
}

impl ToShards {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let format = self.format()?;
        let start = Instant::now();
        let (outputs, records) = watched(self.quiet, rate, |progress, _| self.write(format, progress))?;
        let mut out = stdout();
        if self.json {
            let outputs: Vec<_> = outputs.iter().map(|path| path.to_string_lossy()).collect();
            let facts = json!({
                "outputs": outputs, "records": records, "seconds": start.elapsed().as_secs_f64(),
            });
            out.json("percolator.convert/1", &facts)?;
            return Ok(exit::found(true));
        }
        for output in &outputs {
            writeln!(out, "{}", shown::path(output))?;
        }
        writeln!(out, "{} in {:.2} s", count(records, "record"), start.elapsed().as_secs_f64())?;
        out.finish()?;
        Ok(exit::found(true))
    }

    fn format(&self) -> anyhow::Result<ShardFormat> {
        let ending = self.out.extension().and_then(|ending| ending.to_str());
        match (self.written_as, ending) {
            (Some(format), _) => Ok(format),
            (None, Some("tar")) => Ok(ShardFormat::Tar),
            (None, Some("parquet")) => Ok(ShardFormat::Parquet),
            (None, _) => bail!("{}: say --as tar or --as parquet", shown::path(&self.out)),
        }
    }

    /// Writes all records, and returns the files and the number of records.
    fn write(&self, format: ShardFormat, progress: &Progress) -> anyhow::Result<(Vec<PathBuf>, u64)> {
        let mut files = Readers::open(&self.records, &self.paths)?;
        let is_counted = self.shards.is_some() || self.shuffle.is_some();
        let total = if is_counted { Some(files.count(self.shuffle.is_some())?) } else { None };
        let wanted = total.unwrap_or(u64::MAX).min(self.head.unwrap_or(u64::MAX));
        ensure!(wanted > 0, "there is no record to write");
        progress.begin(total.map_or(0, |_| wanted));
        let shards = self.shards.map_or(1, NonZeroU64::get);
        ensure!(shards <= wanted, "{shards} shards cannot be made of {}", count(wanted, "record"));
        let existing = Existing::replaced_if(self.force);
        let outputs: Vec<PathBuf> = (0..shards).map(|shard| self.name(shard)).collect();
        for output in &outputs {
            let name = shown::path(output);
            ensure!(!files.has(output), "{name}: it is a file of the data that are read: give another name");
            existing.check(output).with_context(|| format!("cannot write {}", shown::path(output)))?;
        }
        // The keys of several files may be the same, and must not be neighbours.
        let is_numbered = format == ShardFormat::Tar && (files.are_several() || self.shuffle.is_some());
        let mut order = match (self.shuffle, total) {
            (Some(seed), Some(total)) => Order::Shuffled(shuffled(total, seed)?),
            _ => Order::Stored,
        };
        let mut written = 0;
        for (shard, output) in (0_u64..).zip(&outputs) {
            let mut writer: Box<dyn RecordWriter> = match format {
                ShardFormat::Tar => Box::new(TarWriter::create(output)?),
                ShardFormat::Parquet => Box::new(ParquetWriter::create(output)?),
            };
            // With one shard of an unknown number of records, its end is that of the records.
            let end = if shards == 1 { wanted } else { share(wanted, shard + 1, shards) };
            while written < end {
                ensure!(
                    !progress.is_stopped(),
                    "stopped: the shards before {} are whole",
                    shown::path(output)
                );
                let position = order.at(written);
                let is_there = files.visit(position, &mut |key, parts| {
                    let name = if is_numbered { numbered(key, position) } else { Vec::new() };
                    let key = match key {
                        _ if is_numbered => Key::Bytes(&name),
                        Key::None => Key::Number(position),
                        key => *key,
                    };
                    Ok(writer.put(&key, parts)?)
                })?;
                if !is_there {
                    break;
                }
                written += 1;
                progress.set_done(written);
            }
            ensure!(written > 0, "there is no record to write");
            ensure!(total.is_none() || written == end, "the data have fewer records than they state");
            writer.finish(existing)?;
        }
        Ok((outputs, written))
    }

    /// The name of a shard.
    fn name(&self, shard: u64) -> PathBuf {
        if self.shards.is_none() {
            return self.out.clone();
        }
        let mut name = self.out.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{shard:06}"));
        let name = self.out.with_file_name(name);
        match self.out.extension() {
            // The number is no extension.
            Some(ending) => {
                let mut name = name.into_os_string();
                name.push(".");
                name.push(ending);
                name.into()
            }
            None => name,
        }
    }
}

/// A record's position in all that is read, and its key if that is a name.
fn numbered(key: &Key<'_>, number: u64) -> Vec<u8> {
    let mut numbered = format!("{number:08}").into_bytes();
    if let Key::Bytes(name) = key
        && !name.iter().all(u8::is_ascii_digit)
    {
        numbered.push(b'_');
        numbered.extend_from_slice(name);
    }
    numbered
}

/// The number of the first record behind so many of all shards.
fn share(records: u64, shard: u64, shards: u64) -> u64 {
    let first = u128::from(records) * u128::from(shard) / u128::from(shards);
    u64::try_from(first).unwrap_or(records)
}

fn rate(progress: &Progress, took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-3);
    format!("{} records, {:.0} a second", progress.done(), progress.done() as f64 / seconds)
}

/// The order in which records are written.
enum Order {
    Stored,
    Shuffled(Vec<u64>),
}

impl Order {
    /// The position of the record that is written at this place.
    fn at(&mut self, place: u64) -> u64 {
        match self {
            Order::Stored => place,
            Order::Shuffled(positions) => usize::try_from(place)
                .ok()
                .and_then(|place| positions.get(place).copied())
                .unwrap_or(u64::MAX),
        }
    }
}

/// The positions of the first epoch of a feed that shuffles all records.
fn shuffled(records: u64, seed: u64) -> anyhow::Result<Vec<u64>> {
    /// How many positions are asked for at once.
    const AT_ONCE: u64 = 1 << 12;

    let job = Job::new([records], BatchSize::Global(AT_ONCE), World::new(1, 1)?);
    let plan = job.shuffle(Shuffle::Global).seed(seed).plan()?;
    let mut positions = Vec::new();
    for step in 0..plan.steps(0)? {
        positions
            .extend(plan.share(0, step, 0)?.filter(|record| record.epoch == 0).map(|record| record.index));
    }
    Ok(positions)
}

/// Takes a record: its key, its parts.
type Take<'a> = &'a mut dyn FnMut(&Key<'_>, &[Part<'_>]) -> anyhow::Result<()>;

/// Files whose records follow one another.
struct Readers {
    files: Vec<Reader>,
    /// The file that is being read, and the number of the records before it.
    current: usize,
    before: u64,
}

/// The records of one file.
enum Reader {
    /// A shard of another library's data, and the places of its records once they are known.
    Shard {
        shard: Arc<dyn Shard>,
        cursor: Option<Box<dyn Cursor>>,
        next: u64,
        places: Option<Vec<Place>>,
    },
    Own {
        source: Arc<dyn Source>,
        cursor: Option<Box<dyn source::Cursor>>,
        next: u64,
        has_keys: bool,
    },
}

impl Readers {
    fn open(records: &RecordArgs, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            if let Some(shards) = records.shards(path)? {
                let reader = |shard| Reader::Shard { shard, cursor: None, next: 0, places: None };
                files.extend(shards.into_iter().map(reader));
            } else {
                let (sources, has_keys) = records.sources(path)?;
                let reader = |source| Reader::Own { source, cursor: None, next: 0, has_keys };
                files.extend(sources.into_iter().map(reader));
            }
        }
        Ok(Readers { files, current: 0, before: 0 })
    }

    fn are_several(&self) -> bool {
        self.files.len() > 1
    }

    /// Whether a file is one of those that are read.
    fn has(&self, file: &Path) -> bool {
        let Ok(file) = file.canonicalize() else { return false };
        let is_it = |path: PathBuf| path.canonicalize().is_ok_and(|path| path == file);
        self.files.iter().flat_map(Reader::paths).any(is_it)
    }

    /// The number of all records, which can then be reached by their positions if they must be.
    fn count(&mut self, by_position: bool) -> anyhow::Result<u64> {
        self.files.iter_mut().map(|file| file.count(by_position)).sum()
    }

    /// Gives the record at a position; `false` if there are fewer.
    fn visit(&mut self, position: u64, take: Take<'_>) -> anyhow::Result<bool> {
        /// So many files are open at once, each with what it has unpacked.
        const OPEN_MAX: usize = 64;

        if position < self.before {
            (self.current, self.before) = (0, 0);
        }
        let are_open = self.files.iter().filter(|file| file.is_open()).count();
        if are_open > OPEN_MAX {
            let others = self.files.iter_mut().enumerate().filter(|(file, _)| *file != self.current);
            others.for_each(|(_, file)| file.close());
        }
        while let Some(file) = self.files.get_mut(self.current) {
            let within =
                position.checked_sub(self.before).context("a file has fewer records than it states")?;
            if file.records().is_none_or(|records| within < records) && file.visit(within, position, take)? {
                return Ok(true);
            }
            self.before += file.ended_at();
            self.current += 1;
        }
        Ok(false)
    }
}

impl Reader {
    fn path(&self) -> &Path {
        match self {
            Reader::Shard { shard, .. } => shard.path(),
            Reader::Own { source, .. } => source.path(),
        }
    }

    fn paths(&self) -> Vec<PathBuf> {
        match self {
            Reader::Shard { shard, .. } => shard.files(),
            Reader::Own { source, .. } => vec![source.path().to_owned()],
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Reader::Shard { cursor, .. } => cursor.is_some(),
            Reader::Own { cursor, .. } => cursor.is_some(),
        }
    }

    /// Lets go of what it has open; it is opened again at the record that is wanted.
    fn close(&mut self) {
        let (Reader::Shard { next, .. } | Reader::Own { next, .. }) = self;
        *next = 0;
        match self {
            Reader::Shard { cursor, .. } => *cursor = None,
            Reader::Own { cursor, .. } => *cursor = None,
        }
    }

    fn records(&self) -> Option<u64> {
        match self {
            Reader::Shard { places: Some(places), .. } => Some(places.len() as u64),
            Reader::Shard { shard, .. } => shard.records(),
            Reader::Own { source, .. } => source.records(),
        }
    }

    /// The number of its records, once all of them were read or counted.
    fn ended_at(&self) -> u64 {
        let (Reader::Shard { next, .. } | Reader::Own { next, .. }) = self;
        self.records().unwrap_or(*next)
    }

    fn count(&mut self, by_position: bool) -> anyhow::Result<u64> {
        match self {
            Reader::Shard { shard, places, .. } => match (shard.seeks(), shard.records()) {
                (Seeks::ByPosition, Some(records)) => return Ok(records),
                (_, Some(records)) if !by_position => return Ok(records),
                (Seeks::InOrder(why), _) if by_position => {
                    bail!("{}: its records have no places: {why}", shown::path(shard.path()))
                }
                _ => {
                    let mut cursor = Arc::clone(shard).cursor()?;
                    let mut found = Vec::new();
                    while let Some(place) = cursor.skip()? {
                        found.push(place);
                    }
                    *places = Some(found);
                }
            },
            Reader::Own { source, .. } => {
                if by_position {
                    source.index(&IndexPlace::Memory)?;
                }
                source.count(&IndexPlace::Memory)?;
            }
        }
        self.records().with_context(|| format!("{}: its records cannot be counted", shown::path(self.path())))
    }

    /// Gives the record at a position of the file, which is `number` among all; `false` if there is none.
    fn visit(&mut self, position: u64, number: u64, take: Take<'_>) -> anyhow::Result<bool> {
        match self {
            Reader::Shard { shard, cursor, next, places } => {
                let cursor = match cursor {
                    Some(cursor) => cursor,
                    none => none.insert(Arc::clone(shard).cursor()?),
                };
                if *next != position {
                    let known =
                        usize::try_from(position).ok().and_then(|at| places.as_ref()?.get(at).copied());
                    cursor.seek(known.map_or_else(|| shard.place(position), Ok)?, position)?;
                    *next = position;
                }
                let Some(record) = cursor.advance()? else { return Ok(false) };
                *next += 1;
                let grammar = shard.grammar();
                let parts = grammar.parts(record.value.bytes());
                let parts = parts.map_err(|fault| {
                    FormatError::damaged(shard.path(), fault.to_string()).record(position)
                })?;
                take(&record.key, &parts)?;
            }
            Reader::Own { source, cursor, next, has_keys } => {
                let cursor = match cursor {
                    Some(cursor) => cursor,
                    none => none.insert(source.cursor()?),
                };
                if *next != position {
                    cursor.seek(position)?;
                    *next = position;
                }
                let Some(entry) = cursor.advance()? else { return Ok(false) };
                *next += 1;
                let key = if *has_keys { Key::Bytes(entry.key()) } else { Key::Number(number) };
                take(&key, &sample_of_record(entry.value()))?;
            }
        }
        Ok(true)
    }
}
