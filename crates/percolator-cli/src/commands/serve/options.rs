//! Options of `serve`: of the command line, or of a file.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use percolator_files::shown;
use percolator_serve::{Limits, Tls};
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, de};

use crate::args::durations::seconds;
use crate::args::{addresses, sizes, with};

/// How long clients have to leave, unless told otherwise: less than the 30 s that Kubernetes gives a pod.
const DRAIN: Duration = Duration::from_secs(10);

/// The options that a file may have as well. There, their names have `_` for `-`.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Options {
    /// The folder below which everything lies that clients may ask for.
    #[arg(long, value_name = "DATA")]
    pub(super) root: Option<PathBuf>,
    /// Listen at this address: HOST:PORT, a host, or a port of this machine alone. Several add up [default:
    /// 127.0.0.1:4433, unless there is --unix].
    #[arg(long, value_name = "ADDR", value_parser = addresses::of_feeds)]
    #[serde(deserialize_with = "listen")]
    listen: Vec<SocketAddr>,
    /// Listen at a Unix socket of this path.
    #[arg(long, value_name = "PATH")]
    pub(super) unix: Option<PathBuf>,
    /// Sign tickets with the key in this file, which is made if it is not there. Servers with one key take
    /// each other's tickets, and their own after a restart [default: a key that ends with this run].
    #[arg(long, value_name = "FILE")]
    pub(super) key: Option<PathBuf>,
    /// Serve only clients that send one of the tokens in this file, which has one on each line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Speak TLS alone, with the certificates in this file (PEM).
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,
    /// The key of --tls-certificate (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Serve only clients with a certificate of one of the authorities in this file (PEM).
    #[arg(long, value_name = "FILE")]
    tls_clients: Option<PathBuf>,
    /// Listen without TLS at addresses that other machines reach: whoever is on the way reads the data and
    /// the tokens.
    #[arg(long)]
    pub(super) insecure: bool,
    /// Serve this many clients at a time [default: 1000].
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// Run this many feeds at a time [default: 64].
    #[arg(long, value_name = "N")]
    feeds: Option<usize>,
    /// Let all feeds together take this much memory, such as 8GiB [default: half of the machine's].
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    #[serde(deserialize_with = "size")]
    memory: Option<u64>,
    /// Let all feeds together have this many worker threads [default: one per core].
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<usize>,
    /// Let a client have this many batches that it has not acknowledged [default: 4].
    #[arg(long, value_name = "N")]
    pub(super) window: Option<NonZeroUsize>,
    /// Let a client go that acknowledges nothing, or takes nothing, for this long [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    #[serde(deserialize_with = "length")]
    pub(super) patience: Option<Duration>,
    /// How long a feed whose clients are in step waits for all of them before its first batch [default: 60s].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    #[serde(deserialize_with = "length")]
    pub(super) join_within: Option<Duration>,
    /// Send a client this much in a second at most, such as 100MiB [default: no limit].
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    #[serde(deserialize_with = "size")]
    bandwidth: Option<u64>,
    /// When the server is to stop, wait this long until its clients have left [default: 10s].
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    #[serde(deserialize_with = "length")]
    drain: Option<Duration>,
    /// Register in the fleet of this name, whose servers have the same data and the same --key: clients that
    /// know the name find those that are there. --etcd, or --metadata-folder, says where.
    #[arg(long, value_name = "NAME")]
    pub(super) join: Option<String>,
    /// The address to register: what clients connect to [default: the one that is listened at].
    #[arg(long, value_name = "URL")]
    pub(super) advertise: Option<String>,
    /// Publish the metrics of all feeds for Prometheus, at http://ADDR/metrics. ADDR is HOST:PORT, a host, or
    /// a port [default: 127.0.0.1:9464]. The server's own are at its own address.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1",
        value_parser = addresses::of_metrics)]
    #[serde(deserialize_with = "metrics")]
    pub(super) metrics: Option<SocketAddr>,
}

