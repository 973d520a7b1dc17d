//! The stand-in CUDA driver of `tests/standin`, for tests: where it is, how a process loads it in the place
//! of NVIDIA's, and its control symbols. The binary also declares `mod common`.
#![expect(unsafe_code, reason = "the stand-in driver is called as a C library is")]
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "shared by tests only")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use libloading::{Library, Symbol};

use super::common::process::{check, child_command, prefetchers_are_through, role};
use super::common::repository;

/// A kernel on the CPU: see `standin_register_kernel`.
pub type Kernel = unsafe extern "C" fn(*const *const c_void, *const u32);

/// The library beside this test's executable. Cargo builds it with a plain `cargo test`, but not for a single
/// test binary; so this builds it if it is missing or older than its source.
pub fn library_path() -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let profile = executable.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
    let library = profile.join("examples/libcuda.so");
    let source = repository().join("tests/standin");
    if !library.exists() || changed(&library) < newest(&source) {
        let name = match profile.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            other => other,
        };
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--offline", "--package", "percolator-standin", "--example", "cuda"]);
        build
            .args(["--profile", name, "--target-dir"])
            .arg(profile.parent().unwrap())
            .current_dir(repository());
        assert!(build.status().unwrap().success(), "cannot build the stand-in driver");
    }
    library
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

/// The newest modification time of the files in a folder, and in those below it.
fn newest(folder: &Path) -> Option<SystemTime> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter_map(|path| if path.is_dir() { newest(&path) } else { changed(&path) }).max()
}

/// Makes a command's process load the stand-in as its CUDA driver, with lines of configuration.
pub fn load_in(command: &mut Command, lines: &str) {
    let folder = library_path().parent().unwrap().to_owned();
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = std::iter::once(folder).chain(std::env::split_paths(&others));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(paths).unwrap());
    command.env("STANDIN_DRIVER", lines.trim().replace('\n', ";"));
}

/// The stand-in, if this process is the child that runs `test` alone on it. If not, runs that child, checks
/// that it passes, and returns `None`. A process loads one driver, once, so each test needs a process.
pub fn alone(test: &str, lines: &str) -> Option<Standin> {
    if role().is_some() {
        return Some(Standin::open());
    }
    let mut command = child_command(test, "stand-in");
    load_in(&mut command, lines);
    check(test, &command.output().unwrap());
    None
}

/// The control symbols of the stand-in that this process has loaded.
#[derive(Debug)]
pub struct Standin {
    library: &'static Library,
}

impl Standin {
    /// Opens it by the name that cudarc uses, so that both have the same one.
    pub fn open() -> Standin {
        // SAFETY: loading the library runs no code of its own.
        let library = unsafe { Library::new("libcuda.so") }.expect("`load_in` has set LD_LIBRARY_PATH");
        let standin = Standin { library: Box::leak(Box::new(library)) };
        standin.symbol::<fn()>("standin_reset");
        standin
    }

