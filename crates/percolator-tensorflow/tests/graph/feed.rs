//! Feeds over small files, against signatures: what fits, and every way not to.

use std::fmt::Write as _;

use percolator::batch::ImageShape;
use percolator::example::{ExampleFields, ExampleImage, ExampleWriter, ImageShapeFrom};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Dtype, Epochs, Feed, FeedBuilder, LastBatch, Layout};
use percolator_tensorflow::graph::Shape;
use percolator_tensorflow::{CheckSignature as _, MetaGraph, SignatureMismatch};
use tempfile::TempDir;

const IMAGE: ImageShape = ImageShape { channels: 3, height: 4, width: 5 };

/// Ten records: an image of 3 channels, 4 rows and 5 columns, a label, a vector, and a few tokens.
fn records() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut records = TfRecordWriter::create(folder.path().join("data"), Compression::Plain).unwrap();
    for number in 0..10_i64 {
        let mut example = ExampleWriter::new();
        example
            .bytes("pixels", [vec![7_u8; 60]])
            .ints("label", [number])
            .floats("vector", [0.5; 6])
            .ints("tokens", 0..number % 4);
        records.write(&example.to_bytes()).unwrap();
    }
    records.finish().unwrap();
    folder
}

fn images(folder: &TempDir) -> FeedBuilder {
    let image = ExampleImage::raw("pixels", ImageShapeFrom::Fixed(IMAGE)).label("label");
    Feed::builder().tfrecord(folder.path().join("data")).batch_size(5).example(image)
}

fn fields(folder: &TempDir, fields: &str) -> FeedBuilder {
    Feed::builder()
        .tfrecord(folder.path().join("data"))
        .batch_size(5)
        .example(fields.parse::<ExampleFields>().unwrap())
}

/// A graph whose signature `f` has these inputs: name, type, extents.
fn graph(folder: &TempDir, inputs: &[(&str, &str, &[i64])]) -> MetaGraph {
    let mut text = String::from("signature_def { key: \"f\" value {\n");
    for (name, data_type, extents) in inputs {
        let dims: String = extents.iter().map(|size| format!("dim {{ size: {size} }} ")).collect();
        let _ = writeln!(
            text,
            "inputs {{ key: \"{name}\" value {{ name: \"{name}:0\" dtype: {data_type} \
             tensor_shape {{ {dims} }} }} }}"
        );
    }
    text.push_str("} }\n");
    opened(folder, &text)
}

fn opened(folder: &TempDir, text: &str) -> MetaGraph {
    let path = folder.path().join("graph.pbtxt");
    std::fs::write(&path, text).unwrap();
    MetaGraph::open(path).unwrap()
}

/// The faults of a feed that is resolved, which are those of the feed when it runs.
fn faults(builder: FeedBuilder, graph: &MetaGraph, inputs: &[(&str, &str)]) -> Vec<String> {
    let signature = graph.signature("f").unwrap();
    let resolved = builder.resolve().unwrap();
    let of = |error: Option<SignatureMismatch>| error.map_or_else(Vec::new, |error| error.faults().to_vec());
    let mut before = of(resolved.check_signature(&signature, inputs).err());
    let feed = resolved.launch().unwrap();
    let found = of(feed.check_signature(&signature, inputs).err());
    feed.close();
    for (before, found) in before.iter_mut().zip(&found) {
        // The number of records may be known only since the index was completed, in between.
        if before.contains("the last batch may be short") && found.contains("some batches have ") {
            before.clone_from(found);
        }
    }
    assert_eq!(before, found);
    found
}

/// Whether these faults are as many as these parts of their texts, and have them.
fn have(faults: &[String], parts: &[&str]) -> bool {
    faults.len() == parts.len() && faults.iter().zip(parts).all(|(fault, part)| fault.contains(part))
}

