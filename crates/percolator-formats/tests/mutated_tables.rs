//! Tables with changed bytes: reading them ends, and takes memory in proportion.
#![cfg(all(feature = "arrow", feature = "parquet"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]
#![expect(unsafe_code, reason = "the allocator of this test notes the largest allocation")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{cases, files_of};
use percolator_files::Access;
use percolator_formats::{FormatError, Options, Shard, arrow_ipc, parquet_file};

/// No golden file has more rows.
const RECORDS_MAX: usize = 100_000;

/// No golden file has 100 KB, and no page of it takes as much.
const ALLOCATION_MAX: usize = 32 << 20;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Noting;

// SAFETY: the system's allocator does all; its arguments and results are passed on as they are.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static NOTING: Noting = Noting;

type Open = fn(&Path, &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError>;

/// Reads everything, forwards and the first places backwards.
fn read(open: Open, file: &Path, access: Access) -> Result<usize, FormatError> {
    let mut options = Options::default();
    options.access = access;
    let mut records = 0;
    for shard in open(file, &options)? {
        let grammar = shard.grammar();
        let mut cursor = shard.cursor()?;
        let mut places = Vec::new();
        let end = loop {
            match cursor.advance() {
                Ok(Some(record)) => {
                    let _ = grammar.parts(record.value.bytes()).expect("a packed record is whole");
                    places.push(record.place);
                }
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            assert!(places.len() < RECORDS_MAX, "{} does not end", file.display());
        };
        if let Some(error) = end {
            assert_eq!(cursor.advance().expect_err("the error stays"), error);
        }
        for (position, place) in places.iter().enumerate().rev().step_by(7) {
            cursor.seek(*place, position as u64)?;
            cursor.advance()?.expect("it was there");
        }
        records += places.len();
    }
    Ok(records)
}

/// Changes single bytes of a file, and cuts it, at many places.
fn mutate(open: Open, original: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = fs::read(original).unwrap();
    let step = (bytes.len() / 120).max(1);
    for (number, at) in (0..bytes.len()).step_by(step).enumerate() {
        // A new file each time: the one before may be mapped.
        let file = folder.path().join(format!("{number}"));
        for (kind, mask) in [0xFF, 0x01, 0x80].into_iter().enumerate() {
            let mut changed = bytes.clone();
            changed[at] ^= mask;
            fs::write(&file, &changed).unwrap();
            let access = if kind % 2 == 0 { Access::Read } else { Access::Mapped };
            let _ = read(open, &file, access);
            fs::remove_file(&file).unwrap();
        }
        fs::write(&file, &bytes[..at]).unwrap();
        let _ = read(open, &file, Access::Mapped);
        fs::remove_file(&file).unwrap();
    }
    let largest = LARGEST.load(Ordering::Relaxed);
    assert!(largest < ALLOCATION_MAX, "{}: {largest} bytes were allocated at once", original.display());
}

#[test]
fn changed_arrow_files_are_survived() {
    for case in [cases("arrow-ipc-file"), cases("arrow-ipc-stream")].concat() {
        files_of(case).iter().for_each(|file| mutate(arrow_ipc::open, file));
    }
}

#[test]
fn changed_parquet_files_are_survived() {
    for case in cases("parquet") {
        files_of(case).iter().for_each(|file| mutate(parquet_file::open, file));
    }
}
