//! Records: Caffe's Datum and TensorFlow's Example, each compared with prost's decoding of the same bytes.

use percolator::bench_support::ExampleBench;
use percolator::decoder::{ImageFileDecoder, image_of};
use percolator::example::{
    Example, ExampleField, ExampleFields, ExampleWriter, Feature, Features, SequenceExample,
};
use percolator::record::Datum;
use percolator::{ColorMode, Dtype, Field, proto};
use prost::Message as _;

use crate::accepted::accepted;
use crate::memory::{Budget, within};
use crate::twin;

/// A view holds nothing; the floats of a record are gathered at four bytes for each five, in a vector that
/// doubles.
const VIEW: Budget = Budget::per_byte(24);

/// A [`Datum`], beside prost's: both refuse it, or both have the same values.
pub(crate) fn datum(bytes: &[u8]) {
    let parsed = within(bytes, VIEW, || Datum::parse(bytes));
    let message = proto::Datum::decode(bytes);
    let (view, message) = match (parsed, message) {
        (Ok(view), Ok(message)) => (view, message),
        (Err(_), Err(_)) => return,
        (view, message) => panic!("view: {view:?}\nprost: {message:?}"),
    };
    accepted();
    assert_eq!(
        (view.channels, view.height, view.width, view.label, view.encoded, view.data),
        (
            message.channels(),
            message.height(),
            message.width(),
            message.label(),
            message.encoded(),
            message.data()
        )
    );
    // NaN does not equal itself, so floats are compared as bits.
    let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
    let mut floats = Vec::new();
    within(bytes, VIEW, || view.floats.gather(&mut floats));
    assert_eq!(bits(&floats), bits(&message.float_data));
    if let Some(run) = view.floats.strided() {
        let mut copied = vec![0.0; floats.len()];
        run.copy_to(0, &mut copied);
        assert_eq!(bits(&copied), bits(&floats));
    }
    if let Ok(image) = view.image() {
        let elements = image.shape.channels * image.shape.height * image.shape.width;
        assert!(elements == view.data.len() || elements == view.floats.len());
    }
    let _ = within(bytes, crate::images::DECODED, || {
        image_of(&view, &mut ImageFileDecoder::new(ColorMode::Native)).map(|image| image.shape)
    });
}

/// An [`Example`], beside prost's: both refuse it, or both have the same features. What is written of it is
/// read again, and rows are decoded from it.
pub(crate) fn example(bytes: &[u8]) {
    let parsed = within(bytes, VIEW, || Example::parse(bytes));
    let (view, theirs) = match (parsed, twin::of_prosts_example(bytes)) {
        (Ok(view), Some(theirs)) => (view, theirs),
        (Err(_), None) => return,
        (view, theirs) => panic!("view: {view:?}\nprost: {theirs:?}"),
    };
    accepted();
    let features = twin::of_view(view.features());
    assert_eq!(features, theirs);
    let written = rewritten(view.features());
    let again = Example::parse(&written).expect("what was written is read");
    assert_eq!(twin::of_view(again.features()), features);
    for fields in [fields(), images()] {
        if let Some(mut bench) = ExampleBench::new(&fields, 1) {
            let _ = bench.decode(&[bytes.to_vec()]);
        }
    }
}

/// A [`SequenceExample`], beside prost's: both refuse it, or both have the same features.
pub(crate) fn sequence_example(bytes: &[u8]) {
    let parsed = within(bytes, VIEW, || SequenceExample::parse(bytes));
    let (view, theirs) = match (parsed, twin::of_prosts_sequence(bytes)) {
        (Ok(view), Some(theirs)) => (view, theirs),
        (Err(_), None) => return,
        (view, theirs) => panic!("view: {view:?}\nprost: {theirs:?}"),
    };
    accepted();
    assert_eq!((twin::of_view(view.context()), twin::lists_of_view(view.feature_lists())), theirs);
}

/// The description of an Example's fields, as text: what is read is written, and read again.
pub(crate) fn example_fields(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = within(bytes, Budget::per_byte(256), || text.parse::<ExampleFields>());
    if let Ok(fields) = parsed {
        accepted();
        let written = fields.to_string();
        let again: ExampleFields = written.parse().unwrap_or_else(|error| panic!("{written:?}: {error}"));
        assert_eq!(again, fields, "{written:?}");
    }
}

/// The record that a writer makes of these features.
fn rewritten(features: Features<'_>) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    for (name, feature) in features.entries() {
        match feature {
            Feature::Unset => writer.unset(name),
            Feature::Bytes(list) => writer.bytes(name, list.iter()),
            Feature::Floats(list) => writer.floats(name, list.iter()),
            Feature::Ints(list) => writer.ints(name, list.iter()),
        };
    }
    writer.to_bytes()
}

/// Fields of every kind, of the names that the corpus has.
fn fields() -> ExampleFields {
    ExampleFields::new()
        .with(ExampleField::new(Field::new("label", Dtype::I64, [])).or(0_i64))
        .with(ExampleField::new(Field::ragged("ints", Dtype::I32, 8)))
        .with(ExampleField::new(Field::padded("floats", Dtype::F32, 8, 0.5)))
        .with(ExampleField::bytes("name", 16))
        .with(ExampleField::strings("words", [2], 8).or_strings(["a", "b"]))
        .with(ExampleField::strings_up_to("tags", 3, 4))
}

fn images() -> ExampleFields {
    ExampleFields::new()
        .with(ExampleField::of_bytes(Field::new("image", Dtype::U8, [4])))
        .with(ExampleField::new(Field::new("label", Dtype::F32, [1])).or(1.0_f32))
}