#[test]
fn what_fits_is_fine() {
    let folder = records();
    for extents in [[-1, 3, 4, 5], [-1, -1, -1, -1], [5, 3, 4, 5]] {
        let graph = graph(&folder, &[("x", "DT_FLOAT", &extents), ("y", "DT_INT64", &[-1])]);
        let builder = images(&folder).labels_i64(true).epochs(1);
        assert_eq!(faults(builder, &graph, &[("x", "data"), ("y", "label_i64")]), [""; 0]);
    }
    let text = r#"signature_def { key: "f" value {
        inputs { key: "any" value { name: "any:0" dtype: DT_INT64 tensor_shape { unknown_rank: true } } }
        inputs { key: "free" value { name: "free:0" dtype: DT_INT32 } }
        inputs { key: "lengths" value { name: "l:0" dtype: DT_INT64 tensor_shape { dim { size: -1 } } } }
        inputs { key: "left out" value { name: "o:0" dtype: DT_FLOAT tensor_shape { } } }
        defaults { key: "left out" value { dtype: DT_FLOAT tensor_shape { } float_val: 1 } }
    } }"#;
    let builder = fields(&folder, "label:i64,tokens:i32[<=3]=0");
    let pairs = [("any", "label"), ("free", "tokens"), ("lengths", "tokens.lengths")];
    assert_eq!(faults(builder, &opened(&folder, text), &pairs), [""; 0]);
}

#[test]
fn an_nhwc_input_and_an_nchw_feed_are_named_and_the_other_way_about() {
    let folder = records();
    let rows_last = graph(&folder, &[("x", "DT_FLOAT", &[-1, 4, 5, 3])]);
    let found = faults(images(&folder), &rows_last, &[("x", "data")]);
    assert_eq!(
        found,
        ["input x, fed by field data: it takes NHWC, [?, 4, 5, 3], and a batch is NCHW, [5, 3, 4, 5]: set \
          .layout(Layout::Nhwc) on the feed"]
    );
    assert_eq!(faults(images(&folder).layout(Layout::Nhwc), &rows_last, &[("x", "data")]), [""; 0]);
    let channels_first = graph(&folder, &[("x", "DT_FLOAT", &[-1, 3, -1, -1])]);
    let found = faults(images(&folder).layout(Layout::Nhwc), &channels_first, &[("x", "data")]);
    assert!(
        have(&found, &["it takes NCHW, [?, 3, ?, ?], and"]) && found[0].ends_with("on the feed"),
        "{found:?}"
    );
    // Other extents do not hide the layout.
    let larger = graph(&folder, &[("x", "DT_FLOAT", &[-1, 6, 5, 3])]);
    let found = faults(images(&folder), &larger, &[("x", "data")]);
    assert!(have(&found, &["it takes NHWC, ", "axis 1 differs"]), "{found:?}");
    // An array that is no image to the feed has the same trouble, and another remedy.
    let found = faults(fields(&folder, "pixels:bytes[3x4x5]"), &rows_last, &[("x", "pixels")]);
    assert!(found.iter().any(|fault| fault.ends_with("store the field with the channels innermost")));
    assert!(found[0].contains("and the field is uint8: "), "{found:?}");
}

