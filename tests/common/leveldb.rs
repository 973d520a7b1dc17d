//! Writes LevelDBs, with a writer in Rust.

use std::path::Path;

use rusty_leveldb::{DB, Options};

/// Writes a LevelDB of these records. The last ones stay in its log: as many as the write buffer takes.
pub fn write(folder: &Path, options: Options, records: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) {
    let mut database = DB::open(folder, options).unwrap();
    for (key, value) in records {
        database.put(&key, &value).unwrap();
    }
    database.flush().unwrap();
    database.close().unwrap();
}
