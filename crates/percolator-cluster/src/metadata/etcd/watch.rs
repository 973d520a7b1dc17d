//! Waiting for a change.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_stream::StreamExt as _;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status, Streaming};

use super::messages::Range;
use crate::etcd::rpc::{WatchCreateRequest, WatchRequest, WatchResponse};
use crate::etcd::{Calls, Failure, Repeat, Session};

/// The longest wait. Time is added to it, so it has an end.
const WAIT_MAX: Duration = Duration::from_secs(365 * 86_400);
/// What has happened before a watch begins is looked for every 100 ms. A wait that ends before that cannot
/// tell.
const SETTLED_AFTER: Duration = Duration::from_millis(500);
/// The pause after a watch was cut off.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until something in a range has changed after a revision, but no longer than `at_most` once etcd has
/// answered. Returns whether something has, or may have.
pub(super) async fn changed(
    calls: Arc<Calls>,
    range: Range,
    revision: i64,
    at_most: Duration,
) -> Result<bool, Failure> {
    let end = Instant::now() + at_most.min(WAIT_MAX);
    let Range { key, range_end } = range;
    // 0 would be from now on.
    let start_revision = revision.saturating_add(1).max(1);
    let create_request = Some(WatchCreateRequest { key, range_end, start_revision, fragment: true });
    let request = WatchRequest { create_request };
    let begin = |session| -> BoxFuture<_, Status> { Box::pin(open(session, request.clone())) };
    loop {
        let (mut answers, mut answer) = calls.request(Repeat::Allowed, &begin).await?;
        let begun = Instant::now();
        // The newest revision that is known of.
        let mut newest = 0;
        loop {
            if !answer.events.is_empty() || answer.compact_revision != 0 {
                return Ok(true);
            }
            if answer.canceled {
                return Err(canceled(&answer));
            }
            newest = newest.max(answer.header.map_or(0, |header| header.revision));
            answer = match timeout_at(end, answers.message()).await {
                Ok(Ok(Some(answer))) => answer,
                // It is too large to be taken, and only changes can be as large; or they are compacted away.
                Ok(Err(error)) if error.code() == Code::OutOfRange => return Ok(true),
                // It was cut off. The next attempt finds out what can be done.
                Ok(Ok(None) | Err(_)) => break,
                Err(_) => return Ok(newest > revision && begun.elapsed() < SETTLED_AFTER),
            };
        }
        sleep_until(end.min(Instant::now() + PAUSE)).await;
        if Instant::now() >= end {
            return Ok(false);
        }
    }
}

/// Begins a watch. Returns what will be said, and what is said first: that it has begun.
async fn open(
    session: Session,
    request: WatchRequest,
) -> Result<(Streaming<WatchResponse>, WatchResponse), Status> {
    // The watch ends when what asks for it does.
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let (answers, first) = session.ask_on(requests).await?;
    // What etcd says of a token that is no longer valid differs from version to version, and may be what it
    // says of a user who may not: a token that was just given tells.
    let reason = &first.cancel_reason;
    let is_refused =
        ["permission denied", "auth token", "revision of auth"].map(|part| reason.contains(part));
    if first.canceled && first.compact_revision == 0 && (reason.is_empty() || is_refused.contains(&true)) {
        return Err(Status::unauthenticated(format!("{reason:?} (or an invalid auth token)")));
    }
    Ok((answers, first))
}

fn canceled(answer: &WatchResponse) -> Failure {
    let reason = match &answer.cancel_reason[..] {
        // Before 3.4, it gave none.
        "" => "the watch was refused, or cancelled, without a reason",
        reason => reason,
    };
    Failure::Answer { code: Code::Cancelled, message: percolator_files::shown::message(reason).to_string() }
}
