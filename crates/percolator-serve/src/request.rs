//! What a client asks for: a feed, who shares it, and which columns its batches have.

use std::num::NonZeroUsize;

use percolator::feed::{FeedSpec, Receipts};
use percolator::net::NetState;
use percolator::{Device, Feed, FeedBuilder, FeedError, Net, Phase};
use serde::{Deserialize, Serialize};

/// The version of requests that is spoken.
const VERSION: u32 = 1;

/// The most bytes of a request, and of everything else that a client sends.
pub(crate) const REQUEST_BYTES_MAX: usize = 1 << 20;

/// The most ranks of a feed, clients that may share it, and batches that are kept for those who are late.
const MOST: usize = 1024;

/// A feed that a client asks for: as JSON, it is the command of a Flight descriptor.
///
/// ```
/// use percolator_serve::{FeedRequest, Share};
///
/// let text = r#"{"version": 1, "feed": {"sources": [{"lmdb": {"path": "train_lmdb"}}]}}"#;
/// let request = FeedRequest::parse(text.as_bytes())?;
/// assert_eq!(request.share, Share::Divided);
/// # Ok::<(), percolator_serve::RequestError>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedRequest {
    /// The version of this description: 1.
    pub version: u32,
    /// The feed, as the options of its builder. Its devices are `host:0`, `host:1` and so on: one for each
    /// rank. Relative paths start from the server's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedSpec>,
    /// Or the data layer of one of Caffe's nets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetRequest>,
    /// Who else gets its batches.
    #[serde(default)]
    pub share: Share,
    /// Only clients that name the same group share: a job's name, so that two jobs do not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// What a batch says about its rows, beside its fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// The data layer of a net.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetRequest {
    /// The net, as the text of a prototxt.
    pub text: String,
    /// Which of its layers count.
    #[serde(default = "train")]
    pub phase: Phase,
    /// The name of the layer; needed if the net has several data layers in this phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// The number of ranks.
    #[serde(default = "one")]
    pub ranks: NonZeroUsize,
}

fn train() -> Phase {
    Phase::Train
}

fn one() -> NonZeroUsize {
    NonZeroUsize::MIN
}

/// Which clients get the batches of a feed. Clients that ask for one feed, shared in one way, share one
/// reader and one decode.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Share {
    /// Each record goes to one of them: every rank of the feed is one client's.
    #[default]
    Divided,
    /// Each client gets every batch of its rank. All are in step: none is further ahead of another than the
    /// server's window.
    InStep {
        /// How many clients the first batch waits for.
        #[serde(default = "one")]
        clients: NonZeroUsize,
    },
    /// Each client gets the batches of its rank that it is in time for. The fastest sets the pace, and a
    /// batch tells its client how many it missed before it.
    Windowed {
        /// How many batches are kept for those who are slow, or late.
        batches: NonZeroUsize,
    },
}

/// A column that says something about the rows of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Column {
    /// `percolator.epoch`: the epoch of each record, as u64; 0 in padding.
    Epoch,
    /// `percolator.position`: the position of each record, as u64; 0 in padding.
    Position,
    /// `percolator.step`: the step of the batch, as u64, in each row.
    Step,
    /// `percolator.mask`: 1 for a record, 0 for padding, as u8.
    Mask,
}

/// Why a request cannot be understood.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It is too long.
    #[error("a request of {found} bytes: at most {REQUEST_BYTES_MAX} are read")]
    TooLong {
        /// Its bytes.
        found: usize,
    },
    /// It is not JSON, or not of this form.
    #[error("this does not describe a feed: {0}")]
    Form(serde_json::Error),
    /// Its version is another.
    #[error("the request has version {found}, and this server speaks {VERSION}: use a client of its version")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It has neither a feed nor a net, or both.
    #[error(
        "a request has either `feed`, the options of a feed, or `net`, one of Caffe's nets, and this has \
         {found}"
    )]
    Described {
        /// What it has.
        found: &'static str,
    },
    /// A number is too large.
    #[error("{what} is {found}, and at most {MOST} are allowed")]
    TooMany {
        /// Which number.
        what: &'static str,
        /// The number.
        found: usize,
    },
    /// The net has no such layer.
    #[error("the net has no data layer {name:?} in this phase; it has {found}")]
    NoLayer {
        /// What was asked for.
        name: String,
        /// What there is.
        found: String,
    },
    /// The net has several data layers, and the request does not say which.
    #[error("the net has several data layers in this phase ({found}): `layer` names one")]
    SeveralLayers {
        /// Their names.
        found: String,
    },
    /// The net is not valid.
    #[error(transparent)]
    Net(FeedError),
}

