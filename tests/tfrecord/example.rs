//! Feeds of Examples: what TensorFlow wrote, value for value; images as from the databases that they were
//! taken from; and, with features of every kind, what `tf.io.parse_single_example` would make of them.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use percolator::batch::Element;
use percolator::batch::ImageShape;
use percolator::decoder::RecordCause;
use percolator::example::{
    Example, ExampleField, ExampleFields, ExampleImage, ExampleWriter, Feature, FeatureError, ImageShapeFrom,
    SequenceExample,
};
use percolator::feed::ConfigError;
use percolator::source::{FnSource, IndexPlace};
use percolator::{Batch, ColorMode, Dtype, Feed, FeedBuilder, FeedError, Field, Layout, Shuffle, Transform};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The records of an uncompressed TFRecord file, apart from any source of ours.
fn records(name: &str) -> Vec<Vec<u8>> {
    let file = std::fs::read(data("tensorflow").join(name)).unwrap();
    let (mut rest, mut records) = (&*file, Vec::new());
    while let Some((head, behind)) = rest.split_at_checked(12) {
        let len = u64::from_le_bytes(*head.first_chunk().unwrap()) as usize;
        records.push(behind[..len].to_vec());
        rest = &behind[len + 4..];
    }
    assert!(rest.is_empty());
    records
}

fn source(records: Vec<Vec<u8>>) -> FnSource {
    FnSource::new("examples", records.len() as u64, move |position, to| {
        to.extend(&records[position as usize]);
        Ok(())
    })
}

/// Everything in one batch.
fn batch_of(records: Vec<Vec<u8>>, fields: &str) -> Result<Batch, FeedError> {
    let count = records.len();
    let feed = Feed::builder().source(source(records)).batch_size(count).threads(2).once();
    feed.example(fields.parse().unwrap()).build()?.into_iter().next().unwrap()
}

fn written(write: impl FnOnce(&mut ExampleWriter) -> &mut ExampleWriter) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    write(&mut writer);
    writer.to_bytes()
}

fn golden() -> Value {
    serde_json::from_slice(&std::fs::read(data("tensorflow/examples.json")).unwrap()).unwrap()
}

