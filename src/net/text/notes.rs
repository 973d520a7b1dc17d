//! What a text says of its layers beyond the messages that it is read into.

use crate::net::error::{NetCause, NetError, TextPlace, clip};
use crate::net::forks::Fork;
use crate::net::warning::{Passed, WarningKind};

/// Which of the two fields of a net a layer stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum Form {
    /// `layers`, which holds V0 layers too.
    V1,
    /// `layer`.
    V2,
}

/// A field of a fork, as it was found.
#[derive(Clone, Copy, Debug)]
pub(in crate::net) struct Foreign {
    /// Which one.
    pub(in crate::net) fork: &'static Fork,
    /// Where it stands.
    pub(in crate::net) at: TextPlace,
    /// Whether it changes nothing in the arrays.
    pub(in crate::net) harmless: bool,
}

/// The most names of unknown fields that are kept.
const NAMES_MAX: usize = 32;

/// Fields of nobody, each once.
#[derive(Clone, Debug, Default)]
pub(in crate::net) struct Unknown {
    names: Vec<(String, TextPlace)>,
    /// Fields beyond [`NAMES_MAX`].
    more: usize,
}

impl Unknown {
    /// Notes a field.
    pub(in crate::net) fn note(&mut self, name: &str, at: TextPlace) {
        let name = clip(name);
        if self.names.iter().any(|(noted, _)| *noted == name) {
            return;
        }
        if self.names.len() < NAMES_MAX {
            self.names.push((name, at));
        } else {
            self.more += 1;
        }
    }

    /// What is to be said of them.
    pub(in crate::net) fn warnings(&self) -> impl Iterator<Item = Passed> {
        let known = self.names.iter().map(|(field, at)| {
            let kind = WarningKind::Unknown { field: field.clone() };
            (Some(*at), kind)
        });
        known.chain((self.more > 0).then_some((None, WarningKind::MoreUnknown { count: self.more })))
    }
}

/// Whether a layer's parameters have fillers, which may draw random numbers at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in crate::net) enum Fillers {
    /// The text has none.
    #[default]
    Absent,
    /// The text has one.
    Present,
    /// Wire bytes are not looked through for them.
    Unknown,
}

/// What is noted of one layer.
#[derive(Clone, Debug, Default)]
pub(in crate::net) struct LayerNotes {
    /// Where the layer's field name stands, or its brace in a list; `None` for wire bytes.
    pub(in crate::net) at: Option<TextPlace>,
    /// Where each field of the schema first stands, by message and field. As many as the schema has, at most.
    pub(in crate::net) fields: Vec<(&'static str, &'static str, TextPlace)>,
    /// Fields of forks: of each the first that is harmless, and the first that is not.
    pub(in crate::net) foreign: Vec<Foreign>,
    /// Fields of nobody.
    pub(in crate::net) unknown: Unknown,
    /// Whether there are fillers at any depth.
    pub(in crate::net) fillers: Fillers,
    /// A type of V1 or V0 that the schema does not have.
    pub(in crate::net) kind: Option<String>,
    /// What Caffe refuses the layer for. Whether anybody asks for it is not known while it is read.
    pub(in crate::net) refused: Option<(TextPlace, Box<NetCause>)>,
    /// Where the first tops stand, in their order.
    pub(in crate::net) tops: Vec<TextPlace>,
}

/// The most tops whose places are kept: a place takes as much as some tops take of the text.
const TOPS_MAX: usize = 64;

impl LayerNotes {
    /// Notes a field of a fork.
    pub(in crate::net) fn note_foreign(&mut self, found: Foreign) {
        let same = |noted: &Foreign| std::ptr::eq(noted.fork, found.fork) && noted.harmless == found.harmless;
        if !self.foreign.iter().any(same) {
            self.foreign.push(found);
        }
    }

    /// Notes what the layer is refused for, if it is the first such thing.
    pub(in crate::net) fn refuse(&mut self, at: TextPlace, cause: impl FnOnce() -> NetCause) {
        if self.refused.is_none() {
            self.refused = Some((at, Box::new(cause())));
        }
    }

    /// What the layer must be refused for, if it is fed.
    pub(in crate::net) fn refusal(&self) -> Option<NetError> {
        self.refused.as_ref().map(|(at, cause)| NetError::at(*at, NetCause::clone(cause)))
    }

    /// Notes where the next top stands.
    pub(in crate::net) fn note_top(&mut self, at: TextPlace) {
        if self.tops.len() < TOPS_MAX {
            self.tops.push(at);
        }
    }

    /// Where a top stands, or else the layer.
    pub(in crate::net) fn top(&self, index: usize) -> Option<TextPlace> {
        self.tops.get(index).copied().or(self.at)
    }

    /// Whether the text has this field of this message.
    pub(in crate::net) fn has(&self, wanted: (&str, &str)) -> bool {
        self.fields.iter().any(|&(message, field, _)| (message, field) == wanted)
    }

    /// Where the first of these fields (message, field) that is set stands, or else the layer.
    pub(in crate::net) fn place(&self, wanted: &[(&str, &str)]) -> Option<TextPlace> {
        let found = wanted
            .iter()
            .find_map(|wanted| self.fields.iter().find(|(message, field, _)| (*message, *field) == *wanted));
        found.map(|&(_, _, at)| at).or(self.at)
    }
}

/// What is noted of a net.
#[derive(Debug, Default)]
pub(in crate::net) struct Notes {
    /// The layers of either form, in the order of the text.
    pub(in crate::net) layers: Vec<(Form, LayerNotes)>,
    /// Top-level fields of nobody.
    pub(in crate::net) unknown: Unknown,
}
