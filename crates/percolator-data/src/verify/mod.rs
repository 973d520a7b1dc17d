//! Every record of a data set read, checked, parsed and decoded, and what is wrong with any of them.
//!
//! Reading checks what the storage keeps checksums of: a TFRecord's lengths and data, a LevelDB's blocks and
//! logs, the structure of an LMDB's pages (an LMDB has no checksums). Parsing checks that a value is what
//! most values are, and that a raw image has as many elements as its shape says. Decoding checks JPEG and PNG
//! files to their last pixel: a Datum's, and those in each feature of TensorFlow's records that has such
//! files.
//!
//! Verification goes on after faults, as far as the storage allows: [`Fault::Unreadable`] says which records
//! could not be read at all.

mod quarantine;
mod repair;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;

use percolator::decoder::{ImageFileDecoder, RecordCause};
use percolator::record::Key;
use percolator_messages::Value;
use serde::{Serialize, Serializer};

use crate::content::{Content, Values, caught};
use crate::open::DataSet;
use crate::scan::{Event, FAULTS_IN_A_ROW_MAX, OnDamage, Progress, Scan, ScanError, Seen, Unreadable};

pub use self::quarantine::{Since, quarantined};
pub use self::repair::{RepairError, Repaired, repair};

/// How a data set is verified.
#[derive(Clone, Copy, Debug, Default)]
pub struct VerifyOptions {
    /// What values have to be; by default what [most records](Content::of) are.
    pub content: Option<Content>,
    /// How many threads work; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
}

/// Something that is wrong.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Fault {
    /// A record can be read, and is damaged.
    Record {
        /// Its number.
        number: u64,
        /// Its key.
        key: Key,
        /// What is wrong with it.
        cause: RecordCause,
    },
    /// Records cannot be read.
    Unreadable(Unreadable),
}

/// What a verification found.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// What the values are.
    pub content: Content,
    /// How many records are whole.
    pub whole: u64,
    /// How many records can be read, and are damaged.
    pub damaged: u64,
    /// How many records cannot be read, as far as their number is known.
    pub unreadable: u64,
    /// How often an unknown number of records cannot be read.
    pub gaps: u64,
    /// What most values are if they are neither Datums nor Examples, as far as that is known.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_words")]
    pub values: Option<Value>,
    /// Whether the raw images of Datums seem to lie in another order: with the channels of a pixel side by
    /// side, as `tobytes` of an image stores them. Told by the first ones, and only if nearly all agree.
    pub is_interleaved: bool,
}

fn as_words<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|value| value.to_string()).serialize(serializer)
}

impl Verified {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damaged == 0 && self.unreadable == 0 && self.gaps == 0
    }

    /// Whether there is no record, so that nothing was verified.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.is_whole() && self.whole == 0
    }

    fn new(values: &Values) -> Self {
        let &Values { content, other, is_interleaved, .. } = values;
        Verified { content, whole: 0, damaged: 0, unreadable: 0, gaps: 0, values: other, is_interleaved }
    }

    fn count(&mut self, fault: &Fault) {
        match fault {
            Fault::Record { .. } => self.damaged += 1,
            Fault::Unreadable(Unreadable { records: Some(records), .. }) => self.unreadable += records,
            Fault::Unreadable(_) => self.gaps += 1,
        }
    }
}

/// Verifies a data set, and gives `found` each fault, in the order of the records.
///
/// ```no_run
/// use percolator_data::DataSet;
/// use percolator_data::scan::Progress;
/// use percolator_data::verify::{VerifyOptions, verify};
///
/// let data = DataSet::open("train_lmdb")?;
/// let verified =
///     verify(&data, &VerifyOptions::default(), &Progress::new(), |fault| println!("{fault}"))?;
/// assert!(verified.is_whole());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`ScanError`] if the data set cannot be verified at all, is being written to, or there is no memory to
/// decode an image.
pub fn verify(
    data: &DataSet,
    options: &VerifyOptions,
    progress: &Progress,
    found: impl FnMut(&Fault),
) -> Result<Verified, ScanError> {
    scan(data, options, progress, |_| (), |()| Ok(()), found)
}

/// Verifies a data set, and gives `keep` what `copy` makes of each record that is whole, in order.
fn scan<T: Send, E: From<ScanError>>(
    data: &DataSet,
    options: &VerifyOptions,
    progress: &Progress,
    copy: impl Fn(Seen<'_>) -> T + Sync,
    mut keep: impl FnMut(T) -> Result<(), E>,
    mut found: impl FnMut(&Fault),
) -> Result<Verified, E> {
    let values = Values::find(data, options.content, progress)?;
    let mut verified = Verified::new(&values);
    let work =
        |decoder: &mut ImageFileDecoder, seen: Seen<'_>| check(seen, &values, decoder).map(|()| copy(seen));
    let scan = Scan { threads: options.threads, on_damage: OnDamage::GoOn, ..Scan::default() };
    scan.run(data, progress, ImageFileDecoder::default, work, |event| {
        let fault = match event {
            Event::Done(Ok(copied)) => {
                verified.whole += 1;
                return keep(copied);
            }
            Event::Done(Err(fault)) => fault.or_end_scan(data.path())?,
            Event::Unreadable(unreadable) => Fault::Unreadable(unreadable),
        };
        verified.count(&fault);
        found(&fault);
        Ok(())
    })?;
    Ok(verified)
}

/// Checks one record.
fn check(seen: Seen<'_>, values: &Values, decoder: &mut ImageFileDecoder) -> Result<(), Box<Fault>> {
    let look = |decoder: &mut ImageFileDecoder| values.parts(seen.value)?.check(decoder);
    caught(decoder, ImageFileDecoder::default, look).map_err(|cause| {
        Box::new(Fault::Record { number: seen.number, key: Key(seen.key.to_owned()), cause })
    })
}

impl Fault {
    /// Ends the scan if there was no memory for the record.
    fn or_end_scan(self, path: &Path) -> Result<Self, ScanError> {
        let end = match &self {
            Fault::Record { number, key, cause } => ScanError::no_memory(path, *number, &key.0, cause),
            Fault::Unreadable(_) => None,
        };
        end.map_or(Ok(self), Err)
    }

    /// Why, in one line, without the record's number and key.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Fault::Record { cause, .. } => cause.to_string(),
            Fault::Unreadable(unreadable) => unreadable.error.to_string(),
        }
    }

    /// The number of the record, or of the first one.
    #[must_use]
    pub fn number(&self) -> u64 {
        match self {
            Fault::Record { number, .. } => *number,
            Fault::Unreadable(unreadable) => unreadable.first,
        }
    }

    /// The record's key, if it could be read.
    #[must_use]
    pub fn key(&self) -> Option<&Key> {
        match self {
            Fault::Record { key, .. } => Some(key),
            Fault::Unreadable(_) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Record { number, key, cause } => write!(f, "record {number}, key {key}: {cause}"),
            Fault::Unreadable(unreadable) => {
                let Unreadable { first, records, error, are_given_up, .. } = unreadable;
                match records {
                    Some(1) => write!(f, "record {first} cannot be read")?,
                    Some(records) => write!(f, "records {first} to {} cannot be read", first + records - 1)?,
                    None => write!(f, "records from number {first} on cannot be read")?,
                }
                f.write_str(&unreadable.place())?;
                if *are_given_up {
                    write!(f, ", given up after {FAULTS_IN_A_ROW_MAX} in a row that cannot be read")?;
                }
                write!(f, ": {error}")
            }
        }
    }
}
