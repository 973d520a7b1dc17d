//! Feeds of Examples: what TensorFlow wrote, value for value, and images as from the databases that they were
//! taken from.

use std::path::{Path, PathBuf};

use percolator::batch::ImageShape;
use percolator::example::{
    Example, ExampleFields, ExampleImage, Examples, Feature, ImageShapeFrom, SequenceExample,
};
use percolator::source::IndexPlace;
use percolator::{ColorMode, Dtype, Epochs, Feed, FeedBuilder, Layout, Shuffle, Transform};
use serde_json::Value;

use crate::examples::{batch_of, source, written};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
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
    let (names, lengths) =
        (batch.get::<u8>("name").unwrap(), batch.field("name").unwrap().lengths().unwrap());
    for ((name, &length), example) in names.into_slice().chunks(256).zip(lengths).zip(examples) {
        let (name, zeros) = name.split_at(length as usize);
        assert_eq!(name, unhex(&example["name"][0]));
        assert!(zeros.iter().all(|&byte| byte == 0));
    }
    let nothing = Value::Array(Vec::new());
    let (extra, lengths) = (batch.get::<u8>("extra").unwrap(), batch.get::<i64>("extra/lengths").unwrap());
    assert_eq!(&*extra.shape(), [50, 4, 8]);
    let counts = batch.field("extra/lengths").unwrap().lengths().unwrap();
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
            (ids, batch.bytes().to_vec(), batch.labels().unwrap().to_vec())
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
            let ours = images(feed().tfrecord(&file).index(IndexPlace::Memory).example(image));
            let theirs = images(feed().lmdb(data("golden").join(database)));
            assert!(ours == theirs, "{}, {transform:?}, {dtype}, {layout}", file.display());
            assert!(ours.iter().any(|(_, _, labels)| labels.iter().any(|&label| label > 0)));
        }
    }
}

#[test]
fn an_image_has_other_features_beside_it() {
    let image = ExampleImage::raw("image/raw", ImageShapeFrom::Feature("image/shape".to_owned()));
    let fields = "image/shape as shape:i32[3],image/class/label as class:i64,none:f32[2]=0.5,\
                  each:i32[2x2]=[1,2,3,4]";
    let feed = Feed::builder()
        .source(source(records("raw.tfrecord")))
        .example(Examples { fields: fields.parse().unwrap(), image: Some(image) })
        .labels_i64(true)
        .batch_size(64)
        .epochs(Epochs::OnePass);
    let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
    let names: Vec<_> = batch.fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(names, ["data", "label", "label_f32", "label_i64", "shape", "class", "none", "each"]);
    assert_eq!(batch.shape().dims(), [64, 3, 40, 36]);
    assert_eq!(batch.get::<i32>("shape").unwrap().into_slice(), [3, 40, 36].repeat(64));
    assert_eq!(batch.get::<f32>("none").unwrap().into_slice(), [0.5; 128]);
    assert_eq!(batch.get::<i32>("each").unwrap().into_slice(), [1, 2, 3, 4].repeat(64));
    assert!(batch.labels().unwrap().iter().all(|&label| label == 0), "no label was asked for");
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
    let feed = Feed::builder()
        .source(source(vec![packed, scattered]))
        .example(image)
        .batch_size(2)
        .epochs(Epochs::OnePass);
    let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
    assert_eq!(batch.pixels::<f32>().unwrap(), [&*values, &*values].concat());
}

/// What `tobytes` of an image stores.
#[test]
fn pixels_whose_channels_lie_side_by_side_are_put_in_planes() {
    let (channels, height, width) = (3, 6, 5);
    let plane = |c: usize, y: usize, x: usize| (c * 80 + y * 10 + x) as u8;
    let in_planes: Vec<u8> = (0..channels)
        .flat_map(|c| (0..height).flat_map(move |y| (0..width).map(move |x| plane(c, y, x))))
        .collect();
    let side_by_side: Vec<u8> = (0..height)
        .flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |c| plane(c, y, x))))
        .collect();
    let record = |pixels: &[u8], shape: [i64; 3]| {
        written(|to| to.bytes("image", [pixels]).ints("shape", shape).ints("label", [3]))
    };
    let planes = record(&in_planes, [3, 6, 5]);
    let interleaved = record(&side_by_side, [6, 5, 3]);
    let shape = ImageShape { channels, height, width };
    let fed = |record: &Vec<u8>, image: ExampleImage, transform: Transform| {
        let feed = Feed::builder().source(source(vec![record.clone(); 3])).example(image);
        let feed = feed.transform(transform).batch_size(3).epochs(Epochs::OnePass);
        let batch = feed.build().unwrap().into_iter().next().unwrap().unwrap();
        batch.pixels::<f32>().unwrap().to_vec()
    };
    for transform in [
        Transform::new(),
        Transform::new().crop(4).mirror(true),
        Transform::new().resize(9, 7),
        Transform::new().resize(3, 4).scale(0.5),
    ] {
        for shape in [ImageShapeFrom::Fixed(shape), ImageShapeFrom::Feature("shape".to_owned())] {
            let wanted = fed(&planes, ExampleImage::raw("image", shape.clone()), transform.clone());
            let found = fed(&interleaved, ExampleImage::interleaved("image", shape), transform.clone());
            assert_eq!(found, wanted);
        }
    }
    let floats = written(|to| to.floats("image", [0.0; 90]));
    let image = ExampleImage::interleaved("image", ImageShapeFrom::Fixed(shape));
    let feed =
        Feed::builder().source(source(vec![floats])).example(image).batch_size(1).epochs(Epochs::OnePass);
    let error = feed.build().unwrap().into_iter().next().unwrap().unwrap_err().to_string();
    assert!(error.contains("only pixels of bytes are read with their channels side by side"), "{error}");
}

