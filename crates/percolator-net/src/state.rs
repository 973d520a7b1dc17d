//! A net's state, and which layers it keeps: Caffe's `FilterNet`.

use std::collections::HashSet;
use std::fmt;

use super::error::clip_list;
use super::warning::WarningKind;
use crate::proto::{self, LayerParameter, NetStateRule};

/// Whether a net is trained or tested, like Caffe's `Phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Phase {
    /// Crops are random.
    #[default]
    Train,
    /// Crops are central. Mirroring stays random, as in Caffe.
    Test,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Train => "TRAIN",
            Phase::Test => "TEST",
        })
    }
}

/// The state that the rules of a net's layers are matched against.
///
/// As in Caffe's own `Net`, the phase and the level replace those in the net's `state`, and the stages are
/// added to its stages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct NetState {
    /// Training or testing.
    pub phase: Phase,
    /// The level, for `min_level` and `max_level` rules.
    pub level: i32,
    /// The stages, for `stage` and `not_stage` rules.
    pub stages: Vec<String>,
}

impl From<Phase> for NetState {
    /// A state with this phase, level 0 and no stages.
    fn from(phase: Phase) -> Self {
        Self { phase, ..Self::default() }
    }
}

impl fmt::Display for NetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (level {}", self.phase, self.level)?;
        match self.stages.as_slice() {
            [] => write!(f, ", no stages)"),
            stages @ [_] => write!(f, ", stage {})", clip_list(stages)),
            stages => write!(f, ", stages {})", clip_list(stages)),
        }
    }
}

/// The phase that a field holds, if any.
pub(super) fn phase(number: Option<i32>) -> Option<Phase> {
    match number? {
        0 => Some(Phase::Train),
        1 => Some(Phase::Test),
        // protobuf treats a number that the enum lacks as an unknown field.
        _ => None,
    }
}

impl NetState {
    /// This state with the net's own stages added.
    pub(super) fn with(&self, own: Option<&proto::NetState>) -> Self {
        let own = own.map_or(&[][..], |own| &own.stage);
        Self { stages: [own, &self.stages].concat(), ..self.clone() }
    }

    /// The fields of the net's own state that this state overrides.
    pub(super) fn overrides(&self, own: Option<&proto::NetState>) -> Vec<WarningKind> {
        let own_phase = own.and_then(|own| phase(own.phase)).filter(|&own| own != self.phase);
        let own_level = own.and_then(|own| own.level).filter(|&own| own != self.level);
        let phases = own_phase.map(|own| ("phase", own.to_string(), self.phase.to_string()));
        let levels = own_level.map(|own| ("level", own.to_string(), self.level.to_string()));
        let overridden = phases.into_iter().chain(levels);
        overridden.map(|(field, own, given)| WarningKind::State { field, own, given }).collect()
    }

    /// A matcher for this state, to match many rules.
    pub(super) fn matcher(&self) -> Matcher<'_> {
        Matcher { state: self, stages: self.stages.iter().map(String::as_str).collect() }
    }
}

/// A state with its stages in a hash set: a rule may name as many stages as the state has.
#[derive(Debug)]
pub(super) struct Matcher<'a> {
    state: &'a NetState,
    stages: HashSet<&'a str>,
}

impl Matcher<'_> {
    /// Whether a layer is part of the net in this state.
    ///
    /// # Errors
    ///
    /// The layer has both include and exclude rules.
    pub(super) fn keeps(&self, layer: &LayerParameter) -> Result<bool, String> {
        match (layer.include.as_slice(), layer.exclude.as_slice()) {
            ([], exclude) => Ok(!exclude.iter().any(|rule| self.meets(rule))),
            (include, []) => Ok(include.iter().any(|rule| self.meets(rule))),
            _ => Err("specify either include rules or exclude rules; not both".to_owned()),
        }
    }

    fn meets(&self, rule: &NetStateRule) -> bool {
        let has = |stage: &String| self.stages.contains(stage.as_str());
        phase(rule.phase).is_none_or(|phase| phase == self.state.phase)
            && rule.min_level.is_none_or(|level| self.state.level >= level)
            && rule.max_level.is_none_or(|level| self.state.level <= level)
            && rule.stage.iter().all(has)
            && !rule.not_stage.iter().any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: Phase, level: i32, stages: &[&str]) -> NetState {
        NetState { phase, level, stages: stages.iter().map(|&stage| stage.to_owned()).collect() }
    }

    fn rule(text: &str) -> NetStateRule {
        let net = proto::NetParameter::from_text(&format!("layer {{ include {{ {text} }} }}")).unwrap();
        net.layer[0].include[0].clone()
    }

    #[test]
    fn every_part_of_a_rule_must_agree() {
        let state = state(Phase::Test, 2, &["deploy", "fast"]);
        let matcher = state.matcher();
        for met in [
            "",
            "phase: TEST",
            "min_level: 2 max_level: 2",
            "min_level: -5",
            "stage: 'fast' stage: 'deploy'",
            "not_stage: 'slow'",
            "phase: TEST min_level: 1 stage: 'fast' not_stage: 'slow'",
        ] {
            assert!(matcher.meets(&rule(met)), "{met}");
        }
        for unmet in [
            "phase: TRAIN",
            "min_level: 3",
            "max_level: 1",
            "stage: 'fast' stage: 'slow'",
            "not_stage: 'slow' not_stage: 'fast'",
            "phase: TEST min_level: 1 stage: 'fast' not_stage: 'deploy'",
        ] {
            assert!(!matcher.meets(&rule(unmet)), "{unmet}");
        }
    }

    #[test]
    fn one_rule_that_is_met_is_enough() {
        let state = state(Phase::Train, 0, &[]);
        let matcher = state.matcher();
        let layer = |include: &[&str], exclude: &[&str]| LayerParameter {
            include: include.iter().map(|text| rule(text)).collect(),
            exclude: exclude.iter().map(|text| rule(text)).collect(),
            ..LayerParameter::default()
        };
        assert_eq!(matcher.keeps(&layer(&[], &[])), Ok(true));
        assert_eq!(matcher.keeps(&layer(&["phase: TEST", "phase: TRAIN"], &[])), Ok(true));
        assert_eq!(matcher.keeps(&layer(&["phase: TEST"], &[])), Ok(false));
        assert_eq!(matcher.keeps(&layer(&[], &["phase: TEST", "phase: TRAIN"])), Ok(false));
        assert_eq!(matcher.keeps(&layer(&[], &["phase: TEST"])), Ok(true));
        assert!(matcher.keeps(&layer(&["phase: TRAIN"], &["phase: TEST"])).is_err());
    }

    #[test]
    fn the_nets_own_state_is_merged_as_caffe_merges_it() {
        let own = proto::NetParameter::from_text("state { phase: TRAIN level: 3 stage: 'a' }").unwrap().state;
        let given = state(Phase::Test, 1, &["b"]);
        assert_eq!(given.with(own.as_ref()), state(Phase::Test, 1, &["a", "b"]));
        let overridden: Vec<_> = given.overrides(own.as_ref()).iter().map(ToString::to_string).collect();
        assert_eq!(
            overridden,
            [
                "the net's own state sets phase TRAIN; the requested TEST overrides it",
                "the net's own state sets level 3; the requested 1 overrides it",
            ]
        );
        assert_eq!(state(Phase::Train, 3, &[]).overrides(own.as_ref()), []);
        assert_eq!(given.overrides(None), []);
        assert_eq!(given.to_string(), "TEST (level 1, stage b)");
    }
}
