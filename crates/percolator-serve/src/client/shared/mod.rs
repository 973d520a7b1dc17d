//! A lane of a server on the same machine, whose batches do not travel: they are read where they were
//! written. [`crate::local`] has the messages.

mod region;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::{Either, select};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send,
};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender};

pub(crate) use self::region::LentBatch;

use self::region::{MappedRegion, RegionError};
use super::arrival::{Arrival, ToLane};
use super::connection::Dialer;
use super::error::ClientError;
use super::receive::Malformed;
use crate::grpc::{Code, Status};
use crate::local::{FromClient, FromServer, Hello, LocalBatch, MAGIC, Parts, SERVER_BYTES_MAX, framed};
use crate::message::BatchNote;

/// What is read at one time.
const READ_BYTES: usize = 64 * 1024;

/// The most descriptors that are taken at one time. A server sends one with a message.
const FILES_MAX: usize = 4;

/// The most regions that are mapped at one time: more than a ring has batches.
const REGIONS_MAX: usize = 1 << 14;

/// A batch, and where it is.
#[derive(Debug)]
pub(crate) struct PlacedBatch {
    pub(crate) note: BatchNote,
    pub(crate) lent: Arc<LentBatch>,
    /// The offset and the length of each array, as the server says them.
    pub(crate) arrays: Vec<(usize, usize)>,
    /// The columns that were asked for.
    pub(crate) columns: Vec<Vec<u64>>,
}

/// What a lane says to its server, and how its batches are released. The connection ends with the lane,
/// whoever still reads a batch: the server does not write where that is.
#[derive(Debug)]
pub(crate) struct Saying {
    pub(crate) said: UnboundedReceiver<FromClient>,
    pub(crate) releases: WeakUnboundedSender<FromClient>,
}

/// Takes a stream from the server at a socket, and hands its batches to the lane.
pub(crate) async fn take(
    dialer: Arc<Dialer>,
    path: PathBuf,
    ticket: String,
    window: usize,
    saying: Saying,
    to_lane: ToLane,
) {
    match UnixStream::connect(&path).await {
        Ok(socket) => {
            let token = dialer.token_text().map(str::to_owned);
            converse(&dialer, &socket, &Hello { ticket, token, window: Some(window) }, saying, to_lane).await;
        }
        Err(error) => to_lane.end(Err(dialer.unreachable(error))),
    }
}

/// Says and hears everything until the lane is gone.
async fn converse(dialer: &Dialer, socket: &UnixStream, hello: &Hello, saying: Saying, to_lane: ToLane) {
    let Saying { said, releases } = saying;
    let mut begin = MAGIC.to_vec();
    begin.extend(framed(hello));
    let mut say = pin!(say(socket, begin, said));
    let (ended, is_saying) = {
        let hear = pin!(hear(dialer, socket, &releases, &to_lane));
        match select(hear, say.as_mut()).await {
            Either::Left((ended, _)) => (ended, true),
            // The lane has gone, and all that it said was sent.
            Either::Right((Ok(()), _)) => return,
            // What the server said before it went is still there.
            Either::Right((Err(_), hear)) => (hear.await, false),
        }
    };
    to_lane.end(ended);
    if is_saying {
        // The lane acknowledges what it got before the end.
        let _ = say.await;
    }
}

/// Says what there is to say, for as long as there is who says it.
async fn say(socket: &UnixStream, begin: Vec<u8>, mut said: UnboundedReceiver<FromClient>) -> io::Result<()> {
    write(socket, &begin).await?;
    while let Some(first) = said.recv().await {
        let mut bytes = framed(&first);
        while let Ok(more) = said.try_recv() {
            bytes.extend(framed(&more));
        }
        write(socket, &bytes).await?;
    }
    Ok(())
}

