//! Output to the terminal, by a separate thread: a terminal that is not read blocks only that thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// How long a terminal that is given back may take to get what is on its way to it.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// Who has the terminal.
static TAKEN: Mutex<Option<Arc<Writer>>> = Mutex::new(None);

/// What is on its way to the terminal.
#[derive(Debug, Default)]
pub(super) struct Writer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    is_writing: bool,
    /// Nothing comes after what waits.
    is_over: bool,
    failed: Option<io::Error>,
}

impl Writer {
    /// Writes this as soon as the terminal takes it, unless the terminal was given back.
    pub(super) fn put(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        if !state.is_over && !bytes.is_empty() {
            state.waiting.push_back(bytes.to_vec());
            self.changed.notify_all();
        }
    }

    /// Whether all was written.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the terminal is gone.
    pub(super) fn is_free(&self) -> io::Result<bool> {
        let mut state = self.state.lock();
        match state.failed.take() {
            Some(error) => Err(error),
            None => Ok(state.is_free()),
        }
    }

    /// Writes all that is put, until nothing comes any more.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(bytes) = state.waiting.pop_front() {
                state.is_writing = true;
                drop(state);
                let written = write_all(&bytes);
                state = self.state.lock();
                state.is_writing = false;
                if let Err(error) = written {
                    state.failed.get_or_insert(error);
                }
                self.changed.notify_all();
            } else if state.is_over {
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Writes this last, and waits until all is written. A terminal that is not read gets it when it is read,
    /// if this process still runs.
    fn finish(&self, bytes: Vec<u8>) {
        let mut state = self.state.lock();
        state.waiting.push_back(bytes);
        state.is_over = true;
        self.changed.notify_all();
        let is_on_its_way = |state: &mut State| !state.is_free();
        self.changed.wait_while_for(&mut state, is_on_its_way, GIVE_BACK_MAX);
    }
}

impl State {
    fn is_free(&self) -> bool {
        self.waiting.is_empty() && !self.is_writing
    }
}

/// Writes to the standard output, past its lock and its buffer, which the rest of the program needs.
fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(io::stdout(), bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Switches to the terminal's second screen, where each key is heard at once and none is shown.
///
/// # Errors
///
/// [`io::Error`] if the terminal is gone, or there can be no thread.
pub(super) fn take_terminal() -> io::Result<Arc<Writer>> {
    let writer = Arc::new(Writer::default());
    let writes = writer.clone();
    std::thread::Builder::new().name("terminal".to_owned()).spawn(move || writes.run())?;
    *TAKEN.lock() = Some(writer.clone());
    if let Err(error) = enable_raw_mode() {
        give_back();
        return Err(error);
    }
    // Not every terminal has a second screen, which would be empty.
    let mut bytes = Vec::new();
    queue!(bytes, EnterAlternateScreen, Clear(ClearType::All))?;
    writer.put(&bytes);
    Ok(writer)
}

/// Gives the terminal back as it was, if a view has it. It waits a second at most, even if the terminal is
/// not read. What fails here fails because the terminal is gone.
///
/// [`watch`](super::watch) does this at its end. It is for threads that end the process in another way, as
/// after a signal; a handler of signals must not call it.
pub fn give_back() {
    let Some(writer) = TAKEN.lock().take() else { return };
    let _ = disable_raw_mode();
    let mut bytes = Vec::new();
    let _ = queue!(bytes, LeaveAlternateScreen, Show);
    writer.finish(bytes);
}
