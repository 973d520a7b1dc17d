//! Tables checked against the simplest writer of them, and against a map.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, reason = "a test's tables are small")]

use std::collections::BTreeMap;
use std::ops::Range;

use percolator_files::checksum::masked_crc32c;
use proptest::prelude::*;

use super::block::TRAILER_BYTES;
use super::footer::{FOOTER_BYTES, MAGIC};
use super::*;

/// Longer than any key written here.
const KEY_BYTES_MAX: usize = 1000;

pub(crate) type Map = BTreeMap<Vec<u8>, Vec<u8>>;
pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn varint(bytes: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// The uncompressed bytes of a block, with a restart point every `interval` entries.
pub(crate) fn block<'a>(entries: impl Iterator<Item = (&'a [u8], &'a [u8])>, interval: usize) -> Vec<u8> {
    let (mut block, mut restarts, mut last) = (Vec::new(), vec![0_u32], Vec::new());
    for (count, (key, value)) in entries.enumerate() {
        let mut shared = last.iter().zip(key).take_while(|(one, other)| one == other).count();
        if count % interval == 0 && count > 0 {
            shared = 0;
            restarts.push(block.len() as u32);
        }
        [shared, key.len() - shared, value.len()].iter().for_each(|&length| varint(&mut block, length));
        block.extend(&key[shared..]);
        block.extend(value);
        last = key.to_vec();
    }
    restarts.iter().for_each(|restart| block.extend(restart.to_le_bytes()));
    block.extend((restarts.len() as u32).to_le_bytes());
    block
}

/// Adds a block with its type and its checksum; returns its handle.
pub(crate) fn add(table: &mut Vec<u8>, kind: u8, contents: &[u8]) -> Vec<u8> {
    let mut handle = Vec::new();
    varint(&mut handle, table.len());
    varint(&mut handle, contents.len());
    let covered = [contents, &[kind]].concat();
    let checksum = masked_crc32c(&covered, &[]);
    table.extend(covered);
    table.extend(checksum.to_le_bytes());
    handle
}

fn end(table: &mut Vec<u8>, index: &[u8]) {
    let mut footer = [add(table, 0, &block([].into_iter(), 1)), index.to_vec()].concat();
    footer.resize(FOOTER_BYTES - 8, 0);
    table.extend(footer);
    table.extend(MAGIC.to_le_bytes());
}

#[derive(Clone, Debug)]
struct Shape {
    entries_per_block: usize,
    interval: usize,
    snappy: bool,
}

fn write(map: &Map, shape: &Shape) -> Vec<u8> {
    let pack = |bytes: Vec<u8>| match shape.snappy {
        true => (1, snap::raw::Encoder::new().compress_vec(&bytes).unwrap()),
        false => (0, bytes),
    };
    let (mut table, mut index) = (Vec::new(), Vec::new());
    let entries: Vec<(&[u8], &[u8])> = map.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    for entries in entries.chunks(shape.entries_per_block) {
        let (kind, bytes) = pack(block(entries.iter().copied(), shape.interval));
        index.push((entries.last().unwrap().0.to_vec(), add(&mut table, kind, &bytes)));
    }
    let index = block(index.iter().map(|(key, handle)| (&key[..], &handle[..])), 1);
    let (kind, bytes) = pack(index);
    let handle = add(&mut table, kind, &bytes);
    end(&mut table, &handle);
    table
}

fn current(cursor: &TableCursor<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let value = match cursor.value() {
        Value::InFile(range) => cursor.file().unwrap()[range].to_vec(),
        Value::Unpacked(value) => value.to_vec(),
    };
    (cursor.key().to_vec(), value)
}

fn drain(cursor: &mut TableCursor<&[u8]>) -> Result<Entries, TableError> {
    let mut entries = Vec::new();
    while cursor.advance()? {
        entries.push(current(cursor));
    }
    Ok(entries)
}

pub(crate) fn read(table: &[u8]) -> Result<Entries, TableError> {
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(table, Verify::AtOnce)?;
    drain(&mut cursor)
}

