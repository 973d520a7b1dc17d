//! Completions and manual pages are made of the command's own description: nothing of it is missing there.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use tempfile::tempdir;

fn percolator(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_percolator")).args(args).output().unwrap()
}

#[track_caller]
fn said(args: &[&str]) -> String {
    let output = percolator(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_short_version_is_a_line_and_a_long_one_says_what_this_build_finds() {
    let short = said(&["-V"]);
    assert_eq!(short, concat!("percolator ", env!("CARGO_PKG_VERSION"), "\n"));
    let long = said(&["--version"]);
    let lines = long.strip_prefix(&short).unwrap_or_else(|| panic!("{long}")).lines();
    let names: Vec<_> = lines.filter_map(|line| Some(line.split_once(':')?.0)).collect();
    // A commit is said only if whoever built this named it.
    assert!(names.ends_with(&["features", "CUDA", "kernels"]), "{long}");
}

/// The subcommands that the help lists.
fn subcommands() -> Vec<String> {
    let help = said(&["--help"]);
    let (_, listed) = help.split_once("\n\nFeeds:\n").unwrap();
    let (listed, _) = listed.split_once("\n\nOptions:").unwrap();
    let names = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn each_shell_completes_each_subcommand() {
    let names = subcommands();
    assert!(names.len() > 10 && names.iter().any(|name| name == "verify-run"), "{names:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completions", shell]);
        for name in names.iter().map(|name| &**name).chain(["--etcd", "--synthetic"]) {
            assert!(script.contains(name.trim_start_matches('-')), "{shell} does not know {name}");
        }
        for hidden in ["--lmdb", "-l lmdb", "--tfrecord", "-l tfrecord"] {
            assert!(!script.contains(hidden), "{shell} offers {hidden}");
        }
    }
    assert_eq!(percolator(&["completions", "dos"]).status.code(), Some(2));
}

#[test]
fn bash_takes_the_script_and_completes() {
    let script = said(&["completions", "bash"]);
    let asks = "COMP_WORDS=(percolator verify-r); COMP_CWORD=1\n_percolator percolator verify-r percolator\n\
                printf '%s\\n' \"${COMPREPLY[@]}\"\n";
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is on every machine that builds this");
    bash.stdin.take().unwrap().write_all((script + asks).as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "verify-run\n");
}

#[test]
fn each_subcommand_has_a_manual_page() {
    let folder = tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(said(&["man", pages.to_str().unwrap()]), "");
    let page = |name: &str| {
        let page = fs::read_to_string(pages.join(format!("{name}.1")));
        page.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert!(page("percolator").contains(".TH percolator 1"));
    for name in subcommands() {
        let page = page(&format!("percolator-{name}"));
        assert!(page.contains(".SH SYNOPSIS") && page.contains(".SH OPTIONS"), "{page}");
    }
    assert!(page("percolator-checkpoints-gc").contains("keep"), "those below a subcommand, too");
    let before = fs::read_dir(&pages).unwrap().count();
    said(&["man", pages.to_str().unwrap()]);
    assert_eq!(fs::read_dir(&pages).unwrap().count(), before, "pages are replaced");
}

#[test]
fn pages_that_cannot_be_written_are_an_error() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let output = percolator(&["man", file.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && message.contains("cannot make the folder"), "{message}");
    assert_eq!(percolator(&["man"]).status.code(), Some(2));
}
