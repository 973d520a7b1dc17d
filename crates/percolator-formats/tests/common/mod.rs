//! Compares what a format's reader returns with what the manifest of the golden files says.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "shared by tests only")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use percolator_files::Access;
use percolator_formats::{FormatError, Key, Options, Part, Seeks, Shard, Value, notation};
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

static MANIFEST: LazyLock<Json> = LazyLock::new(|| {
    let text = fs::read_to_string(golden("manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
});

/// A golden file.
pub fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(path)
}

/// A case of the manifest.
pub fn case(name: &str) -> &'static Json {
    MANIFEST["cases"].as_array().unwrap().iter().find(|case| case["name"] == name).unwrap()
}

/// The cases of a format.
pub fn cases(format: &str) -> Vec<&'static Json> {
    let cases: Vec<_> =
        MANIFEST["cases"].as_array().unwrap().iter().filter(|case| case["format"] == format).collect();
    assert!(!cases.is_empty(), "no case has the format {format}");
    cases
}

/// The name of a case or of a damaged variant.
pub fn name(case: &Json) -> &str {
    case["name"].as_str().unwrap()
}

/// The rows of a case, its own or those of another one.
pub fn rows_of(case: &'static Json) -> &'static [Json] {
    match (&case["rows"], &case["rows_of"]) {
        (Json::Array(rows), _) => rows,
        (_, Json::String(other)) => rows_of(self::case(other)),
        _ => panic!("{}: no rows", name(case)),
    }
}

/// The files of a case.
pub fn files_of(case: &Json) -> Vec<PathBuf> {
    paths_of(case).into_iter().map(golden).collect()
}

fn paths_of(case: &Json) -> Vec<&str> {
    case["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

/// Opens files in one way of access.
pub type Open<'a> = &'a dyn Fn(&Options) -> Result<Vec<Arc<dyn Shard>>, FormatError>;

/// Checks that the shards have exactly a case's rows, in order and by position, mapped and read.
pub fn check(case: &'static Json, open: Open<'_>) {
    let rows = rows_of(case);
    for access in [Access::Mapped, Access::Read] {
        let mut options = Options::default();
        options.access = access;
        let shards = open(&options).unwrap_or_else(|error| panic!("{}: {error}", name(case)));
        let mut expected = rows.iter();
        for shard in &shards {
            check_shard(name(case), shard, &mut expected);
        }
        assert_eq!(expected.len(), 0, "{}: records are missing", name(case));
    }
}

fn check_shard(case: &str, shard: &Arc<dyn Shard>, expected: &mut std::slice::Iter<'_, Json>) {
    let rows = expected.as_slice();
    let grammar = shard.grammar();
    let mut cursor = Arc::clone(shard).cursor().unwrap();
    let mut places = Vec::new();
    while let Some(record) = cursor.advance().unwrap_or_else(|error| panic!("{case}: {error}")) {
        let row =
            expected.next().unwrap_or_else(|| panic!("{case}: there are more records than {}", rows.len()));
        let parts = grammar.parts(record.value.bytes()).unwrap();
        check_row(&format!("{case}, record {}", places.len()), row, &record.key, &parts);
        for (part, value) in &parts {
            assert_eq!(
                grammar.part(record.value.bytes(), part).unwrap().as_ref(),
                Some(value),
                "{case}: {part}"
            );
        }
        places.push(record.place);
    }
    assert!(cursor.advance().unwrap().is_none(), "{case}: the end is the end");
    if let Some(records) = shard.records() {
        assert_eq!(records, places.len() as u64, "{case}: the stated number");
    }
    if let Seeks::InOrder(_) = shard.seeks() {
        cursor.seek([0, 0], 0).unwrap();
        assert_eq!(cursor.advance().unwrap().map(|record| record.place), places.first().copied(), "{case}");
        return;
    }
    for (position, place) in places.iter().enumerate().rev() {
        if shard.seeks() == Seeks::ByPosition {
            assert_eq!(shard.place(position as u64).unwrap(), *place, "{case}: the place of {position}");
        }
        cursor.seek(*place, position as u64).unwrap();
        let record = cursor.advance().unwrap().unwrap();
        let parts = grammar.parts(record.value.bytes()).unwrap();
        check_row(&format!("{case}, record {position} by its place"), &rows[position], &record.key, &parts);
        assert_eq!(
            cursor.skip().unwrap(),
            places.get(position + 1).copied(),
            "{case}: skip after {position}"
        );
    }
}

fn check_row(what: &str, row: &Json, key: &Key<'_>, parts: &[Part<'_>]) {
    match (&row["key"], key) {
        (Json::Null, _) => {}
        (Json::String(expected), Key::Bytes(key)) => assert_eq!(expected.as_bytes(), *key, "{what}"),
        (Json::Number(expected), Key::Number(key)) => assert_eq!(expected.as_u64(), Some(*key), "{what}"),
        (expected, key) => assert!(matches(expected, &key_value(key)), "{what}: key {key:?}, not {expected}"),
    }
    let fields = row["fields"].as_object().unwrap();
    let found: Vec<_> = parts.iter().map(|(name, _)| name.as_ref()).collect();
    assert_eq!(found.len(), fields.len(), "{what}: parts {found:?}, not {:?}", fields.keys());
    for (field, expected) in fields {
        let value = parts.iter().find(|(name, _)| name == field).map(|(_, value)| value);
        let value = value.unwrap_or_else(|| panic!("{what}: no part {field} in {found:?}"));
        assert!(matches(expected, value), "{what}, {field}: {}, not {expected}", notation::value(value));
    }
}

fn key_value<'a>(key: &Key<'a>) -> Value<'a> {
    match *key {
        Key::None => Value::Null,
        Key::Number(key) => Value::UInt(key),
        Key::Bytes(key) => Value::Bytes(key.into()),
    }
}

