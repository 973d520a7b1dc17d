//! Whether a feed gives what a signature takes, before the first batch.

mod fault;

use std::collections::BTreeSet;

use percolator::bad::BadAction;
use percolator::batch::FieldKind;
use percolator::feed::{FeedSpec, ResolvedFeed};
use percolator::order::{Assignment, LastBatch, Plan};
use percolator::{Dtype, Feed, Field, Layout};

pub use self::fault::SignatureMismatch;
use self::fault::{layout_remedy, listed, of_pair, shown_name};

use crate::DataType;
use crate::graph::{Encoding, Shape, Signature, SignatureTensor};

/// Checks feeds against signatures.
///
/// ```no_run
/// use percolator::Feed;
/// use percolator_tensorflow::{CheckSignature as _, SavedModel};
///
/// let model = SavedModel::open("model")?;
/// let signature = model.meta_graph(&["serve"])?.signature("serving_default")?;
/// let feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).build()?;
/// feed.check_signature(&signature, &[("x", "data")])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait CheckSignature {
    /// Checks that each input of a signature is fed by a field that fits it: pairs of an input and a field.
    /// Fields that feed nothing are fine. A padded or ragged field `tokens` also gives the arrays
    /// `tokens.lengths` and `tokens.offsets`. Nothing is read.
    ///
    /// # Errors
    ///
    /// [`SignatureMismatch`] with all that does not fit.
    fn check_signature(
        &self,
        signature: &Signature<'_>,
        inputs: &[(&str, &str)],
    ) -> Result<(), SignatureMismatch>;
}

impl CheckSignature for Feed {
    fn check_signature(
        &self,
        signature: &Signature<'_>,
        inputs: &[(&str, &str)],
    ) -> Result<(), SignatureMismatch> {
        let (fields, rows) = (self.layout().fields(), self.layout().rows());
        let short = other_rows(self.spec(), self.plan(), self.records(), rows);
        check(&Batches { fields, rows, short }, signature, inputs)
    }
}

impl CheckSignature for ResolvedFeed {
    fn check_signature(
        &self,
        signature: &Signature<'_>,
        inputs: &[(&str, &str)],
    ) -> Result<(), SignatureMismatch> {
        let (fields, rows) = (self.layout().fields(), self.layout().rows());
        let short = other_rows(self.spec(), self.plan(), self.source().records(), rows);
        check(&Batches { fields, rows, short }, signature, inputs)
    }
}

/// What a feed's batches are.
struct Batches<'a> {
    fields: &'a [Field],
    /// The records of a full batch.
    rows: usize,
    /// Whether other batches are not full, and what one of them has, if it is known.
    short: Option<Option<u64>>,
}

/// One array of a batch.
#[derive(Clone)]
struct Given<'a> {
    name: &'a str,
    /// The type of its elements, if TensorFlow has one for it.
    data_type: Option<DataType>,
    /// The extents of a batch; `None` is any.
    extents: Vec<Option<u64>>,
    /// How many more than the records its first extent is; `None` if that has nothing to do with them.
    more_than_records: Option<u64>,
    /// The order of its axes, if it is an image.
    layout: Option<Layout>,
    /// The most elements of a record, if it is ragged.
    ragged_max: Option<usize>,
}

fn check(
    batches: &Batches<'_>,
    signature: &Signature<'_>,
    inputs: &[(&str, &str)],
) -> Result<(), SignatureMismatch> {
    let mut faults = Vec::new();
    let mut fed = BTreeSet::new();
    for &(input_name, field) in inputs {
        let Some(input) = signature.input(input_name) else {
            let there = listed(signature.inputs().iter().map(SignatureTensor::name));
            faults.push(format!("the signature has no input {}: there are {there}", shown_name(input_name)));
            continue;
        };
        if !fed.insert(input_name) {
            faults.push(format!("input {} is fed by two fields: name one", shown_name(input_name)));
        }
        match batches.array(field) {
            Some(given) => batches.check_input(input, &given, &mut faults),
            None => {
                let (input, field, there) = (shown_name(input_name), shown_name(field), batches.names());
                let there = listed(there.iter().map(String::as_str));
                faults.push(format!("input {input}: the feed has no field {field}: there are {there}"));
            }
        }
    }
    for input in signature.inputs() {
        if !fed.contains(input.name()) && signature.default_of(input.name()).is_none() {
            faults.push(format!("no field feeds input {}", shown_name(&input.to_string())));
        }
    }
    let signature = signature.name().to_owned();
    if faults.is_empty() { Ok(()) } else { Err(SignatureMismatch { signature, faults }) }
}

