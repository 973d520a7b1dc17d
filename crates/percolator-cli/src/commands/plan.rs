//! `percolator plan`: prints who gets which records at which step, without reading any.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::builder::Resettable;
use clap::{Args, Id};
use percolator::Snapshot;
use percolator::order::{BatchSize, Job, Plan as JobPlan, World};
use percolator::record::StepId;
use percolator::source::{self, IndexPlace, LevelDb, Lmdb, LmdbOptions, TfRecord};
use percolator_files::shown;
use serde_json::json;

use crate::args::job::JobArgs;
use crate::args::source::{Database, Format, Source, SourceArgs, WHAT_TO_READ};
use crate::args::{OpenArgs, with};
use crate::commands::missing;

/// The number of steps printed by default.
const SHOWN_STEPS: u64 = 8;

/// The help of PATH, which is no net here.
const PATHS: &str = "\
An LMDB, a LevelDB, or TFRecord files (a file, a folder, or a quoted pattern such as 'train-*'). Several of \
them are one data set, in this order. --records or --files stand in for them";

#[derive(Debug, Args)]
#[command(
    mut_arg("paths", |arg| arg.required_unless_present(Resettable::<Id>::Reset).help(PATHS)),
    mut_arg("net", |arg| arg.hide(true)),
    mut_arg("lmdb", |arg| arg.num_args(1..)),
    mut_arg("leveldb", |arg| arg.num_args(1..)),
    mut_arg("tfrecord", |arg| arg.num_args(1..)))]
pub(crate) struct Plan {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    open: OpenArgs,
    /// Instead of a database: a data set of this many records.
    #[arg(long, value_name = "M", conflicts_with_all = WHAT_TO_READ, conflicts_with = "files")]
    records: Option<u64>,
    /// Instead of databases: files of these numbers of records.
    #[arg(long, value_name = "M,M,...", value_delimiter = ',', conflicts_with_all = WHAT_TO_READ)]
    files: Vec<u64>,
    /// Records per step, of all replicas of the job together.
    #[arg(long, value_name = "B")]
    global_batch_size: Option<u64>,
    /// Records per step and replica.
    #[arg(long, value_name = "B", conflicts_with = "global_batch_size")]
    per_replica_batch: Option<u64>,
    /// Workers (hosts, or processes).
    #[arg(long, value_name = "W", default_value_t = 1)]
    workers: usize,
    /// Replicas (devices) of all workers together [default: one per worker].
    #[arg(long, value_name = "R")]
    replicas: Option<usize>,
    #[command(flatten)]
    job: JobArgs,
    /// The seed of the shuffle.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The epoch, from 0 [default: 0, or the snapshot's].
    #[arg(long)]
    epoch: Option<u64>,
    /// Print what is left of this snapshot's run if it resumes as the job that the other options describe.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Only this step of the epoch, from 0.
    #[arg(long, value_name = "S")]
    step: Option<u64>,
    /// Only this replica, from 0.
    #[arg(long, value_name = "R")]
    replica: Option<usize>,
    /// Print one JSON object, with the positions of all records.
    #[arg(long)]
    json: bool,
}

