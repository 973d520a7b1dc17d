//! Files of other libraries: each read whole and by position, mapped and not.

use std::path::Path;
use std::sync::Arc;

use percolator_files::Access;
use percolator_formats::{DataSet, FormatError, Options, Place, Seeks, Shard};

use crate::accepted::accepted;
use crate::files::Folder;
use crate::memory::{Budget, uncounted, within};

/// A file may be compressed by any factor: what is unpacked has its own limits.
const UNPACKED: Budget = Budget::mebibytes(64, 4_000);
/// Nothing is unpacked: tables of positions, and a buffer.
const PLAIN: Budget = Budget::mebibytes(4, 200);

/// More records than any input may have: each takes a byte of it, plain or unpacked.
const RECORDS_MAX: usize = 1_000_000;
/// What is kept of the records for a comparison.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The records of a shard, as far as they are kept: where each is, and what is in it as a text.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    records: Vec<(Place, String)>,
    error: Option<String>,
}

/// Reads the input as a format, by each way of access: both have the same records, and the same error.
fn read(bytes: &[u8], budget: Budget, path: &Path, format: &str, settings: &[(&str, &str)]) {
    let [mapped, read] = [Access::Mapped, Access::Read].map(|access| {
        let mut options = Options::default();
        options.access = access;
        options.format = Some(format.to_owned());
        options.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        within(bytes, budget, || match DataSet::open(&[path], &options) {
            Ok(data) => Ok(data.shards().iter().map(walk).collect::<Vec<_>>()),
            Err(error) => Err(uncounted(|| error.to_string())),
        })
    });
    assert_eq!(mapped, read, "mapped, and read");
    if mapped.is_ok_and(|shards| shards.iter().all(|shard| shard.error.is_none())) {
        accepted();
    }
}

fn walk(shard: &Arc<dyn Shard>) -> Shown {
    let mut shown = Shown { records: Vec::new(), error: None };
    let is_whole = match read_on(shard, &mut shown) {
        Ok(is_whole) => is_whole,
        Err(error) => {
            shown.error = Some(uncounted(|| error.to_string()));
            false
        }
    };
    check_places(shard, &shown, is_whole);
    shown
}

fn read_on(shard: &Arc<dyn Shard>, shown: &mut Shown) -> Result<bool, FormatError> {
    let grammar = shard.grammar();
    let mut cursor = Arc::clone(shard).cursor()?;
    let mut kept = 0;
    loop {
        let record = match cursor.advance() {
            Ok(None) => {
                assert!(cursor.advance().is_ok_and(|record| record.is_none()), "the end is the end");
                return Ok(true);
            }
            Err(error) => {
                assert!(cursor.advance().is_err_and(|again| again == error), "the error comes again");
                return Err(error);
            }
            Ok(Some(record)) => record,
        };
        let parts = grammar.parts(record.value.bytes());
        let text = uncounted(|| format!("{:?} {parts:?}", record.key));
        for (name, value) in parts.unwrap_or_default() {
            let part = grammar.part(record.value.bytes(), &name);
            // Numbers may be NaN, which does not equal itself.
            let is_same = part.is_ok_and(|part| {
                part.is_some_and(|part| uncounted(|| format!("{part:?}") == format!("{value:?}")))
            });
            assert!(is_same, "the part {name:?} by itself is another");
        }
        kept += text.len();
        uncounted(|| shown.records.push((record.place, text)));
        assert!(shown.records.len() <= RECORDS_MAX, "the records have no end");
        if kept > KEPT_BYTES_MAX {
            return Ok(false);
        }
    }
}

/// Goes to records from the last to the first, and to places where there is none.
fn check_places(shard: &Arc<dyn Shard>, shown: &Shown, is_whole: bool) {
    let Ok(mut passed) = Arc::clone(shard).cursor() else { return };
    for (place, _) in &shown.records {
        assert_eq!(passed.skip().ok().flatten(), Some(*place), "skipping finds the same places");
    }
    if is_whole {
        assert!(passed.skip().is_ok_and(|place| place.is_none()), "skipping ends where reading does");
    }
    if matches!(shard.seeks(), Seeks::InOrder(_)) {
        return;
    }
    let grammar = shard.grammar();
    let Ok(mut cursor) = Arc::clone(shard).cursor() else { return };
    for (position, (place, text)) in shown.records.iter().enumerate().rev().take(64) {
        assert!(cursor.seek(*place, position as u64).is_ok(), "a place that was found is one");
        let record = cursor.advance().ok().flatten().expect("the walk has a record here");
        let parts = grammar.parts(record.value.bytes());
        let found = uncounted(|| format!("{:?} {parts:?}", record.key));
        assert_eq!((record.place, &found), (*place, text), "record {position} is another one");
    }
    for place in [[1, 1], [3, u64::MAX], [u64::MAX, u64::MAX], [u64::MAX - 511, 512]] {
        if cursor.seek(place, 7).is_ok() {
            let _ = cursor.advance().map(|record| record.map(|record| record.place));
        }
    }
}

