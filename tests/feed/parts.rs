//! Feeds of records with named parts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::sync::Arc;

use percolator::example::{ExampleFields, ExampleImage, Examples, ImageShapeFrom};
use percolator::source::{Cursor, Joined, Part, PartFault, RecordParts, Source, SourceError};
use percolator::{Batch, Dtype, Feed, FeedBuilder, RawBytes};
use percolator_image::ImageShape;

use crate::common::source::MemorySource;

const NAMES: [&str; 8] = ["label", "vec", "tokens", "text", "words", "ratio", "picture", "pixels"];

/// A source whose records have parts.
#[derive(Debug)]
struct Parted {
    inner: MemorySource,
    parts: Arc<Layout>,
}

/// Records of a byte of label, 3 floats, and 16-bit tokens.
#[derive(Debug)]
struct Layout {
    description: &'static str,
    image: Option<&'static str>,
}

impl Source for Parted {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn records(&self) -> Option<u64> {
        self.inner.records()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.inner.cursor()
    }

    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        Some(self.parts.clone())
    }
}

impl RecordParts for Layout {
    fn description(&self) -> String {
        self.description.to_owned()
    }

    fn names(&self, _record: &[u8]) -> Vec<String> {
        NAMES.map(str::to_owned).to_vec()
    }

    fn image(&self) -> Option<(String, Option<String>)> {
        self.image.map(|name| (name.to_owned(), Some("label".to_owned())))
    }

    fn part<'a>(&'a self, record: &'a [u8], name: &str) -> Result<Option<Part<'a>>, PartFault> {
        let (label, rest) = record.split_first().ok_or_else(|| PartFault::new("the record is empty"))?;
        let (vec, tokens) = rest.split_at_checked(12).ok_or_else(|| PartFault::new("the record is cut"))?;
        Ok(Some(match name {
            "label" => Part::Int(i64::from(*label)),
            "vec" => Part::Numbers { dtype: Dtype::F32, values: vec.into() },
            "tokens" => Part::Numbers { dtype: Dtype::U16, values: tokens.into() },
            "text" => Part::Bytes(format!(" {label}\n").into_bytes().into()),
            "words" => Part::Strings((0..*label).map(|word| vec![b'a' + word; 2].into()).collect()),
            "ratio" => Part::Float(f64::from(*label) / 2.0),
            "picture" => Part::Bytes(b"P6 2 1 255\n\x01\x02\x03\x04\x05\x06".as_slice().into()),
            "pixels" => Part::Numbers { dtype: Dtype::U8, values: rest[..12].into() },
            _ => return Ok(None),
        }))
    }
}

fn record(label: u8) -> Vec<u8> {
    let vec = [0.5_f32, -1.0, f32::from(label)].map(f32::to_le_bytes).concat();
    let tokens = (0..label).flat_map(|token| (60_000 + u16::from(token)).to_le_bytes());
    [vec![label], vec, tokens.collect()].concat()
}

fn source(description: &'static str, image: Option<&'static str>, labels: &[u8]) -> Parted {
    let inner = MemorySource::new(description, labels.iter().map(|label| (vec![*label], record(*label))));
    Parted { inner, parts: Arc::new(Layout { description, image }) }
}

fn feed(image: Option<&'static str>) -> FeedBuilder {
    Feed::builder().source(source("parts", image, &[1, 2, 3])).batch_size(3).epochs(1)
}

fn only(feed: FeedBuilder) -> Batch {
    let mut batches: Vec<_> = feed.build().unwrap().into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(batches.len(), 1);
    batches.remove(0)
}

/// All elements of a field, whichever kind it is.
fn values<T: percolator::batch::Element>(batch: &Batch, field: &str) -> Vec<T> {
    let view = batch.field(field).unwrap();
    match view.ragged::<T>() {
        Ok(ragged) => ragged.values().to_vec(),
        Err(_) => view.get::<T>().unwrap().into_slice().to_vec(),
    }
}

fn fields(text: &str) -> ExampleFields {
    text.parse().unwrap()
}

