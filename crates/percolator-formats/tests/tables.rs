//! Tables that the golden files lack, written by Arrow's own writers: types, columns that are asked for,
//! folders, streams of before 0.15.
#![cfg(all(feature = "arrow", feature = "parquet"))]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::arrow_ipc::MetadataVersion;
use ::arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::types::{Float32Type, Int8Type, Int16Type, Int32Type, UInt16Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date64Array, Decimal128Array, Decimal256Array,
    DictionaryArray, DurationSecondArray, FixedSizeListArray, Float16Array, Int32Array, IntervalDayTimeArray,
    LargeListArray, ListArray, ListViewArray, NullArray, RecordBatch, RunArray, StringArray, StructArray,
    Time64NanosecondArray,
};
use arrow_buffer::{IntervalDayTime, NullBuffer, OffsetBuffer, ScalarBuffer, i256};
use arrow_schema::{DataType, Field, Fields};
use percolator_formats::{FormatError, Options, Shard, arrow_ipc, notation, parquet_file};
use serde_json::{Value as Json, json};

type Opened = Result<Vec<Arc<dyn Shard>>, FormatError>;

/// Writes a table in all forms; returns the files.
fn written(folder: &Path, batch: &RecordBatch, with_parquet: bool) -> Vec<PathBuf> {
    let [file, stream, parquet] = ["t.arrow", "t.arrows", "t.parquet"].map(|name| folder.join(name));
    let mut writer = FileWriter::try_new(File::create(&file).unwrap(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(File::create(&stream).unwrap(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    if !with_parquet {
        return vec![file, stream];
    }
    let to = File::create(&parquet).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(to, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    vec![file, stream, parquet]
}

fn open(file: &Path, options: &Options) -> Opened {
    match file.extension().is_some_and(|extension| extension == "parquet") {
        true => parquet_file::open(file, options),
        false => arrow_ipc::open(file, options),
    }
}

fn rows(file: &Path, options: &Options) -> Vec<Json> {
    let mut rows = Vec::new();
    for shard in open(file, options).unwrap() {
        let grammar = shard.grammar();
        let mut cursor = shard.cursor().unwrap();
        while let Some(record) = cursor.advance().unwrap() {
            let parts = grammar.parts(record.value.bytes()).unwrap();
            let row = notation::record(0, &record.key, &parts);
            rows.push(row["parts"].clone());
        }
    }
    rows
}

fn field(dtype: &DataType) -> Arc<Field> {
    Arc::new(Field::new("item", dtype.clone(), true))
}

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Three rows of each type.
fn lists() -> RecordBatch {
    let floats = [Some(vec![Some(0.5), Some(-2.0)]), Some(vec![]), Some(vec![Some(1.0), None])];
    let floats = ListArray::from_iter_primitive::<Float32Type, _, _>(floats);
    let large = [Some(vec![Some(7_i16)]), None, Some(vec![Some(-1), Some(2)])];
    let large = LargeListArray::from_iter_primitive::<Int16Type, _, _>(large);
    let truths = BooleanArray::from(vec![true, false, true]);
    let truths = ListArray::new(
        field(&DataType::Boolean),
        OffsetBuffer::from_lengths([2, 0, 1]),
        Arc::new(truths),
        None,
    );
    let inner = Int32Array::from_iter_values(0..12);
    let inner = FixedSizeListArray::new(field(&DataType::Int32), 2, Arc::new(inner), None);
    let pairs = FixedSizeListArray::new(field(inner.data_type()), 2, Arc::new(inner.clone()), None);
    let of_pairs = ListArray::new(
        field(inner.data_type()),
        OffsetBuffer::from_lengths([1, 2, 3]),
        Arc::new(inner),
        None,
    );
    let holes = Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(5), Some(6)]);
    let holes = FixedSizeListArray::new(field(&DataType::Int32), 2, Arc::new(holes), None);
    let mut texts = ListBuilder::new(StringBuilder::new());
    texts.append_value([Some("a"), None]);
    texts.append_null();
    texts.append_value([Some("bc")]);
    table(vec![
        ("floats", Arc::new(floats)),
        ("large", Arc::new(large)),
        ("truths", Arc::new(truths)),
        ("pairs", Arc::new(pairs)),
        ("of_pairs", Arc::new(of_pairs)),
        ("holes", Arc::new(holes)),
        ("texts", Arc::new(texts.finish())),
    ])
}

fn array(dtype: &str, shape: &[u64], values: &Json) -> Json {
    json!({"$array": dtype, "shape": shape, "values": values})
}

#[test]
fn lists_of_numbers_are_arrays_and_others_lists() {
    let folder = tempfile::tempdir().unwrap();
    let i4 = |values: Json| array("<i4", &[2], &values);
    let expected = [
        json!({
            "floats": array("<f4", &[2], &json!([0.5, -2.0])), "large": [7],
            "truths": [true, false],
            "pairs": array("<i4", &[2, 2], &json!([0, 1, 2, 3])), "of_pairs": [i4(json!([0, 1]))],
            "holes": [1, null], "texts": ["a", null],
        }),
        json!({
            "floats": array("<f4", &[0], &json!([])), "large": null, "truths": [],
            "pairs": array("<i4", &[2, 2], &json!([4, 5, 6, 7])),
            "of_pairs": [i4(json!([2, 3])), i4(json!([4, 5]))], "holes": i4(json!([3, 4])), "texts": null,
        }),
        json!({
            "floats": [array("<f4", &[], &json!([1.0])), null], "large": [-1, 2],
            "truths": [true],
            "pairs": array("<i4", &[2, 2], &json!([8, 9, 10, 11])),
            "of_pairs": [i4(json!([6, 7])), i4(json!([8, 9])), i4(json!([10, 11]))],
            "holes": i4(json!([5, 6])), "texts": ["bc"],
        }),
    ];
    for file in written(folder.path(), &lists(), true) {
        let found = rows(&file, &Options::default());
        assert_eq!(found, expected, "{}", file.display());
    }
    // A slice's offsets do not begin at 0.
    for file in written(folder.path(), &lists().slice(1, 2), true) {
        assert_eq!(rows(&file, &Options::default()), expected[1..], "{}", file.display());
    }
}

fn scalars() -> RecordBatch {
    let decimals = Decimal128Array::from(vec![5, -5, -12345]).with_precision_and_scale(10, 2).unwrap();
    let tens = Decimal128Array::from(vec![0, 7, -7]).with_precision_and_scale(10, -2).unwrap();
    let wide = [i256::from_i128(3), i256::MINUS_ONE, i256::from_i128(i128::MAX)];
    let wide = Decimal256Array::from(wide.to_vec()).with_precision_and_scale(60, 20).unwrap();
    let keys = [Some(1_u16), Some(0), None];
    let dictionary = DictionaryArray::<UInt16Type>::new(
        keys.into_iter().collect(),
        Arc::new(StringArray::from(vec![None, Some("bee")])),
    );
    let inner: Fields = vec![Field::new("x", DataType::Int32, true)].into();
    let inner = StructArray::new(
        inner,
        vec![Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]))],
        Some(NullBuffer::from(vec![true, true, false])),
    );
    table(vec![
        ("dec", Arc::new(decimals)),
        ("tens", Arc::new(tens)),
        ("wide", Arc::new(wide)),
        ("date", Arc::new(Date64Array::from(vec![86_400_000, -86_400_000, 0]))),
        ("time", Arc::new(Time64NanosecondArray::from(vec![1, 2, 3]))),
        ("half", Arc::new(Float16Array::from(vec![half::f16::ONE, half::f16::NEG_ONE, half::f16::ZERO]))),
        ("word", Arc::new(dictionary)),
        ("inner", Arc::new(inner)),
        ("none", Arc::new(NullArray::new(3))),
        ("blob", Arc::new(BinaryArray::from_vec(vec![b"", b"\xff", b"ab"]))),
    ])
}