impl FeedRequest {
    /// Asks for a feed by its options.
    #[must_use]
    pub fn feed(spec: FeedSpec) -> Self {
        FeedRequest {
            version: VERSION,
            feed: Some(spec),
            net: None,
            share: Share::Divided,
            group: String::new(),
            columns: Vec::new(),
        }
    }

    /// Asks for the feed of a net's data layer.
    #[must_use]
    pub fn net(text: impl Into<String>, phase: Phase) -> Self {
        let net = NetRequest { text: text.into(), phase, layer: None, ranks: NonZeroUsize::MIN };
        FeedRequest { feed: None, net: Some(net), ..Self::feed(FeedSpec::default()) }
    }

    /// Divides it among so many ranks. A feed by its options has one for each of its devices: `host:0` and so
    /// on.
    #[must_use]
    pub fn ranks(mut self, ranks: NonZeroUsize) -> Self {
        if let Some(net) = &mut self.net {
            net.ranks = ranks;
        }
        if let Some(feed) = &mut self.feed {
            feed.devices = (0..ranks.get()).map(|rank| format!("host:{rank}")).collect();
        }
        self
    }

    /// Shares it in this way.
    #[must_use]
    pub fn share(self, share: Share) -> Self {
        FeedRequest { share, ..self }
    }

    /// Shares it only with clients that name this group.
    #[must_use]
    pub fn group(self, group: impl Into<String>) -> Self {
        FeedRequest { group: group.into(), ..self }
    }

    /// Adds these columns to its batches.
    #[must_use]
    pub fn columns(self, columns: impl Into<Vec<Column>>) -> Self {
        FeedRequest { columns: columns.into(), ..self }
    }

