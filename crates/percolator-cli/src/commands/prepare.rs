//! `percolator prepare`: makes data sets from raw data.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::builder::{BoolishValueParser, OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use percolator_files::shown::{self, count};
use percolator_text::xlnet::{self, Flags, Options, PassSummary, Progress, Split, Summary};
use serde_json::{Value, json};

use crate::terminal::out::{json_line, stdout};
use crate::terminal::progress::{megabytes_per_second, watched};

#[derive(Debug, Args)]
pub(super) struct Prepare {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Turn text into XLNet's records, with exactly the values of its public script data_utils.py.
    ///
    /// All flags of the script exist, with its names (hyphens or underscores) and its defaults. Booleans are
    /// set as --uncased=true. Writes DIR/corpus_info.json and, in DIR/tfrecords, a file of records and its
    /// record_info for each task and pass. A file is complete or absent, also after an interrupt.
    ///
    /// Memory: 4 bytes for each token of the tasks under way, however many passes are made of them.
    Xlnet(Box<Xlnet>),
}

impl Prepare {
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Xlnet(xlnet) => xlnet.run(),
        }
    }
}

#[derive(Debug, Args)]
struct Xlnet {
    /// The files to read: a pattern with *, ? and [...]. They are read in the order of their paths.
    #[arg(long, value_name = "GLOB", alias = "input-glob", alias = "input_glob",
        value_parser = any_path(), default_value_os_t = Flags::default().input_glob)]
    input: PathBuf,
    /// The SentencePiece model.
    #[arg(long, value_name = "FILE", alias = "sp-path", alias = "sp_path", value_parser = any_path())]
    sp_model: PathBuf,
    /// Where the data are written.
    #[arg(short, long, value_name = "DIR", alias = "save-dir", alias = "save_dir",
        value_parser = any_path(), default_value_os_t = Flags::default().save_dir)]
    out: PathBuf,

    // The batches, and their rows.
    /// Rows per batch.
    #[arg(long, alias = "bsz_per_host", value_name = "ROWS", default_value_t = Flags::default().bsz_per_host)]
    bsz_per_host: u32,
    /// Cores that share a batch.
    #[arg(long, alias = "num_core_per_host", value_name = "CORES",
        default_value_t = Flags::default().num_core_per_host)]
    num_core_per_host: u32,
    /// If false, there is one core per host, whatever --num-core-per-host is.
    #[arg(long, alias = "use_tpu", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    use_tpu: bool,
    /// Tokens per row.
    #[arg(long, alias = "seq_len", value_name = "TOKENS", default_value_t = Flags::default().seq_len)]
    seq_len: u32,
    /// The tokens at the front of a row that the next batch's row continues: half of --seq-len.
    #[arg(long, alias = "reuse_len", value_name = "TOKENS", default_value_t = Flags::default().reuse_len)]
    reuse_len: u32,
    /// The second half of each core's rows is the first half, backwards.
    #[arg(long, alias = "bi_data", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    bi_data: bool,

    // What is predicted.
    /// Tokens of context for each token of a masked n-gram.
    #[arg(long, alias = "mask_alpha", value_name = "TOKENS", default_value_t = Flags::default().mask_alpha)]
    mask_alpha: u32,
    /// What the context is divided by.
    #[arg(long, alias = "mask_beta", value_name = "TOKENS", default_value_t = Flags::default().mask_beta)]
    mask_beta: u32,
    /// Masked tokens per row.
    #[arg(long, alias = "num_predict", value_name = "TOKENS", default_value_t = 85)]
    num_predict: u32,
    /// Mask as many tokens as the n-grams have.
    #[arg(long, alias = "no-num_predict", alias = "no_num_predict", conflicts_with = "num_predict")]
    no_num_predict: bool,
    /// Mask whole words: the script looks for the end of an n-gram at its beginning, and so masks tokens.
    /// corpus_info.json then has "fix_quirks": true.
    #[arg(long, alias = "fix_quirks")]
    fix_quirks: bool,

    // How the files are read.
    /// Put the text into lower case.
    #[arg(long, value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    uncased: bool,
    /// An empty line ends a document, which is marked by a token; if false, empty lines are skipped.
    #[arg(long, alias = "use_eod", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    use_eod: bool,
    /// If false, the files are token numbers.
    #[arg(long, alias = "from_raw_text", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true",
        action = clap::ArgAction::Set)]
    from_raw_text: bool,

    // Which part of the data is made, with which random numbers.
    /// What the data are for: train, dev or test. Part of the files' names.
    #[arg(long, default_value_t)]
    split: Split,
    /// The pass over the text. Each draws other masks and segments, and another order of the files.
    #[arg(long, alias = "pass_id", value_name = "PASS", default_value_t = 0)]
    pass_id: u32,
    /// Write this many passes at once, from --pass-id on.
    #[arg(long, alias = "num_passes", value_name = "PASSES", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    num_passes: u32,
    /// The number of tasks among which the files are divided.
    #[arg(long, alias = "num_task", value_name = "TASKS", default_value_t = 1)]
    num_task: u32,
    /// The task to write: every --num-task-th file, from this one on.
    #[arg(long, default_value_t = 0)]
    task: u32,
    /// Write all tasks at once.
    #[arg(long, alias = "all_tasks", conflicts_with = "task")]
    all_tasks: bool,
    /// Seeds CPython's random, from which the segments of each task's pass are drawn [default: 100 * task +
    /// pass, as for NumPy's]. With one seed, several passes draw the same segments.
    #[arg(long, alias = "python_seed", value_name = "SEED", allow_negative_numbers = true)]
    python_seed: Option<i64>,
    /// Threads [default: one per processor].
    #[arg(short = 'j', long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,

    // What is said of it.
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
    /// Print what was written as JSON.
    #[arg(long)]
    json: bool,
}