impl Plan {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let mut out = BufWriter::new(std::io::stdout().lock());
        let printed =
            self.print(&mut out).and_then(|()| out.flush().context("cannot write to the standard output"));
        // A plan may be longer than anybody reads: it ends with its reader.
        printed.or_else(|error| if is_of_closed_pipe(&error) { Ok(()) } else { Err(error) })
    }

    fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let files = self.record_counts()?;
        let run = self.run_of(&self.job_of(&files)?)?;
        let epoch = self.epoch.unwrap_or(run.next.iter().min().map_or(0, |id| id.epoch));
        let count = run.plan.steps(epoch)?;
        let world = run.plan.world();
        let replicas = self.replica.map_or(0..world.replicas(), |replica| replica..replica.saturating_add(1));
        let first = replicas.clone().map(|replica| run.first_step(epoch, replica)).min();
        let rest = first.unwrap_or(0).min(count)..count;
        let steps = self.step.map_or(rest.clone(), |step| step..step.saturating_add(1));
        if self.step.is_some() || !steps.is_empty() {
            // Steps and replicas that do not exist are refused before anything is printed.
            run.plan.share(epoch, steps.start, replicas.start)?;
        }
        if self.json {
            print_json(out, &run, epoch, steps, &replicas)
        } else {
            print_heading(out, &run.plan, epoch, &files, &rest)?;
            print_steps(out, &run, epoch, steps, &replicas)
        }
    }

    fn run_of(&self, job: &Job) -> anyhow::Result<Run> {
        let Some(path) = &self.resume else { return Ok(Run { plan: job.plan()?, next: Vec::new() }) };
        let snapshot = Snapshot::load(path)?;
        let run = || format!("{}: the run", shown::path(path));
        let Some(plan) = snapshot.plan() else {
            bail!("{} is in Caffe's round-robin order and has no plan: resume it with feed --resume", run());
        };
        let next: Option<Vec<_>> = (0..snapshot.replicas()).map(|replica| snapshot.next(replica)).collect();
        let next =
            next.with_context(|| format!("{} has replicas whose step is not in the snapshot", run()))?;
        let (plan, next) =
            plan.resumed(job, &next).with_context(|| format!("{} cannot resume as this job", run()))?;
        Ok(Run { plan, next })
    }

    /// The number of records of each file.
    fn record_counts(&self) -> anyhow::Result<Vec<u64>> {
        if !self.source.is_given() {
            self.open.check_use(false, false)?;
        }
        if let Some(records) = self.records {
            return Ok(vec![records]);
        }
        if !self.files.is_empty() {
            return Ok(self.files.clone());
        }
        if !self.source.is_given() {
            missing("plan", "there is no data set: give PATH, --records M or --files M,M,...");
        }
        let source = self.source.found(Path::new(""), self.json)?;
        source.check_open(&self.open)?;
        let (databases, formats) = match &source {
            Source::Databases { databases, formats } => (databases, formats),
            Source::Net(net) => {
                let net = shown::path(net);
                bail!("{net}: this is a net, and a plan is of data: give the data that the net reads")
            }
        };
        let access = self.open.access();
        let lmdb = with(Lmdb::options().access(access), self.open.database.as_ref(), LmdbOptions::name);
        let leveldb = LevelDb::options().access(access).log_gaps(self.open.log_gaps());
        let tfrecord = TfRecord::options().access(access);
        let mut counts = Vec::new();
        for Database { format, path } in databases {
            match format {
                Format::Lmdb => counts.push(count(&lmdb.open(path)?)?),
                Format::LevelDb => counts.push(count(&leveldb.open(path)?)?),
                Format::TfRecord => {
                    for file in percolator_tfrecord::files(path)? {
                        counts.push(count(&tfrecord.open(file)?)?);
                    }
                }
                Format::Other => {
                    for shard in formats.open(path, access)?.into_sources()? {
                        counts.push(count(&*shard)?);
                    }
                }
            }
        }
        Ok(counts)
    }

    fn job_of(&self, files: &[u64]) -> anyhow::Result<Job> {
        let batch = match (self.global_batch_size, self.per_replica_batch) {
            (Some(records), _) => BatchSize::Global(records),
            (None, Some(records)) => BatchSize::PerReplica(records),
            (None, None) => {
                bail!("the records per step are not set: give --global-batch-size or --per-replica-batch")
            }
        };
        let world = World::new(self.workers, self.replicas.unwrap_or(self.workers))?;
        self.job.of_job(Job::new(files, batch, world).seed(self.seed))
    }
}

/// The run that is printed.
struct Run {
    plan: JobPlan,
    /// Each replica's next step, if the run resumes.
    next: Vec<StepId>,
}

impl Run {
    /// The first step of an epoch that a replica has not delivered; past the epoch's end if there is none.
    fn first_step(&self, epoch: u64, replica: usize) -> u64 {
        match self.next.get(replica) {
            Some(next) if next.epoch > epoch => u64::MAX,
            Some(next) if next.epoch == epoch => next.step,
            _ => 0,
        }
    }
}

