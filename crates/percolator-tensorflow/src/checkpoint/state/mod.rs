//! The file `checkpoint` of a folder: which checkpoints are in it, and which is the latest.

mod error;
mod text;

use std::io;
use std::path::{Component, Path, PathBuf};

use percolator_files::{input_file, whole_file};

pub use self::error::StateError;
use super::writer::{new_prefix, previous_prefix};
use crate::paths::index_path;
use crate::proto::CheckpointState;

/// TensorFlow's name of the file.
pub(super) const NAME: &str = "checkpoint";
/// Longer than the list of a hundred thousand checkpoints.
const BYTES_MAX: u64 = 16 << 20;

/// Returns the prefix of a folder's latest checkpoint, as `tf.train.latest_checkpoint` does: the one that the
/// file `checkpoint` names; `None` if there is no such file. TensorFlow follows an absolute path that the
/// file has, also out of a folder that was copied; here, a checkpoint of that name in the folder comes first.
///
/// If a writer was killed while it rewrote that checkpoint, this is the earlier one, under the prefix at
/// which the writer has kept it.
///
/// # Errors
///
/// [`StateError`] if the file cannot be read, or what it names is not there.
pub fn latest_checkpoint(folder: impl AsRef<Path>) -> Result<Option<PathBuf>, StateError> {
    StateFile::of(folder).latest()
}

/// Returns the prefixes of all checkpoints that a folder's file `checkpoint` names and that are there, the
/// oldest first; none if there is no such file.
///
/// # Errors
///
/// [`StateError`] if the file cannot be read.
pub fn all_checkpoints(folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, StateError> {
    StateFile::of(folder).all()
}

/// The file that lists the checkpoints of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFile {
    folder: PathBuf,
    path: PathBuf,
}

impl StateFile {
    /// The file `checkpoint` of a folder.
    pub fn of(folder: impl AsRef<Path>) -> Self {
        StateFile::named(folder, NAME)
    }

