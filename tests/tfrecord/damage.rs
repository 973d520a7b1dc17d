//! TFRecord files on the damage harness: one file and several, plain and compressed, mapped and read, in
//! order and (plain ones) by position, by themselves and through feeds.
//!
//! A file has no end of its own: where one record ends, it may end, and its records have no numbers. So a
//! record that is missing as a whole, or comes twice, cannot show. The twin says what is read then.

use std::path::{Path, PathBuf};

use percolator::source::{Access, IndexPlace, Joined, Source, SourceError};
use percolator::tfrecord::{Compression, TfRecord, TfRecordOptions};
use percolator::{Epochs, Feed, FeedBuilder, FeedError, RawBytes, Shuffle};

use crate::common;
use crate::common::process::this_test;
use crate::files::{framed, packed, parsed, unpacked};
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const WAYS: [Way; 7] = [
    Way::of(MAPPED),
    Way::of(READ),
    Way::seldom(DETECTED, 3),
    Way::seldom(BY_POSITION, 3),
    Way::seldom(BY_POSITION_READ, 3),
    Way::seldom(FED, 8),
    Way::seldom(FED_SHUFFLED, 8),
];

const MAPPED: &str = "mapped";
const READ: &str = "read";
const DETECTED: &str = "detected";
const BY_POSITION: &str = "by position";
const BY_POSITION_READ: &str = "by position, read";
const FED: &str = "fed";
const FED_SHUFFLED: &str = "fed, shuffled, read";

/// A data set of files of one kind.
struct Files {
    compression: Compression,
    /// Of each file, the records.
    records: Vec<Vec<Vec<u8>>>,
}

impl Files {
    /// Records of these lengths in each of so many files.
    fn of(compression: Compression, lengths: &[usize], files: usize) -> Self {
        let record = |number: usize, bytes: usize| (0..bytes).map(|at| common::pixel(number, at)).collect();
        let file = |file: usize| {
            let records = lengths.iter().enumerate();
            records.map(|(number, &bytes)| record(10 * file + number, bytes + file)).collect()
        };
        Files { compression, records: (0..files).map(file).collect() }
    }

    fn stated(&self, records: &[Vec<Vec<u8>>]) -> Vec<Stated> {
        let file = |(number, records): (usize, &Vec<Vec<u8>>)| {
            let plain = plain(format!("part-{number}"), records);
            if self.compression == Compression::Plain { plain } else { self.packed(&plain) }
        };
        records.iter().enumerate().map(file).collect()
    }

    /// A compressed file of two members.
    fn packed(&self, plain: &Stated) -> Stated {
        let mut file = Stated::new(&plain.name);
        let (one, other) = plain.bytes.split_at(plain.bytes.len() / 2);
        for member in [one, other] {
            let bytes = packed(member, self.compression, 1);
            if self.compression == Compression::Zlib {
                let (head, body) = bytes.split_at(2);
                let (body, foot) = body.split_at(body.len() - 4);
                file.add("head", Guard::Structure, head);
                file.add("body", Guard::Structure, body);
                file.add_number("checksum", Guard::Checked, Number::Big, foot);
            } else {
                let (head, body) = bytes.split_at(10);
                let (body, foot) = body.split_at(body.len() - 8);
                let (kind, rest) = head.split_at(4);
                file.add("head", Guard::Structure, kind);
                file.add("time and system", Guard::Unread, rest);
                file.add("body", Guard::Structure, body);
                file.add_number("checksum", Guard::Checked, Number::Little, &foot[..4]);
                file.add_number("length", Guard::Checked, Number::Little, &foot[4..]);
            }
        }
        file
    }

    /// What the twin reads: the records, and whether there is nothing else.
    fn twin(&self, case: &Case, is_detected: bool) -> Option<(Vec<Vec<u8>>, bool)> {
        let mut records = Vec::new();
        for number in 0..self.records.len() {
            let file = case.bytes(&format!("part-{number}"))?;
            let compression = if is_detected { detected(file) } else { self.compression };
            let (bytes, is_whole) = match compression {
                Compression::Plain => (file.to_vec(), true),
                compression => unpacked(file, compression),
            };
            let found = parsed(&bytes);
            let is_whole = is_whole && framed(found.iter().map(|record| &record[..])).len() == bytes.len();
            records.extend(found);
            if !is_whole {
                return Some((records, false));
            }
        }
        Some((records, true))
    }

