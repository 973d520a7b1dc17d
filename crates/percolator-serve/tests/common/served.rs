//! A server on this machine.

use std::path::{Path, PathBuf};

use percolator_serve::{Server, ServerBuilder};
use tempfile::TempDir;

use super::data;

/// A server, and the folder below which its data lie.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) folder: TempDir,
}

impl Served {
    /// Starts it at an address of this machine, with what is done to it beside.
    pub(crate) fn start(with: impl FnOnce(ServerBuilder, &Path) -> ServerBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        data::write(folder.path());
        let builder = Server::builder(folder.path().join("root")).listen("127.0.0.1:0".parse().unwrap());
        Served { server: with(builder, folder.path()).start().unwrap(), folder }
    }

    pub(crate) fn plain() -> Self {
        Self::start(|builder, _| builder)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.server.addresses()[0])
    }
}
