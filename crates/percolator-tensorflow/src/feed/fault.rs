//! What does not fit, in words.

use std::fmt;

use percolator::Layout;
use percolator_files::shown;

/// A feed does not give what a signature takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureMismatch {
    pub(super) signature: String,
    pub(super) faults: Vec<String>,
}

impl SignatureMismatch {
    /// Returns all that does not fit, each with what to do: faults of the pairs in their order, then the
    /// inputs that nothing feeds.
    #[must_use]
    pub fn faults(&self) -> &[String] {
        &self.faults
    }
}

impl std::error::Error for SignatureMismatch {}

impl fmt::Display for SignatureMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SignatureMismatch { signature, faults } = self;
        write!(f, "the feed does not fit the signature {:?}: ", shown_name(signature))?;
        if let [fault] = &**faults {
            return write!(f, "{fault}");
        }
        write!(f, "{} faults", faults.len())?;
        faults.iter().try_for_each(|fault| write!(f, "\n- {fault}"))
    }
}

/// A name as messages have it.
pub(super) fn shown_name(name: &str) -> String {
    shown::message(name).to_string()
}

/// The fault of an input and the field that feeds it.
pub(super) fn of_pair(input: &str, field: &str, fault: &str) -> String {
    format!("input {}, fed by field {}: {fault}", shown_name(input), shown_name(field))
}

pub(super) fn layout_remedy(wanted: Layout, is_image: bool) -> &'static str {
    match (is_image, wanted) {
        (true, Layout::Nchw) => "set .layout(Layout::Nchw) on the feed",
        (true, Layout::Nhwc) => "set .layout(Layout::Nhwc) on the feed",
        (false, Layout::Nchw) => "store the field channel by channel",
        (false, Layout::Nhwc) => "store the field with the channels innermost",
    }
}

pub(super) fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let shown: Vec<String> = names.into_iter().map(shown_name).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(", ") }
}
