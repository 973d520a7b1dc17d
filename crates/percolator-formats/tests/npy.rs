//! Arrays as NumPy saves them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::path::{Path, PathBuf};

use percolator_files::Access;
use percolator_formats::{ElementType, Options, Value, notation, npy};
use serde_json::{Value as Json, json};
use survival::{Made, fails, options, records};

/// A file of version 1 with this header and these bytes.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let latin1: Vec<u8> = header.chars().map(|char| u8::try_from(char).unwrap()).collect();
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(latin1.len()).unwrap().to_le_bytes());
    bytes.extend(latin1);
    bytes.extend(data);
    bytes
}

fn simple(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    file(&format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}"), data)
}

/// The rows of a file, mapped and read.
fn rows(bytes: &[u8]) -> Result<Vec<Json>, String> {
    let made = Made::new(&[("a.npy", bytes)]);
    let [mapped, read] = [Access::Mapped, Access::Read]
        .map(|access| records(npy::open(&made.path("a.npy"), &options(access, &[]))));
    assert_eq!(mapped, read);
    mapped
}

#[test]
fn golden_files_are_read() {
    for case in common::cases("npy") {
        let path = common::files_of(case).remove(0);
        let head = std::fs::read(&path).unwrap();
        assert!(npy::is(&path, &head), "{}", common::name(case));
        if common::name(case) != "npy_object" {
            common::check(case, &|options| npy::open(&path, options));
        }
    }
}

#[test]
fn objects_are_refused() {
    let path = common::golden("npy/object.npy");
    fails(npy::open(&path, &Options::default()), &["object.npy", "Python objects", "pickle"]);
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("npy") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "npy_magic" => &["is no NPY file"],
            "npy_header_length" => &["header", "65535 bytes", "928 bytes"],
            "npy_cut" => &["needs 800 bytes", "793 are there"],
            "npy_shape_huge" => &["shape (4000000000000000000, 5)", "are there"],
            "npy_not_dict" => &["header is no dict"],
            "npy_trailing" => {
                assert_eq!(damaged.read(&|options| npy::open(&path, options)), Ok(40), "NumPy allows it");
                continue;
            }
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| npy::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("npy") {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| npy::open(&folder.join(name), options));
    }
}

#[test]
fn fortran_order_of_three_axes_is_turned() {
    // np.arange(24, dtype="u1").reshape(2, 3, 4): [i, j, k] is 12 i + 4 j + k, stored with i fastest.
    let mut data = Vec::new();
    for k in 0..4 {
        for j in 0..3 {
            data.extend([0, 12].map(|first: u8| first + 4 * j + k));
        }
    }
    let bytes = simple("'|u1'", true, "(2, 3, 4)", &data);
    let values = |first: u8| (first..first + 12).collect::<Vec<_>>();
    let row = |first| json!({"array": {"$array": "|u1", "shape": [3, 4], "values": values(first)}});
    assert_eq!(rows(&bytes), Ok(vec![row(0), row(12)]));

    let Value::Array(array) = npy::value(&bytes).unwrap() else { panic!("it is an array") };
    assert_eq!(array.bytes.as_ref(), (0..24).collect::<Vec<u8>>());
    assert_eq!(array.shape.as_slice(), [2, 3, 4]);
}

#[test]
fn many_rows_in_fortran_order_are_read_in_any_order() {
    let (rows, columns) = (5000_u32, 3_u32);
    let data: Vec<u8> =
        (0..columns).flat_map(|c| (0..rows).flat_map(move |r| (r * columns + c).to_be_bytes())).collect();
    let made = Made::new(&[("a.npy", &simple("'>u4'", true, "(5000, 3)", &data))]);
    for access in [Access::Mapped, Access::Read] {
        let shard = npy::open(&made.path("a.npy"), &options(access, &[])).unwrap().remove(0);
        let mut cursor = shard.cursor().unwrap();
        let mut expect = |row: u32| {
            let record = cursor.advance().unwrap().unwrap();
            let expected: Vec<u8> = (0..columns).flat_map(|c| (row * columns + c).to_le_bytes()).collect();
            assert_eq!(record.value.bytes(), expected, "row {row}");
            assert_eq!(record.place, [u64::from(row), 0]);
        };
        (0..rows).for_each(&mut expect);
        for row in [4999, 17, 18, 19, 2500] {
            cursor = {
                let mut moved = cursor;
                moved.seek([u64::from(row), 0], u64::from(row)).unwrap();
                moved
            };
            let record = cursor.advance().unwrap().unwrap();
            assert_eq!(record.value.bytes().first_chunk(), Some(&(row * columns).to_le_bytes()));
        }
    }
}

