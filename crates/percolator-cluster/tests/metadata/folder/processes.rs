//! Several processes have one folder open.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use percolator_cluster::metadata::{FolderMetadata, Lease, Metadata as _, Transaction};

use super::commit;
use crate::process::need::missing;
use crate::process::{check, child_command, role, this_test};

const LONG: Duration = Duration::from_secs(60);

/// What one process writes, another one reads, although the file has outgrown what it had mapped; and it
/// knows when.
#[test]
fn a_process_sees_what_another_one_puts() {
    const RECORDS: usize = 6;
    if let Some(folder) = role() {
        let records = FolderMetadata::open(folder).unwrap();
        let mut seen = records.read("/go").unwrap().revision;
        for number in 0..RECORDS {
            while records.read("/go").unwrap().records.len() <= number {
                assert!(records.wait("/go", seen, LONG).unwrap());
            }
            let put = Transaction::new().put(format!("/done/{number}"), vec![7; 1 << 20]);
            seen = commit(&records, &put);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let mut child = child_command(this_test!(), folder.path().to_str().unwrap()).spawn().unwrap();
    for number in 0..RECORDS {
        let now = commit(&records, &Transaction::new().put(format!("/go/{number}"), ""));
        assert!(records.wait("/done/", now, LONG).unwrap(), "it does not answer");
        let found = records.read("/done/").unwrap();
        assert_eq!(found.records.len(), number + 1);
        assert!(found.records.iter().all(|record| record.value.len() == 1 << 20));
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_lease_of_a_process_that_was_killed_ends() {
    if let Some(folder) = role() {
        let records = std::sync::Arc::new(FolderMetadata::open(folder).unwrap());
        let lease = Lease::keep(records.clone(), Duration::from_millis(300)).unwrap();
        commit(&records, &Transaction::new().put_under(lease.id(), "/member", "me"));
        println!("joined");
        // Until it is killed. The lease is kept meanwhile.
        let found = records.wait("/never", records.read("").unwrap().revision, LONG);
        panic!("nobody killed it: {found:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let mut command = child_command(this_test!(), folder.path().to_str().unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("joined")));
    let found = records.read("/member").unwrap();
    assert_eq!(found.records.len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(records.wait("/member", found.revision, LONG).unwrap(), "the lease does not end");
    assert_eq!(records.read("/member").unwrap().records, []);
}

/// A container may have a time namespace, in which the machine seems to have been started long before: a
/// lease that lasts has not ended for a process in it.
#[test]
fn a_process_in_another_time_namespace_sees_the_same_leases() {
    if let Some(folder) = role() {
        let records = FolderMetadata::open(folder).unwrap();
        assert_eq!(records.read("/member").unwrap().records.len(), 1, "the lease lasts");
        let lease = records.grant(LONG).unwrap();
        commit(&records, &Transaction::new().put_under(lease, "/other", ""));
        return;
    }
    // Before Linux 6.3, only a child of the process that has asked for it is in the namespace.
    const UNSHARE: [&str; 7] = ["-U", "-r", "-T", "--boottime", "100000", "--fork", "--"];
    let is_there = Command::new("unshare").args(UNSHARE).arg("true").output();
    if !is_there.as_ref().is_ok_and(|output| output.status.success()) {
        return missing("NAMESPACES", format_args!("no time namespaces: {is_there:?}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let lease = records.grant(LONG).unwrap();
    commit(&records, &Transaction::new().put_under(lease, "/member", "me"));
    let child = child_command(this_test!(), folder.path().to_str().unwrap());
    let mut command = Command::new("unshare");
    command.args(UNSHARE).arg(child.get_program()).args(child.get_args());
    for (name, value) in child.get_envs() {
        command.env(name, value.unwrap());
    }
    check(this_test!(), &command.output().unwrap());
    // Nor do the other's last longer here.
    assert_eq!(records.read("/member").unwrap().records.len(), 1);
    assert_eq!(records.read("/other").unwrap().records.len(), 1);
}
