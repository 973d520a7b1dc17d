//! Models with every byte changed or cut off: an error, or another model, and never a panic. Whatever opens
//! is read to its last corner.

use std::path::Path;

use percolator_tensorflow::graph::{Attr, GraphError};
use percolator_tensorflow::{MetaGraph, SavedModel, Tensor};

use crate::golden::data;

/// What damage may make of a constant at the most.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Reads all that there is of a graph.
fn read_all(graph: &MetaGraph, with_text: bool) {
    let _ = (graph.placeholders(), graph.variables(), graph.faults(), graph.collections().count());
    for signature in graph.signatures().into_iter().flatten() {
        let _ = graph.needed_for(&signature).map(|nodes| graph.functions_of(nodes).len());
        assert!(!signature.inputs().iter().any(|input| input.to_string().is_empty()));
    }
    for node in graph.nodes() {
        let _ = node.inputs().count();
        for (_, attr) in node.attrs() {
            if let Attr::Tensor(constant) = attr {
                let bytes = |value: Tensor<'_>| value.bytes().map_or(0, <[u8]>::len);
                let _ = constant.value_within(VALUE_BYTES_MAX).map(bytes);
            }
        }
    }
    if let Some(first) = graph.nodes().next() {
        let _ = (graph.consumers(first.name()), graph.fed_by(first.name()));
    }
    for asset in graph.assets().into_iter().flatten() {
        let _ = asset.path();
    }
    if let Ok(Some(objects)) = graph.objects() {
        objects.objects().for_each(|object| drop((object.kind().name(), objects.path(object.number()))));
    }
    if with_text {
        let _ = (graph.to_text(), graph.to_dot());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
}

/// An error says which file it is about.
fn names(error: &GraphError, path: &Path) {
    let message = error.to_string();
    assert!(message.starts_with(path.to_str().unwrap()), "{message}");
}

#[test]
fn a_model_with_any_byte_changed_is_another_model_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved_model.pb");
    let whole = std::fs::read(data("module/saved_model.pb")).unwrap();
    let (mut opened, mut refused) = (0, 0);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= [0xff, 0x01, 0x80, 0x08, 0x10][at % 5];
        write(&path, &bytes);
        match SavedModel::open(folder.path()) {
            Ok(model) => {
                opened += 1;
                // Opening checks every byte. What is read then has few ways to fail, and takes longer.
                if at % 4 == 0 {
                    model.meta_graphs().iter().for_each(|graph| read_all(graph, at % 32 == 0));
                }
                assert_eq!(model.to_bytes(), bytes);
            }
            Err(error) => {
                refused += 1;
                names(&error, &path);
            }
        }
    }
    assert!(opened > 1000 && refused > 1000, "{opened} opened, {refused} refused");
    for length in (0..whole.len()).step_by(7) {
        write(&path, &whole[..length]);
        match SavedModel::open(folder.path()) {
            Ok(model) => model.meta_graphs().iter().for_each(|graph| read_all(graph, false)),
            Err(error) => names(&error, &path),
        }
    }
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

const SMALL: &str = r#"meta_info_def { tags: "serve" tensorflow_version: "2.21.0" any_info { type_url: "x" } }
graph_def {
  node { name: "x" op: "Placeholder" attr { key: "shape" value { shape { dim { size: -1 } } } } }
  node { name: "c" op: "Const" attr { key: "value" value { tensor { dtype: DT_FLOAT float_val: 1.5
    tensor_shape { dim { size: 30 } dim { size: 2 } } } } } attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "y" op: "Add" input: "x" input: "c:0" input: "^c" experimental_type { args { s: "t" } } }
  versions { producer: 7 } library { function { signature { name: "f" } node_def { name: "n" op: "NoOp" } } }
}
collection_def { key: "variables" value { bytes_list { value: "\n\003v:0" } } }
signature_def { key: "s" value { inputs { key: "x" value { name: "x:0" dtype: DT_FLOAT } }
  outputs { key: "y" value { name: "y:0" } } method_name: "m" } }
object_graph_def { nodes { children { node_id: 1 local_name: "v" } user_object { identifier: "u" } }
  nodes { variable { name: "v" dtype: DT_FLOAT } } }
4711: "unknown"
"#;

#[test]
fn every_bit_of_a_small_meta_graph_may_be_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.meta");
    write(&text, SMALL.as_bytes());
    let graph = MetaGraph::open(&text).unwrap();
    assert_eq!(graph.needed_for(&graph.signature("s").unwrap()).unwrap().len(), 3);
    assert!(graph.to_text().ends_with("4711: \"unknown\"\n"));
    let whole = graph.to_bytes();
    let path = folder.path().join("binary.meta");
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            write(&path, &bytes);
            match MetaGraph::open(&path) {
                Ok(graph) => {
                    read_all(&graph, true);
                    // What opens also goes through text.
                    write(&text, graph.to_text().as_bytes());
                    let again = MetaGraph::open(&text);
                    assert!(again.is_ok() || graph.is_alone() || graph.to_text().is_empty(), "{again:?}");
                }
                Err(error) => names(&error, &path),
            }
        }
        write(&path, &whole[..at]);
        match MetaGraph::open(&path) {
            Ok(graph) => read_all(&graph, true),
            Err(error) => names(&error, &path),
        }
    }
}

#[test]
fn every_character_of_a_text_may_be_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.meta");
    for at in 0..SMALL.len() {
        for other in *b"\"{}\n7x:\xff" {
            let mut bytes = SMALL.as_bytes().to_vec();
            bytes[at] = other;
            write(&path, &bytes);
            match MetaGraph::open(&path) {
                Ok(graph) => read_all(&graph, true),
                Err(error) => names(&error, &path),
            }
        }
    }
    write(&path, SMALL.replace("producer", "prodcuer").as_bytes());
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    assert!(
        error.ends_with(":7:14: not a MetaGraphDef in text: VersionDef has no field prodcuer"),
        "{error}"
    );
}

#[test]
fn messages_without_end_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.meta");
    // `experimental_type { args { args { ...`, from the inside out.
    let mut bytes = Vec::new();
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
    for _ in 0..2000 {
        bytes = within(0x12, bytes);
    }
    let bytes = within(0x12, within(0x0a, within(0x3a, bytes)));
    write(&path, &bytes);
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    assert!(error.contains("messages lie more than 100 deep"), "{error}");
    // A group that nobody knows, in itself.
    write(&path, &[0xfb, 0x7d].repeat(100_000));
    let error = MetaGraph::open(&path).unwrap_err().to_string();
    assert!(error.contains("messages lie more than 100 deep"), "{error}");
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
