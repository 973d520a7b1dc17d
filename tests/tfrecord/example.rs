//! Feeds of Examples.
