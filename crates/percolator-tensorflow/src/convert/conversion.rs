//! A model's tensors, written as another format.

use std::fs;
use std::io::{BufWriter, IntoInnerError, Write as _};
use std::path::{Path, PathBuf};

use percolator_files::whole_file::{self, Existing, WholeFile};
use zip::ZipWriter;

use super::new_folder::{self, NewFolder};
use super::npy::Written;
use super::{
    ConvertError, Format, Model, ModelTensor, NameRules, Progress, checkpoint, folder, npz, safetensors,
};
use crate::checkpoint::CheckpointWriter;
use crate::{DataType, Tensor};

/// The bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// How a conversion is done.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names that tensors get.
    pub rules: NameRules,
    /// Whether tensors of types that the format does not have are left out; if not, they are an error.
    pub leave_out: bool,
    /// The data files of a checkpoint; 1 by default.
    pub shards: usize,
    /// What becomes of a file, or of a checkpoint, that is there; by default, it is an error. A folder is
    /// never replaced.
    pub existing: Existing,
}

impl Default for Options {
    fn default() -> Self {
        Options { rules: NameRules::none(), leave_out: false, shards: 1, existing: Existing::Refuse }
    }
}

/// A tensor that will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Its place in [`Model::tensors`].
    pub place: usize,
    /// Its name in the model.
    pub from: String,
    /// Its name in what is written.
    pub to: String,
}

/// A tensor that will not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// A rule drops it.
    Dropped {
        /// Its name.
        name: String,
    },
    /// The format does not have its type.
    Type {
        /// Its name.
        name: String,
        /// Its type.
        data_type: DataType,
    },
}

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of tensors.
    pub tensors: usize,
    /// The bytes of their elements.
    pub bytes: u64,
    /// Whether a [copy](super::copy_checkpoint) has the graph that was beside the checkpoint, its `.meta`
    /// file.
    pub has_graph: bool,
}

/// A conversion that is checked and can be run.
#[derive(Debug)]
pub struct Conversion<'m> {
    model: &'m Model,
    target: PathBuf,
    format: Format,
    tensors: Vec<Renamed>,
    left_out: Vec<LeftOut>,
    shards: usize,
    existing: Existing,
}

impl<'m> Conversion<'m> {
    /// Decides what is written to a path, and checks what can be checked before anything is read or written:
    /// names, types, that it is not what is read, and that nothing is replaced which is to stay.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if tensors of a checkpoint share bytes, if names collide, if a rule that gives names
    /// matches no tensor, if the format cannot hold a tensor, or if the target is the source, is
    /// [there](Options::existing), is a folder that is not empty, or cannot be written.
    pub fn plan(
        model: &'m Model,
        target: impl AsRef<Path>,
        format: Format,
        options: &Options,
    ) -> Result<Self, ConvertError> {
        let target = target.as_ref().to_owned();
        let kept = |info: &ModelTensor| !options.leave_out || format.keeps(info.data_type);
        let of_kept_types: Vec<usize> =
            (0..model.tensors.len()).filter(|&at| kept(&model.tensors[at])).collect();
        let names = options.rules.apply(of_kept_types.iter().map(|&at| &*model.tensors[at].name))?;
        let mut names = of_kept_types.into_iter().zip(names).peekable();
        let (mut tensors, mut left_out) = (Vec::new(), Vec::new());
        for (place, info) in model.tensors.iter().enumerate() {
            let (name, data_type) = (info.name.clone(), info.data_type);
            match names.next_if(|(at, _)| *at == place) {
                Some((_, Some(to))) => tensors.push(Renamed { place, from: name, to }),
                Some((_, None)) => left_out.push(LeftOut::Dropped { name }),
                None => left_out.push(LeftOut::Type { name, data_type }),
            }
        }
        // A rule for a tensor that is left out for its type is used.
        if !model.tensors.is_empty() {
            options.rules.check_effect(model.tensors.iter().map(|info| &*info.name))?;
        }
        let Options { shards, existing, .. } = *options;
        let conversion = Conversion { model, target, format, tensors, left_out, shards, existing };
        conversion.check_tensors()?;
        conversion.check_target()?;
        Ok(conversion)
    }

    /// Returns the tensors that will be written, in the order in which the model holds them.
    #[must_use]
    pub fn tensors(&self) -> &[Renamed] {
        &self.tensors
    }

    /// Returns the tensors that will not be written.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns how many texts of a `.safetensors` file the target cannot hold.
    #[must_use]
    pub fn lost_metadata(&self) -> usize {
        if self.format == Format::Safetensors { 0 } else { self.model.metadata().len() }
    }

    fn info(&self, tensor: &Renamed) -> ModelTensor {
        ModelTensor { name: tensor.to.clone(), ..self.model.tensors[tensor.place].clone() }
    }

