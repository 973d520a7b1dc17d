//! Token sequences as Megatron and fairseq write them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use percolator_files::Access;
use percolator_formats::{Lent, Options, megatron};
use serde_json::{Value as Json, json};
use survival::{Made, fails, options, records};

/// An index with these lengths, of tokens of so many bytes. Documents are `None` in fairseq's form.
fn index(code: u8, token_bytes: i64, lengths: &[i32], documents: Option<&[i64]>, modes: &[u8]) -> Vec<u8> {
    let mut bytes = b"MMIDIDX\0\0".to_vec();
    bytes.extend(1_u64.to_le_bytes());
    bytes.push(code);
    bytes.extend((lengths.len() as u64).to_le_bytes());
    if let Some(documents) = documents {
        bytes.extend((documents.len() as u64).to_le_bytes());
    }
    lengths.iter().for_each(|length| bytes.extend(length.to_le_bytes()));
    let mut pointer = 0;
    for length in lengths {
        bytes.extend(i64::to_le_bytes(pointer));
        pointer += i64::from(*length) * token_bytes;
    }
    documents.unwrap_or_default().iter().for_each(|document| bytes.extend(document.to_le_bytes()));
    bytes.extend(modes);
    bytes
}

fn made(index: &[u8], data: &[u8]) -> Made {
    Made::new(&[("a.idx", index), ("a.bin", data)])
}

fn read(index: &[u8], data: &[u8]) -> Result<Vec<Json>, String> {
    let made = made(index, data);
    let [mapped, read] = [Access::Mapped, Access::Read]
        .map(|access| records(megatron::open(&made.path("a.bin"), &options(access, &[]))));
    assert_eq!(mapped, read);
    mapped
}

fn all_cases() -> Vec<&'static Json> {
    [common::cases("megatron"), common::cases("fairseq-mmap")].concat()
}

#[test]
fn golden_files_are_read() {
    for case in all_cases() {
        for path in common::files_of(case) {
            let bytes = std::fs::read(&path).unwrap();
            assert!(megatron::is(&path, &bytes[..bytes.len().min(512)]), "{}", path.display());
            common::check(case, &|options| megatron::open(&path, options));
        }
        let stem = common::files_of(case).remove(0).with_extension("");
        common::check(case, &|options| megatron::open(&stem, options));
    }
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("megatron") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "megatron_magic" => &["u16.idx", "is not an index"],
            "megatron_version" => &["u16.idx", "version 2", "not supported"],
            "megatron_dtype" => &["u16.idx", "unknown type code 9", "uint32"],
            "megatron_count" | "megatron_idx_cut" => &["u16.idx", "bytes, and needs"],
            "megatron_bin_cut" => &["sequence 12", "leaves the .bin"],
            "megatron_pointer" => &["u16.idx", "sequence 2", ".bin has 976 bytes"],
            "megatron_negative" => &["u16.idx", "sequence 2", "negative length -2"],
            "megatron_documents" => &["u16.idx", "do not end at the number of sequences, 13"],
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| megatron::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in all_cases() {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| megatron::open(&folder.join(name), options));
    }
}

#[test]
fn every_type_is_read_by_its_writers_codes() {
    let types: [(u8, bool, &str, usize); 14] = [
        (1, false, "|u1", 1),
        (2, false, "|i1", 1),
        (3, false, "<i2", 2),
        (4, true, "<i4", 4),
        (5, true, "<i8", 8),
        (6, false, "<f8", 8),
        (6, true, "<f8", 8),
        (7, false, "<f4", 4),
        (7, true, "<f8", 8),
        (8, false, "<u2", 2),
        (8, true, "<u2", 2),
        (9, true, "<u4", 4),
        (10, true, "<u8", 8),
        (3, true, "<i2", 2),
    ];
    for (code, fairseq, dtype, size) in types {
        let documents: &[i64] = &[0, 2];
        let documents = (!fairseq).then_some(documents);
        let bytes = index(code, i64::try_from(size).unwrap(), &[2, 1], documents, &[]);
        let rows = read(&bytes, &vec![0; 3 * size]).unwrap();
        let row = |length| json!({"tokens": {"$array": dtype, "shape": [length], "values": vec![0; length]}});
        let floats = |row: &Json| row.to_string().replace("0.0", "0");
        assert_eq!(rows.iter().map(floats).collect::<Vec<_>>(), [row(2), row(1)].map(|row| row.to_string()));
    }
    for (code, documents) in [(9, Some(&[0, 0][..])), (0, Some(&[0, 0])), (11, None)] {
        assert!(read(&index(code, 4, &[], documents, &[]), &[]).unwrap_err().contains("unknown type code"));
    }
}

#[test]
fn sequences_are_lent_and_modes_have_a_sign() {
    let pair = made(&index(8, 2, &[1, 2], Some(&[0, 2]), &[]), &[1, 0, 2, 0, 3, 0]);
    let shard = megatron::open(&pair.path("a.bin"), &options(Access::Mapped, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    cursor.seek([1, 0], 1).unwrap();
    assert!(matches!(cursor.advance().unwrap().unwrap().value, Lent::Mapped(_, range) if range == (2..6)));
    assert!(cursor.seek([2, 0], 2).is_err());

    let rows = read(&index(1, 1, &[1, 1], Some(&[0, 2]), &[1, 0xff]), &[5, 6]).unwrap();
    let tokens = json!({"$array": "|u1", "shape": [1], "values": [6]});
    assert_eq!(rows[1], json!({"tokens": tokens, "mode": -1}));
}

#[test]
fn files_that_contradict_each_other_are_errors() {
    let whole = index(1, 1, &[1, 1], Some(&[0, 1, 2]), &[]);
    assert_eq!(read(&whole, &[5, 6]).unwrap().len(), 2);
    assert!(read(&whole, &[5, 6, 7]).unwrap_err().contains("a.bin: it has 3 bytes"));
    for documents in [&[0, 2, 1, 2][..], &[1, 2], &[0, 1], &[], &[-1, 2]] {
        let error = read(&index(1, 1, &[1, 1], Some(documents), &[]), &[5, 6]).unwrap_err();
        assert!(error.contains("document"), "{documents:?}: {error}");
    }
    let behind = [whole.as_slice(), &[0]].concat();
    assert!(read(&behind, &[5, 6]).unwrap_err().contains("and needs"), "one byte is too much");
    assert!(read(b"TNTIDX\0\0 and more", b"").unwrap_err().contains("TNTIDX"));
    assert!(read(b"MMIDIDX\0\0", b"").unwrap_err().contains("fewer than its header"));
    let large = index(1, 1, &[], Some(&[]), &[]);
    let large = [&large[..18], &u64::MAX.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
    assert!(read(&large, b"").unwrap_err().contains("and needs"), "nothing overflows");
}

#[test]
fn a_missing_partner_is_named() {
    let alone = Made::new(&[("a.bin", b"x"), ("b.idx", &index(1, 1, &[], Some(&[0]), &[]))]);
    fails(megatron::open(&alone.path("a.bin"), &Options::default()), &["a.idx", "cannot open"]);
    fails(megatron::open(&alone.path("b.idx"), &Options::default()), &["b.bin", "cannot open"]);
    assert!(!megatron::is(&alone.path("a.bin"), b"x"));
    fails(megatron::open(&alone.path("a.bin"), &options(Access::Read, &[("x", "1")])), &["no setting \"x\""]);
}
