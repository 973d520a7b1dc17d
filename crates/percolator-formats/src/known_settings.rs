//! Settings that a format has of its own.

use std::path::Path;

use crate::{FormatError, Options};

/// The settings of one format, of which every one is known.
#[derive(Debug)]
pub(crate) struct KnownSettings<'a> {
    path: &'a Path,
    options: &'a Options,
}

impl<'a> KnownSettings<'a> {
    /// Refuses settings that the format does not have, or that are given twice.
    ///
    /// # Errors
    ///
    /// [`FormatError::Refused`], which names the setting and those that there are.
    pub(crate) fn of(
        path: &'a Path,
        format: &str,
        options: &'a Options,
        known: &[&str],
    ) -> Result<Self, FormatError> {
        for (index, (name, _)) in options.settings.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let there_are = if known.is_empty() {
                    "it has none".to_owned()
                } else {
                    format!("it has {}", known.join(", "))
                };
                let what = format!("the format {format} has no setting {name:?}; {there_are}");
                return Err(FormatError::refused(path, what));
            }
            if options.settings.iter().take(index).any(|(before, _)| before == name) {
                return Err(FormatError::refused(path, format!("the setting {name:?} is given twice")));
            }
        }
        Ok(KnownSettings { path, options })
    }

    /// A setting as it is given.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
        self.options.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A setting that is `true` or `false`.
    ///
    /// # Errors
    ///
    /// [`FormatError::Refused`] if it is neither.
    pub(crate) fn truth(&self, name: &str) -> Result<Option<bool>, FormatError> {
        match self.get(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(self.refuse(name, other, "true or false")),
        }
    }

    /// Refuses a setting's value.
    pub(crate) fn refuse(&self, name: &str, value: &str, expected: &str) -> FormatError {
        let what = format!("the setting {name} is {value:?}, but must be {expected}");
        FormatError::refused(self.path, what)
    }
}
