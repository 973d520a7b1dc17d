//! What users get wrong with the model's subcommands: an error says so before anything is written.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use serde_json::Value;
use tempfile::tempdir;

use crate::common::words_of;
use crate::model::{command, fail, floats, pass, written};

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_checkpoint_is_not_written_beside_a_folder_or_a_device() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    fs::create_dir(path.join("folder")).unwrap();
    assert!(Command::new("mkfifo").arg(path.join("fifo")).status().unwrap().success());
    let before = names(path);
    for target in ["folder", "."] {
        let (_, error) = fail(path, &format!("convert model {target}"));
        assert!(error.contains("a folder is there: end the path with a slash"), "{error}");
        assert!(error.contains(&format!("{target}/model")), "{error}");
    }
    for subcommand in ["convert", "copy"] {
        for target in ["fifo", "/dev/null", "/dev/full"] {
            let (_, error) = fail(path, &format!("{subcommand} model {target}"));
            assert!(error.contains("it is no regular file"), "{error}");
        }
    }
    assert_eq!(names(path), before);
    assert!(!Path::new("/dev/null.index").exists());
    // Whoever names the format means it.
    pass(path, "convert model folder --to checkpoint");
    assert!(path.join("folder.index").exists());
}

#[test]
fn what_is_there_is_replaced_only_by_force() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    for subcommand in ["convert model x.npz", "convert model x.npy", "convert model x", "copy model copied/"]
    {
        pass(path, subcommand);
        let (_, error) = fail(path, subcommand);
        assert!(error.contains("it already exists; give another path, or --force to replace it"), "{error}");
        pass(path, &format!("{subcommand} --force"));
    }
    // A part of a checkpoint, such as one that is being copied there, and a graph that has none.
    for name in ["late.data-00001-of-00002", "late.meta"] {
        fs::write(path.join(name), "another's").unwrap();
        let (_, error) = fail(path, "copy model late");
        assert!(error.contains("it already exists; give another path, or --force to replace it"), "{error}");
        assert_eq!(fs::read_to_string(path.join(name)).unwrap(), "another's");
        fs::remove_file(path.join(name)).unwrap();
    }
}

#[test]
fn options_without_effect_are_refused() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    let (_, error) = fail(path, "convert model x.npz --shards 2");
    assert_eq!(error, "percolator: --shards is for checkpoints, and x.npz would be .npz\n");
    for target in ["x.index --shards 1", "x --shards 100000", "x.percolator-previous"] {
        let (_, error) = fail(path, &format!("convert model {target} --dry-run"));
        assert!(error.starts_with("percolator: checkpoint x.") || error.contains("1 to 99999"), "{error}");
    }
}

#[test]
fn what_cannot_be_reached_is_not_said_to_be_missing() {
    let folder = tempdir().unwrap();
    let path = folder.path();
    symlink("loop", path.join("loop")).unwrap();
    fs::write(path.join("file"), "").unwrap();
    for (given, found) in [("loop", Errno::LOOP), ("file/model", Errno::NOTDIR)] {
        let (_, error) = fail(path, &format!("list {given}"));
        assert!(error.starts_with(&format!("percolator: {given}: cannot read it: ")), "{error}");
        assert_eq!(error.matches(&words_of(found)).count(), 1, "{error}");
    }
    for folder in ["missing", "file"] {
        let (_, error) = fail(path, &format!("latest {folder}"));
        assert!(error.contains("no such folder") || error.contains(&words_of(Errno::NOTDIR)), "{error}");
        assert_eq!(error.matches("os error").count(), usize::from(folder == "file"), "{error}");
    }
    fs::write(path.join("empty.npy"), "").unwrap();
    let (_, error) = fail(path, "list empty.npy");
    assert!(error.contains("byte 0: found nothing; an array"), "{error}");
}

#[test]
fn a_copy_fails_before_it_writes() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    fs::create_dir(path.join("to")).unwrap();
    fs::write(path.join("to/checkpoint"), "damaged {").unwrap();
    fail(path, "copy model to/");
    assert_eq!(names(&path.join("to")), ["checkpoint"]);
}

#[test]
fn names_of_files_need_not_be_text() {
    let folder = written(&[("a", floats(&[1.0]))]);
    let path = folder.path();
    let with = |arguments: &str, name: &[u8]| {
        let output = command(path, arguments).arg(OsStr::from_bytes(name)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    with("copy model", b"to\xff/");
    assert_eq!(with("latest", b"to\xff"), b"to\xff/model\n");
    for name in [&b"x\xff.npz"[..], b"x\xff.safetensors", b"y\xff/", b"x\xff", b"x\ny.npz", b"to\xff"] {
        if !name.starts_with(b"to") {
            let found: Value = serde_json::from_slice(&with("convert model --json", name)).unwrap();
            assert_eq!(found["tensors"], 1);
            assert_eq!(found["path"], *String::from_utf8_lossy(name));
        }
        for arguments in ["list --json", "verify --json", "show --json", "diff model --json"] {
            serde_json::from_slice::<Value>(&with(arguments, name)).unwrap();
        }
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let folder = tempdir().unwrap();
    for arguments in
        ["list @types", "verify @types --json", "show @module --json", "diff @types @types", "latest @types"]
    {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(folder.path(), arguments).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {error}");
        assert!(error.starts_with("percolator: cannot write to the standard output: "), "{error}");
    }
}
