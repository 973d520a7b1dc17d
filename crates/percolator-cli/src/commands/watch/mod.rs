//! `percolator watch`: draws the feed of another program, by its metrics, or lists the feeds and clients of a
//! server, or of all servers of a fleet.

mod server;

use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use clap::Args;
use percolator_observe::metrics::scrape;
use percolator_observe::view::{self, Left, Remote};
use percolator_observe::{Numbers, Sample};
use percolator_serve::Fleet;
use serde_json::{Value, json};

use crate::args::metadata::MetadataArgs;
use crate::run::stop::Signals;
use crate::terminal::log;
use crate::terminal::out::stdout;
use server::ServerArgs;

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The address of the program's metrics, http://127.0.0.1:9464, or of a server of feeds, whose feeds and
    /// clients are listed: grpc://127.0.0.1:4433.
    #[arg(required_unless_present = "discover")]
    url: Option<String>,
    /// List all servers of the fleet of this name, instead: those that run with `serve --join NAME`.
    /// --etcd, or --metadata-folder, says where they are registered.
    #[arg(long, value_name = "NAME", conflicts_with = "url")]
    discover: Option<String>,
    /// The feed to draw, if the program has several [default: the first].
    #[arg(long, value_name = "NAME")]
    feed: Option<String>,
    /// Print the current numbers of the feeds once, as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    metadata: MetadataArgs,
}

impl Watch {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let without_feed = || -> anyhow::Result<()> {
            ensure!(self.feed.is_none(), "--feed is for metrics: of a server, all feeds are listed");
            Ok(())
        };
        let url = match (&self.url, &self.discover) {
            (Some(url), _) => {
                ensure!(
                    self.metadata.is_unused(),
                    "--etcd and --metadata-folder say where --discover NAME finds servers"
                );
                url
            }
            (None, Some(name)) => {
                without_feed()?;
                return self.server.watch_all(&Fleet::new(self.metadata.open()?, name)?, self.json);
            }
            (None, None) => unreachable!("one of them is required"),
        };
        if server::is_address(url) {
            without_feed()?;
            return self.server.watch(url, self.json);
        }
        self.server.check_unused()?;
        if self.json {
            return self.print(url).map(|()| ExitCode::SUCCESS);
        }
        view::check_terminal().map_err(|error| anyhow!("{error}; or print the numbers: --json"))?;
        let signals = Signals::catch_beside_view()?;
        let mut feed = Remote::attach(url, self.feed.as_deref())?;
        let held = log::hold();
        let left = view::watch(&mut feed, || signals.caught().is_some());
        drop(held);
        if left? == Left::Interrupted {
            signals.interrupt();
        }
        Ok(signals.caught().map_or(ExitCode::SUCCESS, |(_, code)| ExitCode::from(code)))
    }

    fn print(&self, url: &str) -> anyhow::Result<()> {
        let feeds = scrape(url, self.feed.as_deref())?;
        let metrics: Vec<_> = feeds.iter().flat_map(|(feed, numbers)| metrics_of(feed, numbers)).collect();
        stdout().json("percolator.watch/1", &json!({"metrics": metrics}))
    }
}

/// The numbers of a feed, each with its name, kind and labels.
pub(super) fn metrics_of(feed: &str, numbers: &Numbers) -> Vec<Value> {
    let described = |sample: Sample| {
        let Sample { family, labels, whole, value, .. } = sample;
        let labels: serde_json::Map<_, _> =
            labels.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        // A whole number stays exact.
        let value = whole.map_or_else(|| json!(value), |whole| json!(whole));
        let kind = family.kind.name();
        json!({"name": family.name, "kind": kind, "feed": feed, "labels": labels, "value": value})
    };
    numbers.samples().into_iter().map(described).collect()
}
