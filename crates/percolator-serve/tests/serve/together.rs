//! Clients, and what they have in common.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use percolator::feed::FeedSpec;
use percolator_files::shown;
use percolator_serve::{
    Client, ClientError, ClientStatus, Column, FeedRequest, RemoteLane, Server, ServerStatus, Status,
};

use crate::common::served::Served;
use crate::process::{hung_after, must_end};
use crate::seen::Seen;

/// Asks for a feed whose batches say which records they have.
pub(crate) fn request(feed: &FeedSpec) -> FeedRequest {
    FeedRequest::feed(feed.clone()).columns([Column::Epoch, Column::Position])
}

impl Served {
    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.url()).unwrap()
    }

    /// A client whose lanes end with the first error.
    pub(crate) fn impatient_client(&self) -> Client {
        Client::builder(self.url()).give_up_after(Duration::ZERO).connect().unwrap()
    }
}

/// The next batches of a lane.
pub(crate) fn some(lane: &mut RemoteLane, count: usize) -> Vec<Seen> {
    let seen: Vec<_> = lane.take(count).map(|batch| Seen::remote(&batch.unwrap())).collect();
    assert_eq!(seen.len(), count, "batches");
    seen
}

/// All batches that a lane still has.
pub(crate) fn rest(lane: RemoteLane) -> Vec<Seen> {
    all([lane], usize::MAX).remove(0)
}

/// The next batches of several lanes, each of which has a thread of its own.
pub(crate) fn all(lanes: impl IntoIterator<Item = RemoteLane>, most: usize) -> Vec<Vec<Seen>> {
    let consume = |lane: RemoteLane| {
        thread::spawn(move || lane.take(most).map(|batch| Seen::remote(&batch.unwrap())).collect())
    };
    let threads: Vec<thread::JoinHandle<Vec<Seen>>> = lanes.into_iter().map(consume).collect();
    must_end("lanes of a server", move || threads.into_iter().map(|it| it.join().unwrap()).collect())
}

/// The batches of a lane up to its error, and the error.
pub(crate) fn until_error(lane: &mut RemoteLane) -> (Vec<Seen>, ClientError) {
    let mut seen = Vec::new();
    loop {
        match lane.next() {
            Some(Ok(batch)) => seen.push(Seen::remote(&batch)),
            Some(Err(error)) => {
                assert!(lane.next().is_none(), "an error is the end");
                return (seen, error);
            }
            None => panic!("it ends after {} batches, without an error", seen.len()),
        }
    }
}

/// What the server said.
#[track_caller]
pub(crate) fn refused(error: &ClientError) -> &Status {
    match error {
        ClientError::Refused { status, .. } => status,
        ClientError::GaveUp { error, .. } => refused(error),
        other => panic!("it was not refused by the server: {}", shown::with_sources(other)),
    }
}

/// Looks until what is seen is what is waited for, and returns it.
#[track_caller]
pub(crate) fn until<T: fmt::Debug>(what: &str, look: impl Fn() -> T, is_it: impl Fn(&T) -> bool) -> T {
    let start = Instant::now();
    loop {
        let seen = look();
        if is_it(&seen) {
            return seen;
        }
        assert!(start.elapsed() < hung_after(), "{what}: {seen:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the server has feeds with so many clients each, in the order in which they were started.
#[track_caller]
pub(crate) fn until_clients(server: &Server, counts: &[usize]) -> ServerStatus {
    let is_it =
        |status: &ServerStatus| status.feeds.iter().map(|feed| feed.clients.len()).eq(counts.iter().copied());
    until(&format!("feeds with {counts:?} clients"), || server.status(), is_it)
}

/// Waits until the server has neither clients nor feeds, nor memory of feeds.
#[track_caller]
pub(crate) fn until_empty(server: &Server) -> ServerStatus {
    let is_it = |status: &ServerStatus| status.feeds.is_empty() && status.memory_bytes == 0;
    until("a server without clients", || server.status(), is_it)
}

/// The only client of a server.
#[track_caller]
pub(crate) fn only_client(status: &ServerStatus) -> &ClientStatus {
    match &status.feeds[..] {
        [feed] if feed.clients.len() == 1 => &feed.clients[0],
        feeds => panic!("{feeds:?}"),
    }
}