    fn paths(&self, folder: &Path) -> Vec<PathBuf> {
        (0..self.records.len()).map(|number| folder.join(format!("part-{number}"))).collect()
    }

    fn open(&self, folder: &Path, options: &TfRecordOptions) -> Result<Joined, SourceError> {
        options.open_all(self.paths(folder))
    }

    fn feed(&self, folder: &Path) -> FeedBuilder {
        let paths = self.paths(folder);
        let feed = paths.iter().fold(Feed::builder(), |feed, path| feed.tfrecord(path));
        feed.decoder(RawBytes::up_to(1 << 20)).batch_size(1).threads(2)
    }
}

/// A plain file, whose parts are those of its records.
fn plain(name: String, records: &[Vec<u8>]) -> Stated {
    let mut file = Stated::new(name);
    for record in records {
        let bytes = framed([&record[..]]);
        let (head, rest) = bytes.split_at(12);
        let (data, foot) = rest.split_at(record.len());
        file.add_number("length", Guard::Checked, Number::Little, &head[..8]);
        file.add("checksum of the length", Guard::Checked, &head[8..]);
        file.add("data", Guard::Checked, data);
        file.add("checksum of the data", Guard::Checked, foot);
    }
    file
}

/// How a file is compressed, as the options say that it is detected.
fn detected(file: &[u8]) -> Compression {
    let is_head = |bytes: &[u8]| {
        bytes.get(..12).is_some_and(|head| {
            let mut sealed = head.to_vec();
            seal(&mut sealed);
            sealed == head
        })
    };
    match file {
        file if is_head(file) => Compression::Plain,
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [first, second, ..]
            if first & 0xf == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0 && {
                let (bytes, is_whole) = unpacked(file, Compression::Zlib);
                is_head(&bytes) || bytes.is_empty() && is_whole
            } =>
        {
            Compression::Zlib
        }
        _ => Compression::Plain,
    }
}

/// Corrects the checksums of a plain file, record by record, as far as there are records.
fn seal(bytes: &mut [u8]) {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let mut at = 0;
    while at + 12 <= bytes.len() {
        let length = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let checksum = masked(&bytes[at..at + 8]);
        bytes[at + 8..at + 12].copy_from_slice(&checksum);
        let Some(end) = usize::try_from(length).ok().and_then(|length| (at + 12).checked_add(length)) else {
            return;
        };
        if end.checked_add(4).is_none_or(|end| end > bytes.len()) {
            return;
        }
        let checksum = masked(&bytes[at + 12..end]);
        bytes[end..end + 4].copy_from_slice(&checksum);
        at = end + 4;
    }
}

/// An order in which no record follows the one before it.
fn places(records: u64) -> impl Iterator<Item = u64> {
    let step = [7, 5, 3, 2, 1].into_iter().find(|step| !records.is_multiple_of(*step)).unwrap_or(1);
    (0..records).map(move |number| number * step % records.max(1))
}

impl Format for Files {
    type Item = Vec<u8>;

    const BYTES_MAX: usize = 1000;

    fn name(&self) -> String {
        let bytes: usize = self.records.iter().flatten().map(Vec::len).sum();
        format!("TFRecord, {:?}, {} files of {bytes} bytes", self.compression, self.records.len())
    }

    fn files(&self) -> Vec<Stated> {
        self.stated(&self.records)
    }

    /// The same lengths, other bytes; and the files in another order.
    fn donor(&self) -> Vec<Stated> {
        let mut records = self.records.clone();
        records.reverse();
        records.iter_mut().flatten().flatten().for_each(|byte| *byte ^= 0x55);
        self.stated(&records)
    }

    /// A compressed file is not read by position.
    fn ways(&self) -> Vec<Way> {
        let by_position = [BY_POSITION, BY_POSITION_READ, FED_SHUFFLED];
        let is_plain = self.compression == Compression::Plain;
        WAYS.into_iter().filter(|way| is_plain || !by_position.contains(&way.name)).collect()
    }

    fn seal(&self, _file: &str, bytes: &mut Vec<u8>) {
        if self.compression == Compression::Plain {
            seal(bytes);
        }
    }

