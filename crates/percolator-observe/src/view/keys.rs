//! What keys do.

use std::io;
use std::time::Duration;

use percolator::feed::FeedHandle;
use percolator_files::shown;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

const ESCAPE: u8 = 0x1b;
const CTRL_C: u8 = 3;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
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
    /// Returns what the key of a byte asks for, if anything.
    fn of(byte: u8) -> Option<Key> {
        Some(match byte {
            CTRL_C => Key::Interrupt,
            b'p' | b' ' => Key::Pause,
            b'+' | b'=' => Key::More,
            b'-' => Key::Fewer,
            b'q' => Key::Quit,
            _ => return None,
        })
    }

    /// Does what is asked of the feed; returns what to tell the user. A feed of another program cannot be
    /// controlled.
    pub(super) fn apply(self, handle: Option<&FeedHandle>) -> Option<String> {
        if matches!(self, Key::Quit | Key::Interrupt) {
            return None;
        }
        let Some(handle) = handle else {
            return Some("the feed is in another program: it can only be watched".to_owned());
        };
        let threads = handle.threads();
        match self {
            Key::Pause if handle.is_paused() => {
                handle.resume();
                Some("resumed".to_owned())
            }
            Key::Pause => {
                handle.pause();
                Some("paused: what was read is still delivered".to_owned())
            }
            Key::Fewer if threads <= 1 => Some("one thread has to stay".to_owned()),
            Key::More | Key::Fewer => {
                let wanted = if self == Key::More { threads + 1 } else { threads - 1 };
                Some(match handle.set_threads(wanted) {
                    Ok(threads) if threads == wanted => format!("worker threads from now on: {threads}"),
                    Ok(_) => "the feed has ended: no thread is added".to_owned(),
                    // The budget's lines would fill the screen.
                    Err(error) => shown::with_sources(&error).lines().next().unwrap_or_default().to_owned(),
                })
            }
            Key::Quit | Key::Interrupt => None,
        }
    }
}

/// The terminal's keys, as bytes. Those that are not ASCII's are sequences that begin with Escape.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    within: Within,
}

/// What has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    /// No sequence.
    #[default]
    Nothing,
    /// A sequence whose Escape was the last byte.
    Escape,
    /// One that ends with the next byte.
    Short,
    /// One that ends with a letter, or another byte from `@` on.
    Long,
}

impl Keyboard {
    /// Waits this long for keys; returns what they ask for.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if the terminal is gone.
    pub(super) fn pressed(&mut self, limit: Duration) -> io::Result<Vec<Key>> {
        let stdin = io::stdin();
        let mut wanted = [PollFd::new(&stdin, PollFlags::IN)];
        match rustix::event::poll(&mut wanted, Some(&limit.try_into().map_err(io::Error::other)?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone");
        let found = wanted[0].revents();
        if found.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(gone());
        }
        if !found.contains(PollFlags::IN) {
            return Ok(Vec::new());
        }
        // What does not fit is there at the next call, which does not wait for it.
        let mut bytes = [0; 4096];
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => Err(gone()),
            Ok(count) => Ok(self.take(bytes.get(..count).unwrap_or_default(), count == bytes.len())),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// What these bytes ask for. The last Escape is a key by itself, unless `more` of it may follow.
    fn take(&mut self, bytes: &[u8], more: bool) -> Vec<Key> {
        let mut keys = Vec::new();
        for &byte in bytes {
            self.within = match (self.within, byte) {
                // It is heard within everything: it ends what hangs.
                (_, CTRL_C) => {
                    keys.push(Key::Interrupt);
                    Within::Nothing
                }
                (Within::Escape, ESCAPE) => {
                    keys.push(Key::Quit);
                    Within::Escape
                }
                (Within::Escape, b'[') => Within::Long,
                (Within::Escape, b'O') => Within::Short,
                (Within::Nothing | Within::Short | Within::Long, ESCAPE) => Within::Escape,
                (Within::Nothing, byte) => {
                    keys.extend(Key::of(byte));
                    Within::Nothing
                }
                (Within::Long, ..b'@') => Within::Long,
                // A key with Alt, or a sequence's end.
                (Within::Escape | Within::Short | Within::Long, _) => Within::Nothing,
            };
        }
        if self.within == Within::Escape && !more {
            keys.push(Key::Quit);
            self.within = Within::Nothing;
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let of = |bytes: &[u8]| Keyboard::default().take(bytes, false);
        assert_eq!(of(b"p "), [Key::Pause, Key::Pause]);
        assert_eq!(of(b"+=-"), [Key::More, Key::More, Key::Fewer]);
        assert_eq!(of(b"cq"), [Key::Quit]);
        assert_eq!(of(b"\x1b"), [Key::Quit]);
        assert_eq!(of(b"\x1b\x1b"), [Key::Quit, Key::Quit]);
        assert_eq!(of(b"\x03"), [Key::Interrupt]);
        // Arrows, function keys, a key with Alt, a text in brackets, umlauts.
        assert_eq!(of(b"\x1b[A\x1b[15~\x1bOP\x1bqx\x1b[200~\x1b[201~\xc3\xa4"), []);
        assert_eq!(of(b"\x1b[Aq"), [Key::Quit]);
        assert_eq!(of(b"\x1b[\x03"), [Key::Interrupt]);
        assert_eq!(Key::Pause.apply(None).unwrap(), "the feed is in another program: it can only be watched");
        assert_eq!(Key::Quit.apply(None), None);
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        let bytes = b"p\x1b[1;5A\x1bOP+\x1b[3~q";
        let due = Keyboard::default().take(bytes, false);
        assert_eq!(due, [Key::Pause, Key::More, Key::Quit]);
        for at in 0..bytes.len() {
            let mut keyboard = Keyboard::default();
            let (front, back) = bytes.split_at(at);
            let found = [keyboard.take(front, true), keyboard.take(back, false)].concat();
            assert_eq!(found, due, "cut at {at}");
        }
    }
}
