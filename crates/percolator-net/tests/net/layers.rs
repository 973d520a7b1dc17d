//! Real nets, and the options of their data layers.
//!
//! A net that is misread trains on other data than under Caffe, without a word. So these tests read nets of
//! every form that Caffe and its forks ever had, and compare each option of a data layer. Nets that Caffe
//! refuses must be refused in its own words, at the line that is wrong.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small numbers"
)]

use std::path::{Path, PathBuf};

use percolator_net::{
    DataLayer, LayerSource, Net, NetCause, NetState, Phase, TextPlace, TransformSpec, rooted,
};
use prost::Message as _;
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

fn open(name: &str) -> Net {
    Net::open(data("nets").join(name)).unwrap()
}

fn layers(net: &Net, phase: Phase) -> Vec<DataLayer> {
    net.data_layers(&NetState::from(phase)).unwrap()
}

fn staged(phase: Phase, level: i32, stages: &[&str]) -> NetState {
    NetState { phase, level, stages: stages.iter().map(|&stage| stage.to_owned()).collect() }
}

fn lmdb(path: &str) -> LayerSource {
    LayerSource::Lmdb { path: path.into() }
}

fn leveldb(path: &str) -> LayerSource {
    LayerSource::LevelDb { path: path.into() }
}

fn plain() -> TransformSpec {
    TransformSpec {
        scale: 1.0,
        mirror: false,
        crop_size: 0,
        mean_file: None,
        mean_values: Vec::new(),
        force_color: false,
        force_gray: false,
    }
}

fn warnings(layer: &DataLayer) -> Vec<String> {
    layer.warnings.iter().map(|warning| warning.to_string()).collect()
}

#[test]
fn caffenet_has_one_layer_a_phase() {
    let net = open("caffenet_train_val.prototxt");
    let [train, test] = [Phase::Train, Phase::Test].map(|phase| layers(&net, phase));
    let mean_file = Some("data/ilsvrc12/imagenet_mean.binaryproto".into());
    let transform = TransformSpec { crop_size: 227, mean_file, ..plain() };
    assert_eq!((train.len(), test.len()), (1, 1));
    let (train, test) = (&train[0], &test[0]);
    assert_eq!(train.source, lmdb("examples/imagenet/ilsvrc12_train_lmdb"));
    assert_eq!(train.transform, TransformSpec { mirror: true, ..transform.clone() });
    assert_eq!((train.batch_size, train.prefetch, train.phase), (256, None, Phase::Train));
    assert_eq!(
        (train.name.as_str(), &train.tops[..]),
        ("data", &["data".to_owned(), "label".to_owned()][..])
    );
    assert_eq!(train.at, Some(TextPlace { line: 3, column: 1 }));
    assert_eq!(test.source, lmdb("examples/imagenet/ilsvrc12_val_lmdb"));
    assert_eq!((test.batch_size, test.phase, &test.transform), (50, Phase::Test, &transform));
    assert!(!train.preceded_by_other && train.warnings.is_empty() && test.warnings.is_empty());
    assert_eq!(net.warnings(&NetState::from(Phase::Train)), Ok(vec![]));
}

#[test]
fn lenet_reads_two_databases() {
    let net = open("lenet_train_test.prototxt");
    let train = &layers(&net, Phase::Train)[0];
    assert_eq!(train.source, lmdb("examples/mnist/mnist_train_lmdb"));
    assert_eq!(train.transform, TransformSpec { scale: 0.003_906_25, ..plain() });
    assert_eq!(layers(&net, Phase::Test)[0].batch_size, 100);
    assert_eq!(net.parameter().name(), "LeNet");
}