    fn infos(&self) -> Vec<ModelTensor> {
        self.tensors.iter().map(|tensor| self.info(tensor)).collect()
    }

    fn check_tensors(&self) -> Result<(), ConvertError> {
        if let Some(checkpoint) = self.model.checkpoint() {
            checkpoint.check_all_sharing()?;
        }
        for tensor in &self.tensors {
            let data_type = self.model.tensors[tensor.place].data_type;
            if !self.format.keeps(data_type) {
                let remedy = match self.format {
                    Format::Checkpoint => "leave the tensor out",
                    Format::Safetensors => "leave the tensor out, or write a checkpoint or .npz",
                    _ => "leave the tensor out, or write a checkpoint",
                };
                let (tensor, format) = (tensor.from.clone(), self.format);
                return Err(ConvertError::NoSuchType { tensor, data_type, format, remedy });
            }
            match self.format {
                Format::Npz => npz::check_name(&tensor.to)?,
                Format::NpyFolder => drop(folder::path_of(&tensor.to)?),
                Format::Checkpoint | Format::Safetensors | Format::Npy => {}
            }
        }
        match (self.format, self.tensors.len()) {
            (Format::Safetensors, _) => self.layout().map(drop),
            (Format::Npy, 1) => Ok(()),
            (Format::Npy, found) => Err(ConvertError::NoTarget {
                path: self.target.clone(),
                fault: format!(
                    ".npy holds one tensor, and there are {found}: give a rule that drops the others, or \
                     write .npz or a folder"
                ),
            }),
            _ => Ok(()),
        }
    }

    fn layout(&self) -> Result<safetensors::Layout, ConvertError> {
        safetensors::Layout::new(&self.target, &self.infos(), &self.model.metadata())
    }

    /// Checks that the target can be written, and is not read.
    fn check_target(&self) -> Result<(), ConvertError> {
        let path = &self.target;
        let write = ConvertError::write(path);
        match self.format {
            Format::NpyFolder => return new_folder::check(path),
            Format::Checkpoint if checkpoint::replaces(path, self.shards, &self.model.files())? => {
                return Err(ConvertError::SamePlace { path: path.clone() });
            }
            Format::Checkpoint => return Ok(CheckpointWriter::check(path, self.shards, self.existing)?),
            Format::Safetensors | Format::Npz | Format::Npy => whole_file::check(path).map_err(write)?,
        }
        for file in self.model.files() {
            // What is read is there, so its place can be told.
            if whole_file::is_same_place(&file, path).map_err(ConvertError::read(&file))? {
                return Err(ConvertError::SamePlace { path: path.clone() });
            }
        }
        self.existing.check(path).map_err(ConvertError::name(path))
    }

    /// Reads the tensors and writes them. What is written gets its name once it is complete.
    ///
    /// The progress is in bytes of tensors, at least 1 for each. Stopped, the conversion ends at its next
    /// tensor.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if a tensor cannot be read or written. An earlier file stays.
    pub fn run(&self, progress: &Progress) -> Result<Summary, ConvertError> {
        let weight = |tensor: &Renamed| weight(&self.model.tensors[tensor.place]);
        progress.begin(self.tensors.iter().map(weight).fold(0, u64::saturating_add));
        let mut run = Run { conversion: self, progress, summary: Summary::default() };
        match self.format {
            Format::Safetensors => run.safetensors()?,
            Format::Npz => run.npz()?,
            Format::Npy => run.npy(&self.target, &self.tensors[0], self.existing)?,
            Format::NpyFolder => run.folder()?,
            Format::Checkpoint => run.checkpoint()?,
        }
        Ok(run.summary)
    }
}

/// A tensor's part of the work.
fn weight(info: &ModelTensor) -> u64 {
    info.bytes().map_or(1, |bytes| (bytes as u64).max(1))
}

/// A conversion under way.
struct Run<'c, 'm> {
    conversion: &'c Conversion<'m>,
    progress: &'c Progress,
    summary: Summary,
}

