//! A checkpoint takes the place of an earlier one, wherever and however it is spelled.

use std::fs;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use percolator_tensorflow::checkpoint::{
    Existing, ManagerOptions, NotRemoved, StateError, StateFile, WriteError, all_checkpoints,
};
use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor, latest_checkpoint};
use tempfile::tempdir;

use crate::bundle::{Content, names, read, with_ending};

fn writer(prefix: &Path, number: u8) -> CheckpointWriter {
    let mut writer = CheckpointWriter::create(prefix).unwrap();
    writer.add("number", &Tensor::new(DataType::Uint8, [], vec![number]).unwrap()).unwrap();
    writer
}

fn write(prefix: &Path, number: u8) {
    writer(prefix, number).finish().unwrap();
}

fn number(prefix: &Path) -> u8 {
    match &read(prefix).1[0].content {
        Content::Bytes(bytes) => bytes[0],
        Content::Strings(_) => panic!("it is a number"),
    }
}

/// What is logged meanwhile, on this thread.
fn logged<R>(work: impl FnOnce() -> R) -> (R, String) {
    let file = tempfile::tempfile().unwrap();
    let writer = std::sync::Mutex::new(file.try_clone().unwrap());
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
    let done = tracing::subscriber::with_default(subscriber, work);
    let mut file = file;
    let mut logged = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut logged).unwrap();
    (done, logged)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

#[test]
fn links_to_the_files_of_a_checkpoint_stay_and_lead_to_the_new_ones() {
    let folder = tempdir().unwrap();
    let (store, prefix) = (folder.path().join("store"), folder.path().join("model"));
    fs::create_dir(&store).unwrap();
    let endings = [".index", ".data-00000-of-00001"];
    // At first, the links lead to files that are not there.
    for ending in endings {
        symlink(with_ending(&store.join("model"), ending), with_ending(&prefix, ending)).unwrap();
    }
    for value in 1..=3 {
        write(&prefix, value);
        assert_eq!(number(&prefix), value);
        assert_eq!(number(&store.join("model")), value);
        assert!(endings.iter().all(|ending| is_link(&with_ending(&prefix, ending))));
        // The links, the store, and nothing of an earlier checkpoint.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        assert_eq!(fs::read_dir(&store).unwrap().count(), 2);
    }
}

#[test]
fn no_other_checkpoint_is_removed_with_the_one_that_is_replaced() {
    let folder = tempdir().unwrap();
    let [model, kept] = ["model", "model.previous"].map(|name| folder.path().join(name));
    write(&model, 1);
    write(&kept, 2);
    write(&model, 3);
    assert_eq!((number(&model), number(&kept)), (3, 2));
    for (name, due) in [
        ("model.percolator-previous", "names that end in `.percolator-previous`"),
        ("model.index", "give the name without `.index`"),
        (".index", "give the name without `.index`"),
    ] {
        let message = CheckpointWriter::create(folder.path().join(name)).unwrap_err().to_string();
        assert!(message.contains(due) && message.contains(name), "{message}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
}

/// Opens the folder as a new process would, and saves one step.
fn save(folder: &Path, options: &ManagerOptions, step: u64, number: u8) {
    let mut manager = CheckpointManager::open(folder, options.clone()).unwrap();
    manager.save(writer(&manager.prefix(step), number)).unwrap();
}

#[test]
fn one_checkpoint_under_two_spellings_is_not_swept_away() {
    for options in [
        ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() },
        ManagerOptions { relative_paths: false, ..ManagerOptions::checkpoint_manager(Some(1)) },
    ] {
        let folder = tempdir().unwrap();
        let [run, link] = ["run", "link"].map(|name| folder.path().join(name));
        symlink(&run, &link).unwrap();
        let dotted = folder.path().join("run/../run");
        fs::create_dir(&run).unwrap();
        for (number, spelling) in (1..).zip([&run, &link, &dotted, &run]) {
            save(spelling, &options, 5, number);
            let latest = latest_checkpoint(spelling).unwrap().unwrap();
            assert_eq!(self::number(&latest), number, "{}", spelling.display());
            assert_eq!(fs::read_dir(&run).unwrap().count(), 3);
        }
        save(&link, &options, 6, 7);
        assert_eq!(number(&latest_checkpoint(&run).unwrap().unwrap()), 7);
        assert_eq!(fs::read_dir(&run).unwrap().count(), 3);
    }
}

/// Makes a checkpoint as a killed writer leaves it: the earlier one is kept, the prefix is free.
fn set_aside(prefix: &Path) {
    for ending in [".index", ".data-00000-of-00001"] {
        let kept = with_ending(prefix, &format!(".percolator-previous{ending}"));
        fs::rename(with_ending(prefix, ending), kept).unwrap();
    }
}

#[test]
fn a_save_that_cannot_be_listed_leaves_what_the_list_names() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let options = ManagerOptions::checkpoint_manager(Some(2));
    save(folder, &options, 1, 1);
    set_aside(&folder.join("ckpt-1"));
    let list = folder.join("checkpoint");
    let text = fs::read_to_string(&list).unwrap().replace("ckpt-1", "ckpt-1.percolator-previous");
    fs::write(&list, &text).unwrap();
    let mut manager = CheckpointManager::open(folder, options).unwrap();
    // The list cannot be written for a while.
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    for number in [2, 3] {
        manager.save(writer(&manager.prefix(1), number)).unwrap_err();
        // TensorFlow looks for this file.
        assert!(folder.join("ckpt-1.percolator-previous.index").is_file());
    }
    fs::remove_dir(&list).unwrap();
    fs::write(&list, &text).unwrap();
    manager.save(writer(&manager.prefix(1), 4)).unwrap();
    assert_eq!(number(&latest_checkpoint(folder).unwrap().unwrap()), 4);
    assert!(!fs::read_to_string(&list).unwrap().contains("percolator-previous"));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 3);
}

