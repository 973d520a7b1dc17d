//! The digest of a whole data set, with which receipts are compared.

use std::path::Path;
use std::{fmt, str::FromStr};

use super::{Digest, ReceiptError, file, one_line};
use crate::receipt::content::ContentHash;
use crate::source::{FIRST, Identity, LAST, Run};
use percolator_files::checked_text::{TextFault, TextReader, TextWriter};
use percolator_files::shown;

/// A digest of the contents of all records of a data set. Receipts that keep
/// [contents](crate::feed::Receipts::Contents) are compared with it. `percolator_proof::digest` makes one in
/// a pass over the data set: the digests of its parts, [one after the other](Self::append).
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

impl DataDigest {
    /// The digest of some consecutive records of the source at a path.
    #[must_use]
    pub fn of_run(source: &Path, detail: DigestDetail, run: &Run) -> Self {
        let mut samples = Identity::new();
        for (name, position) in [(FIRST, Some(0)), (LAST, run.len().checked_sub(1))] {
            if let Some(record) = position.and_then(|position| run.get(position)) {
                samples = samples.with_record(name, record.key, record.value, record.companion);
            }
        }
        let (mut contents, mut each) = (Digest::default(), Vec::new());
        for record in run.iter() {
            let hash = ContentHash::of(&record);
            contents.add_content(hash);
            if detail == DigestDetail::EachRecord {
                each.push(hash.low());
            }
        }
        let each = (detail == DigestDetail::EachRecord).then_some(each);
        DataDigest { source: one_line(&source.to_string_lossy()), samples, contents, each }
    }

    /// Adds the digest of the records after those of this one. Each record's hash is kept if both have it.
    pub fn append(&mut self, next: DataDigest) {
        if self.contents.records() == 0 {
            self.samples = next.samples;
        } else if next.contents.records() > 0 {
            self.samples = self.samples.only(FIRST);
            self.samples.merge(&next.samples.only(LAST));
        }
        self.contents += next.contents;
        self.each = self.each.take().zip(next.each).map(|(mut each, next)| {
            each.extend(next);
            each
        });
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

    /// The samples of the data set, with this digest itself among them. Those of a
    /// [receipt](super::Receipt::samples) of other data [contradict](Identity::contradiction) them.
    #[must_use]
    pub fn samples(&self) -> Identity {
        self.samples.clone().with_sample(CONTENTS, self.contents)
    }

    /// The digest of the contents of the record at a position, of which only the [low
    /// half](Digest::low_half) is kept, if it is.
    #[must_use]
    pub fn of_record(&self, position: u64) -> Option<Digest> {
        let low = *self.each.as_ref()?.get(usize::try_from(position).ok()?)?;
        let mut contents = Digest::default();
        contents.add_content(ContentHash(low.into()));
        Some(contents)
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
                let wanted = "\"each ...\" with 16 hexadecimal digits a record";
                return Err(facts.fault_before(wanted, &shown::shortened(line)));
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