/// A path, which may be empty, as the script's may: then --out is the current folder.
fn any_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

impl Xlnet {
    fn options(&self) -> Options {
        let flags = Flags {
            input_glob: self.input.clone(),
            sp_path: self.sp_model.clone(),
            save_dir: self.out.clone(),
            use_tpu: self.use_tpu,
            bsz_per_host: self.bsz_per_host,
            num_core_per_host: self.num_core_per_host,
            seq_len: self.seq_len,
            reuse_len: self.reuse_len,
            uncased: self.uncased,
            bi_data: self.bi_data,
            mask_alpha: self.mask_alpha,
            mask_beta: self.mask_beta,
            num_predict: (!self.no_num_predict).then_some(self.num_predict),
            use_eod: self.use_eod,
            from_raw_text: self.from_raw_text,
            split: self.split,
            pass_id: self.pass_id,
            num_task: self.num_task,
            task: self.task,
        };
        Options {
            flags,
            num_passes: self.num_passes,
            all_tasks: self.all_tasks,
            python_seed: self.python_seed,
            fix_quirks: self.fix_quirks,
            threads: self.threads.map(usize::from),
        }
    }

    fn run(self) -> anyhow::Result<()> {
        let options = self.options();
        let start = Instant::now();
        let mut first_record = None;
        let message = |progress: &Progress, took| rate(progress, took, &mut first_record);
        let summary = watched(self.quiet, message, |progress, _| Ok(xlnet::prepare(&options, progress)?))?;
        let mut out = stdout();
        match self.json {
            true => writeln!(out, "{}", json_line("percolator.prepare.xlnet/1", &facts(&summary))?)?,
            false => report(&summary, start.elapsed(), &mut out)?,
        }
        out.finish()
    }
}

/// The rate of what is being done: text that is cut into tokens, then records that are written.
#[expect(clippy::cast_precision_loss, reason = "it is shown with no decimals")]
fn rate(progress: &Progress, took: Duration, first_record: &mut Option<Instant>) -> String {
    let records = progress.records();
    if records == 0 {
        return format!("{:.1} MB of text/s", megabytes_per_second(progress.done(), took));
    }
    let since = first_record.get_or_insert_with(Instant::now).elapsed();
    match since.is_zero() {
        true => format!("{records} records"),
        false => format!("{records} records, {:.0}/s", records as f64 / since.as_secs_f64().max(0.1)),
    }
}

/// What was written, and what was skipped, for programs.
fn facts(summary: &Summary) -> Value {
    let text = &summary.text;
    let pass = |pass: &PassSummary| {
        json!({
            "task": pass.task, "pass": pass.pass, "records_path": pass.records_path.to_string_lossy(),
            "batches": pass.batches,
            "records": pass.records, "tokens_left": pass.tokens_left,
        })
    };
    json!({
        "passes": summary.passes.iter().map(pass).collect::<Vec<_>>(),
        "tokens": text.tokens, "lines": text.lines, "files": text.files, "empty_files": text.empty_files,
        "files_without_tokens": text.files_without_tokens, "blank_lines_skipped": text.blank_lines_skipped,
        "lines_without_tokens": text.lines_without_tokens, "tasks_without_files": summary.tasks_without_files,
        "temporary_bytes_max": summary.temporary_bytes_max,
    })
}

/// Prints what was written, and what was skipped.
fn report(summary: &Summary, took: Duration, out: &mut impl Write) -> std::io::Result<()> {
    for pass in &summary.passes {
        writeln!(
            out,
            "task {} pass {}: {} batches, {}: {}",
            pass.task,
            pass.pass,
            pass.batches,
            count(pass.records, "record"),
            shown::path(&pass.records_path)
        )?;
    }
    let records: u64 = summary.passes.iter().map(|pass| pass.records).sum();
    let text = &summary.text;
    #[expect(clippy::cast_precision_loss, reason = "it is shown with no decimals")]
    let rate = records as f64 / took.as_secs_f64().max(1e-9);
    writeln!(
        out,
        "{} in {:.2} s, {rate:.0}/s; {} of {} in {}; at most {} bytes in temporary files",
        count(records, "record"),
        took.as_secs_f64(),
        count(text.tokens, "token"),
        count(text.lines, "line"),
        count(text.files, "file"),
        summary.temporary_bytes_max
    )?;
    let skipped = [
        (text.empty_files, "empty file", ""),
        (text.files_without_tokens, "file", " without a token"),
        (text.blank_lines_skipped, "blank line", ""),
        (text.lines_without_tokens, "line", " without a token"),
        (summary.tasks_without_files, "task", " without a file"),
    ];
    for (number, what, which) in skipped.into_iter().filter(|(number, ..)| *number > 0) {
        writeln!(out, "skipped: {}{which}", count(number, what))?;
    }
    for of_pass in summary.passes.iter().filter(|pass| pass.tokens_left > 0) {
        let (task, pass) = (of_pass.task, of_pass.pass);
        writeln!(
            out,
            "left over: {} tokens of task {task} pass {pass}, which no row begins with",
            of_pass.tokens_left
        )?;
    }
    Ok(())
}