/// The value of a record says what it is, and how it is read.
#[test]
fn a_record_of_another_kind_is_told() {
    let example = written(|to| to.ints("x", [1]).bytes("name", ["n"]));
    let error = |records: Vec<Vec<u8>>, feed: FeedBuilder| {
        let feed = feed.source(source(records)).batch_size(1).epochs(Epochs::OnePass);
        match feed.build() {
            Err(error) => error.to_string(),
            Ok(feed) => feed.into_iter().find_map(Result::err).unwrap().to_string(),
        }
    };
    let said = error(vec![example.clone()], Feed::builder());
    assert!(said.contains("its value is a tf.train.Example, and not a Datum: name its features"), "{said}");
    let jpeg = std::fs::read(data("images/420.jpg")).unwrap();
    let png = std::fs::read(data("images/rgb_8.png")).unwrap();
    for (value, what) in [
        (jpeg, "a bare JPEG file"),
        (png, "a bare PNG file"),
        (b"\x80\x04\x95\x05\0\0\0\0\0\0\0K\x01.".to_vec(), "a Python pickle"),
        (b"{\"label\": 3}".to_vec(), "a JSON text"),
        (b"\x93NUMPY\x01\0v\0{'descr'".to_vec(), "a NumPy array (.npy)"),
        (b"\x82\xa1a\x01\xa1b\xc4\x02xy".to_vec(), "a message of MessagePack"),
        (b"a text of some words".to_vec(), "a text"),
    ] {
        for (feed, wanted) in [
            (Feed::builder(), "a Datum"),
            (Feed::builder().example("x:i64".parse::<ExampleFields>().unwrap()), "a tf.train.Example"),
            (Feed::builder().example(ExampleImage::encoded("image")), "a tf.train.Example"),
        ] {
            let said = error(vec![value.clone()], feed);
            assert!(said.contains(&format!("its value is {what}, and not {wanted}: ")), "{said}");
        }
    }
    let datum = crate::common::datum(1, 1, 2, 3, vec![1, 2]);
    let said = error(vec![datum], Feed::builder().example("x:i64".parse::<ExampleFields>().unwrap()));
    assert!(said.contains("its value is a Datum, and not a tf.train.Example: leave"), "{said}");
    // What is merely missing stays that.
    let said = error(vec![example], Feed::builder().example("y:i64".parse::<ExampleFields>().unwrap()));
    assert!(said.contains("\"y\"") && !said.contains("its value is"), "{said}");
    // A file in the place of pixels.
    let mut file = crate::common::datum(3, 8, 8, 3, std::fs::read(data("images/420.jpg")).unwrap());
    let said = error(vec![std::mem::take(&mut file)], Feed::builder());
    assert!(said.contains("the data is a JPEG file, but the record's `encoded` is not set"), "{said}");
}

#[test]
fn examples_are_plain_data() {
    let fields = "a:i64[2],name:bytes=\"\\x00\"".parse().unwrap();
    let image = Some(ExampleImage::encoded("image").label("label"));
    let feed = Feed::builder().lmdb("somewhere").example(Examples { fields, image });
    let text = serde_json::to_string(feed.spec()).unwrap();
    let spec: percolator::feed::FeedSpec = serde_json::from_str(&text).unwrap();
    assert_eq!(&spec, feed.spec());
    assert!(
        text.contains(r#""decoder":{"example":{"fields":"a:i64[2],name:bytes=\"\\x00\"","image":"#),
        "{text}"
    );
    let empty = Feed::builder().example(ExampleImage::encoded("image"));
    let text = serde_json::to_string(empty.spec()).unwrap();
    assert_eq!(&serde_json::from_str::<percolator::feed::FeedSpec>(&text).unwrap(), empty.spec());
}
