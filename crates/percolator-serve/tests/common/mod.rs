//! Data to serve, and a server of them.

pub(crate) mod data;
pub(crate) mod served;