    /// In a compressed file, a length that lies, with the right checksums.
    fn forged(&self, number: usize) -> Option<(Vec<Stated>, String)> {
        if self.compression == Compression::Plain {
            return None;
        }
        let mut files = self.files();
        let mut inner = plain(files[0].name.clone(), &self.records[0]);
        let lengths = inner.parts.iter().filter(|part| part.number.is_some());
        let lies = lengths.flat_map(|part| {
            let lies = Number::Little.lies(&inner.bytes[part.range.clone()], inner.bytes.len());
            lies.into_iter().map(|lie| (part.range.clone(), lie))
        });
        let (range, lie) = lies.into_iter().nth(number)?;
        inner.bytes[range.clone()].copy_from_slice(&lie);
        seal(&mut inner.bytes);
        files[0] = self.packed(&inner);
        Some((files, format!("the length at byte {}, unpacked, is {lie:x?}", range.start)))
    }

    fn read(&self, folder: &Path, way: &'static str) -> Reading<Vec<u8>> {
        let access = if [MAPPED, BY_POSITION, FED].contains(&way) { Access::Mapped } else { Access::Read };
        let options = TfRecord::options().access(access);
        match way {
            MAPPED | READ => Reading::of(|items| {
                in_order(&self.open(folder, &options.compression(self.compression))?, items)
            }),
            DETECTED => Reading::of(|items| in_order(&self.open(folder, &options)?, items)),
            BY_POSITION | BY_POSITION_READ => Reading::of(|items| {
                by_position(&self.open(folder, &options.compression(self.compression))?, items)
            }),
            FED => Reading::of(|items| fed(self.feed(folder).access(access).epochs(Epochs::OnePass), items)),
            _ => Reading::of(|items| {
                let index = IndexPlace::Folder(folder.join("indexes"));
                let feed = self.feed(folder).access(access).index(index);
                fed(feed.shuffle(Shuffle::Global).epochs(1), items)
            }),
        }
    }

    fn allows(&self, case: &Case, way: &'static str, found: &Reading<Vec<u8>>) -> bool {
        let is_detected = [DETECTED, FED, FED_SHUFFLED].contains(&way);
        let Some((due, is_whole)) = self.twin(case, is_detected) else { return false };
        let is_in_order = ![BY_POSITION, BY_POSITION_READ, FED_SHUFFLED].contains(&way);
        if !is_whole {
            // The records before the damage, and the error that the harness sees.
            return found.error.is_some() && is_in_order && due.starts_with(&found.items);
        }
        match way {
            BY_POSITION | BY_POSITION_READ => {
                places(due.len() as u64).map(|place| &due[place as usize]).eq(&found.items)
            }
            FED_SHUFFLED => {
                let (mut due, mut items) = (due, found.items.clone());
                due.sort();
                items.sort();
                due == items
            }
            // A feed does not start without a record.
            FED if due.is_empty() => true,
            _ => found.error.is_none() && found.items == due,
        }
    }
}

fn in_order(source: &dyn Source, items: &mut Vec<Vec<u8>>) -> Result<(), SourceError> {
    let mut cursor = source.cursor()?;
    while let Some(entry) = cursor.advance()? {
        items.push(entry.value().to_vec());
    }
    Ok(())
}

fn by_position(source: &dyn Source, items: &mut Vec<Vec<u8>>) -> Result<(), SourceError> {
    source.index(&IndexPlace::Beside)?;
    let records = source.records().unwrap();
    let mut cursor = source.cursor()?;
    for place in places(records) {
        cursor.seek(place)?;
        items.push(cursor.advance()?.expect("there is a record at each position").value().to_vec());
    }
    cursor.seek(records)?;
    assert!(cursor.advance()?.is_none(), "there are no more records than are stated");
    Ok(())
}

fn fed(feed: FeedBuilder, items: &mut Vec<Vec<u8>>) -> Result<(), FeedError> {
    for batch in feed.build()? {
        items.push(batch?.ragged::<u8>(0)?.values().to_vec());
    }
    Ok(())
}

#[test]
fn a_plain_file() {
    harness::check(this_test!(), 300, || Files::of(Compression::Plain, &[3, 0, 40, 300], 1));
}

#[test]
fn several_plain_files() {
    harness::check(this_test!(), 200, || Files::of(Compression::Plain, &[5, 0, 31], 3));
}

#[test]
fn plain_files_of_large_records() {
    harness::check(this_test!(), 100, || Files::of(Compression::Plain, &[70_000, 3, 200_000, 70_000], 2));
}

#[test]
fn a_gzip_file() {
    harness::check(this_test!(), 200, || Files::of(Compression::Gzip, &[3, 0, 40, 300], 1));
}

#[test]
fn several_zlib_files() {
    harness::check(this_test!(), 150, || Files::of(Compression::Zlib, &[5, 0, 31, 200], 2));
}
