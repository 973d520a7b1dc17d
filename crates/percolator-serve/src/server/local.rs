//! A client of the same machine: it is told where its batches are, and reads them there.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::backlog::{Arrays, Place, Taken};
use super::memory::{Regions, Within};
use super::registry::{Subscription, Taking};
use super::service::{Peer, Service, within};
use super::status::Method;
use crate::columns::Columns;
use crate::grpc::{Code, Status};
use crate::local::{CLIENT_BYTES_MAX, FromClient, FromServer, Hello, LocalBatch, MAGIC, Parts, framed};
use crate::message::SchemaMessage;
use crate::request::Share;

/// What is read at one time.
const READ_BYTES: usize = 16 * 1024;

/// The batches that a client may be reading. What it has not released when this is dropped, it may read for
/// ever: that memory is not written again.
struct Lent {
    place: Arc<Place<Arrays>>,
    regions: Regions,
    state: Mutex<LentState>,
}

#[derive(Default)]
struct LentState {
    /// Each with the number of its region.
    batches: BTreeMap<u64, (u64, Arrays)>,
    /// One more than the number of the last batch that the client is done with.
    acknowledged: u64,
    /// One more than the number of the last batch that was lent.
    end: u64,
}

impl Lent {
    fn lend(&self, number: u64, region: u64, batch: Arrays) {
        let mut state = self.state.lock();
        state.batches.insert(number, (region, batch));
        state.end = number + 1;
    }

    /// A batch is done with when the client says so and nobody reads its memory: batches that are held count
    /// in the window, however old they are.
    fn hear(&self, said: FromClient) -> Result<(), Status> {
        let mut state = self.state.lock();
        match said {
            FromClient::Acknowledged(number) if number < state.end => {
                state.acknowledged = state.acknowledged.max(number + 1);
            }
            FromClient::Released(number) if state.batches.remove(&number).is_some() => {}
            FromClient::Acknowledged(number) | FromClient::Released(number) => {
                let message = format!("a client spoke of batch {number}, which it does not have");
                return Err(Status::new(Code::InvalidArgument, message));
            }
        }
        let held = state.batches.range(..state.acknowledged).count() as u64;
        match (state.acknowledged - held).checked_sub(1) {
            // It stands for as many batches, whichever they are.
            Some(done) => self.place.acknowledge(done, Instant::now()),
            None => Ok(()),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for (region, _) in self.state.get_mut().batches.values() {
            self.regions.keep(*region);
        }
    }
}

/// Whether a connection's first bytes are a local client's.
pub(super) async fn is_local(stream: &UnixStream) -> io::Result<bool> {
    let mut begin = [0; MAGIC.len()];
    loop {
        let ready = stream.ready(Interest::READABLE).await?;
        let peeked = stream.try_io(Interest::READABLE, || {
            let (_, bytes) = rustix::net::recv(stream, &mut begin, RecvFlags::PEEK)?;
            match bytes > 0 && begin[..bytes] == MAGIC[..bytes] {
                // HTTP may begin like it. Waits until there is more; a stream that was closed is ready for
                // ever, and has no more.
                true if bytes < MAGIC.len() && !ready.is_read_closed() => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                is_alike => Ok(is_alike && bytes == MAGIC.len()),
            }
        });
        match peeked {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            peeked => return peeked,
        }
    }
}

/// Serves a client until either has had enough.
pub(super) async fn serve(stream: UnixStream, service: Arc<Service>, peer: Peer) {
    let hang_up = peer.hang_up.clone();
    let served = pin!(talk(&stream, &service, peer));
    let outcome = match select(served, pin!(hang_up.notified())).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(_) => return,
    };
    let end = match outcome {
        Ok(end) => end.err().map(|status| (status.code.number(), status.message)),
        // Nobody is there to be told.
        Err(error) => return tracing::debug!(%error, "a local client went away"),
    };
    // A client that reads nothing is not told.
    let _ = within(async { Ok(send(&stream, &framed(&FromServer::End(end)), None).await) }).await;
}

/// Says everything up to the end of the stream, and returns how that ends.
async fn talk(stream: &UnixStream, service: &Service, peer: Peer) -> io::Result<Result<(), Status>> {
    let mut parts = Parts::new(CLIENT_BYTES_MAX);
    let hello = within(async { Ok(hear::<Hello>(stream, &mut parts, MAGIC.len()).await) }).await;
    let Hello { ticket, token, window } = match hello {
        Ok(heard) => match heard? {
            Ok(hello) => hello,
            Err(status) => return Ok(Err(status)),
        },
        Err(status) => return Ok(Err(status)),
    };
    if let Err(status) = service.tokens.check_token(token.as_deref().map(str::as_bytes)) {
        return Ok(Err(status));
    }
    let taking = Taking { method: Method::Local, peer: peer.name, window, hang_up: peer.hang_up };
    let (subscription, columns, ticket) = match service.take(ticket.as_bytes(), taking).await {
        Ok(Some(taken)) => taken,
        Ok(None) => return Ok(Ok(())),
        Err(status) => return Ok(Err(status)),
    };
    if let Share::Windowed { .. } = subscription.feed.share {
        let message = "a windowed feed is taken over Flight (grpc+unix://): batches that a slow client reads \
                       in their place could not be filled again";
        return Ok(Err(Status::new(Code::FailedPrecondition, message)));
    }
    let schema = BASE64.encode(SchemaMessage::of(columns.schema()).alone);
    send(stream, &framed(&FromServer::Schema(schema)), None).await?;
    let regions = subscription.registry().regions.clone();
    let lent = Lent { place: subscription.place.clone(), regions, state: Mutex::default() };
    let heard = pin!(listen(stream, parts, &lent));
    let told = pin!(tell(stream, &subscription, &columns, &ticket, &lent));
    match select(told, heard).await {
        Either::Left((told, heard)) => {
            if let Ok(Ok(())) = told {
                send(stream, &framed(&FromServer::End(None)), None).await?;
                // It acknowledges and releases what it got. The feed does not wait until it also goes.
                let done = pin!(poll_fn(|context| subscription.place.poll_done(context)));
                return match select(heard, done).await {
                    Either::Left((heard, _)) => heard.map(Err),
                    Either::Right((done, _)) => Ok(done),
                };
            }
            told
        }
        Either::Right((heard, _)) => heard.map(Err),
    }
}

