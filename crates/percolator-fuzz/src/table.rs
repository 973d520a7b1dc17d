//! Sorted tables (`percolator_leveldb::table`), which LevelDB and TensorFlow's checkpoints have in common.

use percolator_leveldb::table::{
    EntryPlace, PlaceCursor, TableBuilder, TableCursor, TableError, TableOptions, Verify,
};

use crate::accepted::accepted;
use crate::memory::{Budget, uncounted, within};
use crate::repair;

/// A cursor holds at most 22 times the file's length, and two keys.
const BUDGET: Budget = Budget::per_byte(24);
/// No key may be longer, as in a LevelDB.
const KEY_BYTES_MAX: usize = 8 << 10;
/// What is kept for a comparison.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// An entry, and where it is.
type Entry = (Vec<u8>, Vec<u8>, Option<EntryPlace>);

/// A table, read in every way: with blocks verified on entry and later, from place to place, and by keys.
/// What is built of its entries has the same entries.
pub(crate) fn table(bytes: &[u8]) {
    repair::both(bytes, repair::table, |bytes| {
        let at_once = within(bytes, BUDGET, || walk(bytes, Verify::AtOnce));
        let later = within(bytes, BUDGET, || walk(bytes, Verify::ByTheUser { block_bytes_min: 0 }));
        assert_eq!(at_once.1, later.1, "a block is verified at any time, or at none");
        let (entries, is_whole) = at_once;
        if !is_whole {
            return;
        }
        accepted();
        assert!(entries == later.0, "blocks verified later have other entries");
        within(bytes, BUDGET, || check_places(bytes, &entries));
        if entries.is_sorted_by(|one, next| one.0 < next.0) {
            within(bytes, BUDGET, || check_seeks(bytes, &entries));
            check_built(&entries);
        }
    });
}

/// The entries, and whether these are all and the end was reached without an error.
fn walk(bytes: &[u8], verify: Verify) -> (Vec<Entry>, bool) {
    let mut entries = Vec::new();
    let is_whole = read_on(bytes, verify, &mut entries).is_ok_and(|is_at_end| is_at_end);
    (entries, is_whole)
}

fn read_on(bytes: &[u8], verify: Verify, entries: &mut Vec<Entry>) -> Result<bool, TableError> {
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(bytes, verify)?;
    let mut kept = 0;
    while cursor.advance()? {
        if kept <= KEPT_BYTES_MAX {
            kept += cursor.key().len() + cursor.value_bytes().len();
            uncounted(|| {
                entries.push((cursor.key().to_vec(), cursor.value_bytes().to_vec(), cursor.place()));
            });
        }
    }
    Ok(kept <= KEPT_BYTES_MAX)
}

fn check_places(bytes: &[u8], entries: &[Entry]) {
    let mut cursor = PlaceCursor::new(KEY_BYTES_MAX);
    for (key, _, place) in entries.iter().rev().take(64) {
        let place = place.expect("a cursor at an entry knows its place");
        let is_there = cursor.go_to(bytes, place, Verify::AtOnce).expect("the block was read before");
        assert!(is_there && cursor.key() == key, "another entry is at {place:?}");
    }
}

fn check_seeks(bytes: &[u8], entries: &[Entry]) {
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(bytes, Verify::AtOnce).expect("it was opened before");
    for (due, _, _) in entries.iter().step_by(entries.len().div_ceil(16).max(1)) {
        // The index may lead past a key, or to a block before it, for its keys are as much a claim as any.
        if let Ok(true) = cursor.seek(|key| key < &due[..]) {
            assert!(cursor.key() >= &due[..], "a seek ends before its target");
        }
    }
}

fn check_built(entries: &[Entry]) {
    let mut builder =
        TableBuilder::new(Vec::new(), TableOptions { block_bytes: 64, ..TableOptions::default() });
    for (key, value, _) in entries {
        builder.add(key, value).expect("the keys ascend");
    }
    let built = builder.finish().expect("a vector takes all");
    let (again, is_whole) = walk(&built, Verify::AtOnce);
    let alike = |(one, other): (&Entry, &Entry)| one.0 == other.0 && one.1 == other.1;
    assert!(is_whole && again.len() == entries.len() && again.iter().zip(entries).all(alike));
}
