//! The file that names bad records.

use std::path::Path;

use percolator::bad::Quarantined;
use percolator::decoder::Decoded;
use percolator::example::ExampleWriter;
use percolator::source::FnSource;
use percolator::{BadRecords, DecodeFailure, Dtype, Feed, FeedError, Field};
use percolator_tfrecord::write_record;

use crate::accepted::accepted;
use crate::files::Folder;
use crate::frames::{Frames, frames};
use crate::memory::{Budget, within};
use crate::repair;
use crate::twin::{self, Value};

/// One entry as it is in the file, and a copy of what each says.
const ENTRIES: Budget = Budget::per_byte(24);

/// A quarantine file. What is read is what a naive reader finds with prost, and the same when it was written
/// and is read again. A feed that has a bad record leaves a file that is refused as it is. To any other it
/// adds an entry, behind those that are whole, unless one of them names the record.
pub(crate) fn quarantine(bytes: &[u8]) {
    repair::both(bytes, repair::tfrecord, |bytes| {
        let folder = Folder::new();
        let path = folder.with("bad.tfrecord", bytes);
        let read = within(bytes, ENTRIES, || Quarantined::read(&path));
        let fed = feed(&path);
        let after = std::fs::read(&path).expect("the file is there");
        let Some((end, written)) = naive(bytes) else {
            assert!(read.is_err() && fed.is_err(), "what is no quarantine file is read: {read:?}, {fed:?}");
            assert!(after == bytes, "a file that is refused has changed");
            return;
        };
        let entries = read.expect("each entry is whole, and the last may be cut");
        if !entries.is_empty() {
            accepted();
        }
        assert!(entries.iter().flat_map(frame_of).eq(written.iter().copied()), "other entries are read");
        let again = folder.with("again.tfrecord", &written);
        assert_eq!(Quarantined::read(again).as_ref(), Ok(&entries));
        fed.expect("a feed adds to what can be read");
        let mut due = bytes[..end].to_vec();
        if !entries.iter().any(is_of_feed) {
            due.extend(frame(MADE.as_bytes(), KEY, 0, 0, REASON, BAD, None));
        }
        assert!(after == due, "there is more or less than the whole entries and the feed's");
    });
}

/// Where the whole entries of a file end, and what its writer makes of them; `None` if it is no quarantine
/// file.
fn naive(file: &[u8]) -> Option<(usize, Vec<u8>)> {
    let Frames { records, rest, is_damaged } = frames(file);
    if is_damaged {
        return None;
    }
    let mut written = Vec::new();
    for record in records {
        written.extend(entry_in(record?)?);
    }
    let end = file.len() - rest.len();
    (end > 0 || file.is_empty() || begins_with_entry(file)).then_some((end, written))
}

/// What the writer makes of the entry that prost finds in a record.
fn entry_in(record: &[u8]) -> Option<Vec<u8>> {
    let features = twin::of_prosts_example(record)?;
    let text = |name: &str| match features.get(name)? {
        Value::Bytes(list) => list.first().map(|bytes| &bytes[..]),
        _ => None,
    };
    let number = |name: &str| match features.get(name)? {
        Value::Ints(list) => u64::try_from(*list.first()?).ok(),
        _ => None,
    };
    let reason = std::str::from_utf8(text("reason")?).ok()?;
    let (number, epoch) = (number("number")?, number("epoch")?);
    Some(frame(text("source")?, text("key")?, number, epoch, reason, text("value")?, text("companion")))
}

/// Whether a file that ends within its first record has the front of an entry behind that record's head.
fn begins_with_entry(file: &[u8]) -> bool {
    let mut rest = file.get(12..).unwrap_or_default();
    // The features, the first of them and its name: a key each, and a length.
    for _ in 0..3 {
        let Some((b"\n", length)) = rest.split_at_checked(1) else { return false };
        let Some(last) = length.iter().take(10).position(|byte| *byte < 0x80) else { return false };
        rest = &length[last + 1..];
    }
    rest.starts_with(b"source")
}

/// The source of the feed, and what its first record has.
const MADE: &str = "made";
const KEY: &[u8] = b"00000000";
const BAD: &[u8] = b"bad";
const REASON: &str = "it is bad";

/// Feeds two records, the first of which is bad.
fn feed(quarantine: &Path) -> Result<(), FeedError> {
    let source = FnSource::new(MADE, 2, |number, value| {
        value.extend(if number == 0 { BAD } else { b"good" });
        Ok(())
    });
    let length = Field::scalar("length", Dtype::I64);
    let feed = Feed::builder().source(source).decode([length], |record, row| -> Decoded {
        match record.value {
            BAD => Err(DecodeFailure::new(REASON)),
            _ => Ok(row.set(0, 4_i64)?),
        }
    });
    let policy = BadRecords::skip().at_most_rate(1.0).quarantine(quarantine);
    let mut feed = feed.epochs(1).batch_size(2).prefetch(1).threads(1).bad_records(policy).build()?;
    feed.steps().try_for_each(|step| step.map(drop))
}

/// Whether an entry names the feed's record.
fn is_of_feed(entry: &Quarantined) -> bool {
    let named = (entry.source.as_path(), entry.number, &entry.key.0[..], &entry.value[..]);
    named == (Path::new(MADE), 0, KEY, BAD) && entry.companion.is_none()
}

fn frame_of(entry: &Quarantined) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;

    let Quarantined { source, key, number, epoch, reason, value, companion, .. } = entry;
    frame(source.as_os_str().as_bytes(), &key.0, *number, *epoch, reason, value, companion.as_deref())
}

/// An entry, as the file's writer makes it.
fn frame(
    source: &[u8],
    key: &[u8],
    number: u64,
    epoch: u64,
    reason: &str,
    value: &[u8],
    companion: Option<&[u8]>,
) -> Vec<u8> {
    let [number, epoch] = [number, epoch].map(|number| i64::try_from(number).expect("it came from an i64"));
    let mut writer = ExampleWriter::new();
    writer.bytes("source", [source]).bytes("key", [key]).ints("number", [number]).ints("epoch", [epoch]);
    writer.bytes("reason", [reason]).bytes("value", [value]);
    if let Some(companion) = companion {
        writer.bytes("companion", [companion]);
    }
    let mut framed = Vec::new();
    write_record(&mut framed, &writer.to_bytes()).expect("a vector takes all");
    framed
}
