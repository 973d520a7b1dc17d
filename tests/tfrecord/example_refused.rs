//! An Example that does not fit its fields or its image is an error that names the record, the feature, what
//! was found and what is allowed. Fields that no feature becomes are refused.

use percolator::batch::ImageShape;
use percolator::decoder::RecordCause;
use percolator::example::{
    ExampleField, ExampleFields, ExampleImage, ExampleWriter, Examples, FeatureError, ImageShapeFrom,
};
use percolator::feed::ConfigError;
use percolator::{Dtype, Epochs, Feed, FeedBuilder, FeedError, Field, Transform};

use crate::examples::{batch_of, source, written};

#[track_caller]
fn refused(record: Vec<u8>, fields: &str) -> String {
    let good = written(|to| to.ints("a", [1, 2]).floats("f", [0.5]).bytes("s", ["text"]));
    let count = 2;
    let source = source(vec![good, record]);
    let feed = Feed::builder()
        .source(source)
        .batch_size(count)
        .example(fields.parse::<ExampleFields>().unwrap())
        .epochs(Epochs::OnePass);
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
        let feed = Feed::builder().source(source(vec![record])).example(image).build();
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
    let image = |image| {
        let fields = "data:i64".parse().unwrap();
        Feed::builder().example(Examples { fields, image: Some(image) })
    };
    let twice = source(vec![written(|to| to.floats("image", [1.0]).ints("data", [1]))]);
    let one = ImageShapeFrom::Fixed(ImageShape { channels: 1, height: 1, width: 1 });
    let twice = image(ExampleImage::raw("image", one)).source(twice).build().unwrap_err().to_string();
    assert!(twice.contains("two fields have the name \"data\""), "{twice}");
    let nothing = build(Feed::builder().example(ExampleFields::new()));
    assert!(nothing.to_string().contains("name fields, or an image"), "{nothing}");
    let option = build(
        Feed::builder()
            .example("a:i64".parse::<ExampleFields>().unwrap())
            .transform(Transform::new().crop(2)),
    );
    assert!(matches!(option, FeedError::Config(ConfigError::ImageOption { option: "transform" })));
}

#[test]
fn an_error_keeps_its_type() {
    let error = batch_of(vec![written(|to| to.ints("a", [1]))], "a:f32").unwrap_err();
    let FeedError::Record(error) = error else { panic!("{error}") };
    assert!(matches!(error.cause, RecordCause::Feature(FeatureError::Kind { .. })), "{:?}", error.cause);
}
