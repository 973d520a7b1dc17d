//! Graphs that lie: messages in messages without end, constants and shapes larger than anything. Each is an
//! error that says what is wrong. (`models` damages files of every form.)

use std::path::Path;

use percolator_tensorflow::graph::GraphError;
use percolator_tensorflow::{MetaGraph, Tensor};

use crate::models::SMALL;

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// An error says which file it is about.
fn names(error: &GraphError, path: &Path) {
    let message = error.to_string();
    assert!(message.starts_with(path.to_str().unwrap()), "{message}");
}

#[test]
fn a_message_does_not_repeat_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no.meta");
    let error = MetaGraph::open(&path).unwrap_err();
    names(&error, &path);
    let cause = std::error::Error::source(&error).expect("the system's error").to_string();
    assert!(!cause.is_empty() && !error.to_string().contains(&cause), "{error}");
    write(&path, b"node { name: 'x' op: 'NoOp' }");
    let error = MetaGraph::open(&path).unwrap().constant("x").unwrap_err();
    assert!(error.to_string().ends_with("a node of operation \"NoOp\" has no value in the graph"), "{error}");
    assert!(std::error::Error::source(&error).is_none(), "the message has said it");
}

#[test]
fn a_field_that_nobody_knows_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.meta");
    write(&path, SMALL.replace("producer", "prodcuer").as_bytes());
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    let expected = ":8:14: not a MetaGraphDef in text: field 'prodcuer' not found";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn messages_without_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.meta");
    let within = |tag: u8, inside: Vec<u8>| {
        let mut outside = vec![tag];
        let mut length = inside.len();
        while length >= 128 {
            outside.push(u8::try_from(length & 127).unwrap() | 128);
            length >>= 7;
        }
        outside.push(u8::try_from(length).unwrap());
        outside.extend(inside);
        outside
    };
    // `attr { value { func { attr { value { func { ...`, from the inside out.
    let mut bytes = Vec::new();
    for _ in 0..700 {
        bytes = within(0x12, within(0x12, within(0x52, bytes)));
    }
    write(&path, &within(0x12, within(0x0a, within(0x2a, within(0x12, within(0x52, bytes))))));
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    assert!(error.contains("recursion limit reached"), "{error}");
    // `experimental_type { args { args { ...`, which is only printed.
    let mut bytes = Vec::new();
    for _ in 0..2000 {
        bytes = within(0x12, bytes);
    }
    write(&path, &within(0x12, within(0x0a, within(0x3a, bytes))));
    let error = MetaGraph::open(&path).unwrap().to_text().unwrap_err().to_string();
    assert!(error.contains("recursion limit reached"), "{error}");
    // A group that nobody knows, in itself.
    write(&path, &[0xfb, 0x7d].repeat(100_000));
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    assert!(error.contains("recursion limit reached"), "{error}");
}

#[test]
fn a_constant_is_as_large_as_is_allowed_and_no_larger() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    let constant = |tensor: &str| {
        let node = r#"node { name: "c" op: "Const" attr { key: "value" value { tensor {"#;
        write(&path, format!("{node} {tensor} }} }} }} }}").as_bytes());
        MetaGraph::open(&path).unwrap()
    };
    let graph = constant("dtype: DT_INT16 int_val: 1 int_val: -2 tensor_shape { dim { size: 5 } }");
    assert_eq!(*graph.constant("c").unwrap().values::<i16>().unwrap(), [1, -2, -2, -2, -2]);
    let graph = constant("dtype: DT_BFLOAT16 tensor_shape { dim { size: 3 } }");
    assert_eq!(graph.constant("c").unwrap().bytes().unwrap(), [0; 6]);
    let graph = constant("dtype: DT_INT32 int_val: 1 int_val: 2 int_val: 3 tensor_shape { dim { size: 2 } }");
    assert_eq!(*graph.constant("c").unwrap().values::<i32>().unwrap(), [1, 2]);
    let graph = constant("dtype: DT_FLOAT8_E5M2 float8_val: 'ab' tensor_shape { dim { size: 3 } }");
    assert_eq!(graph.constant("c").unwrap().bytes().unwrap(), b"abb");
    // A few bytes for a million elements.
    let graph =
        constant("dtype: DT_INT64 int64_val: 7 tensor_shape { dim { size: 1000 } dim { size: 1000 } }");
    assert!(graph.constant("c").unwrap().values::<i64>().unwrap().iter().all(|value| *value == 7));
    let of = |graph: &MetaGraph| graph.constant("c").unwrap_err().to_string();
    let graph = constant("dtype: DT_INT64 int64_val: 7 tensor_shape { dim { size: 134217729 } }");
    let error = of(&graph);
    assert!(error.ends_with("has 1073741832 bytes: 1073741824 are allowed"), "{error}");
    for (tensor, wanted) in [
        ("dtype: DT_BOOL tensor_shape { dim { size: 4611686018427387904 } dim { size: 16 } }", "are allowed"),
        ("dtype: DT_STRING tensor_shape { dim { size: 999999999999 } }", "are allowed"),
        ("dtype: DT_STRING tensor_content: '\\005ab' tensor_shape { dim { size: 1 } }", "where 2 are left"),
        ("dtype: DT_STRING tensor_content: 'ab' tensor_shape { dim { size: 3 } }", "cannot hold 3 lengths"),
        ("dtype: DT_FLOAT tensor_content: 'abc' tensor_shape { dim { size: 1 } }", "has 4 bytes, not 3"),
        ("dtype: DT_FLOAT tensor_shape { dim { size: -1 } }", "the extent -1, but"),
        ("dtype: DT_FLOAT tensor_shape { unknown_rank: true }", "an unknown rank, but"),
        ("dtype: DT_RESOURCE", "of type resource"),
        ("dtype: 77", "type number 77"),
    ] {
        let error = of(&constant(tensor));
        assert!(error.contains(wanted) && error.contains("node \"c\""), "{error}");
    }
}