#[test]
fn scalars_have_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let half = |value: f64| array("<f2", &[], &json!([value]));
    let bytes = |length: usize, hex: &str| json!({"$bytes": length, "hex": hex});
    let expected = [
        json!({
            "dec": "0.05", "tens": "0", "wide": "0.00000000000000000003", "date": 1, "time": "1",
            "half": half(1.0), "word": "bee", "inner": {"x": 1}, "none": null, "blob": bytes(0, ""),
        }),
        json!({
            "dec": "-0.05", "tens": "700", "wide": "-0.00000000000000000001", "date": -1, "time": "2",
            "half": half(-1.0), "word": null, "inner": {"x": null}, "none": null, "blob": bytes(1, "ff"),
        }),
        json!({
            "dec": "-123.45", "tens": "-700", "wide": "1701411834604692317.31687303715884105727", "date": 0,
            "time": "3", "half": half(0.0), "word": null, "inner": null, "none": null,
            "blob": bytes(2, "6162"),
        }),
    ];
    for file in written(folder.path(), &scalars(), false) {
        assert_eq!(rows(&file, &Options::default()), expected, "{}", file.display());
    }
    // Parquet has no negative scale.
    let mut options = Options::default();
    let names = ["dec", "wide", "date", "time", "half", "word", "inner", "none", "blob"];
    options.parts = Some(names.iter().map(|name| (*name).to_owned()).collect());
    let kept: Vec<_> = (0..scalars().num_columns()).filter(|column| *column != 1).collect();
    let files = written(folder.path(), &scalars().project(&kept).unwrap(), true);
    let without = |row: &Json| {
        let mut row = row.clone();
        row.as_object_mut().unwrap().remove("tens");
        row
    };
    assert_eq!(rows(&files[2], &options), expected.iter().map(without).collect::<Vec<_>>());
}