/// Whether a value is what the manifest says.
fn matches(expected: &Json, value: &Value<'_>) -> bool {
    match (expected, value) {
        (Json::Object(due), Value::Bytes(bytes)) if due.contains_key("$bytes") => {
            let decoded = |due| notation::value(value).get("decoded") == Some(due);
            due["$bytes"] == bytes.len()
                && matches_bytes(due, bytes, "sha256")
                && due.get("decoded").is_none_or(decoded)
        }
        (Json::Object(due), Value::Array(array)) if due.contains_key("$array") => {
            let shape: Vec<Json> = array.shape.iter().map(|extent| (*extent).into()).collect();
            let dtype = due["$array"].as_str().unwrap().trim_start_matches(['<', '>', '|']);
            dtype == array.dtype.numpy().trim_start_matches(['<', '|'])
                && due["shape"].as_array() == Some(&shape)
                && match due.get("values") {
                    None => matches_bytes(due, &array.bytes, "sha256_le"),
                    Some(values) => values.as_array().unwrap().iter().eq(numbers(value).iter()),
                }
        }
        (Json::Object(due), Value::Struct(values)) => {
            due.len() == values.len()
                && values.iter().all(|(name, value)| due.get(&**name).is_some_and(|due| matches(due, value)))
        }
        (Json::Array(due), Value::List(values)) => {
            due.len() == values.len() && due.iter().zip(values).all(|(due, value)| matches(due, value))
        }
        (Json::String(due), Value::Bytes(bytes)) => due.as_bytes() == &bytes[..],
        (due, value) => *due == notation::value(value),
    }
}

fn matches_bytes(due: &serde_json::Map<String, Json>, bytes: &[u8], hash: &str) -> bool {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match (due.get(hash), due.get("hex").or_else(|| due.get("le_hex"))) {
        (Some(due), _) => *due == hex(&Sha256::digest(bytes)),
        (None, Some(due)) => *due == hex(bytes),
        (None, None) => false,
    }
}