#[test]
fn a_shape_has_as_many_axes_as_tensorflow_allows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    let graph = |rank| {
        let dims = "dim { size: 1 } ".repeat(rank);
        let constant =
            format!("key: \"value\" value {{ tensor {{ dtype: DT_INT8 tensor_shape {{ {dims}}} }} }}");
        let shape = format!("key: \"shape\" value {{ shape {{ {dims}}} }}");
        let nodes = [("c", "Const", constant), ("p", "Placeholder", shape)];
        let node = |(name, op, attr)| format!("node {{ name: \"{name}\" op: \"{op}\" attr {{ {attr} }} }}\n");
        write(&path, nodes.map(node).concat().as_bytes());
        MetaGraph::open(&path).unwrap()
    };
    let most = graph(254);
    assert_eq!(most.constant("c").unwrap().shape().len(), 254);
    assert_eq!(most.placeholders().unwrap()[0].shape.rank(), Some(254));
    let more = graph(255);
    let error = more.constant("c").unwrap_err().to_string();
    assert!(error.contains("the value has 255 axes, but a value has up to 254 axes"), "{error}");
    let error = more.placeholders().unwrap_err().to_string();
    assert!(error.ends_with("the shape of p has 255 axes, where 254 are allowed"), "{error}");
}

#[test]
fn the_front_of_a_constant_costs_only_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    let front = |tensor: &str, most| {
        let node = r#"node { name: "c" op: "Const" attr { key: "value" value { tensor {"#;
        write(&path, format!("{node} {tensor} }} }} }} }}").as_bytes());
        let graph = MetaGraph::open(&path).unwrap();
        let (_, constant) = graph.constants().next().unwrap();
        constant.front(most).map(Tensor::into_owned).map_err(|error| error.to_string())
    };
    let dims = "tensor_shape { dim { size: 1000000000000 } dim { size: 2 } }";
    // Nobody could have the whole.
    let tensor = front(&format!("dtype: DT_INT64 int64_val: 3 int64_val: 7 {dims}"), 3).unwrap();
    assert_eq!((tensor.shape(), &*tensor.values::<i64>().unwrap()), (&[3][..], &[3, 7, 7][..]));
    let tensor = front(&format!("dtype: DT_STRING string_val: 'a' {dims}"), 2).unwrap();
    assert_eq!(tensor, Tensor::strings([2], [&b"a"[..]; 2]).unwrap());
    let error = front(&format!("dtype: DT_BOOL {dims}"), usize::MAX).unwrap_err();
    assert!(error.ends_with("1073741824 are allowed"), "{error}");
    let dims = "tensor_shape { dim { size: 3 } dim { size: 1 } }";
    let bytes = format!("dtype: DT_INT16 tensor_content: '\\001\\000\\002\\000\\003\\000' {dims}");
    assert_eq!(*front(&bytes, 2).unwrap().values::<i16>().unwrap(), [1, 2]);
    assert_eq!(*front(&bytes, 9).unwrap().values::<i16>().unwrap(), [1, 2, 3]);
    assert_eq!(front(&bytes, 0).unwrap().shape(), [0]);
    let packed = format!("dtype: DT_STRING tensor_content: '\\001\\000\\002abc' {dims}");
    assert_eq!(front(&packed, 2).unwrap(), Tensor::strings([2], [&b"a"[..], b""]).unwrap());
    // What is damaged behind the front is damaged.
    let cut = format!("dtype: DT_STRING tensor_content: '\\001\\000\\002ab' {dims}");
    assert!(front(&cut, 1).unwrap_err().contains("string 2 has 2 bytes, where 1 are left"));
    let cut = format!("dtype: DT_INT16 tensor_content: '\\001\\000\\002\\000' {dims}");
    assert!(front(&cut, 1).unwrap_err().ends_with("has 6 bytes, not 4"));
    // Scalars have one element.
    assert_eq!(*front("dtype: DT_FLOAT float_val: 2", 5).unwrap().values::<f32>().unwrap(), [2.0]);
}

