//! `percolator model diff`: how two models differ.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use percolator_files::parallel::map;
use percolator_files::shown;
use percolator_tensorflow::convert::{ConvertError, Model, Progress};
use percolator_tensorflow::{DataType, Elements, Tensor};
use serde_json::{Value as Json, json};

use super::list::weight;
use super::values::{Value, value};
use super::{How, printable, shape, stdout};
use crate::run::exit;

#[derive(Debug, Args)]
pub(super) struct Diff {
    /// One model: a checkpoint (its prefix, one of its files, or a folder with a file "checkpoint"), a
    /// SavedModel, a .safetensors, .npz or .npy file, or a folder of .npy files.
    #[arg(value_name = "A")]
    one: PathBuf,
    /// The other one, of any of these formats.
    #[arg(value_name = "B")]
    other: PathBuf,
    /// Numbers are equal if they differ by at most this much, or, if they are larger than 1, by this much of
    /// the larger one [default: 0: all bits must be equal].
    #[arg(long, value_name = "T", value_parser = tolerance)]
    tolerance: Option<f64>,
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(tolerance) if (0.0..f64::INFINITY).contains(&tolerance) => Ok(tolerance),
        _ => Err("a tolerance is a number from 0 on".to_owned()),
    }
}

/// How two tensors of one name differ.
#[derive(Debug, PartialEq)]
enum Difference {
    Type([DataType; 2]),
    Shape([Vec<usize>; 2]),
    Values(Values),
}

/// How the values of two tensors differ.
#[derive(Clone, Debug, Default, PartialEq)]
struct Values {
    /// The number of elements that differ.
    count: usize,
    /// The number of all elements.
    of: usize,
    /// The first element that differs, in row-major order.
    first: usize,
    /// The largest difference, and the largest in relation to the larger of both numbers; `None` if no two
    /// numbers differ by a number (strings, NaN).
    most: Option<[f64; 2]>,
}

/// What two models differ in.
struct Compared {
    only: [Vec<String>; 2],
    different: Vec<(String, Difference)>,
    same: usize,
}

impl Diff {
    pub(super) fn run(&self, how: How) -> anyhow::Result<ExitCode> {
        let models = [Model::open(&self.one)?, Model::open(&self.other)?];
        let compared = how.watched(|progress| self.compare(&models, progress))?;
        let Compared { only, different, .. } = &compared;
        let is_same = different.is_empty() && only.iter().all(Vec::is_empty);
        if how.json { report_json(&compared) } else { report(&models, &compared) }?;
        Ok(exit::found(is_same))
    }

    fn compare(&self, models: &[Model; 2], progress: &Progress) -> anyhow::Result<Compared> {
        let mut names: BTreeMap<&str, [Option<usize>; 2]> = BTreeMap::new();
        for (which, model) in models.iter().enumerate() {
            for (place, info) in model.tensors().iter().enumerate() {
                names.entry(&info.name).or_default()[which] = Some(place);
            }
        }
        let mut only = [Vec::new(), Vec::new()];
        let mut both = Vec::new();
        for (name, places) in names {
            match places {
                [Some(one), Some(other)] => both.push((name, [one, other])),
                [Some(_), None] => only[0].push(name.to_owned()),
                _ => only[1].push(name.to_owned()),
            }
        }
        let [one, other] = models;
        let weights = both.iter().map(|(_, [place, _])| weight(&one.tensors()[*place]));
        progress.begin(weights.fold(0, u64::saturating_add));
        let found = map("model", 0, 0..both.len(), |number| {
            ConvertError::check(progress)?;
            let (_, [one_place, other_place]) = both[number];
            let infos = [&one.tensors()[one_place], &other.tensors()[other_place]];
            let difference = if infos[0].data_type != infos[1].data_type {
                Some(Difference::Type(infos.map(|info| info.data_type)))
            } else if infos[0].shape != infos[1].shape {
                Some(Difference::Shape(infos.map(|info| info.shape.clone())))
            } else {
                let (one, other) = (one.read(one_place)?, other.read(other_place)?);
                values(&one, &other, self.tolerance.unwrap_or(0.0)).map(Difference::Values)
            };
            progress.add_done(weight(infos[0]));
            anyhow::Ok(difference)
        });
        let mut compared = Compared { only, different: Vec::new(), same: 0 };
        for ((name, _), found) in both.iter().zip(found) {
            match found? {
                Some(difference) => compared.different.push(((*name).to_owned(), difference)),
                None => compared.same += 1,
            }
        }
        Ok(compared)
    }
}

