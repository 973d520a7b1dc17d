//! The decoder of a feed's records, if they are not Caffe's image records.

use std::fmt;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::spec::DecoderSpec;
use crate::base::shape::{Dtype, Layout};
use crate::batch::Row;
use crate::batch::field::Field;
use crate::decoder::example::{ExampleDecoder, ExampleFields, ExampleFieldsError, ExampleImage};
use crate::decoder::{Closure, Decoded, ErasedDecoder, RecordDecoder};
use crate::source::Record;
use crate::transform::{Transform, TransformPlace};
use percolator_files::caller::words;

/// A decoder's closure.
type DecodeFn = dyn Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync;

/// The decoder options. If none is set, records are Caffe's image records.
#[derive(Clone, Default)]
pub(super) struct Decoding {
    decoder: Option<Arc<dyn ErasedDecoder>>,
    fields: Option<Vec<Field>>,
    closure: Option<Arc<DecodeFn>>,
    /// The first option that said how records are decoded.
    first: Option<DecoderOption>,
}

/// An option that says how records are decoded, as messages name it. Options of one kind go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecoderOption {
    Decoder,
    Fields(&'static str),
    Example(&'static str),
}

impl DecoderOption {
    fn name(self) -> &'static str {
        match self {
            DecoderOption::Decoder => words(".decoder(...)", "a decoder", "decode"),
            DecoderOption::Fields(name) | DecoderOption::Example(name) => name,
        }
    }

    fn goes_with(self, other: DecoderOption) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Decoding { decoder: Some(_), .. } => "of its own",
            Decoding { fields: None, closure: None, .. } => "of image records",
            _ => "of fields and a closure",
        };
        f.debug_struct("Decoding").field("decoder", &kind).field("fields", &self.fields).finish()
    }
}

impl Decoding {
    /// The decoder, unless records are Caffe's image records.
    pub(super) fn decoder(&self) -> Result<Option<Arc<dyn ErasedDecoder>>, ConfigError> {
        let half = |given, missing| Err(ConfigError::IncompleteDecoder { given, missing });
        match (&self.decoder, &self.fields, &self.closure) {
            (Some(decoder), ..) => Ok(Some(decoder.clone())),
            (None, None, None) => Ok(None),
            (None, Some(fields), Some(closure)) => {
                let closure = closure.clone();
                let decode = move |record: &Record<'_>, row: &mut Row<'_>| closure(record, row);
                Ok(Some(Arc::new(Closure::new(fields.clone(), decode))))
            }
            (None, Some(_), None) => half("fields", "decode"),
            (None, None, Some(_)) => half("decode", "fields"),
        }
    }
}

impl FeedBuilder {
    /// Sets what turns records into rows of batches, instead of Caffe's image record: a caller-implemented
    /// decoder, [`RawBytes`](crate::RawBytes) or [`Tokens`](crate::Tokens). The options for images
    /// (transform, target, dtype, layout) are then refused.
    pub fn decoder(self, decoder: impl RecordDecoder) -> Self {
        let mut this = self.decodes(DecoderOption::Decoder);
        this.spec.decoder = DecoderSpec::Attached;
        this.attached.decoding.decoder = Some(Arc::new(decoder));
        this
    }

    /// Sets the fields of a batch, for [`decode`](Self::decode) to write.
    pub fn fields(self, fields: impl IntoIterator<Item = Field>) -> Self {
        let mut this = self.decodes(DecoderOption::Fields(".fields(...)"));
        this.spec.decoder = DecoderSpec::Attached;
        this.attached.decoding.fields = Some(fields.into_iter().collect());
        this
    }

    /// Decodes records with a closure, which writes each of the declared [fields](Self::fields) of a record.
    /// It runs on the workers, on many records at a time, so its result must depend on the record only.
    ///
    /// ```
    /// use percolator::{DecodeFailure, Dtype, Feed, Field};
    ///
    /// let feed = Feed::builder()
    ///     .lmdb("poses")
    ///     .fields([Field::new("image", Dtype::U8, [3, 32, 32]), Field::ragged("tokens", Dtype::I32, 64)])
    ///     .decode(|record, row| {
    ///         let (image, tokens) = record
    ///             .value
    ///             .split_at_checked(3 * 32 * 32)
    ///             .ok_or_else(|| DecodeFailure::new(format!("no image in {} bytes", record.value.len())))?;
    ///         row.write("image", image)?;
    ///         let tokens: Vec<i32> = tokens.iter().map(|&token| token.into()).collect();
    ///         row.write("tokens", &tokens)?;
    ///         Ok(())
    ///     });
    /// ```
    pub fn decode(
        self,
        decode: impl Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
    ) -> Self {
        let mut this = self.decodes(DecoderOption::Fields(".decode(...)"));
        this.spec.decoder = DecoderSpec::Attached;
        this.attached.decoding.closure = Some(Arc::new(decode));
        this
    }

