//! The code that is checked in is what `proto/caffe.proto` generates today.

use std::path::{Path, PathBuf};

use prost_reflect::prost_types::DescriptorProto;
use prost_reflect::prost_types::field_descriptor_proto::Type;

/// The variable that, when it is set, makes the test write the file instead of comparing it.
const WRITE: &str = "PERCOLATOR_WRITE_PROTO";

const HEAD: &str = "\
// Generated from proto/caffe.proto by protox and prost-build. Do not edit: change the schema, then run
//
//     PERCOLATOR_WRITE_PROTO=1 cargo test -p percolator-net --lib proto::
//
// which writes this file. Without the variable, the same test compares it with what the schema generates.

";

/// Makes numbers of a message's enums: the tables beside what reads them have their names.
fn enums_to_numbers(message: &mut DescriptorProto) {
    message.enum_type.clear();
    message.nested_type.iter_mut().for_each(enums_to_numbers);
    for field in message.field.iter_mut().filter(|field| field.r#type() == Type::Enum) {
        field.set_type(Type::Int32);
        field.type_name = None;
        // Both enums that have a default are listed in `text/schema.rs`.
        field.default_value = field.default_value.take().map(|name| match &*name {
            "LEVELDB" => "0".to_owned(),
            "TEST" => "1".to_owned(),
            other => panic!("{other} has a number"),
        });
    }
}

/// What the schema in this folder generates.
fn generate(folder: &Path) -> String {
    let mut descriptors = protox::compile(["caffe.proto"], [folder]).expect("the schema is valid");
    for file in &mut descriptors.file {
        file.enum_type.clear();
        file.message_type.iter_mut().for_each(enums_to_numbers);
    }
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