#[test]
fn structures_nest_and_have_both_ends_first() {
    let descr = "[('a', '>i2'), ('in', [('b', '<f4'), ('', '|V2'), ('c', '>u4', (2,))], (2,)), ('t', '|S3'), \
                 (('title', 'w'), '>U1'), ('ok', '|b1'), ('raw', '|V2')]";
    let mut data = (-2_i16).to_be_bytes().to_vec();
    for number in [1_u8, 2] {
        data.extend(f32::from(number).to_le_bytes());
        data.extend([9, 9]);
        data.extend(u32::from(number).to_be_bytes());
        data.extend(7_u32.to_be_bytes());
    }
    data.extend(b"xy\0");
    data.extend(u32::from('信').to_be_bytes());
    data.extend([1, 0xaa, 0xbb]);
    let inner = |number: u8| {
        json!({
            "b": {"$array": "<f4", "shape": [], "values": [f32::from(number)]},
            "c": {"$array": "<u4", "shape": [2], "values": [number, 7]},
        })
    };
    let row = json!({
        "a": -2, "in": [inner(1), inner(2)], "t": "xy", "w": "信", "ok": true,
        "raw": {"$bytes": 2, "hex": "aabb"},
    });
    let bytes = simple(descr, false, "(1,)", &data);
    assert_eq!(rows(&bytes), Ok(vec![row.clone()]));
    assert_eq!(notation::value(&npy::value(&bytes).unwrap()), json!([row]));
}

#[test]
fn texts_in_rows_are_lists() {
    let bytes = simple("'|S2'", false, "(2, 2)", b"a\0bbc\0\xff\0");
    let raw = json!({"$bytes": 1, "hex": "ff"});
    assert_eq!(rows(&bytes), Ok(vec![json!({"array": ["a", "bb"]}), json!({"array": ["c", raw]})]));
}

#[test]
fn other_writers_headers_are_read() {
    let data = 5_i32.to_le_bytes();
    let headers = [
        "{'shape': (1,), 'descr': '<i4', 'fortran_order': False}",
        "{'shape': (1L,), 'fortran_order': False, 'descr': '<i4', }",
        "{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (1, ), }\n",
        "{'descr': u'<i4', 'fortran_order': True, 'shape': (1,)}          \n",
    ];
    for header in headers {
        let row = json!({"array": {"$array": "<i4", "shape": [], "values": [5]}});
        assert_eq!(rows(&file(header, &data)), Ok(vec![row]), "{header}");
    }
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let cases: [(&str, &str, &str); 9] = [
        ("'<M8[ns]'", "(1,)", "times"),
        ("'<f16'", "(1,)", "<f16"),
        ("'|U0'", "(1,)", "no bytes"),
        ("[('a', '|O')]", "(1,)", "pickle"),
        ("[('a', '|u1'), ('a', '|u1')]", "(1,)", "twice"),
        ("[('a', '|u1', (4000000000,))]", "(1,)", "2 GiB"),
        ("'|u1'", "(-1,)", "no dict"),
        ("'|u1'", "(99,)", "needs 99 bytes, and 16 are there"),
        ("'<u8'", "(3000000000000000000, 0)", "without bytes"),
    ];
    for (descr, shape, words) in cases {
        let error = rows(&simple(descr, false, shape, &[0; 16])).unwrap_err();
        assert!(error.contains(words), "{descr}: {error}");
    }
    let mut version = simple("'|u1'", false, "(1,)", &[0]);
    version[6] = 4;
    assert!(rows(&version).unwrap_err().contains("version 4.0"));
    assert!(rows(&simple("'|b1'", false, "(1,)", &[2])).unwrap_err().contains("neither 0 nor 1"));
    assert!(rows(&simple("'<U1'", false, "(1,)", &[0, 0xd8, 0, 0])).unwrap_err().contains("0xd800"));
}

