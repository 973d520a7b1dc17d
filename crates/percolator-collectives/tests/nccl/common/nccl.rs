//! The stand-in NCCL: where it is, and its control symbols.
#![expect(unsafe_code, reason = "the stand-in is called as a C library is")]

use std::ffi::{CString, c_char};
use std::path::Path;
use std::process::Command;

use libloading::{Library, Symbol};

/// Builds it beside the stand-in driver, if it is not there: cargo does so with a plain `cargo test`, but not
/// for a single test binary.
pub(crate) fn build() {
    let driver = crate::standin::library_path();
    let library = driver.with_file_name("libnccl.so");
    if library.exists() {
        return;
    }
    let target = driver.ancestors().nth(3).expect("target/PROFILE/examples/libcuda.so");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--offline", "--package", "percolator-collectives", "--features", "nccl"]);
    build.args(["--example", "nccl", "--target-dir"]).arg::<&Path>(target);
    let status = build.current_dir(super::repository()).status();
    assert!(status.unwrap().success() && library.exists(), "cannot build the stand-in NCCL");
}

/// Its control symbols.
pub(crate) struct Nccl(Library);

impl Nccl {
    /// Opens it by the name that cudarc uses, so that both have the same one.
    pub(crate) fn open() -> Self {
        // SAFETY: loading the library runs no code of its own.
        Nccl(unsafe { Library::new("libnccl.so") }.expect("it is beside the stand-in driver"))
    }

    /// Makes the next call of a function return a code of `ncclResult_t`.
    pub(crate) fn fail(&self, function: &str, code: u32) {
        let name = CString::new(function).unwrap();
        // SAFETY: the type is that of tests/standin/lib.rs.
        let fail: Symbol<'_, unsafe extern "C" fn(*const c_char, u32)> =
            unsafe { self.0.get("standin_nccl_fail") }.unwrap();
        // SAFETY: the name ends with a zero.
        unsafe { fail(name.as_ptr(), code) };
    }

    /// Gives all communicators an error that nobody waited for.
    pub(crate) fn break_all(&self, code: u32) {
        self.set("standin_nccl_break", code);
    }

    /// Sets the version that it states.
    pub(crate) fn version(&self, version: u32) {
        self.set("standin_nccl_version", version);
    }

    fn set(&self, name: &str, value: u32) {
        // SAFETY: the type is that of tests/standin/lib.rs.
        let set: Symbol<'_, extern "C" fn(u32)> = unsafe { self.0.get(name) }.unwrap();
        set(value);
    }
}
