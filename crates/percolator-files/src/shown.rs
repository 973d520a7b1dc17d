//! Displays foreign text (paths, keys, words from files) in messages: on one line, without terminal control
//! characters, and no longer than is useful.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Display, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The most characters shown of a word.
const WORD_MAX: usize = 200;
/// The most characters shown of a line beside which another one is shown.
const COMPARED_MAX: usize = 80;
/// The most characters shown of a path or a line; longer ones lose their middle.
const PATH_MAX: usize = 1000;
/// The most characters shown of a whole message.
const MESSAGE_MAX: usize = 8000;

/// Displays a path in a message.
#[must_use]
pub fn path(path: &Path) -> impl Display {
    Shown { text: path.to_string_lossy(), characters_max: PATH_MAX }
}

/// Displays a line of a text, as far as it is useful.
pub fn line(line: &str) -> impl Display {
    Shown { text: line.into(), characters_max: PATH_MAX }
}

/// Displays a whole message, whatever its parts.
#[must_use]
pub fn message(message: &str) -> impl Display {
    Shown { text: message.into(), characters_max: MESSAGE_MAX }
}

/// What a panic said.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Displays a number of things: `1 record`, `2 records`.
#[must_use]
pub fn count<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> impl Display {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{plural}")
}

/// Displays a path as a word of a shell, quoted if it must be: whole, and to be read as the same bytes.
#[must_use]
pub fn shell_word(path: &Path) -> impl Display {
    let bytes = path.as_os_str().as_bytes();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@:=".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    match std::str::from_utf8(bytes) {
        Ok(text) if Shown::is_as_is(text) => format!("'{}'", text.replace('\'', "'\\''")),
        // Bash and zsh read the escapes.
        _ => {
            let escaped = bytes.iter().map(|&byte| match byte {
                b'\'' | b'\\' => format!("\\{}", char::from(byte)),
                0x20..=0x7e => char::from(byte).to_string(),
                _ => format!("\\{byte:03o}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

/// Displays a text as a word of a shell, like [`shell_word`].
#[must_use]
pub fn shell_text(text: &str) -> impl Display {
    shell_word(Path::new(text)).to_string()
}

/// The front of a word, to be quoted.
pub fn front(word: &str) -> Cow<'_, str> {
    front_of(word, WORD_MAX)
}

/// The front of a line, to be quoted beside another one, or beside what was expected: a line of a file may
/// list a whole data set.
pub fn shortened(line: &str) -> Cow<'_, str> {
    front_of(line, COMPARED_MAX)
}

fn front_of(text: &str, characters_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}...", &text[..end]).into(),
        None => text.into(),
    }
}

/// Displays bytes that should be text; bytes other than printable ASCII are escaped.
pub fn bytes(bytes: &[u8]) -> impl Display {
    Bytes { bytes, quote: "" }
}

/// Like `bytes`, in quotes.
pub fn quoted(bytes: &[u8]) -> impl Display {
    Bytes { bytes, quote: "\"" }
}

struct Bytes<'a> {
    bytes: &'a [u8],
    quote: &'static str,
}

impl Display for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bytes { bytes, quote } = self;
        let front = &bytes[..bytes.len().min(WORD_MAX)];
        write!(f, "{quote}{}{quote}", front.escape_ascii())?;
        if front.len() < bytes.len() {
            write!(f, "... (of {} bytes)", bytes.len())?;
        }
        Ok(())
    }
}

struct Shown<'a> {
    text: Cow<'a, str>,
    characters_max: usize,
}

impl Shown<'_> {
    /// Whether a text is shown as it is, but for its length.
    fn is_as_is(text: &str) -> bool {
        let shown = Shown { text: text.into(), characters_max: usize::MAX };
        shown.to_string() == text
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let characters = self.text.chars().count();
        if characters <= self.characters_max {
            return write_escaped(f, self.text.chars());
        }
        let half = self.characters_max / 2;
        write_escaped(f, self.text.chars().take(half))?;
        write!(f, "...({} characters more)...", characters - 2 * half)?;
        write_escaped(f, self.text.chars().skip(characters - half))
    }
}

/// Writes text with control characters and bidirectional overrides escaped.
fn write_escaped(f: &mut fmt::Formatter<'_>, mut text: impl Iterator<Item = char>) -> fmt::Result {
    text.try_for_each(|character| match character {
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => write!(f, "{}", character.escape_unicode()),
        control if control.is_control() => write!(f, "{}", control.escape_debug()),
        plain => f.write_char(plain),
    })
}

/// Returns an error's message with those of its causes, of which none says what its own cause says.
#[must_use]
pub fn with_sources(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_moves_the_cursor() {
        let shown = path(Path::new("a\nb\u{1b}[31m\u{9b}\u{202e}ü\\")).to_string();
        assert_eq!(shown, "a\\nb\\u{1b}[31m\\u{9b}\\u{202e}ü\\");
    }

    #[test]
    fn a_word_of_a_shell_is_read_as_the_same_bytes() {
        use std::ffi::OsStr;
        use std::process::Command;

        let long = vec![b'x'; 3000];
        for bytes in [b"plain/a_b.c-d" as &[u8], b"", b"it's", b"a b$c`d\\e", b"\n\x1b[1m", b"\xff'\\", &long]
        {
            let word = shell_word(Path::new(OsStr::from_bytes(bytes))).to_string();
            let printed = Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(printed.stdout, bytes, "{word}");
            assert!(!word.contains(char::is_control), "{word:?}");
        }
    }

    #[test]
    fn what_is_long_is_shortened() {
        let long = format!("begin{}end", "x".repeat(5000));
        let shown = path(Path::new(&long)).to_string();
        assert!(shown.starts_with("begin") && shown.ends_with("end") && shown.len() < 1100, "{shown}");
        assert!(shown.contains("(4008 characters more)"), "{shown}");
        assert_eq!(message(&long).to_string(), long);
        assert_eq!(front("short"), "short");
        assert_eq!(front(&long).len(), WORD_MAX + 3);
        assert_eq!(shortened(&"ü".repeat(COMPARED_MAX)), "ü".repeat(COMPARED_MAX));
        assert_eq!(shortened(&"ü".repeat(COMPARED_MAX + 1)), "ü".repeat(COMPARED_MAX) + "...");
        assert_eq!(quoted(b"a\0\"").to_string(), r#""a\x00\"""#);
        assert!(quoted(&[0; 190_000]).to_string().ends_with("\"... (of 190000 bytes)"));
    }
}