impl<'a> Batches<'a> {
    fn names(&self) -> Vec<String> {
        let second = |field: &Field| match field.kind() {
            FieldKind::Padded { .. } => Some(format!("{}.lengths", field.name())),
            FieldKind::Ragged { .. } => Some(format!("{}.offsets", field.name())),
            _ => None,
        };
        let names = self.fields.iter().map(|field| [Some(field.name().to_owned()), second(field)]);
        names.flatten().flatten().collect()
    }

    /// One of the arrays of a batch, by its name.
    fn array(&self, name: &'a str) -> Option<Given<'a>> {
        if let Some(field) = self.fields.iter().find(|field| field.name() == name) {
            return Some(given(name, field, self.rows as u64));
        }
        let (front, second) = name.rsplit_once('.')?;
        let field = self.fields.iter().find(|field| field.name() == front)?;
        match (field.kind(), second) {
            (FieldKind::Padded { .. }, "lengths") => Some(self.counts(name, 0)),
            (FieldKind::Ragged { .. }, "offsets") => Some(self.counts(name, 1)),
            _ => None,
        }
    }

    /// An array of so many more numbers than records.
    fn counts<'b>(&self, name: &'b str, more: u64) -> Given<'b> {
        Given {
            name,
            data_type: Some(DataType::Int64),
            extents: vec![Some((self.rows as u64).saturating_add(more))],
            more_than_records: Some(more),
            layout: None,
            ragged_max: None,
        }
    }

    fn check_input(&self, input: &SignatureTensor<'_>, given: &Given<'_>, faults: &mut Vec<String>) {
        let (name, field) = (input.name(), given.name);
        let is_not_dense = || {
            let (input, field) = (shown_name(&input.to_string()), shown_name(field));
            format!(
                "input {input} is not one array, as field {field} is: only a ragged field feeds a ragged \
                 input, and no field a sparse one"
            )
        };
        match input.encoding() {
            Encoding::Composite { type_name, components }
                if type_name.contains("Ragged") && given.ragged_max.is_some() =>
            {
                // Its parts are the values and, for each ragged axis, the offsets.
                if let [values, splits] = &**components {
                    let offsets = format!("{field}.offsets");
                    self.check_array(name, values, &Given { ragged_max: None, ..given.clone() }, faults);
                    self.check_array(name, splits, &self.counts(&offsets, 1), faults);
                } else {
                    faults.push(is_not_dense());
                }
            }
            Encoding::Dense(_) => self.check_array(name, input, given, faults),
            _ => faults.push(is_not_dense()),
        }
    }

    /// Checks one array of the input of this name.
    fn check_array(
        &self,
        name: &str,
        input: &SignatureTensor<'_>,
        given: &Given<'_>,
        faults: &mut Vec<String>,
    ) {
        faults.extend(type_fault(input, given).map(|fault| of_pair(name, given.name, &fault)));
        if let Shape::Known(wanted) = input.shape() {
            self.check_shape(name, wanted, given, faults);
        }
    }

    fn check_shape(&self, input: &str, wanted: &[Option<u64>], given: &Given<'_>, faults: &mut Vec<String>) {
        let mut fault = |fault: String| faults.push(of_pair(input, given.name, &fault));
        let shape = |extents: &[Option<u64>]| Shape::Known(extents.to_vec());
        let (takes, is) = (shape(wanted), shape(&given.extents));
        if let Some(max) = given.ragged_max
            && !matches!(wanted, [None])
        {
            return fault(format!(
                "it takes {takes}, and the field is ragged, an array [?] of all records' elements: pad it to \
                 {max} elements a record"
            ));
        }
        if wanted.len() != given.extents.len() {
            let is_one_record = given.more_than_records == Some(0) && given.extents.get(1..) == Some(wanted);
            let hint = match () {
                () if is_one_record => ": the input takes one record, without a batch axis",
                () if wanted.len() == given.extents.len() + 1 && wanted.last() == Some(&Some(1)) => {
                    ": make the field an array of one element, `[1]`"
                }
                () => "",
            };
            let axes = if wanted.len() > given.extents.len() { "fewer" } else { "more" };
            return fault(format!("it takes {takes}, and a batch is {is}, with {axes} axes{hint}"));
        }
        let first_own = usize::from(given.more_than_records.is_some());
        let wrong = |extents: &[Option<u64>]| -> Vec<usize> {
            (first_own..wanted.len()).filter(|&axis| !fits(wanted[axis], extents[axis])).collect()
        };
        let (mut extents, mut differ) = (given.extents.clone(), wrong(&given.extents));
        if let Some(layout) = other_layout(wanted, given).filter(|_| !differ.is_empty()) {
            let other = if layout == Layout::Nhwc { Layout::Nchw } else { Layout::Nhwc };
            let remedy = layout_remedy(layout, given.layout.is_some());
            fault(format!("it takes {layout}, {takes}, and a batch is {other}, {is}: {remedy}"));
            // What still differs in the right order.
            match layout {
                Layout::Nhwc => extents[1..].rotate_left(1),
                Layout::Nchw => extents[1..].rotate_right(1),
            }
            differ = wrong(&extents);
        }
        let is = shape(&extents);
        for axis in differ {
            fault(format!("it takes {takes}, and a batch is {is}: axis {axis} differs"));
        }
        let (Some(Some(wanted)), Some(more)) = (wanted.first().copied(), given.more_than_records) else {
            return;
        };
        let (wanted, rows) = (wanted.saturating_sub(more), self.rows as u64);
        if wanted != rows {
            fault(format!(
                "it takes batches of {wanted}, and the feed gives {rows}: set .batch_size({wanted}), or \
                 export the model with a free batch dimension"
            ));
        } else if let Some(found) = self.short {
            let short = found.map_or_else(
                || "the last batch may be short".to_owned(),
                |found| format!("some batches have {found} records"),
            );
            fault(format!(
                "it takes batches of {wanted}, and {short}: set .last_batch(LastBatch::Drop) or \
                 LastBatch::Pad, which need .epochs(n), on the feed"
            ));
        }
    }
}

