//! The command reads, copies, converts and compares models, and says what is wrong with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use percolator_tensorflow::{Checkpoint, CheckpointWriter, DataType, Tensor};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

/// The data of the tests of percolator-tensorflow, which TensorFlow wrote.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-tensorflow/tests/data").join(name)
}

pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
    let data = data("");
    // Paths that begin with @ are those of the data.
    let arguments = arguments.split_whitespace().map(|argument| match argument.strip_prefix('@') {
        Some(name) => data.join(name).into_os_string(),
        None => argument.into(),
    });
    command.arg("model").args(arguments).current_dir(folder).env_remove("RUST_LOG");
    command
}

fn run(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().unwrap()
}

#[track_caller]
pub(crate) fn pass(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that exits with this code; returns what it prints, and what it says about that.
#[track_caller]
fn exits(code: i32, folder: &Path, arguments: &str) -> (String, String) {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Runs a command that finds something wrong.
#[track_caller]
fn find(folder: &Path, arguments: &str) -> (String, String) {
    exits(1, folder, arguments)
}

/// Runs a command that cannot do what it was asked.
#[track_caller]
pub(crate) fn fail(folder: &Path, arguments: &str) -> (String, String) {
    exits(2, folder, arguments)
}

fn json(folder: &Path, arguments: &str) -> Value {
    let printed = pass(folder, &format!("{arguments} --json"));
    let found: Value = serde_json::from_str(&printed).unwrap();
    let schema = format!("percolator.model.{}", arguments.split(' ').next().unwrap());
    assert!(found["schema"].as_str().unwrap().starts_with(&schema), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    found
}

/// The tensors that `model list` lists.
fn listed(folder: &Path, path: &str) -> Value {
    json(folder, &format!("list {path}"))["tensors"].take()
}

/// A folder with a checkpoint `model` of these tensors.
pub(crate) fn written(tensors: &[(&str, Tensor<'_>)]) -> TempDir {
    let folder = tempdir().unwrap();
    write(&folder.path().join("model"), tensors);
    folder
}

fn write(prefix: &Path, tensors: &[(&str, Tensor<'_>)]) {
    let mut writer = CheckpointWriter::create(prefix).unwrap();
    for (name, tensor) in tensors {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
}

pub(crate) fn floats(values: &[f32]) -> Tensor<'static> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor::new(DataType::Float32, [values.len()], bytes).unwrap()
}

#[test]
fn a_list_has_what_tensorflow_read() {
    let folder = tempdir().unwrap();
    let manifest: Value = serde_json::from_slice(&fs::read(data("manifest.json")).unwrap()).unwrap();
    let mut compared = 0;
    for checkpoint in manifest["checkpoints"].as_array().unwrap() {
        let prefix = checkpoint["prefix"].as_str().unwrap();
        let listed = listed(folder.path(), &format!("@{prefix}"));
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len() as u64, checkpoint["count"].as_u64().unwrap(), "{prefix}");
        let names: Vec<_> = listed.iter().map(|tensor| tensor["name"].as_str().unwrap()).collect();
        assert!(names.is_sorted());
        for tensor in checkpoint["tensors"].as_array().unwrap() {
            let found = listed.iter().find(|found| found["name"] == tensor["name"]).unwrap();
            assert_eq!(found.as_object().unwrap().len(), 5);
            for key in ["dtype", "shape", "sha256"] {
                assert_eq!(found[key], tensor[key], "{prefix} {tensor}");
            }
            compared += 1;
        }
    }
    assert!(compared > 30);
    let types = listed(folder.path(), "@types/model");
    let bytes = |name: &str| {
        types.as_array().unwrap().iter().find(|tensor| tensor["name"] == name).unwrap()["bytes"].as_u64()
    };
    assert_eq!((bytes("types/string"), bytes("types/float32")), (Some(460), Some(84)));
}

#[test]
fn a_table_has_a_line_for_each_tensor_and_the_total() {
    let folder = tempdir().unwrap();
    let expected = "name       type     shape       bytes\n\
                    layer1/W   float32  [100, 100]  40000\n\
                    layer2/W   float32  [100, 100]  40000\n\
                    2 tensors                       80000\n";
    for path in ["@article_ref_saver", "@article_ref_saver/model.index", "@article_ref_saved_model"] {
        assert_eq!(pass(folder.path(), &format!("list {path}")), expected);
    }
}

#[test]
fn a_model_is_shown_with_its_signatures() {
    let folder = tempdir().unwrap();
    for path in ["@article_ref_saved_model", "@article_ref_saved_model_text"] {
        let shown = pass(folder.path(), &format!("show {path}"));
        for line in [
            "    input x: float32 [?, 100] <x:0>\n",
            "    output y: float32 [?, 100] <layer1/add:0>\n",
            "  x: float32 [?, 100]\n",
            "  layer1/b: float32 [100] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, ...]\n",
            "  layer1/W: float32 [100, 100], by reference\n",
        ] {
            assert!(shown.contains(line), "{line}{shown}");
        }
    }
    let manifest: Value = serde_json::from_slice(&fs::read(data("saved_models.json")).unwrap()).unwrap();
    for model in manifest.as_array().unwrap() {
        let shown = json(folder.path(), &format!("show @{}", model["dir"].as_str().unwrap()));
        let graph = &shown["meta_graphs"][0];
        assert_eq!(graph["tags"], json!(["serve"]));
        for (name, signature) in model["signatures"].as_object().unwrap() {
            let found = &graph["signatures"][name];
            assert_eq!((&found["inputs"], &found["outputs"]), (&signature["inputs"], &signature["outputs"]));
        }
        for key in ["placeholders", "nodes"] {
            if let Some(expected) = model.get(key) {
                assert_eq!(graph[key], *expected, "{key}");
            }
        }
        for (name, values) in model.get("constants").and_then(Value::as_object).into_iter().flatten() {
            assert_eq!(graph["constants"][name]["values"], *values, "{name}");
        }
    }
    let module = pass(folder.path(), "show @module");
    assert!(module.contains("assets:\n  vocab.txt -> "), "{module}");
    let meta = pass(folder.path(), "show @article_ref_saver/model.meta");
    assert!(meta.contains("saver: save/Const:0 is the prefix, "), "{meta}");
}

#[test]
fn a_graph_is_drawn() {
    let folder = tempdir().unwrap();
    let whole = pass(folder.path(), "show --dot @article_ref_saved_model");
    assert!(whole.starts_with("digraph") && whole.contains("layer1/add"), "{whole}");
    let needed = pass(folder.path(), "show --dot --signature default --tags serve @article_ref_saved_model");
    assert!(
        needed.len() < whole.len() && needed.contains("layer1/add") && !needed.contains("RestoreV2"),
        "{needed}"
    );
    let (_, error) = fail(folder.path(), "show --dot @types/model");
    assert!(error.contains("--dot draws the graph of a SavedModel"), "{error}");
}

#[test]
fn objects_are_shown_as_a_tree_and_tensors_with_their_values() {
    let folder = tempdir().unwrap();
    let tree = pass(folder.path(), "show @object");
    assert!(tree.contains("  net\n    w  float32 [4, 3]\n    layers\n      0  float32 [3]\n"), "{tree}");
    let objects = json(folder.path(), "show @object");
    assert_eq!(objects["objects"][0]["path"], "");
    let key = "net/step/.ATTRIBUTES/VARIABLE_VALUE";
    let expected = format!("{key}: int64 []\n7\n");
    assert_eq!(pass(folder.path(), "show @object net/step"), expected);
    assert_eq!(pass(folder.path(), &format!("show @object {key}")), expected);
    let value = json(folder.path(), "show @object net/step");
    let schema = "percolator.model.show.tensor/1";
    assert_eq!(value, json!({ "schema": schema, "name": key, "dtype": "int64", "shape": [], "values": 7 }));
    let constant = pass(folder.path(), "show @article_ref_saved_model layer1/b");
    assert!(constant.starts_with("layer1/b: float32 [100]\n[0.0, 1.0, "), "{constant}");
    let variable = pass(folder.path(), "show @article_ref_saved_model layer1/W");
    assert!(variable.starts_with("layer1/W: float32 [100, 100]\n[["), "{variable}");
    assert!(variable.contains("...") && variable.lines().count() < 20, "{variable}");
    let (_, error) = fail(folder.path(), "show @object net/stop");
    assert!(error.contains("net/stop"), "{error}");
}

#[test]
fn a_verification_names_all_faults() {
    let folder = written(&[("a", floats(&[1.0, 2.0])), ("b", floats(&[3.0])), ("c", floats(&[4.0]))]);
    let path = folder.path();
    let expected = "model: 3 tensors; 3 checksums right, of 16 bytes; nothing is wrong\n";
    assert_eq!(pass(path, "verify model"), expected);
    let file = path.join("model.data-00000-of-00001");
    let mut bytes = fs::read(&file).unwrap();
    bytes[0] ^= 1;
    bytes[12] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let (found, _) = find(path, "verify model");
    assert_eq!(found.lines().count(), 3, "{found}");
    assert!(found.contains("\"a\"") && found.contains("\"c\"") && !found.contains("\"b\""), "{found}");
    assert!(found.ends_with("3 tensors; 1 checksums right, of 4 bytes; 2 faults\n"), "{found}");
    let output = run(path, "verify model --json");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((found["faults"].as_array().unwrap().len(), &found["checksums"]), (2, &json!(1)));
    fs::remove_file(&file).unwrap();
    let (found, _) = find(path, "verify model");
    assert!(found.contains("model.data-00000-of-00001"), "{found}");
    // A missing data file is one fault, however many tensors it has.
    fs::create_dir(path.join("sharded")).unwrap();
    fs::copy(data("sharded/model.index"), path.join("sharded/model.index")).unwrap();
    let (found, _) = find(path, "verify sharded/model");
    assert!(found.ends_with("; 3 faults\n"), "{found}");
    // Each slice has a checksum of its own.
    fs::create_dir(path.join("sliced")).unwrap();
    for name in ["model.index", "model.data-00000-of-00001"] {
        fs::copy(data(&format!("sliced/{name}")), path.join("sliced").join(name)).unwrap();
    }
    let file = path.join("sliced/model.data-00000-of-00001");
    let mut bytes = fs::read(&file).unwrap();
    bytes.iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&file, bytes).unwrap();
    let checkpoint = Checkpoint::open(path.join("sliced/model")).unwrap();
    let slices: usize = checkpoint.tensors().map(|tensor| tensor.slices.len()).sum();
    let (found, _) = find(path, "verify sliced/model");
    assert!(slices > 2 && found.ends_with(&format!("{slices} faults\n")), "{found}");
}

/// The files of a folder, by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

/// What a copy replaces or lists is its own, whatever leads to it.
#[test]
fn a_copy_touches_only_what_is_its_own() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    // The graph of the checkpoint that is replaced is a link to one that others have.
    fs::create_dir(path.join("to")).unwrap();
    fs::write(path.join("to/graph.meta"), "of others").unwrap();
    std::os::unix::fs::symlink("graph.meta", path.join("to/model.meta")).unwrap();
    pass(path, "copy model to/model --force");
    assert_eq!(fs::read(path.join("to/graph.meta")).unwrap(), b"of others");
    assert!(!path.join("to/model.meta").is_symlink());
    // A checkpoint that was put aside by a writer that was killed gets its own name back.
    for ending in ["index", "data-00000-of-00001"] {
        fs::rename(
            path.join(format!("model.{ending}")),
            path.join(format!("model.percolator-previous.{ending}")),
        )
        .unwrap();
    }
    pass(path, "copy model.percolator-previous back/");
    assert!(pass(path, "latest back").contains("back/model"));
    // A checkpoint is listed once, however the list spells it.
    let list = format!(
        "model_checkpoint_path: \"{0}\"\nall_model_checkpoint_paths: \"{0}\"\n",
        path.join("back/model").display()
    );
    fs::write(path.join("back/checkpoint"), list).unwrap();
    pass(path, "copy to/model back/ --force");
    let list = fs::read_to_string(path.join("back/checkpoint")).unwrap();
    assert_eq!(list, "model_checkpoint_path: \"model\"\nall_model_checkpoint_paths: \"model\"\n");
}

#[test]
fn copies_have_the_bytes_that_tensorflow_wrote() {
    for name in ["article_ref_saver", "types", "many", "sharded", "sliced"] {
        let folder = tempdir().unwrap();
        pass(folder.path(), &format!("copy @{name}/model copy/"));
        let mut expected = files(&data(name));
        if name == "many" {
            // It was not written by a saver.
            let state = b"model_checkpoint_path: \"model\"\nall_model_checkpoint_paths: \"model\"\n";
            expected.insert(0, ("checkpoint".to_owned(), state.to_vec()));
        }
        expected.retain(|(name, _)| !name.ends_with(".json"));
        let found = files(&folder.path().join("copy"));
        let names =
            |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected));
        assert!(found == expected, "{name}");
        assert_eq!(pass(folder.path(), "latest copy"), "copy/model\n");
    }
    let folder = tempdir().unwrap();
    pass(folder.path(), "copy @types other --shards 3");
    assert_eq!(files(folder.path()).iter().filter(|(name, _)| name.contains("-of-00003")).count(), 3);
    let verdict = pass(folder.path(), "diff other @types");
    assert_eq!(verdict, "17 equal, 0 different, 0 only in the first, 0 only in the second\n");
    let (_, error) = fail(folder.path(), "copy other other");
    assert!(error.contains("written over"), "{error}");
    pass(folder.path(), "convert other x.npz");
    let (_, error) = fail(folder.path(), "copy x.npz again");
    assert!(error.contains("use percolator model convert"), "{error}");
}

#[test]
fn conversions_keep_types_and_rename_by_rules() {
    let folder = tempdir().unwrap();
    let path = folder.path();
    let printed = pass(path, "convert @article_ref_saver/model w.safetensors --rename /=.");
    assert_eq!(printed, "w.safetensors: 2 tensors, 80000 bytes\n");
    let listed = listed(path, "w.safetensors");
    assert_eq!(listed[0]["name"], "layer1.W");
    for target in ["back/model", "back.npz", "folder/"] {
        pass(path, &format!("convert w.safetensors {target} --rename ^layer(\\d)[.]W$=layer$1/W"));
        let verdict = pass(path, &format!("diff {target} @article_ref_saver/model"));
        assert!(verdict.starts_with("2 equal, 0 different"), "{verdict}");
    }
    assert!(path.join("folder/layer1/W.npy").is_file());
    let plan = pass(path, "convert w.safetensors x.npz --dry-run --rename ^layer(\\d)[.]W$=layer$1/W");
    let expected = "layer1.W -> layer1/W\nlayer2.W -> layer2/W\nx.npz: 2 tensors would be written\n";
    assert_eq!(plan, expected);
    assert!(!path.join("x.npz").exists());
    // A type that the format does not have.
    let (_, error) = fail(path, "convert @types/model t.safetensors");
    assert!(error.contains("--leave-out") && error.contains("has no type complex128"), "{error}");
    assert!(!path.join("t.safetensors").exists());
    let printed = pass(path, "convert @types/model t.safetensors --leave-out");
    assert!(
        printed.contains("14 tensors") && printed.contains("left out: types/string (the format"),
        "{printed}"
    );
    pass(path, "convert @types/model t.npz");
    assert!(pass(path, "diff t.npz @types/model").starts_with("17 equal, 0 different"));
    // The working directory, and a link to a folder.
    fs::create_dir(path.join("empty")).unwrap();
    std::os::unix::fs::symlink("empty", path.join("link")).unwrap();
    let model = path.join("t.npz");
    let mut inside = command(&path.join("empty"), "convert");
    inside.arg(&model).args([".", "--to", "npy-folder"]);
    let output = inside.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(pass(path, "diff t.npz link/").starts_with("17 equal, 0 different, 0 only"));
    fs::remove_dir_all(path.join("empty")).unwrap();
    let (_, error) = fail(path, "convert t.npz link/");
    assert!(error.contains("link to empty, which is not there"), "{error}");
    // The format by its name.
    pass(path, "convert t.npz folder-of-arrays --to npy-folder");
    assert!(pass(path, "diff t.npz folder-of-arrays").starts_with("17 equal"));
    let (_, error) = fail(path, "convert t.npz t.npz");
    assert!(error.contains("written over"), "{error}");
    let (_, error) = fail(path, "convert t.npz x.npz --rename types/[a-z]+\\d*=x");
    assert!(error.contains("would both be named \"x\""), "{error}");
}

#[test]
fn a_rule_that_matches_nothing_is_an_error() {
    let folder = written(&[("a", floats(&[1.0])), ("b", floats(&[2.0]))]);
    let path = folder.path();
    for rules in ["--rename layer/=x --drop b", "--rename a=c --rename layer/=x"] {
        let (_, error) = fail(path, &format!("convert model x.npz {rules}"));
        let expected =
            "percolator: the rule \"layer/\": it matches no tensor; correct the rule, or remove it\n";
        assert_eq!(error, expected);
        assert!(!path.join("x.npz").exists());
    }
    let printed = pass(path, "convert model x.npz --rename a=x --drop b --drop c");
    assert!(printed.contains("1 tensor,") && printed.contains("left out: b (dropped)"), "{printed}");
}

#[test]
fn a_saved_model_without_variables_has_no_tensors() {
    let folder = tempdir().unwrap();
    let path = folder.path();
    let model = |name: &str, ops: &str| {
        let node = |op: &str| format!("    node {{ name: \"{op}\" op: \"{op}\" }}\n");
        let nodes: String = ops.split_whitespace().map(node).collect();
        let text = format!("meta_graphs {{\n  graph_def {{\n{nodes}  }}\n}}\n");
        fs::create_dir(path.join(name)).unwrap();
        fs::write(path.join(name).join("saved_model.pbtxt"), text).unwrap();
    };
    model("none", "NoOp");
    fs::create_dir(path.join("none/variables")).unwrap();
    for given in ["none", "none/saved_model.pbtxt"] {
        assert_eq!(pass(path, &format!("list {given}")), "");
        assert_eq!(listed(path, given), json!([]));
        let verified = pass(path, &format!("verify {given}"));
        let expected = "none/variables/variables: 0 tensors; there is nothing to verify; nothing is wrong\n";
        assert_eq!(verified, expected);
        assert_eq!(json(path, &format!("verify {given}"))["faults"], json!([]));
    }
    let (_, error) = fail(path, "copy none to/");
    assert_eq!(error, "percolator: none: the SavedModel has no variables: there is nothing to copy\n");
    let (_, error) = fail(path, "show none w");
    assert!(error.contains("\"w\""), "{error}");
    assert_eq!(pass(path, "convert none x.npz"), "x.npz: 0 tensors, 0 bytes\n");
    assert_eq!(
        pass(path, "diff none x.npz"),
        "0 equal, 0 different, 0 only in the first, 0 only in the second\n"
    );
    // One whose variables are lost is not one without.
    model("lost", "VariableV2");
    model("cut", "NoOp");
    fs::create_dir(path.join("cut/variables")).unwrap();
    fs::write(path.join("cut/variables/variables.data-00000-of-00001"), "").unwrap();
    for name in ["lost", "cut"] {
        let (_, error) = fail(path, &format!("list {name}"));
        assert!(error.contains("variables/variables.index: there is no such file"), "{error}");
    }
    fs::write(path.join("none/saved_model.pbtxt"), "damaged {").unwrap();
    let (_, error) = fail(path, "list none");
    assert!(error.contains("saved_model.pbtxt"), "{error}");
}

#[test]
fn differences_are_told_and_tolerated() {
    let strings = |last: &'static [u8]| Tensor::strings([2], [&b"a"[..], last]).unwrap();
    let folder = written(&[
        ("a", floats(&[1.0, 2.0])),
        ("b", strings(b"b")),
        ("c", floats(&[1.0])),
        ("d", floats(&[])),
    ]);
    let path = folder.path();
    let shaped = Tensor::new(DataType::Float32, [1, 1], vec![0; 4]).unwrap();
    let typed = Tensor::new(DataType::Int32, [0], vec![]).unwrap();
    let other = [
        ("a", floats(&[1.0, 2.5])),
        ("b", strings(b"c")),
        ("c", shaped),
        ("d", typed),
        ("e", floats(&[0.0])),
    ];
    write(&path.join("other"), &other);
    let (found, error) = find(path, "diff model other");
    let expected = "e: only in other\n\
                    a: 1 of 2 elements differ, the first at 1; by 0.5 at most, relatively by 0.2\n\
                    b: 1 of 2 elements differ, the first at 1\n\
                    c: [1], and [1, 1]\n\
                    d: float32, and int32\n\
                    0 equal, 4 different, 0 only in the first, 1 only in the second\n";
    assert_eq!((&*found, &*error), (expected, ""));
    let (found, _) = find(path, "diff model other --tolerance 0.25");
    assert!(found.contains("1 equal, 3 different"), "{found}");
    let output = run(path, "diff model other --json");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["different"][0]["max_absolute"], 0.5);
    assert_eq!(found["only_in_second"], json!(["e"]));
    assert_eq!(
        pass(path, "diff model model"),
        "4 equal, 0 different, 0 only in the first, 0 only in the second\n"
    );
}

#[test]
fn the_latest_checkpoint_is_all_that_is_printed() {
    let folder = tempdir().unwrap();
    let latest = pass(folder.path(), "latest @object");
    assert_eq!(latest, format!("{}\n", data("object/ckpt-3").display()));
    assert_eq!(json(folder.path(), "latest @object")["prefix"], latest.trim_end());
    assert_eq!(json(folder.path(), "copy @object copied")["prefix"], "copied");
    let (printed, error) = find(folder.path(), "latest .");
    assert_eq!(printed, "");
    assert!(error.contains("there is no checkpoint"), "{error}");
    fs::write(folder.path().join("checkpoint"), "model_checkpoint_path: \"gone\"\n").unwrap();
    let (printed, error) = fail(folder.path(), "latest .");
    assert!(printed.is_empty() && error.contains("gone"), "{error}");
}

#[test]
fn a_copy_keeps_the_folders_list_and_no_other_models_graph() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    fs::create_dir(path.join("to")).unwrap();
    let state = path.join("to/checkpoint");
    let line = |name: &str| format!("all_model_checkpoint_paths: \"{name}\"\n");
    let times = "all_model_checkpoint_timestamps: 1.5\nall_model_checkpoint_timestamps: 2.5\n";
    let before = format!(
        "model_checkpoint_path: \"old\"\n{}{}{times}last_preserved_timestamp: 1.25\n",
        line("model"),
        line("old"),
    );
    fs::write(&state, before).unwrap();
    fs::write(path.join("to/model.meta"), "of another model").unwrap();
    pass(path, "copy model to/ --force");
    let found = fs::read_to_string(&state).unwrap();
    let front = format!("model_checkpoint_path: \"model\"\n{}{}", line("old"), line("model"));
    assert!(found.starts_with(&format!("{front}all_model_checkpoint_timestamps: 2.5\n")), "{found}");
    assert_eq!(found.matches("all_model_checkpoint_timestamps").count(), 2, "{found}");
    assert!(found.ends_with("last_preserved_timestamp: 1.25\n"), "{found}");
    assert!(!path.join("to/model.meta").exists());
    fs::write(&state, "damaged {").unwrap();
    let (_, error) = fail(path, "copy model to/");
    assert!(error.contains("to/checkpoint"), "{error}");
    assert_eq!(fs::read_to_string(&state).unwrap(), "damaged {");
}

