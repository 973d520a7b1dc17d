//! `percolator serve`: feeds for whoever connects.

mod options;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use anyhow::{bail, ensure};
use clap::Args;
use percolator::feed::FeedHandle;
use percolator_files::shown;
use percolator_formats::feed::Formats;
use percolator_observe::metrics::{Endpoint, Feeds};
use percolator_serve::{FeedObserver, Fleet, Member, Server, ServerBuilder};
use serde_json::json;

use super::missing;
use crate::args::metadata::MetadataArgs;
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
    /// the command line says goes before it. --etcd... and --metadata-folder are of the command line alone.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    metadata: MetadataArgs,
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
        self.check_join(&options)?;
        let (server, endpoint) = start(&options, root)?;
        let signals = Signals::catch()?;
        let member = self.join(&options, &server)?;
        self.say(&options, root, &server, endpoint.as_ref())?;
        let (name, _) = signals.wait()?;
        let (within, asked) = (options.drain(), Instant::now());
        tell(&format!("{name}: no new clients; the streams that run end with their tickets"));
        // If the records do not answer, it is gone from them soon all the same.
        let (has_left, leaving) = channel::<()>();
        thread::spawn(move || drop((member, has_left)));
        if !server.drain(within) {
            let seconds = within.as_secs_f64();
            tell(&format!(
                "some clients had not left after {seconds} s, and were cut off: their tickets hold"
            ));
        }
        let _ = leaving.recv_timeout(within.saturating_sub(asked.elapsed()));
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

    /// Refuses what --join lacks, or what is of no use without it.
    fn check_join(&self, options: &Options) -> anyhow::Result<()> {
        if options.join.is_some() {
            ensure!(
                options.key.is_some(),
                "servers of a fleet take each other's tickets: give all of them one --key"
            );
        } else {
            let is_unused = options.advertise.is_none() && self.metadata.is_unused();
            ensure!(
                is_unused,
                "--advertise, --etcd and --metadata-folder are for --join NAME: give that as well"
            );
        }
        Ok(())
    }

    /// Registers the server, if it is to be found.
    fn join(&self, options: &Options, server: &Server) -> anyhow::Result<Option<Member>> {
        let Some(name) = &options.join else { return Ok(None) };
        let url = match &options.advertise {
            Some(url) => url.clone(),
            None => listened_at(&urls(options, server)?, self.metadata.is_of_this_machine())?,
        };
        Ok(Some(Fleet::new(self.metadata.open_or_begin()?, name)?.join(&url)?))
    }

    /// Says where the server listens, once it does.
    fn say(
        &self,
        options: &Options,
        root: &Path,
        server: &Server,
        endpoint: Option<&Endpoint>,
    ) -> anyhow::Result<()> {
        let unix = options.absolute_unix()?;
        let unix = unix.as_deref().map(Path::to_string_lossy);
        let addresses = server.addresses().iter().map(ToString::to_string).collect::<Vec<_>>();
        let urls = urls(options, server)?;
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

/// What clients of this machine connect to.
fn urls(options: &Options, server: &Server) -> anyhow::Result<Vec<String>> {
    let scheme = if options.tls()?.is_some() { "grpc+tls" } else { "grpc" };
    let urls = server.addresses().iter().map(|address| format!("{scheme}://{address}"));
    let unix = options.absolute_unix()?;
    let unix = unix.iter().map(|path| format!("grpc+unix://{}", path.to_string_lossy()));
    Ok(urls.chain(unix).collect())
}

/// The only address that is listened at, if all who read the records can reach it.
fn listened_at(urls: &[String], is_of_this_machine: bool) -> anyhow::Result<String> {
    let address = |url: &str| url.split_once("://").and_then(|(_, rest)| rest.parse::<SocketAddr>().ok());
    let is_reached = |url: &String| match address(url).map(|address| address.ip().to_canonical()) {
        Some(ip) => !ip.is_unspecified() && (is_of_this_machine || !ip.is_loopback()),
        None => is_of_this_machine,
    };
    match urls {
        [url] if is_reached(url) => Ok(url.clone()),
        _ => bail!("say by --advertise URL how clients reach this server: it listens at {}", urls.join(", ")),
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
    let builder = Server::builder(root).insecure(options.insecure).limits(options.limits()).opener(Formats);
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