#[test]
fn the_transform_of_a_v1_layer_moves_to_its_place() {
    let net = open("v1_imagenet.prototxt");
    assert!(net.parameter().layers.is_empty());
    let train = &layers(&net, Phase::Train)[0];
    let mean_file = Some("ilsvrc12_mean.binaryproto".into());
    let transform = TransformSpec { crop_size: 227, mean_file, ..plain() };
    assert_eq!(train.transform, TransformSpec { mirror: true, ..transform.clone() });
    assert_eq!((train.batch_size, &train.source), (256, &leveldb("ilsvrc12_train_leveldb")));
    assert_eq!(train.warnings, []);
    // Fields of data_param override those of transform_param; the others stay.
    let test = &layers(&net, Phase::Test)[0];
    assert_eq!(test.transform, TransformSpec { scale: 0.5, ..transform });
    assert_eq!(test.source, lmdb("ilsvrc12_val_leveldb"));
    let kinds: Vec<_> = net.parameter().layer.iter().map(|layer| layer.r#type()).collect();
    assert_eq!(kinds, ["Data", "Data", "Convolution", "ROI_POOLING", "SoftmaxWithLoss"]);
}

#[test]
fn a_v0_net_is_read_to_the_end() {
    let net = open("v0_imagenet.prototxt");
    let found = layers(&net, Phase::Train);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].source, leveldb("/home/someone/ilsvrc12_train_leveldb"));
    assert_eq!(
        (found[0].batch_size, &found[0].tops[..]),
        (256, &["data".to_owned(), "label".to_owned()][..])
    );
    let mean_file = Some("/home/someone/ilsvrc12_mean.binaryproto".into());
    let transform = TransformSpec { scale: 0.25, mirror: true, crop_size: 227, mean_file, ..plain() };
    assert_eq!(found[0].transform, transform);
    assert_eq!(warnings(&found[0]).len(), 1);
    assert!(
        warnings(&found[0])[0].contains("v0_imagenet.prototxt:13:5: layer \"data\": data_param.rand_skip")
    );
    let LayerSource::ImageList { list, shuffle, new_height, new_width, .. } = &found[1].source else {
        panic!("{:?}", found[1].source)
    };
    assert_eq!((list, *shuffle, *new_height, *new_width), (&PathBuf::from("list.txt"), true, 256, 320));
    assert!(!found[0].preceded_by_other && found[1].preceded_by_other);
    let kinds: Vec<_> = net.parameter().layer.iter().map(|layer| layer.r#type()).collect();
    assert_eq!(kinds, ["Data", "padding", "Convolution", "ImageData", "SoftmaxWithLoss"]);
}

#[test]
fn stages_and_levels_choose_the_layers() {
    let net = open("googlenet_stages.prototxt");
    let sources = |state: &NetState| -> Vec<LayerSource> {
        net.data_layers(state).unwrap().into_iter().map(|layer| layer.source).collect()
    };
    assert_eq!(sources(&staged(Phase::Train, 0, &[])), [lmdb("train_lmdb")]);
    // The net's own stage counts as well as the caller's.
    assert_eq!(sources(&staged(Phase::Test, 0, &["val"])), [lmdb("val_lmdb")]);
    assert_eq!(sources(&staged(Phase::Test, 2, &[])), [lmdb("val_lmdb")]);
    assert_eq!(
        sources(&staged(Phase::Test, 0, &["val", "extra"])),
        [lmdb("val_lmdb"), leveldb("extra_leveldb")]
    );
    let val = &net.data_layers(&staged(Phase::Test, 3, &[])).unwrap()[0];
    assert_eq!((val.prefetch, &val.transform.mean_values[..]), (Some(8), &[104.0, 117.0, 123.0][..]));

    let deploy = staged(Phase::Test, 4, &["deploy"]);
    let error = net.data_layers(&deploy).unwrap_err().to_string();
    assert!(
        error.contains("in the state TEST (level 4, stages imagenet, deploy) the net has no data layer"),
        "{error}"
    );
    assert!(
        error.contains("layer \"data\" of type Data: its include or exclude rules leave it out"),
        "{error}"
    );
    assert!(error.contains("layer \"input\" of type Input: layers of this type are not fed"), "{error}");
    assert!(error.ends_with("2 layers that supply no data"), "{error}");
    let warnings = net.warnings(&deploy).unwrap();
    assert_eq!(warnings.len(), 1);
    assert_ends(
        &warnings[0].to_string(),
        "googlenet_stages.prototxt:22:1: layer \"input\": layers of type Input are not fed by Percolator, \
         which feeds Data and ImageData layers",
    );
}

