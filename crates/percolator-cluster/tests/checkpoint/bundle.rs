//! TensorFlow's checkpoints as a part of a state, beside TensorFlow's own where python3 has it.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{Archive, Bundle, Checkpoint as _, Existing, Parts};
use percolator_cluster::metadata::MemoryMetadata;
use percolator_cluster::store::{FolderStore, Id};
use percolator_tensorflow::{DataType, Tensor};

use crate::process::need;

fn bundle() -> Bundle {
    let mut bundle = Bundle::new();
    bundle.insert("layer/W", Tensor::from_values([2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, -6.5]).unwrap());
    bundle.insert("step", Tensor::from_values([], &[7_i64]).unwrap());
    bundle.insert("words", Tensor::strings([3], [&b"to"[..], b"", b"b\0e"]).unwrap());
    bundle.insert("flags", Tensor::from_bools([2], &[true, false]).unwrap());
    bundle.insert("none", Tensor::new(DataType::Float64, [0, 7], vec![]).unwrap());
    bundle.insert("variants", Tensor::variants([1], [&b"serialized"[..]]).unwrap());
    bundle
}

fn bytes_of(bundle: &Bundle) -> Vec<u8> {
    let mut bytes = Vec::new();
    bundle.write(&mut bytes).unwrap();
    bytes
}

fn refused(mut bundle: Bundle, bytes: &[u8], due: &str) {
    let error = bundle.read(&mut &*bytes).expect_err(due);
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    assert!(error.to_string().contains(due), "{error}");
}

#[test]
fn tensors_are_read_back_and_changed() {
    let bundle = bundle();
    let bytes = bytes_of(&bundle);
    let mut restored = Bundle::new();
    restored.read(&mut &bytes[..]).unwrap();
    assert_eq!(restored, bundle);
    restored.insert("layer/W", Tensor::from_values([2, 3], &[9.0_f32; 6]).unwrap());
    assert_eq!(*restored.get("layer/W").unwrap().values::<f32>().unwrap(), [9.0; 6]);
    restored.get_mut("flags").unwrap().bytes_mut().unwrap().fill(1);
    // What is there takes the same names, types and shapes.
    restored.read(&mut &bytes[..]).unwrap();
    assert_eq!(restored, bundle);
    assert_eq!(restored.iter().count(), 6);
    let mut empty = bundle;
    empty.read(&mut &bytes_of(&restored)[..]).unwrap();
    let nothing = bytes_of(&Bundle::new());
    let mut none = Bundle::new();
    none.read(&mut &nothing[..]).unwrap();
    assert_eq!(none, Bundle::new());
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let bytes = bytes_of(&bundle());
    let with = |name: &str, tensor: Tensor<'_>| {
        let mut changed = bundle();
        changed.insert(name, tensor);
        changed
    };
    let one = || Tensor::from_values([1], &[1.0_f32]).unwrap();
    refused(with("more", one()), &bytes, "the tensor \"more\" is missing");
    let due = "the tensor \"step\" has type int64 and shape [], and must have float and [1]";
    let due = due.replace("float ", &format!("{} ", DataType::Float32.name()));
    refused(with("step", one()), &bytes, &due);
    refused(bundle(), &bytes_of(&with("more", one())), "the tensor \"more\" is not known");
}

#[test]
fn archives_that_are_cut_or_changed_are_refused() {
    let bytes = bytes_of(&bundle());
    for length in 0..bytes.len() - 1024 {
        let mut bundle = Bundle::new();
        assert!(bundle.read(&mut &bytes[..length]).is_err(), "{length} of {} bytes", bytes.len());
    }
    // Each byte but those that pad blocks, or that no reader of archives looks at, is under a checksum.
    let mut taken = 0;
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x10;
        let mut read = Bundle::new();
        if read.read(&mut &changed[..]).is_ok() {
            assert!(read == bundle(), "byte {place}");
            taken += 1;
        }
    }
    assert!(taken < bytes.len() / 2, "{taken} of {}", bytes.len());
    refused(Bundle::new(), &[&bytes[..], b"more"].concat(), "after its end");
    refused(Bundle::new(), &[0; 1024], "has no model.index");
    let half = bytes.len() / 1024 * 512;
    assert!(Bundle::new().read(&mut &[&bytes[half..], &bytes[..half]].concat()[..]).is_err());
}

fn has_tensorflow() -> bool {
    need::python("TENSORFLOW", "tensorflow")
}

/// What the script prints: names, types, shapes and digests.
fn tensorflow(arguments: &[&Path]) -> serde_json::Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/checkpoint/with_tensorflow.py");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_tensorflow_wrote_is_kept_and_opens_in_tensorflow() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let due = tensorflow(&[Path::new("write"), folder.path()]);
    assert_eq!(due["plain"]["b/sliced"][1], serde_json::json!([5, 12]));
    std::fs::create_dir(at("store")).unwrap();
    let store = Arc::new(FolderStore::open(at("store")).unwrap());
    let metadata = Arc::new(MemoryMetadata::new());
    let parts = || Parts::new().with("objects", Bundle::new()).with("plain", Bundle::new());
    let begin =
        || Checkpointer::new(store.clone(), metadata.clone(), "shard").unwrap().restore(parts).unwrap();
    let first = begin();
    for name in ["objects", "plain"] {
        let read = Bundle::open(at(name)).unwrap();
        *first.state().write().get_mut::<Bundle>(name).unwrap() = read;
    }
    first.save_now().unwrap();
    drop(first);
    let second = begin();
    for name in ["objects", "plain"] {
        let prefix = at(&format!("restored {name}"));
        second.state().read().get::<Bundle>(name).unwrap().save(&prefix).unwrap();
        // The same, without this crate: what the command takes out of a checkpoint is an archive.
        let archive = Archive::new(store.clone(), metadata.clone());
        let file = at(&format!("{name}.tar"));
        archive.extract(&Id::new("shard").unwrap(), Some(name), &file, Existing::Refuse).unwrap();
        std::fs::create_dir(at(&format!("unpacked {name}"))).unwrap();
        let target = at(&format!("unpacked {name}"));
        let unpacked = Command::new("tar").arg("xf").arg(&file).arg("-C").arg(&target).status().unwrap();
        assert!(unpacked.success());
        for ending in [".index", ".data-00000-of-00001"] {
            let [ours, theirs] =
                [at(&format!("restored {name}{ending}")), target.join(format!("model{ending}"))];
            assert!(std::fs::read(ours).unwrap() == std::fs::read(theirs).unwrap(), "{name}{ending}");
        }
    }
    let read = [Path::new("read"), &at("restored objects"), &at("restored plain")];
    assert_eq!(tensorflow(&read), due);
    let unpacked = [at("unpacked objects/model"), at("unpacked plain/model")];
    assert_eq!(tensorflow(&[Path::new("read"), &unpacked[0], &unpacked[1]]), due);
}
