//! The flags of XLNet's `data_utils.py`, and the names that it gives its files.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{DataFlags, PrepareError};

/// The flags of the script, with its names and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `--input_glob`: which files to read, by the rules of `fnmatch`. They are read in the order of their
    /// paths.
    pub input_glob: PathBuf,
    /// `--sp_path`: the SentencePiece model.
    pub sp_path: PathBuf,
    /// `--save_dir`: where the data are written: `corpus_info.json`, and the records in `tfrecords/`.
    pub save_dir: PathBuf,
    /// `--use_tpu`: if not set, a host has one core, whatever [`num_core_per_host`](Self::num_core_per_host)
    /// is.
    pub use_tpu: bool,
    /// `--bsz_per_host`: rows per batch.
    pub bsz_per_host: u32,
    /// `--num_core_per_host`: the cores that share a batch, in equal parts.
    pub num_core_per_host: u32,
    /// `--seq_len`: tokens per row.
    pub seq_len: u32,
    /// `--reuse_len`: the length of a row's reused part, the tokens at its front, which the row of the next
    /// batch continues. It must be half of `seq_len`.
    pub reuse_len: u32,
    /// `--uncased`: put the text into lower case.
    pub uncased: bool,
    /// `--bi_data`: the second half of each core's rows is the first half backwards.
    pub bi_data: bool,
    /// `--mask_alpha`: tokens of context for each token of a masked n-gram, before `mask_beta` divides them.
    pub mask_alpha: u32,
    /// `--mask_beta`: what the context of a masked n-gram is divided by.
    pub mask_beta: u32,
    /// `--num_predict`: how many tokens of a row are masked; if not set, as many as the n-grams have.
    pub num_predict: Option<u32>,
    /// `--use_eod`: an empty line ends a document, which is marked by a token. If not, empty lines are
    /// skipped.
    pub use_eod: bool,
    /// `--from_raw_text`: the files are text. If not, they are token numbers.
    pub from_raw_text: bool,
    /// `--split`: what the data are for. It is part of the files' names.
    pub split: Split,
    /// `--pass_id`: which pass over the text this is. Each pass draws other masks and another order of the
    /// files.
    pub pass_id: u32,
    /// `--num_task`: the number of tasks that the files are divided among.
    pub num_task: u32,
    /// `--task`: which task this is. It takes every `num_task`-th file, from this one on.
    pub task: u32,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            input_glob: "data/example/*.txt".into(),
            sp_path: PathBuf::new(),
            save_dir: "proc_data/example".into(),
            use_tpu: true,
            bsz_per_host: 32,
            num_core_per_host: 8,
            seq_len: 512,
            reuse_len: 256,
            uncased: true,
            bi_data: true,
            mask_alpha: 6,
            mask_beta: 1,
            num_predict: Some(85),
            use_eod: true,
            from_raw_text: true,
            split: Split::Train,
            pass_id: 0,
            num_task: 1,
            task: 0,
        }
    }
}

/// What the data are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Split {
    /// Training.
    #[default]
    Train,
    /// Development.
    Dev,
    /// Testing.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Split::Train => "train",
            Split::Dev => "dev",
            Split::Test => "test",
        })
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "train" => Ok(Split::Train),
            "dev" => Ok(Split::Dev),
            "test" => Ok(Split::Test),
            other => Err(format!("{other} is none of train, dev and test")),
        }
    }
}

/// The shape of a batch's rows, from flags that agree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Rows per batch.
    pub(super) rows: usize,
    /// Rows that are cut from the text: half of all rows if the other half runs backwards.
    pub(super) rows_cut: usize,
    /// Cores that share a batch.
    pub(super) cores: usize,
    pub(super) seq_len: usize,
    pub(super) reuse_len: usize,
    /// How many tokens are masked in a row's reused half, and in its other half.
    pub(super) masked: Option<[usize; 2]>,
    pub(super) mask_alpha: usize,
    pub(super) mask_beta: usize,
    pub(super) has_backward_rows: bool,
}

impl Shape {
    /// The tokens of A and B together.
    pub(super) fn segment_tokens(&self) -> usize {
        // Two separators and the class symbol follow them.
        self.seq_len - self.reuse_len - 3
    }

