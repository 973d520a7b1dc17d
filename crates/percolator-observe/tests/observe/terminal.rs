//! The terminal is given back, whatever happens to the view.

use std::process::Command;

use percolator::feed::FeedHandle;
use percolator_observe::Numbers;
use percolator_observe::view::{Subject, watch};

use crate::pty::Pty;

/// Says that this process is the one in the terminal.
const INSIDE: &str = "PERCOLATOR_TEST_INSIDE";

/// A subject that panics after some pictures.
struct Panics(usize);

impl Subject for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn numbers(&mut self) -> Result<Numbers, String> {
        assert!(self.0 > 0, "a panic on purpose");
        self.0 -= 1;
        Ok(Numbers::default())
    }

    fn handle(&self) -> Option<&FeedHandle> {
        None
    }
}

#[test]
fn a_panic_gives_the_terminal_back_and_is_read_there() {
    if std::env::var_os(INSIDE).is_some() {
        let _ = watch(&mut Panics(3), || false);
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["terminal::a_panic_gives_the_terminal_back_and_is_read_there", "--exact", "--nocapture"]);
    let mut pty = Pty::start(
        {
            command.env(INSIDE, "1");
            command
        },
        80,
        24,
    );
    let drawn = pty.wait_for("RUNNING", 0);
    let left = pty.wait_for(crate::pty::LEAVE, drawn);
    pty.wait_for("a panic on purpose", left);
    assert!(!pty.end().success());
    pty.check_given_back();
}
