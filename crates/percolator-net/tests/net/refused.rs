//! Nets that Caffe refuses, or partly ignores.
//!
//! Caffe aborts on them with a message, or trains on without a word. Here they end in an error in Caffe's
//! words, with the line that is wrong, or in a warning.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use percolator_net::{Net, NetCause, NetError, NetState, Phase, TextPlace};
use prost::Message as _;

use crate::process::must_end;

/// What a Data layer needs.
const SOURCE: &str = "data_param { source: 's' batch_size: 4 }";

/// The error of a net with this layer only; `body` is everything but its name, type and top.
fn refused(kind: &str, body: &str) -> String {
    let net = Net::from_text(&format!("layer {{ name: 'd' type: '{kind}' top: 'data'\n{body} }}"));
    net.and_then(|net| net.data_layers(&NetState::default())).unwrap_err().to_string()
}

/// The warnings about the first data layer of a net.
fn warnings(net: &Net) -> Vec<String> {
    let layers = net.data_layers(&NetState::from(Phase::Train)).unwrap();
    layers[0].warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_layer_that_caffe_would_not_set_up_is_refused() {
    for (kind, body, error) in [
        (
            "Data",
            "data_param { source: 's' }",
            "1:1: layer \"d\": positive batch size required: data_param.batch_size is not set, or 0",
        ),
        (
            "Data",
            "data_param { source: 's' batch_size: 0 }",
            "2:26: layer \"d\": positive batch size required",
        ),
        (
            "Data",
            "data_param { source: 's' batch_size: 4000000000 }",
            "2:26: layer \"d\": data_param.batch_size is 4000000000: allowed are 1 to 2147483647",
        ),
        ("Data", "data_param { batch_size: 4 }", "1:1: layer \"d\": data_param.source is not set, or empty"),
        (
            "Data",
            "data_param { batch_size: 4 source: '' }",
            "2:28: layer \"d\": data_param.source is not set, or empty",
        ),
        (
            "Data",
            "data_param { source: 's' batch_size: 4 prefetch: 0 }",
            "2:40: layer \"d\": data_param.prefetch is 0",
        ),
        ("Data", "", "1:1: layer \"d\": positive batch size required"),
        (
            "Data",
            "bottom: 'x' data_param { source: 's' batch_size: 4 }",
            "2:1: layer \"d\": a Data layer takes 0 bottom blobs as input, found 1",
        ),
        (
            "Data",
            "top: 'b' top: 'c' data_param { source: 's' batch_size: 4 }",
            "1:32: layer \"d\": a Data layer produces at least 1 and at most 2 top blobs as output, found 3",
        ),
        (
            "Data",
            "top: 'data' data_param { source: 's' batch_size: 4 }",
            "2:1: layer \"d\": top blob \"data\" produced by multiple sources: layer \"d\" has it too",
        ),
        (
            "ImageData",
            "image_data_param { source: 'l' }",
            "1:37: layer \"d\": an ImageData layer produces 2 top blobs as output, found 1",
        ),
        (
            "ImageData",
            "image_data_param { source: 'l' new_height: 8 } top: 'b'",
            "2:32: layer \"d\": current implementation requires new_height and new_width to be set at the \
             same time: found 8 and 0",
        ),
        (
            "ImageData",
            "image_data_param { source: 'l' new_height: 65536 new_width: 65536 } top: 'b'",
            "2:32: layer \"d\": images of 65536x65536 are too large",
        ),
        (
            "ImageData",
            "image_data_param { source: 'l' batch_size: 0 } top: 'b'",
            "2:32: layer \"d\": positive batch size required: image_data_param.batch_size",
        ),
        ("ImageData", "top: 'b'", "1:1: layer \"d\": image_data_param.source is not set, or empty"),
    ] {
        let found = refused(kind, body);
        assert!(found.starts_with(error), "{kind} {body}: {found}");
    }
}

#[test]
fn include_and_exclude_rules_together_are_refused() {
    let both = refused("Data", &format!("include {{ phase: TRAIN }} exclude {{ phase: TEST }} {SOURCE}"));
    assert_eq!(both, "1:1: layer \"d\": specify either include rules or exclude rules; not both");
}

/// The error of a net's data layer, of whatever form; `None` if it is accepted.
fn refusal(net: &str) -> Option<String> {
    let from_text = Net::from_text(net).unwrap();
    let refusal = |net: Net| net.data_layers(&NetState::default()).err();
    // Its wire bytes have the same fields, but no line numbers.
    let bytes = percolator_net::proto::NetParameter::from_text(net).unwrap().encode_to_vec();
    let of_bytes = refusal(Net::from_binary(&bytes).unwrap()).map(|error| error.cause);
    let of_text = refusal(from_text);
    assert_eq!(of_text.as_ref().map(|error| &error.cause), of_bytes.as_ref());
    of_text.map(|error| error.to_string())
}

#[test]
fn what_is_said_of_blobs_that_a_layer_does_not_have_is_refused() {
    let v2 = |tops: &str, body: &str| format!("layer {{ name: 'd' type: 'Data' {tops} {SOURCE}\n{body} }}\n");
    let one = |body: &str| refusal(&v2("top: 'data'", body));
    for (body, found) in [("propagate_down: false", 1), ("propagate_down: [true, false]", 2)] {
        let wanted = format!(
            "2:1: layer \"d\": propagate_down must be specified either 0 times or once per bottom blob: \
             found {found}, and the layer has 0 bottom blobs; leave it out"
        );
        assert_eq!(one(body), Some(wanted), "{body}");
    }
    let bottom = one("propagate_down: true bottom: 'x'").unwrap();
    assert!(bottom.contains("a Data layer takes 0 bottom blobs"), "{bottom}");
    let params = |at: &str, found: usize| {
        Some(format!(
            "{at}: layer \"d\": too many params specified: found {found}, and a data layer has 0 blobs to \
             train; leave them out (param, and in old layers blobs_lr, weight_decay and blob_share_mode)"
        ))
    };
    assert_eq!(one("param { }"), params("2:1", 1));
    assert_eq!(
        one("param { lr_mult: 1 decay_mult: 0 } param { name: 'w' share_mode: STRICT }"),
        params("2:1", 2)
    );
    let v1 = |body: &str| refusal(&format!("layers {{ name: 'd' type: DATA top: 'data' {SOURCE}\n{body} }}"));
    // The n-th param has the n-th value of each.
    assert_eq!(v1("blobs_lr: 1 blobs_lr: 2 weight_decay: [1, 0, 0] param: 'w'"), params("2:49", 3));
    assert_eq!(v1("blobs_lr: 1"), params("2:1", 1));
    assert_eq!(v1("blob_share_mode: [STRICT, PERMISSIVE]"), params("2:1", 2));
    assert_eq!(v1("weight_decay: 1"), params("2:1", 1));
    let v0 = |inner: &str, beside: &str| {
        let inner = format!("layer {{ name: 'd' type: 'data' source: 's' batchsize: 1\n{inner} }}");
        refusal(&format!("layers {{ {inner} top: 'data' {beside} }}"))
    };
    assert_eq!(v0("blobs_lr: 1 weight_decay: [1, 2]", ""), params("2:1", 2));
    // Beside a V0 layer, Caffe reads only the names of the blobs.
    assert_eq!(v0("", "blobs_lr: 1 loss_weight: [1, 2] param: 'w'"), None);
    let elsewhere = "layers { name: 'd' type: DATA top: 'data' propagate_down: true }";
    let elsewhere = Net::from_text(elsewhere).unwrap().data_layers(&NetState::default()).unwrap_err();
    assert!(elsewhere.to_string().contains("it is a field of LayerParameter"), "{elsewhere}");
    // These fields are ignored in layers that load no data.
    let others = "layer { type: 'Convolution' bottom: 'data' top: 'c' param { lr_mult: 1 } propagate_down: \
     [true, true] }";
    assert_eq!(refusal(&(v2("top: 'data'", "") + others)), None);
}

#[test]
fn a_loss_weight_goes_with_each_top_unless_caffe_moves_it() {
    let net = |tops: &str, weights: &str, others: &str| {
        refusal(&format!(
            "layer {{ name: 'd' type: 'Data' {tops} {SOURCE}\nloss_weight: {weights} }}\n{others}"
        ))
    };
    let refused = |found: usize, tops: usize| {
        Some(format!(
            "2:1: layer \"d\": loss_weight must be unspecified or specified once per top blob: found \
             {found}, and the layer has {tops} top blobs; leave it out"
        ))
    };
    let (one, two) = ("top: 'data'", "top: 'data' top: 'label'");
    assert_eq!(net(one, "0", ""), None);
    assert_eq!(net(two, "[1, 0]", ""), None);
    assert_eq!(net(one, "[1, 0]", ""), refused(2, 1));
    assert_eq!(net(two, "[1]", ""), refused(1, 2));
    // A top that has a weight and is read goes through a split, which has the weight in the layer's place:
    // then nothing is counted.
    let reads = |blob: &str| format!("layer {{ name: 'r' type: 'ReLU' bottom: '{blob}' top: '{blob}' }}");
    assert_eq!(net(two, "[1]", &reads("data")), None);
    assert_eq!(net(one, "[0.5, 0, 0]", &reads("data")), None);
    assert_eq!(net(two, "[1]", &reads("label")), refused(1, 2));
    assert_eq!(net(two, "[0]", &reads("data")), refused(1, 2));
    assert_eq!(net(one, "[0, 1]", &reads("data")), refused(2, 1), "the weight is of no top");
    let of_test = reads("data").replace("name: 'r'", "include { phase: TEST }");
    assert_eq!(net(two, "[1]", &of_test), refused(1, 2), "a layer of another state reads nothing");
    let of_v1 = format!("layers {{ name: 'd' type: DATA {two} {SOURCE}\nloss_weight: 2 }}");
    assert_eq!(refusal(&of_v1), refused(1, 2));
}

/// For each pair of a layer and a bottom, it would be two hundred thousand million comparisons.
#[test]
fn many_layers_with_weights_and_many_bottoms_take_time_for_each_and_not_for_each_pair() {
    const LAYERS: usize = 60_000;
    must_end("a net of many layers is read", || {
        let layers = (0..LAYERS).map(|number| {
            let tops = format!("top: 'a{number}' top: 'b{number}'");
            format!("layer {{ name: 'd' type: 'Data' {tops} {SOURCE}\nloss_weight: 1 }}")
        });
        let tops: String = (0..LAYERS).map(|number| format!(" bottom: 'a{number}'")).collect();
        let bottoms = " bottom: ''".repeat(3_000_000);
        let last = format!("layer {{ name: 'r' type: 'Silence'{bottoms}{tops} }}");
        assert_eq!(refusal(&(layers.collect::<String>() + &last)), None);
    });
}

#[test]
fn a_transform_that_caffe_would_not_make_is_refused() {
    for (transform, error) in [
        (
            "mean_file: 'm' mean_value: 1",
            "3:19: layer \"d\": cannot specify mean_file and mean_value at the same time: found \"m\" and 1 \
             mean_value",
        ),
        ("mean_file: ''", "3:19: layer \"d\": transform_param.mean_file is not set, or empty"),
        (
            "force_color: true force_gray: true",
            "3:37: layer \"d\": cannot set both force_color and force_gray",
        ),
    ] {
        let found = refused("Data", &format!("{SOURCE}\ntransform_param {{ {transform} }}"));
        assert!(found.starts_with(error), "{transform}: {found}");
    }
}

#[test]
fn an_unknown_backend_can_only_come_in_wire_bytes() {
    let text = "layer { type: 'Data' top: 'a' data_param { source: 's' batch_size: 1 backend: LMDB } }";
    let mut parameter = percolator_net::proto::NetParameter::from_text(text).unwrap();
    parameter.layer[0].data_param.as_mut().unwrap().backend = Some(7);
    let net = Net::from_binary(&parameter.encode_to_vec()).unwrap();
    let error = net.data_layers(&NetState::default()).unwrap_err().to_string();
    assert_eq!(
        error,
        "layer number 0 (without a name): unknown database backend 7: allowed are LEVELDB (0) and LMDB (1)"
    );
}

#[test]
fn two_layers_of_one_state_fill_different_blobs() {
    let layer = |name: &str, kind: &str, rule: &str| {
        format!(
            "layer {{ name: '{name}' type: '{kind}' top: 'data' {rule} data_param {{ source: 's' batch_size: \
             1 }} }}\n"
        )
    };
    let text = layer("a", "Data", "include { phase: TRAIN }") + &layer("b", "HDF5Data", "");
    let net = Net::from_text(&text).unwrap();
    let error = net.data_layers(&NetState::from(Phase::Train)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "2:36: layer \"b\": top blob \"data\" produced by multiple sources: layer \"a\" has it too"
    );
    let error = net.data_layers(&NetState::from(Phase::Test)).unwrap_err();
    assert!(matches!(*error.cause, NetCause::NoDataLayer { .. }), "{error}");
}

#[test]
fn a_net_is_of_one_form() {
    let error = |text: &str| -> NetError { Net::from_text(text).unwrap_err() };
    let both = error("layer { name: 'a' }\n layers { name: 'b' }");
    assert_eq!(both.at, Some(TextPlace { line: 2, column: 2 }));
    assert_eq!(
        both.to_string(),
        "2:2: refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and \
         'layers' \
         fields (the first of either: \"a\" at 1:1 and \"b\" at 2:2); use one of them for the whole net"
    );
    let mixed = error("layers { name: 'a' }\nlayers { layer { name: 'b' } }").to_string();
    assert!(
        mixed.starts_with("2:1: the net has 'layers' both with a V0 'layer' in them (\"b\" at 2:1)"),
        "{mixed}"
    );
    let negative = error("layers { layer { name: 'b' type: 'images' new_width: -3 } }").to_string();
    assert_eq!(negative, "1:43: layer \"b\": new_width is -3: allowed are 0 or more");
    let solver = error("net: 'train_val.prototxt'\nbase_lr: 0.1").to_string();
    assert!(solver.starts_with("1:1: this is a solver, not a net: it has the field \"net\""), "{solver}");
}

#[test]
fn what_stands_in_vain_in_an_old_layer_is_said() {
    let net = Net::from_text(
        "layers { name: 'no' include { phase: TEST } blobs_lr: 1
           layer { name: 'd' type: 'data' source: 's' batchsize: 1 new_height: 3 } top: 'data' }",
    )
    .unwrap();
    assert_eq!(
        warnings(&net),
        [
            "1:10: layer \"d\": beside a V0 'layer', Caffe reads only bottom and top: name, include, \
             blobs_lr ignored",
            "2:68: layer \"d\": unknown parameter new_height for layer type data: it is ignored, as in Caffe",
        ]
    );
}

