//! Checkpoints that TensorFlow writes now, if it is here, and some that it wrote before.

use std::path::Path;
use std::process::Command;

use percolator_files::Access;
use percolator_tensorflow::{Checkpoint, Elements};
use serde_json::Value;

use crate::golden::{data, digest};
use crate::harness::process::need;

/// Compares every tensor of the checkpoints in a folder with the manifest there.
fn check_folder(folder: &Path) {
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap();
    for (case, due) in manifest.as_object().unwrap() {
        let prefix = folder.join(due["prefix"].as_str().unwrap());
        for access in [Access::Mapped, Access::Read] {
            let checkpoint = Checkpoint::open_with(&prefix, access).unwrap();
            let tensors = due["tensors"].as_object().unwrap();
            assert_eq!(checkpoint.len(), tensors.len(), "{case}");
            let loaded = checkpoint.load_all(2).unwrap();
            for (info, loaded) in checkpoint.tensors().zip(loaded) {
                let due = &tensors[info.name];
                let tensor = checkpoint.tensor(info.name).unwrap();
                assert_eq!(tensor, loaded, "{case} {}", info.name);
                assert_eq!(tensor.data_type().name(), due["dtype"].as_str().unwrap(), "{case} {}", info.name);
                assert_eq!(serde_json::json!(tensor.shape()), due["shape"], "{case} {}", info.name);
                if let Some(sha256) = due["sha256"].as_str() {
                    assert_eq!(digest(&tensor), sha256, "{case} {}", info.name);
                }
            }
            assert_eq!(checkpoint.verify(2).faults, [], "{case}");
        }
        check_paths(&Checkpoint::open(&prefix).unwrap(), &due["paths"]);
    }
}

/// Each path that TensorFlow made a key of leads to that key.
fn check_paths(checkpoint: &Checkpoint, paths: &Value) {
    let Some(paths) = paths.as_object() else { return };
    let objects = checkpoint.objects().unwrap();
    for (path, keys) in paths {
        let keys: Vec<_> = keys.as_array().unwrap().iter().map(|key| key[1].as_str().unwrap()).collect();
        for key in &keys {
            assert_eq!(checkpoint.key(key).unwrap(), *key);
        }
        if let [key] = keys[..] {
            assert_eq!((objects.key_of(path), objects.key_of(key)), (Ok(key), Ok(key)));
            assert_eq!(checkpoint.key(path).unwrap(), key);
        }
    }
    // Another way to the same object, in a circle too.
    for path in ["net/layers/0/kernel", "net/itself/itself/again/kernel"] {
        assert_eq!(objects.key_of(path), Ok("net/again/kernel/.ATTRIBUTES/VARIABLE_VALUE"));
    }
    let slot = objects.by_path("net/layers/0/kernel/.OPTIMIZER_SLOT/optimizer/m").unwrap();
    assert!(
        objects.objects()[slot].tensors[0]
            .key
            .ends_with(".OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE")
    );
    let error = checkpoint.key("table").unwrap_err().to_string();
    assert!(error.contains("ATTRIBUTES/table-keys\", \"table/.ATTRIBUTES/table-values\""), "{error}");
    let attributes: usize = objects.tree().filter(|line| !line.is_repeated).count();
    assert!(attributes >= 12, "{attributes}");
}

#[test]
fn what_tensorflow_wrote_before_is_read() {
    check_folder(&data("more"));
    let checkpoint = Checkpoint::open(data("more/variants/model")).unwrap();
    let tensor = checkpoint.tensor("lists").unwrap();
    let Elements::Strings(variants) = tensor.elements() else { panic!("{tensor:?}") };
    assert_eq!(variants.len(), 3);
    let name = b"tensorflow::TensorList";
    assert!(variants.iter().all(|variant| variant.windows(name.len()).any(|part| part == name)));
    let error = Checkpoint::open(data("more/first/model.ckpt")).unwrap_err();
    assert!(error.to_string().contains("first format (V1)"), "{error}");
}

#[test]
fn what_tensorflow_writes_now_is_read() {
    if !need::python("TENSORFLOW", "tensorflow") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoint/write_checkpoints.py");
    let done = Command::new("python3").arg(script).arg(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    check_folder(folder.path());
    let error = Checkpoint::open(folder.path().join("first/model.ckpt")).unwrap_err();
    assert!(error.to_string().contains("first format (V1)"), "{error}");
}