fn unhex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn ints(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

fn floats(list: &Value) -> Vec<f32> {
    list.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

#[test]
fn the_view_reads_what_tensorflow_wrote() {
    let (golden, records) = (golden(), records("examples.tfrecord"));
    let examples = golden["examples"].as_array().unwrap();
    assert_eq!(examples.len(), records.len());
    for (expected, record) in examples.iter().zip(&records) {
        let example = Example::parse(record).unwrap();
        let expected = expected.as_object().unwrap();
        assert_eq!(example.features().entries().count(), expected.len());
        for (name, list) in expected {
            match example.features().get(name).unwrap() {
                Feature::Ints(found) => assert_eq!(found.iter().collect::<Vec<_>>(), ints(list)),
                Feature::Floats(found) => assert_eq!(found.iter().collect::<Vec<_>>(), floats(list)),
                Feature::Bytes(found) => {
                    let strings = list.as_array().unwrap().iter().map(unhex);
                    assert_eq!(found.iter().collect::<Vec<_>>(), strings.collect::<Vec<_>>());
                }
                Feature::Unset => panic!("{name}"),
            }
        }
    }
}

#[test]
fn the_view_reads_tensorflows_sequences() {
    let (golden, records) = (golden(), records("sequence.tfrecord"));
    let sequences = golden["sequences"].as_array().unwrap();
    assert_eq!(sequences.len(), records.len());
    for (expected, record) in sequences.iter().zip(&records) {
        let sequence = SequenceExample::parse(record).unwrap();
        let length = sequence.context().get("length").and_then(Feature::ints).unwrap();
        assert_eq!(length.iter().collect::<Vec<_>>(), [expected["length"].as_i64().unwrap()]);
        let tokens = sequence.feature_lists().get("tokens").unwrap();
        let tokens: Vec<Vec<i64>> = tokens.iter().map(|one| one.ints().unwrap().iter().collect()).collect();
        let expected: Vec<Vec<i64>> = expected["tokens"].as_array().unwrap().iter().map(ints).collect();
        assert_eq!(tokens, expected);
    }
}

#[test]
fn a_feed_gives_what_tensorflow_wrote() {
    let fields = "id:i64,ids:i32[12],ids as wide:i64[3x4],weights:f32[5],weights as half:bf16[<=7]=-1,\
    name:bytes,extra:strings[<=4](8),\
                  image as pixels:bytes[3x3x3],ragged:i64[<=8]=-1,ragged as loose:u8[<=4],id as small:u8";
    let batch = batch_of(records("examples.tfrecord"), fields).unwrap();
    let golden = golden();
    let examples = golden["examples"].as_array().unwrap();
    let all = |of: fn(&Value) -> Vec<i64>| examples.iter().flat_map(of).collect::<Vec<i64>>();
    let ids = all(|example| ints(&example["ids"]));
    assert_eq!(batch.get::<i64>("id").unwrap().into_slice(), all(|example| ints(&example["id"])));
    assert_eq!(
        batch.get::<i32>("ids").unwrap().into_slice(),
        ids.iter().map(|&id| id as i32).collect::<Vec<_>>()
    );
    let wide = batch.get::<i64>("wide").unwrap();
    assert_eq!((&*wide.shape(), wide.into_slice()), (&[50, 3, 4][..], &*ids));
    let weights: Vec<f32> = examples.iter().flat_map(|example| floats(&example["weights"])).collect();
    assert_eq!(batch.get::<f32>("weights").unwrap().into_slice(), weights);
    let half = batch.get::<percolator::half::bf16>("half").unwrap().into_slice();
    assert_eq!(
        half[..5],
        weights[..5].iter().map(|&one| percolator::half::bf16::from_f32(one)).collect::<Vec<_>>()
    );
    assert_eq!(half[5..7], [percolator::half::bf16::NEG_ONE; 2]);
    let pixels: Vec<u8> = examples.iter().flat_map(|example| unhex(&example["image"][0])).collect();
    assert_eq!(batch.get::<u8>("pixels").unwrap().into_slice(), pixels);
    assert_eq!(batch.get::<u8>("small").unwrap().into_slice(), (0..50).collect::<Vec<u8>>());
    let (names, lengths) = (batch.get::<u8>("name").unwrap(), batch.field("name").unwrap().lengths());
    for ((name, &length), example) in names.into_slice().chunks(256).zip(lengths).zip(examples) {
        let (name, zeros) = name.split_at(length as usize);
        assert_eq!(name, unhex(&example["name"][0]));
        assert!(zeros.iter().all(|&byte| byte == 0));
    }
    let nothing = Value::Array(Vec::new());
    let (extra, lengths) = (batch.get::<u8>("extra").unwrap(), batch.get::<i64>("extra/lengths").unwrap());
    assert_eq!(&*extra.shape(), [50, 4, 8]);
    let counts = batch.field("extra/lengths").unwrap().lengths();
    for (number, (&count, example)) in counts.iter().zip(examples).enumerate() {
        let strings: Vec<&[u8]> = (0..count as usize)
            .map(|at| {
                &extra.into_slice()[32 * number + 8 * at..][..lengths.into_slice()[4 * number + at] as usize]
            })
            .collect();
        let expected = example.get("extra").unwrap_or(&nothing).as_array().unwrap();
        assert_eq!(strings, expected.iter().map(unhex).collect::<Vec<_>>());
    }
    assert!(counts.contains(&2));
    let of = |example: &Value| ints(example.get("ragged").unwrap_or(&nothing));
    let padded = batch.get::<i64>("ragged").unwrap().into_slice();
    let loose = batch.ragged::<u8>("loose").unwrap();
    for (number, example) in examples.iter().enumerate() {
        let mut row = of(example);
        let range = loose.offsets()[number] as usize..loose.offsets()[number + 1] as usize;
        assert_eq!(loose.values()[range].iter().map(|&one| one.into()).collect::<Vec<i64>>(), row);
        row.resize(8, -1);
        assert_eq!(padded[8 * number..][..8], row);
    }
    assert!(examples.iter().any(|example| of(example).len() == 4));
}

/// All batches of an image feed: the ids of their records, all arrays, the labels.
fn images(feed: FeedBuilder) -> Vec<(Vec<u64>, Vec<u8>, Vec<i32>)> {
    let feed = feed.batch_size(4).epochs(2).shuffle(Shuffle::Global).seed(3).build().unwrap();
    feed.into_iter()
        .map(|batch| {
            let batch = batch.unwrap();
            let ids = batch.records().iter().map(|id| id.index).collect();
            (ids, batch.bytes().to_vec(), batch.labels().to_vec())
        })
        .collect()
}

/// Images from TFRecord files are those of the databases that they were made from.
#[test]
fn images_are_those_of_the_databases() {
    let shape = || ImageShapeFrom::Feature("image/shape".to_owned());
    let fixed = || ImageShapeFrom::Fixed(ImageShape { channels: 3, height: 40, width: 36 });
    for (file, database, image) in [
        ("jpg_color.tfrecord", "jpg_color_lmdb", ExampleImage::encoded("image/encoded")),
        ("raw.tfrecord", "raw_lmdb", ExampleImage::raw("image/raw", shape())),
        ("raw.tfrecord", "raw_lmdb", ExampleImage::raw("image/raw", fixed())),
    ] {
        let crop = Transform::new().crop(24).mirror(true).mean_values([1.0, 2.0, 3.0]).scale(0.25);
        for (transform, dtype, layout) in [
            (crop.clone(), Dtype::F32, Layout::Nchw),
            (crop.color(ColorMode::Gray).mean_values([9.0]), Dtype::Bf16, Layout::Nhwc),
            (Transform::new().resize(20, 31).color(ColorMode::Color), Dtype::U8, Layout::Nhwc),
        ] {
            let feed = || Feed::builder().transform(transform.clone()).dtype(dtype).layout(layout);
            let image = image.clone().label("image/class/label");
            let file = data("tensorflow").join(file);
            let ours = images(feed().tfrecord(&file).index(IndexPlace::Memory).example_image(image));
            let theirs = images(feed().lmdb(data("golden").join(database)));
            assert!(ours == theirs, "{}, {transform:?}, {dtype}, {layout}", file.display());
            assert!(ours.iter().any(|(_, _, labels)| labels.iter().any(|&label| label > 0)));
        }
    }
}

#[test]
fn an_image_has_other_features_beside_it() {
    let feed = Feed::builder()
        .source(source(records("raw.tfrecord")))
        .example_image(ExampleImage::raw("image/raw", ImageShapeFrom::Feature("image/shape".to_owned())))
        .example(
            "image/shape as shape:i32[3],image/class/label as class:i64,none:f32[2]=0.5,\
             each:i32[2x2]=[1,2,3,4]"
                .parse()
                .unwrap(),
        )
        .labels_i64(true)
        .batch_size(64)
        .once();
    let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
    let names: Vec<_> = batch.fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(names, ["data", "label", "label_f32", "label_i64", "shape", "class", "none", "each"]);
    assert_eq!(batch.shape().dims(), [64, 3, 40, 36]);
    assert_eq!(batch.get::<i32>("shape").unwrap().into_slice(), [3, 40, 36].repeat(64));
    assert_eq!(batch.get::<f32>("none").unwrap().into_slice(), [0.5; 128]);
    assert_eq!(batch.get::<i32>("each").unwrap().into_slice(), [1, 2, 3, 4].repeat(64));
    assert!(batch.labels().iter().all(|&label| label == 0), "no label was asked for");
    assert_eq!(batch.get::<i64>("class").unwrap().into_slice()[..2], [0, 37]);
}

#[test]
fn raw_floats_are_images_however_they_are_written() {
    let values: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let packed = written(|to| to.floats("image", values.iter().copied()));
    // The same list, one value a field, in two parts.
    let field = |value: &f32| [&[0x0d][..], &value.to_le_bytes()].concat();
    let chunk =
        |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let part = |values: &[f32]| chunk(2, &chunk(2, &values.iter().flat_map(field).collect::<Vec<_>>()));
    let entry = [chunk(1, b"image"), part(&values[..5]), part(&values[5..])].concat();
    let scattered = chunk(1, &chunk(1, &entry));
    let shape = ImageShapeFrom::Fixed(ImageShape { channels: 3, height: 2, width: 2 });
    let image = ExampleImage::raw("image", shape);
    let feed =
        Feed::builder().source(source(vec![packed, scattered])).example_image(image).batch_size(2).once();
    let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
    assert_eq!(batch.pixels::<f32>().unwrap(), [&*values, &*values].concat());
}

#[track_caller]
fn refused(record: Vec<u8>, fields: &str) -> String {
    let good = written(|to| to.ints("a", [1, 2]).floats("f", [0.5]).bytes("s", ["text"]));
    let count = 2;
    let source = source(vec![good, record]);
    let feed = Feed::builder().source(source).batch_size(count).example(fields.parse().unwrap()).once();
    feed.build().unwrap().into_iter().next().unwrap().unwrap_err().to_string()
}

/// Checks the message of each of these records, which its fields refuse.
fn check_refusals<const N: usize>(cases: [(Vec<u8>, &str, &str); N]) {
    let name = "examples: epoch 0, record 1, key \"00000001\": ";
    for (record, fields, message) in cases {
        // The first record of the feed must fit, so fields have to suit it, too.
        assert_eq!(refused(record, fields), format!("{name}{message}"));
    }
}

#[test]
fn an_error_names_record_feature_and_what_is_missing_or_of_another_kind() {
    let of = |write: fn(&mut ExampleWriter) -> &mut ExampleWriter| written(write);
    check_refusals([
        (
            of(|to| to.ints("b", [1]).ints("c", [2]).ints("b", [3])),
            "a:i64[2]",
            "the feature \"a\" is missing (the record has \"b\", \"c\"); the field a: i64 [2], which \
             has no default, needs one in every record",
        ),
        (
            Vec::new(),
            "a:i64[2]",
            "the feature \"a\" is missing (the record has none); the field a: i64 [2], which has no \
             default, needs one in every record",
        ),
        (
            of(|to| to.unset("a")),
            "a:i64[2]",
            "the feature \"a\" has no kind, and so no value; the field a: i64 [2], which has no default, \
             needs one in every record",
        ),
        (
            of(|to| to.floats("a", [1.0])),
            "a:i64[2]=0",
            "the feature \"a\" has the kind float_list, but the field a: i64 [2] takes the kind int64_list",
        ),
        (
            of(|to| to.ints("a", [1])),
            "a:i64[2]=0",
            "the feature \"a\" has 1 value(s), but the field a: i64 [2] takes 2",
        ),
        (
            of(|to| to.ints("a", [])),
            "a:i64[2]=0",
            "the feature \"a\" has 0 value(s), but the field a: i64 [2] takes 2",
        ),
    ]);
}

#[test]
fn an_error_names_record_feature_found_and_allowed() {
    let of = |write: fn(&mut ExampleWriter) -> &mut ExampleWriter| written(write);
    check_refusals([
        (
            of(|to| to.ints("a", [1; 300])),
            "a:i64[<=5]",
            "the feature \"a\" has 300 value(s), but the field a: i64 [<=5] takes at most 5",
        ),
        (
            of(|to| to.ints("a", [1, 1 << 31])),
            "a:i32[2]",
            "value 1 of the feature \"a\" is 2147483648, which is not a value of i32 (the field a: i32 [2])",
        ),
        (
            of(|to| to.ints("a", [1, -1])),
            "a:u64[2]",
            "value 1 of the feature \"a\" is -1, which is not a value of u64 (the field a: u64 [2])",
        ),
        (
            of(|to| to.floats("f", [1.0; 3])),
            "f:f64[<=2]=0",
            "the feature \"f\" has 3 value(s), but the field f: f64 [<=2]=0 takes at most 2",
        ),
        (
            of(|to| to.bytes("s", ["longer"])),
            "s:bytes(5)",
            "the feature \"s\" has a string of 6 bytes, but the field s: u8 [<=5]=0 takes at most 5",
        ),
        (
            of(|to| to.bytes("s", ["one", "two"])),
            "s:bytes",
            "the feature \"s\" has 2 value(s), but the field s: u8 [<=256]=0, made of a string, takes 1",
        ),
        (
            of(|to| to.bytes("s", ["one"])),
            "s:bytes[4]",
            "the feature \"s\" has a string of 3 bytes, but the field s: u8 [4] takes 4",
        ),
        (
            vec![10, 3, 10],
            "a:i64[2]",
            "not a tf.train.Example: the value at byte 2 takes 3 bytes, but 1 are left",
        ),
        (
            [&of(|to| to.ints("a", [1])), &[0x0b][..]].concat(),
            "a:i64[2]",
            "not a tf.train.Example: field 1 at byte 14 has wire type 3, but must have 2",
        ),
    ]);
}

#[test]
fn an_image_that_is_none_is_an_error() {
    let shape = || ImageShapeFrom::Feature("shape".to_owned());
    let encoded = ExampleImage::encoded("image").label("label");
    let raw = ExampleImage::raw("image", shape());
    let of = |write: fn(&mut ExampleWriter) -> &mut ExampleWriter| written(write);
    for (record, image, message) in [
        (
            of(|to| to.ints("label", [1])),
            encoded.clone(),
            "the feature \"image\" is missing (the record has \"label\"); the image needs one in every \
             record",
        ),
        (of(|to| to.bytes("image", ["x"])), encoded.clone(), "the feature \"label\" is missing"),
        (
            of(|to| to.bytes("image", ["x"]).ints("label", [1 << 40])),
            encoded.clone(),
            "value 0 of the feature \"label\" is 1099511627776, which is not a value of i32 (the label)",
        ),
        (
            of(|to| to.bytes("image", ["x"]).ints("label", [1, 2])),
            encoded.clone(),
            "the feature \"label\" has 2 value(s), but the label takes 1",
        ),
        (
            of(|to| to.bytes("image", ["x"; 2]).ints("label", [1])),
            encoded.clone(),
            "the feature \"image\" has 2 value(s), but the image takes 1",
        ),
        (
            of(|to| to.floats("image", [1.0]).ints("label", [1])),
            encoded,
            "the feature \"image\" has the kind float_list, but the image takes the kind bytes_list",
        ),
        (
            of(|to| to.bytes("image", ["x"]).ints("shape", [1, 2])),
            raw.clone(),
            "the feature \"shape\" has 2 value(s), but the image's shape takes 3",
        ),
        (
            of(|to| to.bytes("image", ["x"]).ints("shape", [1, -2, 3])),
            raw.clone(),
            "the feature \"shape\" is [1, -2, 3], but the shape of an image is three numbers of 1 or more",
        ),
        (
            of(|to| to.bytes("image", ["x"]).ints("shape", [1 << 20, 1 << 20, 1 << 20])),
            raw.clone(),
            "the feature \"shape\" is [1048576, 1048576, 1048576], but the shape of an image is three \
             numbers",
        ),
        (
            of(|to| to.bytes("image", ["x"]).ints("shape", [1, 2, 3])),
            raw,
            "the feature \"image\" has 1 value(s), but an image of 1x2x3 takes 6",
        ),
    ] {
        let feed = Feed::builder().source(source(vec![record])).example_image(image).build();
        let error = feed.unwrap_err().to_string();
        assert!(error.contains(message), "{error}\n{message}");
    }
}

#[test]
fn fields_that_no_feature_becomes_are_refused() {
    let build = |feed: FeedBuilder| feed.source(source(vec![Vec::new()])).build().unwrap_err();
    let of =
        |field: ExampleField| build(Feed::builder().example(ExampleFields::new().with(field))).to_string();
    assert!(
        of(ExampleField::new(Field::scalar("a", Dtype::Bool))).contains("is of bool, which no feature has")
    );
    assert!(of(ExampleField::of_bytes(Field::scalar("a", Dtype::I8))).contains("is of i8, but bytes are u8"));
    assert!(
        of(ExampleField::new(Field::scalar("a", Dtype::I8)).or(200)).contains("default 200, which is not")
    );
    let padded = Field::padded("a", Dtype::I8, 2, 0);
    assert!(of(ExampleField::new(padded).or(1)).contains("padded or ragged: without its feature"));
    assert!(of(ExampleField::new(Field::scalar("a", Dtype::I8)).or_bytes("x")).contains("not made of bytes"));
    assert!(
        of(ExampleField::bytes("a", 2).or_bytes("xyz"))
            .contains("has 3 bytes, but the field takes at most 2")
    );
    let image = |image| Feed::builder().example_image(image).example("data:i64".parse().unwrap());
    let twice = source(vec![written(|to| to.floats("image", [1.0]).ints("data", [1]))]);
    let one = ImageShapeFrom::Fixed(ImageShape { channels: 1, height: 1, width: 1 });
    let twice = image(ExampleImage::raw("image", one)).source(twice).build().unwrap_err().to_string();
    assert!(twice.contains("two fields have the name \"data\""), "{twice}");
    let nothing = build(Feed::builder().example(ExampleFields::new()));
    assert!(nothing.to_string().contains("name fields, or an image"), "{nothing}");
    let option = build(Feed::builder().example("a:i64".parse().unwrap()).transform(Transform::new().crop(2)));
    assert!(matches!(option, FeedError::Config(ConfigError::ImageOption { option: "transform" })));
}

/// A feature as it might come.
#[derive(Clone, Debug)]
enum Some3 {
    Unset,
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<Vec<u8>>),
}

fn feature() -> impl Strategy<Value = Some3> {
    let small = prop_oneof![3 => -3..300_i64, 1 => any::<i64>()];
    prop_oneof![
        1 => Just(Some3::Unset),
        6 => vec(small, 0..5).prop_map(Some3::Ints),
        2 => vec(any::<f32>(), 0..5).prop_map(Some3::Floats),
        2 => vec(vec(any::<u8>(), 0..5), 0..3).prop_map(Some3::Strings),
    ]
}

/// The last feature of this name; one without a kind is missing, as in TensorFlow.
fn last<'a>(record: &'a [(String, Some3)], name: &str) -> Option<&'a Some3> {
    let found = record.iter().rev().find(|(found, _)| found == name).map(|(_, feature)| feature);
    found.filter(|feature| !matches!(feature, Some3::Unset))
}

