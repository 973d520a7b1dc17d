//! TensorFlow's record: a `tf.train.Example`, whose features become the fields of a batch.
//!
//! It does the same as `tf.io.parse_single_example`, and writes the result directly into the row:
//!
//! | here | in TensorFlow |
//! |---|---|
//! | a field of a fixed shape | `FixedLenFeature`, with a default or without |
//! | a padded or ragged field | `RaggedFeature` or `VarLenFeature`, with a maximum length |
//! | bytes | a string feature, or `decode_raw` of one |
//!
//! ```text
//! fields     which features become which fields                  as text: grammar
//! lookup     where each of these features is in a record
//! parse      a feature's list -> the record's row
//! image      a feature that is an image, with its label          front of the image decoder
//! ```

mod fields;
mod grammar;
mod image;
mod lookup;
mod parse;

pub(super) use self::fields::{Elements, Missing};
pub use self::fields::{ExampleField, ExampleFields, ExampleFieldsError};
pub use self::grammar::GrammarError;
pub(crate) use self::image::ExampleFront;
pub use self::image::{ExampleImage, ImageShapeFrom};
pub(crate) use self::lookup::Found;
pub(crate) use self::parse::FeatureFields;

use self::lookup::Lookup;
use super::{Decoded, RecordDecoder, WorkerSetup};
use crate::batch::Row;
use crate::batch::fault::RecordCause;
use crate::batch::field::Field;
use crate::source::Record;
use percolator_messages::Value;

/// What becomes of records that are Examples. Fields alone, or an image alone, become this by [`From`].
///
/// ```
/// use percolator::Feed;
/// use percolator::example::{ExampleImage, Examples};
///
/// let image = ExampleImage::encoded("image/encoded").label("image/class/label");
/// let fields = "image/class/text as name:bytes".parse()?;
/// let feed = Feed::builder().example(Examples { fields, image: Some(image) });
/// # Ok::<(), percolator::example::GrammarError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examples {
    /// Which features become which fields.
    pub fields: ExampleFields,
    /// The feature that is an image, if there is one. Its fields come first in a batch.
    pub image: Option<ExampleImage>,
}

impl From<ExampleFields> for Examples {
    fn from(fields: ExampleFields) -> Self {
        Examples { fields, image: None }
    }
}

impl From<ExampleImage> for Examples {
    fn from(image: ExampleImage) -> Self {
        Examples { fields: ExampleFields::new(), image: Some(image) }
    }
}

/// Decodes Examples that hold no image.
#[derive(Debug)]
pub(crate) struct ExampleDecoder {
    lookup: Lookup,
    fields: FeatureFields,
}

impl ExampleDecoder {
    pub(crate) fn new(fields: &ExampleFields) -> Self {
        let mut lookup = Lookup::default();
        let fields = FeatureFields::new(fields, &mut lookup);
        ExampleDecoder { lookup, fields }
    }
}

impl RecordDecoder for ExampleDecoder {
    type Scratch = Found;

    /// A feature that the first record lacks is most likely misspelt: it is found before anything runs.
    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        let mut found = self.lookup.scratch();
        let check = |found: &mut Found| -> Result<(), RecordCause> {
            self.lookup.find(first.value, found)?;
            self.fields.check(first.value, found)
        };
        check(&mut found).map_err(|cause| RecordCause::instead(Value::Example, first.value, cause))?;
        Ok(self.fields.fields().collect())
    }

    fn may_reshape(&self) -> bool {
        false
    }

    fn scratch(&self, _setup: WorkerSetup) -> Found {
        self.lookup.scratch()
    }

    #[inline]
    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, found: &mut Found) -> Decoded {
        self.lookup.find(record.value, found)?;
        Ok(self.fields.write(record.value, found, row, 0)?)
    }
}
