//! Protobuf's text format, as nets use it.
//!
//! A text that is read differently here than by protobuf would feed another net than the one that was
//! written. So everything that the schema can express is printed in every way that the format allows, and
//! read back; an independent parser (prost-reflect's) reads the same; and what protobuf refuses is refused,
//! at the same place. Texts that are cut, spliced and nested at random must end in an error or a net, and
//! nothing else.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::sync::OnceLock;

use percolator_net::proto::{self, NetParameter};
use percolator_net::{Net, NetState, Phase};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

use crate::prototxt::Printer;

fn read(text: &str) -> Result<NetParameter, String> {
    NetParameter::from_text(text).map_err(|error| error.to_string())
}

/// The layer of a net whose body is `text`.
fn layer(text: &str) -> Result<proto::LayerParameter, String> {
    read(&format!("layer {{ {text} }}")).map(|mut net| net.layer.remove(0))
}

fn transform(text: &str) -> Result<proto::TransformationParameter, String> {
    layer(&format!("transform_param {{ {text} }}")).map(|layer| layer.transform_param.unwrap())
}

fn descriptor() -> MessageDescriptor {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proto");
        DescriptorPool::from_file_descriptor_set(protox::compile(["caffe.proto"], [folder]).unwrap()).unwrap()
    });
    pool.get_message_by_name("caffe.NetParameter").unwrap()
}

#[test]
fn the_same_message_in_every_spelling() {
    let plain = transform("scale: 0.5 mirror: true crop_size: 16 mean_value: 1 mean_value: 2").unwrap();
    for spelling in [
        "scale: .5, mirror: True; crop_size: 0x10 mean_value: [1, 2]",
        "scale:5e-1 mirror:t crop_size:020 mean_value:[1.0,2.0f],",
        "mean_value: 1. crop_size: 16 # a comment\n mirror: 1 mean_value: [] scale: 0.5F mean_value: [2]",
        "scale:\n\t.5\r\nmirror:#\n true crop_size :16 mean_value:1mean_value:2",
    ] {
        // Without the space, "1mean_value" would be one token, which protobuf refuses.
        let spelling = spelling.replace("1mean", "1 mean");
        assert_eq!(transform(&spelling), Ok(plain.clone()), "{spelling}");
    }
    let angles = layer("transform_param: < scale: 0.5 >; phase: 1").unwrap();
    assert_eq!(angles.transform_param.unwrap().scale, Some(0.5));
    assert_eq!(angles.phase, Some(1));
    assert_eq!(
        layer("include { phase: TRAIN } include: [{}, < phase: 1 >] include []").unwrap().include.len(),
        3
    );
}

