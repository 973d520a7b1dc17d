//! What a loader asks a server for: the feed that its keywords describe, who shares it, and which part of it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use percolator::FeedBuilder;
use percolator::feed::{DecoderSpec, FeedSpec, Receipts, SourceSpec};
use percolator::order::JobWorker;
use percolator::source::IndexPlace;
use percolator::transform::TransformPlace;
use percolator_serve::{Client, ClientBuilder, FeedRequest, Share};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{Keywords, describe, json};
use crate::decoder::Failures;
use crate::{errors, feed};

/// What is not for a client to set, and why.
const NOT_SENT: [(&str, &str); 5] = [
    (
        "decode",
        "a function of Python cannot be sent to a server: read the records with fields or image, or feed \
         them here, without server",
    ),
    ("resume", "a server's tickets are in the loader's own state: use load_state_dict"),
    ("index", "the server decides where indexes are kept"),
    ("threads", "the server has threads, which all of its feeds share"),
    ("policy", "it divides files among processes that read them, and here the server reads"),
];

/// How many batches a windowed share keeps, unless it is set.
const WINDOW: NonZeroUsize = NonZeroUsize::new(8).expect("it is not zero");

const TWO: NonZeroUsize = NonZeroUsize::new(2).expect("it is not zero");

/// A feed at a server, and how to get there.
pub(crate) struct AtServer {
    pub(crate) client: ClientBuilder,
    pub(crate) request: FeedRequest,
    pub(crate) spec: FeedSpec,
    pub(crate) rank: usize,
    /// How long the consumer waits for a server that is gone, and for memory that it holds itself.
    pub(crate) give_up_after: Duration,
    /// Whether batches may be read in a server's own memory.
    pub(crate) is_lent: bool,
}

/// Reads the keywords of a loader of a server's feed.
pub(crate) fn at_server(
    py: Python<'_>,
    url: &str,
    keywords: Option<&Bound<'_, PyDict>>,
) -> PyResult<AtServer> {
    let mut keywords = Keywords::of(py, keywords)?;
    let mut spec = base(&mut keywords)?.spec().clone();
    for (name, why) in NOT_SENT {
        if keywords.object(name).is_some() {
            return Err(errors::config(py, &format!("{name} is set, and so is server: {why}")));
        }
    }
    let share = share(&mut keywords)?;
    let group: Option<String> = keywords.take("group")?;
    let token: Option<String> = keywords.take("token")?;
    let authorities: Option<PathBuf> = keywords.take("authorities")?;
    let identity: Option<(PathBuf, PathBuf)> = keywords.take("identity")?;
    // No function of Python is left that could fail.
    describe(&mut keywords, &mut spec, &Arc::new(Failures::default()))?;
    keywords.finish("DataLoader")?;
    check_sent(&spec).map_err(|message| errors::config(py, &message))?;

    let (ranks, rank) = match spec.schedule.worker.take() {
        Some(JobWorker { world, number }) => (world.workers(), number),
        None => (1, 0),
    };
    let default = FeedSpec::default();
    // Loaders that differ in what only concerns this process ask for the same.
    let give_up_after = spec.give_up_after.unwrap_or(Duration::MAX);
    spec.devices = (0..ranks).map(|rank| format!("host:{rank}")).collect();
    (spec.give_up_after, spec.threads) = (default.give_up_after, None);
    spec.index = IndexPlace::default();
    // A lane may go on at any of several servers.
    let is_lent = url.split(',').any(|url| url.trim_start().starts_with("shared://"));
    let mut client = Client::builder(url).give_up_after(give_up_after);
    if let Some(batches) = spec.prefetch.and_then(NonZeroUsize::new) {
        // In the server's memory, a loop still has one batch when it asks for the next.
        client = client.window(if is_lent { batches.max(TWO) } else { batches });
    }
    if let Some(token) = token {
        client = client.token(token);
    }
    if let Some(authorities) = authorities {
        client = client.authorities(authorities);
    }
    if let Some((certificate, key)) = identity {
        client = client.identity(certificate, key);
    }
    let request = FeedRequest::feed(spec.clone()).share(share).group(group.unwrap_or_default());
    Ok(AtServer { client, request, spec, rank, give_up_after, is_lent })
}

/// What the keywords change: nothing, the layer of a net, or a spec.
fn base(keywords: &mut Keywords<'_>) -> PyResult<FeedBuilder> {
    if let Some(spec) = keywords.object("_spec") {
        return Ok(FeedBuilder::from(json::spec_of(&spec)?));
    }
    let Some((path, phase)) = keywords.take::<(PathBuf, String)>("_net")? else {
        return Ok(percolator::Feed::builder());
    };
    let layer: Option<String> = keywords.take("layer")?;
    feed::builder_of_net(keywords.py(), &path, &phase, layer.as_deref())
}

fn share(keywords: &mut Keywords<'_>) -> PyResult<Share> {
    let name: Option<String> = keywords.take("share")?;
    let clients: Option<usize> = keywords.take("clients")?;
    let window: Option<usize> = keywords.take("window")?;
    let refused = |message: &str| Err(errors::config(keywords.py(), message));
    let count = |name: &str, count: usize| {
        NonZeroUsize::new(count)
            .ok_or_else(|| errors::config(keywords.py(), &format!("{name}=0: give 1 or more")))
    };
    match (name.as_deref().unwrap_or("divided"), clients, window) {
        ("in_step", Some(clients), None) => Ok(Share::InStep { clients: count("clients", clients)? }),
        ("in_step", None, _) => refused(
            "share=\"in_step\" without clients: give the number of loaders that the first batch waits for",
        ),
        ("windowed", None, window) => {
            let batches = window.map_or(Ok(WINDOW), |window| count("window", window))?;
            Ok(Share::Windowed { batches })
        }
        ("divided", None, None) => Ok(Share::Divided),
        ("divided" | "windowed", Some(_), _) => {
            refused("clients is the number of loaders in step: set share=\"in_step\" as well")
        }
        ("divided" | "in_step", _, Some(_)) => {
            refused("window is the number of batches of a windowed share: set share=\"windowed\" as well")
        }
        (other, ..) => {
            refused(&format!("share={other:?}: there are \"divided\", \"in_step\" and \"windowed\""))
        }
    }
}

/// Checks that a server can be asked for all of it.
fn check_sent(spec: &FeedSpec) -> Result<(), String> {
    let is_attached = |source: &SourceSpec| matches!(source, SourceSpec::Attached { .. });
    if matches!(spec.decoder, DecoderSpec::Attached) || spec.sources.iter().any(is_attached) {
        return Err(
            "the spec names a decoder or a source of a program's own, which cannot be sent to a server: \
                    feed it here, without server"
                .to_owned(),
        );
    }
    match &spec.devices[..] {
        [device] if device == "host" || device.starts_with("host:") => {}
        [device] => {
            return Err(format!(
                "devices={device:?}, and server is set: a server's batches come to the host, and the program \
                 copies them to its device; leave devices out"
            ));
        }
        devices => {
            let found = devices.len();
            return Err(format!(
                "a loader has one device, and was given {found}: start a process for each of them, with its \
                 rank and world_size"
            ));
        }
    }
    if spec.receipts != Receipts::Off {
        return Err(
            "receipts are kept where records are read, and a server keeps none: leave them out".to_owned()
        );
    }
    if spec.transform_on != TransformPlace::Host {
        return Err("a server transforms on its host: leave transform_on out".to_owned());
    }
    if spec.bad_records.quarantine.is_some() {
        return Err("a server writes no files: leave the quarantine of bad_records out".to_owned());
    }
    Ok(())
}
