//! What can be wrong with the files of a data set.

use std::io;
use std::path::PathBuf;

use percolator::source::SourceError;
use percolator_files::shown;

use super::DataFlags;
use crate::xlnet::Split;
use crate::xlnet::decoder::InputError;

/// Why a folder cannot be opened as a data set.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A folder or a file cannot be read.
    #[error("cannot read {}", shown::path(path))]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder has no `record_info` of the split.
    #[error(
        "{} has no record_info-{split}-*.json{}{}: give the folder that percolator prepare xlnet wrote \
         (--out), or its tfrecords folder",
        shown::path(folder),
        flags.map(|flags| format!(" with the flags {flags}")).unwrap_or_default(),
        found.map(|found| format!("; there is one with the flags {found}")).unwrap_or_default()
    )]
    NoInfo {
        /// The folder.
        folder: PathBuf,
        /// The requested split.
        split: Split,
        /// The requested flags, if any were.
        flags: Option<DataFlags>,
        /// The flags of one that is there, if there is one of the split.
        found: Option<DataFlags>,
    },
    /// The name of a `record_info` is not the script's.
    #[error(
        "{} is not named as XLNet's data_utils.py names its files: {wrong}; the flags are read from names \
         such as record_info-train-0-0.bsz-32.seqlen-512.reuse-256.uncased.bi.alpha-6.beta-1.fnp-85.json",
        shown::path(path)
    )]
    Name {
        /// The file.
        path: PathBuf,
        /// What is wrong with its name.
        wrong: String,
    },
    /// The text of a `record_info` is not the script's.
    #[error("{} is not a record_info: {wrong}", shown::path(path))]
    Info {
        /// The file.
        path: PathBuf,
        /// What is wrong with its text.
        wrong: String,
    },
    /// Records were made with different flags.
    #[error(
        "{} has the flags {other}, and {} has {flags}: records of one data set have the same flags; name \
         those to use (XlnetData::open_with), or keep the others in another folder",
        shown::path(other_path),
        shown::path(path)
    )]
    FlagsDiffer {
        /// The first file.
        path: PathBuf,
        /// Its flags.
        flags: DataFlags,
        /// Another file.
        other_path: PathBuf,
        /// Its flags.
        other: DataFlags,
    },
    /// Some records have the script's quirks, and some do not.
    #[error(
        "{} has records {} the script's quirks, and {} does not: keep them in folders of their own, or \
         prepare one of them again (--fix-quirks)",
        shown::path(path),
        if *fix_quirks { "without" } else { "with" },
        shown::path(other_path)
    )]
    QuirksDiffer {
        /// The first `record_info`.
        path: PathBuf,
        /// Whether quirks are fixed in its records.
        fix_quirks: bool,
        /// Another `record_info`.
        other_path: PathBuf,
    },
    /// Records are of different preparations: text would come twice, or be missing.
    #[error(
        "{} and {} are of different preparations (of the second, {differs}): as one data set, they would \
         have text twice, or lack some: prepare into an empty folder, or remove one of them and its records",
        shown::path(path),
        shown::path(other_path)
    )]
    PreparationsDiffer {
        /// A `record_info`.
        path: PathBuf,
        /// Another one.
        other_path: PathBuf,
        /// What differs.
        differs: String,
    },
    /// A file does not have the records that its `record_info` states.
    #[error(
        "{} has {found} records, and must have {}: a part of it is missing, or its record_info is of another \
         run; prepare it again",
        shown::path(path),
        batches.map_or(format!("whole batches of {bsz}"), |batches| format!("{batches} batches of {bsz}"))
    )]
    Count {
        /// The file.
        path: PathBuf,
        /// Its records.
        found: u64,
        /// The records of a batch.
        bsz: u64,
        /// The batches that its `record_info` states, if it is of this file alone.
        batches: Option<u64>,
    },
    /// A file of records cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A requested pass is missing.
    #[error(
        "{} has no pass {pass} of task {task}, and {passes} passes (0 to {}) were asked for: ask for fewer, \
         or prepare it (--pass-id, --num-passes)",
        shown::path(folder),
        passes - 1
    )]
    MissingPass {
        /// The folder.
        folder: PathBuf,
        /// The task.
        task: u32,
        /// The pass.
        pass: u32,
        /// The number of passes that were requested.
        passes: u32,
    },
    /// Zero passes were requested.
    #[error("0 passes were asked for; ask for 1 or more, or for all (None)")]
    NoPasses,
    /// A file of records is not there.
    #[error("{} names the records {}, which are not there", shown::path(info), shown::path(records))]
    MissingRecords {
        /// The `record_info`.
        info: PathBuf,
        /// The file that it names.
        records: PathBuf,
        /// Why it cannot be used.
        source: io::Error,
    },
    /// Two `record_info` files name the same records, which would come twice.
    #[error(
        "two record_info-*.json of {} name the records {}, which would come twice: one of them is of another \
         file, or damaged; prepare it again",
        shown::path(folder),
        shown::path(records)
    )]
    NamedTwice {
        /// The folder.
        folder: PathBuf,
        /// The file that they name.
        records: PathBuf,
    },
    /// The data set has no batch.
    #[error("{} has no batch: every record_info-{split}-*.json states 0", shown::path(folder))]
    Empty {
        /// The folder.
        folder: PathBuf,
        /// The split.
        split: Split,
    },
    /// There is no such host, or the host gets no file.
    #[error(
        "host {host} of {hosts} gets no file of {files}: a host gets {files} / {hosts} of them, and the last \
         the rest; hosts count from 0, and there must be a file for each"
    )]
    NoHost {
        /// The host.
        host: usize,
        /// How many hosts there are.
        hosts: usize,
        /// How many files there are.
        files: usize,
    },
    /// The flags of the input function do not agree with each other.
    #[error(transparent)]
    Input(#[from] InputError),
}
