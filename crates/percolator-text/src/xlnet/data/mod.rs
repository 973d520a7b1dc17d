//! Prepared records as a data set: the `record_info` files of a folder, found, checked and merged.

mod error;
mod name;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use percolator::order::BatchSize;
use percolator::source::{IndexPlace, Source as _, TfRecord};
use percolator::{Feed, FeedBuilder, Shuffle};
use percolator_files::{input_file, shown};

pub use self::error::DataError;
pub use self::name::DataFlags;

pub(super) use self::name::InfoName;
use super::decoder::{InputFlags, XlnetDecoder};
use super::{Preparation, RecordInfo, Split};

/// The longest `record_info` that is read: the names of hundreds of thousands of files.
pub(super) const INFO_BYTES_MAX: u64 = 64 << 20;

/// A data set of XLNet's: what [`prepare`](super::prepare) or the script wrote, ready to be fed.
///
/// ```no_run
/// use percolator_text::xlnet::{Split, XlnetData};
///
/// let data = XlnetData::open("data", Split::Train, None)?;
/// let mut feed = data.builder()?.epochs(10).seed(7).build()?;
/// for step in feed.steps() {
///     for batch in step? {
///         let perm_mask = batch.get::<f32>("perm_mask")?; // [batch, seq_len, seq_len]
/// #       let _ = perm_mask;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Each batch continues where the previous one ended: in the text, the reused part of its row `r` follows the
/// reused part of row `r` of the previous batch. So records are never shuffled; only the order of whole files
/// is.
#[derive(Clone, Debug)]
pub struct XlnetData {
    files: Vec<PathBuf>,
    /// What each file must have: its number of batches, if its `record_info` names no other file.
    batches: Vec<Option<u64>>,
    /// Whether the script's quirks are fixed in all of them.
    fix_quirks: bool,
    num_batch: u64,
    flags: DataFlags,
    input: InputFlags,
    host: usize,
    /// The `record_info` that the flags were read from, for messages.
    named_by: PathBuf,
}

impl XlnetData {
    /// Opens the records of a split in a folder: the folder of the `record_info` files, or the one above it,
    /// which `prepare` was given. `passes` is the number of passes to read of each task, from pass 0 on;
    /// `None` reads all there are.
    ///
    /// The flags are read from the files' names, and must be the same in all of them. So must be what the
    /// records were [prepared from](Preparation), as far as the `record_info` files state it: those of the
    /// script do not.
    ///
    /// The files are in the order of the names of their `record_info`s, as in the script (so task 10 comes
    /// before task 2). They are looked for in the folder of their `record_info`, wherever they were written.
    ///
    /// # Errors
    ///
    /// [`DataError`] if there are none, if their flags or [preparations](Preparation) differ, if a pass of a
    /// task is missing, or if a file is missing, named twice or not one of the script's.
    pub fn open(
        folder: impl AsRef<Path>,
        split: Split,
        passes: impl Into<Option<u32>>,
    ) -> Result<Self, DataError> {
        Self::open_those(folder.as_ref(), None, split, passes.into())
    }

