//! Records whose bytes have no parts that a format knows.

use std::borrow::Cow;

use crate::{Fault, Grammar, Part, Value};

/// A record as it is: the part `record`.
#[derive(Debug)]
pub(crate) struct RawGrammar;

const RECORD: &str = "record";

impl Grammar for RawGrammar {
    fn description(&self) -> String {
        format!("{RECORD}: bytes")
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec![RECORD.to_owned()])
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        Ok(vec![(Cow::Borrowed(RECORD), Value::Bytes(Cow::Borrowed(value)))])
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        Ok((name == RECORD).then_some(Value::Bytes(Cow::Borrowed(value))))
    }
}
