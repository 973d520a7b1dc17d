//! The failures that decoders report.

use std::error::Error;
use std::fmt;

use crate::batch::fault::RecordCause;
use percolator_files::shown;
use percolator_image::DecodeError;

/// A decoder's result: its output, or what is wrong with the record. `?` converts anything that implements
/// [`std::error::Error`]; [`DecodeFailure::from_error`] converts the rest.
pub type Decoded<T = ()> = Result<T, DecodeFailure>;

/// What is wrong with a record. The feed adds which record it is: its file, its key, its number.
///
/// `?` converts any error to it; [`new`](Self::new) makes it from a message. It is not an [`Error`] itself,
/// but [converts into](Self::into_cause) a [`RecordCause`], which is.
pub struct DecodeFailure(Box<RecordCause>);

impl DecodeFailure {
    /// Converts any error, including those that `?` does not accept: `anyhow::Error`, `Box<dyn Error + Send +
    /// Sync>`.
    pub fn from_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        // Known errors keep their type.
        let error = match error.into().downcast::<RecordCause>() {
            Ok(cause) => return DecodeFailure(cause),
            Err(error) => error,
        };
        let error = match error.downcast() {
            Ok(field) => return DecodeFailure(Box::new(RecordCause::Field(*field))),
            Err(error) => error,
        };
        match error.downcast() {
            Ok(image) => DecodeFailure(Box::new(RecordCause::Decode(*image))),
            Err(error) if is_lack_of_memory(&*error) => {
                DecodeFailure::not_of_record(shown::with_sources(&*error))
            }
            Err(error) => DecodeFailure::new(shown::with_sources(&*error)),
        }
    }

    /// Creates a failure from a message that says what was found and what is allowed.
    pub fn new(message: impl Into<String>) -> Self {
        DecodeFailure(Box::new(RecordCause::Other { message: message.into() }))
    }

    /// Creates a failure that is not the record's: something that the decoder needs is missing. It ends the
    /// feed, even one that goes on after [bad records](crate::BadRecords).
    pub fn not_of_record(message: impl Into<String>) -> Self {
        DecodeFailure(Box::new(RecordCause::NotOfRecord { message: message.into() }))
    }

    /// Returns the cause, which is an error.
    #[must_use]
    pub fn into_cause(self) -> RecordCause {
        *self.0
    }
}

/// Whether an error, or one of its sources, is a lack of memory to decode an image.
fn is_lack_of_memory(error: &(dyn Error + 'static)) -> bool {
    let mut sources = std::iter::successors(Some(error), |error| (*error).source());
    sources.any(|error| matches!(error.downcast_ref(), Some(DecodeError::Memory { .. })))
}

impl<E: Error + Send + Sync + 'static> From<E> for DecodeFailure {
    fn from(error: E) -> Self {
        DecodeFailure::from_error(error)
    }
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

    #[derive(Debug, thiserror::Error)]
    #[error("left eye")]
    struct LeftEye(#[source] DecodeError);

    #[test]
    fn what_is_known_keeps_its_type_and_the_rest_its_words() {
        let cause = |failure: DecodeFailure| failure.into_cause();
        assert_eq!(cause(RecordCause::NoTarget.into()), RecordCause::NoTarget);
        let field = FieldError::NotWritten { field: "pose".to_owned() };
        assert_eq!(cause(field.clone().into()), RecordCause::Field(field));
        let lack = DecodeError::Memory { bytes: 7 };
        assert_eq!(cause(lack.clone().into()), RecordCause::Decode(lack.clone()));
        let message = format!("left eye: {lack}");
        assert_eq!(cause(LeftEye(lack).into()), RecordCause::NotOfRecord { message });
        let number = "x".parse::<i32>().unwrap_err();
        let other = |message: &str| RecordCause::Other { message: message.to_owned() };
        assert_eq!(cause(number.into()), other("invalid digit found in string"));
        assert_eq!(cause(DecodeFailure::new("too short")), other("too short"));
    }
}
