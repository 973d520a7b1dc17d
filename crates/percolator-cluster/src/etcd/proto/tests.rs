//! What is checked in is what `proto/etcd.proto` generates today.

use std::path::{Path, PathBuf};

/// The variable that, when it is set, makes the test write the file instead of comparing it.
const WRITE: &str = "PERCOLATOR_WRITE_PROTO";

const HEAD: &str = "\
// Generated from proto/etcd.proto by protox and tonic-prost-build. Do not edit: change the schema, then run
//
//     PERCOLATOR_WRITE_PROTO=1 cargo test -p percolator-cluster --lib proto::
//
// which writes this file. Without the variable, the same test compares it.

";

/// The code that the schema in this folder generates.
fn generate(folder: &Path) -> String {
    let descriptors = protox::compile(["etcd.proto"], [folder]).expect("the schema is valid");
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    HEAD.to_owned() + &std::fs::read_to_string(out.path().join("etcdserverpb.rs")).unwrap()
}

#[test]
fn what_is_generated_is_current() {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let code = generate(&package.join("proto"));
    let file = package.join("src/etcd/proto/etcd.rs");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(file, code).unwrap();
        return;
    }
    let is_current = std::fs::read_to_string(file).unwrap() == code;
    assert!(
        is_current,
        "etcd.rs is not what proto/etcd.proto generates; to write it anew, run {WRITE}=1 cargo test \
         -p percolator-cluster --lib proto::"
    );
}