#[test]
fn what_only_arrow_has_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let ends = arrow_array::PrimitiveArray::<Int8Type>::from(vec![1, 2, 3]);
    let views = ListViewArray::new(
        field(&DataType::Int8),
        ScalarBuffer::from(vec![1, 0, 0]),
        ScalarBuffer::from(vec![2, 3, 0]),
        Arc::new(ends),
        None,
    );
    let runs = Int32Array::from(vec![2, 3]);
    let runs = RunArray::<Int32Type>::try_new(&runs, &StringArray::from(vec!["a", "b"])).unwrap();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("views", Arc::new(views)),
        ("runs", Arc::new(runs)),
        ("last", Arc::new(DurationSecondArray::from(vec![-1, 0, 1]))),
    ];
    let expected = [
        json!({"views": [2, 3], "runs": "a", "last": "-1"}),
        json!({"views": [1, 2, 3], "runs": "a", "last": "0"}),
        json!({"views": [], "runs": "b", "last": "1"}),
    ];
    for file in written(folder.path(), &table(columns), false) {
        assert_eq!(rows(&file, &Options::default()), expected, "{}", file.display());
    }
}

fn refusal(file: &Path, options: &Options) -> String {
    match open(file, options) {
        Err(error @ FormatError::Refused { .. }) => error.to_string(),
        other => panic!("{}: {other:?}", file.display()),
    }
}

#[test]
fn only_the_columns_that_are_asked_for_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for file in written(folder.path(), &lists(), true) {
        let all = rows(&file, &Options::default());
        let mut options = Options::default();
        options.parts = Some(vec!["texts".to_owned(), "large".to_owned()]);
        let grammar = open(&file, &options).unwrap()[0].grammar();
        assert_eq!(grammar.names().unwrap(), ["large", "texts"]);
        for (row, all) in rows(&file, &options).iter().zip(&all) {
            assert_eq!(*row, json!({"large": all["large"], "texts": all["texts"]}));
        }
        options.parts = Some(Vec::new());
        assert_eq!(rows(&file, &options), [json!({}), json!({}), json!({})]);
        // Whoever names a part that is not there notices it.
        options.parts = Some(vec!["absent".to_owned()]);
        assert_eq!(rows(&file, &options), [json!({}), json!({}), json!({})]);
    }
}

#[test]
fn a_type_without_value_is_refused_unless_it_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let days = IntervalDayTimeArray::from(vec![IntervalDayTime::new(1, 2)]);
    let batch = table(vec![("wait", Arc::new(days)), ("n", Arc::new(Int32Array::from(vec![3])))]);
    for file in written(folder.path(), &batch, false) {
        let error = refusal(&file, &Options::default());
        assert!(error.contains("wait") && error.contains("Interval"), "{error}");
        let mut options = Options::default();
        options.parts = Some(vec!["n".to_owned()]);
        assert_eq!(rows(&file, &options), [json!({"n": 3})]);
    }
}

