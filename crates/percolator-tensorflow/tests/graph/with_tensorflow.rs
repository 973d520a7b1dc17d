//! Models that TensorFlow makes now, of kinds that `tests/data` has not: we say of them what TensorFlow says,
//! and TensorFlow reads what we print. Needs a `python3` with TensorFlow.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use percolator_tensorflow::graph::{Encoding, SignatureTensor};
use percolator_tensorflow::{Elements, MetaGraph, SavedModel};
use serde_json::{Value, json};

use crate::harness::process::need;

/// Whether TensorFlow is available.
fn has_tensorflow() -> bool {
    need::python("TENSORFLOW", "tensorflow")
}

fn run(what: &str, folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/graph_models.py");
    let output = Command::new("python3").arg(script).arg(what).arg(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {error}");
    print!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn models_of_every_kind_are_read_as_tensorflow_reads_them() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run("make", folder);
    let expected = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let files = expected.as_object().unwrap();
    assert_eq!(files.len(), 12);
    for (file, graphs) in files {
        let path = folder.join(file);
        let ours = |ending: &str| folder.join(format!("{}.ours.{ending}", file.replace('/', ".")));
        let (found, text, bytes) = if file.contains("saved_model") {
            let model = SavedModel::open(path.parent().unwrap()).unwrap();
            (model.meta_graphs().to_vec(), model.to_text().unwrap(), model.to_bytes())
        } else {
            let graph = MetaGraph::open(&path).unwrap();
            let (text, bytes) = (graph.to_text().unwrap(), graph.to_bytes());
            (vec![graph], text, bytes)
        };
        std::fs::write(ours("pbtxt"), text).unwrap();
        std::fs::write(ours("pb"), bytes).unwrap();
        let graphs = graphs.as_array().unwrap();
        assert_eq!(found.len(), graphs.len(), "{file}");
        for (found, wanted) in found.iter().zip(graphs) {
            println!("{file} {:?}", found.tags());
            compare(found, wanted);
        }
    }
    run("check", folder);
}

fn compare(graph: &MetaGraph, wanted: &Value) {
    assert_eq!(json!(graph.tags()), wanted["tags"]);
    assert_eq!(graph.tensorflow_version().unwrap_or_default(), wanted["tensorflow"]);
    assert_eq!(json!(graph.versions().map_or(0, |versions| versions.producer)), wanted["producer"]);
    let nodes: Vec<Value> = graph
        .nodes()
        .map(|node| {
            let attrs: Vec<&str> = node.proto().attr.keys().map(String::as_str).collect();
            json!([node.name(), node.op(), node.input_names(), node.device(), attrs])
        })
        .collect();
    assert_eq!(json!(nodes), wanted["nodes"]);
    let functions: Vec<Value> = graph
        .functions()
        .map(|function| {
            json!([function.name(), function.nodes().map(|node| node.name()).collect::<Vec<_>>()])
        })
        .collect();
    assert_eq!(json!(functions), wanted["functions"]);
    assert_eq!(signatures(graph), wanted["signatures"]);
    let constants: Vec<&str> = graph.constants().map(|(name, _)| name).collect();
    assert_eq!(constants.len(), wanted["constants"].as_object().unwrap().len());
    for name in constants {
        assert_eq!(constant(graph, name), wanted["constants"][name], "{name}");
    }
    assert_eq!(graph.faults(), []);
    let outputs: Vec<&str> =
        wanted["outputs"].as_array().unwrap().iter().map(|output| output.as_str().unwrap()).collect();
    let needed = graph.needed(&outputs, &[] as &[&str]).unwrap();
    let names: BTreeSet<&str> = needed.iter().map(|node| node.name()).collect();
    assert_eq!(json!(names), wanted["needed"]);
    is_in_order(&needed);
    keys(graph, &wanted["checkpoint"]);
}

/// Each node comes after its inputs, but for a loop's next iteration.
fn is_in_order(nodes: &[percolator_tensorflow::graph::Node<'_>]) {
    let mut seen = BTreeSet::new();
    for node in nodes {
        for input in node.inputs() {
            let is_later = nodes.iter().any(|one| one.name() == input.node() && one.op() == "NextIteration");
            assert!(seen.contains(input.node()) || is_later, "{} before {input}", node.name());
        }
        assert!(seen.insert(node.name()), "{} twice", node.name());
    }
}

/// The keys of the variables are those of the checkpoint.
fn keys(graph: &MetaGraph, wanted: &Value) {
    let Some(wanted) = wanted.as_array() else { return };
    let mut found: BTreeSet<String> = BTreeSet::new();
    for variable in graph.variables().unwrap() {
        // A part of a variable is stored under the key of the whole.
        if let Some(slice) = &variable.slice
            && !slice.full_name.is_empty()
        {
            assert_eq!(variable.checkpoint_key.as_deref(), Some(&*slice.full_name));
        }
        found.extend(variable.checkpoint_key);
    }
    let wanted: BTreeSet<String> = wanted
        .iter()
        .map(|key| key.as_str().unwrap().to_owned())
        .filter(|key| !matches!(&**key, "_CHECKPOINTABLE_OBJECT_GRAPH" | "save_counter"))
        .collect();
    assert_eq!(found, wanted);
}

fn signatures(graph: &MetaGraph) -> Value {
    let tensor = |tensor: &SignatureTensor<'_>| {
        let encoding = match tensor.encoding() {
            Encoding::Dense(_) => "name",
            Encoding::Sparse { .. } => "coo_sparse",
            _ => "composite_tensor",
        };
        let extents = tensor.shape().extents().map(|extents| {
            extents.iter().map(|extent| extent.map_or(json!(-1), |extent| json!(extent))).collect::<Vec<_>>()
        });
        let data_type = tensor.data_type().map(|data_type| data_type.name());
        (tensor.name().to_owned(), json!([encoding, tensor.tensors(), data_type, extents]))
    };
    let tensors = |of: &[SignatureTensor<'_>]| Value::Object(of.iter().map(tensor).collect());
    let signatures = graph.signatures().unwrap();
    let signatures = signatures.iter().map(|signature| {
        let (inputs, outputs) = (tensors(signature.inputs()), tensors(signature.outputs()));
        let described = json!({"method": signature.method(), "inputs": inputs, "outputs": outputs});
        (signature.name().to_owned(), described)
    });
    Value::Object(signatures.collect())
}

fn constant(graph: &MetaGraph, name: &str) -> Value {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let value = graph.constant(name).unwrap();
    let values = match value.elements() {
        Elements::Bytes(bytes) => json!(hex(bytes)),
        Elements::Strings(strings) => strings.iter().map(|one| hex(one)).collect(),
    };
    json!([value.data_type().name(), value.shape(), values])
}
