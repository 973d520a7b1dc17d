//! Prepares all tasks and passes of one call.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;

use percolator_files::parallel::try_map;
use percolator_files::{input_file, shown, whole_file};

use super::DataFlags;
use super::PrepareError;
use super::Progress;
use super::data::{INFO_BYTES_MAX, InfoName};
use super::flags::{Flags, Shape};
use super::glob;
use super::info::{RecordInfo, corpus_info};
use super::preparation::Preparation;
use super::records::Pass;
use super::stream::Stream;
use super::tokens::{self, TaskTokens, TextCounts};
use super::vocabulary::Vocabulary;
use crate::random::{NumpyRandom, PythonRandom};

/// What to prepare.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The script's flags.
    pub flags: Flags,
    /// How many passes to write, from [`Flags::pass_id`] on. 0 counts as 1.
    pub num_passes: u32,
    /// Whether to write all tasks instead of [`Flags::task`] alone.
    pub all_tasks: bool,
    /// The seed of CPython's `random`, from which each task's pass draws its segments. If not set, it is 100
    /// times the task plus the pass, as for NumPy, so that passes differ.
    ///
    /// The script does not seed it.
    pub python_seed: Option<i64>,
    /// Whether to fix the script's faults: n-grams then end where a word starts, so that whole words are
    /// predicted.
    pub fix_quirks: bool,
    /// How many threads to use; if not set, one per processor.
    pub threads: Option<usize>,
}

/// What was prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// What was read, of all tasks.
    pub text: TextCounts,
    /// What was written, for each task's pass.
    pub passes: Vec<PassSummary>,
    /// How many tasks get no file. They write nothing.
    pub tasks_without_files: u64,
    /// An upper bound of the bytes of temporary files that were there at one time: the tokens of the largest
    /// tasks, one for each thread. A token takes four bytes, and a sentence four more.
    pub temporary_bytes_max: u64,
}

/// What a task's pass wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PassSummary {
    /// The task.
    pub task: u32,
    /// The pass.
    pub pass: u32,
    /// The file of records.
    pub records_path: PathBuf,
    /// Batches in it.
    pub batches: u64,
    /// Records in it.
    pub records: u64,
    /// Tokens of the text that are in no row's reused part: the end of each row that is cut from the text,
    /// which is too short for another batch, and what is left after the cutting.
    pub tokens_left: u64,
}