fn fits(wanted: Option<u64>, given: Option<u64>) -> bool {
    wanted.is_none() || wanted == given
}

/// The layout that the input seems to have, if the field's extents, or an image's channels, fit it in another
/// order only.
fn other_layout(wanted: &[Option<u64>], given: &Given<'_>) -> Option<Layout> {
    let ([_, one, two, three], [_, a, b, c]) = (wanted, &*given.extents) else { return None };
    let are = |a, b, c| fits(*one, a) && fits(*two, b) && fits(*three, c);
    // From channels first, and from channels last.
    let are_channels =
        |other: Option<u64>, own, channels| other.is_some() && fits(other, channels) && !fits(own, channels);
    match given.layout {
        Some(Layout::Nchw) if are_channels(*three, *one, *a) => Some(Layout::Nhwc),
        Some(Layout::Nhwc) if are_channels(*one, *three, *c) => Some(Layout::Nchw),
        Some(Layout::Nchw) | None if are(*b, *c, *a) => Some(Layout::Nhwc),
        Some(Layout::Nhwc) | None if are(*c, *a, *b) => Some(Layout::Nchw),
        _ => None,
    }
}

/// The array of a field's elements.
fn given<'a>(name: &'a str, field: &Field, rows: u64) -> Given<'a> {
    let records = |own: &[usize]| {
        let own = own.iter().map(|&extent| Some(extent as u64));
        std::iter::once(Some(rows)).chain(own).collect::<Vec<_>>()
    };
    let (mut dtype, mut layout) = (field.dtype(), field.layout());
    let (mut extents, ragged_max) = match field.kind() {
        FieldKind::Padded { max, .. } => (records(&[max]), None),
        FieldKind::Ragged { max } => (vec![None], Some(max)),
        FieldKind::Fixed(extents) => (records(&extents), None),
        _ => (vec![None], None),
    };
    if let Some(made) = field.made_on_device() {
        (dtype, layout) = (made.dtype, Some(made.layout));
        let image = made.image;
        extents = match made.layout {
            Layout::Nchw => records(&[image.channels, image.height, image.width]),
            Layout::Nhwc => records(&[image.height, image.width, image.channels]),
        };
    }
    let (data_type, more_than_records) = (data_type(dtype), ragged_max.is_none().then_some(0));
    Given { name, data_type, extents, more_than_records, layout, ragged_max }
}

/// TensorFlow's type for a field's elements; `None` of a type that is not known here.
fn data_type(dtype: Dtype) -> Option<DataType> {
    Some(match dtype {
        Dtype::F32 => DataType::Float32,
        Dtype::U8 => DataType::Uint8,
        Dtype::F16 => DataType::Float16,
        Dtype::Bf16 => DataType::Bfloat16,
        Dtype::F64 => DataType::Float64,
        Dtype::I8 => DataType::Int8,
        Dtype::I16 => DataType::Int16,
        Dtype::I32 => DataType::Int32,
        Dtype::I64 => DataType::Int64,
        Dtype::U16 => DataType::Uint16,
        Dtype::U32 => DataType::Uint32,
        Dtype::U64 => DataType::Uint64,
        Dtype::Bool => DataType::Bool,
        // The library may have more types than it had.
        _ => return None,
    })
}

