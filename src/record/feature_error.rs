//! Why a feature of a record does not fit its field.

use percolator_messages::example::Kind;

use crate::base::shape::Dtype;

/// Why a feature of a record does not fit the field that it is for.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FeatureError {
    /// The record does not have it.
    #[error("the feature {feature:?} is missing{}; {wanted} needs one in every record", found(features))]
    Missing {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
        /// The features that the record has, each once.
        features: Vec<String>,
    },
    /// It has no list, which counts as missing.
    #[error("the feature {feature:?} has no kind, and so no value; {wanted} needs one in every record")]
    Unset {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
    },
    /// It has a list of another kind.
    #[error("the feature {feature:?} has the kind {found}, but {wanted} takes the kind {allowed}")]
    Kind {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
        /// The kind of its list.
        found: Kind,
        /// The kind that it must have.
        allowed: Kind,
    },
    /// It has too many or too few values.
    #[error(
        "the feature {feature:?} has {found} value(s), but {wanted} takes {}{allowed}",
        most(*is_most)
    )]
    Count {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
        /// How many values it has.
        found: usize,
        /// How many it must have.
        allowed: usize,
        /// Whether it may have fewer.
        is_most: bool,
    },
    /// One of its values does not fit the field's type.
    #[error(
        "value {index} of the feature {feature:?} is {found}, which is not a value of {dtype} ({wanted})"
    )]
    Range {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
        /// The number of the value, from 0.
        index: usize,
        /// The value.
        found: i64,
        /// The field's type.
        dtype: Dtype,
    },
    /// Its string is too long or too short.
    #[error(
        "the feature {feature:?} has a string of {found} bytes, but {wanted} takes {}{allowed}",
        most(*is_most)
    )]
    Bytes {
        /// The feature.
        feature: String,
        /// The field that it is for, as text.
        wanted: String,
        /// How many bytes it has.
        found: usize,
        /// How many it must have.
        allowed: usize,
        /// Whether it may have fewer.
        is_most: bool,
    },
    /// An image's shape is impossible.
    #[error(
        "the feature {feature:?} is [{}], but the shape of an image is three numbers of 1 or more, channels, \
         rows and columns, of at most {elements_max} elements in all",
        listed(found)
    )]
    ImageShape {
        /// The feature.
        feature: String,
        /// Its values, or the first of them.
        found: Vec<i64>,
        /// The most elements of an image.
        elements_max: usize,
    },
}

fn most(is_most: bool) -> &'static str {
    if is_most { "at most " } else { "" }
}

fn found(features: &[String]) -> String {
    /// The most names that a message has.
    const SHOWN_MAX: usize = 20;

    let names: Vec<String> = features.iter().take(SHOWN_MAX).map(|name| format!("{name:?}")).collect();
    match features.len().checked_sub(SHOWN_MAX) {
        _ if names.is_empty() => " (the record has none)".to_owned(),
        None | Some(0) => format!(" (the record has {})", names.join(", ")),
        Some(more) => format!(" (the record has {}, and {more} more)", names.join(", ")),
    }
}

fn listed(values: &[i64]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
