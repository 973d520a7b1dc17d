//! How the checkpoints of a folder are kept.

use std::path::Path;

use crate::checkpoint::state::{NAME, StateError};

/// Whose rules a [`CheckpointManager`](super::CheckpointManager) keeps.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerRules {
    /// Those of TensorFlow 2's `tf.train.CheckpointManager`: relative paths, timestamps; what is preserved
    /// for good is no longer listed.
    CheckpointManager,
    /// Those of TensorFlow 1's `tf.train.Saver`: absolute paths if the folder's is, no timestamps; a
    /// checkpoint is removed with its `.meta`.
    Saver,
}

/// How the checkpoints of a folder are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct ManagerOptions {
    /// Whose rules are kept.
    pub rules: ManagerRules,
    /// The front of each checkpoint's name; the step follows after `-`. `ckpt` for TensorFlow 2's manager,
    /// `model` for its saver.
    pub name: String,
    /// How many checkpoints stay, those that are kept for longer not included. `None` or 0: all. `Some(5)` by
    /// default for the saver, which then lists the last one alone if all stay.
    pub max_to_keep: Option<usize>,
    /// Of those that would be removed, one is kept for good each time this many hours have passed.
    pub keep_every_hours: Option<f64>,
    /// Whether paths are listed as relative to the folder, so that it can be moved. The saver's default is
    /// not.
    pub relative_paths: bool,
    /// Whether steps have eight digits in names at the least, so that names sort as steps do.
    pub pad_steps: bool,
    /// The name of the file that lists the checkpoints: `checkpoint`.
    pub state_name: String,
}

impl ManagerOptions {
    /// The defaults of TensorFlow 2's `tf.train.CheckpointManager`, which has none for `max_to_keep`.
    #[must_use]
    pub fn checkpoint_manager(max_to_keep: Option<usize>) -> Self {
        ManagerOptions {
            rules: ManagerRules::CheckpointManager,
            name: "ckpt".to_owned(),
            max_to_keep,
            keep_every_hours: None,
            relative_paths: true,
            pad_steps: false,
            state_name: NAME.to_owned(),
        }
    }

    /// The defaults of TensorFlow 1's `tf.train.Saver`.
    #[must_use]
    pub fn saver() -> Self {
        ManagerOptions {
            rules: ManagerRules::Saver,
            name: "model".to_owned(),
            max_to_keep: Some(5),
            keep_every_hours: Some(10_000.0),
            relative_paths: false,
            ..Self::checkpoint_manager(None)
        }
    }

    pub(super) fn check(&self) -> Result<(), StateError> {
        let refused = |option, found: String, allowed| Err(StateError::Option { option, found, allowed });
        let is_name = |name: &str| Path::new(name).file_name().is_some_and(|only| only == name);
        for (option, name) in [("name", &self.name), ("state_name", &self.state_name)] {
            if !is_name(name) {
                return refused(option, format!("{name:?}"), "give a file's name, without `/`");
            }
        }
        match self.keep_every_hours {
            Some(hours) if !(hours > 0.0 && hours.is_finite()) => {
                refused("keep_every_hours", hours.to_string(), "give a number greater than 0, or None")
            }
            _ => Ok(()),
        }
    }

    /// How many stay, or `None` for all.
    pub(super) fn limit(&self) -> Option<usize> {
        self.max_to_keep.filter(|&most| most > 0)
    }
}