/// Hears what the server says, up to the end of the stream.
async fn hear(
    dialer: &Dialer,
    socket: &UnixStream,
    releases: &WeakUnboundedSender<FromClient>,
    to_lane: &ToLane,
) -> Result<(), ClientError> {
    let malformed = |found: String| dialer.malformed(Malformed(found));
    let mut parts = Parts::new(SERVER_BYTES_MAX);
    let (mut regions, mut files) = (HashMap::new(), VecDeque::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match read(socket, &mut buffer, &mut files).await {
            Ok(0) => return Err(dialer.cut_off()),
            Ok(bytes) => parts.push(&buffer[..bytes]),
            // A descriptor could not be taken.
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => {
                return Err(dialer.unmapped(error));
            }
            Err(error) => return Err(dialer.broken(error)),
        }
        while let Some(message) = parts.next::<FromServer>().map_err(|error| malformed(error.to_string()))? {
            let arrival = match message {
                FromServer::Schema(schema) => {
                    let schema = BASE64.decode(schema);
                    Arrival::Schema(schema.map_err(|error| malformed(format!("no schema: {error}")))?)
                }
                FromServer::Batch(told) => {
                    let placed = place(*told, &mut regions, &mut files, releases);
                    Arrival::Placed(placed.map_err(|error| match error {
                        RegionError::Unfit(found) => dialer.malformed(found),
                        RegionError::System(error) => dialer.unmapped(error),
                    })?)
                }
                FromServer::End(None) => return Ok(()),
                FromServer::End(Some((code, message))) => {
                    return Err(dialer.refused(Status::new(Code::of(code), message)));
                }
            };
            if !to_lane.hand(arrival).map_err(|found| dialer.malformed(found))? {
                return Ok(());
            }
        }
        // One may have come before the rest of its message.
        if files.len() > 1 {
            return Err(malformed(format!("{} descriptors that no batch is in", files.len())));
        }
    }
}

/// Where a batch is, which is in a region that was mapped before, or comes with it.
fn place(
    told: LocalBatch,
    regions: &mut HashMap<u64, Arc<MappedRegion>>,
    files: &mut VecDeque<OwnedFd>,
    releases: &WeakUnboundedSender<FromClient>,
) -> Result<PlacedBatch, RegionError> {
    let unfit = |what: String| RegionError::Unfit(Malformed(what));
    let LocalBatch { note, region: number, region_bytes, is_new, gone, arrays, columns } = told;
    for gone in gone {
        regions.remove(&gone);
    }
    if is_new {
        if regions.len() >= REGIONS_MAX {
            return Err(unfit(format!("more than {REGIONS_MAX} regions at one time")));
        }
        let file = files.pop_front();
        let file = file.ok_or_else(|| unfit(format!("the region {number} without its descriptor")))?;
        let region = Arc::new(MappedRegion::new(&file, region_bytes)?);
        if regions.insert(number, region).is_some() {
            return Err(unfit(format!("the region {number} twice")));
        }
    }
    let Some(region) = regions.get(&number) else {
        return Err(unfit(format!("a batch in the region {number}, which did not come")));
    };
    if region.bytes() != region_bytes {
        let found = region.bytes();
        return Err(unfit(format!("a region of {region_bytes} bytes, which had {found} before")));
    }
    let lent = Arc::new(LentBatch::new(region.clone(), note.number, releases.clone()));
    Ok(PlacedBatch { note, lent, arrays, columns })
}

/// Reads what there is, and takes the descriptors that came with it. No program that this process starts gets
/// them.
async fn read(socket: &UnixStream, buffer: &mut [u8], files: &mut VecDeque<OwnedFd>) -> io::Result<usize> {
    loop {
        socket.readable().await?;
        let read = socket.try_io(Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut bytes = [IoSliceMut::new(&mut *buffer)];
            let received = recvmsg(socket, &mut bytes, &mut control, RecvFlags::CMSG_CLOEXEC)?;
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    files.extend(came);
                }
            }
            match received.flags.contains(ReturnFlags::CTRUNC) {
                true => Err(Errno::MFILE.into()),
                false => Ok(received.bytes),
            }
        });
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

async fn write(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        let sent = socket.try_io(Interest::WRITABLE, || Ok(send(socket, bytes, SendFlags::NOSIGNAL)?));
        match sent {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
