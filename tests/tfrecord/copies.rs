//! Unpacked copies: processes that start together make each one once, and none is made where nobody asked
//! for it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Barrier;

use percolator::source::{Access, IndexPlace, Joined, Source, SourceError, TfRecord};
use percolator::tfrecord::{Compression, TfRecordError};
use percolator::{Feed, RawBytes};
use tempfile::{TempDir, tempdir};

use crate::common::indexed::{Records, check_source, walked};
use crate::common::log::Log;
use crate::common::process::{check_without_root, child_command, role, this_test};
use crate::files::{mixed, open, write};

const MADE: &str = "a compressed file was unpacked to a copy";
const FILES: usize = 6;
const EACH: usize = 8;

/// Compressed files of these records.
fn written() -> (TempDir, Records) {
    let folder = tempdir().unwrap();
    let records = mixed(FILES * EACH);
    for (number, records) in records.chunks(EACH).enumerate() {
        let compression = [Compression::Gzip, Compression::Zlib][number % 2];
        write(&folder.path().join(format!("part-{number}.gz")), &records.to_vec(), compression, 2);
    }
    (folder, records)
}

fn opened(folder: &Path, access: Access) -> Joined {
    TfRecord::options().access(access).open_all([folder.join("part-*")]).unwrap()
}

/// Each file by itself.
fn opened_each(folder: &Path, access: Access) -> Vec<TfRecord> {
    let open = |number| TfRecord::options().access(access).open(folder.join(format!("part-{number}.gz")));
    (0..FILES).map(|number| open(number).unwrap()).collect()
}

/// Indexes each file, and returns how many copies that made. One by one: what is logged is counted on this
/// thread.
fn index(sources: &[TfRecord]) -> usize {
    let log = Log::default();
    log.listen(|| sources.iter().try_for_each(|source| source.index(&IndexPlace::Beside))).unwrap();
    log.text().matches(MADE).count()
}

/// The last records first, all of them.
fn check_backwards(source: &dyn Source, records: &[(Vec<u8>, Vec<u8>)]) {
    let mut cursor = source.cursor().unwrap();
    for (position, (_, value)) in records.iter().enumerate().rev() {
        cursor.seek(position as u64).unwrap();
        assert!(cursor.advance().unwrap().unwrap().value() == value, "{position}");
    }
}

fn check_each_backwards(sources: &[TfRecord], records: &[(Vec<u8>, Vec<u8>)]) {
    for (source, records) in sources.iter().zip(records.chunks(EACH)).rev() {
        check_backwards(source, records);
    }
}

/// What is in a folder besides the compressed files.
fn others(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| !name.ends_with(".gz")).collect();
    names.sort();
    names
}

/// For each file, a copy and an index, and nothing else: no lock and no temporary file.
fn check_others(folder: &Path) {
    let due = (0..FILES)
        .flat_map(|number| ["index", "unpacked"].map(|kind| format!("part-{number}.gz.percolator-{kind}")));
    assert_eq!(others(folder), due.collect::<Vec<_>>());
}

#[test]
fn threads_that_start_together_make_each_copy_once() {
    for access in [Access::Mapped, Access::Read] {
        let (folder, records) = written();
        let (start, indexed) = (Barrier::new(4), Barrier::new(4));
        let made: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let sources = opened_each(folder.path(), access);
                        start.wait();
                        let made = index(&sources);
                        indexed.wait();
                        check_each_backwards(&sources, &records);
                        made
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(made, FILES);
        check_others(folder.path());
    }
}

/// A process of its own. It waits for a line before each step, and says when it has done it.
struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(test: &str, folder: &Path) -> Self {
        let mut command = child_command(test, folder.to_str().unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Process { child, lines }
    }

    fn go(&mut self) {
        writeln!(self.child.stdin.as_ref().unwrap()).unwrap();
    }

    /// What follows this word in the line that has it.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the process ended before it said {word:?}: {:?}", self.child.wait());
    }
}

#[test]
fn processes_that_start_together_make_each_copy_once() {
    let name = this_test!();
    if let Some(folder) = role() {
        return be_one_of_several(Path::new(&folder));
    }
    let (folder, _) = written();
    let mut processes: Vec<Process> = (0..3).map(|_| Process::start(name, folder.path())).collect();
    for word in ["opened:", "indexed:", "read:"] {
        let mut made = 0;
        for process in &mut processes {
            made += process.says(word).parse::<usize>().unwrap();
        }
        assert_eq!(made, if word == "indexed:" { FILES } else { 0 });
        processes.iter_mut().for_each(Process::go);
    }
    for mut process in processes {
        process.says("1 passed");
        assert!(process.child.wait().unwrap().success());
    }
    check_others(folder.path());
}

fn be_one_of_several(folder: &Path) {
    let wait = || std::io::stdin().read_line(&mut String::new()).unwrap();
    let sources = opened_each(folder, Access::Mapped);
    println!("\nopened:0");
    wait();
    println!("\nindexed:{}", index(&sources));
    wait();
    check_each_backwards(&sources, &mixed(FILES * EACH));
    println!("\nread:0");
    wait();
}

