//! HDF5 files with what no golden file has: `tests/data/hdf5`, which h5py 3.16.0 with HDF5 2.0.0 wrote.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::fs;
use std::path::{Path, PathBuf};

use percolator_formats::{Options, hdf5};
use serde_json::{Value as Json, json};
use survival::{Made, fails, records};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hdf5").join(name)
}

/// The records of a file that have one part.
fn part(path: &Path, name: &str) -> Result<Vec<Json>, String> {
    let mut options = Options::default();
    options.parts = Some(vec![name.to_owned()]);
    let mut records = records(hdf5::open(path, &options))?;
    Ok(records.iter_mut().map(|record| record[name].take()).collect())
}

fn array(dtype: &str, shape: &[u64], values: &[f64]) -> Json {
    let values: Vec<Json> = values
        .iter()
        .map(|value| {
            if dtype.contains('f') { json!(value) } else { json!(value.to_string().parse::<i64>().unwrap()) }
        })
        .collect();
    json!({"$array": dtype, "shape": shape, "values": values})
}

#[test]
fn values_are_those_that_were_written() {
    let kinds = records(hdf5::open(&file("kinds.h5"), &Options::default())).unwrap();
    assert_eq!(kinds.len(), 7);
    for (row, record) in kinds.iter().enumerate() {
        let number = f64::from(u32::try_from(row).unwrap());
        assert_eq!(record["truth"], json!({"$array": "|b1", "shape": [], "values": [row % 2 == 1]}));
        assert_eq!(record["u16"], array("<u2", &[3], &[number, number + 256.0, 65535.0 - number]));
        assert_eq!(record["enum"], array("<i2", &[], &[number % 3.0]));
        assert_eq!(record["in/a/group"], array("<i8", &[], &[number]));
        assert_eq!(record["padded"], row.to_string());
        assert_eq!(record["texts"], json!([format!("a{row}"), "ü".repeat(row)]));
        assert_eq!(record["raw"]["hex"], format!("{row:02x}00{row:02x}"));
        let floats: Vec<f64> = (0..row).map(|float| f64::from(u32::try_from(float).unwrap())).collect();
        assert_eq!(record["floats"], array("<f4", &[floats.len() as u64], &floats));
        let structure = json!({
            "i": array("<i4", &[], &[number]), "f": array("<f8", &[], &[number / 2.0]),
            "s": format!("x{row}"), "a": array("<u2", &[2], &[number, number + 1.0]),
        });
        assert_eq!(record["record"], structure);
        assert_eq!(record["unwritten"], array("<i2", &[2], &[-3.0, -3.0]));
        assert_eq!(record["wide"], array("<i8", &[3], &[0.0, 1.0, 2.0].map(|at| number * 3.0 + at)));
        assert!(record.get("soft").is_none() && record.get("elsewhere").is_none(), "links are passed over");
    }
    let fixed: Vec<_> = kinds.iter().map(|record| record["fixed"].clone()).collect();
    assert_eq!(fixed[..3], ["a", "bc", ""].map(|text| json!(text)));
    assert_eq!(fixed[3], json!({"$bytes": 1, "hex": "ff"}), "no text");
    assert_eq!(fixed[4..], ["e\0f", "abcd", " "].map(|text| json!(text)));
    assert_eq!(kinds[2]["c64"]["le_hex"], "000000400000803f");
    assert_eq!(kinds[2]["c128"]["le_hex"], "0000000000000040000000000000f0bf");
}

