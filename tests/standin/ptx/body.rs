//! Parses an entry's body into steps, and resolves registers, constants and labels.

use std::collections::HashMap;

use super::flow;
use super::forms::{Class, Element, What, form};
use super::parse::{Entry, Parameter};
use super::steps::{One, Slot, Step};
use super::tokens::{Token, Tokens};
use super::{Parsed, Problem};

/// The special registers of a thread, in the slots from 0 on. Only `mov.u32` reads them.
const THREAD: [&str; 12] = [
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
];

/// An operand as it is written.
#[derive(Clone, Copy, Debug)]
enum Operand<'a> {
    Name(&'a str),
    Number(i64),
    Address { base: &'a str, offset: u32 },
}

/// An entry's body, as far as it was read.
#[derive(Debug)]
pub(super) struct Body<'a> {
    parameters: Vec<Parameter>,
    registers: HashMap<String, (Slot, Class)>,
    constants: HashMap<u64, Slot>,
    slots: Vec<u64>,
    steps: Vec<Step>,
    lines: Vec<u32>,
    labels: HashMap<&'a str, u32>,
    /// Branches, whose labels may come later.
    branches: Vec<(usize, &'a str)>,
}

impl<'a> Body<'a> {
    pub(super) fn new(parameters: Vec<Parameter>) -> Self {
        Body {
            parameters,
            registers: HashMap::new(),
            constants: HashMap::new(),
            slots: vec![0; THREAD.len()],
            steps: Vec::new(),
            lines: Vec::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
        }
    }

    pub(super) fn statement(&mut self, tokens: &mut Tokens<'a>) -> Parsed<()> {
        let (mut word, mut when) = (tokens.next()?, None);
        if word == Token::Mark('@') {
            let name = tokens.word("a predicate")?;
            when = Some(self.register(name, Class::Predicate).map_err(|words| tokens.problem(words))?);
            word = tokens.next()?;
        }
        let Token::Word(word) = word else {
            return Err(tokens.problem(format!("{word} begins no statement")));
        };
        if word == ".reg" && when.is_none() {
            return self.declare(tokens);
        }
        if when.is_none() && tokens.take(':') {
            let place = u32::try_from(self.steps.len()).expect("fewer steps than 2^32");
            return match self.labels.insert(word, place) {
                None => Ok(()),
                Some(_) => Err(tokens.problem(format!("the label {word:?} is there twice"))),
            };
        }
        if word.starts_with('.') {
            return Err(tokens.problem(format!("there is no directive {word:?} here")));
        }
        let line = tokens.line();
        let operands = operands(tokens)?;
        let step = match (word, &*operands) {
            ("bra" | "bra.uni", &[Operand::Name(label)]) => {
                self.branches.push((self.steps.len(), label));
                Ok(Step::Branch { to: 0, when })
            }
            _ if when.is_some() => Err(format!("{word:?} takes no predicate: `bra` alone does")),
            ("ret", []) => Ok(Step::Return),
            _ => self.instruction(word, &operands),
        };
        self.steps.push(step.map_err(|words| Problem { line, words })?);
        self.lines.push(line);
        Ok(())
    }

    /// `.reg .b32 %r<75>;` declares this many registers, from `%r0` on.
    fn declare(&mut self, tokens: &mut Tokens<'a>) -> Parsed<()> {
        let word = tokens.word("a type")?;
        let class = Class::named(word);
        let class = class.ok_or_else(|| tokens.problem(format!("{word:?} is no type of a register")))?;
        let name = tokens.word("a register")?;
        if !name.starts_with('%') || THREAD.contains(&name) {
            return Err(tokens.problem(format!("{name:?} is no register's name")));
        }
        tokens.mark('<')?;
        let count = tokens.number("how many registers")?;
        tokens.mark('>')?;
        tokens.mark(';')?;
        for number in 0..count {
            let slot = self.slot(0).map_err(|words| tokens.problem(words))?;
            if self.registers.insert(format!("{name}{number}"), (slot, class)).is_some() {
                return Err(tokens.problem(format!("the register {name}{number} is there twice")));
            }
        }
        Ok(())
    }

    fn slot(&mut self, value: u64) -> Result<Slot, String> {
        let slot = Slot::try_from(self.slots.len()).map_err(|_| "too many registers".to_owned())?;
        self.slots.push(value);
        Ok(slot)
    }

    /// The step of an instruction that does not jump.
    fn instruction(&mut self, opcode: &str, operands: &[Operand<'_>]) -> Result<Step, String> {
        match (opcode, operands) {
            ("mov.u64", &[Operand::Name(to), Operand::Name("%globaltimer")]) => {
                return Ok(Step::Time { to: self.register(to, Class::B64)? });
            }
            ("mov.u32", &[Operand::Name(to), Operand::Name(from)]) if THREAD.contains(&from) => {
                let index = THREAD.iter().position(|&name| name == from).expect("it is there");
                let from = Slot::try_from(index).expect("12 numbers");
                return Ok(Step::One { what: One::Same, to: self.register(to, Class::B32)?, from });
            }
            _ => {}
        }
        if let Some(step) = self.access(opcode, operands)? {
            return Ok(step);
        }
        let (what, classes) = form(opcode).ok_or_else(|| format!("there is no {opcode:?} here"))?;
        let wrong = || Err(format!("{opcode:?} takes a result and {} operand(s)", classes.len() - 1));
        let [Operand::Name(to), sources @ ..] = operands else { return wrong() };
        if operands.len() != classes.len() {
            return wrong();
        }
        let to = self.register(to, classes[0])?;
        let sources = sources.iter().zip(&classes[1..]).map(|(&source, &class)| self.source(source, class));
        let sources = sources.collect::<Result<Vec<Slot>, String>>()?;
        Ok(match (what, &*sources) {
            (What::One(what), &[from]) => Step::One { what, to, from },
            (What::Two(what), &[a, b]) => Step::Two { what, to, from: [a, b] },
            (What::Three(what), &[a, b, c]) => Step::Three { what, to, from: [a, b, c] },
            _ => return wrong(),
        })
    }

    /// The step of a load or a store; `None` for any other instruction.
    fn access(&self, opcode: &str, operands: &[Operand<'_>]) -> Result<Option<Step>, String> {
        let spaces = ["ld.param.", "ld.global.nc.", "ld.global.", "st.global."];
        let Some((space, element)) =
            spaces.iter().find_map(|space| Some((*space, Element::named(opcode.strip_prefix(space)?)?)))
        else {
            return Ok(None);
        };
        let (name, base, offset) = match (space, operands) {
            ("st.global.", &[Operand::Address { base, offset }, Operand::Name(name)]) => (name, base, offset),
            ("st.global.", _) => return Err(format!("{opcode:?} takes an address and a register")),
            (_, &[Operand::Name(name), Operand::Address { base, offset }]) => (name, base, offset),
            _ => return Err(format!("{opcode:?} takes a register and an address")),
        };
        let (register, class) = self.any_register(name)?;
        if !class.holds(element) {
            return Err(format!("{opcode:?} and {name:?}, which is of another type"));
        }
        let bytes = element.bytes;
        if space == "ld.param." {
            return self.parameter(register, base, offset, bytes).map(Some);
        }
        let base = self.register(base, Class::B64)?;
        Ok(Some(match space {
            "st.global." => Step::Store { from: register, base, offset, bytes },
            _ => Step::Load { to: register, base, offset, bytes },
        }))
    }

    fn parameter(&self, to: Slot, name: &str, offset: u32, bytes: u8) -> Result<Step, String> {
        let parameter = self.parameters.iter().find(|parameter| parameter.name == name);
        let parameter = parameter.ok_or_else(|| format!("there is no parameter {name:?}"))?;
        let at = parameter.at + offset as usize;
        if offset as usize + usize::from(bytes) > parameter.bytes || !at.is_multiple_of(usize::from(bytes)) {
            return Err(format!("{bytes} bytes at {offset} of {name:?}, which has {}", parameter.bytes));
        }
        Ok(Step::Parameter {
            to,
            at: u32::try_from(at).map_err(|_| "too many parameters".to_owned())?,
            bytes,
        })
    }

    fn any_register(&self, name: &str) -> Result<(Slot, Class), String> {
        self.registers.get(name).copied().ok_or_else(|| format!("there is no register {name:?}"))
    }

    fn register(&self, name: &str, class: Class) -> Result<Slot, String> {
        match self.any_register(name)? {
            (slot, found) if found == class => Ok(slot),
            (_, found) => Err(format!("{name:?} is of the type {found:?}, and {class:?} is wanted")),
        }
    }

    /// A register, or a constant.
    fn source(&mut self, operand: Operand<'_>, class: Class) -> Result<Slot, String> {
        let number = match operand {
            Operand::Name(name) => return self.register(name, class),
            Operand::Number(number) => number,
            Operand::Address { .. } => return Err("an address where a value should stand".to_owned()),
        };
        let value = match class.constant_bits() {
            // The same bits, signed or unsigned.
            Some(32) => i32::try_from(number).map(i32::cast_unsigned).or_else(|_| u32::try_from(number)).ok(),
            Some(_) => return self.constant(number.cast_unsigned()),
            None => None,
        };
        self.constant(u64::from(value.ok_or_else(|| format!("{number} is no constant of {class:?}"))?))
    }

    fn constant(&mut self, value: u64) -> Result<Slot, String> {
        if let Some(&slot) = self.constants.get(&value) {
            return Ok(slot);
        }
        let slot = self.slot(value)?;
        self.constants.insert(value, slot);
        Ok(slot)
    }

    pub(super) fn finish(mut self, name: String) -> Parsed<Entry> {
        for (index, label) in std::mem::take(&mut self.branches) {
            let found = self.labels.get(label).copied();
            let problem =
                || Problem { line: self.lines[index], words: format!("there is no label {label:?}") };
            let place = found.ok_or_else(problem)?;
            if let Step::Branch { to, .. } = &mut self.steps[index] {
                *to = place;
            }
        }
        // A thread that reaches the end returns.
        self.steps.push(Step::Return);
        self.lines.push(self.lines.last().copied().unwrap_or(1));
        flow::note_uses(&self.steps, self.slots.len(), &mut self.parameters);
        let Body { parameters, slots, steps, lines, .. } = self;
        Ok(Entry { name, parameters, slots, steps, lines })
    }
}

/// The operands between an opcode and its semicolon.
fn operands<'a>(tokens: &mut Tokens<'a>) -> Parsed<Vec<Operand<'a>>> {
    let mut list = Vec::new();
    while !tokens.take(';') {
        if !list.is_empty() {
            tokens.mark(',')?;
        }
        list.push(operand(tokens)?);
    }
    Ok(list)
}

fn operand<'a>(tokens: &mut Tokens<'a>) -> Parsed<Operand<'a>> {
    if tokens.take('[') {
        let base = tokens.word("a register or a parameter")?;
        let offset = if tokens.take('+') { tokens.number("an offset")? } else { 0 };
        tokens.mark(']')?;
        return Ok(Operand::Address { base, offset });
    }
    let is_negative = tokens.take('-');
    let word = tokens.word("an operand")?;
    if !is_negative && !word.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Operand::Name(word));
    }
    let number = word.parse::<i64>().map_err(|_| tokens.problem(format!("{word:?} is no number")))?;
    Ok(Operand::Number(if is_negative { -number } else { number }))
}
