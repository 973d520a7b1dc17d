//! The code that is checked in is what `proto/caffe.proto` generates today.

use std::path::{Path, PathBuf};

/// The variable that, when it is set, makes the test write the file instead of comparing it.
const WRITE: &str = "PERCOLATOR_WRITE_PROTO";

const HEAD: &str = "\
// Generated from proto/caffe.proto by protox and prost-build. Do not edit: change the schema, then run
//
//     PERCOLATOR_WRITE_PROTO=1 cargo test -p percolator-net --lib proto::
//
// which writes this file. Without the variable, the same test compares it with what the schema generates.

";

/// What the schema in this folder generates.
fn generate(folder: &Path) -> String {
    let descriptors = protox::compile(["caffe.proto"], [folder]).expect("the schema is valid");
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new().out_dir(out.path()).compile_fds(descriptors).unwrap();
    HEAD.to_owned() + &std::fs::read_to_string(out.path().join("caffe.rs")).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "generates and formats code, for hours")]
fn the_generated_code_is_current() {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (generated, path) = (generate(&package.join("../../proto")), package.join("src/proto/caffe.rs"));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, generated).unwrap();
        return;
    }
    let checked_in = std::fs::read_to_string(&path).unwrap();
    if generated != checked_in {
        let same = generated.lines().zip(checked_in.lines()).take_while(|(new, old)| new == old).count();
        let line = |text: &str| text.lines().nth(same).unwrap_or("no more lines").to_owned();
        panic!(
            "{}:{}: the file has {:?}, and proto/caffe.proto generates {:?}; to write the file anew, run \
             {WRITE}=1 cargo test -p percolator-net --lib proto::",
            path.display(),
            same + 1,
            line(&checked_in),
            line(&generated),
        );
    }
}