#[test]
fn rows_without_bytes_are_counted() {
    let row = json!({"array": {"$array": "<f8", "shape": [0, 7], "values": []}});
    assert_eq!(rows(&simple("'<f8'", true, "(2, 0, 7)", &[])), Ok(vec![row.clone(), row]));
    assert_eq!(rows(&simple("'<f8'", false, "(0, 4000000000000, 4000000000000)", &[])), Ok(Vec::new()));
}

#[test]
fn settings_are_refused() {
    let path = common::golden("npy/f32.npy");
    fails(npy::open(&path, &options(Access::Read, &[("rows", "1")])), &["npy has no setting \"rows\""]);
}

#[test]
fn an_array_in_memory_is_lent() {
    let bytes = std::fs::read(common::golden("npy/f32.npy")).unwrap();
    let Value::Array(array) = npy::value(&bytes).unwrap() else { panic!("it is an array") };
    assert_eq!((array.dtype, array.shape.as_slice()), (ElementType::F32, &[40, 5][..]));
    assert_eq!(array.bytes.as_ptr(), bytes[128..].as_ptr());
    assert_eq!(notation::value(&Value::Bytes(bytes.as_slice().into()))["decoded"]["shape"], json!([40, 5]));
    assert!(npy::value(&bytes[..900]).is_err());
    let cut = notation::value(&Value::Bytes((&bytes[..900]).into()));
    assert!(cut.get("decoded").is_none(), "it cannot be decoded");
}

#[test]
fn arrays_side_by_side_are_parts() {
    let label = simple("'|u1'", false, "(2,)", &[7, 8]);
    let image = simple("'|u1'", false, "(2, 2)", &[1, 2, 3, 4]);
    let short = simple("'|u1'", false, "(1,)", &[9]);
    let made = Made::new(&[("label.npy", &label), ("image.npy", &image), ("short.npy", &short)]);
    let paths: Vec<PathBuf> = ["image", "label"].map(|name| made.path(&format!("{name}.npy"))).to_vec();
    let join = |paths: &[PathBuf], options: &Options| npy::join(paths, options).map(|shard| vec![shard]);

    let row = |image: [u8; 2], label: u8| {
        json!({
            "image": {"$array": "|u1", "shape": [2], "values": image},
            "label": {"$array": "|u1", "shape": [], "values": [label]},
        })
    };
    let joined = npy::join(&paths, &Options::default()).unwrap();
    assert_eq!(joined.files(), paths);
    assert_eq!(Some(joined.path()), paths[0].parent());
    assert_eq!(joined.grammar().description(), "image: |u1[2], label: |u1");
    assert_eq!(records(Ok(vec![joined])), Ok(vec![row([1, 2], 7), row([3, 4], 8)]));

    let mut uneven = paths.clone();
    uneven.push(made.path("short.npy"));
    fails(join(&uneven, &Options::default()), &["image has 2, label has 2, short has 1"]);
    let mut some = Options::default();
    some.parts = Some(vec!["label".to_owned()]);
    assert_eq!(records(join(&uneven, &some)).unwrap()[1], json!({"label": row([3, 4], 8)["label"]}));
    fails(join(&[paths[0].clone(), paths[0].clone()], &Options::default()), &["two arrays", "image"]);
    fails(join(&[], &Options::default()), &["no array"]);
}

#[test]
fn a_missing_file_is_an_error_of_the_system() {
    fails(npy::open(Path::new("/no/such.npy"), &Options::default()), &["such.npy", "cannot open"]);
}