#[test]
fn a_listed_path_without_a_name_is_no_checkpoint() {
    for options in [
        ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() },
        ManagerOptions::checkpoint_manager(Some(1)),
    ] {
        let folder = tempdir().unwrap();
        let [run, beside] = ["run", "run.data-00000-of-00001"].map(|name| folder.path().join(name));
        fs::create_dir(&run).unwrap();
        fs::write(&beside, "another's").unwrap();
        fs::write(run.join(".index"), "").unwrap();
        let list = "model_checkpoint_path: \"a\" all_model_checkpoint_paths: [\"\", \"b/\", \"a\"] \
                    all_model_checkpoint_timestamps: [1.0, 2.0, 3.0]";
        fs::write(run.join("checkpoint"), list).unwrap();
        write(&run.join("a"), 1);
        for step in 1..=3 {
            save(&run, &options, step, 2);
        }
        assert!(beside.is_file());
        // The list, the last checkpoint, and the file that is nobody's.
        assert_eq!(fs::read_dir(&run).unwrap().count(), 4);
    }
}

#[test]
fn a_step_that_was_set_aside_is_removed_in_its_turn() {
    let folder = tempdir().unwrap();
    let folder = folder.path();
    let options = ManagerOptions { max_to_keep: Some(2), ..ManagerOptions::saver() };
    save(folder, &options, 1, 1);
    save(folder, &options, 2, 2);
    set_aside(&folder.join("model-1"));
    save(folder, &options, 3, 3);
    // Two checkpoints, and the list.
    assert_eq!(fs::read_dir(folder).unwrap().count(), 5);
    assert_eq!(all_checkpoints(folder).unwrap(), [2, 3].map(|step| folder.join(format!("model-{step}"))));
}

#[test]
fn an_old_checkpoint_that_cannot_be_removed_is_tried_again() {
    for options in [
        ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() },
        ManagerOptions::checkpoint_manager(Some(1)),
    ] {
        let folder = tempdir().unwrap();
        let mut manager = CheckpointManager::open(folder.path(), options).unwrap();
        manager.save(writer(&manager.prefix(1), 1)).unwrap();
        let taken = with_ending(&manager.prefix(1), ".index");
        fs::remove_file(&taken).unwrap();
        fs::create_dir(&taken).unwrap();
        let (saved, warnings) = logged(|| manager.save(writer(&manager.prefix(2), 2)).unwrap());
        assert_eq!((&saved.prefix, &*saved.removed), (&manager.prefix(2), &[][..]));
        let [NotRemoved { prefix, error, .. }] = &*saved.not_removed else { panic!("{saved:?}") };
        assert_eq!(*prefix, manager.prefix(1));
        assert!(error.to_string().contains(&format!("{}: cannot remove", taken.display())), "{error}");
        assert!(warnings.contains("WARN") && warnings.contains(&*error.to_string()), "{warnings}");
        assert_eq!(latest_checkpoint(folder.path()).unwrap(), Some(manager.prefix(2)));
        // It does not keep those after it.
        let saved = manager.save(writer(&manager.prefix(3), 3)).unwrap();
        assert_eq!((&*saved.removed, saved.not_removed.len()), (&[manager.prefix(2)][..], 1));
        assert_eq!(all_checkpoints(folder.path()).unwrap().last(), Some(&manager.prefix(3)));
        let state = StateFile::of(folder.path()).read().unwrap().unwrap();
        let two = manager.prefix(2).display().to_string();
        assert!(!state.all_model_checkpoint_paths.contains(&two), "{state:?}");
        fs::remove_dir(&taken).unwrap();
        let saved = manager.save(writer(&manager.prefix(4), 4)).unwrap();
        assert!(saved.not_removed.is_empty() && saved.outdated_list.is_none(), "{saved:?}");
        assert_eq!(saved.removed, [1, 3].map(|step| manager.prefix(step)));
        assert!(!with_ending(&manager.prefix(1), ".data-00000-of-00001").exists());
    }
}

