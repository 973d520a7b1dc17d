//! Why a record could not be decoded, as a decoder says it.

use std::error::Error;
use std::fmt;

use crate::batch::fault::RecordCause;

/// What a decoder answers: what it made, or what is wrong with the record. `?` takes whatever implements
/// [`std::error::Error`]; [`DecodeFailure::from_error`] takes the rest.
pub type Decoded<T = ()> = Result<T, DecodeFailure>;

/// What is wrong with a record. The feed adds which record it is: its file, its key, its number.
///
/// `?` makes it of any error, and [`new`](Self::new) of a message. It is no [`Error`] itself; [`RecordCause`], which it
/// [becomes](Self::into_cause), is.
pub struct DecodeFailure(Box<RecordCause>);

impl DecodeFailure {
    /// Makes a failure of any error, also of those that `?` does not take: `anyhow::Error`, `Box<dyn Error + Send + Sync>`.
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        // What is known keeps its type.
        let error = match error.into().downcast::<RecordCause>() {
            Ok(cause) => return DecodeFailure(cause),
            Err(error) => error,
        };
        match error.downcast() {
            Ok(field) => DecodeFailure(Box::new(RecordCause::Field(*field))),
            Err(error) => DecodeFailure::new(with_sources(&*error)),
        }
    }

    /// Makes a failure of a message, if there is no error: what was found, and what is allowed.
    pub fn new(message: impl Into<String>) -> Self {
        DecodeFailure(Box::new(RecordCause::Other { message: message.into() }))
    }

    /// The cause as an error.
    #[must_use]
    pub fn into_cause(self) -> RecordCause {
        *self.0
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for DecodeFailure {
    fn from(error: E) -> Self {
        DecodeFailure::from_error(error)
    }
}

/// An error's message, and those of what it came from, if it does not say them itself.
fn with_sources(error: &(dyn Error + Send + Sync)) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !message.contains(&said) {
            message = format!("{message}: {said}");
        }
        source = error.source();
    }
    message
}

impl fmt::Debug for DecodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DecodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::field::FieldError;

    #[test]
    fn what_is_known_keeps_its_type_and_the_rest_its_words() {
        let cause = |failure: DecodeFailure| failure.into_cause();
        assert_eq!(cause(RecordCause::NoTarget.into()), RecordCause::NoTarget);
        let field = FieldError::NotWritten { field: "pose".to_owned() };
        assert_eq!(cause(field.clone().into()), RecordCause::Field(field));
        let number = "x".parse::<i32>().unwrap_err();
        let other = |message: &str| RecordCause::Other { message: message.to_owned() };
        assert_eq!(cause(number.into()), other("invalid digit found in string"));
        assert_eq!(cause(DecodeFailure::new("too short")), other("too short"));
    }
}
