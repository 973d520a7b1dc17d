//! Beside the real TensorFlow: the same bytes, the same lists of checkpoints, and each continues what the
//! other wrote. `PERCOLATOR_SEED` sets the seed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use percolator_tensorflow::checkpoint::{Extent, ManagerOptions};
use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor, latest_checkpoint};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use crate::bundle::{assert_same, read, write};
use crate::process::need;

fn has_tensorflow() -> bool {
    need::python("TENSORFLOW", "tensorflow")
}

/// What the script prints.
fn tensorflow(arguments: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/with_tensorflow.py");
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn seed() -> String {
    std::env::var("PERCOLATOR_SEED").unwrap_or_else(|_| "1".to_owned())
}

#[test]
fn random_tensors_are_written_byte_for_byte_as_tensorflow_writes_them() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    let prefixes = tensorflow(&["tensors", folder.path().to_str().unwrap(), &seed()]);
    let prefixes = prefixes.as_array().unwrap();
    assert_eq!(prefixes.len(), 12);
    let (mut slices, mut variants, mut sharded) = (0, 0, 0);
    for prefix in prefixes {
        let due = Path::new(prefix.as_str().unwrap());
        let (shards, all) = read(due);
        let prefix = folder.path().join("written");
        write(&prefix, shards, &all);
        assert_same(&prefix, due, shards);
        slices += all.iter().filter(|one| one.slice.is_some()).count();
        variants += all.iter().filter(|one| one.data_type == DataType::Variant).count();
        sharded += usize::from(shards > 1);
    }
    assert!(
        slices > 5 && variants > 2 && sharded > 1,
        "{slices} slices, {variants} variants, {sharded} sharded"
    );
    // Three blocks at the least.
    assert!(fs::metadata(folder.path().join("random-0.index")).unwrap().len() > 3 * 262_144);
}

#[test]
fn tensorflow_reads_what_is_written() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    let mut writer = CheckpointWriter::create_sharded(&prefix, 2).unwrap();
    let mut due = BTreeMap::new();
    let plain = [DataType::Float32, DataType::Int64, DataType::Bool, DataType::Complex128, DataType::Uint16];
    for (number, data_type) in plain.into_iter().enumerate() {
        let bytes: Vec<u8> =
            (0..12 * data_type.size().unwrap()).map(|at| u8::try_from(at % 2).unwrap()).collect();
        let name = format!("numbers/\u{e9}{number}");
        writer.set_shard(number % 2).unwrap();
        writer.add(&name, &Tensor::new(data_type, [3, 4], &bytes[..]).unwrap()).unwrap();
        due.insert(name, (data_type.name(), vec![3, 4], Sha256::digest(&bytes)));
    }
    let strings = [&b""[..], b"a\0b", &[7; 70_000]];
    writer.add("strings", &Tensor::strings([3, 1], strings).unwrap()).unwrap();
    due.insert("strings".to_owned(), ("string", vec![3, 1], Sha256::digest(strings.join(&0))));
    for (from, to) in [(0_usize, 10_usize), (10, 100), (100, 101)] {
        let region = [Extent::All, Extent::Part(from..to)];
        let mut slice = writer.begin_slice("sliced", DataType::Uint8, &[2, 101], &region).unwrap();
        for row in 0..2 {
            for column in from..to {
                slice.add(&[u8::try_from(row * 101 + column).unwrap()]).unwrap();
            }
        }
        slice.finish().unwrap();
    }
    let sliced: Vec<u8> = (0..202).collect();
    due.insert("sliced".to_owned(), ("uint8", vec![2, 101], Sha256::digest(&sliced)));
    writer.finish().unwrap();
    let found = tensorflow(&["read", prefix.to_str().unwrap()]);
    let found = found[prefix.to_str().unwrap()].as_object().unwrap();
    assert_eq!(found.len(), due.len());
    for (name, (data_type, shape, digest)) in due {
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let due = serde_json::json!([data_type, shape, digest]);
        assert_eq!(found[&name], due, "{name}");
    }
}

fn time(nanoseconds: &Value) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanoseconds.as_u64().unwrap())
}

fn tiny(prefix: PathBuf) -> CheckpointWriter {
    let mut writer = CheckpointWriter::create(prefix).unwrap();
    writer.add("v", &Tensor::new(DataType::Float32, [], vec![0; 4]).unwrap()).unwrap();
    writer
}

