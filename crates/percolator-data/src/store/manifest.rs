//! The list of a LevelDB's tables: its MANIFEST, and the file CURRENT, which names it.
//!
//! A MANIFEST is a log of edits. The first states how keys are compared, each of the others adds a table: so
//! the list grows with the database, and a run that goes on with it reads it. A log consists of blocks of
//! 32 KiB, and a record of pieces, none of which crosses a block's end:
//!
//! ```text
//! masked crc32c of the kind and the bytes: 4 | length: 2 | kind: whole, first, middle or last | bytes
//! ```

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use percolator_files::{input_file, whole_file};
use percolator_table::checksum::Crc32c;
use percolator_table::coding::{Coded, put_varint};

use super::StoreError;
use super::leveldb::Table;

/// The only order of keys.
const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

/// The MANIFEST, whose number is 1.
const NAME: &str = "MANIFEST-000001";

// The tags of an edit; each says what follows it.
const COMPARATOR_NAME: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE_NUMBER: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const NEW_FILE: u64 = 7;

/// A key as a table has it: with the number of its write, and the kind of that: a value.
pub(super) fn tagged(key: &[u8], sequence: u64) -> Vec<u8> {
    const VALUE: u64 = 1;

    [key, &(sequence << 8 | VALUE).to_le_bytes()].concat()
}

/// A list of tables that is being written.
#[derive(Debug)]
pub(super) struct Manifest {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Manifest {
    /// Starts a list without tables.
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(NAME);
        let file = File::create_new(&path).map_err(StoreError::io(&path, "create the list of tables"))?;
        let mut manifest = Manifest { path, file, bytes: 0 };
        let mut edit = Vec::new();
        put_varint(&mut edit, COMPARATOR_NAME);
        put_bytes(&mut edit, COMPARATOR);
        // The manifest's own number is below those of the tables.
        for (tag, number) in [(LOG_NUMBER, 0), (NEXT_FILE_NUMBER, 2), (LAST_SEQUENCE, 0)] {
            put_varint(&mut edit, tag);
            put_varint(&mut edit, number);
        }
        manifest.append(&edit)?;
        Ok(manifest)
    }

    /// Goes on with a list of this length; what was added after that is dropped. Returns its tables, and the
    /// sequence number of the last record.
    pub(super) fn reopen(folder: &Path, bytes: u64) -> Result<(Self, Vec<Table>, u64), StoreError> {
        let path = folder.join(NAME);
        let failed = |action| StoreError::io(&path, action);
        let changed = |found: String| StoreError::Changed { path: path.clone(), found };
        let (file, found) = input_file::open(&path).map_err(failed("open the list of tables"))?;
        let log = read_front(file, bytes.min(found)).map_err(failed("read the list of tables"))?;
        if (log.len() as u64) < bytes {
            return Err(changed(format!("it has {} bytes, and had {bytes} before", log.len())));
        }
        let (tables, sequence) =
            read(&log).ok_or_else(|| changed("it is not the list of tables that was written".to_owned()))?;
        let file = File::options().append(true).open(&path).map_err(failed("open the list of tables"))?;
        file.set_len(bytes).map_err(failed("shorten the list of tables"))?;
        Ok((Manifest { path, file, bytes }, tables, sequence))
    }

    /// Adds a table. `sequence` is the number of its last record.
    pub(super) fn add(&mut self, table: &Table, sequence: u64) -> Result<(), StoreError> {
        let mut edit = Vec::new();
        for (tag, number) in [(NEXT_FILE_NUMBER, table.number + 1), (LAST_SEQUENCE, sequence)] {
            put_varint(&mut edit, tag);
            put_varint(&mut edit, number);
        }
        put_varint(&mut edit, NEW_FILE);
        for number in [table.level.into(), table.number, table.bytes] {
            put_varint(&mut edit, number);
        }
        put_bytes(&mut edit, &table.smallest);
        put_bytes(&mut edit, &table.largest);
        self.append(&edit)
    }

    /// The length of the list.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes it the list of the database.
    pub(super) fn finish(self) -> Result<(), StoreError> {
        let current = self.path.with_file_name("CURRENT");
        whole_file::write(&current, &[NAME.as_bytes(), b"\n"])
            .map_err(StoreError::io(&current, "name the list of tables"))
    }

    fn append(&mut self, edit: &[u8]) -> Result<(), StoreError> {
        let pieces = log_record(edit, self.bytes);
        let written = self.file.write_all(&pieces).and_then(|()| self.file.sync_data());
        written.map_err(StoreError::io(&self.path, "write the list of tables"))?;
        self.bytes += pieces.len() as u64;
        Ok(())
    }
}

fn put_bytes(edit: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(edit, bytes.len() as u64);
    edit.extend_from_slice(bytes);
}