fn numbers(value: &Value<'_>) -> Vec<Json> {
    let Value::Array(array) = value else { return Vec::new() };
    array
        .bytes
        .chunks(array.dtype.bytes())
        .flat_map(|element| {
            let one = Value::Array(percolator_formats::Array {
                dtype: array.dtype,
                shape: percolator_formats::Shape::new(),
                bytes: element.into(),
            });
            notation::value(&one)["values"].as_array().cloned().unwrap_or_default()
        })
        .collect()
}

/// A damaged variant of a case, written to a folder of its own.
pub struct Damaged {
    pub name: &'static str,
    /// What a good reader says.
    pub honest: &'static str,
    pub base: &'static Json,
    folder: tempfile::TempDir,
}

impl Damaged {
    /// Its copy of a file of the base case.
    pub fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The files, in the order of the base case. One that the damage removed is named, too.
    pub fn files(&self) -> Vec<PathBuf> {
        paths_of(self.base).into_iter().map(|path| self.file(path)).collect()
    }

    /// Reads everything; returns the number of records before the error, and its words with its causes.
    pub fn read(&self, open: Open<'_>) -> Result<u64, (u64, String)> {
        let mut records = 0;
        let result = open(&Options::default()).and_then(|shards| {
            for shard in shards {
                let grammar = shard.grammar();
                let path = shard.path().to_owned();
                let mut cursor = shard.cursor()?;
                while let Some(record) = cursor.advance()? {
                    if let Err(fault) = grammar.parts(record.value.bytes()) {
                        return Err(FormatError::damaged(&path, fault.to_string()));
                    }
                    records += 1;
                }
            }
            Ok(())
        });
        match result {
            Ok(()) => Ok(records),
            Err(error) => Err((records, percolator_files::shown::with_sources(&error))),
        }
    }

    /// Asserts that it cannot be read, and that the error has all of these words.
    pub fn fails(&self, open: Open<'_>, words: &[&str]) {
        let (_, error) = match self.read(open) {
            Ok(records) => panic!("{}: {records} records are read, but: {}", self.name, self.honest),
            Err(failure) => failure,
        };
        for word in words {
            assert!(error.contains(word), "{}: no {word:?} in {error:?}", self.name);
        }
    }
}

/// The damaged variants of a format.
pub fn damaged(format: &str) -> Vec<Damaged> {
    let all = MANIFEST["damaged"].as_array().unwrap().iter();
    let of_format: Vec<_> = all.filter(|variant| variant["format"] == format).map(damage).collect();
    assert!(!of_format.is_empty(), "no variant has the format {format}");
    of_format
}

fn damage(variant: &'static Json) -> Damaged {
    let base = case(variant["base"].as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    for path in paths_of(base) {
        let copy = folder.path().join(path);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(golden(path), copy).unwrap();
    }
    for edit in variant["edits"].as_array().unwrap() {
        apply(edit, &folder.path().join(edit["file"].as_str().unwrap()));
    }
    let honest = variant["honest"].as_str().unwrap();
    Damaged { name: name(variant), honest, base, folder }
}

fn apply(edit: &Json, file: &Path) {
    let number = |value: &Json| usize::try_from(value.as_u64().unwrap()).unwrap();
    if edit["delete"] == true {
        return fs::remove_file(file).unwrap();
    }
    let mut bytes = fs::read(file).unwrap();
    if let Some(length) = edit.get("truncate") {
        bytes.truncate(number(length));
    }
    if let Some(at) = edit.get("at") {
        let new = from_hex(&edit["hex"]);
        bytes[number(at)..][..new.len()].copy_from_slice(&new);
    }
    if let Some(remove) = edit.get("remove") {
        let start = number(&remove[0]);
        bytes.drain(start..start + number(&remove[1]));
    }
    if let Some(more) = edit.get("append") {
        bytes.extend(from_hex(more));
    }
    if let Some(texts) = edit.get("replace_text") {
        let text = String::from_utf8(bytes).unwrap();
        bytes = text.replacen(texts[0].as_str().unwrap(), texts[1].as_str().unwrap(), 1).into_bytes();
    }
    fs::write(file, bytes).unwrap();
}

fn from_hex(text: &Json) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