#[test]
fn chunks_go_to_their_places() {
    let path = file("kinds.h5");
    let mut options = Options::default();
    options.parts = Some(["split", "lzf", "holes"].map(str::to_owned).to_vec());
    let shard = hdf5::open(&path, &options).unwrap().remove(0);
    let grammar = shard.grammar();
    let mut cursor = shard.cursor().unwrap();
    for row in 0..7_u16 {
        let record = cursor.advance().unwrap().unwrap();
        let parts = grammar.parts(record.value.bytes()).unwrap();
        let bytes = |part: &str| match &parts.iter().find(|(name, _)| name == part).unwrap().1 {
            percolator_formats::Value::Array(array) => array.bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        let numbers = (0..45).map(|at| row * 45 + at);
        let split: Vec<u8> = numbers.clone().flat_map(|number| f32::from(number).to_le_bytes()).collect();
        assert_eq!(bytes("split"), split, "row {row}");
        let lzf: Vec<u8> = numbers.flat_map(|number| i64::from(number / 7).to_le_bytes()).collect();
        assert_eq!(bytes("lzf"), lzf, "row {row}");
        let hole = |at: u16| if row < 3 && at < 18 { 1.0_f32 } else { 7.0 };
        let holes: Vec<u8> = (0..45).flat_map(|at| hole(at).to_le_bytes()).collect();
        assert_eq!(bytes("holes"), holes, "row {row}");
    }
}

#[test]
fn new_layouts_and_indexes_are_read() {
    let path = file("newer.h5");
    for name in ["single", "fixed", "plain", "growing", "edges"] {
        let rows = part(&path, name).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(rows.len(), 20, "{name}");
        for (row, value) in (0_u32..).zip(&rows) {
            let due = [0, 1, 2, 3].map(|at| f64::from(row * 4 + at));
            assert_eq!(*value, array("<i4", &[4], &due), "{name}, row {row}");
        }
    }
    for member in 0..12_u32 {
        let rows = part(&path, &format!("many/{member:02}")).unwrap();
        assert_eq!(rows[3], array("<i8", &[], &[f64::from(member + 3)]));
    }
}

#[test]
fn what_is_not_read_is_refused_with_what_to_do() {
    let path = file("newer.h5");
    for (name, words) in [
        ("tree", &["tree: it can grow on several axes", "write it anew"][..]),
        ("scaled", &["scaled, chunk (0, 0)", "scale-offset (the filter 6)", "h5repack -f GZIP=4"]),
        ("file", &["file: ", "external"]),
        ("virtual", &["virtual: it is virtual, made of other data sets"]),
        ("ref", &["ref: references are not read"]),
    ] {
        let error = part(&path, name).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{name}: {error}");
        assert!(error.contains("newer.h5"), "{error}");
    }
}

#[test]
fn what_has_no_end_is_an_error() {
    fails(hdf5::open(&file("circle.h5"), &Options::default()), &["circle.h5"]);
    fails(hdf5::open(&file("deep.h5"), &Options::default()), &["x: its type nests deeper than 8 levels"]);
    // The index of the chunks of `data` gets 40 levels of nodes, each of which has the next one twice.
    let mut bytes = fs::read(common::golden("hdf5/gzip_f32.h5")).unwrap();
    let (node, key) = (1400, 8 + 5 * 8);
    let made_node = |level: u8, child: usize| {
        let mut made = bytes[node..node + 24].to_vec();
        (made[5], made[6]) = (level, if level > 0 { 2 } else { 0 });
        let entry = [vec![0; key], (child as u64).to_le_bytes().to_vec()].concat();
        [made, entry.clone(), entry, vec![0; key]].concat()
    };
    let (length, node_bytes) = (bytes.len(), made_node(0, 0).len());
    let nodes = (0..40).map(|at: u8| made_node(40 - at, length + (usize::from(at) + 1) * node_bytes));
    let nodes: Vec<u8> = nodes.chain([made_node(0, 0)]).flatten().collect();
    bytes[node..node + node_bytes].copy_from_slice(&nodes[..node_bytes]);
    bytes.extend(nodes);
    let made = Made::new(&[("a.h5", &bytes)]);
    fails(hdf5::open(&made.path("a.h5"), &Options::default()), &["data: ", "circles"]);
}

#[test]
fn a_value_that_is_no_truth_is_damage() {
    let bytes = fs::read(file("kinds.h5")).unwrap();
    let truths = [0, 1, 0, 1, 0, 1, 0];
    let places: Vec<_> = (0..bytes.len() - 7).filter(|at| bytes[*at..][..7] == truths).collect();
    let failed = places.iter().any(|at| {
        let mut changed = bytes.clone();
        changed[at + 2] = 2;
        let made = Made::new(&[("a.h5", &changed)]);
        part(&made.path("a.h5"), "truth").is_err_and(|error| {
            error.contains("record 2") && error.contains("truth: a truth value is neither 0 nor 1")
        })
    });
    assert!(failed);
}
