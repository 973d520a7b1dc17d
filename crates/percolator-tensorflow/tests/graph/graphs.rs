//! Graphs as people meet them: faults, loops, order, what feeds what, tags, assets, and what is not a model.

use std::path::{Path, PathBuf};
use std::process::Command;

use percolator_tensorflow::graph::{GraphFault, Input, Node, VariableKind};
use percolator_tensorflow::proto::saved_object::Kind;
use percolator_tensorflow::{GraphError, MetaGraph, SavedModel};
use tempfile::TempDir;

use crate::golden::data;

fn graph(folder: &TempDir, text: &str) -> MetaGraph {
    let path = folder.path().join("graph.pbtxt");
    std::fs::write(&path, text).unwrap();
    MetaGraph::open(path).unwrap()
}

/// Nodes in a line: `name op input input`.
fn nodes(folder: &TempDir, lines: &[&str]) -> MetaGraph {
    let node = |line: &&str| {
        let mut words = line.split(' ');
        let (name, op) = (words.next().unwrap(), words.next().unwrap());
        let inputs: String = words.map(|input| format!("input: \"{input}\" ")).collect();
        format!("node {{ name: \"{name}\" op: \"{op}\" {inputs}}}\n")
    };
    graph(folder, &lines.iter().map(node).collect::<String>())
}

fn names(nodes: &[Node<'_>]) -> Vec<String> {
    nodes.iter().map(|node| node.name().to_owned()).collect()
}

const NONE: &[&str] = &[];

#[test]
fn what_is_needed_comes_in_an_order_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let graph = nodes(
        &folder,
        &[
            "z Add y:0 b",
            "y Mul x w ^init",
            "x Placeholder",
            "w Const",
            "b Const",
            "init NoOp ^b",
            "other Add x",
        ],
    );
    assert_eq!(names(&graph.needed(&["z"], NONE).unwrap()), ["x", "w", "b", "init", "y", "z"]);
    assert_eq!(names(&graph.needed(&["z:0"], &["y:0"]).unwrap()), ["y", "b", "z"]);
    // Another output of the node is not given.
    assert_eq!(graph.needed(&["z"], &["y:1"]).unwrap().len(), 6);
    assert_eq!(names(&graph.fed_by("x").unwrap()), ["z", "y", "other"]);
    let consumers = graph.consumers("b").unwrap();
    let consumers: Vec<_> = consumers.iter().map(|(node, number)| (node.name(), *number)).collect();
    assert_eq!(consumers, [("z", 1), ("init", 0)]);
    assert_eq!(graph.faults(), []);
    assert!(matches!(
        graph.needed(&["q"], NONE),
        Err(GraphError::NoNode { name, input_of: None, .. }) if name == "q"
    ));
}

#[test]
fn a_loop_has_an_order_and_a_circle_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let graph_of_loop = nodes(
        &folder,
        &[
            "start Const",
            "enter Enter start",
            "merge Merge enter next",
            "less Less merge",
            "switch Switch merge less",
            "body Add switch:1",
            "next NextIteration body",
            "exit Exit switch",
        ],
    );
    let needed = graph_of_loop.needed(&["exit"], NONE).unwrap();
    assert_eq!(names(&needed), ["start", "enter", "merge", "less", "switch", "body", "next", "exit"]);
    assert_eq!(graph_of_loop.faults(), []);
    let circle = nodes(&folder, &["a Add c", "b Add a", "c Add b", "d Add c"]);
    let cycle = ["a", "c", "b"].map(str::to_owned).to_vec();
    assert_eq!(circle.faults(), [GraphFault::Cycle { function: None, nodes: cycle.clone() }]);
    let error = circle.needed(&["d"], NONE).unwrap_err();
    assert!(matches!(&error, GraphError::Cycle { nodes, .. } if *nodes == cycle), "{error}");
}

#[test]
fn a_long_chain_does_not_use_up_the_stack() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = vec!["n0 Const".to_owned()];
    lines.extend((1..100_000).map(|number| format!("n{number} Identity n{}", number - 1)));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let graph = nodes(&folder, &lines);
    assert_eq!(graph.needed(&["n99999"], NONE).unwrap().len(), 100_000);
    assert_eq!(graph.fed_by("n0").unwrap().len(), 99_999);
    assert_eq!(graph.faults(), []);
}

