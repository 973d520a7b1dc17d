//! `percolator watch`: draws the feed of another program, by its metrics.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use percolator_observe::metrics::{ScrapeError, scrape};
use percolator_observe::view::{self, Left, Remote};
use serde_json::json;

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
    /// Print the present numbers of the feeds once, as JSON.
    #[arg(long)]
    json: bool,
}

impl Watch {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.json {
            return self.print().map(|()| ExitCode::SUCCESS);
        }
        if let Err(error) = view::check_terminal() {
            writeln!(io::stderr(), "percolator: {error}; or print the numbers: --json")?;
            return Ok(ExitCode::from(2));
        }
        let signals = Signals::catch()?;
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
            for sample in numbers.samples() {
                let labels: serde_json::Map<_, _> =
                    sample.labels.into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
                let kind = sample.family.kind.name();
                // A whole number stays exact.
                let value = sample.whole.map_or_else(|| json!(sample.value), |whole| json!(whole));
                let name = sample.family.name;
                let described =
                    json!({"name": name, "kind": kind, "feed": feed, "labels": labels, "value": value});
                metrics.push(described);
            }
        }
        let mut out = Out::new(io::stdout().lock());
        serde_json::to_writer_pretty(&mut out, &json!({"metrics": metrics}))?;
        writeln!(out)?;
        out.finish()
    }
}
