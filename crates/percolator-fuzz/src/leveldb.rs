//! LevelDB: a table, a log and a MANIFEST as a part of a database, and the sidecar of an index.

use percolator::leveldb::LogGaps;
use percolator::source::LevelDb;
use percolator_files::checksum::masked_crc32c;
use percolator_leveldb::coding::put_varint;

use crate::files::{Folder, walk, walk_both};
use crate::memory::Budget;
use crate::{lmdb, repair};

/// A log is kept in memory, a block is unpacked to 64/3 of its length, and a cursor that reads has groups of
/// blocks.
const BUDGET: Budget = Budget::mebibytes(24, 96);

/// The files of a whole database: two tables, a log, and the MANIFEST of them.
const FILES: [(&str, &[u8]); 5] = [
    ("000005.ldb", include_bytes!("../seeds/leveldb/000005.ldb")),
    ("000008.ldb", include_bytes!("../seeds/leveldb/000008.ldb")),
    ("000009.log", include_bytes!("../seeds/leveldb/000009.log")),
    ("CURRENT", include_bytes!("../seeds/leveldb/CURRENT")),
    ("MANIFEST-000007", include_bytes!("../seeds/leveldb/MANIFEST-000007")),
];

/// A table in a database that has it in a level of its own, mapped and read.
pub(crate) fn leveldb_table(bytes: &[u8]) {
    repair::both(bytes, repair::table, |bytes| {
        let folder = Folder::new();
        folder.with("CURRENT", b"MANIFEST-000002\n");
        folder.with("MANIFEST-000002", &manifest(Some(bytes.len())));
        folder.with("000003.log", b"");
        folder.with("000005.ldb", bytes);
        check(&folder, bytes, LogGaps::Refuse);
    });
}

/// A log, of which a database consists, mapped and read; with gaps refused and allowed.
pub(crate) fn leveldb_log(bytes: &[u8]) {
    repair::both(bytes, repair::log, |bytes| {
        let folder = Folder::new();
        folder.with("CURRENT", b"MANIFEST-000002\n");
        folder.with("MANIFEST-000002", &manifest(None));
        folder.with("000003.log", bytes);
        for gaps in [LogGaps::Refuse, LogGaps::Allow] {
            check(&folder, bytes, gaps);
        }
    });
}

/// A MANIFEST over files that are whole. Whatever it says, no file is read that is not a table or a log of
/// this folder.
pub(crate) fn leveldb_manifest(bytes: &[u8]) {
    repair::both(bytes, repair::log, |bytes| {
        let folder = whole();
        folder.with("MANIFEST-000007", bytes);
        for gaps in [LogGaps::Refuse, LogGaps::Allow] {
            check(&folder, bytes, gaps);
        }
    });
}

/// The sidecar of an index: see [`lmdb::lmdb_sidecar`].
pub(crate) fn leveldb_sidecar(bytes: &[u8]) {
    let folder = Folder::new();
    for (name, file) in FILES {
        folder.with(&format!("database/{name}"), file);
    }
    let open = || LevelDb::open(folder.path().join("database")).expect("it is whole");
    let walked = walk(&open(), 1000);
    lmdb::sidecar(bytes, &folder, &|| Box::new(open()), &walked);
}

fn whole() -> Folder {
    let folder = Folder::new();
    for (name, file) in FILES {
        folder.with(name, file);
    }
    folder
}

fn check(folder: &Folder, bytes: &[u8], gaps: LogGaps) {
    // What the files of the database itself have comes on top.
    let most = 16 * bytes.len() + 1000;
    walk_both(bytes, BUDGET, most, |access| {
        LevelDb::options().access(access).log_gaps(gaps).open(folder.path())
    });
}

/// The MANIFEST of a database with a log, and a table of so many bytes if there is one.
fn manifest(table_bytes: Option<usize>) -> Vec<u8> {
    const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";
    const SEQUENCE_MAX: u64 = (1 << 56) - 1;

    let mut edit = vec![1, COMPARATOR.len().to_le_bytes()[0]];
    edit.extend(COMPARATOR);
    // The oldest log that is needed, the one before it, the next number, the last write.
    edit.extend([2, 3, 9, 0, 3, 8, 4]);
    put_varint(&mut edit, if table_bytes.is_some() { SEQUENCE_MAX } else { 0 });
    if let Some(bytes) = table_bytes {
        // Table 5 of level 0, from the first key to one that no other key of the corpus is behind.
        edit.extend([7, 0, 5]);
        put_varint(&mut edit, bytes as u64);
        let tag = (SEQUENCE_MAX << 8 | 1).to_le_bytes();
        for (user, tag) in [(&b""[..], tag), (&[0xff; 16], [1, 0, 0, 0, 0, 0, 0, 0])] {
            put_varint(&mut edit, (user.len() + tag.len()) as u64);
            edit.extend(user);
            edit.extend(tag);
        }
    }
    let bytes = u16::try_from(edit.len()).expect("an edit of this size fits a fragment");
    let body = [&[1], &edit[..]].concat();
    [&masked_crc32c(&body, &[]).to_le_bytes()[..], &bytes.to_le_bytes(), &body].concat()
}
