//! The subcommands, a file or a folder each, and the help of them all.
//!
//! ```text
//! feeds       feed, serve, watch, bench, doctor, dump
//! data sets   inspect, cat, extract, verify, convert, prepare, mean, digest, plan
//! jobs        verify_run, leases, checkpoints
//! models      model
//! others      devices, completions, man; version, which is an option
//! ```

mod bench;
mod cat;
mod checkpoints;
mod completions;
mod convert;
mod devices;
mod digest;
mod doctor;
mod dump;
mod extract;
mod feed;
mod inspect;
mod leases;
mod man;
mod mean;
mod model;
mod plan;
mod prepare;
mod serve;
mod verify;
mod verify_run;
mod version;
mod watch;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::terminal::log;

/// What the command says by its exit code, and how it says more.
const AFTER_HELP: &str = "\
The exit code is 0 if all is well, 1 if the command looked and found something wrong, and 2 if it could not
look, could not do what it was asked, or was called wrongly. SIGHUP, SIGINT and SIGTERM end it with 129, 130
and 143.
-v, or RUST_LOG=info, logs more than warnings and errors, on standard error.
--version, unlike -V, also says what this build has and what it finds on this machine.
percolator help COMMAND lists the options of a command.";

/// The subcommands, as the help lists them: by what they are about.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Feeds", &["feed", "serve", "watch", "bench", "doctor", "dump"]),
    ("Data sets", &["inspect", "cat", "extract", "verify", "convert", "prepare", "mean", "digest", "plan"]),
    ("Jobs", &["verify-run", "leases", "checkpoints"]),
    ("Models", &["model"]),
    ("Others", &["devices", "completions", "man"]),
];

/// Keeps every accelerator fed: training records in, device-ready batches out.
#[derive(Debug, Parser)]
#[command(name = "percolator", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// Log more than warnings and errors on standard error: -v what is decided, -vv and -vvv each detail.
    /// RUST_LOG, if it is set, says instead what is logged.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the pipeline with consumers that only count batches, and report what waited for what.
    ///
    /// On SIGINT or SIGTERM, the run stops at its next batch and writes its snapshot and receipt. It then
    /// exits with 130 or 143.
    Feed(Box<feed::Feed>),
    /// Serve feeds to whoever connects: one reader and one decode for many clients, over Arrow Flight.
    ///
    /// It runs until SIGINT or SIGTERM. It then takes no new clients, ends each stream with a ticket with
    /// which its client can go on, and exits with 0. A second signal ends it at once, with 130 or 143.
    Serve(Box<serve::Serve>),
    /// Draw the feed of another program in the terminal, by the metrics that the program publishes, or list
    /// the feeds and clients of a server.
    Watch(watch::Watch),
    // Its help text is on its arguments.
    Bench(bench::Bench),
    /// Open what a run would open, run it for some seconds, and say what holds it up, what would help, and
    /// what looks wrong in the data.
    ///
    /// The exit code is 1 if the feed fails, or anything looks wrong in the data.
    Doctor(doctor::Doctor),
    /// Write the batches that a net would see, as NumPy arrays.
    Dump(dump::Dump),
    /// Show what a data set or a model holds: records, keys, shapes, encodings, labels, duplicates.
    Inspect(inspect::Inspect),
    /// Print the records of data of any format, with their named parts.
    Cat(cat::Cat),
    /// Write one part of a record to a file: an image, a text.
    Extract(extract::Extract),
    /// Read, check, parse and decode every record of a data set, on all processors.
    ///
    /// All that is wrong is listed, and the exit code is then 1.
    Verify(verify::Verify),
    /// Write images, or the records of another store, to an LMDB, a LevelDB or a TFRecord file.
    ///
    /// The output is there once it is whole. Until then it is in NAME.percolator-converting, where --resume
    /// finds it after the command was ended at any moment. An item that cannot be converted is skipped,
    /// counted and listed in NAME.skipped.txt.
    ///
    /// The exit code is 1 if anything was skipped, unless --keep-going is given.
    Convert(convert::Convert),
    /// Make a data set from raw data.
    Prepare(prepare::Prepare),
    /// Compute the mean image of a data set, and each channel's mean and standard deviation.
    Mean(mean::Mean),
    /// Digest the contents of a data set, for the option --digest of verify-run and feed.
    ///
    /// Reads the whole data set once.
    Digest(digest::Digest),
    /// Print which records each replica of a job gets at each step, without reading them.
    Plan(plan::Plan),
    /// Prove from its receipts that each epoch of a run was covered exactly once, or name what is missing or
    /// doubled.
    ///
    /// The exit code is 1 if anything is missing or doubled in an epoch that has ended, that is, if its last
    /// step was given or another epoch has begun. An epoch under way is not an error.
    VerifyRun(verify_run::VerifyRun),
    /// Show, drain or remove a job whose workers come and go, and lease blocks of its epochs.
    Leases(leases::Leases),
    /// List, verify, restore and clean up the checkpoints of processes.
    Checkpoints(checkpoints::Checkpoints),
    /// Read, verify, compare, copy and convert models: TensorFlow's checkpoints and SavedModels, safetensors,
    /// NumPy's files.
    Model(model::Model),
    /// List the devices that can be fed here, and their copy rates.
    Devices(devices::Devices),
    /// Print a script that completes this command's arguments in a shell.
    ///
    /// For bash: percolator completions bash > ~/.local/share/bash-completion/completions/percolator
    Completions(completions::Completions),
    /// Write manual pages, one for each subcommand.
    Man(man::ManPages),
}