#[test]
fn all_faults_come_at_once() {
    let folder = records();
    let graph = graph(
        &folder,
        &[
            ("fixed", "DT_FLOAT", &[8, 3, 4, 5]),
            ("image", "DT_HALF", &[-1, 3, 9, 7]),
            ("label", "DT_INT64", &[-1, 1]),
            ("text", "DT_STRING", &[-1]),
            ("missing", "DT_INT32", &[-1]),
            ("odd", "DT_INT32", &[-1]),
        ],
    );
    let pairs = [
        ("fixed", "data"),
        ("image", "data"),
        ("label", "label"),
        ("text", "label"),
        ("odd", "lable"),
        ("image", "data"),
        ("unknown", "data"),
    ];
    let found = faults(images(&folder), &graph, &pairs);
    assert_eq!(
        found,
        [
            "input fixed, fed by field data: it takes batches of 8, and the feed gives 5: set \
             .batch_size(8), or export the model with a free batch dimension",
            "input image, fed by field data: it takes float16, and the field is float32: set \
             .dtype(Dtype::F16) on the feed",
            "input image, fed by field data: it takes [?, 3, 9, 7], and a batch is [5, 3, 4, 5]: \
             axis 2 differs",
            "input image, fed by field data: it takes [?, 3, 9, 7], and a batch is [5, 3, 4, 5]: \
             axis 3 differs",
            "input label, fed by field label: it takes int64, and the field is int32: set \
             .labels_i64(true) on the feed, and name the field label_i64",
            "input label, fed by field label: it takes [?, 1], and a batch is [5], with fewer axes: make the \
             field an array of one element, `[1]`",
            "input text, fed by field label: it takes strings, and a feed gives numbers: export the model \
             with an input of what the strings decode to",
            "input odd: the feed has no field lable: there are data, label, label_f32",
            "input image is fed by two fields: name one",
            "input image, fed by field data: it takes float16, and the field is float32: set \
             .dtype(Dtype::F16) on the feed",
            "input image, fed by field data: it takes [?, 3, 9, 7], and a batch is [5, 3, 4, 5]: \
             axis 2 differs",
            "input image, fed by field data: it takes [?, 3, 9, 7], and a batch is [5, 3, 4, 5]: \
             axis 3 differs",
            "the signature has no input unknown: there are fixed, image, label, missing, odd, text",
            "no field feeds input missing: int32 [?]",
        ]
    );
    let signature = graph.signature("f").unwrap();
    let error = images(&folder).resolve().unwrap().check_signature(&signature, &pairs).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with("the feed does not fit the signature \"f\": 14 faults\n- input fixed"),
        "{message}"
    );
}

#[test]
fn a_fixed_batch_dimension_needs_full_batches() {
    let folder = records();
    let graph = graph(&folder, &[("x", "DT_FLOAT", &[4, 6])]);
    let builder = || fields(&folder, "vector:f32[6]").batch_size(4);
    let found = |builder| faults(builder, &graph, &[("x", "vector")]);
    // Without epochs there is no last batch.
    assert_eq!(found(builder()), [""; 0]);
    // Of ten records two are left.
    let two = "it takes batches of 4, and some batches have 2 records: ";
    assert!(have(&found(builder().epochs(1)), &[two]));
    let once = found(builder().epochs(Epochs::OnePass));
    let some = "it takes batches of 4, and the last batch may be short: ";
    assert!(have(&once, &[some]) || have(&once, &[two]), "{once:?}");
    for last in [LastBatch::Drop, LastBatch::Pad, LastBatch::Wrap] {
        assert_eq!(found(builder().epochs(2).last_batch(last)), [""; 0], "{last:?}");
    }
    // The batches of the feed, when they come, are as the check said.
    let sizes = |builder: FeedBuilder| -> Vec<usize> {
        builder.build().unwrap().take_lanes().unwrap().remove(0).map(|batch| batch.unwrap().rows()).collect()
    };
    assert_eq!(sizes(builder().epochs(1)), [4, 4, 2]);
    assert_eq!(sizes(builder().epochs(1).last_batch(LastBatch::Drop)), [4, 4]);
    let whole = fields(&folder, "vector:f32[6]").batch_size(5).epochs(1);
    let fault = faults(whole, &graph, &[("x", "vector")]);
    assert!(have(&fault, &["it takes batches of 4, and the feed gives 5: "]), "{fault:?}");
}

