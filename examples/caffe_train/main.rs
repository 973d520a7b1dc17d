//! Trains from a Caffe net as it stands.
//!
//! ```text
//! cargo run --release --example caffe_train               # trains on digits that ship with Percolator
//! cargo run --release --example caffe_train -- NET        # trains from a train_val.prototxt of yours
//! ```
//!
//! The lines to copy into a loop of your own are few: [`data_layer`] here has a net's feeds, and `solver.rs`
//! adds the devices and the random seed, builds them, and steps through them. The other files are a model to
//! train, and a database to train it on.

#[path = "../lmdb_feed/classifier.rs"]
mod classifier;
#[path = "../lmdb_feed/digits.rs"]
mod digits;
mod options;
#[path = "../lmdb_feed/program.rs"]
mod program;
mod project;
#[path = "../lmdb_feed/report.rs"]
mod report;
mod solver;
#[path = "../lmdb_feed/survey.rs"]
mod survey;
#[path = "../lmdb_feed/tally.rs"]
mod tally;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Parser as _;
use percolator::net::{NetCause, NetState};
use percolator::{Feed, FeedBuilder, Net, Phase};

use options::Options;
use solver::{NotForTheModel, Solver};
use survey::Enough;

/// How long to look at data that nothing is learned from.
const SURVEY: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    program::show_warnings();
    program::end("caffe_train", run(&Options::parse()))
}

fn run(options: &Options) -> anyhow::Result<()> {
    let (path, root) = match &options.net {
        Some(path) => (path.clone(), options.root.clone()),
        None => (PathBuf::from(project::NET), Some(project::folder()?)),
    };
    let net = Net::open(&path)?;
    let from = |feed: FeedBuilder| match &root {
        Some(folder) => feed.root(folder),
        None => feed,
    };
    let name = net.parameter().name();
    report::say(format_args!("{}: net {name:?}, seed {}", path.display(), options.seed))?;
    let Some((train, has_labels)) = data_layer(&net, Phase::Train)? else {
        bail!("{}: the net has no data layer to train from", path.display());
    };
    let solver = Solver {
        train: from(train),
        test: data_layer(&net, Phase::Test)?.map(|(test, _)| from(test)),
        iterations: options.iterations,
        base_lr: options.base_lr,
        seed: options.seed,
    };
    let solved = if has_labels {
        solver.solve()
    } else {
        Err(NotForTheModel("the data layer has no second top for labels".to_owned()).into())
    };
    match solved {
        Ok(stats) => {
            report::say(format_args!("Optimization Done."))?;
            Ok(report::print_table(&stats)?)
        }
        Err(error) => match error.downcast::<NotForTheModel>() {
            Ok(reason) => survey(&solver, &path, &reason),
            Err(error) => Err(error),
        },
    }
}

/// The feed of the net's data layer in a phase, and whether it has labels; `None` if there is no such layer.
fn data_layer(net: &Net, phase: Phase) -> anyhow::Result<Option<(FeedBuilder, bool)>> {
    let state = NetState::from(phase);
    let layers = match net.data_layers(&state) {
        Err(error) if matches!(*error.cause, NetCause::NoDataLayer { .. }) && phase == Phase::Test => {
            return Ok(None);
        }
        layers => layers?,
    };
    let [layer] = &*layers else {
        let names: Vec<_> = layers.iter().map(|layer| layer.name.as_str()).collect();
        let path = net.path().unwrap_or(Path::new("")).display();
        bail!(
            "{path}: there are {} data layers in {phase} ({}), and one is trained from",
            names.len(),
            names.join(", ")
        );
    };
    let feed = Feed::layers_of(net, &state)?.into_iter().next();
    Ok(feed.map(|feed| (feed, layer.tops.len() > 1)))
}

/// Feeds the same ranks without training, and prints what they saw.
fn survey(solver: &Solver, path: &Path, reason: &NotForTheModel) -> anyhow::Result<()> {
    report::say(format_args!("nothing is learned from these data: {reason}"))?;
    let batches = usize::try_from(solver.iterations).ok();
    let deadline = Instant::now().checked_add(SURVEY);
    survey::run(solver.train_feed(), path, &Enough { batches, deadline })
}