#[test]
fn a_checkpoint_that_is_written_anew_is_not_removed_as_an_old_one() {
    let folder = tempdir().unwrap();
    let options = ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() };
    let mut manager = CheckpointManager::open(folder.path(), options).unwrap();
    manager.save(writer(&manager.prefix(1), 1)).unwrap();
    let taken = with_ending(&manager.prefix(1), ".index");
    fs::remove_file(&taken).unwrap();
    fs::create_dir(&taken).unwrap();
    assert_eq!(manager.save(writer(&manager.prefix(2), 2)).unwrap().not_removed.len(), 1);
    fs::remove_dir(&taken).unwrap();
    let saved = manager.save(writer(&manager.prefix(1), 3)).unwrap();
    assert_eq!(saved.removed, [manager.prefix(2)]);
    assert_eq!(number(&manager.prefix(1)), 3);
}

#[test]
fn a_list_that_cannot_be_written_at_last_does_not_fail_the_save() {
    let folder = tempdir().unwrap();
    let (folder, store) = (folder.path().join("run"), folder.path().join("store"));
    for folder in [&folder, &store] {
        fs::create_dir(folder).unwrap();
    }
    let options = ManagerOptions::checkpoint_manager(Some(1));
    let mut manager = CheckpointManager::open(&folder, options).unwrap();
    manager.save(writer(&manager.prefix(1), 1)).unwrap();
    // The way to the list is removed with the old checkpoint.
    let (list, link) = (folder.join("checkpoint"), folder.join("ckpt-1.data-00000-of-00002"));
    symlink(&store, &link).unwrap();
    fs::remove_file(&list).unwrap();
    symlink("ckpt-1.data-00000-of-00002/list", &list).unwrap();
    let (saved, warnings) = logged(|| manager.save(writer(&manager.prefix(2), 2)).unwrap());
    assert_eq!(saved.removed, [manager.prefix(1)]);
    assert!(matches!(saved.outdated_list, Some(StateError::Io { .. })), "{saved:?}");
    assert!(warnings.contains("the list of checkpoints still names what was removed"), "{warnings}");
    assert!(fs::read_to_string(store.join("list")).unwrap().starts_with("model_checkpoint_path: \"ckpt-2\""));
    assert_eq!(number(&manager.prefix(2)), 2);
    // The next save tries again.
    symlink(&store, &link).unwrap();
    let saved = manager.save(writer(&manager.prefix(3), 3)).unwrap();
    assert!(saved.outdated_list.is_none(), "{saved:?}");
}

#[test]
fn writers_that_finish_one_prefix_at_once_take_turns() {
    const TENSORS: usize = 3;

    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    let barrier = std::sync::Barrier::new(3);
    for round in 0..20 {
        std::thread::scope(|scope| {
            for shards in 1..=3 {
                let (prefix, barrier) = (&prefix, &barrier);
                scope.spawn(move || {
                    let mut writer = CheckpointWriter::create_sharded(prefix, shards).unwrap();
                    for tensor in 0..TENSORS {
                        writer.set_shard(tensor % shards).unwrap();
                        let number = u8::try_from(shards).unwrap();
                        let number = Tensor::new(DataType::Uint8, [], vec![number]).unwrap();
                        writer.add(format!("tensor {tensor}"), &number).unwrap();
                    }
                    barrier.wait();
                    writer.finish().unwrap();
                });
            }
        });
        let (shards, tensors) = read(&prefix);
        assert_eq!(tensors.len(), TENSORS, "round {round}");
        for tensor in tensors {
            assert!(
                matches!(tensor.content, Content::Bytes(bytes) if usize::from(bytes[0]) == shards),
                "round {round}"
            );
        }
        // One index, and the later writer's data files.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1 + shards, "round {round}");
    }
}

