//! What a test asks about its process (threads, open files, memory), and processes of its own.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

#[allow(clippy::duplicate_mod, reason = "packages take these files without the rest of the folder")]
#[path = "need.rs"]
pub mod need;
#[allow(clippy::duplicate_mod, reason = "as above")]
#[path = "sample.rs"]
pub mod sample;

const ALONE: &str = "PERCOLATOR_TEST_ALONE";

/// Far longer than any test takes: what has not ended by then hangs. `PERCOLATOR_HUNG_AFTER` is another
/// number of seconds, for a checker that slows down every instruction.
pub fn hung_after() -> Duration {
    let stated = std::env::var("PERCOLATOR_HUNG_AFTER").ok();
    Duration::from_secs(stated.map_or(60, |seconds| seconds.parse().expect("a number of seconds")))
}

/// The name of the enclosing test, as libtest has it: its modules and its function. A child that runs the
/// test gets this name, so it stays right when the test moves.
#[allow(unused_macros, reason = "not every binary starts children")]
macro_rules! this_test {
    () => {{
        fn here() {}
        let path = std::any::type_name_of_val(&here).trim_end_matches("::here");
        let (_crate, test) = path.split_once("::").expect("a function is in a crate");
        test.split("::{{closure}}").next().expect("there is a first part")
    }};
}
#[allow(unused_imports, reason = "not every binary starts children")]
pub(crate) use this_test;

/// Runs what must end, and panics instead of hanging the suite if it does not.
pub fn must_end<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(run());
    });
    match result.recv_timeout(hung_after()) {
        Ok(result) => {
            thread.join().unwrap();
            result
        }
        Err(RecvTimeoutError::Timeout) => panic!("hangs: {what}"),
        Err(RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("the thread ended without a result"))
        }
    }
}

/// The command that runs one test of this binary, and nothing else, in a process of its own. The child reads
/// `role` with [`role`].
pub fn child_command(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, role);
    command
}

/// What this process is to do, if a test started it.
pub fn role() -> Option<String> {
    std::env::var(ALONE).ok()
}

/// Whether this is the child that runs `test` and nothing else. If not, runs the child and checks that it
/// passes.
pub fn is_alone(test: &str) -> bool {
    if role().is_some() {
        return true;
    }
    check(test, &child_command(test, "alone").output().unwrap());
    false
}

/// Checks that a child passed its one test, and prints its output.
pub fn check(test: &str, output: &Output) {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{text}");
    assert!(output.status.success(), "the child for {test} ended with {}:\n{text}", output.status);
    assert!(text.contains("1 passed"), "the child ran no test named {test}:\n{text}");
}

/// Checks, like [`check`], a child that must be unable to write in `folder`. The kernel lets root write
/// anywhere, so as root the child runs as another user; if that is impossible, the test says that it was
/// skipped.
pub fn check_without_root(test: &str, mut command: Command, folder: &Path) {
    const NOBODY: u32 = 65534;
    let probe = folder.join("probe");
    if std::fs::write(&probe, "").is_ok() {
        std::fs::remove_file(&probe).unwrap();
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    match command.output() {
        Ok(output) => check(test, &output),
        Err(error) => need::missing("USERS", format_args!("this cannot be run as user {NOBODY}: {error}")),
    }
}

/// A child with a limit of its address space in KiB, or with none, whatever the limit of this process.
pub fn under_a_limit_of_address_space(child: &Command, limit_kib: Option<usize>) -> Command {
    let limit = limit_kib.map_or_else(|| "unlimited".to_owned(), |kib| kib.to_string());
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -S -v \"$1\" && shift && exec \"$@\"", "sh", &limit])
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::null());
    limited
}

/// Polls until `look` returns what is expected: the kernel lists a thread for a moment after it was joined.
pub fn settles<T: PartialEq + std::fmt::Debug>(look: impl Fn() -> T, expected: &T, what: &str) {
    let start = std::time::Instant::now();
    loop {
        let seen = look();
        if seen == *expected {
            return;
        }
        assert!(start.elapsed().as_secs() < 20, "{what}: {seen:?} and not {expected:?}");
        std::thread::yield_now();
    }
}

/// The number of threads of this process.
pub fn threads() -> usize {
    named_threads().len()
}

/// Waits until no prefetch thread is left: unless its device is the host, it stays until the last batch is
/// returned.
pub fn prefetchers_are_through() {
    settles(prefetchers, &0, "prefetch threads");
}

/// The number of prefetch threads.
pub fn prefetchers() -> usize {
    named_threads().iter().filter(|(_, name)| name.starts_with("prefetch:")).count()
}

/// The threads of this process, by their numbers, with their names. A list that a thread leaves while the
/// kernel makes it ends there, whatever follows: so it counts only once it has come twice.
fn named_threads() -> Vec<(std::ffi::OsString, String)> {
    let list = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let named = |task: std::fs::DirEntry| {
            let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
            Some((task.file_name(), name))
        };
        tasks.filter_map(named).collect::<Vec<_>>()
    };
    let mut before = list();
    loop {
        let now = list();
        if now == before {
            return now;
        }
        before = now;
    }
}

/// The number of open files, except the directory that is being listed, and pipes: a feed has none, and a
/// sanitizer two, to the program that tells it the names of functions.
pub fn open_files() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().map(|file| file.unwrap().path());
    let is_pipe = |file: &std::path::PathBuf| {
        std::fs::read_link(file)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"pipe:"))
    };
    files.filter(|file| !is_pipe(file)).count() - 1
}

/// Resident anonymous memory, in bytes.
pub fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux 4.5 or later");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

/// How many maps of a file this process has.
pub fn maps(file: &std::path::Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.ends_with(file.to_str().unwrap())).count()
}
