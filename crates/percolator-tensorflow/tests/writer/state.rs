//! The file `checkpoint`: as TensorFlow wrote it, and what is found through it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use percolator_tensorflow::checkpoint::{ManagerOptions, StateError, StateFile, all_checkpoints};
use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor, latest_checkpoint};
use tempfile::tempdir;

use crate::bundle::{names, said};
use crate::data;

fn at(seconds: u64, nanoseconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
}

/// A checkpoint of one number.
fn writer(manager: &CheckpointManager, step: impl Into<Option<u64>>) -> CheckpointWriter {
    let mut writer = CheckpointWriter::create(manager.prefix(step)).unwrap();
    writer.add("number", &Tensor::new(DataType::Int8, [], vec![7]).unwrap()).unwrap();
    writer
}

#[test]
fn a_saver_lists_checkpoints_as_tensorflow_does() {
    for golden in ["article_ref_saver", "types", "sharded", "sliced"] {
        let folder = tempdir().unwrap();
        let options = ManagerOptions { relative_paths: true, ..ManagerOptions::saver() };
        let mut manager = CheckpointManager::open(folder.path(), options).unwrap();
        manager.save(writer(&manager, None)).unwrap();
        let [found, due] =
            [folder.path(), &data(golden)].map(|folder| fs::read(folder.join("checkpoint")).unwrap());
        assert_eq!(found, due, "{golden}");
    }
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let options = ManagerOptions { relative_paths: true, max_to_keep: Some(2), ..ManagerOptions::saver() };
    let mut manager = CheckpointManager::open(folder, options.clone()).unwrap();
    for step in [10, 20, 30, 40] {
        let writer = writer(&manager, step);
        fs::write(folder.join(format!("model-{step}.meta")), "").unwrap();
        manager.save(writer).unwrap();
        // A new process each time.
        manager = CheckpointManager::open(folder, options.clone()).unwrap();
    }
    assert_eq!(
        fs::read(folder.join("checkpoint")).unwrap(),
        fs::read(data("article_ref_steps/checkpoint")).unwrap()
    );
    let due = ["checkpoint", "model-30.data-00000-of-00001", "model-30.index", "model-30.meta"];
    assert_eq!(names(folder)[..4], due);
    assert_eq!(names(folder).len(), 7);
}

/// Savers list absolute paths, which a copy of their folder still has.
#[test]
fn a_copied_folder_has_its_own_checkpoints() {
    let folder = tempdir().unwrap();
    let [original, copy] = ["original", "copy"].map(|name| folder.path().join(name));
    let mut manager = CheckpointManager::open(&original, ManagerOptions::saver()).unwrap();
    for step in [1, 2] {
        manager.save(writer(&manager, step)).unwrap();
    }
    let text = fs::read_to_string(original.join("checkpoint")).unwrap();
    assert!(text.contains(original.to_str().unwrap()), "{text}");
    fs::create_dir(&copy).unwrap();
    for name in names(&original) {
        fs::copy(original.join(&name), copy.join(&name)).unwrap();
    }
    let due = |folder: &std::path::Path| [1, 2].map(|step| folder.join(format!("model-{step}")));
    assert_eq!(latest_checkpoint(&copy).unwrap(), Some(copy.join("model-2")));
    assert_eq!(all_checkpoints(&copy).unwrap(), due(&copy));
    let read = StateFile::of(&copy).read().unwrap().unwrap();
    assert_eq!(read.model_checkpoint_path, copy.join("model-2").to_str().unwrap());
    assert_eq!(all_checkpoints(&original).unwrap(), due(&original));
    // What is not beside the file is where the file says.
    fs::remove_file(copy.join("model-1.index")).unwrap();
    assert_eq!(all_checkpoints(&copy).unwrap(), [original.join("model-1"), copy.join("model-2")]);
    // Once the original is gone, the copy goes on.
    fs::remove_dir_all(&original).unwrap();
    let mut manager = CheckpointManager::open(&copy, ManagerOptions::saver()).unwrap();
    assert_eq!(latest_checkpoint(&copy).unwrap(), Some(copy.join("model-2")));
    manager.save(writer(&manager, 3)).unwrap();
    assert!(copy.join("model-2.index").is_file());
}

