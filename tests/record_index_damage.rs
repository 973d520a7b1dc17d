//! The pages of an LMDB are looked at where they lie, and nothing that they say is believed: whatever is in them, an index of
//! them is an error or leads to records.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed"
)]

mod common;

use std::fs;

use common::indexed::{Records, Written, mixed, page_bytes, walked};
use common::process::{check, child_command, role};
use percolator::{IndexPlace, Lmdb, Source, SourceError};
use tempfile::tempdir;

#[test]
fn damaged_pages_are_errors_or_make_no_difference() {
    const NAME: &str = "damaged_pages_are_errors_or_make_no_difference";
    if role().is_none() {
        return check(NAME, &child_command(NAME, "alone").output().unwrap());
    }
    let records: Records =
        (0..150_usize).map(|index| (common::key(index), vec![index as u8; index * 40 % 2500])).collect();
    let database = Written::with(records.clone());
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let (mut refused, mut found) = (0, 0);
    let mut numbers = 12345_u64;
    let page_bytes = page_bytes(&whole);
    for page in 2..whole.len() / page_bytes {
        let is_tree = matches!(whole[page * page_bytes + 10], 1 | 2);
        // The heads and offsets of each page of the tree, bytes of its nodes, and a few others.
        let nodes = (0..40).map(|_| {
            numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (numbers >> 33) as usize % page_bytes
        });
        let places: Vec<usize> =
            if is_tree { (0..40).chain(nodes).collect() } else { nodes.take(2).collect() };
        for at in places {
            let mut damaged = whole.clone();
            damaged[page * page_bytes + at] ^= [0x01, 0x80, 0xff][at % 3];
            let path = database.folder.path().join(format!("damaged {page} {at}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("data.mdb"), damaged).unwrap();
            let source = Lmdb::open_without_lock(&path).unwrap();
            match source.index(&IndexPlace::Memory) {
                Err(SourceError::BrokenPage { .. } | SourceError::NoPositions { .. }) => refused += 1,
                Err(error) => panic!("page {page}, byte {at}: {error}"),
                Ok(()) => {
                    found += 1;
                    let mut cursor = source.cursor().unwrap();
                    let mut differ = 0;
                    for position in (0..records.len()).rev() {
                        cursor.seek(position as u64).unwrap();
                        let entry = cursor.advance().unwrap().unwrap();
                        differ += usize::from(entry.value() != records[position].1);
                    }
                    assert!(differ < 60, "page {page}, byte {at}: {differ} records differ");
                }
            }
            fs::remove_dir_all(&path).unwrap();
        }
    }
    println!("{refused} refused, {found} not");
    assert!(refused > 500 && found > 100, "{refused} refused, {found} not");
}

#[test]
fn a_tree_that_leads_back_to_itself_or_twice_to_a_page_is_an_error() {
    let database = Written::of(1000);
    let whole = fs::read(database.path().join("data.mdb")).unwrap();
    let page_bytes = page_bytes(&whole);
    let branches: Vec<usize> =
        (2..whole.len() / page_bytes).filter(|page| whole[page * page_bytes + 10] == 1).collect();
    let root = *branches.last().unwrap();
    // Where the offset of a node on the root says that it starts.
    let node = |number: usize| {
        let at = root * page_bytes + 16 + 2 * number;
        root * page_bytes + usize::from(u16::from_le_bytes([whole[at], whole[at + 1]]))
    };
    let second = u16::from_le_bytes([whole[node(1)], whole[node(1) + 1]]);
    for (what, child) in
        [("itself", root as u16), ("another's page", second), ("a meta page", 1), ("no page", 0xfff0)]
    {
        let mut changed = whole.clone();
        changed[node(0)..][..2].copy_from_slice(&child.to_le_bytes());
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), changed).unwrap();
        let source = Lmdb::open_without_lock(folder.path()).unwrap();
        let error = source.index(&IndexPlace::Memory).unwrap_err();
        println!("{what}: {error}");
        assert!(matches!(error, SourceError::BrokenPage { .. }), "{what}: {error}");
    }
}

#[test]
fn a_page_that_is_damaged_after_it_was_indexed_is_an_error() {
    let database = Written::with(mixed(300));
    let records = walked(&database.open());
    drop(database.indexed());
    let data = database.path().join("data.mdb");
    let modified = fs::metadata(&data).unwrap().modified().unwrap();
    let mut damaged = fs::read(&data).unwrap();
    let page_bytes = page_bytes(&damaged);
    for page in (2 * page_bytes..damaged.len()).step_by(page_bytes) {
        if damaged[page + 10] == 2 {
            damaged[page + 8..][..8].fill(0xee);
        }
    }
    // In place of the file, with its length and time: the index is of it as far as one can tell.
    fs::write(&data, damaged).unwrap();
    fs::File::options().write(true).open(&data).unwrap().set_modified(modified).unwrap();
    let source = database.indexed();
    let mut cursor = source.cursor().unwrap();
    for position in 0..records.len() {
        cursor.seek((position * 7 % records.len()) as u64 + 1).unwrap();
        cursor.seek((position * 7 % records.len()) as u64).unwrap();
        let error = cursor.advance().unwrap_err();
        assert!(error.to_string().contains("is no leaf"), "{error}");
    }
}
