//! `percolator serve`: feeds for whoever connects.

mod options;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use percolator::feed::FeedHandle;
use percolator_files::shown;
use percolator_observe::metrics::{Endpoint, Feeds};
use percolator_serve::{FeedObserver, Server, ServerBuilder};
use serde_json::json;

use super::missing;
use crate::args::with;
use crate::run::stop::Signals;
use crate::terminal::out::{stdout, tell};
use options::Options;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The folder below which everything lies that clients may ask for: as --root.
    #[arg(value_name = "ROOT", conflicts_with = "root")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
    /// Take options from this TOML file as well: its keys are the names of the options, with _ for -. What
    /// the command line says goes before it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print where the server listens as one JSON object, when it does.
    #[arg(long)]
    json: bool,
}

impl Serve {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let options = self.all_options()?;
        let Some(root) = &options.root else {
            missing("serve", "there is nothing to serve: give ROOT, the folder below which the data lie");
        };
        let (server, endpoint) = start(&options, root)?;
        let signals = Signals::catch()?;
        self.say(&options, root, &server, endpoint.as_ref())?;
        let (name, _) = signals.wait()?;
        let within = options.drain();
        tell(&format!("{name}: no new clients; the streams that run end with their tickets"));
        if !server.drain(within) {
            let seconds = within.as_secs_f64();
            tell(&format!(
                "some clients had not left after {seconds} s, and were cut off: their tickets hold"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The options of the command line, and then those of the file.
    fn all_options(&self) -> anyhow::Result<Options> {
        let root = self.folder.clone().or_else(|| self.options.root.clone());
        let mut options = self.options.clone();
        options.root = root;
        Ok(match &self.config {
            Some(path) => options.or(Options::read(path)?),
            None => options,
        })
    }

    /// Says where the server listens, once it does.
    fn say(
        &self,
        options: &Options,
        root: &Path,
        server: &Server,
        endpoint: Option<&Endpoint>,
    ) -> anyhow::Result<()> {
        let scheme = if options.tls()?.is_some() { "grpc+tls" } else { "grpc" };
        let unix = options.unix.as_deref().map(std::path::absolute).transpose().context("--unix")?;
        let unix = unix.as_deref().map(Path::to_string_lossy);
        let addresses = server.addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        let urls = addresses.iter().map(|address| format!("{scheme}://{address}"));
        let urls: Vec<_> = urls.chain(unix.iter().map(|path| format!("grpc+unix://{path}"))).collect();
        let metrics = endpoint.map(|endpoint| format!("http://{}/metrics", endpoint.address()));
        let mut out = stdout();
        if self.json {
            let said = json!({
                "root": root.to_string_lossy(), "addresses": addresses, "unix": unix, "urls": urls,
                "metrics": metrics,
            });
            return out.json("percolator.serve/1", &said);
        }
        write!(out, "{}: {}", shown::path(root), shown::line(&urls.join(", ")))?;
        if let Some(metrics) = metrics {
            write!(out, "; metrics: {metrics}")?;
        }
        writeln!(out)?;
        out.finish()
    }
}

/// Starts the server, and what publishes the metrics of its feeds.
fn start(options: &Options, root: &Path) -> anyhow::Result<(Server, Option<Endpoint>)> {
    let tls = options.tls()?;
    if let (Some(open), None) = (options.open_address(), &tls) {
        if !options.insecure {
            bail!(
                "other machines reach {open}, and without TLS whoever is on the way reads the data: give \
                 --tls-certificate and --tls-key, or say --insecure"
            );
        }
        tell(&format!("--insecure: whoever is on the way to {open} reads the data and the tokens"));
    }
    let feeds = Feeds::new();
    let endpoint = options.metrics.map(|address| Endpoint::serve(address, &feeds)).transpose()?;
    let builder = Server::builder(root).insecure(options.insecure).limits(options.limits());
    let builder = options.addresses().into_iter().fold(builder, ServerBuilder::listen);
    let builder = options.tokens()?.into_iter().fold(builder, ServerBuilder::token);
    let builder = with(builder, options.unix.clone(), ServerBuilder::listen_unix);
    let builder = with(builder, options.key.clone(), ServerBuilder::key_file);
    let builder = with(builder, tls, ServerBuilder::tls);
    let builder = with(builder, options.window, ServerBuilder::window);
    let builder = with(builder, options.patience, ServerBuilder::patience);
    let builder = with(builder, options.join_within, ServerBuilder::join_within);
    let builder = with(builder, endpoint.is_some().then_some(Published(feeds)), ServerBuilder::observer);
    Ok((builder.start()?, endpoint))
}

/// Publishes the feeds that run.
struct Published(Feeds);

impl FeedObserver for Published {
    fn started(&self, name: &str, handle: &FeedHandle) {
        self.0.put(name, handle.clone());
    }

    fn ended(&self, name: &str) {
        self.0.remove(name);
    }
}
