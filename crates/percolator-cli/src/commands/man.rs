//! `percolator man`: manual pages, generated from the command's own description.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;
use percolator_files::{shown, whole_file};

use crate::commands::Cli;

#[derive(Debug, Args)]
pub(super) struct ManPages {
    /// The folder that gets a page for percolator and one for each subcommand; earlier pages are replaced.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManPages {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let folder = &self.folder;
        std::fs::create_dir_all(folder)
            .with_context(|| format!("{}: cannot make the folder", shown::path(folder)))?;
        // A subcommand's usage then says the whole command.
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        write(&command, "percolator", folder)
    }
}

/// Writes the pages of a command and of its subcommands.
fn write(command: &Command, name: &str, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(format!("{name}.1"));
    let cannot = || format!("{}: cannot write the manual page", shown::path(&path));
    let (mut page, version) = (Vec::new(), concat!("percolator ", env!("CARGO_PKG_VERSION")));
    Man::new(command.clone()).title(name).source(version).render(&mut page).with_context(cannot)?;
    whole_file::write(&path, &[&page]).with_context(cannot)?;
    let subcommands = command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help");
    for subcommand in subcommands {
        write(subcommand, &format!("{name}-{}", subcommand.get_name()), folder)?;
    }
    Ok(())
}