/// What is wrong with the type of a field's elements.
fn type_fault(input: &SignatureTensor<'_>, given: &Given<'_>) -> Option<String> {
    let wanted = input.data_type();
    let Some(found) = given.data_type else {
        let fault = "the field is of a type that TensorFlow is not known to have: describe the field with \
                     the input's type";
        return Some(fault.to_owned());
    };
    if wanted == Some(found) {
        return None;
    }
    if wanted == Some(DataType::String) {
        let fault = "it takes strings, and a feed gives numbers: export the model with an input of what the \
                     strings decode to";
        return Some(fault.to_owned());
    }
    let images = [
        (DataType::Float32, "F32"),
        (DataType::Uint8, "U8"),
        (DataType::Float16, "F16"),
        (DataType::Bfloat16, "Bf16"),
    ];
    let of_images = images.into_iter().find(|(one, _)| Some(*one) == wanted);
    let remedy = match (of_images, given.name) {
        (Some((_, dtype)), _) if given.layout.is_some() => format!("set .dtype(Dtype::{dtype}) on the feed"),
        (None, "label") if wanted == Some(DataType::Int64) => {
            "set .labels_i64(true) on the feed, and name the field label_i64".to_owned()
        }
        (Some((DataType::Float32, _)), "label") => "name the field label_f32".to_owned(),
        _ => "describe the field with the input's type, or convert the batch".to_owned(),
    };
    let wanted = wanted.map_or("a type that is not known", DataType::name);
    Some(format!("it takes {wanted}, and the field is {found}: {remedy}"))
}

/// Whether some batches have other than `rows` records, and how many, if that is known before any is read.
fn other_rows(
    spec: &FeedSpec,
    plan: Option<&Plan>,
    records: Option<u64>,
    rows: usize,
) -> Option<Option<u64>> {
    let (rows, schedule) = (rows as u64, &spec.schedule);
    // A batch with bad records may be shorter; which one is not known.
    if spec.bad_records.action != BadAction::Fail && schedule.last_batch != Some(LastBatch::Pad) {
        return Some(None);
    }
    let Some(plan) = plan else {
        // In round-robin order only the end of a single pass is short.
        if !schedule.once {
            return None;
        }
        let lanes = schedule.ranks.map_or(spec.devices.len(), |ranks| ranks.of) as u64;
        let left = records.and_then(|records| records.checked_rem(rows.saturating_mul(lanes)));
        return match left {
            Some(0) => None,
            Some(left) if lanes == 1 => Some(Some(left)),
            _ => Some(None),
        };
    };
    let kept = match schedule.assignment {
        Some(Assignment::Caffe) => LastBatch::Wrap,
        _ => LastBatch::Keep,
    };
    if schedule.last_batch.unwrap_or(kept) == LastBatch::Pad {
        return None;
    }
    // All steps but the last are alike.
    let steps = plan.steps(0).unwrap_or_default();
    let shares = [0, steps.saturating_sub(1)].into_iter().flat_map(|step| {
        let replicas = 0..plan.world().replicas();
        replicas.filter_map(move |replica| Some(plan.share(0, step, replica).ok()?.len() as u64))
    });
    shares.filter(|share| *share != rows).min().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_a_field_is_one_of_tensorflows() {
        use Dtype as D;
        let types = [D::F32, D::F64, D::F16, D::Bf16, D::I8, D::I16, D::I32, D::I64];
        for dtype in types.into_iter().chain([D::U8, D::U16, D::U32, D::U64, D::Bool]) {
            let found = data_type(dtype).unwrap();
            assert_eq!(found.size(), Some(dtype.size()), "{dtype:?}");
            let name = format!("{found:?}").to_lowercase().replace("uint", "u").replace("int", "i");
            let name = name.replace("bfloat", "bf").replace("float", "f");
            assert_eq!(name, format!("{dtype:?}").to_lowercase());
        }
    }

    #[test]
    fn a_type_that_is_not_known_is_a_fault() {
        let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/module");
        let model = crate::SavedModel::open(data).unwrap();
        let signatures = model.meta_graphs()[0].signatures().unwrap();
        let input = signatures.iter().find_map(|signature| signature.inputs().first()).unwrap();
        let (extents, layout) = (Vec::new(), None);
        let given =
            Given { name: "f", data_type: None, extents, more_than_records: None, layout, ragged_max: None };
        let fault = type_fault(input, &given).unwrap();
        assert!(
            fault.starts_with("the field is of a type that TensorFlow is not known to have: "),
            "{fault}"
        );
    }
}