#[test]
fn faults_are_reported_and_stop_only_who_needs_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
        node { name: "a" op: "Const" }
        node { name: "a" op: "Const" }
        node { name: "b" op: "Add" input: "c:1" input: "^a" }
        node { name: "ok" op: "Const" }
        library { function {
            signature { name: "f" input_arg { name: "x" } output_arg { name: "y" } }
            node_def { name: "n" op: "Add" input: "x" input: "m:z:0" }
            ret { key: "y" value: "n:z:0" }
        } }"#;
    let graph = graph(&folder, text);
    let faults: Vec<String> = graph.faults().iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "several nodes are named a",
            "the input c:1 of node b is not there",
            "function f: the input m:z:0 of node n is not there"
        ]
    );
    assert!(graph.needed(&["ok"], NONE).is_ok());
    assert!(matches!(graph.needed(&["a"], NONE), Err(GraphError::DuplicateNode { .. })));
    let error = graph.needed(&["b"], NONE).unwrap_err().to_string();
    assert!(error.contains("no node \"c\"") || error.contains("two nodes are named \"a\""), "{error}");
    let function = graph.function("f").unwrap();
    assert_eq!(function.results().next().unwrap().2, Some("n:z:0"));
    let input = function.nodes().next().unwrap().inputs().nth(1).unwrap();
    assert_eq!(input, Input::Named { node: "m", output: "z", number: 0 });
}

#[test]
fn inputs_are_read_as_tensorflow_reads_them() {
    let tensor = |node, output| Input::Tensor { node, output };
    assert_eq!(Input::parse("a/b"), tensor("a/b", 0));
    assert_eq!(Input::parse("a/b:0"), tensor("a/b", 0));
    assert_eq!(Input::parse("a:12"), tensor("a", 12));
    assert_eq!(Input::parse("^a"), Input::Control("a"));
    assert_eq!(Input::parse("a:"), tensor("a:", 0));
    assert_eq!(Input::parse("a:x"), tensor("a:x", 0));
    assert_eq!(Input::parse("a:99999999999999999999999"), tensor("a:99999999999999999999999", 0));
    assert_eq!(Input::parse(""), tensor("", 0));
}

#[test]
fn the_module_has_objects_variables_an_asset_and_functions() {
    let model = SavedModel::open(data("module")).unwrap();
    assert_eq!((model.schema_version(), model.meta_graphs().len()), (1, 1));
    assert_eq!(model.variables_prefix(), data("module/variables/variables"));
    assert!(model.fingerprint().unwrap().unwrap().saved_model_checksum != 0);
    let graph = model.meta_graph(&["serve"]).unwrap();
    let objects = graph.objects().unwrap().unwrap();
    let kind = |path: &[&str]| objects.find(path).unwrap().kind().unwrap();
    assert!(matches!(kind(&["layers", "0"]), Kind::Variable(b) if b.name == "b"));
    assert!(matches!(kind(&["vocab"]), Kind::Asset(asset) if asset.asset_file_def_index == 0));
    assert_eq!(objects.path(7).unwrap(), ["layers", "0"]);
    let variables = graph.variables().unwrap();
    let key = |name: &str| variables.iter().find(|one| one.name == name).unwrap().checkpoint_key.clone();
    assert_eq!(key("b").unwrap(), "layers/0/.ATTRIBUTES/VARIABLE_VALUE");
    assert_eq!(key("w").unwrap(), "w/.ATTRIBUTES/VARIABLE_VALUE");
    // It holds the asset's path, and no checkpoint has it.
    assert_eq!(key("Variable"), None);
    assert!(variables.iter().all(|one| one.kind == VariableKind::Resource));
    let asset = &graph.assets().unwrap()[0];
    assert_eq!((asset.filename(), asset.tensor()), ("vocab.txt", "asset_path_initializer:0"));
    assert_eq!(asset.path().unwrap(), data("module/assets/vocab.txt"));
    let signature = graph.signature("serving_default").unwrap();
    let needed = graph.needed_for(&signature).unwrap();
    assert_eq!(names(&needed), ["b", "w", "serving_default_x", "StatefulPartitionedCall"]);
    let functions: Vec<_> = graph.functions_of(needed).iter().map(|function| function.name()).collect();
    assert_eq!(functions, ["__inference___call___3537", "__inference_signature_wrapper_3547"]);
}

