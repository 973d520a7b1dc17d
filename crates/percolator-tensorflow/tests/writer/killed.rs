//! A process writes checkpoint after checkpoint and is killed at random moments, and by the system in the
//! middle of a write. Whatever it was doing, the latest checkpoint is a whole one, and none older than the
//! last one that was saved: for `latest_checkpoint`, and for TensorFlow, which looks for the files that the
//! list names.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use percolator_tensorflow::checkpoint::{ManagerOptions, StateFile, WriteError};
use percolator_tensorflow::{CheckpointManager, CheckpointWriter, DataType, Tensor, latest_checkpoint};

use crate::bundle::{Content, read, said, with_ending};
use crate::process::sample::{some_with, times};
use crate::process::{child_command, role, this_test};

/// Steps of which many are written for a second time, while they are the latest or not.
const STEPS: [u64; 8] = [1, 1, 2, 3, 2, 2, 4, 1];
const TENSORS: usize = 6;
const TENSOR_BYTES: usize = 3000;

/// The number that a checkpoint is full of; fails if it is not whole.
fn generation(prefix: &Path) -> u64 {
    let (_, all) = read(prefix);
    assert_eq!(all.len(), TENSORS, "{}", prefix.display());
    let numbers = all.iter().flat_map(|stored| match &stored.content {
        Content::Bytes(bytes) => bytes.chunks_exact(8),
        Content::Strings(_) => panic!("no tensor has strings"),
    });
    let mut numbers = numbers.map(|number| u64::from_le_bytes(number.try_into().unwrap()));
    let first = numbers.next().unwrap();
    assert!(numbers.all(|number| number == first), "{} is of several writes", prefix.display());
    first
}

/// Writes until it is killed, and prints a line after each checkpoint.
fn write_on(folder: &Path, options: ManagerOptions) {
    let mut manager = CheckpointManager::open(folder, options).unwrap();
    let latest = latest_checkpoint(folder).unwrap();
    let mut number = latest.map_or(0, |prefix| generation(&prefix));
    println!("ready");
    loop {
        number += 1;
        let step = STEPS[usize::try_from(number).unwrap() % STEPS.len()];
        let shards = 1 + usize::try_from(number / 3 % 2).unwrap();
        let mut writer = CheckpointWriter::create_sharded(manager.prefix(step), shards).unwrap();
        for tensor in 0..TENSORS {
            writer.set_shard(tensor % shards).unwrap();
            let bytes = number.to_le_bytes().repeat(TENSOR_BYTES / 8);
            let tensor_of = Tensor::new(DataType::Uint64, [TENSOR_BYTES / 8], bytes).unwrap();
            writer.add(format!("tensor {tensor}"), &tensor_of).unwrap();
        }
        manager.save(writer).unwrap();
        println!("saved {number}");
    }
}

fn check(folder: &Path, saved: u64) -> u64 {
    let Some(prefix) = latest_checkpoint(folder).unwrap() else {
        assert_eq!(saved, 0, "a checkpoint was saved, and none is listed");
        return 0;
    };
    // TensorFlow looks for what is listed, and for nothing else.
    let listed = StateFile::of(folder).read().unwrap().unwrap().model_checkpoint_path;
    assert_eq!(Path::new(&listed), prefix);
    assert!(with_ending(&prefix, ".index").is_file());
    let found = generation(&prefix);
    assert!(found >= saved, "{found} is the latest, and {saved} was saved");
    found
}

/// Kills the child at moments of a simple sequence, or lets the system do so.
fn kill_again_and_again(test: &str, rules: &str, kills: usize) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (mut saved, mut random, mut while_replaced) = (0, 12_345_u64, 0);
    for number in 0..kills {
        let child = child_command(test, &format!("{rules} {}", folder.display()));
        let mut child = if number % 4 == 3 {
            // The system kills a process that writes past a limit of the file's length, here of lengths from
            // nothing to the longest file.
            limited(&child, number * 40 / kills, false)
        } else {
            child
        };
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let number_saved = |line: String| line.strip_prefix("saved ")?.parse().ok();
        let is_ready = lines.by_ref().any(|line| line.ends_with("ready"));
        if is_ready && number % 2 == 0 {
            // Every other child gets so far, however slow it is.
            saved = saved.max(lines.by_ref().find_map(number_saved).unwrap_or(0));
        }
        if is_ready {
            // Whatever it is doing then: no outcome depends on this length.
            std::thread::sleep(Duration::from_micros(random >> 48));
        }
        child.kill().unwrap();
        let last = lines.filter_map(number_saved).last();
        child.wait().unwrap();
        saved = saved.max(last.unwrap_or(0));
        saved = check(folder, saved);
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        while_replaced +=
            usize::from(names.into_iter().any(|name| name.to_string_lossy().contains("previous")));
    }
    println!("{kills} kills, {while_replaced} while a step was written anew; {saved} were saved");
    assert!(saved > 10, "{saved} were saved");
}

/// A child that cannot write files of more than so many blocks of 512 bytes: it is killed when it tries, or
/// gets an error.
fn limited(child: &Command, blocks: usize, gets_error: bool) -> Command {
    let trap = if gets_error { "trap '' XFSZ; " } else { "" };
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("{trap}ulimit -f {blocks} && exec \"$@\""), "sh"])
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited
}

/// `PERCOLATOR_KILLS=1000` sets the number.
fn kills() -> usize {
    std::env::var("PERCOLATOR_KILLS").map_or(times(60, 24), |kills| kills.parse().unwrap())
}