#[test]
fn strings_are_joined_and_unescaped() {
    let name = |text: &str| layer(&format!("name: {text}")).map(|layer| layer.name.unwrap());
    assert_eq!(
        name(
            r#""a" 'b' # c
        "\x64\145\n\u00e9""#
        ),
        Ok("abde\né".to_owned())
    );
    assert_eq!(name(r#"'it"s' "it's""#), Ok("it\"sit's".to_owned()));
    assert_eq!(name(r"'\xc3' '\xa9'"), Ok("é".to_owned()));
    // Each byte that is not UTF-8 becomes a character, as in Latin-1.
    assert_eq!(name(r"'\xff\xc3\xa9'"), Ok("\u{ff}\u{c3}\u{a9}".to_owned()));
    assert_eq!(name("''"), Ok(String::new()));
}

#[test]
fn numbers_are_signed_rounded_and_bounded() {
    let scale = |text: &str| transform(&format!("scale: {text}")).map(|param| param.scale.unwrap());
    for (text, value) in [
        ("-1", -1.0),
        ("- 0.5", -0.5),
        ("-inf", f32::NEG_INFINITY),
        ("Infinity", f32::INFINITY),
        ("1e40", f32::INFINITY),
        ("16777217", 16_777_216.0),
        ("99999999999999999999999", 1e23),
        // Halfway between two floats when converted to f64 first: rounded twice, as by protobuf.
        ("1.00000017881393432617187499", 1.000_000_2),
    ] {
        assert_eq!(scale(text), Ok(value), "{text}");
    }
    assert!(scale("nan").unwrap().is_nan() && scale("-nan").unwrap().is_nan());
    for bad in ["0x10", "010", "true", "'1'", "-", "--1", "{}", "[1]"] {
        let error = scale(bad).unwrap_err();
        assert!(error.contains("expected a decimal number for scale, found"), "{bad}: {error}");
    }
    let crop = |text: &str| transform(&format!("crop_size: {text}")).map(|param| param.crop_size.unwrap());
    assert_eq!(crop("4294967295"), Ok(u32::MAX));
    assert_eq!(layer("include { min_level: -0 }").unwrap().include[0].min_level, Some(0));
    let range = |found: &str| {
        Err(format!("1:38: crop_size is {found}: allowed are whole numbers from 0 to 4294967295"))
    };
    for bad in ["4294967296", "-1", "-0", "0x100000000", "99999999999999999999999"] {
        assert_eq!(crop(bad), range(bad));
    }
    assert_eq!(crop("64.0"), Err("1:38: expected a whole number for crop_size, found \"64.0\"".to_owned()));
    assert_eq!(layer("include { min_level: -2147483648 }").unwrap().include[0].min_level, Some(i32::MIN));
    let error = layer("include { min_level: -2147483649 }").unwrap_err();
    assert_eq!(
        error,
        "1:30: min_level is -2147483649: allowed are whole numbers from -2147483648 to 2147483647"
    );
}

#[test]
fn what_protobuf_refuses_is_refused_where_it_stands() {
    for (text, error) in [
        ("layer { name: 'a' name: 'b' }", "1:19: non-repeated field \"name\" is specified multiple times"),
        (
            "layer { data_param {} data_param {} }",
            "1:23: non-repeated field \"data_param\" is specified multiple times",
        ),
        ("layers { type: FORK type: DATA }", "1:21: non-repeated field \"type\" is specified multiple times"),
        (
            "layer { phase: BOTH }",
            "1:16: unknown enumeration value of \"BOTH\" for field \"phase\": allowed are TRAIN (0), TEST \
             (1)",
        ),
        (
            "layer { phase: 2 }",
            "1:16: unknown enumeration value of \"2\" for field \"phase\": allowed are TRAIN (0), TEST (1)",
        ),
        (
            "layer { phase: 'TEST' }",
            "1:16: expected a name for phase, without quotes, found the string \"TEST\"",
        ),
        (
            "layer { data_param { backend: LEVELB } }",
            "1:31: unknown enumeration value of \"LEVELB\" for field \"backend\": allowed are LEVELDB (0), \
             LMDB (1)",
        ),
        ("layer { type: DATA }", "1:15: expected a string in quotes for type, found \"DATA\""),
        (
            "layers { type: 'Data' }",
            "1:16: expected a name for type, without quotes, found the string \"Data\"",
        ),
        (
            "layer { transform_param { mirror: yes } }",
            "1:35: expected true or false for mirror, found \"yes\"",
        ),
        ("layer { transform_param { mirror: 2 } }", "1:35: expected true or false for mirror, found \"2\""),
        ("layer { name 'a' }", "1:14: expected \":\", found the string \"a\""),
        ("layer: 'a'", "1:8: expected \"{\", found the string \"a\""),
        ("layer { name: 'a'", "1:18: expected a field of LayerParameter, found the end of the text"),
        ("layer { name: 'a' > }", "1:19: expected a field of LayerParameter, found \">\""),
        ("layer { } }", "1:11: expected a field of NetParameter, found \"}\""),
        ("layer { ; }", "1:9: expected a field of LayerParameter, found \";\""),
        ("layer { name: ['a'] }", "1:15: expected a string in quotes for name, found \"[\""),
        ("layer { top: ['a' 'b', 'c',] }", "1:28: expected a string in quotes for top, found \"]\""),
        ("layer { top: ['a'; 'b'] }", "1:18: expected \",\" or \"]\", found \";\""),
        ("layer { name: 'a\n' }", "1:15: the string is not closed on its line; did you miss a quote?"),
        ("layer { 1: 'a' }", "1:9: expected a field of LayerParameter, found \"1\""),
        ("// layer", "1:1: expected a field of NetParameter, found \"/\""),
        (
            "layer\n{ data_param\n{ größe: 1 } }",
            "3:5: found \"ö\", which starts no token of protobuf's text format",
        ),
        ("layer { data_param { [a.b]: 1 } }", "1:22: expected a field of DataParameter, found \"[\""),
        ("layer { convolution_param { pad: } }", "1:34: expected a value, found \"}\""),
        ("layer { convolution_param { pad 1 } }", "1:33: expected \":\" or \"{\", found \"1\""),
        ("layer { convolution_param { pad: -x } }", "1:35: expected a value, found \"x\""),
        ("layer { convolution_param { pad: [[1]] } }", "1:35: expected a value, found \"[\""),
        ("layer { convolution_param { < } }", "1:29: expected a field, found \"<\""),
        ("layer { [a.] { } }", "1:12: expected a name, found \"]\""),
    ] {
        assert_eq!(read(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn an_unknown_field_is_refused_where_it_matters() {
    for (text, error) in [
        (
            "layer { type: 'Data' data_param { bacth_size: 1 } }",
            "1:35: message type \"caffe.DataParameter\" has no field named \"bacth_size\"; did you \
             mean \"batch_size\"?",
        ),
        (
            "layer { include { stages: 'a' } }",
            "1:19: message type \"caffe.NetStateRule\" has no field named \"stages\"; did you \
             mean \"stage\"?",
        ),
        (
            "layer { include { solver: 'a' } }",
            "1:19: message type \"caffe.NetStateRule\" has no field named \"solver\"; it has phase, \
             min_level, max_level, stage, not_stage",
        ),
        (
            "layers { type: DATA hdf5_data_param { chunk: 1 } }",
            "1:39: message type \"caffe.HDF5DataParameter\" has no field named \"chunk\"; it has source, \
             batch_size, shuffle",
        ),
        (
            "state { train: 1 }",
            "1:9: message type \"caffe.NetState\" has no field named \"train\"; it has phase, level, stage",
        ),
        // Where unknown fields are ignored, a misspelling is still an error.
        (
            "layer { type: 'Data' transform_parm { scale: 1 } }",
            "1:22: message type \"caffe.LayerParameter\" has no field named \"transform_parm\"; did you \
             mean \"transform_param\"?",
        ),
        (
            "layers { image_data_params { } type: IMAGE_DATA }",
            "1:10: message type \"caffe.V1LayerParameter\" has no field named \"image_data_params\"; did you \
             mean \"image_data_param\"?",
        ),
        (
            "layers { layer { batch_size: 1 type: 'images' } }",
            "1:18: message type \"caffe.V0LayerParameter\" has no field named \"batch_size\"; did you \
             mean \"batchsize\"?",
        ),
        (
            "layr { name: 'a' }",
            "1:1: message type \"caffe.NetParameter\" has no field named \"layr\"; did you mean \"layer\"?",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), error, "{text}");
    }
}

#[test]
fn what_no_data_layer_needs_is_passed_over() {
    let text = r#"
        name: "n"
        profile { a: 1 }
        [foo.bar.extension]: 5
        [type.googleapis.com/foo.Bar-x.Baz] < a: [1, 'b' "c", {d: -1.5}, < >, x, -inf, 0x1f], e [], f: [] >
        layer {
          name: "conv" type: "Convolution" bottom: "a" top: "b"
          param { lr_mult: 1e0 } param: < name: "x" >, loss_weight: [0.3, -2];
          convolution_param { weight_filler { type: 'xavier' } pad: 1, pad: 2; engine: CUDNN }
          blobs { shape { dim: [1, 2] } data: [0.1, -.2, nan] double_data: 1 }
          roi_pooling_param { pooled_w: 6 }
          [ext.x] { y: z }
        }
        layers { name: "v1" type: RESHAPE_FORK blobs_lr: 1 blobs_lr: 2 include { phase: TEST } }
        layers { layer { name: "v0" type: "conv" num_output: 96 weight_filler { std: 0.01 } } bottom: "x" }
    "#;
    let net = read(text).unwrap();
    assert_eq!((net.name(), net.layer.len(), net.layers.len()), ("n", 1, 2));
    assert_eq!((net.layer[0].name(), &net.layer[0].bottom[..]), ("conv", &["a".to_owned()][..]));
    assert_eq!((net.layers[0].name(), net.layers[0].r#type, net.layers[0].include.len()), ("v1", None, 1));
    assert_eq!(net.layers[1].layer.as_ref().unwrap().name(), "v0");
}

#[test]
fn depth_is_bounded() {
    for open in ["{ a", "< a:", "{ a: [", "{ a { [b]"] {
        let error = read(&format!("layer {{ a {}", open.repeat(1_000_000))).unwrap_err();
        assert!(error.contains("messages are nested too deeply: allowed are 100 levels"), "{open}: {error}");
    }
    let deep = |depth: usize| format!("layer {{ {} {} }}", "a {".repeat(depth - 1), "}".repeat(depth - 1));
    assert!(read(&deep(100)).is_ok());
    let error = read(&deep(101)).unwrap_err();
    assert_eq!(error, "1:308: messages are nested too deeply: allowed are 100 levels");
}

#[test]
fn layers_are_counted() {
    let text = "layer{}".repeat(1 << 16);
    assert_eq!(read(&text).unwrap().layer.len(), 1 << 16);
    let error = read(&(text + "\nlayer {}")).unwrap_err();
    assert_eq!(error, "2:1: the net has too many layers: allowed are 65536");
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[ -~]{0,6}", "\\PC{0,4}", any::<String>()]
}

/// Floats that protobuf's printer and parser agree on: no NaN, because it does not equal itself.
fn any_float() -> impl Strategy<Value = f32> {
    prop_oneof![
        any::<f32>().prop_filter("a number", |value| !value.is_nan()),
        select(vec![0.0, -0.0, 1.0, f32::INFINITY, f32::MIN_POSITIVE, 0.017]),
    ]
}

prop_compose! {
    fn any_transform()(
        scale in option::of(any_float()), mirror in any::<Option<bool>>(), crop_size in any::<Option<u32>>(),
        mean_file in option::of(any_text()), mean_value in vec(any_float(), 0..4),
        force_color in any::<Option<bool>>(), force_gray in any::<Option<bool>>(),
    ) -> proto::TransformationParameter {
        proto::TransformationParameter {
            scale, mirror, crop_size, mean_file, mean_value, force_color, force_gray,
        }
    }
}

prop_compose! {
    fn any_data()(
        source in option::of(any_text()), scale in option::of(any_float()),
        batch_size in any::<Option<u32>>(),
        backend in option::of(0..2), rand_skip in any::<Option<u32>>(), mirror in any::<Option<bool>>(),
        prefetch in any::<Option<u32>>(),
    ) -> proto::DataParameter {
        proto::DataParameter {
            source, scale, batch_size, backend, rand_skip, mirror, prefetch, ..proto::DataParameter::default()
        }
    }
}

prop_compose! {
    fn any_images()(
        source in option::of(any_text()), root_folder in option::of(any_text()),
        shuffle in any::<Option<bool>>(),
        new_height in any::<Option<u32>>(), is_color in any::<Option<bool>>(),
    ) -> proto::ImageDataParameter {
        proto::ImageDataParameter {
            source, root_folder, shuffle, new_height, is_color, ..proto::ImageDataParameter::default()
        }
    }
}

prop_compose! {
    fn any_rule()(
        phase in option::of(0..2), min_level in any::<Option<i32>>(), max_level in any::<Option<i32>>(),
        stage in vec(any_text(), 0..3), not_stage in vec(any_text(), 0..3),
    ) -> proto::NetStateRule {
        proto::NetStateRule { phase, min_level, max_level, stage, not_stage }
    }
}

prop_compose! {
    fn any_layer()(
        name in option::of(any_text()), kind in option::of(any_text()), bottom in vec(any_text(), 0..3),
        top in vec(any_text(), 0..3), include in vec(any_rule(), 0..3), exclude in vec(any_rule(), 0..2),
        phase in option::of(0..2), transform_param in option::of(any_transform()),
        data_param in option::of(any_data()), image_data_param in option::of(any_images()),
    ) -> proto::LayerParameter {
        proto::LayerParameter {
            name, r#type: kind, bottom, top, include, exclude, phase, transform_param, data_param,
            image_data_param, ..proto::LayerParameter::default()
        }
    }
}

prop_compose! {
    fn any_v0()(
        name in option::of(any_text()), kind in option::of(any_text()), scale in option::of(any_float()),
        batchsize in any::<Option<u32>>(), new_width in any::<Option<i32>>(),
        det_crop_mode in option::of(any_text()),
    ) -> proto::V0LayerParameter {
        proto::V0LayerParameter {
            name, r#type: kind, scale, batchsize, new_width, det_crop_mode,
            ..proto::V0LayerParameter::default()
        }
    }
}

prop_compose! {
    fn any_v1()(
        layer in option::of(any_v0()), name in option::of(any_text()), kind in option::of(0..40),
        top in vec(any_text(), 0..3), data_param in option::of(any_data()),
        memory_batch in option::of(any::<Option<u32>>()), window in option::of(option::of(any_float())),
    ) -> proto::V1LayerParameter {
        proto::V1LayerParameter {
            layer, name, r#type: kind, top, data_param,
            memory_data_param: memory_batch.map(|batch_size| proto::MemoryDataParameter {
                batch_size, ..proto::MemoryDataParameter::default()
            }),
            window_data_param: window.map(|fg_threshold| proto::WindowDataParameter {
                fg_threshold, ..proto::WindowDataParameter::default()
            }),
            ..proto::V1LayerParameter::default()
        }
    }
}

prop_compose! {
    fn any_net()(
        name in option::of(any_text()), input in vec(any_text(), 0..3), input_dim in vec(any::<i32>(), 0..5),
        dims in vec(vec(any::<i64>(), 0..4), 0..2), debug_info in any::<Option<bool>>(),
        state in option::of((option::of(0..2), any::<Option<i32>>(), vec(any_text(), 0..3))),
        layer in vec(any_layer(), 0..4), layers in vec(any_v1(), 0..3),
    ) -> NetParameter {
        NetParameter {
            name, input, input_dim, debug_info, layer, layers,
            state: state.map(|(phase, level, stage)| proto::NetState { phase, level, stage }),
            input_shape: dims.into_iter().map(|dim| proto::BlobShape { dim }).collect(),
            ..NetParameter::default()
        }
    }
}

proptest! {
    /// Any net, printed in any way that the format allows.
    #[test]
    fn what_is_printed_is_read_back(net in any_net(), seed in any::<u64>()) {
        let message = DynamicMessage::decode(descriptor(), &net.encode_to_vec()[..]).unwrap();
        let text = Printer::new(seed).print(&message);
        prop_assert_eq!(
            NetParameter::from_text(&text).map_err(|error| error.to_string()),
            Ok(net),
            "{}",
            text
        );
    }

    /// Another parser reads the same text as the same net.
    #[test]
    fn another_parser_agrees(net in any_net(), seed in any::<u64>()) {
        let message = DynamicMessage::decode(descriptor(), &net.encode_to_vec()[..]).unwrap();
        // prost-reflect reads neither `True` nor an escaped surrogate pair.
        let text = Printer::common(seed).print(&message);
        let theirs =
            DynamicMessage::parse_text_format(descriptor(), &text).map_err(|error| error.to_string());
        let ours = NetParameter::from_text(&text).map_err(|error| error.to_string());
        prop_assert_eq!(
            ours.map(|net| net.encode_to_vec()),
            theirs.map(|net| net.encode_to_vec()),
            "{}",
            text
        );
        // What prost-reflect prints is read here, too.
        let printed = NetParameter::from_text(&message.to_text_format()).map_err(|error| error.to_string());
        prop_assert_eq!(printed, Ok(net));
    }
}

/// Valid nets to begin with.
const SEEDS: &[&str] = &[
    include_str!("../../../../tests/data/nets/caffenet_train_val.prototxt"),
    include_str!("../../../../tests/data/nets/googlenet_stages.prototxt"),
    include_str!("../../../../tests/data/nets/image_list.prototxt"),
    include_str!("../../../../tests/data/nets/nvcaffe.prototxt"),
    include_str!("../../../../tests/data/nets/ssd.prototxt"),
    include_str!("../../../../tests/data/nets/v0_imagenet.prototxt"),
    include_str!("../../../../tests/data/nets/v1_imagenet.prototxt"),
];

/// Fragments that a parser may trip over.
const PIECES: &[&str] = &[
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    ":",
    ",",
    ";",
    "-",
    ".",
    "/",
    "#",
    "'",
    "\"",
    "\\",
    "\n",
    "0",
    "08",
    "0x",
    "1e",
    "inf",
    "nan",
    "99999999999999999999",
    "layer {",
    "layers { layer {",
    "data_param {",
    "include {",
    "mean_value: [",
    "[a.b/c]",
    "\u{0}",
    "ß",
    "type: DATA",
    "top: 'a' 'b'",
    "'\\u",
    "\\x",
    "transform_param { shuffle",
    "exclude { phase: TEST }",
];

#[derive(Clone, Debug)]
enum Edit {
    Cut(Index, usize),
    Insert(Index, &'static str, usize),
    Byte(Index, u8),
    Splice(Index, Index, usize),
}

fn any_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<Index>(), 1..40_usize).prop_map(|(at, length)| Edit::Cut(at, length)),
        (any::<Index>(), select(PIECES), prop_oneof![9 => 1..3_usize, 1 => 90..200_usize])
            .prop_map(|(at, piece, times)| Edit::Insert(at, piece, times)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (any::<Index>(), any::<Index>(), 1..200_usize)
            .prop_map(|(from, to, length)| Edit::Splice(from, to, length)),
    ]
}

fn edit(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        if bytes.is_empty() {
            break;
        }
        let length = bytes.len();
        match edit {
            Edit::Cut(at, count) => {
                let at = at.index(length);
                drop(bytes.drain(at..length.min(at + count)));
            }
            Edit::Insert(at, piece, times) => {
                let at = at.index(length);
                bytes.splice(at..at, piece.repeat(*times).into_bytes());
            }
            Edit::Byte(at, byte) => bytes[at.index(length)] = *byte,
            Edit::Splice(from, to, count) => {
                let (from, to) = (from.index(length), to.index(length));
                let piece = bytes[from..length.min(from + count)].to_vec();
                bytes.splice(to..to, piece);
            }
        }
    }
    bytes
}

/// The most characters of a message: a list of 20 layers, each with two clipped words and the reason why it
/// is not fed, and of 20 clipped stages.
const MESSAGE_MAX: usize = 8000;

fn check_message(message: &str) {
    assert!(message.chars().count() < MESSAGE_MAX, "{message}");
    assert!(!message.contains(char::is_control), "{message:?}");
}

/// Reads a net completely, whatever it is.
fn exercise(net: Result<Net, percolator_net::NetError>) {
    let net = match net {
        Ok(net) => net,
        Err(error) => return check_message(&error.to_string()),
    };
    for phase in [Phase::Train, Phase::Test] {
        let state = NetState::from(phase);
        let warnings = net
            .data_layers(&state)
            .map(|layers| layers.into_iter().flat_map(|layer| layer.warnings).collect::<Vec<_>>());
        for read in [warnings, net.warnings(&state)] {
            match read {
                Ok(warnings) => warnings.iter().for_each(|warning| check_message(&warning.to_string())),
                Err(error) => check_message(&error.to_string()),
            }
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_text_ends_in_a_net_or_an_error(
        seed in select(SEEDS),
        edits in vec(any_edit(), 1..8),
    ) {
        let bytes = edit(seed.as_bytes().to_vec(), &edits);
        exercise(Net::from_text(&String::from_utf8_lossy(&bytes)));
    }

    #[test]
    fn damaged_wire_bytes_end_in_a_net_or_an_error(
        seed in select(SEEDS),
        edits in vec(any_edit(), 1..8),
    ) {
        let net = Net::from_text(seed).unwrap().parameter().encode_to_vec();
        exercise(Net::from_binary(&edit(net, &edits)));
    }

    #[test]
    fn any_bytes_end_in_a_net_or_an_error(bytes in vec(any::<u8>(), 0..200), text in ".{0,200}") {
        exercise(Net::from_binary(&bytes));
        exercise(Net::from_text(&String::from_utf8_lossy(&bytes)));
        exercise(Net::from_text(&text));
    }
}
