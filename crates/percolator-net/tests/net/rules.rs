//! What Caffe refuses in a layer that is fed, and what it never looks at in one that is not.
//!
//! Skipping a misplaced field gives other arrays than the net asks for; a layer of a fork that nobody feeds
//! must not keep the rest of its net from being read. These tests cover both, and the rules that Caffe has
//! for all layers of a net: which are kept, which layer owns which blob, and what is reported about them.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use percolator_net::proto::NetParameter;
use percolator_net::{Net, NetState, Phase};

/// What a Data layer needs.
const SOURCE: &str = "data_param { source: 's' batch_size: 4 }";

fn read(text: &str) -> Net {
    Net::from_text(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    read(text).data_layers(&NetState::default()).unwrap_err().to_string()
}

/// The warnings about the first data layer of a net.
fn warnings(text: &str) -> Vec<String> {
    let layers = read(text).data_layers(&NetState::default()).unwrap();
    layers[0].warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_field_in_the_wrong_place_of_a_fed_layer_is_refused() {
    let data = "type: 'Data' top: 'a'";
    for (text, error) in [
        (
            format!("layer {{ {data} crop_size: 8 mirror: true mean_value: 7 {SOURCE} }}"),
            "1:31: message type \"caffe.LayerParameter\" has no field named \"crop_size\"; it belongs in \
             transform_param",
        ),
        (
            format!("layer {{ {data} batch_size: 8 {SOURCE} }}"),
            "1:31: message type \"caffe.LayerParameter\" has no field named \"batch_size\"; it belongs in \
             data_param or image_data_param",
        ),
        (
            format!("layer {{ {data} backend: LMDB {SOURCE} }}"),
            "1:31: message type \"caffe.LayerParameter\" has no field named \"backend\"; it belongs in \
             data_param",
        ),
        (
            format!("layer {{ {data} {SOURCE} transform_param {{ is_color: true }} }}"),
            "1:90: message type \"caffe.TransformationParameter\" has no field named \"is_color\"; it \
             belongs in image_data_param",
        ),
        (
            "layer { type: 'Data' data_param { top: 'x' } }".to_owned(),
            "1:35: message type \"caffe.DataParameter\" has no field named \"top\"; it belongs in the layer \
             itself",
        ),
        (
            "layers { layer { type: 'data' mean_value: 100 force_gray: true } }".to_owned(),
            "1:31: message type \"caffe.V0LayerParameter\" has no field named \"mean_value\"; it belongs in \
             transform_param",
        ),
        (
            format!("layers {{ type: DATA phase: TEST top: 'a' {SOURCE} }}"),
            "1:21: message type \"caffe.V1LayerParameter\" has no field named \"phase\"; it belongs in \
             include { }",
        ),
        (
            format!("layer {{ {data} meanfile: 'm' {SOURCE} }}"),
            "1:31: message type \"caffe.LayerParameter\" has no field named \"meanfile\"; it is a field of \
             V0LayerParameter",
        ),
        (
            format!("layer {{ {data} {SOURCE} hdf5_data_param {{ prefetch: 1 }} }}"),
            "1:90: message type \"caffe.HDF5DataParameter\" has no field named \"prefetch\"; it belongs in \
             data_param",
        ),
    ] {
        assert!(refused(&text).starts_with(error), "{text}: {}\n{error}", refused(&text));
        assert!(NetParameter::from_text(&text).unwrap_err().to_string().starts_with(error), "{text}");
    }
    let other = warnings(&format!("layer {{ {data} forward_type: FLOAT {SOURCE} }}"));
    assert_eq!(other.len(), 1, "{other:?}");
    assert!(other[0].contains("the field \"forward_type\" is unknown and is ignored"), "{other:?}");
}

#[test]
fn a_layer_that_is_not_fed_may_say_anything() {
    let data = format!("layer {{ name: 'd' type: 'Data' top: 'a' include {{ phase: TRAIN }} {SOURCE} }}\n");
    for other in [
        "layer { type: 'ImageSegData' top: 'b' include { phase: TEST } image_data_param { label_type: PIXEL \
         } }",
        "layer { type: 'ImageSegData' top: 'b' image_data_param { label_type: PIXEL } transform_parm { } }",
        "layer { type: 'ImageData' top: 'b' include { phase: TEST } image_data_param { label_type: PIXEL } }",
        "layer { type: 'Fork' tops: 'x' dtype: 3 crop_size: 2 }",
        "layer { type: 'HDF5Data' top: 'b' hdf5_data_param { source: '\\xff' prefetch: 3 } }",
    ] {
        for text in [format!("{data}{other}"), format!("{other}\n{data}")] {
            let net = read(&text);
            let layers = net.data_layers(&NetState::default()).unwrap();
            assert_eq!((layers.len(), layers[0].warnings.len()), (1, 0), "{text}");
            assert!(net.warnings(&NetState::default()).is_ok());
        }
    }
    let text = format!(
        "{data}layer {{ type: 'ImageData' top: 'b' include {{ phase: TEST }} image_data_param {{ label_type: \
         1 }} }}"
    );
    let error = read(&text).data_layers(&NetState::from(Phase::Test)).unwrap_err().to_string();
    assert!(
        error.starts_with("2:79: message type \"caffe.ImageDataParameter\" has no field named"),
        "{error}"
    );
    // A message alone cannot report later what it lost.
    let error = NetParameter::from_text(&text).unwrap_err().to_string();
    assert!(error.starts_with("2:79: message type"), "{error}");
    assert!(
        NetParameter::from_text("layer { type: 'Fork' tops: 'x' image_data_param { label: 1 } }").is_ok()
    );
    for fed in ["layer { type: 'Data' tops: 'x' }", "layers { tops: 'x' type: IMAGE_DATA }"] {
        assert!(NetParameter::from_text(fed).is_err(), "{fed}");
    }
    assert!(NetParameter::from_text("layers { layer { type: 'images' batch_size: 1 } }").is_err());
    assert!(NetParameter::from_text("layers { layer { type: 'conv' batch_size: 1 } }").is_ok());
    // Elsewhere a misspelling is refused at once.
    for bad in ["layerz { }", "nmae: 'n'", "state { stages: 'a' }", "layer { include { phaze: TEST } }"] {
        assert!(Net::from_text(bad).is_err(), "{bad}");
    }
}

#[test]
fn every_blob_has_one_source() {
    let data = format!("layer {{ name: 'd' type: 'Data' top: 'data' top: 'label' {SOURCE} }}\n");
    for (rest, error) in [
        (
            "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'\n top: 'label' }",
            "3:2: layer \"ip\": top blob \"label\" produced by multiple sources: layer \"d\" has it too",
        ),
        (
            "layer { name: 'a' type: 'X' bottom: 'data' bottom: 'label' top: 'x' top:\n['label', 'data'] }",
            "3:11: layer \"a\": top blob \"data\" produced by multiple sources: layer \"d\" has it too",
        ),
        (
            "layer { name: 's' type: 'Slice' bottom: 'data' top: ['x', 'data'] }",
            "2:59: layer \"s\": top blob \"data\" produced by multiple sources: layer \"d\" has it too",
        ),
        (
            "input: 'x' input: 'label' input_dim: 1",
            "1:44: layer \"d\": top blob \"label\" produced by multiple sources: layer \"input\" (the net's \
             own inputs) has it too",
        ),
        (
            "input: 'x' input: 'x' input_shape { }",
            "layer \"input\" (the net's own inputs): top blob \"x\" produced by multiple sources: \
             layer \"input\" (the net's own inputs) has it too",
        ),
    ] {
        assert_eq!(refused(&format!("{data}{rest}")), error, "{rest}");
    }
    for good in [
        "layer { type: 'ReLU' bottom: 'data' top: 'data' } layer { type: 'ReLU' bottom: 'data' top: 'data' }",
        "layer { type: 'X' bottom: 'data' bottom: 'label' top: 'x' top: 'label' }",
        "layer { type: 'X' bottom: 'data' top: 'label' include { phase: TEST } }",
        // Without a shape, Caffe drops them.
        "input: 'data'",
    ] {
        assert!(read(&format!("{data}{good}")).data_layers(&NetState::default()).is_ok(), "{good}");
    }
    // Line numbers of very many tops are not kept.
    let tops: String = (0..5000).map(|top| format!("\ntop: '{top}'")).collect();
    let error = refused(&format!("layer {{ name: 'x' type: 'X' {tops} top: '7' }}"));
    assert!(error.starts_with("1:1: layer \"x\": top blob \"7\" produced by multiple sources"), "{error}");
    let net = read(&format!("{data} input: 'x' input: 'y\\n' input_dim: 1"));
    let said: Vec<_> = net.warnings(&NetState::default()).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        ["the net's own inputs (x, y\\n) are not fed by Percolator, which feeds Data and ImageData layers"]
    );
}

#[test]
fn very_many_stages_are_matched_one_by_one() {
    let stages =
        |field: &str| -> String { (0..200_000).map(|stage| format!("{field}: '{stage}' ")).collect() };
    let text = format!(
        "state {{ {} }} layer {{ type: 'Data' top: 'a' include {{ {} {} }} {SOURCE} }}",
        stages("stage"),
        stages("stage"),
        stages("not_stage: '' not_stage"),
    );
    let net = read(&text);
    let error = net.data_layers(&NetState::default()).unwrap_err().to_string();
    assert!(error.contains(", 19, and 199980 more) the net has no data layer"), "{error}");
    let kept = text.replace("not_stage: '' not_stage: '", "not_stage: '-");
    assert_eq!(read(&kept).data_layers(&NetState::default()).unwrap().len(), 1);
}

#[test]
fn messages_are_short_and_of_one_line() {
    let name = "\u{1}\n\u{10ffff}".repeat(100);
    let state = NetState { stages: vec![name.clone(); 100_000], ..NetState::from(Phase::Train) };
    let shown = state.to_string();
    assert!(shown.chars().count() < 2000 && !shown.contains('\n'), "{shown}");
    assert!(shown.ends_with(", and 99980 more)"), "{shown}");
    let one = NetState { stages: vec!["a\nb".to_owned()], ..NetState::from(Phase::Test) };
    assert_eq!(one.to_string(), "TEST (level 0, stage a\\nb)");
    let layer = format!("layer {{ name: '{0}' type: '{0}' top: 'a' }}", name.replace('\n', "\\n"));
    let error = read(&layer.repeat(100).replace("top: 'a'", "include { phase: TEST } top: 'a'"))
        .data_layers(&state)
        .unwrap_err()
        .to_string();
    assert!(error.chars().count() < 8000 && !error.contains(char::is_control), "{error}");
}

#[test]
fn names_need_not_be_of_utf_8_but_paths_must() {
    let text = |name: &str, source: &str| {
        format!(
            "layer {{ name: '{name}' type: 'Data' top: '{name}' include {{ stage: '{name}' }} \
             data_param {{ source: '{source}' batch_size: 4 }} }}"
        )
    };
    let state = NetState { stages: vec!["gr\u{f6}\u{df}e".to_owned()], ..NetState::default() };
    let escaped = read(&text("gr\\xf6\\xdfe", "s")).data_layers(&state).unwrap();
    assert_eq!((escaped[0].name.as_str(), escaped[0].tops[0].as_str()), ("größe", "größe"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("net.prototxt");
    let raw: Vec<u8> = text("gröÿe", "s").chars().map(|character| u8::try_from(character).unwrap()).collect();
    std::fs::write(&file, raw).unwrap();
    let state = NetState { stages: vec!["gröÿe".to_owned()], ..NetState::default() };
    assert_eq!(Net::open(&file).unwrap().data_layers(&state).unwrap()[0].name, "gröÿe");
    for (body, at, field) in [
        ("data_param { source: 'a\\xff' batch_size: 4 }", "1:62", "source"),
        (
            "transform_param { mean_file: '\\xff' } data_param { source: 's' batch_size: 4 }",
            "1:70",
            "mean_file",
        ),
    ] {
        let error = refused(&format!("layer {{ name: 'd' type: 'Data' top: 'a' {body} }}"));
        let wanted =
            format!("{at}: the string of {field} is not UTF-8; rename the file, or give its path in UTF-8");
        assert_eq!(error, wanted);
    }
    let error =
        refused("layers { top: 'a' layer { type: 'data' meanfile: '\\xff' source: 's' batchsize: 1 } }");
    assert!(error.contains("the string of meanfile is not UTF-8"), "{error}");
    let error = refused("layer { type: 'ImageData' image_data_param { root_folder: '\\xff' } }");
    assert!(error.contains("the string of root_folder is not UTF-8"), "{error}");
}

#[test]
fn a_parameter_of_another_kind_of_layer_is_said_to_be_in_vain() {
    let found = warnings(&format!(
        "layer {{ name: 'd' type: 'Data' top: 'a' {SOURCE}\nimage_data_param {{ source: 'l' }}\n\
         hdf5_data_param {{ }}\nmemory_data_param {{ }}\nwindow_data_param {{ }} }}"
    ));
    let of = |line: u32, field: &str| {
        format!("{line}:1: layer \"d\": {field} is ignored, as in Caffe; a Data layer has data_param")
    };
    assert_eq!(
        found,
        [
            of(2, "image_data_param"),
            of(3, "hdf5_data_param"),
            of(4, "memory_data_param"),
            of(5, "window_data_param"),
        ]
    );
    let images = |data: &str| {
        warnings(&format!(
            "layer {{ name: 'i' type: 'ImageData' top: 'a' top: 'b' image_data_param {{ source: 'l' }}\n\
             data_param {{ {data} }} }}"
        ))
    };
    assert_eq!(images("prefetch: 2"), [""; 0]);
    assert_eq!(images(""), [""; 0]);
    assert_eq!(
        images("prefetch: 2 batch_size: 5 source: 's'"),
        ["2:26: layer \"i\": data_param is ignored but for prefetch, as in Caffe; an ImageData layer has \
             image_data_param"]
    );
}

#[test]
fn numbers_that_are_none_are_said() {
    let said = |transform: &str| {
        warnings(&format!(
            "layer {{ name: 'd' type: 'Data' top: 'a' {SOURCE}\ntransform_param {{ {transform} }} }}"
        ))
    };
    assert_eq!(
        said("scale: nan"),
        ["2:19: layer \"d\": transform_param.scale is NaN, which Caffe accepts; the arrays will have \
             elements that are not finite"]
    );
    assert_eq!(said("scale: 1e40").len(), 1);
    let means = said("mean_value: 1 mean_value: -inf mean_value: nan");
    assert_eq!(
        means,
        ["2:19: layer \"d\": transform_param.mean_value is -inf, which Caffe accepts; the arrays will \
             have elements that are not finite"]
    );
    let moved = warnings(
        "layers { name: 'd' type: DATA top: 'a' transform_param { scale: 1 }\n\
                          data_param { source: 's' batch_size: 4 scale: inf } }",
    );
    assert!(moved[0].starts_with("2:40: layer \"d\": transform_param.scale is inf"), "{moved:?}");
    let v0 = warnings("layers { top: 'a' layer { type: 'data' source: 's' batchsize: 1 scale: nan } }");
    assert!(v0[0].starts_with("1:65: "), "{v0:?}");
}

#[test]
fn a_mean_is_blamed_where_the_one_that_counts_stands() {
    let both = |layer: &str| refused(&format!("{layer} source: 's' batch_size: 4 }} }}"));
    let v1 = both(
        "layers { type: DATA top: 'a' transform_param { mean_value: 1 mean_file: 'x' }\ndata_param { \
         mean_file: 'y'",
    );
    assert!(v1.starts_with("2:14: ") && v1.contains("found \"y\" and 1"), "{v1}");
    let v2 = both(
        "layer { type: 'Data' top: 'a' transform_param { mean_value: 1 mean_file: 'x' }\ndata_param { \
         mean_file: 'y'",
    );
    assert!(v2.starts_with("1:63: ") && v2.contains("found \"x\" and 1"), "{v2}");
    let images = both(
        "layers { type: IMAGE_DATA top: 'a' transform_param { mean_value: 1 mean_file: 'x' } top: 'b'\n\
         data_param { mean_file: 'z' }\nimage_data_param { mean_file: 'y'",
    );
    assert!(images.starts_with("3:20: ") && images.contains("found \"y\" and 1"), "{images}");
    let kept = both(
        "layers { type: IMAGE_DATA top: 'a' transform_param { mean_value: 1 mean_file: 'x' } top: 'b'\n\
         data_param { mean_file: 'z' }\nimage_data_param {",
    );
    assert!(kept.starts_with("1:68: ") && kept.contains("found \"x\" and 1"), "{kept}");
}

#[test]
fn what_an_old_layer_has_no_use_for_is_said_as_caffe_says_it() {
    let hidden = warnings(
        "layers { hdf5_data_param { } window_data_param { } memory_data_param { }\n\
         layer { name: 'd' type: 'data' source: 's' batchsize: 1 } top: 'a' }",
    );
    assert_eq!(
        hidden,
        ["1:10: layer \"d\": beside a V0 'layer', Caffe reads only bottom and top: hdf5_data_param, \
             window_data_param, memory_data_param ignored"]
    );
    let detection =
        "det_fg_threshold: .1 det_bg_threshold: .1 det_fg_fraction: .1 det_context_pad: 1 det_crop_mode: 'x'";
    let of_images = "shuffle_images: true new_height: 2 new_width: 2 rand_skip: 1";
    for (kind, count) in [("data", 8), ("images", 5)] {
        let found = warnings(&format!(
            "layers {{ top: 'a' top: 'b' layer {{ type: '{kind}' source: 's' batchsize: 1 {of_images} \
             {detection} }} }}"
        ));
        let wanted = format!("for layer type {kind}: it is ignored, as in Caffe");
        assert_eq!(found.iter().filter(|said| said.contains(&wanted)).count(), count, "{found:?}");
        assert!(found.iter().any(|said| said.contains("parameter det_crop_mode")), "{found:?}");
    }
}