/// Tells the client about each batch.
async fn tell(
    stream: &UnixStream,
    subscription: &Subscription,
    columns: &Columns,
    ticket: &str,
    lent: &Lent,
) -> io::Result<Result<(), Status>> {
    let regions = &subscription.registry().regions;
    let mut known = HashSet::new();
    loop {
        let next = poll_fn(|context| subscription.place.poll_next(context, Instant::now())).await;
        let Taken { batch, number, missed } = match next {
            Some(Ok(taken)) => taken,
            Some(Err(status)) => return Ok(Err(status)),
            None => return Ok(Ok(())),
        };
        let told = describe(subscription, columns, ticket, &Taken { batch: batch.clone(), number, missed });
        let (mut told, Within { region, .. }) = match told {
            Ok(told) => told,
            Err(status) => return Ok(Err(status)),
        };
        told.is_new = known.insert(region.number);
        if told.is_new {
            // A region that is replaced has a successor, which is new.
            told.gone = regions.take_gone(&mut known);
        }
        let file = told.is_new.then(|| region.file.as_fd());
        let bytes = told.arrays.iter().map(|&(_, length)| length as u64).sum();
        subscription.count(1, bytes, 0);
        lent.lend(number, region.number, batch);
        send(stream, &framed(&FromServer::Batch(Box::new(told))), file).await?;
    }
}

/// Where a batch is.
fn describe(
    subscription: &Subscription,
    columns: &Columns,
    ticket: &str,
    taken: &Taken<Arrays>,
) -> Result<(LocalBatch, Within), Status> {
    let added = columns.added_to(&taken.batch)?;
    let note = subscription.note(taken, ticket)?;
    let regions = &subscription.registry().regions;
    let unshared = || {
        let message = "the memory of these batches cannot be shared (sealed files in memory, of which the \
                       system has none, or none left): take the feed over Flight, grpc+unix://";
        Status::new(Code::FailedPrecondition, message)
    };
    // All arrays of a batch are in one region. Those without bytes have no place of their own.
    let mut arrays = Vec::with_capacity(taken.batch.len());
    let mut place = None;
    for array in &*taken.batch {
        let bytes: &[u8] = array.as_ref();
        let offset = match bytes {
            [] => 0,
            bytes => place.insert(regions.find(bytes).ok_or_else(unshared)?).offset,
        };
        arrays.push((offset, bytes.len()));
    }
    let first = taken.batch.first().map(AsRef::as_ref);
    let within = place.or_else(|| regions.find(first?)).ok_or_else(unshared)?;
    let (region, region_bytes) = (within.region.number, within.region.length);
    let (is_new, gone) = (false, Vec::new());
    Ok((LocalBatch { note, region, region_bytes, is_new, gone, arrays, columns: added }, within))
}

/// Hears what the client is done with, until it goes, or says what it must not.
async fn listen(stream: &UnixStream, mut parts: Parts, lent: &Lent) -> io::Result<Status> {
    loop {
        let heard = hear::<FromClient>(stream, &mut parts, 0).await?;
        if let Err(status) = heard.and_then(|said| lent.hear(said)) {
            return Ok(status);
        }
        // A client that never stops talking does not keep this thread from others.
        tokio::task::consume_budget().await;
    }
}

/// The client's next message, after this many bytes that say nothing. At its end, an error.
async fn hear<M: DeserializeOwned>(
    stream: &UnixStream,
    parts: &mut Parts,
    mut skipped: usize,
) -> io::Result<Result<M, Status>> {
    let mut buffer = [0; READ_BYTES];
    loop {
        match parts.next() {
            Ok(Some(message)) => return Ok(Ok(message)),
            Ok(None) => {}
            Err(error) => return Ok(Err(Status::new(Code::InvalidArgument, error.to_string()))),
        }
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                let skip = skipped.min(bytes);
                skipped -= skip;
                parts.push(&buffer[skip..bytes]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends a message, with a descriptor if there is one.
async fn send(stream: &UnixStream, mut bytes: &[u8], mut file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = file.as_slice();
            if !files.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(files));
            }
            Ok(rustix::net::sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
        });
        match sent {
            Ok(sent) => {
                bytes = &bytes[sent..];
                file = None;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_client_that_stops_within_the_first_bytes_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let begins: [(&[u8], bool); 5] =
            [(b"", false), (b"P", false), (b"PLM", false), (b"PRI ", false), (&MAGIC, true)];
        for (begin, is_theirs) in begins {
            let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
            client.write_all(begin).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            server.set_nonblocking(true).unwrap();
            let found = runtime.block_on(async {
                let server = UnixStream::from_std(server).unwrap();
                tokio::time::timeout(Duration::from_secs(60), is_local(&server)).await
            });
            assert_eq!(found.unwrap().unwrap(), is_theirs, "{begin:?}");
        }
    }
}
