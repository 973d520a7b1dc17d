//! Tensors of all types and shapes, as models.

use std::path::{Path, PathBuf};

use percolator_tensorflow::convert::{Conversion, ConvertError, Format, Model, Options, Progress};
use percolator_tensorflow::{CheckpointWriter, DataType, Elements, Tensor};
use proptest::prelude::*;

/// A tensor with its name.
pub(crate) type Named = (String, Tensor<'static>);

/// The types that files hold.
pub(crate) fn types() -> impl Iterator<Item = DataType> {
    DataType::all().filter(|&data_type| Format::Npz.keeps(data_type))
}

/// The elements of a shape.
pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Tensors of any type but variants, of up to four axes, with any bytes. Strings do not end with a zero byte,
/// which NumPy's files cannot hold.
fn tensor() -> impl Strategy<Value = Tensor<'static>> {
    let types: Vec<_> = types().collect();
    let shape = prop::collection::vec(prop_oneof![4 => 1_usize..4, 1 => Just(0)], 0..4);
    (prop::sample::select(types), shape).prop_flat_map(|(data_type, shape)| {
        let elements = count(&shape);
        match data_type.size() {
            Some(size) => prop::collection::vec(any::<u8>(), elements * size)
                .prop_map(move |bytes| Tensor::new(data_type, &*shape, bytes).unwrap())
                .boxed(),
            None => {
                let string = prop::collection::vec(any::<u8>(), 0..6).prop_map(|mut string| {
                    if string.last() == Some(&0) {
                        string.push(1);
                    }
                    string
                });
                prop::collection::vec(string, elements)
                    .prop_map(move |strings| Tensor::strings(&*shape, strings).unwrap())
                    .boxed()
            }
        }
    })
}

/// A few tensors with names of their own, some of which are odd paths.
pub(crate) fn tensors() -> impl Strategy<Value = Vec<Named>> {
    let name = "[a-c]{1,2}(/[a-c]){0,2}|\\.\\./[ab]|/[ab]|[ab]//[ab]|[ab]\\.npy|[ab]\\.npy/c|ü|%41|\\.|[ab]/";
    prop::collection::btree_map(name, tensor(), 0..6).prop_map(|tensors| tensors.into_iter().collect())
}

/// Writes tensors as a checkpoint, and opens it.
pub(crate) fn checkpoint(folder: &Path, tensors: &[Named]) -> Model {
    let prefix = folder.join("written/model");
    let mut writer = CheckpointWriter::create(&prefix).unwrap();
    for (name, tensor) in tensors {
        writer.add(name, tensor).unwrap();
    }
    writer.finish().unwrap();
    Model::open(prefix).unwrap()
}

/// Where a conversion to this format is written in a folder.
pub(crate) fn target(folder: &Path, format: Format) -> PathBuf {
    match format {
        Format::Checkpoint => folder.join("converted/model"),
        Format::Safetensors => folder.join("converted.safetensors"),
        Format::Npz => folder.join("converted.npz"),
        Format::Npy => folder.join("converted.npy"),
        _ => folder.join("converted-folder"),
    }
}

/// Converts a model, and returns the path.
pub(crate) fn convert(model: &Model, folder: &Path, format: Format) -> Result<PathBuf, ConvertError> {
    convert_with(model, folder, format, &Options::default())
}

pub(crate) fn convert_with(
    model: &Model,
    folder: &Path,
    format: Format,
    options: &Options,
) -> Result<PathBuf, ConvertError> {
    let path = target(folder, format);
    let progress = Progress::new();
    let conversion = Conversion::plan(model, &path, format, options)?;
    let summary = conversion.run(&progress)?;
    assert_eq!(summary.tensors, conversion.tensors().len());
    assert_eq!((progress.done(), progress.total() > 0), (progress.total(), summary.tensors > 0));
    Ok(path)
}

/// All tensors of a model, by name.
pub(crate) fn read(model: &Model) -> Vec<Named> {
    let tensors = model.tensors().iter().enumerate();
    let tensor = |(place, info): (usize, &percolator_tensorflow::convert::ModelTensor)| {
        let tensor = model.read(place).unwrap().into_owned();
        assert_eq!((tensor.data_type(), tensor.shape()), (info.data_type, &*info.shape));
        (info.name.clone(), tensor)
    };
    let mut tensors: Vec<Named> = tensors.map(tensor).collect();
    tensors.sort_by(|one, other| one.0.cmp(&other.0));
    tensors
}

/// A tensor of each type with this shape; its bytes are counted up, and its strings are of several lengths.
pub(crate) fn of_each_type(shape: &[usize]) -> Vec<Named> {
    let tensor = |data_type: DataType| {
        let elements = count(shape);
        let name = format!("{data_type}/{}", shape.len());
        let tensor = match data_type.size() {
            // Booleans are 0 or 1, and no type has all of its bits set, which some readers would take for
            // NaN.
            Some(size) => {
                let last = if data_type == DataType::Bool { 1 } else { 126 };
                let bytes: Vec<u8> = (0..=last).cycle().take(elements * size).collect();
                Tensor::new(data_type, shape, bytes).unwrap()
            }
            None => {
                Tensor::strings(shape, (0..elements).map(|at| "aé\0b".repeat(at % 4).into_bytes())).unwrap()
            }
        };
        (name, tensor)
    };
    types().map(tensor).collect()
}

/// The strings of a tensor, or its bytes, in hexadecimal.
pub(crate) fn hexadecimal(tensor: &Tensor<'_>) -> Vec<String> {
    let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match tensor.elements() {
        Elements::Bytes(bytes) => vec![hexadecimal(bytes)],
        Elements::Strings(strings) => strings.iter().map(|string| hexadecimal(string)).collect(),
    }
}
