//! Dumps for tests: each in a folder of its own, with what a run that fails may leave there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::{TempDir, tempdir};

use crate::common;

pub(crate) fn golden(name: &str) -> PathBuf {
    common::repository().join("tests/data/golden").join(name)
}

/// A folder to run the command in; it writes to `out` there.
pub(crate) struct Dump {
    pub folder: TempDir,
}

/// Files by their names.
pub(crate) type Arrays = BTreeMap<String, Vec<u8>>;

impl Dump {
    pub(crate) fn new() -> Self {
        Dump { folder: tempdir().unwrap() }
    }

    /// With a net in the folder, named `net.prototxt`.
    pub(crate) fn with_net(text: &str) -> Self {
        let dump = Dump::new();
        fs::write(dump.folder.path().join("net.prototxt"), text).unwrap();
        dump
    }

    /// Runs the command; paths in a net are relative to the golden databases.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.run_to("out", args)
    }

    pub(crate) fn run_to<S: AsRef<OsStr>>(&self, out: &str, args: impl IntoIterator<Item = S>) -> Output {
        self.command(out, args).output().unwrap()
    }

    pub(crate) fn command<S: AsRef<OsStr>>(&self, out: &str, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_percolator"));
        command
            .args(["dump", "--force"])
            .args(args)
            .args(["--out", out])
            .arg("--root")
            .arg(golden(""))
            .current_dir(self.folder.path())
            .env_remove("RUST_LOG");
        command
    }

    /// Runs what must succeed. Returns its standard output.
    #[track_caller]
    pub(crate) fn pass<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
        assert!(output.stderr.is_empty(), "there is nothing to warn of: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs what must fail with a readable message on one line. Returns the message.
    #[track_caller]
    pub(crate) fn fail<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let earlier = self.arrays();
        let output = self.run(args);
        self.check_failure(&output, &earlier)
    }

    #[track_caller]
    pub(crate) fn check_failure(&self, output: &Output, earlier: &Arrays) -> String {
        let message = self.check_nothing_done(output, 2, earlier);
        assert_eq!(message.lines().count(), 1, "one message: {message}");
        message.strip_prefix("percolator: ").expect(&message).trim_end().to_owned()
    }

    /// Runs what clap must refuse. Returns the message and the usage.
    #[track_caller]
    pub(crate) fn refuse<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let earlier = self.arrays();
        let output = self.run(args);
        let message = self.check_nothing_done(&output, 2, &earlier);
        assert!(message.starts_with("error: "), "{message}");
        message
    }

    /// Checks a run that failed: what looks finished was there `earlier`, and is as it was.
    #[track_caller]
    fn check_nothing_done(&self, output: &Output, code: i32, earlier: &Arrays) -> String {
        let message = String::from_utf8(output.stderr.clone()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(!message.contains("panicked"), "{message}");
        assert!(output.stdout.is_empty(), "nothing was done: {}", String::from_utf8_lossy(&output.stdout));
        for (name, bytes) in self.arrays() {
            assert!(earlier.get(&name) == Some(&bytes), "{name} is of a run that failed");
        }
        message
    }

    /// The arrays that look finished.
    pub(crate) fn arrays(&self) -> Arrays {
        let Ok(files) = fs::read_dir(self.folder.path().join("out")) else { return Arrays::new() };
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".npy")).map(|name| (name.clone(), self.array(&name))).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.arrays().into_keys().collect()
    }

    pub(crate) fn array(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("out").join(name)).unwrap()
    }

    /// Both arrays, as stored in their files.
    pub(crate) fn both(&self) -> [Vec<u8>; 2] {
        ["data.npy", "label.npy"].map(|name| self.array(name))
    }
}

/// Splits an array file into its header and its elements.
pub(crate) fn split(array: &[u8]) -> (&[u8], &[u8]) {
    array.split_at(10 + usize::from(u16::from_le_bytes([array[8], array[9]])))
}

pub(crate) const LAYER: &str = "layer { name: 'data' type: 'Data' top: 'data' \
                     data_param { source: 'raw_lmdb' batch_size: 4 backend: LMDB } }";