#[test]
fn two_columns_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = || -> ArrayRef { Arc::new(Int32Array::from(vec![1])) };
    for file in written(folder.path(), &table(vec![("a", one()), ("a", one())]), false) {
        assert!(refusal(&file, &Options::default()).contains("\"a\""));
    }
}

#[test]
fn writers_of_one_table_have_one_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let mut descriptions: Vec<_> = written(folder.path(), &lists(), true)
        .iter()
        .map(|file| open(file, &Options::default()).unwrap()[0].grammar().description())
        .collect();
    descriptions.dedup();
    assert_eq!(descriptions.len(), 1, "{descriptions:?}");
    assert!(descriptions[0].starts_with("floats: list<float32>, large: list<int16>"), "{descriptions:?}");
}

#[test]
fn a_folder_is_its_files_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (name, number) in [("b.parquet", 2), ("a.parquet", 1), ("c.PARQUET", 3), ("_x.parquet", 9)] {
        let batch = table(vec![("n", Arc::new(Int32Array::from(vec![number])))]);
        let to = File::create(folder.path().join(name)).unwrap();
        let mut writer = parquet::arrow::ArrowWriter::try_new(to, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
    fs::write(folder.path().join("README.md"), "text").unwrap();
    let read = |shards: Vec<Arc<dyn Shard>>| -> Vec<_> {
        shards.iter().map(|shard| shard.path().file_name().unwrap().to_owned()).collect()
    };
    let shards = parquet_file::open(folder.path(), &Options::default()).unwrap();
    assert_eq!(read(shards), ["a.parquet", "b.parquet", "c.PARQUET"]);
    let error = arrow_ipc::open(folder.path(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("no file"), "{error}");
    fs::create_dir(folder.path().join("year=2026")).unwrap();
    let error = parquet_file::open(folder.path(), &Options::default()).unwrap_err().to_string();
    assert!(error.contains("year=2026"), "{error}");
}

#[test]
fn unknown_settings_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.settings.push(("rows".to_owned(), "1".to_owned()));
    for file in written(folder.path(), &lists(), true) {
        assert!(refusal(&file, &options).contains("rows"));
    }
}

/// A stream of before 0.15, or one of today.
fn stream(rows: std::ops::Range<i32>, legacy: bool) -> Vec<u8> {
    let batch = table(vec![("n", Arc::new(Int32Array::from_iter_values(rows)))]);
    let version = if legacy { MetadataVersion::V4 } else { MetadataVersion::V5 };
    let options = IpcWriteOptions::try_new(8, legacy, version).unwrap();
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn old_streams_are_read_and_joined_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("s.arrow");
    fs::write(&file, stream(0..3, true)).unwrap();
    assert_eq!(rows(&file, &Options::default()), [json!({"n": 0}), json!({"n": 1}), json!({"n": 2})]);

    let mut padded = stream(0..1, false);
    padded.extend([0; 100]);
    fs::write(&file, padded).unwrap();
    assert_eq!(rows(&file, &Options::default()), [json!({"n": 0})]);

    fs::write(&file, [stream(0..1, false), stream(1..2, false)].concat()).unwrap();
    let mut cursor = open(&file, &Options::default()).unwrap().remove(0).cursor().unwrap();
    assert!(cursor.advance().unwrap().is_some());
    let first = cursor.advance().unwrap_err();
    assert!(first.to_string().contains("put together"), "{first}");
    assert_eq!(cursor.advance().unwrap_err(), first);
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["e.arrow", "e.parquet"] {
        let file = folder.path().join(name);
        fs::write(&file, b"").unwrap();
        let error = open(&file, &Options::default()).unwrap_err().to_string();
        assert!(error.contains("there is no"), "{error}");
    }
}

/// A table of many batches or row groups, each row its number and bytes of that length.
fn many(folder: &Path) -> Vec<PathBuf> {
    let batch = |rows: std::ops::Range<i32>| {
        let blobs =
            rows.clone().map(|n| vec![u8::try_from(n % 251).unwrap(); usize::try_from(n % 7).unwrap()]);
        table(vec![
            ("n", Arc::new(Int32Array::from_iter_values(rows.clone()))),
            ("blob", Arc::new(BinaryArray::from_iter_values(blobs))),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
                    rows.map(|n| (n % 5 != 0).then(|| (0..n % 4).map(Some).collect::<Vec<_>>())),
                )),
            ),
        ])
    };
    let files = written(folder, &batch(0..3000), true);
    for (file, is_file) in [(&files[0], true), (&files[1], false)] {
        let to = File::create(file).unwrap();
        let schema = batch(0..1).schema();
        let batches = [0..7, 7..7, 7..1500, 1500..3000].map(batch);
        if is_file {
            let mut writer = FileWriter::try_new(to, &schema).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        } else {
            let mut writer = StreamWriter::try_new(to, &schema).unwrap();
            batches.iter().for_each(|batch| writer.write(batch).unwrap());
            writer.finish().unwrap();
        }
    }
    for (name, rows_a_group, rows_a_page) in [("pages.parquet", 1700, 50), ("groups.parquet", 30, 20_000)] {
        let properties = parquet::file::properties::WriterProperties::builder()
            .set_max_row_group_row_count(Some(rows_a_group))
            .set_data_page_row_count_limit(rows_a_page)
            .set_write_batch_size(10)
            .build();
        let to = File::create(folder.join(name)).unwrap();
        let all = batch(0..3000);
        let mut writer = parquet::arrow::ArrowWriter::try_new(to, all.schema(), Some(properties)).unwrap();
        writer.write(&all).unwrap();
        writer.close().unwrap();
    }
    [files, vec![folder.join("pages.parquet"), folder.join("groups.parquet")]].concat()
}

