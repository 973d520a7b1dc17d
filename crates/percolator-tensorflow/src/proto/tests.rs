//! What is checked in is what `proto/tensorflow.proto`, and the schema that it imports, generate today.

use std::path::{Path, PathBuf};

use prost::Message as _;

/// The variable that, when it is set, makes the test write the files instead of comparing them.
const WRITE: &str = "PERCOLATOR_WRITE_PROTO";

const HEAD: &str = "\
// Generated from proto/tensorflow.proto by protox and prost-build. Do not edit: change the schema, then run
//
//     PERCOLATOR_WRITE_PROTO=1 cargo test -p percolator-tensorflow --lib proto::
//
// which writes this file and tensorflow.bin. Without the variable, the same test compares them.

";

/// What the schema in this folder generates: the code, and the descriptors.
fn generate(folder: &Path) -> (String, Vec<u8>) {
    let mut descriptors = protox::compile(["tensorflow.proto"], [folder]).expect("the schema is valid");
    let out = tempfile::tempdir().unwrap();
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).out_dir(out.path()).compile_fds(descriptors.clone()).unwrap();
    let code = HEAD.to_owned() + &std::fs::read_to_string(out.path().join("tensorflow.rs")).unwrap();
    for file in &mut descriptors.file {
        // Comments and their places are for people.
        file.source_code_info = None;
        file.message_type.iter_mut().for_each(maps_to_lists);
    }
    (code, descriptors.encode_to_vec())
}

/// Makes lists of a message's maps: prost-reflect would bring their entries out of order.
fn maps_to_lists(message: &mut prost_types::DescriptorProto) {
    if let Some(options) = &mut message.options {
        options.map_entry = None;
    }
    message.nested_type.iter_mut().for_each(maps_to_lists);
}

#[test]
fn what_is_generated_is_current() {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (code, descriptors) = generate(&package.join("proto"));
    let (code_file, descriptors_file) =
        (package.join("src/proto/tensorflow.rs"), package.join("src/proto/tensorflow.bin"));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(code_file, code).unwrap();
        std::fs::write(descriptors_file, descriptors).unwrap();
        return;
    }
    let how = format!("to write it anew, run {WRITE}=1 cargo test -p percolator-tensorflow --lib proto::");
    let is_current = std::fs::read_to_string(code_file).unwrap() == code;
    assert!(is_current, "tensorflow.rs is not what proto/tensorflow.proto generates; {how}");
    let is_current = std::fs::read(descriptors_file).unwrap() == descriptors;
    assert!(is_current, "tensorflow.bin is not what proto/tensorflow.proto describes; {how}");
}

#[test]
fn messages_are_found_by_name() {
    for name in ["SavedModel", "MetaGraphDef", "GraphDef", "CheckpointState"] {
        assert_eq!(super::descriptor(name).name(), name);
    }
}