    /// Reads a request.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if it is not one, or of another version.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        if text.len() > REQUEST_BYTES_MAX {
            return Err(RequestError::TooLong { found: text.len() });
        }
        let request: FeedRequest = serde_json::from_slice(text).map_err(RequestError::Form)?;
        request.check()?;
        Ok(request)
    }

    /// The request as JSON.
    ///
    /// # Errors
    ///
    /// [`RequestError`] if a path is not UTF-8.
    pub fn to_json(&self) -> Result<String, RequestError> {
        serde_json::to_string(self).map_err(RequestError::Form)
    }

    /// The request without what those who share its feed may have set differently.
    pub(crate) fn of_feed(&self) -> Self {
        let mut request = FeedRequest { columns: Vec::new(), ..self.clone() };
        if let Some(spec) = &mut request.feed {
            let default = FeedSpec::default();
            spec.access = default.access;
            spec.index = default.index;
            (spec.threads, spec.prefetch, spec.memory_limit) = (None, None, None);
            (spec.warn_after, spec.give_up_after) = (default.warn_after, None);
            spec.receipts = Receipts::Off;
        }
        request
    }

    /// Checks what its form allows and this version does not.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        if self.version != VERSION {
            return Err(RequestError::Version { found: self.version });
        }
        match (&self.feed, &self.net) {
            (Some(_), Some(_)) => return Err(RequestError::Described { found: "both" }),
            (None, None) => return Err(RequestError::Described { found: "neither" }),
            _ => {}
        }
        let devices = self.feed.as_ref().map_or(0, |feed| feed.devices.len());
        let ranks = self.net.as_ref().map_or(0, |net| net.ranks.get());
        let (what, shared) = match self.share {
            Share::Divided => ("", 0),
            Share::InStep { clients } => ("`clients`", clients.get()),
            Share::Windowed { batches } => ("`batches`", batches.get()),
        };
        let numbers = [("the number of `devices`", devices), ("`ranks`", ranks), (what, shared)];
        match numbers.into_iter().find(|&(_, found)| found > MOST) {
            Some((what, found)) => Err(RequestError::TooMany { what, found }),
            None => Ok(()),
        }
    }

    /// What would build the feed that is asked for.
    pub(crate) fn builder(&self) -> Result<FeedBuilder, RequestError> {
        let Some(NetRequest { text, phase, layer, ranks }) = &self.net else {
            return Ok(FeedBuilder::from(self.feed.clone().unwrap_or_default()));
        };
        let net = Net::from_text(text).map_err(|error| RequestError::Net(error.into()))?;
        let layers = Feed::layers_of(&net, &NetState::from(*phase)).map_err(RequestError::Net)?;
        let names = || layers.iter().map(|layer| layer.spec().layer.clone()).collect::<Vec<_>>().join(", ");
        let builder = match layer {
            Some(name) => {
                let found = layers.iter().find(|layer| layer.spec().layer == *name);
                found.ok_or_else(|| RequestError::NoLayer { name: name.clone(), found: names() })?
            }
            None if layers.len() > 1 => return Err(RequestError::SeveralLayers { found: names() }),
            // A net without one is an error of its own.
            None => &layers[0],
        };
        Ok(builder.clone().devices((0..ranks.get()).map(Device::host)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        FeedRequest::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let request = FeedRequest::feed(FeedSpec::default()).columns([Column::Epoch, Column::Mask]);
        for share in [Share::Divided, Share::InStep { clients: one() }, Share::Windowed { batches: one() }] {
            let request = request.clone().share(share);
            assert_eq!(FeedRequest::parse(request.to_json().unwrap().as_bytes()).unwrap(), request);
        }
        let request = FeedRequest::net("name: \"a\"", Phase::Test);
        assert_eq!(FeedRequest::parse(request.to_json().unwrap().as_bytes()).unwrap(), request);
    }

    #[test]
    fn those_who_share_a_feed_ask_for_the_same() {
        let mut spec = FeedSpec::default();
        (spec.prefetch, spec.memory_limit) = (Some(7), Some(1 << 30));
        let (one, other) = (FeedRequest::feed(FeedSpec::default()), FeedRequest::feed(spec));
        assert_eq!(one.clone().columns([Column::Epoch]).of_feed(), other.of_feed());
        assert_ne!(one.of_feed(), other.group("job-7").of_feed());
    }

    #[test]
    fn a_request_that_is_none_says_why() {
        assert!(refused("{").starts_with("this does not describe a feed: EOF while parsing"));
        assert!(refused("{\"version\": 1, \"fed\": {}}").contains("unknown field `fed`"));
        assert_eq!(
            refused("{\"version\": 2, \"feed\": {}}"),
            "the request has version 2, and this server speaks 1: use a client of its version"
        );
        assert!(refused("{\"version\": 1}").ends_with("and this has neither"));
        assert!(
            refused("{\"version\": 1, \"feed\": {}, \"net\": {\"text\": \"\"}}").ends_with("this has both")
        );
        let many = "{\"version\": 1, \"feed\": {}, \"share\": {\"windowed\": {\"batches\": 1025}}}";
        assert_eq!(refused(many), "`batches` is 1025, and at most 1024 are allowed");
        let many = FeedRequest::feed(FeedSpec::default()).ranks(NonZeroUsize::new(1025).unwrap());
        assert_eq!(
            refused(&many.to_json().unwrap()),
            "the number of `devices` is 1025, and at most 1024 are allowed"
        );
        let many = FeedRequest::net("", Phase::Train).ranks(NonZeroUsize::new(1025).unwrap());
        assert_eq!(refused(&many.to_json().unwrap()), "`ranks` is 1025, and at most 1024 are allowed");
        assert!(refused(&" ".repeat(REQUEST_BYTES_MAX + 1)).starts_with("a request of 1048577 bytes"));
    }

    #[test]
    fn a_net_with_several_data_layers_needs_a_name() {
        let layer = |name: &str| {
            format!(
                "layer {{ name: \"{name}\" type: \"Data\" top: \"{name}\" \
                 data_param {{ source: \"db\" batch_size: 2 backend: LMDB }} }}"
            )
        };
        let net = |layer: Option<&str>, text: &str| {
            let mut request = FeedRequest::net(text, Phase::Train);
            request.net.as_mut().unwrap().layer = layer.map(str::to_owned);
            request.net.as_mut().unwrap().ranks = NonZeroUsize::new(3).unwrap();
            request.builder()
        };
        let two = layer("a") + &layer("b");
        let error = net(None, &two).unwrap_err().to_string();
        assert_eq!(error, "the net has several data layers in this phase (a, b): `layer` names one");
        let error = net(Some("c"), &two).unwrap_err().to_string();
        assert_eq!(error, "the net has no data layer \"c\" in this phase; it has a, b");
        let spec = net(Some("b"), &two).unwrap().spec().clone();
        assert_eq!((&*spec.layer, spec.devices.len()), ("b", 3));
        assert!(net(None, "").is_err());
    }
}
