//! `percolator watch`: draws the feed of another program, by its metrics.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use percolator_observe::metrics::{ScrapeError, scrape};
use percolator_observe::view::{self, Left, Remote};
use percolator_observe::{Numbers, Sample};
use serde_json::{Value, json};

use super::log;
use super::out::Out;
use super::stop::Signals;

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// The address of the program's metrics: http://127.0.0.1:9464.
    url: String,
    /// The feed to draw, if the program has several [default: the first].
    #[arg(long, value_name = "NAME")]
    feed: Option<String>,
    /// Print the current numbers of the feeds once, as JSON.
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            return self.print().map(|()| ExitCode::SUCCESS);
        }
        view::check_terminal().map_err(|error| anyhow!("{error}; or print the numbers: --json"))?;
        let signals = Signals::catch_beside_view()?;
        let mut feed = Remote::attach(&self.url, self.feed.as_deref())?;
        let held = log::hold();
        let left = view::watch(&mut feed, || signals.caught().is_some());
        drop(held);
        if left? == Left::Interrupted {
            signals.interrupt();
        }
        Ok(signals.caught().map_or(ExitCode::SUCCESS, |(_, code)| ExitCode::from(code)))
    }

    fn print(&self) -> anyhow::Result<()> {
        let feeds = scrape(&self.url)?;
        let is_wanted = |name: &str| self.feed.as_deref().is_none_or(|wanted| wanted == name);
        if let Some(wanted) = self.feed.as_ref().filter(|_| !feeds.iter().any(|(name, _)| is_wanted(name))) {
            let names = feeds.into_iter().map(|(name, _)| name).collect();
            return Err(ScrapeError::no_such_feed(&self.url, wanted, names).into());
        }
        let mut metrics = Vec::new();
        for (feed, numbers) in feeds.iter().filter(|(name, _)| is_wanted(name)) {
            metrics.extend(metrics_of(feed, numbers));
        }
        let mut out = Out::new(io::stdout().lock());
        serde_json::to_writer_pretty(&mut out, &json!({"metrics": metrics}))?;
        writeln!(out)?;
        out.finish()
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
