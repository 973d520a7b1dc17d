//! Tables checked against the simplest builder of them, and read back.

#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]

use proptest::prelude::*;

use super::*;
use crate::table::footer::{FOOTER_BYTES, MAGIC};
use crate::table::tests::{Entries, Map, add, block, maps, read};
use crate::table::{PlaceCursor, TableCursor, Verify};

fn build(entries: &Entries, options: TableOptions) -> Vec<u8> {
    let mut builder = TableBuilder::new(Vec::new(), options);
    entries.iter().for_each(|(key, value)| builder.add(key, value).unwrap());
    builder.finish().unwrap()
}

/// The entries of each block: one ends when it is long enough, or a large entry comes.
fn blocks(entries: &Entries, options: &TableOptions) -> Vec<Entries> {
    let block_bytes = options.block_bytes as usize;
    let mut blocks = vec![Vec::new()];
    for (key, value) in entries {
        let last = blocks.last_mut().unwrap();
        let length = block(
            last.iter().map(|(key, value): &(Vec<u8>, Vec<u8>)| (&key[..], &value[..])),
            options.restart_interval.max(1),
        )
        .len();
        let is_large = key.len() + value.len() >= 2 * block_bytes;
        if !last.is_empty() && (is_large || length >= block_bytes) {
            blocks.push(Vec::new());
        }
        blocks.last_mut().unwrap().push((key.clone(), value.clone()));
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// The key of the index, by what it has to be: at least `last`, less than `next`, and as short as raising one
/// byte makes it, at the first byte that differs.
fn naive_index_key(last: &[u8], next: Option<&[u8]>) -> Vec<u8> {
    for place in 0..last.len() {
        let raised = [&last[..place], &[last[place].wrapping_add(1)]].concat();
        match next {
            Some(next) if next.get(place) == Some(&last[place]) => {}
            Some(next) if last[place] < 255 && next.get(place) > raised.get(place) => return raised,
            Some(_) => break,
            None if last[place] < 255 => return raised,
            None => {}
        }
    }
    last.to_vec()
}

/// The table, each part made whole in one step.
fn naive(entries: &Entries, options: &TableOptions) -> Vec<u8> {
    let add = |table: &mut Vec<u8>, bytes: Vec<u8>| {
        let packed = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
        let is_packed =
            options.compression == Compression::Snappy && packed.len() < bytes.len() - bytes.len() / 8;
        if is_packed { add(table, 1, &packed) } else { add(table, 0, &bytes) }
    };
    let whole = |entries: &Entries, interval| {
        block(entries.iter().map(|(key, value)| (&key[..], &value[..])), interval)
    };
    let (mut table, mut index) = (Vec::new(), Vec::new());
    let interval = options.restart_interval.max(1);
    let blocks = blocks(entries, options);
    for (number, block) in blocks.iter().enumerate() {
        let next = blocks.get(number + 1).map(|next| &next[0].0[..]);
        let key = naive_index_key(&block.last().unwrap().0, next);
        index.push((key, add(&mut table, whole(block, interval))));
    }
    let filters = add(&mut table, whole(&Vec::new(), interval));
    let index = add(&mut table, whole(&index, 1));
    let mut footer = [filters, index].concat();
    footer.resize(FOOTER_BYTES - 8, 0);
    table.extend(footer);
    table.extend(MAGIC.to_le_bytes());
    table
}

fn options() -> impl Strategy<Value = TableOptions> {
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Snappy)];
    (0..400_u32, 0..5_usize, compression).prop_map(|(block_bytes, restart_interval, compression)| {
        TableOptions { block_bytes, restart_interval, compression, keys: Keys::Bytes }
    })
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "takes Miri minutes")]
    fn what_is_built_equals_the_naive_table_and_is_read(map in maps(), options in options()) {
        let entries: Entries = map.into_iter().collect();
        let table = build(&entries, options.clone());
        prop_assert_eq!(&table, &naive(&entries, &options));
        prop_assert_eq!(read(&table), Ok(entries));
    }

    #[test]
    fn a_key_of_the_index_lies_between_its_neighbours(last: Vec<u8>, next: Vec<u8>, shared: Vec<u8>) {
        let [last, next] = [last, next].map(|rest| [&shared[..], &rest].concat());
        prop_assume!(last < next);
        let key = separator(last.clone(), &next);
        prop_assert!(last <= key && key < next && key.len() <= last.len());
        let key = successor(last.clone());
        prop_assert!(last <= key && key.len() <= last.len());
    }

    #[test]
    fn every_entry_of_many_blocks_is_found(map in maps(), options in options()) {
        let entries: Entries = map.into_iter().collect();
        let table = build(&entries, options);
        let mut cursor = TableCursor::new(1000);
        cursor.open(&table[..], Verify::AtOnce).unwrap();
        let mut place_cursor = PlaceCursor::new(1000);
        for (key, value) in &entries {
            prop_assert!(cursor.seek(|found| found < &key[..]).unwrap());
            prop_assert_eq!((cursor.key(), cursor.value_bytes()), (&key[..], &value[..]));
            let place = cursor.place().unwrap();
            place_cursor.go_to(&table, place, Verify::AtOnce).unwrap();
            prop_assert_eq!(place_cursor.key(), &key[..]);
        }
    }
}