    /// Adds a field `label_i64` to each batch of images: labels as i64, the type that loss functions of most
    /// frameworks take (default: off).
    pub fn labels_i64(mut self, has: bool) -> Self {
        self.spec.labels_i64 = has;
        self
    }

    /// Reads records as TensorFlow's, each a `tf.train.Example`, and makes these fields of their features. If
    /// they hold no [image](Self::example_image), the options for images (transform, target, dtype, layout)
    /// are refused.
    ///
    /// ```
    /// use percolator::Feed;
    ///
    /// let fields = "input:i64[128],label:i64,name:bytes,ragged:i64[<=8]=-1".parse()?;
    /// let feed = Feed::builder().lmdb("examples").batch_size(64).example(fields);
    /// # Ok::<(), percolator::example::GrammarError>(())
    /// ```
    pub fn example(self, fields: ExampleFields) -> Self {
        let mut this = self.decodes(DecoderOption::Example(words(".example(...)", "--fields", "fields")));
        let image = this.take_example().1;
        this.spec.decoder = DecoderSpec::Example { fields, image };
        this
    }

    /// Reads records as TensorFlow's, each a `tf.train.Example` that holds an image. It is decoded and
    /// transformed as Caffe's image records are; the fields of [other features](Self::example) follow in the
    /// batch.
    pub fn example_image(self, image: ExampleImage) -> Self {
        let mut this = self.decodes(DecoderOption::Example(words(".example_image(...)", "--image", "image")));
        let fields = this.take_example().0;
        this.spec.decoder = DecoderSpec::Example { fields, image: Some(image) };
        this
    }

    /// Notes an option that says how records are decoded. One of another kind would drop it, so the two
    /// together are an error of the build.
    fn decodes(mut self, option: DecoderOption) -> Self {
        let first = *self.attached.decoding.first.get_or_insert(option);
        if first.goes_with(option) {
            return self;
        }
        self.conflicts(ConfigError::TwoDecoders { one: first.name(), other: option.name() })
    }

    /// The fields and the image that were set for Examples.
    fn take_example(&mut self) -> (ExampleFields, Option<ExampleImage>) {
        match std::mem::take(&mut self.spec.decoder) {
            DecoderSpec::Example { fields, image } => (fields, image),
            DecoderSpec::Image | DecoderSpec::Attached => Default::default(),
        }
    }

    /// The decoder, or `None` for images. Refuses image options beside a decoder.
    pub(super) fn attached_decoder(&self) -> Result<Option<Arc<dyn ErasedDecoder>>, ConfigError> {
        let spec = &self.spec;
        let mut decoder = self.attached.decoding.decoder()?;
        match (&spec.decoder, &decoder) {
            (DecoderSpec::Image, _) => return Ok(None),
            (DecoderSpec::Example { fields, image }, _) => {
                fields.check()?;
                if image.is_some() {
                    return Ok(None);
                }
                if fields.fields().is_empty() {
                    return Err(ExampleFieldsError::None.into());
                }
                decoder = Some(Arc::new(ExampleDecoder::new(fields)));
            }
            (DecoderSpec::Attached, None) => {
                return Err(ConfigError::NotAttached {
                    what: "decoder",
                    name: None,
                    method: words(".decoder(...)", "a program", "decode=FUNCTION"),
                });
            }
            (DecoderSpec::Attached, Some(_)) => {}
        }
        for (option, is_set) in [
            ("transform", spec.transform != Transform::new()),
            ("scaled_decode", spec.scaled_decode.is_some()),
            ("transform_on", spec.transform_on != TransformPlace::Host),
            ("target", spec.target.is_some()),
            ("dtype", spec.dtype != Dtype::F32),
            ("layout", spec.layout != Layout::Nchw),
            ("labels_i64", spec.labels_i64),
        ] {
            if is_set {
                return Err(ConfigError::ImageOption { option });
            }
        }
        Ok(decoder)
    }
}
