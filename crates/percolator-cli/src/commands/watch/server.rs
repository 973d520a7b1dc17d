//! What a server of feeds does, as rows of text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use percolator_files::shown;
use percolator_observe::view;
use percolator_serve::{
    Client, ClientBuilder, Discover as _, FeedStatus, Fleet, Method, ServerStatus, Share,
};
use serde_json::{Map, Value, json};

use crate::args::with;
use crate::run::stop::Signals;
use crate::terminal::log;
use crate::terminal::out::{printable, stdout};

/// How often the server is asked.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often signals are looked at meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// What a terminal has, if it does not say.
const COLUMNS: u16 = 80;
const ROWS: u16 = 24;

/// Clears the screen, and goes to its beginning.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// How a server is asked.
#[derive(Debug, Args)]
pub(super) struct ServerArgs {
    /// Send a server the token in this file: its first line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Believe a server at grpc+tls:// whose certificate one of the authorities in this file signed (PEM).
    #[arg(long, value_name = "FILE")]
    tls_authorities: Option<PathBuf>,
    /// Show a server this certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of --tls-certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
}

/// Whether this is the address of a server of feeds, and not of metrics.
pub(super) fn is_address(url: &str) -> bool {
    ["grpc://", "grpc+", "shared://"].iter().any(|scheme| url.starts_with(scheme))
}

impl ServerArgs {
    /// Refuses options that are of no use for metrics.
    pub(super) fn check_unused(&self) -> anyhow::Result<()> {
        let is_unused =
            self.token_file.is_none() && self.tls_authorities.is_none() && self.tls_certificate.is_none();
        ensure!(is_unused, "--token-file and --tls-... are for a server of feeds, such as grpc://HOST:PORT");
        Ok(())
    }

    /// Lists the feeds and clients of a server once, as JSON, or again and again until a signal comes.
    pub(super) fn watch(&self, url: &str, is_json: bool) -> anyhow::Result<ExitCode> {
        if !is_json {
            view::check_terminal().map_err(|error| anyhow!("{error}; or print the numbers: --json"))?;
        }
        let client = self.connect(url)?;
        if is_json {
            let said: Map<String, Value> = serde_json::from_str(&client.status()?).with_context(unknown)?;
            return stdout().json("percolator.watch-server/1", &said).map(|()| ExitCode::SUCCESS);
        }
        let mut rows = String::new();
        draw_until_signal(|| rows_of(url, status(&client), &mut rows))
    }

    /// The same for all servers of a fleet.
    pub(super) fn watch_all(&self, fleet: &Fleet, is_json: bool) -> anyhow::Result<ExitCode> {
        let found = || fleet.servers().map_err(anyhow::Error::from_boxed);
        if is_json {
            let status_of = |url: &str| -> anyhow::Result<Value> {
                serde_json::from_str(&self.connect(url)?.status()?).with_context(unknown)
            };
            let of_server = |url: &String| match status_of(url) {
                Ok(status) => json!({"url": url, "status": status, "error": null}),
                Err(error) => json!({"url": url, "status": null, "error": format!("{error:#}")}),
            };
            let servers: Vec<_> = found()?.iter().map(of_server).collect();
            return stdout()
                .json("percolator.watch-fleet/1", &json!({"servers": servers}))
                .map(|()| ExitCode::SUCCESS);
        }
        view::check_terminal().map_err(|error| anyhow!("{error}; or print the numbers: --json"))?;
        let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
        draw_until_signal(|| {
            let urls = match found() {
                Ok(urls) if urls.is_empty() => return format!("there is no server in {}\n", fleet.place()),
                Ok(urls) => urls,
                Err(error) => return format!("NO ANSWER: {}\n", printable(&format!("{error:#}"))),
            };
            seen.retain(|url, _| urls.contains(url));
            let of_server = |url: &String| {
                let Seen { client, rows } = seen.entry(url.clone()).or_default();
                let connected = match client {
                    Some(client) => Ok(&*client),
                    None => self.connect(url).map(|connected| &*client.insert(connected)),
                };
                rows_of(url, connected.and_then(status), rows)
            };
            urls.iter().map(of_server).collect::<Vec<_>>().join("\n")
        })
    }

