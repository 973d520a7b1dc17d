//! What is noted about a net's layers beyond the messages that the text is read into.

use crate::error::{NetError, TextPlace, clip};
use crate::forks::Fork;
use crate::warning::{Ignored, WarningKind};

/// Which of a net's two fields a layer is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `layers`, which holds V0 layers too.
    V1,
    /// `layer`.
    V2,
}

/// A fork's field that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foreign {
    /// The field.
    pub(crate) fork: &'static Fork,
    /// Its place.
    pub(crate) at: TextPlace,
    /// Whether its value does not affect the arrays.
    pub(crate) harmless: bool,
}

/// The maximum number of unknown field names that are kept.
const NAMES_MAX: usize = 32;

/// The unknown fields, each name once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unknown {
    names: Vec<(String, TextPlace)>,
    /// The number of fields beyond [`NAMES_MAX`].
    more: usize,
}

impl Unknown {
    /// Notes a field.
    pub(crate) fn note(&mut self, name: &str, at: TextPlace) {
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

    /// The warnings about them.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = Ignored> {
        let known = self.names.iter().map(|(field, at)| {
            let kind = WarningKind::Unknown { field: field.clone() };
            (Some(*at), kind)
        });
        known.chain((self.more > 0).then_some((None, WarningKind::MoreUnknown { count: self.more })))
    }
}

/// Whether a layer's parameters have fillers, which may draw random numbers at set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Fillers {
    /// The text has none.
    #[default]
    Absent,
    /// The text has one.
    Present,
    /// Unknown: wire bytes are not searched for fillers.
    Unknown,
}

/// What is noted about one layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerNotes {
    /// The place of the layer's field name, or of its brace in a list; `None` for wire bytes.
    pub(crate) at: Option<TextPlace>,
    /// The first place of each schema field, by message and field. Never longer than the schema.
    pub(crate) fields: Vec<(&'static str, &'static str, TextPlace)>,
    /// Fork fields: for each, the first harmless occurrence and the first other one.
    pub(crate) foreign: Vec<Foreign>,
    /// Unknown fields.
    pub(crate) unknown: Unknown,
    /// Whether there are fillers at any depth.
    pub(crate) fillers: Fillers,
    /// A V1 or V0 type that the schema does not have.
    pub(crate) kind: Option<String>,
    /// Why Caffe refuses the layer. While the layer is read, it is unknown whether it will be requested.
    pub(crate) refused: Option<(TextPlace, String)>,
    /// The places of the first tops, in order.
    pub(crate) tops: Vec<TextPlace>,
}

/// The maximum number of tops whose places are kept: a place takes as much memory as several tops take in the
/// text.
const TOPS_MAX: usize = 64;

impl LayerNotes {
    /// Notes a fork's field.
    pub(crate) fn note_foreign(&mut self, found: Foreign) {
        let same = |noted: &Foreign| std::ptr::eq(noted.fork, found.fork) && noted.harmless == found.harmless;
        if !self.foreign.iter().any(same) {
            self.foreign.push(found);
        }
    }

    /// Notes the reason to refuse the layer, if it is the first.
    pub(crate) fn refuse(&mut self, at: TextPlace, fault: impl FnOnce() -> String) {
        if self.refused.is_none() {
            self.refused = Some((at, fault()));
        }
    }

    /// The reason to refuse the layer if it is fed.
    pub(crate) fn refusal(&self) -> Option<NetError> {
        self.refused.as_ref().map(|(at, fault)| NetError::text(*at, &**fault))
    }

    /// Notes the place of the next top.
    pub(crate) fn note_top(&mut self, at: TextPlace) {
        if self.tops.len() < TOPS_MAX {
            self.tops.push(at);
        }
    }

    /// The place of a top, or else of the layer.
    pub(crate) fn top(&self, index: usize) -> Option<TextPlace> {
        self.tops.get(index).copied().or(self.at)
    }

    /// Whether the text has this field of this message.
    pub(crate) fn has(&self, wanted: (&str, &str)) -> bool {
        self.fields.iter().any(|&(message, field, _)| (message, field) == wanted)
    }

    /// The place of the first of these fields (message, field) that is set, or else of the layer.
    pub(crate) fn place(&self, wanted: &[(&str, &str)]) -> Option<TextPlace> {
        let found = wanted
            .iter()
            .find_map(|wanted| self.fields.iter().find(|(message, field, _)| (*message, *field) == *wanted));
        found.map(|&(_, _, at)| at).or(self.at)
    }
}

/// What is noted about a net.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The layers of either format, in the order of the text.
    pub(crate) layers: Vec<(Form, LayerNotes)>,
    /// Unknown top-level fields.
    pub(crate) unknown: Unknown,
}
