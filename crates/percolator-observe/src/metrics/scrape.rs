//! The numbers of feeds in another program, read from its endpoint.

use std::time::Duration;

use percolator_files::shown;
use ureq::Agent;

use crate::numbers::{Numbers, parse};

/// How long an endpoint may take.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The most bytes of an answer: some thousand feeds.
const BYTES_MAX: u64 = 16 << 20;

/// An endpoint whose numbers cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ScrapeError {
    /// It does not answer with the numbers that are wanted, in Prometheus's text format, or is no address of
    /// HTTP.
    #[error("{url}: {message}")]
    Answer {
        /// The address.
        url: String,
        /// What happened, and what is allowed.
        message: String,
    },
    /// The thread that asks could not be started.
    #[error("cannot start the thread that asks for metrics")]
    Thread(#[source] std::io::Error),
}

/// The most names that a message lists.
const NAMES_MAX: usize = 20;

fn listed(feeds: &[(String, Numbers)]) -> String {
    let names = feeds.iter().take(NAMES_MAX).map(|(name, _)| shown::message(name).to_string());
    let shown: Vec<_> = names.collect();
    match feeds.len() - shown.len() {
        0 => format!("{shown:?}"),
        more => format!("{shown:?} and {more} more"),
    }
}

/// Reads the numbers of all feeds, each with its name, from an endpoint: `http://127.0.0.1:9464`. There is at
/// least one, and only that of this name if one is given.
///
/// # Errors
///
/// [`ScrapeError`] if it does not answer within 3 s, or not with the metrics of such a feed.
pub fn scrape(url: &str, feed: Option<&str>) -> Result<Vec<(String, Numbers)>, ScrapeError> {
    let shown = shown::message(url).to_string();
    let refused = |message: &str| ScrapeError::Answer { url: shown.clone(), message: message.to_owned() };
    let Some(rest) = url.strip_prefix("http://").filter(|rest| !rest.is_empty()) else {
        return Err(refused("an endpoint's address is http://HOST:PORT, with /metrics or without"));
    };
    let place = if rest.trim_end_matches('/').contains('/') { "" } else { "/metrics" };
    let whole = format!("{}{place}", url.trim_end_matches('/'));
    // No redirect is followed: an answer must not send its reader to other machines.
    let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).max_redirects(0);
    let agent: Agent = config.build().into();
    let failed = |message: &str| {
        let message = shown::message(message);
        refused(&format!("{message}; does the program run, with --metrics or an endpoint?"))
    };
    let mut answer = agent.get(&whole).call().map_err(|error| failed(&error.to_string()))?;
    if answer.status().is_redirection() {
        let to = answer.headers().get("location").map_or_else(String::new, |to| format!("{to:?}"));
        let status = answer.status().as_u16();
        return Err(failed(&format!("it redirects to {to} ({status}), which is not followed")));
    }
    let text = answer.body_mut().with_config().limit(BYTES_MAX).read_to_string();
    let text = text.map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(_) => {
            refused(&format!("its answer is too long: metrics have {BYTES_MAX} bytes at the most"))
        }
        error => failed(&error.to_string()),
    })?;
    let mut feeds = parse(&text)
        .map_err(|error| refused(&format!("these are not metrics in Prometheus's text format: {error}")))?;
    if feeds.is_empty() {
        return Err(refused(
            "no feed of percolator is among these metrics; does the program publish one? (a server's feeds \
             are there while they have clients)",
        ));
    }
    let Some(wanted) = feed else { return Ok(feeds) };
    match feeds.iter().position(|(name, _)| name == wanted) {
        Some(at) => Ok(vec![feeds.swap_remove(at)]),
        None => Err(refused(&format!("there is no feed {wanted:?}; there are {}", listed(&feeds)))),
    }
}