#[test]
fn resnet_is_read_to_the_last_digit() {
    let net = open("resnet_18.prototxt");
    let transform = &layers(&net, Phase::Train)[0].transform;
    assert_eq!(
        transform.mean_values,
        [104.006_987_93, 116.668_767_62, 122.678_914_34_f64].map(|mean| mean as f32)
    );
    assert!(transform.force_color && !transform.force_gray);
}

#[test]
fn lists_of_images_are_found() {
    let net = open("image_list.prototxt");
    let found = layers(&net, Phase::Train);
    assert_eq!(
        found[0].source,
        LayerSource::ImageList {
            list: "pictures.txt".into(),
            root_folder: "/data/pictures/".to_owned(),
            shuffle: true,
            rand_skip: 5,
            new_height: 112,
            new_width: 128,
            is_color: false,
        }
    );
    // The layer's own phase counts; this layer reads one field of data_param.
    assert_eq!((found[0].phase, found[0].prefetch, found[0].batch_size), (Phase::Test, Some(2), 16));
    assert_eq!(
        found[0].transform,
        TransformSpec { scale: 0.01, crop_size: 96, mean_values: vec![128.0], ..plain() }
    );
    assert_ends(
        &warnings(&found[0])[0],
        "image_list.prototxt:8:65: layer \"data\": transform_param.force_gray is ignored, as in Caffe; an \
         ImageData layer has image_data_param.is_color",
    );
    assert_eq!(
        found[1].source,
        LayerSource::ImageList {
            list: "plain.txt".into(),
            root_folder: String::new(),
            shuffle: false,
            rand_skip: 0,
            new_height: 0,
            new_width: 0,
            is_color: true,
        }
    );
    assert_eq!((found[1].phase, found[1].batch_size, found[1].prefetch), (Phase::Train, 1, None));
}

#[test]
fn several_data_layers_keep_their_order() {
    let net = open("image_and_label_lmdb.prototxt");
    let found = layers(&net, Phase::Train);
    let names: Vec<_> = found.iter().map(|layer| (layer.name.as_str(), layer.preceded_by_other)).collect();
    assert_eq!(names, [("images", false), ("labels", false), ("masks", true)]);
    let warnings = net.warnings(&NetState::default()).unwrap();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].layer.as_deref(), Some("\"weights\""));
    assert_eq!(layers(&open("siamese.prototxt"), Phase::Train)[0].tops, ["pair_data", "sim"]);

    let body = "type: 'Data' data_param { source: 's' batch_size: 1 }";
    let net = Net::from_text(&format!("layer: [ {{ top: 'a' {body} }},\n {{ top: 'b' {body} }} ]")).unwrap();
    let places: Vec<_> = layers(&net, Phase::Train).iter().map(|layer| layer.at.unwrap()).collect();
    assert_eq!(places, [TextPlace { line: 1, column: 10 }, TextPlace { line: 2, column: 2 }]);
}

#[test]
fn fields_of_forks_are_passed_over_only_where_they_change_nothing() {
    let net = open("nvcaffe.prototxt");
    let train = &layers(&net, Phase::Train)[0];
    let found = warnings(train);
    let fields = [
        "transform_param.use_gpu_transform",
        "transform_param.random_seed",
        "transform_param.img_rand_resize_lower",
        "transform_param.forward_packing",
        "transform_param.vertical_stretch_lower",
        "data_param.cache",
        "data_param.shuffle",
        "data_param.threads",
        "data_param.parser_threads",
    ];
    for field in fields {
        let told =
            found.iter().filter(|warning| warning.contains(&format!("layer \"data\": {field} is NVCaffe")));
        assert_eq!(told.count(), 1, "{field}: {found:?}");
    }
    // Two more: forward_type and backward_type of the layer itself, which neither Caffe nor the table of
    // forks has.
    assert_eq!((found.len(), train.batch_size), (fields.len() + 2, 256));
    let of_net = net.warnings(&NetState::default()).unwrap();
    assert_eq!(of_net.len(), 3);
    assert_ends(
        &of_net[0].to_string(),
        "nvcaffe.prototxt:2:1: the field \"default_forward_type\" is unknown and is ignored",
    );

    let refused = |file: &str, phase: Phase| open(file).data_layers(&phase.into()).unwrap_err().to_string();
    assert_ends(
        &refused("nvcaffe.prototxt", Phase::Test),
        "nvcaffe.prototxt:39:36: layer \"data\": transform_param.img_rand_resize_lower is a field of \
         NVCaffe that Percolator does not support; ignoring it would change the arrays",
    );
    assert!(refused("intel.prototxt", Phase::Train).contains(
        "intel.prototxt:9:66: layer \"data\": data_param.shuffle is a field of NVCaffe and Intel \
         Caffe that Percolator does not support"
    ));
    assert!(
        refused("ssd.prototxt", Phase::Test)
            .contains("ssd.prototxt:28:37: layer \"data\": transform_param.resize_param is a field of SSD")
    );
    let annotated = refused("ssd.prototxt", Phase::Train);
    assert!(
        annotated.contains("layer \"data\" of type AnnotatedData: layers of this type are not fed"),
        "{annotated}"
    );
}

