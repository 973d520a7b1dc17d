//! Reads fields into messages: which fields are allowed where, and how often.

use super::lexer::{Lexer, Token};
use super::notes::{Fillers, Foreign, Form, LayerNotes, Notes};
use crate::error::{NetCause, NetError, TextPlace, clip};
use crate::forks;

/// The maximum nesting depth of messages: protobuf's own limit for wire bytes.
const DEPTH_MAX: usize = 100;

/// The maximum length of a name, in bytes, for which a similar field name is looked up.
const COMPARED_MAX: usize = 40;

/// A message that text can be read into.
pub(super) trait Message: Default {
    /// Its name in the schema.
    const NAME: &'static str;
    /// Its fields in the schema.
    const FIELDS: &'static [&'static str];
    /// How other fields are handled.
    const OTHERS: Others;
    /// For a layer: its format.
    const LAYER: Option<Form> = None;

    /// For a field that this message does not have: where it belongs, as a hint for an error.
    fn home(name: &str) -> Option<&'static str>;

    /// Reads the value of one of [`FIELDS`](Self::FIELDS), whose name has just been read.
    fn read(&mut self, field: &'static str, text: &mut Reader<'_>) -> Result<(), NetError>;
}

/// How fields that are not in the schema are handled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Others {
    /// They are refused.
    Refused,
    /// Their layer is refused, if it is fed.
    RefusedIfFed,
    /// These are fields that Caffe has in addition, and are skipped. Unknown fields are skipped too, with two
    /// exceptions: a field with a name close to one of the schema is refused (in a layer, only if the layer
    /// is fed), and so is a field of a fed layer that belongs elsewhere.
    Skipped(&'static [&'static str]),
}

