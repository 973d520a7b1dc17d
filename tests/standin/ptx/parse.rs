//! Parses words into entries and their parameters.

use super::Parsed;
use super::body::Body;
use super::steps::Step;
use super::tokens::Tokens;

/// A set of parameters has one bit for each.
const PARAMETERS_MAX: usize = 64;

/// A kernel.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// The initial values of the slots: the constants, and 0.
    pub(super) slots: Vec<u64>,
    pub(super) steps: Vec<Step>,
    /// The line of each step.
    pub(super) lines: Vec<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(super) name: String,
    /// Its offset in the block of all parameters.
    pub(super) at: usize,
    pub(crate) bytes: usize,
    /// Whether its value may lead to memory that is read, or written.
    pub(crate) is_read: bool,
    pub(crate) is_written: bool,
}

/// Parses a module's text completely, or fails.
pub(crate) fn parse(text: &str) -> Parsed<Vec<Entry>> {
    let mut tokens = Tokens::of(text)?;
    tokens.keyword(".version")?;
    let version = tokens.word("a version")?;
    if !version.split('.').all(|part| part.parse::<u32>().is_ok()) {
        return Err(tokens.problem(format!("{version:?} is no version")));
    }
    tokens.keyword(".target")?;
    let target = tokens.word("a target")?;
    if target.strip_prefix("sm_").is_none_or(|number| number.parse::<u32>().is_err()) {
        return Err(tokens.problem(format!("{target:?} is no target")));
    }
    tokens.keyword(".address_size")?;
    tokens.keyword("64")?;
    let mut entries = Vec::new();
    while !tokens.is_at_end() {
        entries.push(entry(&mut tokens)?);
    }
    Ok(entries)
}

fn entry(tokens: &mut Tokens<'_>) -> Parsed<Entry> {
    tokens.keyword(".visible")?;
    tokens.keyword(".entry")?;
    let name = tokens.word("the name of an entry")?.to_owned();
    let parameters = parameters(tokens)?;
    tokens.mark('{')?;
    let mut body = Body::new(parameters);
    while !tokens.take('}') {
        body.statement(tokens)?;
    }
    body.finish(name)
}

fn parameters(tokens: &mut Tokens<'_>) -> Parsed<Vec<Parameter>> {
    tokens.mark('(')?;
    let (mut list, mut end) = (Vec::<Parameter>::new(), 0_usize);
    while !tokens.take(')') {
        if !list.is_empty() {
            tokens.mark(',')?;
        }
        tokens.keyword(".param")?;
        let (alignment, is_array) = match tokens.word("a type")? {
            ".u64" => (8, false),
            ".align" => (tokens.number("an alignment")? as usize, true),
            other => return Err(tokens.problem(format!("{other:?} is no type of a parameter"))),
        };
        if !alignment.is_power_of_two() {
            return Err(tokens.problem(format!("{alignment} is no alignment")));
        }
        if is_array {
            tokens.keyword(".b8")?;
        }
        let name = tokens.word("a parameter's name")?.to_owned();
        let mut bytes = 8;
        if is_array {
            tokens.mark('[')?;
            bytes = tokens.number("a size")? as usize;
            tokens.mark(']')?;
        }
        let at = end.next_multiple_of(alignment);
        end = at + bytes;
        if list.len() == PARAMETERS_MAX || list.iter().any(|other| other.name == name) {
            return Err(tokens.problem(format!("{name:?} is one parameter too many")));
        }
        list.push(Parameter { name, at, bytes, is_read: false, is_written: false });
    }
    Ok(list)
}
