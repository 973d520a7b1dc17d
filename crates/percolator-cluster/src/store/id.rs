//! Under which name a training's checkpoints are kept.

use std::fmt;

/// The most bytes of an id.
pub const ID_BYTES_MAX: usize = 200;

/// The name under which the checkpoints of one process are kept: a parameter server's shard, a trainer. It is
/// part of keys, and of paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(String);

/// An id that would be no single name in a folder, or would hide there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the id {id:?} {fault}: an id has 1 to {ID_BYTES_MAX} bytes, none of them '/' or zero, and does not \
     begin with a dot"
)]
pub struct IdError {
    /// The id, or the front of it.
    id: String,
    /// What is wrong with it.
    fault: &'static str,
}

impl Id {
    /// Checks an id.
    ///
    /// # Errors
    ///
    /// [`IdError`] if it is empty, is longer than [`ID_BYTES_MAX`], has a `/` or a zero byte, or begins with
    /// a dot.
    pub fn new(id: impl Into<String>) -> Result<Self, IdError> {
        let id = id.into();
        let fault = match () {
            () if id.is_empty() => "is empty",
            () if id.len() > ID_BYTES_MAX => "is too long",
            () if id.contains('/') => "has a '/'",
            () if id.contains('\0') => "has a zero byte",
            () if id.starts_with('.') => "begins with a dot",
            () => return Ok(Id(id)),
        };
        const SHOWN_MAX: usize = 60;
        Err(IdError { id: id.chars().take(SHOWN_MAX).collect(), fault })
    }

    /// Returns its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    /// In quotes and escaped, for messages: [`as_str`](Self::as_str) is for keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_name_in_a_folder() {
        for id in ["a", "shard 3", "über", "a.b", "-", "a\nb", &"n".repeat(ID_BYTES_MAX)] {
            assert_eq!(Id::new(id).unwrap().as_str(), id);
        }
        for (id, due) in [
            ("", "is empty"),
            ("a/b", "has a '/'"),
            ("/", "has a '/'"),
            ("a\0", "has a zero byte"),
            (".", "begins with a dot"),
            ("..", "begins with a dot"),
            (".hidden", "begins with a dot"),
            (&*"n".repeat(ID_BYTES_MAX + 1), "is too long"),
        ] {
            let message = Id::new(id).unwrap_err().to_string();
            assert!(message.contains(due) && message.contains("1 to 200 bytes"), "{message}");
            assert!(message.len() < 250 && !message.contains('\0'), "{message}");
        }
        assert_eq!(Id::new("a\nb").unwrap().to_string(), r#""a\nb""#);
    }
}