    /// Opens the records with these flags, in a folder that may have others as well.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(
        folder: impl AsRef<Path>,
        flags: &DataFlags,
        split: Split,
        passes: impl Into<Option<u32>>,
    ) -> Result<Self, DataError> {
        Self::open_those(folder.as_ref(), Some(*flags), split, passes.into())
    }

    fn open_those(
        folder: &Path,
        wanted: Option<DataFlags>,
        split: Split,
        passes: Option<u32>,
    ) -> Result<Self, DataError> {
        if passes == Some(0) {
            let fault = "0 passes were asked for; ask for 1 or more, or for all (None)";
            return Err(DataError::Refused(fault.to_owned()));
        }
        let (folder, all) = find(folder, split)?;
        let found = all.first().map(|(_, name)| name.flags);
        let infos: Vec<_> =
            all.into_iter().filter(|(_, name)| wanted.is_none_or(|flags| flags == name.flags)).collect();
        let Some((first_path, InfoName { flags, .. })) = infos.first() else {
            let wanted = wanted.map(|flags| format!(" with the flags {flags}")).unwrap_or_default();
            let found = found.map(|found| format!("; there is one with the flags {found}"));
            return Err(DataError::Refused(format!(
                "{} has no record_info-{split}-*.json{wanted}{}: give the folder that percolator prepare \
                 xlnet wrote (--out), or its tfrecords folder",
                shown::path(&folder),
                found.unwrap_or_default()
            )));
        };
        check_flags(first_path, flags, infos.iter().map(|(path, name)| (path, name.flags)))?;
        let mut data = XlnetData::of(*flags, first_path.clone());
        check_passes(&folder, infos.iter().map(|(_, name)| (name.task, name.pass)), passes)?;
        let is_wanted = |name: &InfoName| passes.is_none_or(|passes| name.pass < passes);
        let mut stated = Vec::new();
        for (path, name) in infos.iter().filter(|(_, name)| is_wanted(name)) {
            stated.push((path, name.task, data.add(&folder, path, passes)?));
        }
        check_preparations(&stated)?;
        data.check_names(&folder)?;
        if data.num_batch == 0 {
            let folder = shown::path(&folder);
            let fault = format!("{folder} has no batch: every record_info-{split}-*.json states 0");
            return Err(DataError::Refused(fault));
        }
        Ok(data)
    }

    /// Checks that no file is named twice.
    fn check_names(&self, folder: &Path) -> Result<(), DataError> {
        let mut files: Vec<&PathBuf> = self.files.iter().collect();
        files.sort();
        match files.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(DataError::Refused(format!(
                "two record_info-*.json of {} name the records {}, which would come twice: one of them is of \
                 another file, or damaged; prepare it again",
                shown::path(folder),
                shown::path(pair[0])
            ))),
        }
    }

    fn of(flags: DataFlags, named_by: PathBuf) -> Self {
        let input = InputFlags {
            seq_len: flags.seq_len as usize,
            reuse_len: flags.reuse_len as usize,
            perm_size: flags.reuse_len as usize,
            num_predict: flags.num_predict.map(|predict| predict as usize),
            use_bfloat16: false,
        };
        XlnetData {
            files: Vec::new(),
            batches: Vec::new(),
            fix_quirks: false,
            num_batch: 0,
            flags,
            input,
            host: 0,
            named_by,
        }
    }

    /// Adds the files that a `record_info` names. If it names several, each is a pass. Returns what they were
    /// prepared from.
    fn add(
        &mut self,
        folder: &Path,
        path: &Path,
        passes: Option<u32>,
    ) -> Result<Option<Preparation>, DataError> {
        let bytes = input_file::read(path, INFO_BYTES_MAX).map_err(|source| unreadable(path, source))?;
        let no_info = |wrong: String| {
            DataError::Refused(format!("{} is not a record_info: {wrong}", shown::path(path)))
        };
        let text = String::from_utf8(bytes).map_err(|_| no_info("it is not UTF-8".to_owned()))?;
        let info = RecordInfo::from_json(&text).map_err(no_info)?;
        if self.files.is_empty() {
            self.fix_quirks = info.fix_quirks;
        }
        self.check_quirks(path, info.fix_quirks)?;
        let files = info.filenames.len();
        let taken = passes.map_or(files, |passes| files.min(passes as usize));
        for name in &info.filenames[..taken] {
            let wrong = || no_info(format!("{name:?} is not a file"));
            let records = folder.join(Path::new(name).file_name().ok_or_else(wrong)?);
            match fs::metadata(&records) {
                Ok(found) if found.is_file() => {
                    self.files.push(records);
                    self.batches.push((files == 1).then_some(info.num_batch));
                }
                Ok(_) => return Err(wrong()),
                Err(source) => {
                    return Err(DataError::MissingRecords { info: path.to_owned(), records, source });
                }
            }
        }
        // As in the script, all files are assumed to have the same number of batches.
        let batches = u128::from(info.num_batch) * taken as u128 / files.max(1) as u128;
        self.num_batch = self.num_batch.saturating_add(u64::try_from(batches).unwrap_or(u64::MAX));
        Ok(info.preparation)
    }

    /// Refuses records of which some have the script's quirks and some do not.
    fn check_quirks(&self, other_path: &Path, other: bool) -> Result<(), DataError> {
        if other == self.fix_quirks {
            return Ok(());
        }
        Err(DataError::Refused(format!(
            "{} has records {} the script's quirks, and {} does not: keep them in folders of their own, or \
             prepare one of them again (--fix-quirks)",
            shown::path(&self.named_by),
            if self.fix_quirks { "without" } else { "with" },
            shown::path(other_path)
        )))
    }

    /// Adds another folder's records after these, as the script does for each folder of its list.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if they were made with other flags.
    pub fn and(mut self, other: XlnetData) -> Result<Self, DataError> {
        check_flags(&self.named_by, &self.flags, [(&other.named_by, other.flags)].into_iter())?;
        self.check_quirks(&other.named_by, other.fix_quirks)?;
        self.files.extend(other.files);
        self.batches.extend(other.batches);
        self.num_batch = self.num_batch.saturating_add(other.num_batch);
        Ok(self)
    }

    /// The flags that the records were made with.
    #[must_use]
    pub fn flags(&self) -> &DataFlags {
        &self.flags
    }

    /// The files of records, in the script's order.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The number of a host's batches that the `record_info` files state, summed over all hosts.
    #[must_use]
    pub fn num_batch(&self) -> u64 {
        self.num_batch
    }

    /// The flags of the input function: those of the records, and those set here.
    #[must_use]
    pub fn input_flags(&self) -> &InputFlags {
        &self.input
    }

    /// Sets the length of a permutation (default: `reuse_len`).
    #[must_use]
    pub fn perm_size(mut self, tokens: usize) -> Self {
        self.input.perm_size = tokens;
        self
    }

    /// Sets whether floats are bf16 (default: f32).
    #[must_use]
    pub fn use_bfloat16(mut self, is: bool) -> Self {
        self.input.use_bfloat16 = is;
        self
    }

    /// The part of one host of several, divided as in the script: each host has `files / hosts` consecutive
    /// files, and the last one also has those left over. It draws permutations of its own. A batch has
    /// records of this host only; the hosts do not communicate.
    ///
    /// # Errors
    ///
    /// [`DataError::Refused`] if there is no such host, or no file for each.
    pub fn of_host(&self, host: usize, hosts: usize) -> Result<Self, DataError> {
        let files = self.files.len();
        let each = files.checked_div(hosts).unwrap_or(0);
        if each == 0 || host >= hosts {
            return Err(DataError::Refused(format!(
                "host {host} of {hosts} gets no file of {files}: a host gets {files} / {hosts} of them, and \
                 the last the rest; hosts count from 0, and there must be a file for each"
            )));
        }
        let end = if host + 1 == hosts { files } else { (host + 1) * each };
        let part = host * each..end;
        let (files, batches) = (self.files[part.clone()].to_vec(), self.batches[part].to_vec());
        Ok(XlnetData { files, batches, host, ..self.clone() })
    }

    /// The input function.
    ///
    /// # Errors
    ///
    /// [`DataError::Input`] if the flags do not agree: usually a `perm_size` that does not divide a half.
    pub fn decoder(&self) -> Result<XlnetDecoder, DataError> {
        Ok(XlnetDecoder::new(self.input)?.host(self.host))
    }

    /// A feed of the data set: [`feed`](Self::feed) with a new builder.
    ///
    /// # Errors
    ///
    /// As [`decoder`](Self::decoder).
    pub fn builder(&self) -> Result<FeedBuilder, DataError> {
        self.feed(Feed::builder())
    }

    /// Sets a feed's files, decoder, batch size and shuffle. A feed without [epochs](FeedBuilder::epochs)
    /// gets epochs without end, and one of a [single pass](percolator::Epochs::OnePass) one epoch.
    ///
    /// A step has the `bsz_per_host` records that the script wrote together. The feed's devices share it in
    /// equal parts, as a host's cores do in the script: each device has the same rows of every step, so its
    /// batches continue one another. With the number of devices that the records were made for
    /// (`--num-core-per-host`), each device has forward and backward rows.
    ///
    /// The order of the files is shuffled in each epoch ([`Shuffle::Files`]). Set
    /// [`Shuffle::No`] to keep their order. Any other shuffle, or another
    /// batch size, breaks the batches' sequence.
    ///
    /// The records of each file are counted, which [indexes](FeedBuilder::index) the file: a file that has
    /// fewer or more batches than its `record_info` states would shift all that follow.
    ///
    /// # Errors
    ///
    /// As [`decoder`](Self::decoder); [`DataError::Source`] if a file cannot be read, and
    /// [`DataError::Refused`] if it has another number of records, or if the feed has data already.
    pub fn feed(&self, feed: FeedBuilder) -> Result<FeedBuilder, DataError> {
        if !feed.spec().sources.is_empty() {
            let refused =
                "the feed has data already, and these files would be added to them: give a feed without";
            return Err(DataError::Refused(refused.to_owned()));
        }
        self.check_counts(&feed.spec().index)?;
        let schedule = &feed.spec().schedule;
        let epochs = schedule.epochs.unwrap_or(u64::from(schedule.once));
        let feed = feed.epochs(epochs);
        let feed = self.files.iter().fold(feed, FeedBuilder::tfrecord);
        Ok(feed
            .decoder(self.decoder()?)
            .batch_size(BatchSize::Global(self.flags.bsz_per_host.into()))
            .shuffle(Shuffle::Files))
    }
}

