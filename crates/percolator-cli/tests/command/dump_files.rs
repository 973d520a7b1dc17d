//! A dump that fails must leave nothing behind that could be taken for its arrays: on a full disk, behind
//! links, and where the folder or something else of that name is in the way. Files of others stay.

use std::fs;
use std::process::{Command, Stdio};

use percolator_files::folder_turn::FolderTurn;
use rustix::io::Errno;

use crate::common::words_of;
use crate::dumps::{Arrays, Dump, LAYER, golden};

#[test]
fn the_arrays_are_whole_even_where_nobody_listens() {
    let run = |dump: &Dump, stdout: Stdio| {
        let mut command = dump.command("out", ["net.prototxt"]);
        command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
    };
    let net = LAYER.replace("top: 'data'", "top: 'data' top: 'label'");
    let dump = Dump::with_net(&net);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(run(&dump, writer.into()).status.success());
    assert_eq!(dump.names(), ["data.npy", "label.npy"]);

    let dump = Dump::with_net(&net);
    let output = run(&dump, fs::File::options().write(true).open("/dev/full").unwrap().into());
    let message = String::from_utf8(output.stderr).unwrap();
    let due = format!("percolator: cannot write to the standard output: {}", words_of(Errno::NOSPC));
    assert!(message.starts_with(&due), "{message}");
    assert_eq!(dump.names(), ["data.npy", "label.npy"]);
}

#[test]
fn a_run_that_fails_leaves_no_arrays_of_the_run_before_and_one_that_cannot_begin_leaves_them() {
    let dump = Dump::with_net(LAYER);
    dump.pass(["net.prototxt"]);
    let arrays = dump.arrays();
    assert_eq!(dump.run(["gone.prototxt"]).status.code(), Some(2));
    assert_eq!(dump.arrays(), arrays);
    dump.fail(["png_mixed_lmdb", "--batches", "12"]);
}

#[test]
fn where_nothing_can_be_written_it_says_so() {
    let dump = Dump::with_net(LAYER);
    // Before it reads the data, which may take long.
    for source in ["net.prototxt", "no_such_lmdb"] {
        for out in ["net.prototxt", "net.prototxt/out", "net.prototxt/out/deep"] {
            let output = dump.run_to(out, [source]);
            let message = dump.check_failure(&output, &Arrays::new());
            assert!(message.starts_with(&format!("cannot make the folder {out}: ")), "{message}");
        }
    }
    let output = dump.run_to("deep/out", ["no_such_lmdb"]);
    assert!(dump.check_failure(&output, &Arrays::new()).contains("no_such_lmdb"));
    assert!(!dump.folder.path().join("deep").exists(), "nothing is made for a run that cannot begin");
    // Something other than a regular file has the array's name, and stays.
    let data = dump.folder.path().join("out/data.npy");
    let refused = || String::from_utf8(dump.run(["net.prototxt"]).stderr).unwrap();
    fs::create_dir_all(&data).unwrap();
    let message = refused();
    assert!(message.contains("cannot write out/data.npy: a folder is there"), "{message}");
    fs::remove_dir(&data).unwrap();
    assert!(Command::new("mkfifo").arg(&data).status().unwrap().success());
    let message = refused();
    assert!(message.contains("cannot write out/data.npy: a FIFO is there"), "{message}");
    assert!(!fs::metadata(&data).unwrap().is_file());
}

#[test]
fn arrays_are_written_where_links_lead() {
    let dump = Dump::with_net(LAYER);
    let at = |name: &str| dump.folder.path().join(name);
    fs::create_dir_all(at("out")).unwrap();
    fs::create_dir_all(at("elsewhere")).unwrap();
    for name in ["data.npy", "label.npy"] {
        std::os::unix::fs::symlink(at("elsewhere").join(name), at("out").join(name)).unwrap();
    }
    dump.pass(["net.prototxt"]);
    let whole = fs::read(at("elsewhere/data.npy")).unwrap();
    dump.pass(["net.prototxt"]);
    assert!(at("out/data.npy").is_symlink() && whole.starts_with(b"\x93NUMPY"));
    assert_eq!(fs::read(at("elsewhere/data.npy")).unwrap(), whole);
    // A failed run replaces nothing.
    assert!(!dump.run(["net.prototxt", "--batches", "1000000000000000000"]).status.success());
    assert_eq!(fs::read(at("elsewhere/data.npy")).unwrap(), whole);
}

#[test]
fn an_array_that_fits_no_disk_is_refused_before_any_of_it_is_made() {
    let dump = Dump::with_net(LAYER);
    dump.pass(["net.prototxt"]);
    let files = || {
        let entries = fs::read_dir(dump.folder.path().join("out")).unwrap();
        let mut files: Vec<_> =
            entries.map(|entry| entry.unwrap().path()).map(|path| (fs::read(&path).unwrap(), path)).collect();
        files.sort();
        files
    };
    let before = files();
    for batches in ["100000000000", "1000000000000000000"] {
        let message = dump.fail(["net.prototxt", "--batches", batches]);
        assert!(message.starts_with("out/data.npy"), "{message}");
        // Those of the run before stay as they are, with nothing beside them.
        assert_eq!(files(), before);
    }
}