/// The elements that a field has of a record, or `None` if it is an error. `fixed`: exactly as many.
fn naive<T, U: Clone>(
    list: Option<Option<&[T]>>,
    count: usize,
    is_fixed: bool,
    default: Option<U>,
    convert: impl Fn(&T) -> Option<U>,
) -> Option<Vec<U>> {
    match list {
        None if is_fixed => default.map(|value| vec![value; count]),
        None => Some(Vec::new()),
        Some(None) => None,
        Some(Some(list)) if list.len() > count || is_fixed && list.len() != count => None,
        Some(Some(list)) => list.iter().map(convert).collect(),
    }
}

#[track_caller]
fn agrees<T: Element + PartialEq + Debug>(
    batch: &Result<Batch, FeedError>,
    expected: Option<Vec<T>>,
) -> Result<(), TestCaseError> {
    match (batch, expected) {
        (Ok(batch), Some(expected)) => match batch.field("x").unwrap().lengths() {
            &[length] => {
                let row = batch.get::<T>("x").unwrap().into_slice();
                prop_assert_eq!(&row[..usize::try_from(length).unwrap()], &*expected);
            }
            _ => match batch.ragged::<T>("x") {
                Ok(ragged) => prop_assert_eq!(ragged.values(), &*expected),
                Err(_) => prop_assert_eq!(batch.get::<T>("x").unwrap().into_slice(), &*expected),
            },
        },
        (Err(FeedError::Record(error)), None) => {
            let is_of_feature = matches!(&error.cause, RecordCause::Feature(_));
            prop_assert!(is_of_feature, "{:?}", error.cause);
        }
        (batch, expected) => prop_assert!(false, "{batch:?}, but {expected:?}"),
    }
    Ok(())
}

