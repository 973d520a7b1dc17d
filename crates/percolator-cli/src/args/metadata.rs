//! Where the records of a job's processes are: arguments of several commands.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Args;
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, FolderMetadata, Metadata};
use percolator_files::shown;

use crate::args::with;

/// The variable that has the password of --etcd-user: other users of a machine see its processes' arguments.
const PASSWORD: &str = "PERCOLATOR_ETCD_PASSWORD";

#[derive(Debug, Args)]
pub(crate) struct MetadataArgs {
    /// The endpoints of the etcd cluster that has the records, with commas between them.
    #[arg(long, value_name = "URL,...", value_delimiter = ',', conflicts_with = "metadata_folder")]
    etcd: Vec<String>,
    /// The prefix of all keys in etcd.
    #[arg(long, value_name = "PREFIX", requires = "etcd")]
    etcd_prefix: Option<String>,
    /// The user name for etcd. The password is taken from the variable PERCOLATOR_ETCD_PASSWORD.
    #[arg(long, value_name = "NAME", requires = "etcd")]
    etcd_user: Option<String>,
    /// Let the password go to other machines over http://, where everybody on the way can read it.
    #[arg(long, requires = "etcd_user")]
    etcd_open_password: bool,
    /// CA certificates to verify etcd's certificate with [default: the system's].
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_cacert: Option<PathBuf>,
    /// The client certificate to present to etcd, with --etcd-key.
    #[arg(long, value_name = "FILE", requires = "etcd_key")]
    etcd_cert: Option<PathBuf>,
    /// The key of --etcd-cert.
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    etcd_key: Option<PathBuf>,
    /// The folder that has the records, if all processes run on this machine.
    #[arg(long, value_name = "DIR")]
    metadata_folder: Option<PathBuf>,
}

impl MetadataArgs {
    /// Whether only processes of this machine reach the records.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.etcd.is_empty()
    }

    /// Whether nothing says where they are.
    pub(crate) fn is_unused(&self) -> bool {
        self.etcd.is_empty() && self.metadata_folder.is_none()
    }

    /// Opens the records, or begins them.
    pub(crate) fn open_or_begin(&self) -> anyhow::Result<Arc<dyn Metadata>> {
        match &self.metadata_folder {
            Some(folder) => Ok(Arc::new(FolderMetadata::open(folder)?)),
            None => self.open(),
        }
    }

    /// Opens the records, which somebody else has begun.
    pub(crate) fn open(&self) -> anyhow::Result<Arc<dyn Metadata>> {
        if let Some(folder) = &self.metadata_folder {
            // A folder that is mistyped must not become one without records.
            // One of an earlier version is refused with what to do.
            if !["metadata.sqlite", "metadata.mdb"].iter().any(|name| folder.join(name).exists()) {
                bail!("{}: there are no records (metadata.sqlite) in this folder", shown::path(folder));
            }
            return Ok(Arc::new(FolderMetadata::open(folder)?));
        }
        if self.etcd.is_empty() {
            bail!("say where the records are, with --etcd URL or --metadata-folder DIR");
        }
        let options = EtcdOptions::new(&self.etcd);
        let options = with(options, self.etcd_prefix.as_ref(), EtcdOptions::prefix);
        let mut options = with(options, self.etcd_cacert.as_ref(), EtcdOptions::root_certificates);
        if let Some(user) = &self.etcd_user {
            let password = std::env::var(PASSWORD).with_context(|| {
                format!("--etcd-user {user} has a password: it is taken from the variable {PASSWORD}")
            })?;
            options = options.user(user, password);
        }
        if self.etcd_open_password {
            options = options.allow_open_password();
        }
        if let (Some(certificate), Some(key)) = (&self.etcd_cert, &self.etcd_key) {
            options = options.client_certificate(certificate, key);
        }
        Ok(Arc::new(EtcdMetadata::connect(&options)?))
    }
}
