//! The digest of a whole data set, with which receipts are compared.

use std::path::Path;
use std::thread;
use std::{fmt, str::FromStr};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

use super::{Digest, ReceiptError, file, one_line, shortened};
use crate::receipt::content::ContentHash;
use crate::record::RecordId;
use crate::source::{FIRST, Identity, Run, Source, SourceError};
use percolator_files::Progress;
use percolator_files::checked_text::{TextFault, TextReader, TextWriter};

/// A digest of the contents of all records of a data set. Receipts that keep
/// [contents](crate::FeedBuilder::receipt_contents) are compared with it.
/// [`FeedBuilder::digest`](crate::FeedBuilder::digest) makes one in a pass over the data set.
///
/// It is text ([`Display`](std::fmt::Display), [`FromStr`]), with a checksum. A data set whose records are
/// permuted, renamed or changed has another digest. A copy has the same one, whatever kind of database it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDigest {
    /// For messages only: a copy is stored elsewhere.
    source: String,
    /// Samples of the first and the last record.
    samples: Identity,
    contents: Digest,
    each: Option<Vec<u64>>,
}

/// What a [`DataDigest`] contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DigestDetail {
    /// The sum over all records: about a hundred bytes. It proves an epoch that was delivered as a whole.
    #[default]
    Sum,
    /// The sum, and 64 bits of each record's hash: 16 bytes per record. It also proves the delivered part of
    /// an epoch that is under way or drops records, and names the wrong receipt.
    EachRecord,
}

/// The limits of a run.
const RUN_BYTES: usize = 256 << 10;
const RUN_RECORDS: usize = 1024;

/// A run to be hashed, and the position of its first record.
type Part = (u64, Run);

/// The results.
#[derive(Debug, Default)]
struct Sums {
    contents: Digest,
    /// The hashes of each part, with the position of its first record.
    each: Vec<(u64, Vec<u64>)>,
    /// Set if the data were written to in the meantime.
    changed: Option<SourceError>,
}