    fn connect(&self, url: &str) -> anyhow::Result<Client> {
        let identity = self.tls_certificate.clone().zip(self.tls_key.clone());
        let builder = with(Client::builder(url), self.token()?, ClientBuilder::token);
        let builder = with(builder, self.tls_authorities.clone(), ClientBuilder::authorities);
        let builder =
            with(builder, identity, |builder, (certificate, key)| builder.identity(certificate, key));
        Ok(builder.connect()?)
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let named = || shown::path(path).to_string();
        let text = fs::read_to_string(path).with_context(named)?;
        let token = text.lines().map(str::trim).find(|line| !line.is_empty());
        Ok(Some(token.with_context(|| format!("{}: it has no token", named()))?.to_owned()))
    }
}

/// What a server says, below its address. Where there is no answer, what it said last stays.
fn rows_of(url: &str, status: anyhow::Result<ServerStatus>, rows: &mut String) -> String {
    let missing = match status {
        Ok(status) => {
            *rows = table(&status);
            String::new()
        }
        Err(error) => format!("NO ANSWER: {}\n", printable(&format!("{error:#}"))),
    };
    format!("{}\n{missing}{rows}", printable(url))
}

/// Draws what there is, again and again, until a signal comes.
fn draw_until_signal(mut text: impl FnMut() -> String) -> anyhow::Result<ExitCode> {
    let signals = Signals::catch()?;
    let _held = log::hold();
    loop {
        draw(&text())?;
        let next = Instant::now() + INTERVAL;
        while Instant::now() < next {
            if let Some((_, code)) = signals.caught() {
                return Ok(ExitCode::from(code));
            }
            thread::sleep(LOOK);
        }
    }
}

/// A server that was seen before, and what it said last.
#[derive(Default)]
struct Seen {
    client: Option<Client>,
    rows: String,
}

fn unknown() -> &'static str {
    "the server's status is none of this version"
}

fn status(client: &Client) -> anyhow::Result<ServerStatus> {
    serde_json::from_str(&client.status()?).with_context(unknown)
}

/// The feeds of a server, and below each its clients.
fn table(status: &ServerStatus) -> String {
    let clients = status.feeds.iter().map(|feed| feed.clients.len()).sum::<usize>() as u64;
    let mut rows = format!(
        "{}{}, {}, {:.1} of {:.1} MB, {}; since it began: {}, {:.1} MB\n",
        if status.is_draining { "it is about to end; " } else { "" },
        shown::count(status.feeds.len() as u64, "feed"),
        shown::count(clients, "client"),
        megabytes(status.memory_bytes),
        megabytes(status.memory_limit_bytes),
        shown::count(status.threads as u64, "thread"),
        shown::count(status.streams_total, "stream"),
        megabytes(status.bytes_total),
    );
    for feed in &status.feeds {
        add_feed(&mut rows, feed);
    }
    rows
}

fn add_feed(rows: &mut String, feed: &FeedStatus) {
    let share = match feed.share {
        Share::Divided => "divided".to_owned(),
        Share::InStep { clients } => format!("in step, from {clients} on"),
        Share::Windowed { batches } => format!("windowed, {batches} batches"),
        _ => "shared".to_owned(),
    };
    // Writing to a text cannot fail.
    let _ = writeln!(
        rows,
        "\n{}  {}  {share}, {}, {:.1} MB, {}",
        printable(&feed.name),
        printable(&feed.source),
        shown::count(feed.ranks as u64, "rank"),
        megabytes(feed.memory_bytes),
        shown::count(feed.threads as u64, "thread"),
    );
    let _ = writeln!(
        rows,
        "  {:22} {:>4}  {:8} {:>9} {:>11} {:>14} {:>7}",
        "client", "rank", "method", "batches", "MB", "unacknowledged", "missed"
    );
    for client in &feed.clients {
        let method = match client.method {
            Method::Exchange => "exchange",
            Method::Get => "get",
            Method::Local => "local",
        };
        let _ = writeln!(
            rows,
            "  {:22} {:>4}  {method:8} {:>9} {:>11.1} {:>14} {:>7}",
            printable(&client.peer),
            client.rank,
            client.batches,
            megabytes(client.bytes),
            client.unacknowledged,
            client.missed,
        );
    }
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Draws as much as the terminal shows.
fn draw(text: &str) -> io::Result<()> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let size = size.map(|size| (size.ws_col, size.ws_row)).filter(|&(columns, rows)| columns > 0 && rows > 0);
    let (columns, rows) = size.unwrap_or((COLUMNS, ROWS));
    let picture = format!("{CLEAR}{}", fitted(text, columns.into(), rows.into()));
    let mut out = io::stdout().lock();
    out.write_all(picture.as_bytes())?;
    out.flush()
}

