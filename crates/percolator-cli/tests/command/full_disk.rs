//! On a disk that is full, each command says so and what is left of its output; a data set is still read.
//!
//! The disk is a small file system in memory, in a mount namespace of its own. Where none can be made, the
//! tests say that they did not run.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use tempfile::tempdir;

use crate::common;
use crate::common::sample::some_of;
use crate::common::words_of;

/// Runs a script in the folder of a new disk of this many KiB; `$0` is the command. Returns its exit code and
/// all that it said.
fn on_a_disk(kib: u32, script: &str, arguments: &[&Path]) -> Option<(i32, String)> {
    const NO_DISK: i32 = 77;

    let folder = tempdir().unwrap();
    let mount =
        format!("mount -t tmpfs -o size={kib}k none . && cd \"$PWD\" || exit {NO_DISK}; exec 2>&1; {script}");
    let run = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &mount, env!("CARGO_BIN_EXE_percolator")])
        .args(arguments)
        .env("RUST_LOG", "warn")
        .current_dir(folder.path())
        .output();
    match run.map(|output| (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())) {
        Ok((Some(code), said)) if code != NO_DISK && !(code == 1 && said.is_empty()) => Some((code, said)),
        run => {
            eprintln!("NOT RUN: there is no disk to fill: {run:?}");
            None
        }
    }
}

/// A database of many images.
fn database(folder: &Path, records: usize) -> PathBuf {
    let path = folder.join("db");
    common::write_images(&path, records, 3, 20, 20);
    path
}

/// LMDB maps its lock file. A write to a map of a file that the disk has no room for kills the process.
#[test]
fn a_database_on_a_full_disk_is_read() {
    let folder = tempdir().unwrap();
    let data = database(folder.path(), 50).join("data.mdb");
    let refused = format!("{}): reading it without a lock", words_of(Errno::NOSPC));
    let fill = "mkdir db && cp \"$1\" db && cat /dev/zero > fill; ";
    for tool in ["inspect db", "verify db", "mean db", "digest db", "feed db --once --batch-size 7"] {
        let Some((code, said)) = on_a_disk(1000, &format!("{fill}\"$0\" {tool}"), &[&data]) else { return };
        assert_eq!(code, 0, "{tool}: {said}");
        assert!(said.contains(&refused), "{tool}: {said}");
    }
    // What has room gets its lock.
    let Some((code, said)) = on_a_disk(1000, "mkdir db && cp \"$1\" db && \"$0\" verify db", &[&data]) else {
        return;
    };
    assert!(code == 0 && !said.contains("without a lock"), "{said}");
}

#[test]
fn what_is_left_of_an_output_is_said() {
    let folder = tempdir().unwrap();
    let data = database(folder.path(), 300);
    let left = "; code=$?; ls -A; exit $code";
    // From no room at all to room for some records.
    for kib in some_of([4, 8, 16, 64, 200], 2) {
        for backend in ["lmdb", "leveldb", "tfrecord"] {
            let convert = format!("\"$0\" convert records \"$1\" out --backend {backend} --quiet{left}");
            let Some((code, said)) = on_a_disk(kib, &convert, &[&data]) else { return };
            let line = said.strip_suffix('\n').unwrap();
            assert!(
                code == 2 && line.ends_with("; nothing is left of the output"),
                "{kib}, {backend}: {said}"
            );
            assert!(line.lines().count() == 1 && line.contains("out.percolator-converting"), "{said}");
        }
        let repair = format!("\"$0\" verify \"$1\" --repair out --quiet{left}");
        let Some((code, said)) = on_a_disk(kib, &repair, &[&data]) else { return };
        let line = said.strip_suffix('\n').unwrap();
        assert!(code == 2 && line.ends_with("; nothing is left of the copy"), "{kib}: {said}");
        assert_eq!(line.lines().count(), 1, "{said}");
    }
    for tool in ["mean \"$1\" out", "inspect \"$1\" --html out"] {
        let Some((code, said)) = on_a_disk(4, &format!("\"$0\" {tool} --quiet{left}"), &[&data]) else {
            return;
        };
        assert_eq!(code, 2, "{tool}: {said}");
        // What was found out is printed even so.
        let (report, line) = said.trim_end().rsplit_once('\n').unwrap();
        assert!(line.contains("out: cannot write the file, and no part of it is left: "), "{tool}: {said}");
        assert!(report.contains("300"), "{tool}: {said}");
    }
}