    /// The file of another name: what `tf.train.Saver` calls `latest_filename`.
    pub fn named(folder: impl AsRef<Path>, name: impl AsRef<Path>) -> Self {
        let folder = folder.as_ref().to_owned();
        let path = folder.join(name);
        StateFile { folder, path }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its contents, as `tf.train.get_checkpoint_state` does: relative paths are joined to the
    /// folder. So are the names of absolute ones if there is a checkpoint of that name in the folder. `None`
    /// if there is no such file.
    ///
    /// # Errors
    ///
    /// [`StateError`] if it cannot be read, or names no latest checkpoint; [`StateError::NotUtf8`] if a
    /// joined path is no text, which the folder's own need not be.
    pub fn read(&self) -> Result<Option<CheckpointState>, StateError> {
        let Some(mut state) = self.parsed()? else { return Ok(None) };
        let paths = state.all_model_checkpoint_paths.iter_mut();
        for path in paths.chain([&mut state.model_checkpoint_path]) {
            let joined = self.place_of(path);
            let joined = joined.into_os_string().into_string();
            *path = joined.map_err(|prefix| StateError::NotUtf8 { prefix: prefix.into() })?;
        }
        Ok(Some(state))
    }

    /// Returns its contents as they are.
    pub(super) fn parsed(&self) -> Result<Option<CheckpointState>, StateError> {
        let Some(text) = self.text()? else { return Ok(None) };
        let state = text::parse(&text).map_err(|fault| StateError::Text {
            path: self.path.clone(),
            line: fault.line,
            message: fault.message,
        })?;
        if state.model_checkpoint_path.is_empty() {
            return Err(StateError::NoPath { path: self.path.clone() });
        }
        Ok(Some(state))
    }

    fn text(&self) -> Result<Option<String>, StateError> {
        let text = match input_file::read(&self.path, BYTES_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(StateError::io(&self.path, "read the file"))?,
        };
        let text = String::from_utf8(text).map_err(|error| {
            let valid = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
            let line = 1 + valid.iter().filter(|&&byte| byte == b'\n').count();
            StateError::Text { path: self.path.clone(), line, message: "it is not UTF-8".to_owned() }
        })?;
        Ok(Some(text))
    }

    /// Returns the prefix of the latest checkpoint: see [`latest_checkpoint`].
    ///
    /// # Errors
    ///
    /// As [`latest_checkpoint`].
    pub fn latest(&self) -> Result<Option<PathBuf>, StateError> {
        let Some(state) = self.parsed()? else { return Ok(None) };
        // The folder's own path need not be UTF-8.
        let prefix = self.place_of(&state.model_checkpoint_path);
        match self.found(&prefix)? {
            Some(found) => Ok(Some(found)),
            None => {
                Err(StateError::Missing { path: self.path.clone(), prefix, others: self.those_of(&state)? })
            }
        }
    }

    /// Returns the prefixes of all checkpoints that are there: see [`all_checkpoints`].
    ///
    /// # Errors
    ///
    /// As [`all_checkpoints`].
    pub fn all(&self) -> Result<Vec<PathBuf>, StateError> {
        self.parsed()?.map_or(Ok(Vec::new()), |state| self.those_of(&state))
    }

    fn those_of(&self, state: &CheckpointState) -> Result<Vec<PathBuf>, StateError> {
        let mut found = Vec::new();
        for path in &state.all_model_checkpoint_paths {
            found.extend(self.found(&self.place_of(path))?);
        }
        Ok(found)
    }

    /// The prefix that a path of the file means. Savers list absolute paths, which those of a folder that was
    /// copied still name: what lies beside the file is meant, if there is a checkpoint of that name.
    pub(super) fn place_of(&self, listed: &str) -> PathBuf {
        let prefix = self.folder.join(listed);
        let beside = Path::new(listed).file_name().map(|name| self.folder.join(name));
        match beside.filter(|beside| Path::new(listed).is_absolute() && *beside != prefix) {
            Some(beside) if index_path(&beside).is_file() || beside.is_file() => beside,
            _ => prefix,
        }
    }

    /// Returns the prefix if its checkpoint is there, or that of the earlier one which is being replaced.
    fn found(&self, prefix: &Path) -> Result<Option<PathBuf>, StateError> {
        let exists = |path: &Path| path.try_exists().map_err(StateError::io(path, "look for the file"));
        if exists(&index_path(prefix))? {
            return Ok(Some(prefix.to_owned()));
        }
        let previous = previous_prefix(prefix);
        if exists(&index_path(&previous))? {
            return Ok(Some(previous));
        }
        // Another program has rewritten it after a manager was killed.
        if let Some(new) = new_prefix(prefix).filter(|new| index_path(new).is_file()) {
            return Ok(Some(new));
        }
        // Before TensorFlow 1.0, the prefix was itself a file.
        Ok(prefix.is_file().then(|| prefix.to_owned()))
    }

    /// Writes the file, byte for byte as TensorFlow does; it is whole at every moment. The paths are taken as
    /// they are.
    ///
    /// # Errors
    ///
    /// [`StateError`] if it cannot be written.
    pub fn write(&self, state: &CheckpointState) -> Result<(), StateError> {
        let text = text::print(state);
        whole_file::write(&self.path, &[text.as_bytes()])
            .map_err(StateError::io(&self.path, "write the file"))
    }

    /// Checks that no file of a checkpoint has the path of this one.
    pub(super) fn check(&self, prefix: &Path) -> Result<(), StateError> {
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let front = prefix.file_name().unwrap_or_default().as_encoded_bytes();
        let rest = name.strip_prefix(front).filter(|_| self.path.parent() == prefix.parent());
        let is_taken = rest.is_some_and(|rest| {
            rest.is_empty() || rest == b".index" || rest == b".meta" || rest.starts_with(b".data-")
        });
        if is_taken { Err(StateError::Conflict { path: self.path.clone() }) } else { Ok(()) }
    }

    /// Returns the path of a checkpoint as the file has it: relative to the folder, if that is wanted, or if
    /// folder and checkpoint are named by relative paths.
    pub(super) fn listed(&self, prefix: &Path, is_relative: bool) -> Result<String, StateError> {
        let both_relative = prefix.is_relative() && self.folder.is_relative();
        let listed = if is_relative || both_relative {
            relative(prefix, &self.folder)
                .map_err(StateError::io(&self.folder, "find the working directory"))?
        } else {
            prefix.to_owned()
        };
        let listed = listed.into_os_string().into_string();
        listed.map_err(|_| StateError::NotUtf8 { prefix: prefix.to_owned() })
    }
}

/// A path as seen from a folder, by the names alone: as Python's `os.path.relpath`.
fn relative(path: &Path, folder: &Path) -> io::Result<PathBuf> {
    let [path, folder] = [absolute(path)?, absolute(folder)?];
    let shared = path.iter().zip(&folder).take_while(|(one, other)| one == other).count();
    let up = folder.iter().skip(shared).map(|_| Component::ParentDir.as_os_str());
    Ok(up.chain(path.iter().skip(shared).map(AsRef::as_ref)).collect())
}

/// An absolute path without `.` and `..`.
fn absolute(path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    // An empty path is the working directory to Python, and an error to `absolute`.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut names = Vec::new();
    for component in std::path::absolute(path)?.components() {
        match component {
            Component::ParentDir => drop(names.pop()),
            Component::Normal(name) => names.push(name.to_owned()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_as_python_has_them() {
        for (path, folder, due) in [
            ("/a/b/ckpt-1", "/a/b", "ckpt-1"),
            ("/a/b/ckpt-1", "/a/b/c", "../ckpt-1"),
            ("/a/b/../c/ckpt-1", "/a/./b", "../c/ckpt-1"),
            ("run/ckpt-1", "run", "ckpt-1"),
            ("ckpt-1", "", "ckpt-1"),
            ("./ckpt-1", ".", "ckpt-1"),
            ("/ckpt-1", "/", "ckpt-1"),
        ] {
            assert_eq!(
                relative(Path::new(path), Path::new(folder)).unwrap(),
                Path::new(due),
                "{path} in {folder}"
            );
        }
    }
}
