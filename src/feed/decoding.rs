//! The decoder of a feed's records, if they are not Caffe's image records.

use std::fmt;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::spec::DecoderSpec;
use crate::base::shape::{Dtype, Layout};
use crate::batch::Row;
use crate::batch::field::Field;
use crate::decoder::example::{ExampleDecoder, ExampleFieldsError, Examples};
use crate::decoder::{Closure, Decoded, ErasedDecoder, RecordDecoder};
use crate::source::Record;
use crate::transform::{Transform, TransformPlace};
use percolator_files::caller::words;

/// The decoder options. If none is set, records are Caffe's image records.
#[derive(Clone, Default)]
pub(super) struct Decoding {
    decoder: Option<Arc<dyn ErasedDecoder>>,
    /// The first option that said how records are decoded.
    first: Option<&'static str>,
    /// The first one after it that is another: it would have dropped it.
    other: Option<&'static str>,
}

impl fmt::Debug for Decoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoding")
            .field("first", &self.first)
            .field("other", &self.other)
            .finish_non_exhaustive()
    }
}

impl FeedBuilder {
    /// Sets what turns records into rows of batches, instead of Caffe's image record: a caller-implemented
    /// decoder, [`RawBytes`](crate::RawBytes) or [`Tokens`](crate::Tokens). The options for images
    /// (transform, target, dtype, layout) are then refused.
    pub fn decoder(self, decoder: impl RecordDecoder) -> Self {
        self.attach(".decoder(...)", decoder)
    }

    /// Decodes records with a closure, which writes each of these fields of a record. It runs on the workers,
    /// on many records at a time, so its result must depend on the record only.
    ///
    /// ```
    /// use percolator::{DecodeFailure, Dtype, Feed, Field};
    ///
    /// let fields = [Field::new("image", Dtype::U8, [3, 32, 32]), Field::ragged("tokens", Dtype::I32, 64)];
    /// let feed = Feed::builder().lmdb("poses").decode(fields, |record, row| {
    ///     let (image, tokens) = record
    ///         .value
    ///         .split_at_checked(3 * 32 * 32)
    ///         .ok_or_else(|| DecodeFailure::new(format!("no image in {} bytes", record.value.len())))?;
    ///     row.write("image", image)?;
    ///     let tokens: Vec<i32> = tokens.iter().map(|&token| token.into()).collect();
    ///     row.write("tokens", &tokens)?;
    ///     Ok(())
    /// });
    /// ```
    pub fn decode(
        self,
        fields: impl IntoIterator<Item = Field>,
        decode: impl Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
    ) -> Self {
        self.attach(".decode(...)", Closure::new(fields.into_iter().collect(), decode))
    }

    /// Reads records as TensorFlow's, each a `tf.train.Example`: [fields](crate::example::ExampleFields) made
    /// of its features, an [image](crate::example::ExampleImage), or [both](crate::example::Examples).
    ///
    /// The image is decoded and transformed as Caffe's image records are, and the fields follow in the batch.
    /// Without one, the options for images (transform, target, dtype, layout) are refused. A later call
    /// replaces an earlier one.
    ///
    /// ```
    /// use percolator::Feed;
    /// use percolator::example::ExampleFields;
    ///
    /// let fields: ExampleFields = "input:i64[128],label:i64,name:bytes,ragged:i64[<=8]=-1".parse()?;
    /// let feed = Feed::builder().lmdb("examples").batch_size(64).example(fields);
    /// # Ok::<(), percolator::example::GrammarError>(())
    /// ```
    pub fn example(self, examples: impl Into<Examples>) -> Self {
        let mut this = self.decodes(".example(...)");
        let Examples { fields, image } = examples.into();
        this.spec.decoder = DecoderSpec::Example { fields, image };
        this
    }

    fn attach(self, option: &'static str, decoder: impl RecordDecoder) -> Self {
        let mut this = self.decodes(option);
        this.spec.decoder = DecoderSpec::Attached;
        this.attached.decoding.decoder = Some(Arc::new(decoder));
        this
    }

    /// Notes an option that says how records are decoded. One of another kind would drop it, so the two
    /// together are an error of the build.
    fn decodes(mut self, option: &'static str) -> Self {
        let Decoding { first, other, .. } = &mut self.attached.decoding;
        if *first.get_or_insert(option) != option {
            other.get_or_insert(option);
        }
        self
    }

    /// The decoder, or `None` for images. Refuses image options beside a decoder.
    pub(super) fn attached_decoder(&self) -> Result<Option<Arc<dyn ErasedDecoder>>, ConfigError> {
        let spec = &self.spec;
        let Decoding { decoder, first, other } = &self.attached.decoding;
        if let (&Some(one), &Some(other)) = (first, other) {
            return Err(ConfigError::TwoDecoders { one, other });
        }
        let mut decoder = decoder.clone();
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
            ("after_decode", self.attached.own_steps.of_images.is_some()),
            ("views", !spec.views.is_empty()),
            ("transform_on", spec.transform_on != TransformPlace::Host),
            ("target", spec.target.is_some()),
            ("dtype", spec.dtype != Dtype::F32),
            ("layout", spec.layout != Layout::Nchw),
            ("labels_i64", spec.labels_i64),
            ("soft_labels", spec.soft_labels.is_some()),
            ("mixing", spec.mixing.is_some()),
        ] {
            if is_set {
                return Err(ConfigError::ImageOption { option });
            }
        }
        Ok(decoder)
    }
}