#[test]
fn assets_are_in_their_folder_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["gone.txt", "../../etc/passwd", "/etc/passwd", ""];
    let assets: String =
        files.iter().map(|file| format!("asset_file_def {{ filename: \"{file}\" }}\n")).collect();
    // A file of this name beside a graph that is not part of a SavedModel is not the asset.
    std::fs::create_dir(folder.path().join("assets")).unwrap();
    std::fs::write(folder.path().join("assets/gone.txt"), "x").unwrap();
    let graph = graph(&folder, &assets);
    let assets = graph.assets().unwrap();
    assert!(matches!(assets[0].path(), Err(GraphError::NoAsset { path, .. }) if path == graph.path()));
    for asset in &assets[1..] {
        assert!(matches!(asset.path(), Err(GraphError::AssetOutside { .. })), "{asset:?}");
    }
}

#[test]
fn what_is_not_a_model_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let of = |path: PathBuf| SavedModel::open(path).unwrap_err().to_string();
    assert!(of(at("")).contains("neither saved_model.pb nor saved_model.pbtxt is there"));
    assert!(of(at("nowhere")).contains("neither"));
    std::fs::write(at("saved_model.pb"), "").unwrap();
    assert!(of(at("")).contains("the file is empty"));
    std::fs::copy(data("module/saved_model.pb"), at("saved_model.pb")).unwrap();
    std::fs::write(at("saved_model.pbtxt"), "not a model").unwrap();
    let model = SavedModel::open(folder.path()).unwrap();
    assert!(model.path().ends_with("saved_model.pb"), "TensorFlow prefers it");
    let error = model.meta_graph(&["serve", "gpu"]).unwrap_err().to_string();
    assert!(error.ends_with("no meta graph with the tags {serve, gpu}: there is 1 ({serve})"), "{error}");
    assert!(model.meta_graph(&[]).is_err());
    let error = model.meta_graphs()[0].signature("f").unwrap_err().to_string();
    assert!(error.ends_with("there are 2 (__saved_model_init_op, serving_default)"), "{error}");
    std::fs::write(at("saved_model.cpb"), "x").unwrap();
    assert!(of(at("")).contains("stored in chunks"));
    let error =
        MetaGraph::open(data("article_ref_saved_model_text/saved_model.pbtxt")).unwrap_err().to_string();
    assert!(error.contains("open its folder as a SavedModel"), "{error}");
    let error = MetaGraph::open(Path::new("/dev/zero")).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "found a character device, but only regular files are read: copy it to one first");
}

#[test]
fn graphviz_draws_every_graph() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"node { name: "a/\"b\\\n<c>" op: "x\"y" input: "gone" input: "^a/b/c/d/e/f/g/h/i" }
        node { name: "a/b/c/d/e/f/g/h/i" op: "Const" }"#;
    let odd = graph(&folder, text).to_dot();
    assert!(odd.contains("color=red") && odd.contains("style=dashed"), "{odd}");
    let model = SavedModel::open(data("article_resource_saved_model")).unwrap();
    let graph = model.meta_graph(&["serve"]).unwrap();
    let whole = graph.to_dot();
    let needed = graph.dot_of(graph.needed_for(&graph.signature("default").unwrap()).unwrap());
    assert!(whole.contains("label=\"layer1\"") && needed.len() < whole.len());
    for drawn in [odd, whole, needed] {
        assert_eq!(drawn.matches('{').count(), drawn.matches('}').count());
        let path = folder.path().join("graph.dot");
        std::fs::write(&path, drawn).unwrap();
        match Command::new("dot").arg("-Tsvg").arg(&path).output() {
            Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => println!("did not run: there is no Graphviz"),
        }
    }
}

#[test]
fn variables_of_one_name_have_the_keys_that_restore_them() {
    // A model with w = tf.Variable([[1., 2.]]) and b = tf.Variable([3.]), both named `Variable`.
    let model = SavedModel::open(data("unnamed")).unwrap();
    let variables = model.meta_graph(&["serve"]).unwrap().variables().unwrap();
    let mut found: Vec<_> = variables
        .iter()
        .map(|variable| {
            let key = variable.checkpoint_key.as_deref().unwrap_or_default();
            (key.trim_end_matches("/.ATTRIBUTES/VARIABLE_VALUE"), &*variable.name, variable.shape.to_string())
        })
        .collect();
    found.sort_unstable();
    let wanted =
        [("a10", "v10", "[]"), ("b", "Variable", "[1]"), ("v1", "v1", "[]"), ("w", "Variable_1", "[1, 2]")];
    assert_eq!(found, wanted.map(|(key, name, shape)| (key, name, shape.to_owned())));
    for variable in &variables {
        let path = variable.object_path.as_ref().unwrap();
        assert!(
            variable.kind == VariableKind::Resource
                && variable.checkpoint_key.as_ref().unwrap().starts_with(&path[0])
        );
    }
}
