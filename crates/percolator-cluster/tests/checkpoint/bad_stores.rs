//! Stores that are full, or may not be written. The checkpoint before stays.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, Checkpoints, Mode};
use percolator_cluster::metadata::MemoryMetadata;
use percolator_cluster::store::FolderStore;

use crate::process::need::missing;
use crate::process::{check, check_without_root, child_command, role, this_test};

fn begin(folder: &Path, metadata: &MemoryMetadata, mode: Mode) -> Checkpoints<Vec<u8>> {
    let store = Arc::new(FolderStore::open(folder).unwrap());
    let how = Checkpointer::new(store, Arc::new(metadata.clone()), "shard").unwrap();
    how.mode(mode).restore(Vec::new).unwrap()
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder.join("shard")).unwrap().count()
}

/// In a file system of 8 MB, in a mount namespace of its own.
#[test]
fn a_full_store_is_said_and_loses_nothing() {
    const MEGABYTE: usize = 1 << 20;

    if let Some(folder) = role() {
        let folder = Path::new(&folder);
        for mode in [Mode::Copy, Mode::Hold] {
            let metadata = MemoryMetadata::new();
            let checkpoints = begin(folder, &metadata, mode);
            *checkpoints.state().write() = vec![1; 3 * MEGABYTE];
            checkpoints.save_now().unwrap();
            *checkpoints.state().write() = vec![2; 6 * MEGABYTE];
            let error = checkpoints.save_now().unwrap_err();
            let CheckpointError::Store(error) = error else { panic!("{error:?}") };
            assert!(error.to_string().contains("the store is full"), "{error}");
            assert_eq!(files(folder), 1, "what was begun is gone");
            drop(checkpoints);
            let checkpoints = begin(folder, &metadata, mode);
            assert!(*checkpoints.state().read() == vec![1; 3 * MEGABYTE]);
            *checkpoints.state().write() = vec![3; 4 * MEGABYTE];
            checkpoints.save_now().unwrap();
            assert_eq!(files(folder), 1);
            drop(checkpoints);
            fs::remove_dir_all(folder.join("shard")).unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let child = child_command(this_test!(), folder.path().to_str().unwrap());
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=8m tmpfs \"$1\" || exit 99; shift; exec \"$@\"")
        .arg("sh")
        .arg(folder.path())
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null());
    match command.output() {
        Ok(output)
            if output.status.code() == Some(99)
                || output.status.code() == Some(1) && output.stdout.is_empty() =>
        {
            missing("NAMESPACES", format_args!("a file system cannot be mounted here: {output:?}"));
        }
        Ok(output) => check(this_test!(), &output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            missing("NAMESPACES", "there is no unshare here");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_store_that_is_read_only_is_said() {
    if let Some(folder) = role() {
        let checkpoints = begin(Path::new(&folder), &MemoryMetadata::new(), Mode::Copy);
        let error = checkpoints.save_now().unwrap_err();
        let CheckpointError::Store(error) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains("the store is read-only"), "{error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut permissions = fs::metadata(folder.path()).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o555);
    fs::set_permissions(folder.path(), permissions).unwrap();
    let command = child_command(this_test!(), folder.path().to_str().unwrap());
    check_without_root(this_test!(), command, folder.path());
}