#[test]
fn arrays_that_exist_stay() {
    let dump = Dump::with_net(LAYER);
    let at = |name: &str| dump.folder.path().join("out").join(name);
    fs::create_dir(at("")).unwrap();
    fs::write(at("label.npy"), "somebody's").unwrap();
    let refused = |source| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(["dump", source, "--out", "out", "--root"]).arg(golden(""));
        let output = command.current_dir(dump.folder.path()).env_remove("RUST_LOG").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        output
    };
    for source in ["net.prototxt", "no_such_lmdb"] {
        let output = refused(source);
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("out/label.npy: it already exists; give another path"), "{message}");
    }
    // So does a link that leads nowhere: an array of this name would be one somewhere else.
    std::os::unix::fs::symlink("nowhere", at("data.npy")).unwrap();
    let message = String::from_utf8(refused("net.prototxt").stderr).unwrap();
    assert!(message.contains("out/data.npy: it already exists; give another path"), "{message}");
    fs::remove_file(at("data.npy")).unwrap();
    // Even if they may be replaced: there is nothing to replace them with.
    assert!(!dump.run(["no_such_lmdb"]).status.success());
    assert_eq!(fs::read_to_string(at("label.npy")).unwrap(), "somebody's");
    // The layer gives no labels, and an array of an earlier run could pass for theirs.
    dump.pass(["net.prototxt"]);
    assert_eq!(dump.names(), ["data.npy"]);
}

/// Another dump into the same folder names its arrays while this one is about to.
#[test]
fn dumps_into_one_folder_at_once_do_not_mix() {
    let dump = Dump::with_net(&LAYER.replace("top: 'data'", "top: 'data' top: 'label'"));
    let at = |name: &str| dump.folder.path().join("out").join(name);
    fs::create_dir(at("")).unwrap();
    for is_forced in [false, true] {
        let turn = FolderTurn::take(&at(""));
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command.args(["dump", "net.prototxt", "--out", "out", "--root"]).arg(golden(""));
        command.args(is_forced.then_some("--force")).current_dir(dump.folder.path()).env_remove("RUST_LOG");
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Both arrays are complete before the run asks for its turn. One partial file alone, without bytes,
        // only shows that files can be made there.
        let are_complete = || {
            let entries = fs::read_dir(at("")).unwrap().map(Result::unwrap).filter(is_partial);
            let found: Vec<_> = entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
            found.len() == 2 && found.iter().all(|length| *length > 0)
        };
        while !are_complete() {
            assert!(running.try_wait().unwrap().is_none(), "it waits for its turn");
            std::thread::yield_now();
        }
        for name in ["data.npy", "data.lengths.npy"] {
            fs::write(at(name), "another's").unwrap();
        }
        drop(turn);
        let output = running.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), is_forced, "{message}");
        if is_forced {
            assert_eq!(dump.names(), ["data.npy", "label.npy"], "the lengths were another's");
            assert!(fs::read(at("data.npy")).unwrap().starts_with(b"\x93NUMPY"));
        } else {
            assert!(message.contains("out/data.npy: it already exists; give another path"), "{message}");
            assert_eq!(dump.names(), ["data.lengths.npy", "data.npy"], "its labels are not beside them");
            assert_eq!(fs::read_to_string(at("data.npy")).unwrap(), "another's");
        }
    }
}

#[test]
fn a_signal_ends_a_dump_and_leaves_nothing() {
    let small = LAYER.replace("data_param", "transform_param { crop_size: 1 } data_param");
    let dump = Dump::with_net(&small);
    let out = dump.folder.path().join("out");
    for is_there in [false, true] {
        if is_there {
            fs::write(out.join("data.npy"), "of an earlier run").unwrap();
        }
        // Far more than are made until the signal comes.
        let mut command = dump.command("out", ["net.prototxt", "--batches", "10000000"]);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // A file without bytes may be one that only shows that files can be made there.
        let is_written =
            |file: &fs::DirEntry| is_partial(file) && file.metadata().is_ok_and(|file| file.len() > 0);
        let is_begun =
            || fs::read_dir(&out).is_ok_and(|mut files| files.any(|file| is_written(&file.unwrap())));
        while !is_begun() && running.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let sent = Command::new("kill").args(["-TERM", &running.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let output = running.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(143), "{message}");
        assert!(message.starts_with("percolator: SIGTERM: stopped: no array was written"), "{message}");
        // What was there stays until other arrays are whole.
        assert_eq!(dump.names(), ["data.npy"][usize::from(!is_there)..]);
        assert!(!is_there || fs::read(out.join("data.npy")).unwrap() == b"of an earlier run");
    }
}

fn is_partial(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().ends_with(".percolator-partial")
}

#[test]
fn a_full_disk_leaves_no_array() {
    let small = LAYER.replace("data_param", "transform_param { crop_size: 3 } data_param");
    // A full disk is found while writing, or when the file is closed.
    for net in [LAYER, &small] {
        let dump = Dump::with_net(net);
        // No file may have a byte, and a write returns an error instead of killing the process.
        let command = dump.command("out", ["net.prototxt"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(command.get_program());
        limited.args(command.get_args()).current_dir(dump.folder.path()).env_remove("RUST_LOG");
        let message = dump.check_failure(&limited.output().unwrap(), &Arrays::new());
        assert!(message.starts_with("cannot write out/data.npy"), "{message}");
        assert!(message.contains(&words_of(Errno::FBIG)), "{message}");
        assert_eq!(fs::read_dir(dump.folder.path().join("out")).unwrap().count(), 0);
    }
}