/// Prepares XLNet's data: reads the files, writes the records of each task and pass, their `record_info`,
/// and, with task 0, `corpus_info.json`.
///
/// The result depends only on the flags, the files and the seeds, not on the number of threads. Each file is
/// either complete or absent. A `record_info` that is there describes the records that are there: it is
/// removed before other records take the place of those it describes.
///
/// Each `record_info` states what its records were [prepared from](Preparation). The folder may have others
/// of the split, with the same flags in their names, that this call does not replace. If one of them differs
/// in that, or in [`fix_quirks`](Options::fix_quirks), nothing is written
/// ([`PrepareError::Refused`]), because [`XlnetData`](super::XlnetData) would refuse both together.
/// Calls for single tasks or passes agree if their flags and files are the same.
///
/// The progress is in bytes of text, each of which counts once for being cut into tokens and once for each
/// pass that makes records of it. Stopped, the preparation ends at its next batch or block of text, with
/// [`PrepareError::Stopped`].
///
/// Memory does not grow with the text: each thread holds the tokens of some blocks of it, and the tokens of a
/// task are in a temporary file without a name beside the records.
///
/// # Errors
///
/// [`PrepareError`]
pub fn prepare(options: &Options, progress: &Progress) -> Result<Summary, PrepareError> {
    let flags = &options.flags;
    let shape = flags.shape()?;
    let first = u64::from(flags.pass_id);
    let passes = first..first + u64::from(options.num_passes.max(1));
    let Flags { task, num_task, .. } = *flags;
    if !options.all_tasks && task >= num_task {
        let last = num_task - 1;
        let message = format!("--task {task}: with --num-task {num_task}, tasks are 0 to {last}");
        return Err(PrepareError::Refused(message));
    }
    let tasks = if options.all_tasks { 0..flags.num_task } else { flags.task..flags.task.saturating_add(1) };
    // The last seed is the largest: if it is valid, all are.
    Flags::numpy_seed(tasks.end - 1, passes.end - 1)?;
    let vocabulary = Vocabulary::open(&flags.sp_path)?;
    let files = glob::expand(&flags.input_glob)?;
    let of_task = |task: u32| -> Vec<PathBuf> {
        files.iter().skip(task as usize).step_by(flags.num_task as usize).cloned().collect()
    };
    let with_files = tasks.start..tasks.end.min(u32::try_from(files.len()).unwrap_or(u32::MAX));
    let tasks_without_files = (tasks.len() - with_files.len()) as u64;
    // Those of all tasks: what this one's records state must be what the others' do.
    let lengths = files.iter().map(|path| fs::metadata(path).map_err(|source| unreadable(path, source)));
    let lengths = lengths.map(|found| found.map(|found| found.len())).collect::<Result<Vec<_>, _>>()?;
    let lengths_of = |task: u32| lengths.iter().skip(task as usize).step_by(flags.num_task as usize);
    let bytes: u64 = with_files.clone().flat_map(lengths_of).sum();
    progress.begin(bytes.saturating_mul(1 + passes.end - passes.start));
    let folder = flags.save_dir.join("tfrecords");
    // A `record_info` names its records in JSON, which would be others' names.
    if folder.to_str().is_none() {
        return Err(PrepareError::Refused(format!(
            "{}: the path is not UTF-8, and what names the records must be: write to another folder (--out)",
            shown::path(&folder)
        )));
    }
    fs::create_dir_all(&folder).map_err(|source| write_failed(&folder, source))?;

    let threads = options.threads.or_else(|| thread::available_parallelism().ok().map(Into::into));
    let threads = threads.unwrap_or(1).max(1);
    let at_once = threads.min(with_files.len()).max(1);
    let named = files.iter().map(PathBuf::as_path).zip(lengths.iter().copied());
    let preparation = Preparation::of(flags, vocabulary.hash(), named);
    let job = Job { options, shape: &shape, vocabulary: &vocabulary, preparation, folder: &folder, progress };
    let corpus = Corpus::of(options);
    let names = with_files.clone().flat_map(|task| passes.clone().map(move |pass| (task, pass)));
    let names = names.flat_map(|(task, pass)| {
        // A pass that is not a u32 has no seed, which was refused above.
        let pass = u32::try_from(pass).unwrap_or(u32::MAX);
        [flags.records_name(task, pass), flags.info_name(task, pass)]
    });
    let inputs = files.iter().map(|file| &**file).chain([&*flags.sp_path]);
    let inputs: HashSet<PathBuf> = inputs.filter_map(|path| path.canonicalize().ok()).collect();
    check_apart(&inputs, &folder, names)?;
    corpus.check_apart(&inputs)?;
    if !with_files.is_empty() {
        let is_replaced =
            |name: &InfoName| with_files.contains(&name.task) && passes.contains(&u64::from(name.pass));
        job.check_alike(is_replaced)?;
        corpus.remove_other()?;
    }
    let mut summary = Summary { tasks_without_files, ..Summary::default() };
    let work = |task| job.task(task, &of_task(task), passes.clone(), threads / at_once);
    let done = try_map("task", at_once, with_files, work)?;
    let mut held: Vec<u64> = done.iter().map(|task| task.temporary_bytes).collect();
    held.sort_unstable_by(|one, other| other.cmp(one));
    summary.temporary_bytes_max = held.iter().take(at_once).sum();
    for task in done {
        summary.text.add(&task.text);
        summary.passes.extend(task.passes);
    }
    if flags.task == 0 || options.all_tasks {
        corpus.write()?;
    }
    Ok(summary)
}

/// Checks that no output in a folder would replace what is read. There may be very many names, so they are
/// read only if an input is there.
fn check_apart(
    inputs: &HashSet<PathBuf>,
    folder: &Path,
    mut names: impl Iterator<Item = String>,
) -> Result<(), PrepareError> {
    let there = inputs_among(inputs, paths_in(folder)).map_err(|source| unreadable(folder, source))?;
    let replaced = |name: String| Some(folder.join(name)).filter(|output| there.contains(output));
    match if there.is_empty() { None } else { names.find_map(replaced) } {
        Some(output) => Err(is_input(&output)),
        None => Ok(()),
    }
}

/// The paths of what is in a folder, or why they cannot be listed.
fn paths_in(folder: &Path) -> impl Iterator<Item = io::Result<PathBuf>> {
    let (entries, failed) = match fs::read_dir(folder) {
        Ok(entries) => (Some(entries), None),
        Err(error) => (None, Some(Err(error))),
    };
    entries.into_iter().flatten().map(|entry| Ok(entry?.path())).chain(failed)
}

