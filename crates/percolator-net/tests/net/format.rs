//! Texts that protobuf's text format allows or refuses.
//!
//! A net that protobuf reads and Percolator refuses cannot be used; one that only Percolator reads was never
//! Caffe's. So the verdict on each text is recorded here, and `protoc` is run too where it is installed.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use std::io::Write as _;
use std::process::{Command, Stdio};

use percolator_net::Net;

use crate::process::need::missing;

/// Both read these.
const GOOD: &[&str] = &[
    "",
    "name: 'a' 'b' \"c\"",
    "name: 'a' # c",
    "name:'a';input:['a','b'],input:\"c\"",
    "input: []",
    "layer: {} layer <>; layer {}",
    "layer: [{}, < >]",
    "name: '\\a\\b\\f\\n\\r\\t\\v\\\\\\?\\'\\\"'",
    "name: '\\0\\07\\377\\1234\\x4\\xFFF'",
    "name: '\\u00e9\\U0001F600\\ud83d\\ude00'",
    "name: '\\xff'",
    "layer { top: '\\xe4' include { stage: '\\xe9' } }",
    "name: 'a\tb'",
    "input_dim: 0x1F input_dim: 017 input_dim: -3 input_dim: - 3",
    "debug_info: True",
    "debug_info: t",
    "debug_info: 1",
    "state { phase: TEST level: -0 }",
    "state { phase: 1 }",
    "layer { transform_param { scale: .5 } }",
    "layer { transform_param { scale: 1.f } }",
    "layer { transform_param { scale: -inf mean_value: [nan, 1e3, 2F] } }",
    "layer { transform_param { scale: Infinity } }",
];

/// Neither reads these.
const BAD: &[&str] = &[
    "name: '\\q'",
    "name: '\\8'",
    "name: '\\x'",
    "name: '\\u12'",
    "name: 'a\nb'",
    "name: \"a'",
    "name: a",
    "name 'a'",
    "name:: 'a'",
    "name: 'a' name: 'b'",
    "name: 'a' // c",
    "name: 'a' /* c */",
    "input: ['a',]",
    "input: ['a' ; 'b']",
    "input: 'a' ; ; input: 'b'",
    "layer {},,",
    "layer { ]",
    "layer { >",
    "layer {",
    "} ",
    "input_dim: 1.0",
    "input_dim: 08",
    "input_dim: 2147483648",
    "input_dim: 1input_dim: 2",
    "debug_info: 2",
    "debug_info: TRUE",
    "state { phase: 5 }",
    "state { phase: 'TEST' }",
    "layer { transform_param { crop_size: -0 } }",
    "layer { transform_param { scale: 0x10 } }",
    "layer { transform_param { scale: 010 } }",
    "layer { transform_param { scale: 01.5 } }",
    "layer { transform_param { scale: 1e } }",
    "layer { transform_param { scale: 1_0 } }",
    "layer { transform_param { mean_value: [1 2] } }",
    "state { stages: 'a' }",
];

/// Only protobuf reads these: it invents a byte or a character, or accepts a path that is no text.
const THEIRS: &[&str] = &[
    "name: '\\400'",
    "name: '\\777'",
    "name: '\\ud800'",
    "name: '\\udc00'",
    "name: '\\ud800\\u0041'",
    "name: '\\U00110000'",
    "layer { data_param { source: '\\xff' } type: 'Data' }",
];

/// Only Percolator reads these.
const OURS: &[&str] = &[
    "\u{feff}name: 'a'",
    "name: '\\X41'",
    "layer { type: 'Fork' data_param { fork_field: 1 } }",
    "layer { fork_param { } }",
];

/// Whether Percolator reads a text as a net, including the data layers that are requested.
fn is_ours(text: &str) -> bool {
    percolator_net::proto::NetParameter::from_text(text).is_ok() && Net::from_text(text).is_ok()
}

/// Whether protobuf reads it; `None` without protoc.
fn is_theirs(text: &str) -> Option<bool> {
    let protoc = Command::new("protoc")
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../../proto"))
        .args(["--encode=caffe.NetParameter", "caffe.proto"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut protoc = protoc.ok()?;
    // protoc may stop before it has read everything.
    let _ = protoc.stdin.take().unwrap().write_all(text.as_bytes());
    Some(protoc.wait().unwrap().success())
}

#[test]
fn the_verdicts_are_protobufs_but_for_those_that_are_listed() {
    let mut asked = 0;
    for (texts, ours, theirs) in
        [(GOOD, true, true), (BAD, false, false), (THEIRS, false, true), (OURS, true, false)]
    {
        for text in texts {
            assert_eq!(is_ours(text), ours, "{text}");
            if let Some(found) = is_theirs(text) {
                assert_eq!(found, theirs, "protoc of {text}");
                asked += 1;
            }
        }
    }
    if asked == 0 {
        missing("PROTOC", "there is no protoc to compare with; Debian's package is protobuf-compiler");
    }
}

#[test]
fn a_bad_escape_is_shown_as_it_is_written() {
    let error = Net::from_text("name: 'ab\\400c'").unwrap_err().to_string();
    assert!(error.starts_with("1:10: invalid escape sequence in a string, at \\400c: allowed"), "{error}");
    let error = Net::from_text("name: '\\q\u{1}\\\\'").unwrap_err().to_string();
    assert!(
        error.starts_with("1:8: invalid escape sequence in a string, at \\q\\u{1}\\\\: allowed"),
        "{error}"
    );
    let error = Net::from_text("layer: 'a\\n\u{7}'").unwrap_err().to_string();
    assert_eq!(error, "1:8: expected \"{\", found the string \"a\\n\\u{7}\"");
}