impl XlnetData {
    /// Checks that each file has whole batches, and as many as its `record_info` states.
    fn check_counts(&self, index: &IndexPlace) -> Result<(), DataError> {
        let bsz = u64::from(self.flags.bsz_per_host);
        for (path, batches) in self.files.iter().zip(&self.batches) {
            let source = TfRecord::open(path)?;
            if source.records().is_none() {
                source.index(index)?;
            }
            let Some(found) = source.records() else { continue };
            let stated = batches.map(|batches| batches.saturating_mul(bsz));
            if stated.is_some_and(|stated| stated != found) || found % bsz.max(1) != 0 {
                let due = match batches {
                    Some(batches) => format!("{batches} batches of {bsz}"),
                    None => format!("whole batches of {bsz}"),
                };
                return Err(DataError::Refused(format!(
                    "{} has {found} records, and must have {due}: a part of it is missing, or its \
                     record_info is of another run; prepare it again",
                    shown::path(path)
                )));
            }
        }
        Ok(())
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> DataError {
    DataError::Read { path: path.to_owned(), source }
}

/// The `record_info` files of a folder, or of its `tfrecords`, in the order of their paths; and the folder
/// that they are in.
fn find(folder: &Path, split: Split) -> Result<(PathBuf, Vec<(PathBuf, InfoName)>), DataError> {
    let below = folder.join("tfrecords");
    let mut found = list(folder, split)?;
    let is_below = found.is_empty() && below.is_dir();
    if is_below {
        found = list(&below, split)?;
    }
    found.sort_by(|(one, _), (other, _)| one.as_os_str().cmp(other.as_os_str()));
    Ok((if is_below { below } else { folder.to_owned() }, found))
}

fn list(folder: &Path, split: Split) -> Result<Vec<(PathBuf, InfoName)>, DataError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|source| unreadable(folder, source))? {
        let path = entry.map_err(|source| unreadable(folder, source))?.path();
        if let Some(name) = InfoName::of(&path, split) {
            found.push((path, name?));
        }
    }
    Ok(found)
}