/// The strings of one record: each in its row of 3 bytes, of which there are `rows`, with its length beside.
#[track_caller]
fn agrees_on_strings(
    batch: &Result<Batch, FeedError>,
    rows: usize,
    expected: Option<Vec<Vec<u8>>>,
) -> Result<(), TestCaseError> {
    let (Ok(batch), Some(strings)) = (batch, &expected) else {
        let is_of_feature = matches!(
            batch, Err(FeedError::Record(error)) if matches!(error.cause, RecordCause::Feature(_))
        );
        prop_assert!(is_of_feature && expected.is_none(), "{batch:?}, but {expected:?}");
        return Ok(());
    };
    let mut bytes: Vec<u8> = Vec::new();
    let mut lengths: Vec<i64> = Vec::new();
    for row in 0..rows {
        let string = strings.get(row).map_or(&b""[..], |string| string);
        bytes.extend(string);
        bytes.resize(3 * (row + 1), 0);
        lengths.push(i64::try_from(string.len()).unwrap());
    }
    prop_assert_eq!(batch.get::<u8>("x").unwrap().into_slice(), &*bytes);
    prop_assert_eq!(batch.get::<i64>("x/lengths").unwrap().into_slice(), &*lengths);
    let counted: Vec<i64> = match batch.field("x/lengths").unwrap().lengths() {
        [] => vec![],
        _ => vec![i64::try_from(strings.len()).unwrap()],
    };
    prop_assert_eq!(batch.field("x/lengths").unwrap().lengths(), &*counted);
    Ok(())
}

