//! Records whose bytes have no parts that a format knows.

use std::borrow::Cow;

use crate::{Fault, Grammar, Part, Value};

/// A record as it is: the part `record`.
#[derive(Debug)]
pub(crate) struct RawGrammar {
    /// Whether what is UTF-8 is text.
    pub(crate) tells_text: bool,
}

const RECORD: &str = "record";

impl RawGrammar {
    fn value<'a>(&self, record: &'a [u8]) -> Value<'a> {
        match std::str::from_utf8(record) {
            Ok(text) if self.tells_text => Value::Text(Cow::Borrowed(text)),
            _ => Value::Bytes(Cow::Borrowed(record)),
        }
    }
}

impl Grammar for RawGrammar {
    fn description(&self) -> String {
        format!("{RECORD}: bytes")
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec![RECORD.to_owned()])
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        Ok(vec![(Cow::Borrowed(RECORD), self.value(value))])
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        Ok((name == RECORD).then(|| self.value(value)))
    }
}