impl Cli {
    /// The arguments of this process. Wrong ones, and questions for help or the version, end it.
    pub(crate) fn of_process() -> Self {
        let mut command = Cli::command();
        let help = grouped_help(&command);
        command = command.help_template(help);
        // Only then: it looks for the driver of GPUs.
        if std::env::args_os().nth(1).is_some_and(|word| word == "--version") {
            let said: &'static str = version::long().leak();
            command = command.long_version(said);
        }
        let matches = command.get_matches();
        // Clap refuses both only where both are known, and not every command has --quiet.
        if matches.get_count("verbose") > 0 && is_quiet(&matches) {
            let message = "the argument '--verbose' cannot be used with '--quiet'";
            Cli::command().error(ErrorKind::ArgumentConflict, message).exit()
        }
        Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // A feed may be traced, which is a part of logging: it starts that itself.
        if !matches!(self.command, Command::Feed(_)) {
            log::init(self.verbose, None, false);
        }
        match self.command {
            Command::Feed(feed) => return feed.run(self.verbose),
            Command::Serve(serve) => return serve.run(),
            Command::Watch(watch) => return watch.run(),
            Command::Convert(convert) => return convert.run(),
            Command::Verify(verify) => return verify.run(),
            Command::Model(model) => return model.run(),
            Command::Checkpoints(checkpoints) => return checkpoints.run(),
            Command::Bench(bench) => return bench.run(),
            Command::Doctor(doctor) => return doctor.run(),
            Command::Dump(dump) => return dump.run(),
            Command::VerifyRun(verify_run) => return verify_run.run(),
            Command::Prepare(prepare) => prepare.run(),
            Command::Mean(mean) => mean.run(),
            Command::Inspect(inspect) => inspect.run(),
            Command::Cat(cat) => cat.run(),
            Command::Extract(extract) => extract.run(),
            Command::Digest(digest) => digest.run(),
            Command::Plan(plan) => plan.run(),
            Command::Leases(leases) => leases.run(),
            Command::Devices(devices) => devices.run(),
            Command::Completions(completions) => completions.run(),
            Command::Man(pages) => pages.run(),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether a command, or its subcommand, is given --quiet.
fn is_quiet(matches: &ArgMatches) -> bool {
    matches!(matches.try_get_one::<bool>("quiet"), Ok(Some(true)))
        || matches.subcommand().is_some_and(|(_, matches)| is_quiet(matches))
}

/// Ends the process as clap does where it misses arguments.
fn missing(subcommand: &str, message: &str) -> ! {
    let mut command = Cli::command();
    // Its usage then says the whole command.
    command.build();
    let subcommand = command.find_subcommand_mut(subcommand).expect("there is this subcommand");
    subcommand.error(ErrorKind::MissingRequiredArgument, message).exit()
}

/// A template of the help, with the names of the subcommands and what they say of themselves. Clap has no
/// groups of them.
fn grouped_help(command: &clap::Command) -> String {
    let styles = command.get_styles();
    let (heading, literal) = (styles.get_header(), styles.get_literal());
    let width = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut help = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (group, names) in GROUPS {
        help += &format!("\n{heading}{group}:{heading:#}\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            help += &format!("  {literal}{name:width$}{literal:#}  {about}\n");
        }
    }
    help + &format!("\n{heading}Options:{heading:#}\n{{options}}{{after-help}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_is_in_one_group() {
        let command = Cli::command();
        let due: Vec<_> = command.get_subcommands().map(clap::Command::get_name).collect();
        let listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(listed, due);
        let help = command.clone().help_template(grouped_help(&command)).render_help().to_string();
        for name in due {
            let about = command.find_subcommand(name).unwrap().get_about().unwrap();
            assert_eq!(help.matches(&format!("  {name} ")).count(), 1, "{help}");
            assert!(help.contains(&about.to_string()), "{help}");
        }
        assert!(!help.contains('{') && help.contains("RUST_LOG"), "{help}");
    }

    /// Looks at each argument of a command and of its subcommands.
    fn each_argument(command: &clap::Command, look: &mut dyn FnMut(&clap::Command, &clap::Arg)) {
        command.get_arguments().for_each(|argument| look(command, argument));
        command.get_subcommands().for_each(|subcommand| each_argument(subcommand, look));
    }

    #[test]
    fn a_short_option_is_the_same_one_everywhere() {
        const SHORT: [(&str, char); 5] =
            [("force", 'f'), ("out", 'o'), ("quiet", 'q'), ("threads", 'j'), ("verbose", 'v')];
        let mut found = 0;
        each_argument(&Cli::command(), &mut |command, argument| {
            let long = argument.get_long();
            let due = SHORT.iter().find(|(name, _)| long == Some(*name)).map(|(_, short)| *short);
            assert_eq!(argument.get_short(), due, "{}: {argument}", command.get_name());
            found += usize::from(due.is_some());
        });
        assert!(found > 20, "{found}");
    }
}