/// One file of a name that its format knows.
fn one(bytes: &[u8], budget: Budget, name: &str, format: &str, settings: &[(&str, &str)]) {
    let folder = Folder::new();
    let path = folder.with(name, bytes);
    read(bytes, budget, &path, format, settings);
}

/// Two files: the length of the first (two bytes), the first, the second.
fn two(
    bytes: &[u8],
    budget: Budget,
    names: [&str; 2],
    opened: &str,
    format: &str,
    settings: &[(&str, &str)],
) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (first, second) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    let folder = Folder::new();
    folder.with(names[0], first);
    folder.with(names[1], second);
    read(bytes, budget, &folder.path().join(opened), format, settings);
}

pub(crate) fn array_record(bytes: &[u8]) {
    one(bytes, UNPACKED, "a.array_record", "array-record", &[]);
}

/// A file or a stream of Arrow.
pub(crate) fn arrow_ipc(bytes: &[u8]) {
    one(bytes, UNPACKED, "a.arrow", "arrow", &[]);
}

/// A bag whose records are compressed, and the same bytes as one whose records are not.
pub(crate) fn bagz(bytes: &[u8]) {
    one(bytes, PLAIN, "a.bag", "bagz", &[]);
    one(bytes, UNPACKED, "a.bagz", "bagz", &[]);
}

pub(crate) fn csv(bytes: &[u8]) {
    one(bytes, PLAIN, "a.csv", "csv", &[]);
    one(bytes, PLAIN, "a.tsv", "csv", &[("header", "false")]);
}

pub(crate) fn hdf5(bytes: &[u8]) {
    one(bytes, UNPACKED, "a.h5", "hdf5", &[]);
}

/// Lines, plain and compressed.
pub(crate) fn json_lines(bytes: &[u8]) {
    let name = match bytes {
        [0x1f, 0x8b, ..] => "a.jsonl.gz",
        [0x28, 0xb5, ..] => "a.jsonl.zst",
        _ => "a.jsonl",
    };
    one(bytes, UNPACKED, name, "jsonl", &[]);
}

/// `LitData`'s index and its first chunk, whose tokens are records of four where it has tokens.
pub(crate) fn litdata(bytes: &[u8]) {
    for settings in [&[][..], &[("block", "4")]] {
        two(bytes, UNPACKED, ["index.json", "chunk-0-0.bin"], "", "litdata", settings);
    }
}

/// `im2rec`'s list of images.
pub(crate) fn lst(bytes: &[u8]) {
    one(bytes, PLAIN, "a.lst", "lst", &[]);
}

/// MDS's index and its first shard.
pub(crate) fn mds(bytes: &[u8]) {
    two(bytes, UNPACKED, ["index.json", "shard.00000.mds"], "", "mds", &[]);
}

/// Megatron's index and its tokens.
pub(crate) fn megatron(bytes: &[u8]) {
    two(bytes, PLAIN, ["a.idx", "a.bin"], "a.idx", "megatron", &[]);
}

/// The rows of an array.
pub(crate) fn npy_rows(bytes: &[u8]) {
    one(bytes, PLAIN, "a.npy", "npy", &[]);
}

/// The rows of an archive's arrays.
pub(crate) fn npz_rows(bytes: &[u8]) {
    one(bytes, UNPACKED, "a.npz", "npz", &[]);
}

pub(crate) fn parquet(bytes: &[u8]) {
    one(bytes, UNPACKED, "a.parquet", "parquet", &[]);
}

/// `MXNet`'s index and its records; without an index if that is empty.
pub(crate) fn recordio(bytes: &[u8]) {
    match bytes {
        [0, 0, rest @ ..] => one(rest, PLAIN, "a.rec", "recordio", &[]),
        _ => two(bytes, PLAIN, ["a.idx", "a.rec"], "a.rec", "recordio", &[]),
    }
}

/// A tar, plain and compressed.
pub(crate) fn tar(bytes: &[u8]) {
    let name = match bytes {
        [0x1f, 0x8b, ..] => "a.tar.gz",
        [0x28, 0xb5, ..] => "a.tar.zst",
        _ => "a.tar",
    };
    one(bytes, UNPACKED, name, "tar", &[]);
}