#[test]
fn a_checkpoint_that_is_to_stay_stays() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    let (first, late) = (writer(&prefix, 1).existing(Existing::Refuse), writer(&prefix, 2));
    let late = late.existing(Existing::Refuse);
    first.finish().unwrap();
    let error = late.finish().unwrap_err();
    assert!(matches!(&error, WriteError::Exists { prefix: found } if *found == prefix), "{error}");
    assert_eq!(number(&prefix), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left of the other");
}

#[test]
fn an_index_keeps_its_permissions() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    write(&prefix, 1);
    let index = with_ending(&prefix, ".index");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    fs::set_permissions(&index, fs::Permissions::from_mode(0o600)).unwrap();
    write(&prefix, 2);
    assert_eq!(mode(&index), 0o600);
    // As a killed writer leaves it.
    set_aside(&prefix);
    write(&prefix, 3);
    assert_eq!((mode(&index), number(&prefix)), (0o600, 3));
}

#[test]
fn data_files_of_other_counts_are_another_s_unless_the_replaced_index_counts_so() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("train");
    let others = [".data-00000-of-00010", ".data-00000-of-00007", ".data-00001-of-00005"];
    let others = others.map(|ending| with_ending(&prefix, ending));
    fs::write(&others[0], "records").unwrap();
    fs::create_dir(&others[1]).unwrap();
    symlink("nowhere", &others[2]).unwrap();
    let due = |shards: usize| {
        assert_eq!(fs::read(&others[0]).unwrap(), b"records");
        assert!(others[1].is_dir() && is_link(&others[2]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), others.len() + 1 + shards);
    };
    for shards in [1, 1, 2, 3, 1] {
        CheckpointWriter::create_sharded(&prefix, shards).unwrap().finish().unwrap();
        due(shards);
    }
    // An earlier index that cannot be read states no count.
    fs::write(with_ending(&prefix, ".index"), "no index").unwrap();
    fs::remove_dir(&others[1]).unwrap();
    CheckpointWriter::create_sharded(&prefix, 2).unwrap().finish().unwrap();
    assert_eq!(read(&prefix).0, 2);
    assert!(with_ending(&prefix, ".data-00000-of-00001").is_file() && others[0].is_file());
}

#[test]
fn a_writer_that_was_killed_before_its_end_leaves_nothing_to_the_next_but_one() {
    let folder = tempdir().unwrap();
    let [folder, other] = ["run", "other"].map(|name| folder.path().join(name));
    let prefix = folder.join("model");
    write(&prefix, 1);
    for ending in [".index", ".data-00000-of-00001"] {
        let kept = with_ending(&prefix, &format!(".percolator-previous{ending}"));
        fs::copy(with_ending(&prefix, ending), kept).unwrap();
    }
    // The new checkpoint has all its names.
    CheckpointWriter::create_sharded(other.join("model"), 2).unwrap().finish().unwrap();
    for name in names(&other) {
        fs::copy(other.join(&name), folder.join(name)).unwrap();
    }
    assert_eq!(names(&folder).len(), 6);
    CheckpointWriter::create_sharded(&prefix, 3).unwrap().finish().unwrap();
    assert_eq!((read(&prefix).0, names(&folder).len()), (3, 4));
}

