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
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).map(|argument| {
        let others = command.get_arg_conflicts_with(argument).into_iter();
        let others = others.filter(|other| !other.is_hide_set()).map(|other| other.get_id().clone());
        argument.clone().conflicts_with(Resettable::<Id>::Reset).conflicts_with_all(others)
    });
    let name: &'static str = command.get_name().to_owned().leak();
    Command::new(name)
        .about(command.get_about().cloned().unwrap_or_default())
        .args(arguments)
        .subcommands(command.get_subcommands().map(visible))
}
