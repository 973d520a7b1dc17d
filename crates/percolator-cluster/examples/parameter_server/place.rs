//! Where the records of a job are.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use percolator_cluster::etcd::EtcdOptions;
use percolator_cluster::metadata::{EtcdMetadata, FolderMetadata, Metadata};

#[derive(Clone, Debug, Args)]
#[group(id = "place")]
pub(crate) struct PlaceOptions {
    /// The endpoints of the etcd cluster that has the records.
    #[arg(
        long,
        value_name = "URL,...",
        value_delimiter = ',',
        conflicts_with = "folder",
        required_unless_present = "folder"
    )]
    pub(crate) etcd: Vec<String>,
    /// The front of all keys in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/parameter-server/")]
    pub(crate) etcd_prefix: String,
    /// The folder that has the records, if all processes run on this machine.
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
}

impl PlaceOptions {
    pub(crate) fn open(&self) -> anyhow::Result<Arc<dyn Metadata>> {
        Ok(match &self.folder {
            Some(folder) => Arc::new(FolderMetadata::open(folder)?),
            None => {
                let options = EtcdOptions::new(&self.etcd).prefix(&*self.etcd_prefix);
                Arc::new(EtcdMetadata::connect(&options)?)
            }
        })
    }

    /// The same place, as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        match &self.folder {
            Some(folder) => vec!["--folder".to_owned(), folder.to_string_lossy().into_owned()],
            None => {
                let (etcd, prefix) = (self.etcd.join(","), self.etcd_prefix.clone());
                vec!["--etcd".to_owned(), etcd, "--etcd-prefix".to_owned(), prefix]
            }
        }
    }
}
