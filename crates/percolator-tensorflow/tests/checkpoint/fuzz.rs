//! Checkpoints that TensorFlow wrote, changed at random with checksums that are right: whatever they say
//! then, each answer is a tensor or an error.
//!
//! `PROPTEST_CASES=100000 cargo test -p percolator-tensorflow --test checkpoint fuzz` goes on for minutes.

use std::path::Path;

use percolator_files::Access;
use percolator_files::checksum::masked_crc32c;
use percolator_leveldb::table::{TableCursor, Verify};
use percolator_tensorflow::{Checkpoint, DataType, Elements};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::forge::{Bundle, Layout, table};
use crate::golden::data;

const GOLDEN: [&str; 7] = [
    "types/model",
    "sliced/model",
    "object/ckpt-3",
    "module/variables/variables",
    "more/sliced/model",
    "more/variants/model",
    "more/objects/ckpt-1",
];

/// A change of bytes.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    /// Bytes from one place to another.
    Repeat(Index, Index, usize),
    Cut(Index),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let byte = || prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x80), Just(1)];
    let change = prop_oneof![
        4 => (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Set(at, byte)),
        2 => (any::<Index>(), byte()).prop_map(|(at, byte)| Change::Insert(at, byte)),
        2 => any::<Index>().prop_map(Change::Remove),
        1 => (any::<Index>(), any::<Index>(), 1..40_usize).prop_map(|(from, to, length)| {
            Change::Repeat(from, to, length)
        }),
        1 => any::<Index>().prop_map(Change::Cut),
    ];
    prop::collection::vec(change, 1..5)
}

fn apply(bytes: &mut Vec<u8>, changes: &[Change]) {
    for change in changes {
        let length = bytes.len();
        if length == 0 {
            return;
        }
        match change {
            Change::Set(at, byte) => bytes[at.index(length)] = *byte,
            Change::Insert(at, byte) => bytes.insert(at.index(length), *byte),
            Change::Remove(at) => drop(bytes.remove(at.index(length))),
            Change::Repeat(from, to, count) => {
                let from = from.index(length);
                let part = bytes[from..length.min(from + count)].to_vec();
                let to = to.index(length);
                bytes.splice(to..to, part);
            }
            Change::Cut(at) => bytes.truncate(at.index(length)),
        }
    }
}

/// The entries of an index.
fn entries(index: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = std::fs::read(index).unwrap();
    let mut cursor = TableCursor::new(usize::MAX);
    cursor.open(&bytes[..], Verify::AtOnce).unwrap();
    let mut entries = Vec::new();
    while cursor.advance().unwrap() {
        entries.push((cursor.key().to_vec(), cursor.value_bytes().to_vec()));
    }
    entries
}

/// Reads all that a checkpoint has, in every way.
fn read(prefix: &Path) {
    for access in [Access::Mapped, Access::Read] {
        let Ok(checkpoint) = Checkpoint::open_with(prefix, access) else { continue };
        let mut good = 0;
        for info in checkpoint.tensors() {
            assert_eq!(checkpoint.info(info.name), Ok(info));
            let Ok(tensor) = checkpoint.tensor(info.name) else { continue };
            good += 1;
            assert_eq!((tensor.data_type(), tensor.shape()), (info.data_type, info.shape));
            let half: Vec<_> = info.shape.iter().map(|extent| extent / 2..*extent).collect();
            assert!(checkpoint.region(info.name, &half).is_ok());
        }
        let is_whole = good == checkpoint.len();
        match (checkpoint.load_all(1), checkpoint.verify(1).faults) {
            (Ok(_), faults) => assert!(is_whole && faults.is_empty()),
            (Err(_), _) if !is_whole => {}
            // Tensors that share bytes can be read one by one only.
            (Err(error), faults) => assert_eq!(faults, [error]),
        }
        if let Ok(objects) = checkpoint.objects() {
            for line in objects.tree() {
                let _ = objects.path(line.object).map(|path| objects.key_of(&path).map(str::to_owned));
            }
        }
    }
}

proptest! {
    #[test]
    fn changed_entries_are_read_or_refused(
        which in 0..GOLDEN.len(), entry: Index, is_key in prop::bool::weighted(0.2), changes in changes(),
    ) {
        let of = data(GOLDEN[which]);
        let mut entries = entries(&of.with_extension("index"));
        let at = entry.index(entries.len());
        let (key, value) = &mut entries[at];
        apply(if is_key { key } else { value }, &changes);
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout { entries_per_block: 7, interval: 3, is_snappy: at % 2 == 0 };
        std::fs::write(folder.path().join("model.index"), table(&entries, layout)).unwrap();
        let from = of.with_extension("data-00000-of-00001");
        std::os::unix::fs::symlink(from, folder.path().join("model.data-00000-of-00001")).unwrap();
        read(&folder.path().join("model"));
    }

    /// The checksum of the whole is right, and those inside may be.
    #[test]
    fn changed_strings_are_read_or_refused(is_variant: bool, is_big_endian: bool, changes in changes()) {
        let mut bytes = b"\x03\x00\x81\x01....abc".to_vec();
        bytes.extend([7; 129]);
        let sum = if is_big_endian {
            masked_crc32c(&[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 129], &[]).to_be_bytes()
        } else {
            masked_crc32c(&[3, 0, 0, 0, 0, 0, 0, 0, 129, 0, 0, 0], &[]).to_le_bytes()
        };
        bytes[4..8].copy_from_slice(&sum);
        apply(&mut bytes, &changes);
        let mut bundle = Bundle::new();
        bundle.header.endianness = i32::from(is_big_endian);
        let data_type = if is_variant { DataType::Variant } else { DataType::String };
        bundle.add("s", data_type, &[3], &bytes);
        let folder = tempfile::tempdir().unwrap();
        read(&bundle.write(folder.path()));
    }

    #[test]
    fn changed_graphs_of_objects_are_read_or_refused(which in 0..3_usize, changes in changes()) {
        let of = ["object/ckpt-3", "module/variables/variables", "more/objects/ckpt-1"][which];
        let name = "_CHECKPOINTABLE_OBJECT_GRAPH";
        let checkpoint = Checkpoint::open(data(of)).unwrap();
        let graph = checkpoint.tensor(name).unwrap().into_elements();
        let Elements::Strings(mut graph) = graph else { unreachable!() };
        let graph = graph[0].to_mut();
        apply(graph, &changes);
        let mut bundle = Bundle::new();
        let (stored, sum) = crate::forged::stored_strings(&[graph], false, false);
        bundle.add_summed(name, DataType::String, &[], &stored, sum);
        let folder = tempfile::tempdir().unwrap();
        read(&bundle.write(folder.path()));
    }
}