/// Strings of a record before, in the same buffer, leave nothing behind.
#[test]
fn several_strings_follow_longer_ones() {
    let record = |strings: &[&str]| written(|to| to.bytes("x", strings));
    let records = vec![record(&["abc", "de"]), record(&["f"]), written(|to| to.ints("y", [1]))];
    let feed = Feed::builder().source(source(records)).batch_size(1).prefetch(1).epochs(2);
    let feed = feed.example("x:strings[<=2](3),y:i64=7".parse().unwrap()).build().unwrap();
    let mut seen = Vec::new();
    for batch in feed {
        let batch = batch.unwrap();
        let text = String::from_utf8(batch.get::<u8>("x").unwrap().into_slice().to_vec()).unwrap();
        seen.push((
            text,
            batch.field("x/lengths").unwrap().lengths()[0],
            batch.get::<i64>("y").unwrap().into_slice()[0],
        ));
    }
    let row = |text: &str, count, y| (text.to_owned(), count, y);
    let epoch = [row("abcde\0", 2, 7), row("f\0\0\0\0\0", 1, 7), row("\0\0\0\0\0\0", 0, 1)];
    assert_eq!(seen, [epoch.clone(), epoch].concat());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Features are found, take their defaults and are refused as the naive way does it.
    #[test]
    fn features_become_fields_as_in_tensorflow(
        record in vec(("[xyz]", feature()), 0..5),
    ) {
        let bytes = |record: &[(String, Some3)]| written(|to| {
            for (name, feature) in record {
                match feature {
                    Some3::Unset => to.unset(name),
                    Some3::Ints(list) => to.ints(name, list.iter().copied()),
                    Some3::Floats(list) => to.floats(name, list.iter().copied()),
                    Some3::Strings(list) => to.bytes(name, list),
                };
            }
            to
        });
        let record_bytes = bytes(&record);
        let batch = |fields: &str| batch_of(vec![record_bytes.clone()], fields);
        let found = last(&record, "x");
        let ints = found.map(|found| match found { Some3::Ints(list) => Some(&**list), _ => None });
        let floats = found.map(|found| match found { Some3::Floats(list) => Some(&**list), _ => None });
        let strings = found.map(|found| match found { Some3::Strings(list) => Some(&**list), _ => None });
        let same = |value: &i64| Some(*value);
        agrees(&batch("x:i64[3]=-7"), naive(ints, 3, true, Some(-7), same))?;
        agrees(&batch("x:i64[2]"), naive(ints, 2, true, None, same))?;
        agrees(&batch("x:i64"), naive(ints, 1, true, None, same))?;
        agrees(&batch("x:u8[<=3]"), naive(ints, 3, false, None, |value| u8::try_from(*value).ok()))?;
        agrees(&batch("x:i32[<=4]=-1"), naive(ints, 4, false, None, |value| i32::try_from(*value).ok()))?;
        let wide = |value: &f32| Some(f64::from(*value).to_bits());
        let expected = naive(floats, 2, true, Some(0.5_f64.to_bits()), wide);
        agrees(&batch("x:f64[2]=0.5"), expected.map(|list| list.into_iter().map(f64::from_bits).collect()))?;
        let string = match strings {
            Some(Some([one])) if one.len() <= 3 => Some(one.clone()),
            None => Some(b"no".to_vec()),
            _ => None,
        };
        agrees(&batch("x:bytes(3)=\"no\""), string.clone())?;
        let loose = match strings {
            None | Some(Some([])) => Some(Vec::new()),
            _ => string,
        };
        agrees(&batch("x:bytes[<=3]"), loose)?;
        let fits = |list: &&[Vec<u8>]| list.iter().all(|one| one.len() <= 3);
        let strings = strings.map(|found| found.filter(fits));
        let same = |one: &Vec<u8>| Some(one.clone());
        let expected = naive(strings, 2, true, Some(b"no".to_vec()), same);
        agrees_on_strings(&batch("x:strings[2](3)=\"no\""), 2, expected)?;
        agrees_on_strings(&batch("x:strings[1x2](3)"), 2, naive(strings, 2, true, None, same))?;
        agrees_on_strings(&batch("x:strings[<=2](3)"), 2, naive(strings, 2, false, None, same))?;
    }

    /// The order of features in the records before has no influence.
    #[test]
    fn any_order_of_features_is_read(orders in vec(Just((0..9).collect::<Vec<i64>>()).prop_shuffle(), 1..6)) {
        let name = |number: i64| char::from(b'a' + number as u8).to_string();
        let of = |order: &Vec<i64>| written(|to| {
            order.iter().fold(to, |to, &number| to.ints(&name(number), [number]))
        });
        let records: Vec<_> = orders.iter().map(of).collect();
        let batch = batch_of(records, "b:i64,i:i64,a:i64,f:i64").unwrap();
        for (field, value) in [("a", 0), ("b", 1), ("f", 5), ("i", 8)] {
            prop_assert_eq!(batch.get::<i64>(field).unwrap().into_slice(), &*vec![value; orders.len()]);
        }
    }
}