#[test]
fn a_fork_field_of_its_neutral_value_is_harmless() {
    let read = |field: &str| {
        let net = format!(
            "layer {{ name: 'd' type: 'Data' top: 'data' transform_param {{ {field} }}
             data_param {{ source: 's' batch_size: 1 }} }}"
        );
        let net = Net::from_text(&net).unwrap();
        net.data_layers(&NetState::default()).map(|layers| layers[0].warnings.len())
    };
    for harmless in [
        "use_gpu_transform: 1",
        "display: true",
        "random_seed: -1",
        "random_seed: - 1",
        "crop_h: 0x0",
        "bgr2rgb: f",
        "vertical_stretch_upper: 1.0f",
        "noise_param { }",
        "distort_param < >",
        "forward_packing: NCHW",
    ] {
        assert_eq!(read(harmless), Ok(1), "{harmless}");
    }
    for harmful in [
        "random_seed: 1",
        "random_seed: 1701",
        "crop_h: 224",
        "crop_h: -0x10",
        "bgr2rgb: true",
        "bgr2rgb: 1",
        "vertical_stretch_upper: 1.5",
        "noise_param { prob: 0.1 }",
        "resize_param { }",
        "forward_packing: NHWC",
        "flow: [false]",
    ] {
        let error = read(harmful).unwrap_err().to_string();
        assert!(error.contains("that Percolator does not support"), "{harmful}: {error}");
    }
}

#[test]
fn every_golden_net_says_what_caffe_was_asked() {
    let folder = data("golden/net");
    let cases: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("nets.json")).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    assert_eq!(cases.len(), 53, "a case is missing");
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let net = Net::open(folder.join(format!("{name}.prototxt"))).unwrap();
        let [phase, other] = match case["phase"].as_str().unwrap() {
            "TRAIN" => [Phase::Train, Phase::Test],
            _ => [Phase::Test, Phase::Train],
        };
        let found = layers(&net, phase);
        let [layer] = &found[..] else { panic!("{name}: {found:?}") };
        let asked = &case["transform"];
        let number = |field: &str| asked.get(field).and_then(Value::as_f64);
        let flag = |field: &str| asked.get(field).is_some_and(|value| value.as_bool().unwrap_or(true));
        let means = asked.get("mean_value").map_or_else(Vec::new, |means| match means {
            Value::Array(means) => means.iter().map(|mean| mean.as_f64().unwrap() as f32).collect(),
            mean => vec![mean.as_f64().unwrap() as f32],
        });
        assert_eq!(
            layer.transform,
            TransformSpec {
                scale: number("scale").unwrap_or(1.0) as f32,
                mirror: flag("mirror"),
                crop_size: number("crop_size").unwrap_or(0.0) as u32,
                mean_file: asked.get("mean_file").map(|file| file.as_str().unwrap().into()),
                mean_values: means,
                force_color: flag("force_color"),
                force_gray: flag("force_gray"),
            },
            "{name}"
        );
        let database = case["db"].as_str().unwrap();
        let source = if case["backend"] == "LMDB" { lmdb(database) } else { leveldb(database) };
        assert_eq!((&layer.source, layer.phase), (&source, phase), "{name}");
        assert_eq!(layer.batch_size as u64, case["batch"].as_u64().unwrap(), "{name}");
        assert_eq!((layer.tops.len(), layer.warnings.len()), (2, 0), "{name}");
        assert!(
            matches!(*net.data_layers(&other.into()).unwrap_err().cause, NetCause::NoDataLayer { .. }),
            "{name}"
        );
    }
}