#[test]
fn a_manager_lists_checkpoints_as_tensorflow_does() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let options = ManagerOptions::checkpoint_manager(Some(2));
    let opened = at(1_795_331_791, 452_470_300);
    let mut manager = CheckpointManager::open_at(folder, options.clone(), opened).unwrap();
    for (step, time) in [
        (1, at(1_795_331_791, 480_000_000)),
        (2, at(1_795_331_791, 503_457_300)),
        (3, at(1_795_331_791, 516_664_300)),
    ] {
        manager.save_at(writer(&manager, step), time).unwrap();
    }
    assert_eq!(
        fs::read_to_string(folder.join("checkpoint")).unwrap(),
        fs::read_to_string(data("object/checkpoint")).unwrap()
    );
    let due = [
        "checkpoint",
        "ckpt-2.data-00000-of-00001",
        "ckpt-2.index",
        "ckpt-3.data-00000-of-00001",
        "ckpt-3.index",
    ];
    assert_eq!(names(folder), due);
    let manager = CheckpointManager::open(folder, options).unwrap();
    assert!(manager.checkpoints().eq([folder.join("ckpt-2"), folder.join("ckpt-3")]));
    assert_eq!(manager.latest(), Some(&*folder.join("ckpt-3")));
}

#[test]
fn one_in_so_many_hours_is_kept_for_good() {
    for rules in [ManagerOptions::checkpoint_manager(Some(1)), ManagerOptions::saver()] {
        let folder = tempdir().unwrap();
        let folder = folder.path();
        let options = ManagerOptions {
            name: "a".to_owned(),
            max_to_keep: Some(1),
            keep_every_hours: Some(2.0),
            ..rules
        };
        let mut manager = CheckpointManager::open_at(folder, options, at(1000, 0)).unwrap();
        for hour in 1..=6 {
            manager.save_at(writer(&manager, hour), at(1000 + 3600 * hour + 1, 0)).unwrap();
        }
        let kept: Vec<_> = names(folder).into_iter().filter(|name| name.ends_with(".index")).collect();
        assert_eq!(kept, ["a-2.index", "a-4.index", "a-6.index"]);
        assert_eq!(all_checkpoints(folder).unwrap(), [folder.join("a-6")]);
    }
}

#[test]
fn the_latest_checkpoint_is_the_one_that_is_listed_and_there() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(latest_checkpoint(folder).unwrap(), None);
    assert_eq!(latest_checkpoint(folder.join("none")).unwrap(), None);
    assert!(all_checkpoints(folder).unwrap().is_empty());
    for name in ["article_ref_steps", "object"] {
        let golden = data(name);
        let due = if name == "object" { ["ckpt-2", "ckpt-3"] } else { ["model-30", "model-40"] };
        assert_eq!(latest_checkpoint(&golden).unwrap(), Some(golden.join(due[1])));
        assert_eq!(all_checkpoints(&golden).unwrap(), due.map(|name| golden.join(name)));
    }
    let list = |text: &str| fs::write(folder.join("checkpoint"), text).unwrap();
    fs::write(folder.join("a.index"), "").unwrap();
    list("model_checkpoint_path: \"b\" all_model_checkpoint_paths: [\"a\", \"c\"]");
    let message = latest_checkpoint(folder).unwrap_err().to_string();
    let shown = folder.display();
    assert_eq!(
        message,
        format!(
            "{shown}/checkpoint: the latest checkpoint it names is not there: there is no file \
             {shown}/b.index; name another by its prefix, such as {shown}/a, or copy the file back"
        )
    );
    // A writer that replaces it was killed.
    fs::write(folder.join("b.percolator-previous.index"), "").unwrap();
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("b.percolator-previous")));
    fs::write(folder.join("b.index"), "").unwrap();
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("b")));
    fs::remove_file(folder.join("b.percolator-previous.index")).unwrap();
    list("model_checkpoint_path: \"b.percolator-previous\"");
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("b")));
    list(&format!("model_checkpoint_path: \"{shown}/a\""));
    assert_eq!(latest_checkpoint("/").unwrap(), None);
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("a")));
    // Before TensorFlow 1.0, the prefix was itself a file.
    list("model_checkpoint_path: \"old\"");
    assert!(matches!(latest_checkpoint(folder), Err(StateError::Missing { .. })));
    fs::write(folder.join("old"), "").unwrap();
    assert_eq!(latest_checkpoint(folder).unwrap(), Some(folder.join("old")));
    assert_eq!(StateFile::named(folder, "other").latest().unwrap(), None);
}