#[test]
fn managers_keep_and_list_checkpoints_as_tensorflows_do() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    let plans = tensorflow(&["manage", folder.path().to_str().unwrap(), &seed()]);
    let mut steps = 0;
    for plan in plans.as_array().unwrap() {
        // The same absolute paths.
        let folder = Path::new(plan["folder"].as_str().unwrap());
        fs::remove_dir_all(folder).unwrap();
        let is_saver = plan["saver"].as_bool().unwrap();
        let base = if is_saver { ManagerOptions::saver() } else { ManagerOptions::checkpoint_manager(None) };
        let options = ManagerOptions {
            max_to_keep: plan["most"].as_u64().map(|most| usize::try_from(most).unwrap()),
            keep_every_hours: plan["hours"].as_f64(),
            relative_paths: !is_saver || plan["relative"].as_bool().unwrap(),
            ..base
        };
        let mut manager = None;
        for step in plan["steps"].as_array().unwrap() {
            if !step["opened"].is_null() {
                let opened = time(&step["opened"]);
                manager = Some(CheckpointManager::open_at(folder, options.clone(), opened).unwrap());
            }
            let manager = manager.as_mut().unwrap();
            let prefix = manager.prefix(step["step"].as_u64());
            manager.save_at(tiny(prefix.clone()), time(&step["now"])).unwrap();
            if is_saver {
                let meta = format!("{}.meta", prefix.display());
                fs::write(meta, "").unwrap();
            }
            let mut names: Vec<String> = fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.ends_with(".index") || name.ends_with(".meta"))
                .collect();
            names.sort_unstable();
            let text = fs::read_to_string(folder.join("checkpoint")).unwrap();
            assert_eq!(serde_json::json!([text, names]), step["after"], "{step} of {plan}");
            steps += 1;
        }
    }
    assert!(steps > 30);
}

#[test]
fn tensorflow_and_a_manager_take_turns_in_one_folder() {
    if !has_tensorflow() {
        return;
    }
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let options = ManagerOptions::checkpoint_manager(Some(3));
    let mut ours = CheckpointManager::open(folder, options.clone()).unwrap();
    for step in [1, 2, 3, 4] {
        ours.save(tiny(ours.prefix(step))).unwrap();
    }
    let theirs = tensorflow(&["latest", folder.to_str().unwrap()]);
    let paths = |steps: &[u64]| -> Vec<PathBuf> {
        steps.iter().map(|step| folder.join(format!("ckpt-{step}"))).collect()
    };
    let shown = |steps: &[u64]| serde_json::json!(paths(steps));
    assert_eq!(theirs["latest"], shown(&[4])[0]);
    assert_eq!(theirs["managed"], shown(&[2, 3, 4]));
    assert_eq!(theirs["saved"], shown(&[5])[0]);
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("ckpt-5")));
    let mut ours = CheckpointManager::open(folder, options).unwrap();
    assert!(ours.checkpoints().eq(paths(&[3, 4, 5])));
    ours.save(tiny(ours.prefix(6))).unwrap();
    assert!(!folder.join("ckpt-3.index").exists() && folder.join("ckpt-5.index").exists());
    let theirs = tensorflow(&["latest", folder.to_str().unwrap()]);
    assert_eq!((&theirs["latest"], &theirs["managed"]), (&shown(&[6])[0], &shown(&[4, 5, 6])));
    // A manager is killed after it has begun to replace the latest one.
    let mut ours = CheckpointManager::open(folder, ManagerOptions::checkpoint_manager(None)).unwrap();
    ours.save(tiny(ours.prefix(7))).unwrap();
    let text = fs::read_to_string(folder.join("checkpoint")).unwrap();
    for ending in [".index", ".data-00000-of-00001"] {
        fs::rename(
            folder.join(format!("ckpt-7{ending}")),
            folder.join(format!("ckpt-7.percolator-previous{ending}")),
        )
        .unwrap();
    }
    fs::write(folder.join("checkpoint"), text.replace("ckpt-7", "ckpt-7.percolator-previous")).unwrap();
    let prefix = folder.join("ckpt-7.percolator-previous");
    let found = tensorflow(&["read", prefix.to_str().unwrap()]);
    assert_eq!(found[prefix.to_str().unwrap()]["v"][0], "float32");
}
