//! What the errors of damaged checkpoints name: the file, and the tensor and its offset if it is about one.
//! (`bundles` damages every part of them.)

use std::fs;
use std::path::{Path, PathBuf};

use percolator_files::Access;
use percolator_tensorflow::{Checkpoint, CheckpointError, Tensor};
use tempfile::TempDir;

use crate::golden::data;

/// A copy of a checkpoint, to be damaged.
struct Copy {
    _folder: TempDir,
    prefix: PathBuf,
    files: Vec<PathBuf>,
    /// All tensors, as they are before.
    due: Vec<(String, Tensor<'static>)>,
}

impl Copy {
    fn new(of: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let prefix = data(of);
        let name = prefix.file_name().unwrap().to_str().unwrap();
        let mut files = Vec::new();
        for file in fs::read_dir(prefix.parent().unwrap()).unwrap().map(|file| file.unwrap().path()) {
            let own = file.file_name().unwrap().to_str().unwrap().to_owned();
            if own.starts_with(&format!("{name}.index")) || own.starts_with(&format!("{name}.data-")) {
                fs::copy(&file, folder.path().join(&own)).unwrap();
                files.push(folder.path().join(own));
            }
        }
        files.sort();
        let due = everything(&prefix, Access::Mapped).unwrap();
        Copy { prefix: folder.path().join(name), _folder: folder, files, due }
    }

    /// Reads everything of the damaged checkpoint in both ways. Returns the error, or nothing if all is as it
    /// was.
    fn check(&self, what: &str) -> Option<CheckpointError> {
        let [mapped, read] = [Access::Mapped, Access::Read].map(|access| everything(&self.prefix, access));
        assert_eq!(mapped, read, "{what}");
        let faults = Checkpoint::open(&self.prefix).map(|checkpoint| checkpoint.verify(1).faults);
        match mapped {
            Ok(found) => {
                assert_eq!(found, self.due, "{what}: other tensors, and no error");
                assert_eq!(faults, Ok(vec![]), "{what}");
                None
            }
            Err(error) => {
                let first = faults.map_or_else(|error| error, |faults| faults[0].clone());
                assert_eq!(first, error, "{what}");
                Some(error)
            }
        }
    }
}

/// All tensors, one by one and loaded together.
fn everything(prefix: &Path, access: Access) -> Result<Vec<(String, Tensor<'static>)>, CheckpointError> {
    let checkpoint = Checkpoint::open_with(prefix, access)?;
    let tensors: Result<Vec<_>, _> = checkpoint
        .tensors()
        .map(|info| Ok((info.name.to_owned(), checkpoint.tensor(info.name)?.into_owned())))
        .collect();
    let loaded = Checkpoint::open_with(prefix, access)?.load_all(1);
    match (&tensors, loaded) {
        (Ok(tensors), Ok(loaded)) => {
            assert!(tensors.iter().map(|(_, tensor)| tensor).eq(&loaded));
        }
        (Err(_), Err(_)) => {}
        (one, other) => panic!("{one:?}, but loaded {other:?}"),
    }
    if checkpoint.contains("_CHECKPOINTABLE_OBJECT_GRAPH") && tensors.is_ok() {
        checkpoint.objects()?;
    }
    tensors
}

fn is_index(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "index")
}

/// Asserts that a message names the file, and of a data file the tensor and its offset.
fn assert_names(error: &CheckpointError, file: &Path) {
    let message = error.to_string();
    assert!(message.contains(file.to_str().unwrap()), "{message}");
    if !is_index(file) {
        assert!(message.contains("the tensor \"") && message.contains(" byte "), "{message}");
    }
}

#[test]
fn changed_bytes_of_a_large_index_are_found() {
    let copy = Copy::new("many/model");
    let file = copy.files.iter().find(|file| is_index(file)).unwrap();
    let good = fs::read(file).unwrap();
    for at in (0..good.len() - 100).step_by(997) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        fs::write(file, &bytes).unwrap();
        assert_names(&copy.check(&format!("byte {at}")).unwrap(), file);
    }
}

#[test]
fn missing_and_exchanged_files_are_named() {
    let copy = Copy::new("sharded/model");
    let shards: Vec<_> = copy.files.iter().filter(|file| !is_index(file)).collect();
    assert_eq!(shards.len(), 3);
    for shard in &shards {
        let good = fs::read(shard).unwrap();
        fs::remove_file(shard).unwrap();
        let error = copy.check("missing").unwrap();
        assert!(
            matches!(&error, CheckpointError::MissingShard { file, shards: 3, .. } if file == *shard),
            "{error}"
        );
        // The others can be read, and everything can be listed.
        let checkpoint = Checkpoint::open(&copy.prefix).unwrap();
        let readable = checkpoint.tensors().filter(|info| checkpoint.tensor(info.name).is_ok()).count();
        assert!(readable > 0 && readable < checkpoint.len());
        let faults = checkpoint.verify(1).faults;
        assert!(matches!(&faults[..], [CheckpointError::MissingShard { file, .. }] if file == *shard));
        fs::create_dir(shard).unwrap();
        let message = copy.check("a folder").unwrap().to_string();
        assert!(message.contains("only regular files are read"), "{message}");
        fs::remove_dir(shard).unwrap();
        fs::write(shard, good).unwrap();
    }
    for (one, other) in [(0, 1), (1, 2), (2, 0)] {
        let bytes = [one, other].map(|shard| fs::read(shards[shard]).unwrap());
        fs::write(shards[one], &bytes[1]).unwrap();
        fs::write(shards[other], &bytes[0]).unwrap();
        let error = copy.check("exchanged").unwrap();
        assert!(matches!(error, CheckpointError::Checksum { .. } | CheckpointError::Cut { .. }), "{error}");
        fs::write(shards[one], &bytes[0]).unwrap();
        fs::write(shards[other], &bytes[1]).unwrap();
    }
    assert_eq!(copy.check("as it was"), None);
    fs::remove_file(copy.files.iter().find(|file| is_index(file)).unwrap()).unwrap();
    let error = copy.check("no index").unwrap();
    assert!(matches!(error, CheckpointError::Missing { .. }), "{error}");
}
