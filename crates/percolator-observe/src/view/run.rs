//! The loop of the view, and the terminal that it uses: whatever happens, the terminal is restored.

use std::io::{self, IsTerminal as _, Write};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::terminal;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::keys::{Key, Keyboard};
use super::writer::{self, Writer};
use super::{History, Subject, draw};

/// How often the feed is read; keys and signals are checked at least as often.
const LOOK: Duration = Duration::from_millis(100);
/// The most that is drawn on, from the upper left: a picture takes memory for each place of the screen, and a
/// terminal may say any size.
const SCREEN_MAX: Rect = Rect::new(0, 0, 400, 200);
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

/// Draws a feed on the terminal's second screen until the user leaves, or `is_over`, which is called some ten
/// times a second, even while the terminal is not read. The terminal is then as it was, also after a panic.
/// [Check](check_terminal) first that there is one. A program that is ended by a signal calls
/// [`give_back`](super::give_back) before.
///
/// # Errors
///
/// [`io::Error`] if the terminal is gone, or there can be no thread that writes to it.
pub fn watch(subject: &mut dyn Subject, is_over: impl Fn() -> bool) -> io::Result<Left> {
    let mut screen = Screen::enter()?;
    let mut keyboard = Keyboard::default();
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
        // Keys that are held down, or a text that is pasted, must not keep the picture from being drawn.
        while let Some(left) = next.checked_duration_since(Instant::now()) {
            let mut is_changed = false;
            for key in keyboard.pressed(left)? {
                match key {
                    Key::Quit => return Ok(Left::Quit),
                    Key::Interrupt => return Ok(Left::Interrupted),
                    key => note = key.apply(subject.handle()).map(|said| (said, Instant::now())),
                }
                is_changed = true;
            }
            if is_changed {
                break;
            }
        }
    }
}

type Hook = dyn Fn(&PanicHookInfo<'_>) + Send + Sync;

/// A picture, which goes to the terminal as a whole.
struct Output {
    picture: Vec<u8>,
    writer: Arc<Writer>,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.picture.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.put(&std::mem::take(&mut self.picture));
        Ok(())
    }
}

/// The terminal's second screen. Dropping this gives the terminal back.
struct Screen {
    terminal: Terminal<CrosstermBackend<Output>>,
    area: Rect,
    writer: Arc<Writer>,
    /// Whether other output was written to the screen.
    is_spoilt: Arc<AtomicBool>,
    /// What was done with panics before.
    hook: Arc<Hook>,
}

impl Screen {
    fn enter() -> io::Result<Self> {
        let (area, writer) = (screen()?, writer::take_terminal()?);
        let hook: Arc<Hook> = panic::take_hook().into();
        let is_spoilt = Arc::new(AtomicBool::new(false));
        let (before, spoilt, drawing) = (hook.clone(), is_spoilt.clone(), thread::current().id());
        panic::set_hook(Box::new(move |info| {
            // The message is to be read. A panic of another thread, which the feed may catch, leaves the
            // picture where it is.
            if thread::current().id() == drawing {
                writer::give_back();
            }
            before(info);
            spoilt.store(true, Ordering::Relaxed);
        }));
        let output = Output { picture: Vec::new(), writer: writer.clone() };
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        match Terminal::with_options(CrosstermBackend::new(output), options) {
            Ok(terminal) => Ok(Screen { terminal, area, writer, is_spoilt, hook }),
            Err(error) => {
                writer::give_back();
                panic::set_hook(Box::new(move |info| hook(info)));
                Err(error)
            }
        }
    }

    /// Draws, unless the terminal has not yet received the last picture, because it is slow or not read.
    fn draw(&mut self, subject: &dyn Subject, history: &History, note: Option<&str>) -> io::Result<()> {
        if !self.writer.is_free()? {
            return Ok(());
        }
        let area = screen()?;
        if self.is_spoilt.swap(false, Ordering::Relaxed) || area != self.area {
            // It clears the screen as well, and unlike `Terminal::clear` it asks the terminal nothing, whose
            // answer would come among the keys.
            self.terminal.resize(area)?;
            self.area = area;
        }
        let can_control = subject.handle().is_some();
        self.terminal.draw(|frame| draw(frame, subject.name(), history, can_control, note)).map(drop)
    }
}

/// The part of the terminal's screen that is drawn on.
fn screen() -> io::Result<Rect> {
    let (columns, rows) = terminal::size()?;
    Ok(Rect::new(0, 0, columns, rows).intersection(SCREEN_MAX))
}

impl Drop for Screen {
    fn drop(&mut self) {
        writer::give_back();
        // While this thread panics, hooks cannot be changed; the one that is there does no harm.
        if !thread::panicking() {
            let hook = self.hook.clone();
            panic::set_hook(Box::new(move |info| hook(info)));
        }
    }
}
