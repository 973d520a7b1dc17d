//! A net of a few kilobytes that takes gigabytes to read ends a program that only wanted to look at it. These
//! tests read and search nets built to need as much memory as possible, and compare the peak with the
//! promise: about a hundred times the net's own bytes, a share of 160 MiB for its layers, and nothing for
//! weights.

#![allow(clippy::unwrap_used, reason = "a test")]

use percolator::net::NetState;
use percolator::{Feed, Net, proto};
use prost::Message as _;

use crate::allocator::{one_at_a_time, peak};

/// The most bytes that were in use at once beyond those before.
fn most(work: impl FnOnce()) -> usize {
    peak(work).1
}

fn search(net: &Net) {
    let state = NetState::default();
    let _ = net.data_layers(&state);
    let _ = net.warnings(&state);
}

#[test]
fn a_net_takes_a_bounded_multiple_of_its_bytes() {
    let _one = one_at_a_time();
    let layer = "layer { type: 'Data' top: 'a' data_param { source: 's' batch_size: 1";
    for (open, piece, close, times) in [
        (format!("{layer} cache: 1"), " threads: 1", "} }", 20),
        (format!("{layer} }}"), " x: 1", "}", 20),
        (format!("{layer} }}"), " include{}", "}", 50),
        (format!("{layer} }} include: [{{}}"), ",{}", "] }", 70),
        (format!("{layer} }} top: [''"), ",''", "] }", 30),
        (String::new(), "x:1 ", "", 20),
        ("input_dim: [0".to_owned(), ",0", "]", 10),
        ("layer { blobs { ".to_owned(), "data: 0.1 ", "} }", 1),
        ("layer { ".to_owned(), "tops: 1 ", "}", 1),
        ("layer { data_param { ".to_owned(), "x: 1 ", "} }", 1),
        ("layer { name: '".to_owned(), "\\\\", "' }", 3),
        ("layer { ".to_owned(), "long_", ": 1 }", 1),
        ("layer { ".to_owned(), "a { ", "", 1),
        ("layer ".to_owned(), "# ", "", 1),
    ] {
        let text = format!("{open}{}{close}", piece.repeat((1 << 20) / piece.len()));
        let used = most(|| drop(Net::from_text(&text).map(|net| search(&net))));
        // A little is used whatever the length.
        assert!(used <= times * text.len() + 4096, "{piece}: {used} bytes for {} of text", text.len());
        let Ok(net) = proto::NetParameter::from_text(&text) else { continue };
        let wire = net.encode_to_vec();
        drop(net);
        let used = most(|| drop(Net::from_binary(&wire).map(|net| search(&net))));
        assert!(used <= 110 * wire.len() + 4096, "{piece}: {used} bytes for {} on the wire", wire.len());
    }
}

#[test]
fn blobs_take_no_copy_of_their_layers_name() {
    let _one = one_at_a_time();
    // Long in the text, and longer when printed.
    let name = "\\001".repeat(60);
    let tops: Vec<_> = (0..1 << 17).map(|top| format!("'{top:x}'")).collect();
    let text = format!("layer {{ name: '{name}' type: 'Fork' top: [{}] }}", tops.join(","));
    drop(tops);
    let used = most(|| drop(Net::from_text(&text).map(|net| search(&net))));
    assert!(used <= 30 * text.len(), "{used} bytes for {} of text", text.len());
}

#[test]
fn each_layer_of_a_net_adds_the_same_to_its_feeds() {
    let _one = one_at_a_time();
    let used = |layers: usize| {
        let layer = |number| {
            format!("layer {{ type: 'Data' top: '{number}' data_param {{ source: 's' batch_size: 1 }} }}")
        };
        let net = Net::from_text(&(0..layers).map(layer).collect::<String>()).unwrap();
        most(|| drop(Feed::layers_of(&net, &NetState::default()).unwrap()))
    };
    let (few, many) = (used(500), used(10_000));
    // Twice, for vectors that double.
    assert!(many <= 2 * 20 * few, "500 layers take {few} bytes, and 10,000 take {many}");
}

#[test]
fn the_layers_of_a_net_take_no_more_than_is_said() {
    let _one = one_at_a_time();
    for layer in ["layer{}", "layers{}", "layers{layer{}}", "layer{tops:1}", "layer{data_param{x:1}}"] {
        let text = layer.repeat(1 << 16);
        let wire = proto::NetParameter::from_text(&text).unwrap().encode_to_vec();
        let of_text = most(|| search(&Net::from_text(&text).unwrap()));
        let of_wire = most(|| search(&Net::from_binary(&wire).unwrap()));
        assert!(of_text.max(of_wire) <= 160 << 20, "{layer}: {of_text} and {of_wire} bytes");
    }
}