impl Options {
    /// The options in a file.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let named = || shown::path(path).to_string();
        let text = fs::read_to_string(path).with_context(named)?;
        toml::from_str(&text).map_err(|error| {
            let before = error.span().and_then(|place| text.get(..place.start));
            let line = before.map(|before| format!(":{}", before.matches('\n').count() + 1));
            anyhow!("{}{}: {}", named(), line.unwrap_or_default(), error.message())
        })
    }

    /// These options, and those of a file where these say nothing.
    pub(super) fn or(self, file: Options) -> Options {
        Options {
            root: self.root.or(file.root),
            listen: if self.listen.is_empty() { file.listen } else { self.listen },
            unix: self.unix.or(file.unix),
            key: self.key.or(file.key),
            token_file: self.token_file.or(file.token_file),
            tls_certificate: self.tls_certificate.or(file.tls_certificate),
            tls_key: self.tls_key.or(file.tls_key),
            tls_clients: self.tls_clients.or(file.tls_clients),
            insecure: self.insecure || file.insecure,
            clients: self.clients.or(file.clients),
            feeds: self.feeds.or(file.feeds),
            memory: self.memory.or(file.memory),
            threads: self.threads.or(file.threads),
            window: self.window.or(file.window),
            patience: self.patience.or(file.patience),
            join_within: self.join_within.or(file.join_within),
            bandwidth: self.bandwidth.or(file.bandwidth),
            drain: self.drain.or(file.drain),
            join: self.join.or(file.join),
            advertise: self.advertise.or(file.advertise),
            metrics: self.metrics.or(file.metrics),
        }
    }

    /// The addresses to listen at.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match (&*self.listen, &self.unix) {
            ([], None) => vec![(Ipv4Addr::LOCALHOST, addresses::FEEDS_PORT).into()],
            (listen, _) => listen.to_vec(),
        }
    }

    /// The path of the Unix socket, from the root.
    pub(super) fn absolute_unix(&self) -> anyhow::Result<Option<PathBuf>> {
        self.unix.as_deref().map(std::path::absolute).transpose().context("--unix")
    }

    /// One of the addresses that other machines may reach.
    pub(super) fn open_address(&self) -> Option<SocketAddr> {
        self.addresses().into_iter().find(|address| !address.ip().to_canonical().is_loopback())
    }

    /// Certificate and key, if there are any.
    pub(super) fn tls(&self) -> anyhow::Result<Option<Tls>> {
        let clients = self.tls_clients.clone();
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(with(Tls::new(certificate, key), clients, Tls::clients)))
            }
            (None, None) if clients.is_none() => Ok(None),
            (None, None) => bail!("--tls-clients is of TLS: give --tls-certificate and --tls-key as well"),
            _ => bail!("--tls-certificate and --tls-key belong together: give both"),
        }
    }

    /// The tokens that clients must send one of; without a file, none.
    pub(super) fn tokens(&self) -> anyhow::Result<Vec<String>> {
        let Some(path) = &self.token_file else { return Ok(Vec::new()) };
        let named = || shown::path(path).to_string();
        let text = fs::read_to_string(path).with_context(named)?;
        let lines = || text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty());
        for (token, number) in lines() {
            // It comes in a header. No message has the token itself.
            let is_word = token.bytes().all(|byte| byte.is_ascii_graphic());
            ensure!(
                is_word,
                "{}:{number}: a token is one word of ASCII's letters, digits and signs",
                named()
            );
        }
        let tokens: Vec<_> = lines().map(|(token, _)| token.to_owned()).collect();
        ensure!(!tokens.is_empty(), "{}: it has no token, so nobody would be served", named());
        Ok(tokens)
    }

    pub(super) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.clients = self.clients.unwrap_or(limits.clients);
        limits.feeds = self.feeds.unwrap_or(limits.feeds);
        limits.memory_bytes = self.memory.unwrap_or(limits.memory_bytes);
        limits.threads = self.threads.unwrap_or(limits.threads);
        limits.client_bytes_per_second = self.bandwidth.or(limits.client_bytes_per_second);
        limits
    }

    pub(super) fn drain(&self) -> Duration {
        self.drain.unwrap_or(DRAIN)
    }
}

/// A value of the file, as it would stand on the command line.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfAnyKind;

        impl Visitor<'_> for OfAnyKind {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }
        }

        deserializer.deserialize_any(OfAnyKind)
    }
}

/// An address, or several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "not an address, nor a list of addresses")]
enum OneOrSeveral {
    One(Word),
    Several(Vec<Word>),
}

fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let Word(text) = Word::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(D::Error::custom)
}

fn listen<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let words = match OneOrSeveral::deserialize(deserializer)? {
        OneOrSeveral::One(word) => vec![word],
        OneOrSeveral::Several(words) => words,
    };
    let parse = |Word(text): &Word| addresses::of_feeds(text);
    words.iter().map(parse).collect::<Result<_, _>>().map_err(D::Error::custom)
}

fn metrics<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    parsed(deserializer, addresses::of_metrics)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    parsed(deserializer, sizes::bytes)
}