#[test]
fn unknown_fields_are_named_once_and_not_without_end() {
    let fields: String =
        (0..40).map(|number| format!("fork_field_{number}: 1 fork_field_0 {{ }} ")).collect();
    let net = Net::from_text(&format!(
        "{fields} layer {{ {fields} type: 'Data' top: 'data' data_param {{ source: 's' batch_size: 1 }} }}"
    ))
    .unwrap();
    let of_net = net.warnings(&NetState::default()).unwrap();
    let of_layer = &net.data_layers(&NetState::default()).unwrap()[0].warnings;
    assert_eq!((of_net.len(), of_layer.len()), (33, 33));
    assert_eq!(of_net[0].to_string(), "1:1: the field \"fork_field_0\" is unknown and is ignored");
    assert_eq!(of_net[32].to_string(), "8 more unknown fields are ignored");
    let last = of_layer[32].to_string();
    assert_eq!(last, "layer number 0 (without a name): 8 more unknown fields are ignored");
}

#[test]
fn a_field_behind_a_layer_is_the_nets() {
    let net = Net::from_text(
        "layer { name: 'd' type: 'Data' top: 'data' data_param { source: 's' batch_size: 1 } } profile: 1",
    )
    .unwrap();
    assert_eq!(warnings(&net), [""; 0]);
    let of_net = net.warnings(&NetState::default()).unwrap();
    assert_eq!((of_net.len(), &of_net[0].layer), (1, &None));
    let solver = Net::from_text("layer { name: 'd' } test_net: 'x'").unwrap_err();
    assert!(matches!(*solver.cause, NetCause::Solver { field: "test_net" }), "{solver}");
}

#[test]
fn a_fork_field_is_refused_where_it_would_be_lost() {
    let text = "layer { name: 'd' transform_param { display: true resize_param { } } }";
    let error = percolator_net::proto::NetParameter::from_text(text).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "1:51: layer number 0 (without a name): transform_param.resize_param is a field of SSD, NVCaffe \
             and Intel Caffe that"
        ),
        "{error}"
    );
    assert!(Net::from_text(text).is_ok());
    assert!(percolator_net::proto::NetParameter::from_text(&text.replace("resize_param { }", "")).is_ok());
}