/// A graph whose variables are restored by one key of 64 KiB; each of these variables is assigned so often.
fn restored_by_one_key(variables: usize, assigns: usize) -> String {
    let key = "k".repeat(1 << 16);
    let node =
        |name: &str, op: &str, rest: &str| format!("node {{ name: \"{name}\" op: \"{op}\" {rest} }}\n");
    let value =
        format!("attr {{ key: \"value\" value {{ tensor {{ dtype: DT_STRING string_val: \"{key}\" }} }} }}");
    let mut text = node("keys", "Const", &value);
    text += &node("r", "RestoreV2", "input: \"path\" input: \"keys\" input: \"slices\"");
    for variable in 0..variables {
        text += &node(&format!("v{variable}"), "VariableV2", "");
        for assign in 0..assigns {
            let inputs = format!("input: \"v{variable}\" input: \"r\"");
            text += &node(&format!("a{variable}_{assign}"), "Assign", &inputs);
        }
    }
    text
}

#[test]
fn keys_of_variables_have_as_many_bytes_as_are_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    write(&path, restored_by_one_key(1, 5000).as_bytes());
    let variables = MetaGraph::open(&path).unwrap().variables().unwrap();
    assert_eq!(variables.len(), 1);
    assert_eq!(variables[0].checkpoint_key.as_deref().map(str::len), Some(1 << 16));
    write(&path, restored_by_one_key(4097, 1).as_bytes());
    let variables = MetaGraph::open(&path).unwrap().variables();
    let error = variables.map(|variables| variables.len()).unwrap_err();
    names(&error, &path);
    assert!(error.to_string().contains("the keys of variables have more than 268435456 bytes"), "{error}");
}

/// In time that grows with the names and the nodes, and not with their product.
#[test]
fn a_function_that_restores_is_read_once_however_often_it_is_named() {
    /// Were it read each time, that would take hours.
    const MANY: usize = 200_000;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    let names = "func { name: \"f\" } ".repeat(MANY);
    let call = format!("attr {{ key: \"f\" value {{ list {{ {names} }} }} }}");
    let nodes: String =
        (0..MANY).map(|number| format!("node_def {{ name: \"n{number}\" op: \"NoOp\" }}\n")).collect();
    let function = format!("function {{ signature {{ name: \"f\" }} {nodes} }}");
    let graph = format!("node {{ name: \"call\" op: \"PartitionedCall\" {call} }} library {{ {function} }}");
    write(&path, format!("graph_def {{ {graph} }} saver_def {{ restore_op_name: \"call\" }}").as_bytes());
    assert_eq!(MetaGraph::open(&path).unwrap().variables().unwrap(), []);
}

/// A chain of objects, each the only child of the one before, has a path of each length.
#[test]
fn paths_of_variables_take_as_much_memory_as_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph.pbtxt");
    let chain = |objects: usize| {
        let object = |number| {
            let child = format!("children {{ node_id: {} local_name: \"a\" }}", number + 1);
            let child = if number + 1 < objects { child } else { String::new() };
            format!("nodes {{ {child} variable {{ dtype: DT_FLOAT name: \"v\" }} }}\n")
        };
        let objects: String = (0..objects).map(object).collect();
        write(&path, format!("object_graph_def {{ {objects} }}").as_bytes());
        MetaGraph::open(&path).unwrap().variables().map(|variables| variables.len())
    };
    assert_eq!(chain(100).unwrap(), 100);
    let error = chain(3200).unwrap_err();
    names(&error, &path);
    assert!(error.to_string().contains("the paths of variables"), "{error}");
}