/// Which of these paths are read. If not all can be listed, one of the others may be.
fn inputs_among(
    inputs: &HashSet<PathBuf>,
    paths: impl Iterator<Item = io::Result<PathBuf>>,
) -> io::Result<HashSet<PathBuf>> {
    paths.filter(|path| path.as_ref().map_or(true, |path| is_one_of(inputs, path))).collect()
}

fn is_input(path: &Path) -> PrepareError {
    let path = shown::path(path);
    let fault = format!("{path}: it is read, and would be replaced: write to another folder (--out)");
    PrepareError::Refused(fault)
}

fn is_one_of(inputs: &HashSet<PathBuf>, path: &Path) -> bool {
    path.canonicalize().is_ok_and(|there| inputs.contains(&there))
}

/// The `corpus_info.json` of a call.
struct Corpus {
    path: PathBuf,
    text: String,
}

impl Corpus {
    fn of(options: &Options) -> Self {
        let path = options.flags.save_dir.join("corpus_info.json");
        Corpus { path, text: corpus_info(&options.flags, options.fix_quirks) }
    }

    /// Checks that it would replace nothing that is read.
    fn check_apart(&self, inputs: &HashSet<PathBuf>) -> Result<(), PrepareError> {
        if is_one_of(inputs, &self.path) {
            return Err(is_input(&self.path));
        }
        Ok(())
    }

    /// Removes one that was written with other flags: it would describe records that are about to be
    /// replaced. A file of this name that is something else stays.
    fn remove_other(&self) -> Result<(), PrepareError> {
        match fs::read(&self.path) {
            Ok(found) if !is_corpus_info(&found) => Err(PrepareError::Refused(format!(
                "{}: it is no corpus_info.json of XLNet's, so it is not replaced: write to another folder \
                     (--out)",
                shown::path(&self.path)
            ))),
            Ok(found) if found != self.text.as_bytes() => {
                fs::remove_file(&self.path).map_err(|source| write_failed(&self.path, source))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // It may have been written with other flags.
            Err(source) => Err(unreadable(&self.path, source)),
        }
    }

    fn write(&self) -> Result<(), PrepareError> {
        whole_file::write(&self.path, &[self.text.as_bytes()])
            .map_err(|source| write_failed(&self.path, source))
    }
}

/// Whether this is a `corpus_info.json`, of the script or of ours.
fn is_corpus_info(bytes: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<serde_json::Value>(bytes);
    parsed.is_ok_and(|value| {
        ["vocab_size", "bsz_per_host", "sp_path"].iter().all(|key| value.get(key).is_some())
    })
}

fn unreadable(path: &Path, source: io::Error) -> PrepareError {
    PrepareError::Read { path: shown::path(path).to_string(), source }
}

fn write_failed(path: &Path, source: io::Error) -> PrepareError {
    PrepareError::Write { path: shown::path(path).to_string(), source }
}

/// What all tasks share.
#[derive(Clone, Copy)]
struct Job<'a> {
    options: &'a Options,
    shape: &'a Shape,
    vocabulary: &'a Vocabulary,
    preparation: Preparation,
    folder: &'a Path,
    progress: &'a Progress,
}

/// What came of a task.
struct Done {
    text: TextCounts,
    passes: Vec<PassSummary>,
    temporary_bytes: u64,
}

