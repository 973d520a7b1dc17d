//! The numbers of feeds in another program, read from its endpoint.

use std::time::Duration;

use percolator_files::shown;
use ureq::Agent;

use crate::numbers::{Numbers, ParseError, parse};

/// How long an endpoint may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes of an answer: some thousand feeds.
const BYTES_MAX: u64 = 16 << 20;

/// An endpoint whose numbers cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// It is not an address of HTTP.
    #[error("{url}: an endpoint's address is http://HOST:PORT, with /metrics or without")]
    Url {
        /// The address.
        url: String,
    },
    /// It does not answer, or not with metrics.
    #[error("{url}: {message}; does the program run, with --metrics or an endpoint?")]
    Http {
        /// The address.
        url: String,
        /// What happened.
        message: String,
    },
    /// Its answer is not in Prometheus's text format.
    #[error("{url}: these are not metrics in Prometheus's text format")]
    Parse {
        /// The address.
        url: String,
        /// What is wrong.
        #[source]
        error: ParseError,
    },
    /// Its answer is longer than any program's.
    #[error("{url}: its answer is too long: metrics have {allowed} bytes at the most")]
    TooLong {
        /// The address.
        url: String,
        /// How many bytes are read at the most.
        allowed: u64,
    },
    /// It has no feed of this name.
    #[error("{url}: there is no feed {feed:?}; there are {}", listed(.feeds))]
    NoSuchFeed {
        /// The address.
        url: String,
        /// The name.
        feed: String,
        /// The names that there are.
        feeds: Vec<String>,
    },
    /// The thread that asks could not be started.
    #[error("cannot start the thread that asks for metrics")]
    Thread(#[source] std::io::Error),
    /// It has no feed.
    #[error("{url}: no feed of percolator is among these metrics; does the program publish one?")]
    NoFeed {
        /// The address.
        url: String,
    },
}

/// The most names that a message lists.
const NAMES_MAX: usize = 20;

fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(NAMES_MAX).map(|name| shown::message(name).to_string()).collect();
    match names.len() - shown.len() {
        0 => format!("{shown:?}"),
        more => format!("{shown:?} and {more} more"),
    }
}

impl ScrapeError {
    /// Returns the error that an endpoint has no feed of this name, but these.
    #[must_use]
    pub fn no_such_feed(url: &str, feed: &str, feeds: Vec<String>) -> Self {
        let url = shown::message(url).to_string();
        ScrapeError::NoSuchFeed { url, feed: feed.to_owned(), feeds }
    }
}

/// Reads the numbers of all feeds, each with its name, from an endpoint: `http://127.0.0.1:9464`. There is at
/// least one.
///
/// # Errors
///
/// [`ScrapeError`] if it does not answer within 3 s, or not with the metrics of a feed.
pub fn scrape(url: &str) -> Result<Vec<(String, Numbers)>, ScrapeError> {
    let shown = shown::message(url).to_string();
    let Some(rest) = url.strip_prefix("http://").filter(|rest| !rest.is_empty()) else {
        return Err(ScrapeError::Url { url: shown });
    };
    let place = if rest.trim_end_matches('/').contains('/') { "" } else { "/metrics" };
    let whole = format!("{}{place}", url.trim_end_matches('/'));
    // No redirect is followed: an answer must not send its reader to other machines.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).max_redirects(0);
    let agent: Agent = config.build().into();
    let refused = |error: ureq::Error| ScrapeError::Http {
        url: shown.clone(),
        message: shown::message(&error.to_string()).to_string(),
    };
    let mut answer = agent.get(&whole).call().map_err(refused)?;
    if answer.status().is_redirection() {
        let to = answer.headers().get("location").map_or_else(String::new, |to| format!("{to:?}"));
        let message = format!("it redirects to {to} ({}), which is not followed", answer.status().as_u16());
        return Err(ScrapeError::Http { url: shown, message: shown::message(&message).to_string() });
    }
    let text = answer.body_mut().with_config().limit(BYTES_MAX).read_to_string();
    let text = text.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => ScrapeError::TooLong { url: shown.clone(), allowed: BYTES_MAX },
        error => refused(error),
    })?;
    match parse(&text) {
        Ok(feeds) if feeds.is_empty() => Err(ScrapeError::NoFeed { url: shown }),
        Ok(feeds) => Ok(feeds),
        Err(error) => Err(ScrapeError::Parse { url: shown, error }),
    }
}
