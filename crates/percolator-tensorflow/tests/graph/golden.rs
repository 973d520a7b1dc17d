//! The models in `tests/data` say what `saved_models.json` says of them, which is what TensorFlow says.

use std::path::PathBuf;

use percolator_tensorflow::graph::{Shape, Signature, SignatureTensor};
use percolator_tensorflow::{MetaGraph, SavedModel};
use serde_json::{Value, json};

pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn models() -> Vec<Value> {
    let text = std::fs::read_to_string(data("saved_models.json")).unwrap();
    serde_json::from_str::<Vec<Value>>(&text).unwrap()
}

/// The models as folders and files: those of the manifest, and the same in other forms.
fn forms(model: &Value) -> Vec<MetaGraph> {
    let tags: Vec<&str> = model["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    let folder = model["dir"].as_str().unwrap();
    let opened = |folder: &str| SavedModel::open(data(folder)).unwrap().meta_graph(&tags).unwrap().clone();
    let mut forms = vec![opened(folder)];
    let text = format!("{folder}_text");
    if data(&text).exists() {
        forms.push(opened(&text));
    }
    forms
}

fn shape(shape: &Shape) -> Value {
    shape.extents().map_or(Value::Null, |extents| {
        extents.iter().map(|extent| extent.map_or(json!(-1), |extent| json!(extent))).collect()
    })
}

fn tensors(of: &[SignatureTensor<'_>]) -> Value {
    let tensor = |tensor: &SignatureTensor<'_>| {
        let value = json!([tensor.tensor(), tensor.data_type().unwrap().name(), shape(tensor.shape())]);
        (tensor.name().to_owned(), value)
    };
    Value::Object(of.iter().map(tensor).collect())
}

fn signatures(graph: &MetaGraph) -> Value {
    let described = |signature: &Signature<'_>| {
        let (inputs, outputs) = (tensors(signature.inputs()), tensors(signature.outputs()));
        let described = json!({"method": signature.method(), "inputs": inputs, "outputs": outputs});
        (signature.name().to_owned(), described)
    };
    let signatures = graph.signatures().unwrap();
    let own = signatures.iter().filter(|signature| !signature.name().starts_with("__saved_model"));
    Value::Object(own.map(described).collect())
}

#[test]
fn models_are_what_tensorflow_says_they_are() {
    for model in models() {
        for graph in forms(&model) {
            let name = graph.path().display();
            let mut wanted = model["signatures"].clone();
            for (_, signature) in wanted.as_object_mut().unwrap() {
                // The manifest leaves the module's out.
                let method = json!("tensorflow/serving/predict");
                signature.as_object_mut().unwrap().entry("method").or_insert(method);
            }
            assert_eq!(signatures(&graph), wanted, "{name}");
            if let Some(wanted) = model.get("assets") {
                let assets: Vec<_> =
                    graph.assets().unwrap().iter().map(|asset| asset.filename().to_owned()).collect();
                assert_eq!(json!(assets), *wanted, "{name}");
            }
            if model.get("nodes").is_some() {
                of_graph(&graph, &model);
            }
        }
    }
}

/// What the manifest has of a graph of TensorFlow 1.
fn of_graph(graph: &MetaGraph, model: &Value) {
    let nodes: Vec<Value> =
        graph.nodes().map(|node| json!([node.name(), node.op(), node.input_names()])).collect();
    let wanted = model["nodes"].as_array().unwrap();
    // The model in text was saved after the other, by one more saver in the same graph.
    let is_text = graph.path().extension().unwrap() == "pbtxt";
    assert!(nodes.len() == wanted.len() || is_text && nodes.len() > wanted.len());
    assert_eq!(nodes[..wanted.len()], wanted[..]);
    for node in graph.nodes() {
        let inputs: Vec<String> = node.inputs().map(|input| input.to_string()).collect();
        assert_eq!(inputs, node.input_names());
    }
    let placeholders = graph.placeholders().unwrap();
    let placeholders: Vec<Value> = placeholders
        .iter()
        .map(|one| {
            json!({"name": one.name, "dtype": one.data_type.unwrap().name(), "shape": shape(&one.shape)})
        })
        .collect();
    assert_eq!(json!(placeholders), model["placeholders"]);
    for (name, values) in model["constants"].as_object().unwrap() {
        let values: Vec<f64> =
            values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        let constant = graph.constant(name).unwrap();
        let found: Vec<f64> = constant.values::<f32>().unwrap().iter().map(|value| (*value).into()).collect();
        assert_eq!((found, constant.shape()), (values, &[100][..]), "{name}");
    }
    let variables = graph.variables().unwrap();
    let variables = variables.iter().map(|one| (one.name.clone(), shape(&one.shape))).collect();
    assert_eq!(Value::Object(variables), model["variables"]);
}

#[test]
fn a_meta_file_and_a_graph_alone_are_the_same_graphs() {
    for model in models().iter().filter(|model| model.get("nodes").is_some()) {
        let name = model["name"].as_str().unwrap();
        let graph = MetaGraph::open(data(&format!("{name}_saver/model.meta"))).unwrap();
        assert!(!graph.is_alone());
        let nodes =
            |graph: &MetaGraph| -> Vec<String> { graph.nodes().map(|node| node.name().to_owned()).collect() };
        let of_model = nodes(&forms(model)[0]);
        let of_meta = nodes(&graph);
        assert_eq!(of_meta[..16], of_model[..16]);
        assert_eq!(graph.saver().unwrap().restore_op_name, "save/restore_all");
        assert!(graph.faults().is_empty());
    }
    let alone = MetaGraph::open(data("article_ref_graph.pbtxt")).unwrap();
    assert!(alone.is_alone());
    assert_eq!(alone.placeholders().unwrap()[0].name, "x");
}

#[test]
fn text_is_read_as_what_was_printed() {
    let protos = |model: &SavedModel| -> Vec<_> {
        model.meta_graphs().iter().map(|graph| graph.proto().clone()).collect()
    };
    for name in ["article_ref_saved_model_text", "article_resource_saved_model_text", "module"] {
        let model = SavedModel::open(data(name)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("saved_model.pbtxt"), model.to_text().unwrap()).unwrap();
        let again = SavedModel::open(folder.path()).unwrap();
        assert!(protos(&again) == protos(&model), "{name}");
        assert!(again.to_text().unwrap() == model.to_text().unwrap(), "{name}");
        let is_binary = model.path().extension().unwrap() == "pb";
        assert!(!is_binary || model.to_bytes() == std::fs::read(model.path()).unwrap());
    }
}
