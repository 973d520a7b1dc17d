//! The shape of an image.

use std::fmt;

/// Channels, height and width of one image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct ImageShape {
    /// Number of channels.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl ImageShape {
    /// The number of elements, or `None` if it does not fit a `usize`.
    #[must_use]
    pub fn checked_elements(self) -> Option<usize> {
        self.channels.checked_mul(self.height)?.checked_mul(self.width)
    }
}

impl fmt::Display for ImageShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.channels, self.height, self.width)
    }
}
