//! What a feed's records are decoded by, where that is not Caffe's image record.

use std::fmt;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::spec::DecoderSpec;
use crate::base::shape::{Dtype, Layout};
use crate::batch::Row;
use crate::batch::field::Field;
use crate::config::ConfigError;
use crate::decoder::{Closure, Decoded, ErasedDecoder, RecordDecoder};
use crate::source::Record;
use crate::transform::{Transform, TransformPlace};

/// A decoder's closure.
type DecodeFn = dyn Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync;

/// What was said of how records are decoded. Nothing is Caffe's image record.
#[derive(Clone, Default)]
pub(super) struct Decoding {
    decoder: Option<Arc<dyn ErasedDecoder>>,
    fields: Option<Vec<Field>>,
    closure: Option<Arc<DecodeFn>>,
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
    /// The decoder, if it is another than that of image records.
    pub(super) fn decoder(&self) -> Result<Option<Arc<dyn ErasedDecoder>>, ConfigError> {
        let half = |said, missing| Err(ConfigError::HalfADecoder { said, missing });
        match (&self.decoder, &self.fields, &self.closure) {
            (Some(decoder), None, None) => Ok(Some(decoder.clone())),
            (None, None, None) => Ok(None),
            (None, Some(fields), Some(closure)) => {
                let closure = closure.clone();
                let decode = move |record: &Record<'_>, row: &mut Row<'_>| closure(record, row);
                Ok(Some(Arc::new(Closure::new(fields.clone(), decode))))
            }
            (Some(_), ..) => Err(ConfigError::TwoDecoders),
            (None, Some(_), None) => half("fields", "decode"),
            (None, None, Some(_)) => half("decode", "fields"),
        }
    }
}

impl FeedBuilder {
    /// What turns records into rows of batches, in place of Caffe's image record: one of one's own, [`RawBytes`](crate::RawBytes)
    /// or [`Tokens`](crate::Tokens). What is for images (transform, target, dtype, layout) is then refused.
    pub fn decoder(mut self, decoder: impl RecordDecoder) -> Self {
        self.spec.decoder = DecoderSpec::Attached;
        self.attached.decoding.decoder = Some(Arc::new(decoder));
        self
    }

    /// The fields of a batch, for [`decode`](Self::decode) to write.
    pub fn fields(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.spec.decoder = DecoderSpec::Attached;
        self.attached.decoding.fields = Some(fields.into_iter().collect());
        self
    }

    /// Decodes records with a closure, which writes each of the declared [fields](Self::fields) of a record. It runs on the
    /// workers, on many records at a time: it must be a function of the record.
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
    ///             .ok_or_else(|| DecodeFailure::new(format!("{} bytes hold no image", record.value.len())))?;
    ///         row.write("image", image)?;
    ///         let tokens: Vec<i32> = tokens.iter().map(|&token| token.into()).collect();
    ///         row.write("tokens", &tokens)?;
    ///         Ok(())
    ///     });
    /// ```
    pub fn decode(
        mut self,
        decode: impl Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
    ) -> Self {
        self.spec.decoder = DecoderSpec::Attached;
        self.attached.decoding.closure = Some(Arc::new(decode));
        self
    }

    /// Gives each batch of images a field `label_i64`, too: labels as the i64 that loss functions of most frameworks take.
    /// Off if not said.
    pub fn labels_i64(mut self, has: bool) -> Self {
        self.spec.labels_i64 = has;
        self
    }

    /// The decoder, if it is another than that of image records, which is `None`. Rejects image options beside it.
    pub(super) fn attached_decoder(&self) -> Result<Option<Arc<dyn ErasedDecoder>>, ConfigError> {
        let spec = &self.spec;
        let decoder = self.attached.decoding.decoder()?;
        match (spec.decoder, &decoder) {
            (DecoderSpec::Image, _) => return Ok(None),
            (DecoderSpec::Attached, None) => {
                let name = "of its own".to_owned();
                return Err(ConfigError::NotAttached { what: "decoder", name, method: ".decoder(...)" });
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
