//! The whole of it, with processes that are this test's binary in another role; and the manifests by which
//! Kubernetes runs the same.

#[allow(dead_code, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../tests/etcd/server.rs"]
mod etcd;
mod manifests;
mod peers;
#[allow(dead_code, unreachable_pub, reason = "it is shared with other tests, which use the rest")]
#[path = "../../../../../tests/common/process.rs"]
mod process;
mod schema;
mod whole;

use std::process::Command;

use clap::Parser as _;

use crate::options::Options;
use crate::trainer::Ended;

/// Between the words of a role's command line.
const BETWEEN: &str = "\n";

/// Makes the command of a process that takes a role, by running `test` again.
fn spawn(test: &'static str) -> impl Fn(&[String]) -> Command {
    move |words| {
        let mut command = process::child_command(test, &words.join(BETWEEN));
        // What a failed test has printed is what its processes have printed, too.
        command.env("RUST_BACKTRACE", "0");
        command
    }
}

/// Takes a role if this process was started for one, and ends then as the example does.
fn take_role() {
    let Some(words) = process::role() else { return };
    let words = std::iter::once("parameter_server").chain(words.split(BETWEEN));
    let ended = crate::run(Options::parse_from(words));
    std::process::exit(match ended {
        Ok(Ended::Done) => 0,
        Ok(Ended::Asked) => i32::from(crate::ASKED_TO_END),
        Err(error) => {
            eprintln!("{error:#}");
            1
        }
    });
}