/// What fits into so many columns and rows, of which the last stays empty. It says how much does not fit.
fn fitted(text: &str, columns: usize, rows: usize) -> String {
    let (lines, room) = (text.lines().count(), rows.saturating_sub(1));
    let shown = if lines <= room { lines } else { room.saturating_sub(1) };
    let mut picture = String::new();
    for line in text.lines().take(shown) {
        picture.extend(line.chars().take(columns));
        picture.push('\n');
    }
    if shown < lines && room > 0 {
        picture.extend(format!("... {} more", lines - shown).chars().take(columns));
        picture.push('\n');
    }
    picture
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(feeds: &Value) -> ServerStatus {
        let status = json!({
            "is_draining": false, "memory_bytes": 310_000_000, "memory_limit_bytes": 8_000_000_000_u64,
            "threads": 8, "feeds": feeds, "streams_total": 5, "batches_total": 77,
            "bytes_total": 1_234_500_000, "dismissed_total": 0,
        });
        serde_json::from_value(status).unwrap()
    }

    #[test]
    fn each_client_is_a_row_below_its_feed() {
        let client = |peer: &str, rank: u64, method: &str| {
            json!({
                "peer": peer, "rank": rank, "method": method, "batches": 12, "bytes": 404_600_000,
                "unacknowledged": 2, "missed": 1,
            })
        };
        let feed = |name: &str, share: Value, clients: Value| {
            json!({
                "name": name, "source": "/data/\u{1b}[2Jdb", "share": share, "ranks": 2,
                "memory_bytes": 33_700_000, "threads": 1, "clients": clients,
            })
        };
        let feeds = json!([
            feed("feed-0", json!("divided"), json!([client("127.0.0.1:43210", 0, "exchange")])),
            feed("feed-3", json!({"in_step": {"clients": 2}}), json!([client("unix", 1, "local")])),
            feed("feed-4", json!({"windowed": {"batches": 16}}), json!([])),
        ]);
        let drawn = table(&status(&feeds));
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(
            lines[0],
            "3 feeds, 2 clients, 310.0 of 8000.0 MB, 8 threads; since it began: 5 streams, 1234.5 MB"
        );
        assert_eq!(lines[2], "feed-0  /data/\\u{1b}[2Jdb  divided, 2 ranks, 33.7 MB, 1 thread");
        let of_client = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>();
        assert_eq!(of_client(4), ["127.0.0.1:43210", "0", "exchange", "12", "404.6", "2", "1"]);
        assert!(lines[6].contains("in step, from 2 on"), "{drawn}");
        assert_eq!(of_client(8)[..3], ["unix", "1", "local"]);
        assert!(lines[10].contains("windowed, 16 batches") && lines.len() == 12, "{drawn}");
        assert!(table(&status(&json!([]))).starts_with("0 feeds, 0 clients, "));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let text = "12345\n2\n3\n4\n";
        assert_eq!(fitted(text, 9, 9), text);
        assert_eq!(fitted(text, 3, 5), "123\n2\n3\n4\n");
        assert_eq!(fitted(text, 10, 4), "12345\n2\n... 2 more\n");
        assert_eq!(fitted(text, 9, 1), "");
        assert_eq!(fitted(text, 0, 2), "\n");
    }

    #[test]
    fn servers_and_metrics_are_told_apart_by_their_addresses() {
        for url in ["grpc://h:1", "grpc+tls://h:1", "grpc+unix:///s", "shared:///s"] {
            assert!(is_address(url), "{url}");
        }
        for url in ["http://h:1", "h:1", "grpc.example.com:1"] {
            assert!(!is_address(url), "{url}");
        }
    }
}