pub(crate) fn maps() -> impl Strategy<Value = Map> {
    let key =
        prop_oneof!["k[ab]{0,6}".prop_map(String::into_bytes), prop::collection::vec(any::<u8>(), 0..4)];
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..30),
        (0..300_usize).prop_map(|length| vec![7; length]),
    ];
    prop::collection::btree_map(key, value, 0..40)
}

fn shapes() -> impl Strategy<Value = Shape> {
    (1..9_usize, 1..5_usize, any::<bool>()).prop_map(|(entries_per_block, interval, snappy)| Shape {
        entries_per_block,
        interval,
        snappy,
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read(map in maps(), shape in shapes()) {
        let due: Vec<_> = map.clone().into_iter().collect();
        prop_assert_eq!(read(&write(&map, &shape)), Ok(due));
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes Miri minutes")]
    fn a_search_finds_what_a_map_finds(
        map in maps(), shape in shapes(),
        targets in prop::collection::vec(
            prop::collection::vec(prop_oneof![97..100_u8, Just(b'k'), any::<u8>()], 0..6), 1..5,
        ),
    ) {
        let table = write(&map, &shape);
        let mut cursor = TableCursor::new(KEY_BYTES_MAX);
        cursor.open(&table[..], Verify::AtOnce).unwrap();
        for target in targets.iter().chain(map.keys()) {
            let rest = map.range(target.clone()..);
            let due: Vec<_> = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
            prop_assert_eq!(cursor.seek(|key| key < &target[..]), Ok(!due.is_empty()));
            if let Some(first) = due.first() {
                prop_assert_eq!(&current(&cursor), first);
                prop_assert_eq!(drain(&mut cursor).unwrap(), &due[1..]);
            }
            prop_assert_eq!(cursor.advance(), Ok(false));
        }
    }

    /// Every byte is checked except those of the filter block and of the footer's padding.
    #[test]
    fn a_changed_byte_is_found_or_harms_nothing(
        map in maps(), shape in shapes(), at in any::<prop::sample::Index>(), change in 1..=255_u8,
    ) {
        let mut table = write(&map, &shape);
        let at = at.index(table.len());
        table[at] ^= change;
        if let Ok(entries) = read(&table) {
            prop_assert_eq!(entries, map.into_iter().collect::<Vec<_>>());
            prop_assert!(at >= table.len() - FOOTER_BYTES - TRAILER_BYTES - 8, "byte {}", at);
        }
    }

    /// Checksums match, but the bytes are forged: only length checks protect a cursor then.
    #[test]
    fn forged_blocks_end(
        map in maps(), shape in shapes(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        target in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let mut table = write(&map, &shape);
        let blocks = blocks(&table);
        for (at, byte) in changes {
            let at = at.index(table.len() - FOOTER_BYTES);
            table[at] = byte;
        }
        for block in blocks {
            let checksum = masked_crc32c(&table[block.start..=block.end], &[]);
            table[block.end + 1..block.end + TRAILER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        }
        let _ = read(&table);
        let mut cursor = TableCursor::new(KEY_BYTES_MAX);
        if cursor.open(&table[..], Verify::AtOnce).is_ok() {
            let _ = cursor.seek(|key| key < &target[..]).and_then(|_| drain(&mut cursor));
        }
    }

    #[test]
    fn any_bytes_are_a_table_or_an_error(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300), is_marked: bool,
    ) {
        if is_marked {
            bytes.extend(MAGIC.to_le_bytes());
        }
        let _ = read(&bytes);
    }
}

/// The ranges of an intact table's blocks, without their trailers.
fn blocks(table: &[u8]) -> Vec<Range<usize>> {
    let (footer, index) = read_footer(table).unwrap();
    let range = |handle: BlockHandle| handle.offset as usize..(handle.offset + handle.bytes) as usize;
    let mut cursor = BlockCursor::new(KEY_BYTES_MAX);
    cursor.load(table, index, 0..footer, Verify::AtOnce).unwrap();
    let mut blocks = vec![range(index)];
    while cursor.advance(table).unwrap() {
        blocks.push(range(BlockHandle::read(&mut Coded::new(cursor.value_bytes(table))).unwrap()));
    }
    blocks
}

/// A table with a single block of these contents, and a single index entry with this handle, or the block's
/// own.
fn forged(kind: u8, contents: &[u8], handle: Option<&[u8]>) -> Vec<u8> {
    let mut table = Vec::new();
    let own = add(&mut table, kind, contents);
    let handle = handle.unwrap_or(&own);
    let index = add(&mut table, 0, &block([(&b"z"[..], handle)].into_iter(), 1));
    end(&mut table, &index);
    table
}

#[test]
fn an_index_that_leads_to_a_wrong_block_is_an_error_of_a_search() {
    let mut table = Vec::new();
    let one = |key: &'static [u8]| block([(key, &b"v"[..])].into_iter(), 1);
    let (first, second) = (add(&mut table, 0, &one(b"a")), add(&mut table, 0, &one(b"c")));
    // The first block's key is greater than the second block's.
    let index = add(&mut table, 0, &block([(&b"x"[..], &first[..]), (b"y", &second)].into_iter(), 1));
    end(&mut table, &index);
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(&table[..], Verify::AtOnce).unwrap();
    assert_eq!(cursor.seek(|key| key < b"a"), Ok(true));
    let error = cursor.seek(|key| key < b"d").unwrap_err().to_string();
    assert!(error.contains("its block starts before the key of the block before it"), "{error}");
    assert_eq!(read(&table).unwrap().len(), 2, "a walk does not use the keys of the index");
}

#[test]
fn what_is_no_table_says_why() {
    let good = write(
        &Map::from([(b"k".to_vec(), b"v".to_vec())]),
        &Shape { entries_per_block: 1, interval: 1, snappy: false },
    );
    let refused = |table: &[u8], message: &str| {
        let error = read(table).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(&[], "the file has 0 bytes");
    refused(&good[..47], "the file has 47 bytes");
    refused(&good[..good.len() - 1], "not a table, or cut short: the file ends with 0x");
    let mut footer = good.clone();
    let at = good.len() - FOOTER_BYTES;
    footer[at..at + 40].fill(0xff);
    refused(&footer, &format!("the footer at byte {at} is damaged"));

    let one = block([(&b"k"[..], &b"v"[..])].into_iter(), 1);
    assert_eq!(read(&forged(0, &one, None)).unwrap().len(), 1);
    refused(
        &forged(2, &one, None),
        "the block at byte 0 is compressed with 2 (zstd, or in Minecraft's LevelDB zlib): supported are 0",
    );
    refused(&forged(9, &one, None), "type 9, an unknown type: supported are 0");
    refused(&forged(0, &one, Some(&[1])), "its value is not a block handle");
    refused(&forged(0, &one, Some(&[0, 100])), "a handle puts a block of 100 bytes at byte 0");
    refused(
        &forged(0, &one, Some(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 9])),
        "a handle puts a block of 9 bytes at byte 18446744073709551615",
    );
    refused(&forged(0, &[], None), "has 0 bytes uncompressed, no room for 0 restart points");
    refused(&forged(0, &[0; 5], None), "has 5 bytes uncompressed, no room for 0 restart points");
    assert_eq!(read(&forged(0, &[0; 4], None)), Ok(Vec::new()), "an empty block may have none");
    refused(
        &forged(0, &[0, 0, 0, 0, 2, 0, 0, 0], None),
        "has 8 bytes uncompressed, no room for 2 restart points",
    );
    let entry = |head: &[u8]| [head, &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    refused(&forged(0, &entry(&[1, 0, 0]), None), "its key shares more bytes than the key before it has");
    refused(
        &forged(0, &entry(&[0, 9, 0]), None),
        "the entry at byte 0 of the block at byte 0 is damaged: its lengths",
    );
    refused(&forged(0, &entry(&[0, 0, 1]), None), "its lengths do not fit in the block");
    refused(&forged(0, &entry(&[0, 0]), None), "its lengths do not fit in the block");
}

#[test]
fn snappy_is_asked_for_no_more_than_it_can_yield() {
    // 10 bytes claim 64 MiB.
    let claimed = [0x80, 0x80, 0x80, 0x20, 0, 0, 0, 0, 0, 0];
    let error = TableError::SnappyLength { offset: 0, bytes: 10, found: 64 << 20, allowed: 213 };
    assert_eq!(read(&forged(1, &claimed, None)), Err(error));
    let damaged = read(&forged(1, &[5, 0xff, 0xff], None)).unwrap_err();
    assert!(matches!(damaged, TableError::Snappy { offset: 0, .. }), "{damaged}");
    // The densest possible stream stays within the bound: a literal, then copies of 64 bytes.
    let length = 1 + 64 * 1000;
    let mut dense = Vec::new();
    varint(&mut dense, length);
    dense.extend([0, 0]);
    (0..1000).for_each(|_| dense.extend([63 << 2 | 2, 1, 0]));
    assert!(length <= dense.len() * 64 / 3);
    let error = read(&forged(1, &dense, None)).unwrap_err();
    assert!(matches!(error, TableError::Restarts { bytes, .. } if bytes == length), "{error}");
}

#[test]
fn a_key_is_put_together_only_if_it_may_be_so_long() {
    let long = [7; KEY_BYTES_MAX + 1];
    let keys = [&long[..KEY_BYTES_MAX], &long[..]];
    let entries = block(keys.iter().map(|&key| (key, &b""[..])), 9);
    let table = forged(0, &entries, None);
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(&table[..], Verify::AtOnce).unwrap();
    assert_eq!(cursor.advance(), Ok(true));
    let second = 1 + 2 + 2 + KEY_BYTES_MAX - 1;
    let (found, allowed) = (KEY_BYTES_MAX + 1, KEY_BYTES_MAX);
    let error = Err(TableError::KeyLength { offset: 0, entry: second, found, allowed });
    assert_eq!(cursor.advance(), error);
    assert_eq!(cursor.seek(|key| key < &long[..]), error);
    // The limit holds for a key in an index too.
    let mut table = Vec::new();
    let handle = add(&mut table, 0, &block([(&b"k"[..], &b""[..])].into_iter(), 1));
    let index = add(&mut table, 0, &block([(&long[..], &handle[..])].into_iter(), 1));
    let offset = table.len() - (1 + 2 + 1 + long.len() + handle.len() + 8) - TRAILER_BYTES;
    end(&mut table, &index);
    assert_eq!(read(&table), Err(TableError::KeyLength { offset, entry: 0, found, allowed }));
}

#[test]
fn a_block_is_entered_once_a_walk() {
    let mut table = Vec::new();
    let one = block([(&b"a"[..], &b""[..])].into_iter(), 1);
    let handle = add(&mut table, 0, &one);
    let twice = [(&b"a"[..], &handle[..]), (b"b", &handle)];
    let index = add(&mut table, 0, &block(twice.into_iter(), 1));
    end(&mut table, &index);
    let from = one.len() + TRAILER_BYTES;
    assert!(matches!(read(&table), Err(TableError::Place { offset: 0, from: found, .. }) if found == from));
}

#[test]
fn a_cursor_moves_from_table_to_table() {
    let shape = Shape { entries_per_block: 2, interval: 2, snappy: true };
    let maps = [1_u8, 2].map(|table| (0..9).map(|at| (vec![at], vec![table; 50])).collect::<Map>());
    let tables = maps.each_ref().map(|map| write(map, &shape));
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    for _round in 0..2 {
        for (table, map) in tables.iter().zip(&maps) {
            cursor.open(&table[..], Verify::AtOnce).unwrap();
            assert!(cursor.advance().unwrap());
            assert!(cursor.seek(|key| key < &[3][..]).unwrap());
            assert_eq!(current(&cursor), (vec![3], map[&vec![3]].clone()));
            cursor.open(&table[..], Verify::AtOnce).unwrap();
            assert_eq!(drain(&mut cursor).unwrap(), map.clone().into_iter().collect::<Vec<_>>());
        }
    }
    assert!(cursor.open(&[], Verify::AtOnce).is_err());
    assert_eq!(cursor.advance(), Ok(false), "a table that failed to open is not read");
}

#[test]
fn an_error_stays_until_the_cursor_is_moved_elsewhere() {
    let map = Map::from([1_u8, 2, 3].map(|key| (vec![key], vec![key; 100])));
    let good = write(&map, &Shape { entries_per_block: 1, interval: 1, snappy: false });
    let mut table = good.clone();
    table[blocks(&good)[2].start + 5] ^= 1;
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    cursor.open(&table[..], Verify::AtOnce).unwrap();
    assert_eq!(cursor.advance(), Ok(true));
    let error = cursor.advance().unwrap_err();
    for _ in 0..3 {
        assert_eq!(cursor.advance(), Err(error.clone()));
    }
    assert_eq!(cursor.seek(|key| key < &[3][..]), Ok(true));
    assert_eq!((current(&cursor).0, cursor.advance()), (vec![3], Ok(false)));
    assert_eq!(cursor.seek(|key| key < &[2][..]), Err(error.clone()));
    assert_eq!(cursor.advance(), Err(error));
    cursor.open(&good[..], Verify::AtOnce).unwrap();
    assert_eq!(drain(&mut cursor).unwrap().len(), 3);
}

#[test]
fn a_block_that_waits_for_its_user_is_verified_by_them_or_when_the_walk_leaves_it() {
    let map = Map::from([(1, 10), (2, 100), (3, 100)].map(|(key, length)| (vec![key], vec![key; length])));
    let good = write(&map, &Shape { entries_per_block: 1, interval: 1, snappy: false });
    let blocks = blocks(&good);
    let damaged = |block: usize| {
        let mut table = good.clone();
        table[blocks[block].start + 5] ^= 1;
        table
    };
    let error = |block: usize, error: Result<_, TableError>| match error {
        Err(TableError::Checksum { offset, .. }) => assert_eq!(offset, blocks[block].start),
        other => panic!("{other:?}"),
    };
    let mut cursor = TableCursor::new(KEY_BYTES_MAX);
    let later = Verify::ByTheUser { block_bytes_min: 50 };

    let table = damaged(1);
    cursor.open(&table[..], later).unwrap();
    error(1, cursor.advance());

    cursor.open(&good[..], later).unwrap();
    assert_eq!(cursor.advance(), Ok(true));
    assert!(cursor.unverified().is_none(), "a short block is verified on entry");
    for key in [2, 3] {
        assert_eq!(cursor.advance(), Ok(true));
        let checksum = cursor.unverified().map(Unverified::take).unwrap();
        assert_eq!((cursor.key(), checksum.check(&good, 0)), (&[key][..], Ok(())));
        assert_eq!(cursor.suspect(), Ok(()));
    }
    assert_eq!(cursor.advance(), Ok(false));

    let table = damaged(2);
    let at_two = |cursor: &mut TableCursor<_>| {
        cursor.open(&table[..], later).unwrap();
        assert_eq!((cursor.advance(), cursor.advance()), (Ok(true), Ok(true)));
    };
    at_two(&mut cursor);
    error(2, cursor.advance());
    at_two(&mut cursor);
    error(2, cursor.verify().map(|()| true));
    at_two(&mut cursor);
    let checksum = cursor.unverified().map(Unverified::take).unwrap();
    error(2, checksum.check(&table, 0).map(|()| true));
    assert_eq!(cursor.advance(), Ok(true), "whoever took the checksum finds the damage");
    error(2, cursor.suspect().map(|()| true));
}
