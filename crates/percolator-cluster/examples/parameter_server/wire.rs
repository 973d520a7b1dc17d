//! What trainers and servers say to each other: a line of JSON each.
//!
//! A peer may be anything that connects. So a line has a greatest length, and every wait for a peer an end.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::shards::Shard;

/// How long a connection or an answer may take.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a line: all weights fit, each with the most digits that a number has.
const LINE_MAX: u64 = 64 << 10;

/// What a server is asked. Whoever asks says for which shard it takes the server: an address that was found
/// may be another server's by now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Ask {
    /// The weights, please.
    Pull(Shard),
    /// Change them along a gradient. The answer has the weights after that.
    Push(Shard, Push),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Push {
    pub(crate) trainer: Uuid,
    /// Counts the trainer's gradients. One that comes twice, because its answer was lost, is taken once.
    pub(crate) sequence: u64,
    pub(crate) gradient: Vec<f32>,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Answer {
    /// The weights, and how many gradients they are the result of.
    Weights { updates: u64, weights: Vec<f32> },
    /// It may pass if another server, or the same one later, may answer.
    Refused { message: String, may_pass: bool },
}

/// A connection to a peer.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Waits so long for a message, and for a peer to take one.
    pub(crate) fn new(stream: TcpStream, within: Duration) -> io::Result<Self> {
        // Small messages that wait for answers are not gathered.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        Ok(Connection(BufReader::new(stream)))
    }

    pub(crate) fn to(address: SocketAddr) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, ANSWER_WITHIN)?, ANSWER_WITHIN)
    }

    /// Receives a message, or none if the peer has closed the connection.
    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Option<M>> {
        let mut line = Vec::new();
        (&mut self.0).take(LINE_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if !line.ends_with(b"\n") {
            let what = format!("a message of {} bytes without an end, at most {LINE_MAX}", line.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(Some(serde_json::from_slice(&line)?))
    }

    pub(crate) fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.get_mut().write_all(&line)
    }

    /// Asks, and returns the answer.
    pub(crate) fn ask(&mut self, ask: &Ask) -> io::Result<Answer> {
        self.send(ask)?;
        self.receive()?.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}
