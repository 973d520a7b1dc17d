//! In which terms a message names a remedy: those of Rust, of the command or of Python. A process has one
//! caller, which is set when it starts.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, Ordering};

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Caller {
    /// A program in Rust.
    Rust,
    /// The command `percolator`.
    Command,
    /// A program in Python.
    Python,
}

static CALLER: AtomicU8 = AtomicU8::new(Caller::Rust as u8);

/// Sets the caller, for all messages of this process.
pub fn is(caller: Caller) {
    CALLER.store(caller as u8, Ordering::Relaxed);
}

/// The words for this process's caller.
#[must_use]
pub fn words<'a>(rust: &'a str, command: &'a str, python: &'a str) -> &'a str {
    match CALLER.load(Ordering::Relaxed) {
        caller if caller == Caller::Command as u8 => command,
        caller if caller == Caller::Python as u8 => python,
        _ => rust,
    }
}

/// An option with its value, as this process's caller sets it.
pub fn option(name: &str, value: impl Display) -> String {
    let between = words("(", " ", "=");
    format!("{}{name}{between}{value}{}", words("", "--", ""), words(")", "", ""))
}