impl DataDigest {
    /// Reads a source from start to end; all processors hash. `None` if the progress was told to stop.
    pub(crate) fn of(
        source: &dyn Source,
        detail: DigestDetail,
        progress: &Progress,
    ) -> Result<Option<Self>, SourceError> {
        progress.begin(source.records().unwrap_or(0));
        let sums = Mutex::new(Sums::default());
        let hash = |(first, run): &Part| {
            let (contents, each) = hash(run, detail);
            // Lent bytes are valid if they were not written to before they were used.
            match run.check_used() {
                Ok(()) => sums.lock().add(*first, contents, each),
                Err(changed) => sums.lock().changed = Some(changed),
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let (sender, parts) = bounded::<Part>(2 * threads);
        let (give_back, free) = bounded::<Run>(2 * threads);
        let samples = thread::scope(|scope| {
            let work = |parts: Receiver<Part>, give_back: Sender<Run>| {
                move || {
                    for part in parts {
                        hash(&part);
                        // There is room for all runs; an error means that the pass has ended.
                        let _ = give_back.try_send(part.1);
                    }
                }
            };
            let hashers = (0..threads).filter(|number| {
                let name = format!("digest:{number}");
                let work = work(parts.clone(), give_back.clone());
                thread::Builder::new().name(name).spawn_scoped(scope, work).is_ok()
            });
            let is_alone = hashers.count() == 0;
            // If no hasher could be started, this thread must not wait for one.
            drop((parts, give_back));
            let mut runs = 0;
            let samples = walk(source, progress, |part| {
                if is_alone {
                    hash(&part);
                    return part.1;
                }
                let _ = sender.send(part);
                if runs < 2 * threads {
                    runs += 1;
                    return Run::with_capacity(RUN_RECORDS);
                }
                free.recv().unwrap_or_else(|_| Run::with_capacity(RUN_RECORDS))
            });
            drop(sender);
            samples
        })?;
        let Some(samples) = samples else { return Ok(None) };
        let Sums { contents, mut each, changed } = sums.into_inner();
        if let Some(changed) = changed {
            return Err(changed);
        }
        each.sort_unstable_by_key(|(first, _)| *first);
        let each = (detail == DigestDetail::EachRecord)
            .then(|| each.into_iter().flat_map(|(_, hashes)| hashes).collect());
        let source = one_line(&source.path().to_string_lossy());
        Ok(Some(DataDigest { source, samples, contents, each }))
    }

    /// The path of the source, as the feed was configured.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The number of records, and the sum of their content hashes.
    #[must_use]
    pub fn contents(&self) -> Digest {
        self.contents
    }

    /// What the digest contains.
    #[must_use]
    pub fn detail(&self) -> DigestDetail {
        if self.each.is_some() { DigestDetail::EachRecord } else { DigestDetail::Sum }
    }

    /// The digest without each record's hash.
    #[must_use]
    pub fn sum(&self) -> Self {
        DataDigest { each: None, source: self.source.clone(), samples: self.samples.clone(), ..*self }
    }

    /// The samples of the data set, with this digest itself among them.
    pub(crate) fn samples(&self) -> Identity {
        self.samples.clone().with_sample(CONTENTS, self.contents)
    }

    /// The low half of the hash of the record at a position, if it is kept.
    pub(super) fn low_hash(&self, index: u64) -> Option<u64> {
        self.each.as_ref()?.get(usize::try_from(index).ok()?).copied()
    }

    /// Writes the digest to a file, which has its name only once it is complete.
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Write`]; [`ReceiptError::TooLarge`] if the text exceeds 8 GiB and so could not be read
    /// back.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), ReceiptError> {
        file::save(KIND, path.as_ref(), self, file::BYTES_MAX)
    }

    /// Reads a file that was [saved](Self::save).
    ///
    /// # Errors
    ///
    /// [`ReceiptError::Read`], also if it is not a regular file or exceeds 8 GiB; [`ReceiptError::Text`] if
    /// it was cut off or edited, was written by a later release, or is something else.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReceiptError> {
        file::load(KIND, path.as_ref(), file::BYTES_MAX)
    }
}

/// Reads a source from its first record on and hands its records over in runs, each in exchange for an empty
/// one. Returns samples of the first and the last record.
fn walk(
    source: &dyn Source,
    progress: &Progress,
    mut hand_over: impl FnMut(Part) -> Run,
) -> Result<Option<Identity>, SourceError> {
    let mut cursor = source.cursor()?;
    cursor.seek(0)?;
    let mut samples = Identity::new();
    let (mut run, mut first, mut index) = (Run::with_capacity(RUN_RECORDS), 0, 0);
    while let Some(entry) = cursor.advance()? {
        if index == 0 {
            samples = samples.with_record(FIRST, entry.key(), entry.value(), entry.companion());
        }
        if run.value_bytes() >= RUN_BYTES || run.len() >= RUN_RECORDS {
            if progress.is_stopped() {
                return Ok(None);
            }
            count(&run, progress);
            run = hand_over((first, run));
            run.clear();
            first = index;
        }
        run.push(RecordId { epoch: 0, index }, entry);
        index += 1;
    }
    if let Some(last) = run.len().checked_sub(1).and_then(|last| run.get(last)) {
        samples = samples.with_record("last", last.key, last.value, last.companion);
    }
    count(&run, progress);
    hand_over((first, run));
    Ok(Some(samples))
}

fn count(run: &Run, progress: &Progress) {
    progress.add_done(run.len() as u64);
    progress.add_records(run.len() as u64);
    progress.add_bytes(run.value_bytes() as u64);
}

/// The digest of a run's contents, and, if `detail` asks for it, the low half of each record's hash.
fn hash(run: &Run, detail: DigestDetail) -> (Digest, Vec<u64>) {
    let (mut contents, mut each) = (Digest::default(), Vec::new());
    for record in run.iter() {
        let hash = ContentHash::of(&record);
        contents.add_content(hash, 1);
        if detail == DigestDetail::EachRecord {
            each.push(hash.low());
        }
    }
    (contents, each)
}

impl Sums {
    fn add(&mut self, first: u64, contents: Digest, each: Vec<u64>) {
        self.contents += contents;
        if !each.is_empty() {
            self.each.push((first, each));
        }
    }
}

pub(super) const KIND: &str = "digest";
const VERSION: u32 = 1;

/// The name of the line with the sum of all hashes, and of the sample that a run takes from it.
const CONTENTS: &str = "contents";
/// The number of hashes per line.
const LINE_RECORDS: usize = 64;
const HEX_DIGITS: usize = 16;

/// ```text
/// percolator digest 1
/// source /data/train_lmdb
/// clue first "00000000_n01440764_1": 196651 bytes, checksum 9f8e2d00
/// clue last "01281166_n15075141_99": 196651 bytes, checksum 1f0a88e3
/// contents 0123456789abcdef0123456789abcdef of 1281167
/// each 0123456789abcdef...                       64 records' low halves, if kept
/// ...
/// checksum 5c1e0f6b
/// ```
impl fmt::Display for DataDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = TextWriter::new(KIND, VERSION);
        text.fact("source", &self.source);
        self.samples.write_samples(&mut text);
        text.fact(CONTENTS, self.contents);
        for hashes in self.each.iter().flat_map(|each| each.chunks(LINE_RECORDS)) {
            text.fact("each", hashes.iter().map(|hash| format!("{hash:016x}")).collect::<String>());
        }
        f.write_str(&text.checksum())
    }
}

impl FromStr for DataDigest {
    type Err = TextFault;

    fn from_str(text: &str) -> Result<Self, TextFault> {
        let (mut facts, _) = TextReader::open(text, KIND, VERSION)?;
        let source = facts.value("source")?.to_owned();
        let samples = Identity::read_samples(&mut facts, &[CONTENTS])?;
        let contents: Digest = facts.parse(CONTENTS, "a sum and how many records it is of")?;
        let mut each: Option<Vec<u64>> = None;
        while let Some(line) = facts.next_if("each") {
            let hashes = line.as_bytes().chunks(HEX_DIGITS).map(low_hash).collect::<Option<Vec<_>>>();
            let Some(hashes) = hashes else {
                return Err(facts.fault_before(
                    "\"each ...\" with 16 hexadecimal digits a record",
                    &shortened(line.to_owned()),
                ));
            };
            each.get_or_insert_default().extend(hashes);
        }
        if let Some(each) = &each {
            let sum = each.iter().fold(0, |sum: u64, hash| sum.wrapping_add(*hash));
            if (sum, each.len() as u64) != (contents.low(), contents.records()) {
                let wanted =
                    format!("hashes of {} records, whose sum is that of \"contents\",", contents.records());
                return Err(facts.fault_before(&wanted, &format!("{} whose sum is {sum:016x}", each.len())));
            }
        }
        facts.end()?;
        Ok(DataDigest { source, samples, contents, each })
    }
}

fn low_hash(digits: &[u8]) -> Option<u64> {
    let digits = str::from_utf8(digits).ok().filter(|digits| digits.len() == HEX_DIGITS)?;
    // A sign is not a digit.
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}
