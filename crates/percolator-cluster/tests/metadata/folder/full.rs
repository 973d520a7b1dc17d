//! No room: the limit of the file, the disk's end, and folders that cannot be written to.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Outcome, Transaction};

use super::commit;
use crate::process::need::missing;
use crate::process::{check, check_without_root, child_command, role, this_test};

const VALUE: usize = 100_000;

fn put(number: usize) -> Transaction {
    Transaction::new().put(format!("/{number:03}"), vec![u8::try_from(number % 251).unwrap(); VALUE])
}

/// Puts records until there is no room, which must come, and returns how many.
fn fill(records: &FolderMetadata) -> usize {
    for number in 0..1000 {
        match records.transact(&put(number)) {
            Ok(Outcome::Committed(_)) => {}
            Err(MetadataError::Full { .. }) => return number,
            found => panic!("{found:?}"),
        }
    }
    panic!("there is no end");
}

/// What holds in a place with room for a few of those records.
fn a_full_place_can_be_read_and_emptied(records: &FolderMetadata) {
    let count = fill(records);
    assert!(count >= 3, "only {count} records");
    let check = |from: usize| {
        let found = records.read("").unwrap();
        assert_eq!(found.records.len(), count - from);
        for (record, number) in found.records.iter().zip(from..) {
            assert_eq!(record.key, format!("/{number:03}"));
            assert!(
                record.value.len() == VALUE
                    && record.value.iter().all(|&byte| usize::from(byte) == number % 251)
            );
        }
    };
    check(0);
    assert!(matches!(records.transact(&put(999)), Err(MetadataError::Full { .. })), "and stays full");
    for number in 0..3 {
        commit(records, &Transaction::new().remove(format!("/{number:03}")));
    }
    check(3);
    let lease = records.grant(std::time::Duration::MAX).unwrap();
    records.keep_alive(lease).unwrap();
    records.revoke(lease).unwrap();
    commit(records, &put(0));
    commit(records, &Transaction::new().remove("/000"));
    check(3);
}

#[test]
fn the_limit_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let open = |bytes_max| FolderMetadata::options().bytes_max(bytes_max).open(folder.path()).unwrap();
    let records = open(3 << 20);
    a_full_place_can_be_read_and_emptied(&records);
    let used = fs::metadata(folder.path().join("metadata.sqlite")).unwrap();
    assert!(used.len() <= 3 << 20, "{} bytes", used.len());
    fill(&records);
    let error = records.transact(&put(999)).unwrap_err();
    assert!(error.to_string().contains("at most 3145728 bytes are allowed"), "{error}");
    commit(&open(30 << 20), &put(999));
    assert!(records.read("/999").unwrap().records.len() == 1);
}

/// The records of one process reach to the reserve; another one then removes some, and needs pages of it.
#[test]
fn another_process_may_use_the_reserve() {
    const BYTES_MAX: u64 = 3 << 20;
    let open = |folder: &Path| FolderMetadata::options().bytes_max(BYTES_MAX).open(folder).unwrap();
    if let Some(folder) = role() {
        let records = open(Path::new(&folder));
        for number in 0..3 {
            commit(&records, &Transaction::new().remove(format!("/{number:03}")));
            let lease = records.grant(std::time::Duration::MAX).unwrap();
            records.revoke(lease).unwrap();
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let records = open(folder.path());
    let count = fill(&records);
    // The last pages before the reserve, of which the large records leave some.
    let small = |number: usize| Transaction::new().put(format!("/small/{number:06}"), vec![0; 1000]);
    let full = (0..100_000).find(|&number| records.transact(&small(number)).is_err()).unwrap();
    let child = child_command(this_test!(), folder.path().to_str().unwrap()).output().unwrap();
    check(this_test!(), &child);
    assert_eq!(records.read("").unwrap().records.len(), count - 3 + full);
    commit(&records, &put(0));
    commit(&records, &Transaction::new().remove("/000"));
}

/// Files may have no more than so many bytes (RLIMIT_FSIZE).
#[test]
fn files_may_not_grow() {
    if let Some(folder) = role() {
        return a_full_place_can_be_read_and_emptied(&FolderMetadata::open(folder).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let child = child_command(this_test!(), folder.path().to_str().unwrap());
    // Without the trap, the kernel would end the process by a signal. The unit is 512 or 1024 bytes.
    check(this_test!(), &after("trap '' XFSZ && ulimit -f 6000", &child).output().unwrap());
}

/// The disk is full in the midst of a commit, not when the file is made longer.
#[test]
fn the_disk_is_full() {
    if let Some(folder) = role() {
        return a_full_place_can_be_read_and_emptied(&FolderMetadata::open(folder).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let mount = format!("mount -t tmpfs -o size=5m none '{path}'");
    let possible = in_own_namespace(&after(&mount, &Command::new("true"))).output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        missing("NAMESPACES", format_args!("no file system can be mounted here: {possible:?}"));
        return;
    }
    let child = after(&mount, &child_command(this_test!(), path));
    check(this_test!(), &in_own_namespace(&child).output().unwrap());
}

/// A command after some words of a shell.
fn after(shell: &str, command: &Command) -> Command {
    let mut all = Command::new("sh");
    all.args(["-c", &format!("{shell} && exec \"$@\""), "sh"]).arg(command.get_program());
    all.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    all
}

fn in_own_namespace(command: &Command) -> Command {
    let mut all = Command::new("unshare");
    all.args(["--user", "--map-root-user", "--mount"]).arg(command.get_program()).args(command.get_args());
    all.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    all
}

#[test]
fn a_folder_that_cannot_be_written_to_is_refused() {
    if let Some(folder) = role() {
        let folder = PathBuf::from(folder);
        for path in [folder.clone(), folder.join("new/folder")] {
            let error = FolderMetadata::open(&path).unwrap_err();
            assert!(matches!(error, MetadataError::Denied { .. }), "{error:?}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    set(folder.path(), 0o555);
    let child = child_command(this_test!(), folder.path().to_str().unwrap());
    check_without_root(this_test!(), child, folder.path());
    set(folder.path(), 0o755);
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = FolderMetadata::open(&file).unwrap_err();
    assert!(matches!(error, MetadataError::Failed { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with(&format!("the folder {}: could not open the records", file.display())),
        "{error}"
    );
    // A file system whose files are made by the kernel alone.
    assert!(FolderMetadata::open("/proc/self/no/such").is_err());
}
