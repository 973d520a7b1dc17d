//! `percolator completions`: a shell's completions, generated from the command's own description.

use clap::builder::Resettable;
use clap::{Args, Command, CommandFactory as _, Id};
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
        let mut command = visible(&Cli::command()).version(env!("CARGO_PKG_VERSION"));
        clap_complete::generate(self.shell, &mut command, "percolator", &mut script);
        stdout().text(&script)
    }
}

/// A command without the arguments that its help hides, which clap_complete would offer.
fn visible(command: &Command) -> Command {
    // What excludes or requires what may name a hidden one.
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).map(|argument| {
        let argument = argument.clone().conflicts_with(Resettable::<Id>::Reset);
        argument.requires(Resettable::<Id>::Reset).required_unless_present(Resettable::<Id>::Reset)
    });
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(arguments)
        .subcommands(command.get_subcommands().map(visible))
}