#[test]
fn a_checkpoint_with_a_file_that_is_gone_is_replaced() {
    let folder = tempdir().unwrap();
    let prefix = folder.path().join("model");
    CheckpointWriter::create_sharded(&prefix, 2).unwrap().finish().unwrap();
    fs::remove_file(with_ending(&prefix, ".data-00000-of-00002")).unwrap();
    let gone = with_ending(&prefix, ".data-00001-of-00002");
    fs::remove_file(&gone).unwrap();
    symlink("nowhere", &gone).unwrap();
    write(&prefix, 1);
    assert_eq!(number(&prefix), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    // What is no file cannot be kept.
    CheckpointWriter::create_sharded(&prefix, 2).unwrap().finish().unwrap();
    fs::remove_file(&gone).unwrap();
    fs::create_dir(&gone).unwrap();
    let message = writer(&prefix, 2).finish().unwrap_err().to_string();
    assert!(message.contains(&format!("{}: cannot keep", gone.display())), "{message}");
}

#[test]
fn a_link_that_leads_nowhere_is_to_stay_as_well() {
    for ending in [".index", ".percolator-previous.index", ".data-00000-of-00001", ".data-00000-of-00002"] {
        let folder = tempdir().unwrap();
        let prefix = folder.path().join("model");
        let late = writer(&prefix, 1).existing(Existing::Refuse);
        symlink("nowhere", with_ending(&prefix, ending)).unwrap();
        let error = late.finish().unwrap_err();
        assert!(matches!(error, WriteError::Exists { .. }), "{ending}: {error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{ending}");
    }
}

#[test]
fn a_manager_removes_no_checkpoint_of_another_folder() {
    let folder = tempdir().unwrap();
    let [run, copy] = ["run", "copy"].map(|name| folder.path().join(name));
    let saver = |most| ManagerOptions { max_to_keep: Some(most), ..ManagerOptions::saver() };
    for step in 1..=3 {
        save(&run, &saver(5), step, 1);
    }
    let due = names(&run);
    fs::create_dir(&copy).unwrap();
    for name in &due {
        fs::copy(run.join(name), copy.join(name)).unwrap();
    }
    // The list of the copy has absolute paths. What lies beside it is meant.
    let (opened, warnings) = logged(|| CheckpointManager::open(&copy, saver(1)).unwrap());
    assert_eq!((opened.latest(), opened.checkpoints().len()), (Some(&*copy.join("model-3")), 0));
    let said = format!("{}", run.join("model-1").display());
    assert!(warnings.contains("WARN") && warnings.contains(&said), "{warnings}");
    for step in 4..=6 {
        save(&copy, &saver(1), step, 1);
        assert_eq!(names(&run), due);
    }
    assert_eq!(all_checkpoints(&copy).unwrap(), [copy.join("model-6")]);
    // A list that somebody forged.
    let list = "model_checkpoint_path: \"../run/model-3\" all_model_checkpoint_paths: [\"../run/model-1\", \
                \"../run/model-2.percolator-previous\", \"../run/model-3\"] \
                all_model_checkpoint_timestamps: [1.0, 2.0, 3.0]";
    for options in [saver(1), ManagerOptions::checkpoint_manager(Some(1))] {
        fs::write(copy.join("checkpoint"), list).unwrap();
        for step in 7..=9 {
            save(&copy, &options, step, 1);
            assert_eq!(names(&run), due);
        }
    }
}

#[test]
fn a_folder_that_was_renamed_is_gone_on_with() {
    let folder = tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| folder.path().join(name));
    let options = ManagerOptions { max_to_keep: Some(2), ..ManagerOptions::saver() };
    save(&before, &options, 1, 1);
    save(&before, &options, 2, 1);
    fs::rename(&before, &after).unwrap();
    save(&after, &options, 3, 1);
    assert_eq!(all_checkpoints(&after).unwrap(), [after.join("model-3")]);
    assert!(after.join("model-1.index").is_file(), "what the list does not name stays");
    // With a link at the old path, the list leads to them.
    fs::rename(&after, &before).unwrap();
    symlink(&before, &after).unwrap();
    for step in 4..=6 {
        save(if step == 5 { &before } else { &after }, &options, step, 1);
    }
    let is_there = |step: u64| before.join(format!("model-{step}.index")).is_file();
    assert_eq!([3, 4, 5, 6].map(is_there), [false, false, true, true]);
}

#[test]
fn files_of_a_killed_writer_go_with_the_earlier_checkpoint() {
    for options in [
        ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() },
        ManagerOptions::checkpoint_manager(Some(1)),
    ] {
        let folder = tempdir().unwrap();
        let folder = folder.path();
        save(folder, &options, 1, 1);
        let prefix = CheckpointManager::open(folder, options.clone()).unwrap().prefix(1);
        set_aside(&prefix);
        // Killed once the list named the earlier checkpoint, and the new data files had their names.
        let list = fs::read_to_string(folder.join("checkpoint")).unwrap();
        let name = prefix.file_name().unwrap().to_str().unwrap();
        let listed = list.replace(name, &format!("{name}.percolator-previous"));
        fs::write(folder.join("checkpoint"), listed).unwrap();
        for ending in [".data-00000-of-00002", ".data-00001-of-00002", ".meta"] {
            fs::write(with_ending(&prefix, ending), "").unwrap();
        }
        let is_saver = options == ManagerOptions { max_to_keep: Some(1), ..ManagerOptions::saver() };
        save(folder, &options, 2, 2);
        let left = names(folder);
        assert_eq!(left.len(), if is_saver { 3 } else { 4 }, "{left:?}");
    }
}