#[test]
fn a_net_in_wire_bytes_is_the_net_in_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.caffemodel");
    for name in ["caffenet_train_val", "v1_imagenet", "v0_imagenet", "image_list", "siamese"] {
        let file = data("nets").join(format!("{name}.prototxt"));
        let text = std::fs::read_to_string(&file).unwrap();
        let parameter = percolator_net::proto::NetParameter::from_text(&text).unwrap();
        let wire = parameter.encode_to_vec();
        assert_eq!(percolator_net::proto::NetParameter::from_binary(&wire).unwrap(), parameter);
        std::fs::write(&path, &wire).unwrap();
        let (binary, text) = (Net::open(&path).unwrap(), Net::open(&file).unwrap());
        // Wire bytes lose what the schema does not have: here, the type of a fork.
        if name != "v1_imagenet" {
            assert_eq!(binary.parameter(), text.parameter(), "{name}");
        }
        let known = |layer: &DataLayer| {
            (layer.source.clone(), layer.transform.clone(), layer.batch_size, layer.tops.clone(), layer.phase)
        };
        let [binary, text] = [&binary, &text].map(|net| layers(net, Phase::Train));
        assert_eq!(binary.iter().map(known).collect::<Vec<_>>(), text.iter().map(known).collect::<Vec<_>>());
        assert!(binary.iter().all(|layer| layer.at.is_none()));
    }
    // Fillers are not searched for in wire bytes, so a layer that may have them may draw.
    let text =
        "layer { type: 'ReLU' } layer { type: 'Data' top: 'a' data_param { source: 's' batch_size: 1 } }";
    for (text, preceded) in [(text, false), (&text.replace("ReLU", "InnerProduct"), true)] {
        let wire = percolator_net::proto::NetParameter::from_text(text).unwrap().encode_to_vec();
        assert_eq!(layers(&Net::from_binary(&wire).unwrap(), Phase::Train)[0].preceded_by_other, preceded);
        assert!(!layers(&Net::from_text(text).unwrap(), Phase::Train)[0].preceded_by_other);
    }
}

#[test]
fn weights_are_skipped_where_they_lie() {
    let text = "layer { name: 'd' type: 'Data' top: 'a' data_param { source: 's' batch_size: 1 } }";
    let mut wire = percolator_net::proto::NetParameter::from_text(text).unwrap().encode_to_vec();
    // Another layer, with a mebibyte of weights: LayerParameter.blobs is field 7.
    let mut layer = vec![7 << 3 | 2];
    prost::encoding::encode_varint(1 << 20, &mut layer);
    layer.resize(layer.len() + (1 << 20), 0);
    wire.extend([0xa2, 0x06]);
    prost::encoding::encode_varint(layer.len() as u64, &mut wire);
    wire.extend(layer);
    let net = Net::from_binary(&wire).unwrap();
    assert_eq!(net.parameter().layer.len(), 2);
    assert!(net.parameter().encoded_len() < 100);
}