/// A graph with constants that repeat their only value.
fn repeated(path: &Path, constants: usize, data_type: i32, extents: &[i64], string: Option<&[u8]>) {
    use percolator_tensorflow::proto;
    use prost::Message as _;

    let dim = extents.iter().map(|&size| proto::tensor_shape_proto::Dim { size, ..Default::default() });
    let shape = proto::TensorShapeProto { dim: dim.collect(), unknown_rank: false };
    let string_val = string.into_iter().map(|string| string.to_vec()).collect();
    let tensor =
        proto::TensorProto { dtype: data_type, tensor_shape: Some(shape), string_val, ..Default::default() };
    let value = proto::AttrValue { value: Some(proto::attr_value::Value::Tensor(tensor)) };
    let node = |number: usize| proto::NodeDef {
        name: format!("c{number}"),
        op: "Const".to_owned(),
        attr: [("value".to_owned(), value.clone())].into(),
        ..Default::default()
    };
    let graph = proto::GraphDef { node: (0..constants).map(node).collect(), ..Default::default() };
    fs::write(path, graph.encode_to_vec()).unwrap();
}

#[test]
fn constants_that_repeat_a_value_are_shown_in_part() {
    let folder = tempdir().unwrap();
    let path = folder.path();
    // DT_STRING: two thousand times a million bytes.
    repeated(&path.join("strings.pb"), 1, 7, &[2000], Some(&vec![b'x'; 1 << 20]));
    let found = &json(path, "show strings.pb")["meta_graphs"][0]["constants"]["c0"];
    assert_eq!((&found["values"], &found["shape"]), (&Value::Null, &json!([2000])));
    assert_eq!(found["left_out"], "it has more than 65536 bytes");
    let shown = pass(path, "show strings.pb");
    assert!(shown.contains("c0: string [2000] [\"xxx") && shown.len() < 10_000, "{shown}");
    // DT_BOOL
    repeated(&path.join("large.pb"), 1, 10, &[1 << 40], None);
    let found = &json(path, "show large.pb")["meta_graphs"][0]["constants"]["c0"];
    assert_eq!(found["left_out"], "it has more than 65536 bytes");
    let shown = pass(path, "show large.pb");
    assert!(shown.contains("c0: bool [1099511627776] [false, false, "), "{shown}");
    let mut extents = [1; 100];
    extents[0] = 8;
    repeated(&path.join("many.pb"), 100, 10, &extents, None);
    let found = json(path, "show many.pb");
    let constants = found["meta_graphs"][0]["constants"].as_object().unwrap();
    let left_out = constants.values().filter(|one| one["values"].is_null());
    let why = "all constants have more than 4194304 values";
    assert_eq!(left_out.inspect(|one| assert_eq!(one["left_out"], why)).count(), 48);
}