fn manager_options() -> ManagerOptions {
    ManagerOptions::checkpoint_manager(Some(3))
}

fn saver_options() -> ManagerOptions {
    ManagerOptions { max_to_keep: Some(2), ..ManagerOptions::saver() }
}

fn child(rules_and_folder: &str) {
    let (rules, folder) = rules_and_folder.split_once(' ').unwrap();
    write_on(Path::new(folder), if rules == "saver" { saver_options() } else { manager_options() });
}

#[test]
fn a_manager_that_is_killed_at_any_moment_leaves_a_whole_checkpoint() {
    if let Some(role) = role() {
        return child(&role);
    }
    kill_again_and_again(this_test!(), "manager", kills());
}

#[test]
fn a_saver_that_is_killed_at_any_moment_leaves_a_whole_checkpoint() {
    if let Some(role) = role() {
        return child(&role);
    }
    kill_again_and_again(this_test!(), "saver", kills());
}

/// Saves a second checkpoint under a limit, and prints what happens.
fn save_under_limit(folder: &Path) {
    let mut manager = CheckpointManager::open(folder, manager_options()).unwrap();
    let saved = CheckpointWriter::create(manager.prefix(1)).map_err(Into::into).and_then(|mut writer| {
        for tensor in 0..TENSORS {
            let bytes = 2_u64.to_le_bytes().repeat(TENSOR_BYTES / 8);
            let tensor_of = Tensor::new(DataType::Uint64, [TENSOR_BYTES / 8], bytes).unwrap();
            writer.add(format!("tensor {tensor}"), &tensor_of)?;
        }
        manager.save(writer)
    });
    match saved {
        Ok(_) => println!("saved"),
        Err(error) => println!("refused: {}", said(error)),
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_the_checkpoint_before() {
    if let Some(role) = role() {
        return save_under_limit(Path::new(&role));
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // EFBIG.
    let reason = std::io::Error::from_raw_os_error(27).to_string();
    // The data file has 18,000 bytes.
    let fits = 36;
    for blocks in some_with(0..40, 7, |blocks| (fits - 1..=fits).contains(blocks)) {
        fs::remove_dir_all(folder).unwrap();
        let mut manager = CheckpointManager::open(folder, manager_options()).unwrap();
        let mut writer = CheckpointWriter::create(manager.prefix(1)).unwrap();
        for tensor in 0..TENSORS {
            let one = Tensor::new(DataType::Uint64, [1], 1_u64.to_le_bytes().to_vec()).unwrap();
            writer.add(format!("tensor {tensor}"), &one).unwrap();
        }
        manager.save(writer).unwrap();
        let child = child_command(this_test!(), &folder.display().to_string());
        let output = limited(&child, blocks, true).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}");
        let is_saved = said.contains("saved\n");
        assert_eq!(is_saved, blocks >= fits, "{blocks}: {said}");
        if !is_saved {
            assert!(said.contains("refused: ") && said.contains("ckpt-1"), "{blocks}: {said}");
            assert!(said.contains(&reason), "{blocks}: {said}");
        }
        assert_eq!(check(folder, 1), 1 + u64::from(is_saved), "{blocks} blocks: {said}");
        let left = fs::read_dir(folder).unwrap().count();
        assert_eq!(left, 3, "{blocks} blocks: {said}");
    }
}

/// Adds a tensor in pieces, of which the first cannot be written, and goes on.
fn go_on_after_an_error(folder: &Path) {
    const BYTES: usize = 300_000;

    let mut writer = CheckpointWriter::create(folder.join("model")).unwrap();
    let mut tensor = writer.begin("a", DataType::Uint8, &[BYTES]).unwrap();
    assert!(matches!(tensor.add(&[2; BYTES]), Err(WriteError::Io { .. })));
    // Short pieces do not get to the file at once.
    for _ in 0..3 {
        assert!(matches!(tensor.add(&[2; BYTES / 3]), Err(WriteError::Failed { .. })));
    }
    assert!(matches!(tensor.finish(), Err(WriteError::Failed { .. })));
    assert!(matches!(writer.finish(), Err(WriteError::Failed { .. })));
}

#[test]
fn a_tensor_with_a_piece_that_could_not_be_written_is_never_whole() {
    if let Some(role) = role() {
        return go_on_after_an_error(Path::new(&role));
    }
    let folder = tempfile::tempdir().unwrap();
    let child = child_command(this_test!(), &folder.path().display().to_string());
    crate::process::check(this_test!(), &limited(&child, 40, true).output().unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error() {
    if let Some(role) = role() {
        let folder = Path::new(&role);
        for result in [
            CheckpointWriter::create(folder.join("model")).map(drop),
            CheckpointWriter::create(folder.join("new/model")).map(drop),
        ] {
            let message = said(result.unwrap_err());
            assert!(message.contains(&role) && message.contains("ermission denied"), "{message}");
        }
        return;
    }
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let child = child_command(this_test!(), &folder.path().display().to_string());
    crate::process::check_without_root(this_test!(), child, folder.path());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    assert!(CheckpointWriter::create(folder.path().join("file/model")).is_err());
    for taken in ["a.data-00000-of-00001", "b.index"] {
        fs::create_dir(folder.path().join(taken)).unwrap();
    }
    let message = said(CheckpointWriter::create(folder.path().join("a")).unwrap_err());
    assert!(message.contains("a folder is there"), "{message}");
    let message = said(CheckpointWriter::create(folder.path().join("b")).unwrap().finish().unwrap_err());
    assert!(message.contains("b.index") && message.contains("a folder is there"), "{message}");
    // Nothing is left of it.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}
