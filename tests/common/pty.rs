//! A program in a terminal of its own: what it writes there, which keys it gets, and how it leaves it.

#![allow(dead_code, unreachable_pub, reason = "not every binary uses all of it")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A wait that takes longer has hung.
const HUNG_AFTER: Duration = Duration::from_secs(60);

/// What switches to a terminal's second screen, and back.
pub const ENTER: &str = "\x1b[?1049h";
pub const LEAVE: &str = "\x1b[?1049l";

/// The two ends of a terminal: ours, and the program's. When ours is closed, the terminal is gone.
pub fn terminal(columns: u16, rows: u16) -> (File, File) {
    // A program that another test starts meanwhile must not keep it open.
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(name).unwrap();
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&theirs, size).unwrap();
    (ours.into(), theirs)
}

/// A program that runs in a terminal.
pub struct Pty {
    child: Child,
    ours: File,
    /// Kept open, so that its modes can be asked for when the program has ended.
    theirs: OwnedFd,
    written: Arc<(Mutex<String>, Condvar)>,
}

impl Pty {
    pub fn start(command: Command, columns: u16, rows: u16) -> Self {
        Self::start_with(command, columns, rows, |terminal| terminal.into())
    }

    /// Starts a program that can write to the terminal, and reads nothing.
    pub fn start_without_input(command: Command, columns: u16, rows: u16) -> Self {
        Self::start_with(command, columns, rows, |_| Stdio::null())
    }

    fn start_with(mut command: Command, columns: u16, rows: u16, input: impl FnOnce(File) -> Stdio) -> Self {
        let (ours, theirs) = terminal(columns, rows);
        let end = || theirs.try_clone().unwrap();
        let child = command.stdin(input(end())).stdout(end()).stderr(end()).spawn().unwrap();
        let written = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (mut from, into) = (ours.try_clone().unwrap(), written.clone());
        // It ends with the test: the terminal stays open until then.
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.0.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                into.1.notify_all();
            }
        });
        Pty { child, ours, theirs: theirs.into(), written }
    }

    /// All that was written to the terminal.
    pub fn written(&self) -> String {
        self.written.0.lock().unwrap().clone()
    }

    /// Waits until this was written in one go (what is on the screen already is not written again), after so
    /// many bytes; returns how many bytes there are then.
    #[track_caller]
    pub fn wait_for(&self, text: &str, after: usize) -> usize {
        let start = Instant::now();
        let mut written = self.written.0.lock().unwrap();
        loop {
            if let Some(at) = written.get(after..).and_then(|rest| rest.find(text)) {
                return after + at + text.len();
            }
            let last: String =
                written.chars().rev().take(2000).collect::<Vec<_>>().into_iter().rev().collect();
            assert!(start.elapsed() < HUNG_AFTER, "{text:?} was never written: {last:?}");
            written = self.written.1.wait_timeout(written, Duration::from_millis(100)).unwrap().0;
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Whether the terminal passes on each key at once, without showing it.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(self.theirs.as_fd()).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits until the program has ended.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < HUNG_AFTER, "it never ended: {:?}", self.written());
            thread::yield_now();
        }
    }

    /// Checks that the terminal is as it was before the program.
    #[track_caller]
    pub fn check_given_back(&self) {
        assert!(!self.is_raw(), "keys are not shown");
        self.wait_for(LEAVE, 0);
        // The second screen was left after it was entered last, and the cursor is shown.
        let written = self.written();
        assert!(written.rfind(LEAVE) > written.rfind(ENTER), "{written:?}");
        assert!(written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l"), "{written:?}");
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
