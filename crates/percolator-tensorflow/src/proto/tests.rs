//! What is checked in is what `proto/tensorflow.proto`, and the schema that it imports, generate today.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::source_code_info::Location;
use prost_types::{DescriptorProto, SourceCodeInfo};

/// The variable that, when it is set, makes the test write the files instead of comparing them.
const WRITE: &str = "PERCOLATOR_WRITE_PROTO";

const HEAD: &str = "\
// Generated from proto/tensorflow.proto by protox and prost-build. Do not edit: change the schema, then run
//
//     PERCOLATOR_WRITE_PROTO=1 cargo test -p percolator-tensorflow --lib proto::
//
// which writes this file and tensorflow.bin. Without the variable, the same test compares them.

";

/// The messages that nothing in Rust reads. Fields of these types are not generated either.
const NOT_READ: [&str; 23] = [
    "BoundedTensorSpecProto",
    "DictValue",
    "FullTypeDef",
    "FunctionDef.ArgAttrs",
    "FunctionSpec",
    "GradientDef",
    "GraphDebugInfo",
    "ListValue",
    "NamedTupleValue",
    "NodeDef.ExperimentalDebugInfo",
    "NoneValue",
    "OpDef.AttrDef",
    "OpDeprecation",
    "OpList",
    "PairValue",
    "RegisteredGradient",
    "ResourceHandleProto",
    "SaveableObject",
    "SavedConcreteFunction",
    "StructuredValue",
    "TensorSpecProto",
    "TupleValue",
    "VariantTensorDataProto",
];

/// The other fields that nothing in Rust reads, by their messages.
const FIELDS_NOT_READ: [(&str, &[&str]); 16] = [
    ("CapturedTensor", &["concrete_function"]),
    ("FunctionDef", &["attr", "resource_arg_unique_id", "control_ret"]),
    ("GraphDef", &["version"]),
    (
        "MetaGraphDef.MetaInfoDef",
        &["meta_graph_version", "any_info", "stripped_default_attrs", "function_aliases"],
    ),
    (
        "OpDef",
        &[
            "control_output",
            "summary",
            "description",
            "is_commutative",
            "is_aggregate",
            "is_stateful",
            "allows_uninitialized_input",
            "is_distributed_communication",
        ],
    ),
    ("OpDef.ArgDef", &["description", "type_attr", "number_attr", "type_list_attr", "is_ref"]),
    ("RegisteredSaver", &["object_name"]),
    ("SavedBareConcreteFunction", &["argument_keywords", "allowed_positional_arguments"]),
    ("SavedObject", &["dependencies", "serialized_user_proto", "registered_saver"]),
    ("SavedUserObject", &["version", "metadata"]),
    (
        "SavedVariable",
        &["synchronization", "aggregation", "device", "experimental_distributed_variable_components"],
    ),
    ("SaverDef", &["max_to_keep", "sharded", "keep_checkpoint_every_n_hours", "version"]),
    ("TensorProto", &["version_number"]),
    ("TrackableObjectGraph.TrackableObject", &["has_checkpoint_values"]),
    ("TypeSpecProto", &["num_flat_components"]),
    (
        "VariableDef",
        &[
            "initial_value_name",
            "initializer_name",
            "snapshot_name",
            "is_resource",
            "synchronization",
            "aggregation",
        ],
    ),
];