    /// Whether a row of the batch runs backwards.
    pub(super) fn is_backward(&self, row: usize) -> bool {
        self.has_backward_rows && row / self.rows_of_direction() % 2 == 1
    }

    /// The number of the cut row that a row of the batch is.
    pub(super) fn cut_of(&self, row: usize) -> usize {
        if !self.has_backward_rows {
            return row;
        }
        let rows = self.rows_of_direction();
        row / (2 * rows) * rows + row % rows
    }

    /// The number of a core's rows that run in one direction.
    fn rows_of_direction(&self) -> usize {
        self.rows / self.cores / 2
    }
}

impl Flags {
    /// The cores that share a batch.
    pub(super) fn cores(&self) -> u32 {
        if self.use_tpu { self.num_core_per_host } else { 1 }
    }

    /// Checks that the flags agree.
    pub(super) fn shape(&self) -> Result<Shape, PrepareError> {
        let refuse = |message: String| Err(PrepareError::Refused(message));
        let (rows, cores) = (self.bsz_per_host, self.num_core_per_host);
        if rows == 0 || cores == 0 || rows % cores != 0 {
            return refuse(format!("--bsz-per-host {rows} is not a multiple of --num-core-per-host {cores}"));
        }
        let cores = self.cores();
        let both_ways = 2 * u64::from(cores);
        if self.bi_data && u64::from(rows) % both_ways != 0 {
            return refuse(format!(
                "--bsz-per-host {rows} is not a multiple of {both_ways}, twice the cores, as --bi-data needs"
            ));
        }
        let (seq_len, reuse_len) = (self.seq_len, self.reuse_len);
        if seq_len < 8 || seq_len % 2 != 0 || reuse_len != seq_len / 2 {
            return refuse(format!(
                "--seq-len {seq_len} and --reuse-len {reuse_len} do not agree: --reuse-len must be half of \
                 --seq-len, which must be even and at least 8"
            ));
        }
        if self.mask_beta == 0 || (self.mask_alpha < self.mask_beta && self.num_predict != Some(0)) {
            return refuse(format!(
                "--mask-alpha {} is less than --mask-beta {}, or that is 0: an n-gram of one token would \
                 have no context",
                self.mask_alpha, self.mask_beta
            ));
        }
        let most = 2 * u64::from(reuse_len);
        let masked = self.num_predict.map(|all| [all - all / 2, all / 2]);
        if masked.is_some_and(|[first, _]| first > reuse_len) {
            return refuse(format!(
                "--num-predict {} is more than the {most} tokens of a row",
                self.num_predict.unwrap_or_default()
            ));
        }
        if self.num_task == 0 {
            return refuse("--num-task is 0, and must be at least 1".to_owned());
        }
        let rows = rows as usize;
        Ok(Shape {
            rows,
            rows_cut: if self.bi_data { rows / 2 } else { rows },
            cores: cores as usize,
            seq_len: seq_len as usize,
            reuse_len: reuse_len as usize,
            masked: masked.map(|halves| halves.map(|half| half as usize)),
            mask_alpha: self.mask_alpha as usize,
            mask_beta: self.mask_beta as usize,
            has_backward_rows: self.bi_data,
        })
    }

    /// The seed of NumPy's generator for a task's pass.
    pub(super) fn numpy_seed(task: u32, pass: u64) -> Result<u32, PrepareError> {
        let seed = u64::from(task) * 100 + pass;
        u32::try_from(seed).map_err(|_| {
            PrepareError::Refused(format!(
                "100 times task {task} plus pass {pass} is {seed}, and NumPy's seeds end at {}",
                u32::MAX
            ))
        })
    }

    /// The name of the records of a task's pass.
    #[must_use]
    pub fn records_name(&self, task: u32, pass: u32) -> String {
        self.file_name(&format!("{}-{task}-{pass}", self.split), "tfrecords")
    }

    /// The name of the information about the records of a task's pass.
    #[must_use]
    pub fn info_name(&self, task: u32, pass: u32) -> String {
        self.file_name(&format!("record_info-{}-{task}-{pass}", self.split), "json")
    }

    /// A name as the script's `format_filename` gives it.
    fn file_name(&self, prefix: &str, suffix: &str) -> String {
        format!("{prefix}.{}.{suffix}", DataFlags::from(self))
    }
}
