//! The loop of the view, and the terminal that it borrows: whatever happens, it is given back as it was.

use std::io::{self, IsTerminal as _, Stdout, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{History, Key, Subject, draw};

/// How often the feed is looked at, and keys and signals at the least.
const LOOK: Duration = Duration::from_millis(100);
/// How long a message stays.
const NOTE: Duration = Duration::from_secs(5);

/// Why the view was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The user asked for it.
    Quit,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// It was asked to end.
    Over,
}

/// There is no terminal to draw in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the live view needs a terminal, but {stream} is not one: leave the view out, or watch the feed from a \
     terminal by its metrics (percolator watch URL)"
)]
pub struct NoTerminal {
    stream: &'static str,
}

/// Checks that there is a terminal to draw in, and to read keys from.
///
/// # Errors
///
/// [`NoTerminal`] if the standard output or input is something else.
pub fn check_terminal() -> Result<(), NoTerminal> {
    match (io::stdout().is_terminal(), io::stdin().is_terminal()) {
        (true, true) => Ok(()),
        (false, _) => Err(NoTerminal { stream: "the standard output" }),
        (true, false) => Err(NoTerminal { stream: "the standard input" }),
    }
}

/// Draws a feed on the terminal's second screen until the user leaves, or `is_over`, which is asked some ten
/// times a second. The terminal is then as it was, also after a panic. [Check](check_terminal) first that
/// there is one.
///
/// # Errors
///
/// [`io::Error`] if the terminal is gone.
pub fn watch(subject: &mut dyn Subject, is_over: impl Fn() -> bool) -> io::Result<Left> {
    let mut screen = Screen::enter()?;
    let (mut history, mut note): (_, Option<(String, Instant)>) = (History::new(), None);
    loop {
        if is_over() {
            return Ok(Left::Over);
        }
        match subject.numbers() {
            Ok(numbers) => history.push(numbers),
            Err(error) => {
                history.miss();
                note = Some((error, Instant::now()));
            }
        }
        let said = note.as_ref().filter(|(_, since)| since.elapsed() < NOTE).map(|(said, _)| &**said);
        screen.draw(subject, &history, said)?;
        let next = Instant::now() + LOOK;
        // A key that is held down must not keep the picture from being drawn.
        while has_event(next.saturating_duration_since(Instant::now()))? {
            let Event::Key(pressed) = event::read()? else { break };
            match Key::of(&pressed) {
                Some(Key::Quit) => return Ok(Left::Quit),
                Some(Key::Interrupt) => return Ok(Left::Interrupted),
                Some(key) => {
                    note = key.apply(subject.control()).map(|said| (said, Instant::now()));
                    break;
                }
                None => {}
            }
        }
    }
}

/// Waits this long for a key, or a change of the terminal's size.
///
/// # Errors
///
/// [`io::Error`] if the terminal is gone: crossterm would wait for ever for what it cannot read.
fn has_event(limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
    match rustix::event::poll(&mut wanted, Some(&limit.try_into().map_err(io::Error::other)?)) {
        // A signal: of another size, perhaps.
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    if wanted[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone"));
    }
    event::poll(Duration::ZERO)
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// The standard output, until the terminal is given back. Then it takes all and writes nothing: a
/// [`Terminal`] that is dropped shows the cursor, and if it cannot, panics where the standard error is gone
/// as well.
struct Output {
    stdout: Stdout,
    is_over: Arc<AtomicBool>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_over.load(Ordering::Relaxed) { Ok(bytes.len()) } else { self.stdout.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_over.load(Ordering::Relaxed) { Ok(()) } else { self.stdout.flush() }
    }
}

/// The terminal's second screen. Dropping this gives the terminal back.
struct Screen {
    terminal: Terminal<CrosstermBackend<Output>>,
    /// Whether the terminal was given back.
    is_over: Arc<AtomicBool>,
    /// Whether somebody else has written to the screen.
    is_spoilt: Arc<AtomicBool>,
    /// What was done with panics before.
    hook: Arc<Hook>,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let hook: Arc<Hook> = panic::take_hook().into();
        let is_over = Arc::new(AtomicBool::new(false));
        let is_spoilt = Arc::new(AtomicBool::new(false));
        let (before, spoilt, drawing) = (hook.clone(), is_spoilt.clone(), thread::current().id());
        panic::set_hook(Box::new(move |info| {
            // The message is to be read. A panic of another thread, which the feed may catch, leaves the
            // picture where it is.
            if thread::current().id() == drawing {
                give_back();
            }
            before(info);
            spoilt.store(true, Ordering::Relaxed);
        }));
        let terminal = enable_raw_mode()
            // Not every terminal has a second screen, which would be empty.
            .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All)))
            .and_then(|()| {
                let output = Output { stdout: io::stdout(), is_over: is_over.clone() };
                Terminal::new(CrosstermBackend::new(output))
            });
        match terminal {
            Ok(terminal) => Ok(Screen { terminal, is_over, is_spoilt, hook }),
            Err(error) => {
                give_back();
                panic::set_hook(Box::new(move |info| hook(info)));
                Err(error)
            }
        }
    }

    fn draw(&mut self, subject: &dyn Subject, history: &History, note: Option<&str>) -> io::Result<()> {
        if self.is_spoilt.swap(false, Ordering::Relaxed) {
            self.terminal.clear()?;
        }
        let can_control = subject.control().is_some();
        self.terminal.draw(|frame| draw(frame, subject.name(), history, can_control, note)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        self.is_over.store(true, Ordering::Relaxed);
        // While this thread panics, hooks cannot be changed; the one that is there does no harm.
        if !thread::panicking() {
            let hook = self.hook.clone();
            panic::set_hook(Box::new(move |info| hook(info)));
        }
    }
}

/// Gives the terminal back as it was. What fails here fails because it is gone.
fn give_back() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}
