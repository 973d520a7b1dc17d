//! The replacement for NVTX if it is not built in.

use tracing_subscriber::layer::Identity;

pub(super) fn is_available() -> bool {
    false
}

pub(super) fn layer() -> Identity {
    Identity::new()
}