/// Whether a type is one of these, or lies in one.
fn is_not_read(type_name: &str) -> bool {
    let rest = |name: &&str| type_name.strip_prefix(".tensorflow.")?.strip_prefix(*name);
    NOT_READ.iter().filter_map(rest).any(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a field of the message of this name is one that is read, if its type is.
fn is_field_read(message: &str, field: &str) -> bool {
    let is_its = |name: &str| message.strip_prefix(".tensorflow.") == Some(name);
    !FIELDS_NOT_READ.iter().any(|(name, fields)| is_its(name) && fields.contains(&field))
}

/// The names of messages, of their fields, and of the messages that lie in them.
fn names(scope: &str, messages: &[DescriptorProto]) -> Vec<String> {
    let with_parts = |message: &DescriptorProto| {
        let name = format!("{scope}.{}", message.name());
        let fields = message.field.iter().map(|field| format!("{name}.{}", field.name())).collect();
        let nested = names(&name, &message.nested_type);
        [vec![name], fields, nested].concat()
    };
    messages.iter().flat_map(with_parts).collect()
}

/// Leaves out of messages what nothing reads, and makes numbers of enums.
fn cut(scope: &str, messages: &mut Vec<DescriptorProto>) {
    let path_of = |message: &DescriptorProto| format!("{scope}.{}", message.name());
    for message in &mut *messages {
        let path = path_of(message);
        cut(&path, &mut message.nested_type);
        message.enum_type.clear();
        let kept: Vec<_> =
            message.nested_type.iter().map(|nested| format!("{path}.{}", nested.name())).collect();
        message.field.retain_mut(|field| {
            if field.r#type() == Type::Enum {
                field.set_type(Type::Int32);
                field.type_name = None;
            }
            let name = field.type_name();
            let is_own = name.starts_with(&format!("{path}."));
            let is_type_kept = !is_own || kept.iter().any(|kept| kept == name);
            !is_not_read(name) && is_type_kept && is_field_read(&path, field.name())
        });
    }
    messages.retain(|message| {
        // Of a map, an entry without a value.
        let is_map = message.options.as_ref().is_some_and(|options| options.map_entry());
        !(is_not_read(&path_of(message)) || is_map && message.field.len() < 2)
    });
}

/// The numbers of lists in the descriptors of a file and of a message, which lead to the places of comments.
const MESSAGES_OF_FILE: i32 = 4;
const FIELDS: i32 = 2;
const NESTED: i32 = 3;
const ONEOFS: i32 = 8;

/// The places of these messages and of what is in them, with the comments on messages.
fn places(at: &[i32], messages: &[DescriptorProto], comments: &HashMap<String, String>) -> Vec<Location> {
    let mut places = Vec::new();
    for (number, message) in (0..).zip(messages) {
        let path = [at, &[number]].concat();
        let within = |list: i32, count: usize| {
            (0..count).map(move |number| vec![list, i32::try_from(number).unwrap()])
        };
        let parts = within(FIELDS, message.field.len()).chain(within(ONEOFS, message.oneof_decl.len()));
        let paths: Vec<_> = parts.map(|part| [&path[..], &part].concat()).collect();
        places.extend(paths.into_iter().map(|path| Location { path, ..Location::default() }));
        places.extend(self::places(&[&path[..], &[NESTED]].concat(), &message.nested_type, comments));
        let leading_comments = comments.get(message.name()).cloned();
        places.push(Location { path, leading_comments, ..Location::default() });
    }
    places
}

/// What the schema in this folder generates: the code, and the descriptors.
fn generate(folder: &Path) -> (String, Vec<u8>) {
    let mut descriptors = protox::compile(["tensorflow.proto"], [folder]).expect("the schema is valid");
    let out = tempfile::tempdir().unwrap();
    let mut config = prost_build::Config::new();
    let mut read = descriptors.clone();
    for file in read.file.iter_mut().filter(|file| file.package() == "tensorflow") {
        let names: Vec<_> = file.message_type.iter().map(|message| message.name().to_owned()).collect();
        cut(".tensorflow", &mut file.message_type);
        file.enum_type.clear();
        let whole = file.source_code_info.take().unwrap_or_default().location;
        let comments = whole.into_iter().filter_map(|location| match location.path[..] {
            // The number of a message in the whole schema.
            [MESSAGES_OF_FILE, number] => {
                Some((names[usize::try_from(number).unwrap()].clone(), location.leading_comments?))
            }
            _ => None,
        });
        let location = places(&[MESSAGES_OF_FILE], &file.message_type, &comments.collect());
        file.source_code_info = Some(SourceCodeInfo { location });
    }
    config.btree_map(["."]).out_dir(out.path()).compile_fds(read).unwrap();
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
fn what_is_not_read_is_in_the_schema() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("proto");
    let descriptors = protox::compile(["tensorflow.proto"], [folder]).expect("the schema is valid");
    let files = descriptors.file.iter().filter(|file| file.package() == "tensorflow");
    let found: Vec<_> = files.flat_map(|file| names(".tensorflow", &file.message_type)).collect();
    let of_message = |(message, fields): &(&str, &[&str])| {
        fields.iter().map(|field| format!("{message}.{field}")).collect::<Vec<_>>()
    };
    let fields = FIELDS_NOT_READ.iter().flat_map(of_message);
    for name in NOT_READ.map(str::to_owned).into_iter().chain(fields) {
        assert!(found.contains(&format!(".tensorflow.{name}")), "the schema has no {name}");
    }
}

#[test]
fn messages_are_found_by_name() {
    for name in ["SavedModel", "MetaGraphDef", "GraphDef", "CheckpointState"] {
        assert_eq!(super::descriptor(name).name(), name);
    }
}