/// Compares the elements of two tensors of one type and shape; `None` if they are equal.
fn values(one: &Tensor<'_>, other: &Tensor<'_>, tolerance: f64) -> Option<Values> {
    let mut values = Values::default();
    match (one.elements(), other.elements()) {
        (Elements::Bytes(first), Elements::Bytes(second)) => {
            let data_type = one.data_type();
            let size = data_type.size().unwrap_or(1);
            values.of = first.len() / size;
            if first == second {
                return None;
            }
            let pairs = first.chunks_exact(size).zip(second.chunks_exact(size)).enumerate();
            for (at, (first, second)) in pairs.filter(|(_, (first, second))| first != second) {
                let pair = value(data_type, first).zip(value(data_type, second));
                values.add(at, pair.and_then(|(first, second)| apart(first, second)), tolerance);
            }
        }
        (Elements::Strings(first), Elements::Strings(second)) => {
            values.of = first.len();
            let pairs = first.iter().zip(second).enumerate();
            for (at, _) in pairs.filter(|(_, (first, second))| first != second) {
                values.add(at, None, tolerance);
            }
        }
        _ => return None,
    }
    (values.count > 0).then_some(values)
}

impl Values {
    /// Counts an element whose bits differ, and how far its values are apart.
    fn add(&mut self, at: usize, apart: Option<[f64; 2]>, tolerance: f64) {
        if let Some([difference, larger]) = apart
            && tolerance > 0.0
            && difference.is_finite()
            && difference <= tolerance * larger.max(1.0)
        {
            return;
        }
        if self.count == 0 {
            self.first = at;
        }
        self.count += 1;
        if let Some([difference, larger]) = apart {
            let relative = if larger > 0.0 { difference / larger } else { 0.0 };
            let [absolute, most] = self.most.unwrap_or_default();
            self.most = Some([absolute.max(difference), most.max(relative)]);
        }
    }
}

/// How far two values are apart, and the absolute value of the larger one; `None` if no number says it.
#[expect(clippy::cast_precision_loss, reason = "differences are shown with a few digits")]
fn apart(one: Value, other: Value) -> Option<[f64; 2]> {
    let of = |one: f64, other: f64| {
        let difference = if one == other { 0.0 } else { (one - other).abs() };
        (!difference.is_nan()).then_some([difference, one.abs().max(other.abs())])
    };
    match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => {
            Some([one.abs_diff(other) as f64, one.unsigned_abs().max(other.unsigned_abs()) as f64])
        }
        (Value::Single(one), Value::Single(other)) => of(one.into(), other.into()),
        (Value::Double(one), Value::Double(other)) => of(one, other),
        (Value::ComplexSingle(one), Value::ComplexSingle(other)) => {
            complex(one.map(f64::from), other.map(f64::from))
        }
        (Value::ComplexDouble(one), Value::ComplexDouble(other)) => complex(one, other),
        _ => None,
    }
}

fn complex(one: [f64; 2], other: [f64; 2]) -> Option<[f64; 2]> {
    let length = |[real, imaginary]: [f64; 2]| real.hypot(imaginary);
    let difference = length([one[0] - other[0], one[1] - other[1]]);
    (!difference.is_nan()).then(|| [difference, length(one).max(length(other))])
}