fn check_flags<'a>(
    path: &Path,
    flags: &DataFlags,
    mut others: impl Iterator<Item = (&'a PathBuf, DataFlags)>,
) -> Result<(), DataError> {
    match others.find(|(_, other)| other != flags) {
        None => Ok(()),
        Some((other_path, other)) => Err(DataError::Refused(format!(
            "{} has the flags {other}, and {} has {flags}: records of one data set have the same flags; name \
             those to use (XlnetData::open_with), or keep the others in another folder",
            shown::path(other_path),
            shown::path(path)
        ))),
    }
}

/// Checks that records of several `record_info` files are of one preparation. Each comes with its task.
fn check_preparations(stated: &[(&PathBuf, u32, Option<Preparation>)]) -> Result<(), DataError> {
    let first = stated.iter().find_map(|(path, _, preparation)| Some((path, (*preparation)?)));
    let Some((path, preparation)) = first else { return Ok(()) };
    for (other_path, task, other) in stated {
        if let Some(differs) = preparation.differences(*task, other.as_ref()) {
            return Err(DataError::Refused(format!(
                "{} and {} are of different preparations (of the second, {differs}): as one data set, they \
                 would have text twice, or lack some: prepare into an empty folder, or remove one of them \
                 and its records",
                shown::path(path),
                shown::path(other_path)
            )));
        }
    }
    Ok(())
}

/// Checks that each task has the requested passes.
fn check_passes(
    folder: &Path,
    there: impl Iterator<Item = (u32, u32)>,
    passes: Option<u32>,
) -> Result<(), DataError> {
    let Some(passes) = passes else { return Ok(()) };
    let mut tasks: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    there.for_each(|(task, pass)| {
        tasks.entry(task).or_default().insert(pass);
    });
    for (task, there) in tasks {
        // The search is short: a missing pass comes at most one after the last one that is there.
        if let Some(pass) = (0..passes).find(|pass| !there.contains(pass)) {
            return Err(DataError::Refused(format!(
                "{} has no pass {pass} of task {task}, and {passes} passes (0 to {}) were asked for: ask for \
                 fewer, or prepare it (--pass-id, --num-passes)",
                shown::path(folder),
                passes - 1
            )));
        }
    }
    Ok(())
}
