//! No file handle, or no thread, is left in this process. What cannot be written is said, and what was
//! written before is restored.

use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use percolator_cluster::Checkpointer;
use percolator_cluster::checkpoint::{CheckpointError, Checkpoints, Mode};
use percolator_cluster::metadata::MemoryMetadata;
use percolator_cluster::store::FolderStore;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::process::{check, check_without_root, child_command, must_end, role, this_test};

/// Lowers a limit of this process while `run` runs.
fn under<T>(resource: Resource, limit: u64, run: impl FnOnce() -> T) -> T {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(limit), maximum: before.maximum }).unwrap();
    let result = run();
    setrlimit(resource, before).unwrap();
    result
}

fn begin(
    folder: &Path,
    metadata: &MemoryMetadata,
    mode: Mode,
) -> Result<Checkpoints<Vec<u8>>, CheckpointError> {
    let store = Arc::new(FolderStore::open(folder)?);
    Checkpointer::new(store, Arc::new(metadata.clone()), "shard")?.mode(mode).restore(Vec::new)
}

/// An error and its causes.
fn chain(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Begins, writes and restores under ever higher limits, the lowest first.
fn with_ever_more(folder: &Path, resource: Resource, lowest: u64, refusal: Errno) {
    let reason = std::io::Error::from(refusal).to_string();
    for mode in [Mode::Copy, Mode::Hold] {
        let (mut refused, mut done) = (0, 0);
        for limit in lowest..lowest + 16 {
            let metadata = MemoryMetadata::new();
            let checkpoints = begin(folder, &metadata, mode).unwrap();
            *checkpoints.state().write() = vec![1; 1000];
            checkpoints.save_now().unwrap();
            *checkpoints.state().write() = vec![2; 1000];
            let saved = under(resource, limit, || checkpoints.save_now().map(drop));
            drop(checkpoints);
            let begun = under(resource, limit, || begin(folder, &metadata, mode).map(drop));
            for result in [&saved, &begun] {
                match result {
                    Ok(()) => done += 1,
                    Err(error) => {
                        assert!(chain(error).contains(&reason), "{mode:?}, limit {limit}: {}", chain(error));
                        refused += 1;
                    }
                }
            }
            let last = if saved.is_ok() { 2 } else { 1 };
            let restored = begin(folder, &metadata, mode).unwrap();
            assert!(*restored.state().read() == vec![last; 1000], "{mode:?}, limit {limit}");
            drop(restored);
            fs::remove_dir_all(folder.join("shard")).unwrap();
        }
        println!("{mode:?}: refused {refused}, done {done}");
        assert!(refused > 0 && done > 0, "{mode:?}: refused {refused}, done {done}");
    }
}

#[test]
fn without_a_file_handle_the_checkpoint_before_stays() {
    if let Some(folder) = role() {
        let run = move || {
            // The limit is on the handles' numbers, of which the lowest free one is given: 3 or more.
            with_ever_more(Path::new(&folder), Resource::Nofile, 3, Errno::MFILE);
        };
        return must_end("checkpoints without file handles", run);
    }
    let folder = tempfile::tempdir().unwrap();
    let child = child_command(this_test!(), folder.path().to_str().unwrap()).output().unwrap();
    check(this_test!(), &child);
}

/// The system does not hold root to this limit.
#[test]
fn without_a_thread_the_checkpoint_before_stays() {
    if let Some(folder) = role() {
        let run = move || with_ever_more(Path::new(&folder), Resource::Nproc, 0, Errno::AGAIN);
        return must_end("checkpoints without threads", run);
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    check_without_root(
        this_test!(),
        child_command(this_test!(), folder.path().to_str().unwrap()),
        Path::new("/"),
    );
}
