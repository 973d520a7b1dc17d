//! What a server does at the moment, for people and programs.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::request::Share;

/// What a server does at the moment: what [`Client::status`](crate::Client::status) returns as JSON.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Whether it takes no more clients, since it is about to end.
    pub is_draining: bool,
    /// The memory that feeds were admitted with, in bytes.
    pub memory_bytes: u64,
    /// The most memory of all feeds.
    pub memory_limit_bytes: u64,
    /// The threads that all feeds share.
    pub threads: usize,
    /// The feeds that run.
    pub feeds: Vec<FeedStatus>,
    /// The number of streams since it began.
    pub streams_total: u64,
    /// The number of batches that were sent.
    pub batches_total: u64,
    /// The bytes of those batches.
    pub bytes_total: u64,
    /// How many clients were hung up on, since they neither took a batch nor noticed that they were no longer
    /// waited for.
    pub dismissed_total: u64,
}

/// A feed that runs.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedStatus {
    /// Its name, which no other feed of the server ever has.
    pub name: String,
    /// Where its records are.
    pub source: String,
    /// Who gets its batches.
    pub share: Share,
    /// The number of its ranks that run here.
    pub ranks: usize,
    /// The memory that it was admitted with, in bytes.
    pub memory_bytes: u64,
    /// The number of its threads.
    pub threads: usize,
    /// Its clients.
    pub clients: Vec<ClientStatus>,
}

/// A client's stream.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Where it is: an address, or `unix:` and the number of its connection.
    pub peer: String,
    /// The rank that it gets.
    pub rank: usize,
    /// How it takes its batches.
    pub method: Method,
    /// The number of batches that it was sent.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The number of batches that it has not acknowledged.
    pub unacknowledged: u64,
    /// The number of batches that it was too late for.
    pub missed: u64,
}

/// How a client takes a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// With acknowledgements (`DoExchange`): each batch comes exactly once.
    Exchange,
    /// Without (`DoGet`): each batch comes at most once.
    Get,
    /// In the server's memory, with acknowledgements: each batch comes exactly once, and does not travel.
    Local,
}

impl ServerStatus {
    /// The numbers in Prometheus' text format.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        let clients = self.feeds.iter().map(|feed| feed.clients.len()).sum::<usize>() as u64;
        let gauges = [
            ("feeds", "Feeds that run.", self.feeds.len() as u64),
            ("clients", "Streams that are open.", clients),
            ("memory_bytes", "The memory that feeds were admitted with.", self.memory_bytes),
            ("memory_limit_bytes", "The most memory of all feeds.", self.memory_limit_bytes),
        ];
        let counters = [
            ("streams_total", "Streams since the server began.", self.streams_total),
            ("batches_total", "Batches that were sent.", self.batches_total),
            ("sent_bytes_total", "The bytes of those batches.", self.bytes_total),
            ("dismissed_total", "Clients that were hung up on.", self.dismissed_total),
        ];
        for (kind, numbers) in [("gauge", gauges), ("counter", counters)] {
            for (name, help, value) in numbers {
                let name = format!("percolator_serve_{name}");
                // Writing to a text cannot fail.
                let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
            }
        }
        let families = [
            ("client_batches_total", "Batches that a client was sent.", "counter"),
            ("client_sent_bytes_total", "The bytes that a client was sent.", "counter"),
            ("client_unacknowledged", "Batches that a client has not acknowledged.", "gauge"),
            ("client_missed_total", "Batches that a client was too late for.", "counter"),
        ];
        for (number, (name, help, kind)) in families.into_iter().enumerate() {
            let name = format!("percolator_serve_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (feed, client) in
                self.feeds.iter().flat_map(|feed| feed.clients.iter().map(move |it| (feed, it)))
            {
                let ClientStatus { peer, rank, batches, bytes, unacknowledged, missed, .. } = client;
                let value = [batches, bytes, unacknowledged, missed][number];
                let feed = &feed.name;
                let _ = writeln!(text, "{name}{{feed=\"{feed}\",peer=\"{peer}\",rank=\"{rank}\"}} {value}");
            }
        }
        text
    }
}
