//! The formats' own libraries: what they wrote is read here, and what is written here is read by them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator_tensorflow::DataType;
use percolator_tensorflow::convert::{Conversion, Format, Model, Options, Progress};
use serde_json::Value;
use tempfile::tempdir;

use crate::harness::process::need;
use crate::tensors::{self, Named};

/// A tensor as the script describes it: type, shape, and bytes or strings in hexadecimal.
type Described = BTreeMap<String, (String, Vec<usize>, Vec<String>)>;

fn script() -> Command {
    let mut command = Command::new("python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert/real.py"));
    command
}

/// Whether TensorFlow, NumPy and safetensors are available.
fn has_tensorflow() -> bool {
    need::python("TENSORFLOW", "numpy, safetensors, tensorflow")
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn described(value: &Value) -> Described {
    let tensor = |(name, tensor): (&String, &Value)| {
        let list = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone()).unwrap();
        let shape = serde_json::from_value(tensor["shape"].clone()).unwrap();
        (name.clone(), (tensor["dtype"].as_str().unwrap().to_owned(), shape, list(&tensor["hex"])))
    };
    value.as_object().unwrap().iter().map(tensor).collect()
}

fn of_tensors(tensors: &[Named]) -> Described {
    let describe = |(name, tensor): &Named| {
        let described =
            (tensor.data_type().to_string(), tensor.shape().to_vec(), tensors::hexadecimal(tensor));
        (name.clone(), described)
    };
    tensors.iter().map(describe).collect()
}

/// The files that are written again, by what their names end with.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter_map(|path| {
            let found = path.file_name().unwrap().to_str().unwrap();
            let ending =
                found.strip_prefix(name).filter(|ending| ending.is_empty() || ending.starts_with('.'))?;
            Some((ending.to_owned(), fs::read(&path).unwrap()))
        })
        .collect()
}

#[test]
fn what_python_wrote_is_read_and_written_again() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    run(script().arg("write").arg(folder.path()));
    let expected = fs::read(folder.path().join("expected.json")).unwrap();
    let expected: Vec<Value> = serde_json::from_slice(&expected).unwrap();
    assert!(expected.len() > 100);
    let again = tempdir().unwrap();
    for file in expected {
        let name = file["file"].as_str().unwrap();
        let path = folder.path().join(name);
        let model = Model::open(&path).unwrap();
        assert_eq!(of_tensors(&tensors::read(&model)), described(&file["tensors"]), "{name}");
        let target = again.path().join(name);
        let conversion = Conversion::plan(&model, &target, model.format(), &Options::default()).unwrap();
        conversion.run(&Progress::new()).unwrap();
        if model.format() == Format::Npz {
            assert_eq!(tensors::read(&Model::open(&target).unwrap()), tensors::read(&model), "{name}");
            continue;
        }
        let is_same = files(&target) == files(&path);
        assert!(is_same || file["same"] == false, "{name} is not written as Python wrote it");
    }
}

#[test]
fn what_is_written_is_read_by_python() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    let mut expected: Vec<(PathBuf, Described)> = Vec::new();
    for (number, shape) in [&[][..], &[1], &[0], &[3, 4], &[2, 0, 5], &[2, 3, 2, 1]].iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        // NumPy cannot hold these without a name for the field, nor TensorFlow save them.
        let written: Vec<_> = tensors::of_each_type(shape);
        let model = tensors::checkpoint(&folder, &written);
        for format in [Format::Npz, Format::NpyFolder, Format::Safetensors, Format::Checkpoint] {
            let options = Options { leave_out: true, ..Options::default() };
            let path = tensors::convert_with(&model, &folder, format, &options).unwrap();
            let is_kept = |data_type: DataType| match format {
                // What the library for NumPy has no types for.
                Format::Safetensors => !data_type.name().starts_with("float8"),
                _ => true,
            };
            let kept = written
                .iter()
                .filter(|(_, tensor)| format.keeps(tensor.data_type()) && is_kept(tensor.data_type()));
            let kept: Vec<_> = kept.cloned().collect();
            expected.push((path, of_tensors(&kept)));
        }
    }
    let paths = expected.iter().map(|(path, _)| path);
    let found: Value = serde_json::from_slice(&run(script().arg("read").args(paths))).unwrap();
    for (path, expected) in expected {
        let mut found = described(&found[path.to_str().unwrap()]);
        found.retain(|name, _| expected.contains_key(name));
        assert_eq!(found, expected, "{}", path.display());
    }
}