    /// `T` must be the type of the symbol in tests/standin/control.rs.
    fn symbol<T>(&self, name: &str) -> Symbol<'static, T> {
        // SAFETY: every caller is below, and names the type that tests/standin/control.rs has.
        unsafe { self.library.get(name) }.unwrap_or_else(|_| panic!("not the stand-in: it has no {name}"))
    }

    /// Changes the settings in lines of `key=value`: see tests/standin/config.rs.
    pub fn configure(&self, lines: &str) {
        let lines = CString::new(lines).unwrap();
        let code = self.symbol::<extern "C" fn(*const c_char) -> i32>("standin_configure")(lines.as_ptr());
        assert_eq!(code, 0, "not a configuration: {lines:?}");
    }

    /// Forgets everything, including handles, faults and held streams, and keeps the configuration.
    pub fn reset(&self) {
        self.symbol::<extern "C" fn(bool)>("standin_reset")(false);
    }

    /// Makes the `nth` call of `symbol` from now (1 is the next), on this device or on any, return `code`.
    pub fn fail(&self, symbol: &str, nth: u64, device: Option<u32>, code: u32) {
        self.fault(symbol, nth, device, code, false);
    }

    /// The same for the `nth` call and every later one.
    pub fn fail_for_ever(&self, symbol: &str, nth: u64, device: Option<u32>, code: u32) {
        self.fault(symbol, nth, device, code, true);
    }

    fn fault(&self, symbol: &str, nth: u64, device: Option<u32>, code: u32, for_ever: bool) {
        type Fail = extern "C" fn(*const c_char, u64, i32, u32, bool) -> i32;
        let symbol = CString::new(symbol).unwrap();
        let device = device.map_or(-1, |device| i32::try_from(device).unwrap());
        let fail = self.symbol::<Fail>("standin_fail");
        assert_eq!(fail(symbol.as_ptr(), nth, device, code, for_ever), 0);
    }

    /// Makes every call that concerns the device return `code`, until a reset of the stand-in.
    pub fn lose(&self, device: u32, code: u32) {
        let device = i32::try_from(device).unwrap();
        assert_eq!(self.symbol::<extern "C" fn(i32, u32) -> i32>("standin_lose")(device, code), 0);
    }

    /// Holds the `place`th stream of a device (-1: the null stream): its operations wait.
    pub fn hold(&self, device: u32, place: i32) {
        self.let_go(device, place, 0);
    }

    /// Holds it after this many more operations have begun.
    pub fn let_go(&self, device: u32, place: i32, operations: u64) {
        self.symbol::<extern "C" fn(u32, i32, u64)>("standin_hold_stream")(device, place, operations);
    }

    pub fn release(&self, device: u32, place: i32) {
        self.symbol::<extern "C" fn(u32, i32)>("standin_release_stream")(device, place);
    }

    /// The number of operations of a stream that have not ended.
    pub fn queued(&self, device: u32, place: i32) -> u64 {
        self.symbol::<extern "C" fn(u32, i32) -> u64>("standin_operations_queued")(device, place)
    }

    /// The report since the last one; a new one begins here.
    pub fn take_report(&self) -> Report {
        let take = self.symbol::<extern "C" fn(*mut u8, usize) -> usize>("standin_take_report");
        let mut text = vec![0; 1 << 16];
        loop {
            let needed = take(text.as_mut_ptr(), text.len());
            if needed <= text.len() {
                text.truncate(needed - 1);
                return Report::parse(String::from_utf8(text).unwrap());
            }
            text.resize(needed + 4096, 0);
        }
    }

    /// The report of feeds that were dropped, once their prefetch threads have seen every batch returned.
    pub fn last_report(&self) -> Report {
        prefetchers_are_through();
        self.take_report()
    }

    /// Registers a kernel by its name and signature: one word a parameter, separated by commas; `r` and `w`
    /// for the address of device memory that it reads or writes, and a number for a value of that many bytes.
    ///
    /// # Safety
    ///
    /// `body` takes the arguments that the signature describes, and is sound for any launch of it.
    pub unsafe fn register_kernel(&self, name: &str, signature: &str, body: Kernel) {
        type Register = extern "C" fn(*const c_char, *const c_char, Kernel) -> i32;
        let (name, signature) = (CString::new(name).unwrap(), CString::new(signature).unwrap());
        let register = self.symbol::<Register>("standin_register_kernel");
        assert_eq!(register(name.as_ptr(), signature.as_ptr(), body), 0, "not a signature: {signature:?}");
    }

    /// The address in this process of device memory, for a kernel; null outside of any buffer.
    pub fn resolve(&self, at: u64, len: usize) -> *mut u8 {
        self.symbol::<extern "C" fn(u64, usize) -> *mut u8>("standin_resolve")(at, len)
    }
}

/// What the stand-in saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub text: String,
    pub violations: Vec<String>,
    live: BTreeMap<String, usize>,
    abandoned: BTreeMap<String, usize>,
    calls: BTreeMap<String, u64>,
}

impl Report {
    fn parse(text: String) -> Report {
        let mut report = Report::default();
        assert!(text.starts_with("stand-in CUDA driver"), "not a report: {text}");
        for line in text.lines().skip(1) {
            let (what, rest) = line.split_once(' ').unwrap();
            if what == "violation" {
                report.violations.push(rest.to_owned());
                continue;
            }
            let (name, count) = rest.rsplit_once(' ').unwrap();
            match what {
                "live" => _ = report.live.insert(name.to_owned(), count.parse().unwrap()),
                "abandoned" => _ = report.abandoned.insert(name.to_owned(), count.parse().unwrap()),
                "calls" => _ = report.calls.insert(name.to_owned(), count.parse().unwrap()),
                _ => panic!("not understood: {line}"),
            }
        }
        report.text = text;
        report
    }

    /// How many `contexts`, `streams`, `events`, `modules`, `graphs`, `device_buffers`, `pinned_buffers`,
    /// `registered_buffers`, `device_bytes` or `pinned_bytes` there are now.
    pub fn live(&self, what: &str) -> usize {
        self.live[what]
    }

    /// How many of them were left when their context was destroyed.
    pub fn abandoned(&self, what: &str) -> usize {
        self.abandoned[what]
    }

    /// How often a symbol was called.
    pub fn calls(&self, symbol: &str) -> u64 {
        self.calls.get(symbol).copied().unwrap_or(0)
    }

    /// How often symbols with this prefix were called.
    pub fn calls_of(&self, prefix: &str) -> u64 {
        self.calls.iter().filter(|(symbol, _)| symbol.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// Checks that nothing was done wrong.
    pub fn must_be_clean(&self) {
        assert!(self.violations.is_empty(), "{}", self.text);
    }

    /// Checks that nothing is left either.
    pub fn must_be_empty(&self) {
        self.must_be_clean();
        let left = self.live.values().chain(self.abandoned.values()).any(|&count| count > 0);
        assert!(!left, "{}", self.text);
    }

    /// Checks that there are violations, and that all of them begin with `kind`.
    pub fn must_only_have(&self, kind: &str) {
        let are_of_it = self.violations.iter().all(|violation| violation.starts_with(kind));
        assert!(are_of_it && !self.violations.is_empty(), "wanted {kind:?}:\n{}", self.text);
    }
}
