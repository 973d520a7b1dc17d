//! LMDB: a data file, the sidecar of its index, and a lock file.

use std::path::Path;

use percolator::source::{IndexPlace, Lmdb, Source};

use crate::accepted::accepted;
use crate::files::{Folder, Walked, walk, walk_both};
use crate::memory::{Budget, within};
use crate::repair;

/// A page of 64 KiB for each level of a tree, and the lists of free pages. What is walked is kept here.
const BUDGET: Budget = Budget::mebibytes(8, 64);

/// A data file, mapped and read: both ways give the same records, which an index finds again.
pub(crate) fn lmdb(bytes: &[u8]) {
    let folder = Folder::new();
    folder.with("data.mdb", bytes);
    // A record takes eight bytes and its offset at the least.
    walk_both(bytes, BUDGET, bytes.len() / 8, |access| {
        Lmdb::options().access(access).without_lock().open(folder.path())
    });
}

/// The sidecar of an index, beside a database of its own: each record is the database's, whatever the sidecar
/// says, or there is an error.
pub(crate) fn lmdb_sidecar(bytes: &[u8]) {
    const DATA: &[u8] = include_bytes!("../seeds/few.mdb");

    let folder = Folder::new();
    folder.with("few/data.mdb", DATA);
    let open = || Lmdb::options().without_lock().open(folder.path().join("few")).expect("it is whole");
    let walked = walk(&open(), DATA.len());
    sidecar(bytes, &folder, &|| Box::new(open()), &walked);
}

/// Reads a database whose records are known with this sidecar beside it.
pub(crate) fn sidecar(bytes: &[u8], folder: &Folder, open: &dyn Fn() -> Box<dyn Source>, walked: &Walked) {
    let path = sidecar_of(open().path());
    // The identity has the time at which the file was changed, which no input can know.
    open().index(&IndexPlace::Beside).expect("an index can be made");
    let made = std::fs::read(&path).expect("there is an index");
    for bytes in [bytes.to_vec(), with_identity_of(&made, bytes)] {
        repair::both(&bytes, repair::sidecar, |bytes| {
            std::fs::write(&path, bytes).expect("a file can be written");
            within(bytes, BUDGET, || check_positions_or_errors(&*open(), walked));
        });
    }
    drop(std::fs::remove_file(folder.path().join(&path)));
}

fn sidecar_of(database: &Path) -> std::path::PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".percolator-index");
    name.into()
}

/// The head of a sidecar that is believed, with other numbers and places.
fn with_identity_of(made: &[u8], bytes: &[u8]) -> Vec<u8> {
    const FIXED_BYTES: usize = 36;

    let identity = u32::from_le_bytes(made[32..36].try_into().expect("four bytes")) as usize;
    let rest = FIXED_BYTES + identity;
    let mut forged = made.to_vec();
    let places = bytes.get(FIXED_BYTES..).unwrap_or_default();
    forged.truncate(rest);
    forged.extend(places);
    // As many numbers as there is room for, so that the lengths add up.
    let (mut numbers, len) = (forged.len().saturating_sub(rest + 8) / 8, forged.len());
    while numbers > 0 && head_bytes(identity, numbers) + numbers * 8 > len {
        numbers -= 1;
    }
    forged.resize(head_bytes(identity, numbers) + numbers * 8, 0);
    forged[24..32].copy_from_slice(&(numbers as u64).to_le_bytes());
    forged
}

fn head_bytes(identity: usize, numbers: usize) -> usize {
    const PART_NUMBERS: usize = 8 << 10;

    (36 + identity + (numbers.div_ceil(PART_NUMBERS) + 1) * 4).next_multiple_of(8)
}

/// Each position has a record of the database, or an error.
fn check_positions_or_errors(source: &dyn Source, walked: &Walked) {
    if source.index(&IndexPlace::Beside).is_err() {
        return;
    }
    let Ok(mut cursor) = source.cursor() else { return };
    for position in (0..walked.records.len() as u64 + 2).rev() {
        let Ok(()) = cursor.seek(position) else { continue };
        if let Ok(Some(entry)) = cursor.advance() {
            let is_one =
                walked.records.iter().any(|(key, value)| entry.key() == key && entry.value() == value);
            assert!(is_one, "position {position} has no record of the database");
            accepted();
        }
    }
}