fn print_json(
    out: &mut impl Write,
    run: &Run,
    epoch: u64,
    steps: Range<u64>,
    replicas: &Range<usize>,
) -> anyhow::Result<()> {
    let plan = &run.plan;
    // Positions are streamed: a step may have more of them than fit in memory.
    write!(out, "{{\"schema\": \"percolator.plan/1\", \"steps\": ")?;
    write_list(out, steps.clone(), |out, step| {
        write_list(out, replicas.clone(), |out, replica| {
            if step < run.first_step(epoch, replica) {
                return write!(out, "[]");
            }
            let records = plan.share(epoch, step, replica).map_err(io::Error::other)?;
            write_list(out, records, |out, record| write!(out, "{}", record.index))
        })
    })?;
    let (policy, why) = plan.policy();
    let rest = json!({
        "policy": policy.name().to_lowercase(),
        "why": why,
        "epoch": epoch,
        "epoch_steps": plan.steps(epoch)?,
        "first_step": steps.start,
        "first_replica": replicas.start,
        "batch_size_max": plan.batch_size_max(),
    });
    writeln!(out, ", {}", rest.to_string().trim_start_matches('{'))?;
    Ok(())
}

fn print_heading(
    out: &mut impl Write,
    plan: &JobPlan,
    epoch: u64,
    files: &[u64],
    rest: &Range<u64>,
) -> anyhow::Result<()> {
    let (policy, why) = plan.policy();
    let world = plan.world();
    let records: u64 = files.iter().sum();
    writeln!(out, "{} in {}", shown::count(records, "record"), shown::count(files.len(), "file"))?;
    let replicas = shown::count(world.replicas(), "replica");
    writeln!(out, "{replicas} of {}", shown::count(world.workers(), "worker"))?;
    writeln!(out, "sharded by {policy}: {why}")?;
    writeln!(out, "at most {} per replica and step", shown::count(plan.batch_size_max(), "record"))?;
    write!(out, "epoch {epoch}: {}", shown::count(rest.end, "step"))?;
    if rest.start > 0 {
        write!(out, ", {} left", rest.end - rest.start)?;
    }
    writeln!(out)?;
    Ok(())
}

fn print_steps(
    out: &mut impl Write,
    run: &Run,
    epoch: u64,
    steps: Range<u64>,
    replicas: &Range<usize>,
) -> anyhow::Result<()> {
    let plan = &run.plan;
    let shown = steps.start..steps.end.min(steps.start.saturating_add(SHOWN_STEPS));
    for step in shown.clone() {
        for replica in replicas.clone() {
            let worker = replica / plan.world().replicas_per_worker();
            if step < run.first_step(epoch, replica) {
                writeln!(out, "step {step}, replica {replica} of worker {worker}: delivered before")?;
                continue;
            }
            let records = plan.share(epoch, step, replica)?;
            let count = records.len();
            write!(out, "step {step}, replica {replica} of worker {worker}: {count} record(s)")?;
            write_runs(out, records.map(|record| record.index))?;
        }
    }
    if shown.end < steps.end {
        writeln!(out, "... and {} more: give --step, or --json", steps.end - shown.end)?;
    }
    Ok(())
}

/// Whether the reader of the output has closed it. Nothing else that is printed here writes to a pipe.
fn is_of_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// The number of records of a source. If it is not stored, they are counted.
fn count(source: &dyn source::Source) -> anyhow::Result<u64> {
    if source.records().is_none() {
        source.count(&IndexPlace::Memory)?;
    }
    source.records().with_context(|| format!("{}: cannot count its records", shown::path(source.path())))
}

/// Writes items as a JSON list.
fn write_list<W: Write, T>(
    out: &mut W,
    items: impl IntoIterator<Item = T>,
    mut write_item: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, "[")?;
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            write!(out, ",")?;
        }
        write_item(out, item)?;
    }
    write!(out, "]")
}

/// Ends a line with positions; consecutive ones are written as `first-last`.
fn write_runs(out: &mut impl Write, mut positions: impl Iterator<Item = u64>) -> io::Result<()> {
    let mut write_run = |separator, (first, last)| match first == last {
        true => write!(out, "{separator}{first}"),
        false => write!(out, "{separator}{first}-{last}"),
    };
    if let Some(first) = positions.next() {
        let (mut separator, mut run) = (": ", (first, first));
        for position in positions {
            if position.checked_sub(1) == Some(run.1) {
                run.1 = position;
            } else {
                write_run(separator, run)?;
                (separator, run) = (", ", (position, position));
            }
        }
        write_run(separator, run)?;
    }
    writeln!(out)
}