fn length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    parsed(deserializer, seconds)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn given(words: &[&str]) -> Options {
        let words = [&["serve"], words].concat();
        Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).options
    }

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    fn in_file(text: &str) -> anyhow::Result<Options> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("serve.toml");
        fs::write(&path, text).unwrap();
        Options::read(&path)
    }

    /// What is wrong with a file, behind its folder.
    #[track_caller]
    fn refused(text: &str) -> String {
        let error = format!("{:#}", in_file(text).unwrap_err());
        error.split_once("serve.toml").unwrap().1.to_owned()
    }

    #[test]
    fn a_file_has_the_options_of_the_command_line() {
        let words = "--root data --listen 0.0.0.0:1 --listen 2 --unix u --key k --token-file t \
                     --tls-certificate c --tls-key ck --tls-clients a --insecure --clients 3 --feeds 4 \
                     --memory 5GiB --threads 6 --window 7 --patience 8s --join-within 2m --bandwidth 10 \
                     --drain 0.5 --join j --advertise v --metrics 11";
        let text = "root = 'data'\nlisten = ['0.0.0.0:1', 2]\nunix = 'u'\nkey = 'k'\ntoken_file = 't'\n\
                    tls_certificate = 'c'\ntls_key = 'ck'\ntls_clients = 'a'\ninsecure = true\nclients = 3\n\
                    feeds = 4\nmemory = '5GiB'\nthreads = 6\nwindow = 7\npatience = 8\njoin_within = '2m'\n\
                    bandwidth = 10\ndrain = 0.5\njoin = 'j'\nadvertise = 'v'\nmetrics = 11\n";
        let given = given(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(format!("{:?}", in_file(text).unwrap()), format!("{given:?}"));
        assert!(!format!("{given:?}").contains("None"), "{given:?}");
        assert_eq!(in_file("listen = '::1'").unwrap().listen, [at("[::1]:4433")]);
    }

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file = || in_file("listen = ['1', '2']\nunix = 'u'\nmemory = '1GiB'\ninsecure = true").unwrap();
        let both = given(&["--listen", "3", "--memory", "7"]).or(file());
        assert_eq!(both.listen, [at("127.0.0.1:3")]);
        assert_eq!((both.memory, both.insecure, both.unix), (Some(7), true, Some("u".into())));
        let none = given(&[]).or(file());
        assert_eq!((none.listen.len(), none.memory), (2, Some(1 << 30)));
    }

    #[test]
    fn what_is_wrong_in_a_file_is_named_with_its_line() {
        let unknown = refused("root = 'data'\n\nlissten = '1'\n");
        assert!(unknown.starts_with(":3: unknown field `lissten`, expected one of `root`"), "{unknown}");
        let size = refused("root = 'data'\nmemory = '5GB'");
        assert!(size.starts_with(":2: not a number of bytes"), "{size}");
        assert!(refused("patience = 'long'").starts_with(":1: not a length of time"));
        assert!(refused("listen = 'nowhere:x'").contains("give HOST:PORT"));
        assert!(refused("listen = true").contains("not an address, nor a list of addresses"));
        assert!(refused("memory = [1]").contains("expected a text or a number"));
        assert!(refused("window = 0").starts_with(":1: "));
        assert!(refused("root = ").starts_with(":1: "));
        assert!(refused("config = 'another.toml'").contains("unknown field `config`"));
    }

    #[test]
    fn without_an_address_only_this_machine_is_listened_to() {
        assert_eq!(given(&[]).addresses(), [at("127.0.0.1:4433")]);
        assert!(given(&["--unix", "u"]).addresses().is_empty());
        for (words, due) in [
            (&["--listen", "127.9.9.9:1", "--listen", "[::1]:1"][..], None),
            (&["--listen", "[::ffff:127.0.0.1]:1"][..], None),
            (&["--listen", "1", "--listen", "0.0.0.0:2"][..], Some("0.0.0.0:2")),
            (&["--listen", "[::]:3"][..], Some("[::]:3")),
        ] {
            assert_eq!(given(words).open_address(), due.map(at), "{words:?}");
        }
    }

    #[test]
    fn parts_of_tls_belong_together() {
        let of = |words: &[&str]| given(words).tls().map(|tls| tls.is_some());
        let [certificate, key, clients] =
            [["--tls-certificate", "c"], ["--tls-key", "k"], ["--tls-clients", "a"]];
        assert!(!of(&[]).unwrap() && of(&[certificate, key].concat()).unwrap());
        assert!(of(&[certificate, key, clients].concat()).unwrap());
        for part in [&certificate[..], &key, &clients, &[certificate, clients].concat()] {
            assert!(of(part).unwrap_err().to_string().contains("--tls-key"), "{part:?}");
        }
    }

    #[test]
    fn a_file_has_a_token_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let of = |text: &str| {
            fs::write(&path, text).unwrap();
            Options { token_file: Some(path.clone()), ..Options::default() }.tokens()
        };
        assert_eq!(of("one\r\n\n  two/+=\n").unwrap(), ["one", "two/+="]);
        for (text, due) in
            [("", "has no token"), ("\n \n", "has no token"), ("fine\nmy secret", ":2: a token")]
        {
            let error = of(text).unwrap_err().to_string();
            assert!(error.contains(due) && !error.contains("secret"), "{error}");
        }
        assert!(Options::default().tokens().unwrap().is_empty());
    }
}
