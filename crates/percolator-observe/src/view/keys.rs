//! What keys do.

use percolator::feed::FeedControl;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Pause the feed, or resume it: `p` or space.
    Pause,
    /// Add a thread: `+`.
    More,
    /// Remove a thread: `-`.
    Fewer,
    /// Leave the view: `q` or Escape.
    Quit,
    /// Ctrl-C, which a terminal in this mode does not make a signal.
    Interrupt,
}

impl Key {
    /// Returns what a key asks for, if anything.
    #[must_use]
    pub fn of(event: &KeyEvent) -> Option<Key> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        Some(match event.code {
            KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
            KeyCode::Char('p' | ' ') => Key::Pause,
            KeyCode::Char('+' | '=') => Key::More,
            KeyCode::Char('-') => Key::Fewer,
            KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
            _ => return None,
        })
    }

    /// Does what is asked of the feed; returns what to tell the user. A feed of another program cannot be
    /// controlled.
    pub(super) fn apply(self, control: Option<&FeedControl>) -> Option<String> {
        if matches!(self, Key::Quit | Key::Interrupt) {
            return None;
        }
        let Some(control) = control else {
            return Some("the feed is in another program: it can only be watched".to_owned());
        };
        let threads = control.threads();
        match self {
            Key::Pause if control.is_paused() => {
                control.resume();
                Some("resumed".to_owned())
            }
            Key::Pause => {
                control.pause();
                Some("paused: what was read is still delivered".to_owned())
            }
            Key::Fewer if threads <= 1 => Some("one thread has to stay".to_owned()),
            Key::More | Key::Fewer => {
                let wanted = if self == Key::More { threads + 1 } else { threads - 1 };
                Some(match control.set_threads(wanted) {
                    Ok(threads) if threads == wanted => format!("worker threads from now on: {threads}"),
                    Ok(_) => "the feed has ended: no thread is added".to_owned(),
                    // The budget's lines would fill the screen.
                    Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
                })
            }
            Key::Quit | Key::Interrupt => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let of = |code, modifiers| Key::of(&KeyEvent::new(code, modifiers));
        let plain = |code| of(code, KeyModifiers::NONE);
        assert_eq!(plain(KeyCode::Char('p')), Some(Key::Pause));
        assert_eq!(of(KeyCode::Char('+'), KeyModifiers::SHIFT), Some(Key::More));
        assert_eq!(plain(KeyCode::Char('-')), Some(Key::Fewer));
        assert_eq!(plain(KeyCode::Char('q')), Some(Key::Quit));
        assert_eq!(plain(KeyCode::Esc), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!(Key::Pause.apply(None).unwrap(), "the feed is in another program: it can only be watched");
        assert_eq!(Key::Quit.apply(None), None);
    }
}
