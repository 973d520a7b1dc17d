//! `percolator completions`: a shell's completions, generated from the command's own description.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::commands::Cli;
use crate::terminal::out::stdout;

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "percolator", &mut script);
        stdout().text(&script)
    }
}
