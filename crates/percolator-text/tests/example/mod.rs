//! A reader of records of Examples that is as plain as can be.

use std::collections::BTreeMap;

/// All records of a file: the values of each feature. Checksums are verified.
pub(crate) fn records(mut bytes: &[u8]) -> Vec<BTreeMap<String, Vec<u64>>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (checksum, rest) = rest.split_at(4);
        assert_eq!(masked(length), checksum);
        let count = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
        let (record, rest) = rest.split_at(count);
        let (checksum, rest) = rest.split_at(4);
        assert_eq!(masked(record), checksum);
        records.push(example(record));
        bytes = rest;
    }
    records
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

fn example(bytes: &[u8]) -> BTreeMap<String, Vec<u64>> {
    let [(1, features)] = fields(bytes)[..] else { panic!("an Example has one field") };
    let entries = fields(features).into_iter().map(|(field, entry)| {
        assert_eq!(field, 1);
        let [(1, name), (2, feature)] = fields(entry)[..] else { panic!("an entry has a key and a value") };
        let [(3, list)] = fields(feature)[..] else { panic!("{name:?} is no list of integers") };
        let [(1, mut packed)] = fields(list)[..] else { panic!("{name:?} is not packed") };
        let mut values = Vec::new();
        while !packed.is_empty() {
            values.push(varint(&mut packed));
        }
        (String::from_utf8(name.to_vec()).unwrap(), values)
    });
    entries.collect()
}

/// The fields of a message, all of them with a length.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        assert_eq!(tag & 7, 2);
        let length = usize::try_from(varint(&mut bytes)).unwrap();
        let (field, rest) = bytes.split_at(length);
        fields.push((tag >> 3, field));
        bytes = rest;
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
    let (varint, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    varint.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}
