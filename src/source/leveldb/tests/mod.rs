//! Cursors over real databases: what they lend, leave to be verified, find by position and have unpacked.

mod deferring;
mod seeking;
#[cfg(not(shuttle))]
mod unpacking;

use super::*;
use crate::record::RecordId;
use crate::source::{Record, Run};

fn open(name: &str, held_max: usize) -> LevelDb {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/leveldb").join(name);
    LevelDbOptions(Options { access: Access::Mapped, held_max, ..Options::default() }).open(path).unwrap()
}

/// Reads the records of a database into one run; returns it and how many of them were lent.
fn read(source: &LevelDb) -> (Run, usize) {
    let mut run = Run::with_capacity(0);
    let mut lent = 0;
    let mut cursor = source.cursor().unwrap();
    while let Some(entry) = cursor.advance().unwrap() {
        lent += usize::from(entry.is_lent());
        run.push(RecordId::default(), entry);
    }
    (run, lent)
}

#[test]
fn values_are_lent_where_they_lie_in_a_file_that_stays_mapped() {
    for (name, log_only) in [("uncompressed", false), ("levels", false), ("big_values", true)] {
        let (kept, unkept) = (open(name, 99), open(name, 0));
        let ((kept, kept_lent), (unkept, unkept_lent)) = (read(&kept), read(&unkept));
        let same = |(one, other): (Record<'_>, Record<'_>)| (one.key, one.value) == (other.key, other.value);
        assert!(kept.len() == unkept.len() && kept.iter().zip(unkept.iter()).all(same), "{name}");
        match (name, log_only) {
            ("uncompressed", _) => assert_eq!((kept_lent, unkept_lent), (kept.len(), 0)),
            (_, true) => assert_eq!((kept_lent, unkept_lent), (kept.len(), kept.len())),
            // Compressed blocks, and a log.
            _ => assert!(kept_lent > 0 && kept_lent < kept.len() && kept_lent == unkept_lent, "{kept_lent}"),
        }
    }
}