/// Parses a text with one token of lookahead.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    lexer: Lexer<'a>,
    pub(super) next: Token<'a>,
    /// The place of [`next`](Self::next).
    pub(super) at: TextPlace,
    /// The place of the field whose value is being read: of its name, or of its element in a list.
    pub(super) field_at: TextPlace,
    /// The number of open messages.
    depth: usize,
    pub(super) notes: Notes,
    /// Whether one of the open messages is a layer: the last layer in the notes.
    in_layer: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Result<Self, NetError> {
        let mut lexer = Lexer::new(text);
        let (next, at) = lexer.token()?;
        Ok(Self { lexer, next, at, field_at: at, depth: 0, notes: Notes::default(), in_layer: false })
    }

    /// Reads the whole text as one message.
    pub(super) fn whole<M: Message>(&mut self) -> Result<M, NetError> {
        let mut message = M::default();
        while self.next != Token::End {
            self.field(&mut message)?;
        }
        Ok(message)
    }

    /// Reads a message in braces or angle brackets.
    pub(super) fn message<M: Message>(&mut self) -> Result<M, NetError> {
        let close = self.open()?;
        if let Some(form) = M::LAYER {
            self.start_layer(form)?;
        }
        let mut message = M::default();
        while self.next != close {
            self.field(&mut message)?;
        }
        self.in_layer &= M::LAYER.is_none();
        self.close()?;
        Ok(message)
    }

    /// Takes the token that opens a message, and returns the one that will close it.
    pub(super) fn open(&mut self) -> Result<Token<'static>, NetError> {
        let close = match self.next {
            Token::Symbol(b'{') => b'}',
            Token::Symbol(b'<') => b'>',
            _ => return Err(self.expected("\"{\"")),
        };
        if self.depth == DEPTH_MAX {
            let fault = format!("messages are nested too deeply: allowed are {DEPTH_MAX} levels");
            return Err(NetError::text(self.at, fault));
        }
        self.depth += 1;
        self.advance()?;
        Ok(Token::Symbol(close))
    }

    /// Takes the token that closes a message.
    pub(super) fn close(&mut self) -> Result<(), NetError> {
        self.depth -= 1;
        self.advance()
    }

    fn start_layer(&mut self, form: Form) -> Result<(), NetError> {
        let layers = &mut self.notes.layers;
        if layers.len() == crate::LAYERS_MAX {
            let cause = NetCause::TooManyLayers { allowed: crate::LAYERS_MAX };
            return Err(NetError::at(self.field_at, cause));
        }
        layers.push((form, LayerNotes { at: Some(self.field_at), ..LayerNotes::default() }));
        self.in_layer = true;
        Ok(())
    }

    /// The notes of the open layer.
    pub(super) fn layer(&mut self) -> Option<&mut LayerNotes> {
        self.notes.layers.last_mut().filter(|_| self.in_layer).map(|(_, layer)| layer)
    }

    /// Reads a field: name, value and separator.
    fn field<M: Message>(&mut self, message: &mut M) -> Result<(), NetError> {
        let (token, at) = (self.next, self.at);
        match token {
            Token::Word(name) => {
                self.advance()?;
                self.named_field(message, name, at)?;
            }
            Token::Symbol(b'[') if matches!(M::OTHERS, Others::Skipped(_)) => self.skip_extension()?,
            _ => return Err(self.expected(&format!("a field of {}", M::NAME))),
        }
        self.separator()
    }

    fn named_field<M: Message>(
        &mut self,
        message: &mut M,
        name: &str,
        at: TextPlace,
    ) -> Result<(), NetError> {
        if let Some(&field) = M::FIELDS.iter().find(|&&field| field == name) {
            self.note_field(M::NAME, field, at);
            self.field_at = at;
            return message.read(field, self);
        }
        if let Some(fork) = forks::find(M::NAME, name) {
            let skipped = self.skip()?;
            let harmless = skipped.is_harmless(fork.harmless);
            if let Some(layer) = self.layer() {
                layer.note_foreign(Foreign { fork, at, harmless });
            }
            return Ok(());
        }
        self.note_filler(name);
        self.other_field::<M>(name, at)?;
        self.skip().map(drop)
    }

    /// Refuses or notes a field that neither the schema nor a fork has.
    fn other_field<M: Message>(&mut self, name: &str, at: TextPlace) -> Result<(), NetError> {
        let nearest = nearest(name, M::FIELDS);
        if let Others::Skipped(others) = M::OTHERS {
            if others.contains(&name) {
                return Ok(());
            }
            if nearest.is_none() && !(self.in_layer && M::home(name).is_some()) {
                return self.note_unknown(name, at);
            }
        }
        let fault = || no_such_field::<M>(name, nearest);
        match M::OTHERS {
            Others::Refused => Err(NetError::text(at, fault())),
            Others::RefusedIfFed | Others::Skipped(_) => self.refuse(at, fault),
        }
    }

    /// Refuses the open layer, if it is fed. Outside layers, refuses the net.
    pub(super) fn refuse(&mut self, at: TextPlace, fault: impl FnOnce() -> String) -> Result<(), NetError> {
        match self.layer() {
            Some(layer) => layer.refuse(at, fault),
            None => return Err(NetError::text(at, fault())),
        }
        Ok(())
    }

    /// Notes the place of a top, if this field is `top`, which only layers have.
    pub(super) fn note_top(&mut self, field: &str) {
        let at = self.field_at;
        if field == "top"
            && let Some(layer) = self.layer()
        {
            layer.note_top(at);
        }
    }

    fn note_field(&mut self, message: &'static str, field: &'static str, at: TextPlace) {
        if let Some(layer) = self.layer()
            && !layer.fields.iter().any(|noted| (noted.0, noted.1) == (message, field))
        {
            layer.fields.push((message, field, at));
        }
    }

    /// Notes an unknown field. Outside layers, only the net itself allows such fields.
    fn note_unknown(&mut self, name: &str, at: TextPlace) -> Result<(), NetError> {
        if let Some(layer) = self.layer() {
            layer.unknown.note(name, at);
        } else if let Some(&field) = SOLVERS_OWN.iter().find(|&&field| field == name) {
            return Err(NetError::at(at, NetCause::Solver { field }));
        } else {
            self.notes.unknown.note(name, at);
        }
        Ok(())
    }

    /// Notes from a field's name whether the layer has a filler.
    pub(super) fn note_filler(&mut self, name: &str) {
        if (name == "filler" || name.ends_with("_filler"))
            && let Some(layer) = self.layer()
        {
            layer.fillers = Fillers::Present;
        }
    }

    /// Takes the comma or semicolon that may follow a field.
    pub(super) fn separator(&mut self) -> Result<(), NetError> {
        if matches!(self.next, Token::Symbol(b';' | b',')) { self.advance() } else { Ok(()) }
    }

    /// Advances to the next token.
    pub(super) fn advance(&mut self) -> Result<(), NetError> {
        (self.next, self.at) = self.lexer.token()?;
        Ok(())
    }

    /// Takes this symbol if it is next, and returns whether it was.
    pub(super) fn take(&mut self, symbol: u8) -> Result<bool, NetError> {
        let there = self.next == Token::Symbol(symbol);
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    /// An error for a token other than the expected one.
    pub(super) fn expected(&self, expected: &str) -> NetError {
        NetError::text(self.at, format!("expected {expected}, found {}", self.next.shown()))
    }
}