#[test]
fn keys_come_in_order_and_an_error_leaves_the_table_as_it_was() {
    let mut builder = TableBuilder::new(Vec::new(), TableOptions::default());
    builder.add(b"", b"header").unwrap();
    builder.add(b"b\0", b"1").unwrap();
    for key in [&b"b\0"[..], b"b", b"", b"a"] {
        let error = builder.add(key, b"2").unwrap_err();
        assert!(matches!(error, BuildError::Order { .. }), "{error}");
    }
    let message = builder.add(b"a", b"2").unwrap_err().to_string();
    assert_eq!(message, r#"the key "a" does not come after "b\x00": add each key once, in their order"#);
    builder.add(b"c", b"3").unwrap();
    let due = [(&b""[..], &b"header"[..]), (b"b\0", b"1"), (b"c", b"3")];
    let due: Entries = due.map(|(key, value)| (key.to_vec(), value.to_vec())).into();
    assert_eq!(read(&builder.finish().unwrap()), Ok(due));
}

#[test]
fn a_table_with_no_entry_is_read_as_one() {
    let table = build(&Vec::new(), TableOptions::default());
    // Two empty blocks with one restart point each, and the footer.
    assert_eq!(table.len(), 2 * (8 + TRAILER_BYTES) + FOOTER_BYTES);
    assert_eq!(read(&table), Ok(Vec::new()));
}

/// A disk that is full after so many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes")]
fn a_full_disk_is_an_error_wherever_it_is_met() {
    let entries: Entries = (0..100_u8).map(|number| (vec![number], vec![number; 20])).collect();
    let options = TableOptions { block_bytes: 256, ..TableOptions::default() };
    let length = build(&entries, options.clone()).len();
    for room in 0..=length {
        let mut builder = TableBuilder::new(Full(room), options.clone());
        let added = entries.iter().try_for_each(|(key, value)| builder.add(key, value));
        if added.is_err() {
            assert!(matches!(builder.add(b"z", b""), Err(BuildError::Failed)), "{room}");
        }
        let finished = builder.finish();
        assert_eq!(finished.is_ok(), room == length, "{room} of {length}");
        match finished {
            Err(BuildError::Io(error)) if added.is_ok() => {
                assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            }
            Err(BuildError::Failed) => assert!(added.is_err()),
            finished => assert!(finished.is_ok(), "{room}"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes Miri minutes")]
fn a_table_of_several_full_blocks_has_an_entry_larger_than_a_block() {
    let mut map = Map::new();
    for number in 0..4000_u32 {
        map.insert(format!("variable_{number:06}").into_bytes(), vec![1; 300]);
    }
    map.insert(b"variable_002000x".to_vec(), vec![2; 600 << 10]);
    let entries: Entries = map.into_iter().collect();
    let options = TableOptions::default();
    let table = build(&entries, options.clone());
    assert!(blocks(&entries, &options).len() > 5);
    assert_eq!(table, naive(&entries, &options));
    assert_eq!(read(&table), Ok(entries));
}

/// A key of LevelDB's.
fn tagged(user: &[u8], tag: u64) -> Vec<u8> {
    [user, &tag.to_le_bytes()].concat()
}

#[test]
fn tagged_keys_are_in_leveldbs_order_and_whole_in_the_index() {
    let options = TableOptions { block_bytes: 1, keys: Keys::Tagged, ..TableOptions::default() };
    let mut builder = TableBuilder::new(Vec::new(), options);
    // With its tag, the second key's bytes come after the third's.
    let keys = [tagged(b"a", 0x901), tagged(b"a", 0x801), tagged(b"a\0", 1), tagged(b"b", 0x701)];
    for key in &keys {
        builder.add(key, b"value").unwrap();
    }
    for (user, tag) in [(&b"b"[..], 0x701), (b"b", 0x801), (b"a", 0x101)] {
        let error = builder.add(&tagged(user, tag), b"value").unwrap_err();
        assert!(matches!(error, BuildError::Order { .. }), "{error}");
    }
    assert!(matches!(builder.add(b"short", b"value"), Err(BuildError::Order { .. })));
    let table = builder.finish().unwrap();
    let mut cursor = TableCursor::new(100);
    cursor.open(&table[..], Verify::AtOnce).unwrap();
    for key in &keys {
        assert!(cursor.advance().unwrap());
        assert_eq!(cursor.key(), key);
        assert_eq!(cursor.index_key(), key, "a block for each");
    }
    assert!(!cursor.advance().unwrap());
}