#[test]
fn ragged_fields_feed_ragged_inputs_and_flat_ones() {
    let folder = records();
    let ragged = || fields(&folder, "tokens:i64[<=3]");
    let dense = graph(&folder, &[("x", "DT_INT64", &[-1, -1]), ("flat", "DT_INT64", &[-1])]);
    let found = faults(ragged(), &dense, &[("x", "tokens"), ("flat", "tokens")]);
    assert_eq!(
        found,
        ["input x, fed by field tokens: it takes [?, ?], and the field is ragged, an array [?] of all \
          records' elements: pad it to 3 elements a record"]
    );
    let text = r#"signature_def { key: "f" value {
        inputs { key: "x" value {
            composite_tensor {
                type_spec { type_spec_class: RAGGED_TENSOR_SPEC type_spec_class_name: "RaggedTensorSpec" }
                components { name: "x:0" dtype: DT_INT64 tensor_shape { dim { size: -1 } } }
                components { name: "x_1:0" dtype: DT_INT64 tensor_shape { dim { size: -1 } } }
            }
            dtype: DT_INT64
            tensor_shape { dim { size: -1 } dim { size: -1 } }
        } }
        inputs { key: "sparse" value {
            coo_sparse { values_tensor_name: "v:0" indices_tensor_name: "i:0" dense_shape_tensor_name: "s:0" }
            dtype: DT_INT64
        } }
    } }"#;
    let graph = opened(&folder, text);
    let found = faults(ragged(), &graph, &[("x", "tokens"), ("sparse", "tokens")]);
    assert!(have(&found, &["input sparse: sparse int64 unknown rank is not one array, as "]), "{found:?}");
    let found = faults(fields(&folder, "label:i64"), &graph, &[("x", "label"), ("sparse", "label")]);
    assert_eq!(found.len(), 2, "{found:?}");
    let signature = graph.signature("f").unwrap();
    assert_eq!(signature.input("x").unwrap().tensors(), ["x:0", "x_1:0"]);
    assert_eq!(*signature.input("sparse").unwrap().shape(), Shape::Unknown);
}

#[test]
fn both_parts_of_a_ragged_input_are_checked() {
    let folder = records();
    let found = |values: &str, splits: &str| {
        let text = format!(
            r#"signature_def {{ key: "f" value {{ inputs {{ key: "x" value {{ composite_tensor {{
            type_spec {{ type_spec_class: RAGGED_TENSOR_SPEC type_spec_class_name: "RaggedTensorSpec" }}
            components {{ name: "x:0" dtype: DT_INT64 tensor_shape {{ {values} }} }}
            components {{ name: "x_1:0" {splits} }}
            }} }} }} }} }}"#
        );
        let graph = opened(&folder, &text);
        faults(fields(&folder, "tokens:i64[<=3]"), &graph, &[("x", "tokens")])
    };
    let flat = "dim { size: -1 }";
    let splits = |size: i64| format!("dtype: DT_INT64 tensor_shape {{ dim {{ size: {size} }} }}");
    assert_eq!(found(flat, &splits(-1)), [""; 0]);
    let int32 = found(flat, "dtype: DT_INT32 tensor_shape { dim { size: -1 } }");
    assert!(matches!(&*int32, [fault] if fault.contains("it takes int32")), "{int32:?}");
    let rank = found("dim { size: -1 } dim { size: 2 }", &splits(-1));
    assert!(matches!(&*rank, [fault] if fault.contains("it takes [?, 2]")), "{rank:?}");
    let size = found(flat, &splits(8));
    assert!(matches!(&*size, [fault] if fault.contains("it takes batches of 7")), "{size:?}");
}

#[test]
fn an_input_of_one_record_and_scalars_have_their_own_words() {
    let folder = records();
    let graph = graph(&folder, &[("x", "DT_FLOAT", &[3, 4, 5]), ("s", "DT_UINT8", &[])]);
    let words = faults(images(&folder).dtype(Dtype::F32), &graph, &[("x", "data"), ("s", "data")]);
    assert!(
        words[0].ends_with("with more axes: the input takes one record, without a batch axis"),
        "{words:?}"
    );
    assert!(words[1].contains("takes uint8") && words[2].contains("it takes [], and"), "{words:?}");
}