/// Fields that a solver has and a net does not.
const SOLVERS_OWN: &[&str] = &["net", "train_net", "test_net", "net_param", "train_net_param", "base_lr"];

fn no_such_field<M: Message>(name: &str, nearest: Option<&str>) -> String {
    let hint = match (nearest, M::home(name)) {
        (Some(nearest), _) => format!("did you mean \"{nearest}\"?"),
        (None, Some(home)) => home.to_owned(),
        (None, None) => format!("it has {}", M::FIELDS.join(", ")),
    };
    format!("message type \"caffe.{}\" has no field named \"{}\"; {hint}", M::NAME, clip(name))
}

/// The field that `name` is probably a misspelling of.
fn nearest(name: &str, fields: &[&'static str]) -> Option<&'static str> {
    if name.len() > COMPARED_MAX {
        return None;
    }
    let near = if name.len() < 8 { 1 } else { 2 };
    // Most names differ too much in length alone.
    let alike = fields.iter().filter(|field| field.len().abs_diff(name.len()) <= near);
    let (distance, field) = alike.map(|&field| (distance(name, field), field)).min()?;
    (distance <= near).then_some(field)
}

/// The number of insertions, deletions, changes and swaps of neighbours that turn one name into the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    let mut before = vec![0; to.len() + 1];
    let mut above: Vec<usize> = (0..=to.len()).collect();
    for y in 0..from.len() {
        let mut row = vec![y + 1];
        for x in 0..to.len() {
            let change = above[x] + usize::from(from[y] != to[x]);
            let mut least = change.min(above[x + 1] + 1).min(row[x] + 1);
            if x > 0 && y > 0 && (from[y], from[y - 1]) == (to[x - 1], to[x]) {
                least = least.min(before[x - 1] + 1);
            }
            row.push(least);
        }
        (before, above) = (above, row);
    }
    above[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_distinguished_from_another_name() {
        let fields = ["data_param", "top", "batch_size"];
        assert_eq!(nearest("dat_param", &fields), Some("data_param"));
        assert_eq!(nearest("bacth_size", &fields), Some("batch_size"));
        assert_eq!(nearest("tops", &fields), Some("top"));
        assert_eq!(nearest("crop_param", &fields), None);
        assert_eq!(nearest("ip", &fields), None);
        assert_eq!(nearest(&"top".repeat(1000), &fields), None);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!((distance("nmae", "name"), distance("ca", "abc")), (1, 3));
    }
}