impl<'m> Run<'_, 'm> {
    fn read(&self, tensor: &Renamed) -> Result<Tensor<'m>, ConvertError> {
        ConvertError::check(self.progress)?;
        self.conversion.model.read(tensor.place)
    }

    fn count(&mut self, place: usize, tensor: &Tensor<'_>) {
        self.summary.tensors += 1;
        self.summary.bytes += tensor.byte_length() as u64;
        self.progress.add_done(weight(&self.conversion.model.tensors[place]));
    }

    fn create(&self, path: &Path) -> Result<BufWriter<WholeFile>, ConvertError> {
        let file = WholeFile::create(path).map_err(ConvertError::write(path))?;
        Ok(BufWriter::with_capacity(BUFFER_BYTES, file))
    }

    fn checkpoint(&mut self) -> Result<(), ConvertError> {
        let Conversion { target, shards, existing, .. } = self.conversion;
        let mut writer = CheckpointWriter::create_sharded(target, *shards)?.existing(*existing);
        for renamed in &self.conversion.tensors {
            let tensor = self.read(renamed)?;
            let (done, total) = (self.progress.done(), self.progress.total());
            writer.set_shard(super::copy::share(done, total, *shards))?;
            writer.add(&renamed.to, &tensor)?;
            self.count(renamed.place, &tensor);
        }
        writer.finish()?;
        Ok(())
    }

    fn safetensors(&mut self) -> Result<(), ConvertError> {
        let target = &*self.conversion.target;
        let layout = self.conversion.layout()?;
        let mut out = self.create(target)?;
        layout.write_header(&mut out).map_err(ConvertError::write(target))?;
        for &at in &layout.order {
            let renamed = &self.conversion.tensors[at];
            let tensor = self.read(renamed)?;
            out.write_all(tensor.bytes().unwrap_or_default()).map_err(ConvertError::write(target))?;
            self.count(renamed.place, &tensor);
        }
        finish(out, target, self.conversion.existing)
    }

    fn npz(&mut self) -> Result<(), ConvertError> {
        let target = &*self.conversion.target;
        let mut archive = ZipWriter::new(self.create(target)?);
        for renamed in &self.conversion.tensors {
            let tensor = self.read(renamed)?;
            let array = Written::new(&renamed.from, &tensor, Format::Npz)?;
            npz::add(&mut archive, &renamed.to, &array).map_err(ConvertError::write(target))?;
            self.count(renamed.place, &tensor);
        }
        let out = archive.finish().map_err(|error| ConvertError::write(target)(error.into()))?;
        finish(out, target, self.conversion.existing)
    }

    fn npy(&mut self, path: &Path, renamed: &Renamed, existing: Existing) -> Result<(), ConvertError> {
        let tensor = self.read(renamed)?;
        let array = Written::new(&renamed.from, &tensor, self.conversion.format)?;
        let mut out = self.create(path)?;
        array.write(&mut out).map_err(ConvertError::write(path))?;
        self.count(renamed.place, &tensor);
        finish(out, path, existing)
    }

    /// Writes a tensor's file of the new folder. Only another tensor can have it.
    fn npy_of_folder(&mut self, path: &Path, renamed: &Renamed) -> Result<(), ConvertError> {
        self.npy(path, renamed, Existing::Refuse).map_err(|error| match error {
            ConvertError::Exists { .. } => ConvertError::Unfit {
                tensor: renamed.to.clone(),
                format: Format::NpyFolder,
                found: "another tensor has its file, as where names differ only in case and the file system \
                        does not tell them apart"
                    .to_owned(),
                remedy: "rename one of them, or write .npz".to_owned(),
            },
            error => error,
        })
    }

    fn folder(&mut self) -> Result<(), ConvertError> {
        let new = NewFolder::create(&self.conversion.target)?;
        for renamed in &self.conversion.tensors {
            let path = new.path().join(folder::path_of(&renamed.to)?);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(ConvertError::write(parent))?;
            }
            self.npy_of_folder(&path, renamed)?;
        }
        new.finish()
    }
}

/// Gives a file its name.
fn finish(out: BufWriter<WholeFile>, path: &Path, existing: Existing) -> Result<(), ConvertError> {
    let whole = out.into_inner().map_err(IntoInnerError::into_error);
    whole.and_then(|file| file.finish_over(existing)).map_err(ConvertError::name(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a file system that does not tell upper from lower case.
    #[test]
    fn two_tensors_of_a_folder_do_not_get_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("model");
        let mut writer = CheckpointWriter::create(&prefix).unwrap();
        for (name, value) in [("A", 1_u8), ("a", 2)] {
            writer.add(name, &Tensor::from_values([1], &[value]).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let model = Model::open(&prefix).unwrap();
        let options = Options { existing: Existing::Replace, ..Options::default() };
        let target = folder.path().join("arrays");
        let conversion = Conversion::plan(&model, &target, Format::NpyFolder, &options).unwrap();
        let progress = Progress::new();
        let mut run = Run { conversion: &conversion, progress: &progress, summary: Summary::default() };
        let path = folder.path().join("a.npy");
        let [first, second] = &conversion.tensors[..] else { panic!("two tensors") };
        run.npy_of_folder(&path, first).unwrap();
        let written = fs::read(&path).unwrap();
        let error = run.npy_of_folder(&path, second).unwrap_err();
        assert!(matches!(&error, ConvertError::Unfit { tensor, .. } if *tensor == "a"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), written);
    }
}