#[test]
fn a_long_chain_of_objects_is_shown() {
    use percolator_tensorflow::proto::{TrackableObjectGraph, trackable_object_graph::*};
    use prost::Message as _;

    const LENGTH: usize = 20_000;
    let nodes = (1..=LENGTH).map(|number| {
        let next = trackable_object::ObjectReference {
            node_id: i32::try_from(number % LENGTH).unwrap(),
            local_name: "n".to_owned(),
        };
        TrackableObject { children: vec![next], ..Default::default() }
    });
    let graph = TrackableObjectGraph { nodes: nodes.collect() }.encode_to_vec();
    let folder = written(&[("_CHECKPOINTABLE_OBJECT_GRAPH", Tensor::strings([], [graph]).unwrap())]);
    let shown = pass(folder.path(), "show model");
    assert_eq!(shown.lines().count(), LENGTH + 2);
    assert!(shown.len() < 10 << 20 && shown.ends_with("n -> the root\n"), "{}", shown.len());
    let found = json(folder.path(), "show model");
    let left_out = usize::try_from(found["paths_left_out"].as_u64().unwrap()).unwrap();
    let paths = found["objects"].as_array().unwrap().iter().filter(|object| object["path"].is_string());
    assert_eq!(paths.count() + left_out, LENGTH);
    assert!((1000..LENGTH).contains(&left_out), "{left_out}");
}

#[test]
fn a_closed_output_is_no_error() {
    let folder = tempdir().unwrap();
    for arguments in ["list @many/model", "list @many/model --json", "show --dot @module", "show @many/model"]
    {
        let mut child =
            command(folder.path(), arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments}: {output:?}");
    }
}

#[test]
fn names_are_printed_without_control_characters() {
    let folder = written(&[("a\u{1b}[31m\nb", floats(&[1.0]))]);
    for arguments in ["list model", "show model", "convert model x.npz --dry-run", "diff model @types/model"]
    {
        let output = run(folder.path(), arguments);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains("a\\u{1b}[31m\\nb") && !printed.contains('\u{1b}'), "{printed}");
    }
}