fn report(models: &[Model; 2], compared: &Compared) -> anyhow::Result<()> {
    let mut out = stdout();
    for (model, only) in models.iter().zip(&compared.only) {
        for name in only {
            writeln!(out, "{}: only in {}", printable(name), shown::path(model.path()))?;
        }
    }
    for (name, difference) in &compared.different {
        let name = printable(name);
        match difference {
            Difference::Type([one, other]) => writeln!(out, "{name}: {one}, and {other}")?,
            Difference::Shape([one, other]) => writeln!(out, "{name}: {}, and {}", shape(one), shape(other))?,
            Difference::Values(Values { count, of, first, most }) => {
                write!(out, "{name}: {count} of {of} elements differ, the first at {first}")?;
                match most {
                    Some([absolute, relative]) => {
                        writeln!(out, "; by {absolute:?} at most, relatively by {relative:?}")?;
                    }
                    None => writeln!(out)?,
                }
            }
        }
    }
    let (same, different) = (compared.same, compared.different.len());
    let [one, other] = compared.only.each_ref().map(Vec::len);
    writeln!(
        out,
        "{same} equal, {different} different, {one} only in the first, {other} only in the second"
    )?;
    out.finish()
}

fn report_json(compared: &Compared) -> anyhow::Result<()> {
    let finite = |number: f64| if number.is_finite() { json!(number) } else { json!(number.to_string()) };
    let different: Vec<Json> = compared
        .different
        .iter()
        .map(|(name, difference)| match difference {
            Difference::Type(types) => json!({ "name": name, "dtypes": types.map(DataType::name) }),
            Difference::Shape(shapes) => json!({ "name": name, "shapes": shapes }),
            Difference::Values(Values { count, of, first, most }) => json!({
                "name": name,
                "count": count,
                "of": of,
                "first": first,
                "max_absolute": most.map(|[absolute, _]| finite(absolute)),
                "max_relative": most.map(|[_, relative]| finite(relative)),
            }),
        })
        .collect();
    let [one, other] = &compared.only;
    stdout().json(
        "percolator.model.diff/1",
        &json!({
            "equal": compared.same, "different": different, "only_in_first": one, "only_in_second": other,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[f32]) -> Tensor<'static> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Tensor::new(DataType::Float32, [numbers.len()], bytes).unwrap()
    }

    #[test]
    fn values_differ_by_their_bits_or_by_more_than_is_tolerated() {
        let one = of(&[1.0, f32::NAN, 0.0, 100.0]);
        assert_eq!(values(&one, &one, 0.0), None);
        let other = of(&[1.5, f32::NAN, -0.0, 100.5]);
        let found = values(&one, &other, 0.0).unwrap();
        assert_eq!(found, Values { count: 3, of: 4, first: 0, most: Some([0.5, 0.5 / 1.5]) });
        let found = values(&one, &other, 0.1).unwrap();
        assert_eq!((found.count, found.first), (1, 0), "a half is tolerated of a hundred");
        assert_eq!(values(&one, &other, 0.5), None);
        let found = values(&of(&[f32::NAN, f32::INFINITY]), &of(&[1.0, 1.0]), 0.5).unwrap();
        assert_eq!((found.count, found.most.map(|[most, _]| most)), (2, Some(f64::INFINITY)));
        let infinite = of(&[f32::INFINITY, f32::NEG_INFINITY]);
        let found = values(&infinite, &of(&[f32::NEG_INFINITY, 1.0]), 1e300).unwrap();
        assert_eq!(found.count, 2, "no tolerance makes an infinity another number");
    }

    #[test]
    fn strings_and_large_numbers_differ() {
        let [one, other] =
            [&[&b"a"[..], b"b"], &[&b"a"[..], b"c"]].map(|strings| Tensor::strings([2], *strings).unwrap());
        assert_eq!(values(&one, &other, 1.0), Some(Values { count: 1, of: 2, first: 1, most: None }));
        let large = |number: i64| Tensor::new(DataType::Int64, [], number.to_le_bytes().to_vec()).unwrap();
        let found = values(&large(i64::MAX), &large(i64::MAX - 1), 0.0).unwrap();
        assert_eq!(found.most.map(|[most, _]| most), Some(1.0));
        assert_eq!(values(&large(i64::MIN), &large(i64::MAX), 0.0).unwrap().count, 1);
    }
}