#[test]
fn a_list_that_is_none_says_where_and_what_to_do() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("checkpoint");
    for (text, due) in [
        (&b"all_model_checkpoint_paths: \"a\""[..], "no model_checkpoint_path: add the line"),
        (
            b"\nmodel_checkpoint_path: a",
            "checkpoint, line 2: expected a string, but found 'a'; mend the line",
        ),
        (b"\n\n\xff", "line 3: it is not UTF-8"),
        (b"", "no model_checkpoint_path"),
    ] {
        fs::write(&path, text).unwrap();
        let message = said(latest_checkpoint(folder.path()).unwrap_err());
        assert!(message.contains(due) && message.contains(&*path.to_string_lossy()), "{message}");
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let message = said(latest_checkpoint(folder.path()).unwrap_err());
    assert!(message.contains("only regular files are read"), "{message}");
    fs::remove_dir(&path).unwrap();
    // No one writes to it, so that opening it would wait for ever.
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let message = said(latest_checkpoint(folder.path()).unwrap_err());
    assert!(message.contains("only regular files are read"), "{message}");
    fs::remove_file(&path).unwrap();
    fs::File::create(&path).unwrap().set_len(300 << 20).unwrap();
    let message = said(latest_checkpoint(folder.path()).unwrap_err());
    assert!(message.contains("it has at least 314572800 bytes, but at most 16777216 are read"), "{message}");
}

#[test]
fn options_and_paths_that_cannot_be_are_refused() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let manager = || ManagerOptions::checkpoint_manager(None);
    for (options, due) in [
        (ManagerOptions { name: "a/b".to_owned(), ..manager() }, "name is \"a/b\""),
        (ManagerOptions { name: String::new(), ..manager() }, "name is \"\""),
        (ManagerOptions { state_name: "..".to_owned(), ..manager() }, "state_name is \"..\""),
        (ManagerOptions { keep_every_hours: Some(0.0), ..manager() }, "keep_every_hours is 0"),
        (ManagerOptions { keep_every_hours: Some(f64::NAN), ..manager() }, "keep_every_hours is NaN"),
    ] {
        let message = CheckpointManager::open(folder, options).unwrap_err().to_string();
        assert!(message.contains(due), "{message}");
    }
    let options = ManagerOptions { state_name: "ckpt-1.index".to_owned(), ..manager() };
    let mut manager = CheckpointManager::open(folder, options).unwrap();
    let error = manager.save(writer(&manager, 1)).unwrap_err();
    assert!(matches!(error, StateError::Conflict { .. }), "{error}");
    assert!(names(folder).is_empty());
    manager.save(writer(&manager, 2)).unwrap();
}

#[test]
fn a_step_that_is_written_anew_is_the_latest_and_nothing_else_is_left() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let mut manager = CheckpointManager::open(folder, ManagerOptions::checkpoint_manager(None)).unwrap();
    for step in [1, 2, 1] {
        manager.save(writer(&manager, step)).unwrap();
    }
    assert!(manager.checkpoints().eq([folder.join("ckpt-2"), folder.join("ckpt-1")]));
    assert_eq!(all_checkpoints(folder).unwrap(), [folder.join("ckpt-2"), folder.join("ckpt-1")]);
    // Written anew in another number of files.
    let mut sharded = CheckpointWriter::create_sharded(folder.join("ckpt-1"), 2).unwrap();
    sharded.add("number", &Tensor::new(DataType::Int8, [], vec![8]).unwrap()).unwrap();
    manager.save(sharded).unwrap();
    let due = [
        "checkpoint",
        "ckpt-1.data-00000-of-00002",
        "ckpt-1.data-00001-of-00002",
        "ckpt-1.index",
        "ckpt-2.data-00000-of-00001",
        "ckpt-2.index",
    ];
    assert_eq!(names(folder), due);
}

#[test]
fn a_folder_whose_path_is_not_text_lists_relative_paths_or_nothing_is_written() {
    let folder = tempdir().unwrap();
    let folder = folder.path().join(OsStr::from_bytes(b"run\xff"));
    let options = ManagerOptions::checkpoint_manager(Some(2));
    for step in 1..=4 {
        // A new process each time.
        let mut manager = CheckpointManager::open(&folder, options.clone()).unwrap();
        manager.save(writer(&manager, step)).unwrap();
    }
    let due = names(&folder);
    assert_eq!(due.len(), 5);
    assert_eq!(latest_checkpoint(&folder).unwrap(), Some(folder.join("ckpt-4")));
    let mut saver = CheckpointManager::open(&folder, ManagerOptions::saver()).unwrap();
    assert_eq!(saver.checkpoints().len(), 2);
    let error = saver.save(writer(&saver, 5)).unwrap_err();
    assert!(matches!(error, StateError::NotUtf8 { .. }), "{error}");
    assert!(error.to_string().contains("relative_paths"), "{error}");
    assert_eq!(names(&folder), due);
    let options = ManagerOptions { relative_paths: true, ..ManagerOptions::saver() };
    let mut saver = CheckpointManager::open(&folder, options).unwrap();
    saver.save(writer(&saver, 5)).unwrap();
    assert_eq!(latest_checkpoint(&folder).unwrap(), Some(folder.join("model-5")));
}
