//! The system's error as the cause of errors that are cloned and compared.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::Arc;

/// An [`io::Error`] as the cause of an error that is cloned and compared, which the system's own cannot be.
///
/// It is not an error itself, so the `source()` of an error that keeps one as its `#[source]` is the
/// [`io::Error`] in it. Two are equal if they are of one kind and say the same.
#[derive(Clone, Debug)]
pub struct IoCause(Arc<io::Error>);

impl From<io::Error> for IoCause {
    fn from(error: io::Error) -> Self {
        IoCause(Arc::new(error))
    }
}

impl Deref for IoCause {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl fmt::Display for IoCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq for IoCause {
    fn eq(&self, other: &Self) -> bool {
        self.0.kind() == other.0.kind() && self.0.to_string() == other.0.to_string()
    }
}

impl Eq for IoCause {}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::shown;

    #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
    #[error("cannot read the list")]
    struct Unread {
        source: IoCause,
    }

    #[test]
    fn what_keeps_it_is_cloned_and_compared_and_leads_to_the_systems_error() {
        let of = |code: i32| Unread { source: io::Error::from_raw_os_error(code).into() };
        let error = of(libc::ENOENT);
        assert_eq!(error.clone(), of(libc::ENOENT));
        assert_ne!(error, of(libc::EACCES));
        let cause: &io::Error = error.source().unwrap().downcast_ref().unwrap();
        assert_eq!(cause.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(shown::with_sources(&error), format!("cannot read the list: {}", error.source));
    }
}