const BLOCK_BYTES: usize = 32 << 10;
const HEAD_BYTES: usize = 7;

// The kinds of pieces.
const WHOLE: u8 = 1;
const FIRST: u8 = 2;
const MIDDLE: u8 = 3;
const LAST: u8 = 4;

/// A record as a log has it that is `at` bytes long.
fn log_record(mut record: &[u8], at: u64) -> Vec<u8> {
    let mut log = Vec::new();
    let mut is_first = true;
    loop {
        let in_block = (usize::try_from(at % BLOCK_BYTES as u64).expect("it is less than a block")
            + log.len())
            % BLOCK_BYTES;
        if BLOCK_BYTES - in_block < HEAD_BYTES {
            log.resize(log.len() + BLOCK_BYTES - in_block, 0);
            continue;
        }
        let room = BLOCK_BYTES - in_block - HEAD_BYTES;
        let (piece, rest) = record.split_at(record.len().min(room));
        let kind = match (is_first, rest.is_empty()) {
            (true, true) => WHOLE,
            (true, false) => FIRST,
            (false, true) => LAST,
            (false, false) => MIDDLE,
        };
        log.extend_from_slice(&checksum(kind, piece).to_le_bytes());
        let length = u16::try_from(piece.len()).expect("a block has fewer bytes than 65,536");
        log.extend_from_slice(&length.to_le_bytes());
        log.push(kind);
        log.extend_from_slice(piece);
        if rest.is_empty() {
            return log;
        }
        (record, is_first) = (rest, false);
    }
}

fn checksum(kind: u8, piece: &[u8]) -> u32 {
    let mut checksum = Crc32c::new();
    checksum.update(&[kind]);
    checksum.update(piece);
    checksum.masked()
}

/// The first bytes of a file, or as many of them as there are.
fn read_front(file: File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut log = Vec::new();
    let room = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    log.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.take(bytes).read_to_end(&mut log)?;
    Ok(log)
}

/// The tables of a list that [`Manifest`] wrote, and the last sequence number; `None` if it is another.
fn read(log: &[u8]) -> Option<(Vec<Table>, u64)> {
    let (mut tables, mut sequence, mut edit) = (Vec::new(), 0, Vec::new());
    for block in log.chunks(BLOCK_BYTES) {
        let mut rest = block;
        while let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let [a, b, c, d, low, high, kind] = *head;
            let length = usize::from(u16::from_le_bytes([low, high]));
            let (piece, after) = body.split_at_checked(length)?;
            if checksum(kind, piece) != u32::from_le_bytes([a, b, c, d]) {
                return None;
            }
            edit.extend_from_slice(piece);
            rest = after;
            if matches!(kind, WHOLE | LAST) {
                read_edit(&edit, &mut tables, &mut sequence)?;
                edit.clear();
            }
        }
    }
    edit.is_empty().then_some((tables, sequence))
}

fn read_edit(edit: &[u8], tables: &mut Vec<Table>, sequence: &mut u64) -> Option<()> {
    let mut edit = Coded::new(edit);
    while !edit.is_empty() {
        match edit.varint64()? {
            COMPARATOR_NAME => drop(edit.string()?),
            LOG_NUMBER | NEXT_FILE_NUMBER => drop(edit.varint64()?),
            LAST_SEQUENCE => *sequence = edit.varint64()?,
            NEW_FILE => tables.push(Table {
                level: edit.varint32()?,
                number: edit.varint64()?,
                bytes: edit.varint64()?,
                smallest: edit.string()?.to_vec(),
                largest: edit.string()?.to_vec(),
            }),
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_at_each_length() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::create(folder.path()).unwrap();
        let mut lengths = vec![manifest.bytes()];
        // Keys of all lengths about a block's end.
        let table = |number: u64| Table {
            number,
            level: 6,
            bytes: number * 3,
            smallest: vec![1; 32_700 + usize::try_from(number).unwrap()],
            largest: vec![2; usize::try_from(number % 5).unwrap()],
        };
        for number in 0..70 {
            manifest.add(&table(number), number * 10).unwrap();
            lengths.push(manifest.bytes());
        }
        drop(manifest);
        for (count, bytes) in lengths.iter().enumerate().rev() {
            let (manifest, tables, sequence) = Manifest::reopen(folder.path(), *bytes).unwrap();
            let wanted: Vec<_> = (0..count as u64).map(table).collect();
            assert!(tables == wanted, "{} tables, not {count}", tables.len());
            assert_eq!((manifest.bytes(), sequence), (*bytes, 10 * (count as u64).saturating_sub(1)));
        }
        let error = Manifest::reopen(folder.path(), lengths[1]).unwrap_err();
        assert!(matches!(error, StoreError::Changed { .. }), "{error}");
    }
}