#[test]
fn any_order_gives_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = many(folder.path());
    let expected = rows(&files[0], &Options::default());
    assert_eq!(expected.len(), 3000);
    assert!(expected.iter().enumerate().all(|(n, row)| row["n"] == n));
    for file in &files {
        assert_eq!(rows(file, &Options::default()), expected, "{}", file.display());
        let shard = open(file, &Options::default()).unwrap().remove(0);
        let grammar = shard.grammar();
        let mut cursor = Arc::clone(&shard).cursor().unwrap();
        let places: Vec<_> = std::iter::from_fn(|| cursor.skip().unwrap()).collect();
        let scattered = (0..3000).map(|n| n * 1217 % 3000);
        let orders = (0..3000).step_by(3).chain((0..3000).rev()).chain(scattered.step_by(11));
        let mut fresh = shard.cursor().unwrap();
        for n in orders {
            fresh.seek(places[n], n as u64).unwrap();
            let record = fresh.advance().unwrap().unwrap();
            assert_eq!(record.place, places[n]);
            let parts = grammar.parts(record.value.bytes()).unwrap();
            let row = notation::record(0, &record.key, &parts);
            assert_eq!(row["parts"], expected[n], "{}, row {n}", file.display());
        }
        let beyond = [places[2999][0] + 1, places[2999][1] + 1];
        let error = fresh.seek(beyond, 3000).unwrap_err().to_string();
        assert!(error.contains("changed"), "{error}");
    }
}

#[test]
fn dictionaries_are_those_of_their_batch_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("d.arrows");
    let words = [vec!["a", "b"], vec!["c"], vec!["c", "d", "e"], vec!["a"]];
    let batch = |words: &Vec<&str>| {
        let column: DictionaryArray<Int8Type> = words.iter().copied().collect();
        assert_eq!(column.values().len(), words.len());
        table(vec![("word", Arc::new(column))])
    };
    let to = File::create(&file).unwrap();
    let mut writer = StreamWriter::try_new(to, &batch(&words[0]).schema()).unwrap();
    words.iter().for_each(|words| writer.write(&batch(words)).unwrap());
    writer.finish().unwrap();

    let shard = open(&file, &Options::default()).unwrap().remove(0);
    let grammar = shard.grammar();
    let mut cursor = Arc::clone(&shard).cursor().unwrap();
    let places: Vec<_> = std::iter::from_fn(|| cursor.skip().unwrap()).collect();
    let expected = words.concat();
    assert_eq!(places.len(), expected.len());
    for n in [6, 0, 3, 2, 5, 1, 4, 6, 2] {
        cursor.seek(places[n], n as u64).unwrap();
        let record = cursor.advance().unwrap().unwrap();
        let word = grammar.part(record.value.bytes(), "word").unwrap().unwrap();
        assert_eq!(notation::value(&word), expected[n]);
    }
}