#[test]
fn parts_become_fields_of_any_type() {
    let text = "label:i64,vec:f32[3],vec as halves:f16[3],vec as wide:f64[3],tokens:i32[<=4]=-1,tokens as \
                same:u16[<=4],tokens as long:i64[<=4],text as number:i16,text as written:bytes(8),words:\
                strings[<=3](2),ratio:f32,label as real:f64,none:i64=7,nothing:f32[<=2],vec as raw:f32[3]";
    let batch = only(feed(None).example(fields(text)));
    assert_eq!(values::<i64>(&batch, "label"), [1, 2, 3]);
    let vec = [[0.5, -1.0, 1.0], [0.5, -1.0, 2.0], [0.5, -1.0, 3.0]].concat();
    let wide: Vec<f64> = vec.iter().map(|number: &f32| f64::from(*number)).collect();
    assert_eq!(values::<f32>(&batch, "vec"), vec);
    assert_eq!(values::<f64>(&batch, "wide"), wide);
    let halves: Vec<f32> =
        values::<percolator::half::f16>(&batch, "halves").iter().map(|h| h.to_f32()).collect();
    assert_eq!(halves, vec);
    let padded = [60_000, -1, -1, -1, 60_000, 60_001, -1, -1, 60_000, 60_001, 60_002, -1];
    assert_eq!(values::<i32>(&batch, "tokens"), padded);
    let ragged = [60_000_u16, 60_000, 60_001, 60_000, 60_001, 60_002];
    assert_eq!(values::<u16>(&batch, "same"), ragged);
    assert_eq!(values::<i64>(&batch, "long"), ragged.map(i64::from));
    assert_eq!(values::<i16>(&batch, "number"), [1, 2, 3]);
    assert_eq!(values::<u8>(&batch, "written"), b" 1\n\0\0\0\0\0 2\n\0\0\0\0\0 3\n\0\0\0\0\0");
    assert_eq!(values::<u8>(&batch, "words"), b"aa\0\0\0\0aabb\0\0aabbcc");
    assert_eq!(values::<f32>(&batch, "ratio"), [0.5, 1.0, 1.5]);
    assert_eq!(values::<f64>(&batch, "real"), [1.0, 2.0, 3.0]);
    assert_eq!(values::<i64>(&batch, "none"), [7, 7, 7]);
    assert_eq!(values::<f32>(&batch, "nothing").len(), 0);
}

#[test]
fn a_part_becomes_an_image() {
    // Caffe's order: blue first.
    let decoded = [3.0_f32, 6.0, 2.0, 5.0, 1.0, 4.0].repeat(3);
    let named = feed(None).example(Examples {
        fields: fields("tokens:i32[<=4]=0"),
        image: Some(ExampleImage::encoded("picture").label("text")),
    });
    for batch in [only(named), only(feed(Some("picture")))] {
        assert_eq!(values::<f32>(&batch, "data"), decoded);
        assert_eq!(values::<i32>(&batch, "label"), [1, 2, 3]);
    }
    let shape = ImageShapeFrom::Fixed(ImageShape { channels: 3, height: 2, width: 2 });
    let raw = only(feed(None).example(ExampleImage::raw("pixels", shape)));
    assert_eq!(raw.shape().image, ImageShape { channels: 3, height: 2, width: 2 });
    assert_eq!(values::<f32>(&raw, "data")[..4], [0.0, 0.0, 0.0, 63.0]);
}

#[test]
fn what_does_not_fit_is_named() {
    let said = |feed: FeedBuilder| -> String {
        match feed.build() {
            Err(error) => error.to_string(),
            Ok(feed) => feed.into_iter().find_map(Result::err).unwrap().to_string(),
        }
    };
    let of = |text: &str| said(feed(None).example(fields(text)));
    let cases = [
        (
            of("label:i64,misspelt:i64"),
            "the feature \"misspelt\" is missing (the record has \"label\", \"vec\"",
        ),
        (of("tokens:i16[<=4]=0"), "value 0 of the part \"tokens\" is 60000, which is not a value of i16"),
        (of("tokens:i32[<=2]=0"), "the feature \"tokens\" has 3 value(s)"),
        (of("vec:f32[2]"), "the feature \"vec\" has 3 value(s)"),
        (of("ratio:i64"), "value 0 of the part \"ratio\" is 0.5, which is not a value of i64"),
        (of("words:i64"), "the part \"words\" is 1 strings, but the field words: i64 takes numbers"),
        (of("label:bytes"), "the part \"label\" is 1, but the field label"),
        (of("text:bytes(1)"), "the feature \"text\" has a string of 3 bytes"),
        (said(feed(None)), "the records have named parts (parts), and a feed must be told which it feeds"),
        (said(feed(Some("label"))), "the part \"label\" is 1, but an image is the bytes of a file"),
        (said(feed(None).example(ExampleImage::encoded("nothing"))), "the feature \"nothing\" is missing"),
    ];
    for (found, due) in cases {
        assert!(found.contains(due), "no {due:?} in {found}");
    }
    let joined = Joined::new(source("one", None, &[1])).and(source("other", None, &[1]));
    let joined = said(Feed::builder().source(joined).example(fields("label:i64")));
    assert!(
        joined.contains("other has the parts other, but memory/one has one: feed them apart"),
        "{joined}"
    );
}

/// A decoder of the program's own gets a record as it is.
#[test]
fn records_with_parts_are_bytes_to_a_decoder() {
    let batch = only(feed(None).decoder(RawBytes::up_to(64)));
    assert_eq!(values::<u8>(&batch, "data"), [record(1), record(2), record(3)].concat());
}