#[test]
fn a_copy_is_made_only_where_it_may_be() {
    let name = this_test!();
    if let Some(path) = role() {
        return index_where_nothing_can_be_written(Path::new(&path));
    }
    let ((folder, _), home) = (written(), tempdir().unwrap());
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut command = child_command(name, folder.path().to_str().unwrap());
    command.env("XDG_CACHE_HOME", home.path()).env("TMPDIR", home.path());
    check_without_root(name, command, folder.path());
    assert!(others(folder.path()).is_empty());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

fn index_where_nothing_can_be_written(folder: &Path) {
    let records = mixed(FILES * EACH);
    let source = opened(folder, Access::Auto);
    for place in [IndexPlace::Beside, IndexPlace::Memory] {
        let error = source.index(&place).unwrap_err();
        assert!(matches!(error, SourceError::TfRecord(TfRecordError::NoCopy { .. })), "{error}");
        let text = error.to_string();
        assert!(text.contains("part-0.gz") && text.contains("(FeedBuilder::index)"), "{text}");
    }
    assert!(!source.is_seekable());
    check_source(&source, 5);
    let home = std::env::var_os("TMPDIR").unwrap();
    assert_eq!(fs::read_dir(&home).unwrap().count(), 0, "nothing is unpacked elsewhere");
    // In order, no copy is needed. The index of positions may be kept in the cache folder: it is small.
    let feed = Feed::builder().tfrecord(folder.join("part-*")).decoder(RawBytes::up_to(1 << 20));
    let found: usize =
        feed.epochs(1).batch_size(7).build().unwrap().into_iter().map(|batch| batch.unwrap().len()).sum();
    assert_eq!(found, records.len());
    let copies = Path::new(&home).join("copies");
    source.index(&IndexPlace::Folder(copies.clone())).unwrap();
    check_backwards(&source, &records);
    assert_eq!(fs::read_dir(copies).unwrap().count(), 2 * FILES);
}

/// A lock that a killed process left behind keeps nobody waiting, and goes.
#[test]
fn a_lock_that_is_left_behind_is_taken_over() {
    let (folder, records) = written();
    fs::write(folder.path().join("part-3.gz.percolator-unpacked.percolator-lock"), "").unwrap();
    let source = opened(folder.path(), Access::Auto);
    source.index(&IndexPlace::Beside).unwrap();
    check_backwards(&source, &records);
    check_others(folder.path());
    assert_eq!(walked(&TfRecord::options().open_all([folder.path()]).unwrap()).len(), records.len());
}

/// The reason is kept; and what is in the way of a copy stays.
#[test]
fn a_file_that_changes_before_it_is_unpacked_is_an_error_that_says_so() {
    let folder = tempdir().unwrap();
    let (path, copy) = (folder.path().join("file"), folder.path().join("file.percolator-unpacked"));
    write(&path, &mixed(9), Compression::Gzip, 1);
    let source = open(&path, Access::Auto);
    let bytes = fs::read(&path).unwrap();
    fs::rename(&path, folder.path().join("old")).unwrap();
    fs::write(&path, bytes).unwrap();
    let error = source.index(&IndexPlace::Beside).unwrap_err();
    assert!(matches!(error, SourceError::TfRecord(TfRecordError::Changed { .. })), "{error}");
    assert!(!copy.exists());
    // With a copy of the file as it was, the reason is the same.
    open(&path, Access::Auto).index(&IndexPlace::Beside).unwrap();
    let error = source.index(&IndexPlace::Beside).unwrap_err();
    assert!(matches!(error, SourceError::TfRecord(TfRecordError::Changed { .. })), "{error}");
    fs::remove_file(&copy).unwrap();
    fs::create_dir(&copy).unwrap();
    let error = open(&path, Access::Auto).index(&IndexPlace::Beside).unwrap_err().to_string();
    assert!(error.contains("file.percolator-unpacked") && error.contains("a folder"), "{error}");
}

/// A data set that somebody else made has whatever they like beside it.
#[test]
fn a_link_that_leads_to_no_copy_is_neither_followed_nor_replaced() {
    let (folder, _) = written();
    let (file, letter) = (folder.path().join("part-0.gz"), folder.path().join("letter"));
    std::os::unix::fs::symlink(&letter, folder.path().join("part-0.gz.percolator-unpacked")).unwrap();
    for text in [Some("dear all"), None] {
        match text {
            Some(text) => fs::write(&letter, text).unwrap(),
            None => fs::remove_file(&letter).unwrap(),
        }
        let error = TfRecord::open(&file).unwrap().index(&IndexPlace::Beside).unwrap_err();
        assert!(error.to_string().contains("is a symbolic link that leads to no copy: remove it"), "{error}");
        assert_eq!(fs::read_to_string(&letter).ok().as_deref(), text);
    }
}