#[test]
fn an_error_keeps_its_type() {
    let error = batch_of(vec![written(|to| to.ints("a", [1]))], "a:f32").unwrap_err();
    let FeedError::Record(error) = error else { panic!("{error}") };
    assert!(matches!(error.cause, RecordCause::Feature(FeatureError::Kind { .. })), "{:?}", error.cause);
}

#[cfg(feature = "serde")]
#[test]
fn examples_are_plain_data() {
    let feed = Feed::builder()
        .lmdb("somewhere")
        .example("a:i64[2],name:bytes=\"\\x00\"".parse().unwrap())
        .example_image(ExampleImage::encoded("image").label("label"));
    let text = serde_json::to_string(feed.spec()).unwrap();
    let spec: percolator::feed::FeedSpec = serde_json::from_str(&text).unwrap();
    assert_eq!(&spec, feed.spec());
    assert!(
        text.contains(r#""decoder":{"example":{"fields":"a:i64[2],name:bytes=\"\\x00\"","image":"#),
        "{text}"
    );
    let empty = Feed::builder().example_image(ExampleImage::encoded("image"));
    let text = serde_json::to_string(empty.spec()).unwrap();
    assert_eq!(&serde_json::from_str::<percolator::feed::FeedSpec>(&text).unwrap(), empty.spec());
}
