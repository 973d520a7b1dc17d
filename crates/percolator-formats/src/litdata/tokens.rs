//! Tokens, which a record has alone.

use super::leaf::numbers;
use crate::{ElementType, Fault, Grammar, Part, Value};

/// The name of the only part.
const TOKENS: &str = "tokens";

/// Finds the tokens of a record.
#[derive(Debug)]
pub(super) struct TokensGrammar {
    pub(super) dtype: ElementType,
}

impl Grammar for TokensGrammar {
    fn description(&self) -> String {
        format!("{TOKENS}: array of {}", self.dtype.numpy())
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(vec![TOKENS.to_owned()])
    }

    fn parts<'a>(&'a self, record: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        Ok(vec![(TOKENS.into(), Value::Array(numbers(self.dtype, record)?))])
    }

    fn part<'a>(&'a self, record: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        if name == TOKENS {
            numbers(self.dtype, record).map(|tokens| Some(Value::Array(tokens)))
        } else {
            Ok(None)
        }
    }
}