impl Job<'_> {
    /// Checks that the records can be read together with those of the folder that are not replaced. Files of
    /// another split, or with other flags in their names, are never read with them.
    fn check_alike(&self, is_replaced: impl Fn(&InfoName) -> bool) -> Result<(), PrepareError> {
        let Options { flags, fix_quirks, .. } = self.options;
        for path in paths_in(self.folder) {
            let path = path.map_err(|source| unreadable(self.folder, source))?;
            // A name that is not the script's is refused by those who open the folder. So is another text.
            let Some(Ok(name)) = InfoName::of(&path, flags.split) else { continue };
            if name.flags != DataFlags::from(flags) || is_replaced(&name) {
                continue;
            }
            let text = match input_file::read(&path, INFO_BYTES_MAX) {
                Ok(text) => text,
                // Another process replaces it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(source) => return Err(unreadable(&path, source)),
            };
            let Some(info) = str::from_utf8(&text).ok().and_then(|text| RecordInfo::from_json(text).ok())
            else {
                continue;
            };
            let kept = if info.fix_quirks { "lack" } else { "have" };
            let quirks = || format!("its records {kept} the script's quirks");
            let differs = (info.fix_quirks != *fix_quirks).then(quirks);
            let differs =
                differs.or_else(|| self.preparation.differences(name.task, info.preparation.as_ref()));
            if let Some(differs) = differs {
                return Err(PrepareError::Refused(format!(
                    "{} is of another preparation: {differs}: nothing was written, because its records and \
                     the new ones cannot be read as one data set: write to another folder (--out), or remove \
                     it and its records",
                    shown::path(&path)
                )));
            }
        }
        Ok(())
    }

    /// Reads a task's files once, and writes its passes.
    fn task(
        &self,
        task: u32,
        files: &[PathBuf],
        passes: Range<u64>,
        threads: usize,
    ) -> Result<Done, PrepareError> {
        let flags = &self.options.flags;
        let tokens = tokens::read(flags, self.vocabulary, files, self.folder, threads, self.progress)?;
        if tokens.file_count() == 0 {
            let files = files.len();
            let fault = format!("task {task} has no text: none of its {files} files has a token");
            return Err(PrepareError::Refused(fault));
        }
        let bytes = files.iter().map(|path| fs::metadata(path).map_or(0, |found| found.len())).sum();
        let at_once = usize::try_from(passes.end - passes.start).unwrap_or(threads).min(threads);
        let written = try_map("pass", at_once, passes, |pass| self.pass(task, pass, &tokens, bytes))?;
        let temporary_bytes = tokens.bytes();
        Ok(Done { text: tokens.counts, passes: written, temporary_bytes })
    }

    /// Writes a task's pass.
    fn pass(
        &self,
        task: u32,
        pass: u64,
        tokens: &TaskTokens,
        work: u64,
    ) -> Result<PassSummary, PrepareError> {
        let flags = &self.options.flags;
        let seed = Flags::numpy_seed(task, pass)?;
        // The seed is not less than the pass.
        let pass = u32::try_from(pass).unwrap_or(seed);
        let mut numpy = NumpyRandom::new(seed);
        let order = numpy.permutation(tokens.file_count());
        let python = PythonRandom::new(self.options.python_seed.unwrap_or(i64::from(seed)));
        let stream = Stream::new(order.iter().flat_map(|file| tokens.parts(*file)));
        let records = Pass {
            task,
            shape: self.shape,
            vocabulary: self.vocabulary,
            mends_quirks: self.options.fix_quirks,
            progress: self.progress,
            work,
        };
        let records_path = self.folder.join(flags.records_name(task, pass));
        let path = self.folder.join(flags.info_name(task, pass));
        let num_batch = records.write(&stream, &records_path, python, numpy, || self.remove_info(&path))?;
        let info = RecordInfo {
            filenames: vec![records_path.to_string_lossy().into_owned()],
            num_batch,
            fix_quirks: self.options.fix_quirks,
            preparation: Some(self.preparation),
        };
        whole_file::write(&path, &[info.to_json().as_bytes()])
            .map_err(|source| write_failed(&path, source))?;
        let used = num_batch * self.shape.rows_cut as u64 * self.shape.reuse_len as u64;
        Ok(PassSummary {
            task,
            pass,
            records_path,
            batches: num_batch,
            records: num_batch * self.shape.rows as u64,
            tokens_left: stream.len() as u64 - used,
        })
    }

    /// Removes the `record_info` of records that are about to be replaced: if this ends before there is
    /// another, it would describe the new ones.
    fn remove_info(&self, path: &Path) -> Result<(), PrepareError> {
        let failed = |source| write_failed(path, source);
        if input_file::is_there(path).map_err(failed)? {
            whole_file::remove(path).map_err(failed)?;
            // If the machine fails now, it shall not come back. A file system that cannot sync a folder may
            // still keep this order.
            drop(File::open(self.folder).and_then(|folder| folder.sync_all()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_listed_to_its_end_may_have_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let [input, other] = ["input", "other"].map(|name| folder.path().join(name));
        [&input, &other].iter().for_each(|path| fs::write(path, "").unwrap());
        let inputs = HashSet::from([input.canonicalize().unwrap()]);
        let listed = || [Ok(other.clone()), Ok(input.clone())].into_iter();
        assert_eq!(inputs_among(&inputs, listed()).unwrap(), HashSet::from([input.clone()]));
        assert_eq!(inputs_among(&inputs, paths_in(folder.path())).unwrap(), HashSet::from([input.clone()]));
        let failed = listed().chain([Err(io::ErrorKind::StaleNetworkFileHandle.into())]);
        assert_eq!(inputs_among(&inputs, failed).unwrap_err().kind(), io::ErrorKind::StaleNetworkFileHandle);
        let missing = check_apart(&inputs, &folder.path().join("missing"), std::iter::empty());
        assert!(matches!(missing, Err(PrepareError::Read { path, .. }) if path.ends_with("missing")));
    }
}