#[test]
fn a_file_is_told_by_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net");
    let opened = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        Net::open(&path)
    };
    let layer = b"layer { name: 'd' type: 'Data' top: 'a' data_param { source: 's' batch_size: 1 } }";
    // Comments may have any encoding, and even a control character.
    for comment in [&b"# gr\xf6\xdfe\n"[..], b"# \x01\n", b"\xef\xbb\xbf# \xc3\x9f\r\n"] {
        let net = opened(&[comment, layer].concat()).unwrap();
        let at = layers(&net, Phase::Train)[0].at;
        assert_eq!(at, Some(TextPlace { line: 2, column: 1 }));
        assert_eq!(net.path(), Some(path.as_path()));
    }
    let error = |content: &[u8]| {
        let error = opened(content).unwrap_err();
        assert_eq!(error.path.as_deref(), Some(path.as_path()));
        error.to_string().replace(path.to_str().unwrap(), "net")
    };
    assert_eq!(error(b"layer {\n  name \"d\"\n}"), "net:2:8: expected \":\", found the string \"d\"");
    assert_eq!(
        error(b"layer\x00"),
        "net: neither a serialised net (not a serialised NetParameter: failed to decode Protobuf message: \
         unexpected end group \
         tag) nor the text of one (1:6: found the byte 0x00, which starts no token of protobuf's text format)"
    );
    assert!(
        error(b"\x12\x00\xa2\x06\x00")
            .starts_with("net: refusing to upgrade inconsistent NetParameter input")
    );
    let missing = Net::open(folder.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing: cannot be read: "), "{missing}");
    assert!(matches!(*Net::open(folder.path()).unwrap_err().cause, NetCause::Io { .. }));
    assert!(layers_of_nothing(&opened(b"").unwrap()).contains("feeds (Data or ImageData): it has no layers"));
}

#[track_caller]
fn assert_ends(found: &str, end: &str) {
    assert!(found.ends_with(end), "{found}\ndoes not end with\n{end}");
}

fn layers_of_nothing(net: &Net) -> String {
    net.data_layers(&NetState::default()).unwrap_err().to_string()
}

#[test]
fn what_caffe_would_ignore_in_silence_is_said() {
    let net = Net::from_text(
        "layer { name: 'd' type: 'Data' top: 'data'
           data_param { source: 's' batch_size: 1 scale: 2 mean_file: 'm'
             crop_size: 3 mirror: true rand_skip: 4 force_encoded_color: true }
           transform_param { crop_size: 5 } }
         layer { name: 'i' type: 'ImageData' top: 'images' top: 'labels'
           image_data_param { source: 's' mirror: true crop_size: 0 scale: 1.0 } }",
    )
    .unwrap();
    let found = layers(&net, Phase::Train);
    assert_eq!(found[0].transform, TransformSpec { crop_size: 5, ..plain() });
    let of = |field: &str, at: &str, instead: &str| {
        format!("{at}: layer \"d\": data_param.{field} is ignored, as in Caffe; {instead}")
    };
    let moved = "write it in transform_param";
    assert_eq!(
        warnings(&found[0]),
        [
            of("scale", "2:51", moved),
            of("mean_file", "2:60", moved),
            of("crop_size", "3:14", moved),
            of("mirror", "3:27", moved),
            of("rand_skip", "3:40", "a Data layer starts at the first record"),
            of("force_encoded_color", "3:53", "write transform_param { force_color: true }"),
        ]
    );
    // A field that is set to its default is not worth a warning.
    assert_eq!(
        warnings(&found[1]),
        ["6:43: layer \"i\": image_data_param.mirror is ignored, as in Caffe; write it in transform_param"]
    );
}

#[test]
fn the_state_of_the_net_gives_way() {
    let net = Net::from_text(
        "state { phase: TEST level: 2 stage: 'a' }
         layer { type: 'Data' top: 'data' include { phase: TRAIN stage: 'a' max_level: 0 }
                 data_param { source: 's' batch_size: 1 } }",
    )
    .unwrap();
    assert_eq!(layers(&net, Phase::Train)[0].phase, Phase::Train);
    let found: Vec<_> = net.warnings(&NetState::default()).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "the net's own state sets phase TEST; the requested TRAIN overrides it",
            "the net's own state sets level 2; the requested 0 overrides it",
        ]
    );
}

#[test]
fn a_root_is_set_before_relative_paths() {
    let [root, file, absolute] = [Path::new("/root"), Path::new("a/b"), Path::new("/c")];
    assert_eq!(rooted(Some(root), file), Path::new("/root/a/b"));
    assert_eq!(rooted(Some(root), absolute), absolute);
    assert_eq!(rooted(None, file), file);
}
